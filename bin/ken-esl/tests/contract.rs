//! Tests of the format of the answer, the input, and the errors of the tool.
#![allow(clippy::unwrap_used, clippy::print_stderr)]

mod esl;

use esl::{feel, feel_lines, run};
use proptest::prelude::*;
use serde_json::{Value, json};

const FIELDS: [&str; 9] = [
    "emotional_state", "valence", "intensity", "confidence", "detected_emotions", "salience", "valence_score",
    "contextual_factors", "explanation",
];

#[test]
fn the_answer_has_its_fields_in_order() {
    let outcome = run(&["-t", "I love this!", "--format", "compact"], b"");
    let places: Vec<usize> =
        FIELDS.iter().map(|field| outcome.stdout.find(&format!("\"{field}\":")).unwrap()).collect();
    assert!(places.is_sorted() && places[0] == 1, "{}", outcome.stdout);
    assert_eq!(outcome.stdout.lines().count(), 1);
    let answer: Value = serde_json::from_str(&outcome.stdout).unwrap();
    let emotion = answer["detected_emotions"][0].as_object().unwrap();
    for field in ["emotion", "intensity", "dimension", "valence", "confidence", "evidence"] {
        assert!(emotion.contains_key(field), "{field}");
    }
    assert!(answer["detected_emotions"][0]["evidence"][0]["start"].is_u64());
}

#[test]
fn every_source_and_form_of_input_gives_the_same() {
    let text = "I don't trust \"them\" at all";
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text).unwrap();
    let document = json!({"user_input": text, "session": 1}).to_string();
    let expected = run(&["--text", text], b"").stdout;
    assert!(!expected.is_empty());
    assert_eq!(run(&[], text.as_bytes()).stdout, expected);
    assert_eq!(run(&["-"], text.as_bytes()).stdout, expected);
    assert_eq!(run(&["-f", file.path().to_str().unwrap()], b"").stdout, expected);
    assert_eq!(run(&[], document.as_bytes()).stdout, expected);
    assert_eq!(run(&["-t", &document], b"").stdout, expected);
}

#[test]
fn a_summary_is_for_people() {
    let outcome = run(&["-t", "I love this!", "--format", "summary"], b"");
    assert!(outcome.stdout.starts_with("love, positive (+0."), "{}", outcome.stdout);
    let verbose = run(&["-t", "I love this!", "--format", "summary", "-v"], b"");
    assert!(verbose.stdout.contains("love from \"love\""), "{}", verbose.stdout);
}

#[test]
fn bad_input_is_refused_by_name() {
    for (input, at) in [
        ("{", ""),
        (r#"{"user_input":"a"} x"#, ""),
        ("{}", "/user_input"),
        (r#"{"user_input":null}"#, "/user_input"),
        (r#"{"user_input":["a"]}"#, "/user_input"),
        (r#"{"user_input":"  "}"#, "/user_input"),
    ] {
        let outcome = run(&[], input.as_bytes());
        assert_eq!((outcome.status, outcome.stdout.as_str()), (2, ""), "{input}");
        let error: Value = serde_json::from_str(&outcome.stderr).unwrap();
        assert_eq!((&error["error"]["code"], &error["error"]["at"]), (&"invalid".into(), &at.into()), "{input}");
    }
}

#[test]
fn a_long_text_is_read_to_its_end() {
    let mut text = "The train leaves at nine. ".repeat(4000);
    text.push_str("I hate you, you disgusting liar!");
    let answer: Value = serde_json::from_str(&run(&[], text.as_bytes()).stdout).unwrap();
    assert_eq!(answer["emotional_state"], "neutral");
    assert!(check(&text, &answer).is_ok());
    let one_word = "a".repeat(1_000_000);
    let answer: Value = serde_json::from_str(&run(&[], one_word.as_bytes()).stdout).unwrap();
    assert!(check(&one_word, &answer).is_ok());
}

#[test]
fn what_is_quoted_is_cut() {
    let run_of_emoji = "\u{1F600}".repeat(100_000);
    let answer = run(&["--format", "compact"], run_of_emoji.as_bytes()).stdout;
    assert!(answer.len() < 1000, "{} bytes", answer.len());
    let cut = format!("joy from \\\"{}\u{2026}\\\"", "\u{1F600}".repeat(40));
    assert!(answer.contains(&cut), "{answer}");
    let summary = run(&["--format", "summary", "-v"], run_of_emoji.as_bytes()).stdout;
    assert!(summary.len() < 1000, "{} bytes", summary.len());
    assert_eq!(feel("I am happyyyyyyyyyyyy")["explanation"], "joy from \"happyyyyyyyyyyyy\"");
}

/// Checks an answer: every number is in its range, the state is the first emotion, emotions are sorted by intensity,
/// the valence agrees with its score, and every span lies within the text on character boundaries.
fn check(text: &str, answer: &Value) -> Result<(), String> {
    let unit = |value: &Value| value.as_f64().is_some_and(|value| (0.0..=1.0).contains(&value));
    let score = answer["valence_score"].as_f64().unwrap_or(9.0);
    let mut fine = unit(&answer["intensity"]) && unit(&answer["confidence"]) && unit(&answer["salience"]);
    fine &= (-1.0..=1.0).contains(&score) && answer["confidence"].as_f64() < Some(1.0);
    fine &= match answer["valence"].as_str() {
        Some("positive") => score > 0.05,
        Some("negative") => score < -0.05,
        Some("neutral") => score.abs() <= 0.05,
        valence => valence == Some("mixed"),
    };
    let emotions = answer["detected_emotions"].as_array().map_or(&[][..], Vec::as_slice);
    fine &= emotions.is_sorted_by(|a, b| a["intensity"].as_f64() >= b["intensity"].as_f64());
    if let Some(first) = emotions.first() {
        let is_signless = first["valence"] == "neutral";
        fine &= first["emotion"] == answer["emotional_state"];
        fine &= is_signless || answer["valence"] == "mixed" || answer["valence"] == first["valence"];
    }
    for emotion in emotions {
        fine &= unit(&emotion["intensity"]) && unit(&emotion["confidence"]);
        for span in emotion["evidence"].as_array().into_iter().flatten() {
            let place = |end: &str| span[end].as_u64().map(|place| place as usize);
            let cited = place("start").zip(place("end")).and_then(|(start, end)| text.get(start..end));
            fine &= cited.is_some_and(|cited| !cited.is_empty());
        }
    }
    if fine { Ok(()) } else { Err(format!("{text:?}: {answer}")) }
}

/// Words that the rules know, marks, and arbitrary characters.
fn texts() -> impl Strategy<Value = String> {
    let known = prop::sample::select(vec![
        "not", "I", "happy", "sad", "but", "very", "the", "great", "thanks", "can't", "\u{2019}", "!", "?", ":)",
        "[NAME]", "\u{1F62D}", "SO", "neither", "nor", "yeah right", "/s", "ich", "...", "*", "don\u{2019}t", "soooo",
        "{", "\u{200D}", "never", "been", "so", "enough", "more", "stop", "used to", "un\u{E9}", "less", "hope you",
        "for ruining",
    ]);
    let any = "[^\\n\\r]{0,6}";
    prop::collection::vec(prop_oneof![3 => known.prop_map(str::to_owned), 1 => any], 1..30)
        .prop_map(|parts| parts.join(" "))
        .prop_filter("a line that is neither blank nor a document", |text| {
            let bare = text.strip_prefix('\u{FEFF}').unwrap_or(text).trim_start();
            !text.trim().is_empty() && !bare.starts_with('{') && !text.contains('\n')
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn any_text_has_a_sound_answer(lines in prop::collection::vec(texts(), 50)) {
        let answers = feel_lines(&lines);
        for (line, answer) in lines.iter().zip(&answers) {
            prop_assert!(check(line, answer).is_ok(), "{:?}", check(line, answer));
        }
        prop_assert_eq!(&feel_lines(&lines), &answers);
    }
}

#[test]
fn a_line_gets_the_same_answer_as_the_text_alone() {
    let texts = ["I love this!", "so what?", "\u{1F62D}", "I'm not angry, just disappointed"];
    let lines: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
    for (text, answer) in texts.iter().zip(feel_lines(&lines)) {
        assert_eq!(feel(text), answer);
    }
}

#[test]
fn a_column_of_a_table_is_read() {
    let table = b"\xef\xbb\xbfid,text\n1,\"I love it,\nall of it!\"\n2,\n3,I want to kill myself\n";
    let rows: Value = serde_json::from_str(&run(&["--csv", "text", "--format", "compact"], table).stdout).unwrap();
    let lines: Vec<&Value> = rows["rows"].as_array().unwrap().iter().map(|row| &row["line"]).collect();
    assert_eq!(lines, [2, 5], "{rows}");
    assert_eq!(
        (&rows["rows"][0]["reading"]["emotional_state"], &rows["rows"][0]["text"]),
        (&json!("love"), &json!("I love it,\nall of it!"))
    );
    let summary = run(&["--csv", "text", "--format", "summary"], table).stdout;
    assert!(summary.starts_with("These may be about harming oneself"), "{summary}");
    assert!(summary.contains("please read them first: line 5\n2: love, positive"), "{summary}");
    for (column, table, said) in
        [("note", &table[..], "there is no column `note`"), ("text", b"id,text\n1\n", "no CSV table")]
    {
        let refused = run(&["--csv", column], table);
        assert!(refused.status == 2 && refused.stderr.contains(said), "{}", refused.stderr);
    }
}
