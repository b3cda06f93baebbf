//! Analogy: infers properties of a case from a similar case.

use std::collections::{BTreeSet, HashMap, HashSet};

use ken_tool::{Error, Replied, Reply};
use serde::Serialize;
use serde_json::Value;

use crate::answer::{Found, Step};
use crate::document::{Document, Kind};
use crate::numbers::{format_count, rounded, wilson};
use crate::structure::{Attribute, Case, Mapping, Relation, map};

/// Properties are transferred only above this similarity of two cases, from 0 to 1.
const MIN_SIMILARITY: f64 = 0.5;

#[derive(Serialize)]
struct ExtraFields<'a> {
    similarity: f64,
    shared: Vec<String>,
    differences: Vec<String>,
    mapping: Vec<Pair>,
    transferred: Vec<Transfer>,
    source_case: &'a Value,
    target_case: &'a Value,
}

#[derive(Serialize)]
struct Pair {
    source: String,
    target: String,
}

#[derive(Serialize)]
struct Transfer {
    property: String,
    value: String,
    confidence: f64,
    #[serde(skip)]
    conclusion: String,
    #[serde(skip)]
    premise: String,
}

/// The comparison of a source case with a target case.
struct Comparison {
    source: Case,
    target: Case,
    /// The statements that hold in both cases, in the source's words.
    shared: Vec<String>,
    differences: Vec<String>,
    /// Pairs of a thing in the source and the thing in the target that has the same role.
    mapping: Mapping,
    matched: Vec<(usize, usize)>,
    /// The sum of the weights of the matches: 1 for an attribute, its size for a relation.
    agreeing: usize,
    differing: usize,
}

pub(crate) fn answer(document: &Document<'_>, reply: Reply<'_>) -> Result<Replied, Error> {
    let source = Case::of(&document.source_case, "source_case")?;
    let target = Case::of(&document.target_case, "target_case")?;
    let comparison = Comparison::of(source, target);
    let transferred = comparison.transfer();
    let mut facts = document.facts.clone();
    // If the document is an earlier answer of this program, its facts already contain these statements.
    let given: HashSet<&str> = document.facts.iter().map(AsRef::as_ref).collect();
    let statements = comparison.statements();
    facts.extend(statements.filter(|statement| !given.contains(statement.as_str())).map(String::into));
    let chain = comparison.chain(&transferred);
    let conclusions: Vec<String> = transferred.iter().map(|transfer| transfer.conclusion.clone()).collect();
    let found = Found {
        confidence: transferred.iter().map(|transfer| transfer.confidence).collect::<Vec<f64>>(),
        explanation: comparison.explanation(transferred.len()),
        conclusions: &conclusions,
        chain: &chain,
        issues: Vec::new(),
        more: comparison.extra_fields(transferred, document),
    };
    Ok(reply.send(&found.answer(Kind::Analogical, &facts, document)))
}

impl Comparison {
    fn of(source: Case, target: Case) -> Comparison {
        let (mapping, matched) = map(&source, &target);
        let both =
            source.attributes.iter().filter_map(|(path, attribute)| Some((attribute, target.attributes.get(path)?)));
        let (agree, differ): (Vec<_>, Vec<_>) = both.partition(|(attribute, other)| attribute.agrees(other));
        let mut shared: Vec<String> = agree.iter().map(|(attribute, _)| attribute.statement()).collect();
        let differences: Vec<String> =
            differ.iter().map(|(attribute, other)| attribute.difference(&source.name, other, &target.name)).collect();
        let relations = || matched.iter().filter_map(|(number, _)| source.relations.get(*number));
        shared.extend(relations().map(Relation::text));
        let agreeing = agree.len() + relations().map(Relation::size).sum::<usize>();
        let differing = differences.len() + unmatched(&source, &target, &mapping, &matched);
        Comparison { source, target, shared, differences, mapping, matched, agreeing, differing }
    }

    fn similarity(&self) -> f64 {
        let all = self.agreeing + self.differing;
        if all == 0 { 0.0 } else { self.agreeing as f64 / all as f64 }
    }

    /// Returns the properties of the source about which the target says nothing; none if the cases are not similar
    /// enough.
    fn transfer(&self) -> Vec<Transfer> {
        if self.similarity() <= MIN_SIMILARITY {
            return Vec::new();
        }
        let ties = self.shared_relations();
        let attributes = self.source.attributes.iter().filter(|(path, _)| !self.target.attributes.contains_key(*path));
        let mut transfers: Vec<Transfer> = attributes
            .map(|(path, attribute)| self.attribute(attribute, ties.get(path.as_str()).copied().unwrap_or(0)))
            .collect();
        let unmatched = without(&self.source.relations, self.matched.iter().map(|pair| pair.0));
        transfers.extend(unmatched.filter_map(|relation| self.relation(relation)));
        transfers
    }

    /// Returns for each thing in how many shared relations it takes part. By the principle of systematicity, a property
    /// that is connected with others by shared relations is more likely to transfer than an isolated one.
    fn shared_relations(&self) -> HashMap<&str, usize> {
        let mut ties: HashMap<&str, usize> = HashMap::new();
        for (number, _) in &self.matched {
            let relation = self.source.relations.get(*number);
            let terms: BTreeSet<&str> = relation.into_iter().flat_map(Relation::terms).collect();
            terms.into_iter().for_each(|term| *ties.entry(term).or_default() += 1);
        }
        ties
    }

    fn attribute(&self, attribute: &Attribute, ties: usize) -> Transfer {
        Transfer {
            property: attribute.name.clone(),
            value: attribute.value.clone(),
            confidence: self.confidence(ties),
            conclusion: format!("{}: {}", self.target.name, attribute.statement()),
            premise: format!("{}: {}", self.source.name, attribute.statement()),
        }
    }

    fn relation(&self, relation: &Relation) -> Option<Transfer> {
        let carried = self.mapping.translate(relation)?;
        let is_settled = self.target.relations.iter().any(|known| known.answers(&carried));
        (!is_settled).then(|| Transfer {
            property: carried.name.display.clone(),
            value: carried.text(),
            confidence: self.confidence(relation.size()),
            conclusion: format!("{}: {}", self.target.name, carried.text()),
            premise: format!("{}: {}", self.source.name, relation.text()),
        })
    }

    fn confidence(&self, ties: usize) -> f64 {
        rounded(self.similarity() * wilson(self.agreeing + ties, self.agreeing + ties + self.differing))
    }

    /// Returns the cases as facts, in the same words as the reasoning chain.
    fn statements(&self) -> impl Iterator<Item = String> {
        let of = |case: &Case| {
            let attributes =
                case.attributes.values().map(|attribute| format!("{}: {}", case.name, attribute.statement()));
            let relations = case.relations.iter().map(|relation| format!("{}: {}", case.name, relation.text()));
            attributes.chain(relations).collect::<Vec<_>>()
        };
        of(&self.source).into_iter().chain(of(&self.target))
    }

    fn similarity_text(&self) -> String {
        format!("{} and {} are alike", self.source.name, self.target.name)
    }

    fn chain(&self, transferred: &[Transfer]) -> Vec<Step> {
        if transferred.is_empty() {
            return Vec::new();
        }
        let shared = self.shared.iter().map(|statement| format!("{}: {statement}", self.source.name));
        let mapping = Step {
            kind: "mapping",
            rule: None,
            premises: shared.collect(),
            conclusion: self.similarity_text(),
            confidence: rounded(self.similarity()),
            explanation: format!("{}: {}", self.similarity_text(), self.measure()),
        };
        let step = |transfer: &Transfer| Step {
            kind: "transfer",
            rule: None,
            premises: vec![self.similarity_text(), transfer.premise.clone()],
            conclusion: transfer.conclusion.clone(),
            confidence: transfer.confidence,
            explanation: format!("{}, since {}, and {}", transfer.conclusion, self.similarity_text(), transfer.premise),
        };
        std::iter::once(mapping).chain(transferred.iter().map(step)).collect()
    }

    fn measure(&self) -> String {
        format!(
            "{} of {} that both speak of agree",
            self.agreeing,
            format_count(self.agreeing + self.differing, "point")
        )
    }

    fn explanation(&self, transferred: usize) -> String {
        let Comparison { source, target, .. } = self;
        let result = match transferred {
            0 if self.similarity() <= MIN_SIMILARITY => "too little to transfer anything".to_owned(),
            0 => "nothing is left to transfer".to_owned(),
            some => format_count(some, "property").replace("propertys", "properties") + " transferred",
        };
        format!("{} and {}: {}; {result}", source.name, target.name, self.measure())
    }

    fn extra_fields<'a>(self, transferred: Vec<Transfer>, document: &'a Document<'_>) -> ExtraFields<'a> {
        let pairs = self.mapping.pairs.iter();
        ExtraFields {
            similarity: rounded(self.similarity()),
            mapping: pairs
                .map(|(source, target)| Pair { source: source.display.clone(), target: target.display.clone() })
                .collect(),
            shared: self.shared,
            differences: self.differences,
            transferred,
            source_case: &document.source_case,
            target_case: &document.target_case,
        }
    }
}

/// Returns the relations whose indices are not among `numbers`.
fn without(relations: &[Relation], numbers: impl Iterator<Item = usize>) -> impl Iterator<Item = &Relation> {
    let numbers: BTreeSet<usize> = numbers.collect();
    let numbered = relations.iter().enumerate();
    numbered.filter(move |(number, _)| !numbers.contains(number)).map(|(_, relation)| relation)
}

/// Returns the number of relations of the source that the target contradicts: it negates them, or has another relation
/// of the same name that matches none of the source.
fn unmatched(source: &Case, target: &Case, mapping: &Mapping, matched: &[(usize, usize)]) -> usize {
    let free: BTreeSet<(&str, bool)> =
        without(&target.relations, matched.iter().map(|pair| pair.1)).map(Relation::label).collect();
    let is_denied = |carried: Relation| target.relations.iter().any(|known| known.contradicts(&carried));
    without(&source.relations, matched.iter().map(|pair| pair.0))
        .filter(|relation| free.contains(&relation.label()) || mapping.translate(relation).is_some_and(is_denied))
        .count()
}
