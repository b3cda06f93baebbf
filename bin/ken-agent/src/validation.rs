//! Validates an answer: by comparison with its sources in this process, and by the laws with the tool `judge_text`.

use std::collections::{BTreeMap, HashSet};

use ken_support::{Kind, Support, Supported};
use ken_text::head;
use ken_types::event::{Body, JudgeUse, Judgement, SupportedSentence};
use ken_types::rule::Law;
use serde_json::{Value, json};

use crate::governance::Requirement;
use crate::ports::{Caller, Ports, RequestedCall};
use crate::turn_state::Call;

/// The name of the tool that judges a text by the laws.
const JUDGE_TOOL: &str = "judge_text";
/// The maximum number of violations that a model is told.
const MAX_VIOLATIONS: usize = 20;

/// The maximum number of sentences of which an event says how they are supported, and of bytes of each passage. Every answer with
/// sources is stored with them.
const MAX_SENTENCES: usize = 40;
const MAX_PASSAGE_BYTES: usize = 200;

/// The comparison of an answer with its sources.
pub(crate) struct Review {
    pub(crate) support: Support,
    /// The model that judged the sentences, if one did.
    pub(crate) judge: Option<Box<JudgeUse>>,
}

/// Validates an answer by its comparison with its sources, each an id and a text. Only a contradiction is a violation,
/// because an answer may say more than its sources.
pub(crate) fn by_sources(text: &str, evidence: &[(String, String)], review: Review) -> Body {
    let violations = contradictions(text, evidence, &review.support);
    let sentences = sentences(evidence, &review.support);
    judged(violations, Value::Null, Some(review.support.score), review.judge, sentences)
}

/// Returns how the sources support each of the first sentences of an answer.
fn sentences(evidence: &[(String, String)], support: &Support) -> Vec<SupportedSentence> {
    if evidence.is_empty() {
        return Vec::new();
    }
    let sentences = support.sentences.iter().take(MAX_SENTENCES).map(|sentence| {
        let found = sentence.passage.and_then(|passage| Some((evidence.get(passage.source)?, passage.span)));
        SupportedSentence {
            start: sentence.span.start,
            end: sentence.span.end,
            support: rounded(sentence.score),
            contradicted: is_contradicted(sentence),
            source: found.map(|((id, _), _)| id.clone()),
            passage: found.map(|((_, text), span)| head(span.of(text).trim(), MAX_PASSAGE_BYTES).to_owned()),
        }
    });
    sentences.collect()
}

fn rounded(score: f64) -> f64 {
    (score * 1_000.0).round() / 1_000.0
}

/// Returns a violation for each sentence that a source contradicts.
fn contradictions(text: &str, evidence: &[(String, String)], support: &Support) -> Vec<String> {
    let contradicted = support.sentences.iter().filter(|sentence| is_contradicted(sentence));
    let violations = contradicted.take(MAX_VIOLATIONS).map(|sentence| {
        let source = sentence.passage.and_then(|passage| evidence.get(passage.source));
        let id = source.map_or("a source", |(id, _)| id.as_str());
        format!("{id} contradicts: “{}”", sentence.span.of(text).trim())
    });
    violations.collect()
}

fn is_contradicted(sentence: &Supported) -> bool {
    sentence.findings.iter().any(|finding| finding.kind == Kind::Contradicted)
}

/// The text between the name of the rule that requires validation and the reason why the answer could not be validated.
pub(crate) const NOT_JUDGED: &str = " wants the answer judged, and it could not be: ";

/// Validates an answer by the laws and its sources, and by the minimum scores of the rule. Fails with the reason if the
/// answer could not be validated.
pub(crate) async fn by_laws(
    ports: &Ports,
    caller: &Caller,
    text: &str,
    evidence: &[(String, String)],
    review: Review,
    requirement: &Requirement<BTreeMap<Law, f64>>,
) -> Result<Body, String> {
    let sources =
        evidence.iter().filter(|(_, text)| !text.trim().is_empty()).map(|(id, text)| json!({"id": id, "text": text}));
    let sources: Vec<Value> = sources.collect();
    let arguments = if sources.is_empty() { json!({"text": text}) } else { json!({"text": text, "sources": sources}) };
    let requested =
        RequestedCall { caller: caller.clone(), call: Call::internal(JUDGE_TOOL, arguments), ask: false, events: None };
    let judgement = ports.tools.call(requested, None).await?.details;
    let scores = judgement.get("scores").cloned().unwrap_or_default();
    let status = judgement.get("pass_fail_status").and_then(Value::as_str);
    let status = status.ok_or("its judgement has no status")?;
    let mut violations: Vec<String> = Vec::new();
    if status == "FAIL" {
        violations.extend(texts(judgement.get("violations")));
    }
    for (law, min) in &requirement.value {
        let score = scores.get(law.name()).and_then(Value::as_f64);
        let score = score.ok_or_else(|| format!("its judgement has no {}", law.name()))?;
        if score < *min {
            violations.push(format!("{} is {score}, the rule {} wants {min}", law.name(), requirement.rule));
            violations.extend(texts(judgement.get("recommendations")));
        }
    }
    // The tool cannot ask the judge, because its sandbox reaches no model.
    match &review.judge {
        Some(_) => violations.extend(contradictions(text, evidence, &review.support)),
        None => violations.extend(contradicted(&judgement)),
    }
    let mut seen = HashSet::new();
    violations.retain(|violation| seen.insert(violation.clone()));
    if violations.is_empty() && status == "FAIL" {
        violations.push("It does not pass the laws.".to_owned());
    }
    violations.truncate(MAX_VIOLATIONS);
    let support = match &review.judge {
        Some(_) => Some(review.support.score),
        None => judgement.pointer("/support/score").and_then(Value::as_f64),
    };
    let sentences = sentences(evidence, &review.support);
    Ok(judged(violations, scores, support, review.judge, sentences))
}

/// Returns the statements of the answer that a source contradicts.
fn contradicted(judgement: &Value) -> Vec<String> {
    let evidence = judgement.get("evidence").and_then(Value::as_array);
    let of_kind = |found: &&Value| found.get("kind").and_then(Value::as_str) == Some("contradicted");
    let places = evidence.into_iter().flatten().filter(of_kind);
    let texts = places.filter_map(|found| found.get("text").and_then(Value::as_str));
    texts.map(|text| format!("A source contradicts: “{text}”")).collect()
}

fn texts(list: Option<&Value>) -> Vec<String> {
    let list = list.and_then(Value::as_array).into_iter().flatten();
    list.filter_map(Value::as_str).map(str::to_owned).collect()
}

fn judged(
    violations: Vec<String>,
    scores: Value,
    support: Option<f64>,
    judge: Option<Box<JudgeUse>>,
    sentences: Vec<SupportedSentence>,
) -> Body {
    Body::Validation {
        verdict: if violations.is_empty() { Judgement::Pass } else { Judgement::Fail },
        violations,
        scores,
        support: support.map(rounded),
        judge,
        sentences,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_source_contradicts_is_a_fault_and_what_it_lacks_is_none() {
        let evidence = [("kb-1".to_owned(), "The reactor valve opens at 40 bar.".to_owned())];
        let review = |text: &str| Review { support: ken_support::support(text, &[&evidence[0].1]), judge: None };
        let faults = |text: &str| match by_sources(text, &evidence, review(text)) {
            Body::Validation { violations, .. } => violations,
            _ => panic!(),
        };
        assert_eq!(faults("The reactor valve opens at 40 bar. Ask for more."), Vec::<String>::new());
        let found = faults("The reactor valve opens at 90 bar.");
        assert_eq!(found, ["kb-1 contradicts: “The reactor valve opens at 90 bar.”"]);
    }

    #[test]
    fn each_sentence_has_the_passage_that_says_it() {
        let evidence = [("kb-1".to_owned(), "Ask Ana. The valve opens at 40 bar.".to_owned())];
        let text = "Überdruck: the valve opens at 40 bar. The valve opens at 90 bar.";
        let support = ken_support::support(text, &[&evidence[0].1]);
        let found = sentences(&evidence, &support);
        assert_eq!(&text[found[1].start..found[1].end], "The valve opens at 90 bar.");
        assert!(!found[0].contradicted && found[1].contradicted && found[0].support > found[1].support, "{found:?}");
        assert_eq!(found[0].passage.as_deref(), Some("The valve opens at 40 bar."));
        assert_eq!(found[1].source.as_deref(), Some("kb-1"));
        assert_eq!(sentences(&[], &support), []);
        let long = ken_support::support(&"The valve opens. ".repeat(50), &[&evidence[0].1]);
        assert_eq!(sentences(&evidence, &long).len(), MAX_SENTENCES);
    }

    #[test]
    fn each_source_counts_and_a_model_is_told_of_a_limited_number_of_faults() {
        let text = |pressure: usize, count: usize| {
            (0..count).map(|number| format!("The reactor valve {number} opens at {pressure} bar. ")).collect::<String>()
        };
        let evidence = |count| [("kb-1", "Ferries leave at nine.".to_owned()), ("kb-2", text(40, count))];
        for count in [1, MAX_VIOLATIONS, MAX_VIOLATIONS + 1] {
            let evidence = evidence(count).map(|(id, text)| (id.to_owned(), text));
            let said = text(90, count);
            let sources: Vec<&str> = evidence.iter().map(|(_, text)| text.as_str()).collect();
            let review = Review { support: ken_support::support(&said, &sources), judge: None };
            let Body::Validation { violations, .. } = by_sources(&said, &evidence, review) else { panic!() };
            assert_eq!(violations.len(), count.min(MAX_VIOLATIONS));
            assert!(violations.iter().all(|violation| violation.starts_with("kb-2 contradicts: ")), "{violations:?}");
        }
    }
}
