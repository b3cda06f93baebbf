//! The streams of instances and runs, and the system's stream.

use ken_types::Error;
use serde_json::value::RawValue;

use super::Database;
use crate::tables::Logs;
use crate::tables::columns::place;
use crate::tables::sql::{Sql, params};

impl Logs for Database {
    fn insert_entries(&self, log: i64, first: u64, entries: &[Box<RawValue>]) -> Result<(), Error> {
        // One statement for all of them, because each statement is a round trip.
        let sql = "INSERT INTO entries (place, body) SELECT ?1 + number - 1, body
                   FROM unnest(?2::text[]) WITH ORDINALITY AS new (body, number)";
        let bodies: Vec<String> = entries.iter().map(|entry| entry.get().to_owned()).collect();
        self.execute(sql, params![place(log, first), bodies])
    }
}
