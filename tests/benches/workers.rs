//! Benchmarks of the coding worker's tools: the time that the sandbox adds to the start of a command, and the time of an undo.
//! `make bench` runs them with the release binaries; a figure beyond its goal ends with status 1.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

#[allow(dead_code)] // the other benches use the rest
mod figures;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use figures::{Samples, row, title};
use ken_tests::root;
use serde_json::json;

const ROUNDS: usize = 200;
/// The maximum time that the sandbox is allowed to add to the start of a command.
const START: Duration = Duration::from_millis(3);
const FILES: usize = 1_000;
/// The maximum time to restore the files.
const UNDO: Duration = Duration::from_secs(1);
const UNDOS: usize = 5;

fn main() -> ExitCode {
    let programs = root().join("target/release");
    if !["ken-sandbox", "ken-coder"].iter().all(|name| programs.join(name).exists()) {
        println!("the release binaries of ken-sandbox and ken-coder are not built");
        return ExitCode::SUCCESS;
    }
    title("ken-sandbox: start to exit of /bin/true");
    let start = start(&programs.join("ken-sandbox"));
    title("ken-coder: 1,000 files of one run");
    let undo = undo(&programs.join("ken-coder"));
    if start && undo { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Each round runs both once, so that a busy moment of the machine affects both.
fn start(sandbox: &Path) -> bool {
    let (mut plain, mut confined) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        plain.push(time(&mut Command::new("/bin/true")));
        confined.push(time(Command::new(sandbox).args(["--", "/bin/true"])));
    }
    let (plain, confined) = (Samples::of(plain), Samples::of(confined));
    let added = confined.median().saturating_sub(plain.median());
    row("/bin/true", &plain.text(), "");
    row("the same in ken-sandbox", &confined.text(), &goal(added, START));
    added <= START
}

fn time(command: &mut Command) -> Duration {
    let begun = Instant::now();
    let status = command.stdout(Stdio::null()).status().expect("a program");
    assert!(status.success(), "{command:?}");
    begun.elapsed()
}

fn undo(coder: &Path) -> bool {
    let (mut changes, mut undos) = (Vec::new(), Vec::new());
    // The homes are removed at the end. After files are removed, ext4 skips their inodes one by one for minutes when it
    // creates a file (recently_deleted), and the next round would measure this.
    let homes: Vec<_> = (0..UNDOS).map(|_| tempfile::tempdir().expect("a folder")).collect();
    for home in &homes {
        let call = edits(home.path());
        let mut command = Command::new(coder);
        command.env("KEN_HOME", home.path()).env("KEN_RUN", "many");
        changes.push(time(command.arg("apply").arg(call)));
        let mut command = Command::new(coder);
        undos.push(time(command.env("KEN_HOME", home.path()).args(["undo", "many"])));
    }
    let (changes, undos) = (Samples::of(changes), Samples::of(undos));
    row("apply", &changes.with_worst(), "");
    row("undo", &undos.with_worst(), &goal(undos.median(), UNDO));
    undos.median() <= UNDO
}

/// Writes the files and the call that edits them all.
fn edits(home: &Path) -> PathBuf {
    let workspace = home.join("state/workspace");
    let mut edits = Vec::new();
    for number in 0..FILES {
        let path = format!("repos/site/d{}/f{number}", number % 10);
        let file = workspace.join(&path);
        std::fs::create_dir_all(file.parent().expect("a folder")).expect("a folder");
        std::fs::write(&file, format!("before {number}\n")).expect("a file");
        edits.push(json!({"path": path, "old": "before", "new": "after"}));
    }
    let call = home.join("call.json");
    std::fs::write(&call, json!({"edits": edits}).to_string()).expect("a file");
    call
}

fn goal(figure: Duration, goal: Duration) -> String {
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    let held = if figure <= goal { "held" } else { "NOT HELD" };
    format!("{:.2} ms, goal {:.0} ms: {held}", ms(figure), ms(goal))
}
