//! The daemon skeleton. A daemon's `main` is one call of [`run`]: the skeleton owns options, configuration, logs,
//! inherited sockets, readiness, the watchdog and shutdown; the daemon supplies its operations.
//!
//! When `kend` starts a daemon, it passes everything through the environment (kend(8), "The process of a part"). A
//! daemon that is started manually with `--home DIR` creates its socket below that folder and otherwise works in the
//! same way.

mod config;
mod descriptor;
mod guard;
mod hmac;
mod log;
mod options;
mod run;
mod secrets;
mod sockets;

pub use config::load as load_config;
pub use hmac::hmac_sha256;
pub use options::{NoOptions, is_part};
pub use run::{Program, Start, Stop, report_status, run};
pub use secrets::{
    inherit as inherit_secrets, longest_secret, redacted, redacted_head, redacted_tail, redacted_value, secret,
};
pub use sockets::Sockets;

/// Returns the name of this machine, as hostname(1) prints it.
pub fn host_name() -> Option<String> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    Some(name.trim().to_owned()).filter(|name| !name.is_empty())
}
