//! The limit of an answer: text, thoughts and the arguments of calls together, for every provider.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use ken_text::head;
use ken_types::Error;
use ken_types::limits::WIRE_LINE_BYTES;
use ken_types::ops::model::Delta;

use crate::provider::{DeltaSink, Pending};
use crate::usage::delta_bytes;

/// The maximum size of an answer, in bytes. A call with its arguments has to fit into one line of the wire, together with
/// names and ids.
pub(crate) const MAX_ANSWER_BYTES: usize = WIRE_LINE_BYTES - 64 * 1024;
/// The maximum number of calls of an answer, and of bytes of the id and of the name of each.
const MAX_CALLS: usize = 128;
const MAX_NAME_BYTES: usize = 256;

/// Returns the error of an answer whose calls exceed the limit. They are never cut, because they would then do something
/// else.
pub(crate) fn too_long() -> Error {
    let mib = MAX_ANSWER_BYTES.div_ceil(1024 * 1024);
    Error::invalid("", format!("the model's answer, with the arguments of its calls, has more than {mib} MiB"))
        .hint("ask for the work in smaller parts")
}

/// Passes on an answer up to the limit.
pub(crate) struct LimitedSink<'a> {
    sink: &'a dyn DeltaSink,
    bytes: AtomicUsize,
    calls: AtomicUsize,
    is_cut: AtomicBool,
}

impl<'a> LimitedSink<'a> {
    pub(crate) fn new(sink: &'a dyn DeltaSink) -> LimitedSink<'a> {
        LimitedSink { sink, bytes: AtomicUsize::new(0), calls: AtomicUsize::new(0), is_cut: AtomicBool::new(false) }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Whether a text or a thought exceeded the limit and was cut off.
    pub(crate) fn is_cut(&self) -> bool {
        self.is_cut.load(Ordering::Relaxed)
    }

    /// Returns the part of a delta that is passed on. Fails for a call that exceeds the limit.
    fn limited(&self, delta: Delta) -> Result<Delta, Error> {
        let bytes = delta_bytes(&delta);
        let left = MAX_ANSWER_BYTES.saturating_sub(self.bytes.fetch_add(bytes, Ordering::Relaxed));
        match delta {
            Delta::ToolCall { .. } if bytes > left || self.calls.fetch_add(1, Ordering::Relaxed) >= MAX_CALLS => {
                Err(too_long())
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
            // The error ends the provider's answer; `generate` then ends it as cut off.
            if self.is_cut() { Err(too_long()) } else { Ok(()) }
        })
    }
}
