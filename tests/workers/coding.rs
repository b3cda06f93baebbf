//! The coding worker: a task in a real git repository, with a scripted model, the real tools in the real sandbox, and a
//! person who decides about each change.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::PathBuf;
use std::process::Command;
use std::thread::JoinHandle;

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
