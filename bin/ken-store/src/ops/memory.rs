//! Past exchanges, found by their words.

use ken_types::Error;
use ken_types::ops::store::{Found, Match, MemorySearch, PastExchange, Scope, Search};

use crate::ops::Read;
use crate::ops::search::candidates;
use crate::rules::terms::Query;
use crate::rules::{check, scope_words};
use crate::tables::{Index, SubmissionRow, Tables};

/// How many exchanges that hold some of the words are looked at, when few hold them all.
const LOOKED_AT: u32 = 24;
/// The most conversations of an actor that are searched; further ones are the oldest. Each costs a search some 0.1 ms.
const CONVERSATIONS: usize = 50;
/// The connector whose conversations are chats of a messaging platform.
const MESSENGER: &str = "messenger";

/// Puts a settled exchange into the index. Those without an actor belong to nobody's memory.
pub(super) fn remember(tables: &dyn Tables, found: &SubmissionRow, answer: &str) -> Result<(), Error> {
    if let Some(event) = tables.event(found.event)?
        && let Some(scope) = &event.scope
    {
        let scope_word = word(scope, &scope.conversation_id);
        tables.index_exchange(found.key, &scope_word, &event.text, answer)?;
    }
    Ok(())
}

fn word(scope: &Scope, conversation: &str) -> String {
    scope_words::of_memory(&scope.connector, &scope.actor_id, conversation)
}

/// The conversations whose exchanges a turn may find. In one that the actor has with the agent alone, these are all of that kind,
/// for nobody else reads the answer. Where others read along, it is that conversation only; and what was said there is found
/// nowhere else.
fn conversations(tables: &dyn Tables, scope: &Scope) -> Result<Vec<String>, Error> {
    let current = &scope.conversation_id;
    let mut alone = tables.conversations_alone(&scope.connector, &scope.actor_id, current, CONVERSATIONS)?;
    // Of a chat it is known without asking who has written: the one of a user with the bot has the id of the user.
    alone.retain(|conversation| scope.connector != MESSENGER || *conversation == scope.actor_id);
    Ok(match alone.contains(current) {
        true => alone,
        false => vec![current.clone()],
    })
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
        let scope_words: Vec<String> =
            conversations(tables, scope)?.iter().map(|conversation| word(scope, conversation)).collect();
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
