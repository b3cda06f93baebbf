//! Compares what a sentence says with what a passage of a source says about the same thing: amounts, dates, directions, how
//! many of the things, whether it is so, whether it must be so, and which words stand in place of others.

use std::collections::HashMap;
use std::sync::LazyLock;

use ken_text::{Span, opposites};

use crate::calendar::{MONTHS, WEEKDAYS};
use crate::carried::{is_carried, refers_back};
use crate::reading::{Amount, Reading, Word, amounts, read, stem};

/// How much of the weight of a sentence the passage must contain to be about the same thing, 0 to 1.
const SAME_MATTER: f64 = 0.55;
/// How much of it the passage must contain for the sentence to be left open, rather than to be new, 0 to 1.
const RELATED: f64 = 0.4;
/// How much of the weight of a clause it must contain for a negation to be a contradiction, 0 to 1.
const SAME_CLAUSE: f64 = 0.7;

/// How much of the weight of a clause one clause of the source must contain for a negation to be a contradiction, 0 to 1. A
/// negation in a sentence that is only similar is as often a true paraphrase.
const SAME_STATEMENT: f64 = 0.85;

/// A sentence of the text, the passage that supports it best, and that passage with the sentences around it.
pub(crate) struct Pair {
    ours: Reading,
    theirs: Reading,
    around: Reading,
    /// The next best passages.
    others: Vec<Reading>,
    our_amounts: Vec<Amount>,
    their_amounts: Vec<Amount>,
    amounts_around: Vec<Amount>,
}

impl Pair {
    /// A place is a text and a span of it; `others` are the next best passages.
    pub(crate) fn new(
        sentence: (&str, Span),
        (source, passage): (&str, Span),
        around: Span,
        others: &[(&str, Span)],
    ) -> Pair {
        let [ours, theirs, around] =
            [sentence, (source, passage), (source, around)].map(|(text, span)| read(text, span));
        let others = others.iter().map(|(text, span)| read(text, *span)).collect::<Vec<_>>();
        let [our_amounts, mut their_amounts, mut amounts_around] = [&ours, &theirs, &around].map(amounts);
        amounts_around.extend(others.iter().flat_map(amounts));
        // A tokeniser has torn "98. 7" apart, and the passage ends with the first half.
        let is_torn = source
            .get(passage.end..)
            .is_some_and(|rest| rest.trim_start().starts_with(|char: char| char.is_ascii_digit()));
        their_amounts.retain(|amount| !(is_torn && amount.span.end + 1 >= passage.end));
        let before = source.get(..passage.start).map(str::trim_end).unwrap_or_default();
        let goes_on =
            before.strip_suffix('.').is_some_and(|before| before.ends_with(|char: char| char.is_ascii_digit()));
        their_amounts.retain(|amount| !(goes_on && amount.span.start == passage.start));
        Pair { ours, theirs, around, others, our_amounts, their_amounts, amounts_around }
    }

    /// The words of the sentence in whose place the passage has others that exclude them.
    pub(crate) fn contradiction(&self) -> Option<Span> {
        self.other_amount()
            .or_else(|| self.other_day())
            .or_else(|| self.turned_direction())
            .or_else(|| self.denied())
            .or_else(|| self.other_duty())
    }

    /// Returns whether the passage speaks of the same thing as the sentence.
    pub(crate) fn is_about_the_same(&self) -> bool {
        self.held(|_| false) >= RELATED
    }

    /// The passage that says the sentence word for word: 0 for the best one, 1 and so on for the next best.
    pub(crate) fn carrier(&self) -> Option<usize> {
        std::iter::once(&self.theirs).chain(&self.others).position(|passage| is_carried(&self.ours, passage))
    }

    pub(crate) fn refers_back(&self) -> bool {
        refers_back(&self.ours)
    }

    /// Returns whether the passage or its neighbours state the amount at a place of the sentence, perhaps in another unit.
    pub(crate) fn states_amount_at(&self, span: Span) -> bool {
        let ours = self.our_amounts.iter().filter(|ours| ours.span.start <= span.start && span.end <= ours.span.end);
        ours.into_iter().any(|ours| self.amounts_around.iter().any(|theirs| theirs.is_same(ours)))
    }

    /// Returns how much of the sentence's weight the passage contains, 0 to 1, without the words for which `but` holds.
    fn held(&self, but: impl Fn(&Word) -> bool) -> f64 {
        let (mut held, mut all) = (0.0, 0.0);
        for word in self.ours.words.iter().filter(|word| word.is_content && !but(word)) {
            all += word.weight;
            let is_held = word.number.is_some() && self.states_amount_at(word.span)
                || has_word(&self.theirs, word)
                || self.opposite_of(word).is_some();
            held += if is_held { word.weight } else { 0.0 };
        }
        if all > 0.0 { held / all } else { 0.0 }
    }

    fn held_but(&self, span: Span) -> f64 {
        self.held(|word| span.start <= word.span.start && word.span.end <= span.end)
    }

    /// An amount of the sentence for which the passage has another one of the same kind.
    fn other_amount(&self) -> Option<Span> {
        let stated = |ours: &&Amount| self.amounts_around.iter().any(|theirs| theirs.is_same(ours));
        let other = |ours: &&Amount| {
            let free =
                self.their_amounts.iter().filter(|theirs| !self.our_amounts.iter().any(|ours| ours.is_same(theirs)));
            let free: Vec<&Amount> = free.collect();
            // "Eleven of the fourteen locks work", "students pay half": that of the sentence may have been calculated.
            !free.iter().any(|theirs| theirs.is_bare)
                && !self.theirs.words.iter().any(|word| word.is_one_of(&PARTS))
                && free.iter().any(|theirs| !theirs.is_rough && theirs.is_of_same_kind(ours))
        };
        let mut others = self.our_amounts.iter().filter(|ours| !ours.is_rough && !stated(ours) && other(ours));
        others.find(|ours| self.held_but(ours.span) >= SAME_MATTER).map(|ours| ours.span)
    }

    /// A weekday or month for which the passage has another one.
    fn other_day(&self) -> Option<Span> {
        let days = |reading: &Reading, kind: usize| -> Vec<(String, Span)> {
            let days = reading.words.iter().filter(|word| word.is_capital && day(&word.lower) == Some(kind));
            days.map(|word| (word.lower.clone(), word.span)).collect()
        };
        (0..2).find_map(|kind| {
            let (ours, theirs, around) = (days(&self.ours, kind), days(&self.theirs, kind), days(&self.around, kind));
            let others: Vec<_> = self.others.iter().flat_map(|other| days(other, kind)).collect();
            let is_said = |day: &String| around.iter().chain(&others).any(|(other, _)| other == day);
            let (_, span) = ours.into_iter().find(|(day, _)| !is_said(day))?;
            (!theirs.is_empty() && self.held_but(span) >= SAME_CLAUSE).then_some(span)
        })
    }

    /// A shared word before which the sentence has the opposite preposition: "from Oslo" and "to Oslo".
    fn turned_direction(&self) -> Option<Span> {
        if self.held(|_| false) < SAME_CLAUSE {
            return None;
        }
        let (ours, theirs) = (self.ours.governed(), self.theirs.governed());
        let turned = |(word, preposition): &&(usize, usize)| {
            let (Some(word), Some(preposition)) = (self.ours.words.get(*word), self.ours.words.get(*preposition))
            else {
                return false;
            };
            let mut same = theirs
                .iter()
                .filter(|(other, _)| self.theirs.words.get(*other).is_some_and(|other| other.is_same(word)))
                .peekable();
            same.peek().is_some()
                && same.all(|(_, other)| {
                    let other = self.theirs.words.get(*other).map(|other| other.lower.as_str()).unwrap_or_default();
                    DIRECTIONS.contains(&(preposition.lower.as_str(), other))
                        || DIRECTIONS.contains(&(other, preposition.lower.as_str()))
                })
        };
        let (word, preposition) = ours.iter().find(turned)?;
        let (start, end) = (self.ours.words.get(*preposition)?.span.start, self.ours.words.get(*word)?.span.end);
        Some(Span { start, end })
    }

    /// A clause of the sentence that the passage denies, or that denies what the passage says.
    fn denied(&self) -> Option<Span> {
        let ours = self.ours.clauses();
        let theirs = self.around.clauses();
        let in_clause =
            |words: &[&Word], word: &Word| words.iter().any(|other| other.is_same(word) || excludes(other, word));
        ours.iter().find_map(|clause| {
            let content = clause.iter().filter(|word| word.is_content).count();
            // A word alone, as "Yesterday," before the clause, denies nothing.
            let frees = has_one_of(clause, &["have", "has", "need", "required", "obliged"])
                && clause.iter().any(|word| word.negates);
            if content == 0 || frees || content < 3 && ours.len() > 1 {
                return None;
            }
            let all: f64 = clause.iter().filter(|word| word.is_content).map(|word| word.weight).sum();
            // "It has never failed": the pronoun stands for a word of a neighbour.
            let shared = |their: &[&Word]| -> f64 {
                let own: Vec<&&Word> = clause.iter().filter(|word| word.is_content).collect();
                let direct = own.iter().filter(|word| in_clause(their, word)).map(|word| word.weight).sum::<f64>();
                let refers = has_one_of(their, &PRONOUNS) && content > 2 && direct >= 0.4 * all;
                let held =
                    own.into_iter().filter(|word| in_clause(their, word) || refers && has_word(&self.around, word));
                held.map(|word| word.weight).sum()
            };
            let most = theirs.iter().map(|their| shared(their)).fold(0.0, f64::max);
            let is_of_passage =
                |their: &[&Word]| their.iter().any(|word| self.theirs.words.iter().any(|own| own.span == word.span));
            let is_about = |their: &[&Word]| is_of_passage(their) || has_one_of(their, &PRONOUNS);
            let near = || theirs.iter().filter(|their| shared(their) >= 0.9 * most && is_about(their));
            let turned = |their: &[&Word]| -> Option<(usize, Option<Span>)> {
                if !is_in_order(clause, their) {
                    return None; // "one can buy the juice" and "the juice is sold"
                }
                // "Hardly any" and "little" say the same, and only one of them negates.
                if has_one_of(clause, &NEARLY_NONE) || has_one_of(their, &NEARLY_NONE) {
                    return None;
                }
                if has_one_of(clause, &["only"]) != has_one_of(their, &["only"]) {
                    return None; // "only members can vote" speaks of others, too
                }
                let turned = clause.iter().filter(|word| {
                    let same = their.iter().any(|other| other.is_same(word));
                    !same && their.iter().any(|other| excludes(other, word) && !has_word(&self.ours, other))
                });
                let turned: Vec<&&Word> = turned.collect();
                let denials =
                    denials(clause, |word| in_clause(their, word)) + denials(their, |word| in_clause(clause, word));
                // A negation of a word that only one of them has may say the same in other words: "not safe to drink".
                let negations = |words: &[&Word]| words.iter().filter(|word| word.negates).count();
                let is_loose = negations(clause) + negations(their) > denials;
                if is_loose || denials > 0 && !turned.is_empty() {
                    return None; // "cannot be opened" and "is locked" may say the same
                }
                Some((denials + turned.len(), turned.first().map(|word| word.span)))
            };
            if most < all * SAME_STATEMENT || near().any(|their| turned(their).is_none_or(|(turns, _)| turns % 2 == 0))
            {
                return None;
            }
            let (_, word) = turned(near().next()?)?;
            word.or_else(|| Some(Span { start: clause.first()?.span.start, end: clause.last()?.span.end }))
        })
    }

    /// A duty in place of a choice: "must" and "may", "required" and "optional".
    fn other_duty(&self) -> Option<Span> {
        let find = |reading: &Reading, list: &[&str]| {
            reading.words.iter().find(|word| word.is_one_of(list)).map(|word| word.span)
        };
        if self.held(|word| word.is_one_of(&DUTIES) || word.is_one_of(&CHOICES)) < SAME_CLAUSE
            || self.ours.words.iter().chain(&self.theirs.words).any(|word| word.negates)
        {
            return None;
        }
        let (duty, choice) = (find(&self.ours, &DUTIES), find(&self.ours, &CHOICES));
        let (their_duty, their_choice) =
            (find(&self.theirs, &DUTIES).is_some(), find(&self.theirs, &CHOICES).is_some());
        match (duty, choice) {
            (Some(span), None) if their_choice && !their_duty => Some(span),
            (None, Some(span)) if their_duty && !their_choice => Some(span),
            _ => None,
        }
    }

    /// A word of the passage that excludes a word of the sentence, if neither text has both.
    fn opposite_of(&self, word: &Word) -> Option<&Word> {
        self.theirs.words.iter().find(|other| excludes(other, word))
    }
}

/// Returns whether the words that two clauses share, or exclude, have the same order in both.
fn is_in_order(ours: &[&Word], theirs: &[&Word]) -> bool {
    let place = |word: &&Word| theirs.iter().position(|other| other.is_same(word) || excludes(other, word));
    ours.iter().filter(|word| word.is_content).filter_map(place).is_sorted()
}

fn has_one_of(words: &[&Word], list: &[&str]) -> bool {
    words.iter().any(|word| word.is_one_of(list))
}

fn has_word(reading: &Reading, word: &Word) -> bool {
    reading.words.iter().any(|other| other.is_same(word))
}

/// Returns whether one of two words excludes the other, by their spelling or their stem.
fn excludes(a: &Word, b: &Word) -> bool {
    if !a.is_content || !b.is_content {
        return false;
    }
    let direct = opposites(&a.lower).iter().any(|other| other.word == b.lower);
    direct || STEM_OPPOSITES.get(&a.stem).is_some_and(|others| others.contains(&b.stem))
}

static STEM_OPPOSITES: LazyLock<HashMap<String, Vec<String>>> = LazyLock::new(|| {
    let mut stems: HashMap<String, Vec<String>> = HashMap::new();
    for (word, others) in ken_text::all_opposites() {
        stems.entry(stem(word)).or_default().extend(others.iter().map(|other| stem(other.word)));
    }
    stems
});

/// Returns the number of negations in a clause that bear on a word that both clauses share.
fn denials(clause: &[&Word], is_shared: impl Fn(&Word) -> bool) -> usize {
    let denies = |at: &usize| clause.get(*at).is_some_and(|word| word.negates);
    let bears = |at: &usize| {
        let mut after = clause.iter().skip(at + 1);
        match after.find(|word| word.is_content) {
            Some(word) => is_shared(word),
            // "Parking is forbidden": what is denied comes before.
            None => clause.iter().any(|word| word.is_content && is_shared(word)),
        }
    };
    (0..clause.len()).filter(denies).filter(bears).count()
}

fn day(word: &str) -> Option<usize> {
    // "On Mondays" is about the same day as "on Monday".
    if WEEKDAYS.contains(&word.strip_suffix('s').unwrap_or(word)) {
        return Some(0);
    }
    MONTHS.contains(&word).then_some(1)
}

/// Words with which an amount can be calculated from another one.
const PARTS: [&str; 7] = ["half", "third", "thirds", "quarter", "quarters", "double", "twice"];

/// Words that almost negate.
const NEARLY_NONE: [&str; 7] = ["hardly", "scarcely", "barely", "rarely", "seldom", "little", "few"];

const PRONOUNS: [&str; 8] = ["it", "he", "she", "they", "this", "these", "both", "who"];

const DIRECTIONS: [(&str, &str); 9] = [
    ("from", "to"),
    ("from", "into"),
    ("before", "after"),
    ("above", "below"),
    ("over", "under"),
    ("with", "without"),
    ("inside", "outside"),
    ("until", "after"),
    ("for", "against"),
];

const DUTIES: [&str; 8] =
    ["must", "required", "obliged", "mandatory", "compulsory", "obligatory", "requires", "require"];
const CHOICES: [&str; 7] = ["may", "optional", "voluntary", "can", "optionally", "voluntarily", "allowed"];
