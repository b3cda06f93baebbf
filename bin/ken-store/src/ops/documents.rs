//! Documents: files whose pieces are knowledge entries. A reader reports the files and pieces that it has found, and this module decides
//! what changes. It also stores the vectors of entries, and which turns used an entry.

use std::collections::{HashMap, HashSet};

use ken_types::Error;
use ken_types::fence::Outside;
use ken_types::ops::Nothing;
use ken_types::ops::documents::*;
use ken_types::ops::store::PutKnowledge;

use crate::engine::change::{Change, Effect};
use crate::ops::{Read, Write, knowledge};
use crate::rules::{check, digest, scope_words, vectors};
use crate::tables::{DocumentPlace, JobRow, SubmissionRow, Tables};

/// The maximum number of entries for which a caller computes vectors at a time. A provider accepts this many in one call.
const MAX_EMBEDDED: usize = 32;
/// The maximum number of uses that are listed for an entry.
const MAX_USES: u32 = 100;
/// The collections that an indexing job reads, in this order. After the last one, the job indexes all entries.
const COLLECTIONS: [&str; 2] = [SHARE, WORKSPACE];

fn check_path(at: &str, path: &str) -> Result<(), Error> {
    if (1..=PATH_BYTES).contains(&path.len()) {
        Ok(())
    } else {
        Err(Error::invalid(at, format!("{} bytes; 1 to {PATH_BYTES} are allowed", path.len())))
    }
}

/// Returns the source that the entries of a collection have.
fn source_of(collection: &str) -> Result<&str, Error> {
    match collection {
        SHARE | WORKSPACE => Ok(collection),
        FILES => Ok("import"),
        folder if folder.starts_with('/') => Ok("import"),
        _ => {
            Err(Error::invalid("/collection", "it is `share`, `workspace`, `files`, or the absolute path of a folder"))
        }
    }
}

impl Read for DocumentsList {
    fn check(args: &ListDocuments) -> Result<(), Error> {
        check_path("/collection", &args.collection)?;
        if (1..=PAGE_DOCUMENTS).contains(&args.limit) {
            Ok(())
        } else {
            Err(Error::invalid("/limit", format!("1 to {PAGE_DOCUMENTS} are allowed")))
        }
    }

    fn run(tables: &dyn Tables, args: &ListDocuments) -> Result<Documents, Error> {
        let mut documents = tables.documents(&args.collection, &args.after, args.limit + 1)?;
        let has_more = documents.len() > args.limit;
        documents.truncate(args.limit);
        Ok(Documents { documents, has_more })
    }
}

impl Write for DocumentsSync {
    fn check(args: &SyncDocuments) -> Result<(), Error> {
        check_path("/collection", &args.collection)?;
        source_of(&args.collection)?;
        for (number, document) in args.documents.iter().enumerate() {
            let at = format!("/documents/{number}");
            check_path(&format!("{at}/path"), &document.path)?;
            if document.pieces.len() > DOCUMENT_PIECES {
                let message = format!("{} pieces, at most {DOCUMENT_PIECES} are allowed", document.pieces.len());
                return Err(Error::too_large(message).at(format!("{at}/pieces")));
            }
            for (number, piece) in document.pieces.iter().enumerate() {
                let within = |error: Error| {
                    let below = error.at.clone().unwrap_or_default();
                    error.at(format!("{at}/pieces/{number}{below}"))
                };
                check::knowledge(&entry("", piece)).map_err(within)?;
            }
        }
        Ok(())
    }

    fn run(tables: &dyn Tables, args: &SyncDocuments, change: &mut Change) -> Result<Synced, Error> {
        let job = match &args.step {
            Some(step) => Some(job_of_step(tables, &args.collection, step)?),
            None => None,
        };
        let mut synced = Synced::default();
        for document in &args.documents {
            put(tables, &args.collection, document, change, &mut synced)?;
        }
        for path in &args.gone {
            remove(tables, &args.collection, path, &mut synced)?;
        }
        if let (Some(job), Some(step)) = (job, &args.step) {
            advance(tables, &job, step, change)?;
        }
        if synced.added > 0 {
            change.push(Effect::Documents);
        }
        Ok(synced)
    }
}

/// Returns the running job if its position is the one that the step names. Otherwise another reader has already done this step, and the
/// error is `conflict`.
fn job_of_step(tables: &dyn Tables, collection: &str, step: &JobStep) -> Result<JobRow, Error> {
    let running = tables.running_job()?;
    let here = running
        .filter(|job| job.id == step.job && job.collection.as_deref() == Some(collection) && job.place == step.after);
    here.ok_or_else(|| {
        let message = format!("job {} is not at this place of {collection}", step.job);
        Error::conflict(message).at("/step/after").hint("ask for the work again")
    })
}

fn advance(tables: &dyn Tables, job: &JobRow, step: &JobStep, change: &mut Change) -> Result<(), Error> {
    if let Some(error) = &step.error {
        tables.fail_job(job.key, error)?;
    }
    let place = step.next.as_deref().unwrap_or(&job.place);
    tables.advance_reading(job.key, place, step.done, step.left)?;
    if step.next.is_none() {
        let mut rest = COLLECTIONS.iter().skip_while(|name| Some(**name) != job.collection.as_deref());
        let next = rest.nth(1).copied();
        tables.set_job_collection(job.key, next)?;
        if next.is_none() {
            tables.extend_job(job.key)?;
            change.push(Effect::Background);
        }
    }
    change.push(Effect::Documents);
    Ok(())
}

/// Makes the running job read documents, beginning with the first collection. Entries that have got no vector are tried again.
pub(super) fn begin(tables: &dyn Tables, change: &mut Change) -> Result<(), Error> {
    if let Some(job) = tables.running_job()? {
        tables.set_job_collection(job.key, COLLECTIONS.first().copied())?;
        tables.delete_empty_vectors()?;
        change.push(Effect::Documents);
    }
    Ok(())
}

/// Returns the knowledge entry for a piece of a document. Every actor can find it.
fn entry(source: &str, piece: &Piece) -> PutKnowledge {
    PutKnowledge {
        title: piece.title.clone(),
        content: piece.text.clone(),
        tags: piece.tags.clone(),
        actor_id: None,
        conversation_id: None,
        source: source.to_owned(),
        created_by: source.to_owned(),
        turn: None,
    }
}

/// Returns the id of the entry for a piece. Equal pieces of one document have the same id, but equal pieces of different documents do not.
fn id(collection: &str, path: &str, piece: &Piece) -> String {
    let parts = [None, None, Some(piece.title.as_str()), Some(&piece.text), Some(collection), Some(path)];
    format!("kb-{}", digest::of(&parts, 16))
}

fn remove(tables: &dyn Tables, collection: &str, path: &str, synced: &mut Synced) -> Result<(), Error> {
    if let Some(document) = tables.document(collection, path)? {
        for (key, _) in tables.entries_of(document.key)? {
            knowledge::delete(tables, key)?;
            synced.removed += 1;
        }
        tables.delete_document(document.key)?;
    }
    Ok(())
}

/// Removes a file from the collections of other folders that contain it. So a file has its entries once, even if a
/// folder is imported and then one above or below it.
fn remove_from_others(tables: &dyn Tables, collection: &str, path: &str, synced: &mut Synced) -> Result<(), Error> {
    let file = format!("{}/{path}", collection.trim_end_matches('/'));
    for (end, _) in file.match_indices('/') {
        let (above, below) = file.split_at(end);
        let folder = if above.is_empty() { "/" } else { above };
        if folder != collection {
            remove(tables, folder, below.trim_start_matches('/'), synced)?;
        }
    }
    Ok(())
}

fn put(
    tables: &dyn Tables,
    collection: &str,
    read: &ReadDocument,
    change: &mut Change,
    synced: &mut Synced,
) -> Result<(), Error> {
    let known = tables.document(collection, &read.path)?;
    if known.as_ref().is_some_and(|known| known.digest == read.digest) {
        return Ok(());
    }
    if known.is_none() && collection.starts_with('/') {
        remove_from_others(tables, collection, &read.path, synced)?;
    }
    let source = source_of(collection)?;
    let document = tables.put_document(collection, &read.path, &read.digest)?;
    let known = tables.entries_of(document)?.into_iter().map(|(key, id)| (id, key));
    let mut known: HashMap<String, i64> = known.collect();
    let mut placed = HashSet::new();
    for piece in &read.pieces {
        let id = id(collection, &read.path, piece);
        if placed.contains(&id) {
            continue;
        }
        if let Some(key) = known.remove(&id) {
            tables.move_entry(key, piece.line)?;
            // The id of an entry does not depend on its tags, so they can change alone.
            if tables.set_tags(key, &piece.tags, change.now)? {
                knowledge::index(tables, key)?;
            }
            synced.kept += 1;
        } else {
            let place = DocumentPlace { document, line: piece.line };
            let key =
                tables.put_knowledge(&id, &entry(source, piece), &Outside::new(), Some(place), None, change.now)?;
            knowledge::index(tables, key)?;
            synced.added += 1;
        }
        placed.insert(id);
    }
    for key in known.into_values() {
        knowledge::delete(tables, key)?;
        synced.removed += 1;
    }
    Ok(())
}

/// Returns the work that a reader can do now. There is none for a host without duties.
pub(crate) fn work(tables: &dyn Tables, args: &FindWork) -> Result<DocumentWork, Error> {
    if !tables.has_duties()? {
        return Ok(DocumentWork::default());
    }
    let job = tables
        .running_job()?
        .and_then(|job| Some(OpenJob { id: job.id, collection: job.collection?, after: job.place }));
    let rows = match &args.model {
        Some(model) => tables.unembedded(model, MAX_EMBEDDED)?,
        None => Vec::new(),
    };
    let unembedded =
        rows.into_iter().map(|(entry, title, content)| Unembedded { entry, text: format!("{title}\n{content}") });
    Ok(DocumentWork { job, unembedded: unembedded.collect() })
}

impl Write for VectorsPut {
    fn check(args: &PutVectors) -> Result<(), Error> {
        let long = args.vectors.iter().position(|vector| vector.values.len() > VECTOR_DIMENSIONS);
        match long {
            Some(number) => Err(Error::too_large(format!("a vector has at most {VECTOR_DIMENSIONS} dimensions"))
                .at(format!("/vectors/{number}/values"))),
            None => Ok(()),
        }
    }

    fn run(tables: &dyn Tables, args: &PutVectors, change: &mut Change) -> Result<Nothing, Error> {
        // Only the host that computes vectors replaces them. Otherwise two hosts that have different models under one name would delete each
        // other's, and pay for all of them with every query.
        if args.dimensions > 0
            && tables.dimensions(&args.model)?.is_some_and(|known| known != args.dimensions as u64)
            && tables.has_duties()?
        {
            tables.delete_vectors_except(&args.model, args.dimensions)?;
            change.push(Effect::Documents);
        }
        for vector in &args.vectors {
            if let Some(texts) = tables.knowledge_texts(vector.entry)? {
                let scope_word = scope_words::of_entry(texts.actor.as_deref(), texts.conversation.as_deref());
                tables.put_vector(vector.entry, &args.model, &scope_word, &vectors::pack(&vector.values))?;
            }
        }
        if args.usage.total_tokens > 0 {
            let day = change.now.day();
            tables.add_vector_usage(&day, &args.model, args.usage.total_tokens, args.usage.cost.total)?;
        }
        Ok(Nothing {})
    }
}

/// Stores which entries a submission has used. Called when it ends.
pub(super) fn record_uses(tables: &dyn Tables, found: &SubmissionRow, used: &[(String, Used)]) -> Result<(), Error> {
    let mut known = used.iter().take(MAX_USES as usize);
    known.try_for_each(|(entry, how)| tables.insert_use(entry, found.key, how.name()))
}

impl Read for KnowledgeUses {
    fn run(tables: &dyn Tables, args: &OfEntry) -> Result<EntryUses, Error> {
        let uses = tables.uses(&args.id, MAX_USES)?;
        if uses.is_empty() && tables.knowledge(&args.id)?.is_none() {
            return Err(Error::not_found(format!("there is no knowledge entry {}", args.id)).at("/id"));
        }
        Ok(EntryUses { uses })
    }
}
