//! Search by words. The index finds the rows that match. The score of a row is the share of the query's words that it contains, where rare
//! words have more weight.

use ken_types::Error;

use crate::rules::search::rarest_words;
use crate::rules::terms::{Query, Weights};
use crate::tables::{Index, Tables, WordSearch};

/// Returns the rows to be examined, in the order of the index: up to `full` rows that contain every word of the query. If there are fewer,
/// also up to `part` rows that contain some of the words.
pub(super) fn candidates(
    tables: &dyn Tables,
    index: Index,
    query: &Query,
    scope_words: Option<&[String]>,
    (full, part): (u32, u32),
) -> Result<(Vec<i64>, Weights), Error> {
    let size = tables.index_size(index)?;
    let weights = weigh(tables, index, query, size)?;
    if size == 0 {
        return Ok((Vec::new(), weights));
    }
    let words = rarest_words(query, &weights);
    let search = WordSearch { index, words: &words, match_all: true, scope_words };
    let mut hits = tables.matching(&search, full)?;
    if words.len() > 1 && hits.len() < full as usize {
        let more = tables.matching(&WordSearch { match_all: false, ..search }, part)?;
        let more: Vec<i64> = more.into_iter().filter(|hit| !hits.contains(hit)).collect();
        hits.extend(more);
    }
    Ok((hits, weights))
}

fn weigh(tables: &dyn Tables, index: Index, query: &Query, size: u64) -> Result<Weights, Error> {
    let words: Vec<&[String]> = query.terms().iter().map(|term| term.stems.as_slice()).collect();
    let holders = match (size, words.len()) {
        (0, _) => vec![0; words.len()],
        // Every row that is found contains the only word, so its score is 1 whatever the weight of the word.
        (_, 1) => vec![1],
        _ => tables.document_frequencies(index, &words, size)?,
    };
    let holders = holders.into_iter().map(|held| held.min(size));
    Ok(Weights::new(size, holders.collect()))
}
