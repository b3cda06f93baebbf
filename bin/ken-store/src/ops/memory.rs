//! Past exchanges, found by their words.

use ken_types::Error;
use ken_types::ops::store::{Found, Match, MemorySearch, PastExchange, Search};

use crate::ops::Read;
use crate::ops::search::candidates;
use crate::rules::terms::Query;
use crate::rules::{check, scope_words};
use crate::tables::{Index, SubmissionRow, Tables};

/// How many exchanges that hold some of the words are looked at, when few hold them all.
const LOOKED_AT: u32 = 24;

/// Puts a settled exchange into the index. Those without an actor belong to nobody's memory.
pub(super) fn remember(tables: &dyn Tables, found: &SubmissionRow, answer: &str) -> Result<(), Error> {
    if let Some(event) = tables.event(found.event)?
        && let Some(scope) = &event.scope
    {
        let scope_word = scope_words::of_memory(scope);
        tables.index_exchange(found.key, &scope_word, &event.text, answer)?;
    }
    Ok(())
}

impl Read for MemorySearch {
    fn check(args: &Search) -> Result<(), Error> {
        check::limit(args.limit, check::PAGE)
    }

    fn run(tables: &dyn Tables, args: &Search) -> Result<Found<PastExchange>, Error> {
        search(tables, args)
    }
}

pub(super) fn search(tables: &dyn Tables, args: &Search) -> Result<Found<PastExchange>, Error> {
    let mut found = Vec::new();
    let query = Query::of(&args.query);
    if let Some(scope) = &args.scope {
        let scope_words = [scope_words::of_memory(scope)];
        let most = (args.limit, LOOKED_AT.max(args.limit));
        let (hits, weights) = candidates(tables, Index::Memory, &query, Some(&scope_words), most)?;
        for hit in hits {
            if let Some(entry) = tables.past_exchange(hit)? {
                let score = weights.score(&query.held_by([entry.prompt.as_str(), entry.answer.as_str()]));
                found.push(Match { score, entry });
            }
        }
    }
    // Stable: of equal ones the newest stays first.
    found.sort_by(|a, b| b.score.total_cmp(&a.score));
    found.truncate(args.limit as usize);
    Ok(Found { found })
}
