//! The engine over tools that behave and tools that do not. Tools are small scripts.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ken_flow::{Data, Definition, Engine, Kind, Outcome, Protocol, Protocols, Settings, Status};
use ken_types::{Code, Error};
use serde_json::{Value, json};

/// A tool's folder, and the protocols that its scripts do.
struct Bench {
    folder: tempfile::TempDir,
    protocols: Protocols,
}

impl Bench {
    fn new() -> Bench {
        Bench {
            folder: tempfile::tempdir().unwrap(),
            protocols: Protocols::shipped(),
        }
    }

    /// A protocol `name` whose tool is this shell script.
    fn tool(mut self, name: &str, script: &str) -> Bench {
        let path = self.path(name);
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        self.protocols = self.protocols.with(Protocol::new(name, Kind::Other, path, ""));
        self
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn engine(&self) -> Engine {
        Engine::new(self.protocols.clone(), Settings::default())
    }

    fn workflow(&self, steps: Value) -> Definition {
        let text = json!({"name": "test", "steps": steps}).to_string();
        Definition::parse(&text, Path::new("test.json"), &self.protocols).unwrap()
    }
}

/// Answers each line with what it was given.
const ECHO: &str = r#"while IFS= read -r line; do printf '{"got":%s}\n' "$line"; done"#;

fn on_runtime<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(future)
}

async fn run(engine: &Engine, workflow: &Definition, data: Value) -> Outcome {
    engine
        .run(workflow, &Data::from_value(&data).unwrap(), engine.request())
        .await
        .unwrap()
}

fn value(outcome: &Outcome) -> Value {
    serde_json::to_value(outcome).unwrap()
}

#[track_caller]
fn failed(outcome: &Outcome) -> &Error {
    assert_eq!(outcome.status, Status::Failed, "{outcome:?}");
    outcome.error.as_ref().unwrap()
}

#[test]
fn a_step_is_a_line_to_a_tool_and_a_line_back() {
    let bench = Bench::new().tool("ECHO", ECHO);
    on_runtime(async {
        let engine = bench.engine();
        let workflow = bench.workflow(json!([{"step": "ECHO"}]));
        let outcome = run(&engine, &workflow, json!({"a": [1, "x\ny"]})).await;
        assert_eq!(outcome.status, Status::Completed);
        assert_eq!(
            value(&outcome)["results"],
            json!({"ECHO": {"got": {"a": [1, "x\ny"]}}})
        );
        assert_eq!(engine.state().last().unwrap().started, 1);
        run(&engine, &workflow, json!({})).await;
        assert_eq!(engine.state().last().unwrap().started, 1, "the process is kept");
    });
}

#[test]
fn a_tool_over_its_time_is_killed_and_named_and_the_next_request_works() {
    let script =
        r#"while IFS= read -r line; do case "$line" in *slow*) sleep 100;; esac; echo '{"ok":true}'; done"#;
    let bench = Bench::new().tool("SLEEPER", script);
    on_runtime(async {
        let engine = bench.engine();
        let workflow = bench.workflow(json!([{"step": "SLEEPER", "id": "nap", "timeout_ms": 150}]));
        let outcome = run(&engine, &workflow, json!({"slow": 1})).await;
        let error = failed(&outcome);
        assert_eq!(error.code, Code::Deadline);
        assert_eq!(error.message, "step nap: no answer within 150 ms");
        assert_eq!(engine.state().last().unwrap().idle, 0);
        let outcome = run(&engine, &workflow, json!({})).await;
        assert_eq!(outcome.status, Status::Completed);
    });
    assert!(ends(&bench.path("SLEEPER")), "a process is left");
}

/// Whether all processes whose command line names this path end soon, `sleep` below them too.
fn ends(path: &Path) -> bool {
    let until = Instant::now() + Duration::from_secs(5);
    while Instant::now() < until {
        if !is_running(path) {
            return true;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    false
}

fn is_running(path: &Path) -> bool {
    let name = path.to_str().unwrap();
    let processes = fs::read_dir("/proc").unwrap().flatten();
    processes
        .filter_map(|process| fs::read(process.path().join("cmdline")).ok())
        .any(|line| String::from_utf8_lossy(&line).contains(name))
}
