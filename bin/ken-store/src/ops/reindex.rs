//! Rebuilds the index of knowledge, a slice at a time, so that other changes can be made between two slices. The position is stored with
//! each slice, so a crash only loses the work of one slice.

use ken_types::Error;
use ken_types::ops::store::*;
use serde_json::json;

use crate::engine::change::{Change, Effect};
use crate::ops::{Read, Write, documents, knowledge};
use crate::tables::Tables;

/// The maximum number of entries that one slice indexes, and the maximum number of characters in their contents.
const SLICE: usize = 50;
const SLICE_BYTES: u64 = 256 * 1024;

fn job(tables: &dyn Tables, id: &str) -> Result<Job, Error> {
    let found = tables.job(id)?;
    found.ok_or_else(|| Error::not_found(format!("there is no job {id}")))
}

impl Read for KnowledgeJob {
    fn run(tables: &dyn Tables, args: &ById) -> Result<Job, Error> {
        job(tables, &args.id)
    }
}

impl Write for KnowledgeReindex {
    fn run(tables: &dyn Tables, args: &KeyedJob, change: &mut Change) -> Result<Job, Error> {
        if let Some(known) = tables.job(&args.id)? {
            return Ok(known);
        }
        if let Some(running) = tables.running_job()? {
            return job(tables, &running.id);
        }
        tables.insert_job(&args.id, change.now)?;
        if args.documents {
            documents::begin(tables, change)?
        } else {
            change.push(Effect::Background)
        }
        publish(&args.id, "running", change);
        job(tables, &args.id)
    }
}

/// Indexes the next entries of the running job. Returns true if there is more to do.
pub(super) fn slice(tables: &dyn Tables, change: &mut Change) -> Result<bool, Error> {
    let Some(running) = tables.running_job()? else {
        return Ok(false);
    };
    if running.collection.is_some() {
        return Ok(false);
    }
    let sizes = tables.knowledge_sizes(running.reached, running.until, SLICE)?;
    let entries = within(&sizes, SLICE_BYTES);
    let Some(last) = entries.last().copied() else {
        tables.finish_job(running.key, change.now)?;
        let ended = job(tables, &running.id)?;
        publish(&running.id, &ended.status, change);
        return Ok(true);
    };
    // This also removes index rows of entries that no longer exist.
    tables.unindex_knowledge(running.reached, last)?;
    for entry in &entries {
        knowledge::index(tables, *entry)?;
    }
    tables.advance_job(running.key, last, entries.len())?;
    Ok(true)
}

fn publish(job: &str, status: &str, change: &mut Change) {
    change.publish("knowledge.reindex", json!({"jobId": job, "status": status}));
}

/// Returns the first items whose sizes together are at most `most_bytes`, but at least one item.
fn within(sizes: &[(i64, u64)], most_bytes: u64) -> Vec<i64> {
    let mut bytes = 0;
    let fits = |&&(_, size): &&(i64, u64)| {
        let fits = bytes < most_bytes;
        bytes += size;
        fits
    };
    sizes.iter().take_while(fits).map(|(item, _)| *item).collect()
}
