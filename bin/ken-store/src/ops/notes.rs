//! Notes and checklists that agents write for their own use. They belong to an instance.

use ken_types::Error;
use ken_types::ops::Nothing;
use ken_types::ops::store::{ListNotes, Notes, NotesList, NotesPut, PutNote};

use crate::engine::change::Change;
use crate::ops::{Read, Write, turns};
use crate::rules::{check, stream_names};
use crate::tables::Tables;

/// The maximum number of notes of one kind that an instance can have.
const NOTES: usize = 64;
const NOTE_BYTES: usize = 64 * 1024;

impl Write for NotesPut {
    fn check(args: &PutNote) -> Result<(), Error> {
        if check::name(&args.name, "/name")? != args.name {
            return Err(Error::invalid("/name", "a name has no blanks at its ends"));
        }
        if args.body.len() > NOTE_BYTES {
            let message = format!("a note has at most {NOTE_BYTES} bytes, this one {}", args.body.len());
            return Err(Error::too_large(message).at("/body"));
        }
        Ok(())
    }

    fn run(tables: &dyn Tables, args: &PutNote, change: &mut Change) -> Result<Nothing, Error> {
        let stream = stream(tables, &args.instance)?;
        if args.body.is_empty() {
            tables.delete_note(stream, args.kind, &args.name)?;
            return Ok(Nothing {});
        }
        let known = tables.notes(stream, args.kind)?;
        if known.len() >= NOTES && !known.iter().any(|note| note.name == args.name) {
            let message = format!("there are {NOTES} notes of this kind already");
            return Err(Error::conflict(message).hint("write an empty one to delete it"));
        }
        let outside = turns::outside_of(tables, args.turn.as_ref())?;
        tables.put_note(stream, args, &outside, change.now)?;
        Ok(Nothing {})
    }
}

impl Read for NotesList {
    fn run(tables: &dyn Tables, args: &ListNotes) -> Result<Notes, Error> {
        let notes = tables.notes(stream(tables, &args.instance)?, args.kind)?;
        Ok(Notes { notes })
    }
}

fn stream(tables: &dyn Tables, instance: &str) -> Result<i64, Error> {
    let log = tables.log(&stream_names::of_instance(instance))?;
    let log = log.ok_or_else(|| Error::not_found(format!("there is no instance {instance}")).at("/instance"))?;
    Ok(log.key)
}
