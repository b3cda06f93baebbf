//! The coder as ken-tools runs it, in one program, so that its tests run side by side.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

mod commands;
mod common;
mod files;
mod folder;
mod git;
mod network;
mod person_git;
mod plans;
mod previews;
mod repositories;
mod undo;
mod walls;
