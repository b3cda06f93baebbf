//! The interface through which an agent calls the store.

use std::future::Future;
use std::time::Duration;

use ken_claims::call_until_answered;
use ken_types::id::SubmissionId;
use ken_types::ops::approvals::{Approval, ApprovalsPut, PutApproval};
use ken_types::ops::store::{
    AppendEvents, Claim, History, KnowledgeSearch, MemorySearch, ReadHistory, ReadStream, SettleSubmission, StreamPage,
    StreamsRead, SubmissionsAppend, SubmissionsHistory, SubmissionsRecord, SubmissionsSettle,
};
use ken_types::ops::telemetry::ByWork;
use ken_types::{Code, Error};
use ken_wire::Pool;

use crate::past::Loaded;
use crate::recent::Recent;

/// The calls wait while the store is down. An error means that the store refused the call.
pub(crate) trait Store: Clone + Send + Sync + 'static {
    fn append(&self, args: AppendEvents) -> impl Future<Output = Result<(), Error>> + Send;
    fn settle(&self, args: SettleSubmission) -> impl Future<Output = Result<(), Error>> + Send;
    fn request(&self, args: PutApproval) -> impl Future<Output = Result<Approval, Error>> + Send;
    fn history(&self, args: ReadHistory) -> impl Future<Output = Result<Loaded, Error>> + Send;
    fn recorded(&self, args: ReadStream) -> impl Future<Output = Result<StreamPage, Error>> + Send;

    /// Returns a submission that has ended.
    fn record(&self, id: SubmissionId) -> impl Future<Output = Result<Claim, Error>> + Send;
}

/// The timeout of a call to the store where the caller does not wait for the store to restart.
pub(crate) const CALL_TIMEOUT: Duration = Duration::from_secs(10);

const PAUSE: Duration = Duration::from_millis(20);

/// The number of entries of maximum size that fit into one line of the wire.
const LONG_SOURCES: u32 = 5;

/// Calls the store over its socket.
#[derive(Debug, Clone)]
pub(crate) struct WireStore {
    pool: Pool,
    recent: Recent,
}

impl WireStore {
    pub(crate) fn new(pool: Pool) -> WireStore {
        WireStore { pool, recent: Recent::default() }
    }

    /// Reads a history. If it does not fit into one line of the wire, it is read with three calls, with a number of
    /// sources that always fits.
    pub(crate) async fn read_history(&self, args: &ReadHistory) -> Result<History, Error> {
        match call_until_answered::<SubmissionsHistory>(&self.pool, args).await {
            Err(error) if error.code == Code::TooLarge => {}
            answer => return answer,
        }
        let mut args = args.clone();
        let search = args.search.take();
        let mut history = call_until_answered::<SubmissionsHistory>(&self.pool, &args).await?;
        if let Some(mut search) = search {
            search.limit = search.limit.min(LONG_SOURCES);
            history.known = call_until_answered::<KnowledgeSearch>(&self.pool, &search).await?.found;
            search.scope = search.scope.map(|scope| scope.of_memory(&args.instance));
            history.remembered = call_until_answered::<MemorySearch>(&self.pool, &search).await?.found;
        }
        Ok(history)
    }
}

impl Store for WireStore {
    async fn append(&self, args: AppendEvents) -> Result<(), Error> {
        call_until_answered::<SubmissionsAppend>(&self.pool, &args).await.map(|_| ())
    }

    async fn settle(&self, args: SettleSubmission) -> Result<(), Error> {
        call_until_answered::<SubmissionsSettle>(&self.pool, &args).await.map(|_| ())
    }

    /// Does not wait until fewer requests are pending: the store then refuses the request with `busy`. After an attempt
    /// whose outcome is unknown it does, because the store may be busy with other work, and the request may be stored.
    async fn request(&self, args: PutApproval) -> Result<Approval, Error> {
        let mut is_known = true;
        loop {
            match self.pool.call::<ApprovalsPut>(&args, CALL_TIMEOUT).await {
                Err(error) if matches!(error.code, Code::Unavailable | Code::Deadline) => is_known = false,
                Err(error) if error.code == Code::Busy && !is_known => {}
                answer => return answer,
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn history(&self, mut args: ReadHistory) -> Result<Loaded, Error> {
        args.after = self.recent.newest(&args);
        let mut loaded = self.read_history(&args).await?.into();
        if !self.recent.complete(&args, &mut loaded) {
            args.after = None;
            loaded = self.read_history(&args).await?.into();
        }
        Ok(loaded)
    }

    async fn record(&self, id: SubmissionId) -> Result<Claim, Error> {
        call_until_answered::<SubmissionsRecord>(&self.pool, &ByWork { id: id.0 }).await
    }

    async fn recorded(&self, args: ReadStream) -> Result<StreamPage, Error> {
        call_until_answered::<StreamsRead>(&self.pool, &args).await
    }
}
