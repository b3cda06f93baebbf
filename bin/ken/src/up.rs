//! `ken up`: replaces itself by kend, or starts kend in the background and waits until it reports readiness.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use clap::Args;
use ken_types::Error;
use ken_types::ops::kend::{PartsStatus, StatusArgs};

use crate::client::{KEND, call};
use crate::doctor::{Finding, sandbox};
use crate::external::{cannot_run, installed};
use crate::globals::Globals;
use crate::output::{Outcome, print_line};
use crate::progress::during;
use crate::status::note_reports;

#[derive(Debug, Args)]
pub(crate) struct Up {
    /// Port of the gateway; 0 picks a free one
    #[arg(long, value_name = "N")]
    pub(crate) port: Option<u16>,
    /// Port of the cognitive server; 0 picks a free one
    #[arg(long, value_name = "N")]
    pub(crate) cognitive_port: Option<u16>,
    /// Run in the background, and return when everything is ready
    #[arg(short = 'd', long)]
    pub(crate) detach: bool,
    /// Only say what commands of agents lack on this machine; `ken up` starts itself with this while kend starts
    #[arg(long, hide = true)]
    pub(crate) only_warn: bool,
}

pub(crate) fn run(globals: &Globals, up: &Up) -> Outcome {
    if up.only_warn {
        warn_about_sandbox();
        return Ok(ExitCode::SUCCESS);
    }
    let mut kend = installed("kend")?;
    kend.arg("--announce");
    if let Some(home) = globals.home()? {
        kend.arg("--home").arg(home);
    }
    for (option, port) in [("--port", up.port), ("--cognitive-port", up.cognitive_port)] {
        if let Some(port) = port {
            kend.arg(option).arg(port.to_string());
        }
    }
    if !up.detach {
        warn_beside_kend();
        let error = kend.exec();
        return Err(cannot_run(&kend, &error));
    }
    kend.arg("--background").stdin(Stdio::null()).stdout(Stdio::piped());
    let started = kend.spawn().map_err(|error| cannot_run(&kend, &error))?;
    // The question takes as long as kend takes to read its configuration, so it is asked meanwhile.
    warn_about_sandbox();
    let done = wait_for_ready_line(started)?;
    // A store whose database server cannot be used is ready, and works as soon as it can.
    if done == ExitCode::SUCCESS
        && let Ok(status) =
            call::<PartsStatus>(&globals.places()?, KEND, &StatusArgs::default(), Some(Duration::from_secs(5)))
    {
        note_reports(&status.parts);
    }
    Ok(done)
}

/// Lets another process warn about the sandbox, because this one is about to become kend and the question would delay it.
/// kend leaves alone the children that it had before.
fn warn_beside_kend() {
    let Ok(ken) = std::env::current_exe() else { return };
    // Without that process only the warning is missing, which `ken doctor` gives too.
    let _ = Command::new(ken).args(["up", "--only-warn"]).stdin(Stdio::null()).stdout(Stdio::null()).spawn();
}

/// Says on standard error what commands of agents lack on this machine. Everything else works without it.
fn warn_about_sandbox() {
    let Some(Finding { why, .. }) = sandbox::find() else { return };
    // Nowhere is left to report that this failed.
    let _ = writeln!(std::io::stderr().lock(), "warning: {why} (`ken doctor` names the remedy)");
}

/// Waits for the `ready` line of kend and prints it. kend closes its output after that line, or when it fails.
fn wait_for_ready_line(mut kend: Child) -> Outcome {
    let mut line = String::new();
    if let Some(output) = kend.stdout.take() {
        let read = || BufReader::new(output).read_line(&mut line);
        let _ = during("starting", read);
    }
    if !line.is_empty() {
        print_line(line.trim_end())?;
        return Ok(ExitCode::SUCCESS);
    }
    let status = kend.wait().map_err(|error| Error::internal(error.to_string()))?;
    // kend has printed the cause on standard error.
    let code = status.code().and_then(|code| u8::try_from(code).ok()).filter(|code| *code != 0);
    Ok(ExitCode::from(code.unwrap_or(70)))
}
