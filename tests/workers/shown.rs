//! What a person approves is what runs: the shipped tools of the coding worker, a script that changes between the look
//! and the decision, a file that is too long for a request.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::Command;
use std::thread::JoinHandle;

use ken_tests::{Answer, Builder, Client, System, run_with_input, until};
use serde_json::{Value, json};

const AUTO_EDIT: &str = "[workspace]\nrules = [{ path = \"repos/site\", policy = \"auto-edit\" }]\n";
const GOOD: &str = "echo good >> ran\n";
const EVIL: &str = "echo evil >> ran\n";

fn calls(when: &str, after_tools: usize, name: &str, arguments: Value) -> Value {
    json!({"when": when, "after_tools": after_tools, "events": [{"tool": {"name": name, "arguments": arguments}}]})
}

/// The lines of a script for a prompt that gives one call to the coding worker.
fn worker(prompt: &str, name: &str, arguments: Value) -> [Value; 4] {
    let task = format!("task of {}", prompt.replace(' ', "-"));
    let end = |when: &str| json!({"when": when, "after_tools": 1, "events": [{"text": "Done."}]});
    [
        calls(prompt, 0, "task", json!({"agent": "coding-worker", "prompt": task})),
        end(prompt),
        calls(&task, 0, name, arguments),
        end(&task),
    ]
}

fn site(system: &System) -> PathBuf {
    system.home().join("state/workspace/repos/site")
}

fn started(config: &str, script: &[[Value; 4]]) -> System {
    // A longer task text must not be taken for the prompt that it contains, so it comes first.
    let mut lines: Vec<Value> = script.iter().flat_map(|lines| lines[2..].to_vec()).collect();
    lines.extend(script.iter().flat_map(|lines| lines[..2].to_vec()));
    let system = Builder::default().script(&lines).config(config).start();
    std::fs::create_dir_all(site(&system)).unwrap();
    std::fs::write(site(&system).join("test.sh"), GOOD).unwrap();
    system
}

/// Sends a prompt to an instance. The thread ends with its turn.
fn say(system: &System, instance: &str, text: &str) -> JoinHandle<Answer> {
    let (address, target) = (system.address(), format!("/agents/orchestrator/{instance}?wait=result"));
    let body = json!({"message": text});
    std::thread::spawn(move || Client::connect(address).post(&target, &body))
}

/// Waits for a pending request that is none of these, and returns it.
fn pending(system: &System, known: &[&Value]) -> Value {
    let mut found = Value::Null;
    until("a request is pending", || {
        let list = system.get("/api/approvals/pending").expect(200).json();
        let is_new = |record: &&Value| known.iter().all(|known| known["requestId"] != record["requestId"]);
        found = list.as_array().unwrap().iter().find(is_new).cloned().unwrap_or_default();
        !found.is_null()
    });
    found
}

fn decide(system: &System, record: &Value, fields: Value) -> Answer {
    let mut body = json!({"decidedBy": "vera"});
    body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    system.post(&format!("/api/approvals/{}/decision", record["requestId"].as_str().unwrap()), &body)
}

fn approve(system: &System, record: &Value) {
    decide(system, record, json!({"approved": true})).expect(200);
}

fn deny(system: &System, record: &Value) {
    decide(system, record, json!({"approved": false})).expect(200);
}

fn done(turn: JoinHandle<Answer>) {
    turn.join().unwrap().expect(200);
}

/// What the scripts have written.
fn ran(system: &System) -> String {
    std::fs::read_to_string(site(system).join("ran")).unwrap_or_default()
}

fn reason(record: &Value) -> &str {
    record["request"]["reason"].as_str().unwrap()
}

fn run_tests(prompt: &str) -> [Value; 4] {
    worker(prompt, "run_tests", json!({"cwd": "repos/site"}))
}

fn write(prompt: &str, name: &str, content: &str) -> [Value; 4] {
    worker(prompt, "write_file", json!({"path": format!("repos/site/{name}"), "content": content}))
}

/// A worker of another session may edit without approval, and changes the script while a person looks at the request to
/// run it.
#[test]
fn a_script_that_changes_between_look_and_decision_does_not_run() {
    let system = started(AUTO_EDIT, &[run_tests("check it"), write("swap it", "test.sh", EVIL)]);
    let turn = say(&system, "one", "check it");
    let shown = pending(&system, &[]);
    assert_eq!(shown["request"]["metadata"]["action"]["compared"], json!(["repos/site/test.sh"]));
    done(say(&system, "two", "swap it"));
    approve(&system, &shown);
    // Nothing has run, and the person is asked about what would run now.
    let again = pending(&system, &[&shown]);
    assert_eq!(reason(&again), "what was approved has changed; a command is run");
    assert_eq!(again["request"]["metadata"]["action"]["changedUnseen"], json!(["repos/site/test.sh"]));
    assert_eq!(ran(&system), "");
    deny(&system, &again);
    done(turn);
    assert_eq!(ran(&system), "");
    let first = system.get(&format!("/api/approvals/{}", shown["requestId"].as_str().unwrap())).expect(200).json();
    assert_eq!((&first["status"], &first["usedAt"]), (&json!("approved"), &Value::Null));
}

/// The first command holds the lock and changes the script at its end. The second one was approved while it ran.
#[test]
fn a_script_that_changes_while_an_approved_call_waits_does_not_run() {
    let swap = json!({"shell": "touch begun; while [ ! -e go ]; do sleep 0.1; done; echo 'echo evil >> ran' > test.sh", "cwd": "repos/site"});
    let system = started("", &[worker("hold it", "run_command", swap), run_tests("check it")]);
    let holder = say(&system, "one", "hold it");
    let first = pending(&system, &[]);
    approve(&system, &first);
    until("the first call has the lock", || site(&system).join("begun").exists());
    let waiter = say(&system, "two", "check it");
    let second = pending(&system, &[&first]);
    approve(&system, &second);
    until("the second call waits for the lock", || {
        system.call("tools", "service.stats", &[])["calls_running"].as_u64().is_some_and(|running| running >= 2)
    });
    std::fs::write(site(&system).join("go"), "").unwrap();
    done(holder);
    let third = pending(&system, &[&first, &second]);
    assert!(reason(&third).starts_with("what was approved has changed"), "{third}");
    deny(&system, &third);
    done(waiter);
    assert_eq!(ran(&system), "");
}

/// One grant for the session runs the same tests as often as wanted, and no others: neither a changed script nor a
/// changed file that the script reads.
#[test]
fn a_grant_for_the_session_does_not_cover_a_changed_script() {
    let script = [
        run_tests("check it"),
        write("change the script", "test.sh", EVIL),
        write("restore the script", "test.sh", GOOD),
        write("add a helper", "helper.sh", EVIL),
    ];
    let system = started(AUTO_EDIT, &script);
    let turn = say(&system, "one", "check it");
    let first = pending(&system, &[]);
    decide(&system, &first, json!({"approved": true, "scope": "session"})).expect(200);
    done(turn);
    done(say(&system, "one", "check it"));
    assert_eq!(ran(&system), "good\ngood\n", "the grant covers the same call");
    for change in ["change the script", "add a helper"] {
        done(say(&system, "one", change));
        let turn = say(&system, "one", "check it");
        let asked = pending(&system, &[&first]);
        deny(&system, &asked);
        done(turn);
        assert_eq!(ran(&system), "good\ngood\n", "{change}");
        done(say(&system, "one", "restore the script"));
    }
}

/// The digest as a foreign program computes it.
fn sha256sum(system: &System, text: &str) -> String {
    let path = system.home().join("whole.diff");
    std::fs::write(&path, text).unwrap();
    let printed = Command::new("sha256sum").arg(path).output().unwrap().stdout;
    String::from_utf8(printed).unwrap()[..64].to_owned()
}

/// The content does not fit into a request. All of it can be read, and only who has read it can approve it, once.
#[test]
fn a_long_change_is_kept_whole_and_approved_by_its_digest() {
    let mut content = String::new();
    for line in 0..24_000 {
        writeln!(content, "line {line}: a long file that a person has to be shown whole").unwrap();
    }
    content += "the last line\n";
    let system = started("", &[write("write it", "long.txt", &content)]);
    let turn = say(&system, "one", "write it");
    let record = pending(&system, &[]);
    let (id, metadata) = (record["requestId"].as_str().unwrap(), &record["request"]["metadata"]);
    let diff = system.get(&format!("/api/approvals/{id}/diff")).expect(200);
    assert_eq!(diff.header("content-type"), Some("text/plain; charset=utf-8"));
    let diff = String::from_utf8(diff.body).unwrap();
    assert!(diff.ends_with("\n+the last line\n") && diff.matches("\n+line ").count() == 24_000);
    let shown = metadata["diff"].as_str().unwrap();
    assert!(diff.starts_with(shown) && (100_000..=128 * 1024).contains(&shown.len()), "{}", shown.len());
    let digest = sha256sum(&system, &diff);
    assert_eq!(metadata["whole"], json!({"digest": digest, "bytes": diff.len()}));
    for (fields, at) in [
        (json!({"approved": true}), "/digest"),
        (json!({"approved": true, "digest": "0".repeat(64)}), "/digest"),
        (json!({"approved": true, "digest": digest, "scope": "session"}), "/scope"),
    ] {
        decide(&system, &record, fields).refused(400, "invalid", at);
    }
    assert!(!site(&system).join("long.txt").exists());
    decide(&system, &record, json!({"approved": true, "digest": digest})).expect(200);
    done(turn);
    assert!(std::fs::read_to_string(site(&system).join("long.txt")).unwrap() == content);
}

/// Denying needs no digest, and a request that has no diff has none to return.
#[test]
fn a_request_without_a_diff_has_none_to_return() {
    let long = "x".repeat(200_000);
    let system = started("", &[write("write it", "long.txt", &long), run_tests("check it")]);
    let turn = say(&system, "one", "write it");
    deny(&system, &pending(&system, &[]));
    done(turn);
    let turn = say(&system, "one", "check it");
    let record = pending(&system, &[]);
    let target = format!("/api/approvals/{}/diff", record["requestId"].as_str().unwrap());
    system.get(&target).expect(404);
    system.get("/api/approvals/apr_00000000000000000000000000/diff").expect(404);
    deny(&system, &record);
    done(turn);
    assert!(!site(&system).join("long.txt").exists());
}

/// Two readers of one document could read two decisions.
#[test]
fn a_decision_with_a_repeated_field_is_refused() {
    let system = started("", &[run_tests("check it")]);
    let turn = say(&system, "one", "check it");
    let record = pending(&system, &[]);
    let target = format!("/api/approvals/{}/decision", record["requestId"].as_str().unwrap());
    let body = r#"{"decidedBy": "vera", "approved": false, "approved": true}"#;
    let mut client = system.client();
    let request = client.request("POST", &target).header("content-type", "application/json");
    request.body(body).send().expect(400);
    deny(&system, &record);
    done(turn);
    assert_eq!(ran(&system), "");
}

/// Calls of a shipped tool that asks itself, straight at ken-tools, without what a person has approved.
#[test]
fn no_caller_can_bypass_the_question_of_a_shipped_tool() {
    let script = [write("write it", "a.txt", "approved"), write("write that", "b.txt", "free")];
    let rules = "[workspace]\nrules = [{ path = \"repos/site/b.txt\", policy = \"auto-edit\" }, \
        { path = \"repos/site/c.txt\", policy = \"deny\" }]\n";
    let system = started(rules, &script);
    let turn = say(&system, "one", "write it");
    let record = pending(&system, &[]);
    let metadata = &record["request"]["metadata"];
    let call = |fields: &Value| {
        let mut call = json!({"name": "write_file", "agent": "coding-worker", "session": metadata["sessionId"],
            "submission": metadata["submissionId"], "arguments": {"path": "repos/site/a.txt", "content": "approved"}});
        call.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        let mut command = system.command(&["call", "tools", "tools.call", "-"]);
        let output = run_with_input(&mut command, call.to_string().as_bytes());
        let exist = ["a.txt", "b.txt", "c.txt"].map(|name| site(&system).join(name).exists());
        assert_eq!(exist, [false; 3], "{fields}: {output:?}");
        output
    };
    let refused = |fields: Value| {
        let output = call(&fields);
        assert!(!output.status.success(), "{fields}: {output:?}");
        serde_json::from_slice::<Value>(&output.stderr).unwrap()["error"]["message"].as_str().unwrap().to_owned()
    };
    let grant = &record["requestId"];
    assert!(refused(json!({})).contains("a person has to approve"));
    assert!(refused(json!({"agent": null})).contains("a person has to approve"));
    assert!(refused(json!({"grant": grant})).contains("pending"));
    deny(&system, &record);
    done(turn);
    assert!(refused(json!({"grant": grant})).contains("denied"));
    // A rule of the agent asks for an approval although a rule of the operator lets the file be edited.
    let free = json!({"path": "repos/site/b.txt", "content": "free"});
    assert!(refused(json!({"ask": true, "arguments": free})).contains("a person has to approve"));
    // No approval helps where a rule of the operator denies it.
    let denied = json!({"path": "repos/site/c.txt", "content": "denied"});
    for ask in [false, true] {
        let output = call(&json!({"ask": ask, "arguments": denied}));
        assert!(
            String::from_utf8_lossy(&output.stdout).contains("a rule of the operator forbids"),
            "{ask}: {output:?}"
        );
    }
    done(say(&system, "two", "write that"));
    assert!(site(&system).join("b.txt").exists(), "without the rule nobody is asked");
}
