//! kend with test programs as parts. One program, so that its tests run side by side: most of them wait for limits of kend.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../common/mod.rs"]
mod common;
mod control_socket;
mod logs;
mod orphans;
mod reload;
mod reports;
mod restart;
mod start;
mod stop;
mod upgrade;
