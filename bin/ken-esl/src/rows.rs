//! The texts of one column of a CSV table.

use std::fmt::{self, Write};

use ken_tool::{Answer, Error};
use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};

use crate::answer::{State, name, quote, to_parts};
use crate::reading::Reading;
use crate::risk::{Level, Risk};
use crate::table::Table;
use crate::window::WordSums;

/// A text and its place in the table.
struct Row {
    /// The number of the line on which its record begins; the first line has the names of the columns.
    line: u64,
    text: String,
    reading: Reading,
    risk: Risk,
}

#[derive(Serialize)]
pub(crate) struct Rows {
    rows: Vec<Row>,
}

impl Rows {
    /// Reads each text of a column. Records without a text in it are left out.
    pub(crate) fn read(table: &str, column: &str, words: &mut WordSums) -> Result<Rows, Error> {
        let invalid = |error: csv::Error| Error::invalid("", format!("no CSV table: {error}"));
        let mut reader = csv::Reader::from_reader(table.trim_start_matches('\u{feff}').as_bytes());
        let names = reader.headers().map_err(invalid)?;
        let Some(at) = names.iter().position(|name| name.trim() == column) else {
            let names: Vec<&str> = names.iter().collect();
            return Err(Error::invalid("--csv", format!("there is no column `{column}`"))
                .hint(format!("the first line of the table names these: {}", names.join(", "))));
        };
        let mut rows = Vec::new();
        for record in reader.records() {
            let record = record.map_err(invalid)?;
            let text = record.get(at).unwrap_or_default();
            if !text.trim().is_empty() {
                let reading = Reading::of(&Table::shipped(), words, text);
                let line = record.position().map_or(0, csv::Position::line);
                rows.push(Row { line, text: text.to_owned(), reading, risk: Risk::of(text) });
            }
        }
        Ok(Rows { rows })
    }
}

impl Serialize for Row {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Row { line, text, reading, risk } = self;
        let mut row = serializer.serialize_struct("Row", 3)?;
        row.serialize_field("line", line)?;
        row.serialize_field("text", text)?;
        row.serialize_field("reading", &State { text, reading, risk })?;
        row.end()
    }
}

impl Answer for Rows {
    fn summary(&self, _verbose: bool, to: &mut dyn Write) -> fmt::Result {
        let in_danger: Vec<String> =
            self.rows.iter().filter(|row| row.risk.level >= Level::Elevated).map(|row| row.line.to_string()).collect();
        if !in_danger.is_empty() {
            let lines = in_danger.join(", ");
            writeln!(
                to,
                "These may be about harming oneself (a hint, not a judgement), please read them first: line {lines}"
            )?;
        }
        for Row { line, text, reading, .. } in &self.rows {
            let score = to_parts(reading.valence_score, 100.0);
            write!(to, "{line}: {}, {} ({score:+.2}) \"", name(reading.state()), reading.valence.name())?;
            quote(to, &text.split_whitespace().collect::<Vec<_>>().join(" "))?;
            writeln!(to)?;
        }
        Ok(())
    }
}
