//! An estimate of the usage of a call, for providers that do not count tokens: one token per four bytes (`estimated_tokens`), and no
//! cost.

use ken_types::event::{Block, Message, Usage, estimated_tokens};
use ken_types::ops::model::{Delta, Generate};

use crate::sources::LINES_TOKENS;

/// Returns the usage of a call. Its input is everything in the request that the model is shown.
pub(crate) fn estimate(request: &Generate, output_tokens: u64) -> Usage {
    let input = input_tokens(request);
    Usage { input, output: output_tokens, total_tokens: input + output_tokens, ..Usage::default() }
}

/// Returns the number of bytes of text, thoughts (with their signatures) and arguments in a delta.
pub(crate) fn delta_bytes(delta: &Delta) -> usize {
    match delta {
        Delta::Text { delta } => delta.len(),
        Delta::Think { delta, opaque } => delta.len() + opaque.as_ref().map_or(0, String::len),
        Delta::ToolCall { arguments, .. } => arguments.to_string().len(),
        Delta::Start { .. } => 0,
    }
}

/// Returns the estimated number of tokens of everything in a request, including its tools.
pub(crate) fn request_tokens(request: &Generate) -> u64 {
    let tools = request.tools.iter().flat_map(|tool| {
        let texts = [tool.name.as_str(), tool.description.as_str(), tool.parameters.text()];
        texts.map(estimated_tokens)
    });
    input_tokens(request) + tools.sum::<u64>()
}

/// Returns the estimated number of tokens of the thoughts in a request. They are sent only to the provider that signed
/// them, which may ignore them.
pub(crate) fn thought_tokens(request: &Generate) -> u64 {
    let blocks = request.messages.iter().flat_map(|message| message.content());
    blocks.filter(|block| matches!(block, Block::Thinking { .. })).map(block_tokens).sum()
}

pub(crate) fn input_tokens(request: &Generate) -> u64 {
    let sources = request.sources.iter();
    let sources = sources.map(|source| {
        let texts = [&source.title, &source.origin, &source.text];
        LINES_TOKENS + texts.map(|text| estimated_tokens(text)).iter().sum::<u64>()
    });
    let blocks = request.messages.iter().flat_map(|message| message.content());
    let given = |text: &'_ Option<String>| text.as_deref().map_or(0, estimated_tokens);
    let times = request.messages.iter().filter_map(|message| match message {
        Message::User { now: Some(now), .. } => Some(estimated_tokens(now)),
        _ => None,
    });
    let added = given(&request.now) + given(&request.aside) + given(&request.earlier) + times.sum::<u64>();
    let texts = [request.system.as_str(), request.prefix.as_str()];
    let fixed: u64 = texts.map(estimated_tokens).iter().sum();
    fixed + added + sources.sum::<u64>() + blocks.map(block_tokens).sum::<u64>()
}

pub(crate) fn block_tokens(block: &Block) -> u64 {
    match block {
        Block::Text { text } => estimated_tokens(text),
        Block::Thinking { opaque: None, .. } => 0, // not sent: a provider accepts only thoughts that it has signed
        Block::Thinking { thinking, .. } => estimated_tokens(thinking),
        Block::ToolCall { name, arguments, .. } => estimated_tokens(name) + estimated_tokens(&arguments.to_string()),
        Block::Image { .. } => 0, // engines that need no model ignore images
    }
}
