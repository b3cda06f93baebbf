//! What an agent needs of the store.

use std::future::Future;
use std::time::Duration;

use ken_types::ops::store::{
    AppendEvents, Found, History, KnowledgeRecord, KnowledgeSearch, MemorySearch, PastExchange, ReadHistory,
    ReadStream, Search, SettleSubmission, StreamPage, StreamsRead, SubmissionsAppend, SubmissionsHistory,
    SubmissionsSettle,
};
use ken_types::{Code, Error};
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

const CALL: Duration = Duration::from_secs(10);
/// Between two tries while the store is away.
const PAUSE: Duration = Duration::from_millis(20);

impl WireStore {
    pub(crate) fn new(pool: Pool) -> WireStore {
        WireStore { pool }
    }
}

/// One operation, again and again while the store is away: all of them may be repeated (`ken_types::ops`).
macro_rules! patiently {
    ($store:expr, $op:ty, $args:expr) => {{
        let (pool, args) = ($store.pool.clone(), $args);
        async move {
            loop {
                match pool.call::<$op>(&args, CALL).await {
                    Err(error) if is_away(&error) => tokio::time::sleep(PAUSE).await,
                    answer => return answer,
                }
            }
        }
    }};
}

fn is_away(error: &Error) -> bool {
    matches!(error.code, Code::Unavailable | Code::Busy | Code::Deadline)
}

impl Store for WireStore {
    async fn append(&self, args: AppendEvents) -> Result<(), Error> {
        patiently!(self, SubmissionsAppend, args).await.map(|_| ())
    }

    async fn settle(&self, args: SettleSubmission) -> Result<(), Error> {
        patiently!(self, SubmissionsSettle, args).await.map(|_| ())
    }

    async fn history(&self, args: ReadHistory) -> Result<History, Error> {
        patiently!(self, SubmissionsHistory, args).await
    }

    async fn knowledge(&self, args: Search) -> Result<Found<KnowledgeRecord>, Error> {
        patiently!(self, KnowledgeSearch, args).await
    }

    async fn memory(&self, args: Search) -> Result<Found<PastExchange>, Error> {
        patiently!(self, MemorySearch, args).await
    }

    async fn recorded(&self, args: ReadStream) -> Result<StreamPage, Error> {
        patiently!(self, StreamsRead, args).await
    }
}
