//! `kill -9` of the agent, the model, the tools and the store at every event of a turn with tools, with a scripted provider: there
//! is one settled answer, and no finished call is repeated. Kills at a few events by default; `KEN_KILLS=120` kills that many times.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use ken_tests::provider::{Piece, Provider, ReceivedRequest, Reply, openai};
use ken_tests::{Builder, Client, System, number};
use serde_json::{Value, json};

/// The number of events of the turn without a kill.
const EVENTS: u64 = 30;
const PARTS: [&str; 4] = ["agent", "tools", "model", "store"];

/// The model makes two parallel calls, then one call, then answers. Each piece of a stream is sent separately. An answer that was
/// cut off is continued, as the request demands.
fn reply(request: &ReceivedRequest) -> Reply {
    let messages = request.body["messages"].as_array().unwrap();
    let results = messages.iter().filter(|message| message["role"] == "tool").count();
    let (text, calls): (&str, &[(&str, &str, &str)]) = match results {
        0 => ("I look.", &[("a", "note_down", "{\"n\": \"a\"}"), ("b", "note_down", "{\"n\": \"b\"}")]),
        2 => ("Once more.", &[("c", "note_down", "{\"n\": \"c\"}")]),
        _ => ("All is done.", &[]),
    };
    let sent_text = match messages.as_slice() {
        [.., before, last] if last["content"].as_str().is_some_and(|note| note.starts_with("Your answer was cut")) => {
            before["content"].as_str().unwrap_or_default()
        }
        _ => "",
    };
    let rest = text.strip_prefix(sent_text).unwrap_or(text).trim_start();
    let texts: Vec<&str> = rest.split_inclusive(' ').collect();
    let pieces = openai(&texts, calls);
    let pieces = pieces.into_iter().flat_map(|piece| [piece, Piece::Pause(Duration::from_millis(15))]);
    Reply::Stream(pieces.collect())
}

fn scratch(system: &System) -> PathBuf {
    system.home().join("scratch")
}

/// A tool that appends a line to a file when it begins and another when it ends. Its output is longer than the part that a model
/// gets.
fn add_tool(system: &System) {
    let folder = system.home().join("tools.d");
    fs::create_dir_all(&folder).unwrap();
    fs::create_dir_all(scratch(system)).unwrap();
    let runs = scratch(system).join("runs");
    let script = format!(
        "read line; [ -n \"$line\" ] || exit 1; echo \"begin $line\" >> '{0}'; sleep 0.06; echo \"end $line\" >> '{0}'; \
         echo \"$KEN_RUN $line\"; seq 1 9000",
        runs.display()
    );
    let entry = json!({"name": "note_down", "description": "A tool.", "command": ["sh", "-c", script], "input": {"type": "object"},
        "writes": "text", "idempotent": false, "approval": "none", "agents": ["orchestrator"],
        "touch": {"write": [scratch(system)]}});
    fs::write(folder.join("note_down.json"), entry.to_string()).unwrap();
    ken_tests::until("the tool is listed", || {
        let listed = system.call("tools", "tools.list", &[]);
        listed["tools"].as_array().is_some_and(|tools| tools.iter().any(|tool| tool["name"] == "note_down"))
    });
}

/// The number of times that each call has begun, and has ended.
fn runs(system: &System) -> (BTreeMap<String, usize>, BTreeMap<String, usize>) {
    let text = fs::read_to_string(scratch(system).join("runs")).unwrap_or_default();
    let (mut begun, mut ended) = (BTreeMap::new(), BTreeMap::new());
    for line in text.lines() {
        let (what, input) = line.split_once(' ').unwrap();
        let name = serde_json::from_str::<Value>(input).unwrap()["n"].as_str().unwrap().to_owned();
        *if what == "begin" { &mut begun } else { &mut ended }.entry(name).or_default() += 1;
    }
    (begun, ended)
}

fn check(system: &System, provider: &Provider, part: &str, nth: u64, round: u64) {
    let what = format!("{part} killed at event {nth}");
    _ = fs::remove_file(scratch(system).join("runs"));
    let instance = format!("{part}-{nth}-{round}");
    let target = format!("/agents/orchestrator/{instance}?wait=result");
    let address = system.address();
    let caller = std::thread::spawn(move || {
        let mut client = Client::connect(address);
        client.set_timeout(Duration::from_secs(90));
        client.post(&target, &json!({"message": "go"}))
    });
    ken_tests::until("the stream is there", || {
        system.get(&format!("/agents/orchestrator/{instance}?offset=-1")).status == 200
    });
    let mut stream = system.attach(&format!("/agents/orchestrator/{instance}?offset=-1&live=sse"));
    let mut events = Vec::new();
    // If the turn has fewer events, the kill comes after its end.
    while (events.len() as u64) <= nth && !events.iter().any(|event: &Value| event["type"] == "submission_settled") {
        stream.until_control(&mut events);
    }
    system.kill(part);
    let answer = caller.join().unwrap().expect(200);
    assert_eq!(answer.text("/result/text"), "All is done.", "{what}");
    while !events.iter().any(|event| event["type"] == "submission_settled") {
        stream.until_control(&mut events);
    }
    let settled = events.iter().filter(|event| event["type"] == "submission_settled");
    assert_eq!(settled.count(), 1, "{what}");
    let (begun, ended) = runs(system);
    assert!(begun.values().all(|count| *count == 1), "{what}: made again: {begun:?}");
    for id in ["a", "b", "c"] {
        let results: Vec<_> =
            events.iter().filter(|event| event["type"] == "tool" && event["toolCallId"] == id).collect();
        assert_eq!(results.len(), 1, "{what}: {id}");
        let is_interrupted = results[0]["isError"] == true;
        assert!(is_interrupted || ended.get(id) == Some(&1), "{what}: {id} is told as finished: {ended:?}");
        let result_text = results[0]["result"]["content"][0]["text"].as_str().unwrap();
        assert!(!is_interrupted || result_text.contains("interrupted"), "{what}: {result_text}");
        // The store has each output that an event names.
        let output = &results[0]["result"]["output"];
        assert_eq!(output.is_null(), is_interrupted, "{what}: {id}");
        if let Some(digest) = output["blob"].as_str() {
            let (of, id) = (format!("instance={instance}"), format!("id={digest}"));
            let piece = system.call("store", "outputs.get", &[of.as_str(), id.as_str(), "limit=1"]);
            assert_eq!(piece["length"], output["bytes"], "{what}: {id}");
        }
    }
    // Once a request to the model contains the result of a call, all later ones contain it too.
    for request in provider.received() {
        let calls: Vec<&str> = request.body["messages"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|message| message["tool_call_id"].as_str())
            .collect();
        assert!([&[][..], &["a", "b"], &["a", "b", "c"]].contains(&calls.as_slice()), "{what}: {calls:?}");
    }
}

#[test]
fn a_kill_at_any_event_leaves_one_answer_and_repeats_no_finished_call() {
    let kills = number("KEN_KILLS", 8);
    let provider = Provider::answering(reply);
    let system = Builder::default()
        .env("KEN_MODEL", "openai/m")
        .env("OPENAI_BASE_URL", &format!("{}/v1", provider.url()))
        .start();
    add_tool(&system);
    for round in 0..kills {
        let part = PARTS[usize::try_from(round % 4).unwrap()];
        // The long form kills each part at every event, the short form at a few events.
        let nth = match kills {
            0..=30 => (round * 7 + 5) % EVENTS,
            _ => (round / 4) % EVENTS,
        };
        check(&system, &provider, part, nth, round);
    }
}
