//! The engine `rules`, which answers without a language model, from the content of the request. It is a pure function:
//! equal requests get equal answers, byte for byte. Its answers say what they are based on and what the engine cannot
//! do.

mod answer;
mod greeting;
mod itself;
mod report;
mod search;
mod summary;

use std::sync::Arc;

use ken_types::Error;
use ken_types::event::{Message, ModelName, Purpose, StopReason, estimated_tokens};
use ken_types::ops::model::{Delta, Generate};

use crate::breaker::Breakers;
use crate::pieces::{after, pieces};
use crate::provider::{Completion, DeltaSink, Pending, Provider};
use crate::question;
use crate::usage::estimate;

#[derive(Debug)]
pub(crate) struct Rules {
    name: ModelName,
    alone: bool,
    breakers: Arc<Breakers>,
}

impl Rules {
    /// Creates the engine. `alone` means that no language model is configured besides it.
    pub(crate) fn new(alone: bool, breakers: Arc<Breakers>) -> Rules {
        let name = ModelName { provider: "rules".into(), id: "rules-1".into() };
        Rules { name, alone, breakers }
    }

    /// Returns the reason why no language model answers, as the beginning of a sentence.
    fn no_model(&self) -> String {
        if self.alone {
            return NO_MODEL.to_owned();
        }
        let down = self.breakers.down();
        let mut causes: Vec<String> = down.into_iter().map(|(name, cause)| format!("{name}: {cause}")).collect();
        let over_budget = self.breakers.over_budget().map(|why| format!("{why}; `ken usage` shows it"));
        // The budget may refuse one model while another one is down.
        let beginning = if causes.is_empty() && over_budget.is_some() { OVER_BUDGET } else { MODEL_DOWN };
        causes.extend(over_budget);
        if causes.is_empty() { beginning.to_owned() } else { format!("{beginning} ({})", causes.join("; ")) }
    }

    /// Returns the whole answer, including the part that was already sent.
    fn text(&self, request: &Generate) -> String {
        if request.purpose != Purpose::Agent {
            return summary::of(request, MAX_SUMMARY_BYTES);
        }
        let question = question::last(request);
        if let Some(Message::ToolResult { .. }) = request.messages.last() {
            return report::of(&request.messages);
        }
        if greeting::is_requested(request, &question) {
            return greeting::of(&question, &self.no_model());
        }
        let no_model = self.no_model();
        itself::answer(&question, &no_model).unwrap_or_else(|| answer::of(request, &question, &no_model))
    }
}

/// The maximum size of a summary, in bytes.
const MAX_SUMMARY_BYTES: usize = 16 * 1024;

/// Summarises a conversation in about this number of tokens, for a model that cannot do so.
pub(crate) async fn summarize(request: &Generate, tokens: u64, sink: &dyn DeltaSink) -> Result<Completion, Error> {
    let max = usize::try_from(tokens.saturating_mul(4)).map_or(MAX_SUMMARY_BYTES, |max| max.min(MAX_SUMMARY_BYTES));
    send_rest(&summary::of(request, max), request, sink).await
}

/// Sends the part of a text that was not already sent.
async fn send_rest(text: &str, request: &Generate, sink: &dyn DeltaSink) -> Result<Completion, Error> {
    let rest = after(text, &request.prefix);
    for piece in pieces(&rest) {
        let delta = piece.to_owned();
        sink.send(Delta::Text { delta }).await?;
    }
    Ok(Completion { stop_reason: StopReason::Stop, usage: estimate(request, estimated_tokens(&rest)) })
}

/// The beginnings of the engine's own sentences about itself. [`search`] does not use texts with such sentences as
/// sources.
const NO_MODEL: &str = "No language model is configured";
const MODEL_DOWN: &str = "No language model can be reached just now";
const OVER_BUDGET: &str = "The budget covers no call of a language model just now";
const CANNOT_WRITE: &str = "I cannot write knowledge entries myself";

impl Provider for Rules {
    fn api(&self) -> &'static str {
        "rules"
    }

    fn is_model(&self) -> bool {
        false
    }

    fn name(&self) -> &ModelName {
        &self.name
    }

    /// The engine searches only the user's newest messages here. Older ones are found by the memory search.
    fn exchanges(&self) -> u32 {
        10
    }

    fn answer<'a>(&'a self, request: &'a Generate, sink: &'a dyn DeltaSink) -> Pending<'a, Result<Completion, Error>> {
        Box::pin(async move { send_rest(&self.text(request), request, sink).await })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ken_types::event::Block;
    use ken_types::ops::model::{Source, SourceKind};

    pub(super) fn request(text: &str) -> Generate {
        let content = vec![Block::text(text)];
        Generate { messages: vec![Message::User { content, timestamp: 0, now: None }], ..Generate::default() }
    }

    pub(super) fn knowledge(id: &str, title: &str, text: &str) -> Source {
        Source {
            id: id.into(),
            kind: SourceKind::Knowledge,
            title: title.into(),
            text: text.into(),
            score: 1.0,
            origin: String::new(),
        }
    }

    pub(super) fn memory(id: &str, prompt: &str, answer: &str) -> Source {
        Source { kind: SourceKind::Memory, ..knowledge(id, prompt, answer) }
    }

    #[test]
    fn a_summary_holds_the_first_sentences_and_the_newest_exchanges() {
        let mut compaction = request("Which port? And why?");
        compaction.purpose = Purpose::Compaction;
        assert_eq!(Rules::new(true, Arc::default()).text(&compaction), "- User: Which port?");
        compaction.messages = (0..1_000)
            .flat_map(|number| request(&format!("Number {number} {}", "word ".repeat(20))).messages)
            .collect();
        let text = Rules::new(true, Arc::default()).text(&compaction);
        assert!(text.len() <= 16 * 1024 && text.contains("Number 999 ") && !text.contains("Number 1 "));
    }

    #[test]
    fn a_result_of_a_tool_is_reported() {
        let mut request = request("Add them");
        for (name, is_error) in [("sum", false), ("product", true)] {
            request.messages.push(Message::ToolResult {
                tool_call_id: name.into(),
                tool_name: name.into(),
                content: vec![Block::text("7")],
                details: serde_json::Value::Null,
                is_error,
                timestamp: 0,
            });
        }
        let text = Rules::new(true, Arc::default()).text(&request);
        assert_eq!(text, "The tool sum answered: 7\nThe tool product failed: 7");
    }
}
