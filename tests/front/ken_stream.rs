//! `ken stream` and `ken events`: streams in pipes.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Output, Stdio};
use std::time::Duration;

use ken_tests::{Page, System, binary, until};
use serde_json::{Value, json};

fn start(system: &System, arguments: &[&str]) -> Child {
    let mut command = system.command(&[&["stream"], arguments].concat());
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("ken stream")
}

/// Standard output, standard error and exit status.
fn channels(output: &Output) -> (String, String, i32) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (text(&output.stdout), text(&output.stderr), output.status.code().unwrap())
}

fn stream(system: &System, arguments: &[&str], input: &str) -> (String, String, i32) {
    let mut child = start(system, arguments);
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    channels(&child.wait_with_output().unwrap())
}

#[track_caller]
fn done(system: &System, arguments: &[&str], input: &str) -> String {
    let (stdout, stderr, status) = stream(system, arguments, input);
    assert_eq!((stderr.as_str(), status), ("", 0), "{arguments:?}");
    stdout
}

/// Checks for one line of JSON on standard error, nothing on standard output, and this exit status. Returns the error.
#[track_caller]
fn refused(system: &System, arguments: &[&str], input: &str, status: i32, code: &str) -> Value {
    let (stdout, stderr, found) = stream(system, arguments, input);
    assert_eq!((stdout.as_str(), found), ("", status), "{arguments:?}: {stderr}");
    let mut line: Value = serde_json::from_str(&stderr).unwrap();
    let error = line["error"].take();
    assert_eq!(error["code"], code, "{arguments:?}: {stderr}");
    error
}

#[test]
fn filters() {
    let system = System::start();
    text(&system);
    values(&system);
    documents_of_others(&system);
    forms(&system);
    ends(&system);
    wrong(&system);
    quiet(&system);
}

fn text(system: &System) {
    assert_eq!(done(system, &["append", "logs/x"], "one\ntwo\n"), "");
    assert_eq!(done(system, &["append", "logs/x"], "three"), "");
    assert_eq!(done(system, &["read", "logs/x"], ""), "one\ntwo\nthree");
    assert_eq!(done(system, &["read", "--tail", "1", "logs/x"], ""), "three");
    assert_eq!(done(system, &["read", "--offset", "now", "logs/x"], ""), "");
    // The next read continues where this one ended.
    let (_, place, _) = stream(system, &["read", "--offsets", "logs/x"], "");
    done(system, &["append", "logs/x"], "\nfour\n");
    assert_eq!(done(system, &["read", "--offset", place.trim(), "logs/x"], ""), "\nfour\n");
    assert_eq!(done(system, &["append", "logs/x"], ""), "");
}

fn values(system: &System) {
    done(system, &["create", "--json", "numbers"], "");
    done(system, &["create", "--json", "numbers"], "");
    // Lines appended to a JSON stream are JSON. An array is one value.
    done(system, &["append", "numbers"], "{\"n\": 1}\n\n[1, 2]\n\"x\"\n");
    assert_eq!(done(system, &["read", "numbers"], ""), "{\"n\":1}\n[1,2]\n\"x\"\n");
    assert_eq!(done(system, &["read", "--tail", "1", "numbers"], ""), "\"x\"\n");
    let error = refused(system, &["append", "numbers"], "5\n{oops\n6\n", 2, "invalid");
    assert!(error["message"].as_str().unwrap().starts_with("line 2: "), "{error}");
    assert_eq!(done(system, &["read", "--tail", "1", "numbers"], ""), "5\n", "what stood before it is there");
}

/// The gateway accepts any JSON. What it stores is printed as it is, but on one line.
fn documents_of_others(system: &System) {
    let entries = [
        r#"{"n":1}"#,
        r#"{"name":"a\u0000b"}"#,
        r#"{"a":1,"a":2}"#,
        "1e400",
        r#""\ud800""#,
        "18446744073709551616",
        r#"{"z":1,"a":{"id":123456789012345678901}}"#,
        "[1E2,0.10,-0]",
        r#"{"a b":"x  \" y\\","c":[]}"#,
    ];
    done(system, &["create", "--json", "others"], "");
    let append = |body: &str| {
        let mut client = system.client();
        let request = client.request("POST", "/streams/others").header("content-type", "application/json");
        request.body(body).send().expect(204);
    };
    // An array that is a message stands in the array of an append.
    entries[..8].iter().for_each(|entry| append(&format!("[{entry}]")));
    append("[\r\n{ \"a b\" : \"x  \\\" y\\\\\" ,\n\t\"c\" : [ ] } ]");
    let lines = |entries: &[&str]| entries.iter().map(|entry| format!("{entry}\n")).collect::<String>();
    assert_eq!(done(system, &["read", "others"], ""), lines(&entries));
    assert_eq!(done(system, &["read", "--tail", "2", "others"], ""), lines(&entries[7..]));
    done(system, &["close", "others"], "");
    assert_eq!(done(system, &["follow", "others"], ""), lines(&entries));
}

fn forms(system: &System) {
    done(system, &["create", "--content-type", "application/x-tar", "bytes"], "");
    refused(system, &["create", "bytes"], "", 2, "conflict");
    refused(system, &["append", "--content-type", "text/csv", "bytes"], "a\n", 2, "conflict");
    done(system, &["append", "bytes"], "\u{1}\n");
    done(system, &["fork", "numbers", "copies/numbers"], "");
    done(system, &["append", "copies/numbers"], "7\n");
    assert!(done(system, &["read", "copies/numbers"], "").ends_with("5\n7\n"));
    assert!(done(system, &["read", "numbers"], "").ends_with("5\n"));
    done(system, &["rm", "copies/numbers"], "");
    refused(system, &["read", "copies/numbers"], "", 2, "not_found");
    done(system, &["fork", "--offset", "-1", "numbers", "copies/none"], "");
    assert_eq!(done(system, &["read", "copies/none"], ""), "");
    done(system, &["create", "--ttl", "3600", "short"], "");
}

fn ends(system: &System) {
    refused(system, &["follow", "--wait", "0", "ending"], "", 2, "not_found");
    refused(system, &["follow", "--wait", "50ms", "ending"], "", 2, "not_found");
    // A follower can start before the stream exists.
    let follower = start(system, &["follow", "ending"]);
    done(system, &["append", "ending"], "a\n");
    done(system, &["append", "--close", "ending"], "b\n");
    let (stdout, stderr, status) = channels(&follower.wait_with_output().unwrap());
    assert_eq!((stdout.as_str(), stderr.as_str(), status), ("a\nb\n", "", 0));
    refused(system, &["append", "ending"], "c\n", 2, "conflict");
    done(system, &["close", "ending"], "");
    assert_eq!(done(system, &["follow", "ending"], ""), "a\nb\n");
}

fn wrong(system: &System) {
    refused(system, &["read", "nowhere"], "", 2, "not_found");
    refused(system, &["close", "nowhere"], "", 2, "not_found");
    refused(system, &["rm", "nowhere"], "", 2, "not_found");
    refused(system, &["fork", "nowhere", "copy"], "", 2, "not_found");
    refused(system, &["read", "--offset", "x", "numbers"], "", 2, "invalid");
    let long = "x".repeat(1024 * 1024 + 1);
    refused(system, &["append", "long"], &format!("fits\n{long}\n"), 2, "too_large");
    assert_eq!(done(system, &["read", "long"], ""), "fits\n");
    for arguments in [&["read", "a//b"][..], &["read", "--tail", "0", "numbers"], &["append"], &[]] {
        let (stdout, _, status) = stream(system, arguments, "");
        assert_eq!((stdout.as_str(), status), ("", 2), "{arguments:?}");
    }
}

/// A closed pipe on standard output is not an error.
fn quiet(system: &System) {
    let mut follower = start(system, &["follow", "logs/x"]);
    let mut line = String::new();
    BufReader::new(follower.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "one\n");
    done(system, &["append", "logs/x"], "more\n");
    let (_, stderr, status) = channels(&follower.wait_with_output().unwrap());
    assert_eq!((stderr.as_str(), status), ("", 0));
}

#[test]
fn a_log_is_complete_although_gateway_and_store_are_killed() {
    const LINES: usize = 3_000;
    let system = System::start();
    done(&system, &["create", "--json", "storm"], "");
    let follower = start(&system, &["follow", "storm"]);
    let mut appender = start(&system, &["append", "--close", "storm"]);
    let mut input = appender.stdin.take().unwrap();
    for line in 0..LINES {
        writeln!(input, "{{\"n\":{line}}}").unwrap();
        // The kills are far enough apart that the part has restarted after the previous one.
        if line % 1_000 == 500 {
            system.kill(if line == 1_500 { "store" } else { "gateway" });
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    drop(input);
    let (_, stderr, status) = channels(&appender.wait_with_output().unwrap());
    assert_eq!((stderr.as_str(), status), ("", 0));
    let (followed, stderr, status) = channels(&follower.wait_with_output().unwrap());
    assert_eq!((stderr.as_str(), status), ("", 0));
    let wanted: String = (0..LINES).map(|line| format!("{{\"n\":{line}}}\n")).collect();
    assert!(followed == wanted, "{} of {LINES} lines were followed", followed.lines().count());
    let read = done(&system, &["read", "storm"], "");
    assert!(read == wanted, "{} of {LINES} lines are there", read.lines().count());
}

#[test]
fn ken_events_shows_changes_in_the_system() {
    let system = System::start();
    let events = |arguments: &[&str]| channels(&system.ken(&[&["events"], arguments].concat()));
    assert_eq!(events(&[]), (String::new(), String::new(), 0), "nothing has happened yet");
    let session = system.session();
    let (stdout, _, _) = events(&[]);
    assert!(stdout.contains("session.created") && stdout.contains(&format!("sessionId={session}")), "{stdout}");
    system.say(&session, "hello").expect(200);
    let (stdout, _, _) = events(&["--json", "-n", "2"]);
    let kinds: Vec<Value> =
        stdout.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["type"].clone()).collect();
    assert_eq!(kinds, [json!("submission.running"), json!("submission.settled")]);

    let mut command = system.command(&["events", "-f", "-n", "1", "--json"]);
    let mut follower = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(follower.stdout.take().unwrap()).lines();
    let mut next = || serde_json::from_str::<Value>(&lines.next().unwrap().unwrap()).unwrap()["type"].clone();
    assert_eq!(next(), "submission.settled");
    system.kill("gateway");
    until("it is back", || system.ken(&["sessions"]).status.success());
    system.session();
    assert_eq!(next(), "session.created");
    follower.kill().unwrap();
    follower.wait().unwrap();
}

#[test]
fn streams_are_listed() {
    let system = System::start();
    for command in ["ls", "list"] {
        assert_eq!(done(&system, &[command], ""), "STREAM  TYPE  ENTRIES  STATE\n");
    }
    done(&system, &["append", "logs/server"], "a\nb\n");
    done(&system, &["append", "--json", "--close", "numbers"], "1\n");
    done(&system, &["create", "logs/agent"], "");
    done(&system, &["create", "gone"], "");
    done(&system, &["fork", "gone", "kept"], "");
    done(&system, &["rm", "gone"], "");
    let listed = done(&system, &["ls"], "");
    let names: Vec<&str> = listed.lines().filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(names, ["STREAM", "kept", "logs/agent", "logs/server", "numbers"], "{listed}");
    let line = |name: &str| {
        let listed = done(&system, &["ls", "--json", name], "");
        serde_json::from_str::<Value>(&listed).unwrap()
    };
    assert_eq!(
        line("numbers"),
        json!({"path": "numbers", "contentType": "application/json", "entries": 1, "closed": true})
    );
    assert_eq!(line("logs/s")["closed"], false);
    // Each stream is listed once over all pages; a cursor of another list is refused.
    let page = |query: &str| system.get(&format!("/streams?limit=3{query}")).expect(200).json();
    let first = page("");
    let after = first["page"]["after"].as_str().unwrap();
    assert_eq!(page(&format!("&after={after}"))["streams"].as_array().unwrap().len(), 1);
    let other = system.get(&format!("/streams?prefix=l&after={after}"));
    assert_eq!(other.status, 400);
}

#[test]
fn the_page_names_every_flag() {
    let page = Page::of("ken-stream").expect("ken-stream.1");
    let mut flags = BTreeSet::new();
    for command in ["create", "append", "read", "follow", "close", "rm", "ls", "fork"] {
        let output = std::process::Command::new(binary("ken")).args(["stream", command, "--help"]).output().unwrap();
        let help = String::from_utf8(output.stdout).unwrap();
        let words = help.lines().map(str::trim_start).filter(|line| line.starts_with('-'));
        let words = words.flat_map(|line| line.split([' ', ',']).filter(|word| word.starts_with("--")));
        flags.extend(words.map(str::to_owned));
    }
    for of_every_command in ["--home", "--help", "--raw", "--secret-file", "--url"] {
        flags.remove(of_every_command);
    }
    assert_eq!(page.flags(), flags, "left: the page, right: --help");
}
