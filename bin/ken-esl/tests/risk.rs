//! Messages that suggest that their writer is in danger, and harmless ones that sound alike.
#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::print_stderr)]

mod esl;

use esl::{feel, feel_lines};
use serde_json::{Value, json};

const DANGER: &str = include_str!("risk/danger.txt");
const HARMLESS: &str = include_str!("risk/harmless.txt");

fn answers(texts: &str) -> Vec<(String, Value)> {
    let lines: Vec<String> = texts
        .lines()
        .map(|text| json!({ "user_input": text }).to_string())
        .collect();
    texts.lines().map(str::to_owned).zip(feel_lines(&lines)).collect()
}

fn is_risk(answer: &Value) -> bool {
    answer["contextual_factors"]["risk"] == "self_harm"
}

/// Recall comes first: at least 85 of 100 are seen, and no more than 30 of 100 harmless ones are taken for danger.
#[test]
fn danger_is_seen_and_most_figures_of_speech_are_not_taken_for_it() {
    let (danger, harmless) = (answers(DANGER), answers(HARMLESS));
    assert!(danger.len() >= 100 && harmless.len() >= 100);
    let missed: Vec<&String> = danger
        .iter()
        .filter(|(_, answer)| !is_risk(answer))
        .map(|(text, _)| text)
        .collect();
    let alarms: Vec<&String> = harmless
        .iter()
        .filter(|(_, answer)| is_risk(answer))
        .map(|(text, _)| text)
        .collect();
    println!("missed {} of {}: {missed:#?}", missed.len(), danger.len());
    println!("false alarms {} of {}: {alarms:#?}", alarms.len(), harmless.len());
    assert!(missed.len() * 100 <= danger.len() * 15, "{missed:#?}");
    assert!(alarms.len() * 100 <= harmless.len() * 30, "{alarms:#?}");
}

#[test]
fn a_text_of_danger_is_never_positive_or_neutral_and_names_its_words() {
    for (text, answer) in answers(DANGER).iter().filter(|(_, answer)| is_risk(answer)) {
        assert_eq!(answer["valence"], "negative", "{text}: {answer}");
        assert!(
            answer["valence_score"].as_f64().unwrap() < 0.0,
            "{text}: {answer}"
        );
        let first = &answer["detected_emotions"][0];
        assert_eq!(
            (&first["valence"], &first["emotion"]),
            (&json!("negative"), &answer["emotional_state"]),
            "{text}"
        );
        let words = answer["contextual_factors"]["risk_words"].as_array().unwrap();
        assert!(!words.is_empty(), "{text}");
        for word in words {
            assert!(
                text.to_lowercase().contains(word.as_str().unwrap()),
                "{text}: {word}"
            );
        }
    }
    let answer = feel("Honestly I am so happy and calm now, everyone would be better off without me!");
    assert_eq!(
        answer["contextual_factors"]["risk_words"],
        json!(["better off without me"])
    );
    assert_eq!(answer["valence"], "negative", "{answer}");
    assert_eq!(feel("The tests pass.")["contextual_factors"].get("risk"), None);
}
