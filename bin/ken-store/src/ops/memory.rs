//! Past exchanges, and the search for them by their words.

use ken_types::Error;
use ken_types::ops::store::{Found, Match, Memory, MemorySearch, PastExchange, Scope, Search};

use crate::ops::Read;
use crate::ops::search::candidates;
use crate::rules::terms::Query;
use crate::rules::{check, scope_words};
use crate::tables::{Index, LogRow, PromptRow, Tables};

/// The maximum number of exchanges with some of the words that are examined if few exchanges contain all words.
const MAX_EXAMINED: u32 = 24;
/// The maximum number of conversations of an actor that are searched. They are the newest ones, and each makes a search about 0.1 ms
/// slower.
const MAX_CONVERSATIONS: usize = 50;
/// The name of the messaging connector.
const MESSENGER: &str = "messenger";

/// The name under which the default of the configuration is stored.
const DEFAULT: &str = "memory";

/// Stores the default of the configuration.
pub(crate) fn set_default(tables: &dyn Tables, memory: Memory) -> Result<(), Error> {
    if default(tables)? == memory { Ok(()) } else { tables.set_stored_value(DEFAULT, memory.name()) }
}

fn default(tables: &dyn Tables) -> Result<Memory, Error> {
    let stored = tables.stored_value(DEFAULT)?;
    Ok(stored.and_then(|name| Memory::named(&name)).unwrap_or_default())
}

pub(super) fn of_instance(tables: &dyn Tables, instance: Option<&str>) -> Result<Memory, Error> {
    Ok(settings(tables, instance)?.0)
}

/// Returns what a session remembers, and the default, which holds for sessions that are not set to anything.
pub(super) fn settings(tables: &dyn Tables, instance: Option<&str>) -> Result<(Memory, Memory), Error> {
    let session = instance.map(|instance| tables.session(instance)).transpose()?.flatten();
    let default = default(tables)?;
    Ok((session.and_then(|session| session.memory).unwrap_or(default), default))
}

/// Indexes a settled exchange. One without an actor is not indexed.
pub(super) fn index(
    tables: &dyn Tables,
    submission: i64,
    log: &LogRow,
    prompt: &PromptRow,
    answer: &str,
) -> Result<(), Error> {
    let Some(scope) = &prompt.scope else { return Ok(()) };
    let scope = scope.of_memory(log.instance());
    let scope_word = scope_word(&scope, &scope.conversation_id);
    tables.index_exchange(submission, &scope_word, &prompt.text, answer)
}

fn scope_word(scope: &Scope, conversation: &str) -> String {
    scope_words::of_memory(&scope.connector, &scope.actor_id, conversation)
}

/// Returns the conversations that a turn can search. If nobody but the actor takes part in the current conversation, these are all
/// conversations in which only the actor takes part, because nobody else reads the answer. If others take part, it is only the current
/// conversation, and other conversations do not find its exchanges.
fn conversations(tables: &dyn Tables, scope: &Scope) -> Result<Vec<String>, Error> {
    let current = &scope.conversation_id;
    let mut alone = tables.private_conversations(&scope.connector, &scope.actor_id, current, MAX_CONVERSATIONS)?;
    // In a private chat with the bot, the conversation has the id of the user. It can be recognised by that, without knowing who else has
    // written.
    alone.retain(|conversation| scope.connector != MESSENGER || *conversation == scope.actor_id);
    Ok(if alone.contains(current) { alone } else { vec![current.clone()] })
}

impl Read for MemorySearch {
    const COMES_FIRST: bool = false;

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
    let own = args.session.as_deref();
    let (memory, default) = settings(tables, own)?;
    if let Some(scope) = args.scope.as_ref().filter(|_| memory != Memory::Off) {
        let scope_words: Vec<String> =
            conversations(tables, scope)?.iter().map(|conversation| scope_word(scope, conversation)).collect();
        let max = (args.limit, MAX_EXAMINED.max(args.limit));
        let mut admit = |hit| {
            let is_used = |(entry, set): &(PastExchange, Option<Memory>)| {
                own == Some(entry.instance.as_str()) || memory == Memory::On && set.unwrap_or(default) == Memory::On
            };
            Ok(tables.past_exchange(hit)?.filter(is_used).map(|(entry, _)| entry))
        };
        let (hits, weights) = candidates(tables, Index::Memory, &query, Some(&scope_words), max, &mut admit)?;
        for (_, entry) in hits {
            let score = weights.score(&query.matches_in([entry.prompt.as_str(), entry.answer.as_str()]));
            found.push(Match { score, entry });
        }
    }
    // The sort is stable: exchanges with equal scores stay in the order from newest to oldest.
    found.sort_by(|a, b| b.score.total_cmp(&a.score));
    found.truncate(args.limit as usize);
    Ok(Found { found })
}
