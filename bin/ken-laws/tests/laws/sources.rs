//! Tests of the support by sources.

use std::fs;
use std::time::Instant;

use serde_json::{Value, json};

use crate::program::{Outcome, defects, run, run_with};
use crate::set::score;

const LOG: &str = "The backup of the orders database ran at 02:00 on 12 May and wrote 48 GB. \
    It failed on 13 May because the disk was full. Ana Reyes enlarged the disk to 2 TB on 14 May.";

fn ask(document: &Value) -> Value {
    let outcome = run_with(&["--format", "compact"], document.to_string().as_bytes());
    serde_json::from_str(&outcome.stdout).unwrap_or_else(|_| panic!("{}", outcome.stderr))
}

fn error_of(outcome: &Outcome) -> Value {
    assert_eq!((outcome.stdout.as_str(), outcome.status), ("", 2), "{}", outcome.stderr);
    serde_json::from_str::<Value>(&outcome.stderr).unwrap()["error"].clone()
}

#[test]
fn each_sentence_has_its_score_and_best_passage() {
    let text = "The backup of the orders database wrote 48 GB. Ana Reyes enlarged the disk to 3 TB.";
    let answer = ask(
        &json!({"text": text, "sources": [{"id": "faq", "text": "A faq about nothing."}, {"id": "log", "text": LOG}]}),
    );
    let support = &answer["support"];
    let sentences = support["sentences"].as_array().unwrap();
    assert_eq!(sentences.len(), 2);
    let passage = |index: usize| {
        let sentence = &sentences[index];
        assert_eq!(sentence["source"], "log");
        let place = |key: &str| sentence[key].as_u64().unwrap() as usize;
        (&text[place("start")..place("end")], &LOG[place("source_start")..place("source_end")])
    };
    assert_eq!(
        passage(0),
        (
            "The backup of the orders database wrote 48 GB.",
            "The backup of the orders database ran at 02:00 on 12 May and wrote 48 GB."
        )
    );
    assert_eq!(passage(1).1, "Ana Reyes enlarged the disk to 2 TB on 14 May.");
    let [first, second] = [0, 1].map(|index| sentences[index]["score"].as_f64().unwrap());
    assert!(first > 0.6 && second <= 0.1, "{answer}");
    let mean = (first + second) / 2.0;
    assert!((support["score"].as_f64().unwrap() - mean).abs() < 0.002);
}

#[test]
fn statements_that_sources_lack_or_contradict_are_evidence_under_law_3() {
    let sources = json!([LOG]);
    let found = |text: &str| {
        let answer = ask(&json!({"text": text, "sources": sources}));
        let evidence = answer["evidence"].as_array().unwrap().clone();
        let found = evidence.into_iter().find(|item| item["effect"].as_f64().unwrap() < 0.0);
        found.map(|item| (item["law"].as_u64().unwrap(), item["kind"].clone(), item["text"].clone()))
    };
    let expected = |kind: &str, text: &str| Some((3, Value::from(kind), Value::from(text)));
    assert_eq!(found("The backup wrote 52 GB."), expected("contradicted", "52"));
    assert_eq!(found("Ben Ortiz wrote the report on 14 May."), expected("unsupported", "Ortiz"));
    assert_eq!(found("The backup of the orders database ran at 02:00."), None);
    let (with, without) = (
        ask(&json!({"text": "The backup wrote 52 GB.", "sources": sources})),
        ask(&json!({"text": "The backup wrote 52 GB."})),
    );
    assert!(score(&with, 3) < score(&without, 3));
    assert_eq!(without["support"], Value::Null);
}

/// A text that a source contradicts never passes, however good the rest of it is; if a third of it is contradicted, it fails.
#[test]
fn a_contradicted_sentence_caps_the_status() {
    let source = "The pump was replaced on 4 March 2024. Its bearing had worn through. The repair cost 90 euros. It took 3 hours. \
        The water was clear afterwards. The valve stayed open.";
    let status = |text: &str| ask(&json!({"text": text, "sources": [source]}))["pass_fail_status"].clone();
    let rest =
        "Its bearing had worn through. The repair cost 90 euros. It took 3 hours. The water was clear afterwards.";
    assert_eq!(status(&format!("The pump was replaced on 4 March 2024. {rest}")), "PASS");
    assert_eq!(status(&format!("The pump was not replaced on 4 March 2024. {rest}")), "CONDITIONAL");
    assert_eq!(status("The pump was not replaced on 4 March 2024. The repair cost 70 euros. It took 3 hours."), "FAIL");
}

/// With --require-support, what is not supported or could not be judged fails, and exit status 1 says so.
#[test]
fn support_can_be_required() {
    let source = "The pump was replaced on 4 March 2024. The repair cost 90 euros.";
    let run = |text: &str, sources: Value| {
        let document = json!({"text": text, "sources": sources}).to_string();
        run_with(&["--require-support", "--format", "compact"], document.as_bytes()).status
    };
    assert_eq!(run("The repair cost 90 euros.", json!([source])), 0);
    assert_eq!(run("The repair cost 70 euros.", json!([source])), 1);
    assert_eq!(run("The pump was replaced on 4 March 2024. Ellen Hart sang in Paris.", json!([source])), 1);
    assert_eq!(
        run("The repair cost 90 euros.", json!(["Die Pumpe wurde am 4. März ersetzt und die Reparatur kostete viel."])),
        1
    );
    let without = run_with(&["--require-support", "--format", "compact"], b"The repair cost 90 euros.");
    assert!(without.status == 1 && without.stdout.contains("there is no source"), "{}", without.stdout);
}

#[test]
fn sources_come_from_files_too() {
    let folder = tempfile::tempdir().unwrap();
    let (plain, list) = (folder.path().join("log.txt"), folder.path().join("all.json"));
    fs::write(&plain, LOG).unwrap();
    fs::write(&list, json!(["Nothing of it.", {"id": 7, "text": LOG}]).to_string()).unwrap();
    let (plain, list) = (plain.to_str().unwrap(), list.to_str().unwrap());
    let source = |args: &[&str]| {
        let text = ["-t", "Ana Reyes enlarged the disk.", "--format", "compact"];
        let outcome = run(&[&text, args].concat());
        let answer: Value = serde_json::from_str(&outcome.stdout).unwrap();
        answer["support"]["sentences"][0]["source"].as_str().unwrap().to_owned()
    };
    assert_eq!(source(&["--sources", plain]), plain);
    assert_eq!(source(&["--sources", list]), "7");
    assert_eq!(source(&["--sources", list, "--sources", plain]), "7", "the first of two equal ones");
    let lines = run_with(&["--lines", "--sources", plain], b"Ana Reyes enlarged the disk.\nThe disk was full.\n");
    let answers: Vec<Value> = lines.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(answers.iter().all(|answer| answer["support"]["sentences"][0]["source"] == plain), "{}", lines.stdout);
}

#[test]
fn bad_sources_are_errors() {
    let field = |sources: Value| {
        let document = json!({"text": "The disk was full.", "sources": sources});
        let error = error_of(&run_with(&[], document.to_string().as_bytes()));
        (error["at"].as_str().unwrap().to_owned(), error["message"].as_str().unwrap().to_owned())
    };
    for (sources, at, says) in [
        (json!([]), "/sources", "no text"),
        (json!(["", " \n "]), "/sources", "no text"),
        (json!(5), "/sources", "a source is a text"),
        (json!(["a", 5]), "/sources/1", "a source is a text"),
        (json!([{"id": "a"}]), "/sources/0", "a source is a text"),
        (json!([{"id": [], "text": "a"}]), "/sources/0/id", "the id"),
    ] {
        let (found_at, message) = field(sources);
        assert!(found_at == at && message.contains(says), "{found_at}: {message}");
    }
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    fs::write(path("latin1"), b"caf\xe9").unwrap();
    fs::write(path("empty"), b"").unwrap();
    fs::write(path("binary"), b"a\0b").unwrap();
    fs::write(path("broken"), b"[1, ").unwrap();
    fs::write(path("large"), vec![b'a'; 8 * 1024 * 1024 + 1]).unwrap();
    for (name, code) in [
        ("latin1", "invalid"),
        ("empty", "invalid"),
        ("binary", "invalid"),
        ("broken", "invalid"),
        ("large", "too_large"),
        ("/dev/zero", "too_large"),
        ("absent", "not_found"),
        (".", "invalid"),
    ] {
        let error = error_of(&run(&["-t", "The disk was full.", "--sources", &path(name)]));
        assert_eq!((&error["code"], &error["at"]), (&code.into(), &"--sources".into()), "{name}");
    }
}

/// Lines of numbers are records, in which a number is looked up. A row of numbers without lines is nothing to compare with.
#[test]
fn sources_of_numbers_only_are_looked_up_or_not_judged() {
    let lines = "12,40,88\n13,41,90\n14,39,87";
    let status = |text: &str, source: &str, args: &[&str]| {
        let document = json!({"text": text, "sources": [source]}).to_string();
        let outcome = run_with(&[args, &["--format", "compact"]].concat(), document.as_bytes());
        let answer: Value = serde_json::from_str(&outcome.stdout).unwrap();
        (answer["pass_fail_status"].as_str().unwrap().to_owned(), outcome.status, answer)
    };
    let (verdict, exit, _) = status("It showed 41 at 13.", lines, &["--require-support"]);
    assert_eq!((verdict.as_str(), exit), ("PASS", 0));
    let (verdict, exit, answer) = status("It showed 77 at 13.", lines, &[]);
    assert_eq!((verdict.as_str(), exit, defects(&answer)), ("FAIL", 1, vec!["contradicted".to_owned()]));
    let row = "12 40 88 13 41 90 14 39 87";
    let (verdict, exit, answer) = status("The third value is 90.", row, &[]);
    assert_eq!((verdict.as_str(), exit, &answer["support"]), ("CONDITIONAL", 0, &Value::Null));
    assert!(answer["recommendations"][0].as_str().unwrap().starts_with("not judged: support by sources"), "{answer}");
    assert_eq!(status("The third value is 90.", row, &["--require-support"]).1, 1);
}

#[test]
fn sources_in_another_language_are_not_judged() {
    let german = "Die Sicherung lief um zwei Uhr und schrieb 48 GB auf die Platte, die dann voll war.";
    let answer = ask(&json!({"text": "The backup wrote 48 GB to the disk.", "sources": [german]}));
    assert_eq!((&answer["support"], defects(&answer).len()), (&Value::Null, 0), "{answer}");
    assert!(answer["recommendations"][0].as_str().unwrap().starts_with("not judged: support by sources"));
    assert_eq!(answer["pass_fail_status"], "CONDITIONAL");
    let answer = ask(&json!({"text": german, "sources": [LOG]}));
    assert_eq!(answer["support"], Value::Null);
    assert_eq!(answer["pass_fail_status"], "CONDITIONAL");
}

/// Sources of nearly the maximum input size take time in proportion to their size. The bound leaves room for a test
/// build on a busy machine.
#[test]
fn eight_mebibytes_of_sources_take_linear_time() {
    let document = |size: usize| json!({"text": "The backup wrote 52 GB.", "sources": [LOG.repeat(size / LOG.len())]});
    let timed = |size: usize| {
        let (document, begun) = (document(size), Instant::now());
        assert_eq!(defects(&ask(&document)), ["contradicted"]);
        begun.elapsed().as_secs_f64()
    };
    let (small, large) = (timed(1 << 20), timed(8_000_000));
    assert!(large < small * 8.0 * 4.0 + 1.0, "{small} s, {large} s");
}
