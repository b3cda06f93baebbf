//! Looks up what a sentence says in a source of lines: a log, a table of comma or tab separated values, or other records. What can
//! be looked up exactly (codes, times, counts of lines, values in a row) is judged by that, and nothing else is.

use std::collections::{HashMap, HashSet};

use ken_text::Span;

use crate::calendar::{MONTHS, is_calendar};
use crate::reading::{ROUGH, Word, read, stem};

/// What looking a sentence up gave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    /// A line, or the number of matching lines, says it. The first such line.
    Supported(Span),
    /// The lines about the same thing say otherwise: the words of the sentence that differ, and the first such line.
    Contradicted(Span, Span),
}

/// A source of records, one a line.
pub(crate) struct Records<'a> {
    text: &'a str,
    lines: Vec<Span>,
    /// The names of the columns, if the first line has them.
    columns: Vec<String>,
    separator: Option<Separator>,
    /// For each word, the lines that contain it, each once.
    words: HashMap<String, Vec<u32>>,
}

/// The share of lines that must look like records, 0 to 1.
const MOST: f64 = 0.6;
/// The number of lines that are examined to see whether a source consists of records.
const SAMPLE: usize = 200;

impl<'a> Records<'a> {
    /// Reads a source as records; `None` if it is running text. `wanted` holds the words of the text, so that only these
    /// are remembered.
    pub(crate) fn of(text: &'a str, wanted: &dyn Fn(&str) -> bool) -> Option<Records<'a>> {
        let mut end = 0;
        let spans = text.split_inclusive('\n').map(|line| {
            let start = end;
            end += line.len();
            Span { start, end: start + line.trim_end().len() }
        });
        let lines: Vec<Span> = spans.filter(|line| line.end > line.start).collect();
        let sampled: Vec<&str> = lines.iter().take(SAMPLE).map(|line| line.of(text)).collect();
        let separator = separator_of(&sampled);
        let stamped = sampled.iter().filter(|line| is_stamped(line)).count() as f64;
        if lines.len() < 2 || separator.is_none() && stamped < MOST * sampled.len() as f64 {
            return None;
        }
        let columns = match (separator, lines.first()) {
            (Some(separator), Some(first)) => separator.fields(first.of(text)).map(str::to_lowercase).collect(),
            _ => Vec::new(),
        };
        let mut words: HashMap<String, Vec<u32>> = HashMap::new();
        for (number, line) in lines.iter().enumerate().skip(usize::from(!columns.is_empty())) {
            for token in tokens(line.of(text)) {
                if !wanted(&token) {
                    continue;
                }
                let places = words.entry(token).or_default();
                if places.last() != Some(&(number as u32)) {
                    places.push(number as u32);
                }
            }
        }
        Some(Records { text, lines, columns, separator, words })
    }

    /// Looks a sentence up; `None` if it says nothing that can be looked up exactly.
    pub(crate) fn look_up(&self, text: &str, sentence: Span) -> Option<Found> {
        let words = &read(text, sentence).words;
        let superlative = (0..words.len()).find(|at| is_superlative(words, *at));
        let is_derived = words.iter().any(is_derived);
        let keys = self.keys(text, sentence, words);
        // A word that stands nowhere can turn the meaning of all others, but hardly one verb between a name and a number.
        let is_in_key = |word: &Word| keys.iter().any(|key| key.contains(word));
        let others = words.iter().enumerate().filter(|(at, word)| Some(*at) != superlative && !is_in_key(word));
        let unknown = others.filter(|(_, word)| self.is_unknown(word)).count();
        let named = keys.iter().filter(|key| key.is_exact || key.numeral.is_some() || key.is_name);
        if unknown > usize::from(named.count() > 1) {
            return None;
        }
        if let Some(at) = superlative {
            return self.extreme(words, at, &keys).filter(|_| !is_derived);
        }
        let count = self.count(words, &keys);
        if count.is_some() || is_derived {
            return count;
        }
        self.value(words, &keys).or_else(|| self.line(words, &keys))
    }

    /// Whether a content word is neither in the records nor the name of a column, and is no word for a record.
    fn is_unknown(&self, word: &Word) -> bool {
        let is_known = || {
            forms_of(&word.lower, None).iter().any(|form| self.words.contains_key(form))
                || self.columns.iter().any(|name| names_column(name, word))
                || RECORD_WORDS.contains(&word.stem.as_str())
        };
        word.is_content && word.number.is_none() && !is_known()
    }

    /// The words of the sentence that stand in the records, or could: numbers, times, codes, names, and words that occur.
    fn keys(&self, text: &str, sentence: Span, words: &[Word]) -> Vec<Key> {
        let part = sentence.of(text);
        let mut keys: Vec<Key> = Vec::new();
        let mut at = 0;
        for raw in part.split_whitespace() {
            let start = at + part.get(at..).and_then(|rest| rest.find(raw)).unwrap_or(0);
            at = start + raw.len();
            let bare = bare(raw);
            let Some(offset) = raw.find(bare) else { continue };
            let start = sentence.start + start + offset;
            let span = Span { start, end: start + bare.len() };
            let lower = bare.to_lowercase();
            let is_exact = lower.bytes().any(|byte| byte.is_ascii_digit())
                || lower.contains(['/', '_'])
                || lower.split('.').count() > 2;
            let word = words.iter().find(|word| word.span.start >= span.start && word.span.start < span.end);
            let number = word.and_then(|word| word.number);
            let numeral = number.filter(|_| !is_exact);
            let forms = forms_of(&lower, numeral);
            let known: Vec<String> = forms.into_iter().filter(|form| self.words.contains_key(form)).collect();
            let is_known = word.is_some_and(|word| word.is_content) && !known.is_empty();
            if is_exact || number.is_some() || is_known {
                let is_name = word.is_some_and(|word| word.is_capital);
                keys.push(Key { span, lower, known, is_exact, is_name, numeral });
            }
        }
        keys
    }

    /// The lines that contain all these keys.
    fn lines_with(&self, keys: &[&Key]) -> Vec<u32> {
        let of = |key: &Key| -> Vec<u32> {
            let mut lines: Vec<u32> =
                key.known.iter().filter_map(|form| self.words.get(form)).flatten().copied().collect();
            lines.sort_unstable();
            lines.dedup();
            lines
        };
        let mut lists: Vec<Vec<u32>> = keys.iter().map(|key| of(key)).collect();
        lists.sort_by_key(Vec::len);
        let mut lists = lists.into_iter();
        let Some(mut lines) = lists.next() else { return Vec::new() };
        for list in lists {
            lines.retain(|line| list.binary_search(line).is_ok());
        }
        lines
    }

    /// "There were three timeouts": a number before a word that lines contain.
    fn count(&self, words: &[Word], keys: &[Key]) -> Option<Found> {
        let (at, said) = words.iter().enumerate().find_map(|(at, word)| Some((at, whole_number(word)?)))?;
        let (before, number, next) = (words.get(..at)?, words.get(at)?, words.get(at + 1..)?);
        if next.first().is_some_and(|word| word.lower == "of") {
            return None; // "four of five packets" counts what came of them
        }
        let times = number.is_one_of(&["once", "twice"]) || next.first().is_some_and(|word| word.lower == "times");
        let opens = before.iter().all(|word| !word.is_content)
            && words.first().is_some_and(|word| word.is_one_of(&["there", "the"]))
            || at == 0
            || times
            || before.iter().any(|word| word.is_one_of(&COUNTS));
        let named = |word: &Word| keys.iter().find(|key| key.contains(word));
        let counted = next.iter().take(4).find_map(|word| named(word).filter(|key| !key.known.is_empty()));
        if !opens || !times && counted.is_none() {
            return None;
        }
        // Words such as "error" or "lines" that all others have in common count too.
        let filters: Vec<&Key> = keys.iter().filter(|key| key.span != number.span && !key.known.is_empty()).collect();
        let unknown = keys.iter().any(|key| key.span != number.span && key.known.is_empty());
        if filters.is_empty()
            || unknown
            || number.lower == "one" && !times && next.first().is_none_or(|word| !word.is_content)
        {
            return None;
        }
        // A line may say the number itself: "412 tests passed, 3 tests failed" is not one test.
        if let Some(line) = counted.and_then(|counted| self.line_that_says(number, counted, &filters)) {
            return Some(Found::Supported(line));
        }
        let lines = self.lines_with(&filters);
        // "Errors: 5" is not one error. In "job 313 timed out", each line has its own number.
        let own =
            lines.iter().filter(|line| counted.is_some_and(|counted| self.counts_itself(**line, counted))).count();
        if own > 0 && (own < lines.len() || own == 1) {
            return None;
        }
        let first = lines.first().and_then(|line| self.lines.get(*line as usize)).or(self.lines.first()).copied()?;
        if lines.len() as f64 == said {
            return Some(Found::Supported(first));
        }
        // Without any line the words of the sentence are not those of the records.
        (!lines.is_empty()).then_some(Found::Contradicted(number.span, first))
    }

    /// Whether a number stands directly beside the counted word in a line.
    fn counts_itself(&self, line: u32, counted: &Key) -> bool {
        let is_number = |token: &String| token.bytes().all(|byte| byte.is_ascii_digit());
        self.lines.get(line as usize).is_some_and(|line| {
            self.has_pair(*line, |a, b| {
                counted.known.contains(a) && is_number(b) || counted.known.contains(b) && is_number(a)
            })
        })
    }

    /// The first of the lines with these keys in which the number stands directly before the counted word.
    fn line_that_says(&self, number: &Word, counted: &Key, keys: &[&Key]) -> Option<Span> {
        let digits = number.number?.to_string();
        let says = |line: &Span| self.has_pair(*line, |first, next| *first == digits && counted.known.contains(next));
        self.lines_with(keys).into_iter().filter_map(|line| self.lines.get(line as usize).copied()).find(says)
    }

    /// Whether two words that stand side by side in a line pass the test.
    fn has_pair(&self, line: Span, test: impl Fn(&String, &String) -> bool) -> bool {
        let said: Vec<String> = tokens(line.of(self.text)).collect();
        said.windows(2).any(|pair| matches!(pair, [first, next] if test(first, next)))
    }

    /// The column that the sentence names closest to a place.
    fn column(&self, words: &[Word], near: Span) -> Option<usize> {
        let distance = |name: &String| {
            let named = words.iter().filter(|word| word.is_content && names_column(name, word));
            named.map(|word| word.span.start.abs_diff(near.start)).min()
        };
        let named = self.columns.iter().enumerate().filter_map(|(column, name)| Some((distance(name)?, column)));
        named.min().map(|(_, column)| column)
    }

    /// "February had the fewest visitors", "the hottest day was 13 July with 33.1 degrees": whether any row has more or less in
    /// the column that the sentence names, or in which its number stands.
    fn extreme(&self, words: &[Word], superlative: usize, keys: &[Key]) -> Option<Found> {
        let separator = self.separator?;
        let word = words.get(superlative)?;
        let names: Vec<&Key> = keys.iter().filter(|key| !key.known.is_empty() && key.span != word.span).collect();
        let [row] = self.lines_with(&names)[..] else { return None };
        let own = *self.lines.get(row as usize)?;
        let stated = || {
            let claimed = keys.iter().rev().find(|key| number_of(&key.lower).is_some())?;
            separator.fields(own.of(self.text)).position(|field| same_value(field, &claimed.lower))
        };
        let (is_most, is_least) = (word.is_one_of(&MOST_WORDS), word.is_one_of(&LEAST_WORDS));
        let column = stated().or_else(|| self.column(words, word.span).filter(|_| is_most || is_least))?;
        let value = |line: &Span| number_of(separator.fields(line.of(self.text)).nth(column)?);
        let mine = value(&own)?;
        let exceeds = |sign: f64| {
            let is_more = |line: &&Span| value(line).is_some_and(|other| (other - mine) * sign > 0.0);
            self.lines.iter().skip(1).find(is_more)
        };
        let (more, less) = (exceeds(1.0), exceeds(-1.0));
        let other = match (is_most, is_least) {
            (true, _) => more,
            (_, true) => less,
            _ => more.and(less), // whether "hottest" is the most is not known
        };
        Some(other.map_or(Found::Supported(own), |other| Found::Contradicted(word.span, *other)))
    }

    /// "The price of apples is 3": a column and a row that the sentence names, and the value there.
    fn value(&self, words: &[Word], keys: &[Key]) -> Option<Found> {
        let separator = self.separator?;
        let said = |row: u32, key: &Key| -> Option<usize> {
            let line = self.lines.get(row as usize)?.of(self.text);
            separator.fields(line).position(|field| tokens(field).any(|token| key.known.contains(&token)))
        };
        let claimed = keys.iter().rev().find(|key| key.is_exact || key.numeral.is_some())?;
        let column = self.column(words, claimed.span);
        let names: Vec<&Key> = keys.iter().filter(|key| !key.known.is_empty() && key.span != claimed.span).collect();
        let [row] = self.lines_with(&names)[..] else { return None };
        let place = *self.lines.get(row as usize)?;
        let value_at = |column: usize| separator.fields(place.of(self.text)).nth(column);
        let value = claimed.numeral.map_or_else(|| claimed.lower.clone(), |number| number.to_string());
        let holds = |field: &str| same_value(field, &value);
        match column {
            Some(column) if value_at(column).is_some_and(holds) => Some(Found::Supported(place)),
            Some(column)
                if value_at(column).is_some_and(is_value) && names.iter().all(|key| said(row, key) != Some(column)) =>
            {
                Some(Found::Contradicted(claimed.span, place))
            }
            None if said(row, claimed).is_some() => Some(Found::Supported(place)),
            _ => None,
        }
    }

    /// "The gateway answered 503 at 14:02": all codes, times and words on one line.
    fn line(&self, words: &[Word], keys: &[Key]) -> Option<Found> {
        if !keys.iter().any(|key| key.is_exact) {
            return None;
        }
        let all: Vec<&Key> = keys.iter().filter(|key| key.is_exact || !key.known.is_empty()).collect();
        if let Some(line) = self.lines_with(&all).first() {
            let line = *self.lines.get(*line as usize)?;
            return self.gives_values(line, words, &all).then_some(Found::Supported(line));
        }
        // Without one of the exact keys some line has all the others, so that line says otherwise.
        if all.len() < 2 {
            return None;
        }
        all.iter().filter(|key| key.is_exact).find_map(|wrong| {
            let others: Vec<&Key> = all.iter().filter(|key| key.span != wrong.span).copied().collect();
            let line = *self.lines_with(&others).first()?;
            let place = *self.lines.get(line as usize)?;
            let kind = shape(&wrong.lower);
            let differs = tokens(place.of(self.text)).any(|token| shape(&token) == kind);
            let is_named = others.iter().any(|key| key.is_exact || key.is_name);
            (differs && is_named).then_some(Found::Contradicted(wrong.span, place))
        })
    }

    /// Whether a value of the line is in the sentence for each column that the sentence names. "Nuts are out of stock" says nothing
    /// about the number in the column of the stock.
    fn gives_values(&self, line: Span, words: &[Word], keys: &[&Key]) -> bool {
        let has_value = |column: usize| {
            let field = self.separator.and_then(|separator| separator.fields(line.of(self.text)).nth(column));
            field.is_some_and(|field| tokens(field).any(|token| keys.iter().any(|key| key.known.contains(&token))))
        };
        let is_named = |name: &String| words.iter().any(|word| word.is_content && names_column(name, word));
        self.columns.iter().enumerate().filter(|(_, name)| is_named(name)).all(|(column, _)| has_value(column))
    }
}

/// A word of the sentence that can be looked up.
struct Key {
    span: Span,
    lower: String,
    /// Its forms that occur in the records.
    known: Vec<String>,
    /// Whether it is a number in digits, a time or a code.
    is_exact: bool,
    /// Whether it begins with a capital.
    is_name: bool,
    /// The value of a number in words.
    numeral: Option<f64>,
}

impl Key {
    fn contains(&self, word: &Word) -> bool {
        self.span.start <= word.span.start && word.span.end <= self.span.end
    }
}

/// The number that a word stands for.
fn whole_number(word: &Word) -> Option<f64> {
    match word.lower.as_str() {
        "no" => Some(0.0),
        "once" | "one" => Some(1.0),
        "twice" => Some(2.0),
        _ => word.number.filter(|number| number.fract() == 0.0),
    }
}

/// A word without the punctuation around it, and without the ending of a possessive.
fn bare(raw: &str) -> &str {
    let bare = raw.trim_matches(|char: char| !(char.is_alphanumeric() || matches!(char, '/' | '-' | '_')));
    bare.strip_suffix("'s").unwrap_or(bare)
}

/// Returns the words that a look-up of any sentence of the text can need.
pub(crate) fn wanted(text: &str) -> HashSet<String> {
    let span = Span { start: 0, end: text.len() };
    let numbers = read(text, span).words.into_iter().filter_map(|word| word.number).map(|number| number.to_string());
    let mut wanted: HashSet<String> = numbers.collect();
    for raw in text.split_whitespace() {
        wanted.extend(forms_of(&bare(raw).to_lowercase(), None));
    }
    wanted
}

fn forms_of(lower: &str, number: Option<f64>) -> Vec<String> {
    let mut forms = vec![lower.to_owned(), lower.replace(',', "")];
    forms.extend(number.map(|number| number.to_string()));
    if is_calendar(lower) {
        forms.extend(lower.get(..3).map(str::to_owned));
    }
    for ending in ["s", "es", "ed", "d", "ing", "ings"] {
        forms.extend(lower.strip_suffix(ending).filter(|stem| stem.len() > 2).map(str::to_owned));
        if lower.len() > 3 && !lower.ends_with(|char: char| char.is_ascii_digit()) {
            forms.push(format!("{lower}{ending}"));
        }
    }
    forms.dedup();
    forms
}

/// The words of a line in lower case: split at everything but letters, digits and the marks inside codes. A time is also
/// one without its seconds.
fn tokens(line: &str) -> impl Iterator<Item = String> {
    let inside = |char: char| char.is_alphanumeric() || matches!(char, '.' | ':' | '-' | '_' | '/');
    line.split(move |char: char| !inside(char)).flat_map(|token| {
        let token = token.trim_matches(['.', ':', '-', '_']).to_lowercase();
        let mut all = Vec::new();
        for part in token
            .split(['t', 'z'])
            .filter(|part| part.contains(':') && part.starts_with(|char: char| char.is_ascii_digit()))
        {
            let mut pieces = part.split(':');
            if let (Some(hours), Some(minutes)) = (pieces.next(), pieces.next()) {
                all.push(format!("{hours}:{minutes}"));
                all.push(part.split('.').next().unwrap_or(part).to_owned());
            }
        }
        if token.contains(['-', '_', '/', ':']) {
            all.extend(token.split(['-', '_', '/', ':']).filter(|part| part.len() > 2).map(str::to_owned));
        }
        all.extend(date(&token).into_iter().flatten());
        // A number and its unit: "204gb".
        let unit = token.trim_end_matches(char::is_alphabetic);
        if unit.len() < token.len() && unit.starts_with(|char: char| char.is_ascii_digit()) {
            all.push(unit.to_owned());
        }
        all.push(token);
        all.retain(|token| !token.is_empty());
        all.dedup();
        all
    })
}

/// The day and the month of a date such as 2024-06-05, as people say them.
fn date(token: &str) -> Option<[String; 2]> {
    let mut parts = token.get(..10)?.split('-').map(|part| part.parse::<usize>().ok());
    let (Some(Some(_)), Some(Some(month)), Some(Some(day))) = (parts.next(), parts.next(), parts.next()) else {
        return None;
    };
    Some([day.to_string(), (*MONTHS.get(month.checked_sub(1)?)?).to_owned()])
}

/// The kind of a code: a time, a number of so many digits, or something else.
fn shape(token: &str) -> (u8, usize) {
    let digits = token.bytes().all(|byte| byte.is_ascii_digit());
    if token.contains(':') && token.starts_with(|char: char| char.is_ascii_digit()) {
        return (0, token.matches(':').count());
    }
    if digits {
        (1, token.len())
    } else {
        (2, token.matches(['.', '-', '_', '/']).count() + usize::from(token.contains('-')))
    }
}

fn is_value(field: &str) -> bool {
    field.bytes().any(|byte| byte.is_ascii_digit())
}

fn same_value(field: &str, claimed: &str) -> bool {
    field.trim().to_lowercase() == claimed || number_of(field).is_some() && number_of(field) == number_of(claimed)
}

/// The number at the beginning of a field; "W3" is a name.
fn number_of(field: &str) -> Option<f64> {
    let field = field.trim().trim_start_matches(['$', '€', '£']);
    let end =
        field.find(|char: char| !(char.is_ascii_digit() || matches!(char, '.' | ',' | '-'))).unwrap_or(field.len());
    field.get(..end)?.trim_end_matches(['.', ',', '-']).replace(',', "").parse().ok()
}

/// Whether a word is a part of the name of a column.
fn names_column(name: &str, word: &Word) -> bool {
    let mut parts = name.split(|char: char| !char.is_alphanumeric()).filter(|part| part.len() > 2);
    parts.any(|part| word.lower == part || word.stem == stem(part))
}

/// The stems of words for the records themselves.
const RECORD_WORDS: [&str; 8] = ["log", "list", "tabl", "line", "row", "entri", "record", "time"];

/// Whether a word shows that a sentence says what follows from several records: what is never so, a bound, an order or a sum.
fn is_derived(word: &Word) -> bool {
    word.negates || word.is_one_of(&ROUGH) || word.is_one_of(&DERIVED)
}

const DERIVED: [&str; 18] = [
    "above", "below", "between", "before", "after", "first", "second", "third", "last", "next", "together", "total",
    "sum", "add", "average", "only", "each", "every",
];

/// Words after which a sentence about a source says how many of its lines there are.
const COUNTS: [&str; 7] = ["contains", "has", "had", "shows", "records", "lists", "counted"];

const MOST_WORDS: [&str; 7] = ["most", "highest", "largest", "greatest", "biggest", "longest", "latest"];
const LEAST_WORDS: [&str; 6] = ["fewest", "lowest", "least", "smallest", "shortest", "earliest"];

/// Whether a word is a superlative: one of these, or "the hottest".
fn is_superlative(words: &[Word], at: usize) -> bool {
    let before = at.checked_sub(1).and_then(|before| words.get(before));
    words.get(at).is_some_and(|word| {
        word.is_one_of(&MOST_WORDS)
            || word.is_one_of(&LEAST_WORDS)
            || before.is_some_and(|before| before.lower == "the") && word.lower.ends_with("est") && word.lower.len() > 5
    })
}

/// What stands between the fields of a table.
#[derive(Debug, Clone, Copy)]
enum Separator {
    Char(char),
    /// Two blanks or more.
    Blanks,
}

impl Separator {
    fn fields(self, line: &str) -> impl Iterator<Item = &str> {
        let (blanks, chars) = match self {
            Separator::Blanks => (Some(line.split("  ").map(str::trim).filter(|field| !field.is_empty())), None),
            Separator::Char(char) => (None, Some(line.trim_matches('|').split(char).map(str::trim))),
        };
        blanks.into_iter().flatten().chain(chars.into_iter().flatten()).map(|field| field.trim_matches('"'))
    }

    /// Whether nearly all lines have as many fields as the first one, two or more.
    fn divides(self, lines: &[&str]) -> bool {
        let count = |line: &&str| self.fields(line).count();
        let first = lines.first().map_or(0, count);
        let alike = lines.iter().filter(|line| count(line) == first).count();
        // Sentences can have a comma each; a table has short fields.
        let short = lines.iter().all(|line| self.fields(line).all(|field| field.split(' ').count() < 7));
        first > 1 && lines.len() > 1 && alike as f64 >= 0.9 * lines.len() as f64 && short
    }
}

fn separator_of(lines: &[&str]) -> Option<Separator> {
    let chars = ['\t', ',', ';', '|'].map(Separator::Char);
    chars.into_iter().chain([Separator::Blanks]).find(|separator| separator.divides(lines))
}

/// Returns whether a line begins like a record of a log: with a date, a time, a number or a level.
fn is_stamped(line: &str) -> bool {
    let head: String = line.chars().take(24).collect();
    let digits = head.bytes().filter(u8::is_ascii_digit).count();
    digits >= 4 || line.starts_with(['[', '<', '{']) || line.contains('=') || !line.contains(' ') && digits > 0
}
