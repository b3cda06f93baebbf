//! Tests of plans: approving a plan approves its own edits, each once, and nothing else.

use std::time::Duration;

use crate::common::{Home, in_run, output_text};
use serde_json::{Value, json};

fn asks(home: &Home, run: &str, command: &str, call: &Value) -> String {
    let (_, preview) = in_run(home, run, &[command, "--preview"], call);
    preview["approval"].as_str().unwrap_or_else(|| panic!("{preview}")).to_owned()
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
    assert_eq!((&preview["approval"], &preview["actionType"]), (&json!("ask"), &json!("plan.approve")));
    let diff = preview["diff"].as_str().unwrap();
    assert!(diff.contains("+two") && diff.contains("+new") && diff.contains("-old"), "{diff}");
    let write_b = json!({"path": "repos/site/b", "content": "new\n"});
    let edit_a = json!({"path": "repos/site/a", "old": "one", "new": "two"});
    // A plan that was only previewed, or proposed in another run, approves nothing.
    assert_eq!(asks(&home, "r1", "write", &write_b), "ask");
    assert_eq!(in_run(&home, "r1", &["plan"], &plan()).0, Some(0));
    assert_eq!(home.text("repos/site/a"), "one\n", "a plan changes nothing");
    assert_eq!(asks(&home, "r2", "write", &write_b), "ask");

    // The edits need no approval with any of the tools, alone or together.
    assert_eq!(asks(&home, "r1", "write", &write_b), "none");
    assert_eq!(asks(&home, "r1", "edit", &edit_a), "none");
    assert_eq!(asks(&home, "r1", "apply", &json!({"edits": plan()["edits"]})), "none");
    for (command, other) in [
        ("write", json!({"path": "repos/site/b", "content": "other\n"})),
        ("write", json!({"path": "repos/site/d", "content": "new\n"})),
        ("edit", json!({"path": "repos/site/a", "old": "one", "new": "three"})),
        ("apply", json!({"edits": [write_b, {"path": "repos/site/a", "remove": true}]})),
        ("apply", json!({"edits": [{"path": "repos/site/b", "content": "new\n", "executable": true}]})),
        ("run", json!({"argv": ["touch", "b"], "cwd": "repos/site"})),
    ] {
        assert_eq!(asks(&home, "r1", command, &other), "ask", "{command} {other}");
    }

    // Each approval is valid once: after an undo, the edit needs approval again.
    let (status, made) = in_run(&home, "r1", &["write"], &write_b);
    assert_eq!(status, Some(0), "{made}");
    assert_eq!(home.report(&["undo", "r1"]).0, Some(0));
    assert_eq!(asks(&home, "r1", "write", &write_b), "ask");
    // The other edits still need no approval, unless their file has changed.
    assert_eq!(asks(&home, "r1", "edit", &edit_a), "none");
    home.put("repos/site/a", "one\nand more\n");
    assert_eq!(asks(&home, "r1", "edit", &edit_a), "ask");
}

/// The approval is used up before the file changes. If that cannot be recorded, nothing is changed.
#[test]
fn an_edit_is_never_made_with_an_approval_that_stays() {
    let home = home();
    let edit_a = json!({"path": "repos/site/a", "old": "one", "new": "two"});
    assert_eq!(in_run(&home, "r1", &["plan"], &plan()).0, Some(0));
    let in_the_way = home.state().join("plans/r1.part");
    std::fs::create_dir(&in_the_way).unwrap();
    let (status, error) = in_run(&home, "r1", &["edit"], &edit_a);
    assert_eq!((status, &error["error"]["code"]), (Some(2), &json!("unavailable")), "{error}");
    assert_eq!(home.text("repos/site/a"), "one\n");
    assert_eq!(asks(&home, "r1", "edit", &edit_a), "none");
    std::fs::remove_dir(&in_the_way).unwrap();

    // After a kill at any time, the edit has been made or not. If it was made, it needs approval again, even after an
    // undo.
    let kills = std::env::var("KEN_KILLS").map_or(20, |text| text.parse().unwrap());
    let text = edit_a.to_string();
    for number in 0..kills {
        let run = format!("k{number}");
        assert_eq!(in_run(&home, &run, &["plan"], &plan()).0, Some(0));
        let mut command = home.command(&["edit", "--json", &text]);
        let mut child = command.env("KEN_RUN", &run).spawn().unwrap();
        std::thread::sleep(Duration::from_micros(number * 40_000 / kills));
        child.kill().unwrap();
        child.wait().unwrap();
        // The next change, of another run, recovers the interrupted one.
        home.done("write", &json!({"path": "repos/site/d", "content": run}));
        let was_made = home.text("repos/site/a") == "two\n";
        if was_made {
            assert_eq!(home.report(&["undo", &run]).0, Some(0));
            assert_eq!(asks(&home, &run, "edit", &edit_a), "ask", "after {number}");
        }
        assert_eq!(home.text("repos/site/a"), "one\n");
    }
}

#[test]
fn a_plan_always_asks_and_never_lifts_a_deny() {
    let home = home();
    let free = json!({"summary": "x", "edits": [{"path": "projects/free/a", "content": "x"}]});
    assert_eq!(asks(&home, "r1", "plan", &free), "ask");
    assert_eq!(in_run(&home, "r1", &["plan"], &plan()).0, Some(0));
    assert_eq!(asks(&home, "r1", "plan", &plan()), "ask", "also for edits that a plan frees already");
    let locked = json!({"summary": "x", "edits": [{"path": "projects/locked/a", "content": "x"}]});
    assert_eq!(asks(&home, "r1", "plan", &locked), "deny");
    assert_eq!(in_run(&home, "r1", &["plan"], &locked).1["error"]["code"], "forbidden");
    // A command cannot create a plan by writing its file, because that is outside the workspace.
    assert!(!home.path("").join("plans").exists() && home.state().join("plans/r1.json").exists());
    let nobody = home.command(&["plan", "--json", &plan().to_string()]).output().unwrap();
    assert!(output_text(&nobody).contains("KEN_RUN"), "{nobody:?}");
    // A person sees all of what is approved.
    let odd = json!({"summary": "Rename\u{202e}\u{1b}[2J one", "edits": [{"path": "repos/site/b", "content": "x"}]});
    let (_, preview) = in_run(&home, "r1", &["plan", "--preview"], &odd);
    assert!(preview["summary"].as_str().unwrap().contains("Rename<U+202E>␛[2J one"), "{preview}");
    for wrong in [
        json!({"summary": " ", "edits": [{"path": "repos/site/b", "content": "x"}]}),
        json!({"summary": "x", "edits": []}),
    ] {
        assert_eq!(in_run(&home, "r1", &["plan"], &wrong).0, Some(2), "{wrong}");
    }
}
