//! The protocol tools, and the tools of ken-tools.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

mod judge;
mod lines_fuzz;
mod protocol_tools;
mod tools_manifest;
mod workflow;
