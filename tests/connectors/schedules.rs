//! Schedules: every slot has exactly one record, even if parts are killed or the clock is changed. Also the routes of schedules.

use std::collections::BTreeMap;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ken_tests::provider::{Provider, Reply, openai, refusal};
use ken_tests::wire_tap::{Side, WireTap};
use ken_tests::{Answer, Builder, Random, System, binary, kinds, number, private_kib, scripted, tui, until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

#[path = "many_schedules.rs"]
mod many_schedules;

use many_schedules::{fill, ticks};

const ROUTE: &str = "/api/schedules";

/// A schedule that fires every second, unless `fields` overrides this.
fn secondly(slug: &str, fields: Value) -> Value {
    let mut body = json!({"slug": slug, "kind": "every", "schedule": "1s", "prompt": "Hello."});
    for (name, value) in fields.as_object().unwrap() {
        body[name] = value.clone();
    }
    body
}

fn add(system: &System, body: &Value) -> Value {
    system.post(ROUTE, body).expect(201).at("/schedule")
}

fn patch(system: &System, slug: &str, body: &Value) -> Answer {
    let mut client = system.client();
    let target = format!("{ROUTE}/{slug}");
    client.request("PATCH", &target).json(body).send()
}

/// All runs, newest first, from all pages.
fn runs(system: &System, slug: &str) -> Vec<Value> {
    let mut runs = Vec::new();
    let mut after = String::new();
    loop {
        let page = system.get(&format!("{ROUTE}/{slug}/runs?limit=50{after}")).expect(200);
        runs.extend(page.at("/runs").as_array().unwrap().iter().cloned());
        match page.json().pointer("/page/after") {
            Some(cursor) => after = format!("&after={}", cursor.as_str().unwrap()),
            None => return runs,
        }
    }
}

fn run(system: &System, slug: &str, id: &str) -> Value {
    system.get(&format!("{ROUTE}/{slug}/runs/{id}")).expect(200).at("/run")
}

fn count(runs: &[Value], field: &str, value: &str) -> usize {
    runs.iter().filter(|run| run[field] == value).count()
}

/// Checks that every slot has one record, and that there is one per second without a gap since the schedule was created.
fn check_slots(schedule: &Value, runs: &[Value]) {
    let created = schedule["nextFireAt"].as_i64().unwrap() - 1_000;
    let mut slots = BTreeMap::new();
    for run in runs.iter().filter(|run| run["trigger"] == "slot") {
        let slot = run["slotAt"].as_i64().unwrap();
        assert_eq!(slots.insert(slot, run.clone()), None, "{slot} twice");
    }
    for (number, slot) in (1..).zip(slots.keys()) {
        assert_eq!(*slot, created + number * 1_000, "{runs:?}");
    }
}

/// An additional scheduler that uses the store of a system, with its own clock.
struct Second {
    child: Child,
    _folder: tempfile::TempDir,
}

impl Second {
    fn start(system: &System, shift_ms: i64) -> Second {
        Second::with_clock(system, &format!("0={shift_ms}*1"))
    }

    fn with_clock(system: &System, clock: &str) -> Second {
        let folder = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(system.socket("store"), folder.path().join("store.sock")).unwrap();
        let child = Command::new(binary("ken-scheduler"))
            .env_clear()
            .env("KEN_RUN_DIR", folder.path())
            .env("KEN_STATE_DIR", folder.path())
            .env("KEN_CONFIG", folder.path().join("ken.toml"))
            .env("KEN_CLOCK", clock)
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let socket: PathBuf = folder.path().join("scheduler.sock");
        until("the second scheduler listens", || UnixStream::connect(&socket).is_ok());
        Second { child, _folder: folder }
    }
}

impl Drop for Second {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

#[test]
fn a_schedule_is_created_shown_changed_paused_and_deleted() {
    let system = scripted();
    let body = json!({"slug": "morning", "kind": "cron", "schedule": "0 9 * * 1-5", "tz": "europe/zurich",
        "prompt": "Summarise the night.", "payload": {"a": 1}});
    let made = add(&system, &body);
    for (field, value) in [
        ("timezone", json!("Europe/Zurich")),
        ("enabled", json!(true)),
        ("ownerScope", json!("admin")),
        ("protect", json!(true)),
        ("maxAttempts", json!(3)),
        ("deleteAfterRun", json!(false)),
        ("missed", json!("last")),
        ("graceMs", json!(60_000)),
        ("timeoutMs", json!(600_000)),
        ("lastFiredAt", json!(null)),
        ("payload", json!({"a": 1})),
    ] {
        assert_eq!(made[field], value, "{field}");
    }
    assert!(made["nextFireAt"].as_i64() > made["createdAt"].as_i64());
    system.post(ROUTE, &body).refused(409, "conflict", "/slug");
    let one = format!("{ROUTE}/morning");
    assert_eq!(system.get(&one).expect(200).at("/schedule"), made);
    assert_eq!(patch(&system, "morning", &json!({})).expect(200).at("/schedule"), made);
    let changed = patch(&system, "morning", &json!({"schedule": "@hourly", "payload": null})).expect(200);
    assert_eq!((changed.at("/schedule/schedule"), changed.at("/schedule/payload")), (json!("@hourly"), json!(null)));
    assert_eq!(changed.at("/schedule/id"), made["id"]);
    for _ in 0..2 {
        let paused = system.post(&format!("{one}/pause"), &json!({})).expect(200);
        assert_eq!(paused.json(), json!({"slug": "morning", "paused": true}));
    }
    assert_eq!(system.get(&one).at("/schedule/nextFireAt"), json!(null));
    let resumed = system.post(&format!("{one}/resume"), &json!({})).expect(200).json();
    assert_eq!((&resumed["slug"], &resumed["resumed"]), (&json!("morning"), &json!(true)));
    assert!(resumed["nextFireAt"].is_i64());
    let mut replacing = body.clone();
    replacing["replace"] = json!(true);
    replacing["kind"] = json!("every");
    replacing["schedule"] = json!("90m");
    let replaced = add(&system, &replacing);
    assert_eq!((&replaced["id"], &replaced["createdAt"]), (&made["id"], &made["createdAt"]));
    let list = system.get(ROUTE).expect(200).at("/schedules");
    assert_eq!(list.as_array().unwrap().len(), 1);
    assert_eq!(system.delete(&one).expect(200).json(), json!({"slug": "morning", "deleted": true}));
    for answer in [system.get(&one), system.delete(&one), patch(&system, "morning", &json!({"prompt": "x"}))] {
        answer.refused(404, "not_found", "");
    }
}

#[test]
fn a_schedule_that_is_created_disabled_does_nothing_until_it_is_resumed() {
    let system = scripted();
    let made = add(&system, &secondly("off", json!({"enabled": false})));
    assert_eq!((&made["enabled"], &made["nextFireAt"]), (&json!(false), &Value::Null));
    let writes = || system.call("store", "service.stats", &[])["writes"].as_u64().unwrap();
    std::thread::sleep(Duration::from_millis(1_500));
    let before = writes();
    std::thread::sleep(Duration::from_millis(2_000));
    assert!(writes() - before < 20, "{} writes in two seconds", writes() - before);
    assert!(runs(&system, "off").is_empty());
    patch(&system, "off", &json!({"enabled": true})).expect(200);
    until("it fires", || !runs(&system, "off").is_empty());
}

#[test]
fn a_refused_schedule_leaves_nothing_behind() {
    let system = System::start();
    let long = "x".repeat(64 * 1024 + 1);
    for (field, value, at, says) in [
        ("slug", json!("Morning"), "/slug", "a-z"),
        ("slug", json!(""), "/slug", ""),
        ("slug", json!("x".repeat(65)), "/slug", "64"),
        ("kind", json!("daily"), "/kind", "cron, every or at"),
        ("schedule", json!("0 9 * * FRY"), "/schedule", "column 9"),
        ("schedule", json!("0 0 30 2 *"), "/schedule", "never fires"),
        ("schedule", json!("* * *"), "/schedule", "five fields"),
        ("tz", json!("Europe/Zurch"), "/tz", "Europe/Zurch"),
        ("tz", json!("zurich"), "/tz", "zurich"),
        ("prompt", json!(" "), "/prompt", "blank"),
        ("prompt", json!(long), "/prompt", "65536"),
        ("payload", json!([1]), "/payload", "object"),
        ("payload", json!({"x": long}), "/payload", "65536"),
        ("targetAgent", json!("research-worker"), "/targetAgent", "coding-worker"),
        ("maxAttempts", json!(0), "/maxAttempts", "1 to 10"),
        ("graceMs", json!(86_400_001), "/graceMs", "86400000"),
        ("timeoutMs", json!(999), "/timeoutMs", "1000"),
        ("jitterMs", json!(-1), "/jitterMs", "0 to"),
        ("missed", json!("some"), "/missed", "skip, last or all"),
        ("deliverTo", json!({"session": "nothing"}), "/deliverTo/session", "no session"),
        ("deliverTo", json!({"room": 1}), "/deliverTo", "chatId"),
        ("deliverTo", json!({"connector": "messenger", "chatId": "1"}), "/deliverTo/chatId", "not admitted"),
        ("disableAfterFailures", json!(0), "/disableAfterFailures", "1 to 1000"),
        ("color", json!("red"), "/color", ""),
        ("replace", json!("yes"), "/replace", ""),
    ] {
        let mut body = json!({"slug": "x", "kind": "cron", "schedule": "@daily", "prompt": "p"});
        body[field] = value;
        let answer = system.post(ROUTE, &body).refused(400, "invalid", at);
        assert!(answer.text("/error").contains(says), "{field}: {}", answer.body_text());
    }
    for (zone, near) in
        [("Europe/Zurch", "Europe/Zurich"), ("Zurich", "Europe/Zurich"), ("America/New York", "America/New_York")]
    {
        let body = json!({"slug": "x", "kind": "cron", "schedule": "@daily", "prompt": "p", "tz": zone});
        let hint = system.post(ROUTE, &body).expect(400).text("/hint");
        assert_eq!(hint, format!("did you mean {near}?"));
    }
    for missing in ["slug", "kind", "schedule", "prompt"] {
        let mut body = json!({"slug": "x", "kind": "cron", "schedule": "@daily", "prompt": "p"});
        body.as_object_mut().unwrap().remove(missing);
        system.post(ROUTE, &body).refused(400, "invalid", &format!("/{missing}"));
    }
    let past = json!({"slug": "x", "kind": "at", "schedule": "2020-01-01T00:00:00Z", "prompt": "p"});
    system.post(ROUTE, &past).refused(400, "invalid", "/schedule");
    let huge = json!({"slug": "x", "kind": "cron", "schedule": "@daily", "prompt": "x".repeat(1 << 20)});
    system.post(ROUTE, &huge).refused(413, "too_large", "");
    patch(&system, "x", &json!({"kind": "at"})).refused(404, "not_found", "");
    assert_eq!(system.get(ROUTE).expect(200).json(), json!({"schedules": []}));
    add(&system, &json!({"slug": "x", "kind": "cron", "schedule": "@daily", "prompt": "p"}));
    for (body, at) in [
        (json!({"kind": "at"}), "/kind"),
        (json!({"slug": "y"}), "/slug"),
        (json!({"replace": true}), "/replace"),
        (json!({"schedule": "0 0 31 2 *"}), "/schedule"),
    ] {
        patch(&system, "x", &body).refused(400, "invalid", at);
    }
    assert_eq!(system.get(&format!("{ROUTE}/x")).at("/schedule/schedule"), json!("@daily"));
}

#[test]
fn a_slot_is_an_event_in_its_own_session() {
    let system = scripted();
    let made = add(&system, &secondly("tick", json!({})));
    until("two slots have run", || count(&runs(&system, "tick"), "status", "ok") >= 2);
    system.post(&format!("{ROUTE}/tick/pause"), &json!({})).expect(200);
    let all = runs(&system, "tick");
    check_slots(&made, &all);
    let run = all.iter().find(|run| run["status"] == "ok").unwrap();
    let session = run["sessionId"].as_str().unwrap();
    assert_eq!(session, format!("schedule:{}:{}", made["id"].as_str().unwrap(), run["runId"].as_str().unwrap()));
    assert_eq!((&run["attempt"], &run["resultText"]), (&json!(1), &json!("Hello there.")));
    assert_eq!(run["dispatchId"], run["submissionId"]);
    assert!(run["startedAt"].as_i64() >= run["admittedAt"].as_i64());
    let target = format!("/agents/orchestrator/{session}?offset=-1");
    let events = system.get(&target).expect(200).json();
    let settled = events.as_array().unwrap().last().unwrap();
    assert_eq!((&settled["type"], &settled["dispatchId"]), (&json!("submission_settled"), &run["submissionId"]));
    let scope = format!("connector=schedule&actorId=admin&conversationId=schedule:{}", made["id"].as_str().unwrap());
    let transcript = system.get(&format!("/api/chat/sessions/{session}/transcript?{scope}")).expect(200);
    assert_eq!(transcript.text("/exchanges/0/prompt/text"), "Hello.");
    let shown = system.get(&format!("{ROUTE}/tick")).at("/schedule");
    assert_eq!(shown["lastRunStatus"], "ok");
    assert!(shown["lastFiredAt"].is_i64());
}

#[test]
fn a_caller_can_wait_for_a_manual_run() {
    let system = scripted();
    let daily =
        |slug: &str, prompt: &str| json!({"slug": slug, "kind": "cron", "schedule": "@daily", "prompt": prompt});
    let made = add(&system, &daily("good", "Hello."));
    add(&system, &daily("bad", "refused"));
    system.post(&format!("{ROUTE}/good/pause"), &json!({})).expect(200);
    let ended = system.post(&format!("{ROUTE}/good/run?wait=1"), &json!({})).expect(200).json();
    assert_eq!(
        (&ended["slug"], &ended["status"], &ended["resultText"]),
        (&json!("good"), &json!("ok"), &json!("Hello there."))
    );
    assert_eq!((&ended["trigger"], &ended["slotAt"]), (&json!("manual"), &json!(null)));
    let failed = system.post(&format!("{ROUTE}/bad/run?wait=1"), &json!({})).expect(502).json();
    assert_eq!((&failed["code"], &failed["status"]), (&json!("unavailable"), &json!("error")));
    assert!(failed["error"].as_str().unwrap().contains("the key is not taken"));
    let begun = system.post(&format!("{ROUTE}/good/run"), &json!({})).expect(200).json();
    let id = begun["runId"].as_str().unwrap();
    until("the run has ended", || run(&system, "good", id)["status"] == "ok");
    assert_eq!(run(&system, "good", id)["scheduleId"], made["id"]);
    system.get(&format!("{ROUTE}/bad/runs/{id}")).refused(404, "not_found", "");
    system.post(&format!("{ROUTE}/none/run"), &json!({})).refused(404, "not_found", "");
    system.post(&format!("{ROUTE}/good/run?wait=yes"), &json!({})).refused(400, "invalid", "?wait");
    // Requests with the same key start only one run.
    let before = runs(&system, "good").len();
    for _ in 0..3 {
        let mut client = system.client();
        let again =
            client.request("POST", "/api/schedules/good/run").header("Idempotency-Key", "once").json(&json!({}));
        again.send().expect(200);
    }
    assert_eq!(runs(&system, "good").len(), before + 1);
}

#[test]
fn a_slot_is_skipped_or_queued_while_a_run_is_in_progress() {
    let system = scripted();
    let skipping = add(&system, &secondly("skipping", json!({"prompt": "hold"})));
    add(&system, &secondly("queueing", json!({"prompt": "hold", "overlap": "queue"})));
    until("slots were skipped", || count(&runs(&system, "skipping"), "reason", "overlap") >= 2);
    until("slots wait", || count(&runs(&system, "queueing"), "status", "queued") >= 2);
    let all = runs(&system, "skipping");
    check_slots(&skipping, &all);
    assert_eq!(count(&all, "status", "running"), 1);
    assert_eq!(count(&all, "status", "skipped"), all.len() - 1);
    let skipped = all.iter().find(|run| run["status"] == "skipped").unwrap();
    let why = system.ken(&["why", skipped["runId"].as_str().unwrap()]);
    let why = String::from_utf8(why.stdout).unwrap();
    assert_eq!(why, "skipped: It did not run: an earlier run was in progress.\n");
    assert_eq!(count(&runs(&system, "queueing"), "status", "running"), 1);
    // When a schedule is deleted, waiting runs are skipped and running ones continue; both can still be read.
    let waiting = runs(&system, "queueing").into_iter().find(|run| run["status"] == "queued").unwrap();
    let going = runs(&system, "queueing").into_iter().find(|run| run["status"] == "running").unwrap();
    system.delete(&format!("{ROUTE}/queueing")).expect(200);
    let waiting = run(&system, "queueing", waiting["runId"].as_str().unwrap());
    assert_eq!((&waiting["status"], &waiting["reason"]), (&json!("skipped"), &json!("deleted")));
    let id = going["runId"].as_str().unwrap();
    assert_eq!(run(&system, "queueing", id)["status"], "running");
    let session = going["instanceId"].as_str().unwrap();
    system.post(&format!("/agents/orchestrator/{session}/abort"), &json!({})).expect(200);
    until("the run has ended", || run(&system, "queueing", id)["status"] == "error");
    assert_eq!(run(&system, "queueing", id)["resultText"], "part");
}

#[test]
fn a_run_over_its_time_limit_ends_with_its_partial_text() {
    let system = scripted();
    let body = json!({"slug": "slow", "kind": "cron", "schedule": "@daily", "prompt": "hold", "timeoutMs": 1_000});
    add(&system, &body);
    let ended = system.post(&format!("{ROUTE}/slow/run?wait=1"), &json!({})).expect(502).json();
    assert_eq!(ended["status"], "timeout");
    let id = ended["runId"].as_str().unwrap();
    until("the partial text is kept", || run(&system, "slow", id)["resultText"] == "part");
    assert_eq!(run(&system, "slow", id)["status"], "timeout");
}

#[test]
fn at_most_eight_runs_are_in_progress() {
    let system = scripted();
    for number in 0..10 {
        add(&system, &json!({"slug": format!("s{number}"), "kind": "cron", "schedule": "@daily", "prompt": "hold"}));
        system.post(&format!("{ROUTE}/s{number}/run"), &json!({})).expect(200);
    }
    let states = || {
        let newest = |number: i32| runs(&system, &format!("s{number}")).remove(0);
        (0..10).map(newest).collect::<Vec<Value>>()
    };
    until("eight run", || count(&states(), "status", "running") == 8);
    assert_eq!(count(&states(), "status", "queued"), 2);
    let first = states().into_iter().find(|run| run["status"] == "running").unwrap();
    let session = first["instanceId"].as_str().unwrap();
    system.post(&format!("/agents/orchestrator/{session}/abort"), &json!({})).expect(200);
    until("the next one runs", || count(&states(), "status", "queued") == 1);
}

/// A run that cannot be admitted, because the session that it is going to have is full, ends with an error. Nobody else notices.
#[test]
fn a_run_that_is_refused_refuses_no_other_request() {
    let system = scripted();
    add(&system, &secondly("full", json!({"schedule": "24h", "prompt": "hold", "timeoutMs": 8_000})));
    let start = || system.post(&format!("{ROUTE}/full/run"), &json!({})).expect(200).text("/runId");
    let (first, second) = (start(), start());
    until("the first one runs", || run(&system, "full", &first)["status"] == "running");
    let target = format!("/agents/orchestrator/{}", run(&system, "full", &second)["sessionId"].as_str().unwrap());
    // One is held, and as many as may wait wait for it.
    let filled = (0..300).filter(|_| system.post(&target, &json!({"message": "hold"})).status == 202).count();
    assert!(filled >= 256, "{filled} prompts");
    let mut written = 0;
    while run(&system, "full", &second)["status"] == "queued" {
        system.post("/api/knowledge", &json!({"title": format!("t{written}"), "content": "c"})).expect(201);
        let accepted = system.post("/api/chat/events", &tui(&[("text", json!("hello"))]));
        assert!(accepted.status < 300, "{accepted:?}");
        written += 1;
    }
    let ended = run(&system, "full", &second);
    assert!(ended["status"] == "error" && ended["error"].as_str().unwrap().contains("prompts wait"), "{ended}");
    assert_eq!(run(&system, "full", &first)["status"], "timeout");
    assert!(written > 0);
}

#[test]
fn results_and_failures_are_delivered_to_a_session() {
    let system = scripted();
    let session = system.session();
    system.say(&session, "Good morning.").expect(200);
    let to = json!({"session": session});
    for (slug, prompt) in [("report", "Hello."), ("broken", "refused")] {
        add(&system, &json!({"slug": slug, "kind": "cron", "schedule": "@daily", "prompt": prompt, "deliverTo": to}));
    }
    let sent = system.post(&format!("{ROUTE}/report/run?wait=1"), &json!({})).expect(200);
    assert_eq!(sent.text("/delivery"), "sent");
    assert_eq!(system.post(&format!("{ROUTE}/broken/run?wait=1"), &json!({})).expect(502).text("/delivery"), "sent");
    let scope = "connector=tui&actorId=a&conversationId=c";
    let page = system.get(&format!("/api/chat/sessions/{session}/transcript?{scope}")).expect(200).json();
    let exchanges = page["exchanges"].as_array().unwrap();
    assert_eq!(exchanges.len(), 3);
    assert_eq!((&exchanges[1]["prompt"], &exchanges[1]["assistant"]["text"]), (&Value::Null, &json!("Hello there.")));
    assert!(exchanges[2]["assistant"]["text"].as_str().unwrap().contains("\"broken\" ended with error"));
    // On the stream it is a message with its end event.
    let events = system.get(&format!("/agents/orchestrator/{session}?offset=-1&tail=3")).expect(200).json();
    let kinds: Vec<&str> = events.as_array().unwrap().iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["message_start", "message_end", "submission_settled"]);
    system.say(&session, "Go on.").expect(200);
}

/// The message is in the outbox of the connector, and stays there because the connector is off.
#[test]
fn results_are_put_into_the_outbox_of_the_messenger() {
    let system = scripted();
    let to = json!({"connector": "messenger", "chatId": "77"});
    let body = json!({"slug": "x", "kind": "cron", "schedule": "@daily", "prompt": "Hello.", "deliverTo": to});
    system.post(ROUTE, &body).refused(400, "invalid", "/deliverTo/chatId");
    let allow = json!({"userId": "77"});
    system.post("/api/connectors/messenger/allow", &allow).expect(200);
    add(&system, &body);
    let ended = system.post(&format!("{ROUTE}/x/run?wait=1"), &json!({})).expect(200);
    assert_eq!(ended.text("/delivery"), "pending");
    let outbox = system.call("store", "outbox.list", &["connector=messenger", "limit=5"]).to_string();
    assert!(outbox.contains(&format!("schedule:{}", ended.text("/runId"))), "{outbox}");
}

#[test]
fn a_schedule_for_an_instant_fires_once_and_can_be_read_after_its_end() {
    let system = scripted();
    let soon = || ken_types::Timestamp::now().plus_millis(700).to_string();
    let made = add(&system, &json!({"slug": "once", "kind": "at", "schedule": soon(), "prompt": "Hello."}));
    assert_eq!((&made["deleteAfterRun"], &made["endedAt"]), (&json!(true), &Value::Null));
    let mut stream = system.attach("/api/events?offset=-1");
    let ended = loop {
        let event = stream.frame().unwrap();
        let data = event.data();
        let events = data.as_array().cloned().unwrap_or_default();
        if let Some(run) = events.iter().find(|event| event["type"] == "schedule.run" && event["status"] == "ok") {
            break run.clone();
        }
    };
    let one = format!("{ROUTE}/once");
    let record = system.get(&one).expect(200).at("/schedule");
    assert_eq!((&record["enabled"], &record["nextFireAt"]), (&json!(false), &Value::Null));
    assert_eq!((&record["id"], &record["lastRunStatus"]), (&made["id"], &json!("ok")));
    assert!(record["endedAt"].as_i64() >= made["nextFireAt"].as_i64(), "{record}");
    let run = run(&system, "once", ended["runId"].as_str().unwrap());
    assert_eq!((&run["status"], &run["slotAt"]), (&json!("ok"), &made["nextFireAt"]));
    assert_eq!(runs(&system, "once").len(), 1);
    assert!(ken(&system, &["runs", "once"]).contains(ended["runId"].as_str().unwrap()));
    // It is no longer listed, and nothing can change it.
    let listed =
        |query: &str| system.get(&format!("{ROUTE}{query}")).expect(200).at("/schedules").as_array().unwrap().len();
    assert_eq!((listed(""), listed("?all=false"), listed("?all=true")), (0, 0, 1));
    assert!(!ken(&system, &["list"]).contains("once"));
    assert!(ken(&system, &["list", "--all"]).contains("ended"));
    patch(&system, "once", &json!({"prompt": "x"})).refused(409, "conflict", "");
    for act in ["resume", "run"] {
        system.post(&format!("{one}/{act}"), &json!({})).refused(409, "conflict", "");
    }
    // Its slug is free, and then means the newest. The older one has its id.
    let later = json!({"slug": "once", "kind": "at", "schedule": "2099-01-01T00:00:00Z", "prompt": "Hello."});
    let again = add(&system, &later);
    assert_ne!(again["id"], made["id"]);
    assert_eq!(system.get(&one).expect(200).at("/schedule/id"), again["id"]);
    assert_eq!((listed(""), listed("?all=true")), (1, 2));
    assert_eq!(runs(&system, "once").len(), 0);
    let old = format!("?id={}", made["id"].as_str().unwrap());
    assert_eq!(system.get(&format!("{one}{old}")).expect(200).at("/schedule"), record);
    let of_old = system.get(&format!("{one}/runs{old}")).expect(200).at("/runs");
    assert_eq!(of_old[0]["runId"], ended["runId"]);
    patch(&system, "once", &json!({"schedule": soon()})).expect(200);
    until("the second has ended", || system.get(&one).at("/schedule/endedAt").is_i64());
    assert_eq!((runs(&system, "once").len(), listed("?all=true")), (1, 2));
    let id = made["id"].as_str().unwrap();
    assert!(ken(&system, &["runs", "once", "--id", id]).contains(ended["runId"].as_str().unwrap()));
    assert!(ken(&system, &["show", "once", "--id", id]).contains("ended"));
    system.get(&format!("{one}?id=01K0000000000000000000000")).refused(404, "not_found", "");
    // To overwrite one that has ended is to make a new one.
    let mut replacing = later;
    replacing["replace"] = json!(true);
    let third = add(&system, &replacing);
    assert!(third["id"] != made["id"] && third["id"] != again["id"]);
    // Each can be deleted.
    assert_eq!(system.delete(&format!("{one}{old}")).expect(200).json(), json!({"slug": "once", "deleted": true}));
    system.get(&format!("{one}{old}")).refused(404, "not_found", "");
    assert_eq!(system.get(&one).expect(200).at("/schedule/id"), third["id"]);
}

/// A caller that reads a schedule, changes a field and sends all of it back.
#[test]
fn a_record_that_was_read_can_be_sent_back() {
    let system = scripted();
    let made = add(&system, &secondly("x", json!({"tz": "Europe/Zurich"})));
    until("it has fired since it was read", || runs(&system, "x").len() > 1);
    let mut record = made.clone();
    record["prompt"] = json!("Good night.");
    record["timezone"] = json!("Asia/Tokyo");
    let changed = patch(&system, "x", &record).expect(200).at("/schedule");
    assert_eq!((&changed["prompt"], &changed["timezone"]), (&json!("Good night."), &json!("Asia/Tokyo")));
    assert_eq!((&changed["id"], &changed["createdAt"]), (&made["id"], &made["createdAt"]));
    assert_ne!(changed["lastFiredAt"], made["lastFiredAt"]);
    for (field, value) in [("slug", json!("y")), ("kind", json!("cron"))] {
        patch(&system, "x", &json!({field: value})).refused(400, "invalid", &format!("/{field}"));
    }
    patch(&system, "x", &json!({"unknown": 1})).refused(400, "invalid", "/unknown");
    // Both names of the field mean the same.
    for zone in [json!({"tz": "UTC"}), json!({"timezone": "UTC"}), json!({"tz": "UTC", "timezone": "utc"})] {
        patch(&system, "x", &json!({"tz": "Europe/Zurich"})).expect(200);
        assert_eq!(patch(&system, "x", &zone).expect(200).at("/schedule/timezone"), "UTC", "{zone}");
    }
    let both = json!({"tz": "UTC", "timezone": "Europe/Zurich"});
    patch(&system, "x", &both).refused(400, "invalid", "/timezone");
    system.post(ROUTE, &secondly("z", both)).refused(400, "invalid", "/timezone");
    let body = secondly("z", json!({"timezone": "Europe/Zurich"}));
    assert_eq!(add(&system, &body)["timezone"], "Europe/Zurich");
}

#[test]
fn a_failing_schedule_is_paused_only_if_configured() {
    let system = scripted();
    add(&system, &secondly("patient", json!({"prompt": "refused"})));
    add(&system, &secondly("strict", json!({"prompt": "refused", "disableAfterFailures": 2})));
    until("it is paused", || system.get(&format!("{ROUTE}/strict")).at("/schedule/enabled") == json!(false));
    assert_eq!(count(&runs(&system, "strict"), "status", "error"), 2);
    until("the other one goes on", || count(&runs(&system, "patient"), "status", "error") >= 4);
    let doctor = || String::from_utf8(system.ken(&["doctor", "--json"]).stdout).unwrap();
    until("both are reported", || doctor().matches("\"schedule-failing\"").count() == 2);
    assert!(doctor().contains("it is paused"), "{}", doctor());
    patch(&system, "patient", &json!({"prompt": "hello"})).expect(200);
    until("what works again is not reported", || doctor().matches("\"schedule-failing\"").count() == 1);
    assert_eq!(system.get(&format!("{ROUTE}/strict")).at("/schedule/nextFireAt"), json!(null));
    // On a slow machine, slots are skipped while a run is still in progress.
    let all = runs(&system, "strict");
    assert_eq!(all.len() - count(&all, "status", "skipped"), 2);
    let mut stream = system.attach("/api/events?offset=-1");
    let events = stream.until_event("schedule.paused");
    let paused: Vec<&Value> = events.iter().filter(|event| event["type"] == "schedule.paused").collect();
    assert_eq!(paused[0]["slug"], "strict");
}

/// The delay of a slot is fixed, is included in nextFireAt, and is not part of the slot's identity.
#[test]
fn jitter_delays_a_slot_by_a_fixed_time() {
    const HOUR: i64 = 3_600_000;
    let system = scripted();
    let mut delays: Vec<i64> = (0..3)
        .map(|number| {
            let slug = format!("s{number}");
            let made = add(
                &system,
                &json!({"slug": slug, "kind": "cron", "schedule": "0 * * * *", "prompt": "p", "jitterMs": HOUR / 2}),
            );
            let again = system.get(&format!("{ROUTE}/{slug}")).at("/schedule/nextFireAt");
            assert_eq!(again, made["nextFireAt"]);
            made["nextFireAt"].as_i64().unwrap() % HOUR
        })
        .collect();
    assert!(delays.iter().all(|delay| *delay <= HOUR / 2), "{delays:?}");
    delays.dedup();
    assert!(delays.len() > 1, "{delays:?}");
    add(&system, &json!({"slug": "tick", "kind": "cron", "schedule": "* * * * * *", "prompt": "p", "jitterMs": 400}));
    until("slots were fired", || runs(&system, "tick").len() >= 3);
    let slots: Vec<i64> = runs(&system, "tick").iter().map(|run| run["slotAt"].as_i64().unwrap()).collect();
    for pair in slots.windows(2) {
        assert_eq!((pair[0] % 1_000, pair[0] - pair[1]), (0, 1_000), "{slots:?}");
    }
}

#[test]
fn slots_of_a_scheduler_that_was_down_are_recorded() {
    let system = scripted();
    let last = add(&system, &secondly("last", json!({"graceMs": 0})));
    let all = add(&system, &secondly("all", json!({"graceMs": 0, "missed": "all"})));
    until("they fire", || count(&runs(&system, "all"), "status", "ok") >= 1);
    assert!(system.ken(&["stop", "scheduler"]).status.success());
    for answer in [system.get(ROUTE), system.get(&format!("{ROUTE}/last/runs"))] {
        answer.refused(503, "unavailable", "");
    }
    std::thread::sleep(Duration::from_millis(3_200));
    assert!(system.ken(&["start", "scheduler"]).status.success());
    until("the slots are recorded", || count(&runs(&system, "last"), "reason", "down") >= 2);
    until("the others are caught up", || {
        let runs = runs(&system, "all");
        count(&runs, "status", "queued") + count(&runs, "status", "running") <= 1 && count(&runs, "status", "ok") >= 4
    });
    for (slug, made) in [("last", last), ("all", all)] {
        system.post(&format!("{ROUTE}/{slug}/pause"), &json!({})).expect(200);
        check_slots(&made, &runs(&system, slug));
    }
    assert_eq!(count(&runs(&system, "all"), "reason", "down"), 0);
}

/// The slots of a schedule that were recorded, read from the stream of system events, because the records of old slots are deleted.
fn recorded(system: &System, slug: &str) -> Vec<i64> {
    let (mut slots, mut offset) = (Vec::new(), "-1".to_owned());
    loop {
        let page = system.get(&format!("/api/events?offset={offset}&live=long-poll")).expect(200);
        let events = page.json();
        let begun = events.as_array().unwrap().iter().filter(|event| {
            let status = event["status"].as_str().unwrap_or_default();
            event["type"] == "schedule.run"
                && event["slug"] == slug
                && ["queued", "skipped", "missed"].contains(&status)
        });
        slots.extend(begun.filter_map(|event| event["slotAt"].as_i64()));
        if page.header("stream-up-to-date") == Some("true") {
            return slots;
        }
        offset = page.header("stream-next-offset").unwrap().to_owned();
    }
}

/// Pauses schedules that fire every second, waits until none of their runs is in progress, and checks every record.
fn check_to_the_end(system: &System, schedules: &[Value]) {
    for made in schedules {
        let slug = made["slug"].as_str().unwrap();
        let before = recorded(system, slug).len();
        until("it fires", || recorded(system, slug).len() > before);
        system.post(&format!("{ROUTE}/{slug}/pause"), &json!({})).expect(200);
        until("nothing runs", || {
            let runs = runs(system, slug);
            ["queued", "admitted", "running"].iter().all(|state| count(&runs, "status", state) == 0)
        });
        let kept = runs(system, slug);
        let first = made["nextFireAt"].as_i64().unwrap();
        let mut slots = recorded(system, slug);
        slots.sort_unstable();
        let expected: Vec<i64> = (0..).map(|number| first + number * 1_000).take(slots.len()).collect();
        assert_eq!(slots, expected, "{slug}");
        for run in kept.iter().filter(|run| run["status"] == "ok") {
            let target = format!("/agents/orchestrator/{}?offset=-1", run["instanceId"].as_str().unwrap());
            let events = system.get(&target).expect(200).json();
            let ends = kinds(events.as_array().unwrap()).iter().filter(|kind| **kind == "submission_settled").count();
            assert_eq!(ends, 1, "{run}");
        }
    }
}

/// `KEN_KILLS` is the number of kills, 8 by default.
#[test]
fn a_slot_has_one_record_whichever_part_is_killed() {
    let system = scripted();
    let schedules: Vec<Value> = (0..3)
        .map(|number| {
            let policy = if number % 2 == 0 { "queue" } else { "skip" };
            add(&system, &secondly(&format!("s{number}"), json!({"overlap": policy, "missed": "all"})))
        })
        .collect();
    let mut chance = Random::new(number("KEN_SEED", 7));
    for _ in 0..number("KEN_KILLS", 8) {
        let part = chance.of(&["scheduler", "scheduler", "store", "agent"]);
        system.wait_until_stable(part);
        std::thread::sleep(Duration::from_millis(chance.below(700) as u64));
        system.kill(part);
    }
    until("all parts are back", || system.get("/ready").status == 200);
    check_to_the_end(&system, &schedules);
}

/// A slot is recorded by one call of the store in one transaction, which contains its run, the run's submission and the progress of
/// the schedule. Kills the scheduler before the call arrives, kills it after the call is done but before the reply, and kills the
/// store during the call. `KEN_KILLS` is the number of kills at each point.
#[test]
fn a_kill_at_any_step_of_a_record_leaves_one_record() {
    let system = scripted();
    let tap = WireTap::put_in(&system.socket("store"));
    // After the restart, the scheduler calls the store through the tap.
    system.wait_until_stable("scheduler");
    system.kill("scheduler");
    until("the scheduler is back", || system.get(ROUTE).status == 200);
    let made = add(&system, &secondly("tick", json!({"overlap": "queue", "missed": "all"})));
    let steps = [("scheduler", Side::Request), ("scheduler", Side::Reply), ("store", Side::Through)];
    let mut chance = Random::new(number("KEN_SEED", 7));
    for number in 0..number("KEN_KILLS", 2) * 3 {
        let (part, side) = steps[(number % 3) as usize];
        system.wait_until_stable(part);
        let pid = system.pid(part);
        tap.stop_at_line("schedules.advance", r#""slots":[{"#, side);
        tap.reached();
        if part == "store" {
            std::thread::sleep(Duration::from_micros(chance.below(4_000) as u64));
        }
        kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
    }
    until("all parts are back", || system.get("/ready").status == 200);
    check_to_the_end(&system, &[made]);
}

#[test]
fn two_schedulers_on_one_store_fire_a_slot_once() {
    let system = scripted();
    let second = Second::start(&system, 0);
    let third = Second::start(&system, 3);
    let made = add(&system, &secondly("tick", json!({})));
    until("slots were fired", || runs(&system, "tick").len() >= 4);
    drop((second, third));
    system.post(&format!("{ROUTE}/tick/pause"), &json!({})).expect(200);
    let all = runs(&system, "tick");
    check_slots(&made, &all);
    assert_eq!(count(&all, "status", "missed"), 0);
}

/// If the clock is put forward, the slots in between are missed; if it is put back, nothing is fired again.
#[test]
fn the_clock_is_set_by_an_hour_both_ways() {
    const HOUR: i64 = 3_600_000;
    let system = scripted();
    let body = json!({"slug": "often", "kind": "every", "schedule": "5m", "prompt": "Hello."});
    let made = add(&system, &body);
    assert!(system.ken(&["stop", "scheduler"]).status.success());
    let recorded = || {
        let page = system.call("store", "schedules.runs", &["slug=often", "limit=500"]);
        page["runs"].as_array().unwrap().clone()
    };
    let ahead = Second::start(&system, HOUR);
    until("an hour of slots is recorded", || recorded().len() == 12);
    until("the last one has run", || count(&recorded(), "status", "ok") == 1);
    assert_eq!(count(&recorded(), "reason", "down"), 11);
    drop(ahead);
    let after = recorded();
    let behind = Second::start(&system, 0);
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(recorded(), after);
    drop(behind);
    let first = made["nextFireAt"].as_i64().unwrap();
    let slots: Vec<i64> = after.iter().rev().map(|run| run["slotAt"].as_i64().unwrap()).collect();
    assert_eq!(slots, (0..12).map(|number| first + number * 300_000).collect::<Vec<i64>>());
    let next = system.call("store", "schedules.get", &["slug=often"])["nextFireAt"].as_i64();
    assert_eq!(next, Some(first + 12 * 300_000));
}

/// A slot that was recorded while the clock was years ahead does not keep a schedule from firing.
#[test]
fn a_schedule_that_fired_with_a_clock_years_ahead_fires_again() {
    const YEARS: i64 = 2 * 365 * 24 * 3_600_000;
    let system = scripted();
    let body = json!({"slug": "often", "kind": "every", "schedule": "30d", "prompt": "Hello.", "missed": "skip"});
    let made = add(&system, &body);
    assert!(system.ken(&["stop", "scheduler"]).status.success());
    let next = || system.call("store", "schedules.get", &["slug=often"])["nextFireAt"].as_i64().unwrap_or_default();
    let ahead = Second::start(&system, YEARS);
    until("slots of two years are recorded", || next() > made["nextFireAt"].as_i64().unwrap() + YEARS / 2);
    drop(ahead);
    assert!(system.ken(&["start", "scheduler"]).status.success());
    until("it goes on from now", || next() == made["nextFireAt"].as_i64().unwrap());
    let changed = patch(&system, "often", &json!({"schedule": "1s"})).expect(200).at("/schedule");
    assert!(changed["nextFireAt"].as_i64() < Some(changed["updatedAt"].as_i64().unwrap() + 60_000), "{changed}");
    until("it fires", || count(&runs(&system, "often"), "status", "ok") > 0);
}

/// A schedule that was made while the clock was ahead, and has not fired, goes on when the clock is put back: while a scheduler runs, before
/// it starts, and when the schedule is resumed. One that has fired meanwhile waits for its next slot.
#[test]
fn a_schedule_that_was_made_while_the_clock_was_ahead_goes_on_when_it_clock_set_back() {
    const HOUR: i64 = 3_600_000;
    let now = || ken_types::Timestamp::of_system().millis();
    let mut system = Builder::default().env("KEN_CLOCK", &format!("0={HOUR}*1")).start();
    for slug in ["plain", "paused", "both"] {
        let made = add(&system, &json!({"slug": slug, "kind": "every", "schedule": "20m", "prompt": "Hello."}));
        assert!(made["nextFireAt"].as_i64().unwrap() > now() + HOUR, "{made}");
    }
    add(&system, &secondly("fired", json!({})));
    until("it has fired", || !runs(&system, "fired").is_empty());
    system.post(&format!("{ROUTE}/paused/pause"), &json!({})).expect(200);
    let next = |system: &System, slug: &str| {
        let shown = system.call("store", "schedules.get", &[&format!("slug={slug}")]);
        shown["nextFireAt"].as_i64().unwrap_or_default()
    };
    system.down();
    system.set_env("KEN_CLOCK", "");
    system.up();
    until("it goes on from now", || next(&system, "plain") < now() + HOUR / 3);
    assert!(next(&system, "plain") > now());
    system.post(&format!("{ROUTE}/paused/resume"), &json!({})).expect(200);
    assert!((now()..now() + HOUR / 3).contains(&next(&system, "paused")), "{}", next(&system, "paused"));
    let waits = next(&system, "fired");
    assert!(waits > now() + HOUR / 2, "{waits}");
    patch(&system, "fired", &json!({"prompt": "Hello again."})).expect(200);
    assert_eq!(next(&system, "fired"), waits);
    // While it runs, a scheduler sees that the clock is put back, here by another hour.
    assert!(system.ken(&["stop", "scheduler"]).status.success());
    let then = now() + 5_000;
    let second = Second::with_clock(&system, &format!("{then}={}*1", then - HOUR));
    until("it goes on from then", || next(&system, "both") < now() - HOUR / 2);
    assert_eq!(next(&system, "fired"), waits);
    drop(second);
}

/// With the maximum number of schedules, one more is refused, and ken-scheduler uses no CPU time while idle. The bound on its
/// private memory is for a build without optimisation; `make bench` measures the release build.
#[test]
fn ten_thousand_schedules_are_the_limit_and_cost_nothing_while_idle() {
    const MANY: usize = 10_000;
    let system = System::start();
    let one = |slug: &str| json!({"slug": slug, "kind": "cron", "schedule": "0 0 1 1 *", "prompt": "p"});
    add(&system, &one("s0"));
    fill(&system, 1..MANY, |_, _, _| {});
    for _ in 0..2 {
        let full = system.post(ROUTE, &one("one-more")).refused(409, "conflict", "");
        assert!(full.text("/error").contains("10000"), "{}", full.body_text());
    }
    let listed = system.get(ROUTE).expect(200).at("/schedules");
    assert_eq!(listed.as_array().unwrap().len(), MANY);
    system.get(&format!("{ROUTE}/one-more")).refused(404, "not_found", "");
    // A new process has no memory from earlier requests, so only the idle size is measured.
    system.wait_until_stable("scheduler");
    system.kill("scheduler");
    until("the scheduler is back", || system.get(&format!("{ROUTE}/s9999")).status == 200);
    let pid = system.pid("scheduler");
    until("it has come to rest", || {
        let before = ticks(pid);
        std::thread::sleep(Duration::from_millis(300));
        ticks(pid) == before
    });
    let before = ticks(pid);
    std::thread::sleep(Duration::from_secs(1));
    assert!(ticks(pid) <= before + 1, "it works while nothing is due");
    let kib = private_kib(pid);
    assert!(kib < 6 * 1_024, "{kib} KiB");
    // After one is deleted, another one can be added.
    system.delete(&format!("{ROUTE}/s7")).expect(200);
    add(&system, &one("one-more"));
}

/// A system whose model is this provider, with a daily schedule of this slug.
fn with_provider(provider: &Provider, slug: &str) -> System {
    let system = Builder::default()
        .env("KEN_MODEL", "openai/gpt-4o-mini")
        .env("OPENAI_BASE_URL", &format!("{}/v1", provider.url()))
        .secrets("OPENAI_API_KEY=sk-1\n")
        .start();
    let body =
        json!({"slug": slug, "kind": "cron", "schedule": "@daily", "prompt": "Good morning.", "payload": {"a": "b"}});
    add(&system, &body);
    system
}

#[test]
fn the_prompt_says_that_a_turn_is_scheduled() {
    let provider = Provider::start(vec![Reply::Stream(openai(&["Done."], &[]))]);
    let system = with_provider(&provider, "x");
    let ended = system.post(&format!("{ROUTE}/x/run?wait=1"), &json!({})).expect(200);
    assert_eq!(ended.text("/resultText"), "Done.");
    let received = provider.received().remove(0).body;
    let [system, prompt] = [0, 1].map(|at| received["messages"][at]["content"].as_str().unwrap());
    assert!(!system.contains("A scheduled turn") && !system.contains(r#"{"a":"b"}"#), "{system}");
    assert!(prompt.contains("A scheduled turn"), "{prompt}");
    assert!(prompt.contains("data that were given with the schedule\n{\"a\":\"b\"}\n--- end "), "{prompt}");
}

/// With `targetAgent`, the worker itself runs the turn, with its own instructions, tools and workspace.
#[test]
fn a_schedule_for_the_coding_worker_is_run_by_it() {
    let system = Builder::default()
        .script(&[
            json!({"when": "list", "after_tools": 0, "events": [{"tool": {"name": "list_files", "arguments": {"path": "."}}}]}),
            json!({"when": "list", "after_tools": 1, "events": [{"text": "Listed."}]}),
        ])
        .start();
    std::fs::create_dir_all(system.home().join("state/workspace/repos")).unwrap();
    for (agent, is_refused) in [("coding-worker", false), ("orchestrator", true)] {
        add(
            &system,
            &json!({"slug": agent, "kind": "cron", "schedule": "@daily", "prompt": "list", "targetAgent": agent}),
        );
        let ended = system.post(&format!("{ROUTE}/{agent}/run?wait=1"), &json!({})).expect(200);
        let target = format!("/agents/orchestrator/{}?offset=-1", ended.text("/instanceId"));
        let events = system.get(&target).expect(200).json();
        let tools = events.as_array().unwrap().iter();
        let tool = tools.clone().find(|event| event["type"] == "tool").unwrap();
        assert_eq!(tool["isError"], is_refused, "{agent}: {tool}");
        // Nothing is delegated; all events belong to the run itself.
        assert_eq!(tools.filter(|event| event["type"] == "task_start").count(), 0);
    }
    let provider = Provider::start(vec![Reply::Stream(openai(&["Done."], &[]))]);
    let system = with_provider(&provider, "x");
    patch(&system, "x", &json!({"targetAgent": "coding-worker"})).expect(200);
    system.post(&format!("{ROUTE}/x/run?wait=1"), &json!({})).expect(200);
    let received = provider.received().remove(0).body;
    let reported = received["messages"].to_string();
    assert!(reported.contains("You are the coding worker") && reported.contains("A scheduled turn"), "{reported}");
}

#[test]
fn a_temporary_failure_is_retried_later() {
    let busy = refusal(429, vec![("Retry-After", "120".to_owned())], "rate_limit", "Slow down.");
    let provider = Provider::start(vec![busy]);
    let system = with_provider(&provider, "x");
    let begun = system.post(&format!("{ROUTE}/x/run"), &json!({})).expect(200);
    let id = begun.text("/runId");
    until("it waits for its next attempt", || {
        let run = run(&system, "x", &id);
        run["status"] == "queued" && run["attempt"] == 1 && run["error"].is_string()
    });
    assert_eq!(provider.received().len(), 1);
}

/// A chat cannot use the connector name of scheduled turns.
#[test]
fn chats_cannot_use_the_connector_name_of_schedules() {
    let system = scripted();
    let mut body = tui(&[("text", json!("Hello."))]);
    body["connector"] = json!("schedule");
    let answer = system.post("/api/chat/events", &body).expect(200);
    assert!(answer.text("/session/id").starts_with("web-"));
}

/// A turn sees and creates only the schedules of its conversation.
#[test]
fn an_agent_creates_schedules() {
    let call = |when: &str, name: &str, arguments: Value| json!({"when": when, "after_tools": 0, "events": [{"tool": {"name": name, "arguments": arguments}}]});
    let new = json!({"slug": "mine", "kind": "cron", "schedule": "@daily", "prompt": "Report."});
    let mut wrong = new.clone();
    wrong["schedule"] = json!("0 25 * * *");
    let system = Builder::default()
        .script(&[
            json!({"when": "Report", "events": [{"text": "All is well."}]}),
            call("make", "schedule_create", new),
            call("wrong", "schedule_create", wrong),
            call("list", "schedule_list", json!({})),
            call("drop", "schedule_delete", json!({"slug": "mine"})),
            json!({"after_tools": 1, "events": [{"text": "Done."}]}),
        ])
        .start();
    let session = system.session();
    let tool = |session: &str, text: &str| {
        system.say(session, text).expect(200);
        let target = format!("/agents/orchestrator/{session}?offset=-1&tail=100");
        let events = system.get(&target).expect(200).json();
        let mut tools = events.as_array().unwrap().iter().filter(|event| event["type"] == "tool");
        tools.next_back().unwrap().clone()
    };
    assert_eq!(tool(&session, "make")["result"]["details"]["slug"], "mine");
    let made = system.get(&format!("{ROUTE}/mine")).expect(200).at("/schedule");
    assert_eq!((&made["ownerScope"], &made["deliverTo"]), (&json!("tui:a:c"), &json!({"session": session})));
    let refused = tool(&session, "wrong");
    assert_eq!(refused["isError"], true);
    assert!(refused.to_string().contains("column 3"), "{refused}");
    assert_eq!(tool(&session, "list")["result"]["details"]["schedules"][0]["slug"], "mine");
    // Another person can neither see nor delete it.
    let stranger = json!({"connector": "tui", "actorId": "b", "conversationId": "d"});
    let other = system.post("/api/chat/sessions", &stranger).expect(201).text("/session/id");
    let say = |text: &str| {
        let mut body = stranger.clone();
        body["text"] = json!(text);
        body["session"] = json!(other);
        system.post("/api/chat/events", &body).expect(200);
        let events = system.get(&format!("/agents/orchestrator/{other}?offset=-1&tail=100")).json();
        let mut tools = events.as_array().unwrap().iter().filter(|event| event["type"] == "tool");
        tools.next_back().unwrap().clone()
    };
    assert_eq!(say("list")["result"]["details"]["schedules"], json!([]));
    assert_eq!(say("drop")["isError"], true);
    // Its result is posted to the conversation.
    system.post(&format!("{ROUTE}/mine/run?wait=1"), &json!({})).expect(200);
    let scope = "connector=tui&actorId=a&conversationId=c";
    let page = system.get(&format!("/api/chat/sessions/{session}/transcript?{scope}")).expect(200).json();
    let last = page["exchanges"].as_array().unwrap().last().unwrap().clone();
    assert_eq!(last["assistant"]["text"], "All is well.");
    assert_eq!(tool(&session, "drop")["isError"], false);
    system.get(&format!("{ROUTE}/mine")).refused(404, "not_found", "");
}

/// A schedule in UTC would fire at another time than the one that the model was told.
#[test]
fn an_agent_names_a_time_zone_where_that_of_the_system_has_no_name() {
    let call = |when: &str, slug: &str, tz: Value| {
        let mut arguments = json!({"slug": slug, "kind": "cron", "schedule": "@daily", "prompt": "Report."});
        arguments.as_object_mut().unwrap().extend(tz.as_object().unwrap().clone());
        json!({"when": when, "after_tools": 0, "events": [{"tool": {"name": "schedule_create", "arguments": arguments}}]})
    };
    for (zone, expected) in [
        ("Europe/Zurich", Ok("Europe/Zurich")),
        ("UTC0", Ok("UTC")),
        ("CET-1CEST,M3.5.0,M10.5.0/3", Err("tz: the time zone of this system has no name; give an IANA name")),
    ] {
        let system = Builder::default()
            .env("TZ", zone)
            .script(&[
                call("plain", "plain", json!({})),
                call("named", "named", json!({"tz": "Asia/Tokyo"})),
                json!({"after_tools": 1, "events": [{"text": "Done."}]}),
            ])
            .start();
        let session = system.session();
        let made = |text: &str| {
            system.say(&session, text).expect(200);
            let events = system.get(&format!("/agents/orchestrator/{session}?offset=-1&tail=100")).expect(200).json();
            events.as_array().unwrap().iter().rfind(|event| event["type"] == "tool").unwrap().clone()
        };
        assert_eq!(made("named")["result"]["details"]["timezone"], "Asia/Tokyo", "{zone}");
        let plain = made("plain");
        match expected {
            Ok(name) => assert_eq!(plain["result"]["details"]["timezone"], name, "{zone}: {plain}"),
            Err(why) => assert!(plain["isError"] == true && plain.to_string().contains(why), "{zone}: {plain}"),
        }
    }
}

/// Whoever deletes a session has no other place where an order of the agent is seen.
#[test]
fn a_schedule_that_an_agent_made_ends_with_its_session_and_one_of_a_person_does_not() {
    let make = |when: &str, arguments: Value| json!({"when": when, "after_tools": 0, "events": [{"tool": {"name": "schedule_create", "arguments": arguments}}]});
    let new = |slug: &str, deliver: bool| json!({"slug": slug, "kind": "cron", "schedule": "@daily", "prompt": "Report.", "deliver": deliver});
    let system = Builder::default()
        .script(&[
            json!({"when": "Report", "events": [{"text": "All is well."}]}),
            make("tell me", new("told", true)),
            make("be quiet", new("silent", false)),
            json!({"after_tools": 1, "events": [{"text": "Done."}]}),
        ])
        .start();
    let rm = |session: &str| {
        let output = system.ken(&["sessions", "rm", "--yes", session]);
        assert_eq!(String::from_utf8_lossy(&output.stdout), format!("deleted {session}\n"), "{output:?}");
    };
    let slugs = || {
        let list = system.get(ROUTE).expect(200).at("/schedules");
        list.as_array().unwrap().iter().map(|one| one["slug"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    for round in 0..2 {
        let session = system.session();
        system.say(&session, "tell me").expect(200);
        system.say(&session, "be quiet").expect(200);
        let person = format!("person-{round}");
        ken(&system, &["add", &person, "--cron", "@daily", "--deliver-to", &session, "Report."]);
        for slug in ["told", &person] {
            assert_eq!(ken(&system, &["run", slug, "--wait"]), "All is well.\n");
        }
        let run = runs(&system, "told")[0]["sessionId"].as_str().unwrap().to_owned();
        for _ in 0..2 {
            rm(&session);
            assert_eq!(slugs(), (0..=round).map(|round| format!("person-{round}")).collect::<Vec<_>>());
        }
        until("its runs are deleted too", || {
            system.get(&format!("/agents/orchestrator/{run}?offset=-1")).status == 410
        });
        let failed = system.ken(&["schedule", "run", &person, "--wait"]);
        let said = String::from_utf8_lossy(&failed.stderr);
        assert!(!failed.status.success() && said.contains(&format!("the session {session} was deleted")), "{said}");
    }
}

fn ken(system: &System, arguments: &[&str]) -> String {
    let output = system.ken(&[&["schedule"], arguments].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The answer of the gateway about such a run has a status with which other requests are repeated for a minute.
#[test]
fn the_command_says_at_once_that_a_run_has_failed() {
    let fails = json!({"events": [{"error": {"class": "auth", "message": "the key is not taken"}}]});
    let system = Builder::default().script(&[fails]).start();
    ken(&system, &["add", "daily", "--every", "1d", "Well?"]);
    let begun = Instant::now();
    let output = system.ken(&["schedule", "run", "daily", "--wait"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("the key is not taken"), "{said}");
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    assert_eq!(ken(&system, &["runs", "daily", "--json"]).lines().count(), 1);
}

#[test]
fn the_command_does_what_the_routes_do() {
    let system = scripted();
    let next = ken(
        &system,
        &["add", "morning", "--cron", "0 9 * * *", "--tz", "Europe/Zurich", "--set", "graceMs=1000", "Hello", "you."],
    );
    assert!(next.trim().ends_with(":00:00Z"), "{next}");
    ken(&system, &["add", "pulse", "--every", "90m", "--overlap", "queue", "--missed", "all", "Well?"]);
    let table = ken(&system, &["list"]);
    let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["SLUG", "KIND", "STATE", "NEXT", "LAST", "RESULT"]);
    assert_eq!((rows[1][0], rows[1][1], rows[1][2], rows[2][0]), ("morning", "cron", "active", "pulse"));
    assert_eq!(ken(&system, &["next", "1"]).lines().count(), 2);
    // Lists the times of one schedule: those of a cron schedule follow the calendar, those of an interval its length.
    let list = ken(&system, &["next", "morning", "400"]);
    let times: Vec<&str> = list.lines().collect();
    assert_eq!((times.len(), times[0]), (400, next.trim()));
    assert!(list.contains("T07:00:00Z") && list.contains("T08:00:00Z"), "{list}");
    let refused = system.ken(&["schedule", "add", "pulse", "--every", "1h", "Well?"]);
    let error = serde_json::from_slice::<Value>(&refused.stderr).unwrap()["error"].clone();
    assert_eq!((&error["code"], &error["hint"]), (&json!("conflict"), &json!("--replace overwrites it")));
    let list = ken(&system, &["next", "pulse", "3", "--json"]);
    let times: Vec<Value> = list.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let at = |index: usize| times[index]["nextFireAt"].as_i64().unwrap();
    assert_eq!((times.len(), at(1) - at(0), at(2) - at(1)), (3, 5_400_000, 5_400_000));
    assert_eq!(system.get(&format!("{ROUTE}/pulse")).at("/schedule/nextFireAt"), json!(at(0)));
    assert_eq!(ken(&system, &["next", "pulse"]).lines().count(), 10);
    ken(&system, &["add", "once", "--at", "2130-01-01T00:00", "Well?"]);
    assert_eq!(ken(&system, &["next", "once", "3"]), "2130-01-01T00:00:00Z\n");
    ken(&system, &["rm", "once"]);
    assert_eq!(ken(&system, &["list", "--json"]).lines().count(), 2);
    ken(&system, &["pause", "morning", "pulse"]);
    assert_eq!(ken(&system, &["next"]).lines().count(), 1);
    let paused = system.ken(&["schedule", "next", "pulse"]);
    assert_eq!((paused.status.code(), paused.stdout), (Some(0), Vec::new()));
    assert_eq!(String::from_utf8(paused.stderr).unwrap(), "ken: pulse is paused\n");
    ken(&system, &["resume", "pulse"]);
    assert_eq!(ken(&system, &["run", "morning", "--wait"]), "Hello there.\n");
    let shown = ken(&system, &["show", "morning"]);
    for part in ["state      paused", "fires      cron 0 9 * * *", "Hello you.", "by hand", "1000 ms"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    assert_eq!(ken(&system, &["runs", "morning", "--json"]).lines().count(), 1);
    let preview = ken(&system, &["preview", "30 2 * * *", "--tz", "Europe/Zurich", "-n", "2"]);
    assert_eq!(preview.lines().count(), 2);
    let preview = ken(&system, &["preview", "30 2 * * *", "-n", "3", "--json"]);
    assert_eq!(preview.lines().count(), 1);
    let preview: Value = serde_json::from_str(&preview).unwrap();
    assert_eq!(preview["slots"].as_array().unwrap().len(), 3);
    ken(&system, &["rm", "morning", "pulse"]);
    for (words, at, message) in [
        (&["next", "0"][..], "N", "0 is not a number from 1"),
        (&["next", "100001"], "N", "100001 is not a number from 1 to 100000"),
        (&["next", "morning", "100001"], "", "invalid value '100001' for '[N]'"),
        (&["preview", "0 9 * * *", "-n100001"], "--number", "invalid value '100001' for '--number <N>'"),
        (&["next", "morning", "3"], "", "there is no schedule"),
        (&["add"], "SLUG", "the name of the schedule is missing"),
        (&["add", "--every", "1h"], "SLUG", "the name of the schedule is missing"),
        (&["add", "x", "Well?"], "--cron", "the time is missing: --cron EXPRESSION, --every INTERVAL or --at TIME"),
        (&["next", "1", "2", "3"], "", "unexpected argument '3' found"),
    ] {
        let refused = system.ken(&[&["schedule"], words].concat());
        let error = serde_json::from_slice::<Value>(&refused.stderr).unwrap()["error"].clone();
        assert_eq!((refused.status.code(), &error["at"]), (Some(2), &json!(at)), "{error}");
        assert!(error["message"].as_str().unwrap().starts_with(message), "{error}");
        let hint = match words[0] {
            "add" => "ken schedule add morning --cron '0 9 * * MON-FRI' 'Summarise the night.'",
            _ if words.len() == 4 => "usage: ken schedule next [OPTIONS] [SLUG] [N]",
            _ => continue,
        };
        assert_eq!(error["hint"], hint);
    }
    let long = "x".repeat(64 * 1024 + 1);
    let refused = system.ken(&["schedule", "add", "x", "--every", "1h", &long]);
    let error: Value = serde_json::from_slice(&refused.stderr).unwrap();
    assert_eq!(error["error"]["message"], "prompt has more than 65536 bytes");
    let refused = system.ken(&["schedule", "add", "x", "--cron", "0 25 * * *", "p"]);
    let error: Value = serde_json::from_slice(&refused.stderr).unwrap();
    assert_eq!((refused.status.code(), &error["error"]["at"]), (Some(2), &json!("/schedule")));
    assert_eq!(system.ken(&["schedule", "show", "morning"]).status.code(), Some(2));
}
