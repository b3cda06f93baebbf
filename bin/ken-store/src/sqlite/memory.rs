//! Past exchanges, found by their words.

use ken_types::ops::store::{Found, Match, PastExchange, Search};
use rusqlite::{Connection, params};

use super::fault::Done;
use super::history::{PAST, read_past};
use super::search::{Index, any_form, candidates};
use super::submissions::Submission;
use super::{first, realm, run, scopes};
use crate::terms::{Query, Term};

/// Newest first, and not by FTS5's own rank: that counts every exchange which holds a word, so that a turn would take the
/// longer the more often the same has been said before.
const MEMORY: Index = Index {
    hits: "SELECT rowid FROM memory_index WHERE memory_index MATCH ?1 ORDER BY rowid DESC LIMIT ?2",
    holders,
    size: "SELECT coalesce(max(submission), 0) FROM exchanges",
    columns: "{prompt answer}",
};

/// How many exchanges hold a word. Of a common one the newest hundred say it, by how far back they reach: counting all
/// would take the longer the more has been said.
fn holders(connection: &Connection, word: &Term, size: i64) -> Done<i64> {
    let sql = "SELECT iif(count(*) < 100, count(*), count(*) * ?2 / (?2 + 1 - min(rowid))) FROM (
                 SELECT rowid FROM memory_index WHERE memory_index MATCH ?1 ORDER BY rowid DESC LIMIT 100
               )";
    Ok(first(connection, sql, params![any_form(word), size], |row| row.get(0))?.unwrap_or_default())
}

/// How many exchanges that hold some of the words are looked at, when few hold them all.
const LOOKED_AT: u32 = 24;

/// Puts a settled exchange into the index. Those without an actor are nobody's memory.
pub(super) fn remember(connection: &Connection, found: &Submission, answer: &str) -> Done<()> {
    let sql = "SELECT text, connector, actor, conversation, thread FROM events JOIN scopes USING (scope) WHERE event = ?1";
    let event = first(connection, sql, [found.event], |row| {
        Ok((row.get::<_, String>("text")?, scopes::read(row)?))
    })?;
    if let Some((text, scope)) = event {
        let sql = "INSERT INTO memory_index (rowid, realm, prompt, answer) VALUES (?1, ?2, ?3, ?4)";
        run(
            connection,
            sql,
            params![found.submission, realm::of_memory(&scope), text, answer],
        )?;
    }
    Ok(())
}

pub(super) fn search(connection: &Connection, args: &Search) -> Done<Found<PastExchange>> {
    let mut found = Vec::new();
    let query = Query::of(&args.query);
    if let Some(scope) = &args.scope {
        let sql = [PAST, " WHERE x.submission = ?1"].concat();
        let realms = [realm::of_memory(scope)];
        let most = (args.limit, LOOKED_AT.max(args.limit));
        let (hits, weights) = candidates(connection, &MEMORY, &query, Some(&realms), most)?;
        for hit in hits {
            if let Some(past) = first(connection, &sql, [hit], read_past)? {
                let score = weights.score(&query.held_by([past.prompt.as_str(), past.answer.as_str()]));
                found.push(Match { score, entry: past });
            }
        }
    }
    // Stable: of equal ones the newest stays first.
    found.sort_by(|a, b| b.score.total_cmp(&a.score));
    found.truncate(args.limit as usize);
    Ok(Found { found })
}
