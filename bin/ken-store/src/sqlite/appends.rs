//! Appending to a stream below `streams/`: who may, what is written.

use std::sync::Arc;

use ken_types::Error;
use ken_types::ops::streams::{AppendStream, Appending, Payload, Producer, media_type};
use rusqlite::{Connection, params};

use super::fault::Done;
use super::public::{self, Public};
use super::streams::{MOST, place};
use super::{all, calls, count, first, forks, rows, run};
use crate::backend::{Change, Effect, NewEntries};

pub(super) fn append(connection: &Connection, args: AppendStream, change: &mut Change) -> Done<Appending> {
    if let Some(answer) = calls::known(connection, args.call.as_ref())? {
        return Ok(answer);
    }
    let mut stream = public::live(connection, &args.stream, change.now)?;
    if let Some(refused) = check(connection, &stream, &args)? {
        return Ok(refused);
    }
    if let Some(producer) = &args.producer {
        keep_producer(connection, stream.id, producer)?;
    }
    let first = stream.entries;
    if let Some(payload) = &args.payload {
        insert(connection, &mut stream, payload)?;
    }
    stream.closed |= args.close;
    stream.last_seq = args.seq.or(stream.last_seq);
    stream.expires_at = stream.next_expiry(change.now);
    update(connection, &stream)?;
    let answer = Appending::Done {
        end: stream.entries,
        closed: stream.closed,
    };
    calls::keep(connection, args.call.as_ref(), &answer, change.now)?;
    public::expect_end(&stream, change);
    if let Some(payload) = args.payload {
        change.effects.push(Effect::Appended(Arc::new(NewEntries {
            stream: stream.name.clone(),
            first,
            payload,
        })));
    }
    if args.close {
        change.effects.push(Effect::Changed(stream.name));
    }
    Ok(answer)
}

/// Why it is not to be written, if so.
fn check(connection: &Connection, stream: &Public, args: &AppendStream) -> Done<Option<Appending>> {
    let known = match &args.producer {
        Some(producer) => known_producer(connection, stream.id, &producer.id)?,
        None => None,
    };
    if let (Some(producer), Some(known)) = (&args.producer, known) {
        if producer.epoch < known.epoch {
            return Ok(Some(Appending::Fenced { epoch: known.epoch }));
        }
        if producer.epoch == known.epoch && producer.seq <= known.seq {
            return Ok(Some(Appending::Known {
                end: stream.entries,
                closed: stream.closed,
                epoch: known.epoch,
                seq: known.seq,
            }));
        }
    }
    if stream.closed {
        // Closing it again, and nothing else, is no change.
        let closes_only = args.payload.is_none() && args.producer.is_none();
        return Ok((!closes_only).then_some(Appending::Closed { end: stream.entries }));
    }
    if args.payload.is_some() && media_type(&args.content_type) != media_type(&stream.content_type) {
        let content_type = stream.content_type.clone();
        return Ok(Some(Appending::OtherType { content_type }));
    }
    if let Some(refused) = args
        .producer
        .as_ref()
        .and_then(|producer| out_of_turn(producer, known))
    {
        return Ok(Some(refused));
    }
    Ok(match (&args.seq, &stream.last_seq) {
        (Some(seq), Some(last)) if seq.as_bytes() <= last.as_bytes() => {
            Some(Appending::Behind { seq: last.clone() })
        }
        _ => None,
    })
}

/// What is known of a producer.
#[derive(Debug, Clone, Copy)]
struct Known {
    epoch: u64,
    seq: u64,
}

fn out_of_turn(producer: &Producer, known: Option<Known>) -> Option<Appending> {
    let expected = match known {
        Some(known) if known.epoch == producer.epoch => known.seq + 1,
        _ => 0,
    };
    match (known, producer.seq) {
        (_, seq) if seq == expected => None,
        (Some(known), _) if known.epoch < producer.epoch => Some(Appending::BadStart),
        _ => Some(Appending::Gap { expected }),
    }
}

fn known_producer(connection: &Connection, stream: i64, id: &str) -> Done<Option<Known>> {
    let sql = "SELECT epoch, seq FROM producers WHERE stream = ?1 AND id = ?2";
    Ok(first(connection, sql, params![stream, id], |row| {
        Ok(Known {
            epoch: count(row, "epoch")?,
            seq: count(row, "seq")?,
        })
    })?)
}

fn keep_producer(connection: &Connection, stream: i64, producer: &Producer) -> Done<()> {
    let sql = "INSERT INTO producers (stream, id, epoch, seq) VALUES (?1, ?2, ?3, ?4)
               ON CONFLICT DO UPDATE SET epoch = excluded.epoch, seq = excluded.seq";
    let values = params![
        stream,
        producer.id,
        producer.epoch.cast_signed(),
        producer.seq.cast_signed()
    ];
    run(connection, sql, values)?;
    Ok(())
}

/// Writes entries at the end; the row of the stream is the caller's to update.
pub(super) fn insert(connection: &Connection, stream: &mut Public, payload: &Payload) -> Done<()> {
    let mut insert = connection.prepare_cached("INSERT INTO appends (body) VALUES (?1)")?;
    let mut put = connection.prepare_cached("INSERT INTO places (place, append) VALUES (?1, ?2)")?;
    let mut write = |body: &[u8]| -> Done<()> {
        if stream.entries >= MOST {
            return Err(Error::too_large(format!("the stream {} is full", stream.name)).into());
        }
        insert.execute([body])?;
        put.execute([place(stream.id, stream.entries), connection.last_insert_rowid()])?;
        stream.entries += 1;
        Ok(())
    };
    match payload {
        Payload::Messages(messages) => messages
            .iter()
            .try_for_each(|message| write(message.get().as_bytes())),
        Payload::Bytes(bytes) => write(&bytes.0),
    }
}

/// Stores what changes of a stream while it lives.
pub(super) fn update(connection: &Connection, stream: &Public) -> Done<()> {
    let sql = "UPDATE public_streams SET entries = ?2, closed = ?3, last_seq = ?4, expires_at = ?5 WHERE stream = ?1";
    let values = params![
        stream.id,
        stream.entries.cast_signed(),
        stream.closed,
        stream.last_seq,
        stream.expires_at
    ];
    run(connection, sql, values)?;
    Ok(())
}

/// One entry; none beyond the end.
pub(super) fn one(connection: &Connection, stream: &Public, number: u64) -> Done<Option<Vec<u8>>> {
    let mut found = None;
    forks::scan(
        connection,
        stream,
        number,
        stream.entries.min(number + 1),
        |body| {
            found = Some(body.to_vec());
            Ok(false)
        },
    )?;
    Ok(found)
}

/// Deletes some entries of a stream that nobody reads any more. True when there may be more.
pub(super) fn delete_slice(connection: &Connection, stream: i64, most: usize, most_bytes: i64) -> Done<bool> {
    let (from, to) = (place(stream, 0), place(stream + 1, 0));
    let sql = "SELECT place, length(body) AS size FROM places CROSS JOIN appends USING (append)
               WHERE place >= ?1 AND place < ?2 ORDER BY place LIMIT ?3";
    let sized = all(connection, sql, params![from, to, rows(most)], |row| {
        Ok((row.get::<_, i64>("place")?, row.get::<_, i64>("size")?))
    })?;
    let mut bytes = 0;
    let within = |&&(_, size): &&(i64, i64)| {
        let fits = bytes < most_bytes;
        bytes += size;
        fits
    };
    let Some((last, _)) = sized.iter().take_while(within).last() else {
        return Ok(false);
    };
    let sql =
        "DELETE FROM appends WHERE append IN (SELECT append FROM places WHERE place >= ?1 AND place <= ?2)";
    run(connection, sql, [from, *last])?;
    run(
        connection,
        "DELETE FROM places WHERE place >= ?1 AND place <= ?2",
        [from, *last],
    )?;
    Ok(true)
}
