//! Abduction: finds hypotheses that explain the observations of a document.

use std::borrow::Cow;
use std::collections::BTreeSet;

use ken_logic::{Closure, Inference, Literal, Theory};
use ken_tool::{Error, Replied, Reply};
use serde::Serialize;

use crate::answer::{Found, Issue, Step};
use crate::deductive;
use crate::document::{Document, Hypothesis, Kind, statements};
use crate::numbers::{format_count, rounded};

/// The maximum number of hypotheses in one explanation.
const MAX_SET: usize = 4;

/// The maximum number of hypotheses that are derived from the rules if the document contains none.
const MAX_DERIVED: usize = 64;

/// The maximum number of sets of hypotheses that are tried, and of rules that are examined for that. If it is reached,
/// the answer says that the search was cut short.
const MAX_TRIES: usize = 20_000;
const MAX_WORK: usize = 20_000_000;

/// The maximum number of explanations in the answer. The best ones are included.
const MAX_EXPLANATIONS: usize = 100;

/// The weight of the possibility that the real explanation is unknown. A complete explanation of cost 1 has weight 1.
const UNKNOWN: f64 = 0.25;

/// A minimal set of hypotheses that explains observations: no proper subset explains as many.
#[derive(Serialize, Clone)]
struct Explanation {
    hypotheses: Vec<String>,
    explains: Vec<String>,
    unexplained: Vec<String>,
    coverage: f64,
    cost: f64,
    confidence: f64,
    #[serde(skip)]
    members: Vec<usize>,
}

#[derive(Serialize)]
struct ExtraFields<'a> {
    best_explanation: Option<Explanation>,
    ranked_hypotheses: Vec<Explanation>,
    observations: &'a [Cow<'a, str>],
    /// The hypotheses that the document contains; none if they were derived from the rules.
    hypotheses: &'a [Hypothesis],
}

pub(crate) fn answer(document: &Document<'_>, reply: Reply<'_>) -> Result<Replied, Error> {
    if observations(document).is_empty() {
        return Err(Error::invalid("/observations", "abduction needs observations, or facts that serve as such"));
    }
    let found;
    let hypotheses = if document.hypotheses.is_empty() {
        found = derive_hypotheses(document)?;
        &found
    } else {
        &document.hypotheses
    };
    let mut search = Search::new(document, hypotheses)?;
    let (ranked, is_truncated) = search.run()?;
    let mut issues = std::mem::take(&mut search.contradictions);
    let best = ranked.first().cloned();
    let (chain, conclusions) = search.chain(best.as_ref())?;
    let confidence: Vec<f64> = conclusions.iter().map(|_| best.as_ref().map_or(0.0, |best| best.confidence)).collect();
    issues.extend(warnings(best.as_ref(), &search.refuted_texts(), is_truncated));
    let found = Found {
        explanation: search.explain(best.as_ref(), &ranked),
        conclusions: &conclusions,
        confidence,
        chain: &chain,
        issues,
        more: ExtraFields {
            best_explanation: best,
            ranked_hypotheses: ranked,
            observations: observations(document),
            hypotheses: &document.hypotheses,
        },
    };
    Ok(reply.send(&found.answer(Kind::Abductive, &document.facts, document)))
}

/// The observations of a document. If it contains none, its facts are what was observed.
fn observations<'d, 'a>(document: &'d Document<'a>) -> &'d [Cow<'a, str>] {
    if document.observations.is_empty() { &document.facts } else { &document.observations }
}

fn ranking_text(best: &Explanation, ranked: &[Explanation]) -> String {
    let rivals =
        ranked.iter().skip(1).filter(|other| other.coverage == best.coverage && other.cost == best.cost).count();
    let rest =
        if rivals > 0 { format!("; {} as good", format_count(rivals, "other explanation")) } else { String::new() };
    let (of, names) = (best.explains.len(), best.hypotheses.join(" and "));
    format!("\"{names}\" explains {of} of {}{rest}", format_count(of + best.unexplained.len(), "observation"))
}

fn warnings(best: Option<&Explanation>, refuted: &[&str], is_truncated: bool) -> Vec<Issue> {
    let warning = |kind, at: &str, message: String| Issue {
        kind,
        severity: "warning",
        at: at.to_owned(),
        message,
        proofs: Vec::new(),
    };
    let unexplained = best.map_or(&[][..], |best| &best.unexplained).iter();
    let mut issues: Vec<Issue> = unexplained
        .map(|text| warning("unexplained", "/observations", format!("\"{text}\" is not explained")))
        .collect();
    let refuted = refuted.iter().map(|text| {
        warning("refuted", "/hypotheses", format!("\"{text}\" would explain something, but the observations refute it"))
    });
    issues.extend(refuted);
    if is_truncated {
        issues.push(warning("search_cut", "/hypotheses", "too many sets of hypotheses to try them all".to_owned()));
    }
    issues
}

/// Returns the hypotheses for a document that contains none: every statement from which an observation can follow. They
/// are found by applying the rules backwards.
fn derive_hypotheses(document: &Document<'_>) -> Result<Vec<Hypothesis>, Error> {
    let mut theory = Theory::new();
    let observed = statements(&mut theory, observations(document), "/observations")?;
    let facts = document.facts_in(&mut theory)?;
    for rule in 0..document.rules.len() {
        for premise in document.rules.premises(rule) {
            // The theory refuses a premise with a variable that the conclusion does not contain. Such a premise cannot
            // be a hypothesis, because the variable would have no value.
            let _ = theory.add_rule([document.rules.conclusion(rule)].into_iter(), premise);
        }
    }
    let closure = theory.derive(&observed).map_err(|limit| Error::too_large(limit.to_string()).at("/rules"))?;
    let backwards = closure.steps.iter().filter(|step| step.inference == Inference::ModusPonens);
    let candidates = backwards.map(|step| step.conclusion).filter(|literal| !facts.contains(literal));
    let hypothesis = |literal| Hypothesis { statement: theory.wording(literal).into_owned(), cost: 1.0 };
    Ok(candidates.take(MAX_DERIVED).map(hypothesis).collect())
}

struct Search<'a> {
    theory: Theory<'a>,
    hypotheses: &'a [Hypothesis],
    literals: Vec<Literal>,
    /// The observations that need an explanation, because they do not follow from the facts.
    observed: Vec<Literal>,
    /// All observations, and the number of contradictions among them, the facts and the rules.
    all_observed: Vec<Literal>,
    observed_contradictions: usize,
    /// The hypotheses that the observations refute.
    refuted: BTreeSet<usize>,
    /// The facts that are not observations.
    facts: Vec<Literal>,
    /// The number of observations that follow from the facts alone.
    known: usize,
    /// The contradictions that already exist without a hypothesis, and their number.
    contradictions: Vec<Issue>,
    contradicted: usize,
}

impl<'a> Search<'a> {
    fn new(document: &'a Document<'a>, hypotheses: &'a [Hypothesis]) -> Result<Search<'a>, Error> {
        let mut theory = Theory::with_capacity(document.rules.len());
        let observed = statements(&mut theory, observations(document), "/observations")?;
        let mut facts = document.facts_in(&mut theory)?;
        let given = facts.clone();
        facts.retain(|fact| !observed.contains(fact));
        document.rules.add_to(&mut theory)?;
        let texts: Vec<&'a str> = hypotheses.iter().map(|hypothesis| hypothesis.statement.as_str()).collect();
        let mut literals = Vec::with_capacity(texts.len());
        for (number, text) in texts.into_iter().enumerate() {
            let literal = theory.statement(text);
            literals
                .push(literal.map_err(|invalid| Error::invalid(format!("/hypotheses/{number}"), invalid.to_string()))?);
        }
        let mut search = Search {
            theory,
            hypotheses,
            literals,
            all_observed: observed.clone(),
            observed_contradictions: 0,
            refuted: BTreeSet::new(),
            observed,
            facts,
            known: 0,
            contradictions: Vec::new(),
            contradicted: 0,
        };
        let known = search.close(&[])?;
        let contradictions = known.contradictions();
        search.contradicted = contradictions.len();
        search.observed_contradictions = search.contradictions_with_observations(&[])?;
        search.contradictions =
            contradictions.iter().map(|both| deductive::unproved(&search.theory, &known, &given, both)).collect();
        search.observed.dedup();
        let observed = search.observed.len();
        search.observed.retain(|&literal| known.step_of(literal).is_none());
        search.known = observed - search.observed.len();
        Ok(search)
    }

    fn refuted_texts(&self) -> Vec<&'a str> {
        let refuted = self.refuted.iter().filter_map(|&member| self.hypotheses.get(member));
        refuted.map(|hypothesis| hypothesis.statement.as_str()).collect()
    }

    fn close(&mut self, members: &[usize]) -> Result<Closure, Error> {
        let assumed = members.iter().filter_map(|&member| self.literals.get(member).copied());
        let given: Vec<Literal> = self.facts.iter().copied().chain(assumed).collect();
        self.theory.derive(&given).map_err(|limit| Error::too_large(limit.to_string()).at("/rules"))
    }

    /// Returns the number of contradictions if the observations hold beside the facts and the members.
    fn contradictions_with_observations(&mut self, members: &[usize]) -> Result<usize, Error> {
        let assumed = members.iter().filter_map(|&member| self.literals.get(member).copied());
        let given: Vec<Literal> = self.facts.iter().chain(&self.all_observed).copied().chain(assumed).collect();
        let closure = self.theory.derive(&given).map_err(|limit| Error::too_large(limit.to_string()).at("/rules"))?;
        Ok(closure.contradictions().len())
    }

    /// Returns one line that says what explains the observations, and how many of them need no hypothesis.
    fn explain(&self, best: Option<&Explanation>, ranked: &[Explanation]) -> String {
        let observations = |count| format_count(count, "observation");
        let found = match best {
            Some(best) => Some(ranking_text(best, ranked)),
            None if self.observed.is_empty() => None,
            None => Some(format!("no hypothesis explains any of {}", observations(self.observed.len()))),
        };
        let known = (self.known > 0).then(|| format!("the facts and rules yield {} already", observations(self.known)));
        let parts: Vec<String> = [found, known].into_iter().flatten().collect();
        parts.join("; ")
    }

    /// Returns all minimal explanations, the best first, and whether some sets were not tried.
    fn run(&mut self) -> Result<(Vec<Explanation>, bool), Error> {
        let mut tried: Vec<(Vec<usize>, BTreeSet<usize>)> = Vec::new();
        let mut tries = 0;
        let mut is_truncated = false;
        let mut sets: Vec<Vec<usize>> = (0..self.literals.len()).map(|member| vec![member]).collect();
        for _ in 0..MAX_SET {
            let mut open = Vec::new();
            for set in std::mem::take(&mut sets) {
                tries += 1;
                is_truncated |= tries > MAX_TRIES || tries * (self.theory.rule_count() + 1) > MAX_WORK;
                if is_truncated {
                    break;
                }
                let Some(covered) = self.coverage(&set)? else {
                    continue;
                };
                let is_complete = covered.len() == self.observed.len();
                let inside =
                    |(other, _): &&(Vec<usize>, BTreeSet<usize>)| other.iter().all(|member| set.contains(member));
                // A set is needless if a subset of it explains as much. A subset can even explain more, because a
                // statement that follows from the subset does not count as explained once it is itself assumed.
                let is_needless = tried.iter().filter(inside).any(|(_, other)| other.is_superset(&covered));
                let is_minimal = !covered.is_empty() && !is_needless;
                if is_minimal {
                    tried.push((set.clone(), covered));
                }
                if !is_complete {
                    open.push(set);
                }
            }
            sets = self.with_one_more(&open, &tried);
        }
        Ok((self.rank(tried), is_truncated))
    }

    /// Returns the observations that a set of hypotheses explains: those that follow from it and are not themselves
    /// assumed. `None` if the set contradicts the facts or an observation: what would have to be seen and was not refutes it.
    fn coverage(&mut self, set: &[usize]) -> Result<Option<BTreeSet<usize>>, Error> {
        let closure = self.close(set)?;
        if closure.contradictions().len() > self.contradicted {
            return Ok(None);
        }
        let observed = self.observed.iter().enumerate();
        let covered: BTreeSet<usize> =
            observed.filter(|(_, literal)| closure.step_of(**literal).is_some()).map(|(place, _)| place).collect();
        if !covered.is_empty() && self.contradictions_with_observations(set)? > self.observed_contradictions {
            if let [member] = set {
                self.refuted.insert(*member);
            }
            return Ok(None);
        }
        Ok(Some(covered))
    }

    /// Returns the sets with one more member, except those that contain a complete explanation. The members of a set
    /// are in ascending order, so that each set is built only once.
    fn with_one_more(&self, open: &[Vec<usize>], tried: &[(Vec<usize>, BTreeSet<usize>)]) -> Vec<Vec<usize>> {
        let complete: Vec<&Vec<usize>> =
            tried.iter().filter(|(_, covered)| covered.len() == self.observed.len()).map(|(set, _)| set).collect();
        let mut larger = Vec::new();
        for set in open {
            let next = set.last().map_or(0, |last| last + 1);
            for member in next..self.literals.len() {
                let with: Vec<usize> = set.iter().copied().chain([member]).collect();
                let is_needless = complete.iter().any(|other| other.iter().all(|member| with.contains(member)));
                if !is_needless && larger.len() <= MAX_TRIES {
                    larger.push(with);
                }
            }
        }
        larger
    }

    /// Sorts explanations by how much they explain, then by cost, then by the order of the document. The confidence of
    /// each is its share of the total weight, which includes the weight of the unknown explanation.
    fn rank(&self, mut tried: Vec<(Vec<usize>, BTreeSet<usize>)>) -> Vec<Explanation> {
        let share = |covered: &BTreeSet<usize>| covered.len() as f64 / self.observed.len().max(1) as f64;
        let weight = |(members, covered): &(Vec<usize>, BTreeSet<usize>)| {
            share(covered) / self.cost(members).max(f64::MIN_POSITIVE)
        };
        let all: f64 = UNKNOWN + tried.iter().map(weight).sum::<f64>();
        tried.sort_by(|(a, of_a), (b, of_b)| {
            let costs = self.cost(a).total_cmp(&self.cost(b));
            of_b.len().cmp(&of_a.len()).then(costs).then(a.cmp(b))
        });
        tried.truncate(MAX_EXPLANATIONS);
        let explanations = tried.into_iter().map(|one| {
            let confidence = rounded(weight(&one) / all);
            self.explanation(one.0, &one.1, confidence)
        });
        explanations.collect()
    }

    fn cost(&self, members: &[usize]) -> f64 {
        let chosen = members.iter().filter_map(|&member| self.hypotheses.get(member));
        chosen.map(|hypothesis| hypothesis.cost).sum()
    }

    fn explanation(&self, members: Vec<usize>, covered: &BTreeSet<usize>, confidence: f64) -> Explanation {
        let worded = |literal: &Literal| self.theory.wording(*literal).into_owned();
        let observed = || self.observed.iter().enumerate();
        let chosen = members.iter().filter_map(|&member| self.hypotheses.get(member));
        Explanation {
            hypotheses: chosen.map(|hypothesis| hypothesis.statement.clone()).collect(),
            explains: observed()
                .filter(|(place, _)| covered.contains(place))
                .map(|(_, literal)| worded(literal))
                .collect(),
            unexplained: observed()
                .filter(|(place, _)| !covered.contains(place))
                .map(|(_, literal)| worded(literal))
                .collect(),
            coverage: rounded(covered.len() as f64 / self.observed.len().max(1) as f64),
            cost: self.cost(&members),
            confidence,
            members,
        }
    }

    /// Returns the steps of the answer, and the hypotheses of the best explanation as conclusions. The first steps are
    /// these hypotheses. The others show how the observations follow from them.
    fn chain(&mut self, best: Option<&Explanation>) -> Result<(Vec<Step>, Vec<String>), Error> {
        let Some(best) = best else {
            return Ok((Vec::new(), Vec::new()));
        };
        let closure = self.close(&best.members)?;
        let mut chain: Vec<Step> = best.hypotheses.iter().map(|text| assumption(text, best)).collect();
        let mut numbers: BTreeSet<usize> = BTreeSet::new();
        for &literal in self.observed.iter().filter(|&&literal| closure.step_of(literal).is_some()) {
            numbers.extend(closure.proof(literal, usize::MAX).unwrap_or_default());
        }
        let steps = numbers.iter().filter_map(|&number| closure.steps.get(number));
        chain.extend(steps.map(|step| self.step(&closure, step, best)));
        Ok((chain, best.hypotheses.clone()))
    }

    fn step(&self, closure: &Closure, step: &ken_logic::Step, best: &Explanation) -> Step {
        // A hypothesis has the wording of the document everywhere, including where it is a premise.
        let worded = |literal: Literal| {
            let member = self.literals.iter().position(|&known| known == literal);
            let hypothesis =
                member.filter(|member| best.members.contains(member)).and_then(|member| self.hypotheses.get(member));
            hypothesis.map_or_else(|| self.theory.wording(literal).into_owned(), |known| known.statement.clone())
        };
        let premises: Vec<String> = closure.premises(step).iter().map(|&premise| worded(premise)).collect();
        let conclusion = self.theory.wording(step.conclusion).into_owned();
        Step {
            kind: if step.inference == Inference::Axiom { "axiom" } else { "entailment" },
            rule: Some(step.rule),
            explanation: format!("{conclusion} would follow from {} (rule {})", premises.join(" and "), step.rule),
            premises,
            conclusion,
            confidence: best.confidence,
        }
    }
}

fn assumption(text: &str, best: &Explanation) -> Step {
    Step {
        kind: "hypothesis",
        rule: None,
        premises: Vec::new(),
        conclusion: text.to_owned(),
        confidence: best.confidence,
        explanation: format!("{text}: assumed, since it would explain {}", best.explains.join(" and ")),
    }
}
