//! Scopes as numbers.

use ken_types::ops::store::Scope;
use rusqlite::{Connection, Row, params};

use super::fault::Done;
use super::{first, run};

fn key(scope: &Scope) -> Done<String> {
    let parts = (
        &scope.connector,
        &scope.actor_id,
        &scope.conversation_id,
        &scope.thread_id,
    );
    Ok(serde_json::to_string(&parts)?)
}

/// The number of a scope that has been seen before.
pub(super) fn find(connection: &Connection, scope: &Scope) -> Done<Option<i64>> {
    let sql = "SELECT scope FROM scopes WHERE key = ?1";
    Ok(first(connection, sql, [key(scope)?], |row| row.get(0))?)
}

/// The number of a scope.
pub(super) fn ensure(connection: &Connection, scope: &Scope) -> Done<i64> {
    if let Some(found) = find(connection, scope)? {
        return Ok(found);
    }
    let sql = "INSERT INTO scopes (key, connector, actor, conversation, thread) VALUES (?1, ?2, ?3, ?4, ?5)";
    let values = params![
        key(scope)?,
        scope.connector,
        scope.actor_id,
        scope.conversation_id,
        scope.thread_id
    ];
    run(connection, sql, values)?;
    Ok(connection.last_insert_rowid())
}

/// A scope from a row that has its columns.
pub(super) fn read(row: &Row<'_>) -> rusqlite::Result<Scope> {
    Ok(Scope {
        connector: row.get("connector")?,
        actor_id: row.get("actor")?,
        conversation_id: row.get("conversation")?,
        thread_id: row.get("thread")?,
    })
}
