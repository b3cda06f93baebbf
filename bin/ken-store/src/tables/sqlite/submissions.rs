//! Summaries of submissions.

use ken_types::{Error, Timestamp};

use super::Database;
use crate::tables::Telemetry;
use crate::tables::sql::{Sql, params};

impl Telemetry for Database {
    fn prune_summaries(&self, before: Timestamp, kept: usize, max: usize) -> Result<usize, Error> {
        // `usage` has the same keys in far fewer pages: summaries are counted there.
        let sql = "DELETE FROM telemetry WHERE submission IN (
            SELECT * FROM (SELECT submission FROM telemetry WHERE settled_at < ?1 LIMIT ?3)
            UNION SELECT submission FROM usage WHERE submission <= coalesce(
                (SELECT submission FROM usage ORDER BY submission DESC LIMIT 1 OFFSET ?2), 0)
            ORDER BY 1 LIMIT ?3)";
        self.changed_rows(sql, params![before, kept, max])
    }
}
