//! The daemon as a child process, and a caller that speaks its wire.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

pub(crate) const EXE: &str = env!("CARGO_BIN_EXE_ken-store");
pub(crate) const TIMEOUT: Duration = Duration::from_secs(20);

pub(crate) fn command(home: &Path) -> Command {
    let mut command = Command::new(EXE);
    command.env_clear().arg("--home").arg(home).stderr(Stdio::piped()).stdout(Stdio::null());
    command
}

pub(crate) struct Daemon {
    pub(crate) child: Child,
    home: PathBuf,
}

impl Daemon {
    /// Starts the daemon and waits until it is ready.
    pub(crate) fn start(home: &Path) -> Daemon {
        let mut command = command(home);
        command.stderr(Stdio::null());
        Daemon::start_as(command, home)
    }

    /// Starts the daemon as [`Daemon::start`] does, with another command, which must finally execute the daemon.
    pub(crate) fn start_as(mut command: Command, home: &Path) -> Daemon {
        let path = home.join("notify");
        _ = std::fs::remove_file(&path);
        let notify = UnixDatagram::bind(&path).unwrap();
        notify.set_read_timeout(Some(TIMEOUT)).unwrap();
        let child = command.env("NOTIFY_SOCKET", &path).spawn().unwrap();
        let mut text = [0; 64];
        let length = loop {
            match notify.recv(&mut text) {
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                received => break received.unwrap(),
            }
        };
        assert_eq!(&text[..length], b"READY=1\n");
        Daemon { child, home: home.to_owned() }
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.home.join("run/store.sock")
    }

    pub(crate) fn database(&self) -> PathBuf {
        self.home.join("state/store/ken.db")
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id().try_into().unwrap()), signal).unwrap();
    }

    pub(crate) fn end(mut self, signal: Signal) -> Option<i32> {
        self.signal(signal);
        self.child.wait().unwrap().code()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// A connection to the daemon that sends and reads lines, as a person with nc could.
pub(crate) struct Peer {
    to: UnixStream,
    from: BufReader<UnixStream>,
    id: u64,
}

impl Peer {
    pub(crate) fn connect(socket: &Path) -> Peer {
        let to = UnixStream::connect(socket).unwrap();
        to.set_read_timeout(Some(TIMEOUT)).unwrap();
        let from = BufReader::new(to.try_clone().unwrap());
        Peer { to, from, id: 0 }
    }

    /// Makes a call and returns its answer; `None` if the daemon ends before it answers.
    pub(crate) fn try_call(&mut self, op: &str, args: &Value) -> Option<Result<Value, Value>> {
        self.id += 1;
        let line = json!({"id": self.id, "op": op, "args": args});
        self.to.write_all(format!("{line}\n").as_bytes()).ok()?;
        self.answer(self.id)
    }

    /// Begins a call that waits for something, and returns its id. The daemon has then received the call, because it reads lines in order.
    pub(crate) fn begin(&mut self, op: &str, args: &Value) -> u64 {
        self.id += 1;
        let (id, line) = (self.id, json!({"id": self.id, "op": op, "args": args}));
        self.to.write_all(format!("{line}\n").as_bytes()).unwrap();
        self.call("service.ping", json!({}));
        id
    }

    /// Returns the next answer, which must belong to this call; `None` if the daemon ends before that.
    pub(crate) fn answer(&mut self, id: u64) -> Option<Result<Value, Value>> {
        let mut answer = String::new();
        self.from.read_line(&mut answer).ok()?;
        let mut answer: Value = serde_json::from_str(&answer).ok()?;
        assert_eq!(answer["id"], id);
        match answer.get_mut("error") {
            Some(error) => Some(Err(error.take())),
            None => Some(Ok(answer["ok"].take())),
        }
    }

    pub(crate) fn call(&mut self, op: &str, args: Value) -> Value {
        self.try_call(op, &args).expect("no answer").unwrap_or_else(|error| panic!("{op}: {error}"))
    }
}

pub(crate) fn scope(client: usize) -> Value {
    json!({"connector": "tui", "actorId": format!("a{client}"), "conversationId": "c"})
}

pub(crate) fn prompt(client: usize, number: usize) -> Value {
    json!({
        "event": {"id": format!("tui:{client}-{number}"), "scope": scope(client), "kind": "chat.message",
                  "text": format!("prompt {number}"), "receivedAt": "2027-02-03T04:05:06.789Z"},
        "target": {"selector_or_new": {"id": format!("web-{client}-{}", number / 3), "origin": "web"}},
        "action": {"prompt": {"submission_id": format!("s{client}-{number}"), "policy": "queue"}},
    })
}

pub(crate) fn event(submission: &str, index: u64) -> Value {
    // The order of keys is part of the contract, and serde_json's map sorts them.
    let text = format!(
        r#"{{"v":1,"type":"text_delta","text":"word","eventIndex":{index},"timestamp":"2027-02-03T04:05:07.000Z","instanceId":"i","submissionId":"{submission}","session":"default","harness":"default"}}"#
    );
    Value::String(text)
}

/// Builds the arguments as text, because events must keep the order of their keys.
pub(crate) fn with_events(args: &str, events: &[Value]) -> String {
    let events: Vec<&str> = events.iter().filter_map(Value::as_str).collect();
    format!("{args},\"events\":[{}]", events.join(","))
}

impl Peer {
    pub(crate) fn append(&mut self, lease: &Value, first_index: u64, events: &[Value]) -> Option<Result<Value, Value>> {
        self.id += 1;
        let args = with_events(&format!(r#"{{"lease":{lease},"first_index":{first_index}"#), events);
        let line = format!("{{\"id\":{},\"op\":\"submissions.append\",\"args\":{args}}}}}\n", self.id);
        self.to.write_all(line.as_bytes()).ok()?;
        self.answer(self.id)
    }
}
