//! The seam between `model.generate` and whoever answers it.

use std::fmt;
use std::future::Future;
use std::pin::Pin;

use ken_types::Error;
use ken_types::event::{ModelName, StopReason, Usage};
use ken_types::ops::model::{Delta, Generate, Generated};

/// A future that a trait object gives back.
pub(crate) type Pending<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Answers one request. It keeps nothing between two calls: equal requests may be made again after a crash, with what
/// has been said already as `prefix`.
pub(crate) trait Provider: fmt::Debug + Send + Sync {
    /// The dialect, as `api` in messages.
    fn api(&self) -> &'static str;

    fn name(&self) -> &ModelName;

    /// What a request and its answer may take together.
    fn window(&self) -> Window {
        Window {
            tokens: 98_304,
            reserve: 8_192,
        }
    }

    /// Past exchanges of a conversation that it makes use of, at most.
    fn exchanges(&self) -> u32 {
        100
    }

    /// Says its answer piece by piece, then how it ended. Dropping the future ends the call.
    fn answer<'a>(&'a self, request: &'a Generate, ear: &'a dyn Ear) -> Pending<'a, Result<Said, Error>>;
}

/// In tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Window {
    pub(crate) tokens: u64,
    /// What of it is kept for the answer.
    pub(crate) reserve: u64,
}

/// Who is told what a provider says.
pub(crate) trait Ear: Send + Sync {
    fn hear(&self, delta: Delta) -> Pending<'_, Result<(), Error>>;
}

/// How an answer ended, and what it took.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Said {
    pub(crate) stop_reason: StopReason,
    pub(crate) usage: Usage,
}

/// Runs one call: the start, the answer, the end.
pub(crate) async fn generate(
    provider: &dyn Provider,
    request: &Generate,
    ear: &dyn Ear,
) -> Result<Generated, Error> {
    let name = provider.name();
    ear.hear(Delta::Start {
        provider: name.provider.clone(),
        model: name.id.clone(),
        api: provider.api().to_owned(),
    })
    .await?;
    let said = provider.answer(request, ear).await?;
    Ok(Generated {
        model: name.clone(),
        api: provider.api().to_owned(),
        stop_reason: said.stop_reason,
        usage: said.usage,
    })
}
