//! Finding by words: FTS5 says which entries are best, and the share of the question's words that each holds, weighted
//! by how rare they are, says how good that is.

use rusqlite::Connection;

use super::fault::Done;
use super::{all, first};
use crate::terms::{MOST_TERMS, Query, Term, Weights};

/// A word that so many entries hold is looked for only when there is no rarer one: ranking takes all of them.
const COMMON: u64 = 5_000;

/// A full-text index and its statements.
pub(super) struct Index {
    /// Rows and ranks that match `?1`, at most `?2`.
    pub(super) hits: &'static str,
    /// How many entries hold a form of a word, of so many; an entry that holds two forms may count twice.
    pub(super) holders: fn(&Connection, &Term, i64) -> Done<i64>,
    /// How many entries there are, about.
    pub(super) size: &'static str,
    /// The columns that are searched, as FTS5 writes it.
    pub(super) columns: &'static str,
}

/// Rows to choose from: up to `full` that hold every word of the query, and if there are fewer, up to `part` that hold
/// some. Each time the first ones in the order of the index.
pub(super) fn candidates(
    connection: &Connection,
    index: &Index,
    query: &Query,
    realms: Option<&[String]>,
    (full, part): (u32, u32),
) -> Done<(Vec<i64>, Weights)> {
    let weights = weigh(connection, index, query)?;
    let words = wanted(query, &weights);
    let mut hits = match_words(connection, index, &words, " AND ", realms, full)?;
    if words.len() > 1 && hits.len() < full as usize {
        let more = match_words(connection, index, &words, " OR ", realms, part)?;
        hits.extend(
            more.into_iter()
                .filter(|hit| !hits.contains(hit))
                .collect::<Vec<_>>(),
        );
    }
    Ok((hits, weights))
}

fn match_words(
    connection: &Connection,
    index: &Index,
    words: &[&Term],
    joined_by: &str,
    realms: Option<&[String]>,
    limit: u32,
) -> Done<Vec<i64>> {
    if words.is_empty() {
        return Ok(Vec::new());
    }
    let words: Vec<String> = words.iter().map(|word| any_form(word)).collect();
    let words = format!("{} : ({})", index.columns, words.join(joined_by));
    let expression = match realms {
        Some(realms) => format!("realm : ({}) AND {words}", realms.join(" OR ")),
        None => words,
    };
    Ok(all(connection, index.hits, (expression, limit), |row| {
        row.get(0)
    })?)
}

/// An expression of FTS5 that every form of a word fits.
pub(super) fn any_form(term: &Term) -> String {
    let quoted: Vec<String> = term.forms.iter().map(|form| format!("\"{form}\"")).collect();
    format!("({})", quoted.join(" OR "))
}

fn weigh(connection: &Connection, index: &Index, query: &Query) -> Done<Weights> {
    let size: i64 = first(connection, index.size, [], |row| row.get(0))?.unwrap_or_default();
    let mut holders = Vec::with_capacity(query.terms().len());
    for term in query.terms() {
        holders.push((index.holders)(connection, term, size)?.min(size).cast_unsigned());
    }
    Ok(Weights::new(size.cast_unsigned(), holders))
}

/// The rarest words that are there at all.
fn wanted<'a>(query: &'a Query, weights: &Weights) -> Vec<&'a Term> {
    let mut words: Vec<(u64, &Term)> = weights
        .holders()
        .iter()
        .zip(query.terms())
        .filter(|(holders, _)| **holders > 0)
        .map(|(holders, term)| (*holders, term))
        .collect();
    words.sort_by_key(|(holders, _)| *holders);
    let rare = words.iter().take_while(|(holders, _)| *holders <= COMMON).count();
    words.truncate(rare.clamp(1, MOST_TERMS));
    words.into_iter().map(|(_, term)| term).collect()
}
