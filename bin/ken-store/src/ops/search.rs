//! Search by words. The index finds the rows that match. The score of a row is the share of the query's words that it contains, where rare
//! words have more weight.

use std::collections::BTreeSet;

use ken_types::Error;

use crate::rules::search::rarest_words;
use crate::rules::terms::{Query, Weights};
use crate::tables::{Index, Tables, WordSearch};

/// The maximum number of rows that are read to find some that are admitted. Each is a query.
pub(super) const MAX_HITS: u32 = 500;

/// Returns the rows to be examined, in the order of the index, each with what `admit` makes of it; rows of which it makes nothing do not
/// count. They are up to `full` rows that contain every word of the query. If there are fewer, also up to `part` rows that contain some of
/// the words.
pub(super) fn candidates<T>(
    tables: &dyn Tables,
    index: Index,
    query: &Query,
    scope_words: Option<&[String]>,
    (full, part): (u32, u32),
    admit: Admit<'_, T>,
) -> Result<(Vec<(i64, T)>, Weights), Error> {
    let size = tables.index_size(index)?;
    let weights = weigh(tables, index, query, size)?;
    let mut found = Vec::new();
    if size == 0 {
        return Ok((found, weights));
    }
    let words = rarest_words(query, &weights);
    let search = WordSearch { index, words: &words, match_all: true, scope_words };
    let mut refused = BTreeSet::new();
    examine(tables, &search, full, admit, &mut found, &mut refused)?;
    if words.len() > 1 && found.len() < full as usize {
        examine(tables, &WordSearch { match_all: false, ..search }, part, admit, &mut found, &mut refused)?;
    }
    Ok((found, weights))
}

/// Returns a row as the caller uses it; `None` for one that may not be found.
pub(super) type Admit<'a, T> = &'a mut dyn FnMut(i64) -> Result<Option<T>, Error>;

/// Adds rows of a search until `wanted` of its rows are admitted. Where rows are refused, others take their places: the index is then asked
/// again, for more.
fn examine<T>(
    tables: &dyn Tables,
    search: &WordSearch<'_>,
    wanted: u32,
    admit: Admit<'_, T>,
    found: &mut Vec<(i64, T)>,
    refused: &mut BTreeSet<i64>,
) -> Result<(), Error> {
    let mut max = wanted;
    loop {
        let hits = tables.matching(search, max)?;
        let is_last = hits.len() < max as usize || max >= MAX_HITS;
        let mut admitted = 0;
        for hit in hits {
            if refused.contains(&hit) {
                continue;
            }
            if !found.iter().any(|(known, _)| *known == hit) {
                let Some(row) = admit(hit)? else {
                    refused.insert(hit);
                    continue;
                };
                found.push((hit, row));
            }
            admitted += 1;
            if admitted == wanted {
                return Ok(());
            }
        }
        if is_last {
            return Ok(());
        }
        max = max.saturating_mul(4).min(MAX_HITS);
    }
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
