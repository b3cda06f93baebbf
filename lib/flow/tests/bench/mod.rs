//! Shell scripts as tools, and an engine that uses them.

use std::cell::OnceCell;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ken_flow::{Data, Definition, Engine, Kind, Outcome, Protocol, Protocols, Request, Settings, Status};
use ken_types::Error;
use serde_json::{Value, json};

/// A folder of scripts, the protocols that they implement, and an engine that uses them.
pub struct Bench {
    folder: tempfile::TempDir,
    protocols: Protocols,
    engine: OnceCell<Engine>,
    /// Declared last, so that it is dropped after the engine, whose processes it watches.
    pub runtime: tokio::runtime::Runtime,
}

impl Bench {
    pub fn new() -> Bench {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let folder = tempfile::tempdir().unwrap();
        Bench { folder, protocols: Protocols::shipped(), engine: OnceCell::new(), runtime }
    }

    /// Adds a protocol whose tool is a script.
    pub fn tool(self, name: &str, script: &str) -> Bench {
        self.tool_of(name, Kind::Other, script)
    }

    pub fn tool_of(self, name: &str, kind: Kind, script: &str) -> Bench {
        let path = self.script(name);
        fs::write(&path, script).unwrap();
        self.protocol(name, kind, "/bin/sh", &[&path])
    }

    pub fn protocol(mut self, name: &str, kind: Kind, program: &str, args: &[&str]) -> Bench {
        let mut protocol = Protocol::new(name, kind, program, "");
        protocol.args = args.iter().map(|arg| (*arg).to_owned()).collect();
        self.protocols = self.protocols.with(protocol);
        self
    }

    /// The path of a tool's script.
    pub fn script(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The number of processes of a tool that have started. Each one records its process id.
    pub fn pids(&self, name: &str) -> usize {
        let lines = fs::read_to_string(self.path(&format!("{name}.pids"))).unwrap();
        lines.lines().count()
    }

    pub fn engine(&self) -> &Engine {
        self.engine.get_or_init(|| Engine::new(self.protocols.clone(), Settings::default()))
    }

    pub fn run(&self, workflow: &Definition, data: Value) -> Outcome {
        self.request(workflow, data, self.engine().request()).unwrap()
    }

    pub fn request(&self, workflow: &Definition, data: Value, request: Request<'_>) -> Result<Outcome, Error> {
        let data = Data::from_value(&data).unwrap();
        self.runtime.block_on(self.engine().run(workflow, &data, request))
    }

    pub fn workflow(&self, steps: Value) -> Definition {
        let text = json!({"name": "test", "steps": steps}).to_string();
        Definition::parse(&text, Path::new("test.json"), &self.protocols).unwrap()
    }
}

/// A script that answers each line with the line itself and its tag, the last twelve characters.
pub const ECHO: &str = r#"exec sed -u 's/^\(.*\)\(.\{12\}\)$/{"got":\1}\2/'"#;

pub fn value(outcome: &Outcome) -> Value {
    serde_json::to_value(outcome).unwrap()
}

#[track_caller]
pub fn failed(outcome: &Outcome) -> &Error {
    assert_eq!(outcome.status, Status::Failed, "{outcome:?}");
    outcome.error.as_ref().unwrap()
}

/// Waits until no process has this word in its command line. Returns false if one is left after ten seconds.
pub fn until_gone(word: &str) -> bool {
    let until = Instant::now() + Duration::from_secs(10);
    while is_running(word) {
        if Instant::now() > until {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    true
}

pub fn is_running(word: &str) -> bool {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    processes
        .filter_map(|process| fs::read(process.path().join("cmdline")).ok())
        .any(|line| String::from_utf8_lossy(&line).contains(word))
}
