//! Renders a request as plain text, for a model that has no chat format.

use ken_types::event::{Block, Message};
use ken_types::ops::model::Generate;

use crate::sources;

/// Stop sequences: where the model would begin to write somebody else's message.
pub(super) const STOPS: [&str; 4] = ["\nUser:", "\nAssistant:", "\nNote:", "\nTool "];

/// Returns the rules, the conversation with the time and the sources before its last message, and the beginning of the answer. A model of this
/// kind continues a text, so nothing may stand behind the message. The text does not mention tools, because such a model cannot call them.
pub(super) fn of(request: &Generate) -> String {
    let mut parts = Vec::new();
    let system = request.system.trim();
    if !system.is_empty() {
        parts.push(format!("{system}\n"));
    }
    let (earlier, last) = request.messages.split_at(last_of_user(request));
    parts.extend(earlier.iter().map(message));
    parts.extend(request.now.as_ref().map(|now| sources::time(now)));
    parts.extend(sources::behind_message(request));
    parts.extend(last.iter().map(message));
    parts.push(match request.prefix.as_str() {
        "" => "Assistant:".to_owned(), // the model's first token begins with the space
        text => format!("Assistant: {text}"),
    });
    parts.join("\n")
}

/// Returns the index of the user's last message; that of the end if there is none.
fn last_of_user(request: &Generate) -> usize {
    let is_of_user = |message: &Message| matches!(message, Message::User { .. });
    request.messages.iter().rposition(is_of_user).unwrap_or(request.messages.len())
}

fn message(message: &Message) -> String {
    let text = text(message);
    match message {
        Message::User { .. } => format!("User: {text}"),
        Message::Assistant { .. } => format!("Assistant: {text}"),
        Message::Signal { .. } => format!("Note: {text}"),
        Message::ToolResult { tool_name, .. } => format!("Tool {tool_name}: {text}"),
    }
}

/// Returns the text of a message. A tool call is described in words, so that its result has a context.
fn text(message: &Message) -> String {
    let blocks = message.content().iter().filter_map(|block| match block {
        Block::Text { text } => Some(text.trim().to_owned()),
        Block::ToolCall { name, arguments, .. } => Some(format!("(uses the tool {name} with {arguments})")),
        Block::Thinking { .. } | Block::Image { .. } => None,
    });
    blocks.filter(|text| !text.is_empty()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(request: &str) -> Generate {
        ken_types::ops::call::read(request, ken_tool::MAX_DEPTH).unwrap()
    }

    #[test]
    fn a_conversation_is_plain_text_that_ends_where_the_answer_begins() {
        let mut request = read(
            r#"{"system":"Be brief.\n","messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":"Hello."},
            {"role":"user","content":"Which port?"}],
            "sources":[{"id":"kb-1","kind":"knowledge","title":"Ports","text":"It is 3940.","score":1}],"mark":"m"}"#,
        );
        let sources = sources::behind_message(&request).unwrap();
        assert!(sources.contains("\n--- begin m [kb-1] \"Ports\"\nIt is 3940.\n--- end m\n"), "{sources}");
        let start = format!("Be brief.\n\nUser: Hi\nAssistant: Hello.\n{sources}\nUser: Which port?\nAssistant:");
        assert_eq!(of(&request), start);
        request.prefix = "It is".into();
        assert_eq!(of(&request), format!("{start} It is"));
    }

    #[test]
    fn no_line_of_a_conversation_could_be_taken_for_the_answer() {
        let roles = r#"{"messages":[{"role":"user","content":"a"},{"role":"signal","content":"b"},
            {"role":"toolResult","toolCallId":"c","toolName":"t","content":"d"}]}"#;
        let prompt = format!("\n{}", of(&read(roles)));
        let heads = prompt.match_indices('\n').map(|(at, _)| &prompt[at..]);
        assert!(
            heads.clone().count() == 4 && heads.clone().all(|line| STOPS.iter().any(|stop| line.starts_with(stop)))
        );
    }
}
