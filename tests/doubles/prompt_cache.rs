//! The prompt cache of a provider: it counts how much of a request is the beginning of an earlier one. A token is four bytes here.

use std::collections::HashSet;

use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::provider::{Piece, ReceivedRequest, anthropic, openai, with_usage};

const TOKEN_BYTES: usize = 4;
/// OpenAI keeps beginnings of at least 1,024 tokens, in steps of 128.
const LEAST_TOKENS: usize = 1_024;
const STEP_TOKENS: usize = 128;
/// The number of blocks before a mark at which Anthropic looks for what it has kept.
const BLOCKS_BEFORE: usize = 20;

/// The input tokens of a request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counted {
    /// All of them.
    pub all: usize,
    pub cached: usize,
    /// Those that are kept from now on. OpenAI does not count them.
    pub written: usize,
}

/// A cache that never forgets.
#[derive(Debug, Default)]
pub struct PromptCache {
    whole: Mutex<Vec<String>>,
    marked: Mutex<HashSet<String>>,
}

impl PromptCache {
    /// Counts a request of the chat completions API. The tools come first.
    pub fn openai(&self, request: &ReceivedRequest) -> Counted {
        let text = openai_parts(&request.body).concat();
        let mut earlier = self.whole.lock();
        let alike = |one: &String| one.bytes().zip(text.bytes()).take_while(|(one, next)| one == next).count();
        let longest = earlier.iter().map(alike).max().unwrap_or_default() / TOKEN_BYTES;
        let cached = if longest < LEAST_TOKENS { 0 } else { longest / STEP_TOKENS * STEP_TOKENS };
        let all = text.len() / TOKEN_BYTES;
        earlier.push(text);
        Counted { all, cached, written: 0 }
    }

    /// Counts a request of the messages API, which caches only up to the marks in it.
    pub fn anthropic(&self, request: &ReceivedRequest) -> Counted {
        let blocks = anthropic_parts(&request.body);
        let until = |block: usize| blocks[..=block].iter().map(|(text, _)| text.as_str()).collect::<String>();
        let marks: Vec<usize> = (0..blocks.len()).filter(|block| blocks[*block].1).collect();
        assert!(marks.len() <= 4, "{} marks, and the provider takes four", marks.len());
        let mut kept = self.marked.lock();
        let looked_at = marks.iter().flat_map(|mark| mark.saturating_sub(BLOCKS_BEFORE)..=*mark);
        let found = looked_at.map(until).filter(|text| kept.contains(text)).map(|text| text.len()).max();
        kept.extend(marks.iter().map(|mark| until(*mark)));
        let last = marks.last().map_or(0, |mark| until(*mark).len());
        let all: usize = blocks.iter().map(|(text, _)| text.len()).sum();
        let cached = found.unwrap_or_default();
        Counted {
            all: all / TOKEN_BYTES,
            cached: cached / TOKEN_BYTES,
            written: last.saturating_sub(cached) / TOKEN_BYTES,
        }
    }
}

impl Counted {
    /// [`openai`] with these counts.
    pub fn openai(self, texts: &[&str], calls: &[(&str, &str, &str)]) -> Vec<Piece> {
        let details = json!({"cached_tokens": self.cached});
        let usage = json!({"prompt_tokens": self.all, "completion_tokens": 4, "prompt_tokens_details": details});
        with_usage(openai(texts, calls), &usage)
    }

    /// [`anthropic`] with these counts.
    pub fn anthropic(self, texts: &[&str], calls: &[(&str, &str, &str)]) -> Vec<Piece> {
        let usage = json!({"input_tokens": self.all - self.cached - self.written, "output_tokens": 1,
            "cache_read_input_tokens": self.cached, "cache_creation_input_tokens": self.written});
        with_usage(anthropic(texts, calls), &usage)
    }
}

/// The tools and each message of a request, in the order in which a provider reads them.
pub fn openai_parts(body: &Value) -> Vec<String> {
    let messages = body["messages"].as_array().expect("messages");
    std::iter::once(&body["tools"]).chain(messages).map(Value::to_string).collect()
}

/// The tools, the system's blocks and those of each message, without their marks and each with whether it had one.
pub fn anthropic_parts(body: &Value) -> Vec<(String, bool)> {
    let mut parts = vec![(body["tools"].to_string(), false)];
    let mut add = |role: &Value, block: &Value| {
        let mut block = block.clone();
        let mark = block.as_object_mut().and_then(|fields| fields.remove("cache_control"));
        parts.push((format!("{role}{block}"), mark.is_some()));
    };
    for block in body["system"].as_array().expect("the system as blocks") {
        add(&Value::Null, block);
    }
    for message in body["messages"].as_array().expect("messages") {
        for block in message["content"].as_array().expect("blocks") {
            add(&message["role"], block);
        }
    }
    parts
}
