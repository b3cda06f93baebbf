//! The database as a whole.

use ken_types::Error;

use super::Database;
use crate::tables::sql::{Parameter, Sql, all, params};
use crate::tables::whole::quoted;
use crate::tables::{Cell, Whole};

impl Whole for Database {
    fn columns(&self, table: &str) -> Result<Vec<String>, Error> {
        all(self, "SELECT name FROM pragma_table_info(?1) ORDER BY name", params![table], |row| row.get(0))
    }

    fn insert_rows(&self, table: &str, columns: &[String], rows: &[Vec<Cell>]) -> Result<(), Error> {
        let places: Vec<String> = (1..=columns.len()).map(|number| format!("?{number}")).collect();
        let sql = format!("INSERT INTO {table} ({}) VALUES ({})", quoted(columns), places.join(", "));
        for row in rows {
            let values: Vec<&dyn Parameter> = row.iter().map(|cell| cell as &dyn Parameter).collect();
            self.execute(&sql, &values)?;
        }
        Ok(())
    }

    fn lift_limits(&self) -> Result<(), Error> {
        Ok(())
    }

    /// The next key is one more than the highest.
    fn continue_keys(&self) -> Result<(), Error> {
        Ok(())
    }
}
