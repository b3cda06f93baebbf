//! Messages that suggest that their writer is in danger, and harmless messages with similar words.
#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::print_stderr)]

mod esl;

use esl::{feel, feel_lines};
use serde_json::{Value, json};

/// Messages of an author who knew neither the model nor its training messages. None of them is in the training data.
const DANGER: &str = include_str!("risk/held_danger.txt");
const HARMLESS: &str = include_str!("risk/held_harmless.txt");
/// The messages on which the model was trained: author, class and text.
const LEARNT: &str = include_str!("../train/risk.tsv");

/// The minimum share of messages of danger that are detected, and the maximum share of harmless messages that are
/// classified as danger, in percent.
const MIN_DETECTED: usize = 88;
const MAX_FALSE_ALARMS: usize = 14;

fn answers<'a>(texts: impl Iterator<Item = &'a str>) -> Vec<(&'a str, Value)> {
    let texts: Vec<&str> = texts.collect();
    let lines: Vec<String> = texts.iter().map(|text| json!({ "user_input": text }).to_string()).collect();
    texts.into_iter().zip(feel_lines(&lines)).collect()
}

fn is_risk(answer: &Value) -> bool {
    answer["contextual_factors"]["risk"] == "self_harm"
}

/// Recall matters most. `--nocapture` prints the figures and the missed messages.
#[test]
fn danger_is_detected_and_most_figures_of_speech_are_not() {
    let (danger, harmless) = (answers(DANGER.lines()), answers(HARMLESS.lines()));
    assert!(danger.len() >= 200 && harmless.len() >= 200);
    let of = |answers: &[(&str, Value)], risk: bool| -> Vec<String> {
        let found = answers.iter().filter(|(_, answer)| is_risk(answer) == risk);
        found.map(|(text, _)| (*text).to_owned()).collect()
    };
    let (missed, alarms) = (of(&danger, false), of(&harmless, true));
    let seen = danger.len() - missed.len();
    println!(
        "{seen} of {} seen, {} of {} harmless ones taken for danger: recall {:.3}, precision {:.3}",
        danger.len(),
        alarms.len(),
        harmless.len(),
        seen as f64 / danger.len() as f64,
        seen as f64 / (seen + alarms.len()) as f64
    );
    println!("missed: {missed:#?}\nalarms: {alarms:#?}");
    assert!(seen * 100 >= danger.len() * MIN_DETECTED, "{missed:#?}");
    assert!(alarms.len() * 100 <= harmless.len() * MAX_FALSE_ALARMS, "{alarms:#?}");
}

#[test]
fn a_dangerous_text_is_never_positive_or_neutral_and_its_words_are_named() {
    let learnt = LEARNT.lines().filter_map(|line| line.split('\t').nth(2));
    let all = answers(DANGER.lines().chain(HARMLESS.lines()).chain(learnt));
    let risks: Vec<_> = all.iter().filter(|(_, answer)| is_risk(answer)).collect();
    assert!(risks.len() > 1500, "{}", risks.len());
    for (text, answer) in risks {
        assert_eq!(answer["valence"], "negative", "{text}: {answer}");
        assert!(answer["valence_score"].as_f64().unwrap() < 0.0, "{text}: {answer}");
        let first = &answer["detected_emotions"][0];
        assert_eq!((&first["valence"], &first["emotion"]), (&json!("negative"), &answer["emotional_state"]), "{text}");
        let words = answer["contextual_factors"]["risk_words"].as_array().unwrap();
        assert!((1..=3).contains(&words.len()), "{text}: {words:?}");
        // The words occur in the text in the same order.
        let lower = text.to_lowercase();
        let mut rest = lower.as_str();
        for word in words {
            let (_, behind) = rest.split_once(word.as_str().unwrap()).unwrap();
            rest = behind;
        }
    }
}

#[test]
fn danger_outweighs_the_rest_of_the_text() {
    let answer = feel("Honestly I am so happy and calm now, everyone would be better off without me!");
    assert_eq!(answer["valence"], "negative", "{answer}");
    let words = answer["contextual_factors"]["risk_words"].to_string();
    assert!(words.contains("without me"), "{words}");
    for text in ["The tests pass.", "", "Thank you so much, this works!", "yes"] {
        let text = json!({ "user_input": format!("{text} ") }).to_string();
        let outcome = esl::run(&["--format", "compact"], text.as_bytes());
        assert!(!outcome.stdout.contains("self_harm"), "{}", outcome.stdout);
    }
}

/// The sentences before and after do not suggest danger.
#[test]
fn one_sentence_in_a_long_letter_is_detected() {
    let before = "The weather was fine and we had lunch by the lake with the neighbours. ".repeat(8);
    let after = "The train leaves at nine and the tickets are in the blue folder on the shelf. ".repeat(8);
    let letter = |sentence: &str| feel(&format!("{before}{sentence}{after}"));
    let answer = letter("I want to kill myself. ");
    assert!(is_risk(&answer), "{answer}");
    let words = answer["contextual_factors"]["risk_words"].to_string();
    assert!(words.contains("kill myself"), "{words}");
    assert!(!is_risk(&letter("")));
}

/// Texts of many words, of one extremely long word, and of words with large distances are processed in a short time.
#[test]
fn a_megabyte_is_judged() {
    for text in [
        "I want to kill myself ".repeat(50_000),
        "nothing ".repeat(130_000),
        "suicidal".repeat(130_000),
        "it's ".repeat(200_000),
        "' ".repeat(500_000),
    ] {
        let outcome = esl::run(&["--format", "compact"], text.as_bytes());
        assert_eq!(outcome.status, 0, "{}", outcome.stderr);
        assert!(outcome.stdout.len() < 20_000, "{}", outcome.stdout.len());
    }
}
