//! Tests of `--embed`: compares the vectors of a generated encoder with a simple reference computation.

#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

#[path = "support/bert.rs"]
mod bert;

use std::io::Write;
use std::process::{Command, Output, Stdio};

use bert::Bert;
use serde_json::{Value, json};

fn run(bert: &Bert, arguments: &[&str], input: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_ken-textgen"))
        .args(["--embed", "--model-dir"])
        .arg(bert.path())
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

fn lines(output: &Output) -> Vec<Value> {
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn vector(answer: &Value) -> Vec<f64> {
    let values = answer["vector"].as_array().unwrap().iter();
    values.map(|value| value.as_f64().unwrap()).collect()
}

#[track_caller]
fn assert_near(found: &[f64], wanted: &[f64]) {
    let furthest = found.iter().zip(wanted).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    assert!(found.len() == wanted.len() && furthest < 1e-5, "{furthest}: {found:?} {wanted:?}");
}

#[test]
fn vectors_equal_those_of_a_plain_computation() {
    for first_token in [false, true] {
        let bert = Bert::new(first_token);
        let texts = ["Car", "the car and the doctors", "harbour bread physician", ""];
        let wanted: [&[&str]; 4] = [
            &["[CLS]", "car", "[SEP]"],
            &["[CLS]", "[UNK]", "car", "[UNK]", "[UNK]", "doctor", "##s", "[SEP]"],
            &["[CLS]", "harbour", "bread", "physician", "[SEP]"],
            &["[CLS]", "[SEP]"],
        ];
        let input: String = texts.iter().map(|text| format!("{}\n", json!({"prompt": text, "id": text}))).collect();
        let answers = lines(&run(&bert, &["--lines"], &input));
        for ((answer, text), tokens) in answers.iter().zip(texts).zip(wanted) {
            assert_eq!((&answer["id"], &answer["tokens"]), (&json!(text), &json!(tokens.len())));
            assert_near(&vector(answer), &bert.naive(tokens));
        }
        assert_eq!(answers.len(), 4);
        let alone = lines(&run(&bert, &["--prompt", "Car"], ""));
        assert_eq!(alone[0], json!({"vector": answers[0]["vector"], "tokens": 3}));
    }
}

#[test]
fn a_text_that_is_too_long_is_cut() {
    let bert = Bert::new(false);
    let long = "car ".repeat(100);
    let answer = &lines(&run(&bert, &["--prompt", &long], ""))[0];
    assert_eq!(answer["tokens"], 16);
    bert.put("sentence_bert_config.json", &json!({"max_seq_length": 5, "do_lower_case": false}));
    let answer = &lines(&run(&bert, &["--prompt", &long], ""))[0];
    assert_eq!(answer["tokens"], 5);
    assert_near(&vector(answer), &bert.naive(&["[CLS]", "car", "car", "car", "[SEP]"]));
}

#[test]
fn an_unsupported_model_is_one_error_that_names_it() {
    for (field, value, expected) in [
        ("model_type", json!("gpt2"), "only \"bert\" is known"),
        ("hidden_act", json!("relu"), "only \"gelu\" is known"),
        ("num_attention_heads", json!(5), "does not divide"),
        ("intermediate_size", json!(21), "has the shape [20, 12]"),
        ("vocab_size", json!(4), "it has 11 tokens"),
    ] {
        let bert = Bert::new(false);
        let mut config = Bert::config();
        config[field] = value;
        bert.put("config.json", &config);
        let output = run(&bert, &["--prompt", "car"], "");
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{field}: {stderr}");
        assert!(stderr.contains(expected), "{field}: {stderr}");
    }
    let bert = Bert::new(false);
    bert.put("1_Pooling/config.json", &json!({"pooling_mode_max_tokens": true}));
    let output = run(&bert, &["--prompt", "car"], "");
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("only pooling by the mean or by the first token is supported")
    );
}
