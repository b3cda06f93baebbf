//! Defects planted in clean paragraphs are found, clean paragraphs are left alone, and points add up.

use crate::program::CoProcess;
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

/// A defect that is missed can look like a strength ("The limit was taken because it seemed right") and thereby raise the
/// score. This test counts such cases.
#[test]
fn a_planted_defect_raises_the_score_of_its_law_in_two_cases() {
    let mut program = CoProcess::start(&[]);
    let mut raised = Vec::new();
    for set in SETS.map(|(_, text)| Set::read(text)) {
        for plant in &set.plants {
            let mut points = |text: &str| score(&program.ask(text), plant.law);
            if points(&plant.text) > points(&set.clean[&plant.base]) {
                raised.push(plant.text.clone());
            }
        }
    }
    assert_eq!(raised.len(), 2, "{raised:#?}");
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
