//! A summary of a conversation, for compaction: the first sentence of each prompt and of each answer.

use ken_text::sentences;
use ken_types::event::Message;
use ken_types::ops::model::{Generate, SourceKind};

/// The maximum size of a sentence, in bytes. A longer one is cut.
const MAX_SENTENCE_BYTES: usize = 240;

/// Returns the summary, in fewer than `max` bytes. If not all exchanges fit, the newest are kept.
pub(super) fn of(request: &Generate, max: usize) -> String {
    // An earlier summary is kept as it is.
    let earlier = request.sources.iter().filter(|source| source.kind == SourceKind::Context);
    let mut lines: Vec<String> = earlier.map(|source| source.text.clone()).collect();
    for message in &request.messages {
        match message {
            Message::User { .. } => lines.push(format!("- User: {}", first(&message.text()))),
            Message::Assistant { .. } => lines.push(format!("  Answer: {}", first(&message.text()))),
            Message::Signal { .. } => lines.push(message.text()),
            Message::ToolResult { .. } => {}
        }
    }
    let mut left = max;
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
    let sentence = sentences(text).next().map(|sentence| sentence.text).unwrap_or_default();
    let shown = ken_text::head(sentence, MAX_SENTENCE_BYTES);
    let more = if shown.len() < sentence.len() { "…" } else { "" };
    shown.replace('\n', " ") + more
}
