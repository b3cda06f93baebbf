//! One call of a tool: arguments are checked, the process runs, its answer is checked.

use std::time::{Duration, Instant};

use ken_types::Error;
use ken_types::event::{Block, ToolResult};
use ken_types::json;
use ken_types::ops::tools::{CallTool, Called};
use serde_json::Value;
use tokio::sync::Semaphore;

use crate::catalog::Listing;
use crate::entry::{Entry, Writes};
use crate::process::{self, End, Ended};

/// Processes at a time; further calls wait.
const AT_ONCE: usize = 16;
/// What a model is told of a result, in bytes; the rest is left out and it says so.
const TEXT_BYTES: usize = 32 * 1024;
/// Results up to here are also kept whole, as JSON.
const DETAILS_BYTES: usize = 128 * 1024;
/// The deepest nesting of a result.
const MAX_DEPTH: usize = 64;

/// Runs calls.
pub(crate) struct Caller {
    places: Semaphore,
}

impl Default for Caller {
    fn default() -> Caller {
        Caller {
            places: Semaphore::new(AT_ONCE),
        }
    }
}

impl Caller {
    pub(crate) fn running(&self) -> usize {
        AT_ONCE - self.places.available_permits()
    }

    pub(crate) async fn call(&self, listing: &Listing, call: CallTool) -> Result<Called, Error> {
        let entry = listing.entries.get(&call.name).ok_or_else(|| {
            Error::not_found(format!("there is no tool `{}`", call.name))
                .at("/name")
                .hint("`ken-tools list` shows which there are")
        })?;
        if call
            .agent
            .as_ref()
            .is_some_and(|agent| !entry.tool.agents.contains(agent))
        {
            let agent = call.agent.unwrap_or_default();
            return Err(Error::forbidden(format!(
                "the tool `{}` is not for {agent}",
                call.name
            )));
        }
        let arguments = match call.arguments {
            Value::Null => Value::Object(serde_json::Map::new()),
            arguments => arguments,
        };
        entry.input.check("/arguments", &arguments)?;
        let _place = self.places.acquire().await; // never closed
        let begun = Instant::now();
        let ended = process::run(entry, arguments.to_string()).await;
        let (is_error, result) = match ended.and_then(|ended| read(entry, ended)) {
            Ok(result) => (false, result),
            Err(why) => (true, text(why)),
        };
        Ok(Called {
            is_error,
            result,
            duration_ms: u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX),
        })
    }
}

fn text(text: String) -> ToolResult {
    ToolResult {
        content: vec![Block::text(text)],
        details: Value::Null,
    }
}

/// What the tool answered; or why it did not, in words for the model.
fn read(entry: &Entry, ended: Ended) -> Result<ToolResult, String> {
    let name = &entry.tool.spec.name;
    match ended.end {
        End::Status(status) if entry.ok_status.contains(&status) => {}
        End::Status(status) => {
            return Err(failed(
                name,
                &format!("ended with status {status}"),
                &ended.errors,
            ));
        }
        End::TimedOut => {
            return Err(format!(
                "The tool {name} did not end within {}.",
                seconds(entry.timeout)
            ));
        }
        End::TooMuch => {
            return Err(format!(
                "The tool {name} wrote more than {} bytes.",
                process::MAX_OUTPUT
            ));
        }
    }
    let written = String::from_utf8(ended.output)
        .map_err(|_| format!("The tool {name} wrote bytes that are not UTF-8."))?;
    let written = written.trim();
    if entry.writes == Writes::Text {
        return Ok(text(shortened(written)));
    }
    if written.is_empty() {
        return Err(failed(name, "wrote nothing", &ended.errors));
    }
    let value = json::parse(written.as_bytes(), MAX_DEPTH)
        .map_err(|error| format!("The tool {name} did not write JSON: {}", error.message))?;
    if let Some(schema) = &entry.output {
        schema.check("", &value).map_err(|error| {
            format!("The result of the tool {name} is not as its description says: {error}")
        })?;
    }
    let compact = value.to_string();
    Ok(ToolResult {
        content: vec![Block::text(shortened(&compact))],
        details: if compact.len() <= DETAILS_BYTES {
            value
        } else {
            Value::Null
        },
    })
}

fn seconds(time: Duration) -> String {
    format!("{} s", time.as_secs_f64())
}

/// With what the tool said about it.
fn failed(name: &str, how: &str, errors: &str) -> String {
    let said = serde_json::from_str::<Value>(errors).ok();
    let said = said
        .as_ref()
        .and_then(|said| said.pointer("/error/message"))
        .and_then(Value::as_str);
    match said.unwrap_or(errors) {
        "" => format!("The tool {name} {how}."),
        said => format!("The tool {name} {how}: {said}"),
    }
}

fn shortened(text: &str) -> String {
    if text.len() <= TEXT_BYTES {
        return text.to_owned();
    }
    let head = ken_text::head(text, TEXT_BYTES);
    format!("{head}\n[cut: {} of {} bytes are shown]", head.len(), text.len())
}
