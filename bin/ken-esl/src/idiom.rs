//! Idioms with a negation that does not reverse the meaning. The table was trained without this correction. However, it
//! was trained with both negated and plain words, so the model can use the corrected notes.

use crate::lexicon::Class;
use crate::scope::Note;
use crate::token::Token;

/// Corrects the notes of all tokens. Very few texts contain such an idiom.
pub(crate) fn correct(tokens: &[Token], notes: &mut [Note]) {
    if !notes.iter().any(|note| note.is_negated) {
        return;
    }
    for at in 0..notes.len() {
        if notes.get(at).is_some_and(|note| note.is(Class::Negator)) {
            lift_negation(tokens, notes, at);
        }
    }
}

/// Negates the feelings that a short sentence behind a contrast takes back: "I was afraid it would hurt, but it didn't".
/// It must be about somebody or something that is named before, unlike "I was happy, but he wasn't".
pub(crate) fn take_back(tokens: &[Token], notes: &mut [Note]) {
    let Some(contrast) = notes.iter().rposition(|note| note.is(Class::Contrast)) else {
        return;
    };
    let ends = |token: &Token| matches!(token.form().first(), Some(b'.' | b'!' | b'?'));
    let (before, after) = tokens.split_at(contrast);
    let start = before.iter().rposition(ends).map_or(0, |end| end + 1);
    let mut clause = after.get(1..).unwrap_or_default();
    clause = clause.split(|token| !token.is_word() && !token.is("'")).next().unwrap_or_default();
    while let [rest @ .., last] = clause
        && is(Some(last), &["any", "more", "anymore", "longer", "now", "at", "all"])
    {
        clause = rest;
    }
    let negator = notes.get(contrast + clause.len()).is_some_and(|note| note.is(Class::Negator));
    let is_named = clause.first().is_some_and(|subject| {
        PEOPLE
            .iter()
            .any(|person| is(Some(subject), person) && before.iter().skip(start).any(|word| is(Some(word), person)))
    });
    if negator && is_named && (2..=3).contains(&clause.len()) {
        notes.iter_mut().take(contrast).skip(start).for_each(|note| note.is_negated = true);
    }
}

/// The forms of each subject.
const PEOPLE: [&[&str]; 7] = [
    &["i", "i'm", "im", "i've", "i'd", "i'll"],
    &["you", "you're", "you've"],
    &["he", "he's"],
    &["she", "she's"],
    &["it", "it's", "that", "this"],
    &["we", "we're", "we've"],
    &["they", "they're", "they've"],
];

fn is(token: Option<&Token>, words: &[&str]) -> bool {
    token.is_some_and(|token| words.iter().any(|word| token.is(word)))
}

/// Returns the end of the clause that continues at `from`. It ends at a mark, a contrast or another negator, or after a
/// limited number of words.
fn clause_end(tokens: &[Token], notes: &[Note], from: usize) -> usize {
    const MAX_WORDS: usize = 8;
    let rest = tokens.iter().zip(notes).skip(from).take(MAX_WORDS);
    let goes_on =
        |(token, note): &(&Token, &Note)| token.is_word() && !note.is(Class::Negator) && !note.is(Class::Contrast);
    from + rest.take_while(goes_on).count()
}

/// Corrects the notes of a clause such as "couldn't be happier", "never been so sad", "can't thank you enough", "can't
/// stop laughing" or "Isn't this nice?". Its feeling looks negated but is felt. In all of these except the question, it
/// is even stronger than usual.
fn lift_negation(tokens: &[Token], notes: &mut [Note], at: usize) {
    let end = clause_end(tokens, notes, at + 1);
    let lifted = Clause { tokens, notes, at, end }.exceeded();
    let asks = is_asked_back(tokens, at);
    for (place, note) in notes.iter_mut().enumerate().take(end).skip(at + 1) {
        if asks {
            note.is_negated = false;
        } else if lifted & 1 << (place - at) != 0 && note.is_negated {
            note.is_negated = false;
            note.is_lifted = true;
            note.boost += 0.3;
        }
    }
    if let Some(negator) = notes.get_mut(at) {
        negator.is_lifted = asks || lifted != 0;
    }
}

/// A negator, and the words that it can negate.
struct Clause<'a> {
    tokens: &'a [Token],
    notes: &'a [Note],
    at: usize,
    end: usize,
}

/// A set of words in a clause. The number of a word's bit is its distance from the negator.
type Words = u32;

impl Clause<'_> {
    /// Returns the words of feelings that the negation makes stronger.
    fn exceeded(&self) -> Words {
        let turn = self.after_stop().or_else(|| self.before_enough());
        turn.or_else(|| self.never_so()).unwrap_or_else(|| self.comparatives())
    }

    /// "can't stop laughing", "couldn't help smiling"
    fn after_stop(&self) -> Option<Words> {
        let helps = |help: &usize| {
            let next = help + 1;
            self.could_not() && (self.feels(next) || is(self.word(next), &["but", "feeling"]))
        };
        let stop = self.find(&["stop", "stopped", "stopping"]);
        let stop = stop.or_else(|| self.find(&["help"]).filter(helps));
        stop.filter(|stop| *stop <= self.at + 2).map(|stop| self.words(stop + 1, self.end))
    }

    /// "can't thank you enough", but not "can't trust him enough to" or "isn't good enough"
    fn before_enough(&self) -> Option<Words> {
        let enough = self.find(&["enough"]).filter(|_| self.could_not())?;
        let is_measure = is(self.word(enough + 1), &["to"]) || self.feels(enough - 1) && enough > self.at + 2;
        let is_got = is(self.word(enough - 1), &["get"]) && is(self.word(enough + 1), &["of"]);
        let end = enough + usize::from(is_got);
        Some(if is_measure { 0 } else { self.words(self.at + 1, end) })
    }

    /// "never been so happy", "never laughed so hard", "haven't been this happy"
    fn never_so(&self) -> Option<Words> {
        const DONE: [&str; 11] =
            ["been", "felt", "seen", "had", "heard", "met", "known", "read", "laughed", "loved", "wanted"];
        let degrees: &[&str] = if self.is_never() { &["so", "such", "this"] } else { &["this"] };
        let so = self.find(degrees)?;
        self.find(&DONE).filter(|done| *done < so)?;
        Some(if is(self.word(so + 1), &["much", "hard", "badly"]) {
            self.words(self.at + 1, so)
        } else {
            self.words(so + 1, so + 4)
        })
    }

    /// "couldn't be happier", "nothing is more beautiful than this", "doesn't get better than this"
    fn comparatives(&self) -> Words {
        let places = (self.at + 1..self.end).filter(|place| self.is_most(*place));
        places.fold(0, |words, place| words | self.words(place, place + 1))
    }

    fn is_most(&self, place: usize) -> bool {
        const COMPARATIVES: [&str; 6] = ["better", "prouder", "nicer", "worse", "sadder", "kinder"];
        let word = self.word(place);
        let is_more = || is(self.word(place - 1), &["more"]) && self.feels(place);
        let agrees = || is(word, &["agree"]) && is(self.word(place + 1), &["more"]);
        let ends = || word.is_some_and(|word| word.form().ends_with(b"ier"));
        (is(word, &COMPARATIVES) || ends() || is_more() || agrees()) && self.exceeds(place)
    }

    /// Whether this negator makes a superlative of the comparative at `place`.
    fn exceeds(&self, place: usize) -> bool {
        const ASSERTING: [&str; 7] = ["can", "could", "will", "would", "make", "makes", "made"];
        let has_than = is(self.word(place + 1), &["than"]);
        let gets = self.find(&["get", "gets", "got"]).is_some();
        if self.is_never() || self.could_not() {
            !gets || has_than || is(self.word(place - 1), &["any"])
        } else if self.is_nobody() {
            has_than || self.find(&ASSERTING).is_some()
        } else {
            gets && has_than
        }
    }

    fn is_never(&self) -> bool {
        is(self.word(self.at), &["never"])
    }

    fn is_nobody(&self) -> bool {
        let is_no_one = is(self.word(self.at), &["no"]) && is(self.word(self.at + 1), &["one"]);
        is_no_one || is(self.word(self.at), &["nothing", "nobody"])
    }

    fn could_not(&self) -> bool {
        const CANNOT: [&str; 5] = ["can't", "cant", "cannot", "couldn't", "couldnt"];
        let before = self.at.checked_sub(1).and_then(|before| self.tokens.get(before));
        let is_could = || is(before, &["can", "could"]) && is(self.word(self.at), &["not", "never"]);
        is(self.word(self.at), &CANNOT) || is_could()
    }

    fn word(&self, place: usize) -> Option<&Token> {
        self.tokens.get(place).filter(|_| place < self.end)
    }

    fn find(&self, words: &[&str]) -> Option<usize> {
        (self.at + 1..self.end).find(|place| is(self.word(*place), words))
    }

    fn feels(&self, place: usize) -> bool {
        place < self.end && self.notes.get(place).is_some_and(Note::is_feeling)
    }

    fn words(&self, from: usize, to: usize) -> Words {
        (from..to.min(self.end)).fold(0, |words, place| words | 1 << (place - self.at))
    }
}

/// Whether this is a question that expects the answer yes, such as "Aren't you happy?"
fn is_asked_back(tokens: &[Token], at: usize) -> bool {
    const ASKING: [&str; 7] = ["isn't", "aren't", "wasn't", "weren't", "don't", "doesn't", "didn't"];
    const SUBJECTS: [&str; 13] =
        ["i", "you", "he", "she", "it", "we", "they", "this", "that", "these", "those", "the", "there"];
    let mark = |token: &&Token| matches!(token.form().first(), Some(b'.' | b'!' | b'?'));
    let opens = at.checked_sub(1).and_then(|before| tokens.get(before)).is_none_or(|before| mark(&before));
    opens
        && is(tokens.get(at), &ASKING)
        && is(tokens.get(at + 1), &SUBJECTS)
        && tokens.iter().skip(at).find(mark).is_some_and(|mark| mark.form().first() == Some(&b'?'))
}
