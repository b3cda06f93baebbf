//! A store in a temporary directory, and short forms of the calls that tests make.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ken_store::Store;
use ken_store::clock::ManualClock;
use ken_store::tables::postgres;
use ken_store::tables::sqlite::Sqlite;
use ken_types::event::{Failure, ModelName, Outcome, TurnResult, Usage};
use ken_types::id::{EventId, Origin, SessionId, SubmissionId};
use ken_types::ops::store::*;
use ken_types::ops::streams::{AppendStream, CreateStream, Payload};
use ken_types::{Error, Octets, Offset, Timestamp};
use serde_json::value::RawValue;
use serde_json::{Value, json};

pub(crate) const DAY_MS: i64 = 24 * 3_600_000;
pub(crate) const START: &str = "2027-02-03T04:05:06.789Z";

pub(crate) struct Kit {
    pub(crate) store: Option<Store>,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) dir: tempfile::TempDir,
    /// The database on a server, for the suite over PostgreSQL.
    pub(crate) remote: Option<Remote>,
    events: AtomicU64,
}

/// A database of its own on the server of this test program.
pub(crate) struct Remote {
    pub(crate) server: &'static ken_tests::Postgres,
    pub(crate) database: String,
    /// Where the store finds it.
    pub(crate) url: String,
}

pub(crate) fn scope(actor: &str) -> Scope {
    Scope { connector: "tui".into(), actor_id: actor.into(), conversation_id: "talk".into(), thread_id: None }
}

pub(crate) fn fresh(id: &str) -> FreshSession {
    FreshSession::new(SessionId(id.into()), Origin::Tui)
}

pub(crate) fn sub(id: &str) -> SubmissionId {
    SubmissionId(id.into())
}

/// Returns what makes a prompt wait its turn.
pub(crate) fn queued(id: &str) -> Action {
    Action::Prompt { submission_id: sub(id), policy: Policy::Queue }
}

pub(crate) fn admit_of(instance: &str, id: &str) -> Admit {
    Admit {
        instance: instance.into(),
        submission_id: sub(id),
        message: "hello".into(),
        images: Vec::new(),
        blobs: Vec::new(),
        policy: Policy::Queue,
        model: None,
        mcp_server: None,
    }
}

/// Returns an entry that everybody finds.
pub(crate) fn entry(title: &str, content: &str) -> PutKnowledge {
    PutKnowledge {
        title: title.into(),
        content: content.into(),
        tags: Vec::new(),
        actor_id: None,
        conversation_id: None,
        source: "api".into(),
        created_by: "api".into(),
        turn: None,
    }
}

pub(crate) fn create_of(stream: &str) -> CreateStream {
    CreateStream {
        stream: stream.into(),
        content_type: Some("text/plain".into()),
        lifetime: None,
        closed: false,
        fork: None,
        body: None,
        call: None,
    }
}

pub(crate) fn append_of(stream: &str, text: &str) -> AppendStream {
    AppendStream {
        stream: stream.into(),
        payload: Some(Payload::Bytes(Octets(text.into()))),
        content_type: "text/plain".into(),
        seq: None,
        producer: None,
        close: false,
        call: None,
    }
}

/// Returns an event as an agent writes it.
pub(crate) fn event(submission: &str, index: u64, kind: &str, fields: Value) -> Box<RawValue> {
    event_at(submission, index, kind, fields, START)
}

pub(crate) fn event_at(submission: &str, index: u64, kind: &str, fields: Value, at: &str) -> Box<RawValue> {
    let fields = fields.to_string();
    let fields = fields.strip_prefix('{').and_then(|fields| fields.strip_suffix('}')).unwrap();
    let comma = if fields.is_empty() { "" } else { "," };
    let text = format!(
        r#"{{"v":1,"type":"{kind}"{comma}{fields},"eventIndex":{index},"timestamp":"{at}","instanceId":"i","submissionId":"{submission}","session":"default","harness":"default"}}"#
    );
    RawValue::from_string(text).unwrap()
}

pub(crate) fn deltas(submission: &str, from: u64, count: u64) -> Vec<Box<RawValue>> {
    (from..from + count)
        .map(|index| event(submission, index, "text_delta", json!({"text": format!("w{index}")})))
        .collect()
}

pub(crate) fn text_delta(submission: &str, index: u64, text: &str) -> Box<RawValue> {
    let message = json!({"role": "assistant", "content": [{"type": "text", "text": text}]});
    event(submission, index, "message_end", json!({"message": message}))
}

pub(crate) fn result(text: &str) -> TurnResult {
    TurnResult {
        text: text.into(),
        usage: Usage::default(),
        model: ModelName { provider: "rules".into(), id: "rules-1".into() },
        context_budget: None,
        validation: None,
        sources: Vec::new(),
        calls: Vec::new(),
    }
}

impl Kit {
    pub(crate) fn new() -> Kit {
        Kit::with_clock(at(START))
    }

    /// Creates a store whose clock shows this time.
    pub(crate) fn with_clock(now: Timestamp) -> Kit {
        Kit::in_place(now, crate::remote())
    }

    /// Creates a store in a file, or in a database on a server.
    pub(crate) fn in_place(now: Timestamp, remote: Option<Remote>) -> Kit {
        let dir = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::at(now));
        let mut kit = Kit { store: None, clock, dir, remote, events: AtomicU64::new(0) };
        kit.open().unwrap();
        kit
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.dir.path().join("ken.db")
    }

    pub(crate) fn open(&mut self) -> Result<(), Error> {
        let store = match &self.remote {
            None => Store::start(Sqlite::open(&self.file())?, self.clock.clone())?,
            Some(Remote { url, .. }) => {
                let backend = postgres::Postgres::open(url, self.dir.path())?;
                reached(Store::start(backend, self.clock.clone())?)
            }
        };
        self.store = Some(store);
        Ok(())
    }

    pub(crate) fn is_remote(&self) -> bool {
        self.remote.is_some()
    }

    /// Runs statements that both databases know. The store does not run meanwhile.
    pub(crate) fn execute(&self, sql: &str) {
        match &self.remote {
            None => rusqlite::Connection::open(self.file()).unwrap().execute_batch(sql).unwrap(),
            Some(Remote { server, database, .. }) => {
                server.sql(database, &format!("SET search_path = ken; {sql}"));
            }
        }
    }

    /// Returns the rows of a query of the server, one a line.
    #[allow(dead_code)] // only the suite over PostgreSQL asks
    pub(crate) fn query(&self, sql: &str) -> String {
        let Remote { server, database, .. } = self.remote.as_ref().unwrap();
        server.sql(database, sql)
    }

    /// Returns the number of rows of a table.
    pub(crate) fn count(&self, table: &str) -> i64 {
        match &self.remote {
            None => {
                let sql = format!("SELECT count(*) FROM {table}");
                let file = rusqlite::Connection::open(self.file()).unwrap();
                file.query_row(&sql, [], |row| row.get(0)).unwrap()
            }
            Some(Remote { server, database, .. }) => {
                server.sql(database, &format!("SELECT count(*) FROM ken.{table}")).parse().unwrap()
            }
        }
    }

    /// Returns whether anything that is stored contains this text: the files of SQLite, or the tables on the server.
    pub(crate) fn holds(&self, text: &str) -> bool {
        if let Some(Remote { server, database, .. }) = &self.remote {
            return server.dump(database).contains(text);
        }
        let files = std::fs::read_dir(self.dir.path()).unwrap().flatten();
        files.into_iter().any(|file| {
            let bytes = std::fs::read(file.path()).unwrap();
            bytes.windows(text.len()).any(|window| window == text.as_bytes())
        })
    }

    /// Stops the store and starts it again on the same file.
    pub(crate) fn restart(&mut self) {
        self.store = None;
        self.open().unwrap();
    }

    pub(crate) async fn turn_clock(&self, ms: i64) {
        self.clock.advance(ms);
        self.tick().await;
    }

    /// Lets days pass, so that there is a round of `[retention]` on each: one goes on by a day.
    pub(crate) async fn turn_days(&self, days: i64) {
        for _ in 0..days {
            self.turn_clock(DAY_MS).await;
        }
    }

    /// Starts the store again with a clock that shows another time.
    pub(crate) fn restart_later(&mut self, ms: i64) {
        self.store = None;
        self.clock.advance(ms);
        self.open().unwrap();
    }

    pub(crate) async fn session(&self, id: &str, actor: &str) -> OpenSession {
        let scope = scope(actor);
        self.write::<SessionsCreate>(CreateSession { scope, fresh: fresh(id) }).await.unwrap()
    }

    /// Returns the arguments of an event with a new id.
    pub(crate) fn accept_of(&self, actor: &str, text: &str, target: Target, action: Action) -> Accept {
        let number = self.events.fetch_add(1, Ordering::Relaxed);
        Accept {
            event: InboundEvent {
                id: EventId(format!("tui:{number}")),
                scope: scope(actor),
                kind: "chat.message".into(),
                text: text.into(),
                received_at: START.parse().unwrap(),
                context: None,
                raw: None,
                images: Vec::new(),
            },
            target,
            action,
            counted: false,
        }
    }

    pub(crate) async fn prompt_with(&self, session: &str, id: &str, text: &str, policy: Policy) -> Accepted {
        let action = Action::Prompt { submission_id: sub(id), policy };
        let accept = self.accept_of("a", text, Target::Selector(session.into()), action);
        self.write::<ChatAccept>(accept).await.unwrap()
    }

    /// Sends a prompt of actor `a`, which must be accepted.
    pub(crate) async fn prompt(&self, session: &str, id: &str) -> Admission {
        let accepted = self.prompt_with(session, id, &format!("question {id}"), Policy::Queue).await;
        accepted.submission.unwrap_or_else(|| panic!("{:?}", accepted.refused))
    }

    pub(crate) async fn claims(&self, connection: u64, max: u32) -> Claims {
        let holder = format!("test-{connection}");
        let wait_ms = 0;
        self.claim(connection, ClaimSubmissions { holder, work: Work::Turns, max, wait_ms }).await.unwrap()
    }

    pub(crate) async fn claim_one(&self, connection: u64) -> Claim {
        let mut claims = self.claims(connection, 1).await.claims;
        assert_eq!(claims.len(), 1, "nothing to claim");
        claims.remove(0)
    }

    pub(crate) async fn add_events(
        &self,
        lease: &Lease,
        first_index: u64,
        events: Vec<Box<RawValue>>,
    ) -> Result<Appended, Error> {
        let lease = lease.clone();
        self.write::<SubmissionsAppend>(AppendEvents { lease, first_index, events }).await
    }

    pub(crate) fn settle_of(lease: &Lease, first_index: u64, outcome: Outcome, text: &str) -> SettleSubmission {
        let id = lease.submission_id.as_str();
        let name = format!("{outcome:?}").to_lowercase();
        let settled = event(id, first_index + 1, "submission_settled", json!({"outcome": name}));
        let failed =
            (outcome == Outcome::Failed).then(|| Failure { name: "provider".into(), message: "It failed.".into() });
        SettleSubmission {
            lease: lease.clone(),
            first_index,
            events: vec![text_delta(id, first_index, text), settled],
            outcome,
            result: Some(result(text)),
            error: failed,
            context_usage: None,
            summary: None,
            used: Vec::new(),
        }
    }

    pub(crate) async fn finish(&self, lease: &Lease, first_index: u64, text: &str) -> Result<Appended, Error> {
        self.write::<SubmissionsSettle>(Kit::settle_of(lease, first_index, Outcome::Completed, text)).await
    }

    /// Runs a whole turn.
    pub(crate) async fn talk(&self, session: &str, id: &str, text: &str, answer: &str) {
        self.prompt_with(session, id, text, Policy::Queue).await;
        let claim = self.claim_one(1).await;
        assert_eq!(claim.lease.submission_id, sub(id));
        self.finish(&claim.lease, 0, answer).await.unwrap();
    }

    pub(crate) async fn state(&self, id: &str) -> State {
        self.status(id).await.state
    }

    pub(crate) async fn status(&self, id: &str) -> SubmissionStatus {
        let args = WaitSubmission { submission_id: sub(id), wait_ms: 0, or_waiting: false };
        self.wait(args).await.unwrap()
    }

    pub(crate) async fn page(&self, instance: &str, offset: Offset) -> Result<StreamPage, Error> {
        self.read_stream(read(instance, offset, 0)).await
    }

    /// Returns all entries of an instance's stream.
    pub(crate) async fn log(&self, instance: &str) -> Vec<Value> {
        let mut log = Vec::new();
        let mut offset = Offset::Start;
        loop {
            let page = self.page(instance, offset).await.unwrap();
            log.extend(page.entries.iter().map(|entry| serde_json::from_str(entry.get()).unwrap()));
            offset = Offset::After(page.next);
            if page.next == page.end {
                return log;
            }
        }
    }
}

/// Waits until the store has reached its database.
pub(crate) fn reached(store: Store) -> Store {
    ken_tests::until("the store reaches its database", || store.stats()["writable"] != 0);
    store
}

pub(crate) fn read(instance: &str, offset: Offset, wait_ms: u64) -> ReadStream {
    ReadStream { stream: format!("agents/orchestrator/{instance}"), offset, wait_ms, ..ReadStream::default() }
}

pub(crate) fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

impl std::ops::Deref for Kit {
    type Target = Store;

    fn deref(&self) -> &Store {
        self.store.as_ref().unwrap()
    }
}
