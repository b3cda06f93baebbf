//! Idempotency keys. The first answer to a request with a key is kept for a day.

use ken_types::limits::KEY_MS;
use ken_types::ops::Nothing;
use ken_types::ops::store::{BeginKey, FinishKey, KeyEnd, KeyState, KeysBegin, KeysFinish};
use ken_types::{Error, Timestamp};

use crate::engine::change::Change;
use crate::ops::Write;
use crate::tables::Tables;

/// The maximum number of keys that one slice of background work deletes.
const SLICE: usize = 200;

impl Write for KeysBegin {
    fn run(tables: &dyn Tables, args: &BeginKey, change: &mut Change) -> Result<KeyState, Error> {
        match tables.key(&args.key, oldest(change.now))? {
            Some(known) if known.body == args.body => {
                if known.is_free {
                    tables.set_key_free(&args.key, false)?;
                }
                return Ok(known.state);
            }
            Some(known) if !known.is_free => {
                return Err(Error::conflict("the idempotency key stands for another request"));
            }
            _ => {}
        }
        tables.put_key(args)?;
        Ok(KeyState { seed: args.seed.clone(), at: args.at, answer: None })
    }
}

/// Stores the answer of a key, unless it has one.
impl Write for KeysFinish {
    fn run(tables: &dyn Tables, args: &FinishKey, change: &mut Change) -> Result<Nothing, Error> {
        match &args.end {
            KeyEnd::Answered(answer) if tables.names_purged(&answer.body, oldest(change.now))? => {
                tables.purge_key(&args.key)?;
            }
            KeyEnd::Answered(answer) => tables.answer_key(&args.key, answer)?,
            KeyEnd::Refused => tables.forget_key(&args.key)?,
            KeyEnd::NotReached => tables.set_key_free(&args.key, true)?,
        }
        Ok(Nothing {})
    }
}

fn oldest(now: Timestamp) -> Timestamp {
    now.plus_millis(-KEY_MS)
}

/// Deletes some of the keys that are too old. Returns true if there may be more.
pub(super) fn prune(tables: &dyn Tables, now: Timestamp) -> Result<bool, Error> {
    Ok(tables.prune_keys(oldest(now), SLICE)? == SLICE)
}
