//! Two stores on one database, each with the id of a host: both work, see each other's changes, and take over what the other one held.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ken_store::Store;
use ken_store::tables::postgres::Postgres;
use ken_types::ops::documents::*;
use ken_types::ops::hosts::*;
use ken_types::ops::store::*;
use ken_types::ops::telemetry::{ByWork, EventsWhy};
use ken_types::{Code, Offset};

use crate::kit::*;

/// Two hosts. Each has the clock of the server.
struct Two {
    first: Kit,
    second: Store,
    _state: tempfile::TempDir,
}

fn open(url: &str, state: &std::path::Path, notify: bool) -> Store {
    open_with(url, state, |backend| backend.has_notices = notify)
}

fn open_with(url: &str, state: &std::path::Path, set: impl FnOnce(&mut Postgres)) -> Store {
    let mut backend = Postgres::open(url, state).unwrap();
    set(&mut backend);
    let clock = backend.clock();
    reached(Store::start(backend, clock).unwrap())
}

/// Returns the URL of the database. Notices do not come through a pooler.
fn url(kit: &Kit, notify: bool) -> String {
    let Remote { server, database, url } = kit.remote.as_ref().unwrap();
    if notify { server.url(database) } else { url.clone() }
}

impl Two {
    fn new(notify: bool) -> Two {
        let mut first = Kit::new();
        first.store = None;
        let (url, state) = (url(&first, notify), tempfile::tempdir().unwrap());
        first.store = Some(open(&url, first.dir.path(), notify));
        Two { first, second: open(&url, state.path(), notify), _state: state }
    }

    /// Ends the first host as the loss of its machine does: nothing of it is written any more. It is seen to be away at once, and taken for
    /// lost when the other one has seen nothing of it for long enough.
    fn lose_first(&mut self) {
        self.first.store = None;
        let old = "UPDATE ken.hosts SET renewed_at = renewed_at - 20000 WHERE leads = 1";
        self.first.query(old);
    }
}

async fn claims(store: &Store, connection: u64, wait_ms: u64) -> Claims {
    let ask = ClaimSubmissions { work: Work::Turns, holder: "t".into(), max: 8, wait_ms };
    store.claim(connection, ask).await.unwrap()
}

async fn hosts(store: &Store) -> Vec<HostRecord> {
    store.read::<HostsList>(ken_types::ops::Nothing {}).await.unwrap().hosts
}

async fn duties(store: &Store) -> bool {
    store.read::<HostsDuties>(ken_types::ops::Nothing {}).await.unwrap().here
}

#[tokio::test(flavor = "multi_thread")]
async fn both_hosts_work_and_one_has_the_duties() {
    let Two { first, second, _state } = Two::new(true);
    assert_eq!([duties(&first).await, duties(&second).await], [true, false]);
    let seen = hosts(&second).await;
    let of = |host: &HostRecord| (host.state, host.has_duties, host.here);
    assert_eq!(
        seen.iter().map(of).collect::<Vec<_>>(),
        [(HostState::Active, true, false), (HostState::Active, false, true)]
    );
    // Each accepts prompts of one session, and the number of an entry is given once.
    first.session("tui-1", "a").await;
    let number = std::sync::atomic::AtomicU64::new(0);
    let prompt = async |store: &Store| {
        let number = number.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let accept = first.accept_of("a", "text", Target::Selector("tui-1".into()), queued(&format!("s{number}")));
        store.write::<ChatAccept>(accept).await.unwrap().submission.unwrap();
    };
    let many = async |store: &Store| {
        for _ in 0..10 {
            prompt(store).await;
        }
    };
    tokio::join!(many(&first), many(&second));
    let page = first.read_stream(ReadStream { stream: "system".into(), ..read("", Offset::Start, 0) }).await.unwrap();
    let numbers: Vec<u64> = page.entries.iter().map(|entry| number_of(entry.get())).collect();
    assert_eq!(numbers, (0..numbers.len() as u64).collect::<Vec<_>>());
    assert!(numbers.len() > 20, "{numbers:?}");
}

fn number_of(event: &str) -> u64 {
    serde_json::from_str::<serde_json::Value>(event).unwrap()["eventIndex"].as_u64().unwrap()
}

/// An event with one id that both hosts accept is stored once, and both give the same answer. `KEN_PAIRS=10000` is the long form.
#[tokio::test(flavor = "multi_thread")]
async fn an_event_that_two_hosts_accept_is_one() {
    let Two { first, second, _state } = Two::new(true);
    let pairs = usize::try_from(ken_tests::number("KEN_PAIRS", 200)).unwrap();
    first.session("tui-1", "a").await;
    let mut accepted = std::collections::BTreeSet::new();
    for number in 0..pairs {
        let accept = |own: &str| {
            let action = Action::Prompt { submission_id: sub(&format!("{own}{number}")), policy: Policy::Interrupt };
            let target = Target::SelectorOrNew(fresh(&format!("tui-{number}")));
            let mut accept = first.accept_of("a", "text", target, action);
            accept.event.id = ken_types::id::EventId(format!("tui:same{number}"));
            accept
        };
        let (one, other) =
            tokio::join!(first.write::<ChatAccept>(accept("f")), second.write::<ChatAccept>(accept("g")));
        let [one, other] = [one, other].map(|accepted| accepted.unwrap().submission.unwrap().submission_id);
        assert_eq!(one, other, "pair {number}");
        accepted.insert(one);
    }
    assert_eq!(accepted.len(), pairs);
    assert_eq!(first.count("events"), pairs as i64);
    assert_eq!(first.count("submissions"), pairs as i64);
    let of_first = accepted.iter().filter(|id| id.as_str().starts_with('f')).count();
    println!("{pairs} pairs: {of_first} accepted by the first host, {} by the second", pairs - of_first);
}

/// Who waits on one host sees what is done on the other, and work is claimed where there is somebody for it.
#[tokio::test(flavor = "multi_thread")]
async fn what_one_host_does_the_other_sees_at_once() {
    let Two { first, second, _state } = Two::new(true);
    first.session("tui-1", "a").await;
    // The second host has an agent that waits, the first has none.
    let (claimed, _) = tokio::join!(claims(&second, 7, 20_000), async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        first.prompt("tui-1", "s1").await;
    });
    let lease = claimed.claims[0].lease.clone();
    let mut times = Vec::new();
    for number in 0..40 {
        let page = second.read_stream(read("tui-1", Offset::Now, 0)).await.unwrap();
        let (read, begun) = tokio::join!(
            async {
                let page = second.read_stream(read("tui-1", Offset::After(page.next), 20_000)).await.unwrap();
                assert_eq!(page.entries.len(), 1);
                Instant::now()
            },
            async {
                tokio::time::sleep(Duration::from_millis(30)).await;
                let begun = Instant::now();
                let note = ken_types::ops::store::AppendEvents {
                    lease: lease.clone(),
                    first_index: number,
                    events: deltas("s1", number, 1),
                };
                first.write::<SubmissionsAppend>(note).await.unwrap();
                begun
            }
        );
        times.push(read.duration_since(begun));
    }
    times.sort();
    println!("an event of one host is read on the other after {:?} (median), {:?} (longest)", times[20], times[39]);
    assert!(times[20] < Duration::from_millis(500), "{times:?}");
    // An abort on the first host reaches the holder at the second.
    let (aborted, ()) = tokio::join!(claims(&second, 7, 20_000), async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        first.write::<SubmissionsAbort>(OfInstance { instance: "tui-1".into() }).await.unwrap();
    });
    assert_eq!(aborted.aborts, std::slice::from_ref(&lease));
    // The caller that waits on the first host sees the end.
    let wait = WaitSubmission { submission_id: sub("s1"), wait_ms: 20_000, or_waiting: false };
    let (status, ()) = tokio::join!(first.wait(wait), async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let end = Kit::settle_of(&lease, 40, ken_types::event::Outcome::Aborted, "so far");
        second.write::<SubmissionsSettle>(end).await.unwrap();
    });
    assert_eq!(status.unwrap().state, State::Aborted);
}

/// The connections for notices stand still, and nothing says so. Each host finds by looking what it does not hear.
#[tokio::test(flavor = "multi_thread")]
async fn a_notice_that_does_not_come_is_made_up_for_by_looking() {
    let Two { first, second, _state } = Two::new(true);
    first.session("tui-1", "a").await;
    first.prompt("tui-1", "s1").await;
    let lease = first.claim_one(1).await.lease;
    let listeners = || {
        first.query("SELECT pid FROM pg_stat_activity WHERE application_name = 'ken-store notices' AND datname = current_database()")
    };
    while listeners().lines().count() < 2 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let all = listeners();
    let signal = |signal: &str| {
        let done = std::process::Command::new("kill").arg(signal).args(all.lines()).status();
        assert!(done.unwrap().success());
    };
    signal("-STOP");
    let mut times = Vec::new();
    for number in 0..3 {
        let page = second.read_stream(read("tui-1", Offset::Now, 0)).await.unwrap();
        let begun = Instant::now();
        let (page, appended) = tokio::join!(
            second.read_stream(read("tui-1", Offset::After(page.next), 20_000)),
            first.add_events(&lease, number, deltas("s1", number, 1))
        );
        appended.unwrap();
        assert_eq!(page.unwrap().entries.len(), 1);
        times.push(begun.elapsed());
    }
    signal("-CONT");
    println!("without notices an event was read after {times:?}");
    assert!(times.iter().all(|time| *time < Duration::from_secs(4)), "{times:?}");
}

/// Hosts whose agents wait for work do not keep each other busy.
#[tokio::test(flavor = "multi_thread")]
async fn hosts_without_work_write_nothing() {
    let Two { first, second, _state } = Two::new(true);
    let batches = || first.query("SELECT string_agg(host || ' ' || batch, ',' ORDER BY host) FROM ken.hosts");
    let look = async || {
        tokio::time::sleep(Duration::from_millis(2_500)).await;
        let before = batches();
        tokio::time::sleep(Duration::from_millis(3_500)).await;
        (before, batches())
    };
    // What they do at their start takes longer on a busy machine. Hosts that keep each other busy are never quiet.
    let mut seen = Vec::new();
    for claim in [1, 3, 5] {
        let (none, others, batches) =
            tokio::join!(claims(&first, claim, 6_500), claims(&second, claim + 1, 6_500), look());
        assert!(none.claims.is_empty() && others.claims.is_empty());
        seen.push(batches);
        if seen.last().is_some_and(|(before, after)| before == after) {
            return;
        }
    }
    panic!("{seen:?}");
}

/// Without notices, such as behind a pooler, each host looks once a second.
#[tokio::test(flavor = "multi_thread")]
async fn without_notices_each_host_looks_once_a_second() {
    let Two { first, second, _state } = Two::new(false);
    first.session("tui-1", "a").await;
    let begun = Instant::now();
    let (claimed, _) = tokio::join!(claims(&second, 7, 20_000), first.prompt("tui-1", "s1"));
    assert_eq!(claimed.claims.len(), 1);
    let wait = WaitSubmission { submission_id: sub("s1"), wait_ms: 20_000, or_waiting: false };
    let (status, _) = tokio::join!(first.wait(wait), async {
        let end = Kit::settle_of(&claimed.claims[0].lease, 0, ken_types::event::Outcome::Completed, "done");
        second.write::<SubmissionsSettle>(end).await.unwrap();
    });
    assert_eq!(status.unwrap().state, State::Completed);
    println!("claimed and seen after {:?}", begun.elapsed());
    assert!(begun.elapsed() < Duration::from_secs(6), "{:?}", begun.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_lost_host_held_goes_on_elsewhere_and_it_writes_no_more() {
    let mut two = Two::new(true);
    two.first.session("tui-1", "a").await;
    two.first.prompt("tui-1", "s1").await;
    let held = claims(&two.first, 1, 0).await.claims.remove(0);
    two.first.add_events(&held.lease, 0, deltas("s1", 0, 3)).await.unwrap();
    assert!(claims(&two.second, 2, 0).await.claims.is_empty(), "it is held");
    two.lose_first();
    let begun = Instant::now();
    let mut taken = claims(&two.second, 2, 20_000).await;
    println!("taken over after {:?}", begun.elapsed());
    let taken = taken.claims.remove(0);
    assert_eq!((taken.attempt, taken.next_event_index), (2, 3));
    assert!(duties(&two.second).await);
    // The first host begins again, and the lease of its agent is an old one.
    let url = url(&two.first, true);
    two.first.store = Some(open(&url, two.first.dir.path(), true));
    let late = two.first.add_events(&held.lease, 3, deltas("s1", 3, 1)).await.unwrap_err();
    assert_eq!(late.code, Code::Conflict);
    let settle = Kit::settle_of(&held.lease, 3, ken_types::event::Outcome::Completed, "late");
    assert_eq!(two.first.write::<SubmissionsSettle>(settle).await.unwrap_err().code, Code::Conflict);
    assert!(!duties(&two.first).await);
    let renew = RenewLeases { holder: "t".into(), leases: vec![held.lease] };
    assert_eq!(two.first.renew(1, renew).await.unwrap().lost.len(), 1);
    let end = Kit::settle_of(&taken.lease, 3, ken_types::event::Outcome::Completed, "done");
    two.second.write::<SubmissionsSettle>(end).await.unwrap();
    assert_eq!(two.first.state("s1").await, State::Completed);
}

/// Two hosts may have different models, also under one name: neither has the vectors of the other one computed again.
#[tokio::test(flavor = "multi_thread")]
async fn only_the_host_with_the_duties_replaces_vectors() {
    let Two { first, second, _state } = Two::new(true);
    first.write::<KnowledgePut>(entry("Depot", "opens at nine")).await.unwrap();
    let missing = async |store: &Store, model: &str| {
        let work = store.document_work(FindWork { model: Some(model.to_owned()), wait_ms: 0 }).await.unwrap();
        work.unembedded.into_iter().map(|found| found.entry).collect::<Vec<_>>()
    };
    let put = async |store: &Store, model: &str, dimensions, vectors| {
        let (model, usage) = (model.to_owned(), Default::default());
        store.write::<VectorsPut>(PutVectors { model, vectors, dimensions, usage }).await.unwrap();
    };
    let entry = missing(&first, "m/a").await[0];
    put(&first, "m/a", 3, vec![EntryVector { entry, values: vec![1.0; 3] }]).await;
    assert_eq!(missing(&second, "m/b").await, [0; 0]);
    for (store, model, dimensions) in
        [(&second, "m/a", 4), (&*first, "m/a", 0), (&*first, "m/a", 3), (&*first, "m/b", 4)]
    {
        put(store, model, dimensions, Vec::new()).await;
        assert_eq!(missing(&first, "m/a").await, [0; 0], "{model} {dimensions}");
    }
    put(&first, "m/a", 4, Vec::new()).await;
    assert_eq!(missing(&first, "m/a").await, [entry]);
}

/// A host that is lost held nothing but its duties.
#[tokio::test(flavor = "multi_thread")]
async fn the_duties_of_a_lost_host_go_to_another_one() {
    let mut two = Two::new(true);
    assert!(!duties(&two.second).await);
    two.lose_first();
    let until = Instant::now() + Duration::from_secs(20);
    while !duties(&two.second).await {
        assert!(Instant::now() < until, "nobody has the duties");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let states = hosts(&two.second).await.into_iter().map(|host| (host.state, host.has_duties)).collect::<Vec<_>>();
    assert_eq!(states, [(HostState::Active, true), (HostState::Away, false)]);
    assert_eq!(two.first.query("SELECT active FROM ken.hosts WHERE leads = 0"), "0");
}

/// A restart of a store leaves its agents their leases, whatever other hosts do meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn a_restart_of_a_store_does_not_give_away_what_its_agents_hold() {
    let mut two = Two::new(true);
    two.first.session("tui-1", "a").await;
    two.first.prompt("tui-1", "s1").await;
    let held = claims(&two.first, 1, 0).await.claims.remove(0);
    let url = url(&two.first, true);
    two.first.store = None;
    assert!(claims(&two.second, 2, 2_000).await.claims.is_empty());
    two.first.store = Some(open(&url, two.first.dir.path(), true));
    let renew = RenewLeases { holder: "t".into(), leases: vec![held.lease.clone()] };
    assert!(two.first.renew(4, renew).await.unwrap().lost.is_empty());
    two.first.finish(&held.lease, 0, "done").await.unwrap();
}

/// A session that is bound to a folder works on the host of the folder alone.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_with_a_folder_waits_for_its_host() {
    let mut two = Two::new(true);
    let bound = FreshSession { workspace: Some("/srv/site".into()), ..fresh("tui-1") };
    two.first.write::<SessionsCreate>(CreateSession { scope: scope("a"), fresh: bound }).await.unwrap();
    two.first.prompt("tui-1", "s1").await;
    two.first.prompt("tui-1", "s2").await;
    // A session beside it, begun through the other host, has the same folder.
    let beside = Target::Beside(fresh("tui-2"), "tui-1".into());
    let accept = two.first.accept_of("a", "text", beside, queued("s3"));
    two.second.write::<ChatAccept>(accept).await.unwrap().submission.unwrap();
    assert!(claims(&two.second, 2, 1_500).await.claims.is_empty());
    let held = claims(&two.first, 1, 0).await.claims;
    assert_eq!(held.iter().map(|claim| claim.lease.submission_id.as_str()).collect::<Vec<_>>(), ["s1", "s3"]);
    two.lose_first();
    assert!(claims(&two.second, 2, 13_000).await.claims.is_empty());
    let why = async |id: &str| two.second.read::<EventsWhy>(ByWork { id: id.into() }).await.unwrap();
    let waits = why("s1").await;
    assert!(waits.cause.contains("is away; it was last seen at 2") && waits.status == "running", "{waits:?}");
    // Whoever knows that it does not come back has its turns end.
    let lost = hosts(&two.second).await.into_iter().find(|host| !host.here).unwrap();
    assert_eq!(lost.waiting, 3);
    let lost = lost.id;
    two.second.write::<HostsRemove>(RemoveHost { host: lost }).await.unwrap();
    for id in ["s1", "s2", "s3"] {
        let ended = why(id).await;
        assert!(ended.status == "failed" && ended.cause.contains("was removed"), "{ended:?}");
    }
    // Its sessions are those of any host then.
    let accept = two.first.accept_of("a", "text", Target::Selector("tui-1".into()), queued("s4"));
    two.second.write::<ChatAccept>(accept).await.unwrap();
    assert_eq!(claims(&two.second, 2, 0).await.claims.len(), 1);
}

/// Where all hosts have the folders, any of them works on such a session.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_with_a_shared_folder_works_on_any_host() {
    let Two { first, second, _state } = Two::new(true);
    drop(second);
    let second = open_with(&url(&first, true), _state.path(), |backend| backend.shares_folders = true);
    let bound = FreshSession { workspace: Some("/srv/site".into()), ..fresh("tui-1") };
    first.write::<SessionsCreate>(CreateSession { scope: scope("a"), fresh: bound }).await.unwrap();
    first.prompt("tui-1", "s1").await;
    let held = claims(&second, 2, 2_000).await.claims;
    assert_eq!(held.iter().map(|claim| claim.lease.submission_id.as_str()).collect::<Vec<_>>(), ["s1"]);
}

/// The server ends a transaction that stands idle, before the others give up.
#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_stands_still_in_a_transaction_holds_up_the_others_for_some_seconds() {
    let Two { first, second, _state } = Two::new(true);
    let sleeper = Arc::new(first.remote.as_ref().unwrap().server);
    let database = first.remote.as_ref().unwrap().database.clone();
    // It has the limits of a store, and does not end its transaction.
    let stands = tokio::task::spawn_blocking(move || {
        sleeper.sql(
            &database,
            "BEGIN; SET LOCAL idle_in_transaction_session_timeout = '5s'; SELECT pg_advisory_xact_lock(1262833202);\n\\! sleep 5.5\n",
        );
    });
    let held = "SELECT count(*) FROM pg_locks JOIN pg_stat_activity USING (pid)
                WHERE granted AND objid = 1262833202 AND application_name = 'psql' AND datname = current_database()";
    while first.query(held) != "1" {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let begun = Instant::now();
    let made = second.write::<SessionsCreate>(CreateSession { scope: scope("a"), fresh: fresh("tui-9") }).await;
    println!("made after {:?}", begun.elapsed());
    made.unwrap();
    assert!(begun.elapsed() > Duration::from_secs(3), "{:?}", begun.elapsed());
    _ = stands.await;
}

/// A newer ken may have changed the tables meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_was_silent_looks_at_the_schema_before_it_works_again() {
    let mut kit = Kit::new();
    kit.store = None;
    kit.store = Some(open(&url(&kit, true), kit.dir.path(), true));
    kit.session("tui-1", "a").await;
    let active = "SELECT count(*) FROM ken.hosts WHERE active = 1";
    let version = kit.query("SELECT version FROM ken.schema_version");
    kit.query("UPDATE ken.schema_version SET version = 99; UPDATE ken.hosts SET active = 0");
    let failure = || kit.store.as_ref().unwrap().failure().unwrap_or_default();
    ken_tests::until("it refuses the newer schema", || failure().contains("has version 99"));
    assert_eq!(kit.query(active), "0");
    kit.query(&format!("UPDATE ken.schema_version SET version = {version}"));
    ken_tests::until("it works again", || failure().is_empty() && kit.query(active) == "1");
    kit.session("tui-2", "a").await;

    // Who migrates the schema ends the activity of those who were silent.
    kit.store = None;
    kit.query(
        "UPDATE ken.hosts SET renewed_at = renewed_at - 20000; ALTER TABLE ken.schedules DROP COLUMN stream;
         UPDATE ken.schema_version SET version = version - 1",
    );
    let state = tempfile::tempdir().unwrap();
    let _second = open(&url(&kit, true), state.path(), true);
    assert_eq!((kit.query(active), kit.query("SELECT version FROM ken.schema_version")), ("1".to_owned(), version));
}
