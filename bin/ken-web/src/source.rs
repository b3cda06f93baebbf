//! What an answer may rest on, and the same as one text for a model: between marks that nobody who wrote a page could know,
//! and called what it is.

use ken_types::Error;
use ken_types::fence::fence;

use serde::Serialize;

/// A page, or what the search says of it, with what of it bears on the question.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Source {
    pub(crate) id: String,
    pub(crate) title: String,
    pub(crate) url: String,
    pub(crate) text: String,
    /// SHA-256 of the text.
    pub(crate) digest: String,
    pub(crate) score: f64,
    /// False: the text is the search's own.
    pub(crate) fetched: bool,
}

/// The sources as one text. The marks are random, so no page can close them.
pub(crate) fn fenced(sources: &[Source]) -> Result<String, Error> {
    if sources.is_empty() {
        return Ok("Nothing was found.".to_owned());
    }
    let each = sources.iter().map(|source| {
        let title = if source.title.is_empty() {
            "(no title)"
        } else {
            &source.title
        };
        format!("[{}] {title}\n{}\n{}", source.id, source.url, source.text)
    });
    fence(&each.collect::<Vec<_>>().join("\n\n"))
}
