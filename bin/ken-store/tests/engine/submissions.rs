//! The queue of an instance, its policies, and aborting.

use ken_types::event::Outcome;
use ken_types::id::SessionId;
use ken_types::limits::WAITING_PROMPTS;
use ken_types::ops::store::*;
use ken_types::{Code, Offset};

use crate::kit::*;

async fn ready() -> Kit {
    let kit = Kit::new();
    kit.session("tui-1", "a").await;
    kit
}

fn ids(claims: &Claims) -> Vec<&str> {
    claims.claims.iter().map(|claim| claim.lease.submission_id.as_str()).collect()
}

#[tokio::test]
async fn one_at_a_time_in_order_and_instances_do_not_wait_for_each_other() {
    let kit = ready().await;
    kit.session("tui-2", "a").await;
    for id in ["a1", "a2", "a3"] {
        kit.prompt("tui-1", id).await;
    }
    kit.prompt("tui-2", "b1").await;
    let first = kit.claims(1, 8).await;
    assert_eq!(ids(&first), ["a1", "b1"]);
    assert!(kit.claims(1, 8).await.claims.is_empty());
    for (number, id) in [(0, "a2"), (1, "a3")] {
        let lease =
            if number == 0 { first.claims[0].lease.clone() } else { Lease { submission_id: sub("a2"), number: 1 } };
        kit.finish(&lease, 0, "done").await.unwrap();
        assert_eq!(ids(&kit.claims(1, 8).await), [id]);
    }
    assert_eq!(kit.state("a1").await, State::Completed);
    assert_eq!(kit.state("a3").await, State::Running);
}

#[tokio::test]
async fn a_claim_waits_for_work_and_gets_it_with_the_commit_that_makes_it() {
    let kit = ready().await;
    let ask = ClaimSubmissions { work: Work::Turns, holder: "t".into(), max: 4, wait_ms: 60_000 };
    let (claims, _) = tokio::join!(kit.claim(1, ask), kit.prompt("tui-1", "s1"));
    let claim = &claims.unwrap().claims[0];
    assert_eq!((claim.attempt, claim.lease.number, claim.next_event_index), (1, 1, 0));
    assert_eq!((claim.text.as_str(), claim.instance.as_str()), ("question s1", "tui-1"));
    assert_eq!(claim.scope, Some(scope("a")));
    assert_eq!(claim.time_left_ms, 3_600_000);
    assert!(claim.verdict.is_none() && claim.last_timestamp.is_none());
}

#[tokio::test]
async fn a_claim_that_is_given_up_holds_nothing() {
    let kit = ready().await;
    let ask = |wait_ms| ClaimSubmissions { work: Work::Turns, holder: "t".into(), max: 4, wait_ms };
    // This call is dropped while it waits.
    let gone = tokio::time::timeout(std::time::Duration::from_millis(20), kit.claim(1, ask(60_000))).await;
    assert!(gone.is_err());
    kit.prompt("tui-1", "s1").await;
    assert_eq!(ids(&kit.claims(2, 4).await), ["s1"]);
}

#[tokio::test]
async fn reject_refuses_while_something_runs_or_waits() {
    let kit = ready().await;
    let kit = &kit;
    let refused = |id| async move {
        let accepted = kit.prompt_with("tui-1", id, "x", Policy::Reject).await;
        accepted.refused.map(|error| error.code)
    };
    assert_eq!(refused("s1").await, None);
    assert_eq!(refused("s2").await, Some(Code::Conflict));
    let claim = kit.claim_one(1).await;
    assert_eq!(refused("s3").await, Some(Code::Conflict));
    kit.finish(&claim.lease, 0, "done").await.unwrap();
    assert_eq!(refused("s4").await, None);
}

#[tokio::test]
async fn the_queue_of_an_instance_is_bounded() {
    let kit = ready().await;
    kit.prompt("tui-1", "running").await;
    kit.claim_one(1).await;
    for number in 0..WAITING_PROMPTS {
        kit.prompt("tui-1", &format!("q{number}")).await;
    }
    let accepted = kit.prompt_with("tui-1", "over", "x", Policy::Queue).await;
    let error = accepted.refused.unwrap();
    assert_eq!(error.code, Code::Busy);
    assert!(error.retry_after_ms.is_some());
}

#[tokio::test]
async fn interrupt_aborts_the_running_one_and_runs_next() {
    let kit = ready().await;
    for id in ["s1", "s2", "s3"] {
        kit.prompt("tui-1", id).await;
    }
    let first = kit.claim_one(1).await;
    let aborts = kit.claim(1, ClaimSubmissions { work: Work::Turns, holder: "t".into(), max: 0, wait_ms: 60_000 });
    let (told, _) = tokio::join!(aborts, kit.prompt_with("tui-1", "now", "x", Policy::Interrupt));
    assert_eq!(told.unwrap().aborts, std::slice::from_ref(&first.lease));
    // The request to abort is sent once.
    assert!(kit.claims(1, 0).await.aborts.is_empty());
    kit.write::<SubmissionsSettle>(Kit::settle_of(&first.lease, 0, Outcome::Aborted, "half")).await.unwrap();
    let mut order = Vec::new();
    for _ in 0..3 {
        let claim = kit.claim_one(1).await;
        order.push(claim.lease.submission_id.0.clone());
        kit.finish(&claim.lease, 0, "done").await.unwrap();
    }
    assert_eq!(order, ["now", "s2", "s3"]);
    let standing = kit.status("s1").await;
    assert_eq!((standing.state, standing.result.unwrap().text.as_str()), (State::Aborted, "half"));
}

#[tokio::test]
async fn interrupt_goes_before_what_waits_unclaimed() {
    let kit = ready().await;
    kit.prompt("tui-1", "s1").await;
    kit.prompt_with("tui-1", "now", "x", Policy::Interrupt).await;
    assert_eq!(ids(&kit.claims(1, 8).await), ["now"]);
}

#[tokio::test]
async fn abort_ends_what_waits_by_itself_and_asks_the_holder_for_the_rest() {
    let kit = ready().await;
    for id in ["s1", "s2", "s3"] {
        kit.prompt("tui-1", id).await;
    }
    let running = kit.claim_one(1).await;
    let instance = OfInstance { instance: "tui-1".into() };
    let aborted = kit.write::<SubmissionsAbort>(instance.clone()).await.unwrap();
    assert_eq!(aborted.submission_ids, [sub("s1"), sub("s2"), sub("s3")]);
    assert_eq!(kit.state("s2").await, State::Aborted);
    assert_eq!(kit.state("s1").await, State::Running);
    assert_eq!(kit.claims(1, 8).await.aborts, std::slice::from_ref(&running.lease));
    let log = kit.log("tui-1").await;
    assert_eq!(log.len(), 4);
    for (events, id) in log.chunks(2).zip(["s2", "s3"]) {
        for (index, (event, kind)) in events.iter().zip(["idle", "submission_settled"]).enumerate() {
            assert_eq!((event["type"].as_str(), event["submissionId"].as_str()), (Some(kind), Some(id)));
            assert_eq!(
                (event["eventIndex"].as_u64(), event["instanceId"].as_str()),
                (Some(index as u64), Some("tui-1"))
            );
        }
        assert_eq!(events[1]["outcome"], "aborted");
    }
    kit.write::<SubmissionsSettle>(Kit::settle_of(&running.lease, 0, Outcome::Aborted, "")).await.unwrap();
    assert!(kit.write::<SubmissionsAbort>(instance).await.unwrap().submission_ids.is_empty());
    let nobody = OfInstance { instance: "none".into() };
    assert!(kit.write::<SubmissionsAbort>(nobody).await.unwrap().submission_ids.is_empty());
}

#[tokio::test]
async fn cancel_stops_the_running_or_the_named_one() {
    let kit = ready().await;
    let cancel = |actor: &str, named: Option<&str>| {
        let args = CancelSession { scope: scope(actor), id: SessionId("tui-1".into()), submission_id: named.map(sub) };
        async { kit.write::<SessionsCancel>(args).await.map(|cancelled| cancelled.submission_id) }
    };
    assert_eq!(cancel("a", None).await, Ok(None));
    assert_eq!(cancel("b", None).await.unwrap_err().code, Code::Forbidden);
    for id in ["s1", "s2", "s3"] {
        kit.prompt("tui-1", id).await;
    }
    let running = kit.claim_one(1).await;
    assert_eq!(cancel("a", Some("s3")).await, Ok(Some(sub("s3"))));
    assert_eq!(kit.state("s3").await, State::Aborted);
    assert!(kit.claims(1, 8).await.claims.is_empty(), "the end of one that waited lets no other run beside the first");
    assert_eq!(cancel("a", Some("s3")).await, Ok(None));
    assert_eq!(cancel("a", Some("elsewhere")).await, Ok(None));
    assert_eq!(cancel("a", None).await, Ok(Some(sub("s1"))));
    assert_eq!(kit.claims(1, 0).await.aborts, std::slice::from_ref(&running.lease));
    kit.write::<SubmissionsSettle>(Kit::settle_of(&running.lease, 0, Outcome::Aborted, "half")).await.unwrap();
    assert_eq!(ids(&kit.claims(1, 8).await), ["s2"]);
}

#[tokio::test]
async fn admit_prompts_an_instance_or_the_session_of_that_id() {
    let kit = ready().await;
    let admit = |instance: &str, id: &str, policy| Admit {
        images: vec![Image { kind: "image".into(), data: "AA==".into(), mime_type: "image/png".into() }],
        policy,
        ..admit_of(instance, id)
    };
    let first = kit.write::<SubmissionsAdmit>(admit("raw/ä", "r1", Policy::Queue)).await.unwrap();
    let expected = Admission { submission_id: sub("r1"), offset: Offset::Start };
    assert_eq!(first, Admitted::Accepted(expected));
    assert_eq!(kit.write::<SubmissionsAdmit>(admit("raw/ä", "r1", Policy::Queue)).await.unwrap(), first);
    let refused = kit.write::<SubmissionsAdmit>(admit("raw/ä", "r2", Policy::Reject)).await.unwrap();
    assert!(matches!(&refused, Admitted::Refused { refused } if refused.code == Code::Conflict));
    kit.write::<SubmissionsAdmit>(admit("tui-1", "r3", Policy::Queue)).await.unwrap();
    let claims = kit.claims(1, 8).await.claims;
    assert_eq!(claims.len(), 2);
    assert_eq!((&claims[0].scope, claims[0].images.len()), (&None, 1));
    assert_eq!(claims[1].scope, Some(scope("a")));
    // The same prompt arrives over another connection when nothing is running. It is refused again, because its caller already has that
    // answer.
    kit.finish(&claims[0].lease, 0, "done").await.unwrap();
    assert_eq!(kit.write::<SubmissionsAdmit>(admit("raw/ä", "r2", Policy::Reject)).await.unwrap(), refused);
    assert!(kit.claims(1, 8).await.claims.is_empty());
    for bad in ["", "a\tb", &"x".repeat(1_025)] {
        assert_eq!(
            kit.write::<SubmissionsAdmit>(admit(bad, "r4", Policy::Queue)).await.unwrap_err().code,
            Code::Invalid
        );
    }
    // A refused prompt creates no stream.
    let error = kit.write::<SubmissionsAdmit>(admit("x\n", "r5", Policy::Queue)).await.unwrap_err();
    assert_eq!(error.code, Code::Invalid);
    assert_eq!(kit.page("x\n", Offset::Start).await.unwrap_err().code, Code::NotFound);
}

#[tokio::test]
async fn the_offset_of_an_admission_is_the_end_before_it() {
    let kit = ready().await;
    assert_eq!(kit.prompt("tui-1", "s1").await.offset, Offset::Start);
    let claim = kit.claim_one(1).await;
    kit.add_events(&claim.lease, 0, deltas("s1", 0, 3)).await.unwrap();
    assert_eq!(kit.prompt("tui-1", "s2").await.offset, Offset::After(3));
    let end = kit.finish(&claim.lease, 3, "done").await.unwrap().offset;
    assert_eq!(end, Offset::After(5));
    let next = kit.claim_one(1).await;
    assert_eq!(next.recorded_from, Offset::After(5));
    assert_eq!(next.last_timestamp, Some(at(START)));
}

#[tokio::test]
async fn waiting_for_a_submission_ends_with_it_or_with_the_time() {
    let kit = ready().await;
    kit.prompt("tui-1", "s1").await;
    let wait = |wait_ms, or_waiting| WaitSubmission { submission_id: sub("s1"), wait_ms, or_waiting };
    assert_eq!(kit.wait(wait(10, false)).await.unwrap().state, State::Queued);
    let claim = kit.claim_one(1).await;
    let request = event("s1", 0, "approval_requested", serde_json::json!({"requestId": "apr_1"}));
    let (standing, _) = tokio::join!(kit.wait(wait(60_000, true)), kit.add_events(&claim.lease, 0, vec![request]));
    let standing = standing.unwrap();
    assert_eq!((standing.state, standing.approvals), (State::Waiting, vec!["apr_1".to_owned()]));
    // Time spent waiting for a decision does not count.
    kit.clock.advance(7_200_000);
    let decided = event("s1", 1, "approval_decided", serde_json::json!({"requestId": "apr_1", "status": "approved"}));
    kit.add_events(&claim.lease, 1, vec![decided]).await.unwrap();
    assert_eq!(kit.state("s1").await, State::Running);
    let (standing, _) = tokio::join!(kit.wait(wait(60_000, false)), kit.finish(&claim.lease, 2, "done"));
    assert_eq!(standing.unwrap().result, Some(result("done")));
    assert_eq!(kit.wait(wait(60_000, false)).await.unwrap().state, State::Completed);
    // The first call comes after the end, or after the time.
    for (id, ends) in [("s2", true), ("s3", false)] {
        kit.prompt("tui-1", id).await;
        let claim = kit.claim_one(1).await;
        if ends {
            kit.finish(&claim.lease, 0, "done").await.unwrap();
        }
        for wait_ms in [0, 10, 0] {
            let wait = WaitSubmission { submission_id: sub(id), ..wait(wait_ms, false) };
            assert_eq!(kit.wait(wait).await.unwrap().state == State::Completed, ends, "{id}");
        }
    }
    let unknown = WaitSubmission { submission_id: sub("none"), ..wait(0, false) };
    assert_eq!(kit.wait(unknown).await.unwrap_err().code, Code::NotFound);
}

#[tokio::test]
async fn history_is_what_was_settled_and_a_compaction_stands_for_it() {
    let kit = ready().await;
    let history = |before: &str, limit| ReadHistory {
        instance: "tui-1".into(),
        before: sub(before),
        limit,
        after: None,
        search: None,
    };
    for (id, answer) in [("s1", "one"), ("s2", "two"), ("s3", "three")] {
        kit.talk("tui-1", id, &format!("ask {id}"), answer).await;
    }
    let found = kit.read::<SubmissionsHistory>(history("next", 2)).await.unwrap();
    let pairs: Vec<_> = found.exchanges.iter().map(|past| (past.prompt.as_str(), past.answer.as_str())).collect();
    assert_eq!(pairs, [("ask s2", "two"), ("ask s3", "three")]);
    assert_eq!((found.turns, found.compactions, found.summary), (3, 0, None));
    assert_eq!(kit.read::<SubmissionsHistory>(history("s2", 50)).await.unwrap().exchanges.len(), 1);
    let after = |id: &str| ReadHistory { after: Some(sub(id)), ..history("next", 50) };
    let of = |found: History| {
        let prompts = found.exchanges.into_iter().map(|past| past.prompt);
        (prompts.collect::<Vec<_>>(), found.continues)
    };
    let rest = kit.read::<SubmissionsHistory>(after("s1")).await.unwrap();
    assert_eq!(of(rest), (vec!["ask s2".into(), "ask s3".into()], true));
    let unknown = kit.read::<SubmissionsHistory>(after("other")).await.unwrap();
    assert_eq!((of(unknown).0.len(), found.continues), (3, false));
    let action = Action::Compact { submission_id: sub("c1") };
    let accept = kit.accept_of("a", "/compact", Target::Selector("tui-1".into()), action);
    kit.write::<ChatAccept>(accept).await.unwrap();
    let claim = kit.claim_one(1).await;
    assert_eq!(claim.kind, SubmissionKind::Compact);
    let settle = SettleSubmission {
        summary: Some("one, two and three".into()),
        ..Kit::settle_of(&claim.lease, 0, Outcome::Completed, "compacted")
    };
    kit.write::<SubmissionsSettle>(settle).await.unwrap();
    kit.talk("tui-1", "s4", "ask s4", "four").await;
    let found = kit.read::<SubmissionsHistory>(history("next", 50)).await.unwrap();
    assert_eq!(found.summary.as_deref(), Some("one, two and three"));
    assert_eq!((found.exchanges.len(), found.turns, found.compactions), (1, 4, 1));
    // The summary covers the turns up to the one that the caller names.
    let anew = kit.read::<SubmissionsHistory>(after("s3")).await.unwrap();
    assert_eq!(of(anew), (vec!["ask s4".into()], false));
    let nobody = ReadHistory { instance: "none".into(), ..history("x", 5) };
    assert_eq!(kit.read::<SubmissionsHistory>(nobody).await.unwrap().turns, 0);
}

#[tokio::test]
async fn the_time_of_overlapping_approvals_is_left_out_once() {
    let kit = ready().await;
    kit.prompt("tui-1", "s1").await;
    let claim = kit.claim_one(1).await;
    let steps = [("requested", "a"), ("requested", "b"), ("decided", "a"), ("decided", "b")];
    for (index, (what, request)) in (0..).zip(steps) {
        let kind = format!("approval_{what}");
        let event = event("s1", index, &kind, serde_json::json!({"requestId": request}));
        kit.add_events(&claim.lease, index, vec![event]).await.unwrap();
        let waits = kit.state("s1").await == State::Waiting;
        assert_eq!(waits, index < 3, "{index}");
        kit.clock.advance(1_000_000);
    }
    kit.disconnected(1);
    let next = kit.claim_one(2).await;
    assert_eq!(next.time_left_ms, 2_600_000);
}

#[tokio::test]
async fn a_submission_id_cannot_be_used_for_another_event() {
    let kit = ready().await;
    kit.prompt("tui-1", "s1").await;
    let other = kit.accept_of("a", "other", Target::Selector("tui-1".into()), queued("s1"));
    assert_eq!(kit.write::<ChatAccept>(other).await.unwrap_err().code, Code::Conflict);
    assert_eq!(kit.claims(1, 8).await.claims.len(), 1);
}

#[tokio::test]
async fn a_history_has_no_gaps_whatever_is_known_and_however_little_is_asked_for() {
    const TURNS: usize = 7;
    let kit = ready().await;
    for number in 0..TURNS {
        kit.talk("tui-1", &format!("s{number}"), &number.to_string(), "a").await;
    }
    for known in std::iter::once(None).chain((0..TURNS).map(Some)) {
        for before in 0..=TURNS {
            for limit in 1..=TURNS + 1 {
                let args = ReadHistory {
                    instance: "tui-1".into(),
                    before: sub(&format!("s{before}")),
                    limit: u32::try_from(limit).unwrap(),
                    after: known.map(|known| sub(&format!("s{known}"))),
                    search: None,
                };
                let found = kit.read::<SubmissionsHistory>(args).await.unwrap();
                let found: Vec<usize> = found.exchanges.iter().map(|past| past.prompt.parse().unwrap()).collect();
                let first = known.map_or(0, |known| known + 1).max(before.saturating_sub(limit));
                assert_eq!(found, (first..before).collect::<Vec<_>>(), "{known:?} {before} {limit}");
            }
        }
    }
}
