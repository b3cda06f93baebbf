//! Adds pages of a transcript to the conversation.

use ken_approval::Request;
use ken_types::Error;
use ken_types::live_text::prompt_text;
use serde_json::Value;

use super::block::{Block, Kind, State};
use super::events::{duration, sources, text, text_at, why_incomplete};
use super::transcript::{Exchange, Status};
use super::{Model, sentence};

impl Model {
    pub(super) fn page(&mut self, older: bool, page: Result<Value, Error>) {
        self.loading_older &= !older;
        let page = match page {
            Ok(page) => page,
            Err(error) if older || self.attached => {
                self.notice = Some(sentence(&error));
                return;
            }
            Err(error) => return self.problem(&error),
        };
        let exchanges = page.get("exchanges").and_then(Value::as_array);
        let exchanges: Vec<Exchange> = exchanges.into_iter().flatten().map(exchange).collect();
        if self.attached && !older {
            // The page was requested only for prompts that another client sent.
            return self.add_prompts(exchanges);
        }
        self.older = page.pointer("/page/before").and_then(Value::as_str).map(str::to_owned);
        if !older
            && let Some(session) = &mut self.session
            && let Some(name) = page.pointer("/session/title").and_then(Value::as_str)
        {
            session.name = Some(name.to_owned());
        }
        self.transcript.prepend(exchanges);
        if older {
            if let Some(wanted) = self.search_again.take() {
                self.search(&wanted, true);
            } else if !self.transcript.follows() && self.transcript.is_near_beginning() {
                // Load one more page in advance, for a scrolling key that is held down.
                self.load_older();
            }
            return;
        }
        let offset = page.pointer("/stream/nextOffset").and_then(Value::as_str);
        self.attach(offset.unwrap_or("-1"));
    }

    fn add_prompts(&mut self, exchanges: Vec<Exchange>) {
        let is_prompt = |block: &Block| block.kind == Kind::Prompt;
        let is_own = |block: &Block| is_prompt(block) || block.id.starts_with("prompt:");
        for mut read in exchanges {
            if let Some(submission) = &read.submission
                && let Some(known) = self.transcript.find(submission)
                && !known.blocks.iter().any(is_own)
                && read.blocks.first().is_some_and(is_prompt)
            {
                known.blocks.insert(0, read.blocks.remove(0));
            }
        }
    }
}

/// Converts an exchange of a page. Of a running turn only the prompt is used, because the stream delivers all its
/// events.
fn exchange(record: &Value) -> Exchange {
    let text = |pointer: &str| text_at(record, pointer);
    let status = match text("/status") {
        "completed" => Status::Completed,
        "failed" => Status::Failed,
        "cancelled" => Status::Cancelled,
        _ => Status::Waiting,
    };
    let mut exchange = Exchange::new(Some(text("/submissionId")), status);
    if record.pointer("/prompt/text").is_some() {
        exchange.blocks.push(Block::new(Kind::Prompt, &prompt_text(record)));
    }
    if status == Status::Waiting {
        return exchange;
    }
    let activities = record.get("activities").and_then(Value::as_array);
    exchange.blocks.extend(activities.into_iter().flatten().filter_map(activity));
    if record.pointer("/assistant/text").is_some() {
        exchange.blocks.push(Block::new(Kind::Answer, text("/assistant/text")));
    }
    exchange.blocks.extend(record.get("assistant").and_then(sources));
    exchange.blocks.extend(why_incomplete(status, record));
    // Saves memory, because thousands of exchanges may be loaded.
    exchange.blocks.shrink_to_fit();
    exchange
}

/// Converts an activity of an exchange. Returns `None` for the operation itself, because every exchange has one.
fn activity(record: &Value) -> Option<Block> {
    let text = |name: &str| text(record, name);
    let failed = text("status") == "failed";
    let state = if failed { State::Failed } else { State::Done };
    let mut block = match text("kind") {
        "thinking" => Block::new(Kind::Thinking, text("preview")),
        "approval" => return Some(past_approval(record, state)),
        "operation" if !failed => return None,
        _ => Block::activity(text("name"), text("id"), state),
    };
    if failed {
        block.detail = text("error").to_owned();
    } else if block.kind == Kind::Activity {
        block.set_text(text("preview"));
    }
    block.duration = duration(record);
    Some(block)
}

/// Converts a request for an approval that has ended: what was asked, who decided, and when.
fn past_approval(record: &Value, state: State) -> Block {
    let request = record.get("approval").and_then(Request::of);
    let mut block = Block::activity(&format!("approval: {}", ken_text::visible_line(text(record, "name"))), "", state);
    block.detail = request.and_then(|request| request.end()).unwrap_or_default();
    block
}
