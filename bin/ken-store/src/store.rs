//! The store as the daemon calls it. It checks the arguments of each operation, and then reads or writes. Waiting also happens here.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ken_types::Error;
use ken_types::Offset;
use ken_types::config::Retention;
use ken_types::ops::approvals::{Approval, GetApproval, ListApprovals, PendingApprovals, Status};
use ken_types::ops::documents::{DocumentWork, FindWork};
use ken_types::ops::outbox::{DueList, DueMessages};
use ken_types::ops::store::*;
use ken_types::ops::streams::Lifetime;
use serde_json::{Map, Value};
use tokio::time::{Instant, sleep, timeout_at};

use crate::ConnectionId;
use crate::engine::change::{Change, Effect};
use crate::engine::clock::Clock;
use crate::engine::readers::Readers;
use crate::engine::watch::{Condition, News, Subscription, Topic, Watch, stopping};
use crate::engine::writer::{Counters, Writer};
use crate::ops::{self, Read, Write};
use crate::rules::page;
use crate::tables::{Backend, Tables};

const READERS: usize = 3;
/// The maximum time for which one call can wait, in milliseconds.
const WAIT_MS: u64 = 600_000;
/// The maximum number of submissions in one claim.
const CLAIM: u32 = 64;

/// A running store. Dropping it finishes the changes that it has accepted and ends its threads.
pub struct Store {
    /// Declared before the writer, so that it is dropped first. When the writer's connection is closed last, the write-ahead log is
    /// removed.
    readers: Readers,
    writer: Writer,
    watch: Arc<Watch>,
    clock: Arc<dyn Clock>,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").finish_non_exhaustive()
    }
}

impl Store {
    /// Starts the threads of a store on an open database.
    pub fn start(mut backend: impl Backend + 'static, clock: Arc<dyn Clock>) -> Result<Store, Error> {
        let watch = Arc::new(Watch::default());
        let readers = Readers::start(&mut backend, READERS)?;
        let writer = Writer::start(Box::new(backend), clock.clone(), watch.clone())?;
        Ok(Store { readers, writer, watch, clock })
    }

    /// Sets what sessions remember for which nothing else is set.
    pub async fn set_memory(&self, memory: Memory) -> Result<(), Error> {
        self.writer.write(true, move |tables, _| ops::memory::set_default(tables, memory)).await
    }

    /// Sets for how long data is kept.
    pub async fn set_retention(&self, retention: Retention) -> Result<(), Error> {
        let set = move |tables: &dyn Tables, change: &mut Change| {
            change.push(Effect::Background);
            ops::retention::set(tables, retention)
        };
        self.writer.write(true, set).await
    }

    /// Makes all waiting calls return an error. Operations that have begun continue.
    pub fn stop(&self) {
        self.watch.set_condition(Condition::Stopping);
    }

    /// Must be called when a connection has ended, so that others can claim its submissions.
    pub fn disconnected(&self, connection: ConnectionId) {
        self.writer.disconnected(connection);
    }

    /// Makes the writer do what is due, and returns when it has. For tests, which move its clock.
    pub async fn tick(&self) {
        self.writer.tick().await;
    }

    /// Runs an operation that reads.
    pub async fn read<O: Read>(&self, args: O::Args) -> Result<O::Reply, Error> {
        O::check(&args)?;
        self.readers.read(O::COMES_FIRST, O::ON_STANDBY, move |tables| O::run(tables, &args)).await
    }

    /// Runs an operation that changes something. Returns when the change is durable.
    pub async fn write<O: Write>(&self, args: O::Args) -> Result<O::Reply, Error> {
        O::check(&args)?;
        self.writer.write(O::COMES_FIRST, move |tables, change| O::run(tables, &args, change)).await
    }

    /// Waits until a submission is settled or, if `or_waiting` is set, waits for a decision. Also returns after `wait_ms`, and with
    /// `stalled` set as soon as the store cannot write.
    pub async fn wait(&self, args: WaitSubmission) -> Result<SubmissionStatus, Error> {
        let enough = |status: &SubmissionStatus| {
            status.state.is_settled() || (args.or_waiting && status.state == State::Waiting)
        };
        let until = until(args.wait_ms);
        let topic = Topic::Submission(args.submission_id.clone());
        let waiting = self.watch.subscribe(topic)?;
        let read = || {
            let args = args.clone();
            self.look(move |tables| ops::submissions::status(tables, &args))
        };
        let mut may_have_changed = !waiting.is_complete;
        loop {
            if may_have_changed {
                let now = read().await?;
                if enough(&now) {
                    return Ok(now);
                }
            }
            let news = tokio::select! {
                news = timeout_at(until, waiting.news()) => news,
                error = self.watch.stopped() => return Err(error),
                why = self.watch.until(failing) => return Ok(SubmissionStatus { stalled: Some(why), ..read().await? }),
            };
            match news {
                Err(_) => return read().await,
                Ok(News::Status(status)) if enough(&status) => return Ok(Arc::unwrap_or_clone(status)),
                Ok(_) => may_have_changed = true,
            }
        }
    }

    /// Returns a request for an approval. Waits while it is pending.
    pub async fn approval(&self, args: GetApproval) -> Result<Approval, Error> {
        let until = until(args.wait_ms);
        let waiting = self.watch.subscribe(Topic::Approval(args.id.clone()))?;
        loop {
            let id = args.id.clone();
            let now = self.look(move |tables| ops::approvals::get(tables, &id)).await?;
            if now.status != Status::Pending || self.news(&waiting, until).await?.is_none() {
                return Ok(now);
            }
        }
    }

    /// Returns the pending requests. Waits while there are none or, if the caller names the list that it knows, while that is the current
    /// one.
    pub async fn pending_approvals(&self, args: ListApprovals) -> Result<PendingApprovals, Error> {
        let until = until(args.wait_ms);
        let waiting = self.watch.subscribe(Topic::Approvals)?;
        loop {
            let retry_args = args.clone();
            let now = self.look(move |tables| ops::approvals::pending(tables, &retry_args)).await?;
            let is_news = match &args.unless {
                Some(known) => *known != now.tag,
                None => !now.approvals.is_empty(),
            };
            if is_news || self.news(&waiting, until).await?.is_none() {
                return Ok(now);
            }
        }
    }

    /// Waits for news. Returns `None` if there is none until this time.
    async fn news(&self, waiting: &Subscription, until: Instant) -> Result<Option<News>, Error> {
        tokio::select! {
            news = timeout_at(until, waiting.news()) => Ok(news.ok()),
            error = self.watch.stopped() => Err(error),
        }
    }

    /// Reads what a call waits for.
    async fn look<T, F>(&self, read: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: FnOnce(&dyn Tables) -> Result<T, Error> + Send + 'static,
    {
        self.readers.read(true, false, read).await
    }

    /// Claims work for the holder behind `connection`. Waits until there is some.
    pub async fn claim(&self, connection: ConnectionId, args: ClaimSubmissions) -> Result<Claims, Error> {
        if args.max > CLAIM {
            return Err(Error::invalid("/max", format!("max is 0 to {CLAIM}")));
        }
        let mut answer = self.writer.claim(connection, args.work, args.max, args.wait_ms > 0)?;
        // A claim that does not wait is answered when the writer processes it, so this time is only an upper limit.
        let wait_ms = if args.wait_ms == 0 { WAIT_MS } else { args.wait_ms };
        let delivered = tokio::select! {
            delivered = timeout_at(until(wait_ms), &mut answer) => delivered,
            error = self.watch.stopped() => return Err(error),
        };
        match delivered {
            Ok(Ok(delivery)) => return Ok(delivery.take()),
            Ok(Err(_)) => return Err(stopping()),
            Err(_) => {}
        }
        // Claims that were sent until now are part of the answer. Any later ones find the receiver closed and are released.
        answer.close();
        Ok(answer.try_recv().map(|delivery| delivery.take()).unwrap_or_default())
    }

    /// Renews leases for the holder behind `connection`.
    pub async fn renew(&self, connection: ConnectionId, args: RenewLeases) -> Result<LostLeases, Error> {
        self.writer
            .write(true, move |tables, change| ops::leases::renew(tables, &args.leases, connection, change))
            .await
    }

    /// Returns a page of a stream. If it is empty, waits for its first entry, and then for a moment for more.
    pub async fn read_stream(&self, args: ReadStream) -> Result<StreamPage, Error> {
        page::check(&args)?;
        if args.wait_ms == 0 {
            return self.page_extending_life(args).await;
        }
        let until = until(args.wait_ms);
        let waiting = self.watch.subscribe(Topic::Stream(args.stream.clone()))?;
        let mut page = self.page_extending_life(args.clone()).await?;
        let limit = args.limit as usize;
        let from = ReadStream { offset: Offset::After(page.next), tail: None, id: Some(page.id), ..args };
        while page.is_empty() && !page.closed {
            let Some(news) = self.news(&waiting, until).await? else {
                return Ok(page);
            };
            page = match news {
                News::Entries(new) if new.first == page.next && from.gather_ms == 0 => page::of_new(&new, limit, page),
                _ => {
                    sleep(Duration::from_millis(from.gather_ms)).await;
                    self.page(from.clone()).await?
                }
            };
        }
        Ok(page)
    }

    /// Returns the messages that can be sent now. Waits until there is one.
    pub async fn due(&self, args: DueMessages) -> Result<DueList, Error> {
        ops::outbox::check_due(&args)?;
        let until = until(args.wait_ms);
        let waiting = self.watch.subscribe(Topic::Outbox)?;
        loop {
            let (due_args, now) = (args.clone(), self.clock.now());
            let (due, next) = self.look(move |tables| ops::outbox::due(tables, &due_args, now)).await?;
            if !due.messages.is_empty() || Instant::now() >= until {
                return Ok(due);
            }
            let wait_ms = next.map_or(WAIT_MS, |next| next.millis().saturating_sub(now.millis()).unsigned_abs());
            let next = Instant::now() + Duration::from_millis(wait_ms.clamp(1, WAIT_MS));
            self.news(&waiting, until.min(next)).await?;
        }
    }

    /// Returns documents to read and entries without vectors. Waits until there are some.
    pub async fn document_work(&self, args: FindWork) -> Result<DocumentWork, Error> {
        let until = until(args.wait_ms);
        let waiting = self.watch.subscribe(Topic::Documents)?;
        loop {
            let retry_args = args.clone();
            let work = self.look(move |tables| ops::documents::work(tables, &retry_args)).await?;
            let is_nothing = work.job.is_none() && work.unembedded.is_empty();
            if !is_nothing || Instant::now() >= until {
                return Ok(work);
            }
            self.news(&waiting, until).await?;
        }
    }

    async fn page(&self, args: ReadStream) -> Result<StreamPage, Error> {
        let now = self.clock.now();
        self.look(move |tables| ops::streams::read(tables, &args, now)).await
    }

    /// Reads a page, and extends the time to live of the stream if the caller asks for that.
    async fn page_extending_life(&self, args: ReadStream) -> Result<StreamPage, Error> {
        let touched = args.touch.then(|| args.stream.clone());
        let page = self.page(args).await?;
        let lifetime = page.public.as_ref().and_then(|public| public.lifetime);
        if let (Some(name), Some(Lifetime::Ttl(_))) = (touched, lifetime) {
            let key = page.id.cast_signed();
            self.writer.write(false, move |tables, change| ops::public::touch(tables, &name, key, change)).await?;
        }
        Ok(page)
    }

    /// Returns why nothing can be written at the moment, if that is so.
    pub fn failure(&self) -> Option<String> {
        failing(&self.watch.condition())
    }

    /// Waits until what keeps the store from working is something else than this, and returns it; nothing is an empty text.
    pub async fn failure_other_than(&self, known: &str) -> String {
        let failure = |condition: &Condition| failing(condition).unwrap_or_default();
        self.watch.until(|condition| Some(failure(condition)).filter(|failure| failure != known)).await
    }

    /// Returns which connections for reading are missing and why, if some are.
    pub fn read_failure(&self) -> Option<String> {
        self.readers.failure()
    }

    /// Returns counters and queue lengths, without reading the database.
    pub fn stats(&self) -> Map<String, Value> {
        let Counters { writes, refused, given_up, batches, failed_batches, claims, leases_lost, held, .. } =
            self.writer.counters();
        let mut stats = Map::new();
        for (name, counter) in [
            ("writes", writes),
            ("writes_refused", refused),
            ("writes_given_up", given_up),
            ("batches", batches),
            ("batches_failed", failed_batches),
            ("claims", claims),
            ("leases_held", held),
            ("leases_lost", leases_lost),
        ] {
            stats.insert(name.into(), counter.load(Ordering::Relaxed).into());
        }
        let writable = !matches!(self.watch.condition(), Condition::Failing(_));
        stats.insert("writable".into(), u8::from(writable).into());
        if let Some(why) = self.failure() {
            stats.insert("failure".into(), why.into());
        }
        if let Some(why) = self.read_failure() {
            stats.insert("read_failure".into(), why.into());
        }
        let failing = self.writer.counters().failing_work.lock().clone();
        if !failing.is_empty() {
            let each = failing.iter().map(|(name, (error, _))| format!("{name}: {}", error.message));
            stats.insert("background_failure".into(), each.collect::<Vec<_>>().join("; ").into());
        }
        stats.insert("write_queue".into(), self.writer.waiting().into());
        stats.insert("read_queue".into(), self.readers.waiting().into());
        stats.insert("waiters".into(), self.watch.len().into());
        stats
    }
}

fn failing(condition: &Condition) -> Option<String> {
    match condition {
        Condition::Failing(error) => Some(error.message.clone()),
        _ => None,
    }
}

fn until(wait_ms: u64) -> Instant {
    Instant::now() + Duration::from_millis(wait_ms.min(WAIT_MS))
}
