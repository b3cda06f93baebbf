//! What a person types: `ken` and `ken-tui`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

mod acp;
mod commands;
mod doctor;
mod doctor_faults;
mod ken_chat;
mod ken_knowledge;
mod ken_mcp;
mod ken_stream;
mod terminal;
mod tui;
