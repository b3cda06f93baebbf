//! ken-proxy: the only way to the network for a command of the coding worker. It connects only to the hosts that the
//! rules name, looks up and checks their addresses itself, and adds keys that the command never sees. See ken-proxy(1).

mod proxy;
mod redact;
mod refused;
mod upstream;

use std::io::Write;
use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use clap::error::ErrorKind;
use ken_tool::{Error, MAX_DEPTH, MAX_INPUT, error_text, usage_error};
use ken_types::config::Calls;
use ken_types::json;
use ken_types::proxy::ProxyRules;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader, stdin};

use crate::proxy::Proxy;

/// Proxy for one command: only the hosts that are named, keys put in on the way
///
/// Reads one line of JSON from standard input: {"hosts": ["example.org"], "private": [], "keys": {}}. Prints one line of
/// JSON with the URL for http_proxy, and serves until standard input ends.
#[derive(Parser)]
#[command(name = "ken-proxy", version)]
struct Cli {}

fn main() -> ExitCode {
    if let Err(error) = Cli::try_parse() {
        return match error.kind() {
            ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
                // Printing fails only if nobody reads the output any more, so the error cannot be reported.
                let _ = error.print();
                ExitCode::SUCCESS
            }
            _ => failed(&usage_error(&error).hint("ken-proxy --help lists the options")),
        };
    }
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(&error),
    }
}

fn run() -> Result<(), Error> {
    // Nothing more has to be bound, and nothing that others have written is read before the walls stand. They are set while there is
    // one thread.
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    let listener = listener.map_err(|error| Error::unavailable(format!("the proxy cannot listen: {error}")))?;
    let certificates = std::env::var_os("SSL_CERT_FILE").map(PathBuf::from);
    ken_walls::part::enter(Calls::Network, certificates.into_iter().collect())
        .map_err(|why| Error::unavailable(format!("the proxy cannot restrict itself: {why}")))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| Error::internal(error.to_string()))?.block_on(serve(listener))
}

/// Writes the error to standard error in one line. Returns exit status 2.
fn failed(error: &Error) -> ExitCode {
    // If standard error cannot be written, the exit status still reports the failure.
    let _ = std::io::stderr().write_all(error_text("ken-proxy", error, false).as_bytes());
    ExitCode::from(2)
}

async fn serve(listener: TcpListener) -> Result<(), Error> {
    let mut input = BufReader::new(stdin().take(MAX_INPUT as u64));
    let mut line = String::new();
    let unread = |error: std::io::Error| Error::invalid("", format!("standard input: {error}"));
    input.read_line(&mut line).await.map_err(unread)?;
    let rules: ProxyRules = json::from_value(json::parse(line.as_bytes(), MAX_DEPTH)?)?;
    let (proxy, ready) = Proxy::open(listener, rules)?;
    let text = serde_json::to_string(&ready).map_err(|error| Error::internal(error.to_string()))?;
    let mut stdout = std::io::stdout().lock();
    let printed = writeln!(stdout, "{text}").and_then(|()| stdout.flush());
    printed.map_err(|error| Error::unavailable(format!("standard output: {error}")))?;
    drop(stdout);
    let over = async {
        let mut rest = [0; 256];
        while matches!(input.read(&mut rest).await, Ok(1..)) {}
    };
    tokio::select! {
        () = over => Ok(()),
        () = Arc::new(proxy).accept() => Ok(()),
    }
}
