//! How the server is, for `ken doctor`.

use ken_types::Error;
use ken_types::ops::hosts::ServerHealth;

use super::Database;
use crate::tables::sql::{Row, first, params, unique};

/// A standby has no log of its own to compare with. What other roles do is seen by members of pg_monitor only.
const STANDBYS: &str = "SELECT (SELECT count(*) FROM pg_stat_replication) AS standbys,
      (current_setting('synchronous_standby_names') <> '')::int::bigint AS synchronous,
      CASE WHEN pg_is_in_recovery() THEN NULL ELSE
        (SELECT max(pg_wal_lsn_diff(pg_current_wal_lsn(), flush_lsn))::bigint FROM pg_stat_replication) END AS behind";

const DEAD_ROWS: &str = "SELECT relname::text AS name, n_live_tup AS live, n_dead_tup AS dead
    FROM pg_stat_user_tables WHERE schemaname = 'ken' ORDER BY n_dead_tup DESC, relname LIMIT 1";

/// A prepared transaction has no process.
const OLDEST: &str = "SELECT (extract(epoch FROM clock_timestamp() - begun) * 1000)::bigint AS age, whose FROM (
      SELECT xact_start AS begun, concat_ws(' ', nullif(application_name, ''), 'of ' || usename, '(pid ' || pid || ')') AS whose
        FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() AND xact_start IS NOT NULL
      UNION ALL SELECT prepared, 'the prepared transaction ' || gid FROM pg_prepared_xacts WHERE database = current_database()
    ) AS transactions ORDER BY begun LIMIT 1";

/// Stores also wait for each other, each for a moment. A prepared transaction has no process.
const BLOCKING: &str = "SELECT coalesce(concat_ws(' ', nullif(holder.application_name, ''), 'of ' || holder.usename, '(pid ' || holder.pid || ')'),
        'a prepared transaction') AS whose
    FROM pg_stat_activity AS waiting, unnest(pg_blocking_pids(waiting.pid)) AS blocking LEFT JOIN pg_stat_activity AS holder ON pid = blocking
    WHERE waiting.datname = current_database() AND waiting.usename = current_user
      AND holder.application_name IS DISTINCT FROM waiting.application_name LIMIT 1";

pub(super) fn read(database: &Database) -> Result<ServerHealth, Error> {
    let mut health = unique(database, STANDBYS, params![], standbys)?;
    let dead = |row: &dyn Row| Ok((row.get("name")?, row.get("live")?, row.get("dead")?));
    if let Some(found) = first(database, DEAD_ROWS, params![], dead)? {
        (health.table, health.live_rows, health.dead_rows) = found;
    }
    let oldest = first(database, OLDEST, params![], |row| Ok((row.get::<i64>("age")?, row.get("whose")?)))?;
    if let Some((age, whose)) = oldest {
        (health.oldest_ms, health.oldest) = (Some(u64::try_from(age).unwrap_or_default()), Some(whose));
    }
    health.blocking = first(database, BLOCKING, params![], |row| row.get("whose"))?;
    Ok(health)
}

fn standbys(row: &dyn Row) -> Result<ServerHealth, Error> {
    let behind: Option<i64> = row.get("behind")?;
    Ok(ServerHealth {
        standbys: row.get("standbys")?,
        synchronous: row.get("synchronous")?,
        behind_bytes: behind.map(|bytes| u64::try_from(bytes).unwrap_or_default()),
        ..ServerHealth::default()
    })
}
