//! Renders a request as plain text, for a model that has no chat format.

use ken_types::event::{Block, Message};
use ken_types::ops::model::{Generate, Source};

/// Stop sequences: where the model would begin to write somebody else's message.
pub(super) const STOPS: [&str; 4] = ["\nUser:", "\nAssistant:", "\nNote:", "\nTool "];

/// Returns the rules, the sources, the conversation and the beginning of the answer. The text does not mention tools, because a model of
/// this kind cannot call them.
pub(super) fn of(request: &Generate) -> String {
    let mut parts = Vec::new();
    let system = request.system.trim();
    if !system.is_empty() {
        parts.push(format!("{system}\n"));
    }
    parts.extend(request.sources.iter().map(source));
    parts.extend(request.messages.iter().map(message));
    parts.push(match request.prefix.as_str() {
        "" => "Assistant:".to_owned(), // the model's first token begins with the space
        text => format!("Assistant: {text}"),
    });
    parts.join("\n")
}

fn source(source: &Source) -> String {
    format!("[{}] {}: {}", source.id, source.title, source.text)
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
            "sources":[{"id":"kb-1","kind":"knowledge","title":"Ports","text":"It is 3940.","score":1}]}"#,
        );
        let start =
            "Be brief.\n\n[kb-1] Ports: It is 3940.\nUser: Hi\nAssistant: Hello.\nUser: Which port?\nAssistant:";
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
