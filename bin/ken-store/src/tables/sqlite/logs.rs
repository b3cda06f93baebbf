//! The streams of instances and runs, and the system's stream.

use ken_types::Error;
use serde_json::value::RawValue;

use super::Database;
use crate::tables::Logs;
use crate::tables::columns::place;
use crate::tables::sql::{Sql, params};

impl Logs for Database {
    fn insert_entries(&self, log: i64, first: u64, entries: &[Box<RawValue>]) -> Result<(), Error> {
        for (number, entry) in (first..).zip(entries) {
            self.execute(
                "INSERT INTO entries (place, body) VALUES (?1, ?2)",
                params![place(log, number), entry.get()],
            )?;
        }
        Ok(())
    }
}
