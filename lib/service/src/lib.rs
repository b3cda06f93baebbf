//! The daemon skeleton. A daemon's `main` is one call of [`run`]: the skeleton owns options, configuration, logs,
//! inherited sockets, readiness, the watchdog and shutdown; the daemon supplies its operations.
//!
//! Under `kend` everything comes through the environment (ken.toml(5), "The environment of a part"). By hand, a daemon
//! started with `--home DIR` makes its own socket below it and does the same.

mod config;
mod descriptor;
mod guard;
mod log;
mod options;
mod run;
mod secrets;
mod sockets;

pub use options::NoOptions;
pub use run::{Program, Start, Stop, run};
pub use secrets::{inherit as inherit_secrets, secret};
pub use sockets::Sockets;
