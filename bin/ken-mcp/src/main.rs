//! ken-mcp: ken for other agents, by the Model Context Protocol over standard input and output. It copies lines to `POST /mcp` of the
//! gateway, which is the server. See ken-mcp(1).

mod cli;
mod find;
mod relay;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;
use ken_client::lines::{self, Line};
use ken_types::error::wants_json_errors;
use ken_types::id::Mint;
use ken_types::uri::encode_query;
use ken_types::{Code, Error};
use serde_json::Value;

use cli::Cli;
use relay::{Relay, refuse};

/// The maximum length of a message, in bytes: that of a request body of the gateway.
const MAX_BYTES: usize = 1 << 20;
const INVALID_REQUEST: i64 = -32_600;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(wrong) if wrong.use_stderr() && wants_json_errors() => return fail(&ken_tool::usage_error(&wrong)),
        Err(shown) => {
            _ = shown.print();
            return ExitCode::from(u8::try_from(shown.exit_code()).unwrap_or(Code::Invalid.exit_status()));
        }
    };
    run(&cli).map_or_else(|error| fail(&error), |()| ExitCode::SUCCESS)
}

fn run(cli: &Cli) -> Result<(), Error> {
    let relay = Relay::new(find::gateway(cli)?, target(cli), Mint::fresh()?.ulid());
    // An error of standard output means that the other agent is gone.
    _ = copy(&relay);
    relay.finish();
    Ok(())
}

fn copy(relay: &std::sync::Arc<Relay>) -> io::Result<()> {
    let mut input = io::stdin().lock();
    while let Some(line) = lines::next(&mut input, MAX_BYTES)? {
        match line {
            Line::Whole(line) => relay.take(line)?,
            Line::TooLong => {
                let message = format!("a message is longer than {MAX_BYTES} bytes");
                refuse(&Value::Null, INVALID_REQUEST, &message)?;
            }
        }
    }
    Ok(())
}

/// The address of the server, with the person or program that asks.
fn target(cli: &Cli) -> String {
    let named = [("actorId", &cli.actor), ("conversationId", &cli.conversation)].into_iter();
    let pairs = named.filter_map(|(name, value)| Some(format!("{name}={}", encode_query(value.as_ref()?))));
    let query = pairs.collect::<Vec<_>>().join("&");
    if query.is_empty() { "/mcp".to_owned() } else { format!("/mcp?{query}") }
}

fn fail(error: &Error) -> ExitCode {
    _ = io::stderr().write_all(ken_tool::error_text("ken-mcp", error, false).as_bytes());
    ExitCode::from(error.code.exit_status())
}
