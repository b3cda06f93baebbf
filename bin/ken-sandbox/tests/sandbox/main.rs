//! The sandbox with real commands in it, in one program, so that its tests run side by side.

#![allow(clippy::unwrap_used)]

mod command_line;
mod common;
mod escape;
mod git;
mod network;
