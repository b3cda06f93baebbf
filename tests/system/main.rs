//! The whole system: starts, kills, reloads, installation, and the structure of the sources.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, clippy::print_stderr)]

mod contract_fuzz;
mod crash;
mod full_disk;
mod import_circles;
mod install;
mod kills;
mod reload;
mod secrets;
mod service_user;
mod soak;
mod stalls;
mod upgrade;
mod walls;
mod wire;
