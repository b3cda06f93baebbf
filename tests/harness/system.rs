//! A ken system, from `ken up` to its end.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use ken_wire::blocking::Client as Part;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::http::{Answer, Client};
use crate::port::free_port;
use crate::sse::Stream;

/// The path of a program of the workspace, as built by `make test` (or `cargo build --workspace --bins`).
pub fn binary(name: &str) -> PathBuf {
    let exe = std::env::current_exe().expect("the test's own path");
    let target = exe.parent().and_then(Path::parent).expect("target/<profile>/deps");
    let path = target.join(name);
    assert!(path.exists(), "{} is not built: `make test`, or cargo build --workspace --bins", path.display());
    path
}

/// Copies a program that is then run. Another process copies it: a thread beside the test that forks while the file is open for
/// writing would keep it from being run ("Text file busy").
pub fn copy_program(from: &Path, to: &Path) {
    let copied = Command::new("cp").args([from, to]).status();
    assert!(copied.expect("cp").success(), "{} is not copied to {}", from.display(), to.display());
}

/// Waits until the condition holds. Fails the test if this takes longer than a minute, which is enough even on a busy machine. A condition that
/// takes long to find out, such as one that starts a program, is asked for less often, so that it does not hold up what it waits for.
#[track_caller]
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        let begun = Instant::now();
        if holds() {
            return;
        }
        assert!(Instant::now() < end, "not within a minute: {what}");
        std::thread::sleep(begun.elapsed().clamp(Duration::from_millis(5), Duration::from_millis(200)));
    }
}

/// The settings of a system.
#[derive(Default)]
pub struct Builder {
    config: String,
    env: Vec<(String, String)>,
    files: Vec<(String, String)>,
    user: Option<u32>,
    programs: Option<PathBuf>,
    below: Option<PathBuf>,
}

impl Builder {
    /// Adds text to its `ken.toml`.
    pub fn config(mut self, text: &str) -> Builder {
        self.config += text;
        self
    }

    pub fn env(mut self, name: &str, value: &str) -> Builder {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Uses the engine `script` (ken-model(8)) with these lines instead of `rules`.
    pub fn script(self, lines: &[Value]) -> Builder {
        let text = lines.iter().map(|line| format!("{line}\n")).collect::<String>();
        let mut builder = self.env("KEN_MODEL", "script");
        // The file is not directly in the home, because kend and ken-tools watch that folder and would be notified of every
        // read.
        builder.files.push(("model/script.jsonl".to_owned(), text));
        builder
    }

    /// Sets the text of its `secrets.env`.
    pub fn secrets(mut self, text: &str) -> Builder {
        self.files.push(("secrets.env".to_owned(), text.to_owned()));
        self
    }

    /// Adds a file to its home. A file with a name in `.py` is executable.
    pub fn file(mut self, name: &str, text: &str) -> Builder {
        self.files.push((name.to_owned(), text.to_owned()));
        self
    }

    /// Runs the programs of this folder instead of those that were built.
    pub fn programs(mut self, folder: &Path) -> Builder {
        self.programs = Some(folder.to_owned());
        self
    }

    /// Makes its home in this folder.
    pub fn below(mut self, folder: &Path) -> Builder {
        self.below = Some(folder.to_owned());
        self
    }

    /// Runs it as this user. Only root can.
    pub fn user(mut self, uid: u32) -> Builder {
        self.user = Some(uid);
        self
    }

    pub fn start(self) -> System {
        let home = self.below.as_deref().map_or_else(tempfile::tempdir, tempfile::tempdir_in).expect("a folder");
        if !self.config.is_empty() {
            std::fs::write(home.path().join("ken.toml"), &self.config).expect("ken.toml");
        }
        let mut env = self.env;
        for (name, text) in &self.files {
            let path = home.path().join(name);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            std::fs::write(&path, text).expect("a file");
            std::fs::set_permissions(
                &path,
                std::fs::Permissions::from_mode(if name.ends_with(".py") { 0o700 } else { 0o600 }),
            )
            .expect("a mode");
            if name == "model/script.jsonl" {
                env.push(("KEN_SCRIPT".to_owned(), home.path().join(name).display().to_string()));
            }
        }
        if let Some(uid) = self.user {
            let owner = format!("{uid}:{uid}");
            let changed = Command::new("chown").args(["-R", &owner]).arg(home.path()).status().expect("chown");
            assert!(changed.success());
        }
        let programs = self.programs;
        let mut system =
            System { home, env, port: free_port(), cognitive_port: free_port(), up: None, user: self.user, programs };
        system.up();
        system
    }
}

/// A running system with a temporary home.
pub struct System {
    home: TempDir,
    env: Vec<(String, String)>,
    port: u16,
    cognitive_port: u16,
    up: Option<Child>,
    user: Option<u32>,
    programs: Option<PathBuf>,
}

impl System {
    /// Starts a system with the defaults.
    pub fn start() -> System {
        Builder::default().start()
    }

    pub fn home(&self) -> &Path {
        self.home.path()
    }

    pub fn address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.port))
    }

    /// The address of the cognitive server.
    pub fn cognitive(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.cognitive_port))
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// The wire socket of a part.
    pub fn socket(&self, part: &str) -> PathBuf {
        self.home().join(format!("run/{part}.sock"))
    }

    /// Starts the system, on the same ports as before.
    pub fn up(&mut self) {
        let ports = [self.port.to_string(), self.cognitive_port.to_string()];
        let mut command = self.command(&["up", "--port", &ports[0], "--cognitive-port", &ports[1]]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("ken up");
        let mut line = String::new();
        let mut stdout = BufReader::new(child.stdout.take().expect("stdout"));
        stdout.read_line(&mut line).expect("a line");
        let Some(port) = port_in(&line, "gateway") else {
            let output = child.wait_with_output().expect("ken up");
            panic!("ken up said {line:?}; {}", String::from_utf8_lossy(&output.stderr));
        };
        self.port = port;
        // A test can replace the cognitive server with another program.
        self.cognitive_port = port_in(&line, "cognitive").unwrap_or_default();
        self.up = Some(child);
    }

    /// Sets a variable of its environment, from the next start on.
    pub fn set_env(&mut self, name: &str, value: &str) {
        self.env.retain(|(other, _)| other != name);
        self.env.push((name.to_owned(), value.to_owned()));
    }

    /// A `ken` command for this home, which writes its errors as JSON.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let program = self.programs.as_ref().map_or_else(|| binary("ken"), |folder| folder.join("ken"));
        let mut command = Command::new(program);
        command.env_clear().env("KEN_ERRORS", "json").envs(self.env.iter().cloned()).env("PATH", "/usr/bin:/bin");
        command.arg("--home").arg(self.home()).args(arguments).stdin(Stdio::null());
        if let Some(uid) = self.user {
            command.uid(uid).gid(uid);
        }
        command
    }

    /// Runs a `ken` command and waits for its end.
    pub fn ken(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().expect("ken")
    }

    /// Calls an operation of a part with arguments as `ken call` takes them, and returns the reply. Without that program, of which a start takes a
    /// hundred times as long as a call.
    #[track_caller]
    pub fn call(&self, part: &str, op: &str, arguments: &[&str]) -> Value {
        let argument = |word: &&str| {
            let (key, text) = word.split_once('=').expect("key=value");
            (key.to_owned(), serde_json::from_str(text).unwrap_or_else(|_| Value::from(text)))
        };
        let arguments = arguments.iter().map(argument).collect();
        let mut client = Part::connect(&self.socket(part), part).unwrap_or_else(|error| panic!("{part}: {error}"));
        let reply = client.call(op, &Value::Object(arguments), Some(Duration::from_secs(10)), |_| Ok(()));
        reply.unwrap_or_else(|error| panic!("{part} {op}: {error}"))
    }

    /// The process id of a part, or of `kend` itself. Waits for a part that is being restarted.
    pub fn pid(&self, part: &str) -> i32 {
        let mut pid = None;
        until(&format!("{part} has a process"), || {
            let status = self.call("kend", "parts.status", &[]);
            pid = pid_of(if part == "kend" { &status } else { part_status(&status, part) });
            pid.is_some()
        });
        pid.expect("it was waited for")
    }

    /// Waits until a part has been ready long enough that kend restarts it at once if it dies.
    pub fn wait_until_stable(&self, part: &str) {
        let mut ready = None;
        until(&format!("{part} has been ready for more than a second"), || {
            let status = self.call("kend", "parts.status", &[]);
            let one = part_status(&status, part);
            match pid_of(one).filter(|_| one["state"] == "ready") {
                Some(pid) => {
                    let (known, since) = *ready.get_or_insert((pid, Instant::now()));
                    if known != pid {
                        ready = None;
                    }
                    since.elapsed() > Duration::from_millis(1_100)
                }
                None => {
                    ready = None;
                    false
                }
            }
        });
    }

    /// Kills the process of a part with SIGKILL.
    pub fn kill(&self, part: &str) {
        signal(self.pid(part), Signal::SIGKILL);
    }

    pub fn signal(&self, part: &str, what: Signal) {
        signal(self.pid(part), what);
    }

    /// Kills kend and all parts at once, like a power cut, and waits until their processes have ended.
    pub fn cut_power(&mut self) {
        let status = self.call("kend", "parts.status", &[]);
        let parts = status.get("parts").and_then(Value::as_array).cloned().unwrap_or_default();
        let pids: Vec<i32> = parts.iter().filter_map(pid_of).collect();
        let mut kend = self.up.take().expect("ken up");
        // kend is stopped first, or it would start the killed parts again. It is killed last, because parts that notice its end close
        // their files in order.
        _ = kill(Pid::from_raw(i32::try_from(kend.id()).expect("a pid")), Signal::SIGSTOP);
        for pid in &pids {
            _ = kill(Pid::from_raw(*pid), Signal::SIGKILL);
        }
        _ = kend.kill();
        _ = kend.wait();
        until("everything has gone", || pids.iter().all(|pid| is_gone(*pid)));
    }

    /// Interrupts `ken up`, waits until it ends, and returns its exit status.
    pub fn down(&mut self) -> Option<i32> {
        signal(i32::try_from(self.up.as_ref()?.id()).expect("a pid"), Signal::SIGINT);
        self.ended()
    }

    /// Waits until `ken up` ends, and returns its exit status.
    pub fn ended(&mut self) -> Option<i32> {
        self.up.take()?.wait().expect("ken up").code()
    }

    /// A client that checks every answer against the contract.
    pub fn client(&self) -> Client {
        Client::connect(self.address()).checked_by_contract()
    }

    pub fn get(&self, target: &str) -> Answer {
        self.client().get(target)
    }

    pub fn post(&self, target: &str, body: &Value) -> Answer {
        self.client().post(target, body)
    }

    pub fn delete(&self, target: &str) -> Answer {
        self.client().delete(target)
    }

    /// Opens a stream of events.
    pub fn attach(&self, target: &str) -> Stream {
        Stream::open(self.address(), target)
    }

    /// Opens a stream with the header `Last-Event-ID`.
    pub fn attach_after(&self, target: &str, last_event_id: &str) -> Stream {
        Stream::open_with(self.address(), target, &[("Last-Event-ID", last_event_id)])
    }

    /// Creates a session of actor `a` in conversation `c`, and returns its id.
    pub fn session(&self) -> String {
        self.post("/api/chat/sessions", &tui(&[])).expect(201).text("/session/id")
    }

    /// Sends a prompt to a session of [`System::session`], and waits for the end of its turn.
    pub fn say(&self, session: &str, text: &str) -> Answer {
        let body = tui(&[("text", json!(text)), ("session", json!(session))]);
        self.post("/api/chat/events", &body)
    }
}

/// The port of a server, from the line that `ken up` prints when it is ready.
fn port_in(line: &str, name: &str) -> Option<u16> {
    let words = line.trim().strip_prefix("ready ")?.split(' ');
    let url = words.filter_map(|word| word.split_once('=')).find(|(server, _)| *server == name)?.1;
    url.rsplit_once(':')?.1.parse().ok()
}

/// A request body with the identity that the tests use, and these fields.
pub fn tui(fields: &[(&str, Value)]) -> Value {
    let mut body = json!({"connector": "tui", "actorId": "a", "conversationId": "c"});
    for (name, value) in fields {
        body[*name] = value.clone();
    }
    body
}

/// The status of a part in the reply of `parts.status`.
fn part_status<'a>(status: &'a Value, part: &str) -> &'a Value {
    let parts = status.get("parts").and_then(Value::as_array).expect("parts");
    parts
        .iter()
        .find(|one| one.get("name").is_some_and(|name| name == part))
        .unwrap_or_else(|| panic!("no part {part} in {status}"))
}

fn pid_of(value: &Value) -> Option<i32> {
    let pid = value.get("pid").and_then(Value::as_i64)?;
    Some(i32::try_from(pid).expect("a pid"))
}

fn signal(pid: i32, what: Signal) {
    kill(Pid::from_raw(pid), what).expect("a signal");
}

/// Whether the process has ended. It may not have been reaped yet.
fn is_gone(pid: i32) -> bool {
    match std::fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with(['Z', 'X'])),
        Err(_) => true,
    }
}

impl Drop for System {
    fn drop(&mut self) {
        let Some(mut up) = self.up.take() else { return };
        // kend ends its parts after a signal, but a failed test does not wait for this for long.
        _ = kill(Pid::from_raw(i32::try_from(up.id()).unwrap_or_default()), Signal::SIGINT);
        let end = Instant::now() + Duration::from_secs(12);
        while matches!(up.try_wait(), Ok(None)) && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(5));
        }
        _ = up.kill();
        _ = up.wait();
        if std::thread::panicking() {
            self.print_logs();
        }
    }
}

impl System {
    /// Prints the logs of the parts when the test fails.
    #[allow(clippy::print_stderr)]
    fn print_logs(&self) {
        for entry in std::fs::read_dir(self.home().join("state/log")).into_iter().flatten().flatten() {
            let text = std::fs::read_to_string(entry.path()).unwrap_or_default();
            let lines: Vec<&str> = text.lines().collect();
            eprintln!("--- {}", entry.path().display());
            for line in lines.iter().skip(lines.len().saturating_sub(20)) {
                eprintln!("{line}");
            }
        }
    }
}

/// A system whose model reacts to words in a prompt: `hold` waits a minute, `ponder` waits a minute while thinking, `pause`
/// waits 50 ms, `think` thinks first, `tools` calls two tools that do not exist, `refused` fails like a provider, and `length`
/// is cut off. Every other prompt is answered at once.
pub fn scripted() -> System {
    scripted_builder().start()
}

/// The builder of [`scripted`], for further settings.
pub fn scripted_builder() -> Builder {
    Builder::default().script(&[
        json!({"purpose": "compaction", "events": [{"text": "They talked."}]}),
        json!({"when": "hold", "events": [{"text": "part"}, {"sleep_ms": 60_000}, {"text": " and rest"}]}),
        json!({"when": "ponder", "events": [{"think": "Hm. "}, {"sleep_ms": 60_000}, {"text": "So."}]}),
        json!({"when": "pause", "events": [{"sleep_ms": 50}, {"text": "Rested."}]}),
        json!({"when": "think", "events": [{"think": "Hm. "}, {"think": "So."}, {"text": "I "}, {"text": "see."}]}),
        json!({"when": "tools", "after_tools": 2, "events": [{"text": "Tools are gone."}]}),
        json!({"when": "tools", "events": [{"text": "Let me look."}, {"tool": {"name": "absent", "arguments": {"secret": "x"}}},
            {"tool": {"name": "missing", "arguments": {}}}]}),
        json!({"when": "refused", "events": [{"text": "I "}, {"error": {"class": "auth", "message": "the key is not taken"}}]}),
        json!({"when": "length", "events": [{"text": "And so"}, {"stop": "length"}]}),
        json!({"events": [{"text": "Hello"}, {"text": " there."}]}),
    ])
}
