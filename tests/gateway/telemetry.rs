//! Telemetry: a summary of the steps of every submission and run, without their texts; the usage; and the outcome of a
//! message.

use std::collections::BTreeSet;

use ken_tests::pages::{Pages, Served};
use ken_tests::provider::{Provider, Reply, openai};
use ken_tests::{Builder, System, tui, until};
use serde_json::{Value, json};

const SECRET: &str = "canary-7d1f";
/// The fields of the summary of an event, as in the contract.
const FIELDS: [&str; 16] = [
    "type", "timestamp", "eventIndex", "runId", "harness", "session", "parentSession", "taskId", "operationId",
    "turnId", "agent", "toolName", "operationKind", "durationMs", "isError", "usage",
];

fn runs(system: &System, query: &str) -> Vec<Value> {
    let page = system.get(&format!("/api/telemetry/runs{query}")).expect(200).json();
    page["runs"].as_array().unwrap().clone()
}

fn say(system: &System, text: &str) -> Value {
    system.post("/api/chat/events", &tui(&[("text", json!(text))])).json()
}

#[test]
fn the_summary_of_a_delegated_turn_contains_no_texts() {
    let web = Pages::start();
    web.put("/ferry", Served::page("Ferries", &format!("<p>The ferry leaves at nine, {SECRET}.</p>")));
    let question = format!("When does the ferry leave? {SECRET}");
    let find = json!({"tool": {"name": "web_research", "arguments": {"question": question}}});
    let odd = json!({"tool": {"name": SECRET, "arguments": {"x": SECRET}}});
    let task = json!({"agent": "research-worker", "prompt": format!("Find the boat {SECRET}")});
    let delegate = json!({"tool": {"name": "task", "arguments": task}});
    let system = Builder::default()
        .env("KEN_SEARCH_URL", &web.url())
        .env("KEN_WEB_ALLOW", &web.host())
        .script(&[
            json!({"when": "Find the boat", "after_tools": 0, "events": [find]}),
            json!({"when": "Find the boat", "after_tools": 1, "events": [odd]}),
            json!({"when": "Find the boat", "events": [{"text": format!("At nine {SECRET} [web-1].")}]}),
            json!({"after_tools": 0, "events": [delegate]}),
            json!({"events": [{"text": format!("It leaves at nine {SECRET}.")}]}),
        ])
        .start();
    let answer = say(&system, &question);
    let id = answer["submissionId"].as_str().unwrap();
    let summary = system.get(&format!("/api/telemetry/runs/{id}")).expect(200).json();
    assert_eq!(
        (&summary["runId"], &summary["submissionId"], &summary["kind"]),
        (&json!(id), &json!(id), &json!("prompt"))
    );
    assert_eq!((&summary["connector"], &summary["status"]), (&json!("tui"), &json!("completed")));
    assert_eq!((&summary["delegatedToResearcher"], &summary["calledWebResearch"]), (&json!(true), &json!(true)));
    let counts = &summary["counts"];
    assert_eq!(
        (&counts["tasks"], &counts["toolCalls"], &counts["turns"]),
        (&json!(1), &json!(3), &json!(5)),
        "{counts}"
    );
    assert_eq!(counts["errors"], json!(summary["errors"].as_array().unwrap().len()));
    assert!(summary["usage"]["totalTokens"].as_u64().unwrap() > 0 && summary["cost"].is_null(), "{summary}");
    assert!(summary["durationMs"].is_u64() && summary["startedAt"].is_string() && summary["endedAt"].is_string());
    // The number of events equals that of the stream for this submission.
    let target = format!("/agents/orchestrator/{}?offset=-1", summary["sessionId"].as_str().unwrap());
    let events = system.get(&target).expect(200).json();
    assert_eq!(summary["eventCount"], json!(events.as_array().unwrap().len()));
    let allowed: BTreeSet<&str> = FIELDS.into();
    for list in ["events", "taskStarts", "toolCalls", "operations", "errors"] {
        for event in summary[list].as_array().unwrap() {
            let unknown = event.as_object().unwrap().keys().find(|field| !allowed.contains(field.as_str()));
            assert_eq!(unknown, None, "{list}: {event}");
        }
    }
    assert!(!summary.to_string().contains(SECRET), "{summary:#}");
    assert!(!format!("{:?}", runs(&system, "")).contains(SECRET));
    // The summary is stored, so it is the same after a kill of the store.
    system.kill("store");
    let again = system.get(&format!("/api/telemetry/runs/{id}")).expect(200).json();
    assert_eq!(again, summary);
}

#[test]
fn summaries_are_listed_by_page_kind_and_connector() {
    let system = System::start();
    let session = system.session();
    for number in 0..3 {
        system.say(&session, &format!("note {number}"));
    }
    system.say(&session, "/compact");
    system.post("/agents/orchestrator/direct?wait=result", &json!({"message": "hello"})).expect(200);
    let mut seen = Vec::new();
    let mut after = String::new();
    loop {
        let page = system.get(&format!("/api/telemetry/runs?limit=2{after}")).expect(200).json();
        seen.extend(page["runs"].as_array().unwrap().iter().map(|run| run["kind"].as_str().unwrap().to_owned()));
        assert_eq!(page["unscopedEventCount"], 0);
        match page["page"]["after"].as_str() {
            Some(cursor) => after = format!("&after={cursor}"),
            None => break,
        }
    }
    assert_eq!(seen, ["prompt", "command", "prompt", "prompt", "prompt"]);
    assert_eq!((runs(&system, "?kind=command").len(), runs(&system, "?connector=tui").len()), (1, 4));
    assert_eq!(runs(&system, "?connector=api")[0]["sessionId"], "direct");
    assert_eq!((runs(&system, "?kind=workflow").len(), runs(&system, "?connector=nobody").len()), (0, 0));
    system.get("/api/telemetry/runs?kind=other").refused(400, "invalid", "?kind");
    system.get("/api/telemetry/runs?limit=101").refused(400, "invalid", "?limit");
    system.get("/api/telemetry/runs?after=x").refused(400, "invalid", "?after");
    let missing = system.get("/api/telemetry/runs/none").refused(404, "not_found", "");
    assert_eq!(missing.text("/runId"), "none");
}

#[test]
fn running_turns_and_runs_have_summaries_too() {
    let system = Builder::default()
        .script(&[json!({"when": "slow", "events": [{"sleep_ms": 60000}]}), json!({"events": [{"text": "Done."}]})])
        .env("KEN_SEARCH_URL", "http://127.0.0.1:1") // nothing answers there, so the run fails
        .start();
    system.post("/agents/orchestrator/slow", &json!({"message": "slow"})).expect(202);
    until("it runs", || runs(&system, "")[0]["status"] == "running");
    system.post("/agents/orchestrator/slow/abort", &json!({})).expect(200);
    until("it is aborted", || runs(&system, "")[0]["status"] == "aborted");
    let run = system.post("/workflows/research", &json!({"text": "anything"})).expect(202).text("/runId");
    let target = format!("/api/telemetry/runs/{run}");
    until("the run ends", || system.get(&target).json()["status"] == "failed");
    let summary = system.get(&target).json();
    assert_eq!(
        (&summary["kind"], &summary["sessionId"], &summary["submissionId"]),
        (&json!("workflow"), &Value::Null, &Value::Null)
    );
    assert_eq!((&summary["calledWebResearch"], &summary["counts"]["errors"]), (&json!(true), &json!(1)), "{summary}");
}

fn printed(system: &System, words: &[&str]) -> String {
    let output = system.ken(words);
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn usage_is_added_up_by_day_model_and_session() {
    let answers = (0..2).map(|_| Reply::Stream(openai(&["Yes."], &[])));
    let provider = Provider::start(answers.collect());
    let system = Builder::default()
        .env("KEN_MODEL", "openai/gpt-4o-mini")
        .env("OPENAI_BASE_URL", &format!("{}/v1", provider.url()))
        .secrets("OPENAI_API_KEY=sk-canary-usage\n")
        .start();
    let session = say(&system, "one")["session"]["id"].as_str().unwrap().to_owned();
    say(&system, "two");
    let rows = |by: &str| -> Vec<Value> {
        let text = printed(&system, &["usage", "--by", by, "--json"]);
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let models = rows("model");
    assert_eq!((models.len(), &models[0]["key"], &models[0]["runs"]), (1, &json!("openai/gpt-4o-mini"), &json!(2)));
    assert_eq!((&models[0]["input"], &models[0]["output"]), (&json!(18), &json!(8)));
    assert!(models[0]["cost"].as_f64().unwrap() > 0.0, "{models:?}");
    assert_eq!(rows("day").len(), 1);
    let sessions = rows("session");
    assert!(sessions.len() == 2 && sessions.iter().any(|row| row["key"] == *session), "{sessions:?}");
    let limited = |limit: &str| printed(&system, &["usage", "--by", "session", "-n", limit]);
    assert!(limited("1").lines().nth(2).unwrap().starts_with("1 other  "), "{}", limited("1"));
    assert!(!limited("2").contains("other"));
    let mut client = system.client().checked_by_contract();
    let first = client.get("/api/usage?by=session&limit=1").expect(200);
    assert_eq!((first.at("/groups").as_array().unwrap().len(), first.at("/others/groups")), (1, json!(1)));
    assert_eq!((first.at("/others/input"), first.at("/others/runs")), (json!(9), json!(1)));
    assert!(first.at("/others/cost").as_f64().unwrap() > 0.0);
    client.get("/api/usage?limit=1001").refused(400, "invalid", "?limit");
    let of_session = |id: &str| printed(&system, &["usage", "--json", "--session", id]);
    let row: Value = serde_json::from_str(&of_session(&session)).unwrap();
    assert_eq!((&row["runs"], &row["input"]), (&json!(1), &json!(9)));
    let unknown = system.ken(&["usage", "--session", "nowhere"]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&unknown.stderr).contains("there is no session `nowhere`"), "{unknown:?}");
    let shown = printed(&system, &["usage"]);
    assert!(shown.starts_with("DAY") && shown.contains("  2  ") && shown.contains('$'), "{shown}");
}

#[test]
fn why_explains_the_outcome_of_any_message() {
    let system = Builder::default()
        .script(&[
            json!({"when": "break", "events": [{"error": {"class": "internal", "message": "the engine broke"}}]}),
            json!({"events": [{"text": "Done."}]}),
        ])
        .start();
    let why = |id: &str| -> Value { serde_json::from_str(&printed(&system, &["why", id, "--json"])).unwrap() };
    let done = say(&system, "hello");
    assert_eq!(why(done["event"]["id"].as_str().unwrap())["status"], "completed");
    assert_eq!(why(done["submissionId"].as_str().unwrap())["status"], "completed");
    let broken = say(&system, "break");
    let explained = why(broken["event"]["id"].as_str().unwrap());
    assert_eq!(explained["status"], "failed");
    assert!(explained["cause"].as_str().unwrap().contains("the engine broke"), "{explained}");
    let lost =
        system.post("/api/chat/events", &tui(&[("text", json!("hello")), ("session", json!("nowhere"))])).expect(404);
    let explained = why(&lost.text("/eventId"));
    assert_eq!((&explained["status"], &explained["refused"]["code"]), (&json!("refused"), &json!("not_found")));
    let shown = printed(&system, &["why", &lost.text("/eventId")]);
    assert!(shown.starts_with("refused: It was refused: ") && shown.contains("received"), "{shown}");
    let command = say(&system, "/help");
    assert_eq!(why(command["event"]["id"].as_str().unwrap())["status"], "handled");
    for (prompt, status, cause) in [("hello", "ok", "It was done."), ("break", "error", "the engine broke")] {
        let daily = json!({"slug": status, "kind": "cron", "schedule": "@daily", "prompt": prompt, "maxAttempts": 1});
        system.post("/api/schedules", &daily).expect(201);
        let run = printed(&system, &["schedule", "run", status]);
        until("the run has ended", || why(run.trim())["status"] == status);
        let explained = why(run.trim());
        assert!(
            explained["cause"].as_str().unwrap().contains(cause) && explained["submissionId"].is_string(),
            "{explained}"
        );
    }
    let unknown = system.ken(&["why", "tui:nothing"]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(
        String::from_utf8_lossy(&unknown.stderr).contains("there is no turn, run, message or approval `tui:nothing`")
    );
}
