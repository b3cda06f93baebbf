//! The running store as a daemon, and the table of its operations.

use std::path::PathBuf;
use std::sync::Arc;

use ken_store::Store;
use ken_store::ops::{Read, Write};
use ken_types::ops::approvals::*;
use ken_types::ops::blobs::*;
use ken_types::ops::budget::*;
use ken_types::ops::documents::*;
use ken_types::ops::hosts::*;
use ken_types::ops::ids::*;
use ken_types::ops::messenger::*;
use ken_types::ops::outbox::*;
use ken_types::ops::rules::*;
use ken_types::ops::runs::*;
use ken_types::ops::schedules::*;
use ken_types::ops::store::*;
use ken_types::ops::streams::*;
use ken_types::ops::telemetry::*;
use ken_wire::{ConnectionId, Context, Daemon, Table};
use serde_json::{Map, Value};

/// A running store and, for SQLite, the path of its database.
pub(crate) struct Part {
    pub(crate) store: Store,
    pub(crate) database: Option<PathBuf>,
}

impl Daemon for Part {
    fn stats(&self) -> Map<String, Value> {
        let mut stats = self.store.stats();
        if let Some(database) = &self.database {
            for (name, suffix) in [("database_bytes", ""), ("wal_bytes", "-wal")] {
                let mut path = database.clone().into_os_string();
                path.push(suffix);
                let size = std::fs::metadata(path).map_or(0, |meta| meta.len());
                stats.insert(name.into(), size.into());
            }
        }
        stats
    }

    fn disconnected(&self, connection: ConnectionId) {
        self.store.disconnected(connection);
    }
}

/// A table to which operations are added.
struct Operations(Table<Part>);

impl Operations {
    fn read<O: Read>(self) -> Operations {
        Operations(self.0.op::<O, _, _>(|part: Arc<Part>, _, args| async move { part.store.read::<O>(args).await }))
    }

    fn write<O: Write>(self) -> Operations {
        Operations(self.0.op::<O, _, _>(|part: Arc<Part>, _, args| async move { part.store.write::<O>(args).await }))
    }
}

pub(crate) fn table(name: &'static str, version: &'static str) -> Table<Part> {
    // These wait. Leases belong to connections, so the first two need that of the caller.
    let waiting = Table::new(name, version)
        .op::<SubmissionsClaim, _, _>(|part: Arc<Part>, call: Context<_>, args| async move {
            part.store.claim(call.connection, args).await
        })
        .op::<SubmissionsRenew, _, _>(|part: Arc<Part>, call: Context<_>, args| async move {
            part.store.renew(call.connection, args).await
        })
        .op::<SubmissionsWait, _, _>(|part: Arc<Part>, _, args| async move { part.store.wait(args).await })
        .op::<StreamsRead, _, _>(|part: Arc<Part>, _, args| async move { part.store.read_stream(args).await })
        .op::<DocumentsWork, _, _>(|part: Arc<Part>, _, args| async move { part.store.document_work(args).await })
        .op::<ApprovalsGet, _, _>(|part: Arc<Part>, _, args| async move { part.store.approval(args).await })
        .op::<ApprovalsPending, _, _>(
            |part: Arc<Part>, _, args| async move { part.store.pending_approvals(args).await },
        )
        .op::<OutboxDue, _, _>(|part: Arc<Part>, _, args| async move { part.store.due(args).await });
    Operations(waiting)
        .write::<SessionsCreate>()
        .write::<SessionsResume>()
        .read::<SessionsList>()
        .read::<SessionsTranscript>()
        .read::<SessionsGet>()
        .read::<SessionsScope>()
        .write::<SessionsCancel>()
        .write::<SessionsArchive>()
        .write::<SessionsUpdate>()
        .write::<SessionsFork>()
        .write::<SessionsPurge>()
        .write::<ChatAccept>()
        .write::<SubmissionsAdmit>()
        .write::<DoorsDelivered>()
        .write::<DoorsNotice>()
        .read::<DoorsFind>()
        .write::<DoorsDelete>()
        .write::<SubmissionsAppend>()
        .write::<SubmissionsSettle>()
        .write::<SubmissionsAbort>()
        .read::<SubmissionsHistory>()
        .read::<SubmissionsRecord>()
        .write::<RunsAdmit>()
        .write::<RunsEnd>()
        .write::<RunsAbort>()
        .read::<RunsGet>()
        .read::<RunsList>()
        .write::<StreamsCreate>()
        .write::<StreamsAppend>()
        .write::<StreamsDelete>()
        .read::<StreamsList>()
        .write::<KnowledgePut>()
        .read::<KnowledgeGet>()
        .write::<KnowledgeDelete>()
        .read::<KnowledgeList>()
        .read::<KnowledgeSearch>()
        .write::<KnowledgeReindex>()
        .read::<KnowledgeJob>()
        .read::<MemorySearch>()
        .read::<DocumentsList>()
        .write::<DocumentsSync>()
        .write::<VectorsPut>()
        .read::<KnowledgeUses>()
        .write::<KeysBegin>()
        .write::<KeysFinish>()
        .write::<StoreProbe>()
        .write::<BlobsPut>()
        .read::<BlobsGet>()
        .read::<OutputsGet>()
        .read::<ImagesGet>()
        .read::<TelemetryList>()
        .read::<TelemetryGet>()
        .read::<TelemetryFailed>()
        .read::<TelemetryUsage>()
        .read::<TelemetryEnded>()
        .write::<TelemetryExported>()
        .read::<EventsWhy>()
        .read::<IdsFind>()
        .write::<NotesPut>()
        .read::<NotesList>()
        .write::<RulesPut>()
        .read::<RulesList>()
        .write::<RulesSwitch>()
        .write::<RulesDelete>()
        .read::<HostsList>()
        .write::<HostsRemove>()
        .read::<HostsDuties>()
        .read::<HostsServer>()
        .write::<BudgetReserve>()
        .write::<BudgetSettle>()
        .read::<BudgetSpent>()
        .read::<ApprovalsOf>()
        .read::<ApprovalsDiff>()
        .read::<ApprovalsList>()
        .write::<ApprovalsDecide>()
        .write::<ApprovalsConsume>()
        .write::<ApprovalsExpire>()
        .write::<ApprovalsPut>()
        .write::<SchedulesPut>()
        .read::<SchedulesGet>()
        .read::<SchedulesState>()
        .read::<SchedulesList>()
        .write::<SchedulesPause>()
        .write::<SchedulesDelete>()
        .write::<SchedulesStart>()
        .read::<SchedulesRuns>()
        .read::<SchedulesRunGet>()
        .write::<SchedulesAdvance>()
        .write::<MessengerAccept>()
        .read::<MessengerUpdates>()
        .read::<MessengerBusy>()
        .write::<MessengerFault>()
        .read::<MessengerStatus>()
        .write::<MessengerAllow>()
        .write::<MessengerRemove>()
        .write::<MessengerSetPolicy>()
        .write::<MessengerPutGroup>()
        .write::<MessengerRemoveGroup>()
        .write::<MessengerPair>()
        .write::<MessengerDeny>()
        .write::<OutboxPut>()
        .write::<OutboxAttempt>()
        .write::<OutboxSettle>()
        .read::<OutboxList>()
        .0
}
