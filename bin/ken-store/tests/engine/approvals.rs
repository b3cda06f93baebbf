//! Approvals: there is one request for a call, it is decided once, its grant is used once, and it ends with its turn.

use ken_types::event::Event;
use ken_types::ops::Nothing;
use ken_types::ops::approvals::*;
use ken_types::ops::blobs::*;
use ken_types::ops::store::*;
use ken_types::ops::tools::{Need, Preview, Risk, Whole};
use ken_types::{Code, Error, Octets};
use serde_json::json;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use crate::kit::*;

const HOUR_MS: i64 = 3_600_000;

fn mark(letter: char) -> String {
    letter.to_string().repeat(64)
}

/// Returns a request about a call of submission `s1`.
fn put(id: &str, call: &str, letter: char) -> PutApproval {
    PutApproval {
        id: format!("apr_{id}"),
        submission_id: sub("s1"),
        call_id: call.into(),
        tool_call_id: call.into(),
        task_id: None,
        requested_by: "coding-worker".into(),
        preview: Preview {
            approval: Need::Ask,
            action_type: "file.edit".into(),
            summary: "Edit a file".into(),
            reason: None,
            risk: Risk::Low,
            target: "repos/site".into(),
            action: json!({"argv": ["edit"]}),
            diff: Some("-a\n+b\n".into()),
            whole: None,
            fingerprint: mark(letter),
            trusted: false,
        },
        tool: "edit".into(),
        expires_in_ms: HOUR_MS,
        refusal: None,
        turn: None,
    }
}

fn decide(id: &str, approved: bool, scope: GrantScope) -> DecideApproval {
    DecideApproval {
        id: format!("apr_{id}"),
        approved,
        decided_by: "ada".into(),
        reason: None,
        scope,
        digest: None,
        decided_as: None,
        key: None,
    }
}

fn consume(id: &str, letter: char, key: &str) -> ConsumeApproval {
    ConsumeApproval {
        request_id: format!("apr_{id}"),
        fingerprint: mark(letter),
        session: "tui-1".into(),
        key: key.into(),
        again: false,
    }
}

/// Returns a store with a session in which `s1` runs.
async fn running() -> (Kit, Claim) {
    let kit = Kit::new();
    kit.session("tui-1", "a").await;
    kit.prompt("tui-1", "s1").await;
    let claim = kit.claim_one(1).await;
    (kit, claim)
}

async fn ask(kit: &Kit, args: PutApproval) -> Approval {
    kit.write::<ApprovalsPut>(args).await.unwrap()
}

async fn get(kit: &Kit, id: &str) -> Approval {
    let id = format!("apr_{id}");
    kit.approval(GetApproval { id, wait_ms: 0 }).await.unwrap()
}

async fn pending(kit: &Kit) -> Vec<String> {
    let list = kit.pending_approvals(ListApprovals::default()).await.unwrap();
    list.approvals.into_iter().map(|approval| approval.request_id).collect()
}

fn conflict<T: std::fmt::Debug>(result: Result<T, Error>) -> String {
    let error = result.unwrap_err();
    assert_eq!(error.code, Code::Conflict, "{error:?}");
    error.message
}

#[tokio::test]
async fn a_request_is_kept_and_a_repeat_finds_it() {
    let (mut kit, _) = running().await;
    let first = ask(&kit, put("1", "c1", 'a')).await;
    assert_eq!((first.status, first.actor_id.as_str(), first.connector.as_str()), (Status::Pending, "a", "tui"));
    assert_eq!(first.request.metadata["diff"], "-a\n+b\n");
    assert_eq!(first.request.task_id, "s1");
    kit.restart();
    assert_eq!(ask(&kit, put("2", "c1", 'a')).await, first);
    assert_eq!(ask(&kit, put("3", "c2", 'a')).await.request_id, "apr_3");
    assert_eq!(pending(&kit).await, ["apr_1", "apr_3"]);
    let of_submission = OfSubmission { submission_id: sub("s1") };
    assert_eq!(kit.read::<ApprovalsOf>(of_submission).await.unwrap().calls.len(), 2);
    // A call of a worker with the same id is another call.
    let of_worker = PutApproval { task_id: Some("t".into()), ..put("4", "c1", 'a') };
    assert_eq!(ask(&kit, of_worker).await.request.task_id, "t");
}

/// Returns a request with the start of its call, which has the index 0.
fn put_in_turn(id: &str, call: &str, claim: &Claim, events: Vec<Box<RawValue>>) -> PutApproval {
    let event: Event = serde_json::from_str(deltas("s1", events.len() as u64, 1)[0].get()).unwrap();
    let append = AppendEvents { lease: claim.lease.clone(), first_index: 0, events };
    PutApproval { turn: Some(TurnOfRequest { append, place: event.place, worker: None }), ..put(id, call, 'a') }
}

/// The request, the start of its call and the event that reports it are one change, which a repetition does not make again.
#[tokio::test]
async fn a_request_is_stored_with_the_events_of_its_turn() {
    let (kit, claim) = running().await;
    let start = || vec![event("s1", 0, "tool_start", json!({"toolName": "edit", "toolCallId": "c1", "args": {}}))];
    let first = ask(&kit, put_in_turn("1", "c1", &claim, start())).await;
    let recorded = kit.log("tui-1").await;
    assert_eq!((recorded.len(), &recorded[0]["type"]), (2, &json!("tool_start")));
    assert_eq!((&recorded[1]["requestId"], &recorded[1]["eventIndex"]), (&json!("apr_1"), &json!(1)));
    assert_eq!(kit.state("s1").await, State::Waiting);
    // The reply was lost; what the call would do has changed meanwhile.
    let again = PutApproval { preview: put("1", "c1", 'b').preview, ..put_in_turn("1", "c1", &claim, start()) };
    assert_eq!(ask(&kit, again).await, first);
    assert_eq!(kit.log("tui-1").await.len(), 2);
    // The next event of the holder has the next index.
    kit.add_events(&claim.lease, 2, deltas("s1", 2, 1)).await.unwrap();
    assert_eq!(kit.log("tui-1").await.len(), 3);
}

/// A refused request leaves the events to their holder, and one that is decided at once is not reported.
#[tokio::test]
async fn the_events_of_a_turn_are_stored_exactly_if_its_request_is() {
    let (kit, claim) = running().await;
    let events = || deltas("s1", 0, 1);
    let lost = Lease { number: claim.lease.number + 1, ..claim.lease.clone() };
    let of = |lease: &Lease| put_in_turn("1", "c1", &Claim { lease: lease.clone(), ..claim.clone() }, events());
    let error = kit.write::<ApprovalsPut>(of(&lost)).await.unwrap_err();
    assert_eq!((error.code, error.at.as_deref()), (Code::Conflict, Some("/lease")));
    let mut long = of(&claim.lease);
    long.preview.whole = Some(Whole { digest: mark('0'), bytes: 1 });
    kit.write::<ApprovalsPut>(long).await.unwrap_err();
    let of_another = PutApproval { submission_id: sub("s2"), ..of(&claim.lease) };
    assert_eq!(kit.write::<ApprovalsPut>(of_another).await.unwrap_err().code, Code::Invalid);
    assert_eq!((kit.log("tui-1").await.len(), pending(&kit).await.len()), (0, 0));
    let refused = PutApproval { refusal: Some("Not at night.".into()), ..of(&claim.lease) };
    assert_eq!(ask(&kit, refused).await.status, Status::Denied);
    assert_eq!(kit.log("tui-1").await.len(), 1);
    assert_eq!(kit.state("s1").await, State::Running);
}

#[tokio::test]
async fn what_changed_meanwhile_is_asked_anew() {
    let (kit, _) = running().await;
    ask(&kit, put("1", "c1", 'a')).await;
    assert_eq!(ask(&kit, put("2", "c1", 'b')).await.request_id, "apr_2");
    assert_eq!(get(&kit, "1").await.status, Status::Cancelled);
    assert_eq!(pending(&kit).await, ["apr_2"]);
}

/// The call was approved, and would do something else when it was about to run.
#[tokio::test]
async fn what_was_approved_and_has_changed_is_asked_anew_and_says_so() {
    let (kit, _) = running().await;
    ask(&kit, put("1", "c1", 'a')).await;
    kit.write::<ApprovalsDecide>(decide("1", true, GrantScope::Session)).await.unwrap();
    let again = ask(&kit, put("2", "c1", 'b')).await;
    assert_eq!((again.request_id.as_str(), again.status), ("apr_2", Status::Pending));
    assert!(again.request.reason.starts_with("what was approved has changed"), "{}", again.request.reason);
    assert_eq!(get(&kit, "1").await.status, Status::Approved);
    // Another call was never approved, also if somebody was asked about it before.
    for (id, letter) in [("3", 'c'), ("4", 'd')] {
        assert_eq!(ask(&kit, put(id, "c2", letter)).await.request.reason, "");
    }
    assert_eq!(get(&kit, "3").await.status, Status::Cancelled);
}

/// Of the earlier requests, the one that decides need not be the newest.
#[tokio::test]
async fn the_second_of_the_earlier_requests_counts() {
    let asked = async |kit: &Kit, id: &str, call: &str, letter, approved: Option<bool>| {
        let found = ask(kit, put(id, call, letter)).await;
        if let Some(approved) = approved {
            kit.write::<ApprovalsDecide>(decide(id, approved, GrantScope::Once)).await.unwrap();
        }
        (found.request_id, found.status)
    };
    // A grant that was used, before a denial of the same for another call.
    let (kit, _) = running().await;
    asked(&kit, "1", "c1", 'a', Some(true)).await;
    kit.write::<ApprovalsConsume>(consume("1", 'a', "k")).await.unwrap();
    asked(&kit, "2", "c2", 'b', Some(false)).await;
    assert_eq!(asked(&kit, "3", "c1", 'b', None).await, ("apr_1".into(), Status::Approved));
    // A denial of the same for another call, before a request for this call.
    let (kit, _) = running().await;
    asked(&kit, "1", "c2", 'b', Some(false)).await;
    asked(&kit, "2", "c1", 'a', None).await;
    assert_eq!(asked(&kit, "3", "c1", 'b', None).await, ("apr_1".into(), Status::Denied));
    // The same for this call, before a request for it that differs.
    let (kit, _) = running().await;
    asked(&kit, "1", "c1", 'a', Some(true)).await;
    asked(&kit, "2", "c1", 'b', None).await;
    assert_eq!(asked(&kit, "3", "c1", 'a', None).await, ("apr_1".into(), Status::Approved));
    // And the reason of a third one for it names the first, which was approved.
    let third = ask(&kit, put("3", "c1", 'c')).await;
    assert!(third.request.reason.starts_with("what was approved has changed"), "{}", third.request.reason);
}

/// The request holds the beginning of a diff. Its blob is kept as long as the request, and its digest is the sign that all of
/// it was read.
#[tokio::test]
async fn a_long_diff_is_approved_by_its_digest_once() {
    let (kit, claim) = running().await;
    let bytes = b"+a long diff\n";
    let digest: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    let whole = Whole { digest: digest.clone(), bytes: bytes.len() as u64 };
    let long = |id: &str, call: &str| {
        let args = put(id, call, 'a');
        let preview = Preview { diff: Some("+a".into()), whole: Some(whole.clone()), ..args.preview };
        PutApproval { preview, ..args }
    };
    let missing = kit.write::<ApprovalsPut>(long("0", "c1")).await.unwrap_err();
    assert_eq!((missing.code, missing.at.as_deref()), (Code::NotFound, Some("/preview/whole/digest")));
    let piece = PutBlob { digest: digest.clone(), length: whole.bytes, offset: 0, bytes: Octets(bytes.to_vec()) };
    kit.write::<BlobsPut>(piece).await.unwrap();
    let request = ask(&kit, long("1", "c1")).await.request;
    assert_eq!((request.whole(), &request.metadata["diff"]), (Some(whole.clone()), &json!("+a")));
    let with =
        |digest: Option<&str>, scope| DecideApproval { digest: digest.map(Into::into), ..decide("1", true, scope) };
    let mark = mark('f');
    for (args, at) in [
        (with(None, GrantScope::Once), "/digest"),
        (with(Some(&mark), GrantScope::Once), "/digest"),
        (with(Some(&digest), GrantScope::Session), "/scope"),
    ] {
        let error = kit.write::<ApprovalsDecide>(args).await.unwrap_err();
        assert_eq!((error.code, error.at.as_deref()), (Code::Invalid, Some(at)), "{error:?}");
    }
    kit.write::<ApprovalsDecide>(with(Some(&digest), GrantScope::Once)).await.unwrap();
    // To deny it, nobody has to read all of it.
    ask(&kit, long("2", "c2")).await;
    assert!(!kit.write::<ApprovalsDecide>(decide("2", false, GrantScope::Once)).await.unwrap().approved);
    // No event names the blob.
    let diff = |id: &str| kit.read::<ApprovalsDiff>(GetDiff { id: format!("apr_{id}"), offset: 1, limit: 6 });
    for days in [2, 91] {
        kit.turn_clock(days * 24 * HOUR_MS).await;
        kit.turn_clock(600_000).await;
        assert_eq!(diff("1").await.unwrap().bytes.0, b"a long", "after {days} days");
    }
    // The request is deleted 90 days after its end if its turn has ended, and a day later the blob.
    let settle = Kit::settle_of(&claim.lease, 0, ken_types::event::Outcome::Completed, "done");
    kit.write::<SubmissionsSettle>(settle).await.unwrap();
    for _ in 0..4 {
        kit.turn_clock(24 * HOUR_MS).await;
    }
    assert_eq!(diff("1").await.unwrap_err().code, Code::NotFound);
    let gone = kit.read::<BlobsGet>(GetBlob { digest, offset: 0, limit: 9 }).await;
    assert_eq!(gone.unwrap_err().code, Code::NotFound);
}

/// A denial needs no digest, and the diff of a short request is returned too.
#[tokio::test]
async fn a_short_diff_is_returned_as_well() {
    let (kit, _) = running().await;
    ask(&kit, put("1", "c1", 'a')).await;
    let args = put("2", "c2", 'b');
    let preview = Preview { diff: None, ..args.preview };
    ask(&kit, PutApproval { preview, ..args }).await;
    let diff = |id: &str, offset| kit.read::<ApprovalsDiff>(GetDiff { id: format!("apr_{id}"), offset, limit: 4 });
    let piece = diff("1", 3).await.unwrap();
    assert_eq!((piece.length, piece.bytes.0), (6, b"+b\n".to_vec()));
    assert!(diff("1", 99).await.unwrap().bytes.0.is_empty());
    assert_eq!(diff("2", 0).await.unwrap_err().code, Code::NotFound);
    assert_eq!(diff("9", 0).await.unwrap_err().code, Code::NotFound);
}

#[tokio::test]
async fn one_decision_counts() {
    let (kit, _) = running().await;
    ask(&kit, put("1", "c1", 'a')).await;
    let (yes, no) = (decide("1", true, GrantScope::Once), decide("1", false, GrantScope::Once));
    let (first, second) = tokio::join!(kit.write::<ApprovalsDecide>(yes.clone()), kit.write::<ApprovalsDecide>(no));
    assert!(first.unwrap().approved);
    assert_eq!(conflict(second), "the request is approved");
    assert_eq!(conflict(kit.write::<ApprovalsDecide>(yes).await), "the request is approved");
    assert_eq!(get(&kit, "1").await.decision.unwrap().decided_by, "ada");
    let unknown = kit.write::<ApprovalsDecide>(decide("9", true, GrantScope::Once)).await;
    assert_eq!(unknown.unwrap_err().code, Code::NotFound);
    // A caller that did not get the answer repeats the call with the same key.
    ask(&kit, put("2", "c2", 'b')).await;
    let keyed = DecideApproval { key: Some("k".into()), ..decide("2", false, GrantScope::Once) };
    let first = kit.write::<ApprovalsDecide>(keyed.clone()).await.unwrap();
    assert_eq!(kit.write::<ApprovalsDecide>(keyed.clone()).await.unwrap(), first);
    // Another caller has another key, and is not told that it has decided.
    let other = DecideApproval { key: Some("l".into()), ..keyed };
    assert_eq!(conflict(kit.write::<ApprovalsDecide>(other).await), "the request is denied");
}

/// A request ends with its turn, and so does a grant that was not used.
#[tokio::test]
async fn after_its_turn_nothing_is_asked_and_nothing_is_granted() {
    let (kit, claim) = running().await;
    for (id, call) in [("1", "c1"), ("2", "c2")] {
        ask(&kit, put(id, call, 'a')).await;
    }
    kit.write::<ApprovalsDecide>(decide("1", true, GrantScope::Once)).await.unwrap();
    kit.finish(&claim.lease, 0, "done").await.unwrap();
    let used = kit.write::<ApprovalsConsume>(consume("1", 'a', "k")).await;
    assert_eq!(conflict(used), "the turn of the approval has ended");
    let decided = kit.write::<ApprovalsDecide>(decide("2", true, GrantScope::Once)).await;
    assert_eq!(conflict(decided), "the request is cancelled");
    let asked = kit.write::<ApprovalsPut>(put("3", "c3", 'c')).await;
    assert!(conflict(asked).contains("has ended"));
}

#[tokio::test]
async fn a_grant_is_for_one_call_once() {
    let (kit, _) = running().await;
    ask(&kit, put("1", "c1", 'a')).await;
    let consume_now = |args| kit.write::<ApprovalsConsume>(args);
    assert_eq!(conflict(consume_now(consume("1", 'a', "k")).await), "the approval is pending");
    kit.write::<ApprovalsDecide>(decide("1", true, GrantScope::Once)).await.unwrap();
    assert!(conflict(consume_now(consume("1", 'b', "k")).await).contains("what was approved has changed"));
    let elsewhere = ConsumeApproval { session: "tui-2".into(), ..consume("1", 'a', "k") };
    assert!(conflict(consume_now(elsewhere).await).contains("another session"));
    consume_now(consume("1", 'a', "k")).await.unwrap();
    // First, the same use is repeated, as after a lost connection. Then the grant is used by another call.
    consume_now(consume("1", 'a', "k")).await.unwrap();
    assert_eq!(conflict(consume_now(consume("1", 'a', "l")).await), "the approval was used");
    let again = ConsumeApproval { again: true, ..consume("1", 'a', "l") };
    consume_now(again).await.unwrap();
    // No second request is made for this call, even if it would do something else now.
    let known = ask(&kit, put("2", "c1", 'b')).await;
    assert!(known.request_id == "apr_1" && known.used_at.is_some());
    // A call of a task with the same id is another one.
    let of_task = |task: &str, id: &str| PutApproval { task_id: Some(task.into()), ..put(id, "c1", 'a') };
    for (task, id) in [("t", "4"), ("u", "5")] {
        let other = ask(&kit, of_task(task, id)).await;
        assert_eq!((other.status, other.request_id), (Status::Pending, format!("apr_{id}")));
    }
    let of = OfSubmission { submission_id: sub("s1") };
    let used = kit.read::<ApprovalsOf>(of).await.unwrap().calls.into_iter().map(|call| (call.task_id, call.used));
    let expected = [(None, Some("apr_1".into())), (Some("t".into()), None), (Some("u".into()), None)];
    assert_eq!(used.collect::<Vec<_>>(), expected);
}

#[tokio::test]
async fn what_was_denied_stays_denied_for_the_submission() {
    let (kit, claim) = running().await;
    ask(&kit, put("1", "c1", 'a')).await;
    kit.write::<ApprovalsDecide>(decide("1", false, GrantScope::Once)).await.unwrap();
    let again = ask(&kit, put("2", "c2", 'a')).await;
    assert_eq!((again.request_id.as_str(), again.status), ("apr_1", Status::Denied));
    kit.finish(&claim.lease, 0, "done").await.unwrap();
    kit.prompt("tui-1", "s2").await;
    kit.claim_one(1).await;
    let next = PutApproval { submission_id: sub("s2"), ..put("3", "c1", 'a') };
    assert_eq!(ask(&kit, next).await.status, Status::Pending);
}

#[tokio::test]
async fn a_session_grant_allows_the_same_again_in_its_session() {
    let (kit, _) = running().await;
    ask(&kit, put("1", "c1", 'a')).await;
    kit.write::<ApprovalsDecide>(decide("1", true, GrantScope::Session)).await.unwrap();
    let same = ask(&kit, put("2", "c2", 'a')).await;
    assert_eq!((same.request_id.as_str(), same.status), ("apr_2", Status::Approved));
    assert_eq!(same.decision.unwrap().decided_by, "session grant apr_1");
    kit.write::<ApprovalsConsume>(consume("2", 'a', "k")).await.unwrap();
    assert_eq!(ask(&kit, put("3", "c3", 'b')).await.status, Status::Pending);
    // The grant is not valid in another session.
    kit.session("tui-2", "a").await;
    kit.prompt("tui-2", "s2").await;
    let elsewhere = PutApproval { submission_id: sub("s2"), ..put("4", "c1", 'a') };
    assert_eq!(ask(&kit, elsewhere).await.status, Status::Pending);
}

#[tokio::test]
async fn a_policy_denies_on_the_record() {
    let (kit, _) = running().await;
    let refused = PutApproval { refusal: Some("Nobody is there.".into()), ..put("1", "c1", 'a') };
    let refused = ask(&kit, refused).await;
    let decision = refused.decision.unwrap();
    assert_eq!((refused.status, decision.decided_by.as_str(), decision.approved), (Status::Denied, "policy", false));
    assert!(pending(&kit).await.is_empty());
}

#[tokio::test]
async fn time_ends_a_request_also_before_that_is_recorded() {
    let (kit, _) = running().await;
    ask(&kit, put("1", "c1", 'a')).await;
    let expire = || kit.write::<ApprovalsExpire>(Nothing {});
    let next = expire().await.unwrap();
    assert_eq!((next.expired, next.next.is_some()), (0, true));
    kit.clock.advance(HOUR_MS);
    let late = kit.write::<ApprovalsDecide>(decide("1", true, GrantScope::Once)).await;
    assert_eq!(conflict(late), "the request is expired");
    let waited = GetApproval { id: "apr_1".into(), wait_ms: 60_000 };
    let (record, done) = tokio::join!(kit.approval(waited), expire());
    assert_eq!(record.unwrap().status, Status::Expired);
    assert_eq!(done.unwrap().expired, 1);
    assert_eq!(expire().await.unwrap().next, None);
}

#[tokio::test]
async fn a_turn_takes_its_requests_and_grants_with_it() {
    let (kit, claim) = running().await;
    ask(&kit, put("1", "c1", 'a')).await;
    ask(&kit, put("2", "c2", 'b')).await;
    kit.write::<ApprovalsDecide>(decide("2", true, GrantScope::Once)).await.unwrap();
    let of = OfInstance { instance: "tui-1".into() };
    kit.write::<SubmissionsAbort>(of).await.unwrap();
    let aborting = kit.write::<ApprovalsDecide>(decide("1", true, GrantScope::Once)).await;
    assert_eq!(conflict(aborting), "the request is cancelled");
    assert!(conflict(kit.write::<ApprovalsConsume>(consume("2", 'b', "k")).await).contains("has ended"));
    assert!(conflict(kit.write::<ApprovalsPut>(put("3", "c3", 'c')).await).contains("has ended"));
    let settle = Kit::settle_of(&claim.lease, 0, ken_types::event::Outcome::Aborted, "stopped");
    kit.write::<SubmissionsSettle>(settle).await.unwrap();
    assert_eq!(get(&kit, "1").await.status, Status::Cancelled);
    assert!(conflict(kit.write::<ApprovalsConsume>(consume("2", 'b', "k")).await).contains("has ended"));
    assert!(pending(&kit).await.is_empty());
}

#[tokio::test]
async fn lists_filter_and_wait() {
    let (kit, _) = running().await;
    let list = |fields: serde_json::Value| serde_json::from_value::<ListApprovals>(fields).unwrap();
    let waiting = list(json!({"wait_ms": 60_000}));
    let (found, _) = tokio::join!(kit.pending_approvals(waiting), kit.write::<ApprovalsPut>(put("0", "c0", 'a')));
    let found = found.unwrap();
    assert_eq!(found.approvals.len(), 1);
    for (fields, count) in [
        (json!({"actorId": "a", "connector": "tui", "conversationId": "talk"}), 1),
        (json!({"taskId": "s1"}), 1),
        (json!({"actorId": "b"}), 0),
        (json!({"taskId": "t"}), 0),
    ] {
        let found = kit.pending_approvals(list(fields.clone())).await.unwrap();
        assert_eq!(found.approvals.len(), count, "{fields}");
    }
    let same = list(json!({"wait_ms": 20, "unless": found.tag}));
    assert_eq!(kit.pending_approvals(same).await.unwrap().tag, found.tag);
    let other = list(json!({"wait_ms": 60_000, "unless": found.tag}));
    let (next, _) =
        tokio::join!(kit.pending_approvals(other), kit.write::<ApprovalsDecide>(decide("0", false, GrantScope::Once)));
    assert!(next.unwrap().approvals.is_empty());
}

/// Their size is counted in bytes, of which a character can have several.
#[tokio::test]
async fn lists_fit_a_line() {
    for text in ["x".repeat(200_000), "\u{6c49}".repeat(66_000)] {
        let (kit, _) = running().await;
        for number in 1..=30 {
            let mut long = put(&number.to_string(), &number.to_string(), 'c');
            long.preview.diff = Some(text.clone());
            ask(&kit, long).await;
        }
        let pending = kit.pending_approvals(ListApprovals::default()).await.unwrap().approvals;
        let args = ListAllApprovals { limit: 30, ..ListAllApprovals::default() };
        let newest = kit.read::<ApprovalsList>(args).await.unwrap().approvals;
        for all in [pending, newest] {
            let (first, last) = (&all[0].request, &all[29].request);
            assert!(first.metadata.contains_key("diff") && !last.metadata.contains_key("diff"));
            assert_eq!(last.metadata["cut"], true);
            assert!(serde_json::to_string(&all).unwrap().len() < ken_types::limits::WIRE_LINE_BYTES);
        }
    }
}

#[tokio::test]
async fn what_is_asked_and_what_is_answered_has_limits() {
    let (kit, _) = running().await;
    let invalid = |at| (Code::Invalid, at);
    let within = |expires_in_ms| PutApproval { expires_in_ms, ..put("0", "c0", 'a') };
    let sized = |bytes: usize| {
        let mut args = put("1", "c1", 'a');
        args.preview.diff = Some(String::new());
        let empty = serde_json::to_string(&args.preview).unwrap().len();
        args.preview.diff = Some("x".repeat(bytes - empty));
        args
    };
    for (args, code) in [
        (PutApproval { preview: put("1", "c1", 'A').preview, ..within(1) }, invalid("/preview/fingerprint")),
        (within(0), invalid("/expiresInMs")),
        (within(7 * 24 * HOUR_MS + 1), invalid("/expiresInMs")),
        (sized(REQUEST_BYTES + 1), (Code::TooLarge, "/preview")),
    ] {
        let error = kit.write::<ApprovalsPut>(args).await.unwrap_err();
        assert_eq!((error.code, error.at.as_deref()), (code.0, Some(code.1)), "{error:?}");
    }
    ask(&kit, within(7 * 24 * HOUR_MS)).await;
    ask(&kit, sized(REQUEST_BYTES)).await;
    let decide = |decided_by: usize, reason: usize| {
        let (decided_by, reason) = ("é".repeat(decided_by), Some("é".repeat(reason)));
        kit.write::<ApprovalsDecide>(DecideApproval { decided_by, reason, ..decide("0", true, GrantScope::Once) })
    };
    for (decided_by, reason, at) in [(0, 1, "/decidedBy"), (121, 1, "/decidedBy"), (1, 2_001, "/reason")] {
        let error = decide(decided_by, reason).await.unwrap_err();
        assert_eq!((error.code, error.at.as_deref()), (Code::Invalid, Some(at)), "{error:?}");
    }
    let spoofed = DecideApproval { decided_by: "ada\u{1b}[2J".into(), ..self::decide("0", true, GrantScope::Once) };
    assert_eq!(kit.write::<ApprovalsDecide>(spoofed).await.unwrap_err().at.as_deref(), Some("/decidedBy"));
    decide(120, 2_000).await.unwrap();
}

#[tokio::test]
async fn so_many_requests_wait_and_no_more() {
    let (kit, _) = running().await;
    let next = |number: usize| put(&number.to_string(), &format!("c{number}"), 'a');
    for number in 0..PENDING {
        ask(&kit, next(number)).await;
    }
    let error = kit.write::<ApprovalsPut>(next(PENDING)).await.unwrap_err();
    assert!(error.code == Code::Busy && error.retry_after_ms.is_some(), "{error:?}");
    // A repeated one is not another one, and one that is decided waits no longer.
    ask(&kit, next(7)).await;
    kit.write::<ApprovalsDecide>(decide("7", true, GrantScope::Once)).await.unwrap();
    ask(&kit, next(PENDING)).await;
}

/// The pages of the list of all requests hold each of them once, the newest first, whatever the size of a page.
#[tokio::test]
async fn the_pages_of_all_requests_hold_each_once() {
    let (kit, _) = running().await;
    for number in 0..5 {
        ask(&kit, put(&number.to_string(), &format!("c{number}"), 'a')).await;
    }
    for limit in [1, 2, 5] {
        let (mut found, mut after, mut pages) = (Vec::new(), None, 0);
        loop {
            let args = ListAllApprovals { limit, after: after.take(), ..ListAllApprovals::default() };
            let page = kit.read::<ApprovalsList>(args).await.unwrap();
            assert_eq!(page.page.has_more, page.page.after.is_some());
            pages += 1;
            found.extend(page.approvals.into_iter().map(|approval| approval.request.id));
            assert!(found.len() <= 5, "{found:?}");
            after = page.page.after;
            if after.is_none() {
                break;
            }
        }
        assert_eq!(found, ["apr_4", "apr_3", "apr_2", "apr_1", "apr_0"], "{limit} a page");
        assert_eq!(pages, 5_u32.div_ceil(limit), "{limit} a page");
    }
}

/// Ended requests are kept for 90 days, and at least until their turn has ended. Pending and newer ones are kept too.
#[tokio::test]
async fn ended_requests_are_deleted_in_the_end() {
    let (kit, claim) = running().await;
    ask(&kit, put("1", "c1", 'a')).await;
    kit.write::<ApprovalsDecide>(decide("1", true, GrantScope::Session)).await.unwrap();
    let is_kept = async |id: &str| {
        let get = GetApproval { id: format!("apr_{id}"), wait_ms: 0 };
        kit.approval(get).await.is_ok()
    };
    let pass = async |time_ms: i64| {
        kit.turn_clock(time_ms).await;
        kit.turn_clock(600_000).await;
    };
    pass(91 * DAY_MS).await;
    assert!(is_kept("1").await, "its turn lives");
    ask(&kit, put("2", "c2", 'b')).await;
    let settle = Kit::settle_of(&claim.lease, 0, ken_types::event::Outcome::Completed, "done");
    kit.write::<SubmissionsSettle>(settle).await.unwrap();
    pass(600_000).await;
    assert!(!is_kept("1").await && is_kept("2").await);
    pass(89 * DAY_MS).await;
    assert!(is_kept("2").await);
    pass(2 * DAY_MS).await;
    assert!(!is_kept("2").await);
}
