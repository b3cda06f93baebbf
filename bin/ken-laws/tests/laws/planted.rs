//! Defects planted in clean paragraphs are found, clean paragraphs are left alone, and points add up.

use serde_json::Value;

use crate::program::{CoProcess, defects};
use crate::set::{Figures, Plant, SETS, Set, score};

#[test]
fn planted_defects_are_found_and_correct_text_has_no_findings() {
    let mut program = CoProcess::start(&[]);
    let figures = SETS.map(|(_, text)| Figures::of(text, &mut |text| program.ask(text)));
    for ((name, _), figures) in SETS.iter().zip(&figures) {
        println!("{name}: {figures}");
    }
    let all = Figures::sum(&figures);
    println!("all: {all}");
    assert!(all.clean >= 100 && all.clean + all.planted >= 200);
    assert!(all.found_percent() >= 75.0 && all.alarm_percent() <= 5.0, "{all}");
    let [.., unseen, paraphrased] = &figures;
    assert!(unseen.found_percent() >= 60.0, "{unseen}");
    assert_eq!((paraphrased.false_alarms, paraphrased.clean), (0, 20));
}

/// This holds for the defects that are missed too: none of them looks like a strength.
#[test]
fn no_planted_defect_raises_the_score_of_its_law() {
    let mut program = CoProcess::start(&[]);
    for set in SETS.map(|(_, text)| Set::read(text)) {
        for plant in &set.plants {
            let mut points = |text: &str| score(&program.ask(text), plant.law);
            let (clean, planted) = (points(&set.clean[&plant.base]), points(&plant.text));
            assert!(planted <= clean, "law {} rises from {clean} to {planted}: {}", plant.law, plant.text);
        }
    }
}

/// A decision that rests on a feeling or a belief shows no criterion, limit or check, in whatever words it mentions one.
#[test]
fn a_reason_that_is_only_an_opinion_earns_nothing() {
    let base = "The hall seats 300 people. The stage was built in 1962. It is swept on Mondays.";
    let mut program = CoProcess::start(&[]);
    let clean = program.ask(base);
    for decision in [
        "The threshold of 40 points was kept because it felt about right.",
        "The criterion was dropped because nobody on the board liked it.",
        "We checked only the first row because we believe that the rest is fine.",
        "The offer applies to members, since that sounded fair.",
        "A limit of two guests was chosen because of a hunch.",
    ] {
        let planted = program.ask(&format!("{base} {decision}"));
        assert!(score(&planted, 2) <= score(&clean, 2), "{decision}: {planted}");
        let kinds: Vec<&Value> = planted["evidence"].as_array().unwrap().iter().map(|item| &item["kind"]).collect();
        assert!(!kinds.iter().any(|kind| *kind == "reasoned"), "{decision}: {kinds:?}");
    }
}

/// The plural after a number or a quantity is no verb.
#[test]
fn things_that_are_only_counted_are_a_fragment() {
    let base = "The barn was emptied in May. It stands behind the mill. Its roof leaks near the ridge.";
    let mut program = CoProcess::start(&[]);
    let clean = score(&program.ask(base), 1);
    for fragment in [
        "Seven letters between brothers, cousins and aunts.",
        "Nine crates under wet tarps by the mill.",
        "Several pumps with handles of brass and oak.",
        "Thirty pages about canals, barges and tolls.",
        "Some tiles from the roof of the barn.",
    ] {
        let answer = program.ask(&format!("{base} {fragment}"));
        assert!(score(&answer, 1) < clean, "{fragment}: {answer}");
        assert_eq!(defects(&answer), ["fragment"], "{fragment}");
    }
    for sentence in
        ["Twelve barked all night.", "Gauge three shows the pressure.", "Several left early.", "One stops at the mill."]
    {
        assert!(!defects(&program.ask(&format!("{base} {sentence}"))).contains(&"fragment".to_owned()), "{sentence}");
    }
}

#[test]
fn every_law_has_twenty_planted_defects_or_more() {
    let plants: Vec<Plant> = SETS.into_iter().flat_map(|(_, text)| Set::read(text).plants).collect();
    for law in 1..=5 {
        assert!(plants.iter().filter(|plant| plant.law == law).count() >= 20, "law {law}");
    }
}

/// The score of a law is its base plus the effects of all evidence.
#[test]
fn effects_add_up_to_the_scores() {
    let base = [80.0, 75.0, 70.0, 100.0, 80.0];
    let mut program = CoProcess::start(&[]);
    for plant in SETS.into_iter().flat_map(|(_, text)| Set::read(text).plants) {
        let answer = program.ask(&plant.text);
        for law in 1..=5 {
            let items = answer["evidence"].as_array().unwrap().iter().filter(|item| item["law"] == law);
            let sum: f64 = items.map(|item| item["effect"].as_f64().unwrap()).sum();
            let expected = (base[law - 1] + sum).clamp(0.0, 100.0);
            assert!((score(&answer, law) - expected).abs() < 0.05, "law {law} of {}: {answer}", plant.text);
        }
    }
}
