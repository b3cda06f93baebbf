//! Tests of the trainer: it gives the same bytes on every run, and the shipped table is its output.
#![allow(clippy::unwrap_used, clippy::print_stderr)]

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const LABELS: [&str; 28] = [
    "admiration", "amusement", "anger", "annoyance", "approval", "caring", "confusion", "curiosity", "desire",
    "disappointment", "disapproval", "disgust", "embarrassment", "excitement", "fear", "gratitude", "grief", "joy",
    "love", "nervousness", "optimism", "pride", "realization", "relief", "remorse", "sadness", "surprise", "neutral",
];

struct Outcome {
    stdout: String,
    stderr: String,
    status: i32,
}

fn run(args: &[&str]) -> Outcome {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ken-train-esl"));
    let output = command.env("KEN_ERRORS", "json").args(args).output().unwrap();
    Outcome {
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
        status: output.status.code().unwrap(),
    }
}

/// Returns the folder of the training texts, if it exists beside this checkout.
fn data() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data");
    if folder.join("goemotions/train.tsv").exists() {
        return Some(folder);
    }
    eprintln!("skipped: no training texts at {}", folder.display());
    None
}

/// Writes a corpus that is as small as possible.
fn sample(folder: &Path) {
    let (comments, rated) = (folder.join("goemotions"), folder.join("polarity"));
    fs::create_dir_all(&comments).unwrap();
    fs::create_dir_all(&rated).unwrap();
    fs::write(comments.join("labels.txt"), LABELS.join("\n")).unwrap();
    let mut rows = String::new();
    for number in 0..140 {
        let label = number % 28;
        writeln!(rows, "text {number} is of {} today\t{label}\tid{number}", LABELS[label]).unwrap();
    }
    fs::write(comments.join("train.tsv"), &rows).unwrap();
    fs::write(comments.join("dev.tsv"), &rows).unwrap();
    fs::write(rated.join("a.tsv"), "2.5\tit is good\n-2.5\tit is bad\n0.1\tit is\n").unwrap();
}

#[test]
fn equal_data_gives_equal_bytes() {
    let folder = tempfile::tempdir().unwrap();
    sample(folder.path());
    let train = |name: &str| {
        let out = folder.path().join(name);
        let outcome = run(&["--data", folder.path().to_str().unwrap(), "--out", out.to_str().unwrap()]);
        assert_eq!(outcome.status, 0, "{}", outcome.stderr);
        assert!(outcome.stdout.contains("labels_f1"));
        fs::read(out).unwrap()
    };
    let table = train("one");
    assert!(table == train("two"));
    assert!(table.len() < 1_000_000);
}

/// Each comment is judged by a model that was trained without it, and by the baselines.
#[test]
fn folds_are_evaluated_by_models_trained_without_them() {
    let folder = tempfile::tempdir().unwrap();
    sample(folder.path());
    let folder = folder.path().to_str().unwrap();
    let measured = || run(&["--format", "compact", "--folds", "2", "--data", folder]);
    let outcome = measured();
    assert_eq!(outcome.status, 0, "{}", outcome.stderr);
    let report: serde_json::Value = serde_json::from_str(&outcome.stdout).unwrap();
    assert_eq!((&report["folds"], &report["texts"]), (&2.into(), &140.into()));
    for way in ["ken_esl", "naive_bayes", "word_list"] {
        for figure in ["labels_f1", "classes_f1", "polarity_f1"] {
            let value = report[way][figure].as_f64().unwrap();
            assert!((0.0..=1.0).contains(&value), "{way} {figure}: {report}");
        }
    }
    let both = run(&["--data", folder, "--folds", "2", "--out", "x"]);
    assert_eq!((both.status, both.stdout.as_str()), (2, ""));
}

#[test]
fn a_wrong_row_is_named() {
    let folder = tempfile::tempdir().unwrap();
    sample(folder.path());
    let train = || {
        let outcome = run(&["--data", folder.path().to_str().unwrap(), "--out", "/dev/null"]);
        assert_eq!((outcome.status, outcome.stdout.as_str()), (2, ""));
        outcome.stderr
    };
    let dev = folder.path().join("goemotions/dev.tsv");
    fs::write(&dev, "fine\t1\tid\nno label\n").unwrap();
    assert!(train().contains("dev.tsv:2"));
    fs::write(&dev, "a label too many\t28\tid\n").unwrap();
    assert!(train().contains("dev.tsv:1"));
    fs::write(folder.path().join("goemotions/labels.txt"), "joy\n").unwrap();
    assert!(train().contains("labels.txt"));
}

/// Writes messages of two authors, each of whom is left out once.
fn messages(folder: &Path) -> String {
    let mut rows = String::new();
    for number in 0..40 {
        let author = if number < 20 { "a" } else { "b" };
        writeln!(rows, "{author}\tdanger\tI feel lost tonight number {number}").unwrap();
        writeln!(rows, "{author}\tharmless\tthe recipe works well number {number}").unwrap();
        writeln!(rows, "{author}\teveryday\tmy printer jams again number {number}").unwrap();
    }
    let path = folder.join("messages.tsv");
    fs::write(&path, rows).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn the_model_of_danger_is_the_same_on_every_run_and_is_measured_on_authors_it_has_not_seen() {
    let folder = tempfile::tempdir().unwrap();
    sample(folder.path());
    let (data, messages) = (folder.path().to_str().unwrap(), messages(folder.path()));
    let train = |name: &str| {
        let out = folder.path().join(name);
        let arguments = ["--data", data, "--risk", &messages, "--out", out.to_str().unwrap()];
        let outcome = run(&arguments);
        assert_eq!(outcome.status, 0, "{}", outcome.stderr);
        (fs::read(out).unwrap(), outcome.stdout)
    };
    let (model, report) = train("one");
    assert!(model == train("two").0);
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    assert_eq!(report["model_bytes"], model.len());
    let left_out = report["left_out"].as_array().unwrap();
    let authors: Vec<_> = left_out.iter().map(|row| row["author"].as_str().unwrap()).collect();
    assert_eq!(authors, ["a", "b", "all"]);
    let all = left_out.last().unwrap();
    assert_eq!(all["danger"]["texts"], 40, "{report}");
    for class in ["harmless", "everyday"] {
        assert_eq!(all[class], serde_json::json!({ "texts": 40, "taken": 0 }), "{report}");
    }
    let curve = report["curve"].as_array().unwrap();
    let recalls: Vec<_> = curve.iter().map(|point| point[1].as_f64().unwrap()).collect();
    assert_eq!((recalls.len(), recalls.is_sorted(), recalls[1]), (5, true, 1.0), "{report}");
    // Without --out, the trainer only measures.
    let measured = run(&["--data", data, "--risk", &messages]);
    assert_eq!(measured.status, 0, "{}", measured.stderr);
    assert_eq!(serde_json::from_str::<serde_json::Value>(&measured.stdout).unwrap(), report);
}

#[test]
fn a_wrong_message_is_named() {
    let folder = tempfile::tempdir().unwrap();
    sample(folder.path());
    let path = folder.path().join("wrong.tsv");
    for wrong in ["a\tdanger", "a\tsomething\tfine", "\tdanger\tfine", "fine"] {
        fs::write(&path, format!("a\tharmless\tfine\n{wrong}\n")).unwrap();
        let data = folder.path().to_str().unwrap();
        let outcome = run(&["--data", data, "--risk", path.to_str().unwrap()]);
        assert_eq!((outcome.status, outcome.stdout.as_str()), (2, ""));
        assert!(outcome.stderr.contains("wrong.tsv:2"), "{}", outcome.stderr);
        assert!(outcome.stderr.contains("--risk"), "{}", outcome.stderr);
    }
}

/// The shipped model of danger is the one that is trained on the messages of this folder.
#[test]
fn the_shipped_model_of_danger_is_what_the_trainer_makes() {
    let Some(data) = data() else { return };
    let crate_folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let out = tempfile::NamedTempFile::new().unwrap();
    let outcome = run(&[
        "--data",
        data.to_str().unwrap(),
        "--risk",
        crate_folder.join("data/risk.tsv").to_str().unwrap(),
        "--out",
        out.path().to_str().unwrap(),
    ]);
    assert_eq!(outcome.status, 0, "{}", outcome.stderr);
    let shipped = crate_folder.join("../../share/esl/risk.bin");
    assert!(fs::read(out.path()).unwrap() == fs::read(shipped).unwrap());
}

/// Takes more than a minute: `cargo test --release -p ken-train-esl -- --ignored`.
#[test]
#[ignore = "trains the whole model"]
fn the_shipped_table_is_what_the_trainer_makes() {
    let Some(data) = data() else { return };
    let out = tempfile::NamedTempFile::new().unwrap();
    let outcome = run(&["--data", data.to_str().unwrap(), "--out", out.path().to_str().unwrap()]);
    assert_eq!(outcome.status, 0, "{}", outcome.stderr);
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../share/esl/table.bin");
    assert!(fs::read(out.path()).unwrap() == fs::read(shipped).unwrap());
}
