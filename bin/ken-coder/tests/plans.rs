//! A plan that a person approved frees its own edits, each once, and nothing else.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::Home;
use serde_json::{Value, json};

/// As in a turn.
fn in_run(home: &Home, run: &str, words: &[&str], call: &Value) -> (Option<i32>, Value) {
    let text = call.to_string();
    let words = [words, &["--format", "compact", "--json", text.as_str()]].concat();
    let output = home.command(&words).env("KEN_RUN", run).output().unwrap();
    let from = if output.stdout.is_empty() {
        &output.stderr
    } else {
        &output.stdout
    };
    (output.status.code(), serde_json::from_slice(from).unwrap())
}

fn asks(home: &Home, run: &str, command: &str, call: &Value) -> String {
    let (_, preview) = in_run(home, run, &[command, "--preview"], call);
    preview["approval"]
        .as_str()
        .unwrap_or_else(|| panic!("{preview}"))
        .to_owned()
}

fn plan() -> Value {
    json!({"summary": "Rename one to two", "edits": [
        {"path": "repos/site/a", "old": "one", "new": "two"},
        {"path": "repos/site/b", "content": "new\n"},
        {"path": "repos/site/c", "remove": true}]})
}

fn home() -> Home {
    let home = Home::with(
        "rules = [{ path = \"projects/locked\", policy = \"deny\" }, { path = \"projects/free\", policy = \"auto-edit\" }]",
    );
    home.put("repos/site/a", "one\n");
    home.put("repos/site/c", "old\n");
    home
}

#[test]
fn an_approved_plan_frees_exactly_its_edits() {
    let home = home();
    let (_, preview) = in_run(&home, "r1", &["plan", "--preview"], &plan());
    assert_eq!(
        (&preview["approval"], &preview["actionType"]),
        (&json!("ask"), &json!("plan.approve"))
    );
    let diff = preview["diff"].as_str().unwrap();
    assert!(
        diff.contains("+two") && diff.contains("+new") && diff.contains("-old"),
        "{diff}"
    );
    let write_b = json!({"path": "repos/site/b", "content": "new\n"});
    let edit_a = json!({"path": "repos/site/a", "old": "one", "new": "two"});
    // A plan that was only looked at, or proposed in another run, frees nothing.
    assert_eq!(asks(&home, "r1", "write", &write_b), "ask");
    assert_eq!(in_run(&home, "r1", &["plan"], &plan()).0, Some(0));
    assert_eq!(home.text("repos/site/a"), "one\n", "a plan changes nothing");
    assert_eq!(asks(&home, "r2", "write", &write_b), "ask");

    // By whatever tool, alone or together.
    assert_eq!(asks(&home, "r1", "write", &write_b), "none");
    assert_eq!(asks(&home, "r1", "edit", &edit_a), "none");
    assert_eq!(
        asks(&home, "r1", "apply", &json!({"edits": plan()["edits"]})),
        "none"
    );
    for (command, other) in [
        ("write", json!({"path": "repos/site/b", "content": "other\n"})),
        ("write", json!({"path": "repos/site/d", "content": "new\n"})),
        (
            "edit",
            json!({"path": "repos/site/a", "old": "one", "new": "three"}),
        ),
        (
            "apply",
            json!({"edits": [write_b, {"path": "repos/site/a", "remove": true}]}),
        ),
        (
            "apply",
            json!({"edits": [{"path": "repos/site/b", "content": "new\n", "executable": true}]}),
        ),
        ("run", json!({"argv": ["touch", "b"], "cwd": "repos/site"})),
    ] {
        assert_eq!(asks(&home, "r1", command, &other), "ask", "{command} {other}");
    }

    // Once: what is put back by an undo asks again.
    let (status, made) = in_run(&home, "r1", &["write"], &write_b);
    assert_eq!(status, Some(0), "{made}");
    assert_eq!(home.report(&["undo", "r1"]).0, Some(0));
    assert_eq!(asks(&home, "r1", "write", &write_b), "ask");
    // The others are still free, unless the file is another one by now.
    assert_eq!(asks(&home, "r1", "edit", &edit_a), "none");
    home.put("repos/site/a", "one\nand more\n");
    assert_eq!(asks(&home, "r1", "edit", &edit_a), "ask");
}

#[test]
fn a_plan_always_asks_and_never_lifts_a_deny() {
    let home = home();
    let free = json!({"summary": "x", "edits": [{"path": "projects/free/a", "content": "x"}]});
    assert_eq!(asks(&home, "r1", "plan", &free), "ask");
    assert_eq!(in_run(&home, "r1", &["plan"], &plan()).0, Some(0));
    assert_eq!(
        asks(&home, "r1", "plan", &plan()),
        "ask",
        "also for edits that a plan frees already"
    );
    let locked = json!({"summary": "x", "edits": [{"path": "projects/locked/a", "content": "x"}]});
    assert_eq!(asks(&home, "r1", "plan", &locked), "deny");
    assert_eq!(
        in_run(&home, "r1", &["plan"], &locked).1["error"]["code"],
        "forbidden"
    );
    // Nobody can make a plan by writing its file: it lies outside of the workspace.
    assert!(!home.path("").join("plans").exists() && home.state().join("plans/r1.json").exists());
    let nobody = home
        .command(&["plan", "--json", &plan().to_string()])
        .output()
        .unwrap();
    assert!(common::said(&nobody).contains("KEN_RUN"), "{nobody:?}");
    for wrong in [
        json!({"summary": " ", "edits": [{"path": "repos/site/b", "content": "x"}]}),
        json!({"summary": "x", "edits": []}),
    ] {
        assert_eq!(in_run(&home, "r1", &["plan"], &wrong).0, Some(2), "{wrong}");
    }
}
