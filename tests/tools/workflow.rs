//! Workflows with the real tools: no request gets the result of another, the command and the engine agree, and all processes
//! end.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::time::Duration;

use ken_flow::{Catalog, Data, Definition, Engine, Outcome, Protocols, Settings, Status};
use ken_tests::{binary, root, run_with_input, until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

/// The shipped protocols with the programs of this build.
fn protocols() -> Protocols {
    let shipped = Protocols::shipped();
    let names: Vec<String> = shipped.names().map(str::to_owned).collect();
    names.iter().fold(shipped, |protocols, name| {
        let mut protocol = protocols.find(name).unwrap().clone();
        protocol.program = binary(protocol.program.to_str().unwrap());
        protocols.with(protocol)
    })
}

fn engine() -> Engine {
    Engine::new(protocols(), Settings::default())
}

fn shipped(name: &str) -> Arc<Definition> {
    Catalog::new(vec![root().join("share/workflows")], protocols()).find(name).unwrap()
}

fn on_runtime<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(future)
}

async fn run(engine: &Engine, workflow: &Definition, data: &Value) -> Outcome {
    let data = Data::from_value(data).unwrap();
    engine.run(workflow, &data, engine.request()).await.unwrap()
}

/// A request with a chain of rules, whose statements contain the name of their owner.
fn chain(owner: &str, rules: usize) -> Value {
    let rules: Vec<Value> =
        (0..rules).map(|n| json!([[format!("{owner} has step {n}")], format!("{owner} has step {}", n + 1)])).collect();
    json!({
        "user_input": format!("{owner} is glad that all went well."),
        "facts": [format!("{owner} has step 0")],
        "rules": rules,
        "goals": [format!("{owner} has step {}", rules.len())]
    })
}

#[test]
fn sixteen_clients_each_get_their_own_chain() {
    on_runtime(async {
        let engine = Arc::new(engine());
        let workflow = shipped("full_governance");
        let client = |n: usize| {
            let (engine, workflow) = (engine.clone(), workflow.clone());
            tokio::spawn(async move {
                for round in 0..6 {
                    let owner = format!("client{n}x{round}");
                    let outcome = run(&engine, &workflow, &chain(&owner, 150)).await;
                    assert_eq!(outcome.status, Status::Completed, "{:?}", outcome.error);
                    let reasoned: Value = serde_json::from_str(outcome.results.get("REP").unwrap().text()).unwrap();
                    let conclusions = reasoned["conclusions"].as_array().unwrap();
                    assert_eq!(conclusions.len(), 150);
                    let whole = serde_json::to_string(&outcome).unwrap();
                    let strangers = whole.matches("client").count() - whole.matches(&owner).count();
                    assert_eq!(strangers, 0, "{owner}");
                    assert!(outcome.governance_summary.is_coherent);
                }
            })
        };
        let clients: Vec<_> = (0..16).map(client).collect();
        for client in clients {
            client.await.unwrap();
        }
    });
}

#[test]
fn a_contradiction_affects_only_its_own_request() {
    on_runtime(async {
        let engine = Arc::new(engine());
        let workflow = shipped("StandardReasoningWorkflow");
        let client = |n: usize| {
            let (engine, workflow) = (engine.clone(), workflow.clone());
            tokio::spawn(async move {
                for _ in 0..10 {
                    let is_odd = n % 2 == 1;
                    let facts = if is_odd {
                        json!(["the site is up", "the site is not up"])
                    } else {
                        json!(["the site is up", "a"])
                    };
                    let data = json!({"user_input": "How is it?", "facts": facts, "rules": [[["a"], "b"]]});
                    let outcome = run(&engine, &workflow, &data).await;
                    assert_eq!(outcome.governance_summary.is_coherent, !is_odd, "{outcome:?}");
                }
            })
        };
        let clients: Vec<_> = (0..16).map(client).collect();
        for client in clients {
            client.await.unwrap();
        }
    });
}

/// The child processes of the test that run this program.
fn children(program: &str) -> Vec<Pid> {
    let own = std::process::id().to_string();
    let processes = fs::read_dir("/proc").unwrap().flatten();
    processes
        .filter_map(|process| {
            let stat = fs::read_to_string(process.path().join("stat")).ok()?;
            let (before, after) = stat.rsplit_once(')')?;
            let parent = after.split(' ').nth(2)?;
            let is_one = before.ends_with(program) && parent == own;
            process.file_name().to_str()?.parse().ok().filter(|_| is_one)
        })
        .map(Pid::from_raw)
        .collect()
}

/// The tools of the other tests are children of the same process, so the tools that are killed here have names of their own.
#[test]
fn killed_tools_fail_at_most_the_requests_in_progress() {
    let links = tempfile::tempdir().unwrap();
    let names: Vec<String> = protocols().names().map(str::to_owned).collect();
    let protocols = names.iter().fold(protocols(), |protocols, name| {
        let mut protocol = protocols.find(name).unwrap().clone();
        let link = links.path().join(format!("kill-{name}"));
        std::os::unix::fs::symlink(&protocol.program, &link).unwrap();
        protocol.program = link;
        protocols.with(protocol)
    });
    on_runtime(async {
        let engine = Arc::new(Engine::new(protocols, Settings::default()));
        let workflow = shipped("full_reasoning");
        let client = |n: usize| {
            let (engine, workflow) = (engine.clone(), workflow.clone());
            tokio::spawn(async move {
                let mut failed = 0;
                for round in 0..40 {
                    let owner = format!("client{n}x{round}");
                    let outcome = run(&engine, &workflow, &chain(&owner, 40)).await;
                    let whole = serde_json::to_string(&outcome.results).unwrap();
                    assert_eq!(whole.matches("client").count(), whole.matches(&owner).count());
                    match outcome.status {
                        Status::Completed => {}
                        _ => failed += 1,
                    }
                }
                failed
            })
        };
        let clients: Vec<_> = (0..8).map(client).collect();
        let killer = tokio::spawn(async {
            loop {
                for program in ["kill-REP", "kill-VVP", "kill-ESL"] {
                    if let Some(pid) = children(program).first() {
                        let _ = kill(*pid, Signal::SIGKILL);
                    }
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
        let mut failed = 0;
        for client in clients {
            failed += client.await.unwrap();
        }
        killer.abort();
        // Each line is tried twice, so it fails only if both processes are killed.
        assert!(failed < 20, "{failed} of 320 failed");
        let crashed: u64 = engine.state().iter().map(|tool| tool.crashed).sum();
        assert!(crashed > 0, "nothing was killed");
        let outcome = run(&engine, &workflow, &chain("after", 3)).await;
        assert_eq!(outcome.status, Status::Completed);
    });
}

/// Runs `ken-workflow` with these arguments and this input.
fn command(words: &[&str], input: &str) -> Output {
    in_folder(&binary("ken-workflow"), words, input)
}

fn in_folder(program: &Path, words: &[&str], input: &str) -> Output {
    run_with_input(Command::new(program).args(words), input.as_bytes())
}

#[test]
fn the_command_and_the_engine_always_agree() {
    let data = chain("somebody", 10);
    for name in ["StandardReasoningWorkflow", "analyze_only", "full_reasoning", "full_governance"] {
        let words = ["run", name, "--format", "compact"];
        let first = command(&words, &data.to_string());
        assert_eq!(first.status.code(), Some(0), "{first:?}");
        assert_eq!(first.stdout, command(&words, &data.to_string()).stdout, "{name}");
        let mut outcome = on_runtime(async { run(&engine(), &shipped(name), &data).await });
        assert!(outcome.execution_time_ms.take().is_some());
        let engine = serde_json::to_string(&outcome).unwrap() + "\n";
        assert_eq!(String::from_utf8(first.stdout).unwrap(), engine, "{name}");
    }
}

#[test]
fn a_result_is_the_output_of_the_tool() {
    let outcome = command(&["run", "StandardReasoningWorkflow", "--format", "compact"], &chain("x", 2).to_string());
    let outcome = String::from_utf8(outcome.stdout).unwrap();
    let esl =
        in_folder(&binary("ken-esl"), &["--format", "compact"], r#"{"user_input":"x is glad that all went well."}"#);
    let esl = String::from_utf8(esl.stdout).unwrap();
    assert!(outcome.contains(esl.trim_end()), "{esl} in {outcome}");
}

#[test]
fn lines_are_answered_line_by_line() {
    let lines = "{\"user_input\":\"Great!\",\"rules\":[]}\nno object\n[1]\n{\"results\":{}}\n";
    let output = command(&["run", "analyze_only", "--lines"], lines);
    assert_eq!(output.status.code(), Some(0));
    let answers: Vec<Value> =
        String::from_utf8(output.stdout).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(answers[0]["status"], "completed");
    assert_eq!(answers[1]["results"].as_object().unwrap().len(), 1, "a text has no rules");
    assert_eq!(answers[2]["status"], "completed");
    assert_eq!(answers[3]["error"]["at"], "/results");
    assert_eq!(answers.len(), 4);
}

#[test]
fn exit_status_and_errors() {
    let folder = tempfile::tempdir().unwrap();
    let bad = folder.path().join("bad.json");
    fs::write(&bad, r#"{"name":"bad","steps":[{"step":"ESL"},{"parallel":[{"step":"NOPE"}]}]}"#).unwrap();
    let bad = bad.to_str().unwrap();
    for (words, input, status, at) in [
        (&["run", "nowhere"][..], "{}", 2, ""),
        (&["run", bad], "{}", 2, "/steps/1/parallel/0/step"),
        (&["run", "analyze_only"], "{\"governance\":1}", 2, "/governance"),
        (&["run", "analyze_only"], "{\"text\":7}", 2, "/text"),
        (&["run", "analyze_only", "--json", "[1]"], "", 2, ""),
        (&["run", "analyze_only"], "{\"a\":", 2, ""),
        (&["run"], "{}", 2, ""),
        (&["run", "analyze_only", "--fast"], "{}", 2, "--fast"),
        (&["walk"], "", 2, ""),
        (&[], "", 2, ""),
        (&["check"], "", 2, ""),
    ] {
        let output = command(words, input);
        assert_eq!(output.status.code(), Some(status), "{words:?}: {output:?}");
        assert!(output.stdout.is_empty(), "{words:?}");
        let error: Value = serde_json::from_slice(&output.stderr).unwrap_or_else(|_| panic!("{words:?}: {output:?}"));
        assert_eq!(error["error"]["at"], at, "{words:?}: {error}");
    }
    let output = command(&["run", "analyze_only"], r#"{"text":"Fine.","rules":[],"goals":[],"facts":[1]}"#);
    assert_eq!((output.status.code(), output.stderr.is_empty()), (Some(0), true));
    let unbound = r#"{"rules":[[["?x is up"],"?y is up"]]}"#;
    let output = command(&["run", "full_reasoning"], unbound);
    let outcome: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(outcome["error"]["at"], "/rules/0/1");
    assert_eq!((output.status.code(), output.stderr.is_empty()), (Some(1), true));
    let output = command(&["run", "analyse_only"], "{}");
    let error: Value = serde_json::from_slice(&output.stderr).unwrap();
    assert_eq!(error["error"]["hint"], "did you mean `analyze_only`?");
    let pipe = folder.path().join("pipe.json");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let output = command(&["run", pipe.to_str().unwrap()], "{}");
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("it is not a regular file"));
    let renamed = folder.path().join("renamed.json");
    fs::copy(root().join("share/workflows/analyze_only.json"), &renamed).unwrap();
    let output = command(
        &["check", bad, root().join("share/workflows/analyze_only.json").to_str().unwrap(), renamed.to_str().unwrap()],
        "",
    );
    assert_eq!(output.status.code(), Some(1));
    let checked: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&checked["files"][0]["ok"], &checked["files"][1]["ok"]), (&json!(false), &json!(true)));
    let wrong = &checked["files"][2]["error"];
    assert_eq!((&wrong["code"], &wrong["at"]), (&json!("invalid"), &json!("/name")), "{checked}");
    let output = command(&["list", "--format", "summary"], "");
    assert!(String::from_utf8(output.stdout).unwrap().contains("\nwriting_team: "));
}

/// A shipped workflow refuses wrong input before its first step, and the error names the field.
#[test]
fn shipped_workflows_check_their_input() {
    let data = |value: &Value| Data::from_value(value).unwrap();
    for (workflow, input, at) in [
        ("StandardReasoningWorkflow", json!({}), ""),
        ("StandardReasoningWorkflow", json!([]), ""),
        ("StandardReasoningWorkflow", json!({"text": "  "}), "/text"),
        ("StandardReasoningWorkflow", json!({"user_input": null}), "/user_input"),
        ("full_reasoning", json!({"facts": "a"}), "/facts"),
        ("full_reasoning", json!({"facts": ["a", 1]}), "/facts/1"),
        ("full_reasoning", json!({"rules": [["a", "b"]]}), "/rules/0/0"),
        ("full_reasoning", json!({"rules": [[["a"]]]}), "/rules/0"),
        ("full_reasoning", json!({"text": "x", "reasoning_type": "wild"}), "/reasoning_type"),
        ("full_governance", json!({"text": "x", "reasoning_type": "abductive"}), "/observations"),
        ("full_governance", json!({"text": "x", "context": "y"}), "/context"),
        ("analyze_only", json!({"rules": {}}), "/rules"),
        ("governed_response", json!({"facts": ["a"]}), ""),
        ("governed_response", json!({"messages": []}), "/messages"),
        ("writing_team", json!({"text": ["x"]}), "/text"),
    ] {
        let error = shipped(workflow).check(&data(&input)).unwrap_err();
        assert_eq!(error.at.as_deref(), Some(at), "{workflow} {input}: {error}");
    }
    let error = shipped("analyze_only").check(&data(&json!({}))).unwrap_err();
    assert_eq!(error.message, "needs one of the fields user_input, text, prompt, message, rules");
    // Unknown fields are accepted, because other readers of the data can need them.
    let with_others = json!({"text": "x", "user_id": 7});
    for workflow in ["StandardReasoningWorkflow", "analyze_only", "full_governance", "writing_team"] {
        shipped(workflow).check(&data(&with_others)).unwrap();
    }
    on_runtime(async {
        for input in [
            json!({"reasoning_type": "analogical", "source_case": {"a": 1}, "target_case": {"a": 1}}),
            json!({"reasoning_type": "causal", "events": ["a", "b"]}),
            json!({"facts": ["a"], "rules": [[["a"], "b"]]}),
        ] {
            let outcome = run(&engine(), &shipped("StandardReasoningWorkflow"), &input).await;
            assert_eq!(outcome.status, Status::Completed, "{input}: {:?}", outcome.error);
        }
    });
}

/// A folder with `ken-workflow` and a script as a tool beside it.
fn beside(tool: &str, script: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir_in(binary("ken-workflow").parent().unwrap()).unwrap();
    let program = folder.path().join("ken-workflow");
    fs::hard_link(binary("ken-workflow"), &program).unwrap();
    let path = folder.path().join(tool);
    fs::write(&path, script).unwrap();
    fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    (folder, program)
}

fn is_running(word: &str) -> bool {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    processes
        .filter_map(|process| fs::read(process.path().join("cmdline")).ok())
        .any(|line| String::from_utf8_lossy(&line).contains(word))
}

#[test]
fn tools_end_when_the_command_is_killed() {
    let (folder, program) = beside("ken-esl", "#!/bin/sh\nexec sleep 1000.0431\n");
    let file = folder.path().join("w.json");
    fs::write(&file, r#"{"name":"w","steps":[{"step":"ESL"}]}"#).unwrap();
    let mut child = Command::new(program)
        .arg("run")
        .arg(&file)
        .args(["--json", r#"{"text":"x"}"#])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    until("the tool runs", || is_running("1000.0431"));
    child.kill().unwrap();
    child.wait().unwrap();
    until("the tool is gone", || !is_running("1000.0431"));
}

#[test]
fn a_sleeping_tool_delays_only_its_own_step() {
    let (folder, program) = beside("ken-rep", "#!/bin/sh\nread -r line\nsleep 1000.0432\n");
    let file = folder.path().join("w.json");
    fs::write(&file, r#"{"name":"w","steps":[{"step":"REP"}]}"#).unwrap();
    let output = Command::new(program)
        .args(["run", file.to_str().unwrap(), "--format", "compact", "--json", "{}"])
        .env("PROTOCOL_TIMEOUT_MS", "200")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let outcome: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(outcome["error"]["message"], "step REP: no answer within 200 ms");
    assert_eq!(outcome["error"]["code"], "deadline");
    until("the sleep is gone", || !is_running("1000.0432"));
}

/// The scripted answers of the writing team. A word of the instructions selects each one.
fn scripts() -> [Value; 6] {
    [
        json!({"when": "ideas:", "events": [{"text": "A draft."}]}),
        json!({"when": "criticism:", "events": [{"text": "A revision."}]}),
        json!({"when": "A draft", "events": [{"text": "Too short."}]}),
        json!({"when": "A revision", "events": [{"text": "Short."}]}),
        json!({"when": "fail", "events": [{"error": {"class": "invalid", "message": "too much to do"}}]}),
        json!({"events": [{"text": "One idea."}]}),
    ]
}

#[test]
fn a_model_gives_the_same_answer_as_a_tool_and_as_a_part() {
    let system = ken_tests::Builder::default().script(&scripts()).start();
    let tool = |words: &[&str]| {
        let mut command = Command::new(binary("ken-workflow"));
        command.args(words).env("KEN_MODEL", "script").env("KEN_SCRIPT", system.home().join("model/script.jsonl"));
        command.env_remove("KEN_HOME").env_remove("KEN_RUN_DIR");
        command.output().unwrap()
    };
    let part = |words: &[&str]| {
        let mut command = Command::new(binary("ken-workflow"));
        command.args(words).env("KEN_RUN_DIR", system.home().join("run"));
        command.output().unwrap()
    };
    let words = ["run", "writing_team", "--json", r#"{"text":"Write about the sea."}"#];
    let (first, second) = (tool(&words), part(&words));
    assert_eq!(first.status.code(), Some(0), "{first:?}");
    assert_eq!(String::from_utf8(first.stdout.clone()).unwrap(), String::from_utf8(second.stdout).unwrap());
    let outcome: Value = serde_json::from_slice(&first.stdout).unwrap();
    for (step, said) in
        [("ideate", "One idea."), ("draft", "A draft."), ("criticise", "Short."), ("revise", "A revision.")]
    {
        assert_eq!(outcome["results"][step]["text"], said, "{outcome}");
    }
    let words = ["run", "writing_team", "--format", "compact", "--json", r#"{"text":"fail"}"#];
    let (first, second) = (tool(&words), part(&words));
    assert_eq!(first.status.code(), Some(1), "{first:?}");
    let (first, second): (Value, Value) =
        (serde_json::from_slice(&first.stdout).unwrap(), serde_json::from_slice(&second.stdout).unwrap());
    assert_eq!(first["error"], second["error"]);
    assert!(first["error"]["message"].as_str().unwrap().starts_with("step ideate: "), "{first}");
}

#[test]
fn a_governed_response_is_revised_until_it_does_not_fail() {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("script.jsonl");
    let good =
        "On 2026-03-02 the test took 4.1 s, measured with hyperfine 1.18 over 10 runs. So the limit of 5 s holds.";
    let lines = [
        json!({"when": "What is wrong", "events": [{"text": good}]}),
        json!({"events": [{"text": "Trust me, obviously everything always works perfectly and nothing ever fails, guaranteed, always."}]}),
    ];
    fs::write(&script, lines.map(|line| format!("{line}\n")).concat()).unwrap();
    fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let output = Command::new(binary("ken-workflow"))
        .args(["run", "governed_response", "--json", r#"{"user_input":"Does the limit hold?"}"#])
        .env("KEN_MODEL", "script")
        .env("KEN_SCRIPT", &script)
        .env_remove("KEN_HOME")
        .env_remove("KEN_RUN_DIR")
        .output()
        .unwrap();
    let outcome: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
    let results = &outcome["results"];
    assert_eq!(results["check"]["pass_fail_status"], "PASS", "{outcome}");
    assert_eq!(results["revise"]["text"], good);
    assert_eq!(results["verdict"]["pass_fail_status"], "PASS");
}
