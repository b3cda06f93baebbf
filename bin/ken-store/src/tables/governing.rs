//! The governing rules of users.

use ken_types::ops::rules::StoredRule;
use ken_types::{Error, Timestamp};
use serde_json::Value;

use super::Tables;
use super::columns::{stored, to_json};
use super::sql::{all, params};

/// The governing rules that users have written, by name. A rule is stored as JSON.
impl dyn Tables + '_ {
    pub fn put_rule(&self, name: &str, rule: &Value, now: Timestamp) -> Result<(), Error> {
        let sql = "INSERT INTO governing_rules (name, rule, created_at, updated_at) VALUES (?1, ?2, ?3, ?3)
                   ON CONFLICT (name) DO UPDATE SET rule = excluded.rule, updated_at = excluded.updated_at";
        self.execute(sql, params![name, to_json(rule)?, now])
    }

    /// Returns all rules, or only the enabled ones, in the order of their names.
    pub fn governing_rules(&self, only_enabled: bool) -> Result<Vec<StoredRule>, Error> {
        let sql = "SELECT * FROM governing_rules WHERE enabled = 1 OR ?1 = 0 ORDER BY name";
        all(self, sql, params![only_enabled], |row| {
            Ok(StoredRule {
                name: row.get("name")?,
                rule: stored(row, "rule")?.unwrap_or_default(),
                enabled: row.get("enabled")?,
                created_at: row.get("created_at")?,
                updated_at: row.get("updated_at")?,
            })
        })
    }

    /// Enables or disables a rule. Returns false if there is none with this name.
    pub fn switch_rule(&self, name: &str, enabled: bool, now: Timestamp) -> Result<bool, Error> {
        let sql = "UPDATE governing_rules SET enabled = ?2, updated_at = ?3 WHERE name = ?1";
        Ok(self.changed_rows(sql, params![name, enabled, now])? > 0)
    }

    pub fn delete_rule(&self, name: &str) -> Result<bool, Error> {
        Ok(self.changed_rows("DELETE FROM governing_rules WHERE name = ?1", params![name])? > 0)
    }
}
