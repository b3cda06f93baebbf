//! The rules that correct the model, for negation, irony and emphasis.

use crate::emotion::{
    ANGER, ANNOYANCE, APPROVAL, CARING, DISAPPOINTMENT, DISAPPROVAL, EMBARRASSMENT, EMOTIONS, EXCITEMENT, FEAR, Family,
    JOY, LABELS, NEUTRAL, PRIDE, RELIEF, SADNESS, Valence, shades,
};
use crate::lexicon::Class;
use crate::scope::Note;
use crate::table::{NEGATIVE, POLARITY, POSITIVE, SCORES, Table};
use crate::token::Token;

/// The findings of the rules for a window.
#[derive(Debug, Clone, Copy, Default)]
pub struct Findings {
    pub has_negation: bool,
    /// Whether something is really negated. Some negations only strengthen, as in "never been so happy".
    has_denial: bool,
    /// The place of the last "but".
    contrast: Option<usize>,
    pub is_ironic: bool,
    pub is_question: bool,
    /// Whether the writer writes about their own feelings.
    is_own: bool,
    /// The sum over the words of feeling, weighted by strength, sign and place before or after a "but".
    pub polarity: f32,
    /// The parts of the sum before and after the "but".
    sides: [f32; 2],
    /// Emphasis from 0 to 1: capitals, marks, stretched words and intensifiers.
    pub emphasis: f32,
    /// Whether at least one word of feeling is weakened and none is strengthened.
    pub is_weakened: bool,
    negated_good: bool,
    negated_bad: bool,
    negated_joy: bool,
    /// Whether at least one word of feeling is not negated.
    has_plain_feeling: bool,
}

/// The amounts by which rules change a score. The scores are log-odds, so 3 is a factor of 20 in the odds.
const STRONG: f32 = 3.0;
const WEAK: f32 = 1.5;

/// The weight of a feeling before and after a "but" (Hutto and Gilbert 2014).
const BEFORE_CONTRAST: f32 = 0.5;
const AFTER_CONTRAST: f32 = 1.5;

/// The factor for a negated feeling. It changes the sign and weakens the feeling, because "not good" is less bad than
/// "bad" (same source).
const NEGATION: f32 = -0.74;

pub fn find(tokens: &[Token], notes: &[Note]) -> Findings {
    let mut findings = Findings::default();
    let contrast = notes.iter().rposition(|note| note.is(Class::Contrast)).filter(|at| *at > 0);
    findings.contrast = contrast;
    for (at, note) in notes.iter().enumerate() {
        findings.take_note(note, contrast.map(|contrast| at > contrast));
    }
    findings.find_irony(tokens, notes);
    findings.find_question(tokens);
    findings.emphasis = emphasis(tokens, notes);
    let boosts = || notes.iter().map(|note| note.boost);
    findings.is_weakened = boosts().any(|boost| boost < 0.0) && boosts().all(|boost| boost <= 0.0);
    findings
}

impl Findings {
    pub fn has_contrast(&self) -> bool {
        self.contrast.is_some()
    }

    /// Whether the two sides of a contrast have opposite signs.
    pub fn has_opposite_sides(&self) -> bool {
        let [before, after] = self.sides;
        before * after < 0.0 && before.abs().min(after.abs()) >= 1.0
    }

    fn take_note(&mut self, note: &Note, is_after_contrast: Option<bool>) {
        match note.class() {
            Some(Class::Negator) => {
                self.has_negation = true;
                self.has_denial |= !note.is_lifted;
            }
            Some(Class::Myself) => self.is_own = true,
            _ => {}
        }
        let Some(entry) = note.entry.filter(|_| note.is_feeling()) else {
            return;
        };
        let mut strength = entry.valence * (1.0 + note.boost);
        self.has_denial |= note.is_negated;
        if note.is_negated {
            self.negated_good |= entry.valence > 0.5;
            self.negated_bad |= entry.valence < -0.5;
            self.negated_joy |= note.is(Class::Emotion(JOY)) || note.is(Class::Emotion(EXCITEMENT));
            strength *= NEGATION;
        } else {
            self.has_plain_feeling |= entry.valence.abs() > 0.5;
        }
        let place = match is_after_contrast {
            None => 1.0,
            Some(false) => BEFORE_CONTRAST,
            Some(true) => AFTER_CONTRAST,
        };
        self.polarity += strength * place;
        self.sides[usize::from(is_after_contrast == Some(true))] += strength;
    }

    /// Detects irony: an ironic phrase ("oh great"), or praise with a mark of irony, such as rolling eyes.
    fn find_irony(&mut self, tokens: &[Token], notes: &[Note]) {
        let opens = notes.iter().any(|note| note.is(Class::Irony));
        let marked = notes.iter().any(|note| note.is(Class::Sarcasm));
        let praise =
            |note: &Note| note.is_feeling() && !note.is_negated && note.entry.is_some_and(|entry| entry.valence > 1.0);
        let rolls = tokens.iter().any(|token| !token.is_word() && (token.is("\u{1F644}") || token.is("\u{1F612}")));
        let tag = tokens.windows(2).last().is_some_and(|pair| pair[0].is("/") && pair[1].is("s"));
        self.is_ironic = opens || (marked || rolls || tag) && notes.iter().any(praise);
    }

    fn find_question(&mut self, tokens: &[Token]) {
        const OPENERS: [&str; 24] = [
            "who", "what", "when", "where", "why", "how", "which", "whose", "do", "does", "did", "is", "are", "was",
            "were", "can", "could", "would", "will", "should", "has", "have", "am", "may",
        ];
        let marked = tokens.iter().any(|token| token.form().first() == Some(&b'?'));
        let ends_else = tokens.last().is_some_and(|token| matches!(token.form().first(), Some(b'.' | b'!')));
        let opens = tokens.first().is_some_and(|token| OPENERS.iter().any(|opener| token.is(opener)));
        self.is_question = marked || opens && !ends_else && tokens.len() > 2;
    }
}

/// Combines the signs of emphasis. Each sign adds a fraction of the remaining distance to 1.
fn emphasis(tokens: &[Token], notes: &[Note]) -> f32 {
    let words = tokens.iter().filter(|token| token.is_word()).count();
    let caps = tokens.iter().filter(|token| token.is_caps && token.form().len() > 2).count();
    let marks: u32 = tokens.iter().filter(|token| token.form().first() == Some(&b'!')).map(|token| token.count).sum();
    let stretched = tokens.iter().any(|token| token.stretched.is_some());
    let boost: f32 = notes.iter().map(|note| note.boost.max(0.0)).sum();
    let shouts = if caps == 0 {
        0.0
    } else if caps < words {
        0.35 // some words are emphasised in contrast to the others
    } else {
        0.25
    };
    let signs = [shouts, 0.12 * marks.min(4) as f32, if stretched { 0.2 } else { 0.0 }, (1.5 * boost).min(0.6)];
    1.0 - signs.iter().map(|sign| 1.0 - sign).product::<f32>()
}

/// Changes the scores according to the findings.
pub fn apply(table: &Table, findings: &Findings, tokens: &[Token], notes: &[Note], scores: &mut [f32; SCORES]) {
    remove_negated_families(table, notes, scores);
    if !findings.has_plain_feeling {
        apply_negation(table, findings, scores);
    }
    affirm_negated_praise(table, notes, scores);
    read_emoji(table, tokens, notes, scores);
    raise_rare_emotions(table, tokens, notes, scores);
    if findings.is_ironic {
        apply_irony(table, scores);
    } else if !findings.has_denial {
        remove_opposite_feelings(table, notes, scores);
    }
    if findings.is_own {
        raise_own_feelings(table, notes, scores);
        remove_caring_for_nobody(table, tokens, notes, scores);
    }
    if let Some(contrast) = findings.contrast
        && findings.has_opposite_sides()
    {
        weigh_sides(notes.split_at(contrast.min(notes.len())), scores);
    }
}

/// Applied if all named feelings are negated.
fn apply_negation(table: &Table, findings: &Findings, scores: &mut [f32; SCORES]) {
    match (findings.negated_good, findings.negated_bad) {
        (true, true) => apply_neither_nor(scores),
        (false, true) => {
            scores[NEUTRAL] += WEAK;
            scores[NEGATIVE] -= STRONG;
            scores[DISAPPROVAL] -= WEAK;
            scores[POLARITY] = scores[POLARITY].max(0.4 * scores[POLARITY]);
        }
        (true, false) => {
            scores[NEGATIVE] += WEAK;
            scores[POSITIVE] -= STRONG;
            scores[APPROVAL] -= WEAK;
            if findings.is_own && findings.negated_joy {
                raise(table, scores, SADNESS, 0.6);
            }
        }
        (false, false) => {}
    }
}

/// Treats praise that only looks negated as praise: "not bad", "doesn't get any better".
fn affirm_negated_praise(table: &Table, notes: &[Note], scores: &mut [f32; SCORES]) {
    for (at, note) in notes.iter().enumerate() {
        let is_good = note.is_feeling() && !note.is_negated;
        let Some(entry) = note.entry.filter(|entry| is_good && entry.valence > 0.5) else {
            continue;
        };
        let phrase = notes.get(at..at + note.width).unwrap_or_default();
        if note.is_lifted || phrase.iter().any(|note| note.overruled.is_some()) {
            move_families(1 << Family::Anger as u32, -STRONG, scores);
            scores[DISAPPOINTMENT] -= STRONG;
            scores[NEGATIVE] -= STRONG;
            scores[POSITIVE] = scores[POSITIVE].max(table.threshold(LABELS) + 0.3);
            scores[POLARITY] = scores[POLARITY].max(entry.valence * 0.2);
        }
    }
}

/// Emoji and emoticons show whether the words are meant as positive or negative. Which emotion they express is left to
/// the model, which was trained with them.
fn read_emoji(table: &Table, tokens: &[Token], notes: &[Note], scores: &mut [f32; SCORES]) {
    const SHARE: f32 = 0.15;
    for (token, note) in tokens.iter().zip(notes) {
        let is_felt = !token.is_word() && note.is_feeling() && !note.is_negated;
        if let Some(entry) = note.entry.filter(|_| is_felt) {
            let side = usize::from(entry.valence <= 0.0); // 0 is positive, 1 is negative
            scores[POLARITY] += SHARE * entry.valence;
            scores[POSITIVE + side] = scores[POSITIVE + side].max(table.threshold(LABELS + side) + 0.3);
        }
    }
}

/// Some emotions are so rare in the training texts that the model hardly knows their words. Therefore a single word
/// that names such an emotion is sufficient.
fn raise_rare_emotions(table: &Table, tokens: &[Token], notes: &[Note], scores: &mut [f32; SCORES]) {
    for (token, note) in tokens.iter().zip(notes) {
        let is_said = token.is_word() && note.width == 1 && note.is_feeling() && !note.is_negated;
        if let Some(Class::Emotion(emotion @ (RELIEF | PRIDE | EMBARRASSMENT))) = note.class().filter(|_| is_said) {
            raise(table, scores, emotion, 0.3);
        }
    }
}

/// Neither feeling is felt: "I am neither happy nor sad".
fn apply_neither_nor(scores: &mut [f32; SCORES]) {
    scores.iter_mut().take(LABELS).for_each(|score| *score -= WEAK);
    scores[NEUTRAL] += WEAK + STRONG;
    scores[POSITIVE] -= STRONG;
    scores[NEGATIVE] -= STRONG;
    scores[POLARITY] *= 0.2;
}

/// If all words of feeling have the same sign, removes feelings of the other sign: "This is hopeless" is not optimism.
/// If no feeling is left, the named one is used.
fn remove_opposite_feelings(table: &Table, notes: &[Note], scores: &mut [f32; SCORES]) {
    let feelings = || notes.iter().filter(|note| note.is_feeling());
    let valences = || feelings().filter_map(|note| note.entry).map(|entry| entry.valence);
    let sum: f32 = valences().sum();
    if sum.abs() < MIN_SUM || valences().any(|valence| valence * sum < 0.0) {
        return;
    }
    for (label, emotion) in EMOTIONS.iter().enumerate().take(LABELS) {
        let is_other = match emotion.family {
            Family::Joy => sum < 0.0,
            Family::Anger | Family::Sadness | Family::Disgust | Family::Fear => sum > 0.0,
            Family::Surprise | Family::Neutral => false,
        };
        if is_other {
            scores[label] = scores[label].min(table.threshold(label) - WEAK);
        }
    }
    let unsaid = usize::from(sum > 0.0); // index of the sign that does not occur: 0 is positive, 1 is negative
    scores[POSITIVE + unsaid] = scores[POSITIVE + unsaid].min(table.threshold(LABELS + unsaid) - 0.1);
    let is_felt = |label: usize| label != NEUTRAL && scores[label] >= table.threshold(label);
    if (0..LABELS).any(is_felt) {
        return;
    }
    for note in feelings() {
        if let Some(Class::Emotion(emotion)) = note.class()
            && emotion < LABELS
        {
            raise(table, scores, emotion, 0.3);
        }
    }
}

/// The minimum sum over the words of feeling that overrules the model.
const MIN_SUM: f32 = 2.0;

/// Returns the families of some emotions, one bit each.
fn families(classes: impl Iterator<Item = Class>) -> u32 {
    let numbers = classes.filter_map(|class| match class {
        Class::Emotion(number) => EMOTIONS.get(number),
        _ => None,
    });
    numbers.fold(0, |set, emotion| set | 1 << emotion.family as u32)
}

/// Returns the families of the feelings that are named and not negated.
fn felt_families(notes: &[Note]) -> u32 {
    let plain = notes.iter().filter(|note| !note.is_negated && note.is_feeling());
    families(plain.filter_map(Note::class))
}

/// Adds a value to the scores of all emotions of some families.
fn move_families(set: u32, by: f32, scores: &mut [f32; SCORES]) {
    for (score, emotion) in scores.iter_mut().zip(EMOTIONS.iter().take(LABELS)) {
        if set & 1 << emotion.family as u32 != 0 {
            *score += by;
        }
    }
}

/// Removes an emotion if all of its words are negated, or are parts of phrases with another meaning. If the model could
/// not detect that, its score has no meaning.
fn remove_negated_families(table: &Table, notes: &[Note], scores: &mut [f32; SCORES]) {
    let has_some = |note: &Note| note.is_negated || note.overruled.is_some();
    if !notes.iter().any(has_some) {
        return;
    }
    let of = |holds: fn(&&Note) -> bool| families(notes.iter().filter(holds).filter_map(Note::class));
    let overruled = families(notes.iter().filter_map(|note| note.overruled));
    let negated = of(|note| note.is_negated && note.is_feeling());
    let unnamed = !felt_families(notes) & !(1 << Family::Surprise as u32);
    move_families((negated | overruled) & unnamed, -STRONG, scores);
    let unseen = overruled & unnamed;
    for (label, emotion) in EMOTIONS.iter().enumerate().take(LABELS) {
        if unseen & 1 << emotion.family as u32 != 0 {
            scores[label] = scores[label].min(table.threshold(label) - WEAK);
        }
    }
}

/// Weakens feelings that are named only before a contrast: "He was sad, but he is happy now".
fn weigh_sides((before, after): (&[Note], &[Note]), scores: &mut [f32; SCORES]) {
    let (before, after) = (felt_families(before), felt_families(after));
    move_families(before & !after, -0.5 * WEAK, scores);
    move_families(after & !before, 0.5 * WEAK, scores);
}

/// Applies irony: praise means the opposite.
fn apply_irony(table: &Table, scores: &mut [f32; SCORES]) {
    for (label, emotion) in EMOTIONS.iter().take(LABELS).enumerate() {
        if emotion.family == Family::Joy {
            scores[label] = (scores[label] - STRONG).min(table.threshold(label) - 0.5);
        }
    }
    raise(table, scores, ANNOYANCE, 0.5);
    let positive = scores[POSITIVE];
    scores[POSITIVE] = scores[NEGATIVE] - WEAK;
    scores[NEGATIVE] = positive.max(scores[NEGATIVE]) + WEAK;
    scores[POLARITY] = -0.6 * scores[POLARITY].abs() - 0.2;
}

/// Removes caring if it is not named, the text is about nobody but the writer, and no other positive emotion is felt.
/// The model has learnt it from answers to texts such as "I have cancer", which are not positive themselves.
fn remove_caring_for_nobody(table: &Table, tokens: &[Token], notes: &[Note], scores: &mut [f32; SCORES]) {
    const WRITER: [&str; 8] = ["i", "i'm", "im", "i've", "ive", "i'd", "i'll", "me"];
    const OTHERS: [&str; 15] = [
        "you", "your", "yourself", "he", "him", "his", "she", "her", "they", "them", "their", "it", "we", "us",
        "everyone",
    ];
    let is_other = |(token, note): (&Token, &Note)| {
        let is_one = |words: &[&str]| words.iter().any(|word| token.is(word));
        is_one(&OTHERS) || note.is(Class::Myself) && !is_one(&WRITER) || note.is(Class::Emotion(CARING))
    };
    let margin = |label: usize| scores[label] - table.threshold(label);
    let is_positive = |label: &usize| EMOTIONS[*label].valence == Valence::Positive && *label != CARING;
    let has_other_reason = (0..LABELS).filter(is_positive).any(|label| margin(label) >= 0.0);
    if margin(CARING) > -1.0 && !has_other_reason && !tokens.iter().zip(notes).any(is_other) {
        scores[CARING] = table.threshold(CARING) - WEAK;
        scores[POSITIVE] = scores[POSITIVE].min(table.threshold(LABELS) - 0.1);
    }
}

/// The maximum number of words between "I" and a feeling of the writer.
const MAX_WORDS_AFTER_I: usize = 5;

/// If writers name a shade of an emotion as their own feeling, adds the emotion: "I'm disappointed" is sadness.
fn raise_own_feelings(table: &Table, notes: &[Note], scores: &mut [f32; SCORES]) {
    for (at, note) in notes.iter().enumerate().filter(|(_, note)| !note.is_negated) {
        let Some(Class::Emotion(shade)) = note.class().filter(|_| !note.is_name) else {
            continue;
        };
        let Some(whole) = [SADNESS, ANGER, FEAR].into_iter().find(|whole| shades(*whole).contains(&shade)) else {
            continue;
        };
        let before = notes.get(at.saturating_sub(MAX_WORDS_AFTER_I)..at).unwrap_or_default();
        if before.iter().any(|note| note.is(Class::Myself)) {
            let margin = scores[shade] - table.threshold(shade);
            raise(table, scores, whole, margin.max(0.3) + 0.05);
        }
    }
}

/// Raises the score of a label to at least `margin` above its threshold.
fn raise(table: &Table, scores: &mut [f32; SCORES], label: usize, margin: f32) {
    if let Some(score) = scores.get_mut(label) {
        *score = score.max(table.threshold(label) + margin);
    }
}
