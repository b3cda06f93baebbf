//! A window is a part of a text that is scored as a unit: its tokens, their notes, and the model's scores.

use crate::emotion::{EMOTIONS, LABELS, NEUTRAL};
use crate::feature;
use crate::idiom;
use crate::rules;
use crate::scope::{Note, annotate, normalize_stretched};
use crate::span::Span;
use crate::table::{Hidden, SCORES, Sum, Table, WIDTH, dot, row_of};
use crate::token::{Kind, Token, Tokens};

/// Maximum number of tokens in a window. A long text is processed window by window, so that the memory does not depend
/// on its length.
pub const MAX_TOKENS: usize = 128;

/// A window with at least this many tokens ends at the end of its current sentence.
const FULL_SENTENCES: usize = 64;

pub struct Window {
    pub tokens: Vec<Token>,
    pub notes: Vec<Note>,
    /// The contribution of each token to the sum.
    sums: Vec<Part>,
    hidden: Hidden,
    pub scores: [f32; SCORES],
    pub findings: rules::Findings,
}

impl Window {
    /// Returns the next window of a text, or `None` at the end.
    pub fn next(table: &Table, words: &mut WordSums, source: &mut Tokens) -> Option<Window> {
        let mut tokens = Vec::with_capacity(24);
        for token in source {
            let ends = token.kind == Kind::Mark && matches!(token.form().first(), Some(b'.' | b'!' | b'?'));
            tokens.push(token);
            if let Some(token) = tokens.last_mut() {
                normalize_stretched(table, token);
            }
            if tokens.len() >= MAX_TOKENS || ends && tokens.len() >= FULL_SENTENCES {
                break;
            }
        }
        (!tokens.is_empty()).then(|| Window::judge(table, words, tokens))
    }

    fn judge(table: &Table, words: &mut WordSums, tokens: Vec<Token>) -> Window {
        let mut notes = Vec::with_capacity(tokens.len());
        annotate(table, &tokens, &mut notes);
        idiom::correct(&tokens, &mut notes);
        idiom::take_back(&tokens, &mut notes);
        let (sums, total) = add_up(table, words, &tokens, &notes);
        let hidden = table.hidden(&total);
        let mut scores = table.scores(&hidden);
        let findings = rules::find(&tokens, &notes);
        rules::apply(table, &findings, &tokens, &notes, &mut scores);
        let mut window = Window { tokens, notes, sums, hidden, scores, findings };
        window.remove_opposite_of_strong_words(table);
        window
    }

    /// Ensures that a strong word of feeling is not evidence for another family, even if the words look similar:
    /// "furious" is not "curious". The model confuses such words if they are rare in the training texts.
    fn remove_opposite_of_strong_words(&mut self, table: &Table) {
        if self.findings.is_ironic {
            return;
        }
        for at in 0..self.notes.len() {
            let Some(emotion) = self.notes.get(at).and_then(Note::strong_emotion) else {
                continue;
            };
            let found = detected(&self.scores, |label| table.threshold(label));
            let labels = |set: u32| (0..LABELS).filter(move |label| set & 1 << label != 0);
            let family = |label: usize| EMOTIONS.get(label).map(|emotion| emotion.family);
            let margin = |label: usize| self.scores[label] - table.threshold(label);
            let own = labels(found).filter(|label| family(*label) == family(emotion));
            let own = own.map(margin).reduce(f32::max); // `None` if the family was not detected at all
            let louder = labels(found).filter(|label| *label != NEUTRAL && own.is_none_or(|own| margin(*label) > own));
            for label in labels(louder.fold(0, |set, label| set | 1 << label)) {
                let shares = self.shares(table, label).enumerate();
                let largest = shares.max_by_key(|(_, share)| *share);
                if largest.is_some_and(|(place, _)| place == at) {
                    self.scores[label] = table.threshold(label) - 0.1;
                }
            }
            if own.is_none() {
                self.scores[emotion] = self.scores[emotion].max(table.threshold(emotion) + 0.5);
            }
        }
    }

    /// Returns the byte span of some tokens.
    pub fn span(&self, at: usize, width: usize) -> Option<Span> {
        let last = self.tokens.get(at + width.max(1) - 1)?;
        Some(Span { start: self.tokens.get(at)?.start(), end: last.end() })
    }

    /// Returns the contribution of each token to a score, in an arbitrary unit.
    pub fn shares(&self, table: &Table, score: usize) -> impl Iterator<Item = i32> {
        let slope = table.slope(score, &self.hidden);
        self.sums.iter().map(move |sum| dot(&sum.0, &slope))
    }
}

/// Returns the contribution of each token, and their sum.
fn add_up(table: &Table, words: &mut WordSums, tokens: &[Token], notes: &[Note]) -> (Vec<Part>, Sum) {
    /// The number of tokens whose sum fits into 16 bits, if each has fewer than a hundred features.
    const MAX_TOKENS_IN_16_BITS: usize = 32;
    let mut total = Sum::ZERO;
    let (mut some, mut features) = (Part::ZERO, 0);
    let mut parts = Vec::with_capacity(tokens.len());
    let mut rows = Rows::new();
    for (at, (token, note)) in tokens.iter().zip(notes).enumerate() {
        rows.len = 0;
        feature::of_place(notes, at, |feature| rows.take(table, feature));
        let word = (!note.is_ignored()).then(|| words.of(table, token, note.key));
        let (mut part, count) = word.map_or((Part::ZERO, 0), |word| (word.part, word.count));
        table.add(rows.list(), &mut part.0);
        some.0.iter_mut().zip(&part.0).for_each(|(sum, number)| *sum += number);
        features += count + rows.len;
        parts.push(part);
        if at % MAX_TOKENS_IN_16_BITS == MAX_TOKENS_IN_16_BITS - 1 {
            total.add(&some.0, features);
            (some, features) = (Part::ZERO, 0);
        }
    }
    rows.len = 0;
    feature::of_style(tokens, |feature| rows.take(table, feature));
    table.add(rows.list(), &mut some.0);
    total.add(&some.0, features + rows.len);
    (parts, total)
}

/// The contribution of a token or a word to the sum.
#[derive(Clone, Copy)]
#[repr(align(16))]
struct Part([i16; WIDTH]);

impl Part {
    const ZERO: Part = Part([0; WIDTH]);
}

/// The rows of known features.
struct Rows {
    list: [u32; Rows::MAX_ROWS],
    len: usize,
}

impl Rows {
    /// Maximum number of rows of a token: a word of 24 letters has 72 sequences of letters and six other features.
    const MAX_ROWS: usize = 96;

    fn new() -> Rows {
        Rows { list: [0; Rows::MAX_ROWS], len: 0 }
    }

    #[inline]
    fn take(&mut self, table: &Table, feature: u64) {
        if table.knows(feature)
            && let Some(place) = self.list.get_mut(self.len)
        {
            *place = row_of(feature);
            self.len += 1;
        }
    }

    fn list(&self) -> &[u32] {
        self.list.get(..self.len).unwrap_or_default()
    }
}

/// A cache of the contributions of words, as far as they do not depend on context. It is kept between texts, because
/// most words of a text are among a few hundred. It does not affect the results.
pub struct WordSums {
    /// For each set of the cache, the indices in `sums` of its two words, plus one. The most recently used word is
    /// first. The memory starts as zeros, so the system allocates it only when it is used.
    sets: Vec<[u16; 2]>,
    sums: Vec<WordSum>,
}

struct WordSum {
    key: u64,
    count: usize,
    part: Part,
}

impl Default for WordSums {
    fn default() -> WordSums {
        WordSums { sets: vec![[0; 2]; WordSums::SETS], sums: Vec::new() }
    }
}

impl WordSums {
    const SETS: usize = 2048;

    fn of(&mut self, table: &Table, token: &Token, key: u64) -> &WordSum {
        let set = &mut self.sets[(key >> 24) as usize % WordSums::SETS];
        let [first, second] = set.map(|place| usize::from(place).checked_sub(1));
        let is_key = |place: &usize| self.sums.get(*place).is_some_and(|kept| kept.key == key);
        if let Some(place) = first.filter(is_key) {
            return &self.sums[place];
        }
        set.swap(0, 1);
        if let Some(place) = second.filter(is_key) {
            return &self.sums[place];
        }
        let new = WordSum::of(table, token, key);
        let place = second.unwrap_or(self.sums.len());
        set[0] = place as u16 + 1;
        match self.sums.get_mut(place) {
            Some(old) => *old = new,
            None => self.sums.push(new),
        }
        &self.sums[place]
    }
}

impl WordSum {
    fn of(table: &Table, token: &Token, key: u64) -> WordSum {
        let mut rows = Rows::new();
        feature::of_itself(token, key, |feature| rows.take(table, feature));
        let mut part = Part::ZERO;
        table.add(rows.list(), &mut part.0);
        WordSum { key, count: rows.len, part }
    }
}

/// Returns the labels whose score reaches its threshold, one bit per label. If none does, returns the label that is
/// closest, because every text has a label.
pub fn detected(scores: &[f32], threshold: impl Fn(usize) -> f32) -> u32 {
    let mut found = 0;
    let mut nearest = (f32::MIN, NEUTRAL);
    for (label, score) in scores.iter().enumerate().take(LABELS) {
        let margin = score - threshold(label);
        if margin >= 0.0 {
            found |= 1 << label;
        }
        if margin > nearest.0 {
            nearest = (margin, label);
        }
    }
    if found == 0 { 1 << nearest.1 } else { found }
}
