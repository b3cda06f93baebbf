//! Reads a text once and collects what the rubric finds in it.

use crate::acronym::Acronyms;
use crate::claim::Claim;
use crate::context::Context;
use crate::grammar::is_negated;
use crate::lexicon::{self, PAIRS, STARTS};
use crate::phrase::{self, Match};
use crate::place::Place;
use crate::row::Within;
use crate::rubric::{Effect, FEATURES, Law, Rule, VIOLATIONS, index_of, violations_of};
use crate::scan::{Scan, Sentence};
use crate::stance::Stances;
use crate::subject::Subjects;
use crate::token::{Kind, Token, at, before};
use crate::value::Values;
use crate::{architecture, determinism, energy, truth};

/// One thing found: where, and which feature.
#[derive(Clone, Copy)]
pub(crate) struct Finding {
    pub(crate) feature: usize,
    pub(crate) sentence: usize,
    /// Bytes of the text.
    pub(crate) start: usize,
    pub(crate) end: usize,
}

/// What was found in one text.
#[derive(Default)]
pub(crate) struct Findings {
    pub(crate) list: Vec<Finding>,
    /// For each sentence the set of its features, one bit each.
    pub(crate) features: Vec<u64>,
}

/// The buffers of an examination, kept from one text to the next. Nothing in them outlives [`Judge::examine`] but their
/// capacity.
#[derive(Default)]
pub(crate) struct Judge {
    pub(crate) scan: Scan,
    pub(crate) claims: Vec<Claim>,
    is_english: bool,
    pub(crate) findings: Findings,
    matches: Vec<Match>,
    subjects: Subjects,
    stances: Stances,
    values: Values,
    acronyms: Acronyms,
}

/// What the rules of one sentence see.
pub(crate) struct View<'a> {
    pub(crate) tokens: &'a [Token],
    pub(crate) rows: Within<'a>,
    pub(crate) sentence: &'a Sentence,
    pub(crate) claim: &'a Claim,
    pub(crate) index: usize,
}

impl View<'_> {
    /// From one token of the sentence to another.
    pub(crate) fn place(&self, first: usize, last: usize) -> Place {
        Place::Text {
            sentence: self.index as u32,
            start: at(self.tokens, first).start,
            end: at(self.tokens, last).end,
        }
    }
}

/// A sentence is shown as evidence up to this many bytes.
const LONGEST_EVIDENCE: usize = 240;

impl Findings {
    fn reset(&mut self, sentences: usize) {
        self.list.clear();
        self.features.clear();
        self.features.resize(sentences, 0);
    }

    pub(crate) fn add(&mut self, feature: usize, sentence: usize, start: usize, end: usize) {
        self.list.push(Finding {
            feature,
            sentence,
            start,
            end,
        });
        if let Some(features) = self.features.get_mut(sentence) {
            *features |= 1 << feature;
        }
    }

    /// A sentence with a defect of a law earns nothing by that law.
    fn drop_undeserved(&mut self) {
        let features = &mut self.features;
        if features.iter().all(|set| set & VIOLATIONS == 0) {
            return;
        }
        self.list.retain(|finding| {
            let Some(feature) = FEATURES.get(finding.feature) else {
                return false;
            };
            let Some(set) = features.get_mut(finding.sentence) else {
                return false;
            };
            let undeserved = feature.effect != Effect::Violation && *set & violations_of(feature.law) != 0;
            if undeserved {
                *set &= !(1 << finding.feature);
            }
            !undeserved
        });
    }

    /// Whether the sentence has a defect of the law.
    pub(crate) fn is_defective(&self, sentence: usize, law: Law) -> bool {
        self.features
            .get(sentence)
            .is_some_and(|features| features & violations_of(law) != 0)
    }
}

impl View<'_> {
    /// Adds a finding over the words from `first` to `last`.
    pub(crate) fn find(&self, findings: &mut Findings, feature: usize, first: usize, last: usize) {
        let (start, end) = (at(self.tokens, first).start, at(self.tokens, last).end);
        findings.add(feature, self.index, start as usize, end as usize);
    }

    /// Adds a finding over the whole sentence.
    pub(crate) fn find_all(&self, findings: &mut Findings, feature: usize) {
        findings.add(
            feature,
            self.index,
            self.sentence.start as usize,
            self.sentence.end as usize,
        );
    }
}

impl Judge {
    /// Finds all that the rubric knows in the text. Linear in its length.
    pub(crate) fn examine(&mut self, text: &str, context: &Context) {
        self.scan.fill(text);
        self.findings.reset(self.scan.sentences.len());
        self.claims.clear();
        self.claims.extend(
            self.scan
                .sentences
                .iter()
                .map(|sentence| Claim::of(&self.scan, sentence)),
        );
        self.is_english = self.reads_english();
        let is_english = self.is_english;
        self.subjects.clear();
        self.stances.fill(context, &self.scan, &self.claims);
        self.values.fill(context, &self.scan, &self.claims);
        self.acronyms.fill(context);
        for index in 0..self.scan.sentences.len() {
            self.examine_sentence(index, is_english);
        }
        architecture::examine_text(
            &self.scan,
            &self.claims,
            &mut self.subjects,
            is_english,
            &mut self.findings,
        );
        if is_english {
            self.acronyms.report(&mut self.findings);
        }
        self.findings.drop_undeserved();
        for finding in &mut self.findings.list {
            finding.end = shorten(text, finding.start, finding.end);
        }
    }

    /// Whether a sentence is one of the claims that defects and strengths are measured against. A heading, a greeting, a heap
    /// of words without a verb or a row of markers is none.
    pub(crate) fn counts(&self, claim: &Claim) -> bool {
        let says = claim.finite || claim.instruction || !self.is_english;
        says && claim.words > 2 && !claim.is_marker_row()
    }

    /// The word classes know English: without them a missing verb means nothing.
    fn reads_english(&self) -> bool {
        let says = self.claims.iter().filter(|claim| !claim.is_marker_row());
        let (words, known) = says.fold((0, 0), |sum, claim| {
            (sum.0 + claim.words, sum.1 + claim.function_words)
        });
        known * 100 >= words * 15
    }

    fn examine_sentence(&mut self, index: usize, is_english: bool) {
        let (Some(sentence), Some(claim)) = (self.scan.sentences.get(index), self.claims.get(index)) else {
            return;
        };
        let tokens = self.scan.tokens_of(sentence);
        let view = View {
            tokens,
            rows: self.scan.rows_of(sentence),
            sentence,
            claim,
            index,
        };
        let findings = &mut self.findings;
        find_phrases(&view, &mut self.matches, findings);
        architecture::examine(&view, is_english, self.scan.sentences.as_slice(), findings);
        energy::examine(&view, findings);
        determinism::examine(&view, findings);
        truth::examine(&view, findings);
        self.subjects.add(&view, &self.scan, findings);
        self.stances.add(&view, findings);
        self.values.add(&view, findings);
        self.acronyms.add(&view);
        truth::credit(&view, findings);
        determinism::credit(&view, findings);
    }
}

/// Phrases first all, then those that the rest of the sentence excuses are dropped.
fn find_phrases(view: &View<'_>, matches: &mut Vec<Match>, findings: &mut Findings) {
    matches.clear();
    if !view.claim.has(STARTS | PAIRS) {
        return;
    }
    let mut ends = [0; FEATURES.len()]; // for each the word after its last phrase
    for index in view.rows.each(|row| row.phrases) {
        phrase::starting_at(view.tokens, index, &view.claim.traces, &mut |found| {
            if let Some(end) = ends.get_mut(found.feature).filter(|end| **end <= index as u32)
                && counts(view.tokens, &found)
            {
                *end = found.last as u32 + 1;
                matches.push(found);
            }
        });
    }
    if matches.is_empty() {
        return;
    }
    let excuses = Excuses::of(view, matches);
    matches.retain(|found| excuses.let_stand(found.feature));
    keep_strengths(view, matches);
    for found in matches.iter() {
        view.find(findings, found.feature, found.first, found.last);
    }
}

/// Whether a phrase stands for itself: not denied, and no authority that the text has introduced.
fn counts(tokens: &[Token], found: &Match) -> bool {
    let introduced = found.feature == AUTHORITY && before(tokens, found.first).is(lexicon::DETERMINER);
    !introduced && (found.feature == HEDGES || !is_negated(tokens, found.first))
}

const AUTHORITY: usize = index_of("unsourced_authority");
const HEDGES: usize = index_of("stacked_hedges");

/// A strength counts where a whole claim shows it, not in a row of markers; one of governance not beside a defect of
/// governance, and one a claim.
fn keep_strengths(view: &View<'_>, matches: &mut Vec<Match>) {
    let claim = view.claim;
    let shows = claim.finite && claim.words > 3 && !claim.is_marker_row() && !claim.question;
    let defects = violations_of(Law::Governance);
    let mut earned = matches.iter().any(|found| defects & (1 << found.feature) != 0);
    matches.retain(
        |found| match FEATURES.get(found.feature).map(|feature| feature.effect) {
            Some(Effect::Once) => shows && !std::mem::replace(&mut earned, true),
            Some(Effect::Share) => shows && goes_on(view.tokens, found),
            _ => true,
        },
    );
}

/// Whether something other than the phrase once more follows it: "because, because" gives no reason.
fn goes_on(tokens: &[Token], found: &Match) -> bool {
    let after = found.last + 1 + usize::from(at(tokens, found.last + 1).kind == Kind::Mark);
    let (first, next) = (at(tokens, found.first), at(tokens, after));
    next.kind != Kind::Mark && next.hash != first.hash
}

/// What a sentence has that excuses a phrase.
struct Excuses {
    sourced: bool,
    supported: bool,
    number: bool,
    needs_number: bool,
    mentioned: bool,
}

const SOURCED: usize = index_of("sourced");

impl Excuses {
    fn of(view: &View<'_>, matches: &[Match]) -> Excuses {
        let claim = view.claim;
        let names_source = claim.cited || matches.iter().any(|found| found.feature == SOURCED);
        Excuses {
            sourced: claim.cited || names_source && (claim.dated || claim.named),
            supported: claim.is_supported(),
            number: claim.numbers > 0,
            needs_number: (claim.instruction || claim.any(const { crate::lexicon::list("change") }))
                && claim.numbers == 0,
            mentioned: claim.question || view.sentence.heading,
        }
    }

    fn let_stand(&self, feature: usize) -> bool {
        let Some(feature) = FEATURES.get(feature) else {
            return false;
        };
        match feature.rule {
            Rule::Phrases => true,
            Rule::PhrasesUnlessSourced => !self.sourced && !self.mentioned,
            Rule::PhrasesUnlessSupported => !self.supported && !self.mentioned,
            Rule::PhrasesUnlessNumber => !self.number,
            Rule::PhrasesWhereNeeded => self.needs_number,
            Rule::Structure => false,
        }
    }
}

fn shorten(text: &str, start: usize, end: usize) -> usize {
    if end - start <= LONGEST_EVIDENCE {
        return end;
    }
    (start..=start + LONGEST_EVIDENCE)
        .rev()
        .find(|&end| text.is_char_boundary(end))
        .unwrap_or(end)
}
