//! Adds entries to streams.

use ken_types::Error;
use serde_json::value::RawValue;

use super::{Database, fault};
use crate::tables::columns::place;
use crate::tables::sql::{Sql, params};
use crate::tables::{Appends, Logs};

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

impl Appends for Database {
    fn insert_append(&self, stream: i64, number: u64, body: &[u8]) -> Result<(), Error> {
        let key = self.insert("INSERT INTO appends (body) VALUES (?1)", "append", params![body])?;
        let sql = "INSERT INTO places (place, append) VALUES (?1, ?2)";
        self.execute(sql, params![place(stream, number), key])
    }
}
