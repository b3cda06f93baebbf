//! The sources of an answer, and their text for a model. The text is labelled as data and enclosed in random marks that
//! the author of a page cannot know.

use ken_types::Error;
use ken_types::fence::fence;

use serde::Serialize;

/// A page or a search result, with the passages that are relevant to the question.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Source {
    pub(crate) id: String,
    pub(crate) title: String,
    pub(crate) url: String,
    pub(crate) text: String,
    /// The SHA-256 digest of the text.
    pub(crate) digest: String,
    pub(crate) score: f64,
    /// Whether the page was fetched. If not, the text comes from the search provider.
    pub(crate) fetched: bool,
}

/// Returns the sources as one text. The marks are random, so no page can contain the closing mark.
pub(crate) fn fenced(sources: &[Source]) -> Result<String, Error> {
    if sources.is_empty() {
        return Ok("Nothing was found.".to_owned());
    }
    let each = sources.iter().map(|source| {
        let title = if source.title.is_empty() { "(no title)" } else { &source.title };
        format!("[{}] {title}\n{}\n{}", source.id, source.url, source.text)
    });
    fence(&each.collect::<Vec<_>>().join("\n\n"))
}
