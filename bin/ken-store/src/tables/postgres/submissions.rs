//! Summaries of submissions.

use ken_types::{Error, Timestamp};

use super::Database;
use crate::tables::Telemetry;
use crate::tables::sql::{Sql, params};

impl Telemetry for Database {
    fn prune_summaries(&self, before: Timestamp, kept: usize, max: usize) -> Result<usize, Error> {
        // `usage` has the same keys in far fewer pages: summaries are counted there. What is kept as long as a summary goes with it.
        let sql = "WITH old AS MATERIALIZED (
              SELECT submission FROM (SELECT submission FROM telemetry WHERE settled_at < ?1 LIMIT ?3) AS aged
              UNION SELECT submission FROM usage WHERE submission <= coalesce(
                (SELECT submission FROM usage ORDER BY submission DESC LIMIT 1 OFFSET ?2), 0)
              ORDER BY 1 LIMIT ?3),
            used AS (DELETE FROM usage USING old WHERE usage.submission = old.submission),
            put_out AS (DELETE FROM outputs USING old WHERE outputs.submission = old.submission),
            found AS (DELETE FROM knowledge_uses USING old WHERE knowledge_uses.submission = old.submission)
            DELETE FROM telemetry USING old WHERE telemetry.submission = old.submission";
        self.changed_rows(sql, params![before, kept, max])
    }
}
