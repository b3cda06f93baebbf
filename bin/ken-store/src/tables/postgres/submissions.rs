//! Submissions and their leases.

use ken_types::fence::Outside;
use ken_types::{Error, Timestamp};

use super::Database;
use crate::tables::columns::rows;
use crate::tables::sql::{Sql, all, params};
use crate::tables::{Submissions, Telemetry};

impl Submissions for Database {
    fn outside_of_stream(&self, stream: i64) -> Result<Outside, Error> {
        let sql = "SELECT DISTINCT json_array_elements_text(outside::json) AS origin FROM submissions
                   WHERE stream = ?1 AND outside IS NOT NULL";
        Ok(all(self, sql, params![stream], |row| row.get(0))?.into_iter().collect())
    }
}

impl Telemetry for Database {
    fn insert_summary(&self, submission: i64, body: &str, now: Timestamp) -> Result<(), Error> {
        let sql = "INSERT INTO telemetry (submission, settled_at, body) VALUES (?1, ?2, ?3)
                   ON CONFLICT (submission) DO UPDATE SET settled_at = ?2, body = ?3";
        self.execute(sql, params![submission, now.millis(), body])?;
        // Kept beside the summary, because sums over the summaries would read all submissions.
        let sql = "INSERT INTO usage (submission, day, model, stream, input, output, cache_read, cache_write, total, cost, duration)
                   SELECT ?1, to_char(to_timestamp(?2 / 1000) AT TIME ZONE 'UTC', 'YYYY-MM-DD'), coalesce(body ->> 'model', '-'),
                     CASE WHEN kind <> 'workflow' THEN stream END, coalesce((body #>> '{usage,input}')::bigint, 0),
                     coalesce((body #>> '{usage,output}')::bigint, 0), coalesce((body #>> '{usage,cacheRead}')::bigint, 0),
                     coalesce((body #>> '{usage,cacheWrite}')::bigint, 0), coalesce((body #>> '{usage,totalTokens}')::bigint, 0),
                     (body ->> 'cost')::double precision,
                     CASE WHEN kind <> 'workflow' THEN ?2 - round(extract(epoch FROM (body ->> 'started_at')::timestamptz) * 1000)::bigint END
                   FROM submissions, CAST(?3 AS json) AS body WHERE submission = ?1
                   ON CONFLICT (submission) DO UPDATE SET day = excluded.day, model = excluded.model, stream = excluded.stream,
                     input = excluded.input, output = excluded.output, cache_read = excluded.cache_read,
                     cache_write = excluded.cache_write, total = excluded.total, cost = excluded.cost,
                     duration = excluded.duration";
        self.execute(sql, params![submission, now.millis(), body])
    }

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
        self.changed_rows(sql, params![before.millis(), rows(kept), rows(max)])
    }
}
