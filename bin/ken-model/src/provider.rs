//! The interface of providers, which answer model calls.

use std::fmt;
use std::future::Future;
use std::pin::Pin;

use ken_types::event::{ModelName, StopReason, Usage};
use ken_types::ops::model::{Delta, Generate, Generated};
use ken_types::{Code, Error};

use crate::limit::LimitedSink;
use crate::usage::estimate;

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

/// Returns the end of an answer that exceeded the limit after this number of bytes. The provider did not report its use.
fn cut_off(provider: &dyn Provider, request: &Generate, bytes: usize) -> Completion {
    let mut usage = estimate(request, (bytes as u64).div_ceil(4));
    let rates = provider.rates();
    usage.cost.input = rates.input * usage.input as f64;
    usage.cost.output = rates.output * usage.output as f64;
    usage.cost.total = usage.cost.input + usage.cost.output;
    Completion { stop_reason: StopReason::Length, usage }
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
        answered => answered?,
    };
    Ok(Generated {
        model: name.clone(),
        api: provider.api().to_owned(),
        stop_reason: completion.stop_reason,
        usage: completion.usage,
    })
}
