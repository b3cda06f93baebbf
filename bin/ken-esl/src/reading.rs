//! The reading of a whole text, computed from the scores of the model and the findings of the rules.

use crate::emotion::{ANNOYANCE, EMOTIONS, LABELS, NEUTRAL, Valence, shades};
use crate::feature;
use crate::lexicon::{Class, LANGUAGES};
use crate::math::{sigmoid, tanh};
use crate::span::Span;
use crate::table::{NEGATIVE, POLARITY, POSITIVE, SCORES, Table};
use crate::token::Tokens;
use crate::window::{Window, WordSums, detected};

/// Maximum number of spans that are shown for an emotion.
const MAX_EVIDENCE: usize = 3;

/// Maximum number of temporal words that are listed.
const MAX_TEMPORAL: usize = 8;

/// The maximum confidence. It is below 1 because a model that is trained on examples can always be wrong.
const MAX_CONFIDENCE: f32 = 0.98;

/// The maximum magnitude of the valence score of a neutral text.
const NEUTRAL_SCORE: f32 = 0.05;

/// The minimum magnitude of the score of a text that is not neutral.
const MIN_SCORE: f32 = 0.06;

/// The minimum score with which a text is not neutral even if no label with a polarity is close to its threshold. A
/// text can express an opinion without an emotion.
const CLEAR_SCORE: f32 = 0.45;

/// The margin above its threshold that an emotion gets if the model does not know it but the text names it.
const NAMED_MARGIN: f32 = 0.5;

/// The margin by which an emotion is moved ahead of another one.
const REORDER_MARGIN: f32 = 0.01;

/// An emotion with the valence of the text becomes the state if it is this close to the strongest one.
const MIN_RELATIVE_INTENSITY: f32 = 0.5;

/// The minimum magnitude of a score that makes the valence mixed if it contradicts the state.
const MIXED_SCORE: f32 = 0.2;

/// An emotion that was detected.
#[derive(Debug)]
pub struct Feeling {
    pub emotion: usize,
    /// How far its score is above its threshold, in log-odds.
    margin: f32,
    pub intensity: f32,
    pub confidence: f32,
    pub evidence: Vec<Span>,
}

impl Feeling {
    fn valence(&self) -> Valence {
        EMOTIONS[self.emotion].valence
    }

    /// Whether this emotion cannot be the state of a text with this valence. Some emotions, such as surprise, fit any
    /// valence.
    fn opposes(&self, valence: Valence) -> bool {
        let is_signless = self.emotion != NEUTRAL && self.valence() == Valence::Neutral;
        !is_signless && ![self.valence(), Valence::Mixed].contains(&valence)
    }
}

#[derive(Debug)]
pub struct Reading {
    pub feelings: Vec<Feeling>,
    pub valence: Valence,
    pub valence_score: f32,
    pub salience: f32,
    pub confidence: f32,
    pub language: &'static str,
    pub context: Context,
}

/// What the windows of a text contain beside emotions.
#[derive(Debug, Default)]
pub struct Context {
    pub is_question: bool,
    pub has_negation: bool,
    pub has_contrast: bool,
    pub is_ironic: bool,
    pub temporal: Vec<Span>,
    pub negated: Vec<Span>,
}

impl Reading {
    pub fn of(table: &Table, words: &mut WordSums, text: &str) -> Reading {
        let mut reader = WindowCombiner { scores: vec![0.0; SCORES], ..WindowCombiner::default() };
        let mut source = Tokens::new(text);
        while let Some(window) = Window::next(table, words, &mut source) {
            reader.take(table, &window);
        }
        reader.finish(table)
    }

    /// Returns the number of the strongest emotion, or that of neutral if there is none.
    pub fn state(&self) -> usize {
        self.feelings.first().map_or(NEUTRAL, |feeling| feeling.emotion)
    }

    pub fn intensity(&self) -> f32 {
        let felt = self.feelings.iter().filter(|feeling| feeling.emotion != NEUTRAL);
        let strongest = felt.map(|feeling| feeling.intensity).fold(0.0, f32::max);
        if self.state() == NEUTRAL { strongest * 0.5 } else { strongest }
    }
}

/// Combines the windows of a text.
#[derive(Default)]
struct WindowCombiner {
    scores: Vec<f32>,
    tokens: usize,
    polarity: f32,
    emphasis: f32,
    is_weakened: bool,
    is_torn: bool,
    context: Context,
    /// The best evidence so far for each emotion: its number, the score and the spans.
    evidence: Vec<(usize, f32, Vec<Span>)>,
    words: usize,
    known: usize,
    languages: [usize; LANGUAGES.len()],
}

impl WindowCombiner {
    fn take(&mut self, table: &Table, window: &Window) {
        let weight = window.tokens.len();
        for (sum, score) in self.scores.iter_mut().zip(&window.scores) {
            *sum += score * weight as f32;
        }
        self.tokens += weight;
        let findings = &window.findings;
        self.polarity += findings.polarity;
        self.emphasis = self.emphasis.max(findings.emphasis);
        self.is_weakened |= findings.is_weakened;
        self.context.is_question |= findings.is_question;
        self.context.has_negation |= findings.has_negation;
        self.context.has_contrast |= findings.has_contrast();
        self.context.is_ironic |= findings.is_ironic;
        self.is_torn |= findings.has_opposite_sides();
        self.take_words(table, window);
        self.take_evidence(table, window);
        self.take_named(window);
    }

    fn take_words(&mut self, table: &Table, window: &Window) {
        for (token, note) in window.tokens.iter().zip(&window.notes) {
            let span = Span { start: token.start(), end: token.end() };
            let Context { temporal, negated, .. } = &mut self.context;
            if note.is(Class::Temporal) && temporal.len() < MAX_TEMPORAL {
                temporal.push(span);
            }
            if note.is_negated && note.is_feeling() && negated.len() < MAX_EVIDENCE {
                negated.push(span);
            }
            if !token.is_word() {
                continue;
            }
            self.words += 1;
            let language = match note.class() {
                Some(Class::Language(language)) => language,
                Some(_) => 0,
                None if table.knows(feature::of_word(note.key)) => {
                    self.known += 1;
                    continue;
                }
                None => continue,
            };
            self.known += usize::from(language == 0);
            if let Some(count) = self.languages.get_mut(language) {
                *count += 1;
            }
        }
    }

    /// Records the words that contribute most to each label of this window.
    fn take_evidence(&mut self, table: &Table, window: &Window) {
        let found = detected(&window.scores, |label| table.threshold(label));
        for label in (0..LABELS).filter(|label| found & 1 << label != 0) {
            let score = window.scores.get(label).copied().unwrap_or_default();
            if label == NEUTRAL || self.evidence.iter().any(|best| best.0 == label && best.1 >= score) {
                continue;
            }
            let mut spans = naming_spans(window, label);
            if spans.is_empty() {
                spans = strongest_spans(window, window.shares(table, label));
            }
            self.evidence.retain(|best| best.0 != label);
            self.evidence.push((label, score, spans));
        }
    }

    /// Adds emotions that the window names but the model does not know.
    fn take_named(&mut self, window: &Window) {
        for (at, note) in window.notes.iter().enumerate() {
            let Some(Class::Emotion(emotion)) = note.class() else {
                continue;
            };
            if emotion < LABELS || note.is_negated {
                continue;
            }
            let Some(span) = window.span(at, note.width) else {
                continue;
            };
            match self.evidence.iter_mut().find(|best| best.0 == emotion) {
                Some((_, _, spans)) if spans.len() < MAX_EVIDENCE => spans.push(span),
                Some(_) => {}
                None => self.evidence.push((emotion, NAMED_MARGIN, vec![span])),
            }
        }
    }

    fn finish(mut self, table: &Table) -> Reading {
        let count = self.tokens.max(1) as f32;
        self.scores.iter_mut().for_each(|score| *score /= count);
        let (language, clarity) = self.language();
        let mut feelings = if self.tokens == 0 { Vec::new() } else { self.feelings(table) };
        self.rank(&mut feelings, clarity);
        let (valence, valence_score) = self.valence(table, &feelings, clarity);
        if align_state(&mut feelings, valence) {
            self.rank(&mut feelings, clarity);
        }
        let (valence, valence_score) = align_valence(&feelings, valence, valence_score);
        let neutral = sigmoid(self.scores[NEUTRAL] - table.threshold(NEUTRAL));
        let strongest = feelings.iter().filter(|feeling| feeling.emotion != NEUTRAL);
        let strongest = strongest.map(|feeling| feeling.intensity).fold(0.0, f32::max);
        let confidence = feelings.first().map_or(0.0, |feeling| feeling.confidence);
        let irony = if self.context.is_ironic { 0.7 } else { 1.0 };
        Reading {
            feelings,
            valence,
            valence_score,
            salience: strongest * (1.0 - 0.5 * neutral),
            confidence: confidence * irony,
            language,
            context: self.context,
        }
    }

    /// Returns the language, and how reliable the model is for this text, from 0 to 1.
    fn language(&self) -> (&'static str, f32) {
        if self.words == 0 {
            return ("und", if self.evidence.iter().any(|best| !best.2.is_empty()) { 0.6 } else { 0.1 });
        }
        let known = self.known as f32 / self.words as f32;
        let best = (1..LANGUAGES.len()).max_by_key(|language| self.languages[*language]).unwrap_or(1);
        if self.languages[best] > self.languages[0].max(self.known / 3) {
            return (LANGUAGES[best].0, 0.25);
        }
        if known < 0.45 {
            return ("und", 0.3 * known);
        }
        ("en", ((known - 0.25) / 0.5).min(1.0))
    }

    fn feelings(&self, table: &Table) -> Vec<Feeling> {
        let found = detected(&self.scores, |label| table.threshold(label));
        let labels = (0..LABELS).filter(|label| found & 1 << label != 0);
        let margin = |label: usize| self.scores[label] - table.threshold(label);
        let margins = labels.map(|label| (label, margin(label)));
        // An emotion that the text names is more precise than the model's label for the same words.
        let outright = |spans: &[Span]| {
            let alike =
                |best: &&(usize, f32, Vec<Span>)| best.0 < LABELS && best.2.iter().any(|span| spans.contains(span));
            let margins = self.evidence.iter().filter(alike).map(|best| margin(best.0));
            margins.map(|margin| margin + REORDER_MARGIN).fold(NAMED_MARGIN, f32::max)
        };
        let named = self.evidence.iter().filter(|best| best.0 >= LABELS);
        let named = named.map(|best| (best.0, outright(&best.2)));
        let feelings = margins.chain(named).map(|(emotion, margin)| {
            let evidence = self.evidence.iter().find(|best| best.0 == emotion);
            Feeling {
                emotion,
                margin,
                intensity: 0.0,
                confidence: 0.0,
                evidence: evidence.map(|best| best.2.clone()).unwrap_or_default(),
            }
        });
        feelings.collect()
    }

    /// Computes the intensities and sorts the emotions by them. Words like "slightly" lower all intensities except that
    /// of neutral. Therefore that one is limited to the intensity of the emotion before it, and the order is kept.
    fn rank(&self, feelings: &mut [Feeling], clarity: f32) {
        for feeling in &mut *feelings {
            feeling.intensity = self.intensity(feeling, 1.0);
            feeling.confidence = (sigmoid(feeling.margin + 0.2) * clarity).min(MAX_CONFIDENCE);
        }
        feelings.sort_by(|a, b| {
            let stronger = b.intensity.total_cmp(&a.intensity);
            let kind = (a.emotion == NEUTRAL).cmp(&(b.emotion == NEUTRAL));
            let margin = b.margin.total_cmp(&a.margin);
            stronger.then(kind).then(margin).then(a.emotion.cmp(&b.emotion))
        });
        if self.is_weakened {
            let mut before = 1.0f32;
            for feeling in feelings {
                before = before.min(self.intensity(feeling, 0.6));
                feeling.intensity = before;
            }
        }
    }

    /// Returns the intensity of an emotion: the model's margin, lowered by words like "slightly" and raised by
    /// emphasis.
    fn intensity(&self, feeling: &Feeling, weakened: f32) -> f32 {
        let base = sigmoid(0.5 * feeling.margin - 0.2);
        if feeling.emotion == NEUTRAL {
            return base;
        }
        1.0 - (1.0 - base * weakened) * (1.0 - self.emphasis)
    }

    fn valence(&self, table: &Table, feelings: &[Feeling], clarity: f32) -> (Valence, f32) {
        let positive = self.scores[POSITIVE] - table.threshold(LABELS);
        let negative = self.scores[NEGATIVE] - table.threshold(LABELS + 1);
        let outright = self.polarity / (self.polarity * self.polarity + 15.0).sqrt();
        let score = tanh(0.8 * self.scores[POLARITY] + 0.4 * outright) * clarity.max(0.3);
        if self.tokens == 0 {
            return (Valence::Neutral, 0.0);
        }
        let has = |valence| feelings.iter().any(|feeling| EMOTIONS[feeling.emotion].valence == valence);
        let is_torn = self.is_torn || self.context.has_contrast && has(Valence::Positive) && has(Valence::Negative);
        match (positive >= 0.0, negative >= 0.0) {
            _ if is_torn && score.abs() < 0.5 => (Valence::Mixed, score),
            (false, false) if score.abs() < CLEAR_SCORE => (Valence::Neutral, score * (NEUTRAL_SCORE / CLEAR_SCORE)),
            (false, false) if score > 0.0 => (Valence::Positive, score),
            (false, false) => (Valence::Negative, score),
            _ if positive >= negative => (Valence::Positive, score.max(MIN_SCORE)),
            _ => (Valence::Negative, score.min(-MIN_SCORE)),
        }
    }
}

/// If the state does not have the valence of the text, moves an emotion with that valence to the front. This is done
/// only if that emotion is hardly weaker than the state or the state is neutral. Returns whether there was such an
/// emotion.
fn align_state(feelings: &mut [Feeling], valence: Valence) -> bool {
    let Some(first) = feelings.first().filter(|first| first.opposes(valence)) else {
        return false;
    };
    let margin = first.margin;
    let min = if first.emotion == NEUTRAL { f32::MIN } else { margin - MIN_RELATIVE_INTENSITY };
    let agreeing = |feeling: &&mut Feeling| feeling.valence() == valence && feeling.margin >= min;
    let Some(feeling) = feelings.iter_mut().find(agreeing) else {
        return false;
    };
    feeling.margin = margin + REORDER_MARGIN;
    true
}

/// Changes the valence to that of the state. If the words clearly express the opposite, the valence is mixed.
fn align_valence(feelings: &[Feeling], valence: Valence, score: f32) -> (Valence, f32) {
    let opposed = |first: &&Feeling| first.emotion != NEUTRAL && first.opposes(valence);
    let Some(first) = feelings.first().filter(opposed) else {
        return (valence, score);
    };
    if score.abs() >= MIXED_SCORE {
        return (Valence::Mixed, score);
    }
    let felt = first.intensity * EMOTIONS[first.emotion].polarity / 4.0;
    let score = 0.5 * (score + felt);
    match first.valence() {
        Valence::Positive => (Valence::Positive, score.max(MIN_SCORE)),
        _ => (Valence::Negative, score.min(-MIN_SCORE)),
    }
}

/// Returns the words and phrases that name an emotion or a shade of it, or that make the text ironic.
fn naming_spans(window: &Window, label: usize) -> Vec<Span> {
    let is_ironic = window.findings.is_ironic && label == ANNOYANCE;
    let names = |class| match class {
        Class::Irony | Class::Sarcasm => is_ironic,
        Class::Emotion(emotion) => emotion == label || shades(label).contains(&emotion),
        _ => false,
    };
    let notes = window.notes.iter().enumerate();
    let naming = notes.filter(|(_, note)| !note.is_negated && note.class().is_some_and(names));
    naming.filter_map(|(at, note)| window.span(at, note.width)).take(MAX_EVIDENCE).collect()
}

/// Returns the words that contribute most, in the order of the text. Neighbouring words form one span.
fn strongest_spans(window: &Window, shares: impl Iterator<Item = i32>) -> Vec<Span> {
    let shares: Vec<i32> = shares.collect();
    let largest = shares.iter().copied().max().unwrap_or(0);
    let mut spans: Vec<Span> = Vec::new();
    let mut last = usize::MAX;
    let strong = shares.iter().enumerate().filter(|(_, share)| **share > 0 && **share >= largest / 2);
    for (at, _) in strong {
        let Some(Span { start, end }) = window.span(at, 1) else {
            continue;
        };
        let is_full = spans.len() >= MAX_EVIDENCE;
        match spans.last_mut() {
            Some(span) if last == at.wrapping_sub(1) => span.end = end,
            _ if !is_full => spans.push(Span { start, end }),
            _ => break,
        }
        last = at;
    }
    spans
}
