//! Knowledge entries. The id of an entry is derived from its content, so an entry that is stored twice exists only once.

use ken_types::Error;
use ken_types::fence::Outside;
use ken_types::id::SubmissionId;
use ken_types::ops::Nothing;
use ken_types::ops::Page;
use ken_types::ops::store::*;
use serde_json::json;

use crate::engine::change::{Change, Effect};
use crate::ops::search::{Admit, MAX_HITS, candidates};
use crate::ops::{Read, Write, memory};
use crate::rules::cursor::List;
use crate::rules::terms::{Query, Weights};
use crate::rules::{check, digest, scope_words, vectors};
use crate::tables::{Index, KnowledgeFilter, Tables};

/// The maximum number of entries with some of the words that are examined if few entries contain all words. The index ranks short entries
/// higher, but the score prefers entries that contain most of the rare words, so several entries must be examined to find the best.
const MAX_EXAMINED: u32 = 24;
/// The maximum number of vectors that are compared with a query. They are those of the newest entries.
const MAX_COMPARED: u32 = 50_000;
/// The maximum number of matches in a list with a query. They are the best ones.
const MAX_RANKED: u32 = 1_000;

/// The source of entries that agents have written.
const AGENT: &str = "agent";

fn id(args: &PutKnowledge) -> String {
    let parts = [
        args.actor_id.as_deref(),
        args.conversation_id.as_deref(),
        Some(args.title.as_str()),
        Some(args.content.as_str()),
    ];
    format!("kb-{}", digest::of(&parts, 16))
}

fn by_id(tables: &dyn Tables, id: &str) -> Result<KnowledgeRecord, Error> {
    tables.knowledge(id)?.ok_or_else(|| unknown(id))
}

fn unknown(id: &str) -> Error {
    Error::not_found(format!("there is no knowledge entry {id}"))
}

impl Read for KnowledgeGet {
    fn run(tables: &dyn Tables, args: &ById) -> Result<KnowledgeRecord, Error> {
        by_id(tables, &args.id)
    }
}

impl Write for KnowledgePut {
    fn check(args: &PutKnowledge) -> Result<(), Error> {
        check::knowledge(args)
    }

    fn run(tables: &dyn Tables, args: &PutKnowledge, change: &mut Change) -> Result<KnowledgeRecord, Error> {
        let id = id(args);
        let (outside, stream) = written_by(tables, args.turn.as_ref())?;
        let key = tables.put_knowledge(&id, args, &outside, None, stream, change.now)?;
        index(tables, key)?;
        change.push(Effect::Documents);
        change.publish("knowledge.added", json!({"id": id, "status": "ok"}));
        by_id(tables, &id)
    }
}

/// Returns the origins of outside text that a turn has read so far, and its stream. A turn of a session that was deleted for good writes
/// nothing any more.
fn written_by(tables: &dyn Tables, turn: Option<&SubmissionId>) -> Result<(Outside, Option<i64>), Error> {
    let Some(turn) = turn else {
        return Ok((Outside::new(), None));
    };
    let Some(found) = tables.submission(turn.as_str())? else {
        return Err(Error::gone(format!("the submission {turn} is no longer stored")).at("/turn"));
    };
    let log = tables.log_by_key(found.stream)?;
    tables.log(&log.name)?;
    if memory::of_instance(tables, Some(log.instance()))? != Memory::On {
        return Err(Error::forbidden("this session gives nothing to others, so it adds nothing to the knowledge"));
    }
    Ok((found.outside, Some(found.stream)))
}

/// Indexes an entry. Replaces its previous row in the index, if there is one.
pub(super) fn index(tables: &dyn Tables, key: i64) -> Result<(), Error> {
    if let Some(texts) = tables.knowledge_texts(key)? {
        let scope_word = scope_words::of_entry(texts.actor.as_deref(), texts.conversation.as_deref());
        tables.index_knowledge(key, &scope_word, &texts)?;
    }
    Ok(())
}

pub(super) fn delete(tables: &dyn Tables, key: i64) -> Result<(), Error> {
    tables.delete_knowledge_by_key(key)?;
    unindex(tables, key)
}

/// Removes a deleted entry from the index.
fn unindex(tables: &dyn Tables, key: i64) -> Result<(), Error> {
    tables.delete_vector(key)?;
    tables.unindex_knowledge(key - 1, key)
}

impl Write for KnowledgeDelete {
    fn run(tables: &dyn Tables, args: &ById, change: &mut Change) -> Result<Nothing, Error> {
        let key = tables.delete_knowledge(&args.id)?.ok_or_else(|| unknown(&args.id))?;
        unindex(tables, key)?;
        change.publish("knowledge.deleted", json!({"id": args.id, "status": "ok"}));
        Ok(Nothing {})
    }
}

impl Read for KnowledgeSearch {
    const COMES_FIRST: bool = false;

    fn check(args: &Search) -> Result<(), Error> {
        check::limit(args.limit, check::PAGE)
    }

    fn run(tables: &dyn Tables, args: &Search) -> Result<Found<KnowledgeRecord>, Error> {
        search(tables, args)
    }
}

pub(super) fn search(tables: &dyn Tables, args: &Search) -> Result<Found<KnowledgeRecord>, Error> {
    let query = Query::of(&args.query);
    let scope_words = scope_words::visible_to(args.scope.as_ref());
    let max = (args.limit, MAX_EXAMINED.max(args.limit));
    let mut settings = None;
    // What agents wrote is what they learned in other sessions. It is used where past turns would be, if those of its session may be.
    let mut admit = |key| {
        let Some((entry, set)) = tables.knowledge_by_key(key)? else { return Ok(None) };
        if entry.source != AGENT {
            return Ok(Some(entry));
        }
        let (memory, default) = match settings {
            Some(settings) => settings,
            None => *settings.insert(memory::settings(tables, args.session.as_deref())?),
        };
        let is_used = memory == Memory::On && set.unwrap_or(default) == Memory::On;
        Ok(is_used.then_some(entry))
    };
    let (hits, weights) = candidates(tables, Index::Knowledge, &query, Some(&scope_words), max, &mut admit)?;
    let scored = |(key, entry)| (key, Match { score: score(&query, &weights, &entry), entry });
    let mut found: Vec<(i64, Match<KnowledgeRecord>)> = hits.into_iter().map(scored).collect();
    // The sort is stable: entries with equal scores stay in the order of the index.
    found.sort_by(|(_, a), (_, b)| b.score.total_cmp(&a.score));
    if let Some(vector) = &args.vector {
        found = fused(tables, found, vector, &scope_words, &mut admit)?;
    }
    let found = found.into_iter().map(|(_, found)| found);
    let found = found.take(args.limit as usize).collect();
    Ok(Found { found })
}

/// Combines the ranking by words with the ranking by vectors. The score of an entry that only its vector finds is the cosine.
fn fused(
    tables: &dyn Tables,
    by_words: Vec<(i64, Match<KnowledgeRecord>)>,
    query: &QueryVector,
    scope_words: &[String],
    admit: Admit<'_, KnowledgeRecord>,
) -> Result<Vec<(i64, Match<KnowledgeRecord>)>, Error> {
    let mut near: Vec<(f64, i64)> = Vec::new();
    tables.vectors(&query.model, scope_words, MAX_COMPARED, &mut |key, packed| {
        near.push((vectors::cosine(&query.values, packed), key));
    })?;
    near.retain(|(cosine, _)| *cosine > 0.0);
    near.sort_by(|(a, _), (b, _)| b.total_cmp(a));
    let worth_by_words = by_words.into_iter().enumerate();
    let mut found: Vec<_> =
        worth_by_words.map(|(place, (key, found))| (vectors::rank_score(place), key, found)).collect();
    let mut place = 0;
    for (cosine, key) in near.into_iter().take(MAX_HITS as usize) {
        if place == MAX_EXAMINED as usize {
            break;
        }
        match found.iter_mut().find(|(_, known, _)| *known == key) {
            Some((worth, ..)) => *worth += vectors::rank_score(place),
            None => {
                let Some(entry) = admit(key)? else { continue };
                found.push((vectors::rank_score(place), key, Match { score: cosine, entry }));
            }
        }
        place += 1;
    }
    found.sort_by(|(a, ..), (b, ..)| b.total_cmp(a));
    Ok(found.into_iter().map(|(_, key, found)| (key, found)).collect())
}

fn score(query: &Query, weights: &Weights, entry: &KnowledgeRecord) -> f64 {
    let tags = entry.tags.join(" ");
    weights.score(&query.matches_in([entry.title.as_str(), tags.as_str(), entry.content.as_str()]))
}

impl Read for KnowledgeList {
    fn check(args: &ListKnowledge) -> Result<(), Error> {
        check::limit(args.limit, check::PAGE)
    }

    fn run(tables: &dyn Tables, args: &ListKnowledge) -> Result<KnowledgePage, Error> {
        match &args.q {
            Some(q) => list_found(tables, args, q),
            None => list_all(tables, args),
        }
    }
}

fn list_name(args: &ListKnowledge) -> List {
    let parts = [args.q.as_deref(), args.actor_id.as_deref(), args.conversation_id.as_deref(), args.source.as_deref()];
    List::named("knowledge", &parts)
}

fn list_all(tables: &dyn Tables, args: &ListKnowledge) -> Result<KnowledgePage, Error> {
    let name = list_name(args);
    let list = KnowledgeFilter {
        actor: args.actor_id.as_deref(),
        conversation: args.conversation_id.as_deref(),
        source: args.source.as_deref(),
        before: name.newest_or(args.after.as_ref(), "?after")?,
        limit: args.limit + 1,
    };
    let mut found = tables.list_knowledge(&list)?;
    let page = name.page(&mut found, args.limit, |(key, _)| [*key]);
    Ok(to_page(found, page))
}

/// Returns a page of the entries that a query finds. The position of a page counts from the best match, among the entries that are no
/// newer than the first page.
fn list_found(tables: &dyn Tables, args: &ListKnowledge, q: &str) -> Result<KnowledgePage, Error> {
    let name = list_name(args);
    let [newest, skip] = match &args.after {
        Some(cursor) => name.position(cursor, "?after")?,
        None => [tables.index_size(Index::Knowledge)?.cast_signed(), 0],
    };
    let fits = |record: &KnowledgeRecord| {
        let same = |wanted: &Option<String>, there: &str| wanted.as_deref().is_none_or(|wanted| wanted == there);
        same(&args.actor_id, &record.actor_id)
            && same(&args.conversation_id, &record.conversation_id)
            && same(&args.source, &record.source)
    };
    let query = Query::of_list(q);
    let max = (MAX_RANKED, MAX_RANKED);
    let (hits, weights) = candidates(tables, Index::Knowledge, &query, None, max, &mut |_| Ok(Some(())))?;
    let hits = hits.into_iter().filter(|(hit, ())| *hit <= newest);
    let mut found = Vec::new();
    for (number, (hit, ())) in (0..).zip(hits) {
        if number < skip || found.len() > args.limit as usize {
            continue;
        }
        let entry = tables.knowledge_by_key(hit)?.map(|(entry, _)| entry);
        if let Some(mut entry) = entry.filter(fits) {
            entry.score = Some(score(&query, &weights, &entry));
            found.push((number + 1, entry));
        }
    }
    let page = name.page(&mut found, args.limit, |(number, _)| [newest, *number]);
    Ok(to_page(found, page))
}

fn to_page(found: Vec<(i64, KnowledgeRecord)>, page: Page) -> KnowledgePage {
    let records = found.into_iter().map(|(_, record)| record).collect();
    KnowledgePage { records, page }
}
