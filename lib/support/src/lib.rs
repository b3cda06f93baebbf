//! Decides whether a text is supported by its sources. Each sentence of the text is compared with the sources. The
//! result contains the passage that supports it best, a score from a small trained model, and what the sources lack or
//! contradict. All functions are pure and do no I/O. The time is linear in the length of the text plus the length of the
//! sources.
//!
//! ```
//! let sources = ["The pump was replaced on 4 March. Its bearing had worn through."];
//! let support = ken_support::support("The pump was replaced on 4 March. The bearing cost 90 euros.", &sources);
//! assert!(support.sentences[0].findings.is_empty());
//! assert_eq!(support.sentences[1].findings[0].kind, ken_support::Kind::Unsupported);
//! ```

mod calendar;
mod carried;
mod conflict;
mod features;
mod held;
mod index;
mod judge;
mod lookup;
mod meaning;
mod model;
mod rarity;
mod reading;
mod token;

use ken_text::Span;

pub use features::{FEATURES, NAMES};
pub use judge::{Judged, Judging, MAX_ANSWER_BYTES, MAX_SENTENCES, Opinion, Verdict};
pub use model::{Model, ModelError, REGIME};
pub use rarity::{RARITY_LEVELS, is_common};
pub use token::stems;

use features::Measured;
use index::{Index, SourceSentence};
use lookup::{Found, Records};

/// How well the sources support a text.
#[derive(Debug, Clone, PartialEq)]
pub struct Support {
    /// The mean of the sentences' scores, 0 to 1; 0 for a text without sentences.
    pub score: f64,
    /// The sentences in the order of the text.
    pub sentences: Vec<Supported>,
}

/// How well the sources support one sentence.
#[derive(Debug, Clone, PartialEq)]
pub struct Supported {
    /// The place of the sentence in the text, in bytes.
    pub span: Span,
    /// An estimate of how many readers would say that the sources support the sentence, from 0 (none) to 1 (all).
    pub score: f64,
    /// The passage of a source that supports the sentence best; `None` if no content word of the sentence is in any
    /// source.
    pub passage: Option<Passage>,
    /// The next best passages, at most two.
    pub others: Vec<Passage>,
    pub findings: Vec<Finding>,
}

/// A sentence of a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Passage {
    /// The index of the source in the list of sources.
    pub source: usize,
    /// The place of the sentence in that source, in bytes.
    pub span: Span,
}

/// Words of the text that occur in no source, or that a source contradicts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Finding {
    pub kind: Kind,
    /// The place in the text, in bytes.
    pub span: Span,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A number, a date, a name or a relation that no source has.
    Unsupported,
    /// The passage says something different about the same thing.
    Contradicted,
    /// No passage says it word for word; whether the sources say the same in other words is not known.
    Uncarried,
}

/// A sentence with a score below this is reported as unsupported.
const UNSUPPORTED: f64 = 0.35;

/// The maximum score of a sentence that a source contradicts.
pub const CONTRADICTED: f64 = 0.1;

/// Compares each sentence of `text` with `sources`, using the shipped model.
pub fn support(text: &str, sources: &[&str]) -> Support {
    let index = Index::new(text, sources);
    let records = records(text, sources);
    let measured = features::measure(&index);
    let scores = Model::shipped().scores(&measured.iter().map(|each| each.features).collect::<Vec<_>>());
    let mut before = None;
    let judged = measured.iter().zip(scores).map(|(each, score)| judge(&index, &records, each, score, &mut before));
    let sentences: Vec<Supported> = judged.collect();
    Support { score: mean_score(&sentences), sentences }
}

fn mean_score(sentences: &[Supported]) -> f64 {
    let sum: f64 = sentences.iter().map(|sentence| sentence.score).sum();
    sum / sentences.len().max(1) as f64
}

/// Returns whether a source consists of records (a log, a table), in which a sentence can be looked up in any language.
pub fn has_records(source: &str) -> bool {
    Records::of(ken_text::head(source, 64 * 1024), &|_| false).is_some()
}

/// Returns the features of each sentence of `text`. The model is trained on these.
pub fn features(text: &str, sources: &[&str]) -> Vec<[f64; FEATURES]> {
    let index = Index::new(text, sources);
    let measured = features::measure(&index);
    measured.iter().map(|each| each.features).collect()
}

/// Returns the sources that consist of records, each with its index.
fn records<'a>(text: &str, sources: &[&'a str]) -> Vec<(usize, Records<'a>)> {
    let wanted = lookup::wanted(text);
    let read =
        |(number, source): (usize, &&'a str)| Some((number, Records::of(source, &|word| wanted.contains(word))?));
    sources.iter().enumerate().filter_map(read).collect()
}

/// The score of a sentence that a record says.
const LOOKED_UP: f64 = 1.0;

/// Whether a sentence claims anything: a question does not, nor does a heading of one word.
fn claims(sentence: &str) -> bool {
    let is_label = sentence.starts_with('#') && sentence.trim_start_matches('#').split_whitespace().count() < 2;
    !sentence.ends_with('?') && !is_label
}

/// Judges one sentence. `before` is the source sentence that says the sentence before it word for word, and becomes the one
/// that says this sentence.
fn judge(
    index: &Index<'_>,
    records: &[(usize, Records<'_>)],
    measured: &Measured,
    score: f64,
    before: &mut Option<usize>,
) -> Supported {
    let sentence = measured.sentence;
    let claims = claims(sentence.span.of(index.text));
    if let Some(supported) = look_up(index, records, sentence.span, score) {
        *before = None;
        return supported;
    }
    // A text that has only records to be compared with, and says nothing that can be looked up, is left open.
    if !records.is_empty() && records.len() == index.sources.len() {
        let finding = Finding { kind: Kind::Uncarried, span: sentence.span };
        let findings = if claims { vec![finding] } else { Vec::new() };
        return Supported { span: sentence.span, score: 0.0, passage: None, others: Vec::new(), findings };
    }
    let sentence_at = |at: usize| index.source_sentences.get(at);
    let place = |sentence: &SourceSentence| Passage { source: sentence.source, span: sentence.span };
    let passage = measured.best.and_then(sentence_at);
    let others: Vec<&SourceSentence> = measured.others.iter().filter_map(|at| sentence_at(*at)).collect();
    let compared = conflict::find(index, sentence, passage, &others);
    let carrier = compared.carrier.and_then(|at| measured.best.iter().chain(&measured.others).nth(at).copied());
    // "It failed" is about the same thing only after the same sentence.
    let is_carried = match (carrier, *before) {
        (Some(at), before) if compared.refers_back => before.is_some_and(|before| follows(index, before, at)),
        (carrier, _) => carrier.is_some(),
    };
    *before = carrier.filter(|_| is_carried);
    let mut findings = compared.findings;
    if findings.is_empty() && claims && !is_carried {
        let kind = if score < UNSUPPORTED && !compared.is_related { Kind::Unsupported } else { Kind::Uncarried };
        findings.push(Finding { kind, span: sentence.span });
    }
    let contradicted = findings.iter().any(|finding| finding.kind == Kind::Contradicted);
    Supported {
        span: sentence.span,
        score: if contradicted { score.min(CONTRADICTED) } else { score },
        passage: passage.map(place),
        others: others.into_iter().map(place).collect(),
        findings,
    }
}

/// Returns whether two source sentences follow each other in one source.
fn follows(index: &Index<'_>, before: usize, at: usize) -> bool {
    let source = |at: usize| index.source_sentences.get(at).map(|sentence| sentence.source);
    before + 1 == at && source(before) == source(at)
}

/// What the sources of records say about a sentence, if it can be looked up in one of them.
fn look_up(index: &Index<'_>, records: &[(usize, Records<'_>)], span: Span, score: f64) -> Option<Supported> {
    let found = records.iter().filter_map(|(source, records)| Some((*source, records.look_up(index.text, span)?)));
    let (source, found) = found.min_by_key(|(_, found)| matches!(found, Found::Contradicted(..)))?;
    let (score, findings, line) = match found {
        Found::Supported(line) => (LOOKED_UP, Vec::new(), line),
        Found::Contradicted(span, line) => {
            (score.min(CONTRADICTED), vec![Finding { kind: Kind::Contradicted, span }], line)
        }
    };
    let passage = Some(Passage { source, span: line });
    Some(Supported { span, score, passage, others: Vec::new(), findings })
}
