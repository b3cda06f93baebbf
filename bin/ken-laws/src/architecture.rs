//! Law 1: the parts of the text work together.

use crate::claim::{Claim, has_mark, is_passive, is_past_rather, tells_past};
use crate::finding::{Finding, Findings, View};
use crate::grammar::{STEP, is_finite};
use crate::lexicon as lex;
use crate::lexicon::word::{AND, BECAUSE, FEW, HOWEVER, MANY, MUCH, OF, OR};
use crate::repetition::Repetition;
use crate::rubric::{
    CIRCULAR_REASON, COUNT_MISMATCH, FRAGMENT, LINKED, LOOSE_CONNECTIVE, Law, MIXED_SUBJECTS, OFF_TOPIC, REASONED,
    STEP_ORDER,
};
use crate::scan::{Ending, Scan, Sentence};
use crate::token::{COLON, Kind, PLURAL, QUOTED, Token, at, before};
use crate::topic::{Part, Topics};

/// Finds the features of a sentence that need no other sentence.
pub(crate) fn examine(view: &View<'_>, is_english: bool, all: &[Sentence], findings: &mut Findings) {
    if is_english && is_fragment(view, all) {
        findings.add(view.whole(FRAGMENT));
    }
    if view.claim.any(lex::SUBORDINATOR) {
        examine_reason(view, findings);
    }
    if view.claim.has(COLON) {
        examine_count(view, all, findings);
    }
}

// Fragments

fn is_fragment(view: &View<'_>, all: &[Sentence]) -> bool {
    let (claim, sentence) = (view.claim, view.sentence);
    let closed = matches!(sentence.ending, Ending::Period | Ending::Exclamation);
    let marked = sentence.item.is_some() || sentence.bullet || sentence.heading;
    let answers = view
        .index
        .checked_sub(1)
        .and_then(|index| all.get(index))
        .is_some_and(|before| before.ending == Ending::Question);
    if !closed || marked || answers || claim.is_quoting() || claim.words < 3 || claim.instruction {
        return false;
    }
    let first = at(view.tokens, 0);
    let hangs = first.is(lex::OPENER)
        && !has_mark(view.tokens, ',')
        && at(view.tokens, 1).hash != OF
        && !has_two_clauses(view.tokens);
    let cause = first.hash == BECAUSE && at(view.tokens, 1).hash == OF && !has_mark(view.tokens, ',');
    hangs
        || cause && !has_sure_verb(view.tokens)
        || !claim.finite && !has_mark(view.tokens, ':') && !first.is(lex::COURTESY)
}

/// Whether two verbs can each carry a clause.
fn has_two_clauses(tokens: &[Token]) -> bool {
    let finite = (0..tokens.len()).filter(|&index| at(tokens, index).kind == Kind::Word && is_finite(tokens, index));
    finite.take(2).count() == 2
}

/// Whether a word is certainly the verb of a clause. A base form is certain only after a subject that takes it.
fn has_sure_verb(tokens: &[Token]) -> bool {
    (0..tokens.len()).filter(|&index| is_finite(tokens, index)).any(|index| {
        let (token, subject) = (at(tokens, index), before(tokens, index));
        token.is(lex::AUXILIARY | lex::VERB_S | lex::VERB_PAST) || subject.is(lex::PRONOUN) || subject.has(PLURAL)
    })
}

// Reasons

/// Finds a reason that only repeats its claim, as in "It is slow because it is slow".
fn examine_reason(view: &View<'_>, findings: &mut Findings) {
    let tokens = view.tokens;
    let Some(because) = tokens.iter().position(|token| token.hash == BECAUSE && !token.has(QUOTED)) else {
        return;
    };
    let claim = content(tokens.get(..because).unwrap_or_default());
    let reason = tokens.get(because + 1..).unwrap_or_default();
    let end = reason.iter().position(Token::ends_clause).unwrap_or(reason.len());
    let mut says = content(reason.get(..end).unwrap_or_default()).peekable();
    if says.peek().is_none() || end > MAX_REASON_WORDS {
        return;
    }
    let claimed: Vec<u64> = claim.take(MAX_REASON_WORDS).collect();
    if says.all(|stem| claimed.contains(&stem)) {
        findings.add(view.finding(CIRCULAR_REASON, 0, because + end));
    }
}

/// Maximum length of a reason in words. A longer one rarely repeats its claim, and the limit keeps the comparison linear.
const MAX_REASON_WORDS: usize = 24;

fn content(tokens: &[Token]) -> impl Iterator<Item = u64> {
    let says = |token: &&Token| token.is_content() && !token.is(lex::LIGHT) || token.kind == Kind::Number;
    tokens.iter().filter(says).map(|token| token.stem)
}

// Announced numbers

/// Finds an announced number that differs from the number of items that follow, as in "Four materials: oak, ash and beech."
fn examine_count(view: &View<'_>, all: &[Sentence], findings: &mut Findings) {
    let tokens = view.tokens;
    let Some(colon) = tokens.iter().position(|token| token.is_mark(':')) else {
        return;
    };
    let Some(number) = announced(tokens.get(..colon).unwrap_or_default()) else {
        return;
    };
    let wanted = at(tokens, number).value;
    let after = tokens.get(colon + 1..).unwrap_or_default();
    let listed = if after.is_empty() { items_after(view.index, all) } else { items_in(after) };
    if listed > 0 && listed < wanted {
        findings.add(view.finding(COUNT_MISMATCH, number, tokens.len() - 1));
    }
}

/// The index of the announced number: it precedes a word for things that can be counted, and is close to the colon.
fn announced(tokens: &[Token]) -> Option<usize> {
    let first = tokens.len().saturating_sub(9);
    (first..tokens.len()).find(|&index| {
        let token = at(tokens, index);
        let is_count = (token.is(lex::NUMERAL) || token.kind == Kind::Number) && (2..10).contains(&token.value);
        is_count
            && (at(tokens, index + 1).is(lex::ENUMERABLE) || at(tokens, index + 2).is(lex::ENUMERABLE))
            && !before(tokens, index).is_mark('-')
    })
}

/// The number of items that are joined by commas, semicolons, "and" and "or".
fn items_in(tokens: &[Token]) -> u16 {
    let mut items = 1;
    let mut parted = false;
    for token in tokens {
        let parts = token.is_mark(',') || token.is_mark(';') || matches!(token.hash, AND | OR);
        items += u16::from(parts && !parted);
        parted = parts;
    }
    items
}

/// The number of items in the list on the following lines; 0 if there is none.
fn items_after(index: usize, all: &[Sentence]) -> u16 {
    let is_item = |sentence: &&Sentence| sentence.item.is_some() || sentence.bullet;
    // Ten are enough, because only announcements of up to nine are considered.
    all.iter().skip(index + 1).take(10).take_while(is_item).count() as u16
}

// The text as a whole

/// Finds the features that need the whole text. Returns how much its sentences are like each other, if they can be compared.
pub(crate) fn examine_text(
    scan: &Scan,
    claims: &[Claim],
    repetition: &mut Repetition,
    is_english: bool,
    findings: &mut Findings,
) -> Option<f32> {
    examine_opening(scan, findings);
    examine_steps(scan, findings);
    examine_ordinals(scan, findings);
    is_english.then(|| examine_links(scan, claims, repetition, findings)).flatten()
}

fn whole(feature: usize, index: usize, sentence: &Sentence) -> Finding {
    Finding { feature, sentence: index, start: sentence.start, end: sentence.end }
}

fn word(feature: usize, index: usize, token: &Token) -> Finding {
    Finding { feature, sentence: index, start: token.start, end: token.end }
}

/// Finds a connective in the first full sentence. Only headings and greetings can precede that sentence.
fn examine_opening(scan: &Scan, findings: &mut Findings) {
    let headings = scan.sentences.iter().take_while(|sentence| sentence.ending == Ending::None).count();
    let Some(sentence) = scan.sentences.get(headings).filter(|sentence| !sentence.heading) else {
        return;
    };
    let tokens = scan.tokens_of(sentence);
    let first = at(tokens, 0);
    if first.is(lex::CONNECTIVE) && !first.has(QUOTED) && !concedes(tokens) {
        findings.add(word(LOOSE_CONNECTIVE, headings, first));
    }
}

/// Whether "however" belongs to its own clause, as in "However hard he tried, …", and not to an earlier sentence.
fn concedes(tokens: &[Token]) -> bool {
    let (first, degree, subject) = (at(tokens, 0), at(tokens, 1), at(tokens, 2));
    let degrees = degree.is_content() && subject.is(lex::PRONOUN | lex::DETERMINER);
    first.hash == HOWEVER
        && (degrees || matches!(degree.hash, MANY | MUCH | FEW))
        && tokens.iter().any(|token| token.is_mark(','))
}

/// Checks numbered items and "Step N": each number must follow the previous one, and 1 opens a new list.
fn examine_steps(scan: &Scan, findings: &mut Findings) {
    let mut lists = Lists::default();
    let mut words = Sequence::default();
    for (index, sentence) in scan.sentences.iter().enumerate() {
        let tokens = scan.tokens_of(sentence);
        let (first, number) = (at(tokens, 0), at(tokens, 1));
        let broken = match sentence.item {
            Some(item) => lists.breaks(item, sentence.indent),
            None if first.hash == STEP && number.kind == Kind::Number && at(tokens, 2).kind == Kind::Mark => {
                words.breaks(number.value)
            }
            None => false,
        };
        if broken {
            findings.add(whole(STEP_ORDER, index, sentence));
        }
    }
}

/// The nested lists that contain the last item, each with its indentation. The innermost list is last.
#[derive(Default)]
struct Lists(Vec<(usize, Sequence)>);

impl Lists {
    /// Whether an item is out of order. An item that is indented further begins a nested list with 1; one that is indented less
    /// continues an outer list.
    fn breaks(&mut self, item: u16, indent: usize) -> bool {
        let Lists(lists) = self;
        while lists.len() > 1 && lists.last().is_some_and(|&(inner, _)| inner > indent) {
            lists.pop();
        }
        if lists.last().is_none_or(|&(outer, _)| outer < indent && item <= 1) {
            lists.push((indent, Sequence::default()));
        }
        lists.last_mut().is_some_and(|(_, list)| list.breaks(item))
    }
}

/// A sequence of numbers in which each should be one more than the previous one.
#[derive(Default)]
struct Sequence {
    last: u16,
    /// Whether the last number opened the list.
    opened: bool,
}

impl Sequence {
    fn breaks(&mut self, number: u16) -> bool {
        // The first two numbers of the list are swapped.
        let swapped = self.opened && number > 0 && number.checked_add(1) == Some(self.last);
        let follows = number == self.last.saturating_add(1);
        let opens = self.last == 0 || number <= 1;
        self.opened = opens;
        self.last = number;
        swapped || !follows && !opens
    }
}

/// Finds ordinals out of order at the beginning of sentences, as in "First, … Third, … Second, …".
fn examine_ordinals(scan: &Scan, findings: &mut Findings) {
    let mut last = 0;
    for (index, sentence) in scan.sentences.iter().enumerate() {
        let tokens = scan.tokens_of(sentence);
        let (first, next) = (at(tokens, 0), at(tokens, 1));
        if !first.is(lex::ORDINAL) || !(next.is_mark(',') || first.value == 1 && next.is(lex::VERB_BASE)) {
            continue;
        }
        let fine = last == 0
            || first.value == 1
            || first.value == LAST_ORDINAL && last != LAST_ORDINAL
            || first.value == last + 1;
        if !fine {
            findings.add(whole(STEP_ORDER, index, sentence));
        }
        last = first.value;
    }
}

/// The value of "finally", which comes after any other ordinal.
const LAST_ORDINAL: u16 = 99;

/// Finds, among sentences without a defect, those that are linked to another one and those that could be off topic.
fn examine_links(scan: &Scan, claims: &[Claim], repetition: &mut Repetition, findings: &mut Findings) -> Option<f32> {
    let is_sound = |index: usize, claim: &Claim, findings: &Findings| {
        !claim.is_marker_row() && !findings.is_defective(index, Law::Architecture)
    };
    for (index, _) in claims.iter().enumerate().filter(|(index, claim)| is_sound(*index, claim, findings)) {
        repetition.count(index);
    }
    let closed = |sentence: &&Sentence| sentence.ending == Ending::Period;
    let judged = scan.sentences.iter().filter(closed).count();
    let sound: Vec<bool> = claims.iter().enumerate().map(|(index, claim)| is_sound(index, claim, findings)).collect();
    let topics = topics(scan, claims, &sound);
    let refers_back = refers_back(scan, &sound);
    let mut follows = false; // whether a sentence without a defect precedes this one
    for (index, (sentence, claim)) in scan.sentences.iter().zip(claims).enumerate() {
        if !is_sound(index, claim, findings) {
            continue;
        }
        let steps = sentence.item.is_some() || at(scan.tokens_of(sentence), 0).is(lex::ORDINAL);
        let takes_up = steps || topics.is_alike(index).unwrap_or_else(|| takes_up(scan, index));
        let belongs = takes_up || claim.any(lex::POINTER | lex::CONNECTIVE) || repetition.shares(index);
        if takes_up && claim.words > 2 && follows {
            findings.add(word(LINKED, index, first_content(scan.tokens_of(sentence))));
        } else if !belongs && judged > 1 && follows {
            // The reason in a sentence that nothing else refers to ties nothing together.
            findings.remove(index, REASONED);
        }
        if topics.is_mixed(index) && !steps && !refers_back {
            findings.add(whole(MIXED_SUBJECTS, index, sentence));
        } else if !belongs && judged >= 4 && could_be_off_topic(scan, sentence, claim) && !topics.is_close(index) {
            findings.add(whole(OFF_TOPIC, index, sentence));
        }
        follows |= claim.words > 2;
    }
    topics.mean
}

/// What the sentences of running text are about.
fn topics(scan: &Scan, claims: &[Claim], sound: &[bool]) -> Topics {
    let runs = |sentence: &Sentence| sentence.ending != Ending::None && !sentence.heading;
    let sentences = scan.sentences.iter().zip(claims).zip(sound);
    Topics::new(sentences.map(|((sentence, claim), sound)| match scan.tokens_of(sentence) {
        tokens if runs(sentence) && *sound => Part { tokens, is_past: is_past_rather(tokens, claim) },
        _ => Part { tokens: &[], is_past: None },
    }))
}

/// Whether most sentences begin with a reference to an earlier one, as in a story about "him". Their own words say little about
/// their subject.
fn refers_back(scan: &Scan, sound: &[bool]) -> bool {
    let begins = |sentence: &&Sentence| scan.tokens_of(sentence).iter().take(3).any(|token| token.is(lex::POINTER));
    let later = || scan.sentences.iter().zip(sound).filter(|(_, sound)| **sound).map(|(sentence, _)| sentence).skip(1);
    later().filter(begins).count() * 5 >= later().count() * 3
}

/// Whether a sentence repeats a content word of the one before it.
fn takes_up(scan: &Scan, index: usize) -> bool {
    let words = |index: usize| {
        let sentence = scan.sentences.get(index);
        let tokens = sentence.map(|sentence| scan.tokens_of(sentence)).unwrap_or_default();
        let names = tokens.iter().filter(|token| token.kind != Kind::Number);
        names.filter(|token| token.is_content() && !token.is(lex::LIGHT)).map(|token| token.stem).take(MAX_LINK_WORDS)
    };
    let before: Vec<u64> = index.checked_sub(1).into_iter().flat_map(words).collect();
    words(index).any(|word| before.contains(&word))
}

/// Maximum number of words of a sentence that are compared with the next one. The limit keeps the comparison linear.
const MAX_LINK_WORDS: usize = 100;

/// The first content word, or else the first token.
fn first_content(tokens: &[Token]) -> &Token {
    tokens.iter().find(|token| token.is_content()).unwrap_or(at(tokens, 0))
}

/// Whether this is a general statement without a figure, name or date that could connect it implicitly to the topic.
fn could_be_off_topic(scan: &Scan, sentence: &Sentence, claim: &Claim) -> bool {
    let tokens = scan.tokens_of(sentence);
    sentence.ending == Ending::Period
        && sentence.item.is_none()
        && !sentence.bullet
        && claim.is_claim()
        && claim.content >= 3
        && !(claim.numbers > 0
            || claim.dated
            || claim.named
            || claim.is_conditional()
            || has_mark(tokens, ',')
            || has_mark(tokens, ':')
            || tells_past(tokens)
            || is_passive(tokens))
}
