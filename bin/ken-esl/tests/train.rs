//! The trainer: the same bytes on every run, and the shipped table is what it makes.
#![allow(clippy::unwrap_used, clippy::print_stderr)]

mod esl;

use std::fmt::Write;
use std::fs;
use std::path::Path;

use esl::{data, run};

const LABELS: [&str; 28] = [
    "admiration",
    "amusement",
    "anger",
    "annoyance",
    "approval",
    "caring",
    "confusion",
    "curiosity",
    "desire",
    "disappointment",
    "disapproval",
    "disgust",
    "embarrassment",
    "excitement",
    "fear",
    "gratitude",
    "grief",
    "joy",
    "love",
    "nervousness",
    "optimism",
    "pride",
    "realization",
    "relief",
    "remorse",
    "sadness",
    "surprise",
    "neutral",
];

/// A corpus as small as it may be.
fn sample(folder: &Path) {
    let (comments, rated) = (folder.join("goemotions"), folder.join("polarity"));
    fs::create_dir_all(&comments).unwrap();
    fs::create_dir_all(&rated).unwrap();
    fs::write(comments.join("labels.txt"), LABELS.join("\n")).unwrap();
    let mut rows = String::new();
    for number in 0..140 {
        let label = number % 28;
        writeln!(
            rows,
            "text {number} is of {} today\t{label}\tid{number}",
            LABELS[label]
        )
        .unwrap();
    }
    fs::write(comments.join("train.tsv"), &rows).unwrap();
    fs::write(comments.join("dev.tsv"), &rows).unwrap();
    fs::write(
        rated.join("a.tsv"),
        "2.5\tit is good\n-2.5\tit is bad\n0.1\tit is\n",
    )
    .unwrap();
}

#[test]
fn equal_data_gives_equal_bytes() {
    let folder = tempfile::tempdir().unwrap();
    sample(folder.path());
    let train = |name: &str| {
        let out = folder.path().join(name);
        let outcome = run(
            &[
                "train",
                "--data",
                folder.path().to_str().unwrap(),
                "--out",
                out.to_str().unwrap(),
            ],
            b"",
        );
        assert_eq!(outcome.status, 0, "{}", outcome.stderr);
        assert!(outcome.stdout.contains("labels_f1"));
        fs::read(out).unwrap()
    };
    let table = train("one");
    assert!(table == train("two"));
    assert!(table.len() < 1_000_000);
}

/// Each comment is judged by a model that was trained without it, with and without the rules and by the baselines.
#[test]
fn folds_are_evaluated_by_models_trained_without_them() {
    let folder = tempfile::tempdir().unwrap();
    sample(folder.path());
    let folder = folder.path().to_str().unwrap();
    let measured = || {
        run(
            &["train", "--format", "compact", "--folds", "2", "--data", folder],
            b"",
        )
    };
    let outcome = measured();
    assert_eq!(outcome.status, 0, "{}", outcome.stderr);
    let report: serde_json::Value = serde_json::from_str(&outcome.stdout).unwrap();
    assert_eq!((&report["folds"], &report["texts"]), (&2.into(), &140.into()));
    for way in ["with_rules", "without_rules", "naive_bayes", "word_list"] {
        for figure in ["labels_f1", "classes_f1", "polarity_f1"] {
            let value = report[way][figure].as_f64().unwrap();
            assert!((0.0..=1.0).contains(&value), "{way} {figure}: {report}");
        }
    }
    assert!(report["without"].as_array().unwrap().len() > 3);
    let both = run(&["train", "--data", folder, "--folds", "2", "--out", "x"], b"");
    assert_eq!((both.status, both.stdout.as_str()), (2, ""));
}

#[test]
fn a_wrong_row_is_named() {
    let folder = tempfile::tempdir().unwrap();
    sample(folder.path());
    let train = || {
        let outcome = run(
            &[
                "train",
                "--data",
                folder.path().to_str().unwrap(),
                "--out",
                "/dev/null",
            ],
            b"",
        );
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

/// A minute and more: `cargo test --release -p ken-esl -- --ignored`.
#[test]
#[ignore = "trains the whole model"]
fn the_shipped_table_is_what_the_trainer_makes() {
    let Some(data) = data() else { return };
    let out = tempfile::NamedTempFile::new().unwrap();
    let outcome = run(
        &[
            "train",
            "--data",
            data.to_str().unwrap(),
            "--out",
            out.path().to_str().unwrap(),
        ],
        b"",
    );
    assert_eq!(outcome.status, 0, "{}", outcome.stderr);
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../share/esl/table.bin");
    assert!(fs::read(out.path()).unwrap() == fs::read(shipped).unwrap());
}
