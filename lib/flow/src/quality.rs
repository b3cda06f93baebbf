//! The quality of a single result.
//!
//! Quality is the product of three parts, each from 0 to 1: the share of the promised fields that are present; the share of the
//! consistency checks, against the input and within the result, that hold; and the tool's own validation of its result. It is
//! a product and not a mean, because a result that its own tool refutes must be able to fall below any threshold, however
//! complete it is. ken-workflow(5) has the table.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::answer::Answer;
use crate::protocol::{Kind, Protocol};

/// The quality of a result for the line `input`, rounded to three digits.
pub(crate) fn of(protocol: &Protocol, input: &str, answer: &Answer) -> f64 {
    let parts = [
        completeness(protocol, answer),
        share(&checks(protocol.kind, input, answer)),
        own_validation(protocol.kind, answer).clamp(0.0, 1.0),
    ];
    rounded(parts.iter().product())
}

pub(crate) fn rounded(number: f64) -> f64 {
    (number * 1e3).round() / 1e3
}

fn completeness(protocol: &Protocol, answer: &Answer) -> f64 {
    let there: Vec<bool> =
        protocol.promises.iter().map(|name| answer.field(name).is_some_and(|value| value != "null")).collect();
    share(&there)
}

/// Whether each check of the contract holds.
fn checks(kind: Kind, input: &str, answer: &Answer) -> Vec<bool> {
    match kind {
        Kind::Esl => emotion(input, answer),
        Kind::Rep => reasoning(input, answer),
        Kind::Vvp => verification(input, answer),
        Kind::Laws => judgement(input, answer),
        Kind::Model => vec![answer.parse::<String>("text").is_some_and(|text| !text.trim().is_empty())],
        Kind::Other => Vec::new(),
    }
}

fn own_validation(kind: Kind, answer: &Answer) -> f64 {
    match kind {
        // A neutral text is read correctly with little confidence, so confidence counts only half.
        Kind::Esl => (1.0 + answer.parse::<f64>("confidence").unwrap_or(-1.0)) / 2.0,
        Kind::Rep => match answer.parse::<Validation>("validation") {
            Some(validation) if validation.is_valid => validation.confidence_score,
            _ => 0.0,
        },
        Kind::Vvp => match answer.parse("validation_status") {
            Some("success") => answer.parse("completeness").unwrap_or_default(),
            _ => 0.0,
        },
        Kind::Model => match answer.parse::<&str>("stopReason") {
            Some("stop") => 1.0,
            Some("length") => 0.5,
            _ => 0.0,
        },
        Kind::Laws => validated_text(answer),
        Kind::Other => 1.0,
    }
}

/// What ken-laws says of the text, which is the result of an earlier step. Each sentence that a source contradicts divides
/// the value once more.
fn validated_text(answer: &Answer) -> f64 {
    #[derive(Deserialize)]
    struct Evidence<'a> {
        #[serde(borrow)]
        kind: Cow<'a, str>,
    }
    let status = match answer.parse("pass_fail_status") {
        Some("PASS") => 1.0,
        Some("CONDITIONAL") => 0.8,
        _ => 0.4,
    };
    let evidence: Vec<Evidence<'_>> = answer.parse("evidence").unwrap_or_default();
    let contradicted = evidence.iter().filter(|evidence| evidence.kind == "contradicted").count();
    status / (1 + contradicted) as f64
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

/// The state is the strongest emotion, and the evidence lies within the text.
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

/// Each conclusion has a confidence and a proof, and the rules are those of the input.
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
    let confidences: Option<BTreeMap<Cow<'_, str>, f64>> = answer.parse("confidence_scores");
    let kind = given.reasoning_type.as_deref().unwrap_or("deductive");
    vec![
        answer.parse::<&str>("reasoning_type") == Some(kind),
        conclusions.is_some() && conclusions == confidences.map(|scores| scores.len()),
        count(answer, "reasoning_chain").is_some_and(|steps| kind != "deductive" || Some(steps) >= conclusions),
        count(answer, "rules") == Some(given.rules.len()),
    ]
}

/// Every rule of the input was checked, and the status matches the issues.
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
    let given = serde_json::from_str::<Input>(input).ok().map(|input| input.rules.len());
    let issues: Option<Vec<Issue<'_>>> = answer.parse("issues");
    let has_errors = issues.map(|issues| issues.iter().any(|issue| issue.severity == "error"));
    vec![
        total.is_some() && total == given,
        valid.is_some() && valid <= total,
        answer.parse::<&str>("validation_status").map(|status| status == "failure") == has_errors,
    ]
}

/// The score is a percentage, the status is known, and the evidence lies within the text.
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
        matches!(answer.parse("pass_fail_status"), Some("PASS" | "CONDITIONAL" | "FAIL")),
        evidence.is_some_and(|evidence| evidence.iter().all(|span| span.start <= span.end && span.end <= length)),
    ]
}

fn count(answer: &Answer, name: &str) -> Option<usize> {
    answer.parse::<Vec<IgnoredAny>>(name).map(|items| items.len())
}

/// The length of a text field in bytes; the maximum when the field is missing, so that evidence is not checked.
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

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::protocol::Protocols;

    fn quality(protocol: &str, input: &Value, answer: &Value) -> f64 {
        let protocols = Protocols::shipped();
        let answer = Answer::read(answer.to_string()).unwrap();
        of(protocols.find(protocol).unwrap(), &input.to_string(), &answer)
    }

    /// Expects the quality `whole` for an answer, and for each change of a single field the given lower quality.
    #[track_caller]
    fn falls(protocol: &str, input: &Value, answer: &Value, whole: f64, changes: &[(&str, Value, f64)]) {
        assert_eq!(quality(protocol, input, answer), whole, "{answer}");
        for (field, value, expected) in changes {
            let mut changed = answer.clone();
            changed[*field] = value.clone();
            assert_eq!(quality(protocol, input, &changed), *expected, "{field}: {value}");
        }
    }

    #[test]
    fn reasoning() {
        let input = json!({"facts": ["a"], "rules": [[["a"], "b"]]});
        let answer = json!({
            "reasoning_type": "deductive", "conclusions": ["b"], "confidence_scores": {"b": 1.0},
            "reasoning_chain": [{}], "explanation": "", "facts": ["a"], "rules": [[["a"], "b"]],
            "validation": {"is_valid": true, "issues": [], "confidence_score": 1.0}
        });
        let unsure = json!({"is_valid": true, "confidence_score": 0.4});
        let invalid = json!({"is_valid": false, "confidence_score": 1.0});
        falls(
            "REP",
            &input,
            &answer,
            1.0,
            &[
                ("explanation", Value::Null, 0.875),     // 7 of 8 fields
                ("conclusions", json!(["b", "c"]), 0.5), // neither as many confidences nor as many steps
                ("confidence_scores", json!([1.0]), 0.75),
                ("reasoning_type", json!("causal"), 0.75),
                ("rules", json!([]), 0.75),
                ("validation", unsure, 0.4),
                ("validation", invalid, 0.0),
            ],
        );
    }

    #[test]
    fn emotion() {
        let input = json!({"user_input": "Great!"});
        let joy = |end: usize| json!([{"emotion": "joy", "evidence": [{"start": 0, "end": end}]}]);
        let answer = json!({
            "emotional_state": "joy", "valence": "positive", "intensity": 0.5, "confidence": 0.7, "detected_emotions": joy(5),
            "salience": 0.1, "valence_score": 0.5, "contextual_factors": {}, "explanation": ""
        });
        falls(
            "ESL",
            &input,
            &answer,
            0.85,
            &[
                ("detected_emotions", joy(7), 0.425),
                ("emotional_state", json!("anger"), 0.425),
                ("confidence", json!(0.1), 0.55),
                ("confidence", Value::Null, 0.0),
            ],
        );
    }

    #[test]
    fn verification() {
        let input = json!({"rules": [[["a"], "b"], [["b"], "c"]]});
        let answer = json!({
            "validation_status": "success", "reason": "", "issues": [], "warnings": [],
            "total_rules": 2, "valid_rules": 2, "conflicts": [], "completeness": 1.0
        });
        falls(
            "VVP",
            &input,
            &answer,
            1.0,
            &[
                ("total_rules", json!(3), 0.667),
                ("valid_rules", json!(5), 0.667),
                ("completeness", json!(0.5), 0.5),
                ("validation_status", json!("failure"), 0.0), // a proven conflict or a malformed rule
            ],
        );
    }

    #[test]
    fn judgement_and_model() {
        let answer = json!({
            "scores": {"overall_compliance": 71.5}, "pass_fail_status": "PASS", "violations": [], "recommendations": [],
            "strengths": [], "evidence": [{"kind": "source", "start": 0, "end": 4}]
        });
        let contradicted = json!([{"kind": "contradicted", "start": 0, "end": 4}]);
        falls(
            "LAWS",
            &json!({"text": "Text."}),
            &answer,
            1.0,
            &[
                ("pass_fail_status", json!("CONDITIONAL"), 0.8),
                ("pass_fail_status", json!("FAIL"), 0.4),
                ("pass_fail_status", json!("MAYBE"), 0.267),
                ("evidence", contradicted, 0.5),
                ("evidence", json!([{"kind": "source", "start": 3, "end": 9}]), 0.667),
                ("scores", json!({"overall_compliance": 101}), 0.667),
            ],
        );
        let answer = json!({"text": "Yes.", "model": {}, "usage": {}, "stopReason": "stop"});
        falls(
            "MODEL",
            &json!({}),
            &answer,
            1.0,
            &[("text", json!(" "), 0.0), ("stopReason", json!("length"), 0.5), ("stopReason", json!("error"), 0.0)],
        );
    }
}
