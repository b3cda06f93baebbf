//! Measures the engine inside one process, together with the time of one synced write to the same disk, which is the lower limit of a
//! change. `cargo bench -p ken-store` runs all benchmarks; with a word as argument, only those whose name contains it.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ken_store::Store;
use ken_store::clock::SystemClock;
use ken_store::tables::sqlite::Sqlite;
use ken_types::event::{Cost, ModelName, Outcome, TurnResult, Usage};
use ken_types::id::{EventId, Mint, Origin, SessionId, SubmissionId};
use ken_types::ops::store::*;
use ken_types::{Offset, Timestamp};
use serde_json::value::RawValue;

const ROUND: Duration = Duration::from_secs(2);

/// A benchmark. Its arguments are its directory, the runtime, and the time of a synced write.
type Bench = fn(&Path, &tokio::runtime::Runtime, Duration);

fn main() {
    let only = std::env::args().skip(1).find(|word| !word.starts_with('-'));
    let wanted = |name: &str| only.as_ref().is_none_or(|only| name.contains(only.as_str()));
    let dir = tempfile::tempdir_in(std::env::var_os("KEN_BENCH_DIR").unwrap_or_else(|| "/tmp".into())).unwrap();
    let sync = synced_write(dir.path());
    println!("floor: one synced 4 KiB write {:.0} us ({:.0}/s)", micros(sync), 1.0 / sync.as_secs_f64());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let benches: [(&str, Bench); 6] = [
        ("small-writes", small_writes),
        ("turns", turns),
        ("parts", parts),
        ("transcript", transcript),
        ("stream-end", stream_end),
        ("delivery", delivery),
    ];
    for (name, bench) in benches {
        if wanted(name) {
            let path = dir.path().join(name);
            std::fs::create_dir(&path).unwrap();
            bench(&path, &runtime, sync);
        }
    }
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

fn synced_write(dir: &Path) -> Duration {
    let mut file = std::fs::File::create(dir.join("floor")).unwrap();
    let times = (0..500).map(|_| {
        let start = Instant::now();
        file.write_all(&[7; 4096]).unwrap();
        file.sync_data().unwrap();
        start.elapsed()
    });
    median(times.collect())
}

fn open(dir: &Path) -> Arc<Store> {
    let backend = Sqlite::open(&dir.join("ken.db")).unwrap();
    Arc::new(Store::start(backend, Arc::new(SystemClock::default())).unwrap())
}

/// Returns the CPU time that all threads of this process have used so far.
fn cpu() -> Duration {
    nix::time::clock_gettime(nix::time::ClockId::CLOCK_PROCESS_CPUTIME_ID).unwrap().into()
}

fn scope(actor: &str) -> Scope {
    Scope { connector: "tui".into(), actor_id: actor.into(), conversation_id: "c".into(), thread_id: None }
}

fn small_writes(dir: &Path, runtime: &tokio::runtime::Runtime, sync: Duration) {
    let store = open(dir);
    for clients in [1usize, 16, 64] {
        let start = Instant::now();
        let (done, p50) = runtime.block_on(clients_for(clients, |client, number| {
            let store = store.clone();
            async move {
                let key = BeginKey {
                    key: format!("{clients}-{client}-{number}"),
                    body: "b".into(),
                    seed: "s".into(),
                    at: Timestamp::now(),
                };
                store.write::<KeysBegin>(key).await.unwrap();
            }
        }));
        let rate = done as f64 / start.elapsed().as_secs_f64();
        println!(
            "small durable writes, {clients} clients: {rate:.0}/s, p50 {:.0} us, {:.2} x the floor's rate",
            micros(p50),
            rate * sync.as_secs_f64()
        );
    }
    for clients in [1usize, 16] {
        let start = Instant::now();
        let (done, p50) = runtime.block_on(clients_for(clients, |client, number| {
            let store = store.clone();
            async move {
                let args = CreateSession {
                    scope: scope("a"),
                    fresh: FreshSession::new(SessionId(format!("tui-{clients}-{client}-{number}")), Origin::Tui),
                };
                store.write::<SessionsCreate>(args).await.unwrap();
            }
        }));
        let rate = done as f64 / start.elapsed().as_secs_f64();
        println!("sessions.create, {clients} clients: {rate:.0}/s, p50 {:.0} us", micros(p50));
    }
}

/// Runs clients concurrently for the time `ROUND`. Returns the number of calls and the median duration of a call.
async fn clients_for<F, Fut>(clients: usize, call: F) -> (u64, Duration)
where
    F: Fn(usize, u64) -> Fut,
    Fut: Future<Output = ()> + Send + 'static,
{
    let until = Instant::now() + ROUND;
    let loops = (0..clients).map(|client| {
        let call = &call;
        async move {
            let mut times = Vec::new();
            while Instant::now() < until {
                let start = Instant::now();
                call(client, times.len() as u64).await;
                times.push(start.elapsed());
            }
            times
        }
    });
    let times: Vec<Duration> = join_all(loops).await.into_iter().flatten().collect();
    (times.len() as u64, median(times))
}

async fn join_all<F: Future>(futures: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut futures: Vec<_> = futures.map(|future| (Box::pin(future), None)).collect();
    std::future::poll_fn(|context| {
        for (future, done) in &mut futures {
            if done.is_none()
                && let std::task::Poll::Ready(value) = future.as_mut().poll(context)
            {
                *done = Some(value);
            }
        }
        if futures.iter().all(|(_, done)| done.is_some()) {
            std::task::Poll::Ready(())
        } else {
            std::task::Poll::Pending
        }
    })
    .await;
    futures.into_iter().filter_map(|(_, done)| done).collect()
}

fn usage() -> Usage {
    Usage { cost: Cost::default(), ..Usage::default() }
}

fn event(submission: &SubmissionId, index: u64, kind: &str, fields: &str) -> Box<RawValue> {
    let at = Timestamp::now();
    RawValue::from_string(format!(
        r#"{{"v":1,"type":"{kind}"{fields},"eventIndex":{index},"timestamp":"{at}","instanceId":"i","submissionId":"{submission}","session":"default","harness":"default","operationId":"op_01","turnId":"turn_01"}}"#
    ))
    .unwrap()
}

const ANSWER: &str = "The depot opens at nine on weekdays and at ten on Saturdays, says the entry kb-1234567890abcdef.";

fn events(id: &SubmissionId) -> Vec<Box<RawValue>> {
    let message = format!(
        r#","message":{{"role":"assistant","content":[{{"type":"text","text":"{ANSWER}"}}],"api":"rules","provider":"rules","model":"rules-1","usage":{{"input":640,"output":9,"cacheRead":0,"cacheWrite":0,"totalTokens":649,"cost":{{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0}}}},"stopReason":"stop","timestamp":1}}"#
    );
    let kinds = [
        ("operation_start", r#","operationKind":"prompt""#),
        ("agent_start", ""),
        ("turn_start", r#","purpose":"agent""#),
        ("message_start", r#","message":{"role":"assistant","content":[]}"#),
        ("text_delta", r#","text":"The depot opens at nine on weekdays""#),
        ("text_delta", r#","text":" and at ten on Saturdays""#),
        ("message_end", message.as_str()),
        ("turn_messages", message.as_str()),
        (
            "turn",
            r#","purpose":"agent","durationMs":3,"model":"rules-1","provider":"rules","api":"rules","output":[],"stopReason":"stop","isError":false"#,
        ),
        ("agent_end", r#","messages":[]"#),
        ("operation", r#","operationKind":"prompt","durationMs":4,"isError":false"#),
        ("submission_settled", r#","outcome":"completed""#),
    ];
    kinds.iter().zip(0..).map(|((kind, fields), index)| event(id, index, kind, fields)).collect()
}

fn prompt(session: &SessionId, mint: &mut Mint, submission: &SubmissionId) -> Accept {
    Accept {
        event: InboundEvent {
            id: EventId(mint.prefixed("tui:")),
            scope: scope("a"),
            kind: "chat.message".into(),
            text: "When does the depot open on a Saturday, and who has the key?".into(),
            received_at: Timestamp::now(),
            context: None,
            raw: None,
            images: Vec::new(),
        },
        target: Target::Selector(session.0.clone()),
        action: Action::Prompt { submission_id: submission.clone(), policy: Policy::Queue },
        counted: false,
    }
}

/// Runs a whole turn: accepts a prompt, claims it as whichever holder gets it, appends events in two calls, settles, and waits for the
/// result.
async fn turn(store: &Store, connection: u64, session: &SessionId) {
    let mut mint = Mint::fresh().unwrap();
    let id = mint.submission();
    store.write::<ChatAccept>(prompt(session, &mut mint, &id)).await.unwrap();
    let ask = ClaimSubmissions { work: Work::Turns, holder: "bench".into(), max: 1, wait_ms: 10_000 };
    let claim = store.claim(connection, ask).await.unwrap().claims.remove(0);
    let id = claim.lease.submission_id.clone();
    let mut all = events(&id);
    let last = all.split_off(6);
    let lease = claim.lease;
    let append = AppendEvents { lease: lease.clone(), first_index: 0, events: all };
    store.write::<SubmissionsAppend>(append).await.unwrap();
    let settle = settle_of(lease, last);
    store.write::<SubmissionsSettle>(settle).await.unwrap();
}

fn settle_of(lease: Lease, events: Vec<Box<RawValue>>) -> SettleSubmission {
    SettleSubmission {
        lease,
        first_index: 6,
        events,
        outcome: Outcome::Completed,
        result: Some(TurnResult {
            text: ANSWER.into(),
            usage: usage(),
            model: ModelName { provider: "rules".into(), id: "rules-1".into() },
            context_budget: None,
            validation: None,
            sources: Vec::new(),
            calls: Vec::new(),
        }),
        error: None,
        context_usage: None,
        summary: None,
        used: Vec::new(),
    }
}

async fn session(store: &Store, name: &str) -> SessionId {
    let id = SessionId(format!("tui-{name}"));
    let args = CreateSession { scope: scope("a"), fresh: FreshSession::new(id.clone(), Origin::Tui) };
    store.write::<SessionsCreate>(args).await.unwrap();
    id
}

fn turns(dir: &Path, runtime: &tokio::runtime::Runtime, _: Duration) {
    let store = open(dir);
    for clients in [1usize, 16] {
        let (start, before) = (Instant::now(), cpu());
        let (done, p50) = runtime.block_on(clients_for(clients, |client, _| {
            let store = store.clone();
            async move {
                let id = session(&store, &format!("{clients}-{client}")).await;
                turn(&store, client as u64, &id).await;
            }
        }));
        let spent = cpu() - before;
        println!(
            "whole turns (accept, claim, 12 events in 2 appends, settle, index), {clients} clients: {:.0}/s, p50 {:.0} us, {:.0} us CPU a turn",
            done as f64 / start.elapsed().as_secs_f64(),
            micros(p50),
            micros(spent) / done as f64,
        );
    }
}

/// Returns the CPU time that this thread has used so far.
fn thread_cpu() -> Duration {
    nix::time::clock_gettime(nix::time::ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap().into()
}

/// Measures the CPU time of each write of a turn separately. The writes run directly on the writer, sixteen turns in each commit.
fn parts(dir: &Path, _: &tokio::runtime::Runtime, _: Duration) {
    use ken_store::change::Change;
    use ken_store::ops::Write;
    use ken_store::tables::{Backend, Tables, Writer};
    const TURNS: usize = 8_000;
    const SHARED: usize = 16;
    let mut database = Sqlite::open(&dir.join("ken.db")).unwrap().writer().unwrap();
    let mut change = Change { now: Timestamp::now(), effects: Vec::new() };
    let mut spent = [Duration::ZERO; 6];
    let mut timed = |part: usize, work: &mut dyn FnMut()| {
        let before = thread_cpu();
        work();
        spent[part] += thread_cpu() - before;
    };
    for round in 0..TURNS / SHARED {
        let mut mint = Mint::fresh().unwrap();
        let sessions: Vec<SessionId> = (0..SHARED).map(|number| SessionId(format!("tui-{round}-{number}"))).collect();
        database.begin().unwrap();
        let mut each = |database: &mut dyn Writer, work: &mut dyn FnMut(&dyn Tables, &mut Change)| {
            database.savepoint().unwrap();
            work(database.tables(), &mut change);
            database.release().unwrap();
            change.effects.clear();
        };
        let create =
            |id: &SessionId| CreateSession { scope: scope("a"), fresh: FreshSession::new(id.clone(), Origin::Tui) };
        let sessions_to_make: Vec<_> = sessions.iter().map(create).collect();
        timed(0, &mut || {
            for args in &sessions_to_make {
                each(&mut *database, &mut |tables, change| _ = SessionsCreate::run(tables, args, change).unwrap());
            }
        });
        let prompts: Vec<_> = sessions
            .iter()
            .map(|id| {
                let submission = mint.submission();
                prompt(id, &mut mint, &submission)
            })
            .collect();
        timed(1, &mut || {
            for args in &prompts {
                each(&mut *database, &mut |tables, change| _ = ChatAccept::run(tables, args, change).unwrap());
            }
        });
        let mut claims = Vec::new();
        timed(2, &mut || {
            for _ in &sessions {
                each(&mut *database, &mut |tables, change| {
                    claims.extend(ken_store::ops::claim(tables, Work::Turns, 1, change).unwrap())
                });
            }
        });
        let (mut appends, mut settles) = (Vec::new(), Vec::new());
        for claim in claims {
            let mut events = events(&claim.lease.submission_id);
            settles.push(settle_of(claim.lease.clone(), events.split_off(6)));
            appends.push(AppendEvents { lease: claim.lease, first_index: 0, events });
        }
        timed(3, &mut || {
            for args in &appends {
                each(&mut *database, &mut |tables, change| _ = SubmissionsAppend::run(tables, args, change).unwrap());
            }
        });
        timed(4, &mut || {
            for args in &settles {
                each(&mut *database, &mut |tables, change| _ = SubmissionsSettle::run(tables, args, change).unwrap());
            }
        });
        timed(5, &mut || database.commit().unwrap());
    }
    let spent = spent.map(|time| micros(time) / TURNS as f64);
    let [create, accept, claim, append, settle, commit] = spent;
    println!(
        "the writes of a turn, us CPU: create {create:.0}, accept {accept:.0}, claim {claim:.0}, append of 6 {append:.0}, settle with 6 {settle:.0}, its part of the commit {commit:.0}; without create {:.0}",
        accept + claim + append + settle + commit
    );
}

fn transcript(dir: &Path, runtime: &tokio::runtime::Runtime, _: Duration) {
    let store = open(dir);
    let id = runtime.block_on(session(&store, "t"));
    for _ in 0..200 {
        runtime.block_on(turn(&store, 1, &id));
    }
    let read = |limit: u32| ReadTranscript { scope: scope("a"), id: id.clone(), limit, before: None };
    let (start, before) = (Instant::now(), cpu());
    let mut done = 0u32;
    while start.elapsed() < ROUND {
        runtime.block_on(store.read::<SessionsTranscript>(read(10))).unwrap();
        done += 1;
    }
    println!(
        "transcript page of 10 exchanges, 1 client: {:.0}/s, {:.1} us CPU a page (with both thread hops)",
        f64::from(done) / start.elapsed().as_secs_f64(),
        micros(cpu() - before) / f64::from(done)
    );
    direct_reads(dir, &id);
}

/// Measures the CPU time of reading a page of a transcript directly, without the reader threads.
fn direct_reads(dir: &Path, id: &SessionId) {
    use ken_store::ops::Read;
    use ken_store::tables::Backend;
    let copy = dir.join("copy.db");
    let connection = rusqlite::Connection::open(dir.join("ken.db")).unwrap();
    connection.execute("VACUUM INTO ?1", [copy.to_str().unwrap()]).unwrap();
    let mut reader = Sqlite::open(&copy).unwrap().reader().unwrap();
    let args = ReadTranscript { scope: scope("a"), id: id.clone(), limit: 10, before: None };
    let before = cpu();
    for _ in 0..20_000 {
        reader.read(false, &mut |tables| SessionsTranscript::run(tables, &args).map(drop)).unwrap();
    }
    let spent = micros(cpu() - before) / 20_000.0;
    println!("transcript page of 10 exchanges, the read alone: {spent:.1} us CPU");
}

fn stream_end(dir: &Path, runtime: &tokio::runtime::Runtime, _: Duration) {
    let store = open(dir);
    let mut sizes = Vec::new();
    for (name, entries) in [("ten", 10u64), ("million", 1_000_000)] {
        fill(&store, runtime, name, entries);
        sizes.push((format!("agents/orchestrator/tui-{name}"), entries));
    }
    // The two streams are read in turn, so that other load on the machine affects both in the same way.
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..5_000 {
        for ((stream, entries), times) in sizes.iter().zip(&mut times) {
            let args =
                ReadStream { stream: stream.clone(), offset: Offset::After(entries - 10), ..ReadStream::default() };
            let start = Instant::now();
            let page = runtime.block_on(store.read_stream(args)).unwrap();
            times.push(start.elapsed());
            assert_eq!(page.entries.len(), 10);
        }
    }
    let [ten, million] = times.map(median);
    println!(
        "streams.read of the last 10 entries: {:.1} us of 10, {:.1} us of a million: {:.2} x",
        micros(ten),
        micros(million),
        million.as_secs_f64() / ten.as_secs_f64()
    );
}

/// Creates a session whose stream has `entries` entries.
fn fill(store: &Store, runtime: &tokio::runtime::Runtime, name: &str, entries: u64) {
    runtime.block_on(async {
        let id = session(store, name).await;
        let mut mint = Mint::fresh().unwrap();
        let submission = mint.submission();
        store.write::<ChatAccept>(prompt(&id, &mut mint, &submission)).await.unwrap();
        let ask = ClaimSubmissions { work: Work::Turns, holder: "bench".into(), max: 1, wait_ms: 10_000 };
        let claim = store.claim(9, ask).await.unwrap().claims.remove(0);
        let mut first_index = 0;
        while first_index < entries {
            let count = (entries - first_index).min(1_000);
            let events = (first_index..first_index + count)
                .map(|index| event(&submission, index, "text_delta", r#","text":"word ""#))
                .collect();
            let lease = claim.lease.clone();
            store.write::<SubmissionsAppend>(AppendEvents { lease, first_index, events }).await.unwrap();
            first_index += count;
        }
    });
}

/// Measures the time from the call of an append until a waiting reader has the page.
fn delivery(dir: &Path, runtime: &tokio::runtime::Runtime, sync: Duration) {
    let store = open(dir);
    let (mut appended, mut delivered) = (Vec::new(), Vec::new());
    fill(&store, runtime, "d", 10);
    runtime.block_on(async {
        let id = session(&store, "w").await;
        let mut mint = Mint::fresh().unwrap();
        let submission = mint.submission();
        store.write::<ChatAccept>(prompt(&id, &mut mint, &submission)).await.unwrap();
        let ask = ClaimSubmissions { work: Work::Turns, holder: "bench".into(), max: 1, wait_ms: 10_000 };
        let lease = store.claim(9, ask).await.unwrap().claims.remove(0).lease;
        for index in 0..3_000u64 {
            let args = ReadStream {
                stream: "agents/orchestrator/tui-w".into(),
                offset: Offset::After(index),
                wait_ms: 10_000,
                ..ReadStream::default()
            };
            let append = AppendEvents {
                lease: lease.clone(),
                first_index: index,
                events: vec![event(&submission, index, "text_delta", r#","text":"word ""#)],
            };
            let wait = async {
                let page = store.read_stream(args).await.unwrap();
                assert_eq!(page.start, index);
                Instant::now()
            };
            let write = async {
                // Gives the reader time to begin waiting.
                tokio::time::sleep(Duration::from_micros(300)).await;
                let start = Instant::now();
                store.write::<SubmissionsAppend>(append).await.unwrap();
                (start, Instant::now())
            };
            let (seen, (start, durable)) = tokio::join!(wait, write);
            delivered.push(seen - start);
            appended.push(durable - start);
        }
    });
    println!(
        "one event: durable after {:.0} us, with a waiting reader after {:.0} us; the floor is {:.0} us",
        micros(median(appended)),
        micros(median(delivered)),
        micros(sync)
    );
}
