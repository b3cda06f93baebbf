//! Runs the example tool as a user would: standard output, standard error and exit status, for every source and every
//! error.
#![allow(clippy::unwrap_used)]

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

struct Outcome {
    stdout: String,
    stderr: String,
    status: i32,
}

fn tool() -> Command {
    let deps = std::env::current_exe().unwrap();
    let folder = deps.parent().unwrap().parent().unwrap();
    let mut command = Command::new(folder.join("examples/count"));
    command.env("KEN_ERRORS", "json");
    command
}

fn run_with(args: &[&str], stdin: &[u8]) -> Outcome {
    let mut command = tool();
    command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let _ = child.stdin.take().unwrap().write_all(stdin); // the tool may exit before it has read everything
    let output = child.wait_with_output().unwrap();
    Outcome {
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
        status: output.status.code().unwrap(),
    }
}

fn run(args: &[&str]) -> Outcome {
    run_with(args, b"")
}

fn scratch(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("ken-tool-{}-{name}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// Expects nothing on stdout, one line of JSON on stderr, and status 2.
fn assert_error(outcome: &Outcome, code: &str, at: &str, says: &str) {
    assert_eq!(outcome.stdout, "");
    assert_eq!(outcome.stderr.lines().count(), 1, "{}", outcome.stderr);
    let error = &serde_json::from_str::<serde_json::Value>(&outcome.stderr).unwrap()["error"];
    assert_eq!((error["code"].as_str(), error["at"].as_str()), (Some(code), Some(at)), "{error}");
    assert!(error["message"].as_str().unwrap().contains(says), "{error}");
    assert_eq!(outcome.status, 2);
}

#[test]
fn every_source_gives_the_same_answer() {
    let file = scratch("sources").join("input");
    fs::write(&file, "a yes").unwrap();
    let path = file.to_str().unwrap();
    for (args, stdin) in [
        (&["--text", "a yes"][..], ""),
        (&["-t", "a yes"], "not read"),
        (&["--file", path], "not read"),
        (&["-f", path], ""),
        (&["--file", "-"], "a yes"),
        (&["-"], "a yes"),
        (&[], "a yes"),
        (&["--words", "a", "yes"], "not read"),
        (&["--words", "a", "--words", "yes"], ""),
        (&["-", "--words", "a"], "yes"),
        (&["--optional"], "a yes"),
    ] {
        let outcome = run_with(args, stdin.as_bytes());
        assert_eq!(outcome.stdout, "{\n  \"words\": 2,\n  \"yes\": true\n}\n", "{args:?}");
        assert_eq!((outcome.stderr.as_str(), outcome.status), ("", 0), "{args:?}");
    }
}

#[test]
fn formats_and_verdict() {
    let outcome = run(&["--text", "no", "--format", "compact"]);
    assert_eq!((outcome.stdout.as_str(), outcome.status), ("{\"words\":1,\"yes\":false}\n", 1));
    let outcome = run(&["--text", "yes", "--format", "summary"]);
    assert_eq!((outcome.stdout.as_str(), outcome.status), ("1 words\n", 0));
    let outcome = run(&["--text", "yes", "--format=summary", "-v"]);
    assert_eq!(outcome.stdout, "1 words\nyes: true\n");
}

#[test]
fn wrong_flags_are_one_line_of_json() {
    assert_error(&run(&["--nothing"]), "invalid", "--nothing", "unexpected argument");
    assert_error(&run(&["--format", "xml"]), "invalid", "--format", "possible values: json, compact, summary");
    assert_error(&run(&["--text"]), "invalid", "--text", "value is required");
    assert_error(&run(&["stray"]), "not_found", "", "cannot read stray");
    assert_error(&run(&["--text", "a", "--file", "b"]), "invalid", "", "more than one input");
    assert_error(&run(&["--text", "a", "-"]), "invalid", "", "more than one input");
    assert_error(&run(&["--file", "b", "-"]), "invalid", "", "more than one input");
    assert_error(&run(&["--lines", "--format", "summary"]), "invalid", "--format", "more than one line");
}

#[test]
fn bad_input_is_named() {
    let folder = scratch("bad");
    let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    assert_error(&run(&["--file", &path("none")]), "not_found", "--file", "No such file");
    assert_error(&run(&["--file", &path("")]), "invalid", "--file", "directory");
    fs::write(path("locked"), "x").unwrap();
    fs::set_permissions(path("locked"), fs::Permissions::from_mode(0o0)).unwrap();
    if File::open(path("locked")).is_err() {
        // root can read any file
        assert_error(&run(&["--file", &path("locked")]), "forbidden", "--file", "ermission denied");
    }
    assert_error(&run_with(&[], b"ab\xff"), "invalid", "", "not UTF-8 at byte 2");
    assert_error(&run(&[]), "invalid", "", "empty");
    assert_error(&run_with(&[], b" \n\t"), "invalid", "", "empty");
    assert_error(&run(&["--text", ""]), "invalid", "", "empty");
    assert_error(&run(&["--text", "boom"]), "invalid", "/0", "boom");
}

#[test]
fn eight_mebibytes_and_not_one_byte_more() {
    let mut input = vec![b'x'; ken_tool::MAX_INPUT];
    assert_eq!(run_with(&[], &input).status, 1);
    input.push(b'x');
    assert_error(&run_with(&[], &input), "too_large", "", "8388608");
}

#[test]
fn help_and_version_touch_no_file() {
    for flag in ["--help", "-h", "--version", "-V"] {
        let outcome = run(&[flag, "--file", "/none"]);
        assert_eq!((outcome.stderr.as_str(), outcome.status), ("", 0));
        assert!(outcome.stdout.contains("ken-count") || outcome.stdout.contains("Count words"));
    }
    assert_eq!(run(&["--version"]).stdout, "ken-count 0.1.0\n");
}

#[test]
fn a_full_disk_is_reported() {
    for args in [&["--text", "yes"][..], &["--help"], &["--text", "yes", "--lines"]] {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let output = tool().args(args).stdout(full).stderr(Stdio::piped()).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(stderr.contains("No space left on device"), "{stderr}");
    }
}

#[test]
fn a_closed_stdout_is_reported_and_dev_null_is_fine() {
    let shell = |script: &str| {
        let path = tool().get_program().to_str().unwrap().to_owned();
        Command::new("sh").args(["-c", script, &path]).output().unwrap()
    };
    let output = shell("\"$0\" --text yes >&-");
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8(output.stderr).unwrap().contains("standard output: it is closed"));
    assert_eq!(shell("\"$0\" --text yes >/dev/null").status.code(), Some(0));
    assert_eq!(shell("\"$0\" --text yes <&-").status.code(), Some(0));
    assert_eq!(shell("\"$0\" <&-").status.code(), Some(2));
}

#[test]
fn a_reader_that_leaves_is_no_error() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = tool().args(["--text", "yes"]).stdout(writer).stderr(Stdio::piped()).output().unwrap();
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(141), &b""[..]));
}

#[test]
fn lines_answers_line_by_line_and_survives_bad_ones() {
    let outcome = run_with(&["--lines"], b"a yes\nboom\n\n\xff\nno\nlast yes");
    let lines: Vec<&str> = outcome.stdout.lines().collect();
    assert_eq!(
        lines,
        [
            r#"{"words":2,"yes":true}"#,
            r#"{"error":{"code":"invalid","message":"boom","at":"/0"}}"#,
            r#"{"error":{"code":"invalid","message":"the input is empty","at":""}}"#,
            r#"{"error":{"code":"invalid","message":"not UTF-8 at byte 0","at":""}}"#,
            r#"{"words":1,"yes":false}"#,
            r#"{"words":2,"yes":true}"#,
        ]
    );
    assert_eq!((outcome.stderr.as_str(), outcome.status), ("", 0));
}

#[test]
fn lines_gives_a_tag_back_with_answers_and_errors() {
    let tag = "\t  \t   \t\t  \t";
    let outcome = run_with(&["--lines"], format!("a yes{tag}\nboom{tag}\nno{tag} \n").as_bytes());
    let lines: Vec<&str> = outcome.stdout.lines().collect();
    assert_eq!(lines[0], format!(r#"{{"words":2,"yes":true}}{tag}"#));
    assert!(lines[1].starts_with("{\"error\"") && lines[1].ends_with(&format!("}}{tag}")), "{}", lines[1]);
    assert!(lines[2].ends_with('}'), "a tag is the end of a line");
}

#[test]
fn lines_reads_even_if_the_flags_say_it_all() {
    let outcome = run_with(&["--lines", "--words", "yes"], b"a\n\nb c\n");
    let words: Vec<&str> = outcome.stdout.lines().collect();
    assert_eq!(words, [2, 1, 3].map(|words| format!("{{\"words\":{words},\"yes\":true}}")));
}

#[test]
fn lines_never_holds_an_answer_back() {
    let mut child = tool().arg("--lines").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut answer = String::new();
    for _ in 0..3 {
        stdin.write_all(b"yes\nsecond yes\nhalf a").unwrap();
        answer.clear();
        stdout.read_line(&mut answer).unwrap();
        stdout.read_line(&mut answer).unwrap();
        assert_eq!(answer.lines().last(), Some(r#"{"words":2,"yes":true}"#));
        stdin.write_all(b" line\n").unwrap();
        stdout.read_line(&mut answer).unwrap();
    }
    drop(stdin);
    let mut rest = String::new();
    stdout.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "");
    assert!(child.wait().unwrap().success());
}

#[test]
fn lines_answers_an_endless_line_with_an_error() {
    let mut input = vec![b'x'; ken_tool::MAX_INPUT + 1];
    input.extend_from_slice(b"\nyes\n");
    let outcome = run_with(&["--lines"], &input);
    let lines: Vec<&str> = outcome.stdout.lines().collect();
    assert_eq!(lines.len(), 2);
    assert!(lines[0].contains("too_large"));
    assert_eq!(lines[1], r#"{"words":1,"yes":true}"#);
}

#[test]
fn files_are_inputs_of_their_own() {
    let folder = scratch("files");
    let (first, second) = (folder.join("first.txt"), folder.join("second.txt"));
    fs::write(&first, "yes it is").unwrap();
    fs::write(&second, "yes").unwrap();
    let (one, two) = (first.to_str().unwrap(), second.to_str().unwrap());
    // The answer to a single file has no file name, like that to standard input.
    let found = run(&[one, "--format", "compact"]);
    assert_eq!(found.stdout, "{\"words\":3,\"yes\":true}\n");
    let found = run(&[one, two, "--format", "compact"]);
    let expected =
        format!("{{\"words\":3,\"yes\":true,\"file\":\"{one}\"}}\n{{\"words\":1,\"yes\":true,\"file\":\"{two}\"}}\n");
    assert_eq!((found.stdout, found.status), (expected, 0));
    let found = run(&["--format", "summary", one, two]);
    assert_eq!(found.stdout, format!("{one}:\n3 words\n{two}:\n1 words\n"));
    let found = run(&[two, one]);
    assert!(found.stdout.ends_with(&format!("\n  \"file\": \"{one}\"\n}}\n")), "{}", found.stdout);
    // Standard input can be one of the files, and the exit status is the worst of all.
    let found = run_with(&[one, "-", "--format", "compact"], b"never");
    let last = found.stdout.lines().last().unwrap();
    assert_eq!(last, r#"{"words":1,"yes":false,"file":"standard input"}"#);
    assert_eq!(found.status, 1);
    // The error names a file that cannot be read, and the other files are answered.
    let missing = folder.join("missing");
    let found = run(&[missing.to_str().unwrap(), two, "--format", "compact"]);
    assert_eq!(found.stdout.lines().count(), 1);
    assert!(found.stderr.contains("missing") && found.stderr.lines().count() == 1, "{}", found.stderr);
    assert_eq!(found.status, 2);
    assert_error(&run(&["--text", "a", one]), "invalid", "", "more than one input");
    let lines = run(&["--lines", one, two]);
    assert_eq!(lines.stdout.lines().count(), 2);
}

#[test]
fn the_id_of_a_line_comes_back_with_its_answer() {
    for (line, expected) in [
        (r#"{"id":7,"text":" yes "}"#, r#"{"words":3,"yes":true,"id":7}"#),
        (r#"{"text":" yes ", "id" : {"a":[1]} }"#, r#"{"words":7,"yes":true,"id":{"a":[1]}}"#),
        (r#"{"text":" yes \"id\" "}"#, r#"{"words":4,"yes":true}"#),
        (r#"{"id":1} yes"#, r#"{"words":2,"yes":true}"#),
        (r#"{"inner":{"id":1},"text":" yes "}"#, r#"{"words":3,"yes":true}"#),
    ] {
        let found = run_with(&["--lines"], format!("{line}\n").as_bytes());
        assert_eq!(found.stdout.trim_end(), expected, "{line}");
    }
    let found = run_with(&["--lines"], b"{\"id\":\"x\",\"text\":\"boom\"}\n");
    assert!(found.stdout.ends_with("},\"id\":\"x\"}\n"), "{}", found.stdout);
}

#[test]
fn a_wrong_number_is_reported_in_plain_words() {
    for (count, says) in [
        ("x", "invalid value 'x' for '--repeat <N>': it is not a whole number"),
        ("300", "300 is not from 0 to 255"),
        ("", "it is empty"),
    ] {
        assert_error(&run(&["--repeat", count]), "invalid", "--repeat", says);
    }
}
