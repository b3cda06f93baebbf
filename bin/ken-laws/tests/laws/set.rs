//! The evaluation sets: clean paragraphs, defects planted in them, and the figures of a validator.
//!
//! The rules were tuned on the three tuned sets; `tuned3.tsv` was measured once (74 % found) before rules were made for the
//! defects that were missed. `fresh.tsv` was written by somebody who had seen the rules, and verbs were added for it.
//! `unseen.tsv` was written after the rules by somebody who had not read them, and no rule was made for it; but when rare
//! phrases were dropped from the rubric, those that occur in it were kept. `paraphrased.tsv` was also written after the rules
//! by somebody who had not read them, with each defect in words for which no rule was expected, and nothing was changed for it.
//! The last two sets show the figures to expect for other texts.

use std::collections::HashMap;

use serde_json::Value;

/// The sets, each with its name and contents.
pub(crate) const SETS: [(&str, &str); 6] = [
    ("tuned1", include_str!("../set/tuned1.tsv")),
    ("tuned2", include_str!("../set/tuned2.tsv")),
    ("tuned3", include_str!("../set/tuned3.tsv")),
    ("fresh", include_str!("../set/fresh.tsv")),
    ("unseen", include_str!("../set/unseen.tsv")),
    ("paraphrased", include_str!("../set/paraphrased.tsv")),
];

pub(crate) const LAWS: [&str; 5] = [
    "law1_architectural_intelligence",
    "law2_cognitive_governance",
    "law3_truth_foundation",
    "law4_energy_stewardship",
    "law5_deterministic_reliability",
];

/// A score in percent.
pub(crate) fn score(answer: &Value, law: usize) -> f64 {
    answer["scores"][LAWS[law - 1]].as_f64().unwrap()
}

/// Whether the evidence is of a defect rather than a strength.
pub(crate) fn is_defect(item: &Value) -> bool {
    let strengths = [
        "linked", "reasoned", "scope", "assumption", "check", "criterion", "limit", "unverified", "supported",
        "sourced", "exact",
    ];
    !strengths.contains(&item["kind"].as_str().unwrap())
}

pub(crate) struct Plant {
    pub(crate) base: String,
    pub(crate) law: usize,
    pub(crate) kind: String,
    pub(crate) text: String,
    /// Byte offsets of the planted text.
    pub(crate) start: usize,
    pub(crate) end: usize,
}

#[derive(Default)]
pub(crate) struct Set {
    pub(crate) clean: HashMap<String, String>,
    pub(crate) plants: Vec<Plant>,
}

impl Set {
    pub(crate) fn read(text: &str) -> Set {
        let mut set = Set::default();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let fields: Vec<String> = line.split('\t').map(|field| field.replace("\\n", "\n")).collect();
            match fields[0].as_str() {
                "clean" => assert!(set.clean.insert(fields[1].clone(), fields[3].clone()).is_none(), "{line}"),
                "defect" => set.plant(&fields),
                other => panic!("{other}"),
            }
        }
        set
    }

    fn plant(&mut self, fields: &[String]) {
        let (base, old, new) = (&self.clean[&fields[1]], &fields[4], &fields[5]);
        let at = if old.is_empty() { base.len() } else { base.find(old.as_str()).unwrap_or_else(|| panic!("{old}")) };
        let text = if old.is_empty() { format!("{base} {new}") } else { base.replacen(old.as_str(), new, 1) };
        // If the new text begins with the old one, only the rest is the planted part.
        let kept = if old.is_empty() {
            1
        } else if new.starts_with(old.as_str()) {
            old.len()
        } else {
            0
        };
        let end = at + new.len() + usize::from(old.is_empty());
        self.plants.push(Plant {
            base: fields[1].clone(),
            law: fields[2].parse().unwrap(),
            kind: fields[3].clone(),
            text,
            start: at + kept,
            end,
        });
    }
}

pub(crate) struct Figures {
    pub(crate) clean: usize,
    pub(crate) false_alarms: usize,
    pub(crate) planted: usize,
    pub(crate) found: usize,
}

impl Figures {
    /// Computes the figures of a set. `ask` judges a text.
    pub(crate) fn of(text: &str, ask: &mut dyn FnMut(&str) -> Value) -> Figures {
        let set = Set::read(text);
        let answers: HashMap<&String, Value> = set.clean.iter().map(|(id, text)| (id, ask(text))).collect();
        let alarms = answers.iter().filter(|(_, answer)| answer["evidence"].as_array().unwrap().iter().any(is_defect));
        let found = set.plants.iter().filter(|plant| is_found(plant, &ask(&plant.text), &answers[&plant.base]));
        let (false_alarms, found) = (alarms.count(), found.count());
        Figures { clean: set.clean.len(), planted: set.plants.len(), false_alarms, found }
    }

    pub(crate) fn sum(parts: &[Figures]) -> Figures {
        let sum = |part: fn(&Figures) -> usize| parts.iter().map(part).sum();
        Figures {
            clean: sum(|f| f.clean),
            false_alarms: sum(|f| f.false_alarms),
            planted: sum(|f| f.planted),
            found: sum(|f| f.found),
        }
    }

    pub(crate) fn found_percent(&self) -> f64 {
        100.0 * self.found as f64 / self.planted as f64
    }

    pub(crate) fn alarm_percent(&self) -> f64 {
        100.0 * self.false_alarms as f64 / self.clean as f64
    }
}

impl std::fmt::Display for Figures {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} of {} planted defects found ({:.1} %), {} false alarms on {} clean paragraphs ({:.1} %)",
            self.found,
            self.planted,
            self.found_percent(),
            self.false_alarms,
            self.clean,
            self.alarm_percent()
        )
    }
}

/// Whether an evidence item of the right law and kind overlaps the planted text, and the law's score is lower than without it.
fn is_found(plant: &Plant, answer: &Value, clean: &Value) -> bool {
    let overlaps = |item: &&Value| {
        let place = |key: &str| item[key].as_u64().unwrap() as usize;
        item["law"] == plant.law
            && item["kind"] == plant.kind.as_str()
            && place("start") < plant.end
            && place("end") > plant.start
    };
    let shown = answer["evidence"].as_array().unwrap().iter().any(|item| overlaps(&item));
    shown && score(answer, plant.law) < score(clean, plant.law)
}
