//! Reads a text and collects the findings.

use ken_support::{Kind, Support};

use crate::acronym::Acronyms;
use crate::claim::{Claim, is_unlisted};
use crate::context::Context;
use crate::contradiction::Statements;
use crate::finding::{Finding, Findings, View};
use crate::grammar::{has_predicate, is_negated};
use crate::lexicon as lex;
use crate::lexicon::word::{MAY, THAT};
use crate::phrase::{self, Match};
use crate::quantity::Quantities;
use crate::reason::rests_on_opinion;
use crate::repetition::Repetition;
use crate::rubric::{
    CONTRADICTED, Effect, FEATURES, FRAGMENT, LINKED, Law, Rule, SOURCED, STACKED_HEDGES, UNSOURCED_AUTHORITY,
    UNSUPPORTED, violations_of,
};
use crate::scan::{Ending, Scan};
use crate::token::{Kind as TokenKind, PLURAL, Token, at, before};
use crate::{architecture, determinism, energy, topic, truth};

/// The findings of a text.
pub(crate) struct Judgement {
    pub(crate) findings: Findings,
    /// For each sentence, whether it counts as a claim in the measure of defects and strengths.
    pub(crate) counts: Vec<bool>,
    /// Why the text cannot be judged.
    pub(crate) unread: Option<Unread>,
    /// How much its sentences are like each other, if enough of them can be compared.
    pub(crate) likeness: Option<f32>,
    /// Whether citations are its only evidence, and no sources were given.
    pub(crate) rests_on_citations: bool,
}

/// Why a text cannot be judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unread {
    /// Its words are not English.
    Language,
    /// Its grammar is English, but most of its other words are unknown.
    Words,
    /// None of its sentences states, asks or commands anything.
    NoClaim,
    /// No feature of the rubric is in it but that its sentences belong together, and no source was given.
    NothingFound,
}

impl Judgement {
    pub(crate) fn sentences_with(&self, feature: usize) -> usize {
        self.findings.features.iter().filter(|set| **set & (1 << feature) != 0).count()
    }
}

/// Maximum number of bytes of a sentence that is shown as evidence.
pub(crate) const MAX_EVIDENCE_BYTES: usize = 240;

/// The data that is collected from a text. Its memory is reused for the next text, because allocating it for each one would
/// take a tenth of the time to judge a paragraph.
#[derive(Default)]
pub(crate) struct Judge {
    scan: Scan,
    claims: Vec<Claim>,
    repetition: Repetition,
    statements: Statements,
    quantities: Quantities,
    acronyms: Acronyms,
}

/// The memory is released after a text that is longer than this.
const MAX_REUSED_BYTES: usize = 64 * 1024;

impl Judge {
    /// Finds all features of the rubric in the text. The time is linear in its length.
    pub(crate) fn judge(&mut self, text: &str, context: &Context, support: Option<&Support>) -> Judgement {
        self.scan.read(text);
        self.claims.clear();
        let sentences = self.scan.sentences.iter();
        self.claims.extend(sentences.map(|sentence| Claim::new(self.scan.tokens_of(sentence), sentence)));
        self.repetition.clear(self.scan.tokens().len());
        self.statements.clear(&context.clauses);
        self.quantities.clear(&context.quantities);
        self.acronyms.clear(&context.acronyms);
        let judgement = self.find(text, support);
        if text.len() > MAX_REUSED_BYTES {
            *self = Judge::default();
        }
        judgement
    }

    fn find(&mut self, text: &str, support: Option<&Support>) -> Judgement {
        let Judge { scan, claims, repetition, statements, quantities, acronyms } = self;
        let is_english = reads_english(text, scan, claims);
        let mut findings = Findings::new(scan.sentences.len());
        // Without a negation there is no contradiction, so most texts need no comparison.
        let can_contradict =
            !statements.is_empty() || claims.iter().any(|claim| claim.any(lex::NEGATION | lex::FLIPPED));
        for (index, (sentence, claim)) in scan.sentences.iter().zip(claims.iter()).enumerate() {
            let view = View { tokens: scan.tokens_of(sentence), sentence, claim, index };
            find_phrases(&view, &mut findings);
            architecture::examine(&view, is_english, &scan.sentences, &mut findings);
            energy::examine(&view, &mut findings);
            determinism::examine(&view, &mut findings);
            truth::examine(&view, &mut findings);
            repetition.add(&view, &mut findings);
            if can_contradict {
                statements.add(&view, &mut findings);
            }
            quantities.add(&view, &mut findings);
            acronyms.add(&view);
            truth::credit(&view, &mut findings);
            determinism::credit(&view, &mut findings);
        }
        if let Some(support) = support {
            add_support(scan, support, &mut findings);
        }
        let likeness = architecture::examine_text(scan, claims, repetition, is_english, &mut findings);
        if is_english {
            acronyms.report(&mut findings);
        }
        findings.drop_undeserved();
        for finding in &mut findings.list {
            let length = finding.end - finding.start;
            if length > MAX_EVIDENCE_BYTES {
                let shown = text.get(finding.start..finding.end).unwrap_or_default();
                finding.end = finding.start + ken_text::head(shown, MAX_EVIDENCE_BYTES).len();
            }
        }
        let counts = claims.iter().map(|claim| counts(claim, is_english)).collect();
        let strange = || is_english && has_strange_words(text, scan, claims);
        Judgement {
            unread: unread(claims, &findings, is_english).or_else(|| strange().then_some(Unread::Words)).or_else(
                || (support.is_none() && has_nothing(scan, claims, &findings)).then_some(Unread::NothingFound),
            ),
            rests_on_citations: support.is_none() && rests_on_citations(claims, &findings),
            findings,
            counts,
            likeness,
        }
    }
}

/// Whether at least one claim cites something and no claim contains evidence itself.
fn rests_on_citations(claims: &[Claim], findings: &Findings) -> bool {
    let cites = |(index, claim): (usize, &Claim)| {
        claim.is_claim() && (claim.cited || findings.has(index, SOURCED) && (claim.dated || claim.named))
    };
    claims.iter().enumerate().any(cites) && !claims.iter().any(Claim::shows_evidence)
}

/// Whether at least three of four content words are in no list and in no vocabulary. The cheap checks come first, so that few texts
/// need the last one.
fn has_strange_words(text: &str, scan: &Scan, claims: &[Claim]) -> bool {
    let sum = |of: fn(&Claim) -> usize| claims.iter().map(of).sum::<usize>();
    let content = sum(|claim| claim.content);
    let most = |count: usize| count * 4 >= content * 3;
    if content < 2 || !most(sum(|claim| claim.unlisted)) {
        return false;
    }
    let words = scan.sentences.iter().map(|sentence| scan.tokens_of(sentence)).flat_map(|tokens| {
        let unlisted = (0..tokens.len()).filter(|index| is_unlisted(tokens, *index));
        unlisted.filter_map(|index| text.get(at(tokens, index).start..at(tokens, index).end))
    });
    most(words.map(str::to_lowercase).filter(|word| !is_formed(word)).count())
}

/// Whether a word is known, or formed from a known one: with another ending, or as a compound of two.
fn is_formed(word: &str) -> bool {
    let is_known = |word: &str| topic::knows(lex::hash(word.as_bytes())) || ken_support::is_common(word);
    let starts = (4..word.len()).filter(|at| word.is_char_boundary(*at)).map(|at| word.split_at(at));
    let derives = |(start, ending): (&str, &str)| {
        let is_ending = ending.len() <= MAX_ENDING || is_known(ending);
        is_ending && (is_known(start) || is_known(&format!("{start}e")))
    };
    is_known(word) || starts.into_iter().any(derives)
}

/// The maximum length in bytes of an ending, such as "ability".
const MAX_ENDING: usize = 7;

/// Whether a text can be read by English grammar.
pub(crate) fn is_english(text: &str) -> bool {
    let scan = Scan::new(text);
    let claims = scan.sentences.iter().map(|sentence| Claim::new(scan.tokens_of(sentence), sentence));
    reads_english(text, &scan, &claims.collect::<Vec<_>>())
}

/// Whether the text is English by its function words (in a short text, also by its verbs), or because half of its words are
/// common.
fn reads_english(text: &str, scan: &Scan, claims: &[Claim]) -> bool {
    let sum = |of: fn(&Claim) -> usize| claims.iter().filter(|claim| !claim.is_marker_row()).map(of).sum::<usize>();
    let (words, known, foreign) =
        (sum(|claim| claim.words), sum(|claim| claim.function_words), sum(|claim| claim.foreign_words));
    let grammatical = sum(|claim| claim.grammatical_words);
    let may_lack_grammar = foreign == 0 && words < SHORT;
    known >= foreign && known * 100 >= words * 15 && known > 0
        || may_lack_grammar && grammatical * 100 >= words * 35
        || may_lack_grammar && known > 0 && 2 * common_words(text, scan) >= words
}

fn common_words(text: &str, scan: &Scan) -> usize {
    let words = scan.tokens().iter().filter(|token| token.kind == TokenKind::Word);
    let words = words.filter_map(|token| text.get(token.start..token.end));
    words.filter(|word| ken_support::is_common(&word.to_lowercase())).count()
}

/// Maximum length, in words, of a text that can be English without function words.
const SHORT: usize = 30;

fn unread(claims: &[Claim], findings: &Findings, is_english: bool) -> Option<Unread> {
    // A defect of form, such as a word that stands twice, states nothing.
    let is_defect = |finding: &Finding| {
        let feature = FEATURES.get(finding.feature);
        feature.is_some_and(|feature| {
            feature.effect == Effect::Violation && !matches!(feature.law, Law::Architecture | Law::Energy)
        })
    };
    // In a song or a greeting, commands among exclamations state nothing: they count if half of the text can be read.
    let readable = claims.iter().filter(|claim| claim.is_readable()).count();
    let says =
        claims.iter().any(|claim| claim.is_readable() && !claim.instruction) || 2 * readable >= claims.len().max(1);
    match (is_english, is_english && (says || findings.list.iter().any(is_defect))) {
        (_, true) => None,
        (false, _) => Some(Unread::Language),
        (true, false) => Some(Unread::NoClaim),
    }
}

/// Whether nothing was found in a sentence that states or instructs something. That sentences take up each other's words says
/// nothing about what they state, nor do defects of form in a text that only greets, wishes, asks, lists or exclaims.
fn has_nothing(scan: &Scan, claims: &[Claim], findings: &Findings) -> bool {
    let commands = |index: usize| claims.get(index).is_some_and(|claim| claim.instruction);
    let says = |index: usize| {
        let (Some(claim), Some(sentence)) = (claims.get(index), scan.sentences.get(index)) else { return false };
        let tokens = scan.tokens_of(sentence);
        let is_command = claim.instruction && sentence.ending != Ending::Exclamation && claim.content > 1;
        let states = claim.is_claim() && has_predicate(tokens) && !wishes(tokens);
        (is_command || states) && !findings.has(index, FRAGMENT)
    };
    let said: Vec<bool> = (0..claims.len()).map(says).collect();
    // In a song or a greeting, a command among exclamations is no instruction.
    let instructs = 2 * said.iter().filter(|says| **says).count() >= said.len();
    let has_statement = (0..said.len()).any(|index| said.get(index) == Some(&true) && (instructs || !commands(index)));
    let speaks = |finding: &Finding| match FEATURES.get(finding.feature).map(|feature| (feature.effect, feature.law)) {
        Some((Effect::Violation, Law::Architecture | Law::Energy)) => true,
        _ => finding.feature != LINKED && said.get(finding.sentence) == Some(&true),
    };
    !(has_statement && findings.list.iter().any(speaks))
}

/// Whether a sentence is a wish: "May the new year bring you joy."
fn wishes(tokens: &[Token]) -> bool {
    at(tokens, 0).hash == MAY && at(tokens, 1).is(lex::DETERMINER | lex::PRONOUN)
}

/// Whether a sentence counts. Headings, greetings, words without a verb and sequences of markers are not claims. In another
/// language, a missing verb has no meaning.
fn counts(claim: &Claim, is_english: bool) -> bool {
    let says = claim.finite || claim.instruction || !is_english;
    says && claim.words > 2 && !claim.is_marker_row()
}

/// Adds findings for statements that the sources do not support or contradict.
fn add_support(scan: &Scan, support: &Support, findings: &mut Findings) {
    for finding in support.sentences.iter().flat_map(|sentence| &sentence.findings) {
        let sentence = scan.sentences.partition_point(|sentence| sentence.start <= finding.span.start);
        findings.add(Finding {
            feature: match finding.kind {
                Kind::Unsupported => UNSUPPORTED,
                Kind::Contradicted => CONTRADICTED,
                Kind::Uncarried => continue,
            },
            sentence: sentence.saturating_sub(1),
            start: finding.span.start,
            end: finding.span.end,
        });
    }
}

/// Finds all phrases, then drops defects for which the rest of the sentence is an excuse.
fn find_phrases(view: &View<'_>, findings: &mut Findings) {
    let mut matches = phrase::find(view.tokens);
    if matches.is_empty() {
        return;
    }
    let mut ends = [0; FEATURES.len()]; // for each feature, the word after its last phrase
    matches.retain(|found| {
        let end = ends.get_mut(found.feature).filter(|end| **end <= found.first);
        let counts = end.filter(|_| is_stated(view.tokens, found));
        counts.map(|end| *end = found.last + 1).is_some()
    });
    let excuses = Excuses::new(view, &matches);
    matches.retain(|found| excuses.let_stand(found.feature));
    keep_strengths(view, &mut matches);
    for found in &matches {
        findings.add(view.finding(found.feature, found.first, found.last));
    }
}

/// Whether a phrase counts: it is not negated, and it is not an authority that the text has introduced.
fn is_stated(tokens: &[Token], found: &Match) -> bool {
    let introduced = found.feature == UNSOURCED_AUTHORITY && is_introduced(tokens, found.first);
    !introduced && (found.feature == STACKED_HEDGES || !is_negated(tokens, found.first))
}

/// Whether a determiner shows that the text has named this authority before: "the study", "that study". In "says that experts
/// agree", "that" is not a determiner.
fn is_introduced(tokens: &[Token], index: usize) -> bool {
    let (determiner, authority) = (before(tokens, index), at(tokens, index));
    determiner.is(lex::DETERMINER)
        && (determiner.hash != THAT || authority.is(lex::AUTHORITY) && !authority.has(PLURAL))
}

/// Keeps the strengths that count: those in a complete claim and not in a sequence of markers. For governance, keeps one per claim,
/// and none in a claim with a defect of governance. A sentence whose reason is only an opinion keeps no strength.
fn keep_strengths(view: &View<'_>, matches: &mut Vec<Match>) {
    let claim = view.claim;
    let complete = claim.finite && claim.words > 3 && !claim.is_marker_row() && !claim.question;
    let shows = complete && !rests_on_opinion(view.tokens);
    let defects = violations_of(Law::Governance);
    let mut earned = matches.iter().any(|found| defects & (1 << found.feature) != 0);
    matches.retain(|found| match FEATURES.get(found.feature).map(|feature| feature.effect) {
        Some(Effect::Once) => shows && !std::mem::replace(&mut earned, true),
        Some(Effect::Share) => shows && goes_on(view.tokens, found),
        _ => true,
    });
}

/// Whether something other than the phrase itself follows it: "because, because" gives no reason.
fn goes_on(tokens: &[Token], found: &Match) -> bool {
    let after = found.last + 1 + usize::from(at(tokens, found.last + 1).kind == TokenKind::Mark);
    let (first, next) = (at(tokens, found.first), at(tokens, after));
    next.kind != TokenKind::Mark && next.hash != first.hash
}

/// The properties of a sentence that excuse a phrase.
struct Excuses {
    sourced: bool,
    supported: bool,
    number: bool,
    needs_number: bool,
    mentioned: bool,
}

impl Excuses {
    fn new(view: &View<'_>, matches: &[Match]) -> Excuses {
        let claim = view.claim;
        let names_source = matches.iter().any(|found| found.feature == SOURCED);
        Excuses {
            sourced: claim.cited || names_source && (claim.dated || claim.named),
            supported: claim.is_supported(),
            number: claim.numbers > 0,
            needs_number: (claim.instruction || claim.any(lex::CHANGE)) && claim.numbers == 0,
            mentioned: claim.question || view.sentence.heading,
        }
    }

    fn let_stand(&self, feature: usize) -> bool {
        FEATURES.get(feature).is_some_and(|feature| match feature.rule {
            Rule::Phrases => true,
            Rule::UnlessSourced => !self.sourced && !self.mentioned,
            Rule::UnlessSupported => !self.supported && !self.mentioned,
            Rule::UnlessNumber => !self.number,
            Rule::WhereNeeded => self.needs_number,
            Rule::Structure => false,
        })
    }
}
