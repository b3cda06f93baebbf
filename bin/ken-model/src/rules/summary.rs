//! What a conversation was about, for compaction: of each exchange the first sentence of the prompt and of the answer.

use ken_text::sentences;
use ken_types::event::Message;
use ken_types::ops::model::Generate;

/// Of one sentence.
const SENTENCE_BYTES: usize = 240;

/// In fewer than `most` bytes. The newest exchanges are kept when it does not hold all.
pub(super) fn of(request: &Generate, most: usize) -> String {
    let mut lines: Vec<String> = Vec::new();
    for message in &request.messages {
        match message {
            Message::User { .. } => lines.push(format!("- User: {}", first(&message.text()))),
            Message::Assistant { .. } => lines.push(format!("  Answer: {}", first(&message.text()))),
            // What was summed up before stands as it is.
            Message::Signal { .. } => lines.push(message.text()),
            Message::ToolResult { .. } => {}
        }
    }
    let mut left = most;
    let fitting = lines.iter().rev().take_while(|line| {
        let fits = line.len() < left;
        left = left.saturating_sub(line.len() + 1);
        fits
    });
    let dropped = lines.len() - fitting.count();
    lines.drain(..dropped);
    lines.join("\n")
}

fn first(text: &str) -> String {
    let sentence = sentences(text)
        .next()
        .map(|sentence| sentence.text)
        .unwrap_or_default();
    let end = ken_text::head(sentence, SENTENCE_BYTES).len();
    let more = if end < sentence.len() { "…" } else { "" };
    sentence.get(..end).unwrap_or_default().replace('\n', " ") + more
}
