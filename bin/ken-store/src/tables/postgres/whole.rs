//! The database as a whole.

use ken_types::Error;
use tokio_postgres::types::Type;

use super::values::{Parameter, Row, Value, params};
use super::{Database, all, each, fault, run};
use crate::tables::{Cell, Index, Whole};

/// How many rows are fetched at a time. A row can have a piece of a blob, of up to 1 MiB.
const ROWS: u32 = 32;

impl Parameter for Cell {
    fn value(&self) -> Value<'_> {
        match self {
            Cell::Null => Value::Whole(None),
            Cell::Whole(number) => Value::Whole(Some(*number)),
            Cell::Real(number) => Value::Real(Some(*number)),
            Cell::Text(text) => Value::Text(Some(text)),
            Cell::Bytes(bytes) => Value::Bytes(Some(bytes)),
        }
    }
}

fn cell(row: &Row, column: usize) -> Result<Cell, Error> {
    let of_type = row.0.columns().get(column).map(|column| column.type_().clone());
    let read = || -> Result<Option<Cell>, tokio_postgres::Error> {
        Ok(match of_type {
            Some(Type::INT8) => row.0.try_get::<_, Option<i64>>(column)?.map(Cell::Whole),
            Some(Type::FLOAT8) => row.0.try_get::<_, Option<f64>>(column)?.map(Cell::Real),
            Some(Type::BYTEA) => row.0.try_get::<_, Option<Vec<u8>>>(column)?.map(Cell::Bytes),
            _ => row.0.try_get::<_, Option<String>>(column)?.map(Cell::Text),
        })
    };
    let cell = read().map_err(|error| fault::unreadable(&column, &error))?;
    Ok(cell.unwrap_or(Cell::Null))
}

fn quoted(columns: &[String]) -> String {
    let quoted: Vec<String> = columns.iter().map(|column| format!("\"{column}\"")).collect();
    quoted.join(", ")
}

impl Whole for Database {
    fn columns(&self, table: &str) -> Result<Vec<String>, Error> {
        let sql = "SELECT column_name::text AS name FROM information_schema.columns
                   WHERE table_schema = 'ken' AND table_name = $1 ORDER BY column_name::text COLLATE \"C\"";
        all(self, sql, params![table], |row| row.get("name"))
    }

    fn each_row(
        &self,
        table: &str,
        columns: &[String],
        order: &str,
        see: &mut dyn FnMut(Vec<Cell>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let sql = format!("SELECT {} FROM {table} ORDER BY {order}", quoted(columns));
        let seen = each(self, &sql, params![], ROWS, &mut |row| {
            let cells: Result<Vec<Cell>, Error> = (0..columns.len()).map(|column| cell(row, column)).collect();
            see(cells?).map(|()| true)
        });
        seen.map(drop)
    }

    fn insert_rows(&self, table: &str, columns: &[String], rows: &[Vec<Cell>]) -> Result<(), Error> {
        let mut values: Vec<&dyn Parameter> = Vec::new();
        let mut tuples = Vec::with_capacity(rows.len());
        for row in rows {
            let mut places = Vec::with_capacity(row.len());
            for cell in row {
                // NULL is written as a word, because a parameter would need the type of its column.
                if *cell == Cell::Null {
                    places.push("NULL".to_owned());
                } else {
                    values.push(cell);
                    places.push(format!("${}", values.len()));
                }
            }
            tuples.push(format!("({})", places.join(", ")));
        }
        let sql = format!("INSERT INTO {table} ({}) VALUES {}", quoted(columns), tuples.join(", "));
        run(self, &sql, &values).map(drop)
    }

    fn clear(&self, table: &str) -> Result<(), Error> {
        run(self, &format!("DELETE FROM {table}"), params![]).map(drop)
    }

    fn indexed(&self, index: Index) -> Result<Vec<i64>, Error> {
        let sql = match index {
            Index::Knowledge => "SELECT entry FROM knowledge_index ORDER BY entry",
            Index::Memory => "SELECT submission FROM memory_index ORDER BY submission",
        };
        all(self, sql, params![], |row| row.get(0))
    }

    fn continue_keys(&self) -> Result<(), Error> {
        let sql = "SELECT table_name::text AS name, column_name::text AS key FROM information_schema.columns
                   WHERE table_schema = 'ken' AND is_identity = 'YES'";
        for (table, key) in
            all(self, sql, params![], |row| Ok((row.get::<String>("name")?, row.get::<String>("key")?)))?
        {
            let sql = format!(
                "SELECT setval(pg_get_serial_sequence('ken.{table}', '{key}'), greatest((SELECT max(\"{key}\") FROM {table}), 1),
                   EXISTS (SELECT 1 FROM {table}))"
            );
            all(self, &sql, params![], |_| Ok(()))?;
        }
        Ok(())
    }
}
