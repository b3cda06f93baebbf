//! Building the index of knowledge anew, a slice at a time, so that everyone else can write between two slices. The
//! place reached is stored with each slice: a crash costs one slice.

use ken_types::ops::store::{ById, Job, KeyedJob};
use ken_types::{Error, Timestamp};
use rusqlite::{Connection, Row, params};
use serde_json::json;

use super::fault::Done;
use super::{all, count, first, knowledge, rows, run, system, time};
use crate::backend::{Change, Effect};

/// Entries and bytes that one slice indexes.
const SLICE: usize = 50;
const SLICE_BYTES: i64 = 256 * 1024;

fn read(row: &Row<'_>) -> rusqlite::Result<Job> {
    let finished: Option<i64> = row.get("finished_at")?;
    Ok(Job {
        job_id: row.get("id")?,
        status: row.get("status")?,
        done: count(row, "done")?,
        total: count(row, "total")?,
        started_at: Some(time(row, "started_at")?),
        finished_at: finished.map(Timestamp::from_millis),
        error: row.get("error")?,
    })
}

pub(super) fn job(connection: &Connection, args: &ById) -> Done<Job> {
    let found = first(connection, "SELECT * FROM jobs WHERE id = ?1", [&args.id], read)?;
    found.ok_or_else(|| Error::not_found(format!("there is no job {}", args.id)).into())
}

pub(super) fn start(connection: &Connection, args: &KeyedJob, change: &mut Change) -> Done<Job> {
    let sql = "SELECT * FROM jobs WHERE id = ?1 OR status = 'running' ORDER BY id = ?1 DESC LIMIT 1";
    if let Some(known) = first(connection, sql, [&args.id], read)? {
        return Ok(known);
    }
    let sql = "INSERT INTO jobs (id, status, until, total, started_at)
               SELECT ?1, 'running', coalesce(max(entry), 0), count(*), ?2 FROM knowledge";
    run(connection, sql, params![args.id, change.now.millis()])?;
    change.effects.push(Effect::Background);
    tell(&args.id, "running", change);
    job(connection, &ById { id: args.id.clone() })
}

/// Indexes the next entries of the job that runs. True when there is more to do.
pub(super) fn slice(connection: &Connection, change: &mut Change) -> Done<bool> {
    let sql = "SELECT job, id, reached, until FROM jobs WHERE status = 'running' ORDER BY job LIMIT 1";
    let running = first(connection, sql, [], |row| {
        Ok((
            row.get::<_, i64>("job")?,
            row.get::<_, String>("id")?,
            row.get::<_, i64>("reached")?,
            row.get::<_, i64>("until")?,
        ))
    })?;
    let Some((job, id, reached, until)) = running else {
        return Ok(false);
    };
    let entries = next_entries(connection, reached, until)?;
    let Some(last) = entries.last().copied() else {
        let sql = "UPDATE jobs SET status = 'ok', finished_at = ?2, total = done WHERE job = ?1";
        run(connection, sql, params![job, change.now.millis()])?;
        tell(&id, "ok", change);
        return Ok(true);
    };
    // Whatever the index still holds of entries that are gone goes with this.
    run(
        connection,
        "DELETE FROM knowledge_index WHERE rowid > ?1 AND rowid <= ?2",
        [reached, last],
    )?;
    for entry in &entries {
        knowledge::index(connection, *entry)?;
    }
    let sql = "UPDATE jobs SET reached = ?2, done = done + ?3 WHERE job = ?1";
    run(connection, sql, params![job, last, rows(entries.len())])?;
    Ok(true)
}

fn tell(job: &str, status: &str, change: &mut Change) {
    system::happened(
        change,
        "knowledge.reindex",
        json!({"jobId": job, "status": status}),
    );
}

fn next_entries(connection: &Connection, after: i64, until: i64) -> Done<Vec<i64>> {
    let sql = "SELECT entry, length(content) AS size FROM knowledge WHERE entry > ?1 AND entry <= ?2 ORDER BY entry LIMIT ?3";
    let sized = all(connection, sql, params![after, until, rows(SLICE)], |row| {
        Ok((row.get::<_, i64>("entry")?, row.get::<_, i64>("size")?))
    })?;
    let mut bytes = 0;
    let within = |&(_, size): &(i64, i64)| {
        let fits = bytes < SLICE_BYTES;
        bytes += size;
        fits
    };
    Ok(sized
        .into_iter()
        .take_while(within)
        .map(|(entry, _)| entry)
        .collect())
}
