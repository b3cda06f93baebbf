//! Splits an observation into words and numbers, and gives each number a name.

use std::collections::BTreeSet;

use ken_text::{is_stop_word, words};

/// An observation split into words and numbers.
pub(crate) struct Reading {
    /// The index of the observation in the document.
    pub(crate) place: usize,
    words: Vec<Word>,
    pub(crate) numbers: Vec<Number>,
}

struct Word {
    /// The word in normal form; for a number, `#` and its unit.
    text: String,
    /// Whether there is no punctuation between this word and the previous one.
    is_joined: bool,
}

pub(crate) struct Number {
    pub(crate) value: f64,
    /// What the number counts or measures. Each number of an observation has another name.
    pub(crate) name: String,
    pub(crate) condition: Condition,
    /// The unit that is attached to the number, as in "10C", "5%" or "$3".
    unit: String,
    /// The index of the number among the words.
    at: usize,
}

/// Whether a number is a condition under which the other numbers were measured, such as a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Condition {
    No,
    /// A noun introduces the number, with or without a preposition: "in week 3", "day 3".
    Named,
    /// Only a preposition introduces the number: "at 10".
    Plain,
}

const INTRODUCING: [&str; 9] = ["at", "after", "in", "on", "with", "when", "for", "by", "over"];

const PERIODS: [&str; 5] = ["year", "month", "week", "day", "hour"];

/// Words that link a number to the noun before it: "the rate is 5", "a rate of 5", "rose to 5".
const LINKS: [&str; 7] = ["is", "are", "was", "were", "be", "of", "to"];

/// Signs that can be attached to a number as its unit.
const SIGNS: [char; 7] = ['%', '‰', '°', '$', '€', '£', '¥'];

/// The numbers that count as years after the word "in".
const YEARS: std::ops::RangeInclusive<f64> = 1900.0..=2099.0;

impl Reading {
    pub(crate) fn of(place: usize, text: &str) -> Reading {
        let mut reading = Reading { place, words: Vec::new(), numbers: Vec::new() };
        let mut end_of_last = 0;
        for word in words(text) {
            let between = text.get(end_of_last..word.span.start).unwrap_or_default();
            end_of_last = word.span.end;
            let rest = text.get(word.span.end..).unwrap_or_default();
            reading.take(word.text, between, rest);
        }
        reading.name_numbers();
        reading
    }

    /// Adds a word. `between` is the text between the previous word and this one, and `rest` is the text after it.
    fn take(&mut self, word: &str, between: &str, rest: &str) {
        let text = match number(word) {
            None => ken_text::fold(word).into_owned(),
            Some((value, unit)) => {
                let unit = if unit.is_empty() { sign(between.chars().next_back(), rest.chars().next()) } else { unit };
                let text = format!("#{unit}");
                self.numbers.push(Number {
                    value: if between.ends_with(['-', '\u{2212}']) { -value } else { value },
                    name: String::new(),
                    condition: self.condition(),
                    unit,
                    at: self.words.len(),
                });
                text
            }
        };
        let is_joined = !between.contains([',', ';', ':', '.', '!', '?']);
        self.words.push(Word { text, is_joined });
    }

    /// Returns whether and how the words so far introduce the next number as a condition.
    fn condition(&self) -> Condition {
        let mut before = self.words.iter().rev().map(|word| word.text.as_str());
        match (before.next(), before.next()) {
            (Some(last), _) if INTRODUCING.contains(&last) => Condition::Plain,
            (Some(last), _) if PERIODS.contains(&last) => Condition::Named,
            (Some(last), Some(before)) if is_noun(last) && INTRODUCING.contains(&before) => Condition::Named,
            _ => Condition::No,
        }
    }

    /// Gives each number a name, from the last number to the first. The order matters because a noun between two
    /// numbers more often belongs to the later one: "in 2001 sales were 5".
    fn name_numbers(&mut self) {
        let subject = self.numbers.first().and_then(|first| noun(self.words.get(..first.at)?));
        let mut taken: BTreeSet<&str> = BTreeSet::new();
        let mut names: Vec<String> = Vec::with_capacity(self.numbers.len());
        for slot in (0..self.numbers.len()).rev() {
            let candidates = self.names(slot).into_iter().chain([subject]).flatten();
            let name = candidates.into_iter().find(|name| taken.insert(name));
            names.push(name.map_or_else(|| format!("number {}", slot + 1), str::to_owned));
        }
        for (number, name) in self.numbers.iter_mut().zip(names.into_iter().rev()) {
            number.name = name;
        }
    }

    /// Returns possible names for the number at index `slot`, the most likely first.
    fn names(&self, slot: usize) -> [Option<&str>; 4] {
        let Some(number) = self.numbers.get(slot) else {
            return [None; 4];
        };
        let start = slot.checked_sub(1).and_then(|slot| self.numbers.get(slot));
        let end = self.numbers.get(slot + 1);
        let words = |start: usize, end: usize| self.words.get(start..end).unwrap_or_default();
        let before = words(start.map_or(0, |last| last.at + 1), number.at);
        let after = words(number.at + 1, end.map_or(self.words.len(), |next| next.at));
        let unit = Some(number.unit.as_str()).filter(|unit| !unit.is_empty());
        let following =
            after.first().filter(|word| word.is_joined && is_noun(&word.text)).map(|word| word.text.as_str());
        // In "sensor 1 reads 5", the single word between two numbers belongs to the second one.
        let is_between = end.is_some() && after.len() == 1;
        let is_joined = self.words.get(number.at).is_some_and(|word| word.is_joined);
        match number.condition {
            Condition::Plain => [year(number, before), unit, following, noun(before)],
            Condition::No if !is_between && !is_linked(before, is_joined) && unit.is_none() => {
                [following, noun(before), None, None]
            }
            _ => [noun(before), unit, following, None],
        }
    }

    /// Returns the words, without the values of the numbers.
    pub(crate) fn wording(&self) -> Vec<&str> {
        self.words.iter().map(|word| word.text.as_str()).collect()
    }

    /// Returns the words without the values of the numbers and without nouns that do not name a number. The result is
    /// the same for observations that state the same kinds of numbers of different things.
    pub(crate) fn frame(&self) -> Vec<&str> {
        let names: BTreeSet<&str> = self.numbers.iter().map(|number| number.name.as_str()).collect();
        let kept = |word: &&str| word.starts_with('#') || is_stop_word(word) || names.contains(word);
        let words = self.wording().into_iter();
        words.map(|word| if kept(&word) { word } else { "" }).collect()
    }

    /// Returns the name of the number at index `slot` if the number at index `constant`, which is before it, is part of
    /// the name, as in "sensor 1 reads".
    pub(crate) fn name_after(&self, constant: usize, slot: usize) -> Option<String> {
        let (number, constant) = (self.numbers.get(slot)?, self.numbers.get(constant)?);
        let label = self.words.get(constant.at.checked_sub(1)?)?;
        let is_label = constant.condition == Condition::No && label.text == constant.name;
        is_label.then(|| format!("{} {} {}", constant.name, constant.value, number.name))
    }
}

/// Parses a number with an attached unit: "10C" gives 10 and "c".
fn number(word: &str) -> Option<(f64, String)> {
    let end = word.find(|char: char| !char.is_ascii_digit() && char != '.' && char != ',').unwrap_or(word.len());
    let digits = word.get(..end)?.replace(',', "");
    let value: f64 = digits.parse().ok().filter(|value: &f64| value.is_finite())?;
    Some((value, ken_text::fold(word.get(end..)?).into_owned()))
}

/// Returns the sign directly before or after a number; empty if there is none.
fn sign(before: Option<char>, after: Option<char>) -> String {
    let sign = [after, before].into_iter().flatten();
    sign.filter(|char| SIGNS.contains(char)).take(1).collect()
}

fn is_noun(word: &str) -> bool {
    !word.starts_with('#') && !is_stop_word(word)
}

/// Returns the last word that can be the name of a number.
fn noun(words: &[Word]) -> Option<&str> {
    let mut texts = words.iter().rev().map(|word| word.text.as_str());
    texts.find(|text| is_noun(text))
}

/// Returns whether a verb of being or punctuation links a number to the noun before it.
fn is_linked(before: &[Word], is_joined: bool) -> bool {
    let mut between = before.iter().rev().take_while(|word| !is_noun(&word.text));
    !is_joined || between.any(|word| LINKS.contains(&word.text.as_str()))
}

fn year(number: &Number, before: &[Word]) -> Option<&'static str> {
    let is_introduced = before.last().is_some_and(|word| word.text == "in");
    let is_year = number.value.fract() == 0.0 && YEARS.contains(&number.value) && number.unit.is_empty();
    (is_introduced && is_year).then_some("year")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<String> {
        let numbers = Reading::of(0, text).numbers.into_iter();
        numbers.map(|number| number.name).collect()
    }

    #[test]
    fn each_number_has_its_own_name() {
        for (text, expected) in [
            ("the rate is 1.1 at 10 C", &["rate", "c"][..]),
            ("in 2001 sales were 5", &["year", "sales"]),
            ("sales in 2001 were 5", &["year", "sales"]),
            ("sales rose by 5 in 2001", &["rose", "year"]),
            ("day 1: 20 degrees", &["day", "degrees"]),
            ("80 kg in week 1", &["kg", "week"]),
            ("5% of x", &["%"]),
            ("it costs $5", &["costs"]),
            ("$5", &["$"]),
            ("sensor 1 reads 5", &["sensor", "reads"]),
            ("sensor 1 reads 5 volts", &["sensor", "volts"]),
            ("Ann bought 3 apples for 6 dollars", &["apples", "dollars"]),
            ("Ann has 3 apples", &["apples"]),
            ("10 C 5 bar", &["c", "bar"]),
            ("temp 20C at 5bar", &["temp", "bar"]),
            ("weight: 80 kg", &["weight"]),
            ("5 C at 6 C", &["number 1", "c"]),
            ("1 2", &["number 1", "number 2"]),
        ] {
            assert_eq!(names(text), expected, "{text}");
        }
    }
}
