//! What answers a model call, and what the rest of the program knows about it.

use std::fmt;
use std::future::Future;
use std::pin::Pin;

use ken_types::event::{ModelName, StopReason, Usage};
use ken_types::ops::model::{Delta, Generate, Generated};
use ken_types::{Code, Error};

/// A future that a trait object returns.
pub(crate) type Pending<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Answers one request. It keeps nothing between two calls: an equal request may be made again after a crash, with the
/// text that was received before it as `prefix`.
pub(crate) trait Provider: fmt::Debug + Send + Sync {
    /// The wire format, as `api` in messages.
    fn api(&self) -> &'static str;

    fn name(&self) -> &ModelName;

    /// How many tokens a request and its answer may have together.
    fn window(&self) -> Window {
        Window {
            tokens: 98_304,
            reserve: 8_192,
        }
    }

    /// What its tokens cost.
    fn rates(&self) -> Rates {
        Rates::default()
    }

    /// Whether its calls count against the budget.
    fn is_model(&self) -> bool {
        true
    }

    /// Past exchanges of a conversation that it makes use of, at most.
    fn exchanges(&self) -> u32 {
        100
    }

    /// Why it cannot be called before somebody changes the configuration.
    fn unusable(&self) -> Option<String> {
        None
    }

    /// Sends its answer piece by piece; returns how it ended. Dropping the future ends the call.
    fn answer<'a>(
        &'a self,
        request: &'a Generate,
        sink: &'a dyn DeltaSink,
    ) -> Pending<'a, Result<Completion, Error>>;
}

/// `provider/model`
pub(crate) fn full_name(provider: &dyn Provider) -> String {
    let name = provider.name();
    format!("{}/{}", name.provider, name.id)
}

/// In US dollars for a token; 0 where nothing is paid.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Rates {
    pub(crate) input: f64,
    pub(crate) output: f64,
}

/// In tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Window {
    pub(crate) tokens: u64,
    /// The part of it that is kept for the answer.
    pub(crate) reserve: u64,
}

/// Takes the deltas of an answer.
pub(crate) trait DeltaSink: Send + Sync {
    fn send(&self, delta: Delta) -> Pending<'_, Result<(), Error>>;
}

/// How an answer ended, and the tokens that it took.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Completion {
    pub(crate) stop_reason: StopReason,
    pub(crate) usage: Usage,
}

/// Makes one call: the start, the answer, the end.
pub(crate) async fn generate(
    provider: &dyn Provider,
    request: &Generate,
    sink: &dyn DeltaSink,
) -> Result<Generated, Error> {
    let name = provider.name();
    if let Some(why) = provider.unusable() {
        return Err(Error::new(Code::Unauthenticated, why).hint("see KEYS in ken-model(8)"));
    }
    sink.send(Delta::Start {
        provider: name.provider.clone(),
        model: name.id.clone(),
        api: provider.api().to_owned(),
    })
    .await?;
    let completion = provider.answer(request, sink).await?;
    Ok(Generated {
        model: name.clone(),
        api: provider.api().to_owned(),
        stop_reason: completion.stop_reason,
        usage: completion.usage,
    })
}
