//! Benchmarks of ken-laws: throughput as a co-process beside a plain pass over the same bytes, and detection of planted defects.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

#[allow(dead_code)] // the other benches use the rest
mod figures;
#[path = "../../bin/ken-laws/tests/laws/set.rs"]
mod set;

use std::io::{BufRead, BufReader, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use figures::{Samples, row, title};
use set::{Figures, SETS, Set};

/// Bytes that are judged in one round.
const ROUND: usize = 16 * 1024 * 1024;
const ROUNDS: usize = 5;

fn main() {
    let program = ken_tests::binary("ken-laws");
    title("ken-laws: throughput with --lines");
    throughput(&program, "paragraphs of the evaluation set", &paragraphs());
    match articles() {
        Some(lines) => throughput(&program, "news articles, never tuned on", &lines),
        None => row("news articles", "left out", "there are none in ../shared/data/support"),
    }
    title("ken-laws: planted defects");
    planted(&program);
    title("ken-laws: support by sources, r with what people say of machine summaries");
    support(&program);
}

fn throughput(program: &PathBuf, name: &str, lines: &str) {
    let (mut judged, mut floor) = (Vec::new(), Vec::new());
    let file = written(lines);
    for _ in 0..ROUNDS {
        floor.push(timed(|| assert!(words(lines) > 0)));
        judged.push(timed(|| judge_all(program, &file)));
    }
    let (judged, floor) = (Samples::of(judged).median(), Samples::of(floor).median());
    let rate = |time: Duration| lines.len() as f64 / 1e6 / time.as_secs_f64();
    row(&format!("{name}: counting the words, one core"), &format!("{:.0} MB/s", rate(floor)), "the floor");
    let ratio = judged.as_secs_f64() / floor.as_secs_f64();
    row(
        &format!("{name}: ken-laws, one core"),
        &format!("{:.1} MB/s", rate(judged)),
        &format!("{ratio:.1} x the floor's time; goal 20 MB/s"),
    );
}

/// The paragraphs without defects, one per line, repeated to the size of a round.
fn paragraphs() -> String {
    let all: String = SETS
        .iter()
        .flat_map(|(_, text)| Set::read(text).clean.into_values())
        .map(|text| text.replace('\n', " ") + "\n")
        .collect();
    all.repeat(ROUND / all.len() + 1)
}

/// The sources of the judged summaries, one per line, repeated to the size of a round.
fn articles() -> Option<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data/support");
    let mut all = String::new();
    for name in ["cnndm.jsonl", "xsum.jsonl"] {
        for line in std::fs::read_to_string(folder.join(name)).ok()?.lines() {
            let document: Value = serde_json::from_str(line).unwrap();
            all += &(document["source"].as_str().unwrap().replace('\n', " ") + "\n");
        }
    }
    Some(all.repeat(ROUND / all.len() + 1))
}

fn timed(work: impl FnOnce()) -> Duration {
    let begun = Instant::now();
    work();
    begun.elapsed()
}

/// The number of words, as `wc -w` counts them.
fn words(text: &str) -> usize {
    let mut inside = false;
    let mut count = 0;
    for byte in text.bytes() {
        let blank = byte.is_ascii_whitespace();
        count += usize::from(!blank && !inside);
        inside = !blank;
    }
    std::hint::black_box(count)
}

fn co_process(program: &PathBuf) -> Child {
    Command::new(program).arg("--lines").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("ken-laws starts")
}

fn written(text: &str) -> std::fs::File {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file
}

/// Judges a file with the output discarded, so that only the time of the program counts, not that of a reader of its pipe.
fn judge_all(program: &PathBuf, lines: &std::fs::File) {
    let input = lines.try_clone().unwrap();
    (&input).seek(SeekFrom::Start(0)).unwrap();
    let status = Command::new(program).arg("--lines").stdin(input).stdout(Stdio::null()).status();
    assert!(status.unwrap().success());
}

fn planted(program: &PathBuf) {
    let mut child = co_process(program);
    let mut input = child.stdin.take().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut ask = |text: &str| {
        writeln!(input, "{}", json!({ "text": text })).unwrap();
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        serde_json::from_str::<Value>(&line).unwrap()
    };
    let figures = SETS.map(|(_, text)| Figures::of(text, &mut ask));
    let all = Figures::sum(&figures);
    let names = [
        "tuned on: tuned1",
        "tuned on: tuned2",
        "tuned on: tuned3",
        "written with the rules known: fresh",
        "held out: unseen",
        "held out: paraphrased",
    ];
    for (name, figures) in names.iter().zip(&figures) {
        row(name, &figures.to_string(), "");
    }
    row("all", &all.to_string(), "");
    drop(input);
    child.wait().unwrap();
}

fn support(program: &PathBuf) {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data");
    let source = "The pump was replaced on 4 March 2024 because its bearing had worn through. ".repeat(100_000);
    let document = json!({"text": "The bearing was replaced in March.", "sources": [source]}).to_string();
    let mut samples = Vec::new();
    for _ in 0..ROUNDS {
        let file = written(&document);
        samples.push(timed(|| judge_all(program, &file)));
    }
    let rate = document.len() as f64 / 1e6 / Samples::of(samples).median().as_secs_f64();
    row("sources, one core", &format!("{rate:.1} MB/s"), "goal 20 MB/s");
    let train = Command::new(ken_tests::binary("ken-train-laws"))
        .args(["--format", "compact", "--data"])
        .arg(data)
        .output()
        .unwrap();
    if !train.status.success() {
        return row("r", "left out", "there are no judged summaries in ../shared/data/support");
    }
    let report: Value = serde_json::from_slice(&train.stdout).unwrap();
    for (corpus, goal) in report["corpora"].as_array().unwrap().iter().zip([".72", ".46"]) {
        let name = format!("{}, {} documents", corpus["corpus"], corpus["documents"]);
        row(&name, &corpus["unseen"].to_string(), &format!("cross-validated; goal {goal}"));
        row("", &corpus["trigram_overlap"].to_string(), "trigram overlap");
        row("", &corpus["word_overlap"].to_string(), "word overlap");
    }
}
