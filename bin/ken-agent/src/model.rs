//! The interface through which an agent calls the model.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use ken_types::limits::WIRE_DEADLINE_MAX_MS;
use ken_types::ops::model::{
    Delta, Embed, Embedded, Generate, Generated, ModelEmbed, ModelGenerate, ModelInfo, ModelState,
};
use ken_types::{Code, Error};
use ken_wire::{CachedReply, Items, Pool};
use tokio::time::Instant;

pub(crate) trait Model: Clone + Send + Sync + 'static {
    type Reply: Reply;

    fn info(&self) -> impl Future<Output = Result<ModelState, Error>> + Send;

    /// Starts a call. Dropping the reply cancels it.
    fn generate(&self, request: &Generate) -> impl Future<Output = Result<Self::Reply, ModelError>> + Send;

    /// Whether the caller pauses between attempts. A replay does not.
    fn paces(&self) -> bool {
        true
    }
}

/// The answer of a call, as it arrives.
pub(crate) trait Reply: Send {
    /// Returns the next delta, or `None` at the end. Cancel safe.
    fn next(&mut self) -> impl Future<Output = Option<Result<Delta, Error>>> + Send;

    fn end(self) -> impl Future<Output = Result<Generated, ModelError>> + Send;
}

/// Why a call returned no answer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ModelError {
    /// ken-model died. After its restart, the same call can be repeated.
    Died,
    Failed(Error),
}

/// Calls ken-model over its socket.
#[derive(Debug, Clone)]
pub(crate) struct WireModel {
    pool: Pool,
    info: Arc<CachedReply<ModelInfo>>,
}

const CALL_TIMEOUT: Duration = Duration::from_secs(10);
const EMBED: Duration = Duration::from_secs(60);
const GENERATE: Duration = Duration::from_millis(WIRE_DEADLINE_MAX_MS);

impl WireModel {
    pub(crate) fn new(pool: Pool) -> WireModel {
        WireModel { info: Arc::new(CachedReply::new(pool.clone())), pool }
    }

    /// Returns the model that computes vectors, if one is chosen.
    pub(crate) async fn embedding(&self) -> Result<Option<String>, Error> {
        Ok(self.info.get(CALL_TIMEOUT).await?.embeds)
    }

    /// Makes one attempt only, so that a provider that has just failed is not called again at once.
    pub(crate) async fn embed(&self, texts: Vec<String>) -> Result<Embedded, Error> {
        let connection = self.pool.connection(Instant::now() + CALL_TIMEOUT).await?;
        connection.call::<ModelEmbed>(&Embed { texts }, EMBED).await
    }
}

impl Model for WireModel {
    type Reply = WireReply;

    async fn info(&self) -> Result<ModelState, Error> {
        self.info.get(CALL_TIMEOUT).await
    }

    async fn generate(&self, request: &Generate) -> Result<WireReply, ModelError> {
        let items = self.pool.stream::<ModelGenerate>(request, GENERATE).await;
        items.map(WireReply).map_err(ModelError::Failed)
    }
}

#[derive(Debug)]
pub(crate) struct WireReply(Items<ModelGenerate>);

impl Reply for WireReply {
    async fn next(&mut self) -> Option<Result<Delta, Error>> {
        self.0.next().await
    }

    async fn end(self) -> Result<Generated, ModelError> {
        self.0.reply().await.map_err(|error| match error.code {
            // A lost connection does not mean that the provider failed.
            Code::Unavailable if error.is_outcome_unknown() => ModelError::Died,
            _ => ModelError::Failed(error),
        })
    }
}
