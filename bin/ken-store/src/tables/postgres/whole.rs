//! The database as a whole.

use ken_types::Error;

use super::Database;
use crate::tables::sql::{Parameter, Sql, all, params};
use crate::tables::whole::quoted;
use crate::tables::{Cell, Whole};

impl Whole for Database {
    fn columns(&self, table: &str) -> Result<Vec<String>, Error> {
        // A file has no hosts.
        let sql = "SELECT column_name::text AS name FROM information_schema.columns
                   WHERE table_schema = 'ken' AND table_name = ?1 AND column_name NOT IN ('holder', 'home') ORDER BY column_name::text COLLATE \"C\"";
        all(self, sql, params![table], |row| row.get("name"))
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
                    places.push(format!("?{}", values.len()));
                }
            }
            tuples.push(format!("({})", places.join(", ")));
        }
        let sql = format!("INSERT INTO {table} ({}) VALUES {}", quoted(columns), tuples.join(", "));
        self.execute(&sql, &values)
    }

    /// No other host works meanwhile, so that none is kept waiting.
    fn lift_limits(&self) -> Result<(), Error> {
        self.session.borrow_mut().wait_long(true);
        self.execute("SET LOCAL idle_in_transaction_session_timeout = 0", params![])?;
        self.execute("SET LOCAL statement_timeout = 0", params![])
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
