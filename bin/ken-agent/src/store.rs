//! What an agent needs of the store.

use std::future::Future;

use ken_claims::patiently;
use ken_types::Error;
use ken_types::ops::store::{
    AppendEvents, Found, History, KnowledgeRecord, KnowledgeSearch, MemorySearch, PastExchange, ReadHistory,
    ReadStream, Search, SettleSubmission, StreamPage, StreamsRead, SubmissionsAppend, SubmissionsHistory,
    SubmissionsSettle,
};
use ken_wire::Pool;

/// Calls wait while the store is away; an error is its refusal.
pub(crate) trait Store: Clone + Send + Sync + 'static {
    fn append(&self, args: AppendEvents) -> impl Future<Output = Result<(), Error>> + Send;
    fn settle(&self, args: SettleSubmission) -> impl Future<Output = Result<(), Error>> + Send;
    fn history(&self, args: ReadHistory) -> impl Future<Output = Result<History, Error>> + Send;
    fn knowledge(&self, args: Search) -> impl Future<Output = Result<Found<KnowledgeRecord>, Error>> + Send;
    fn memory(&self, args: Search) -> impl Future<Output = Result<Found<PastExchange>, Error>> + Send;
    fn recorded(&self, args: ReadStream) -> impl Future<Output = Result<StreamPage, Error>> + Send;
}

/// The store over its socket.
#[derive(Debug, Clone)]
pub(crate) struct WireStore {
    pool: Pool,
}

impl WireStore {
    pub(crate) fn new(pool: Pool) -> WireStore {
        WireStore { pool }
    }
}

impl Store for WireStore {
    async fn append(&self, args: AppendEvents) -> Result<(), Error> {
        patiently::<SubmissionsAppend>(&self.pool, &args)
            .await
            .map(|_| ())
    }

    async fn settle(&self, args: SettleSubmission) -> Result<(), Error> {
        patiently::<SubmissionsSettle>(&self.pool, &args)
            .await
            .map(|_| ())
    }

    async fn history(&self, args: ReadHistory) -> Result<History, Error> {
        patiently::<SubmissionsHistory>(&self.pool, &args).await
    }

    async fn knowledge(&self, args: Search) -> Result<Found<KnowledgeRecord>, Error> {
        patiently::<KnowledgeSearch>(&self.pool, &args).await
    }

    async fn memory(&self, args: Search) -> Result<Found<PastExchange>, Error> {
        patiently::<MemorySearch>(&self.pool, &args).await
    }

    async fn recorded(&self, args: ReadStream) -> Result<StreamPage, Error> {
        patiently::<StreamsRead>(&self.pool, &args).await
    }
}
