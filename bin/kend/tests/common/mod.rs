//! A system in its own temporary folder: kend with test programs as parts, which do what their arguments say
//! (examples/probe.rs).

#![allow(dead_code, clippy::unwrap_used, clippy::expect_used, clippy::panic, unreachable_pub)]

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tempfile::TempDir;

pub const KEND: &str = env!("CARGO_BIN_EXE_kend");
/// How long a test waits for a condition before it fails.
const TIMEOUT: Duration = Duration::from_secs(10);

pub fn probe() -> PathBuf {
    let path = Path::new(KEND).with_file_name("examples").join("probe");
    assert!(path.exists(), "build it first: cargo build -p kend --examples");
    path
}

pub struct Home {
    pub dir: TempDir,
}

/// The output and exit status of a kend that has ended.
#[derive(Debug)]
pub struct Ended {
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
}

impl Ended {
    /// Asserts that standard error contains a text.
    pub fn assert_stderr_contains(&self, text: &str) {
        assert!(self.stderr.contains(text), "{text}: {}", self.stderr);
    }
}

impl Home {
    /// Writes the configuration. `PROBE` and `DIR` in the text stand for the test program and the folder.
    pub fn new(parts: &str) -> Home {
        let home = Home { dir: tempfile::Builder::new().prefix("kend").tempdir().unwrap() };
        home.configure(parts);
        home
    }

    pub fn configure(&self, parts: &str) {
        let text = parts
            .replace("PROBE", probe().to_str().unwrap())
            .replace("DIR", self.path("").to_str().unwrap().trim_end_matches('/'));
        let text = format!("[kend]\nbuiltin_parts = false\nwatch = false\n{text}");
        std::fs::write(self.path("ken.toml"), text).unwrap();
    }

    pub fn secrets(&self, text: &str, mode: u32) {
        let path = self.path("secrets.env");
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    pub fn numbers(&self, name: &str) -> Vec<i32> {
        self.read(name).lines().filter_map(|line| line.parse().ok()).collect()
    }

    pub fn command(&self, args: &[&str]) -> Command {
        self.command_of(KEND, args)
    }

    /// Like `command`, for a copy of kend.
    pub fn command_of(&self, kend: impl AsRef<OsStr>, args: &[&str]) -> Command {
        let mut command = Command::new(kend);
        command.arg("--home").arg(self.dir.path()).args(args);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Runs kend to its end.
    pub fn run(&self, args: &[&str]) -> Ended {
        let output = self.command(args).output().unwrap();
        Ended {
            status: output.status,
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// Starts kend and waits for its `ready` line.
    pub fn start(&self) -> Kend<'_> {
        self.start_with(&mut self.command(&["--announce"]))
    }

    pub fn start_with(&self, command: &mut Command) -> Kend<'_> {
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        stdout.read_line(&mut line).unwrap();
        if !line.starts_with("ready") {
            let mut text = String::new();
            child.stderr.take().unwrap().read_to_string(&mut text).unwrap();
            panic!("not ready: {text}");
        }
        Kend { home: self, child, ready: line }
    }
}

/// A running kend. When dropped, it is stopped with all its processes.
pub struct Kend<'a> {
    pub home: &'a Home,
    pub child: Child,
    pub ready: String,
}

impl Kend<'_> {
    pub fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).unwrap())
    }

    pub fn connect(&self) -> Caller {
        Caller::connect(&self.home.path("run/kend.sock"))
    }

    /// Calls an operation. Returns the final line's `ok`, or its `error`.
    pub fn call(&self, op: &str, args: Value) -> Result<Value, Value> {
        self.connect().call(op, args)
    }

    pub fn part(&self, name: &str) -> Value {
        let all = self.call("parts.status", json!({"name": name})).unwrap();
        all["parts"][0].clone()
    }

    pub fn state(&self, name: &str) -> String {
        self.part(name)["state"].as_str().unwrap().to_owned()
    }

    pub fn until_state(&self, name: &str, state: &str) {
        until(&format!("{name} is {state}"), || self.state(name) == state);
    }

    pub fn start_part(&self, name: &str) -> Value {
        self.call("parts.start", json!({"name": name, "wait": "ready"})).unwrap()
    }

    pub fn restart_part(&self, name: &str) -> Value {
        self.call("parts.restart", json!({"name": name, "wait": "ready"})).unwrap()
    }

    pub fn stop_part(&self, name: &str) -> Value {
        self.call("parts.stop", json!({"name": name, "wait": "stopped"})).unwrap()
    }

    pub fn reload(&self) -> Value {
        self.call("kend.reload", json!({})).unwrap()
    }

    /// Returns the address of the gateway from the `ready` line.
    pub fn gateway(&self) -> &str {
        let line = self.ready.trim();
        line.strip_prefix("ready gateway=http://").unwrap()
    }

    /// Returns the addresses of the TCP sockets.
    pub fn addresses(&self) -> Vec<String> {
        let listeners = self.call("parts.status", json!({})).unwrap()["listeners"].clone();
        let url = |one: &Value| one["url"].as_str().unwrap()["http://".len()..].to_owned();
        listeners.as_array().unwrap().iter().map(url).collect()
    }

    pub fn part_pid(&self, name: &str) -> Pid {
        let part = self.part(name);
        Pid::from_raw(part["pid"].as_i64().unwrap_or_else(|| panic!("{part}")) as i32)
    }

    pub fn logs(&self, name: &str) -> Vec<String> {
        let mut caller = self.connect();
        caller.send("parts.logs", json!({"name": name, "lines": 10_000}));
        caller.items()
    }

    /// Returns kend's own log. kend answers when everything up to now is in the file.
    pub fn journal(&self) -> String {
        let mut caller = self.connect();
        caller.send("parts.logs", json!({"name": "kend", "lines": 0}));
        caller.items();
        self.home.read("state/log/kend.log")
    }

    /// Returns the messages about one part in kend's own log.
    pub fn notes(&self, part: &str) -> Vec<String> {
        let text = self.journal();
        let records = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let about = records.filter(|record| record["part"] == part);
        about.map(|record| record["message"].as_str().unwrap().to_owned()).collect()
    }

    pub fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).unwrap();
    }

    /// Sends SIGTERM and waits for the end.
    pub fn stop(mut self) -> Ended {
        self.signal(Signal::SIGTERM);
        self.end()
    }

    pub fn end(&mut self) -> Ended {
        let mut stderr = String::new();
        if let Some(mut pipe) = self.child.stderr.take() {
            pipe.read_to_string(&mut stderr).unwrap();
        }
        Ended { status: self.child.wait().unwrap(), stdout: String::new(), stderr }
    }
}

impl Drop for Kend<'_> {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            // The second signal kills what is left at once.
            self.signal(Signal::SIGTERM);
            self.signal(Signal::SIGINT);
            let _ = self.child.wait();
        }
    }
}

pub struct Caller {
    to: UnixStream,
    from: BufReader<UnixStream>,
}

impl Caller {
    pub fn connect(path: &Path) -> Caller {
        let to = UnixStream::connect(path).unwrap();
        to.set_read_timeout(Some(TIMEOUT)).unwrap();
        let from = BufReader::new(to.try_clone().unwrap());
        Caller { to, from }
    }

    pub fn send(&mut self, op: &str, args: Value) {
        let line = json!({"id": 1, "op": op, "args": args, "deadline_ms": 10_000});
        self.to.write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    pub fn line(&mut self) -> Value {
        let mut line = String::new();
        self.from.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|_| panic!("no reply but {line:?}"))
    }

    pub fn call(&mut self, op: &str, args: Value) -> Result<Value, Value> {
        self.send(op, args);
        let line = self.line();
        match line.get("ok") {
            Some(ok) => Ok(ok.clone()),
            None => Err(line["error"].clone()),
        }
    }

    /// Returns the log lines before the final line.
    pub fn items(&mut self) -> Vec<String> {
        std::iter::from_fn(|| self.item()).collect()
    }

    pub fn item(&mut self) -> Option<String> {
        self.line().get("item").map(|item| item["line"].as_str().unwrap().to_owned())
    }
}

/// Puts a program in its place as a package manager does it. Another process copies it: a thread beside the test that forks while a
/// file is open for writing would keep it from being run ("Text file busy").
pub fn install(from: impl AsRef<OsStr>, to: &Path) {
    let new = to.with_extension("new");
    assert!(Command::new("cp").arg(from).arg(&new).status().unwrap().success());
    std::fs::rename(new, to).unwrap();
}

/// Waits until a condition holds.
pub fn until(what: &str, mut test: impl FnMut() -> bool) {
    let end = Instant::now() + TIMEOUT;
    while !test() {
        assert!(Instant::now() < end, "never came: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Whether a process runs. A zombie does not.
pub fn is_running(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit(") ").next().and_then(|rest| rest.chars().next());
    state.is_some_and(|state| state != 'Z' && state != 'X')
}

pub fn kill9(pid: Pid) {
    kill(pid, Signal::SIGKILL).unwrap();
}

/// Waits until the death of a part is followed by a restart without a delay (policy.rs).
pub fn wait_for_restart() {
    std::thread::sleep(Duration::from_millis(1_050));
}
