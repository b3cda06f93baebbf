//! Reads a sentence into words with their clauses, and the amounts in it.

use ken_text::{Span, expand, is_negator, is_stop_word, push_stem, words};

use crate::calendar::is_calendar;
use crate::rarity::rarity;

/// The words of one or several sentences.
pub(crate) struct Reading {
    pub(crate) words: Vec<Word>,
}

pub(crate) struct Word {
    pub(crate) lower: String,
    pub(crate) stem: String,
    pub(crate) span: Span,
    pub(crate) is_content: bool,
    pub(crate) is_capital: bool,
    pub(crate) negates: bool,
    /// The number of the clause.
    pub(crate) clause: usize,
    pub(crate) number: Option<f64>,
    /// The unit that is joined to the number: "5kg", "$5", "5 %".
    unit: Option<String>,
    pub(crate) weight: f64,
}

impl Word {
    fn new(lower: String, span: Span, clause: usize) -> Word {
        let (stem, negates) = (stem(&lower), is_negator(&lower));
        let (number, unit, weight) = (None, None, 0.0);
        Word { lower, stem, span, is_content: false, is_capital: false, negates, clause, number, unit, weight }
    }

    pub(crate) fn is_one_of(&self, words: &[&str]) -> bool {
        words.contains(&self.lower.as_str())
    }

    /// Returns whether two words are spelt the same, or are the same number with the same unit.
    pub(crate) fn says_same(&self, other: &Word) -> bool {
        match (self.number, other.number) {
            (Some(ours), Some(theirs)) => ours == theirs && self.unit == other.unit,
            _ => self.lower == other.lower,
        }
    }

    /// Returns whether two words are forms of one: they have one stem, or the same first five letters.
    pub(crate) fn is_same(&self, other: &Word) -> bool {
        if self.number.is_some() || other.number.is_some() {
            return self.number == other.number;
        }
        let start = |word: &Word| word.lower.chars().take(5).collect::<String>();
        self.stem == other.stem
            || self.is_content
                && other.is_content
                && self.lower.len() > 4
                && other.lower.len() > 4
                && start(self) == start(other)
    }
}

/// The maximum number of words that are read of a sentence.
const LONGEST: usize = 400;

pub(crate) fn read(text: &str, span: Span) -> Reading {
    let mut reading = Reading { words: Vec::new() };
    let mut clause = 0;
    let mut end = 0;
    let part = span.of(text);
    for word in words(part).take(LONGEST) {
        let between = part.get(end..word.span.start).unwrap_or_default();
        let clock = between == ":" && word.text.starts_with(|char: char| char.is_ascii_digit());
        let group = matches!(between, ", " | " " | "\u{a0}" | "\u{202f}")
            && word.text.len() == 3
            && word.text.bytes().all(|byte| byte.is_ascii_digit());
        if !clock && !group && between.contains([',', ';', ':', '(', ')', '—', '–', '.', '!', '?']) {
            clause += 1;
        }
        let after = part.get(word.span.end..).unwrap_or_default();
        end = word.span.end;
        let start = span.start + word.span.start;
        // A tokeniser has split "1, 056" at its thousands separator.
        if group && reading.join_thousands(word.text, start + 3) {
            continue;
        }
        if clock && reading.join_clock(word.text, start + word.text.len()) {
            continue;
        }
        let mut at = start;
        for piece in word.text.split('-') {
            let span = Span { start: at, end: at + piece.len() };
            at = span.end + 1;
            reading.push(piece, span, between, after, &mut clause);
        }
    }
    reading.mark_negations();
    reading
}

impl Reading {
    fn push(&mut self, piece: &str, span: Span, before: &str, after: &str, clause: &mut usize) {
        let lower = piece.to_lowercase();
        let (first, denied) = match expand(&lower) {
            Some(two) => (two.first(&lower).to_owned(), two.second == "not"),
            None => (lower.split(['\'', '’']).next().unwrap_or_default().to_owned(), false),
        };
        if first.is_empty() {
            return;
        }
        if CLAUSE_WORDS.contains(&first.as_str()) {
            *clause += 1;
        }
        let mut word = Word::new(first, span, *clause);
        word.is_capital = piece.starts_with(char::is_uppercase);
        word.read_number(before, after);
        if let (Some(number), Some(last)) = (word.number, self.words.last_mut())
            && last.span.end + 1 == span.start
            && let Some(tens) = last.number.filter(|tens| *tens >= 20.0 && tens % 10.0 == 0.0 && number < 10.0)
            && last.lower.starts_with(char::is_alphabetic)
        {
            last.number = Some(tens + number); // "twenty-five"
            last.span.end = span.end;
            return;
        }
        if let (Some(factor), Some(last)) = (multiplier(&word.lower), self.words.last_mut())
            && let Some(number) = last.number
        {
            last.number = Some(number * factor); // "3.4 million"
            last.span.end = span.end;
            return;
        }
        word.is_content = word.number.is_some()
            || !word.negates
                && !is_stop_word(&word.lower)
                && !word.is_one_of(&TRANSPARENT)
                && !(self.words.last().is_some_and(|last| last.number.is_some())
                    && (is_unit(&word.lower) || word.is_one_of(&["pm", "am"])));
        word.weight = if word.number.is_some() { 0.7 } else { f64::from(rarity(&word.stem)) };
        self.words.push(word);
        if denied {
            self.words.push(Word::new("not".to_owned(), span, *clause));
        }
    }

    /// Reads "14:02" as one number, in minutes. Returns false if no number stands before it.
    fn join_clock(&mut self, minutes: &str, end: usize) -> bool {
        let Some((last, minutes)) = self.words.last_mut().zip(minutes.parse::<f64>().ok()) else {
            return false;
        };
        let Some(hours) = last.number.filter(|hours| *hours < 1440.0) else {
            return false;
        };
        // A second colon begins the seconds, which are left out.
        if last.unit.as_deref() != Some("clock") {
            last.number = Some(hours * 60.0 + minutes);
            last.unit = Some("clock".to_owned());
        }
        last.span.end = end;
        true
    }

    fn join_thousands(&mut self, digits: &str, end: usize) -> bool {
        let Some((last, group)) = self.words.last_mut().zip(digits.parse::<f64>().ok()) else {
            return false;
        };
        let Some(thousands) = last.number.filter(|number| {
            number.fract() == 0.0 && *number >= 1.0 && last.unit.as_deref().is_none_or(|unit| "$€£".contains(unit))
        }) else {
            return false;
        };
        last.number = Some(thousands * 1000.0 + group);
        last.span.end = end;
        true
    }

    /// Marks the words that negate like "not": "failed to", "refused to", "unable", "forbidden".
    fn mark_negations(&mut self) {
        for at in 0..self.words.len() {
            let next = self.words.get(at + 1).map(|word| word.lower.clone()).unwrap_or_default();
            let after_content =
                at.checked_sub(1).and_then(|before| self.words.get(before)).is_some_and(|word| word.is_content);
            let Some(word) = self.words.get_mut(at) else { continue };
            // "The decision not to charge" says what is left open or left out, and denies no statement.
            word.negates &= !(word.lower == "not" && next == "to" && after_content);
            let fails = next == "to" && word.is_one_of(&FAILS);
            let stops = next.ends_with("ing") && word.is_one_of(&STOPS);
            if fails || stops || word.is_one_of(&FORBIDS) {
                word.negates = true;
                word.is_content = false;
            }
        }
    }

    pub(crate) fn clauses(&self) -> Vec<Vec<&Word>> {
        self.words.chunk_by(|a, b| a.clause == b.clause).map(|clause| clause.iter().collect()).collect()
    }

    /// Returns the content words that follow a preposition of direction or order, each with that preposition.
    pub(crate) fn governed(&self) -> Vec<(usize, usize)> {
        let mut found = Vec::new();
        for (at, word) in self.words.iter().enumerate() {
            if word.is_one_of(&GOVERNORS) {
                let next = self.words.iter().enumerate().skip(at + 1).take(4).find(|(_, word)| word.is_content);
                found.extend(next.map(|(content, _)| (content, at)));
            }
        }
        found
    }
}

impl Word {
    fn read_number(&mut self, before: &str, after: &str) {
        let digits = self
            .lower
            .find(|char: char| !(char.is_ascii_digit() || matches!(char, '.' | ',')))
            .unwrap_or(self.lower.len());
        let (number, rest) = self.lower.split_at(digits);
        if number.starts_with(|char: char| char.is_ascii_digit()) {
            let is_negative =
                before.ends_with(['-', '−']) && before.chars().rev().nth(1).is_none_or(char::is_whitespace);
            let number = number.replace(',', "").parse::<f64>().ok();
            self.number = number.map(|number| if is_negative { -number } else { number });
            let symbol = ['%', '°', '€', '£', '$'];
            let unit = match (before.trim_end().chars().next_back(), after.trim_start().chars().next()) {
                (Some(char @ ('$' | '€' | '£')), _) => char.to_string(),
                (_, Some(char)) if symbol.contains(&char) => char.to_string(),
                _ => rest.to_owned(),
            };
            self.unit =
                Some(unit).filter(|unit| !unit.is_empty() && !matches!(unit.as_str(), "st" | "nd" | "rd" | "th"));
        } else {
            self.number = numeral(&self.lower);
        }
    }
}

/// A number of a text with what it counts or measures.
#[derive(Debug, Clone)]
pub(crate) struct Amount {
    value: f64,
    /// The dimension of the unit, and the factor to its base unit.
    unit: Option<(&'static str, f64)>,
    /// The stems of the content words on both sides.
    beside: [Option<String>; 2],
    pub(crate) span: Span,
    /// Whether it is a bound or an estimate.
    pub(crate) is_rough: bool,
    /// Whether it stands without a unit and without a noun, and is no year.
    pub(crate) is_bare: bool,
}

impl Amount {
    /// Returns whether two amounts are equal, perhaps in different units.
    pub(crate) fn is_same(&self, other: &Amount) -> bool {
        let near = |a: f64, b: f64| (a - b).abs() <= 1e-6 * a.abs().max(b.abs());
        match (self.unit, other.unit) {
            (Some((kind, factor)), Some((other_kind, other_factor))) => {
                kind == other_kind && near(self.value * factor, other.value * other_factor)
                    || kind == "clock"
                        && other_kind == "clock"
                        && near(self.value % 720.0, other.value % 720.0)
                        && self.value.min(other.value) < 720.0
                        && factor != other_factor
            }
            // "Ten o'clock" and "until ten" can be 10 a.m.
            (Some(("clock", _)), None) => near(self.value % 720.0, other.value * 60.0 % 720.0),
            (None, Some(("clock", _))) => other.is_same(self),
            _ => near(self.value, other.value),
        }
    }

    /// Returns whether two amounts say how much of the same: they have one dimension, or a neighbour in common.
    pub(crate) fn is_of_same_kind(&self, other: &Amount) -> bool {
        let is_near = |ours: &Option<String>, theirs: &Option<String>| ours.is_some() && ours == theirs;
        let ([our_before, our_after], [their_before, their_after]) = (&self.beside, &other.beside);
        let before = is_near(our_before, their_before);
        match (self.unit, other.unit) {
            (Some((ours, _)), Some((theirs, _))) => ours == theirs || before || (self.value - other.value).abs() < 1e-9,
            (None, None) => before || is_near(our_after, their_after),
            _ => before,
        }
    }
}

pub(crate) fn amounts(reading: &Reading) -> Vec<Amount> {
    let words = &reading.words;
    let mut found = Vec::new();
    for (at, word) in words.iter().enumerate() {
        let Some(mut value) = word.number else { continue };
        let next =
            words.get(at + 1).filter(|next| next.clause == word.clause || word.unit.is_none() && is_unit(&next.lower));
        let mut unit = word.unit.as_deref().and_then(unit_of);
        let half_of_day = next.map(|next| next.lower.as_str()).filter(|next| matches!(*next, "am" | "pm" | "a" | "p"));
        if unit.is_none() || unit.is_some_and(|(kind, _)| kind == "clock") {
            match half_of_day {
                Some(half) if half == "am" || half == "pm" || words.get(at + 2).is_some_and(|m| m.lower == "m") => {
                    let minutes = if unit.is_some() { value } else { value * 60.0 };
                    value = minutes % 720.0 + if half.starts_with('p') { 720.0 } else { 0.0 };
                    unit = Some(("clock", 1.0));
                }
                _ if unit.is_none() => unit = next.and_then(|next| unit_of(&next.lower)),
                _ => {}
            }
        }
        let content = |word: Option<&Word>| {
            word.filter(|word| word.is_content && word.number.is_none()).map(|word| word.stem.clone())
        };
        let before = words.iter().take(at).rev().take(3).find(|word| word.is_content);
        let after = words.iter().skip(at + 1).take(3).find(|word| word.is_content);
        let near = words.get(at.saturating_sub(2)..at).unwrap_or_default();
        found.push(Amount {
            value,
            unit,
            beside: [content(before), content(after)],
            span: word.span,
            is_rough: near.iter().any(|word| word.is_one_of(&ROUGH)),
            is_bare: unit.is_none()
                && value < 1000.0
                && !words.get(at + 1).is_some_and(|next| next.is_content || is_calendar(&next.lower)),
        });
    }
    found
}

/// Returns whether a word in lower case is a unit of measurement.
pub(crate) fn is_unit(word: &str) -> bool {
    unit_of(word).is_some()
}

fn unit_of(word: &str) -> Option<(&'static str, f64)> {
    UNITS
        .iter()
        .find(|(_, _, names)| names.split(' ').any(|name| name == word))
        .map(|(kind, factor, _)| (*kind, *factor))
}

/// Units of measurement: the dimension, the factor to its base unit, and the names.
const UNITS: [(&str, f64, &str); 51] = [
    ("clock", 1.0, "clock"),
    ("time", 0.001, "ms millisecond milliseconds"),
    ("time", 1.0, "s sec second seconds"),
    ("time", 60.0, "min mins minute minutes"),
    ("time", 3600.0, "h hour hours"),
    ("time", 86400.0, "day days"),
    ("time", 604_800.0, "week weeks"),
    ("months", 1.0, "month months"),
    ("months", 12.0, "year years"),
    ("months", 120.0, "decade decades"),
    ("months", 1200.0, "century centuries"),
    ("length", 0.001, "mm millimetre millimetres millimeter millimeters"),
    ("length", 0.01, "cm centimetre centimetres centimeter centimeters"),
    ("length", 1.0, "m metre metres meter meters"),
    ("length", 1000.0, "km kilometre kilometres kilometer kilometers"),
    ("length", 1609.344, "mile miles"),
    ("length", 0.3048, "foot feet ft"),
    ("length", 0.0254, "inch inches"),
    ("mass", 0.000_001, "mg milligram milligrams"),
    ("mass", 0.000_000_001, "µg microgram micrograms"),
    ("mass", 0.001, "g gram grams"),
    ("mass", 1.0, "kg kilo kilos kilogram kilograms"),
    ("mass", 1000.0, "t tonne tonnes ton tons"),
    ("mass", 0.453_592, "lb lbs"),
    ("volume", 0.001, "ml millilitre millilitres milliliter milliliters"),
    ("volume", 1.0, "l litre litres liter liters"),
    ("volume", 3.785, "gallon gallons"),
    ("data", 1.0, "kb kilobyte kilobytes"),
    ("data", 1000.0, "mb megabyte megabytes"),
    ("data", 1_000_000.0, "gb gigabyte gigabytes"),
    ("data", 1_000_000_000.0, "tb terabyte terabytes"),
    ("power", 1.0, "w watt watts"),
    ("power", 1000.0, "kw kilowatt kilowatts"),
    ("power", 1_000_000.0, "mw megawatt megawatts"),
    ("power", 1_000_000_000.0, "gw gigawatt gigawatts"),
    ("voltage", 1.0, "v volt volts"),
    ("voltage", 1000.0, "kv kilovolt kilovolts"),
    ("share", 1.0, "% percent"),
    ("money", 1.0, "$ dollar dollars usd"),
    ("money", 1.000_001_1, "€ euro euros eur"),
    ("money", 1.000_002_3, "£ pound pounds gbp"),
    ("money", 1.000_003_7, "yen"),
    ("money", 1.000_005_1, "franc francs"),
    ("money", 0.01, "cent cents pence"),
    ("temperature", 1.0, "° degree degrees celsius"),
    ("temperature", 1.000_01, "fahrenheit"),
    ("pressure", 1.0, "bar"),
    ("frequency", 1.0, "hz hertz"),
    ("frequency", 1_000_000.0, "mhz megahertz"),
    ("frequency", 1_000_000_000.0, "ghz gigahertz"),
    ("area", 1.0, "hectare hectares ha"),
];

fn multiplier(word: &str) -> Option<f64> {
    match word {
        "hundred" => Some(100.0),
        "thousand" => Some(1000.0),
        "million" => Some(1e6),
        "billion" => Some(1e9),
        "trillion" => Some(1e12),
        "dozen" => Some(12.0),
        _ => None,
    }
}

/// Returns the value of a number that is written as a word. "One" is most often a pronoun.
pub(crate) fn numeral(word: &str) -> Option<f64> {
    NUMERALS.iter().find(|(numeral, _)| *numeral == word).map(|(_, value)| *value)
}

const NUMERALS: [(&str, f64); 27] = [
    ("two", 2.0),
    ("three", 3.0),
    ("four", 4.0),
    ("five", 5.0),
    ("six", 6.0),
    ("seven", 7.0),
    ("eight", 8.0),
    ("nine", 9.0),
    ("ten", 10.0),
    ("eleven", 11.0),
    ("twelve", 12.0),
    ("thirteen", 13.0),
    ("fourteen", 14.0),
    ("fifteen", 15.0),
    ("sixteen", 16.0),
    ("seventeen", 17.0),
    ("eighteen", 18.0),
    ("nineteen", 19.0),
    ("twenty", 20.0),
    ("thirty", 30.0),
    ("forty", 40.0),
    ("fifty", 50.0),
    ("sixty", 60.0),
    ("seventy", 70.0),
    ("eighty", 80.0),
    ("ninety", 90.0),
    ("dozen", 12.0),
];

/// Words before a number that is a bound or an estimate.
pub(crate) const ROUGH: [&str; 14] = [
    "than", "least", "most", "about", "around", "nearly", "almost", "over", "under", "some", "roughly",
    "approximately", "up", "estimated",
];

const CLAUSE_WORDS: [&str; 18] = [
    "but", "because", "although", "though", "while", "whereas", "and", "or", "who", "which", "that", "when", "if",
    "unless", "so", "where", "until", "since",
];

/// Words that say how something is the case rather than what.
const TRANSPARENT: [&str; 17] = [
    "allowed", "permitted", "able", "required", "obliged", "say", "said", "says", "according", "still", "already",
    "also", "currently", "now", "never", "actually", "longer",
];

const FAILS: [&str; 7] = ["failed", "fails", "fail", "refused", "refuses", "refuse", "declined"];
const STOPS: [&str; 5] = ["stopped", "stops", "ceased", "avoids", "avoided"];
const FORBIDS: [&str; 9] =
    ["forbidden", "prohibited", "banned", "forbids", "prohibits", "bans", "unable", "lacks", "excluded"];

const GOVERNORS: [&str; 14] = [
    "from", "to", "into", "before", "after", "above", "below", "over", "under", "with", "without", "inside", "outside",
    "against",
];

pub(crate) fn stem(word: &str) -> String {
    let mut stem = String::new();
    push_stem(word, &mut stem);
    stem
}
