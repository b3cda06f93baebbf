//! The interface of providers, which answer model calls.

use std::fmt;
use std::future::Future;
use std::pin::Pin;

use ken_types::Error;
use ken_types::event::{ModelName, StopReason, Usage};
use ken_types::ops::model::{Delta, Generate};

/// The future that a method of a trait object returns.
pub(crate) type Pending<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Answers requests. It keeps no state between two calls. After a crash, the same request can be repeated with the text
/// that was already received as `prefix`.
pub(crate) trait Provider: fmt::Debug + Send + Sync {
    /// Returns the name of the wire format, which is `api` in messages.
    fn api(&self) -> &'static str;

    fn name(&self) -> &ModelName;

    /// Returns the context window: the maximum number of tokens of a request and its answer together.
    fn window(&self) -> Window {
        Window { tokens: 98_304, reserve: 8_192 }
    }

    /// Returns the prices of its tokens.
    fn rates(&self) -> Rates {
        Rates::default()
    }

    /// Whether its calls count against the budget.
    fn is_model(&self) -> bool {
        true
    }

    /// Returns the maximum number of past exchanges of a conversation that it uses.
    fn exchanges(&self) -> u32 {
        100
    }

    /// Returns why it cannot be called until the configuration changes, or `None` if it can.
    fn unusable(&self) -> Option<String> {
        None
    }

    /// Sends its answer piece by piece. Returns how it ended. Dropping the future cancels the call.
    fn answer<'a>(&'a self, request: &'a Generate, sink: &'a dyn DeltaSink) -> Pending<'a, Result<Completion, Error>>;
}

/// Returns the name as `provider/model`.
pub(crate) fn full_name(provider: &dyn Provider) -> String {
    let name = provider.name();
    format!("{}/{}", name.provider, name.id)
}

/// Prices in US dollars per token; 0 for a free model.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Rates {
    pub(crate) input: f64,
    pub(crate) output: f64,
}

/// A context window, in tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Window {
    pub(crate) tokens: u64,
    /// The part of the window that is reserved for the answer.
    pub(crate) reserve: u64,
}

/// Receives the deltas of an answer.
pub(crate) trait DeltaSink: Send + Sync {
    fn send(&self, delta: Delta) -> Pending<'_, Result<(), Error>>;
}

/// How an answer ended, and its usage.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Completion {
    pub(crate) stop_reason: StopReason,
    pub(crate) usage: Usage,
}
