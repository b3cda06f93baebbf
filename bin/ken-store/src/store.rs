//! The store, as the daemon calls it: one method an operation.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ken_types::Error;
use ken_types::Offset;
use ken_types::limits::{PAGE_BYTES, PAGE_RUNS};
use ken_types::ops::Nothing;
use ken_types::ops::runs::*;
use ken_types::ops::store::*;
use ken_types::ops::streams::{
    AppendStream, Appending, CreateStream, Creation, DeleteStream, Lifetime, Payload, PublicPage,
};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use tokio::time::{Instant, sleep, timeout_at};

use crate::ConnectionId;
use crate::backend::{Backend, NewEntries, Reads};
use crate::check;
use crate::clock::Clock;
use crate::readers::Readers;
use crate::watch::{Condition, News, Topic, Watch, stopping};
use crate::writer::{Counters, Writer};

const READERS: usize = 3;
/// The longest that one call may wait.
const WAIT_MS: u64 = 600_000;
/// The longest page of sessions, exchanges or entries.
const PAGE: u32 = 100;
/// The most exchanges of a history.
const HISTORY: u32 = 1_000;
/// The most that one claim takes.
const CLAIM: u32 = 64;

/// A running store. Dropped, it finishes what was taken in and ends its threads.
pub struct Store {
    /// Before the writer, whose connection has to be the last to close: it removes the write-ahead log.
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
    /// Starts the threads over an open database.
    pub fn start(mut backend: impl Backend + 'static, clock: Arc<dyn Clock>) -> Result<Store, Error> {
        let watch = Arc::new(Watch::default());
        let readers = Readers::start(&mut backend, READERS)?;
        let writer = Writer::start(Box::new(backend), clock.clone(), watch.clone())?;
        Ok(Store {
            writer,
            readers,
            watch,
            clock,
        })
    }

    /// Sends whoever waits away. What has been begun goes on.
    pub fn stop(&self) {
        self.watch.set_condition(Condition::Stopping);
    }

    /// A connection has ended: what it held may be claimed anew.
    pub fn disconnected(&self, connection: ConnectionId) {
        self.writer.disconnected(connection);
    }

    /// Makes the writer look at its clock. For tests that turn it.
    pub async fn tick(&self) {
        self.writer.tick().await;
    }

    async fn read<A, T>(
        &self,
        args: A,
        read: impl FnOnce(&mut dyn Reads, &A) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error>
    where
        A: Send + 'static,
        T: Send + 'static,
    {
        self.readers.read(move |reads| read(reads, &args)).await
    }

    pub async fn create_session(&self, args: CreateSession) -> Result<OpenSession, Error> {
        self.writer
            .write(move |writes, change| writes.create_session(&args, change))
            .await
    }

    pub async fn resume_session(&self, args: ResumeSession) -> Result<OpenSession, Error> {
        if args.selector.trim().is_empty() {
            return Err(Error::invalid("/selector", "the selector is blank"));
        }
        self.writer
            .write(move |writes, change| writes.resume_session(&args, change))
            .await
    }

    pub async fn list_sessions(&self, args: ListSessions) -> Result<SessionPage, Error> {
        check::limit(args.limit, PAGE)?;
        self.read(args, |reads, args| reads.list_sessions(args)).await
    }

    pub async fn transcript(&self, args: ReadTranscript) -> Result<Box<RawValue>, Error> {
        check::limit(args.limit, PAGE)?;
        self.read(args, |reads, args| reads.transcript(args)).await
    }

    pub async fn cancel_session(&self, args: CancelSession) -> Result<Cancelled, Error> {
        self.writer
            .write(move |writes, change| writes.cancel_session(&args, change))
            .await
    }

    pub async fn archive_session(&self, args: OwnedSession) -> Result<Nothing, Error> {
        self.writer
            .write(move |writes, change| writes.archive_session(&args, change))
            .await?;
        Ok(Nothing {})
    }

    pub async fn accept(&self, args: Accept) -> Result<Accepted, Error> {
        self.writer
            .write(move |writes, change| writes.accept(&args, change))
            .await
    }

    pub async fn admit(&self, args: Admit) -> Result<Admission, Error> {
        self.writer
            .write(move |writes, change| writes.admit(&args, change))
            .await
    }

    /// Waits until it is settled (or waits for a decision, if that is asked for).
    pub async fn wait_submission(&self, args: WaitSubmission) -> Result<Standing, Error> {
        let enough = |standing: &Standing| {
            standing.state.is_settled() || (args.or_waiting && standing.state == State::Waiting)
        };
        let until = until(args.wait_ms);
        let waiting = self
            .watch
            .subscribe(Topic::Submission(args.submission_id.clone()))?;
        loop {
            let now = self
                .read(args.submission_id.clone(), |reads, id| reads.standing(id))
                .await?;
            if enough(&now) {
                return Ok(now);
            }
            let news = tokio::select! {
                news = timeout_at(until, waiting.news()) => news,
                error = self.watch.stopped() => return Err(error),
                why = self.watch.until(failing) => return Ok(Standing { stalled: Some(why), ..now }),
            };
            match news {
                Err(_) => return Ok(now),
                Ok(News::Stands(told)) if enough(&told) => return Ok(Arc::unwrap_or_clone(told)),
                Ok(_) => {}
            }
        }
    }

    /// Work for the holder behind `connection`; waits for some.
    pub async fn claim(&self, connection: ConnectionId, args: ClaimSubmissions) -> Result<Claims, Error> {
        if args.max > CLAIM {
            return Err(Error::invalid("/max", format!("max is 0 to {CLAIM}")));
        }
        let mut answer = self
            .writer
            .claim(connection, args.work, args.max, args.wait_ms > 0)?;
        // One that does not wait is answered at once: the time is for the store to get to it.
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
        // Whatever was sent until here is ours; what comes later finds nobody and is let go.
        answer.close();
        Ok(answer
            .try_recv()
            .map(|delivery| delivery.take())
            .unwrap_or_default())
    }

    pub async fn renew(&self, connection: ConnectionId, args: RenewLeases) -> Result<LostLeases, Error> {
        let renew = move |writes: &mut dyn crate::backend::Writes, change: &mut _| {
            let kept = writes.renew(&args.leases, connection, change)?;
            let lost = args
                .leases
                .into_iter()
                .filter(|lease| !kept.contains(lease))
                .collect();
            Ok(LostLeases { lost })
        };
        self.writer.write(renew).await
    }

    pub async fn append(&self, args: AppendEvents) -> Result<Appended, Error> {
        self.writer
            .write(move |writes, change| writes.append(&args, change))
            .await
    }

    pub async fn settle(&self, args: SettleSubmission) -> Result<Appended, Error> {
        self.writer
            .write(move |writes, change| writes.settle(&args, change))
            .await
    }

    pub async fn abort(&self, args: OfInstance) -> Result<AbortedSubmissions, Error> {
        self.writer
            .write(move |writes, change| writes.abort(&args, change))
            .await
    }

    pub async fn history(&self, args: ReadHistory) -> Result<History, Error> {
        check::limit(args.limit, HISTORY)?;
        if let Some(search) = &args.search {
            check::limit(search.limit, PAGE)?;
        }
        self.read(args, |reads, args| reads.history(args)).await
    }

    pub async fn admit_run(&self, args: AdmitRun) -> Result<Nothing, Error> {
        self.writer
            .write(move |writes, change| writes.admit_run(&args, change))
            .await?;
        Ok(Nothing {})
    }

    pub async fn end_run(&self, args: EndRun) -> Result<RunRecord, Error> {
        self.writer
            .write(move |writes, change| writes.end_run(&args, change))
            .await
    }

    pub async fn abort_run(&self, args: ByRun) -> Result<AbortedRun, Error> {
        self.writer
            .write(move |writes, change| writes.abort_run(&args, change))
            .await
    }

    pub async fn get_run(&self, args: ByRun) -> Result<RunRecord, Error> {
        self.read(args, |reads, args| reads.get_run(args)).await
    }

    pub async fn list_runs(&self, args: ListRuns) -> Result<RunPage, Error> {
        check::limit(args.limit, PAGE_RUNS)?;
        self.read(args, |reads, args| reads.list_runs(args)).await
    }

    /// A page; waits for its first entry if there is none, then gathers more for a moment.
    pub async fn read_stream(&self, args: ReadStream) -> Result<StreamPage, Error> {
        check_read(&args)?;
        if args.wait_ms == 0 {
            return self.used_page(args).await;
        }
        let until = until(args.wait_ms);
        let waiting = self.watch.subscribe(Topic::Stream(args.stream.clone()))?;
        let mut page = self.used_page(args.clone()).await?;
        if !page.is_empty() {
            return Ok(page);
        }
        let limit = args.limit as usize;
        let from = ReadStream {
            offset: Offset::After(page.next),
            tail: None,
            id: Some(page.id),
            ..args
        };
        while page.is_empty() && !page.closed {
            let news = tokio::select! {
                news = timeout_at(until, waiting.news()) => news,
                error = self.watch.stopped() => return Err(error),
            };
            let Ok(news) = news else {
                return Ok(page);
            };
            page = match news {
                News::Entries(new) if new.first == page.next && args.gather_ms == 0 => {
                    told(&new, limit, page)
                }
                _ => {
                    sleep(Duration::from_millis(args.gather_ms)).await;
                    self.page(from.clone()).await?
                }
            };
        }
        Ok(page)
    }

    async fn page(&self, args: ReadStream) -> Result<StreamPage, Error> {
        let now = self.clock.now();
        self.read(args, move |reads, args| reads.read_stream(args, now))
            .await
    }

    /// A page for somebody whose reading keeps the stream alive, if that is asked for.
    async fn used_page(&self, args: ReadStream) -> Result<StreamPage, Error> {
        let touch = args.touch;
        let page = self.page(args).await?;
        let lifetime = page.public.as_ref().and_then(|public| public.lifetime);
        if touch && matches!(lifetime, Some(Lifetime::Ttl(_))) {
            let id = page.id;
            self.writer
                .write(move |writes, change| writes.touch_stream(id, change))
                .await?;
        }
        Ok(page)
    }

    pub async fn create_stream(&self, args: CreateStream) -> Result<Creation, Error> {
        check::stream(&args.stream)?;
        if let Some(fork) = &args.fork {
            check::stream(&fork.from)?;
        }
        self.writer
            .write(move |writes, change| writes.create_stream(&args, change))
            .await
    }

    pub async fn append_stream(&self, args: AppendStream) -> Result<Appending, Error> {
        check::append(&args)?;
        self.writer
            .write(move |writes, change| writes.append_stream(args, change))
            .await
    }

    pub async fn delete_stream(&self, args: DeleteStream) -> Result<Nothing, Error> {
        self.writer
            .write(move |writes, change| writes.delete_stream(&args, change))
            .await
    }

    pub async fn put_knowledge(&self, args: PutKnowledge) -> Result<KnowledgeRecord, Error> {
        self.writer
            .write(move |writes, change| writes.put_knowledge(&args, change))
            .await
    }

    pub async fn get_knowledge(&self, args: ById) -> Result<KnowledgeRecord, Error> {
        self.read(args, |reads, args| reads.get_knowledge(args)).await
    }

    pub async fn delete_knowledge(&self, args: ById) -> Result<Nothing, Error> {
        self.writer
            .write(move |writes, change| writes.delete_knowledge(&args, change))
            .await?;
        Ok(Nothing {})
    }

    pub async fn list_knowledge(&self, args: ListKnowledge) -> Result<KnowledgePage, Error> {
        check::limit(args.limit, PAGE)?;
        self.read(args, |reads, args| reads.list_knowledge(args)).await
    }

    pub async fn search_knowledge(&self, args: Search) -> Result<Found<KnowledgeRecord>, Error> {
        check::limit(args.limit, PAGE)?;
        self.read(args, |reads, args| reads.search_knowledge(args)).await
    }

    pub async fn reindex(&self, args: KeyedJob) -> Result<Job, Error> {
        self.writer
            .write(move |writes, change| writes.reindex(&args, change))
            .await
    }

    pub async fn knowledge_job(&self, args: ById) -> Result<Job, Error> {
        self.read(args, |reads, args| reads.knowledge_job(args)).await
    }

    pub async fn search_memory(&self, args: Search) -> Result<Found<PastExchange>, Error> {
        check::limit(args.limit, PAGE)?;
        self.read(args, |reads, args| reads.search_memory(args)).await
    }

    pub async fn begin_key(&self, args: BeginKey) -> Result<KeyState, Error> {
        self.writer
            .write(move |writes, change| writes.begin_key(&args, change.now))
            .await
    }

    pub async fn finish_key(&self, args: FinishKey) -> Result<Nothing, Error> {
        self.writer
            .write(move |writes, _| writes.finish_key(&args))
            .await?;
        Ok(Nothing {})
    }

    /// Sizes of the database.
    pub async fn sizes(&self) -> Result<Map<String, Value>, Error> {
        self.readers.read(|reads| reads.sizes()).await
    }

    /// Counters and queue lengths, without a look at the database.
    pub fn stats(&self) -> Map<String, Value> {
        let Counters {
            writes,
            refused,
            given_up,
            batches,
            failed_batches,
            claims,
            leases_lost,
            held,
        } = self.writer.counters();
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

fn check_read(args: &ReadStream) -> Result<(), Error> {
    if args.limit == 0 {
        return Err(Error::invalid("/limit", "limit is at least 1"));
    }
    match args.tail {
        Some(0) => Err(Error::invalid("/tail", "tail is at least 1")),
        Some(_) if args.offset != Offset::Start => {
            Err(Error::invalid("/tail", "tail goes only with offset -1"))
        }
        _ => Ok(()),
    }
}

/// A page of what was just written, for a reader that stood at the end with the empty page `last`.
fn told(new: &NewEntries, limit: usize, last: StreamPage) -> StreamPage {
    let mut page = StreamPage {
        start: new.first,
        ..last
    };
    match &new.payload {
        Payload::Bytes(bytes) => {
            page.end = new.first + 1;
            page.next = page.end;
            page.public = page.public.map(|public| PublicPage {
                bytes: Some(bytes.clone()),
                ..public
            });
        }
        Payload::Messages(messages) => {
            page.end = new.first + messages.len() as u64;
            page.entries = first_page(messages, limit);
            page.next = new.first + page.entries.len() as u64;
        }
    }
    page
}

/// As many as fit into a page, and at least one.
fn first_page(messages: &[Box<RawValue>], limit: usize) -> Vec<Box<RawValue>> {
    let mut page: Vec<Box<RawValue>> = Vec::new();
    let mut bytes = 0;
    for message in messages.iter().take(limit) {
        bytes += message.get().len();
        if !page.is_empty() && bytes > PAGE_BYTES {
            break;
        }
        page.push(message.clone());
    }
    page
}
