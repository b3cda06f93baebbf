//! Black-box tests of ken-respond with the real ken-laws and ken-model.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

const SOUND: &str = "The test took 4.1 s on 2026-03-02. So the limit of 5 s holds.";
const BAD: &str = "Trust me, it always works.";

/// A folder with the drafting program of a test.
struct Draft {
    folder: tempfile::TempDir,
}

impl Draft {
    /// Creates a drafting program from the body of a shell script.
    fn script(body: &str) -> Draft {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("draft");
        std::fs::write(&path, format!("#!/bin/sh\n{body}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        Draft { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn run(&self, args: &[&str], input: &str) -> Output {
        let mut command = respond(args);
        command.arg("--draft").arg(self.path("draft")).arg(self.folder.path());
        give(command, input)
    }

    /// Returns what the program read on standard input in this attempt.
    fn brief(&self, attempt: usize) -> Value {
        let text = std::fs::read_to_string(self.path(&format!("brief{attempt}"))).unwrap();
        assert_eq!(text.lines().count(), 1);
        serde_json::from_str(&text).unwrap()
    }
}

fn respond(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ken-respond"));
    command
        .args(args)
        .env("KEN_ERRORS", "json")
        .env_remove("KEN_RUN_DIR")
        .env_remove("KEN_HOME")
        .env_remove("KEN_MODEL");
    command
}

fn give(mut command: Command, input: &str) -> Output {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes()); // not read if the options contain the prompt
    child.wait_with_output().unwrap()
}

#[track_caller]
fn answer(output: &Output, status: i32) -> Value {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), stderr.as_ref()), (Some(status), ""));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[track_caller]
fn error(output: &Output) -> Value {
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(2), &b""[..]));
    let line: Value = serde_json::from_slice(&output.stderr).unwrap();
    line["error"].clone()
}

/// Returns a program that stores its standard input and prints `first` in the first attempt, and `then` in all later
/// ones.
fn improving(first: &str, then: &str) -> Draft {
    Draft::script(&format!(
        "n=1; while [ -e $1/brief$n ]; do n=$((n + 1)); done\ncat >$1/brief$n\nif [ $n = 1 ]; then echo '{first}'; else echo '{then}'; fi"
    ))
}

#[test]
fn a_draft_is_revised_until_it_passes() {
    let draft = improving(BAD, SOUND);
    let input = json!({"prompt": "Does it hold?", "context": {"limit": "5 s"}}).to_string();
    let answer = answer(&draft.run(&["--format", "compact"], &input), 0);
    assert_eq!(answer["response"], SOUND);
    assert_eq!((&answer["pass_fail_status"], &answer["ended"]), (&"PASS".into(), &"passed".into()));
    let attempts = answer["attempts"].as_array().unwrap();
    assert_eq!((attempts.len(), &attempts[0]["response"]), (2, &BAD.into()));
    assert_eq!(attempts[0]["pass_fail_status"], "FAIL");
    assert_eq!(answer["scores"], attempts[1]["scores"]);
    assert!(answer["scores"]["overall_compliance"].as_f64() > attempts[0]["scores"]["overall_compliance"].as_f64());
    // The program is given the prompt, and in the second attempt also the violations of the first draft.
    let (first, second) = (draft.brief(1), draft.brief(2));
    assert_eq!(
        first,
        json!({"prompt": "Does it hold?", "context": {"limit": "5 s"}, "attempt": 1, "previous": null,
               "violations": [], "recommendations": []})
    );
    assert_eq!((&second["attempt"], &second["previous"]), (&2.into(), &BAD.into()));
    assert_eq!(second["violations"], attempts[0]["violations"]);
    assert!(!second["violations"].as_array().unwrap().is_empty());
}

#[test]
fn the_fields_are_in_the_order_of_the_contract() {
    let output = improving(SOUND, "").run(&["--format", "compact", "-t", "Does it hold?"], "");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.starts_with("{\"response\":\"The test took"), "{text}");
    let fields = ["\"scores\":", "\"attempts\":", "\"pass_fail_status\":\"PASS\",\"ended\":\"passed\"}\n"];
    let places: Vec<usize> = fields.iter().map(|part| text.find(part).unwrap()).collect();
    assert!(places.is_sorted() && text.lines().count() == 1, "{text}");
}

#[test]
fn a_response_that_never_passes_is_written_with_status_1() {
    let same = Draft::script(&format!("echo '{BAD}'")).run(&["-t", "Is it safe?"], "");
    let same = answer(&same, 1);
    assert_eq!((&same["response"], &same["ended"]), (&BAD.into(), &"unchanged".into()));
    assert_eq!(same["attempts"].as_array().unwrap().len(), 1);
    let counting = "n=0; while [ -e $1/$n ]; do n=$((n + 1)); done; : >$1/$n; echo \"Trust me, $(echo x$n | tr 0-9 a-j) always works.\"";
    for (rounds, max) in [("1", 1), ("4", 4)] {
        let output = Draft::script(counting).run(&["-t", "Is it safe?", "--rounds", rounds], "");
        let answer = answer(&output, 1);
        assert_eq!(answer["attempts"].as_array().unwrap().len(), max);
        assert_eq!(answer["ended"], "out_of_rounds");
    }
}

#[test]
fn the_best_attempt_is_the_response_even_if_it_is_not_the_last() {
    let middling = "Trust me, the pump is in order.";
    let output = improving(middling, BAD).run(&["-t", "Is it safe?", "-r", "2"], "");
    let answer = answer(&output, 0);
    assert_eq!((&answer["response"], &answer["pass_fail_status"]), (&middling.into(), &"CONDITIONAL".into()));
}

#[test]
fn context_and_strictness_reach_the_judge() {
    let draft = || Draft::script("echo 'The timeout is 45 s, as measured on 2026-03-02.'");
    let known = answer(&draft().run(&["-t", "How long?", "-c", r#"{"timeout_s":30}"#, "-r", "1"], ""), 0);
    let violations = known["attempts"][0]["violations"].to_string();
    assert!(violations.contains("context"), "{violations}");
    let own = json!({"prompt": "How long?", "context": {"timeout_s": 30}}).to_string();
    let own = draft().run(&["-r", "1"], &own);
    assert_eq!(
        serde_json::from_slice::<Value>(&own.stdout).unwrap()["attempts"][0]["violations"].to_string(),
        violations
    );
    let middling = || Draft::script("echo 'Trust me, the pump is in order.'");
    assert_eq!(middling().run(&["-t", "Well?", "-s", "moderate"], "").status.code(), Some(0));
    assert_eq!(middling().run(&["-t", "Well?", "-s", "strict"], "").status.code(), Some(1));
}

#[test]
fn a_draft_that_fails_is_an_error_that_names_it() {
    for (body, code, says) in [
        ("echo 'no paper' >&2; exit 3", "unavailable", "ended with status 3: no paper"),
        ("exit 0", "unavailable", "drafted nothing"),
        ("echo '  '", "unavailable", "drafted nothing"),
        ("printf 'a\\377b'", "invalid", "not UTF-8"),
        ("kill -9 $$", "unavailable", "ended by signal 9"),
        ("yes", "too_large", "wrote more than 8388608 bytes"),
        (r#"echo '{"error":{"message":"overloaded"}}'"#, "invalid", "a JSON object without response or text"),
    ] {
        let error = error(&Draft::script(body).run(&["-t", "a"], ""));
        assert_eq!((&error["code"], &error["at"]), (&code.into(), &"--draft".into()), "{body}: {error}");
        assert!(error["message"].as_str().unwrap().contains(says), "{body}: {error}");
    }
    for (body, code, says) in [
        ("yes | head -c 8388600", "too_large", "cannot judge the draft: "),
        ("printf 'a\\000b'", "invalid", "cannot judge the draft: "),
    ] {
        let error = error(&Draft::script(body).run(&["-t", "a"], ""));
        assert_eq!(error["code"], code, "{body}: {error}");
        assert!(error["message"].as_str().unwrap().contains(says), "{body}: {error}");
    }
    let mut missing = respond(&["-t", "a"]);
    missing.args(["--draft", "/does/not/exist"]);
    assert!(error(&give(missing, ""))["message"].as_str().unwrap().contains("no program /does/not/exist"));
}

/// A drafting program that takes too long is killed, together with the processes that it has started.
#[test]
fn a_slow_draft_is_killed_with_its_children() {
    let draft = Draft::script("echo $$ >$1/one; sleep 600 & echo $! >$1/two; wait");
    let begun = Instant::now();
    let error = error(&draft.run(&["-t", "a", "--timeout-ms", "300"], ""));
    assert_eq!(error["code"], "deadline", "{error}");
    assert!(begun.elapsed() < Duration::from_secs(60));
    for name in ["one", "two"] {
        let pid = std::fs::read_to_string(draft.path(name)).unwrap();
        ends(&Path::new("/proc").join(pid.trim()));
    }
}

/// A signal ends the program as it ends any other, also after its first answer, and ends what it has started.
#[test]
fn a_signal_ends_it_and_its_draft() {
    const READY: &str = "The test took 4.1 s on 2026-03-02.";
    for (name, number) in [("INT", 2), ("TERM", 15), ("HUP", 1)] {
        for is_drafting in [false, true] {
            let draft = Draft::script(&format!(
                "read line; case $line in *slow*) echo $$ >$1/one; sleep 600 & echo $! >$1/two; wait;; *) echo '{READY}';; esac"
            ));
            let mut command = respond(&["--lines"]);
            command.arg("--draft").arg(draft.path("draft")).arg(draft.folder.path());
            let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
            let (mut input, mut output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
            let mut line = String::new();
            input.write_all(b"a\n").unwrap();
            output.read_line(&mut line).unwrap();
            assert!(line.contains(READY), "{line}");
            if is_drafting {
                input.write_all(b"slow\n").unwrap();
                until(|| std::fs::read_to_string(draft.path("two")).is_ok_and(|pid| pid.ends_with('\n')));
            }
            assert!(Command::new("kill").args(["-s", name, &child.id().to_string()]).status().unwrap().success());
            until(|| child.try_wait().unwrap().is_some());
            assert_eq!(child.wait().unwrap().signal(), Some(number), "{name} {is_drafting}");
            for file in ["one", "two"].iter().filter(|_| is_drafting) {
                let pid = std::fs::read_to_string(draft.path(file)).unwrap();
                ends(&Path::new("/proc").join(pid.trim()));
            }
        }
    }
}

fn until(mut what: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(10);
    while !what() {
        assert!(Instant::now() < end, "it does not happen");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until the process has ended or is a zombie.
fn ends(process: &Path) {
    until(|| match std::fs::read_to_string(process.join("stat")) {
        Ok(stat) => stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('Z')),
        Err(_) => true,
    });
}

#[test]
fn the_command_is_run_without_a_shell() {
    let words = ["echo", "-n", "$HOME; `id` | 4.1 s on 2026-03-02 &&", "--rounds", "99"];
    let mut command = respond(&["-t", "a", "--draft"]);
    command.args(words);
    let response = serde_json::from_slice::<Value>(&give(command, "").stdout).unwrap()["response"].clone();
    assert_eq!(response, words[2..].join(" "));
}

#[test]
fn each_line_is_answered_by_a_line() {
    let draft = Draft::script("cat >/dev/null; echo 'The test took 4.1 s on 2026-03-02.'");
    let output = draft.run(&["--lines"], "a\n{\"prompt\":7}\n{\"prompt\":\"b\"}\n");
    let stdout = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<Value> = stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((lines.len(), output.status.code()), (3, Some(0)));
    assert_eq!(lines[1]["error"]["at"], "/prompt");
    assert_eq!(lines[0], lines[2]);
}

#[test]
fn a_summary_is_for_people() {
    let output = improving(BAD, SOUND).run(&["-t", "a", "--format", "summary", "-v"], "");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.starts_with(&format!("{SOUND}\n\nattempt 1: FAIL, ")), "{text}");
    assert!(text.contains("\nattempt 2: PASS, ") && text.ends_with(" %, chosen\n"), "{text}");
}

/// Without a drafting program, ken-model writes the drafts. Here a script takes the place of a model, and answers a
/// request for a revision with a better draft.
#[test]
fn ken_model_drafts_and_revises() {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("script.jsonl");
    let lines =
        [json!({"when": "What is wrong with it", "events": [{"text": SOUND}]}), json!({"events": [{"text": BAD}]})];
    std::fs::write(&script, lines.map(|line| format!("{line}\n")).concat()).unwrap();
    let mut command = respond(&["-t", "Does it hold?"]);
    command.env("KEN_MODEL", "script").env("KEN_SCRIPT", &script);
    let revised = answer(&give(command, ""), 0);
    assert_eq!((&revised["response"], &revised["attempts"][0]["response"]), (&SOUND.into(), &BAD.into()));
    // If no model is configured, ken-model answers by rules.
    let plain = answer(&give(respond(&["-t", "Who are you?"]), ""), 0);
    assert!(!plain["response"].as_str().unwrap().is_empty());
}

/// A draft that the sources contradict is revised.
#[test]
fn drafts_are_compared_with_sources() {
    let draft = improving(
        "The test took 9.7 s on 2026-03-02. So the limit of 10 s holds.",
        "The test took 4.1 s on 2026-03-02. So the limit of 10 s holds.",
    );
    let sources = draft.path("sources.txt");
    std::fs::write(&sources, "On 2026-03-02 the test took 4.1 s. The limit is 10 s.").unwrap();
    let found = answer(&draft.run(&["--sources", sources.to_str().unwrap()], "How long did the test take?"), 0);
    assert_eq!(found["attempts"].as_array().unwrap().len(), 2, "{found}");
    assert!(found["response"].as_str().unwrap().contains("4.1 s"), "{found}");
    assert!(draft.brief(2).to_string().contains("a source says otherwise"), "{}", draft.brief(2));
    let missing = error(&draft.run(&["--sources", "/nowhere"], "How long did the test take?"));
    assert!(missing["message"].as_str().unwrap().contains("/nowhere"), "{missing}");
}
