//! What a single result is worth: a table of contracts, not of words.
//!
//! Quality is the mean of three parts, each 0 to 1: the share of the promised fields that are there; the share of the
//! checks against the input and of the result's parts against each other that hold; what the tool itself says of its
//! result. ken-workflow(5) has the table.

use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::answer::Answer;
use crate::protocol::{Kind, Protocol};

/// The quality of a result that was made from the line `input`; three digits.
pub(crate) fn of(protocol: &Protocol, input: &str, answer: &Answer) -> f64 {
    let parts = [
        completeness(protocol, answer),
        share(&checks(protocol.kind, input, answer)),
        own_validation(protocol.kind, answer).clamp(0.0, 1.0),
    ];
    rounded(parts.iter().sum::<f64>() / parts.len() as f64)
}

pub(crate) fn rounded(number: f64) -> f64 {
    (number * 1e3).round() / 1e3
}

fn completeness(protocol: &Protocol, answer: &Answer) -> f64 {
    let there: Vec<bool> = protocol
        .promises
        .iter()
        .map(|name| answer.field(name).is_some_and(|value| value != "null"))
        .collect();
    share(&there)
}

/// Whether each check of the contract holds.
fn checks(kind: Kind, input: &str, answer: &Answer) -> Vec<bool> {
    match kind {
        Kind::Esl => emotion(input, answer),
        Kind::Rep => reasoning(input, answer),
        Kind::Vvp => verification(input, answer),
        Kind::Laws => judgement(input, answer),
        Kind::Model => vec![
            answer
                .parse::<String>("text")
                .is_some_and(|text| !text.trim().is_empty()),
        ],
        Kind::Other => Vec::new(),
    }
}

fn own_validation(kind: Kind, answer: &Answer) -> f64 {
    match kind {
        Kind::Esl => answer.parse("confidence").unwrap_or_default(),
        Kind::Rep => match answer.parse::<Validation>("validation") {
            Some(validation) if validation.is_valid => validation.confidence_score,
            _ => 0.0,
        },
        Kind::Vvp => answer.parse("completeness").unwrap_or_default(),
        Kind::Model => match answer.parse::<&str>("stopReason") {
            Some("stop") => 1.0,
            Some("length") => 0.5,
            _ => 0.0,
        },
        // The scores of ken-laws are about the text, not about the judgement.
        Kind::Laws | Kind::Other => 1.0,
    }
}

#[derive(Deserialize)]
struct Validation {
    is_valid: bool,
    confidence_score: f64,
}

#[derive(Deserialize)]
struct Emotion<'a> {
    #[serde(borrow)]
    emotion: std::borrow::Cow<'a, str>,
    #[serde(default)]
    evidence: Vec<Span>,
}

#[derive(Deserialize)]
struct Span {
    start: usize,
    end: usize,
}

/// The state is the strongest emotion, and the evidence lies in the text.
fn emotion(input: &str, answer: &Answer) -> Vec<bool> {
    let length = length_of(input, "user_input");
    let Some(emotions) = answer.parse::<Vec<Emotion<'_>>>("detected_emotions") else {
        return vec![false; 2];
    };
    let state: Option<&str> = answer.parse("emotional_state");
    let strongest = emotions.first().map_or("neutral", |first| first.emotion.as_ref());
    let mut spans = emotions.iter().flat_map(|emotion| &emotion.evidence);
    vec![
        state == Some(strongest) || state == Some("neutral"),
        spans.all(|span| span.start <= span.end && span.end <= length),
    ]
}

/// As many confidences and proofs as conclusions, and the rules of the input.
fn reasoning(input: &str, answer: &Answer) -> Vec<bool> {
    #[derive(Deserialize)]
    struct Input<'a> {
        #[serde(borrow, default)]
        reasoning_type: Option<std::borrow::Cow<'a, str>>,
        #[serde(default)]
        rules: Vec<IgnoredAny>,
    }
    let Ok(given) = serde_json::from_str::<Input<'_>>(input) else {
        return vec![false];
    };
    let conclusions = count(answer, "conclusions");
    let kind = given.reasoning_type.as_deref().unwrap_or("deductive");
    vec![
        answer.parse::<&str>("reasoning_type") == Some(kind),
        conclusions.is_some() && conclusions == count(answer, "confidence_scores"),
        count(answer, "reasoning_chain")
            .is_some_and(|steps| kind != "deductive" || Some(steps) >= conclusions),
        count(answer, "rules") == Some(given.rules.len()),
    ]
}

/// Every rule of the input was looked at, and the status is what the issues say.
fn verification(input: &str, answer: &Answer) -> Vec<bool> {
    #[derive(Deserialize)]
    struct Input {
        rules: Vec<IgnoredAny>,
    }
    #[derive(Deserialize)]
    struct Issue<'a> {
        #[serde(borrow)]
        severity: std::borrow::Cow<'a, str>,
    }
    let total: Option<usize> = answer.parse("total_rules");
    let valid: Option<usize> = answer.parse("valid_rules");
    let given = serde_json::from_str::<Input>(input)
        .ok()
        .map(|input| input.rules.len());
    let issues: Option<Vec<Issue<'_>>> = answer.parse("issues");
    let has_errors = issues.map(|issues| issues.iter().any(|issue| issue.severity == "error"));
    vec![
        total.is_some() && total == given,
        valid.is_some() && valid <= total,
        answer
            .parse::<&str>("validation_status")
            .map(|status| status == "failure")
            == has_errors,
    ]
}

/// Percentages, a known status, and evidence that lies in the text.
fn judgement(input: &str, answer: &Answer) -> Vec<bool> {
    #[derive(Deserialize)]
    struct Scores {
        overall_compliance: f64,
    }
    let length = length_of(input, "text");
    let scores: Option<Scores> = answer.parse("scores");
    let evidence: Option<Vec<Span>> = answer.parse("evidence");
    vec![
        scores.is_some_and(|scores| (0.0..=100.0).contains(&scores.overall_compliance)),
        matches!(
            answer.parse("pass_fail_status"),
            Some("PASS" | "CONDITIONAL" | "FAIL")
        ),
        evidence.is_some_and(|evidence| {
            evidence
                .iter()
                .all(|span| span.start <= span.end && span.end <= length)
        }),
    ]
}

fn count(answer: &Answer, name: &str) -> Option<usize> {
    answer.parse::<Vec<IgnoredAny>>(name).map(|items| items.len())
}

/// The bytes of a text in an input line; nothing bounds the evidence when it is not there.
fn length_of(input: &str, name: &str) -> usize {
    let fields: Option<std::collections::HashMap<&str, &serde_json::value::RawValue>> =
        serde_json::from_str(input).ok();
    let raw = fields.as_ref().and_then(|fields| fields.get(name));
    let text: Option<String> = raw.and_then(|raw| serde_json::from_str(raw.get()).ok());
    text.map_or(usize::MAX, |text| text.len())
}

fn share(held: &[bool]) -> f64 {
    match held.len() {
        0 => 1.0,
        all => held.iter().filter(|held| **held).count() as f64 / all as f64,
    }
}
