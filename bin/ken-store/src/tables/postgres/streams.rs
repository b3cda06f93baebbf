//! Adds entries to streams.

use ken_types::Error;
use serde_json::value::RawValue;

use super::Database;
use crate::tables::columns::place;
use crate::tables::sql::{Sql, params};
use crate::tables::{Appends, Logs};

impl Logs for Database {
    fn insert_entries(&self, log: i64, first: u64, entries: &[Box<RawValue>]) -> Result<(), Error> {
        // One statement for all of them, because each statement is a round trip.
        let sql = "INSERT INTO entries (place, body) SELECT ?1 + number - 1, body
                   FROM unnest(?2::text[]) WITH ORDINALITY AS new (body, number)";
        let bodies: Vec<String> = entries.iter().map(|entry| entry.get().to_owned()).collect();
        self.execute(sql, params![place(log, first), bodies])
    }
}

impl Appends for Database {
    fn insert_append(&self, stream: i64, number: u64, body: &[u8]) -> Result<(), Error> {
        let sql = "WITH new AS (INSERT INTO appends (body) VALUES (?2) RETURNING append)
                   INSERT INTO places (place, append) SELECT ?1, append FROM new";
        self.execute(sql, params![place(stream, number), body])
    }
}
