//! The streams of instances and runs, and the system's stream.

use ken_types::Error;
use serde_json::value::RawValue;

use super::{Database, fault};
use crate::tables::Logs;
use crate::tables::columns::place;

impl Logs for Database {
    fn insert_entries(&self, log: i64, first: u64, entries: &[Box<RawValue>]) -> Result<(), Error> {
        let sql = "INSERT INTO entries (place, body) VALUES (?1, ?2)";
        let mut insert = self.0.prepare_cached(sql).map_err(fault::error)?;
        for (number, entry) in (first..).zip(entries) {
            insert.execute((place(log, number), entry.get())).map_err(fault::error)?;
        }
        Ok(())
    }
}
