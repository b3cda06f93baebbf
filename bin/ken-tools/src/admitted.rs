//! A call whose tool, agent and arguments have been checked, and the processes that run for it.

use ken_types::fence::named;
use ken_types::ops::tools::CallTool;
use ken_types::{Error, json};
use serde_json::Value;

use crate::catalog::Listing;
use crate::entry::Entry;
use crate::process::{End, Ended, Work};

/// A call of an existing tool by an agent that may use it, with arguments that match the tool's schema.
pub(crate) struct Admitted<'a> {
    pub(crate) entry: &'a Entry,
    pub(crate) call: CallTool,
}

impl Admitted<'_> {
    /// Checks the call. Fails with `not_found`, `forbidden` or `invalid`.
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

    /// Returns what `command` needs to run: the tool itself, or its preview if `may_change` is false. Its output can have at
    /// most `max` bytes.
    pub(crate) fn work<'a>(&'a self, command: &'a [String], may_change: bool, max: usize) -> Work<'a> {
        let call = &self.call;
        let variables = [
            ("KEN_RUN", call.submission.clone()),
            ("KEN_SESSION", call.session.clone()),
            ("KEN_OUTSIDE", Some(named(&call.outside)).filter(|origins| !origins.is_empty())),
            ("KEN_FOLDER", call.workspace.clone()),
        ];
        let variables = variables.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
        Work { entry: self.entry, command, input: call.arguments.to_string(), may_change, max, variables }
    }
}

/// Returns the standard output of a tool's process, trimmed but not redacted, or an error message for the model.
pub(crate) fn written<'a>(entry: &Entry, ended: &'a Ended, ok_status: &[u8], max: usize) -> Result<&'a str, String> {
    let name = &entry.tool.name;
    match ended.end {
        End::Status(status) if ok_status.contains(&status) => {}
        End::Status(status) => {
            let how = format!("ended with status {status}");
            return Err(failed(name, &how, &ended.errors));
        }
        End::TimedOut => {
            let seconds = entry.timeout.as_secs_f64();
            return Err(format!("The tool {name} did not end within {seconds} s."));
        }
        End::TooMuch => return Err(format!("The tool {name} wrote more than {max} bytes.")),
    }
    std::str::from_utf8(&ended.output)
        .map(str::trim)
        .map_err(|_| format!("The tool {name} wrote bytes that are not UTF-8."))
}

/// Returns the message for a tool that failed, with its standard error.
pub(crate) fn failed(name: &str, how: &str, errors: &str) -> String {
    let error = serde_json::from_str::<Value>(errors).ok();
    let field = |name: &str| error.as_ref()?.pointer(name)?.as_str();
    let message = match (field("/error/message"), field("/error/hint")) {
        (Some(message), Some(hint)) => format!("{message}; {hint}"),
        (message, _) => message.unwrap_or(errors).to_owned(),
    };
    // The message is redacted again, because JSON escapes may have hidden a secret in the raw text.
    match json::visible_nul(ken_service::redacted(message)).as_str() {
        "" => format!("The tool {name} {how}."),
        message => format!("The tool {name} {how}: {message}"),
    }
}
