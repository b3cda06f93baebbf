//! The writer. It puts all queued requests, up to a limit, into one transaction, commits it, and only then answers them. Such a batch needs
//! one sync of the disk, no matter how many callers share it.
//!
//! Normally a thread writes the batches. A caller writes its change itself if nobody else is waiting and the disk is fast, because passing
//! the change to the thread and back would take a third of the time of the sync.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ken_types::ops::store::{Claims, Lease, Work};
use ken_types::{Code, Error, Timestamp};
use ken_wire::ChangeGate;
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::task::yield_now;

use crate::ConnectionId;
use crate::engine::change::{Change, Effect, Left};
use crate::engine::clock::Clock;
use crate::engine::elsewhere::{Elsewhere, Seen};
use crate::engine::leases::{CheckReason, Leases};
use crate::engine::queue::{Pushed, Queue};
use crate::engine::silence::Silence;
use crate::engine::thread;
use crate::engine::watch::{Condition, News, Topic, Watch, mark, stopping};
use crate::ops::{background, leases, schedules, system};
use crate::tables::{self, Backend, Begun, Hear, Notice, OtherHost, Tables};

/// The maximum number of queued requests.
const QUEUE: usize = 1_024;
/// The maximum number of requests in one transaction.
const BATCH: usize = 256;
/// The time that the changes of one transaction take before those that do not come first are left to the next one. A change that comes first
/// waits for about twice this time.
const MAX_CHANGE_TIME: Duration = Duration::from_millis(2);
/// The time after a failure until leases and background work are tried again, in milliseconds.
const RETRY_MS: i64 = 1_000;
/// How long one transaction of background work deletes. A change that comes meanwhile waits for the rest of it.
const MAX_SLICE_TIME: Duration = Duration::from_millis(2);
/// The pause between two slices of background work, in milliseconds, so that other changes are not delayed. While there are other changes
/// it is longer: a turn consists of many small ones, each of which could meet a slice.
const SLICE_PAUSE_MS: i64 = 5;
const BUSY_SLICE_PAUSE_MS: i64 = 50;
/// The time after the last change of a caller during which others are expected, in milliseconds.
const BUSY_MS: i64 = 50;
/// While sessions are being deleted, the time between two slices of other background work, in milliseconds: each looks into many tables.
const OTHER_WORK_INTERVAL_MS: i64 = 1_000;
/// A caller writes its change itself only if the last batch took no longer than this. Otherwise the thread writes it, so that the caller's
/// thread can serve other calls meanwhile.
const MAX_QUICK_BATCH: Duration = Duration::from_millis(1);
/// The time after the last write at which the database is tidied up, in milliseconds.
const IDLE_MS: i64 = 1_000;
/// The maximum number of steps of runs of schedules in one transaction.
const STEPS: usize = 64;
/// The interval at which to look for background work that no change has announced, such as expired keys; in milliseconds.
const BACKGROUND_INTERVAL_MS: i64 = 600_000;
/// The interval at which a host shows the others that it works, and looks at them, in milliseconds.
const TEND_INTERVAL_MS: i64 = 1_000;
/// What other hosts are told besides topics: work that can be claimed, an abort, and background work.
const TURNS: u64 = mark("claimable", "turns");
const RUNS: u64 = mark("claimable", "runs");
const ABORT: u64 = mark("abort", "");
const BACKGROUND: u64 = mark("background", "");

pub(crate) enum WriterRequest {
    Write(Box<dyn Job>),
    Claim(PendingClaim),
    /// Claims and requests to abort that did not reach their holder.
    Undelivered(Claims),
    Disconnected(ConnectionId),
    /// Another host has changed something.
    Heard(Notice),
    /// Something is due earlier than the thread expects. This wakes the thread.
    Earlier,
    /// A test has moved the clock, so check what is due.
    Tick(oneshot::Sender<()>),
}

/// A call of a holder that claims work.
pub(crate) struct PendingClaim {
    pub(crate) connection: ConnectionId,
    pub(crate) work: Work,
    pub(crate) max: u32,
    /// Whether to wait until there is work. If not, the call is answered at once.
    pub(crate) waits: bool,
    pub(crate) reply: oneshot::Sender<Delivery>,
}

/// Claims on their way to their holder. If this value is dropped before the holder takes them, they are released.
pub(crate) struct Delivery {
    claims: Option<Claims>,
    queue: Arc<Queue<WriterRequest>>,
}

impl Delivery {
    pub(crate) fn take(mut self) -> Claims {
        self.claims.take().unwrap_or_default()
    }
}

impl Drop for Delivery {
    fn drop(&mut self) {
        if let Some(claims) = self.claims.take() {
            self.queue.push_always(WriterRequest::Undelivered(claims));
        }
    }
}

/// A change, and the caller that waits for it.
pub(crate) trait Job: Send {
    /// Returns whether the change can still be made, and begins it if so. If the caller gives up after this, it cannot know the outcome.
    fn begin(&self) -> bool;
    /// Returns whether the change is made before those that do not come first.
    fn comes_first(&self) -> bool;
    /// Makes the change. Returns false if it was refused.
    fn run(&mut self, tables: &dyn Tables, change: &mut Change) -> bool;
    /// Returns why it was not made.
    fn error(&self) -> Option<&Error>;
    /// Replaces the answer with an error.
    fn fail(&mut self, error: &Error);
    fn answer(self: Box<Self>);
}

struct WriteJob<T, F> {
    gate: ChangeGate,
    comes_first: bool,
    work: F,
    result: Option<Result<T, Error>>,
    reply: oneshot::Sender<Result<T, Error>>,
}

impl<T, F> Job for WriteJob<T, F>
where
    T: Send,
    F: Fn(&dyn Tables, &mut Change) -> Result<T, Error> + Send,
{
    fn begin(&self) -> bool {
        self.gate.begin()
    }

    fn comes_first(&self) -> bool {
        self.comes_first
    }

    fn run(&mut self, tables: &dyn Tables, change: &mut Change) -> bool {
        self.result = Some((self.work)(tables, change));
        matches!(self.result, Some(Ok(_)))
    }

    fn error(&self) -> Option<&Error> {
        self.result.as_ref()?.as_ref().err()
    }

    fn fail(&mut self, error: &Error) {
        self.result = Some(Err(error.clone()));
    }

    fn answer(self: Box<Self>) {
        // If the caller no longer waits, nobody gets the answer, but the change remains.
        let WriteJob { result, reply, .. } = *self;
        if let Some(result) = result {
            _ = reply.send(result);
        }
    }
}

/// Counters of the writer, for `service.stats`.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) writes: AtomicU64,
    pub(crate) refused: AtomicU64,
    /// Changes that were not begun because their deadline had passed or their caller no longer waited.
    pub(crate) given_up: AtomicU64,
    pub(crate) batches: AtomicU64,
    pub(crate) failed_batches: AtomicU64,
    pub(crate) claims: AtomicU64,
    pub(crate) leases_lost: AtomicU64,
    pub(crate) held: AtomicU64,
    /// The kinds of background work that fail, each with its error, and the time at which it is tried again.
    pub(crate) failing_work: Mutex<BTreeMap<&'static str, (Error, i64)>>,
}

fn count(counter: &AtomicU64, by: usize) {
    counter.fetch_add(by as u64, Ordering::Relaxed);
}

/// The handle through which callers use the writer.
pub(crate) struct Writer {
    queue: Arc<Queue<WriterRequest>>,
    counters: Arc<Counters>,
    batches: Arc<Mutex<BatchWriter>>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    pub(crate) fn start(
        mut backend: Box<dyn Backend>,
        clock: Arc<dyn Clock>,
        watch: Arc<Watch>,
    ) -> Result<Writer, Error> {
        let queue = Arc::new(Queue::new("write", QUEUE));
        let counters = Arc::new(Counters::default());
        let hears = backend.listen(hear(&watch, &queue))?;
        let mut batches = BatchWriter::new(backend, clock, watch, queue.clone(), counters.clone())?;
        batches.hears = hears;
        let batches = Arc::new(Mutex::new(batches));
        let (orders, at) = (queue.clone(), batches.clone());
        Ok(Writer { queue, counters, batches, thread: Some(thread::spawn("writer", move || run(&orders, &at))?) })
    }

    /// Makes a change and returns its result once it is durable. The change is not begun if its deadline has passed or its caller no longer
    /// waits. If it `comes_first`, it is made before the changes that do not.
    pub(crate) async fn write<T, F>(&self, comes_first: bool, work: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: Fn(&dyn Tables, &mut Change) -> Result<T, Error> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let gate = ChangeGate::current();
        let job = WriteJob { gate: gate.clone(), comes_first, work, result: None, reply };
        let pushed = self.queue.push_without_wake(WriterRequest::Write(Box::new(job)), comes_first)?;
        if self.can_write_directly() {
            // Other callers can add their changes meanwhile and so share the batch.
            yield_now().await;
            self.write_alone(&pushed);
        }
        drop(pushed);
        answer.await.unwrap_or_else(|_| {
            // The writer has ended. Only if it had not begun the change may the caller safely try again.
            Err(if gate.give_up() {
                Error::deadline("the deadline passed before the change was begun")
            } else {
                stopping().outcome_unknown()
            })
        })
    }

    /// Returns whether nobody is writing and the last batch was fast.
    fn can_write_directly(&self) -> bool {
        self.batches.try_lock().is_some_and(|batches| is_quick(batches.last_took))
    }

    /// Writes the order if it is the only one in the queue and nobody else is writing.
    fn write_alone(&self, pushed: &Pushed<'_, WriterRequest>) {
        let Some(mut batches) = self.batches.try_lock() else {
            return;
        };
        if let Some(order) = pushed.take_if_alone() {
            let due = batches.due();
            batches.run_requests(vec![order]);
            if batches.due() < due {
                self.queue.push_always(WriterRequest::Earlier);
            }
        }
    }

    /// Queues a claim. The returned receiver resolves when there is work, or a request to abort, for the connection.
    pub(crate) fn claim(
        &self,
        connection: ConnectionId,
        work: Work,
        max: u32,
        waits: bool,
    ) -> Result<oneshot::Receiver<Delivery>, Error> {
        let (reply, answer) = oneshot::channel();
        let claim = WriterRequest::Claim(PendingClaim { connection, work, max, waits, reply });
        let pushed = self.queue.push_without_wake(claim, false)?;
        // A holder claims again as soon as it has got work. Mostly there is no more, and to wake the thread would cost more than to note it.
        if self.can_write_directly() {
            self.write_alone(&pushed);
        }
        drop(pushed);
        Ok(answer)
    }

    pub(crate) fn disconnected(&self, connection: ConnectionId) {
        self.queue.push_always(WriterRequest::Disconnected(connection));
    }

    pub(crate) async fn tick(&self) {
        let (reply, done) = oneshot::channel();
        self.queue.push_always(WriterRequest::Tick(reply));
        _ = done.await;
    }

    pub(crate) fn waiting(&self) -> usize {
        self.queue.len()
    }

    pub(crate) fn counters(&self) -> &Counters {
        &self.counters
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.queue.close();
        if let Some(thread) = self.thread.take() {
            _ = thread.join();
        }
    }
}

/// Returns what takes the notices of other hosts. Calls that wait are woken at once, and the writer when it has time.
fn hear(watch: &Arc<Watch>, queue: &Arc<Queue<WriterRequest>>) -> Hear {
    let (watch, queue) = (watch.clone(), queue.clone());
    Box::new(move |notice| {
        watch.hear(notice.marks.as_deref());
        queue.push_always(WriterRequest::Heard(notice));
    })
}

/// Runs the writer thread until the queue is closed.
fn run(queue: &Queue<WriterRequest>, batches: &Mutex<BatchWriter>) {
    loop {
        let timeout = batches.lock().max_wait();
        let Some(orders) = queue.pop_many(BATCH, Some(timeout)) else {
            batches.lock().database.pause();
            return;
        };
        let mut batches = batches.lock();
        batches.run_requests(orders);
        batches.run_schedules();
        batches.probe();
        batches.tend();
        batches.run_background();
        batches.run_idle();
        for reply in batches.ticks.drain(..) {
            _ = reply.send(());
        }
    }
}

/// The state that is needed to write batches. Whoever holds its lock writes.
struct BatchWriter {
    database: Box<dyn tables::Writer>,
    /// Kept because it holds the lock on the database.
    _backend: Box<dyn Backend>,
    queue: Arc<Queue<WriterRequest>>,
    counters: Arc<Counters>,
    watch: Arc<Watch>,
    clock: Arc<dyn Clock>,
    leases: Leases,
    /// Claims that wait for work, in the order in which they came.
    pending: VecDeque<PendingClaim>,
    /// Ticks to answer when the work that is due has been done.
    ticks: Vec<oneshot::Sender<()>>,
    maybe_open: ClaimableWork,
    /// Whether a run of a schedule may need a step. It is true at the start, because the last store may have been killed before that step.
    schedule_runs: bool,
    background_at: i64,
    /// When other background work is looked at even if sessions are being deleted.
    other_work_at: i64,
    /// When the last change of a caller was made.
    changed_at: i64,
    /// When to tidy up the database if nothing is written until then.
    idle_at: i64,
    /// After a failure, the time at which the next attempt is made.
    retry_at: i64,
    /// Whether nothing could be stored for some time, so that holders could not renew their leases.
    stores_nothing: bool,
    /// How long the last batch took.
    last_took: Duration,
    /// Why what is remembered of the tables has to be read again, if it has.
    stale: Option<Begun>,
    is_remote: bool,
    /// What is known of other hosts, and whether they tell of their changes.
    elsewhere: Elsewhere,
    silence: Silence,
    hears: bool,
    /// Whether other hosts may have asked for aborts of what is held here.
    aborts: bool,
    /// Whether this host does the work that only one may do.
    has_duties: bool,
    /// Whether there may be leases of hosts that do not work.
    takes_over: bool,
    tend_at: i64,
}

/// For each kind of work, whether there may be work to claim.
#[derive(Debug, Clone, Copy)]
struct ClaimableWork {
    turns: bool,
    runs: bool,
}

impl ClaimableWork {
    fn all() -> ClaimableWork {
        ClaimableWork { turns: true, runs: true }
    }

    fn of(&mut self, work: Work) -> &mut bool {
        match work {
            Work::Turns => &mut self.turns,
            Work::Runs => &mut self.runs,
        }
    }

    /// Returns whether there may be work for this claim.
    fn fits(mut self, claim: &PendingClaim) -> bool {
        claim.max > 0 && *self.of(claim.work)
    }
}

/// The content of one transaction.
struct Batch {
    jobs: Vec<Box<dyn Job>>,
    change: Change,
    /// The claims that this transaction has answered, and the work that it gave to each.
    claims: Vec<(PendingClaim, Claims)>,
    gone: Vec<ConnectionId>,
    /// Leases whose submissions have time left, each with that time in milliseconds.
    time_left: Vec<(Lease, i64)>,
}

impl Batch {
    /// Returns an empty batch with space for this many jobs.
    fn at(now: Timestamp, jobs: usize) -> Batch {
        Batch {
            jobs: Vec::with_capacity(jobs),
            change: Change::at(now),
            claims: Vec::new(),
            gone: Vec::new(),
            time_left: Vec::new(),
        }
    }

    /// Returns whether nothing was asked for, and nothing done.
    fn is_empty(&self) -> bool {
        self.jobs.is_empty() && self.claims.is_empty() && self.change.effects.is_empty()
    }
}

impl BatchWriter {
    fn new(
        mut backend: Box<dyn Backend>,
        clock: Arc<dyn Clock>,
        watch: Arc<Watch>,
        queue: Arc<Queue<WriterRequest>>,
        counters: Arc<Counters>,
    ) -> Result<BatchWriter, Error> {
        let mut leases = Leases::default();
        let database = backend.writer()?;
        let is_remote = database.is_remote();
        if is_remote {
            // The server may not be there yet. What it knows is read with the first transaction.
            watch.set_condition(Condition::Failing(Error::unavailable("the database server has not answered yet")));
        } else {
            for old in database.tables().old_leases()? {
                leases.restore(old, clock.elapsed_ms());
            }
        }
        Ok(BatchWriter {
            database,
            _backend: backend,
            queue,
            counters,
            watch,
            leases,
            pending: VecDeque::new(),
            ticks: Vec::new(),
            maybe_open: ClaimableWork::all(),
            schedule_runs: true,
            background_at: clock.elapsed_ms(),
            other_work_at: clock.elapsed_ms(),
            changed_at: i64::MIN,
            idle_at: clock.elapsed_ms() + IDLE_MS,
            retry_at: 0,
            stores_nothing: false,
            last_took: Duration::MAX,
            stale: is_remote.then_some(Begun::AfterOthers),
            is_remote,
            elsewhere: Elsewhere::default(),
            silence: Silence::default(),
            hears: false,
            aborts: false,
            has_duties: !is_remote,
            takes_over: is_remote,
            tend_at: if is_remote { clock.elapsed_ms() } else { i64::MAX },
            clock,
        })
    }

    fn run_requests(&mut self, orders: Vec<WriterRequest>) {
        let (batch, releases) = self.sort(orders);
        self.run_batch(batch, releases);
    }

    /// Returns the time at which there is something to do even without a request, in terms of the clock's `elapsed_ms`.
    fn due(&self) -> i64 {
        let due = self.leases.next_due().unwrap_or(i64::MAX);
        let runs_at = if self.schedule_runs { 0 } else { i64::MAX };
        let due = due.min(runs_at).min(self.background_at).min(self.idle_at).min(self.tend_at).max(self.retry_at);
        if self.is_failing() { due.min(self.retry_at) } else { due }
    }

    /// Returns how long the thread can wait for a request.
    fn max_wait(&self) -> Duration {
        let wait = self.due() - self.clock.elapsed_ms();
        Duration::from_millis(u64::try_from(wait).unwrap_or_default())
    }

    /// Sorts orders. Returns the batch to write, and the leases that the batch has to release first.
    fn sort(&mut self, orders: Vec<WriterRequest>) -> (Batch, Vec<Lease>) {
        let mut releases = Vec::new();
        let mut batch = Batch::at(self.clock.now(), orders.len());
        for order in orders {
            match order {
                WriterRequest::Write(job) => batch.jobs.push(job),
                WriterRequest::Claim(claim) => self.pending.push_back(claim),
                WriterRequest::Undelivered(claims) => {
                    self.leases.mark_aborts_unsent(&claims.aborts);
                    releases.extend(claims.claims.into_iter().map(|claim| claim.lease));
                }
                WriterRequest::Disconnected(connection) => {
                    self.pending.retain(|claim| claim.connection != connection);
                    releases.extend(self.leases.of(connection));
                    batch.gone.push(connection);
                }
                WriterRequest::Heard(notice) => self.hear(&notice),
                WriterRequest::Earlier => {}
                WriterRequest::Tick(reply) => self.ticks.push(reply),
            }
        }
        self.pending.retain(|claim| !claim.reply.is_closed());
        (batch, releases)
    }

    fn run_batch(&mut self, mut batch: Batch, releases: Vec<Lease>) {
        let now = self.clock.elapsed_ms();
        let can_check = now >= self.retry_at && !self.stores_nothing;
        let mut due = if can_check { self.leases.due(now) } else { Vec::new() };
        if !due.is_empty() && self.leases.has_stood_still(now) {
            self.leases.spare(now);
            due = self.leases.due(now);
        }
        let idle = batch.jobs.is_empty() && releases.is_empty() && due.is_empty() && !self.aborts;
        let claiming = self.pending.iter().any(|claim| self.maybe_open.fits(claim));
        if !batch.jobs.is_empty() {
            self.changed_at = now;
        }
        if !idle || claiming {
            let begun = Instant::now();
            match self.transact(&mut batch, &releases, &due) {
                Ok(()) => {
                    self.log_unavailable(&batch);
                    self.apply(&mut batch);
                }
                Err(error) => self.give_up(&mut batch, &error, releases),
            }
            // A caller's thread must never wait for a network.
            self.last_took = if self.is_remote { Duration::MAX } else { begun.elapsed() };
        }
        self.answer_claims_with_aborts();
        self.counters.held.store(self.leases.len() as u64, Ordering::Relaxed);
        // Only now, after the commit: an answer promises that the change survives the loss of power.
        for job in batch.jobs {
            job.answer();
        }
    }

    /// Logs the changes for which the database had no time, such as one that waited in vain for a lock: others are made meanwhile, so the
    /// store does not count as failing.
    fn log_unavailable(&self, batch: &Batch) {
        for error in batch.jobs.iter().filter_map(|job| job.error()).filter(|error| error.code == Code::Unavailable) {
            tracing::warn!("a change was not made: {error}");
        }
    }

    /// Begins a transaction. If others may have written, what is remembered of the tables is read again first.
    fn begin(&mut self) -> Result<(), Error> {
        match self.database.begin()? {
            Begun::AfterOwn => {}
            Begun::AfterUnknown => self.stale = self.stale.or(Some(Begun::AfterUnknown)),
            Begun::AfterOthers => self.stale = Some(Begun::AfterOthers),
        }
        if let Some(why) = self.stale {
            self.refresh(why)?;
        }
        if self.aborts {
            self.read_aborts()?;
        }
        Ok(())
    }

    /// Reads which of the submissions that are held here were asked to abort on another host.
    fn read_aborts(&mut self) -> Result<(), Error> {
        for old in self.database.tables().old_leases()?.into_iter().filter(|old| old.aborting) {
            self.leases.request_abort(&old.lease.submission_id);
        }
        self.aborts = false;
        Ok(())
    }

    fn refresh(&mut self, why: Begun) -> Result<(), Error> {
        let now = self.clock.elapsed_ms();
        let old = self.database.tables().old_leases()?;
        // After a commit whose outcome is unknown, the leases that are held are those that were held before, and perhaps others.
        if why == Begun::AfterOthers {
            self.leases = Leases::default();
            self.takes_over = self.is_remote;
            self.tend_at = self.tend_at.min(now);
        }
        old.into_iter().for_each(|old| self.leases.restore(old, now));
        self.maybe_open = ClaimableWork::all();
        self.schedule_runs = true;
        self.background_at = self.background_at.min(now);
        self.stale = None;
        Ok(())
    }

    fn transact(&mut self, batch: &mut Batch, releases: &[Lease], due: &[(Lease, CheckReason)]) -> Result<(), Error> {
        self.begin()?;
        // It may have waited for other hosts.
        batch.change.now = self.clock.now();
        // First, so that the claims of this transaction get the work whose holders are gone.
        for lease in releases {
            leases::release(self.database.tables(), lease, &mut batch.change)?;
        }
        for (lease, why) in due {
            self.check_lease(lease, *why, batch)?;
        }
        let alone = batch.jobs.len() == 1 && releases.is_empty() && due.is_empty();
        let run = if alone { alone_in_transaction } else { in_savepoint };
        let (mut taken, mut others, mut given_up, mut refused, begun) = (0, 0, 0, 0, Instant::now());
        for job in &mut batch.jobs {
            if !job.comes_first() {
                // One is always made, so that these changes make progress even if many come first.
                if others > 0 && begun.elapsed() > MAX_CHANGE_TIME {
                    break;
                }
                others += 1;
            }
            taken += 1;
            if job.begin() {
                refused += usize::from(!run(&mut *self.database, &mut batch.change, &mut **job)?)
            } else {
                given_up += 1
            }
        }
        if alone && refused > 0 {
            // What it has missed of other hosts since the first begin is read again.
            self.begin()?;
        }
        // Before the commit: if that fails, the changes that were not begun must not be told so.
        self.queue.put_back(batch.jobs.drain(taken..).map(WriterRequest::Write));
        match self.commit(batch) {
            // A statement of the only change that had been queued was refused. Nothing is wrong with the database.
            Err(error) if alone && self.is_remote && error.code != Code::Unavailable => {
                self.refuse(batch, &error);
                refused = batch.jobs.len();
            }
            ended => ended?,
        }
        count(&self.counters.writes, batch.jobs.len() - given_up);
        count(&self.counters.given_up, given_up);
        count(&self.counters.refused, refused);
        count(&self.counters.batches, 1);
        Ok(())
    }

    /// Serves the claims that wait, and commits.
    fn commit(&mut self, batch: &mut Batch) -> Result<(), Error> {
        self.note_claimable(batch);
        if self.pending.iter().any(|claim| self.maybe_open.fits(claim)) {
            self.try_to_serve_claims(batch)?;
        }
        if self.is_remote && batch.is_empty() {
            // Other hosts would take it for a change, and look for work, too, and so on for ever.
            self.database.rollback();
            return Ok(());
        }
        system::record(self.database.tables(), &mut batch.change)?;
        self.database.commit()?;
        self.has_written();
        Ok(())
    }

    /// Takes the steps that the runs of schedules need, in a transaction of its own, so that nothing that is wrong with a run can undo the
    /// change of a caller.
    fn run_schedules(&mut self) {
        if !self.schedule_runs || self.clock.elapsed_ms() < self.retry_at {
            return;
        }
        // Before the steps: they may announce further ones, which are not to be forgotten.
        self.schedule_runs = false;
        let mut batch = Batch::at(self.clock.now(), 0);
        match self.take_steps(&mut batch) {
            Ok(()) => self.apply(&mut batch),
            Err(error) => {
                // A defect would only be met again. The next change of a run is the next attempt.
                self.schedule_runs = error.code == Code::Unavailable;
                self.give_up(&mut batch, &error, Vec::new());
            }
        }
    }

    fn take_steps(&mut self, batch: &mut Batch) -> Result<(), Error> {
        self.begin()?;
        let now = self.clock.now();
        batch.change.now = now;
        for _ in 0..STEPS {
            let Some(step) = schedules::next_step(self.database.tables(), now)? else {
                return self.commit(batch);
            };
            let effects_before = batch.change.effects.len();
            self.database.savepoint()?;
            let taken = step.take(self.database.tables(), &mut batch.change);
            match taken.and_then(|()| self.database.release()) {
                Ok(()) => {}
                // The disk, not the run: all of it is tried again.
                Err(error) if error.code == Code::Unavailable => return Err(error),
                Err(error) => {
                    undo(&mut *self.database, &mut batch.change, effects_before)?;
                    step.fail(self.database.tables(), &error, &mut batch.change)?;
                }
            }
        }
        batch.change.push(Effect::ScheduleRuns);
        self.commit(batch)
    }

    /// Checks a lease that is lost or whose submission may have used up its time. Releases the lease unless the submission has time left.
    fn check_lease(&mut self, lease: &Lease, why: CheckReason, batch: &mut Batch) -> Result<(), Error> {
        let left = match why {
            CheckReason::Lost => None,
            CheckReason::TimeUp => some_time(leases::time_left(self.database.tables(), lease, batch.change.now)?),
        };
        match left {
            Some(left) => batch.time_left.push((lease.clone(), left)),
            None => {
                tracing::warn!(submission = %lease.submission_id, lease = lease.number, "a lease was lost: its holder is silent or did not end in time");
                count(&self.counters.leases_lost, 1);
                leases::release(self.database.tables(), lease, &mut batch.change)?;
            }
        }
        Ok(())
    }

    /// Notes the kinds of work that a change has made available.
    fn note_claimable(&mut self, batch: &Batch) {
        for effect in &batch.change.effects {
            if let Effect::Claimable(work) = effect {
                *self.maybe_open.of(*work) = true;
            }
        }
    }

    /// Serves claims so that a row which cannot be read does not undo the changes of callers. The claims then wait for other work.
    fn try_to_serve_claims(&mut self, batch: &mut Batch) -> Result<(), Error> {
        let effects_before = batch.change.effects.len();
        self.database.savepoint()?;
        match self.serve_claims(batch).and_then(|()| self.database.release()) {
            Ok(()) => Ok(()),
            Err(error) if error.code == Code::Unavailable => Err(error),
            Err(error) => {
                tracing::error!(code = %error.code, "no work can be claimed: {}", error.message);
                undo(&mut *self.database, &mut batch.change, effects_before)?;
                // Nothing is handed out until a change announces work again: the same row would only fail again.
                for (pending, _) in batch.claims.drain(..).rev() {
                    self.pending.push_front(pending);
                }
                self.maybe_open = ClaimableWork { turns: false, runs: false };
                Ok(())
            }
        }
    }

    /// Gives work to the claims that wait for it, in the same transaction in which the work became available.
    fn serve_claims(&mut self, batch: &mut Batch) -> Result<(), Error> {
        let mut maybe_open = self.maybe_open;
        let mut left = VecDeque::new();
        while let Some(pending) = self.pending.pop_front() {
            if !maybe_open.fits(&pending) {
                left.push_back(pending);
                continue;
            }
            match leases::claim(self.database.tables(), pending.work, pending.max, &mut batch.change) {
                Ok(claims) if claims.is_empty() => {
                    *maybe_open.of(pending.work) = false;
                    left.push_back(pending);
                }
                // A claim that gets less than it can take has got all there is: the next one needs no transaction to find nothing.
                Ok(claims) => {
                    *maybe_open.of(pending.work) = claims.len() >= pending.max as usize;
                    batch.claims.push((pending, Claims { claims, aborts: Vec::new() }));
                }
                // All of them continue to wait.
                Err(error) => {
                    self.pending.push_front(pending);
                    left.extend(self.pending.drain(..));
                    self.pending = left;
                    return Err(error);
                }
            }
        }
        self.pending = left;
        self.maybe_open = maybe_open;
        Ok(())
    }

    /// Reports the effects of a batch that has been committed.
    fn apply(&mut self, batch: &mut Batch) {
        self.retry_at = 0;
        let now = self.clock.elapsed_ms();
        for (lease, left) in batch.time_left.drain(..) {
            self.leases.set_time_left(&lease, left, now);
        }
        leave_out_claimed(batch);
        self.notify(std::mem::take(&mut batch.change.effects), batch.change.now);
        // A lease may have been renewed in this batch on a connection that has ended since. It is released at the next check.
        for connection in batch.gone.drain(..) {
            self.leases.mark_all_lost(connection);
        }
        for (pending, mut claims) in batch.claims.drain(..) {
            for claim in &claims.claims {
                self.leases.add_claimed(claim, pending.connection, now);
            }
            count(&self.counters.claims, claims.claims.len());
            claims.aborts = self.leases.take_aborts(pending.connection, now);
            self.deliver(pending, claims);
        }
    }

    /// Reports effects to the waiting calls and to the lease table. `at` is the time of their change.
    fn notify(&mut self, effects: Vec<Effect>, at: Timestamp) {
        let now = self.clock.elapsed_ms();
        if self.is_remote {
            let marks = effects.iter().flat_map(|effect| self.marks(effect)).collect();
            self.database.announce(marks);
        }
        for effect in effects {
            match effect {
                Effect::Appended(new) => {
                    let topic = Topic::Stream(new.stream.clone());
                    self.watch.notify(&topic, &News::Entries(new));
                }
                // With a database server, another host may have settled it already.
                Effect::Queued(id) if !self.is_remote => self.watch.begin(Topic::Submission(id)),
                Effect::Queued(_) => {}
                Effect::Status(status) => {
                    let topic = Topic::Submission(status.submission_id.clone());
                    self.watch.notify(&topic, &News::Status(status));
                }
                Effect::Approval(id) => {
                    self.watch.notify(&Topic::Approval(id), &News::Missed);
                    self.watch.notify(&Topic::Approvals, &News::Missed);
                }
                Effect::Claimable(_) | Effect::Published(..) => {}
                Effect::AbortRequested(submission) => self.leases.request_abort(&submission),
                Effect::Renewed { lease, connection } => self.leases.add_renewed(lease, connection, now),
                Effect::LeaseEnded(lease) => self.leases.remove(&lease),
                Effect::ScheduleRuns => self.schedule_runs = true,
                Effect::Background => self.background_at = now,
                Effect::Expires(then) => {
                    let wait = then.millis().saturating_sub(at.millis());
                    self.background_at = self.background_at.min(now.saturating_add(wait));
                }
                Effect::Outgoing => self.watch.notify(&Topic::Outbox, &News::Missed),
                Effect::Documents => self.watch.notify(&Topic::Documents, &News::Missed),
                Effect::Changed(stream) => self.watch.notify(&Topic::Stream(stream), &News::Missed),
            }
        }
    }

    /// Returns what other hosts are told of an effect.
    fn marks(&self, effect: &Effect) -> Vec<u64> {
        match effect {
            Effect::Appended(new) => vec![Topic::Stream(new.stream.clone()).mark()],
            Effect::Changed(stream) => vec![Topic::Stream(stream.clone()).mark()],
            Effect::Status(status) => vec![Topic::Submission(status.submission_id.clone()).mark()],
            Effect::Approval(id) => vec![Topic::Approval(id.clone()).mark(), Topic::Approvals.mark()],
            Effect::Claimable(Work::Turns) => vec![TURNS],
            Effect::Claimable(Work::Runs) => vec![RUNS],
            Effect::AbortRequested(submission) if !self.leases.holds(submission) => vec![ABORT],
            Effect::Background | Effect::Expires(_) if !self.has_duties => vec![BACKGROUND],
            Effect::Outgoing => vec![Topic::Outbox.mark()],
            Effect::Documents => vec![Topic::Documents.mark()],
            _ => Vec::new(),
        }
    }

    /// Takes the notice of another host.
    fn hear(&mut self, notice: &Notice) {
        let is_missed = self.elsewhere.hear(&notice.host, notice.first, notice.batch);
        match &notice.marks {
            Some(marks) if !is_missed => marks.iter().for_each(|mark| self.note(*mark)),
            _ => self.note_all(),
        }
    }

    fn note(&mut self, mark: u64) {
        match mark {
            TURNS => self.maybe_open.turns = true,
            RUNS => self.maybe_open.runs = true,
            ABORT => self.aborts = true,
            // Each slice looks into many tables, so not more often than once a second.
            BACKGROUND if self.has_duties => {
                self.background_at = self.background_at.min(self.clock.elapsed_ms() + OTHER_WORK_INTERVAL_MS);
            }
            _ => {}
        }
    }

    /// Another host has changed something, and it is not known what.
    fn note_all(&mut self) {
        [TURNS, RUNS, ABORT, BACKGROUND].into_iter().for_each(|mark| self.note(mark));
        self.watch.hear(None);
    }

    /// Shows other hosts that this one works, and looks at them. It does so also while changes fail: they may wait for another host, which
    /// waits for a standby.
    fn tend(&mut self) {
        let now = self.clock.elapsed_ms();
        if now < self.tend_at {
            return;
        }
        self.tend_at = now + TEND_INTERVAL_MS;
        let tended = match self.database.tend() {
            Ok(Some(tended)) => tended,
            Ok(None) => return,
            Err(error) => return self.has_failed(&error),
        };
        match self.elsewhere.look(&tended.others, self.hears) {
            Seen::Nothing => {}
            // Its notice may still come. But the work of a host that does not get to it must not wait for one.
            Seen::Some => self.maybe_open = ClaimableWork::all(),
            Seen::Missed => self.note_all(),
        }
        if tended.has_duties && !self.has_duties {
            self.background_at = now;
            self.watch.hear(None);
        }
        self.has_duties = tended.has_duties;
        let silent = self.silence.look(&tended.others, self.clock.elapsed_ms());
        let is_due = tended.are_duties_free || self.takes_over || !silent.is_empty();
        if is_due && now >= self.retry_at {
            self.take_over(&silent);
        }
    }

    /// Ends the activity of hosts that are silent, and releases what they held.
    fn take_over(&mut self, silent: &[OtherHost]) {
        let mut batch = Batch::at(self.clock.now(), 0);
        match self.release_orphans(silent, &mut batch) {
            Ok(()) => {
                self.takes_over = false;
                self.apply(&mut batch);
            }
            Err(error) => self.give_up(&mut batch, &error, Vec::new()),
        }
    }

    fn release_orphans(&mut self, silent: &[OtherHost], batch: &mut Batch) -> Result<(), Error> {
        self.begin()?;
        batch.change.now = self.clock.now();
        self.database.tables().expire_hosts(silent)?;
        for lease in self.database.tables().orphaned_leases()? {
            let effects_before = batch.change.effects.len();
            self.database.savepoint()?;
            match leases::release(self.database.tables(), &lease, &mut batch.change) {
                Ok(()) => self.database.release()?,
                Err(error) if error.code == Code::Unavailable => return Err(error),
                // One that cannot be read must not keep the others.
                Err(error) => {
                    tracing::error!(submission = %lease.submission_id, "a lease cannot be released: {}", error.message);
                    undo(&mut *self.database, &mut batch.change, effects_before)?;
                }
            }
        }
        // A host may have ended before a step of a run that it had announced.
        batch.change.push(Effect::ScheduleRuns);
        self.commit(batch)
    }

    fn deliver(&self, pending: PendingClaim, claims: Claims) {
        // If the holder no longer waits, the delivery is returned in the error and dropped, which releases its claims.
        _ = pending.reply.send(Delivery { claims: Some(claims), queue: self.queue.clone() });
    }

    /// Answers the claims of holders that have to abort something, and the claims that do not wait.
    fn answer_claims_with_aborts(&mut self) {
        let now = self.clock.elapsed_ms();
        for _ in 0..self.pending.len() {
            let Some(pending) = self.pending.pop_front() else {
                return;
            };
            let aborts = self.leases.take_aborts(pending.connection, now);
            if aborts.is_empty() && pending.waits {
                self.pending.push_back(pending);
            } else {
                let claims = Vec::new();
                self.deliver(pending, Claims { claims, aborts });
            }
        }
    }

    /// Records that a transaction has been committed.
    fn has_written(&mut self) {
        let now = self.clock.elapsed_ms();
        self.idle_at = now + IDLE_MS;
        if std::mem::take(&mut self.stores_nothing) {
            self.leases.spare(now);
        }
        self.watch.set_condition(Condition::Working);
    }

    /// Rolls back a transaction that has failed, and plans the next attempt.
    fn has_failed(&mut self, error: &Error) {
        self.database.rollback();
        if error.code == Code::Unavailable {
            self.stores_nothing = true;
            self.watch.set_condition(Condition::Failing(error.clone()));
        }
        self.retry_at = self.clock.elapsed_ms() + RETRY_MS;
    }

    fn is_failing(&self) -> bool {
        matches!(self.watch.condition(), Condition::Failing(_))
    }

    /// Tests whether the disk works again after a failure. Changes are refused until then, so this is the only write that can find out.
    fn probe(&mut self) {
        if self.is_failing() && self.clock.elapsed_ms() >= self.retry_at {
            match self.database.probe() {
                Ok(()) => self.has_written(),
                Err(error) => self.has_failed(&error),
            }
        }
    }

    fn run_idle(&mut self) {
        let now = self.clock.elapsed_ms();
        if now >= self.idle_at.max(self.retry_at) {
            match self.database.run_idle() {
                Ok(true) => self.idle_at = i64::MAX,
                Ok(false) => self.idle_at = now + IDLE_MS,
                Err(error) => self.has_failed(&error),
            }
        }
    }

    /// Answers the requests of a batch that was rolled back with the error.
    fn give_up(&mut self, batch: &mut Batch, error: &Error, releases: Vec<Lease>) {
        // While a server is away, each attempt to reach it fails in the same way. It is logged when it begins.
        let is_known = matches!(self.watch.condition(), Condition::Failing(known) if known.message == error.message);
        self.has_failed(error);
        count(&self.counters.failed_batches, 1);
        if !(self.is_remote && is_known) {
            tracing::error!(code = %error.code, requests = batch.jobs.len(), "a batch was rolled back: {}", error.message);
        }
        self.fail_all(batch, error);
        for lease in releases {
            // The connection of the holder has ended, so the next check finds the lease lost.
            self.leases.mark_lost(&lease);
        }
    }

    /// Undoes a transaction whose only change was refused when it was committed.
    fn refuse(&mut self, batch: &mut Batch, error: &Error) {
        self.database.rollback();
        batch.change.effects.clear();
        self.fail_all(batch, error);
    }

    fn fail_all(&mut self, batch: &mut Batch, error: &Error) {
        for job in &mut batch.jobs {
            job.fail(error);
        }
        // To the front and in their order: they have waited longest.
        for (pending, _) in batch.claims.drain(..).rev() {
            self.pending.push_front(pending);
        }
        self.maybe_open = ClaimableWork::all();
        self.aborts = self.is_remote;
    }

    fn run_background(&mut self) {
        let now = self.clock.elapsed_ms();
        if now < self.background_at.max(self.retry_at) {
            return;
        }
        if !self.has_duties {
            self.counters.failing_work.lock().clear();
            self.background_at = now + BACKGROUND_INTERVAL_MS;
            return;
        }
        let mut change = Change::at(self.clock.now());
        let pause = match self.do_slice(&mut change) {
            Ok(left) => pause(left, now.saturating_sub(self.changed_at), change.now),
            Err(error) => {
                self.has_failed(&error);
                tracing::error!(code = %error.code, "background work was rolled back: {}", error.message);
                change.effects.clear();
                if error.code == Code::Unavailable { RETRY_MS } else { BACKGROUND_INTERVAL_MS }
            }
        };
        self.notify(change.effects, change.now);
        self.background_at = self.clock.elapsed_ms() + pause;
    }

    fn do_slice(&mut self, change: &mut Change) -> Result<Left, Error> {
        self.begin()?;
        change.now = self.clock.now();
        let mut left = self.delete_for_a_while(change)?;
        let now = self.clock.elapsed_ms();
        if is_time_for_other_work(left, now, self.other_work_at) {
            self.other_work_at = now + OTHER_WORK_INTERVAL_MS;
            for kind in background::OTHERS {
                left = earlier(left, self.work(kind, change)?);
            }
        }
        system::record(self.database.tables(), change)?;
        self.database.commit()?;
        self.has_written();
        Ok(left)
    }

    /// Deletes until nothing is left to delete, the time is up, or somebody waits.
    fn delete_for_a_while(&mut self, change: &mut Change) -> Result<Left, Error> {
        let begun = Instant::now();
        loop {
            let mut left = Left::Nothing;
            for kind in background::DELETIONS {
                if left == Left::Nothing {
                    left = self.work(kind, change)?;
                }
            }
            if is_slice_over(left, begun.elapsed(), self.queue.len()) {
                return Ok(left);
            }
        }
    }

    /// Does one slice of one kind of background work. If it fails, only this is undone, and tried again later. Fails if the database does.
    fn work(&mut self, (name, slice): background::Kind, change: &mut Change) -> Result<Left, Error> {
        let now = self.clock.elapsed_ms();
        if self.counters.failing_work.lock().get(name).is_some_and(|(_, retry_at)| now < *retry_at) {
            return Ok(Left::Nothing);
        }
        let effects_before = change.effects.len();
        self.database.savepoint()?;
        let done = slice(self.database.tables(), change);
        let error = match done.and_then(|left| self.database.release().map(|()| left)) {
            Ok(left) => {
                self.counters.failing_work.lock().remove(name);
                return Ok(left);
            }
            Err(error) => error,
        };
        if error.code == Code::Unavailable {
            return Err(error);
        }
        undo(&mut *self.database, change, effects_before)?;
        tracing::error!(code = %error.code, "background work fails: {name}: {}", error.message);
        self.counters.failing_work.lock().insert(name, (error, now + BACKGROUND_INTERVAL_MS));
        Ok(Left::Nothing)
    }
}

/// Leaves out that work can be claimed which this transaction has handed out: other hosts would look for it in vain.
fn leave_out_claimed(batch: &mut Batch) {
    for (pending, claims) in &batch.claims {
        for _ in &claims.claims {
            let is_same = |effect: &Effect| matches!(effect, Effect::Claimable(work) if *work == pending.work);
            if let Some(place) = batch.change.effects.iter().position(is_same) {
                batch.change.effects.remove(place);
            }
        }
    }
}

fn is_quick(batch: Duration) -> bool {
    batch <= MAX_QUICK_BATCH
}

/// Returns the pause after a slice of background work, in milliseconds. The last change of a caller was made `since` milliseconds ago.
fn pause(left: Left, since: i64, now: Timestamp) -> i64 {
    match left {
        Left::More if since < BUSY_MS => BUSY_SLICE_PAUSE_MS,
        Left::More => SLICE_PAUSE_MS,
        Left::At(then) => then.millis().saturating_sub(now.millis()).clamp(1, BACKGROUND_INTERVAL_MS),
        Left::Nothing => BACKGROUND_INTERVAL_MS,
    }
}

fn is_time_for_other_work(deleting: Left, now: i64, at: i64) -> bool {
    deleting != Left::More || now >= at
}

fn is_slice_over(left: Left, took: Duration, waiting: usize) -> bool {
    left != Left::More || took >= MAX_SLICE_TIME || waiting > 0
}

/// Returns the time that a submission has left, if it has any.
fn some_time(left: Option<i64>) -> Option<i64> {
    left.filter(|left| *left > 0)
}

/// Returns what has to be done first.
fn earlier(one: Left, other: Left) -> Left {
    match (one, other) {
        (Left::More, _) | (_, Left::More) => Left::More,
        (Left::At(one), Left::At(other)) => Left::At(one.min(other)),
        (Left::Nothing, left) | (left, Left::Nothing) => left,
    }
}

/// Runs a change in a savepoint, so that a refused change undoes only its own writes. Returns false if it was refused. Fails if the whole
/// transaction has ended.
fn in_savepoint(database: &mut dyn tables::Writer, change: &mut Change, job: &mut dyn Job) -> Result<bool, Error> {
    let effects_before = change.effects.len();
    database.savepoint()?;
    if job.run(database.tables(), change) {
        match database.release() {
            Ok(()) => return Ok(true),
            // A statement of the change that had been queued was refused.
            Err(error) => job.fail(&error),
        }
    }
    undo(database, change, effects_before)?;
    Ok(false)
}

/// Undoes what was done since the savepoint. Fails if the whole transaction has ended.
fn undo(database: &mut dyn tables::Writer, change: &mut Change, effects_before: usize) -> Result<(), Error> {
    change.effects.truncate(effects_before);
    if !database.is_open() {
        return Err(Error::unavailable("the database has given up the transaction").hint("see the store's log"));
    }
    database.rollback_to_savepoint()
}

/// Runs the only change of a transaction. It needs no savepoint, because if it is refused, the whole transaction is undone. The caller then
/// begins another one.
fn alone_in_transaction(
    database: &mut dyn tables::Writer,
    change: &mut Change,
    job: &mut dyn Job,
) -> Result<bool, Error> {
    if job.run(database.tables(), change) {
        return Ok(true);
    }
    // The effects go with the writes: nobody may be told of a change that was not made.
    change.effects.clear();
    database.rollback();
    Ok(false)
}
