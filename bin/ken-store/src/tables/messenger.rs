//! The tables of the messaging connector: updates, allowed users and groups, and pairing codes. Also the counters.

use ken_types::ops::messenger::{AllowedUser, BusyChat, Group, Pairing, UpdateRecord};
use ken_types::ops::store::State;
use ken_types::{Error, Timestamp};

use super::Tables;
use super::columns::{stored, to_json};
use super::sql::{Row, all, first, params, unique};

/// Counters, which never decrease, and single values. Both have names.
impl dyn Tables + '_ {
    pub fn count_up(&self, name: &str) -> Result<(), Error> {
        let sql = "INSERT INTO counters (name, value) VALUES (?1, 1)
                   ON CONFLICT (name) DO UPDATE SET value = counters.value + 1";
        self.execute(sql, params![name])
    }

    /// Returns the counters whose names begin with `prefix`, without the prefix.
    pub fn counters(&self, prefix: &str) -> Result<Vec<(String, u64)>, Error> {
        let sql = "SELECT substr(name, length(?1) + 1) AS name, value FROM counters
                   WHERE substr(name, 1, length(?1)) = ?1";
        all(self, sql, params![prefix], |row| Ok((row.get("name")?, row.get("value")?)))
    }

    pub fn stored_value(&self, name: &str) -> Result<Option<String>, Error> {
        first(self, "SELECT value FROM facts WHERE name = ?1", params![name], |row| row.get(0))
    }

    pub fn set_stored_value(&self, name: &str, value: &str) -> Result<(), Error> {
        let sql = "INSERT INTO facts (name, value) VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET value = ?2";
        self.execute(sql, params![name, value])
    }

    pub fn remove_stored_value(&self, name: &str) -> Result<(), Error> {
        self.execute("DELETE FROM facts WHERE name = ?1", params![name])
    }
}

#[derive(Debug, Clone, Copy)]
pub struct NewUpdate<'a> {
    pub id: i64,
    pub kind: &'a str,
    pub sender: Option<&'a str>,
    pub chat: Option<&'a str>,
    pub verdict: &'a str,
    pub reason: Option<&'a str>,
    /// The pairing code that the sender got.
    pub code: Option<&'a str>,
}

/// A pairing code and its state: `pending`, `approved` or `denied`.
#[derive(Debug, Clone)]
pub struct PairingRow {
    pub pairing: Pairing,
    pub state: String,
}

impl dyn Tables + '_ {
    /// Returns the pairing code that belongs to an update, if there is one. The outer `None` means that the update is unknown.
    pub fn update(&self, id: i64) -> Result<Option<Option<String>>, Error> {
        first(self, "SELECT code FROM updates WHERE id = ?1", params![id], |row| row.get(0))
    }

    pub fn update_record(&self, id: i64) -> Result<Option<UpdateRecord>, Error> {
        first(self, "SELECT * FROM updates WHERE id = ?1", params![id], update)
    }

    pub fn insert_update(&self, update: &NewUpdate<'_>, now: Timestamp) -> Result<(), Error> {
        let sql = "INSERT INTO updates (id, at, kind, sender, chat, verdict, reason, code)
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
        let NewUpdate { id, kind, sender, chat, verdict, reason, code } = *update;
        self.execute(sql, params![id, now, kind, sender, chat, verdict, reason, code])
    }

    /// Returns updates, newest first.
    pub fn updates(&self, unanswered: bool, limit: u32) -> Result<Vec<UpdateRecord>, Error> {
        let sql = "SELECT * FROM updates WHERE ?1 = 0 OR verdict IN ('ignored', 'rejected') ORDER BY at DESC, id DESC LIMIT ?2";
        all(self, sql, params![unanswered, limit], update)
    }

    /// Deletes at most `max` updates that are older than a time. Returns how many were deleted.
    pub fn prune_updates(&self, before: Timestamp, max: usize) -> Result<usize, Error> {
        let sql = "DELETE FROM updates WHERE id IN (SELECT id FROM updates WHERE at < ?1 LIMIT ?2)";
        self.changed_rows(sql, params![before, max])
    }

    pub fn allowed_user(&self, id: &str) -> Result<Option<AllowedUser>, Error> {
        first(self, r#"SELECT * FROM allowed_users WHERE "user" = ?1"#, params![id], user)
    }

    /// Returns the users in the order in which they were added.
    pub fn allowed_users(&self) -> Result<Vec<AllowedUser>, Error> {
        all(self, "SELECT * FROM allowed_users ORDER BY number", params![], user)
    }

    pub fn put_allowed_user(&self, user: &str, chat: &str, now: Timestamp) -> Result<(), Error> {
        let sql = r#"INSERT INTO allowed_users ("user", chat, added_at) VALUES (?1, ?2, ?3)
                   ON CONFLICT ("user") DO UPDATE SET chat = excluded.chat"#;
        self.execute(sql, params![user, chat, now])
    }

    pub fn delete_allowed_user(&self, user: &str) -> Result<(), Error> {
        self.execute(r#"DELETE FROM allowed_users WHERE "user" = ?1"#, params![user])
    }

    pub fn group(&self, id: &str) -> Result<Option<Group>, Error> {
        first(self, "SELECT * FROM chat_groups WHERE id = ?1", params![id], group)
    }

    pub fn groups(&self) -> Result<Vec<Group>, Error> {
        all(self, "SELECT * FROM chat_groups ORDER BY id", params![], group)
    }

    pub fn put_group(&self, group: &Group) -> Result<(), Error> {
        let sql = "INSERT INTO chat_groups (id, require_mention, allow_from) VALUES (?1, ?2, ?3)
                   ON CONFLICT (id) DO UPDATE SET require_mention = ?2, allow_from = ?3";
        let values = params![group.group_id, group.require_mention, to_json(&group.allow_from)?];
        self.execute(sql, values)
    }

    /// Deletes a group. Returns false if there was none with this id.
    pub fn delete_group(&self, id: &str) -> Result<bool, Error> {
        Ok(self.changed_rows("DELETE FROM chat_groups WHERE id = ?1", params![id])? > 0)
    }

    pub fn pairing(&self, code: &str) -> Result<Option<PairingRow>, Error> {
        first(self, "SELECT * FROM pairings WHERE code = ?1", params![code], |row| {
            Ok(PairingRow { pairing: pairing(row)?, state: row.get("state")? })
        })
    }

    /// Returns the undecided codes that are still valid at the time `beyond`, oldest first.
    pub fn pending_pairings(&self, beyond: Timestamp) -> Result<Vec<Pairing>, Error> {
        let sql = "SELECT * FROM pairings WHERE state = 'pending' AND expires_at > ?1 ORDER BY pairing";
        all(self, sql, params![beyond], pairing)
    }

    pub fn pairings_since(&self, then: Timestamp) -> Result<u64, Error> {
        let sql = "SELECT count(*) AS number FROM pairings WHERE created_at > ?1";
        unique(self, sql, params![then], |row| row.get("number"))
    }

    pub fn insert_pairing(&self, pairing: &Pairing) -> Result<(), Error> {
        let sql = "INSERT INTO pairings (code, sender, chat, replies, created_at, expires_at)
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
        let Pairing { code, sender_id, chat_id, created_at, expires_at, replies } = pairing;
        self.execute(sql, params![code, sender_id, chat_id, replies, created_at, expires_at])
    }

    pub fn count_pairing_reply(&self, code: &str) -> Result<(), Error> {
        let sql = "UPDATE pairings SET replies = replies + 1 WHERE code = ?1";
        self.execute(sql, params![code])
    }

    pub fn set_pairing_state(&self, code: &str, state: &str) -> Result<(), Error> {
        self.execute("UPDATE pairings SET state = ?2 WHERE code = ?1", params![code, state])
    }

    /// Returns the chats that have sent a prompt whose turn is in this state.
    pub fn busy_chats(&self, state: State) -> Result<Vec<BusyChat>, Error> {
        let sql = "SELECT DISTINCT c.conversation, c.thread
                   FROM submissions AS s JOIN events AS e USING (event) JOIN scopes AS c ON c.scope = e.scope
                   WHERE s.live = 1 AND s.state = ?1 AND substr(e.id, 1, 10) = 'messenger:'";
        all(self, sql, params![state.name()], |row| {
            Ok(BusyChat { chat_id: row.get("conversation")?, thread_id: row.get("thread")? })
        })
    }
}

fn user(row: &dyn Row) -> Result<AllowedUser, Error> {
    Ok(AllowedUser { user_id: row.get("user")?, chat_id: row.get("chat")?, added_at: row.get("added_at")? })
}

fn group(row: &dyn Row) -> Result<Group, Error> {
    Ok(Group {
        group_id: row.get("id")?,
        require_mention: row.get("require_mention")?,
        allow_from: stored(row, "allow_from")?.unwrap_or_default(),
    })
}

fn pairing(row: &dyn Row) -> Result<Pairing, Error> {
    Ok(Pairing {
        code: row.get("code")?,
        sender_id: row.get("sender")?,
        chat_id: row.get("chat")?,
        created_at: row.get("created_at")?,
        expires_at: row.get("expires_at")?,
        replies: row.get("replies")?,
    })
}

fn update(row: &dyn Row) -> Result<UpdateRecord, Error> {
    Ok(UpdateRecord {
        update_id: row.get("id")?,
        at: row.get("at")?,
        kind: row.get("kind")?,
        sender_id: row.get("sender")?,
        chat_id: row.get("chat")?,
        verdict: row.get("verdict")?,
        reason: row.get("reason")?,
    })
}
