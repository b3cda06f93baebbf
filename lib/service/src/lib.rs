//! The daemon skeleton. A daemon's `main` is one call of [`run`]: the skeleton owns options, configuration, logs,
//! inherited sockets, readiness, the watchdog and shutdown; the daemon supplies its operations.
//!
//! Under `kend`, everything comes through the environment (kend(8), "The process of a part"). A daemon that is started by hand
//! with `--home DIR` creates its own socket below that folder and does the same.

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
pub use secrets::{
    inherit as inherit_secrets, longest_secret, redacted, redacted_head, redacted_tail, redacted_value, secret,
};
pub use sockets::Sockets;
