//! /workflows and /runs with the real programs. `doubles/runner.rs` stands in for the workflow engine; its steps
//! take as long as the test chooses, and append a line to a file each time they are executed.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ken_tests::{Answer, Builder, System, binary, kinds, scripted, until};
use ken_types::limits::{RUNS, WAITING_RUNS};
use serde_json::{Value, json};

const STEPS: &str = "/workflows/steps";

fn with_runner() -> System {
    let runner = binary("examples/runner");
    Builder::default()
        .config(&format!(
            "[part.cognitive]\ncommand = [\"{}\"]\nrequires = [\"store\"]\nsockets = {{ wire = {{ unix = \"cognitive.sock\" }} }}\n",
            runner.display()
        ))
        .start()
}

/// Starts a run. Returns its id.
fn start(system: &System, payload: &Value) -> String {
    let answer = system.post(STEPS, payload).expect(202);
    answer.text("/runId")
}

fn record(system: &System, run: &str) -> Value {
    system.get(&format!("/runs/{run}?meta")).expect(200).json()
}

/// The run's events, page by page, and whether its stream is closed.
fn events(system: &System, run: &str) -> (Vec<Value>, bool) {
    let (mut events, mut offset) = (Vec::new(), "-1".to_owned());
    loop {
        let page = system.get(&format!("/runs/{run}?offset={offset}")).expect(200);
        events.extend(page.json().as_array().unwrap().iter().cloned());
        if page.header("stream-up-to-date").is_some() {
            return (events, page.header("stream-closed") == Some("true"));
        }
        offset = page.header("stream-next-offset").unwrap().to_owned();
    }
}

/// Waits for the end of a run, and checks that its stream is closed, that the only `run_end` is the last event, and
/// that this agrees with the record. Returns record and events.
#[track_caller]
fn ended(system: &System, run: &str) -> (Value, Vec<Value>) {
    until("the run ends", || record(system, run)["status"] != "active");
    let (events, closed) = events(system, run);
    let record = record(system, run);
    assert!(closed, "{record}");
    let ends = events.iter().filter(|event| event["type"] == "run_end").count();
    let last = events.last().unwrap();
    assert_eq!((ends, &last["type"]), (1, &json!("run_end")));
    assert_eq!((&last["isError"], &last["durationMs"]), (&record["isError"], &record["durationMs"]));
    assert_eq!(last.get("error"), record.get("error"));
    for (index, event) in events.iter().enumerate() {
        assert_eq!((&event["eventIndex"], &event["runId"]), (&json!(index), &json!(run)), "{event}");
        assert!(event.get("submissionId").is_none() && event.get("instanceId").is_none());
    }
    (record, events)
}

/// The steps of a run in the order in which they were executed, including repetitions.
fn executed_steps(file: &Path, run: &str) -> Vec<String> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let own = text.lines().filter_map(|line| line.strip_prefix(run));
    own.map(|step| step.trim().to_owned()).collect()
}

fn file(system: &System, name: &str) -> PathBuf {
    system.home().join(name)
}

#[test]
fn without_the_part_that_executes_runs() {
    let system = Builder::default().config("[part.cognitive]\nenabled = false\ncommand = [\"/bin/true\"]\n").start();
    for workflow in ["steps", "research", "none"] {
        let target = format!("/workflows/{workflow}");
        system.post(&target, &json!({})).refused(503, "unavailable", "");
    }
    assert_eq!(system.get("/runs").expect(200).json(), json!({"runs": []}));
    for target in ["/runs/run_none", "/runs/run_none?meta", "/runs/run_none?offset=-1&live=sse"] {
        system.get(target).refused(404, "run_not_found", "");
    }
    system.post("/runs/run_none/abort", &json!({})).refused(404, "run_not_found", "");
    system.get("/runs/run_none?live=sse").refused(400, "invalid_request", "?offset");
}

/// The shipped workflows describe their input, and a wrong input is reported before anything is started.
#[test]
fn inputs_of_shipped_workflows() {
    let system = System::start();
    for (workflow, payload, at) in [
        ("analyze_only", json!({}), ""),
        ("analyze_only", json!({"text": 7}), "/text"),
        ("analyze_only", json!([]), ""),
        ("full_reasoning", json!({"text": " "}), "/text"),
    ] {
        let target = format!("/workflows/{workflow}");
        system.post(&target, &payload).refused(400, "invalid_request", at);
    }
    assert_eq!(system.get("/runs").expect(200).json(), json!({"runs": []}));
    let text = json!({"text": "All cats are mammals. Tom is a cat."});
    let answer = system.post("/workflows/analyze_only?wait=result", &text).expect(200);
    assert!(answer.at("/result").is_object(), "{}", answer.body_text());
}

#[test]
fn runs() {
    let system = with_runner();
    refused(&system);
    waited_for(&system);
    not_waited_for(&system);
    failed(&system);
    repeated(&system);
    aborted(&system);
    listed(&system);
    in_turn(&system);
    full(&system);
}

/// None of these is accepted.
fn refused(system: &System) {
    system.post("/workflows/none", &json!({})).refused(404, "workflow_not_found", "");
    system.post(STEPS, &json!({})).refused(400, "invalid_request", "/steps");
    system.post(STEPS, &json!({"steps": "x"})).refused(400, "invalid_request", "/steps");
    system.post(&format!("{STEPS}?wait=yes"), &json!({"steps": 1})).refused(400, "invalid_request", "?wait");
    let mut client = system.client();
    let bodies = client.request("POST", STEPS).header("content-type", "application/json");
    bodies.body("{\"steps\":1").send().refused(400, "invalid_json", "");
    let untyped = client.request("POST", STEPS).body("{\"steps\":1}");
    untyped.send().refused(415, "unsupported_media_type", "content-type");
    // The name is checked before the body.
    client.request("POST", "/workflows/none").body("{").send().refused(404, "workflow_not_found", "");
    assert_eq!(client.request("GET", STEPS).send().expect(405).header("allow"), Some("POST"));
    assert_eq!(client.request("DELETE", "/runs/x").send().expect(405).header("allow"), Some("GET, HEAD"));
    assert_eq!(system.get("/runs").expect(200).json(), json!({"runs": []}));
}

fn waited_for(system: &System) {
    let payload = json!({"steps": 3, "note": "é"});
    let answer = system.post(&format!("{STEPS}?wait=result"), &payload).expect(200);
    let run = answer.text("/runId");
    let url = format!("{}/runs/{run}", system.url());
    assert_eq!(
        answer.json(),
        json!({"result": {"made": 3, "known": 0}, "runId": run, "streamUrl": url, "offset": "-1"})
    );
    let (record, events) = ended(system, &run);
    assert_eq!(
        (&record["status"], &record["workflowName"], &record["payload"], &record["result"]),
        (&json!("completed"), &json!("steps"), &payload, &json!({"made": 3, "known": 0}))
    );
    let event_kinds = kinds(&events);
    assert_eq!((event_kinds[0], event_kinds[7], event_kinds.len()), ("run_start", "run_end", 8));
    assert!(event_kinds[1..7].iter().all(|kind| *kind == "log"), "{event_kinds:?}");
    assert_eq!((&events[0]["payload"], &events[0]["startedAt"]), (&payload, &record["startedAt"]));
    assert_eq!(events[7]["result"], record["result"]);
    read(system, &run);
}

/// The stream of a run is read like any other stream.
fn read(system: &System, run: &str) {
    let target = format!("/runs/{run}");
    let head = system.client().request("HEAD", &target).send().expect(200);
    assert_eq!(head.header("stream-closed"), Some("true"));
    assert_eq!(head.header("stream-next-offset"), Some("0000000000000000_0000000000000008"));
    let tail = system.get(&format!("{target}?offset=-1&tail=1")).expect(200);
    assert_eq!(kinds(tail.json().as_array().unwrap()), ["run_end"]);
    let at_end = format!("{target}?offset=0_8&live=long-poll");
    assert_eq!(system.get(&at_end).expect(204).header("stream-closed"), Some("true"));
    let mut live = system.attach(&format!("{target}?offset=-1&live=sse"));
    let mut seen = Vec::new();
    let control = live.until_control(&mut seen);
    assert_eq!((seen.len(), &control["streamClosed"]), (8, &json!(true)));
    assert!(live.frame().is_none(), "a closed stream ends with its last entry");
    // A query with the name `meta` returns the record, whatever else the query contains.
    for query in ["meta", "meta=0", "meta&offset=bad&live=x", "offset=1&offset=2&meta=x&meta=y"] {
        let answer = system.get(&format!("{target}?{query}")).expect(200);
        assert_eq!(answer.json()["runId"], run, "{query}");
    }
}

fn not_waited_for(system: &System) {
    let answer = system.post(STEPS, &json!({"steps": 3, "ms": 20})).expect(202);
    let run = answer.text("/runId");
    let url = format!("{}/runs/{run}", system.url());
    assert_eq!(answer.json(), json!({"runId": run, "streamUrl": url, "offset": "-1"}));
    assert_eq!((answer.header("location"), answer.header("stream-next-offset")), (Some(url.as_str()), Some("-1")));
    // The stream of a run exists as soon as the run is accepted, and a reader gets all of it.
    let mut live = system.attach(&format!("/runs/{run}?offset=-1&live=sse"));
    let mut seen = Vec::new();
    while live.until_control(&mut seen)["streamClosed"] != true {}
    let (_, whole) = ended(system, &run);
    assert_eq!(seen, whole);
}

fn failed(system: &System) {
    let answer = system.post(&format!("{STEPS}?wait=result"), &json!({"steps": 3, "fail": 2}));
    let answer = answer.refused(500, "operation_failed", "");
    let run = answer.text("/error/meta/runId");
    let location = format!("{}/runs/{run}", system.url());
    assert_eq!(answer.header("location"), Some(location.as_str()));
    let (record, _) = ended(system, &run);
    assert_eq!(
        (&record["status"], &record["error"], record.get("result")),
        (&json!("errored"), &json!({"name": "StepFailed", "message": "This step fails."}), None)
    );
}

fn repeated(system: &System) {
    let post = |key: &str, target: &str, payload: &Value| -> Answer {
        let mut client = system.client();
        let request = client.request("POST", target).header("content-type", "application/json");
        request.header("idempotency-key", key).body(payload.to_string()).send()
    };
    let payload = json!({"steps": 1});
    let first = post("once", STEPS, &payload).expect(202);
    let second = post("once", STEPS, &payload).expect(202);
    assert_eq!((first.json(), first.header("location")), (second.json(), second.header("location")));
    assert_eq!(second.header("idempotency-replayed"), Some("true"));
    post("once", STEPS, &json!({"steps": 2})).refused(409, "idempotency_conflict", "idempotency-key");
    let waits = format!("{STEPS}?wait=result");
    let failing = json!({"steps": 1, "fail": 1});
    let first = post("fails", &waits, &failing).expect(500);
    let second = post("fails", &waits, &failing).expect(500);
    assert_eq!(
        (first.json(), first.header("location").map(str::to_owned)),
        (second.json(), second.header("location").map(str::to_owned))
    );
    assert!(first.header("location").is_some());
    // The same work again is another run, once for a key.
    let failed = first.text("/error/meta/runId");
    let again = format!("/runs/{failed}/again");
    let one = post("another", &again, &json!({})).expect(202);
    assert_ne!(one.text("/runId"), failed);
    assert_eq!(post("another", &again, &json!({})).expect(202).text("/runId"), one.text("/runId"));
    let (record, _) = ended(system, &one.text("/runId"));
    assert_eq!((&record["workflowName"], &record["payload"]), (&json!("steps"), &failing));
    system.post("/runs/run_none/again", &json!({})).refused(404, "run_not_found", "");
    // A request that was not accepted can be sent again with the same key.
    post("again", STEPS, &json!({})).expect(400);
    post("again", STEPS, &payload).expect(202);
}

fn aborted(system: &System) {
    let run = start(system, &json!({"steps": 1, "ms": 60_000}));
    until("it runs", || events(system, &run).0.len() > 1);
    let abort =
        |run: &str| system.post(&format!("/runs/{run}/abort"), &json!({"reason": "ignored"})).expect(200).json();
    let begun = Instant::now();
    assert_eq!(abort(&run), json!({"aborted": true}));
    let (record, _) = ended(system, &run);
    assert!(begun.elapsed() < Duration::from_secs(10), "the step is not waited for");
    assert_eq!((&record["status"], &record["error"]["name"]), (&json!("errored"), &json!("Aborted")));
    assert_eq!(abort(&run), json!({"aborted": false}));
    let waiting = std::thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let payload = json!({"steps": 1, "ms": 60_000, "mark": "waited"});
            system.post(&format!("{STEPS}?wait=result"), &payload)
        });
        let newest = || system.get("/runs?status=active").expect(200).json();
        until("it is there", || newest().pointer("/runs/0/runId").is_some());
        abort(newest().pointer("/runs/0/runId").unwrap().as_str().unwrap());
        waiter.join().unwrap()
    });
    waiting.refused(500, "submission_aborted", "");
}

fn listed(system: &System) {
    let list = |query: &str| system.get(&format!("/runs?{query}")).expect(200).json();
    let whole = list("limit=1000");
    let ids = |page: &Value| -> Vec<String> {
        let runs = page["runs"].as_array().unwrap();
        runs.iter().map(|run| run["runId"].as_str().unwrap().to_owned()).collect()
    };
    let all = ids(&whole);
    assert!(all.len() >= 8, "{whole}");
    let mut sorted = all.clone();
    sorted.sort();
    sorted.reverse();
    assert_eq!(all, sorted, "newest first");
    for item in whole["runs"].as_array().unwrap() {
        assert!(["payload", "result", "error"].iter().all(|name| item.get(name).is_none()), "{item}");
    }
    let (mut paged, mut query) = (Vec::new(), "limit=3".to_owned());
    loop {
        let page = list(&query);
        paged.extend(ids(&page));
        start(system, &json!({"steps": 0}));
        match page.get("nextCursor").and_then(Value::as_str) {
            Some(cursor) => query = format!("limit=3&cursor={cursor}"),
            None => break,
        }
    }
    assert_eq!(paged, all, "what is new neither repeats nor hides others");
    assert_eq!(ids(&list("status=errored&workflowName=steps")).len(), 5);
    assert!(ids(&list("workflowName=other")).is_empty());
    for (query, at) in [
        ("status=done", "?status"),
        ("limit=0", "?limit"),
        ("limit=1001", "?limit"),
        ("cursor=x", "?cursor"),
        ("status=active&status=active", "?status"),
    ] {
        system.get(&format!("/runs?{query}")).refused(400, "invalid_request", at);
    }
}

/// At most 32 runs are in progress at a time. The others start in the order in which they were accepted.
fn in_turn(system: &System) {
    let file = file(system, "in-turn");
    let payload = json!({"steps": 1, "ms": 60_000, "file": file});
    let long: Vec<String> = (0..34).map(|_| start(system, &payload)).collect();
    until("so many run", || long[..32].iter().all(|run| executed_steps(&file, run).len() == 1));
    assert!(long[32..].iter().all(|run| executed_steps(&file, run).is_empty()));
    for waiting in &long[32..] {
        let record = record(system, waiting);
        assert_eq!((&record["status"], record.get("endedAt")), (&json!("active"), None));
    }
    let abort = |run: &str| {
        let answer = system.post(&format!("/runs/{run}/abort"), &json!({})).expect(200);
        assert_eq!(answer.json(), json!({"aborted": true}));
    };
    // A waiting run that is aborted ends at once. When a running one is aborted, the next one starts.
    abort(&long[32]);
    assert_eq!(record(system, &long[32])["status"], "errored");
    abort(&long[0]);
    until("the next one runs", || executed_steps(&file, &long[33]).len() == 1);
    let rest: Vec<&String> = long[1..32].iter().chain(&long[33..]).collect();
    rest.iter().for_each(|run| abort(run));
    for run in &long {
        let (record, events) = ended(system, run);
        assert_eq!(record["error"]["name"], "Aborted");
        assert_eq!(kinds(&events)[0], "run_start");
    }
}

/// At most a thousand runs can wait. The next one is refused with `Retry-After`.
fn full(system: &System) {
    let payload = json!({"steps": 1, "ms": 60_000});
    for _ in 0..RUNS + WAITING_RUNS {
        start(system, &payload);
    }
    let refused = system.post(STEPS, &payload).refused(429, "queue_full", "");
    assert_eq!(refused.header("retry-after"), Some("1"));
}

#[test]
fn a_closed_stream_implies_the_final_record() {
    const POLLS: usize = 2_000;
    let system = with_runner();
    let mut client = system.client();
    let (mut closed, mut polls) = (0, 0);
    while polls < POLLS || closed < 20 {
        let run = start(&system, &json!({"steps": 3, "ms": 3}));
        loop {
            polls += 1;
            let head = client.request("HEAD", &format!("/runs/{run}")).send().expect(200);
            let meta = client.get(&format!("/runs/{run}?meta")).expect(200).json();
            if head.header("stream-closed") == Some("true") {
                assert_eq!((&meta["status"], meta["endedAt"].is_string()), (&json!("completed"), true), "{meta}");
                closed += 1;
                break;
            }
        }
    }
}

#[test]
fn a_run_survives_the_kill_of_any_part() {
    let system = with_runner();
    for part in ["cognitive", "store", "gateway", "cognitive"] {
        let file = file(&system, "killed");
        let payload = json!({"steps": 10, "ms": 40, "file": file});
        let run = start(&system, &payload);
        until("it is on its way", || executed_steps(&file, &run).len() >= 3);
        system.kill(part);
        // The first call can fail with its connection; the next one waits for the restart.
        until("the system answers again", || {
            let mut client = system.client();
            client.request("GET", &format!("/runs/{run}?meta")).try_send().is_ok_and(|answer| answer.status == 200)
        });
        let (record, events) = ended(&system, &run);
        assert_eq!(record["status"], "completed", "{part}: {record}");
        let steps = executed_steps(&file, &run);
        for step in 1..=10 {
            let count = steps.iter().filter(|made| **made == format!("s{step}")).count();
            assert!((1..=2).contains(&count), "{part}: step {step} was made {count} times");
        }
        // Only the interrupted step is executed again, and only by a restarted holder.
        let resumed = kinds(&events).iter().filter(|kind| **kind == "run_resume").count();
        let again = steps.len() - 10;
        assert!(again <= resumed, "{part}: {again} steps were made again, {resumed} holders came back");
        assert_eq!(resumed, usize::from(part == "cognitive"), "{part}");
        assert_eq!(record["result"]["made"].as_u64().unwrap() + record["result"]["known"].as_u64().unwrap(), 10);
    }
}

#[test]
fn an_unrepeatable_step_ends_its_run_and_a_run_without_a_holder_waits() {
    let system = with_runner();
    let file = file(&system, "risky");
    let risky = start(&system, &json!({"steps": 3, "ms": 300, "risky": 2, "file": file}));
    until("the risky step is open", || executed_steps(&file, &risky).len() == 2);
    system.kill("cognitive");
    let (record, _) = ended(&system, &risky);
    assert_eq!((&record["status"], &record["error"]["name"]), (&json!("errored"), &json!("Interrupted")));
    assert_eq!(executed_steps(&file, &risky), ["s1", "s2"]);

    // While the cognitive server is stopped, the run stays in the queue without a holder.
    let run = start(&system, &json!({"steps": 4, "ms": 100, "file": file}));
    let queued = start(&system, &json!({"steps": 4, "ms": 100, "file": file}));
    until("they run", || !executed_steps(&file, &run).is_empty() && !executed_steps(&file, &queued).is_empty());
    system.kill("cognitive");
    assert!(system.ken(&["stop", "cognitive", "--wait", "stopped"]).status.success());
    until("nobody holds them", || system.call("store", "service.stats", &[])["leases_held"] == 0);
    for run in [&run, &queued] {
        assert_eq!(record_of(&system, run), "active");
    }
    let abort = system.post(&format!("/runs/{queued}/abort"), &json!({})).expect(200);
    assert_eq!(abort.json(), json!({"aborted": true}));
    assert_eq!(record_of(&system, &queued), "errored", "it needs nobody to end");
    assert!(system.ken(&["start", "cognitive", "--wait", "ready"]).status.success());
    let (record, events) = ended(&system, &run);
    assert_eq!(record["status"], "completed");
    assert!(kinds(&events).contains(&"run_resume"));
}

fn record_of(system: &System, run: &str) -> String {
    record(system, run)["status"].as_str().unwrap().to_owned()
}

/// A workflow that the user has added.
fn workflow(system: &System, name: &str, steps: &Value) {
    let folder = system.home().join("workflows");
    std::fs::create_dir_all(&folder).unwrap();
    let text = json!({"name": name, "description": "A test.", "public": true, "steps": steps,
        "schema": {"type": "object", "required": ["text"], "properties": {"text": {"type": "string"}}}});
    std::fs::write(folder.join(format!("{name}.json")), text.to_string()).unwrap();
}

/// The steps that are recorded as completed, in order.
fn recorded(events: &[Value]) -> Vec<&str> {
    let done = events.iter().filter(|event| event["attributes"]["state"] == "done");
    done.map(|event| event["attributes"]["step"].as_str().unwrap()).collect()
}

#[test]
fn runs_with_the_real_engine() {
    let system = scripted();
    let data = json!({"user_input": "I am glad that it works.", "facts": ["a"], "rules": [[["a"], "b"]]});
    let shipped = "/workflows/StandardReasoningWorkflow";
    let answer = system.post(&format!("{shipped}?wait=result"), &data).expect(200);
    let result = answer.at("/result");
    assert_eq!((&result["status"], &result["error"]), (&json!("completed"), &Value::Null));
    assert!(result["results"]["REP"].to_string().contains("\"b\""), "{result}");
    let (_, events) = ended(&system, &answer.text("/runId"));
    assert_eq!(recorded(&events), ["ESL", "REP", "VVP"]);
    // The input is checked before the run is admitted.
    for (payload, at) in
        [(json!([1]), ""), (json!({}), ""), (json!({"text": 7}), "/text"), (json!({"facts": ["a", 1]}), "/facts/1")]
    {
        system.post(shipped, &payload).refused(400, "invalid_request", at);
    }
    assert_eq!(system.get("/runs").expect(200).json()["runs"].as_array().unwrap().len(), 1);
    system.post(shipped, &json!({"REP": 1})).refused(400, "invalid_request", "/REP");

    goes_on(&system);
    asks_a_model(&system);
}

/// A run whose holder is killed has the same result as one without kills, and no step is recorded twice.
fn goes_on(system: &System) {
    workflow(system, "rounds", &json!([{"loop": 100, "steps": [{"step": "ESL"}, {"step": "LAWS"}]}]));
    system.post("/workflows/rounds", &json!({})).refused(400, "invalid_request", "/text");
    let payload = json!({"text": "We agreed to measure it, because nobody knew."});
    let alone = system.post("/workflows/rounds?wait=result", &payload).expect(200);
    let killed = || {
        let run = system.post("/workflows/rounds", &payload).expect(202).text("/runId");
        until("it is on its way", || events(system, &run).0.len() > 40);
        system.kill("cognitive");
        let (record, events) = ended(system, &run);
        assert_eq!((&record["status"], &record["result"]), (&json!("completed"), &alone.at("/result")));
        events
    };
    let resumes = |events: &[Value]| kinds(events).iter().filter(|kind| **kind == "run_resume").count();
    // On a busy machine a run can end before the kill.
    let events = std::iter::repeat_with(killed).take(10).find(|events| resumes(events) > 0);
    let events = events.expect("one of ten runs is killed on its way");
    assert_eq!(resumes(&events), 1);
    let mut steps = recorded(&events);
    assert_eq!(steps.len(), 200);
    steps.sort();
    steps.dedup();
    assert_eq!(steps.len(), 200, "each of them once");
}

fn asks_a_model(system: &System) {
    let asks = json!({"step": "MODEL", "timeout_ms": 600_000,
        "input": {"messages": [{"role": "user", "content": "{{/data/text}}"}]}});
    workflow(system, "asks", &json!([{"step": "ESL"}, asks]));
    let asking = |run: &str| {
        let begun =
            |event: &Value| event["attributes"]["step"] == "MODEL" && event["attributes"]["repeatable"] == false;
        until("the model is asked", || events(system, run).0.iter().any(begun));
    };
    let held = json!({"text": "hold"});
    let run = system.post("/workflows/asks", &held).expect(202).text("/runId");
    asking(&run);
    assert_eq!(system.post(&format!("/runs/{run}/abort"), &json!({})).expect(200).json(), json!({"aborted": true}));
    assert_eq!(ended(system, &run).0["error"]["name"], "Aborted");

    // The model's answer is unknown, and a repeated call could differ, so the model is not called again.
    let run = system.post("/workflows/asks", &held).expect(202).text("/runId");
    asking(&run);
    system.kill("cognitive");
    let (record, events) = ended(system, &run);
    assert_eq!((&record["status"], &record["error"]["name"]), (&json!("errored"), &json!("Interrupted")));
    assert_eq!(recorded(&events), ["ESL"]);
    until("the part is back", || system.ken(&["status", "cognitive"]).status.success());
    let answer = system.post("/workflows/asks?wait=result", &json!({"text": "hello"})).expect(200);
    assert!(answer.at("/result/results/MODEL").to_string().contains("Hello there."), "{}", answer.body_text());
}
