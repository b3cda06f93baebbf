//! The unused parts of pages. `secure_delete` overwrites a row when it is deleted. But when a page is split, SQLite leaves a copy of the rows
//! that moved away in the unused part of the page, and nothing overwrites that later. The format of pages is that of
//! <https://sqlite.org/fileformat.html>, sections 1.5 and 1.6.

/// Overwrites what is unused in a page. `is_free` says that the page is a leaf of the list of free pages. Returns whether something was
/// there. A page that is not consistent stays as it is.
pub(super) fn scrub(page: &mut [u8], number: i64, is_free: bool) -> bool {
    if is_free {
        return clear(page, 0, usize::MAX);
    }
    unused(page, if number == 1 { 100 } else { 0 }).is_some_and(|ranges| {
        let cleared: Vec<bool> = ranges.into_iter().map(|(from, to)| clear(page, from, to)).collect();
        cleared.contains(&true)
    })
}

/// Overwrites a range with zeros. Returns whether something else was there.
fn clear(page: &mut [u8], from: usize, to: usize) -> bool {
    let to = to.min(page.len());
    let range = page.get_mut(from..to).unwrap_or_default();
    let was_used = range.iter().any(|byte| *byte != 0);
    range.fill(0);
    was_used
}

/// Returns the unused ranges of a page of a tree: the gap before its cells, and the free blocks between them. `None` for other pages, and
/// for pages that are not consistent. The first bytes of an overflow page are the number of the next one, so it is only mistaken for a page
/// of a tree in a database of more than 128 GiB.
fn unused(page: &[u8], header: usize) -> Option<Vec<(usize, usize)>> {
    let pointers = match page.get(header)? {
        2 | 5 => header + 12,
        10 | 13 => header + 8,
        _ => return None,
    };
    let cells = pointers + 2 * word(page, header + 3)?;
    let content = match word(page, header + 5)? {
        0 => 65_536,
        start => start,
    };
    if cells > content || content > page.len() {
        return None;
    }
    let mut ranges = vec![(cells, content)];
    let mut block = word(page, header + 1)?;
    while block > 0 {
        let (next, end) = (word(page, block)?, block + word(page, block + 2)?);
        // The blocks are in ascending order.
        if block < content || end > page.len() || (next > 0 && next < end) {
            return None;
        }
        ranges.push((block + 4, end));
        block = next;
    }
    Some(ranges)
}

fn word(page: &[u8], at: usize) -> Option<usize> {
    let bytes = page.get(at..at + 2)?;
    Some(bytes.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte)))
}

fn number(page: &[u8], at: usize) -> i64 {
    let bytes = page.get(at..at + 4).unwrap_or_default();
    bytes.iter().fold(0, |sum, byte| sum << 8 | i64::from(*byte))
}

/// Returns the number of the first page of the list of free pages, from the first page of the database; 0 if there is none.
pub(super) fn first_trunk(page: &[u8]) -> i64 {
    number(page, 32)
}

/// Returns the number of the page of the list of free pages that follows this one; 0 if there is none.
pub(super) fn next_trunk(page: &[u8]) -> i64 {
    number(page, 0)
}

/// Returns the free pages that a page of the list names.
pub(super) fn leaves(page: &[u8]) -> impl Iterator<Item = i64> {
    let count = usize::try_from(number(page, 4)).unwrap_or_default().min(page.len() / 4);
    (0..count).map(|index| number(page, 8 + 4 * index)).filter(|number| *number > 0)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use rusqlite::{Connection, params};

    use super::super::Database;
    use super::*;
    use crate::tables::Purges;

    /// Returns a leaf of a table with one cell of 4 bytes at its end and a free block of 8 bytes before it. All unused bytes are 7.
    fn leaf() -> Vec<u8> {
        let mut page = vec![7; 64];
        page[..10].copy_from_slice(&[13, 0, 52, 0, 1, 0, 52, 0, 0, 60]);
        page[52..56].copy_from_slice(&[0, 0, 0, 8]);
        page[60..].copy_from_slice(&[2, 1, 9, 9]);
        page
    }

    #[test]
    fn only_what_is_unused_is_overwritten() {
        let mut page = leaf();
        assert!(scrub(&mut page, 2, false));
        let mut clean = leaf();
        clean[10..52].fill(0);
        clean[56..60].fill(0);
        assert_eq!(page, clean);
        assert!(!scrub(&mut page, 2, false));
        assert!(scrub(&mut page, 2, true) && page.iter().all(|byte| *byte == 0));
    }

    #[test]
    fn a_page_that_is_not_consistent_stays_as_it_is() {
        for (at, byte) in [(0, 0), (0, 7), (3, 9), (5, 1), (2, 20), (53, 1), (53, 53), (55, 99)] {
            let mut page = leaf();
            page[at] = byte;
            let before = page.clone();
            assert!(!scrub(&mut page, 2, false), "{at}");
            assert_eq!(page, before);
        }
        assert!(!scrub(&mut [], 2, false));
        assert!(!scrub(&mut [13, 0], 1, false));
    }

    /// What SQLite itself says of a database whose pages were scrubbed while it was used: rows of every size, in a table, an index and
    /// a full-text index, are written, changed and deleted at random, in one connection that goes on.
    #[test]
    fn a_database_stays_sound_and_keeps_what_was_not_deleted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("db");
        let database = Database(Connection::open(&path).unwrap());
        let setup = "PRAGMA journal_mode = WAL; PRAGMA secure_delete = ON;
            CREATE TABLE texts (id INTEGER PRIMARY KEY, text TEXT NOT NULL); CREATE INDEX by_text ON texts (text);
            CREATE VIRTUAL TABLE words USING fts5 (text, content = '', contentless_delete = 1);";
        database.0.execute_batch(setup).unwrap();
        let mut seed = 0x2545_f491_4f6c_dd1d_u64;
        let mut random = move |limit: usize| {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            usize::try_from(seed % limit as u64).unwrap()
        };
        let (mut kept, mut gone) = (BTreeMap::new(), Vec::new());
        for round in 0..30 {
            database.0.execute_batch("BEGIN").unwrap();
            for number in 0..60 {
                let id = i64::try_from(random(200)).unwrap();
                if let Some(old) = kept.remove(&id) {
                    database.0.execute("DELETE FROM texts WHERE id = ?1", [id]).unwrap();
                    database.0.execute("DELETE FROM words WHERE rowid = ?1", [id]).unwrap();
                    gone.push(old);
                } else {
                    let word = format!("canary{round}x{number}x");
                    let text = format!("{word} {}", "z".repeat([3, 40, 400, 5_000, 40_000][random(5)]));
                    database.0.execute("INSERT INTO texts VALUES (?1, ?2)", params![id, text]).unwrap();
                    database.0.execute("INSERT INTO words (rowid, text) VALUES (?1, ?2)", params![id, text]).unwrap();
                    kept.insert(id, text);
                }
            }
            database.0.execute_batch("COMMIT").unwrap();
            database.0.execute("INSERT INTO words (words, rank) VALUES ('merge', -500)", []).unwrap();
            database.0.execute_batch("BEGIN").unwrap();
            assert_eq!(Purges::scrub_pages(&database, 0, usize::MAX).unwrap(), None);
            database.0.execute_batch("COMMIT").unwrap();
            let sound: String = database.0.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
            assert_eq!(sound, "ok", "round {round}");
        }
        let mut found = database.0.prepare("SELECT id, text FROM texts").unwrap();
        let found = found.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
        assert_eq!(found.collect::<Result<BTreeMap<i64, String>, _>>().unwrap(), kept);
        let _: i64 = database.0.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0)).unwrap();
        let file = String::from_utf8_lossy(&std::fs::read(&path).unwrap()).into_owned();
        let word = |text: &String| text.split(' ').next().unwrap().to_owned();
        let left: Vec<String> = gone.iter().map(word).filter(|word| file.contains(word)).collect();
        assert!(gone.len() > 400 && left.is_empty(), "of {} deleted texts these are left: {left:?}", gone.len());
        assert!(kept.values().all(|text| file.contains(&word(text))));
    }
}
