//! Submissions and their leases.

use ken_types::fence::Outside;
use ken_types::{Error, Timestamp};

use super::Database;
use crate::tables::columns::rows;
use crate::tables::sql::{Sql, all, params};
use crate::tables::{Submissions, Telemetry};

impl Submissions for Database {
    fn outside_of_stream(&self, stream: i64) -> Result<Outside, Error> {
        let sql = "SELECT DISTINCT origin.value FROM submissions, json_each(outside) AS origin
                   WHERE stream = ?1 AND outside IS NOT NULL";
        Ok(all(self, sql, params![stream], |row| row.get(0))?.into_iter().collect())
    }
}

impl Telemetry for Database {
    fn insert_summary(&self, submission: i64, body: &str, now: Timestamp) -> Result<(), Error> {
        let sql = "INSERT OR REPLACE INTO telemetry (submission, settled_at, body) VALUES (?1, ?2, ?3)";
        self.execute(sql, params![submission, now.millis(), body])
    }

    fn prune_summaries(&self, before: Timestamp, kept: usize, max: usize) -> Result<usize, Error> {
        // `usage` has the same keys in far fewer pages: summaries are counted there.
        let sql = "DELETE FROM telemetry WHERE submission IN (
            SELECT * FROM (SELECT submission FROM telemetry WHERE settled_at < ?1 LIMIT ?3)
            UNION SELECT submission FROM usage WHERE submission <= coalesce(
                (SELECT submission FROM usage ORDER BY submission DESC LIMIT 1 OFFSET ?2), 0)
            ORDER BY 1 LIMIT ?3)";
        self.changed_rows(sql, params![before.millis(), rows(kept), rows(max)])
    }
}
