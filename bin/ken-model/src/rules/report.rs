//! Reports the results of tools.

use ken_types::event::Message;

/// The maximum part of a result that is shown, in bytes.
const MAX_SHOWN_BYTES: usize = 2_000;

/// Returns the results at the end of the conversation, in their order.
pub(super) fn of(messages: &[Message]) -> String {
    let first = messages.iter().rposition(|message| !matches!(message, Message::ToolResult { .. }));
    let results = messages.get(first.map_or(0, |at| at + 1)..).unwrap_or_default();
    results.iter().filter_map(line).collect::<Vec<_>>().join("\n")
}

fn line(message: &Message) -> Option<String> {
    let Message::ToolResult { tool_name, is_error, .. } = message else {
        return None;
    };
    let verb = if *is_error { "failed" } else { "answered" };
    let text = message.text();
    let shown = ken_text::head(&text, MAX_SHOWN_BYTES);
    let more = if shown.len() < text.len() { "…" } else { "" };
    Some(format!("The tool {tool_name} {verb}: {shown}{more}"))
}
