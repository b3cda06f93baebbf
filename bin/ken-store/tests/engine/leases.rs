//! Which holder is allowed to write, and what happens to the work of a holder that has ended.

use ken_types::event::Outcome;
use ken_types::limits::{CLAIMS, LEASE_MS, SUBMISSION_MS};
use ken_types::ops::store::*;
use ken_types::{Code, Offset};

use crate::kit::*;

async fn ready() -> Kit {
    let kit = Kit::new();
    kit.session("tui-1", "a").await;
    kit.prompt("tui-1", "s1").await;
    kit
}

async fn renew(kit: &Kit, connection: u64, lease: &Lease) -> bool {
    let args = RenewLeases { holder: format!("test-{connection}"), leases: vec![lease.clone()] };
    kit.renew(connection, args).await.unwrap().lost.is_empty()
}

#[tokio::test]
async fn a_closed_connection_frees_its_work_at_once_and_the_next_goes_on() {
    let kit = ready().await;
    let first = kit.claim_one(1).await;
    kit.add_events(&first.lease, 0, deltas("s1", 0, 3)).await.unwrap();
    kit.disconnected(1);
    let second = kit.claim_one(2).await;
    assert_eq!((second.attempt, second.lease.number, second.next_event_index), (2, 2, 3));
    assert_eq!(second.recorded_from, Offset::Start);
    assert_eq!(second.last_timestamp, Some(at(START)));
    let error = kit.add_events(&first.lease, 3, deltas("s1", 3, 1)).await.unwrap_err();
    assert_eq!((error.code, error.at.as_deref()), (Code::Conflict, Some("/lease")));
    let late = Kit::settle_of(&first.lease, 3, Outcome::Completed, "late");
    assert_eq!(kit.write::<SubmissionsSettle>(late).await.unwrap_err().code, Code::Conflict);
    assert!(!renew(&kit, 1, &first.lease).await);
    kit.finish(&second.lease, 3, "done").await.unwrap();
    assert_eq!(kit.log("tui-1").await.len(), 5);
}

#[tokio::test]
async fn a_waiting_claim_gets_what_a_closed_connection_lets_go() {
    let kit = ready().await;
    kit.claim_one(1).await;
    let ask = ClaimSubmissions { work: Work::Turns, holder: "t".into(), max: 1, wait_ms: 60_000 };
    let (claims, ()) = tokio::join!(kit.claim(2, ask), async { kit.disconnected(1) });
    assert_eq!(claims.unwrap().claims[0].attempt, 2);
}

/// A claim that could have taken more is followed by one that needs no transaction; one that was full may have left something.
#[tokio::test]
async fn what_a_claim_leaves_is_found_by_the_next() {
    let kit = ready().await;
    for (session, prompt) in [("tui-2", "s2"), ("tui-3", "s3")] {
        kit.session(session, "a").await;
        kit.prompt(session, prompt).await;
    }
    let batches = || kit.stats()["batches"].as_u64().unwrap();
    for (max, expected) in [(1, 1), (1, 1), (8, 1)] {
        assert_eq!(kit.claims(1, max).await.claims.len(), expected);
    }
    let before = batches();
    assert_eq!(kit.claims(1, 8).await.claims.len(), 0);
    assert_eq!(batches(), before);
    kit.session("tui-4", "a").await;
    kit.prompt("tui-4", "s4").await;
    assert_eq!(kit.claims(1, 1).await.claims.len(), 1);
    // What is let go is found, too.
    kit.disconnected(1);
    assert_eq!(kit.claims(2, 8).await.claims.len(), 4);
}

/// Work goes to the claim that it fits, however many others wait before it.
#[tokio::test]
async fn the_second_of_two_waiting_claims_gets_its_work() {
    let kit = Kit::new();
    kit.session("tui-1", "a").await;
    let ask = |work| ClaimSubmissions { work, holder: "t".into(), max: 1, wait_ms: 60_000 };
    let all = async {
        let prompt = async {
            // Both claims wait before the work arrives.
            tokio::task::yield_now().await;
            kit.tick().await;
            kit.prompt("tui-1", "s1").await;
            // It is claimed in the same change, not when the writer wakes up next.
            assert_eq!(kit.state("s1").await, State::Running);
        };
        tokio::select! {
            biased;
            _ = kit.claim(1, ask(Work::Runs)) => panic!("there is no run"),
            (claims, _) = async { tokio::join!(kit.claim(2, ask(Work::Turns)), prompt) } => claims.unwrap(),
        }
    };
    let claims = tokio::time::timeout(std::time::Duration::from_secs(20), all).await.expect("no claim is served");
    assert_eq!(claims.claims.len(), 1);
}

/// A claim finds the work that is there, although another claim waits before it for work of another kind.
#[tokio::test]
async fn a_claim_behind_one_of_another_kind_finds_what_is_there() {
    let kit = Kit::new();
    kit.session("tui-1", "a").await;
    let ask = ClaimSubmissions { work: Work::Runs, holder: "t".into(), max: 1, wait_ms: 60_000 };
    let mut runs = std::pin::pin!(kit.claim(1, ask));
    begin(runs.as_mut()).await;
    kit.tick().await;
    kit.prompt("tui-1", "s1").await;
    assert_eq!(kit.claims(2, 1).await.claims.len(), 1);
}

#[tokio::test]
async fn a_silent_holder_loses_its_lease_and_one_that_renews_does_not() {
    let kit = ready().await;
    let first = kit.claim_one(1).await;
    for _ in 0..5 {
        kit.turn_clock(LEASE_MS - 1).await;
        assert!(kit.claims(2, 1).await.claims.is_empty());
        assert!(renew(&kit, 1, &first.lease).await);
    }
    kit.turn_clock(LEASE_MS).await;
    let second = kit.claim_one(2).await;
    assert_eq!(second.lease.number, first.lease.number + 1);
    assert_eq!(kit.stats()["leases_lost"], 1);
}

#[tokio::test]
async fn a_lease_that_was_let_go_is_taken_up_again_by_its_holder() {
    let kit = ready().await;
    let first = kit.claim_one(1).await;
    kit.disconnected(1);
    assert!(renew(&kit, 2, &first.lease).await);
    assert!(kit.claims(3, 1).await.claims.is_empty());
    kit.disconnected(1);
    assert!(kit.claims(3, 1).await.claims.is_empty(), "the old connection has nothing left to let go");
    kit.disconnected(2);
    assert_eq!(kit.claim_one(3).await.attempt, 2);
}

#[tokio::test]
async fn after_a_restart_holders_have_a_moment_to_come_back() {
    let mut kit = ready().await;
    kit.session("tui-2", "a").await;
    kit.prompt("tui-2", "s2").await;
    let held = kit.claims(1, 8).await.claims;
    kit.restart();
    kit.turn_clock(499).await;
    assert!(kit.claims(5, 8).await.claims.is_empty());
    assert!(renew(&kit, 4, &held[0].lease).await);
    kit.turn_clock(1).await;
    let free = kit.claims(5, 8).await.claims;
    assert_eq!(free.len(), 1);
    assert_eq!(free[0].lease, Lease { submission_id: sub("s2"), number: 2 });
    kit.turn_clock(20_000).await;
    assert!(kit.claims(5, 8).await.claims.is_empty());
    kit.finish(&held[0].lease, 0, "done").await.unwrap();
}

#[tokio::test]
async fn an_abort_survives_the_holder_and_the_restart() {
    let mut kit = ready().await;
    let first = kit.claim_one(1).await;
    kit.write::<SubmissionsAbort>(OfInstance { instance: "tui-1".into() }).await.unwrap();
    kit.restart();
    assert!(renew(&kit, 2, &first.lease).await);
    assert_eq!(kit.claims(2, 0).await.aborts, [first.lease]);
    kit.disconnected(2);
    let second = kit.claim_one(3).await;
    assert_eq!(second.verdict, Some(EndReason::Abort));
}

#[tokio::test]
async fn a_holder_that_does_not_abort_loses_its_lease() {
    let kit = ready().await;
    let first = kit.claim_one(1).await;
    kit.write::<SubmissionsAbort>(OfInstance { instance: "tui-1".into() }).await.unwrap();
    assert_eq!(kit.claims(1, 0).await.aborts.len(), 1);
    kit.turn_clock(9_999).await;
    assert!(renew(&kit, 1, &first.lease).await);
    assert!(kit.claims(2, 1).await.claims.is_empty());
    kit.turn_clock(1).await;
    assert_eq!(kit.claim_one(2).await.verdict, Some(EndReason::Abort));
}

#[tokio::test]
async fn nothing_wedges_when_every_holder_is_lost() {
    let kit = ready().await;
    kit.prompt("tui-1", "s2").await;
    for attempt in 1..=CLAIMS {
        let claim = kit.claim_one(u64::from(attempt)).await;
        assert_eq!((claim.attempt, claim.verdict), (attempt, None));
        kit.disconnected(u64::from(attempt));
    }
    for connection in [20, 21] {
        let claim = kit.claim_one(connection).await;
        assert_eq!((claim.lease.submission_id, claim.verdict), (sub("s1"), Some(EndReason::RetryExhausted)));
        kit.disconnected(connection);
    }
    // The store ends it and gives out the next one in the same step.
    assert_eq!(kit.claim_one(22).await.lease.submission_id, sub("s2"));
    let standing = kit.status("s1").await;
    assert_eq!((standing.state, standing.error.unwrap().name.as_str()), (State::Failed, "retry_exhausted"));
    let log = kit.log("tui-1").await;
    assert_eq!((log.len(), log[0]["type"].as_str(), log[1]["outcome"].as_str()), (2, Some("idle"), Some("failed")));
    assert!(log[1]["error"].is_string());
}

#[tokio::test]
async fn an_hour_is_enough_for_any_submission() {
    let kit = ready().await;
    let first = kit.claim_one(1).await;
    let mut left = SUBMISSION_MS + 30_000;
    while left > 0 {
        assert!(renew(&kit, 1, &first.lease).await);
        assert!(kit.claims(2, 1).await.claims.is_empty(), "{left} ms left");
        kit.turn_clock(10_000).await;
        left -= 10_000;
    }
    let second = kit.claim_one(2).await;
    assert_eq!(second.verdict, Some(EndReason::Timeout));
    assert!(second.time_left_ms <= 0);
}

#[tokio::test]
async fn events_are_written_once_however_often_they_are_sent() {
    let kit = ready().await;
    let claim = kit.claim_one(1).await;
    let all = deltas("s1", 0, 6);
    for range in [0..3, 0..3, 1..5, 2..4, 4..6] {
        let first = range.start as u64;
        kit.add_events(&claim.lease, first, all[range].to_vec()).await.unwrap();
    }
    let error = kit.add_events(&claim.lease, 7, deltas("s1", 7, 1)).await.unwrap_err();
    assert_eq!((error.code, error.at.as_deref()), (Code::Invalid, Some("/first_index")));
    let page = kit.page("tui-1", Offset::Start).await.unwrap();
    let texts: Vec<&str> = page.entries.iter().map(|entry| entry.get()).collect();
    let wanted: Vec<&str> = all.iter().map(|entry| entry.get()).collect();
    assert_eq!(texts, wanted);
}

#[tokio::test]
async fn a_settled_submission_answers_as_before() {
    let kit = ready().await;
    let claim = kit.claim_one(1).await;
    let first = kit.finish(&claim.lease, 0, "done").await.unwrap();
    kit.talk("tui-1", "s2", "more", "and more").await;
    let again = kit.finish(&claim.lease, 0, "done").await.unwrap();
    assert_eq!(again.offset, first.offset);
    assert_eq!(kit.log("tui-1").await.len(), 4);
    let error = kit.add_events(&claim.lease, 2, deltas("s1", 2, 1)).await.unwrap_err();
    assert_eq!(error.code, Code::Conflict);
    assert!(!renew(&kit, 1, &claim.lease).await);
    // Nobody holds what nobody has claimed.
    kit.prompt("tui-1", "s3").await;
    assert!(!renew(&kit, 1, &Lease { submission_id: sub("s3"), number: 0 }).await);
}

#[tokio::test]
async fn what_is_no_event_is_refused_whole() {
    let kit = ready().await;
    let claim = kit.claim_one(1).await;
    let raw = |text: &str| serde_json::value::RawValue::from_string(text.to_owned()).unwrap();
    let long = event("s1", 1, "text_delta", serde_json::json!({"text": "x".repeat(256 * 1024)}));
    for (bad, code) in [
        (raw("[]"), Code::Invalid),
        (raw(r#"{"type":"text_delta","v":1}"#), Code::Invalid),
        (raw(r#"{"v":1,"type":7}"#), Code::Invalid),
        (long, Code::TooLarge),
    ] {
        let mut events = deltas("s1", 0, 1);
        events.push(bad);
        let error = kit.add_events(&claim.lease, 0, events).await.unwrap_err();
        assert_eq!((error.code, error.at.as_deref()), (code, Some("/events/1")));
    }
    assert_eq!(kit.page("tui-1", Offset::Now).await.unwrap().end, 0);
    let unknown = Lease { submission_id: sub("none"), number: 1 };
    assert_eq!(kit.add_events(&unknown, 0, deltas("none", 0, 1)).await.unwrap_err().code, Code::NotFound);
    let unclaimed = Lease { number: 0, ..claim.lease };
    assert_eq!(kit.add_events(&unclaimed, 0, deltas("s1", 0, 1)).await.unwrap_err().code, Code::Conflict);
}

/// Polls a call once. Normally the call waits then, but on a busy machine it may already be finished.
async fn begin<T>(mut call: std::pin::Pin<&mut impl Future<Output = T>>) {
    std::future::poll_fn(|context| {
        _ = call.as_mut().poll(context);
        std::task::Poll::Ready(())
    })
    .await;
}

#[tokio::test]
async fn what_was_sent_to_a_caller_that_has_gone_is_not_lost() {
    let kit = Kit::new();
    kit.session("tui-1", "a").await;
    let ask = |max| ClaimSubmissions { work: Work::Turns, holder: "t".into(), max, wait_ms: 60_000 };
    {
        let call = std::pin::pin!(kit.claim(1, ask(1)));
        begin(call).await;
        kit.prompt("tui-1", "s1").await;
    }
    let second = kit.claim_one(2).await;
    assert_eq!(second.attempt, 2);
    {
        let call = std::pin::pin!(kit.claim(2, ask(0)));
        begin(call).await;
        kit.write::<SubmissionsAbort>(OfInstance { instance: "tui-1".into() }).await.unwrap();
    }
    assert_eq!(kit.claims(2, 0).await.aborts, [second.lease]);
}

#[tokio::test]
async fn a_lease_renewed_by_a_connection_that_ends_with_it_is_not_stuck() {
    let kit = ready().await;
    let first = kit.claim_one(1).await;
    let args = RenewLeases { holder: "t".into(), leases: vec![first.lease] };
    let call = std::pin::pin!(kit.renew(2, args));
    begin(call).await;
    kit.disconnected(2);
    kit.tick().await;
    assert_eq!(kit.claim_one(3).await.attempt, 2);
}

/// A turn runs for an hour, without the time that it waits for decisions. A holder that renews its lease keeps it meanwhile.
#[tokio::test]
async fn hours_of_waiting_for_a_decision_do_not_end_a_turn() {
    const MINUTES: i64 = 2 * LEASE_MS;
    let kit = ready().await;
    let claim = kit.claim_one(1).await;
    let pass = async |minutes: i64| {
        for _ in 0..minutes * 2 {
            kit.turn_clock(MINUTES / 2 - 1).await;
            assert!(renew(&kit, 1, &claim.lease).await, "the lease was lost");
            kit.turn_clock(1).await;
        }
    };
    let step = async |index, what: &str| {
        let event = event("s1", index, &format!("approval_{what}"), serde_json::json!({"requestId": "a"}));
        kit.add_events(&claim.lease, index, vec![event]).await.unwrap();
    };
    pass(30).await;
    step(0, "requested").await;
    pass(180).await;
    assert_eq!(kit.state("s1").await, State::Waiting);
    assert!(kit.claims(2, 1).await.claims.is_empty(), "another holder got it");
    step(1, "decided").await;
    pass(29).await;
    assert_eq!(kit.state("s1").await, State::Running);
    // The hour ends a minute later, and half a minute after that its holder loses it.
    kit.turn_clock(MINUTES / 2 - 1).await;
    assert!(renew(&kit, 1, &claim.lease).await);
    kit.turn_clock(MINUTES / 2 - 1).await;
    assert!(renew(&kit, 1, &claim.lease).await);
    kit.turn_clock(MINUTES / 2 + 2).await;
    let last = kit.claim_one(2).await;
    assert_eq!((last.attempt, last.verdict), (2, Some(EndReason::Timeout)));
}

/// The same while nobody holds it, and over a restart of the store.
#[tokio::test]
async fn hours_of_waiting_without_a_holder_do_not_end_a_turn() {
    let mut kit = ready().await;
    let claim = kit.claim_one(1).await;
    let requested = event("s1", 0, "approval_requested", serde_json::json!({"requestId": "a"}));
    kit.add_events(&claim.lease, 0, vec![requested]).await.unwrap();
    kit.disconnected(1);
    kit.turn_clock(3 * SUBMISSION_MS).await;
    kit.restart();
    kit.turn_clock(3 * SUBMISSION_MS).await;
    let next = kit.claim_one(2).await;
    assert_eq!((next.verdict, next.time_left_ms), (None, SUBMISSION_MS));
    assert_eq!(kit.state("s1").await, State::Waiting);
}
