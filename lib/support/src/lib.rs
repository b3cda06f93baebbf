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

mod conflict;
mod features;
mod held;
mod index;
mod judge;
mod model;
mod rarity;
mod token;

use ken_text::Span;

pub use features::{FEATURES, NAMES};
pub use judge::{Judged, Judging, MAX_ANSWER_BYTES, MAX_SENTENCES, Opinion, Verdict};
pub use model::{Model, ModelError, REGIME};
pub use rarity::{RARITY_LEVELS, is_common};
pub use token::stems;

use features::Measured;
use index::{Index, SourceSentence};

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
}

/// A sentence with a score below this is reported as unsupported.
const UNSUPPORTED: f64 = 0.35;

/// The maximum score of a sentence that a source contradicts.
pub const CONTRADICTED: f64 = 0.1;

/// Compares each sentence of `text` with `sources`, using the shipped model.
pub fn support(text: &str, sources: &[&str]) -> Support {
    let index = Index::new(text, sources);
    let measured = features::measure(&index);
    let scores = Model::shipped().scores(&measured.iter().map(|each| each.features).collect::<Vec<_>>());
    let sentences: Vec<Supported> =
        measured.iter().zip(scores).map(|(each, score)| judge(&index, each, score)).collect();
    let sum: f64 = sentences.iter().map(|sentence| sentence.score).sum();
    Support { score: sum / sentences.len().max(1) as f64, sentences }
}

/// Returns the features of each sentence of `text`. The model is trained on these.
pub fn features(text: &str, sources: &[&str]) -> Vec<[f64; FEATURES]> {
    let index = Index::new(text, sources);
    let measured = features::measure(&index);
    measured.iter().map(|each| each.features).collect()
}

fn judge(index: &Index<'_>, measured: &Measured, score: f64) -> Supported {
    let sentence = measured.sentence;
    let sentence_at = |at: usize| index.source_sentences.get(at);
    let passage = measured.best.and_then(sentence_at);
    let place = |sentence: &SourceSentence| Passage { source: sentence.source, span: sentence.span };
    let mut findings = conflict::find(index, sentence, passage);
    let contradicted = findings.iter().any(|finding| finding.kind == Kind::Contradicted);
    let asks = sentence.span.of(index.text).ends_with('?');
    if score < UNSUPPORTED && findings.is_empty() && !asks {
        findings.push(Finding { kind: Kind::Unsupported, span: sentence.span });
    }
    Supported {
        span: sentence.span,
        score: if contradicted { score.min(CONTRADICTED) } else { score },
        passage: passage.map(place),
        others: measured.others.iter().filter_map(|at| sentence_at(*at)).map(place).collect(),
        findings,
    }
}
