//! The deletion of sessions for good. Deleted content is overwritten with zeros (`secure_delete`), in the full-text indexes when they are
//! merged.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::path::Path;

use ken_types::Error;

use super::files::remove_damaged_logs;
use super::{Database, pages};
use crate::tables::sql::{Sql, first, params};
use crate::tables::{Merge, Purges};

/// Returns those of some pages that are free and whose content has no meaning.
fn free_leaves(database: &Database, among: &RangeInclusive<i64>) -> Result<BTreeSet<i64>, Error> {
    let sql = "SELECT data FROM sqlite_dbpage WHERE pgno = ?1";
    let read = |number: i64| first(database, sql, params![number], |row| row.get::<Vec<u8>>(0));
    let mut leaves = BTreeSet::new();
    let mut trunk = read(1)?.map_or(0, |page| pages::first_trunk(&page));
    while trunk > 0 {
        let Some(page) = read(trunk)? else { break };
        leaves.extend(pages::leaves(&page).filter(|leaf| among.contains(leaf)));
        trunk = pages::next_trunk(&page);
    }
    Ok(leaves)
}

impl Purges for Database {
    fn remove_damaged_logs(&self) {
        if let Some(database) = self.0.path()
            && let Err(error) = remove_damaged_logs(Path::new(database))
        {
            tracing::warn!("copies of damaged logs beside {database} could not be removed: {error}");
        }
    }

    fn merge_indexes(&self, pages: i64, merge: Merge) -> Result<bool, Error> {
        let before = self.0.total_changes();
        // A negative number has all segments merged, and a positive one goes on with it: fts5.html, 6.8. A negative one each time would
        // begin anew whenever a segment has been added meanwhile, and never end while people write.
        let rank = if merge == Merge::Begin { -pages } else { pages };
        self.execute("INSERT INTO memory_index (memory_index, rank) VALUES ('merge', ?1)", params![rank])?;
        self.execute("INSERT INTO knowledge_index (knowledge_index, rank) VALUES ('merge', ?1)", params![rank])?;
        // Each command itself counts as a change.
        Ok(self.0.total_changes() > before + 2)
    }

    fn scrub_pages(&self, after: i64, max: usize) -> Result<Option<i64>, Error> {
        let until = after.saturating_add(i64::try_from(max).unwrap_or(i64::MAX));
        let free = free_leaves(self, &(after + 1..=until))?;
        let sql = "SELECT pgno, data FROM sqlite_dbpage WHERE pgno = ?1";
        let mut last = after;
        for number in (after + 1..).take(max) {
            let Some(mut page) = first(self, sql, params![number], |row| row.get::<Vec<u8>>("data"))? else {
                return Ok(None);
            };
            if pages::scrub(&mut page, number, free.contains(&number)) {
                self.execute("UPDATE sqlite_dbpage SET data = ?2 WHERE pgno = ?1", params![number, page])?;
            }
            last = number;
        }
        Ok(Some(last))
    }
}
