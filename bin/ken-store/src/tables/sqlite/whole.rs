//! The database as a whole.

use ken_types::Error;
use rusqlite::types::{ToSqlOutput, Value, ValueRef};
use rusqlite::{Row, ToSql, params_from_iter};

use super::{Database, all, fault, run, statement};
use crate::tables::{Cell, Index, Whole};

impl ToSql for Cell {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(match self {
            Cell::Null => ToSqlOutput::Owned(Value::Null),
            Cell::Whole(number) => ToSqlOutput::Owned(Value::Integer(*number)),
            Cell::Real(number) => ToSqlOutput::Owned(Value::Real(*number)),
            Cell::Text(text) => ToSqlOutput::Borrowed(ValueRef::Text(text.as_bytes())),
            Cell::Bytes(bytes) => ToSqlOutput::Borrowed(ValueRef::Blob(bytes)),
        })
    }
}

fn cell(row: &Row<'_>, column: usize) -> rusqlite::Result<Cell> {
    Ok(match row.get_ref(column)? {
        ValueRef::Null => Cell::Null,
        ValueRef::Integer(number) => Cell::Whole(number),
        ValueRef::Real(number) => Cell::Real(number),
        ValueRef::Text(_) => Cell::Text(row.get(column)?),
        ValueRef::Blob(bytes) => Cell::Bytes(bytes.to_vec()),
    })
}

fn quoted(columns: &[String]) -> String {
    let quoted: Vec<String> = columns.iter().map(|column| format!("\"{column}\"")).collect();
    quoted.join(", ")
}

impl Whole for Database {
    fn columns(&self, table: &str) -> Result<Vec<String>, Error> {
        all(self, "SELECT name FROM pragma_table_info(?1) ORDER BY name", [table], |row| row.get(0))
    }

    fn each_row(
        &self,
        table: &str,
        columns: &[String],
        order: &str,
        see: &mut dyn FnMut(Vec<Cell>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let sql = format!("SELECT {} FROM {table} ORDER BY {order}", quoted(columns));
        let mut select = self.0.prepare(&sql).map_err(fault::error)?;
        let mut rows = select.query([]).map_err(fault::error)?;
        while let Some(row) = rows.next().map_err(fault::error)? {
            let cells: rusqlite::Result<Vec<Cell>> = (0..columns.len()).map(|column| cell(row, column)).collect();
            see(cells.map_err(fault::error)?)?;
        }
        Ok(())
    }

    fn insert_rows(&self, table: &str, columns: &[String], rows: &[Vec<Cell>]) -> Result<(), Error> {
        let places = vec!["?"; columns.len()].join(", ");
        // A trigger may have made a row of `usage` from the summary that was inserted before it.
        let sql = format!("INSERT OR REPLACE INTO {table} ({}) VALUES ({places})", quoted(columns));
        statement(self, &sql, |insert| rows.iter().try_for_each(|row| insert.execute(params_from_iter(row)).map(drop)))
    }

    fn clear(&self, table: &str) -> Result<(), Error> {
        run(self, &format!("DELETE FROM {table}"), []).map(drop)
    }

    fn indexed(&self, index: Index) -> Result<Vec<i64>, Error> {
        let sql = match index {
            Index::Knowledge => "SELECT rowid FROM knowledge_index ORDER BY rowid",
            Index::Memory => "SELECT rowid FROM memory_index ORDER BY rowid",
        };
        all(self, sql, [], |row| row.get(0))
    }

    /// The next key is one more than the highest.
    fn continue_keys(&self) -> Result<(), Error> {
        Ok(())
    }
}
