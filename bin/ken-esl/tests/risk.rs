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

/// The sets by name, with the fewest that must be seen and the most false alarms, in percent. The phrases were made with `tuned`
/// in sight; `second` was seen before the groups of words were made; `unseen` was only measured. One author wrote all of it, and
/// had read the phrases.
const SETS: [(&str, &str, &str, usize, usize); 3] = [
    ("tuned", DANGER, HARMLESS, 85, 30),
    (
        "second",
        include_str!("risk/danger_second.txt"),
        include_str!("risk/harmless_second.txt"),
        35,
        30,
    ),
    (
        "unseen",
        include_str!("risk/danger_unseen.txt"),
        include_str!("risk/harmless_unseen.txt"),
        35,
        30,
    ),
];

/// Recall comes first. `--nocapture` prints the figures and what was missed.
#[test]
fn danger_is_detected_and_most_figures_of_speech_are_not() {
    for (name, danger, harmless, fewest, most) in SETS {
        let (danger, harmless) = (answers(danger), answers(harmless));
        assert!(danger.len() >= 100 && harmless.len() >= 100);
        let of = |answers: &[(String, Value)], risk: bool| -> Vec<String> {
            let found = answers.iter().filter(|(_, answer)| is_risk(answer) == risk);
            found.map(|(text, _)| text.clone()).collect()
        };
        let (missed, alarms) = (of(&danger, false), of(&harmless, true));
        let seen = danger.len() - missed.len();
        println!(
            "{name}: {seen} of {} seen, {} of {} harmless ones taken for danger: recall {:.2}, precision {:.2}",
            danger.len(),
            alarms.len(),
            harmless.len(),
            seen as f64 / danger.len() as f64,
            seen as f64 / (seen + alarms.len()) as f64
        );
        println!("missed: {missed:#?}\nalarms: {alarms:#?}");
        assert!(seen * 100 >= danger.len() * fewest, "{name}: {missed:#?}");
        assert!(alarms.len() * 100 <= harmless.len() * most, "{name}: {alarms:#?}");
    }
}

#[test]
fn a_dangerous_text_is_never_positive_or_neutral_and_its_words_are_named() {
    let all = SETS.iter().flat_map(|(_, danger, ..)| answers(danger));
    for (text, answer) in all.filter(|(_, answer)| is_risk(answer)) {
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
