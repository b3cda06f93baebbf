//! A gate in a pipeline: a script with `set -e` compares a summary with the log of the run, validates rules, reasons over
//! them, and stops at the first thing that does not hold, with the reason in the log of the job.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use ken_tests::binary;
use tempfile::TempDir;

const LOG: &str = "2026-11-24T09:00:01Z build started for commit 4f2a91c on branch main\n\
    2026-11-24T09:03:12Z 412 tests passed, 3 tests failed in 141 seconds\n\
    2026-11-24T09:03:15Z coverage is 81 percent\n\
    2026-11-24T09:03:20Z artifact ken.tar.gz has 14 megabytes\n";

const RULES: &str = r#"{"facts": ["main has 3 failed tests", "main is a release branch"],
    "rules": [[["?b has 3 failed tests", "?b is a release branch"], "?b is blocked"]]}"#;

const GATE: &str = r#"set -e
ken-laws --sources run.log --require-support --format summary < summary.md
ken-vvp --strict --format summary rules.json
ken-rep --format compact rules.json > proved.json
ken-vvp --format compact < proved.json | jq -r .validation_status
jq -r '.conclusions[]' proved.json
if jq -e '.conclusions | index("main is blocked")' proved.json > proof; then echo "released: no"; else echo "released: yes"; fi
"#;

fn checkout() -> TempDir {
    let folder = TempDir::new().unwrap();
    for (name, text) in [
        ("run.log", LOG),
        ("rules.json", RULES),
        ("summary.md", "# Summary\n\n412 tests passed and 3 tests failed in 141 seconds. Coverage is 81 percent.\n"),
    ] {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    folder
}

/// Runs a script as a step of a pipeline does: no terminal, no home of ken, nothing on standard input.
fn run(folder: &Path, script: &str) -> Output {
    let programs = binary("ken-laws").parent().unwrap().display().to_string();
    let mut shell = Command::new("sh");
    shell.env_clear().env("PATH", format!("{programs}:/usr/bin:/bin")).current_dir(folder);
    shell.args(["-c", script]).stdin(Stdio::null()).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The script ends with this status, and the last part that it ran says this.
#[track_caller]
fn ends(folder: &Path, script: &str, status: i32, says: &[&str]) {
    let output = run(folder, script);
    let all = text(&output.stdout) + &text(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{script}: {all}");
    for part in says {
        assert!(all.contains(part), "{script}: {part:?} is not in {all}");
    }
}

#[test]
fn what_holds_passes_each_step() {
    let folder = checkout();
    let output = run(folder.path(), GATE);
    let stdout = text(&output.stdout);
    assert_eq!((output.status.code(), &*text(&output.stderr)), (Some(0), ""), "{stdout}");
    let said: Vec<&str> = stdout.lines().collect();
    assert!(said.contains(&"Status: PASS") && said.contains(&"Support by sources: 0.667"), "{stdout}");
    let rest = ["success: 1 rule, no problem found", "success", "main is blocked", "released: no"];
    assert!(said.ends_with(&rest), "{stdout}");
}

/// The job's log names the sentence and what the source says instead, and nothing after it runs.
#[test]
fn what_does_not_hold_stops_the_script_and_is_named() {
    let folder = checkout();
    let write = |name: &str, content: &str| std::fs::write(folder.path().join(name), content).unwrap();
    for (summary, said) in [
        (
            "Coverage is 95 percent.",
            "contradicted: \"Coverage is 95 percent.\"; run.log says \"2026-11-24T09:03:15Z coverage is 81",
        ),
        ("411 tests passed and 3 tests failed in 141 seconds.", "contradicted: \"411 tests passed"),
        ("Coverage is 81 percent. The code is elegant.", "not judged: \"The code is elegant.\""),
        ("All tests passed.", "not judged: \"All tests passed.\""),
    ] {
        write("summary.md", summary);
        let output = run(folder.path(), GATE);
        let stdout = text(&output.stdout);
        assert_eq!(output.status.code(), Some(1), "{summary}: {stdout}");
        assert!(stdout.contains("Status: FAIL") && stdout.contains(said), "{said}: {stdout}");
        assert!(!stdout.contains("released"), "{stdout}");
    }
    let query = r#"ken-laws --sources run.log --require-support --format compact < summary.md > report.json && exit 9
        jq -r '.support.sentences[] | select(.finding) | "\(.finding): \(.text)"' report.json"#;
    write("summary.md", "Coverage is 81 percent. The artifact ken.tar.gz has 15 megabytes. The code is elegant.");
    let output = run(folder.path(), query);
    let wanted = "contradicted: The artifact ken.tar.gz has 15 megabytes.\nnot_judged: The code is elegant.\n";
    assert_eq!((output.status.code(), &*text(&output.stdout)), (Some(0), wanted), "{output:?}");
    write("rules.json", r#"{"facts": ["a is b"], "rules": [[["?x is b"], "?y is c"]]}"#);
    let says = ["variable ?y of the conclusion is in no premise (at /rules/0"];
    ends(folder.path(), "set -e; ken-vvp --format summary rules.json; echo on", 1, &says);
    ends(folder.path(), "set -e; ken-rep rules.json; echo on", 2, &says);
}

/// A draft of any program is judged by the same sources, and the exit status says whether one passed.
#[test]
fn a_draft_is_held_against_the_same_sources() {
    let folder = checkout();
    let respond =
        "echo 'What is the coverage?' | ken-respond --sources run.log --rounds 1 --format compact --draft echo";
    ends(
        folder.path(),
        &format!("{respond} Coverage is 81 percent. > r.json; jq -r .response r.json"),
        0,
        &["Coverage is 81"],
    );
    ends(folder.path(), &format!("{respond} Coverage is 95 percent."), 1, &["contradicted"]);
}

/// What is wrong with the call itself is status 2 with the place, so that no script takes it for a verdict.
#[test]
fn a_mistake_in_the_call_is_no_verdict() {
    let folder = checkout();
    std::fs::write(folder.path().join("empty.log"), "").unwrap();
    std::fs::write(folder.path().join("broken.json"), "{\"facts\":").unwrap();
    for (line, said) in [
        ("ken-laws --sources none.log --require-support < summary.md", "cannot read none.log: No such file"),
        ("ken-laws --sources empty.log --require-support < summary.md", "the sources contain no text (at --sources)"),
        ("ken-laws --sources . --require-support < summary.md", "(at --sources)"),
        ("ken-laws --sources run.log --require-support < /dev/null", "the input is empty"),
        ("ken-laws --source run.log < summary.md", "unexpected argument '--source' found"),
        ("ken-vvp broken.json", "malformed JSON: EOF"),
        ("ken-vvp none.json", "cannot read none.json"),
        ("ken-vvp summary.md", "malformed JSON"),
        ("ken-rep broken.json | ken-vvp", "ken-vvp: the input is empty"),
    ] {
        ends(folder.path(), line, 2, &[said]);
    }
    ends(folder.path(), "ken-laws --require-support < summary.md", 1, &["not judged: support is required"]);
    ends(folder.path(), "ken-laws --help", 0, &["--require-support", "0 PASS or CONDITIONAL, 1 FAIL, 2 error"]);
}
