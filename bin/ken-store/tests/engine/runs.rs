//! Runs of workflows: how they begin, are held and end. Their stream and their record must always agree.

use ken_types::event::Failure;
use ken_types::id::RunId;
use ken_types::limits::{CLAIMS, EVENT_BYTES, LEASE_MS, RUN_BYTES, RUNS, SUBMISSION_MS, WAITING_RUNS};
use ken_types::ops::runs::*;
use ken_types::ops::store::*;
use ken_types::{Code, Offset};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::kit::*;

fn run(id: &str) -> RunId {
    RunId(format!("run_{id}"))
}

fn by(id: &str) -> ByRun {
    ByRun { run_id: run(id) }
}

fn log_event(id: &str, index: u64) -> Box<RawValue> {
    let text = format!(
        r#"{{"v":1,"type":"log","level":"info","message":"m{index}","eventIndex":{index},"timestamp":"{START}","runId":"run_{id}","session":"default","harness":"default"}}"#
    );
    RawValue::from_string(text).unwrap()
}

impl Kit {
    async fn start(&self, id: &str) {
        let args = AdmitRun { run_id: run(id), workflow: "w".into(), payload: json!({"text": id}) };
        self.write::<RunsAdmit>(args).await.unwrap();
    }

    async fn claim_runs(&self, connection: u64, max: u32) -> Claims {
        let args = ClaimSubmissions { holder: "t".into(), work: Work::Runs, max, wait_ms: 0 };
        self.claim(connection, args).await.unwrap()
    }

    async fn claim_run(&self, connection: u64) -> Claim {
        self.claim_runs(connection, 1).await.claims.remove(0)
    }

    async fn end(&self, lease: &Lease, result: Value) -> Result<RunRecord, ken_types::Error> {
        let args = EndRun { lease: lease.clone(), result, error: None, blobs: Vec::new() };
        self.write::<RunsEnd>(args).await
    }

    async fn record(&self, id: &str) -> RunRecord {
        self.read::<RunsGet>(by(id)).await.unwrap()
    }

    async fn named(&self, stream: &str) -> (StreamPage, Vec<Value>) {
        let args = ReadStream { stream: stream.into(), ..read("", Offset::Start, 0) };
        let page = self.read_stream(args).await.unwrap();
        let events = page.entries.iter().map(|entry| serde_json::from_str(entry.get()).unwrap());
        let events = events.collect();
        (page, events)
    }

    /// Returns the types of a run's events. Checks what must be true for the stream of every run.
    async fn kinds(&self, id: &str) -> Vec<String> {
        let (page, events) = self.named(&format!("runs/run_{id}")).await;
        for (number, event) in events.iter().enumerate() {
            assert_eq!((&event["eventIndex"], &event["runId"]), (&json!(number), &json!(run(id))), "{event}");
        }
        let ended = events.iter().filter(|event| event["type"] == "run_end").count();
        let record = self.record(id).await;
        assert_eq!(page.closed, record.status != RunStatus::Active);
        assert_eq!(ended, usize::from(page.closed));
        events.iter().map(|event| event["type"].as_str().unwrap().to_owned()).collect()
    }
}

#[tokio::test]
async fn a_run_from_its_start_to_its_end() {
    let kit = Kit::new();
    kit.start("a").await;
    kit.start("a").await;
    assert!(kit.claims(1, 5).await.claims.is_empty(), "a turn's holder gets no run");
    let claim = kit.claim_run(2).await;
    assert_eq!(
        (claim.workflow.as_deref(), claim.text.as_str(), claim.stream.as_str()),
        (Some("w"), r#"{"text":"a"}"#, "runs/run_a")
    );
    assert_eq!((claim.attempt, claim.next_event_index, claim.verdict), (1, 1, None));
    kit.add_events(&claim.lease, 1, vec![log_event("a", 1), log_event("a", 2)]).await.unwrap();
    assert_eq!(kit.record("a").await.status, RunStatus::Active);
    kit.turn_clock(1_234).await;
    let ended = kit.end(&claim.lease, json!({"n": 1})).await.unwrap();
    assert_eq!(
        (ended.status, ended.is_error, ended.duration_ms, &ended.result),
        (RunStatus::Completed, Some(false), Some(1_234), &Some(json!({"n": 1})))
    );
    assert_eq!((&ended.payload, &ended.error), (&Some(json!({"text": "a"})), &None));
    // A run that has ended keeps its result, even if it is ended again with another one.
    assert_eq!(kit.end(&claim.lease, json!(2)).await.unwrap(), ended);
    assert_eq!(kit.kinds("a").await, ["run_start", "log", "log", "run_end"]);
    let standing = kit.status("run_a").await;
    assert_eq!(standing.state, State::Completed);
    assert_eq!(kit.stats()["leases_held"], 0);
}

#[tokio::test]
async fn a_null_result_is_there_and_an_error_has_none() {
    let kit = Kit::new();
    kit.start("a").await;
    kit.start("b").await;
    let ended = kit.end(&kit.claim_run(1).await.lease, Value::Null).await.unwrap();
    assert_eq!((ended.result, ended.error), (Some(Value::Null), None));
    let error = Failure { name: "StepFailed".into(), message: "no".into() };
    let args =
        EndRun { lease: kit.claim_run(1).await.lease, result: json!(1), error: Some(error.clone()), blobs: Vec::new() };
    let ended = kit.write::<RunsEnd>(args).await.unwrap();
    assert_eq!((ended.status, ended.result, ended.error), (RunStatus::Errored, None, Some(error)));
    kit.kinds("b").await;
}

#[tokio::test]
async fn a_lost_holder_is_followed_by_another_that_goes_on() {
    let mut kit = Kit::new();
    kit.start("a").await;
    let first = kit.claim_run(1).await;
    kit.add_events(&first.lease, 1, vec![log_event("a", 1)]).await.unwrap();
    kit.disconnected(1);
    let second = kit.claim_run(2).await;
    assert_eq!((second.attempt, second.lease.number, second.next_event_index), (2, 2, 3));
    let refused = kit.add_events(&first.lease, 2, vec![log_event("a", 2)]).await.unwrap_err();
    assert_eq!(refused.code, Code::Conflict);
    assert_eq!(kit.end(&first.lease, json!(1)).await.unwrap_err().code, Code::Conflict);
    // After a restart, the store waits a moment for the holder.
    kit.restart();
    assert!(kit.claim_runs(3, 1).await.claims.is_empty());
    let renewed = RenewLeases { holder: "t".into(), leases: vec![second.lease.clone()] };
    assert!(kit.renew(3, renewed).await.unwrap().lost.is_empty());
    kit.turn_clock(LEASE_MS).await;
    let third = kit.claim_run(4).await;
    assert_eq!(third.attempt, 3);
    kit.end(&third.lease, json!(3)).await.unwrap();
    assert_eq!(kit.kinds("a").await, ["run_start", "log", "run_resume", "run_resume", "run_end"]);
}

#[tokio::test]
async fn aborts() {
    let kit = Kit::new();
    for id in ["waits", "runs", "lost", "silent"] {
        kit.start(id).await;
    }
    assert!(kit.write::<RunsAbort>(by("waits")).await.unwrap().aborted);
    let error = kit.record("waits").await.error.unwrap();
    assert_eq!(error.name, "Aborted");
    assert!(!kit.write::<RunsAbort>(by("waits")).await.unwrap().aborted, "it has ended");
    assert_eq!(kit.write::<RunsAbort>(by("none")).await.unwrap_err().code, Code::NotFound);

    let held = kit.claim_run(1).await;
    assert!(kit.write::<RunsAbort>(by("runs")).await.unwrap().aborted);
    assert_eq!(kit.claim_runs(1, 0).await.aborts, vec![held.lease.clone()]);
    // It was aborted, so a result that its holder reports now does not count.
    let ended = kit.end(&held.lease, json!(1)).await.unwrap();
    assert_eq!((ended.status, ended.error.unwrap().name.as_str()), (RunStatus::Errored, "Aborted"));
    assert_eq!(kit.status("run_runs").await.state, State::Aborted);

    kit.claim_run(1).await;
    kit.disconnected(1);
    kit.tick().await;
    assert!(kit.write::<RunsAbort>(by("lost")).await.unwrap().aborted, "nobody holds it");
    assert_eq!(kit.record("lost").await.status, RunStatus::Errored);

    // A holder that does not react to a request to abort loses the run. The run then ends without another claim.
    kit.claim_run(2).await;
    assert!(kit.write::<RunsAbort>(by("silent")).await.unwrap().aborted);
    assert_eq!(kit.claim_runs(2, 0).await.aborts.len(), 1);
    kit.turn_clock(LEASE_MS).await;
    assert_eq!(kit.record("silent").await.error.unwrap().name, "Aborted");
    for id in ["waits", "runs", "lost", "silent"] {
        kit.kinds(id).await;
    }
}

#[tokio::test]
async fn a_run_is_not_begun_for_ever_and_not_for_longer_than_an_hour() {
    let kit = Kit::new();
    kit.start("again").await;
    for attempt in 1..=CLAIMS {
        assert_eq!(kit.claim_run(1).await.attempt, attempt);
        kit.disconnected(1);
    }
    kit.tick().await;
    assert_eq!(kit.record("again").await.error.unwrap().name, "RetryExhausted");
    kit.start("long").await;
    kit.claim_run(1).await;
    kit.turn_clock(SUBMISSION_MS).await;
    kit.disconnected(1);
    kit.tick().await;
    assert_eq!(kit.record("long").await.error.unwrap().name, "Timeout");
    assert_eq!(kit.kinds("long").await, ["run_start", "run_end"]);
}

#[tokio::test]
async fn so_many_run_and_so_many_wait() {
    let kit = Kit::new();
    let admit =
        |number: u64| AdmitRun { run_id: run(&format!("{number:04}")), workflow: "w".into(), payload: json!({}) };
    for number in 0..WAITING_RUNS {
        kit.write::<RunsAdmit>(admit(number)).await.unwrap();
    }
    assert_eq!(kit.write::<RunsAdmit>(admit(WAITING_RUNS)).await.unwrap_err().code, Code::Busy);
    let mut held = kit.claim_runs(1, 20).await.claims;
    held.extend(kit.claim_runs(1, 20).await.claims);
    assert_eq!(held.len() as u64, RUNS);
    assert!(kit.claim_runs(1, 20).await.claims.is_empty());
    kit.write::<RunsAdmit>(admit(WAITING_RUNS)).await.unwrap();
    // When a run ends, the run that has been queued longest takes its place, even if a claim is already waiting.
    let ask = ClaimSubmissions { holder: "t".into(), work: Work::Runs, max: 5, wait_ms: 60_000 };
    let (claims, ended) = tokio::join!(kit.claim(2, ask), kit.end(&held[0].lease, json!(1)));
    ended.unwrap();
    let claims = claims.unwrap().claims;
    assert_eq!(claims.len(), 1);
    assert_eq!(claims[0].lease.submission_id.as_str(), "run_0032");
    // The same applies if the holder of a run has ended, but then that run itself is the first in the queue.
    kit.disconnected(1);
    assert_eq!(kit.claim_runs(3, 1).await.claims[0].lease.submission_id.as_str(), "run_0001");
}

#[tokio::test]
async fn what_is_too_long_for_an_event_is_in_the_record() {
    let kit = Kit::new();
    let admit =
        |id: &str, bytes: usize| AdmitRun { run_id: run(id), workflow: "w".into(), payload: json!("x".repeat(bytes)) };
    let refused = kit.write::<RunsAdmit>(admit("huge", RUN_BYTES)).await.unwrap_err();
    assert_eq!((refused.code, refused.at.as_deref()), (Code::TooLarge, Some("/payload")));
    kit.write::<RunsAdmit>(admit("long", RUN_BYTES - 2)).await.unwrap();
    let claim = kit.claim_run(1).await;
    assert_eq!(claim.text.len(), RUN_BYTES);
    let refused = kit.end(&claim.lease, json!("x".repeat(RUN_BYTES))).await.unwrap_err();
    assert_eq!(refused.at.as_deref(), Some("/result"));
    kit.end(&claim.lease, json!("y".repeat(300_000))).await.unwrap();
    let (_, events) = kit.named("runs/run_long").await;
    assert_eq!(events[0]["payload"]["bytes"], RUN_BYTES);
    assert_eq!(events[1]["result"]["truncated"], true);
    assert_eq!(kit.record("long").await.result.unwrap().as_str().unwrap().len(), 300_000);
}

#[tokio::test]
async fn no_event_exceeds_its_limit_when_what_it_holds_is_just_below() {
    let kit = Kit::new();
    for less in [4_000, 1_000, 300, 200, 100, 50, 10, 2] {
        let (id, value) = (format!("less_{less}"), json!("x".repeat(EVENT_BYTES - less)));
        kit.write::<RunsAdmit>(AdmitRun { run_id: run(&id), workflow: "w".into(), payload: value.clone() })
            .await
            .unwrap();
        kit.end(&kit.claim_run(1).await.lease, value).await.unwrap();
        let (page, _) = kit.named(&format!("runs/run_{id}")).await;
        let longest = page.entries.iter().map(|entry| entry.get().len()).max();
        assert!(longest.is_some_and(|bytes| bytes <= EVENT_BYTES), "{less} bytes less: {longest:?}");
    }
}

#[tokio::test]
async fn lists() {
    let kit = Kit::new();
    for number in 0..7 {
        let args = AdmitRun {
            run_id: run(&number.to_string()),
            workflow: if number % 2 == 0 { "even" } else { "odd" }.into(),
            payload: json!({"text": "secret"}),
        };
        kit.write::<RunsAdmit>(args).await.unwrap();
    }
    kit.end(&kit.claim_run(1).await.lease, json!("secret")).await.unwrap();
    let list = |status, workflow: Option<&str>, limit, cursor| {
        kit.read::<RunsList>(ListRuns { status, workflow: workflow.map(str::to_owned), limit, cursor })
    };
    let ids = |page: &RunPage| page.runs.iter().map(|run| run.run_id.as_str()[4..].to_owned()).collect::<String>();
    let whole = list(None, None, 100, None).await.unwrap();
    assert_eq!((ids(&whole).as_str(), &whole.next_cursor), ("6543210", &None));
    assert!(!serde_json::to_string(&whole).unwrap().contains("secret"));
    let first = list(None, None, 3, None).await.unwrap();
    kit.start("new").await;
    let second = list(None, None, 4, first.next_cursor.clone()).await.unwrap();
    assert_eq!((ids(&first) + &ids(&second), second.next_cursor), ("6543210".to_owned(), None));
    for (status, workflow, wanted) in [
        (Some(RunStatus::Completed), None, "0"),
        (None, Some("odd"), "531"),
        (Some(RunStatus::Active), Some("even"), "642"),
        (Some(RunStatus::Errored), None, ""),
        (None, Some("none"), ""),
    ] {
        assert_eq!(ids(&list(status, workflow, 100, None).await.unwrap()), wanted);
    }
    let foreign = list(None, Some("odd"), 3, first.next_cursor).await.unwrap_err();
    assert_eq!(foreign.at.as_deref(), Some("?cursor"));
    assert_eq!(list(None, None, 1_001, None).await.unwrap_err().at.as_deref(), Some("/limit"));
}

#[tokio::test]
async fn changes_are_published_in_the_system_stream() {
    let kit = Kit::new();
    kit.session("tui-1", "a").await;
    kit.talk("tui-1", "s1", "hello", "hi").await;
    kit.start("a").await;
    kit.write::<RunsAbort>(by("a")).await.unwrap();
    // A refused change has no effect.
    kit.prompt("tui-1", "s2").await;
    let owned = OwnedSession { scope: Some(scope("a")), id: fresh("tui-1").id };
    kit.write::<SessionsArchive>(owned).await.unwrap_err();
    let (_, events) = kit.named("system").await;
    let types: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(
        types,
        [
            "session.created", "submission.queued", "submission.running", "submission.settled", "run.started",
            "run.ended", "submission.queued"
        ]
    );
    assert_eq!(
        events[3],
        json!({"v": 1, "type": "submission.settled", "sessionId": "tui-1", "submissionId": "s1",
            "outcome": "completed", "eventIndex": 3, "timestamp": START})
    );
    assert_eq!((&events[0]["connector"], &events[5]["status"]), (&json!("tui"), &json!("errored")));
}

#[tokio::test]
async fn the_systems_own_stream_keeps_seven_days() {
    let kit = Kit::new();
    kit.session("tui-1", "a").await;
    kit.session("tui-2", "a").await;
    kit.turn_clock(5 * DAY_MS).await;
    kit.session("tui-3", "a").await;
    kit.turn_clock(3 * DAY_MS).await;
    let read_from = |offset| kit.read_stream(ReadStream { stream: "system".into(), ..read("", offset, 0) });
    let page = read_from(Offset::Start).await.unwrap();
    assert_eq!((page.start, page.next, page.entries.len()), (2, 3, 1));
    let gone = read_from(Offset::After(1)).await.unwrap_err();
    assert_eq!((gone.code, gone.at.as_deref()), (Code::NotFound, Some("/offset")));
    assert_eq!(read_from(Offset::After(2)).await.unwrap().entries.len(), 1);
    kit.session("tui-4", "a").await;
    let (_, events) = kit.named("system").await;
    assert_eq!(events[1]["eventIndex"], 3);
}
