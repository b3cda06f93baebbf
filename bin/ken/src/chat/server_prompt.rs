//! A prompt of an MCP server in place of a template: `ken chat -t SERVER/PROMPT`.

use ken_client::piped::fenced;
use ken_types::places::Places;
use ken_types::{Code, Error};
use serde_json::Value;

use crate::external;

/// The message of a person who gives the name of a prompt and no text.
pub(super) const CHOSEN: &str = "I have chosen this prompt. Do what it asks.";

/// Returns the server and the prompt that a template names. Names of templates have no slash, and names of servers are no folders.
pub(super) fn named(template: &str) -> Option<(&str, &str)> {
    let is_plain = |name: &str| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
    template.split_once('/').filter(|(server, _)| !server.is_empty() && is_plain(server))
}

/// Returns the text of a prompt, marked as written by others.
pub(super) fn text(places: &Places, server: &str, prompt: &str, params: &[(String, String)]) -> Result<String, Error> {
    let mut command = external::installed("ken-tools")?;
    command.args(["prompt", "--format", "compact", "--dir"]).arg(places.config.with_file_name("tools.d"));
    command.args(["--", server, prompt]).args(params.iter().map(|(name, value)| format!("{name}={value}")));
    let printed = external::printed(command.env("KEN_STATE_DIR", &places.state), Code::Unavailable)?;
    let reply: Value = serde_json::from_slice(&printed).map_err(|error| Error::internal(error.to_string()))?;
    let text = reply.get("text").and_then(Value::as_str).unwrap_or_default();
    Ok(fenced(&format!("The prompt {prompt:?} of the MCP server {server:?}, which others have written"), text))
}
