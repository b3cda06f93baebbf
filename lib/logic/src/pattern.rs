//! Statements with variables.

use crate::error::Invalid;
use crate::interner::Interner;
use crate::statement::normalise;

/// A premise or a conclusion with variables, as a list of words in normal form.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Pattern {
    pub(crate) negated: bool,
    pub(crate) tokens: Vec<Token>,
}

/// A word of a pattern. A variable is identified by its column: 0 for the first variable of the pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Token {
    Word(u32),
    /// A variable. If `wide` is true, it binds one or more words. Beside another variable it binds exactly one word,
    /// because the boundary between the two would be ambiguous.
    Variable {
        column: u32,
        wide: bool,
    },
}

/// Returns whether a word of a statement is a variable: `?` followed by a name.
fn is_variable(word: &str) -> bool {
    word.strip_prefix('?')
        .and_then(|name| name.chars().next())
        .is_some_and(|first| first.is_alphanumeric() || first == '_')
}

pub(crate) fn has_variable(wording: &str) -> bool {
    // Most wordings are short and contain no variable, so a loop without an early exit is faster.
    wording.bytes().fold(false, |has, byte| has | (byte == b'?')) && wording.split_whitespace().any(is_variable)
}

/// Returns the variable in a word without the punctuation that follows it, such as "?x" for "?x."; `None` if the word
/// is not a variable.
fn variable(word: &str) -> Option<&str> {
    is_variable(word).then(|| word.trim_end_matches(|char: char| char.is_ascii_punctuation() && char != '_'))
}

impl Pattern {
    /// Compiles a wording. Returns the pattern, and the names of its variables by column.
    pub(crate) fn of(wording: &str, words: &mut Interner) -> (Pattern, Vec<String>) {
        let statement = normalise(wording);
        let mut names: Vec<String> = Vec::new();
        let mut tokens = Vec::new();
        for word in statement.atom.split(' ') {
            tokens.push(match variable(word) {
                Some(name) => Token::Variable { column: column(&mut names, name), wide: true },
                None => Token::Word(words.intern(word).0),
            });
        }
        narrow(&mut tokens);
        (Pattern { negated: statement.negated, tokens }, names)
    }

    pub(crate) fn columns(&self) -> usize {
        let columns = self.tokens.iter().filter_map(|token| match token {
            Token::Variable { column, .. } => Some(*column as usize + 1),
            Token::Word(_) => None,
        });
        columns.max().unwrap_or(0)
    }

    pub(crate) fn words(&self) -> impl Iterator<Item = u32> {
        self.tokens.iter().filter_map(|token| match token {
            Token::Word(word) => Some(*word),
            Token::Variable { .. } => None,
        })
    }
}

fn column(names: &mut Vec<String>, name: &str) -> u32 {
    let known = names.iter().position(|known| known == name);
    known.unwrap_or_else(|| {
        names.push(name.to_owned());
        names.len() - 1
    }) as u32
}

fn narrow(tokens: &mut [Token]) {
    let is_variable: Vec<bool> = tokens.iter().map(|token| matches!(token, Token::Variable { .. })).collect();
    let beside = |place: Option<usize>| place.and_then(|place| is_variable.get(place)) == Some(&true);
    for (place, token) in tokens.iter_mut().enumerate() {
        if let Token::Variable { wide, .. } = token {
            *wide = !beside(place.checked_sub(1)) && !beside(place.checked_add(1));
        }
    }
}

/// The maximum number of occurrences of variables in one statement.
pub const MAX_VARIABLES: usize = 64;

/// Checks that every variable of the conclusion occurs in a premise, and that no statement has too many variables.
pub(crate) fn check_variables(premises: &[&str], conclusion: &str) -> Result<(), Invalid> {
    let count = |wording: &str| wording.split_whitespace().filter(|word| is_variable(word)).count();
    if premises.iter().chain([&conclusion]).any(|wording| count(wording) > MAX_VARIABLES) {
        return Err(Invalid::TooManyVariables);
    }
    let mut words = Interner::new();
    let mut bound: Vec<String> = Vec::new();
    for premise in premises {
        bound.extend(Pattern::of(premise, &mut words).1);
    }
    match Pattern::of(conclusion, &mut words).1.into_iter().find(|name| !bound.contains(name)) {
        Some(name) => Err(Invalid::Unbound(name)),
        None => Ok(()),
    }
}

/// A statement split into words. Their offsets are stored, so that any sequence of words can be returned as a slice of
/// the text.
pub(crate) struct Words<'t> {
    pub(crate) text: &'t str,
    /// For each word, its number (`UNKNOWN_WORD` if no pattern contains it), and the byte offsets of its start and end.
    pub(crate) words: Vec<(u32, usize, usize)>,
}

pub(crate) const UNKNOWN_WORD: u32 = u32::MAX;

impl<'t> Words<'t> {
    pub(crate) fn of(text: &'t str, numbers: &Interner) -> Words<'t> {
        let mut words = Vec::new();
        let mut start = 0;
        for word in text.split(' ') {
            let end = start + word.len();
            words.push((numbers.get(word).unwrap_or(UNKNOWN_WORD), start, end));
            start = end + 1;
        }
        Words { text, words }
    }

    /// Returns the text of the words from index `from` to `to` (exclusive).
    pub(crate) fn phrase(&self, from: usize, to: usize) -> &'t str {
        match (self.words.get(from), to.checked_sub(1).and_then(|last| self.words.get(last))) {
            (Some(&(_, start, _)), Some(&(_, _, end))) => self.text.get(start..end).unwrap_or_default(),
            _ => "",
        }
    }
}

/// The number of possible ends of a phrase that can be tried in the time of one position. Most of them fail at the next
/// word.
const ENDS_OF_WORK: usize = 8;

/// Finds all ways in which a statement matches a pattern.
pub(crate) struct Matcher<'m, 't> {
    pattern: &'m Pattern,
    words: &'m Words<'t>,
    /// For each column, the range of words to which it is bound.
    bound: Vec<Option<(usize, usize)>>,
    pub(crate) matches: Vec<Vec<&'t str>>,
    /// The number of positions that were tried.
    pub(crate) work: usize,
    max: usize,
}

impl<'m, 't> Matcher<'m, 't> {
    /// Runs a match. After more than `max` positions, it stops with the matches found so far; `work` is then greater
    /// than `max`.
    pub(crate) fn run(pattern: &'m Pattern, words: &'m Words<'t>, max: usize) -> Matcher<'m, 't> {
        let bound = vec![None; pattern.columns()];
        let mut matcher = Matcher { pattern, words, bound, matches: Vec::new(), work: 0, max };
        if matcher.ends_alike() {
            matcher.go(0, 0);
        }
        matcher
    }

    /// Returns whether the statement is long enough and ends with the words after the last variable of the pattern.
    /// Without this check, every position of a long statement would be tried for every variable before a mismatch at
    /// the end is found.
    fn ends_alike(&mut self) -> bool {
        let end = |token: &Token| match *token {
            Token::Word(word) => Some(word),
            Token::Variable { .. } => None,
        };
        let last = self.pattern.tokens.iter().rev().map_while(end);
        let mut words = self.words.words.iter().rev().map(|known| known.0);
        self.work += 1;
        self.pattern.tokens.len() <= self.words.words.len() && last.into_iter().all(|word| words.next() == Some(word))
    }

    /// Matches the rest of the pattern from index `token` with the words from index `at`. It recurses only at
    /// variables, of which there are at most [`MAX_VARIABLES`].
    fn go(&mut self, mut token: usize, mut at: usize) {
        while let Some(&Token::Word(word)) = self.pattern.tokens.get(token) {
            if self.words.words.get(at).is_none_or(|known| known.0 != word) {
                return;
            }
            (token, at) = (token + 1, at + 1);
        }
        self.work += 1;
        if self.work > self.max {
            return;
        }
        match self.pattern.tokens.get(token) {
            None if at == self.words.words.len() => self.found(),
            Some(&Token::Variable { column, wide }) => self.bind(token, at, column as usize, wide),
            _ => {}
        }
    }

    fn bind(&mut self, token: usize, at: usize, column: usize, wide: bool) {
        // Every token after this one needs at least one word.
        let left = self.pattern.tokens.len() - token - 1;
        let longest = self.words.words.len().saturating_sub(left);
        let longest = if wide { longest } else { longest.min(at + 1) };
        let before = self.bound.get(column).copied().flatten();
        for to in at + 1..=longest {
            let same = |(from, until)| self.words.phrase(from, until) == self.words.phrase(at, to);
            if before.is_some_and(|bound| !same(bound)) {
                continue;
            }
            self.set(column, Some(before.unwrap_or((at, to))));
            self.go(token + 1, to);
            if self.work > self.max {
                break;
            }
        }
        self.work += longest.saturating_sub(at) / ENDS_OF_WORK;
        self.set(column, before);
    }

    fn set(&mut self, column: usize, to: Option<(usize, usize)>) {
        if let Some(bound) = self.bound.get_mut(column) {
            *bound = to;
        }
    }

    fn found(&mut self) {
        let phrases = self.bound.iter().flatten().map(|&(from, to)| self.words.phrase(from, to));
        self.matches.push(phrases.collect());
    }
}

/// Returns a phrase as the user wrote it: the words of `wording` whose normal form is the phrase, or the phrase itself
/// if there are none.
pub(crate) fn worded(phrase: &str, wording: &str) -> String {
    if ken_text::is_folded(wording) {
        return phrase.to_owned();
    }
    let words: Vec<&str> = wording.split_whitespace().collect();
    let folded: Vec<_> = words.iter().map(|word| ken_text::fold(word)).collect();
    // Blanks are added on both sides so that a phrase is only found at word boundaries.
    let text = format!(" {} ", folded.join(" ").trim_end_matches('.'));
    let Some(at) = text.find(&format!(" {phrase} ")) else {
        return phrase.to_owned();
    };
    let before = text.get(..at).map_or(0, |before| before.matches(' ').count());
    let run = words.into_iter().skip(before).take(phrase.split(' ').count());
    let run: Vec<&str> = run.collect();
    run.join(" ").trim_end_matches('.').to_owned()
}

/// Replaces the variables in a wording. `value` returns the text for the name of a variable in normal form.
pub(crate) fn instantiate<'v>(wording: &str, value: impl Fn(&str) -> Option<&'v str>) -> String {
    let mut text = String::new();
    for word in wording.split_whitespace() {
        if !text.is_empty() {
            text.push(' ');
        }
        let bound = variable(word).and_then(|name| Some((name, value(&ken_text::fold(name))?)));
        match bound {
            Some((name, value)) => {
                text.push_str(value);
                text.push_str(word.get(name.len()..).unwrap_or_default());
            }
            None => text.push_str(word),
        }
    }
    text
}
