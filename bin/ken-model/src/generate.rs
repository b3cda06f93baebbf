//! Makes one call of a provider, with the limit that its answer has: text, thoughts and the arguments of calls together,
//! for every provider.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use ken_text::head;
use ken_types::event::StopReason;
use ken_types::json::visible_nul;
use ken_types::limits::WIRE_LINE_BYTES;
use ken_types::ops::model::{Delta, Generate, Generated};
use ken_types::{Code, Error};

use crate::provider::{Completion, DeltaSink, Pending, Provider};
use crate::usage::{delta_bytes, estimate};

/// The maximum size of an answer, in bytes. A call with its arguments has to fit into one line of the wire, together with
/// names and ids.
pub(crate) const MAX_ANSWER_BYTES: usize = WIRE_LINE_BYTES - 64 * 1024;
/// The maximum number of calls of an answer, and of bytes of the id and of the name of each.
const MAX_TOOL_CALLS: usize = 128;
const MAX_NAME_BYTES: usize = 256;

/// Returns the error of an answer whose calls exceed the limit. They are never cut, because they would then do something
/// else.
pub(crate) fn too_long() -> Error {
    let mib = MAX_ANSWER_BYTES.div_ceil(1024 * 1024);
    too_large(&format!(", with the arguments of its calls, has more than {mib} MiB"))
}

fn too_large(why: &str) -> Error {
    Error::invalid("", format!("the model's answer{why}")).hint("ask for the work in smaller parts")
}

/// Makes one call: sends the start and the answer, and returns the end.
pub(crate) async fn generate(
    provider: &dyn Provider,
    request: &Generate,
    sink: &dyn DeltaSink,
) -> Result<Generated, Error> {
    let name = provider.name();
    if let Some(why) = provider.unusable() {
        return Err(Error::new(Code::Unauthenticated, why).hint("see KEYS in ken-model(8)"));
    }
    sink.send(Delta::Start { provider: name.provider.clone(), model: name.id.clone(), api: provider.api().to_owned() })
        .await?;
    let limited = LimitedSink::new(sink);
    let completion = match provider.answer(request, &limited).await {
        Err(_) if limited.is_cut() => cut_off(provider, request, limited.bytes()),
        answered => answered.map_err(|error| Error { message: visible_nul(error.message), ..error })?,
    };
    Ok(Generated {
        model: name.clone(),
        api: provider.api().to_owned(),
        stop_reason: completion.stop_reason,
        usage: completion.usage,
    })
}

/// Returns the end of an answer that exceeded the limit after this number of bytes. The provider did not report its use.
fn cut_off(provider: &dyn Provider, request: &Generate, bytes: usize) -> Completion {
    let mut usage = estimate(request, (bytes as u64).div_ceil(4));
    let rates = provider.rates();
    usage.cost.input = rates.input * usage.input as f64;
    usage.cost.output = rates.output * usage.output as f64;
    usage.cost.total = usage.cost.input + usage.cost.output;
    Completion { stop_reason: StopReason::Length, usage }
}

/// Passes on an answer up to the limit.
struct LimitedSink<'a> {
    sink: &'a dyn DeltaSink,
    bytes: AtomicUsize,
    calls: AtomicUsize,
    is_cut: AtomicBool,
}

impl<'a> LimitedSink<'a> {
    fn new(sink: &'a dyn DeltaSink) -> LimitedSink<'a> {
        LimitedSink { sink, bytes: AtomicUsize::new(0), calls: AtomicUsize::new(0), is_cut: AtomicBool::new(false) }
    }

    fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Whether a text or a thought exceeded the limit and was cut off.
    fn is_cut(&self) -> bool {
        self.is_cut.load(Ordering::Relaxed)
    }

    /// Returns the part of a delta that is passed on. Fails for a call that exceeds the limit.
    fn limited(&self, delta: Delta) -> Result<Delta, Error> {
        let delta = without_nul(delta);
        let bytes = delta_bytes(&delta);
        let left = MAX_ANSWER_BYTES.saturating_sub(self.bytes.fetch_add(bytes, Ordering::Relaxed));
        match delta {
            Delta::ToolCall { .. } if bytes > left => Err(too_long()),
            Delta::ToolCall { .. } if self.calls.fetch_add(1, Ordering::Relaxed) >= MAX_TOOL_CALLS => {
                Err(too_large(&format!(" has more than {MAX_TOOL_CALLS} tool calls")))
            }
            // Without an id the agent gives it one, and there is no tool with such a name.
            Delta::ToolCall { id, name, arguments } => Ok(Delta::ToolCall {
                id: if id.len() > MAX_NAME_BYTES { String::new() } else { id },
                name: head(&name, MAX_NAME_BYTES).to_owned(),
                arguments,
            }),
            delta if bytes <= left => Ok(delta),
            delta => {
                self.is_cut.store(true, Ordering::Relaxed);
                Ok(cut(delta, left))
            }
        }
    }
}

/// Makes NUL visible in a text, a thought, an id and a name. Providers pass on arguments with NUL as a text.
fn without_nul(delta: Delta) -> Delta {
    match delta {
        Delta::Text { delta } => Delta::Text { delta: visible_nul(delta) },
        Delta::Think { delta, opaque } => Delta::Think { delta: visible_nul(delta), opaque },
        Delta::ToolCall { id, name, arguments } => {
            Delta::ToolCall { id: visible_nul(id), name: visible_nul(name), arguments }
        }
        start => start,
    }
}

/// Returns the first bytes of a text or a thought. A part of a signature is not valid, so it is dropped.
fn cut(delta: Delta, left: usize) -> Delta {
    match delta {
        Delta::Text { delta } => Delta::Text { delta: head(&delta, left).to_owned() },
        Delta::Think { delta, .. } => Delta::Think { delta: head(&delta, left).to_owned(), opaque: None },
        other => other,
    }
}

impl DeltaSink for LimitedSink<'_> {
    fn send(&self, delta: Delta) -> Pending<'_, Result<(), Error>> {
        Box::pin(async move {
            let delta = self.limited(delta)?;
            self.sink.send(delta).await?;
            // The error ends the provider's answer; [`generate`] then ends it as cut off.
            if self.is_cut() { Err(too_long()) } else { Ok(()) }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Nowhere;

    impl DeltaSink for Nowhere {
        fn send(&self, _: Delta) -> Pending<'_, Result<(), Error>> {
            Box::pin(async { Ok(()) })
        }
    }

    #[tokio::test]
    async fn an_answer_has_at_most_so_many_calls() {
        let sink = LimitedSink::new(&Nowhere);
        let call = || Delta::ToolCall { id: "c".into(), name: "n".into(), arguments: serde_json::json!({}) };
        for _ in 0..MAX_TOOL_CALLS {
            sink.send(call()).await.unwrap();
        }
        let error = sink.send(call()).await.unwrap_err();
        assert_eq!(error.message, "the model's answer has more than 128 tool calls");
        let long = Delta::ToolCall { id: "c".into(), name: "n".into(), arguments: "x".repeat(MAX_ANSWER_BYTES).into() };
        let error = LimitedSink::new(&Nowhere).send(long).await.unwrap_err();
        assert!(error.message.ends_with("has more than 4 MiB"), "{}", error.message);
    }
}
