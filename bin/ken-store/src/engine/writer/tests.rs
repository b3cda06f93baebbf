//! The decisions of the writer, one at a time: no thread runs, and the clock is moved by hand.

use ken_types::id::SubmissionId;

use super::*;
use crate::engine::clock::ManualClock;
use crate::tables::OldLease;
use crate::tables::sqlite::Sqlite;

/// A database that notes what is asked of it, and whose commits can fail.
struct Noted {
    database: Box<dyn tables::Writer>,
    calls: Calls,
    failure: Failure,
}

impl Noted {
    fn note(&self, call: &'static str) {
        self.calls.lock().push(call);
    }
}

impl tables::Writer for Noted {
    fn tables(&self) -> &dyn Tables {
        self.database.tables()
    }

    fn begin(&mut self) -> Result<Begun, Error> {
        self.note("begin");
        self.database.begin()
    }

    fn savepoint(&mut self) -> Result<(), Error> {
        self.note("savepoint");
        self.database.savepoint()
    }

    fn release(&mut self) -> Result<(), Error> {
        self.note("release");
        self.database.release()
    }

    fn rollback_to_savepoint(&mut self) -> Result<(), Error> {
        self.note("undo");
        self.database.rollback_to_savepoint()
    }

    fn commit(&mut self) -> Result<(), Error> {
        self.note("commit");
        match self.failure.lock().clone() {
            Some(error) => Err(error),
            None => self.database.commit(),
        }
    }

    fn rollback(&mut self) {
        self.note("rollback");
        self.database.rollback();
    }

    fn is_open(&self) -> bool {
        self.database.is_open()
    }

    fn run_idle(&mut self) -> Result<bool, Error> {
        self.note("idle");
        self.database.run_idle()
    }

    fn probe(&mut self) -> Result<(), Error> {
        self.note("probe");
        self.database.probe()
    }
}

/// A file whose writer is noted.
struct NotedFile(Sqlite, Calls, Failure);

type Calls = Arc<Mutex<Vec<&'static str>>>;
type Failure = Arc<Mutex<Option<Error>>>;

impl Backend for NotedFile {
    fn writer(&mut self) -> Result<Box<dyn tables::Writer>, Error> {
        Ok(Box::new(Noted { database: self.0.writer()?, calls: self.1.clone(), failure: self.2.clone() }))
    }

    fn reader(&mut self) -> Result<Box<dyn tables::Reader>, Error> {
        self.0.reader()
    }
}

/// A batch writer for which nothing is due.
struct Kit {
    writer: BatchWriter,
    clock: Arc<ManualClock>,
    calls: Calls,
    failure: Failure,
    /// The names of the jobs that were run.
    ran: Arc<Mutex<Vec<&'static str>>>,
    _dir: tempfile::TempDir,
}

const NOW: i64 = 1_000_000;
const NEVER: i64 = i64::MAX;

impl Kit {
    fn new() -> Kit {
        let dir = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::at(Timestamp::from_millis(NOW)));
        let (calls, failure) = (Calls::default(), Failure::default());
        let file = Sqlite::open(&dir.path().join("ken.db")).unwrap();
        let backend = NotedFile(file, calls.clone(), failure.clone());
        let queue = Arc::new(Queue::new("write", QUEUE));
        let mut writer =
            BatchWriter::new(Box::new(backend), clock.clone(), Arc::default(), queue, Arc::default()).unwrap();
        (writer.schedule_runs, writer.background_at, writer.idle_at) = (false, NEVER, NEVER);
        let mut kit = Kit { writer, clock, calls, failure, ran: Arc::default(), _dir: dir };
        // The first transaction of a database writes more than its own change.
        kit.run([kit.job("first", true, 0, true)]);
        kit.writer.idle_at = NEVER;
        kit.calls();
        kit.ran();
        kit
    }

    fn job(&self, name: &'static str, comes_first: bool, slow_ms: u64, succeeds: bool) -> WriterRequest {
        self.answered_job(name, comes_first, slow_ms, succeeds).0
    }

    fn answered_job(
        &self,
        name: &'static str,
        comes_first: bool,
        slow_ms: u64,
        succeeds: bool,
    ) -> (WriterRequest, oneshot::Receiver<Result<(), Error>>) {
        let ran = self.ran.clone();
        let work = move |_: &dyn Tables, _: &mut Change| {
            ran.lock().push(name);
            std::thread::sleep(Duration::from_millis(slow_ms));
            if succeeds { Ok(()) } else { Err(Error::invalid("", name)) }
        };
        let (reply, answer) = oneshot::channel();
        let gate = ChangeGate::current();
        (WriterRequest::Write(Box::new(WriteJob { gate, comes_first, work, result: None, reply })), answer)
    }

    fn claim(&self, connection: ConnectionId, max: u32, waits: bool) -> (WriterRequest, oneshot::Receiver<Delivery>) {
        let (reply, answer) = oneshot::channel();
        (WriterRequest::Claim(PendingClaim { connection, work: Work::Turns, max, waits, reply }), answer)
    }

    fn run<const N: usize>(&mut self, requests: [WriterRequest; N]) {
        self.writer.run_requests(requests.into_iter().collect());
    }

    /// Gives a connection a lease with time left.
    fn hold(&mut self, connection: ConnectionId) {
        self.writer.leases.add_renewed(lease(1), connection, NOW);
        self.writer.leases.set_time_left(&lease(1), 3_600_000, NOW);
    }

    /// What was asked of the database since the last call.
    fn calls(&self) -> Vec<&'static str> {
        std::mem::take(&mut *self.calls.lock())
    }

    fn ran(&self) -> Vec<&'static str> {
        std::mem::take(&mut *self.ran.lock())
    }

    fn fail_with(&self, error: Option<Error>) {
        *self.failure.lock() = error;
    }
}

fn lease(number: u64) -> Lease {
    Lease { submission_id: SubmissionId("one".into()), number }
}

#[test]
fn what_is_due_first_wakes_the_thread_but_not_before_the_next_attempt() {
    let mut kit = Kit::new();
    let writer = &mut kit.writer;
    for (lease_at, schedule_runs, background_at, idle_at, retry_at, working, failing) in [
        (NEVER, false, NEVER, NEVER, 0, NEVER, 0),
        (NEVER, false, 5_000, 7_000, 0, 5_000, 0),
        (NEVER, false, 7_000, 5_000, 0, 5_000, 0),
        (4_000, false, 7_000, 5_000, 0, 4_000, 0),
        (NEVER, true, 7_000, 5_000, 0, 0, 0),
        (NEVER, true, 7_000, 5_000, 3_000, 3_000, 3_000),
        (NEVER, false, 2_000, 5_000, 3_000, 3_000, 3_000),
        (NEVER, false, 4_000, 5_000, 3_000, 4_000, 3_000),
    ] {
        writer.leases = Leases::default();
        if lease_at != NEVER {
            // A holder has half a second after a restart.
            writer.leases.restore(OldLease { lease: lease(1), aborting: false }, lease_at - 500);
        }
        writer.schedule_runs = schedule_runs;
        (writer.background_at, writer.idle_at, writer.retry_at) = (background_at, idle_at, retry_at);
        writer.watch.set_condition(Condition::Working);
        assert_eq!(writer.due(), working, "{lease_at} {schedule_runs} {background_at} {idle_at} {retry_at}");
        writer.watch.set_condition(Condition::Failing(Error::unavailable("full")));
        assert_eq!(writer.due(), failing, "{lease_at} {schedule_runs} {background_at} {idle_at} {retry_at}");
    }
    writer.watch.set_condition(Condition::Working);
    for (idle_at, wait) in [(NOW + 7, 7), (NOW, 0), (NOW - 7, 0)] {
        (writer.background_at, writer.idle_at, writer.retry_at) = (NEVER, idle_at, 0);
        assert_eq!(writer.max_wait(), Duration::from_millis(wait));
    }
}

/// One change alone needs no savepoint. A refused one undoes what it did, and nothing else.
#[test]
fn a_change_alone_is_its_transaction_and_others_have_savepoints() {
    let mut kit = Kit::new();
    kit.run([kit.job("a", true, 0, true)]);
    assert_eq!(kit.calls(), ["begin", "commit"]);
    kit.run([kit.job("a", true, 0, false)]);
    assert_eq!(kit.calls(), ["begin", "rollback", "begin", "commit"]);
    kit.run([kit.job("a", true, 0, false), kit.job("b", false, 0, true)]);
    assert_eq!(kit.calls(), ["begin", "savepoint", "undo", "savepoint", "release", "commit"]);
    // What is released in the same transaction must not be undone with a refused change.
    let released = Claims { claims: Vec::new(), aborts: Vec::new() };
    kit.run([kit.job("a", true, 0, false), WriterRequest::Undelivered(released)]);
    assert_eq!(kit.calls(), ["begin", "rollback", "begin", "commit"]);
    kit.hold(7);
    kit.run([kit.job("a", true, 0, false), WriterRequest::Disconnected(7)]);
    assert_eq!(kit.calls(), ["begin", "savepoint", "undo", "commit"]);
    kit.writer.leases.restore(OldLease { lease: lease(2), aborting: false }, NOW - 500);
    kit.run([kit.job("a", true, 0, false)]);
    assert_eq!(kit.calls(), ["begin", "savepoint", "undo", "commit"]);
    assert_eq!(kit.ran(), ["a", "a", "a", "b", "a", "a", "a"]);
}

#[test]
fn slow_changes_leave_the_rest_to_the_next_transaction_but_one_is_always_made() {
    let mut kit = Kit::new();
    let left = |kit: &Kit| kit.writer.queue.len();
    kit.run([kit.job("a", false, 0, true), kit.job("b", false, 0, true), kit.job("c", true, 0, true)]);
    assert_eq!((kit.ran(), left(&kit)), (vec!["a", "b", "c"], 0));
    // What comes first is made in any case, and of the others the first one.
    let first = |name, ms| kit.job(name, true, ms, true);
    let other = |name, ms| kit.job(name, false, ms, true);
    let (one, next) = (
        [first("a", 3), first("b", 0), other("c", 0), other("d", 0)],
        [first("a", 0), other("b", 3), other("c", 0), other("d", 0)],
    );
    kit.run(one);
    assert_eq!((kit.ran(), left(&kit)), (vec!["a", "b", "c"], 1));
    kit.run(next);
    assert_eq!((kit.ran(), left(&kit)), (vec!["a", "b"], 3));
}

#[test]
fn changes_that_cannot_be_committed_are_answered_with_the_error_and_tried_no_sooner_than_after_a_second() {
    for (error, is_failing) in [(Error::unavailable("full"), true), (Error::internal("odd"), false)] {
        let mut kit = Kit::new();
        kit.fail_with(Some(error.clone()));
        let (job, mut answer) = kit.answered_job("a", true, 0, true);
        kit.run([job]);
        assert_eq!(answer.try_recv().unwrap().unwrap_err().code, error.code);
        assert_eq!(kit.calls(), ["begin", "commit", "rollback"]);
        assert_eq!((kit.writer.retry_at, kit.writer.is_failing()), (NOW + RETRY_MS, is_failing), "{error:?}");
        kit.fail_with(None);
        let (job, mut answer) = kit.answered_job("a", true, 0, true);
        kit.run([job]);
        assert!(answer.try_recv().unwrap().is_ok());
        assert_eq!((kit.writer.retry_at, kit.writer.is_failing()), (0, false));
    }
}

/// Each kind of work of the thread: what it asks of the database at the time before it is due, when it is due, and when an
/// attempt that has failed is not to be repeated yet.
#[test]
fn each_kind_of_work_is_done_when_it_is_due_and_not_before() {
    type Step = fn(&mut BatchWriter);
    type Plan = fn(&mut BatchWriter, i64);
    let kinds: [(&str, Plan, Step); 4] = [
        ("idle", |writer, at| writer.idle_at = at, BatchWriter::run_idle),
        ("begin", |writer, at| writer.background_at = at, BatchWriter::run_background),
        ("begin", |writer, _| writer.schedule_runs = true, BatchWriter::run_schedules),
        (
            "probe",
            |writer, _| writer.watch.set_condition(Condition::Failing(Error::unavailable("x"))),
            BatchWriter::probe,
        ),
    ];
    for (number, (call, plan, work)) in kinds.into_iter().enumerate() {
        for (at, retry_at, is_done) in
            [(NOW, 0, true), (NOW, NOW, true), (NOW, NOW + 1, false), (NOW - 1, NOW, true), (NOW + 1, NOW, number > 1)]
        {
            let mut kit = Kit::new();
            plan(&mut kit.writer, at);
            kit.writer.retry_at = retry_at;
            work(&mut kit.writer);
            assert_eq!(kit.calls().first(), Some(&call).filter(|_| is_done), "{number} {at} {retry_at}");
        }
    }
    // Nothing is due.
    let mut kit = Kit::new();
    for work in kinds.map(|(.., work)| work) {
        work(&mut kit.writer);
    }
    assert_eq!(kit.calls(), [""; 0]);
    // A probe that succeeds ends the failure.
    kit.writer.watch.set_condition(Condition::Failing(Error::unavailable("x")));
    kit.writer.probe();
    assert!(!kit.writer.is_failing());
}

#[test]
fn background_work_comes_again_after_its_interval_or_after_a_failure() {
    let mut kit = Kit::new();
    // Each kind of work is a change of its own.
    let transactions = |kit: &Kit| {
        let mut calls = kit.calls();
        calls.retain(|call| !["savepoint", "release"].contains(&&**call));
        calls
    };
    kit.writer.background_at = NOW;
    kit.writer.run_background();
    assert_eq!(transactions(&kit), ["begin", "commit"]);
    let (next, other) = (kit.writer.background_at, kit.writer.other_work_at);
    assert_eq!((next, other), (NOW + BACKGROUND_INTERVAL_MS, NOW + OTHER_WORK_INTERVAL_MS));
    kit.clock.advance(BACKGROUND_INTERVAL_MS);
    kit.fail_with(Some(Error::unavailable("full")));
    kit.writer.run_background();
    assert_eq!(transactions(&kit), ["begin", "commit", "rollback"]);
    assert_eq!(kit.writer.retry_at, NOW + BACKGROUND_INTERVAL_MS + RETRY_MS);
    // What is announced comes at its time, and not later than what is planned.
    let now = NOW + BACKGROUND_INTERVAL_MS;
    for (planned, then, expected) in [(now + 50, 20, now + 20), (now + 10, 20, now + 10), (now + 50, -20, now - 20)] {
        kit.writer.background_at = planned;
        let at = Timestamp::from_millis(now);
        kit.writer.notify(vec![Effect::Expires(at.plus_millis(then))], at);
        assert_eq!(kit.writer.background_at, expected);
    }
}

#[test]
fn a_submission_without_a_millisecond_has_no_time() {
    for (left, some) in [(None, None), (Some(-1), None), (Some(0), None), (Some(1), Some(1))] {
        assert_eq!(some_time(left), some, "{left:?}");
    }
}

#[test]
fn what_remains_first_is_done_first() {
    let at = |ms| Left::At(Timestamp::from_millis(ms));
    for (one, other, first) in [
        (Left::Nothing, Left::Nothing, Left::Nothing),
        (Left::Nothing, at(1), at(1)),
        (at(1), at(2), at(1)),
        (Left::More, at(1), Left::More),
        (Left::More, Left::Nothing, Left::More),
        (Left::More, Left::More, Left::More),
    ] {
        assert_eq!((earlier(one, other), earlier(other, one)), (first, first));
    }
}

/// A lease is checked at its time, but not while the disk is left alone after a failure.
#[test]
fn a_silent_holder_is_noticed_at_its_time() {
    for (silent_since, retry_at, is_checked) in
        [(500, 0, true), (499, 0, false), (500, NOW, true), (500, NOW + 1, false)]
    {
        let mut kit = Kit::new();
        kit.writer.leases.restore(OldLease { lease: lease(1), aborting: false }, NOW - silent_since);
        kit.writer.retry_at = retry_at;
        kit.run([]);
        let expected: &[&str] = if is_checked { &["begin", "commit"] } else { &[] };
        assert_eq!(kit.calls(), expected, "{silent_since} {retry_at}");
        // The lease of a submission that is not in the tables is dropped with the effect of its release.
        assert_eq!(kit.writer.leases.len(), usize::from(!is_checked));
    }
}

#[test]
fn only_changes_of_callers_count_as_such() {
    let mut kit = Kit::new();
    kit.clock.advance(10);
    kit.run([WriterRequest::Disconnected(9)]);
    assert_eq!((kit.writer.changed_at, kit.calls()), (NOW, vec![]));
    kit.run([kit.job("a", true, 0, true)]);
    assert_eq!(kit.writer.changed_at, NOW + 10);
}

/// Whether a claim is answered at once, and whether the tables are searched for it.
#[test]
fn a_claim_waits_for_work_unless_it_does_not_want_to() {
    for (max, waits, may_be_work, is_searched, is_answered) in [
        (1, true, true, true, false),
        (1, true, false, false, false),
        (1, false, true, true, true),
        (1, false, false, false, true),
        (0, true, true, false, false),
    ] {
        let mut kit = Kit::new();
        kit.writer.maybe_open = ClaimableWork { turns: may_be_work, runs: true };
        let (claim, mut answer) = kit.claim(1, max, waits);
        kit.run([claim]);
        let about = format!("{max} {waits} {may_be_work}");
        assert_eq!(!kit.calls().is_empty(), is_searched, "{about}");
        assert_eq!(answer.try_recv().is_ok(), is_answered, "{about}");
        assert_eq!(kit.writer.pending.len(), usize::from(!is_answered), "{about}");
        // What was not found is not searched for again, until a change announces it.
        assert_eq!(kit.writer.maybe_open.turns, may_be_work && !is_searched, "{about}");
    }
}

#[test]
fn who_has_to_abort_is_answered_and_who_is_gone_is_not_kept() {
    let mut kit = Kit::new();
    kit.writer.maybe_open = ClaimableWork { turns: false, runs: false };
    let (first, mut of_first) = kit.claim(1, 1, true);
    let (second, of_second) = kit.claim(2, 1, true);
    let (third, mut of_third) = kit.claim(3, 1, true);
    kit.run([first, second, third]);
    assert_eq!(kit.writer.pending.len(), 3);
    kit.hold(1);
    kit.writer.leases.request_abort(&SubmissionId("one".into()));
    drop(of_second);
    kit.run([]);
    assert_eq!(of_first.try_recv().unwrap().take().aborts, [lease(1)]);
    assert!(of_third.try_recv().is_err());
    assert_eq!(kit.writer.pending.iter().map(|claim| claim.connection).collect::<Vec<_>>(), [3]);
    kit.run([WriterRequest::Disconnected(4)]);
    assert_eq!(kit.writer.pending.len(), 1);
    kit.run([WriterRequest::Disconnected(3)]);
    assert!(kit.writer.pending.is_empty());
}

/// Each side of each limit of background work.
#[test]
fn background_work_gives_way_and_comes_back() {
    let now = Timestamp::from_millis(NOW);
    let at = |millis: i64| Left::At(Timestamp::from_millis(NOW + millis));
    for (left, since, expected) in [
        (Left::More, 0, BUSY_SLICE_PAUSE_MS),
        (Left::More, BUSY_MS - 1, BUSY_SLICE_PAUSE_MS),
        (Left::More, BUSY_MS, SLICE_PAUSE_MS),
        (Left::More, NEVER, SLICE_PAUSE_MS),
        (at(7), 0, 7),
        (at(0), 0, 1),
        (at(-7), 0, 1),
        (at(BACKGROUND_INTERVAL_MS), 0, BACKGROUND_INTERVAL_MS),
        (at(BACKGROUND_INTERVAL_MS + 1), 0, BACKGROUND_INTERVAL_MS),
        (Left::Nothing, 0, BACKGROUND_INTERVAL_MS),
    ] {
        assert_eq!(pause(left, since, now), expected, "{left:?} {since}");
    }
    for (left, at, is) in [
        (Left::More, NOW + 1, false),
        (Left::More, NOW, true),
        (Left::Nothing, NOW + 1, true),
        (Left::At(now), NOW + 1, true),
    ] {
        assert_eq!(is_time_for_other_work(left, NOW, at), is, "{left:?} {at}");
    }
    let short = MAX_SLICE_TIME - Duration::from_nanos(1);
    for (left, took, waiting, is) in [
        (Left::More, short, 0, false),
        (Left::More, MAX_SLICE_TIME, 0, true),
        (Left::More, short, 1, true),
        (Left::Nothing, short, 0, true),
        (Left::At(now), short, 0, true),
    ] {
        assert_eq!(is_slice_over(left, took, waiting), is, "{left:?} {took:?} {waiting}");
    }
}

#[test]
fn a_caller_writes_itself_only_after_a_quick_batch() {
    let nanosecond = Duration::from_nanos(1);
    let quick =
        [MAX_QUICK_BATCH - nanosecond, MAX_QUICK_BATCH, MAX_QUICK_BATCH + nanosecond, Duration::MAX].map(is_quick);
    assert_eq!(quick, [true, true, false, false]);
}

/// What others have written may have to be tidied up, but not later than what was planned.
#[test]
fn background_work_begins_at_once_after_others_have_written() {
    for (planned, expected) in [(NEVER, NOW), (NOW + 1, NOW), (NOW, NOW), (NOW - 1, NOW - 1)] {
        let mut kit = Kit::new();
        kit.writer.background_at = planned;
        kit.writer.refresh(Begun::AfterOthers).unwrap();
        assert_eq!(kit.writer.background_at, expected);
    }
}

#[test]
fn claims_are_served_only_where_there_may_be_work_of_their_kind() {
    for (turns, runs, calls) in [
        (false, false, &["begin", "commit"][..]),
        (false, true, &["begin", "commit"]),
        (true, false, &["begin", "savepoint", "release", "commit"]),
    ] {
        let mut kit = Kit::new();
        kit.writer.maybe_open = ClaimableWork { turns: false, runs: false };
        let (claim, _answer) = kit.claim(7, 1, true);
        kit.run([claim]);
        assert_eq!(kit.calls(), [""; 0]);
        kit.writer.maybe_open = ClaimableWork { turns, runs };
        kit.run([kit.job("a", true, 0, true)]);
        assert_eq!(kit.calls(), calls, "{turns} {runs}");
    }
}

/// What a connection held is let go in a transaction, even if nobody changes or claims anything.
#[test]
fn a_connection_that_ends_is_work_enough() {
    let mut kit = Kit::new();
    kit.writer.maybe_open = ClaimableWork { turns: false, runs: false };
    kit.run([WriterRequest::Disconnected(7)]);
    assert_eq!(kit.calls(), [""; 0]);
    kit.hold(7);
    kit.run([WriterRequest::Disconnected(7)]);
    assert_eq!(kit.calls(), ["begin", "commit"]);
}
