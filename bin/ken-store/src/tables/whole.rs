//! The database as a whole.

use ken_types::Error;

use super::Tables;
use super::sql::{Content, Parameter, Row, Sql, Value, params};

/// The value of a column, when whole tables are copied.
#[derive(Debug, Clone, PartialEq)]
pub enum Cell {
    Null,
    Whole(i64),
    Real(f64),
    Text(String),
    Bytes(Vec<u8>),
}

impl Parameter for Cell {
    fn value(&self) -> Value<'_> {
        match self {
            // The type is that of a whole number, which only SQLite does not mind.
            Cell::Null => Value::Whole(None),
            Cell::Whole(number) => Value::Whole(Some(*number)),
            Cell::Real(number) => Value::Real(Some(*number)),
            Cell::Text(text) => Value::Text(Some(text)),
            Cell::Bytes(bytes) => Value::Bytes(Some(bytes)),
        }
    }
}

fn cell(row: &dyn Row, column: usize) -> Result<Cell, Error> {
    Ok(match row.content(column.into())? {
        Content::Null => Cell::Null,
        Content::Whole(number) => Cell::Whole(number),
        Content::Real(number) => Cell::Real(number),
        Content::Text(text) => Cell::Text(text.to_owned()),
        Content::Bytes(bytes) => Cell::Bytes(bytes.to_owned()),
    })
}

/// How many rows are fetched at a time. A row can have a piece of a blob, of up to 1 MiB.
const ROWS: u32 = 32;

/// The database as a whole, to be copied into one of another kind. The names of tables and columns are those of the schema.
pub trait Whole: Sql {
    /// Returns the names of the columns of a table, in alphabetical order.
    fn columns(&self, table: &str) -> Result<Vec<String>, Error>;

    /// Inserts rows. Their number is limited by the caller.
    fn insert_rows(&self, table: &str, columns: &[String], rows: &[Vec<Cell>]) -> Result<(), Error>;

    /// Takes the limits on time from this transaction: a copy waits for the other database as long as that takes.
    fn lift_limits(&self) -> Result<(), Error>;

    /// Makes the keys of later rows follow those that were inserted with their keys.
    fn continue_keys(&self) -> Result<(), Error>;
}

impl dyn Tables + '_ {
    /// Calls `see` with each row of a table, in the order of these columns.
    pub fn each_row(
        &self,
        table: &str,
        columns: &[String],
        order: &str,
        see: &mut dyn FnMut(Vec<Cell>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let sql = format!("SELECT {} FROM {table} ORDER BY {order}", quoted(columns));
        let seen = self.query(&sql, params![], Some(ROWS), &mut |row| {
            let cells: Result<Vec<Cell>, Error> = (0..columns.len()).map(|column| cell(row, column)).collect();
            see(cells?).map(|()| true)
        });
        seen.map(drop)
    }

    /// Deletes all rows of a table.
    pub fn clear(&self, table: &str) -> Result<(), Error> {
        self.execute(&format!("DELETE FROM {table}"), params![])
    }
}

pub(super) fn quoted(columns: &[String]) -> String {
    let quoted: Vec<String> = columns.iter().map(|column| format!("\"{column}\"")).collect();
    quoted.join(", ")
}
