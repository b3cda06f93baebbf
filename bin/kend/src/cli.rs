use std::path::PathBuf;

use clap::Parser;

/// Starts, watches and restarts the parts of ken.
#[derive(Debug, Parser)]
#[command(name = "kend", version, after_help = "Manual: kend(8), ken.toml(5)")]
pub(crate) struct Cli {
    /// Keep configuration, state and sockets under DIR
    #[arg(long, value_name = "DIR")]
    pub(crate) home: Option<PathBuf>,
    /// Read FILE instead of the usual ken.toml
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Port of the gateway, instead of the configured one; 0 picks a free one
    #[arg(long, value_name = "N")]
    pub(crate) port: Option<u16>,
    /// Port of the cognitive server, instead of the configured one; 0 picks a free one
    #[arg(long, value_name = "N")]
    pub(crate) cognitive_port: Option<u16>,
    /// Report all errors of the configuration, start nothing
    #[arg(long)]
    pub(crate) check: bool,
    /// Print one line when all parts are ready; if one does not become ready, stop all and fail
    #[arg(long)]
    pub(crate) announce: bool,
    /// Run in a new session, without output after all parts are ready
    #[arg(long)]
    pub(crate) background: bool,
    /// Take the place of the kend that has run in this process until now; with --check, say only whether that is possible
    #[arg(long, value_name = "FD", conflicts_with_all = ["home", "config", "port", "cognitive_port", "announce", "background"])]
    pub(crate) takeover: Option<i32>,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn every_option_is_in_the_manual() {
        let manual = include_str!("../../../man/man8/kend.8");
        let kend = Cli::command();
        kend.clone().debug_assert();
        for option in kend.get_opts().filter_map(clap::Arg::get_long) {
            assert!(manual.contains(&format!("Fl Fl {option}")), "--{option} is not in kend(8)");
        }
    }
}
