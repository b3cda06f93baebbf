//! A call that may be made as far as name, agent and arguments go, and the processes that are run for it.

use std::time::Duration;

use ken_types::Error;
use ken_types::ops::tools::CallTool;
use serde_json::Value;

use crate::catalog::Listing;
use crate::entry::Entry;
use crate::process::{self, End, Ended, Work};

/// A call of a tool that there is, for an agent that may call it, with arguments that fit.
pub(crate) struct Admitted<'a> {
    pub(crate) entry: &'a Entry,
    pub(crate) call: CallTool,
}

impl Admitted<'_> {
    /// `not_found`, `forbidden` or `invalid` for any other.
    pub(crate) fn new(listing: &Listing, mut call: CallTool) -> Result<Admitted<'_>, Error> {
        let entry = listing.entries.get(&call.name).ok_or_else(|| {
            Error::not_found(format!("there is no tool `{}`", call.name))
                .at("/name")
                .hint("`ken-tools list` shows which there are")
        })?;
        if let Some(agent) = &call.agent
            && !entry.tool.agents.contains(agent)
        {
            let message = format!("the tool `{}` is not for {agent}", call.name);
            return Err(Error::forbidden(message));
        }
        if call.arguments.is_null() {
            call.arguments = Value::Object(serde_json::Map::new());
        }
        entry.input.check("/arguments", &call.arguments)?;
        Ok(Admitted { entry, call })
    }

    /// Runs the tool's command, or its preview, which may change nothing.
    pub(crate) async fn process(
        &self,
        command: &[String],
        may_change: bool,
        most: usize,
    ) -> Result<Ended, String> {
        let (run, session) = (self.call.submission.as_deref(), self.call.session.as_deref());
        let variables = [("KEN_RUN", run), ("KEN_SESSION", session)];
        let variables: Vec<_> = variables
            .into_iter()
            .filter_map(|(name, value)| Some((name, value?)))
            .collect();
        process::run(&Work {
            entry: self.entry,
            command,
            input: &self.call.arguments.to_string(),
            may_change,
            most,
            variables: &variables,
        })
        .await
    }
}

/// What a process of the tool wrote, trimmed; or why that does not count, in words for the model.
pub(crate) fn written<'a>(
    entry: &Entry,
    ended: &'a Ended,
    ok_status: &[u8],
    most: usize,
) -> Result<&'a str, String> {
    let name = &entry.tool.spec.name;
    match ended.end {
        End::Status(status) if ok_status.contains(&status) => {}
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
            return Err(format!("The tool {name} wrote more than {most} bytes."));
        }
    }
    std::str::from_utf8(&ended.output)
        .map(str::trim)
        .map_err(|_| format!("The tool {name} wrote bytes that are not UTF-8."))
}

fn seconds(time: Duration) -> String {
    format!("{} s", time.as_secs_f64())
}

/// With what the tool said about it.
pub(crate) fn failed(name: &str, how: &str, errors: &str) -> String {
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
