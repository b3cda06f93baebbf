//! Properties that hold for every text: no panic, spans on character boundaries, scores in range, equal output for equal
//! input, and no gain by a defect.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use serde_json::Value;

use crate::program::CoProcess;
use crate::set::{SETS, Set, is_defect, score};

/// Sentences without defects, each about a different topic.
const SOUND: &[&str] = &[
    "The pump was replaced on 4 March 2024 because its bearing had worn through.",
    "Its design load is 40 kN per axle, as set by the load survey.",
    "We checked the reading against a second gauge.",
    "The trial followed 412 adults for 18 months.",
    "Revenue in the second quarter was 4.1 million euros.",
    "If the alarm sounds, close the main tap and call the ward.",
    "Letters between the sisters cover the years 1841 to 1869.",
    "The test misses about 4 of 100 infected people.",
    "She wrote \"it never fails\" in the margin.",
    "The figures go to the auditor by Friday.",
    "This policy covers laptops that the company owns.",
    "Costs were unchanged.",
    "Rain has not been measured.",
];

/// A placeholder for a repetition of the first sentence at the end of the text.
const REPEAT: &str = "(the first sentence)";

/// Defects with their law. Each is found in any surrounding text.
const DEFECTS: &[(usize, &str)] = &[
    (1, "Because of the report."),
    (1, "The lamp is dark because the lamp is dark."),
    (1, "There are four reasons: cost and noise."),
    (2, "Trust me on this point."),
    (2, "There is no need to test the brake."),
    (2, "Nothing can go wrong with the brake."),
    (2, "The colour was chosen on gut feeling."),
    (3, "It is a proven fact that cats fly."),
    (3, "The brake always works."),
    (3, "Experts agree that the brake is red."),
    (3, "It is the best brake on the market."),
    (3, "The brake might possibly squeak."),
    (3, "The brake is red. The brake is not red."),
    (4, "It is important to note that brakes wear."),
    (4, "The end result was a longer brake path."),
    (4, "The brake is is worn."),
    (4, "The brake really quite simply wears."),
    (4, REPEAT),
    (4, "Verified, tested, measured, proven, sourced, reviewed, checked."),
    (5, "Turn the brake screw several times."),
    (5, "The ZQXB holds the brake."),
    (5, "The brake path is 12 m. The brake path is 15 m."),
    (5, "Turn the screw or something."),
    (5, "Keep the temperature below 40."),
];

thread_local! {
    static PROGRAM: RefCell<CoProcess> = RefCell::new(CoProcess::start(&[]));
}

/// The number of cases is the variable PROPTEST_CASES, or else 256. No file of failed cases is written: a failed case is to
/// be added to the test.
fn runner() -> TestRunner {
    TestRunner::new(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })
}

fn ask(text: &str) -> Option<Value> {
    if text.trim().is_empty() {
        return None;
    }
    Some(PROGRAM.with_borrow_mut(|program| program.ask(text)))
}

fn check(text: &str) {
    let Some(answer) = ask(text) else { return };
    if answer.get("error").is_some() {
        assert!(text.contains('\0'), "only NUL is refused: {answer}");
        return;
    }
    for item in answer["evidence"].as_array().unwrap() {
        let (start, end) = (item["start"].as_u64().unwrap() as usize, item["end"].as_u64().unwrap() as usize);
        assert_eq!(text.get(start..end), item["text"].as_str(), "{item} of {text:?}");
        assert!(start < end, "{item} of {text:?}");
    }
    for value in answer["scores"].as_object().unwrap().values() {
        let tenths = value.as_f64().unwrap() * 10.0;
        assert!((0.0..=1000.0).contains(&tenths) && (tenths - tenths.round()).abs() < 1e-6, "{value}");
    }
    let again = PROGRAM.with_borrow_mut(|program| program.ask(text));
    assert_eq!(answer, again, "equal input, equal answer: {text:?}");
}

/// Text made of words that the rubric knows, punctuation and unusual characters.
fn odd_text() -> impl Strategy<Value = String> {
    let words = "the a not never always because of is was it no need to test trust me per 3 4.5 1,000 10:30 % °C bar °F first second third : ; , . ! ? … \" “ ” ‘ ’ ` ``` - – \n \n\n 1. 2) - # | ( ) [ ] isn't it's don’t NASA XQZT ß é 日本 🙂 \u{301} \u{200d} http://a.b very really verified tested checked some between and or but so if";
    let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
    let glue = prop::sample::select(vec![" ", "", " ", "\n"]);
    prop::collection::vec((prop::sample::select(words), glue), 0..60)
        .prop_map(|parts| parts.into_iter().map(|(word, glue)| word + glue).collect())
}

fn sentences() -> impl Strategy<Value = Vec<&'static str>> {
    let any: Vec<&str> =
        SOUND.iter().copied().chain(DEFECTS.iter().map(|(_, text)| *text)).filter(|text| *text != REPEAT).collect();
    prop::collection::vec(prop::sample::select(any), 1..8)
}

#[test]
fn never_panics_and_spans_are_of_the_text() {
    runner()
        .run(&odd_text(), |text| {
            check(&text);
            Ok(())
        })
        .unwrap();
    runner()
        .run(&"\\PC{0,200}", |text| {
            check(&text);
            Ok(())
        })
        .unwrap();
}

/// One more defect never raises the score of its law, even if the text has defects already.
#[test]
fn planting_a_defect_never_raises_its_law() {
    let planted = (sentences(), prop::sample::select(DEFECTS), any::<prop::sample::Index>());
    runner()
        .run(&planted, |(mut base, (law, defect), at)| {
            base.insert(0, SOUND[0]);
            let mut with = base.clone();
            match defect {
                REPEAT => with.push(base[0]),
                defect => with.insert(at.index(base.len() + 1), defect),
            }
            let (before, after) = (base.join(" "), with.join(" "));
            let (before_score, after_score) = (score(&ask(&before).unwrap(), law), score(&ask(&after).unwrap(), law));
            prop_assert!(
                after_score <= before_score,
                "law {} rose from {} to {} by {:?} in {:?}",
                law,
                before_score,
                after_score,
                defect,
                before
            );
            Ok(())
        })
        .unwrap();
}

/// A word of a phrase: the words that it stands for, and whether it can be absent.
type Element = (Vec<String>, bool);

/// The phrases of `share/laws` that show a defect, each with its law.
fn phrases() -> Vec<(usize, Vec<Element>)> {
    const FEATURES: &str = include_str!("../../../../share/laws/features.txt");
    const CLASSES: &str = include_str!("../../../../share/laws/classes.txt");
    const PHRASES: &str = include_str!("../../../../share/laws/phrases.txt");
    let class = |name: &str| {
        let line = CLASSES.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')).unwrap();
        line.split(' ').map(|word| word.split('=').next().unwrap().to_owned()).collect()
    };
    let element = |text: &str| {
        let (text, optional) = text.strip_suffix('?').map_or((text, false), |text| (text, true));
        let name = text.strip_prefix('{').and_then(|name| name.strip_suffix('}'));
        let words = match text.trim_end_matches('~') {
            "_" => ["pump", "new", "whole"].map(str::to_owned).to_vec(),
            word => name.map_or_else(|| vec![word.to_owned()], class),
        };
        (words, optional)
    };
    let rows = PHRASES.lines().filter(|line| !line.starts_with('#')).filter_map(|line| {
        let [law, kind, phrase] = line.splitn(3, ' ').collect::<Vec<_>>().try_into().unwrap();
        let is_violation = FEATURES.lines().any(|line| line.starts_with(&format!("{law} {kind} violation")));
        is_violation.then(|| (law.parse().unwrap(), phrase.split(' ').map(element).collect()))
    });
    rows.collect()
}

/// Sentences for a phrase. None of them has a number, date or source, which would excuse some phrases.
const FRAMES: [&str; 7] = [
    "{}.",
    "The plan says that {}.",
    "In the yard {} as before.",
    "Turn the screw {}.",
    "The lamp was moved, because {}.",
    "We checked the lamp, and {} at the limit.",
    "The cost rose {}!",
];

/// A phrase in a sentence, with its law.
fn planted_phrase() -> impl Strategy<Value = (usize, String)> {
    let choices = prop::collection::vec((any::<prop::sample::Index>(), any::<bool>()), 10);
    (prop::sample::select(phrases()), prop::sample::select(&FRAMES[..]), choices).prop_map(
        |((law, elements), frame, choices)| {
            let chosen = elements.iter().zip(choices).filter(|((_, optional), (_, present))| !optional || *present);
            let words: Vec<&str> = chosen.map(|((words, _), (index, _))| index.get(words).as_str()).collect();
            let sentence = frame.replace("{}", &words.join(" "));
            let (first, rest) = sentence.split_at(1);
            (law, first.to_uppercase() + rest)
        },
    )
}

/// A phrase that the rubric knows never raises the score of its law, between the sentences of a clean text or in place of one.
#[test]
fn planting_a_phrase_in_a_clean_text_never_raises_its_law() {
    let texts: Vec<String> = SETS.into_iter().flat_map(|(_, text)| Set::read(text).clean.into_values()).collect();
    let planted = (prop::sample::select(texts), planted_phrase(), any::<prop::sample::Index>(), any::<bool>());
    runner()
        .run(&planted, |(text, (law, sentence), at, replaces)| {
            let spans: Vec<_> = ken_text::sentences(&text).map(|sentence| sentence.span).collect();
            let span = at.get(&spans);
            let after = if replaces { text[span.end..].to_owned() } else { format!(" {}", &text[span.start..]) };
            let with = format!("{}{sentence}{after}", &text[..span.start]);
            let (before, now) = (ask(&text).unwrap(), ask(&with).unwrap());
            let has_defect = |answer: &Value| {
                let mut items = answer["evidence"].as_array().unwrap().iter();
                items.any(|item| is_defect(item) && item["law"] == law)
            };
            // A sentence that is no defect where it stands, or that takes the place of a defect, can be an improvement.
            if replaces && (has_defect(&before) || !has_defect(&now)) {
                return Ok(());
            }
            prop_assert!(
                score(&now, law) <= score(&before, law),
                "law {} rose from {} to {} by {:?} in {:?}",
                law,
                score(&before, law),
                score(&now, law),
                sentence,
                with
            );
            Ok(())
        })
        .unwrap();
}

/// A sentence that only repeats a marker phrase raises no score.
#[test]
fn repeating_a_marker_gains_nothing() {
    let markers = prop::sample::select(vec![
        "verified", "tested", "evidence", "scope", "proven", "according to", "because", "assumption", "criteria",
        "measured", "sourced",
    ]);
    runner()
        .run(&(sentences(), markers, 2..12usize), |(base, marker, times)| {
            let text = base.join(" ");
            let row = vec![marker; times].join(", ");
            let (before, after) = (ask(&text).unwrap(), ask(&format!("{text} {row}.")).unwrap());
            for law in 1..=5 {
                prop_assert!(
                    score(&after, law) <= score(&before, law),
                    "law {} rose by {:?} after {:?}",
                    law,
                    row,
                    text
                );
            }
            Ok(())
        })
        .unwrap();
}

/// Runs for the number of seconds in KEN_FUZZ_SECONDS: `KEN_FUZZ_SECONDS=600 cargo test -p ken-laws -- --ignored`.
#[test]
#[ignore = "runs for minutes"]
fn long_run() {
    let seconds = std::env::var("KEN_FUZZ_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(600);
    let end = Instant::now() + Duration::from_secs(seconds);
    let texts = prop_oneof![odd_text(), "\\PC{0,400}", sentences().prop_map(|parts| parts.join(" ")), "[ -~\n]{0,400}"];
    let mut cases = 0u64;
    while Instant::now() < end {
        let mut round = runner(); // with a new seed each time
        round
            .run(&texts, |text| {
                check(&text);
                Ok(())
            })
            .unwrap();
        cases += u64::from(round.config().cases);
    }
    println!("{cases} texts, none refused, no panic");
}
