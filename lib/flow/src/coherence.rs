//! Checks whether the results of one run agree.
//!
//! Results are reduced to statements in the normal form of ken-logic: the facts and conclusions of REP, and the sentences of
//! a model's text. Each of the five checks is skipped when there is nothing for it to compare. The score is the share of the
//! checks that found no issue. ken-workflow(5) describes each.

use std::borrow::Cow;
use std::collections::HashMap;

use ken_logic::{Statement, normalise};
use serde::Deserialize;

use crate::answer::{Answer, Text};
use crate::definition::{Definition, Step};
use crate::outcome::{Check, Coherence};
use crate::progress::StepResult;
use crate::protocol::{Kind, Protocols};
use crate::quality::rounded;
use crate::tense::{self, Tense};

/// Maximum number of issues that one check reports.
const MAX_ISSUES: usize = 8;
/// Maximum number of sentences of one text that are compared; the rest is ignored.
const MAX_SENTENCES: usize = 200;

/// Compares the results; `None` when no check has anything to compare.
pub(crate) fn of(definition: &Definition, protocols: &Protocols, results: &[Option<StepResult>]) -> Option<Coherence> {
    let evidence = Evidence::of(definition, protocols, results);
    let checks = [contradiction, verification, sentiment, tenses, entities];
    let found: Vec<Finding> = checks.iter().filter_map(|check| check(&evidence)).collect();
    if found.is_empty() {
        return None;
    }
    let passed = found.iter().filter(|finding| finding.issues.is_empty()).count();
    Some(Coherence {
        score: rounded(passed as f64 / found.len() as f64),
        checks: found.iter().map(Finding::check).collect(),
        issues: found.into_iter().flat_map(|finding| finding.issues).collect(),
    })
}

/// The result of one check.
struct Finding {
    name: &'static str,
    compared: usize,
    issues: Vec<String>,
}

impl Finding {
    fn new(name: &'static str, compared: usize, issues: Vec<String>) -> Option<Finding> {
        (compared > 0).then_some(Finding { name, compared, issues })
    }

    fn check(&self) -> Check {
        Check { name: self.name, compared: self.compared, passed: self.issues.is_empty() }
    }
}

/// The statements and judgements in the results of all steps.
struct Evidence<'a> {
    /// In the order of the steps. Each step's statements are listed once.
    statements: Vec<SourcedStatement<'a>>,
    moods: Vec<Mood<'a>>,
    /// The REP steps whose own validation passed. VVP steps that found errors are in `refuted`.
    valid: Vec<&'a str>,
    refuted: Vec<(&'a str, Cow<'a, str>)>,
    verified: usize,
}

struct SourcedStatement<'a> {
    step: &'a str,
    wording: Cow<'a, str>,
    statement: Statement<'a>,
}

/// The mood that ESL found.
struct Mood<'a> {
    step: &'a str,
    valence: &'a str,
}

impl<'a> Evidence<'a> {
    fn of(definition: &'a Definition, protocols: &Protocols, results: &'a [Option<StepResult>]) -> Evidence<'a> {
        let mut evidence =
            Evidence { statements: Vec::new(), moods: Vec::new(), valid: Vec::new(), refuted: Vec::new(), verified: 0 };
        for (step, made) in definition.steps().iter().zip(results) {
            let kind = protocols.find(&step.protocol).map(|protocol| protocol.kind);
            if let (Some(Ok(answer)), Some(kind)) = (made.as_ref().map(|made| &made.result), kind) {
                evidence.add(step, kind, answer);
            }
        }
        evidence
    }

    fn add(&mut self, step: &'a Step, kind: Kind, answer: &'a Answer) {
        match kind {
            Kind::Rep => self.add_reasoning(&step.id, answer),
            Kind::Vvp => self.add_verification(&step.id, answer),
            Kind::Esl => self.add_mood(&step.id, answer),
            Kind::Model => self.add_text(&step.id, answer),
            Kind::Laws | Kind::Other => {}
        }
    }

    fn add_reasoning(&mut self, step: &'a str, answer: &'a Answer) {
        #[derive(Deserialize)]
        struct Validation {
            is_valid: bool,
        }
        for name in ["facts", "conclusions"] {
            for Text(text) in answer.parse::<Vec<Text<'a>>>(name).into_iter().flatten() {
                self.add_statement(step, text);
            }
        }
        let validation = answer.parse::<Validation>("validation");
        if validation.is_some_and(|own| own.is_valid) {
            self.valid.push(step);
        }
    }

    fn add_verification(&mut self, step: &'a str, answer: &'a Answer) {
        self.verified += 1;
        if answer.parse("validation_status") == Some("failure") {
            let reason = answer.parse::<Text<'a>>("reason").map(|Text(reason)| reason);
            self.refuted.push((step, reason.unwrap_or_default()));
        }
    }

    /// Adds the mood, unless the confidence of ESL is below one half.
    fn add_mood(&mut self, step: &'a str, answer: &'a Answer) {
        let valence = answer.parse("valence").filter(|valence| matches!(*valence, "positive" | "negative"));
        let is_sure = answer.parse::<f64>("confidence").is_some_and(|confidence| confidence >= 0.5);
        if let Some(valence) = valence.filter(|_| is_sure) {
            self.moods.push(Mood { step, valence });
        }
    }

    fn add_text(&mut self, step: &'a str, answer: &'a Answer) {
        let Some(text) = answer.parse::<String>("text") else {
            return;
        };
        for sentence in ken_text::sentences(&text).take(MAX_SENTENCES) {
            // Questions are skipped, because they state nothing.
            if !sentence.text.ends_with('?') {
                self.add_statement(step, Cow::Owned(sentence.text.trim_end_matches('!').to_owned()));
            }
        }
    }

    fn add_statement(&mut self, step: &'a str, wording: Cow<'a, str>) {
        let statement = match &wording {
            Cow::Borrowed(text) => normalise(text),
            Cow::Owned(text) => {
                let Statement { atom, negated } = normalise(text);
                Statement { atom: Cow::Owned(atom.into_owned()), negated }
            }
        };
        if !statement.atom.is_empty() {
            self.statements.push(SourcedStatement { step, wording, statement });
        }
    }
}

impl SourcedStatement<'_> {
    /// The step and its statement, for the text of an issue.
    fn quoted(&self) -> String {
        format!("{} says \"{}\"", self.step, ken_text::head(&self.wording, 200))
    }

    fn contradiction_text(&self, other: &SourcedStatement<'_>) -> String {
        format!("{}, but {}", self.quoted(), other.quoted())
    }
}

/// Finds statements that the same step or another denies.
fn contradiction(evidence: &Evidence<'_>) -> Option<Finding> {
    let mut first: HashMap<&str, &SourcedStatement<'_>> = HashMap::with_capacity(evidence.statements.len());
    let mut issues = Vec::new();
    for statement in &evidence.statements {
        let known = *first.entry(statement.statement.atom.as_ref()).or_insert(statement);
        if known.statement.negated != statement.statement.negated && issues.len() < MAX_ISSUES {
            issues.push(known.contradiction_text(statement));
        }
    }
    let compared = match evidence.statements.len() {
        1 => 0, // a single statement has nothing to be compared with
        count => count,
    };
    Finding::new("contradiction", compared, issues)
}

/// Finds rules that REP calls valid and VVP refutes.
fn verification(evidence: &Evidence<'_>) -> Option<Finding> {
    let compared = evidence.verified * evidence.valid.len();
    let mut issues = Vec::new();
    for valid in &evidence.valid {
        for (step, reason) in &evidence.refuted {
            issues.push(format!("{valid} calls its rules valid, but {step} does not: {reason}"));
        }
    }
    issues.truncate(MAX_ISSUES);
    Finding::new("verification", compared, issues)
}

/// Finds statements about a person's mood that are the opposite of what ESL found.
fn sentiment(evidence: &Evidence<'_>) -> Option<Finding> {
    let felt: Vec<(&SourcedStatement<'_>, &str)> = evidence
        .statements
        .iter()
        .filter_map(|statement| Some((statement, valence_of(&statement.statement)?)))
        .collect();
    let mut issues = Vec::new();
    for mood in &evidence.moods {
        for (statement, valence) in felt.iter().filter(|(_, valence)| *valence != mood.valence) {
            issues.push(format!("{} reads a {} mood, but {} ({valence})", mood.step, mood.valence, statement.quoted()));
        }
    }
    issues.truncate(MAX_ISSUES);
    Finding::new("sentiment", evidence.moods.len() * felt.len(), issues)
}

/// Finds events that are past in one statement and future in another.
fn tenses(evidence: &Evidence<'_>) -> Option<Finding> {
    let mut first: HashMap<String, (Tense, &SourcedStatement<'_>)> = HashMap::new();
    let mut issues = Vec::new();
    let mut compared = 0;
    for statement in evidence.statements.iter().filter(|statement| !statement.statement.negated) {
        let Some((event, tense)) = tense::of(&statement.statement.atom) else {
            continue;
        };
        let (known, other) = *first.entry(event).or_insert((tense, statement));
        compared += usize::from(other.step != statement.step);
        if known != tense && other.step != statement.step && issues.len() < MAX_ISSUES {
            issues.push(format!("{} (a {known} and a {tense} event)", other.contradiction_text(statement)));
        }
    }
    Finding::new("tense", compared, issues)
}

/// Finds quantities with two values for the same unit.
fn entities(evidence: &Evidence<'_>) -> Option<Finding> {
    let mut first: HashMap<&str, (Quantity<'_>, &SourcedStatement<'_>)> = HashMap::new();
    let mut issues = Vec::new();
    let mut compared = 0;
    for statement in evidence.statements.iter().filter(|statement| !statement.statement.negated) {
        let Some((subject, quantity)) = quantity_of(&statement.statement.atom) else {
            continue;
        };
        let (known, other) = *first.entry(subject).or_insert((quantity, statement));
        compared += usize::from(!std::ptr::eq(other, statement));
        if known.unit == quantity.unit && known.value != quantity.value && issues.len() < MAX_ISSUES {
            issues.push(other.contradiction_text(statement));
        }
    }
    Finding::new("entities", compared, issues)
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Quantity<'a> {
    value: f64,
    unit: &'a str,
}

/// Splits "the limit is 5 s" into the subject, the number and the rest.
fn quantity_of(atom: &str) -> Option<(&str, Quantity<'_>)> {
    let (subject, rest) = [" is ", " are ", " = ", " equals "].iter().find_map(|copula| atom.split_once(copula))?;
    let (number, unit) = rest.split_once(' ').unwrap_or((rest, ""));
    let value: f64 = number.replace(',', "").parse().ok()?;
    let subject = subject.strip_prefix("the ").unwrap_or(subject);
    Some((subject, Quantity { value, unit }))
}

/// The mood, `positive` or `negative`, of a statement about how a person feels.
fn valence_of(statement: &Statement<'_>) -> Option<&'static str> {
    let mut words = statement.atom.split(' ').skip_while(|word| *word == "the");
    let is_person = words.next().is_some_and(|word| PERSONS.contains(&word));
    let is_good = words.filter(|_| is_person).find_map(|word| {
        let word = word.trim_end_matches(|char: char| char.is_ascii_punctuation());
        let is_in = |list: &str| list.split_whitespace().any(|known| known == word);
        if is_in(GOOD) { Some(true) } else { is_in(BAD).then_some(false) }
    })?;
    Some(if is_good != statement.negated { "positive" } else { "negative" })
}

/// Words for the person whose text ESL reads.
const PERSONS: [&str; 10] =
    ["author", "client", "customer", "i", "person", "sender", "speaker", "user", "writer", "you"];

/// Words for how a person feels.
const GOOD: &str = "calm cheerful confident content delighted excited fine glad grateful happy hopeful joyful optimistic \
                    pleased proud relaxed relieved satisfied thankful thrilled";
const BAD: &str = "afraid angry annoyed anxious ashamed bitter depressed desperate devastated disappointed dissatisfied \
                   distressed frightened frustrated furious hopeless hurt irritated miserable sad scared terrified troubled \
                   unhappy upset worried";

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::*;

    /// Checks the coherence of step results, each given as protocol and answer.
    fn judge(answers: &[(&str, Value)]) -> Option<Coherence> {
        let protocols = Protocols::shipped();
        let steps: Vec<Value> =
            (0..).zip(answers).map(|(number, (step, _))| json!({"step": step, "id": format!("s{number}")})).collect();
        let text = json!({"name": "test", "steps": steps}).to_string();
        let definition = Definition::parse(&text, Path::new("test"), &protocols).unwrap();
        let made = |(_, answer): &(&str, Value)| {
            Some(StepResult {
                id: Arc::from(""),
                protocol: Arc::from(""),
                input: Arc::from(""),
                result: Answer::read(answer.to_string()).map(Arc::new),
            })
        };
        let results: Vec<Option<StepResult>> = answers.iter().map(made).collect();
        of(&definition, &protocols, &results)
    }

    fn reasoning_result(facts: &[&str], conclusions: &[&str]) -> (&'static str, Value) {
        ("REP", json!({"facts": facts, "conclusions": conclusions, "validation": {"is_valid": true}}))
    }

    fn text_result(text: &str) -> (&'static str, Value) {
        ("MODEL", json!({"text": text}))
    }

    fn emotion_result(valence: &str, confidence: f64) -> (&'static str, Value) {
        ("ESL", json!({"valence": valence, "confidence": confidence}))
    }

    /// Expects that only the check `name` fails, with an issue that contains all `words`.
    #[track_caller]
    fn assert_only_fails(answers: &[(&str, Value)], name: &str, words: &[&str]) {
        let found = judge(answers).unwrap();
        let failed: Vec<&str> = found.checks.iter().filter(|check| !check.passed).map(|check| check.name).collect();
        assert_eq!(failed, [name], "{found:?}");
        assert!(found.score < 1.0);
        for word in words {
            assert!(found.issues[0].contains(word), "{:?}", found.issues);
        }
    }

    #[track_caller]
    fn assert_coherent(answers: &[(&str, Value)]) {
        let found = judge(answers).unwrap();
        assert_eq!((found.score, found.issues.as_slice()), (1.0, &[][..]), "{found:?}");
    }

    #[test]
    fn nothing_to_compare_is_neither_coherent_nor_not() {
        assert_eq!(judge(&[emotion_result("positive", 0.9)]), None);
        assert_eq!(judge(&[reasoning_result(&["a"], &[])]), None);
    }

    #[test]
    fn a_denied_statement_is_found_in_any_wording() {
        let first = reasoning_result(&["The server is running."], &["the site is up"]);
        assert_only_fails(
            &[first.clone(), text_result("All is well. The site isn't up.")],
            "contradiction",
            &["s0 says \"the site is up\"", "s1 says \"The site isn't up.\""],
        );
        assert_only_fails(
            &[first.clone(), reasoning_result(&["not the server is running"], &[])],
            "contradiction",
            &["s0", "s1"],
        );
        assert_coherent(&[first, text_result("Is the site not up? The site is up!")]);
    }

    #[test]
    fn a_verification_that_refutes_is_found() {
        let failure = ("VVP", json!({"validation_status": "failure", "reason": "1 rule, 1 error: conflict"}));
        assert_only_fails(&[reasoning_result(&["a"], &["b"]), failure], "verification", &["s0", "s1", "conflict"]);
        let success = ("VVP", json!({"validation_status": "success", "reason": ""}));
        assert_coherent(&[reasoning_result(&["a"], &["b"]), success]);
    }

    #[test]
    fn a_mood_and_a_statement_about_it() {
        let happy = reasoning_result(&["a"], &["the user is very happy"]);
        assert_only_fails(&[emotion_result("negative", 0.8), happy.clone()], "sentiment", &["negative", "happy"]);
        assert_coherent(&[emotion_result("positive", 0.8), happy.clone()]);
        assert_coherent(&[emotion_result("negative", 0.2), happy]);
        assert_coherent(&[
            emotion_result("negative", 0.8),
            reasoning_result(&["a"], &["the customer is not satisfied", "the dog is happy"]),
        ]);
    }

    #[test]
    fn what_is_past_is_not_to_come() {
        let past = reasoning_result(&["a", "the release was shipped"], &[]);
        assert_only_fails(&[past.clone(), text_result("The release will be shipped.")], "tense", &["past", "future"]);
        assert_coherent(&[past.clone(), text_result("The release was shipped. The next release will be shipped.")]);
        assert_coherent(&[past, text_result("The release is shipped.")]);
    }

    #[test]
    fn a_quantity_has_one_value() {
        let five = reasoning_result(&["a", "the limit is 5 s"], &[]);
        assert_only_fails(&[five.clone(), text_result("The limit is 10 s.")], "entities", &["5 s", "10 s"]);
        assert_coherent(&[five, text_result("The limit is 5.0 s. The other limit is 10 s. The limit is 5000 ms.")]);
    }
}
