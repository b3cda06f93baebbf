//! Tests of the front command with the real kend. The parts are test programs that do what their arguments say
//! (bin/kend/examples/probe.rs).

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

struct Home {
    dir: TempDir,
}

impl Home {
    fn new(parts: &str) -> Home {
        let bins = Path::new(env!("CARGO_BIN_EXE_ken")).parent().unwrap();
        for file in ["kend", "examples/probe"] {
            assert!(bins.join(file).exists(), "build it first: cargo build -p kend --bins --examples");
        }
        let home = Home { dir: tempfile::Builder::new().prefix("ken").tempdir().unwrap() };
        let parts = parts.replace("PROBE", bins.join("examples/probe").to_str().unwrap());
        home.write("ken.toml", &format!("[kend]\nbuiltin_parts = false\n{parts}"));
        home
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ken"));
        command.env("KEN_ERRORS", "json").env("KEN_HOME", self.dir.path()).args(args).stdin(Stdio::null());
        command
    }

    /// Runs `ken`. Returns standard output, standard error and the exit status.
    fn ken(&self, args: &[&str]) -> (String, String, i32) {
        channels(self.command(args).output().unwrap())
    }

    fn ken_with(&self, args: &[&str], input: &str) -> (String, String, i32) {
        let mut command = self.command(args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        channels(child.wait_with_output().unwrap())
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let _ = self.command(&["down"]).output();
    }
}

fn channels(output: Output) -> (String, String, i32) {
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (text(output.stdout), text(output.stderr), output.status.code().unwrap())
}

fn until(what: &str, mut test: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(10);
    while !test() {
        assert!(Instant::now() < end, "never came: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

const TWO: &str = "[part.a]\ncommand = [\"PROBE\", \"say:hello\", \"ready\", \"hang\"]\n\
                   sockets = { http = { tcp = \"gateway\" }, wire = { unix = \"a.sock\" } }\n\
                   [part.b]\ncommand = [\"PROBE\", \"ready\", \"hang\"]\nrequires = [\"a\"]\n";

#[test]
fn up_in_the_background_status_and_down() {
    let home = Home::new(TWO);
    let (out, err, code) = home.ken(&["up", "-d", "--port", "0"]);
    assert_eq!((err.as_str(), code), ("", 0));
    assert!(out.starts_with("ready gateway=http://127.0.0.1:") && out.lines().count() == 1, "{out}");

    let (again, err, code) = home.ken(&["up", "-d", "--port", "0"]);
    assert_eq!((again.as_str(), code), ("", 75));
    assert!(err.contains("kend already runs there, pid ") && err.contains(out["ready ".len()..].trim()), "{err}");

    let (table, err, code) = home.ken(&["status"]);
    assert_eq!((err.as_str(), code), ("", 0));
    let words: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(words[0], ["NAME", "STATE", "PID", "UPTIME", "RESTARTS", "LAST-EXIT"]);
    assert_eq!((words[1][0], words[1][1], words[1][4], words[1][5]), ("a", "ready", "0", "-"));
    assert_eq!(words.len(), 3);
    let columns: Vec<usize> = table.lines().filter_map(|line| line.find("ready").or(line.find("STATE"))).collect();
    assert!(columns.windows(2).all(|pair| pair[0] == pair[1]), "{table}");

    let (json, _, code) = home.ken(&["status", "--json"]);
    assert_eq!(code, 0);
    let names: Vec<String> = json
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["name"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(names, ["a", "b"]);
    assert_eq!(home.ken(&["status", "b"]).2, 0);
    let (out, err, code) = home.ken(&["status", "c"]);
    assert_eq!((out.as_str(), code), ("", 4));
    assert!(err.contains("there is no part named `c`"), "{err}");

    assert_eq!(home.ken(&["down"]), (String::new(), String::new(), 0));
    let (out, err, code) = home.ken(&["status"]);
    assert_eq!((out.as_str(), code), ("", 3));
    assert!(err.contains("kend is not running"), "{err}");
    // A command that calls a part reports the same cause.
    let (out, err, code) = home.ken(&["usage"]);
    assert_eq!((out.as_str(), code), ("", 75));
    assert!(err.contains("store.sock, and kend is not running") && err.contains("start it with `ken up`"), "{err}");
    assert_eq!(home.ken(&["down"]).2, 0);
    // The sockets and locks are free as soon as `down` returns.
    assert_eq!(home.ken(&["up", "-d", "--port", "0"]).2, 0);
}

#[test]
fn up_in_the_foreground_ends_with_an_interrupt() {
    let home = Home::new(TWO);
    let mut command = home.command(&["up", "--port", "0"]);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.starts_with("ready gateway=http://127.0.0.1:"), "{line}");
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(child.id() as i32), nix::sys::signal::Signal::SIGINT).unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(home.ken(&["status"]).2, 3);
}

#[test]
fn up_that_fails_says_why_once_and_leaves_nothing_running() {
    let home = Home::new("[part.a]\ncommand = [\"PROBE\", \"say:no moon\", \"exit:70\"]\n");
    for args in [&["up"][..], &["up", "-d"]] {
        let (out, err, code) = home.ken(args);
        assert_eq!((out.as_str(), code), ("", 75), "{err}");
        assert!(err.starts_with("kend: a: ended (exit 70)") && err.contains("no moon"), "{err}");
        assert_eq!(err.lines().count(), 1, "{err}");
    }
    home.write("ken.toml", "[gateway]\nport = \"x\"\n");
    let (out, err, code) = home.ken(&["up", "-d"]);
    assert_eq!((out.as_str(), code), ("", 2));
    assert!(err.contains("ken.toml:2: gateway.port: "), "{err}");
    assert_eq!(home.ken(&["status"]).2, 3);
}

#[test]
fn start_stop_restart_and_reload() {
    let home = Home::new(TWO);
    home.ken(&["up", "-d", "--port", "0"]);
    let done = |out: &str| (out.to_owned(), String::new(), 0);
    assert_eq!(home.ken(&["stop", "a"]), done("a stopped\n"));
    let (table, err, code) = home.ken(&["status"]);
    assert_eq!((err.as_str(), code), ("ken: not ready: a (stopped)\n", 3));
    assert_eq!(table.matches("stopped").count(), 1, "b keeps running: {table}");
    assert_eq!(home.ken(&["status", "b"]).2, 0);
    assert_eq!(home.ken(&["start", "a"]), done("a ready\n"));
    assert_eq!(home.ken(&["stop", "a", "--dependents"]), done("b stopped\na stopped\n"));
    assert_eq!(home.ken(&["start", "b"]), done("b ready\n"));
    assert_eq!(home.ken(&["restart", "a"]), done("a ready\n"));
    assert_eq!(home.ken(&["status"]).2, 0);
    assert_eq!(home.ken(&["start", "nope"]).2, 2);
    assert_eq!(home.ken(&["stop", "a", "--wait", "ready"]).2, 2);
    assert_eq!(home.ken(&["stop", "a", "--wait", "never"]).2, 2);
    assert_eq!(home.ken(&["reload"]).0, "unchanged: a b\n");
    home.write("ken.toml", "nonsense");
    let (_, err, code) = home.ken(&["reload"]);
    assert_eq!(code, 2);
    assert!(err.contains("the last good configuration stays in force"), "{err}");
    let (_, err, code) = home.ken(&["status"]);
    assert_eq!(code, 0);
    assert!(err.contains("the last good configuration is in force"), "{err}");
}

#[test]
fn a_verb_that_fails_says_why() {
    let home = Home::new(
        "[part.bad]\ncommand = [\"PROBE\", \"say:no moon\", \"exit:1\"]\nenabled = false\nlimit = { n = 1, within_ms = 60000 }\n\
         [part.slow]\ncommand = [\"PROBE\", \"deaf\", \"ready\", \"hang\"]\nstop_timeout_ms = 100\n",
    );
    home.ken(&["up", "-d"]);
    let (out, err, code) = home.ken(&["start", "bad"]);
    assert_eq!((out.as_str(), code), ("", 75), "{err}");
    assert!(err.contains("bad ended (exit 1) before it was ready, after ") && err.contains("no moon"), "{err}");
    let (table, err, code) = home.ken(&["status", "bad"]);
    assert_eq!((err.as_str(), code), ("ken: not ready: bad (failed)\n", 3));
    assert!(table.contains("exit 1, given up after 1 starts within 60000 ms"), "{table}");
    let (out, err, code) = home.ken(&["stop", "slow"]);
    assert_eq!((out.as_str(), code), ("slow stopped\n", 0));
    assert!(err.contains("slow did not end within its time and was killed"), "{err}");
}

#[test]
fn kill_sends_a_signal_to_the_process_of_a_part() {
    let home = Home::new(TWO);
    home.ken(&["up", "-d", "--port", "0"]);
    let (out, err, code) = home.ken(&["kill", "a"]);
    assert_eq!((err.as_str(), code), ("", 0));
    assert!(out.starts_with("a SIGKILL sent to process "), "{out}");
    until("its end", || home.ken(&["status", "a"]).0.contains("signal SIGKILL"));
    let (out, _, code) = home.ken(&["kill", "b", "-s", "usr2"]);
    assert!(out.starts_with("b SIGUSR2 sent to process ") && code == 0, "{out}");
    for args in [&["kill", "b", "-s", "nope"][..], &["kill", "nope"], &["kill"]] {
        let (out, err, code) = home.ken(args);
        assert_eq!((out.as_str(), code), ("", 2), "{args:?}: {err}");
    }
}

#[test]
fn status_is_three_while_a_wanted_part_is_not_up() {
    let home = Home::new(
        "[part.a]\ncommand = [\"PROBE\", \"ready\", \"hang\"]\n[part.b]\ncommand = [\"PROBE\", \"hang\"]\nenabled = false\n",
    );
    home.ken(&["up", "-d"]);
    assert_eq!(home.ken(&["status"]).2, 0);
    assert_eq!(home.ken(&["start", "b", "--no-wait"]).0, "b starting\n");
    let (_, err, code) = home.ken(&["status"]);
    assert_eq!((err.as_str(), code), ("ken: not ready: b (starting)\n", 3));
    let (_, err, code) = home.ken(&["restart", "b", "--wait", "ready", "--timeout", "100ms"]);
    assert_eq!(code, 75);
    assert!(err.contains("\"code\":\"deadline\""), "{err}");
}

#[test]
fn an_up_that_a_down_overtakes_says_so() {
    let home = Home::new("[part.a]\ncommand = [\"PROBE\", \"hang\"]\n");
    for args in [&["up"][..], &["up", "-d"]] {
        let mut command = home.command(args);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        until("kend listens", || UnixStream::connect(home.path("run/kend.sock")).is_ok());
        assert_eq!(home.ken(&["down"]).2, 0);
        let (out, err, code) = channels(child.wait_with_output().unwrap());
        assert_eq!((out.as_str(), code), ("", 75), "{err}");
        let last = err.lines().last().unwrap_or_default();
        assert_eq!(last, "kend: stopped by `ken down` before all parts were ready");
    }
}

#[test]
fn logs_to_the_end_and_beyond() {
    let home = Home::new("[part.a]\ncommand = [\"PROBE\", \"say:one\", \"say:two\", \"ready\", \"hang\"]\n");
    home.ken(&["up", "-d"]);
    until("both lines", || home.ken(&["logs", "a"]).0 == "one\ntwo\n");
    assert_eq!(home.ken(&["logs", "a", "-n", "1"]).0, "two\n");
    assert_eq!(home.ken(&["logs", "c"]).2, 2);
    let mut command = home.command(&["logs", "a", "-n", "1", "-f"]);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut next = || lines.next().unwrap().unwrap();
    assert_eq!(next(), "two");
    home.ken(&["restart", "a"]);
    assert_eq!([next(), next()], ["one", "two"]);
    home.ken(&["down"]);
    assert_eq!(child.wait().unwrap().code(), Some(75));
    // Logs can be read while the system is down, but not followed.
    assert_eq!(home.ken(&["logs", "a"]).0, "one\ntwo\none\ntwo\n");
    assert_eq!(home.ken(&["logs", "c"]).2, 2);
    assert_eq!(home.ken(&["logs", "a", "-f"]).2, 75);
}

#[test]
fn logs_are_merged_by_time_and_chosen_by_level_and_time() {
    let home = Home::new("");
    std::fs::create_dir_all(home.path("state/log")).unwrap();
    let record = |second: u32, level: &str, text: &str| {
        format!(
            "{{\"timestamp\":\"2026-01-01T00:00:{second:02}.000Z\",\"level\":\"{level}\",\"target\":\"x\",\"message\":\"{text}\",\"n\":{second}}}\n"
        )
    };
    home.write("state/log/b.log.1", &(record(1, "INFO", "b1") + &record(3, "ERROR", "b3")));
    home.write("state/log/b.log", &(record(6, "DEBUG", "b6") + "plain \u{1b}[31m\n"));
    home.write("state/log/ab.log", &(record(2, "WARN", "a2") + &record(5, "INFO", "a5")));
    let (out, err, code) = home.ken(&["logs"]);
    assert_eq!((err.as_str(), code), ("", 0));
    assert_eq!(
        out,
        "2026-01-01T00:00:01.000Z INFO  b   b1 n=1\n\
         2026-01-01T00:00:02.000Z WARN  ab  a2 n=2\n\
         2026-01-01T00:00:03.000Z ERROR b   b3 n=3\n\
         2026-01-01T00:00:05.000Z INFO  ab  a5 n=5\n\
         2026-01-01T00:00:06.000Z DEBUG b   b6 n=6\n\
         b   plain \u{1b}[31m\n"
    );
    let raw = home.ken(&["logs", "--json", "-n", "2"]).0;
    assert_eq!(raw, record(6, "DEBUG", "b6") + "plain \u{1b}[31m\n");
    let messages = |args: &[&str]| {
        let (out, err, code) = home.ken(&[&["logs"], args].concat());
        assert_eq!((err.as_str(), code), ("", 0));
        let word = |line: &str| line.split(" n=").next().unwrap().rsplit(' ').next().unwrap().to_owned();
        out.lines().map(word).collect::<Vec<_>>()
    };
    assert_eq!(messages(&["--level", "warn"]), ["a2", "b3"]);
    assert_eq!(messages(&["b", "--level", "error"]), ["b3"]);
    assert_eq!(messages(&["--since", "2026-01-01T00:00:05"])[..2], ["a5", "b6"]);
    assert_eq!(messages(&["ab", "-n", "1"]), ["a5"]);
    assert_eq!(messages(&["--since", "1d"]), [""; 0]);
    for args in [&["--level", "loud"][..], &["--since", "soon"], &["c"]] {
        assert_eq!(home.ken(&[&["logs"], args].concat()).2, 2, "{args:?}");
    }
}

/// Lines that were rotated away between two reads are still shown, each once.
#[test]
fn following_goes_on_over_rotations() {
    let home = Home::new("[part.a]\ncommand = [\"PROBE\", \"lines:3000\", \"say:end\", \"ready\", \"hang\"]\n");
    let text = std::fs::read_to_string(home.path("ken.toml")).unwrap();
    home.write("ken.toml", &text.replace("[kend]", "[kend]\nlog_max_bytes = 20000\nlog_keep = 9"));
    home.ken(&["up", "-d"]);
    until("the first lines", || home.ken(&["logs", "a", "-n", "1"]).0 == "end\n");
    let mut child = home.command(&["logs", "a", "-n", "1", "-f"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut next = || lines.next().unwrap().unwrap();
    assert_eq!(next(), "end");
    home.ken(&["restart", "a"]);
    for line in 0..3000 {
        assert_eq!(next(), format!("line {line}"));
    }
    assert_eq!(next(), "end");
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn call_prints_items_then_the_answer_and_errors_apart() {
    let home = Home::new("[part.a]\ncommand = [\"PROBE\", \"say:one\", \"ready\", \"hang\"]\n");
    home.ken(&["up", "-d"]);
    assert_eq!(home.ken(&["call", "kend", "service.ping"]), ("{}\n".to_owned(), String::new(), 0));
    until("the line", || home.ken(&["call", "kend", "parts.logs", "name=a"]).0 == "{\"line\":\"one\"}\n{}\n");
    let typed = home.ken_with(&["call", "kend", "parts.logs", "-"], "{\"name\":\"a\",\"lines\":0}");
    assert_eq!(typed, ("{}\n".to_owned(), String::new(), 0));
    for (args, code, word) in [
        (&["call", "kend", "no.such"][..], 2, "not_found"),
        (&["call", "kend", "service.ping", "x=1"], 2, "/args/x"),
        (&["call", "kend", "parts.wait_ready", "surplus"], 2, "key=value"),
        (&["call", "nobody", "service.ping"], 2, "there is no part named `nobody`"),
        (&["call", "a", "service.ping"], 75, "nobody listens on"),
        (&["call", "../kend", "service.ping"], 2, "without slashes"),
    ] {
        let (out, err, found) = home.ken(args);
        assert_eq!((out.as_str(), found), ("", code), "{err}");
        assert!(err.contains(word), "{err}");
        assert!(serde_json::from_str::<serde_json::Value>(&err).is_ok(), "{err}");
    }
    let (_, err, code) = home.ken_with(&["call", "kend", "service.ping", "-"], "[1]");
    assert_eq!(code, 2, "{err}");
}

#[test]
fn ken_x_is_ken_dash_x() {
    let home = Home::new("");
    let bin = home.path("bin");
    std::fs::create_dir(&bin).unwrap();
    home.write("bin/ken-greet", "#!/bin/sh\necho \"$KEN_HOME $*\"\nexit 7\n");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(home.path("bin/ken-greet"), mode).unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let output = home.command(&["greet", "--loud", "you"]).env("PATH", path).output().unwrap();
    let (out, _, code) = channels(output);
    assert_eq!((out, code), (format!("{} --loud you\n", home.dir.path().display()), 7));
    for name in ["nothing", "../bin/greet"] {
        let (_, err, code) = home.ken(&[name]);
        assert_eq!(code, 2);
        assert!(err.contains("there is no command"), "{err}");
    }
}

#[test]
fn a_reader_that_stops_early_is_no_error() {
    let home = Home::new("[part.a]\ncommand = [\"PROBE\", \"lines:20000\", \"ready\", \"hang\"]\n");
    home.ken(&["up", "-d"]);
    let mut command = home.command(&["logs", "a", "-n", "10000"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut some = [0; 10];
    child.stdout.take().unwrap().read_exact(&mut some).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    assert_eq!(output.stderr, b"");
}

#[test]
fn a_mistake_on_the_command_line_is_one_line_of_json() {
    let home = Home::new("");
    for (args, at, word) in [
        (&["sessions", "-n", "0"][..], "--limit", "0 is not from 1 to"),
        (&["stop", "a", "--timeout", "11m"], "--timeout", "at most 10m"),
        (&["stream", "frob"], "", "frob"),
        (&["stream"], "", "a command is needed"),
        (&[], "", "a command is needed"),
        (&["audit", "verify", "--holds", "", "x"], "--holds", "64 digits"),
        (&["audit", "verify", "--holds", "9a41", "x"], "--holds", "64 digits"),
        (&["audit", "verify", "--holds", &"g".repeat(64), "x"], "--holds", "64 digits"),
    ] {
        let (out, err, code) = home.ken(args);
        assert_eq!((out.as_str(), code, err.lines().count()), ("", 2, 1), "{args:?}: {err}");
        let error = &serde_json::from_str::<serde_json::Value>(&err).unwrap()["error"];
        assert_eq!((&error["code"], &error["at"]), (&"invalid".into(), &at.into()), "{args:?}: {err}");
        assert!(error["message"].as_str().unwrap().contains(word), "{args:?}: {err}");
    }
    for args in [&["--help"][..], &["stream", "--help"], &["--version"]] {
        let (out, err, code) = home.ken(args);
        assert!(!out.is_empty() && (err.as_str(), code) == ("", 0), "{args:?}: {err}");
    }
}

#[test]
fn a_directory_is_no_audit_log() {
    let home = Home::new("");
    let (_, err, code) = home.ken(&["audit", "verify", home.path("").to_str().unwrap()]);
    assert!(code == 2 && err.contains("is a directory"), "{err}");
}
