//! What a person means by an id, or by a piece of one.

use ken_types::Error;
use ken_types::ops::ids::{FindIds, FoundId, FoundIds, IdKind, IdsFind, MAX_FOUND, WORD_BYTES, is_meant};

use crate::ops::Read;
use crate::rules::check;
use crate::rules::title::title;
use crate::tables::Tables;

impl Read for IdsFind {
    // A piece of an id is compared with all ids.
    const COMES_FIRST: bool = false;

    fn check(args: &FindIds) -> Result<(), Error> {
        check::limit(args.limit, MAX_FOUND)?;
        match &args.word {
            Some(word) if !(1..=WORD_BYTES).contains(&word.len()) => {
                Err(Error::invalid("/word", format!("a word has 1 to {WORD_BYTES} bytes")))
            }
            _ => Ok(()),
        }
    }

    fn run(tables: &dyn Tables, args: &FindIds) -> Result<FoundIds, Error> {
        let kinds = if args.kinds.is_empty() { IdKind::ALL } else { &args.kinds };
        let limit = args.limit as usize;
        let mut ids = match &args.word {
            None => newest(tables, kinds, limit)?,
            Some(word) => meant(tables, kinds, word, limit)?,
        };
        ids.sort_by_key(|found| std::cmp::Reverse(found.at));
        ids.truncate(limit);
        for found in &mut ids {
            found.label = found.label.as_deref().map(title).filter(|label| !label.is_empty());
        }
        Ok(FoundIds { ids })
    }
}

fn newest(tables: &dyn Tables, kinds: &[IdKind], limit: usize) -> Result<Vec<FoundId>, Error> {
    let mut ids = Vec::new();
    for kind in kinds {
        let mut left = limit;
        tables.newest(*kind, &mut |found| {
            ids.push(found);
            left -= 1;
            left > 0
        })?;
    }
    Ok(ids)
}

/// Returns the things with this id, or else those that the word names by a piece of their ids or by a name.
fn meant(tables: &dyn Tables, kinds: &[IdKind], word: &str, limit: usize) -> Result<Vec<FoundId>, Error> {
    let mut ids = Vec::new();
    for kind in kinds {
        ids.extend(tables.with_id(*kind, word)?);
    }
    if !ids.is_empty() {
        return Ok(ids);
    }
    for kind in kinds {
        let mut left = limit;
        tables.containing(*kind, word, &mut |found| {
            let is_name = *kind == IdKind::Session && found.label.as_deref() == Some(word);
            if is_name || is_meant(&found.id, word) {
                ids.push(found);
                left -= 1;
            }
            left > 0
        })?;
    }
    Ok(ids)
}
