//! What is there in the end, compared with what the clients were told.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use ken_tests::System;
use ken_tests::bot_api::BotApi;
use serde_json::{Value, json};

use super::clients::is_approved;
use super::door::Tally;
use super::setting::{USER, answer_to, tool_runs};

/// What became of the accepted requests of a client.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) accepted: usize,
    pub(crate) lost: Vec<String>,
    pub(crate) doubled: Vec<String>,
    /// Done once, but not as it should be.
    pub(crate) wrong: Vec<String>,
}

/// How long nothing may be written while work is left: then it hangs.
const STUCK: Duration = Duration::from_secs(30);

/// Ends the schedules, and waits until no work is left. Returns what hangs.
pub(crate) fn settle(system: &System, schedules: &[Value]) -> Vec<String> {
    for schedule in schedules {
        let target = format!("/api/schedules/{}/pause", schedule["slug"].as_str().expect("a slug"));
        system.post(&target, &json!({})).expect(200);
    }
    let (mut written, mut since) = (Value::Null, Instant::now());
    loop {
        let left = unfinished(system, schedules);
        let writes = system.call("store", "service.stats", &[])["writes"].clone();
        if writes != written {
            (written, since) = (writes, Instant::now());
        }
        if left.is_empty() || since.elapsed() > STUCK {
            return left;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The work that is left, for a person.
fn unfinished(system: &System, schedules: &[Value]) -> Vec<String> {
    let list = |target: &str, list: &str| system.get(target).expect(200).at(list).as_array().expect("a list").clone();
    let held = system.call("store", "service.stats", &[])["leases_held"].clone();
    let mut left: Vec<String> = (held != 0).then(|| format!("{held} leases")).into_iter().collect();
    let sessions = list("/api/chat/sessions?limit=100", "/sessions").into_iter();
    left.extend(
        sessions
            .filter(|one| ["running", "queued"].iter().any(|state| one["status"] == *state))
            .map(|one| one.to_string()),
    );
    for schedule in schedules {
        let target = format!("/api/schedules/{}/runs?limit=500", schedule["slug"].as_str().expect("a slug"));
        let runs = list(&target, "/runs").into_iter();
        let is_open = |run: &Value| ["queued", "admitted", "running"].iter().any(|state| run["status"] == *state);
        left.extend(runs.filter(is_open).map(|run| run.to_string()));
    }
    left.extend(list("/runs?status=active", "/runs").into_iter().map(|run| run.to_string()));
    let outbox = system.get("/api/connectors/messenger/health").expect(200).at("/outbox/pending");
    left.extend((outbox != 0).then(|| format!("{outbox} messages to be sent")));
    left
}

/// Checks that readers which came back after each cut have seen what is there, each event once.
pub(crate) fn readers(system: &System, stream: &[Value], events: &[Value], agent: &[Value]) -> Vec<String> {
    let mut faults = Vec::new();
    for (target, seen) in [("/streams/kills", stream), ("/agents/orchestrator/kills-approval", agent)] {
        let there = pages(system, target, "");
        if seen != there {
            let at = seen.iter().zip(&there).take_while(|(seen, there)| seen == there).count();
            faults.push(format!("{target}: {} seen, {} there, different from {at} on", seen.len(), there.len()));
        }
    }
    let numbers = events.iter().map(|event| event["eventIndex"].as_u64());
    if !numbers.eq((0..events.len() as u64).map(Some)) {
        faults.push("/api/events: a gap or an event twice".to_owned());
    }
    faults
}

/// Checks that each schedule has one record for each second since its first slot. If of missed slots only the last counts, and the clock
/// was set forward an hour in the end, there is at most one for each second, and one behind that hour.
pub(crate) fn slots(schedules: &[Value], events: &[Value], are_all: bool) -> Vec<String> {
    let mut faults = Vec::new();
    for schedule in schedules {
        let begun = events.iter().filter(|event| {
            let is_begin = ["queued", "skipped", "missed"].iter().any(|status| event["status"] == *status);
            event["type"] == "schedule.run" && event["slug"] == schedule["slug"] && is_begin
        });
        let mut slots: Vec<i64> = begun.filter_map(|event| event["slotAt"].as_i64()).collect();
        slots.sort_unstable();
        let first = schedule["nextFireAt"].as_i64().expect("a time");
        let number = |slot: &i64| (slot - first) / 1_000;
        let is_next =
            |pair: &[i64]| if are_all { pair[1] - pair[0] == 1_000 } else { number(&pair[1]) > number(&pair[0]) };
        let length = slots.last().map_or(0, |last| last - first);
        if slots.first() != Some(&first) || !are_all && length < 3_600_000 || !slots.windows(2).all(is_next) {
            faults.push(format!("{}: a slot is missing or twice among {slots:?}", schedule["slug"]));
        }
    }
    faults
}

/// Checks that no call was made twice or without its approval, and that what the model was told of a call is true.
pub(crate) fn tools(system: &System) -> Vec<String> {
    let text = std::fs::read_to_string(tool_runs(system)).unwrap_or_default();
    let mut runs: BTreeMap<String, [usize; 2]> = BTreeMap::new();
    for line in text.lines() {
        let (what, input) = line.split_once(' ').expect("a line of a tool");
        let input: Value = serde_json::from_str(input).expect("the arguments of a call");
        runs.entry(input["word"].as_str().expect("a word").to_owned()).or_default()[usize::from(what == "end")] += 1;
    }
    let mut faults = Vec::new();
    for (label, [begun, _]) in &runs {
        let most = usize::from(!label.starts_with("approval") || is_approved(label));
        if *begun > most {
            faults.push(format!("{label}: its call was made {begun} times, at most {most} was allowed"));
        }
    }
    for instance in instances(system) {
        let events = pages(system, &format!("/agents/orchestrator/{instance}"), "");
        faults.extend(one_end_each(&instance, &events));
        for event in events.iter().filter(|event| event["type"] == "tool") {
            let label = event["toolCallId"].as_str().expect("a call");
            let [begun, ended] = runs.get(label).copied().unwrap_or_default();
            let told = event["result"]["content"][0]["text"].as_str().unwrap_or_default();
            let is_true = match told.trim() {
                "did it" => (begun, ended) == (1, 1),
                told if told.contains("interrupted") => true,
                told => begun == 0 && told.contains("denied"),
            };
            if !is_true {
                faults.push(format!("{label}: begun {begun}, ended {ended} times, and the model was told {told:?}"));
            }
        }
    }
    faults
}

/// Checks that each submission of an instance has one end, after which nothing follows.
fn one_end_each(instance: &str, events: &[Value]) -> Vec<String> {
    let mut ends: HashMap<&str, usize> = HashMap::new();
    let mut faults = Vec::new();
    for event in events {
        let Some(id) = event["submissionId"].as_str() else { continue };
        let ended = ends.entry(id).or_default();
        if *ended > 0 {
            faults.push(format!("{instance}: {} of {id} after its end", event["type"]));
        }
        *ended += usize::from(event["type"] == "submission_settled");
    }
    faults.extend(ends.iter().filter(|(_, ended)| **ended != 1).map(|(id, _)| format!("{instance}: {id} has no end")));
    faults
}

/// The number of times that each accepted request was done, client by client.
pub(crate) fn accepted(
    system: &System,
    platform: &BotApi,
    [stream, agent]: [&[Value]; 2],
    tallies: &[Tally],
) -> Vec<Row> {
    let exchanges = exchanges(system);
    let answered = |label: &str| {
        let mut found = exchanges.get(label).into_iter().flatten();
        let is_right = found.clone().all(|exchange| {
            let text = exchange["assistant"]["text"].as_str().unwrap_or_default();
            exchange["status"] == "completed" && text == answer_to(label)
        });
        (found.by_ref().count(), is_right)
    };
    let runs = runs(system);
    let titles = titles(system);
    let times = |list: &[String], label: &str| list.iter().filter(|one| *one == label).count();
    let appended: Vec<String> = stream.iter().filter_map(|entry| Some(entry["label"].as_str()?.to_owned())).collect();
    let calls = agent.iter().filter(|event| event["type"] == "tool");
    let calls: Vec<String> = calls.filter_map(|event| Some(event["toolCallId"].as_str()?.to_owned())).collect();
    let sent = platform.texts(USER);
    let rows = tallies.iter().map(|tally| {
        let mut row = Row { accepted: tally.accepted.len(), lost: vec![], doubled: vec![], wrong: vec![] };
        for label in &tally.accepted {
            let (count, is_right) = match tally.name {
                "stream" => (times(&appended, label), true),
                "approval" => (times(&calls, label), true),
                "workflow" => runs.get(label).copied().unwrap_or((0, true)),
                "knowledge" => (times(&titles, label), true),
                // The platform may have an answer or not, if the messenger was killed while it sent it, but never twice.
                "messenger" => {
                    let (count, is_right) = answered(label);
                    (count.max(times(&sent, &answer_to(label))), is_right)
                }
                _ => answered(label),
            };
            match count {
                0 => row.lost.push(label.clone()),
                1 if is_right => {}
                1 => row.wrong.push(format!("{label}: {:?}", exchanges.get(label))),
                _ => row.doubled.push(label.clone()),
            }
        }
        row
    });
    rows.collect()
}

/// All pages of a list of events.
fn pages(system: &System, target: &str, query: &str) -> Vec<Value> {
    let (mut all, mut offset) = (Vec::new(), "-1".to_owned());
    loop {
        let page = system.get(&format!("{target}?offset={offset}{query}")).expect(200);
        all.extend(page.json().as_array().expect("events").iter().cloned());
        if page.header("stream-up-to-date").is_some() {
            return all;
        }
        offset = page.header("stream-next-offset").expect("an offset").to_owned();
    }
}

/// All elements of a list in pages, whose cursor is a parameter of the query.
fn listed(system: &System, target: &str, list: &str, cursor: &str, parameter: &str) -> Vec<Value> {
    let (mut all, mut after) = (Vec::new(), String::new());
    loop {
        let page = system.get(&format!("{target}{after}")).expect(200).json();
        all.extend(page[list].as_array().expect("a list").iter().cloned());
        match page.pointer(cursor).and_then(Value::as_str) {
            Some(cursor) => after = format!("&{parameter}={cursor}"),
            None => return all,
        }
    }
}

fn sessions(system: &System) -> Vec<Value> {
    listed(system, "/api/chat/sessions?limit=100", "sessions", "/page/after", "after")
}

fn instances(system: &System) -> Vec<String> {
    let ids = sessions(system).into_iter().filter_map(|session| Some(session["sessionId"].as_str()?.to_owned()));
    let mut ids: Vec<String> = ids.collect();
    ids.push("kills-approval".to_owned());
    ids.sort_unstable();
    ids.dedup();
    ids
}

/// All exchanges of all sessions, by the label in their prompt.
fn exchanges(system: &System) -> HashMap<String, Vec<Value>> {
    let mut found: HashMap<String, Vec<Value>> = HashMap::new();
    for session in sessions(system) {
        let field = |name: &str| session[name].as_str().expect("a field of a session").to_owned();
        let target = format!(
            "/api/chat/sessions/{}/transcript?connector={}&actorId={}&conversationId={}&limit=100",
            field("sessionId"),
            field("connector"),
            field("actorId"),
            field("conversationId")
        );
        for exchange in listed(system, &target, "exchanges", "/page/before", "before") {
            let text = exchange["prompt"]["text"].as_str().unwrap_or_default();
            let label = text.rsplit_once("]]").and_then(|(text, _)| text.rsplit_once(' '));
            if let Some((_, label)) = label {
                found.entry(label.to_owned()).or_default().push(exchange);
            }
        }
    }
    found
}

/// The number of runs with each label, and whether each has ended as it should: with its result, or interrupted in a step that
/// may not be repeated.
fn runs(system: &System) -> HashMap<String, (usize, bool)> {
    let mut found = HashMap::new();
    for run in listed(system, "/runs?limit=1000", "runs", "/nextCursor", "cursor") {
        let target = format!("/runs/{}", run["runId"].as_str().expect("an id"));
        let record = system.get(&format!("{target}?meta")).expect(200).json();
        let events = pages(system, &target, "");
        let ends = events.iter().filter(|event| event["type"] == "run_end").count();
        let is_right = (record["status"] == "completed" || record["error"]["name"] == "Interrupted") && ends == 1;
        let label = record["payload"]["label"].as_str().expect("a label").to_owned();
        let (count, were_right) = found.entry(label).or_insert((0, true));
        *count += 1;
        *were_right &= is_right;
    }
    found
}

fn titles(system: &System) -> Vec<String> {
    let all = listed(system, "/api/knowledge?limit=100&source=api", "records", "/page/after", "after");
    all.iter().filter_map(|entry| Some(entry["title"].as_str()?.to_owned())).collect()
}
