//! Benchmarks of ken-esl: accuracy on the dev texts, comparison with VADER, and speed. It needs the
//! training texts beside the checkout; VADER is measured if Python finds `vaderSentiment`.
//!
//! `KEN_BENCH_TRAIN=1` also trains the table, and reports whether it equals the shipped one.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

#[allow(dead_code)] // the other benches use the rest
mod figures;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use figures::{per_second, row, title};
use ken_tests::binary;
use serde_json::Value;

fn main() {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data");
    title("ken-esl: messages of danger to the writer");
    risk(&data);
    if !data.join("goemotions/dev.tsv").exists() {
        row("ken-esl: scores and speed", "skipped", "no texts beside this checkout");
        return;
    }
    let corpus = Comments::read(&data);
    title("ken-esl: dev texts of GoEmotions");
    emotions(&corpus);
    title("ken-esl: polarity, beside VADER");
    polarity(&corpus, &data);
    title("ken-esl: speed, one core");
    speed(&data);
    title("ken-esl: cross-validated, three models that each have not seen a third");
    crossed(&data);
    if std::env::var_os("KEN_BENCH_TRAIN").is_some() {
        train(&data);
    }
}

/// Macro-F1 over 28 labels, 7 classes and polarity, for comments that were not used for the model or the rules.
fn crossed(data: &Path) {
    let mut command = Command::new(binary("ken-train-esl"));
    command.args(["--folds", "3", "--format", "compact", "--data"]).arg(data);
    let report: Value = serde_json::from_slice(&command.output().unwrap().stdout).unwrap();
    let figures = |of: &Value| {
        let part = |name: &str| of[name].as_f64().unwrap();
        format!("{:.4} {:.4} {:.4}", part("labels_f1"), part("classes_f1"), part("polarity_f1"))
    };
    for (name, note) in [("ken_esl", "the program"), ("naive_bayes", "baseline"), ("word_list", "baseline")] {
        row(name, &figures(&report[name]), note);
    }
}

/// Recall and false alarms for messages of authors who are not in the training data, and for each author of the training
/// data with a model that was trained without that author.
fn risk(data: &Path) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../bin/ken-esl");
    let [danger, everyday] = ["danger", "everyday"].map(|kind| {
        let files = ["a", "b"].map(|author| folder.join(format!("tests/risk/unseen_{kind}_{author}.txt")));
        let texts: Vec<String> = files
            .iter()
            .flat_map(|file| fs::read_to_string(file).unwrap().lines().map(str::to_owned).collect::<Vec<_>>())
            .collect();
        let level = |answer: &Value| answer["contextual_factors"]["risk"]["level"].clone();
        let is_elevated = |answer: &&Value| level(answer) == "elevated" || level(answer) == "high";
        (answers(&texts).iter().filter(is_elevated).count(), texts.len())
    });
    let share = |(taken, texts): (usize, usize)| taken as f64 / texts.max(1) as f64;
    let figures = |seen: (usize, usize), alarms: (usize, usize)| {
        format!("recall {:.3}, false alarms {:.3}", share(seen), share(alarms))
    };
    row("unseen authors", &figures(danger, everyday), "120 messages of danger and 460 everyday messages");
    if !data.join("goemotions/dev.tsv").exists() {
        return;
    }
    let mut command = Command::new(binary("ken-train-esl"));
    command.args(["--format", "compact", "--data"]).arg(data);
    command.arg("--risk").arg(folder.join("../../tools/train-esl/data/risk.tsv"));
    let report: Value = serde_json::from_slice(&command.output().unwrap().stdout).unwrap();
    for author in report["left_out"].as_array().unwrap() {
        let count = |of: &str| {
            let [taken, texts] = ["taken", "texts"].map(|part| author[of][part].as_u64().unwrap() as usize);
            (taken, texts)
        };
        row(
            &format!("left out: {}", author["author"].as_str().unwrap()),
            &figures(count("danger"), count("everyday")),
            &format!("harmless {:.3}, comments {:.3}", share(count("harmless")), share(count("comments"))),
        );
        let name = format!("  in letters of {}", author["author"].as_str().unwrap());
        let letters = figures(count("danger_in_letters"), count("harmless_letters"));
        row(&name, &letters, "one message among 14 comments");
    }
}

/// Texts with the names of their labels.
struct Comments {
    texts: Vec<String>,
    labels: Vec<BTreeSet<String>>,
    names: Vec<String>,
}

impl Comments {
    fn read(data: &Path) -> Comments {
        let names = fs::read_to_string(data.join("goemotions/labels.txt")).unwrap();
        let names: Vec<String> = names.lines().map(str::to_owned).collect();
        let (mut texts, mut labels) = (Vec::new(), Vec::new());
        for line in fs::read_to_string(data.join("goemotions/dev.tsv")).unwrap().lines() {
            let mut fields = line.split('\t');
            texts.push(fields.next().unwrap().to_owned());
            let numbers = fields.next().unwrap().split(',');
            labels.push(numbers.map(|number| names[number.parse::<usize>().unwrap()].clone()).collect());
        }
        Comments { texts, labels, names }
    }
}

/// The answer to each text.
fn answers(texts: &[String]) -> Vec<Value> {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), texts.join("\n") + "\n").unwrap();
    let output = Command::new(binary("ken-esl")).args(["--lines", "-f"]).arg(file.path()).output().unwrap();
    let lines = String::from_utf8(output.stdout).unwrap();
    let answers: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(answers.len(), texts.len());
    answers
}

fn f1(pairs: impl Iterator<Item = (bool, bool)>) -> f64 {
    let (mut both, mut either) = (0, 0);
    for (found, truth) in pairs {
        both += 2 * usize::from(found && truth);
        either += usize::from(found) + usize::from(truth);
    }
    both as f64 / either.max(1) as f64
}

/// Ekman's classes, as GoEmotions groups its labels.
const CLASSES: [&[&str]; 7] = [
    &["anger", "annoyance", "disapproval"],
    &["disgust"],
    &["fear", "nervousness"],
    &[
        "joy", "amusement", "approval", "excitement", "gratitude", "love", "optimism", "relief", "pride", "admiration",
        "desire", "caring",
    ],
    &["sadness", "disappointment", "embarrassment", "grief", "remorse"],
    &["surprise", "realization", "confusion", "curiosity"],
    &["neutral"],
];

fn emotions(corpus: &Comments) {
    let detected: Vec<BTreeSet<String>> = answers(&corpus.texts)
        .iter()
        .map(|answer| {
            let list = answer["detected_emotions"].as_array().unwrap();
            list.iter().map(|emotion| emotion["emotion"].as_str().unwrap().to_owned()).collect()
        })
        .collect();
    let macro_f1 = |classes: &[Vec<&str>]| {
        let of_class = |class: &Vec<&str>| {
            let has = |set: &BTreeSet<String>| class.iter().any(|name| set.contains(*name));
            f1(detected.iter().zip(&corpus.labels).map(|(found, truth)| (has(found), has(truth))))
        };
        classes.iter().map(of_class).sum::<f64>() / classes.len() as f64
    };
    let labels: Vec<Vec<&str>> = corpus.names.iter().map(|name| vec![name.as_str()]).collect();
    let classes: Vec<Vec<&str>> = CLASSES.iter().map(|class| class.to_vec()).collect();
    let figure = |value: f64| format!("macro-F1 {value:.3}");
    row("7 classes", &figure(macro_f1(&classes)), "logistic regression .58, aim .62");
    row("28 labels", &figure(macro_f1(&labels)), "logistic regression .456, aim .49");
}

const NEGATIVE: [&str; 11] = [
    "anger", "annoyance", "disappointment", "disapproval", "disgust", "embarrassment", "fear", "grief", "nervousness",
    "remorse", "sadness",
];
const AMBIGUOUS: [&str; 4] = ["confusion", "curiosity", "realization", "surprise"];

/// The polarity of the labels, if they have only one.
fn truth(labels: &BTreeSet<String>) -> Option<&'static str> {
    let polarities: BTreeSet<&str> = labels
        .iter()
        .map(|label| match label.as_str() {
            "neutral" => "neutral",
            label if NEGATIVE.contains(&label) => "negative",
            label if AMBIGUOUS.contains(&label) => "ambiguous",
            _ => "positive",
        })
        .collect();
    let only = polarities.first().filter(|_| polarities.len() == 1)?;
    (*only != "ambiguous").then_some(*only)
}

/// Accuracy and macro-F1 of scores that are neutral within ±0.05.
fn judge(scores: &[f64], truths: &[Option<&'static str>]) -> String {
    let guess = |score: f64| match score {
        score if score > 0.05 => "positive",
        score if score < -0.05 => "negative",
        _ => "neutral",
    };
    let pairs: Vec<(&str, &str)> =
        scores.iter().zip(truths).filter_map(|(score, truth)| Some((guess(*score), (*truth)?))).collect();
    let right = pairs.iter().filter(|(guess, truth)| guess == truth).count() as f64 / pairs.len() as f64;
    let classes = ["positive", "negative", "neutral"];
    let of_class = |class: &&str| f1(pairs.iter().map(|(guess, truth)| (guess == class, truth == class)));
    format!("accuracy {right:.3}, macro-F1 {:.3}", classes.iter().map(of_class).sum::<f64>() / 3.0)
}

fn correlation(a: &[f64], b: &[f64]) -> f64 {
    let mean = |list: &[f64]| list.iter().sum::<f64>() / list.len() as f64;
    let (mean_a, mean_b) = (mean(a), mean(b));
    let sum = |of: &dyn Fn(f64, f64) -> f64| a.iter().zip(b).map(|(a, b)| of(a - mean_a, b - mean_b)).sum::<f64>();
    sum(&|a, b| a * b) / (sum(&|a, _| a * a) * sum(&|_, b| b * b)).sqrt()
}

fn polarity(corpus: &Comments, data: &Path) {
    let truths: Vec<_> = corpus.labels.iter().map(truth).collect();
    let note = vader(&corpus.texts)
        .map_or("VADER is not installed".to_owned(), |scores| format!("VADER {}", judge(&scores, &truths)));
    row("dev texts of one polarity", &judge(&scores(&corpus.texts), &truths), &note);
    for name in ["amazon", "movie"] {
        let rows = fs::read_to_string(data.join(format!("polarity/{name}.tsv"))).unwrap();
        let pairs: Vec<(&str, &str)> = rows.lines().map(|line| line.split_once('\t').unwrap()).collect();
        let ratings: Vec<f64> = pairs.iter().map(|pair| pair.0.parse().unwrap()).collect();
        let texts: Vec<String> = pairs.iter().map(|pair| pair.1.to_owned()).collect();
        let ours = format!("r {:.3} (in training)", correlation(&ratings, &scores(&texts)));
        let note = vader(&texts).map_or("VADER is not installed".to_owned(), |scores| {
            format!("VADER r {:.3}; held out: share/esl/README.md", correlation(&ratings, &scores))
        });
        row(&format!("ratings, {name}"), &ours, &note);
    }
}

fn scores(texts: &[String]) -> Vec<f64> {
    answers(texts).iter().map(|answer| answer["valence_score"].as_f64().unwrap()).collect()
}

const VADER: &str = "
import sys
from vaderSentiment.vaderSentiment import SentimentIntensityAnalyzer
analyzer = SentimentIntensityAnalyzer()
for line in open(sys.argv[1], encoding='utf-8'):
    print(analyzer.polarity_scores(line.rstrip('\\n'))['compound'])
";

/// VADER's scores; `None` if Python does not find the package. `KEN_BENCH_PYTHON` names the Python program.
fn vader(texts: &[String]) -> Option<Vec<f64>> {
    let python = std::env::var("KEN_BENCH_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), texts.join("\n") + "\n").unwrap();
    let output = Command::new(python).args(["-c", VADER]).arg(file.path()).stderr(Stdio::null()).output().ok()?;
    let text = String::from_utf8(output.stdout).ok().filter(|_| output.status.success())?;
    text.lines().map(|line| line.parse().ok()).collect()
}

fn speed(data: &Path) {
    let folder = tempfile::tempdir().unwrap();
    let texts: Vec<String> = fs::read_to_string(data.join("goemotions/train.tsv"))
        .unwrap()
        .lines()
        .map(|line| line.split('\t').next().unwrap().to_owned())
        .collect();
    let file = folder.path().join("texts");
    fs::write(&file, texts.join("\n") + "\n").unwrap();
    let floor = fastest(|| Command::new("/bin/cat").arg(&file).stdout(sink()).status().unwrap().success());
    let taken = fastest(|| {
        let mut command = Command::new(binary("ken-esl"));
        command.args(["--lines", "-f"]).arg(&file).stdout(sink()).status().unwrap().success()
    });
    let rate = texts.len() as f64 / taken.as_secs_f64();
    let note = format!("{:.0} x cat of the same lines; goal 200000/s", taken.as_secs_f64() / floor.as_secs_f64());
    row("--lines, 43 410 comments", &per_second(rate), &note);
    let few = texts.get(..5000).unwrap();
    let begun = Instant::now();
    if vader(few).is_some() {
        let theirs = few.len() as f64 / begun.elapsed().as_secs_f64();
        row("VADER in Python, 5 000 comments", &per_second(theirs), &format!("ken-esl is {:.0} x", rate / theirs));
    }
}

fn sink() -> Stdio {
    File::create("/dev/null").expect("/dev/null").into()
}

/// The time of the fastest of seven runs. Other programs have slowed down the slower ones.
fn fastest(mut run: impl FnMut() -> bool) -> Duration {
    let times = (0..7).map(|_| {
        let begun = Instant::now();
        assert!(run());
        begun.elapsed()
    });
    times.min().unwrap_or_default()
}

fn train(data: &Path) {
    title("ken-esl: the table, trained anew");
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("table.bin");
    let begun = Instant::now();
    let mut command = Command::new(binary("ken-train-esl"));
    command.args(["--format", "compact", "--data"]).arg(data).arg("--out").arg(&out);
    let report: Value = serde_json::from_slice(&command.output().unwrap().stdout).unwrap();
    row("time", &format!("{:.0} s", begun.elapsed().as_secs_f64()), "");
    row("held-out polarity r", &report["held_out_polarity_r"].to_string(), "");
    let shipped: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../share/esl/table.bin");
    let same = fs::read(out).unwrap() == fs::read(shipped).unwrap();
    row("equals share/esl/table.bin", if same { "yes" } else { "NO" }, "");
}
