//! The coding worker: a task in a real git repository, with a scripted model, the real tools in the real sandbox, and a
//! person who decides about each change.

use std::path::PathBuf;
use std::process::Command;
use std::thread::JoinHandle;

use ken_tests::provider::{Provider, ReceivedRequest, Reply, openai};
use ken_tests::{Answer, Builder, Client, System, until};
use serde_json::{Value, json};

const WRONG: &str = "#!/bin/sh\necho $(($1 - $2))\n";
const TEST: &str = "set -e\ntest \"$(sh sum.sh 2 3)\" = 5\necho passed\n";

fn script_line(when: &str, after_tools: usize, text: &str) -> Value {
    json!({"when": when, "after_tools": after_tools, "events": [{"text": text}]})
}

fn calls(when: &str, after_tools: usize, name: &str, arguments: Value) -> Value {
    json!({"when": when, "after_tools": after_tools, "events": [{"tool": {"name": name, "arguments": arguments}}]})
}

/// The model makes a plan, edits, tests, fixes, tests again and commits.
fn script() -> Vec<Value> {
    let edit = |old: &str, new: &str| json!({"path": "repos/site/sum.sh", "old": old, "new": new});
    let test = json!({"cwd": "repos/site"});
    vec![
        calls("sum is wrong", 0, "task", json!({"agent": "coding-worker", "prompt": "repair sum.sh"})),
        script_line("sum is wrong", 1, "The worker has repaired it."),
        calls("repair sum.sh", 0, "read_file", json!({"path": "repos/site/sum.sh"})),
        calls("repair sum.sh", 1, "edit_file", edit("$1 - $2", "$1 * $2")),
        calls("repair sum.sh", 2, "run_tests", test.clone()),
        calls("repair sum.sh", 3, "edit_file", edit("$1 * $2", "$1 + $2")),
        calls("repair sum.sh", 4, "run_tests", test),
        calls("repair sum.sh", 5, "git_commit", json!({"repo": "repos/site", "message": "Add instead of subtracting"})),
        script_line("repair sum.sh", 6, "Repaired, tested and committed."),
    ]
}

fn site(system: &System) -> PathBuf {
    system.home().join("state/workspace/repos/site")
}

fn git(system: &System, words: &[&str]) -> String {
    let output = Command::new("git")
        .args(["-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "safe.directory=*"])
        .args(words)
        .current_dir(site(system))
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

fn started(config: &str) -> System {
    with_script(config, &script())
}

fn with_script(config: &str, script: &[Value]) -> System {
    let system = Builder::default().script(script).config(config).start();
    std::fs::create_dir_all(site(&system)).unwrap();
    std::fs::write(site(&system).join("sum.sh"), WRONG).unwrap();
    std::fs::write(site(&system).join("test.sh"), TEST).unwrap();
    git(&system, &["init", "-q", "-b", "main"]);
    git(&system, &["add", "."]);
    git(&system, &["commit", "-q", "-m", "First"]);
    system
}

fn prompt(system: &System) -> JoinHandle<Answer> {
    let address = system.address();
    std::thread::spawn(move || {
        let body = json!({"message": "sum is wrong"});
        Client::connect(address).post("/agents/orchestrator/site?wait=result", &body)
    })
}

/// Decides all approval requests until the turn has ended. Returns the requests, in order.
fn decide(system: &System, turn: &JoinHandle<Answer>, approves: impl Fn(&Value) -> bool) -> Vec<Value> {
    let mut seen: Vec<Value> = Vec::new();
    until("the turn has ended", || {
        let pending = system.get("/api/approvals/pending").expect(200).json();
        for record in pending.as_array().unwrap() {
            let request = record["request"].clone();
            let target = format!("/api/approvals/{}/decision", request["id"].as_str().unwrap());
            let body = json!({"decidedBy": "a test", "approved": approves(&request)});
            system.post(&target, &body).expect(200);
            seen.push(request);
        }
        turn.is_finished()
    });
    seen
}

fn types(requests: &[Value]) -> Vec<&str> {
    requests.iter().map(|request| request["actionType"].as_str().unwrap()).collect()
}

/// The id of the only run that has changed files.
fn run_of(system: &System) -> String {
    let runs = std::fs::read_dir(system.home().join("state/coder/journal")).unwrap().flatten();
    let runs: Vec<_> = runs.map(|entry| entry.file_name().into_string().unwrap()).collect();
    assert_eq!(runs.len(), 1, "{runs:?}");
    runs[0].clone()
}

#[test]
fn a_task_is_planned_edited_tested_fixed_and_committed() {
    let system = started("");
    let turn = prompt(&system);
    let requests = decide(&system, &turn, |_| true);
    let answer = turn.join().unwrap().expect(200);
    assert_eq!(answer.text("/result/text"), "The worker has repaired it.");
    assert_eq!(types(&requests), ["file.edit", "shell.execute", "file.edit", "shell.execute", "git.commit"]);
    // Each request shows exactly what the call would do.
    let diff = |at: usize| requests[at]["metadata"]["diff"].as_str().unwrap_or_default().to_owned();
    assert!(diff(0).contains("-echo $(($1 - $2))\n+echo $(($1 * $2))\n"), "{requests:?}");
    assert!(diff(2).contains("+echo $(($1 + $2))\n"), "{requests:?}");
    assert!(diff(4).contains("-echo $(($1 - $2))\n+echo $(($1 + $2))\n"), "{requests:?}");
    assert_eq!(requests[1]["metadata"]["action"]["argv"], json!(["sh", "./test.sh"]));
    assert_eq!(git(&system, &["log", "-1", "--format=%s"]), "Add instead of subtracting");
    assert_eq!(
        git(&system, &["rev-parse", "HEAD^{tree}"]),
        requests[4]["metadata"]["action"]["tree"].as_str().unwrap()
    );
    assert_eq!(git(&system, &["status", "--porcelain"]), "");
    // The submission of the turn selects its changes, to list and to undo them.
    let run = run_of(&system);
    let shown = system.command(&["diff", &run]).output().unwrap();
    assert!(String::from_utf8_lossy(&shown.stdout).contains("+echo $(($1 + $2))"), "{shown:?}");
    let undone = system.command(&["undo", &run[..8]]).output().unwrap();
    assert!(undone.status.success(), "{undone:?}");
    assert_eq!(std::fs::read_to_string(site(&system).join("sum.sh")).unwrap(), WRONG);
    assert_eq!(git(&system, &["log", "--format=%s"]), "First", "the commit is undone too");
    assert_eq!(git(&system, &["status", "--porcelain"]), "");
}

/// NUL in a file or an output is shown as its picture. The file keeps it, and the picture does not stand for it.
#[test]
fn nul_is_shown_and_kept() {
    let edit = |old: &str| json!({"path": "repos/site/nul", "old": old, "new": "two"});
    let system = with_script(
        "",
        &[
            calls("sum is wrong", 0, "task", json!({"agent": "coding-worker", "prompt": "repair sum.sh"})),
            script_line("sum is wrong", 1, "Done."),
            calls("repair sum.sh", 0, "read_file", json!({"path": "repos/site/nul"})),
            calls("repair sum.sh", 1, "edit_file", edit("a␀b")),
            calls("repair sum.sh", 2, "edit_file", edit("one")),
            calls("repair sum.sh", 3, "run_command", json!({"argv": ["printf", "x\\000y"], "cwd": "repos/site"})),
            script_line("repair sum.sh", 4, "Done."),
        ],
    );
    std::fs::write(site(&system).join("nul"), "one\na\0b\n").unwrap();
    let turn = prompt(&system);
    let requests = decide(&system, &turn, |_| true);
    turn.join().unwrap().expect(200);
    assert_eq!(types(&requests), ["file.edit", "shell.execute"], "{requests:?}");
    assert_eq!(std::fs::read(site(&system).join("nul")).unwrap(), b"two\na\0b\n");
    let events = all_events(&system);
    let results: Vec<(&Value, bool)> = events
        .iter()
        .filter(|event| event["type"] == "tool" && event["toolName"] != "task")
        .map(|event| (&event["result"], event["isError"] == true))
        .collect();
    assert_eq!(results.len(), 4, "{results:?}");
    assert_eq!((&results[0].0["details"]["text"], results[0].1), (&json!("one\na␀b\n"), false));
    assert!(results[1].1 && !results[2].1, "{results:?}");
    assert_eq!((&results[3].0["details"]["stdout"], results[3].1), (&json!("x␀y"), false));
}

#[test]
fn denied_changes_do_not_happen_and_a_rule_allows_what_it_names() {
    let rules = "[workspace]\nrules = [{ path = \"repos/site\", policy = \"auto-edit\", commands = [[\"sh\", \"./test.sh\"]] }]\n";
    let system = started(rules);
    let turn = prompt(&system);
    let requests = decide(&system, &turn, |_| false);
    turn.join().unwrap().expect(200);
    assert_eq!(types(&requests), ["git.commit"], "{requests:?}");
    assert_eq!(git(&system, &["log", "-1", "--format=%s"]), "First");
    assert_eq!(git(&system, &["status", "--porcelain"]), "M sum.sh");
    assert!(std::fs::read_to_string(site(&system).join("sum.sh")).unwrap().contains("$1 + $2"));
}

/// The plan needs one approval, its edits need none, and an edit outside the plan needs one. A denied plan allows nothing.
#[test]
fn an_approved_plan_allows_its_edits_and_a_denied_one_nothing() {
    let edit = json!({"path": "repos/site/sum.sh", "old": "$1 - $2", "new": "$1 + $2"});
    let note = json!({"path": "repos/site/NOTE", "content": "Adds.\n"});
    let script = [
        calls("sum is wrong", 0, "task", json!({"agent": "coding-worker", "prompt": "repair sum.sh"})),
        script_line("sum is wrong", 1, "The worker has repaired it."),
        calls("repair sum.sh", 0, "propose_plan", json!({"summary": "Add", "edits": [edit, note]})),
        calls("repair sum.sh", 1, "edit_file", edit),
        calls("repair sum.sh", 2, "write_file", note),
        calls("repair sum.sh", 3, "write_file", json!({"path": "repos/site/OTHER", "content": "x"})),
        script_line("repair sum.sh", 4, "Repaired."),
    ];
    for (approved, asked) in [
        (true, vec!["plan.approve", "file.edit"]),
        (false, vec!["plan.approve", "file.edit", "file.edit", "file.edit"]),
    ] {
        let system = with_script("", &script);
        let turn = prompt(&system);
        // Only the plan is approved.
        let requests = decide(&system, &turn, |request| approved && request["actionType"] == "plan.approve");
        turn.join().unwrap().expect(200);
        assert_eq!(types(&requests), asked);
        let diff = requests[0]["metadata"]["diff"].as_str().unwrap();
        assert!(diff.contains("+echo $(($1 + $2))") && diff.contains("+Adds."), "{diff}");
        let sum = std::fs::read_to_string(site(&system).join("sum.sh")).unwrap();
        assert_eq!(sum != WRONG, approved, "{sum}");
        assert_eq!(site(&system).join("NOTE").exists(), approved);
        assert!(!site(&system).join("OTHER").exists());
    }
}

/// A text of 1.9 million characters, with letters of several bytes and everything that JSON escapes.
fn long_text() -> String {
    let line = |number: usize| format!("{number:08} \"quoted\" \\ tab\t é 語 ");
    let mut text: String = (0..60_000).map(|number| line(number) + "\n").collect();
    let room = 1_900_000 - text.chars().count();
    text.extend(std::iter::repeat_n('x', room));
    text
}

/// A model over HTTP: gives a task to the coding worker, which writes the text to a file.
fn writer_of(text: &str) -> Provider {
    let write = json!({"path": "repos/site/long.txt", "content": text}).to_string();
    let task = json!({"agent": "coding-worker", "prompt": "write the long file"}).to_string();
    Provider::answering(move |request: &ReceivedRequest| {
        let messages = request.body["messages"].as_array().unwrap();
        let has_result = messages.iter().any(|message| message["role"] == "tool");
        let is_worker = messages.iter().any(|message| {
            message["role"] == "user" && message["content"].as_str().is_some_and(|text| text.contains("write the long"))
        });
        let calls: &[(&str, &str, &str)] = match (has_result, is_worker) {
            (true, _) => &[],
            (false, true) => &[("call_w", "write_file", &write)],
            (false, false) => &[("call_t", "task", &task)],
        };
        Reply::Stream(openai(if has_result { &["Done."] } else { &[] }, calls))
    })
}

fn pending(system: &System) -> Value {
    let mut found = Value::Null;
    until("a request is pending", || {
        let list = Client::try_connect(system.address())
            .and_then(|mut client| client.request("GET", "/api/approvals/pending").try_send());
        let list = list.ok().filter(|answer| answer.status == 200).map(|answer| answer.json());
        found = list.and_then(|list| list.get(0).cloned()).unwrap_or_default();
        !found.is_null()
    });
    found
}

/// The events of the instance, from all pages.
fn all_events(system: &System) -> Vec<Value> {
    let (mut events, mut offset) = (Vec::new(), "-1".to_owned());
    loop {
        let page = system.get(&format!("/agents/orchestrator/site?offset={offset}")).expect(200);
        let more = page.json().as_array().unwrap().clone();
        if more.is_empty() {
            return events;
        }
        events.extend(more);
        page.header("stream-next-offset").unwrap().clone_into(&mut offset);
    }
}

/// A call with long arguments waits for its approval while each part is killed. The request stays the same one, and the
/// file gets exactly the text of the model, once.
#[test]
fn a_long_file_is_written_whole_after_any_part_was_killed() {
    let text = long_text();
    let provider = writer_of(&text);
    let system = Builder::default()
        .env("KEN_MODEL", "openai/m")
        .env("OPENAI_BASE_URL", &format!("{}/v1", provider.url()))
        .env("OPENAI_API_KEY", "sk-test")
        .start();
    std::fs::create_dir_all(site(&system)).unwrap();
    system.post("/agents/orchestrator/site", &json!({"message": "sum is wrong"})).expect(202);
    let request = pending(&system);
    assert_eq!(request["request"]["actionType"], "file.edit", "{}", request["request"]["summary"]);
    for part in ["agent", "store", "approver", "tools", "gateway", "model"] {
        system.kill(part);
        system.wait_until_stable(part);
        let same = pending(&system);
        for field in ["id", "fingerprint"] {
            assert_eq!(same["request"][field], request["request"][field], "{field} after a kill of {part}");
        }
        let state = system.call(
            "store",
            "approvals.of",
            &[&format!("submission_id={}", request["request"]["metadata"]["submissionId"].as_str().unwrap())],
        );
        assert_eq!(state["calls"].as_array().map(Vec::len), Some(1), "after a kill of {part}: {state}");
    }
    assert!(!site(&system).join("long.txt").exists());
    let mut decision = json!({"decidedBy": "a test", "approved": true});
    if let Some(digest) = request["request"]["metadata"]["whole"]["digest"].as_str() {
        decision["digest"] = digest.into();
    }
    let target = format!("/api/approvals/{}/decision", request["requestId"].as_str().unwrap());
    system.post(&target, &decision).expect(200);
    let mut events = Vec::new();
    until("the turn has ended", || {
        events = all_events(&system);
        events.last().is_some_and(|event| event["type"] == "submission_settled")
    });
    let ends: Vec<&Value> = events.iter().filter(|event| event["type"] == "tool").collect();
    assert!(ends.iter().all(|event| event["isError"] == false), "{ends:?}");
    assert_eq!(events.last().unwrap()["outcome"], "completed", "{:?}", events.last());
    let written = std::fs::read_to_string(site(&system).join("long.txt")).unwrap();
    assert!(written == text, "{} of {} bytes were written", written.len(), text.len());
    run_of(&system); // exactly one run has changed files
    // An event of the stream is never longer than 256 KiB.
    assert!(events.iter().all(|event| event.to_string().len() <= 256 * 1024));
}

/// A turn goes on after calls whose arguments together do not fit into a request to the model.
#[test]
fn several_long_files_are_written_in_one_task() {
    let text = long_text();
    let task = json!({"agent": "coding-worker", "prompt": "write the long file"}).to_string();
    let write = |number: usize| json!({"path": format!("repos/site/long{number}.txt"), "content": text}).to_string();
    let writes: Vec<String> = (0..3).map(write).collect();
    let provider = Provider::answering(move |request: &ReceivedRequest| {
        let messages = request.body["messages"].as_array().unwrap();
        let results = messages.iter().filter(|message| message["role"] == "tool").count();
        let calls: Vec<(&str, &str, &str)> =
            match (request.body["messages"].to_string().contains("sum is wrong"), results) {
                (true, 0) => vec![("t", "task", &task)],
                (true, _) => Vec::new(),
                (false, done) => {
                    writes.get(done).map(|write| ("w", "write_file", write.as_str())).into_iter().collect()
                }
            };
        Reply::Stream(openai(if calls.is_empty() { &["Done."] } else { &[] }, &calls))
    });
    let system = Builder::default()
        .config("[workspace]\nrules = [{ path = \"repos/site\", policy = \"auto-edit\" }]\n")
        .env("KEN_MODEL", "openai/m")
        .env("OPENAI_BASE_URL", &format!("{}/v1", provider.url()))
        .env("OPENAI_API_KEY", "sk-test")
        .start();
    std::fs::create_dir_all(site(&system)).unwrap();
    let answer = prompt(&system).join().unwrap().expect(200);
    assert_eq!(answer.text("/result/text"), "Done.");
    for number in 0..3 {
        let written = std::fs::read_to_string(site(&system).join(format!("long{number}.txt"))).unwrap();
        assert!(written == long_text(), "{number}: {} bytes", written.len());
    }
}
