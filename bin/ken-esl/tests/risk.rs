//! The danger to the writer: its figures on messages that the model has not seen, and that it changes nothing else.
#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::print_stderr)]

mod esl;

use esl::{feel, feel_lines, run};
use serde_json::{Value, json};

/// Messages of authors who knew neither the model nor its training messages. The score was final before it was measured
/// on them. The threshold of `elevated` was then chosen on the everyday messages, so the recall is that of unseen
/// messages, but the share of false alarms is not.
const DANGER: [(&str, &str); 2] =
    [("a", include_str!("risk/unseen_danger_a.txt")), ("b", include_str!("risk/unseen_danger_b.txt"))];
const EVERYDAY: [(&str, &str); 2] =
    [("a", include_str!("risk/unseen_everyday_a.txt")), ("b", include_str!("risk/unseen_everyday_b.txt"))];
/// The messages on which the model was trained: author, class and text.
const LEARNT: &str = include_str!("../../../tools/train-esl/data/risk.tsv");

/// The minimum share of messages of danger that are `elevated` or `high`: what was measured (.725) less .02.
const MIN_RECALL: f64 = 0.705;
const MAX_FALSE_ALARMS: f64 = 0.01;

fn answers<'a>(texts: impl Iterator<Item = &'a str>) -> Vec<(&'a str, Value)> {
    let texts: Vec<&str> = texts.collect();
    let lines: Vec<String> = texts.iter().map(|text| json!({ "user_input": text }).to_string()).collect();
    texts.into_iter().zip(feel_lines(&lines)).collect()
}

fn risk(answer: &Value) -> &Value {
    &answer["contextual_factors"]["risk"]
}

fn score(answer: &Value) -> f64 {
    risk(answer)["self_harm"].as_f64().unwrap()
}

fn is_elevated(answer: &Value) -> bool {
    risk(answer)["level"] == "elevated" || risk(answer)["level"] == "high"
}

/// Returns the words of the evidence.
fn evidence<'a>(text: &'a str, answer: &Value) -> Vec<&'a str> {
    let spans = risk(answer)["evidence"].as_array().unwrap().iter();
    let place = |span: &Value, end: &str| span[end].as_u64().unwrap() as usize;
    spans.map(|span| text.get(place(span, "start")..place(span, "end")).unwrap()).collect()
}

fn share(count: usize, of: usize) -> f64 {
    count as f64 / of as f64
}

/// `--nocapture` prints the curve of ken-esl(1).
#[test]
fn the_figures_of_unseen_messages_hold() {
    let scores = |files: [(&str, &'static str); 2]| {
        files.map(|(_, text)| answers(text.lines()).iter().map(|(_, answer)| score(answer)).collect::<Vec<f64>>())
    };
    let (danger, everyday) = (scores(DANGER), scores(EVERYDAY));
    let mut alarms = everyday.concat();
    alarms.sort_unstable_by(|a, b| b.total_cmp(a));
    let above = |list: &[f64], limit: f64| share(list.iter().filter(|score| **score > limit).count(), list.len());
    for percent in [0.5, 1.0, 2.0, 5.0, 10.0] {
        let limit = alarms[(percent / 100.0 * alarms.len() as f64) as usize];
        println!(
            "false alarms {percent} % (everyday_a {:.3}, everyday_b {:.3}): recall {:.3} (danger_a {:.3}, danger_b {:.3})",
            above(&everyday[0], limit),
            above(&everyday[1], limit),
            above(&danger.concat(), limit),
            above(&danger[0], limit),
            above(&danger[1], limit)
        );
    }
    let of = |files: [(&str, &'static str); 2]| {
        let lines = files.iter().flat_map(|(_, text)| text.lines());
        let (elevated, rest): (Vec<_>, Vec<_>) =
            answers(lines).into_iter().partition(|(_, answer)| is_elevated(answer));
        let texts = |list: Vec<(&'static str, Value)>| list.into_iter().map(|(text, _)| text).collect::<Vec<&str>>();
        (texts(elevated), texts(rest))
    };
    let ((seen, missed), (alarms, quiet)) = (of(DANGER), of(EVERYDAY));
    assert_eq!((seen.len() + missed.len(), alarms.len() + quiet.len()), (120, 460));
    assert!(share(seen.len(), 120) >= MIN_RECALL, "{} seen, missed: {missed:#?}", seen.len());
    assert!(share(alarms.len(), 460) <= MAX_FALSE_ALARMS, "{alarms:#?}");
}

#[test]
fn a_score_has_its_level_and_its_evidence() {
    let learnt = LEARNT.lines().filter_map(|line| line.split('\t').nth(2));
    let all = answers(learnt.chain(["?!", "\u{1F600}", "Ich m\u{f6}chte sterben"]));
    for (text, answer) in &all {
        let level = match score(answer) {
            0.78.. => "high",
            0.693.. => "elevated",
            0.365.. => "low",
            score => {
                assert!(score >= 0.0);
                "none"
            }
        };
        assert!(score(answer) <= 1.0);
        assert_eq!(risk(answer)["level"], level, "{text}: {answer}");
        let words = evidence(text, answer);
        let least = usize::from(level != "none");
        assert!((least..=3 * least).contains(&words.len()), "{text}: {words:?}");
        assert!(words.iter().all(|word| !word.is_empty()), "{text}: {words:?}");
        let starts: Vec<_> =
            risk(answer)["evidence"].as_array().unwrap().iter().map(|span| span["start"].as_u64()).collect();
        assert!(starts.is_sorted(), "{text}: {starts:?}");
    }
    let elevated = all.iter().filter(|(_, answer)| is_elevated(answer)).count();
    assert!(elevated > 1000, "{elevated}");
    assert_eq!(risk(&feel("?!")), &json!({"self_harm": 0.0, "level": "none", "evidence": []}));
}

/// A text of danger that also says something else is read for what it says.
#[test]
fn the_reading_of_a_dangerous_text_is_that_of_its_words() {
    for (text, state, valence) in [
        ("Thank you, you were all so kind to me. I want to kill myself tonight.", "gratitude", "positive"),
        ("I feel so happy and calm, I have decided to end my life tonight.", "joy", "positive"),
    ] {
        let answer = feel(text);
        assert!(is_elevated(&answer), "{answer}");
        assert_eq!((&answer["emotional_state"], &answer["valence"]), (&json!(state), &json!(valence)), "{answer}");
    }
    for text in ["Nobody answers my emails.", "I'd rather stay home tonight.", "Thanks, I'm happy!", "yes"] {
        assert!(!is_elevated(&feel(text)), "{text}");
    }
}

#[test]
fn the_summary_says_it_in_its_first_line() {
    let summary = |text: &str| {
        let outcome = run(&["--format", "summary", "--text", text], b"");
        assert_eq!((outcome.status, outcome.stderr.as_str()), (0, ""), "{text}");
        outcome.stdout
    };
    let learnt = LEARNT.lines().filter_map(|line| line.split('\t').nth(2));
    let all = answers(learnt.step_by(20));
    for level in ["none", "low", "elevated", "high"] {
        let (text, answer) = all.iter().find(|(_, answer)| risk(answer)["level"] == level).unwrap();
        let first = format!(
            "This may be about harming oneself ({level}, score {:.2}; a hint, not a judgement): please read it first.\n",
            score(answer)
        );
        let state = answer["emotional_state"].as_str().unwrap();
        let shown = summary(text);
        let rest = if ["elevated", "high"].contains(&level) { shown.strip_prefix(&first) } else { Some(&*shown) };
        assert!(rest.is_some_and(|rest| rest.starts_with(&format!("{state}, "))), "{shown}");
        assert!(!rest.unwrap().contains("harming"), "{shown}");
    }
}

/// The sentences before and after do not suggest danger.
#[test]
fn one_sentence_in_a_long_letter_is_detected() {
    let before = "The weather was fine and we had lunch by the lake with the neighbours. ".repeat(8);
    let after = "The train leaves at nine and the tickets are in the blue folder on the shelf. ".repeat(8);
    let letter = |sentence: &str| format!("{before}{sentence}{after}");
    let text = letter("I want to kill myself, I can not live like this any more. ");
    let answer = feel(&text);
    assert!(is_elevated(&answer), "{answer}");
    assert!(evidence(&text, &answer).iter().any(|words| words.contains("kill myself")), "{answer}");
    assert!(!is_elevated(&feel(&letter(""))));
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
        let outcome = run(&["--format", "compact"], text.as_bytes());
        assert_eq!(outcome.status, 0, "{}", outcome.stderr);
        assert!(outcome.stdout.len() < 20_000, "{}", outcome.stdout.len());
    }
}
