//! What the deletion of sessions for good does in the files of SQLite, and here the server does.

use ken_types::Error;

use super::Database;
use crate::tables::{Merge, Purges};

impl Purges for Database {
    /// There are no logs beside a database on a server.
    fn remove_damaged_logs(&self) {}

    /// The server itself rewrites its indexes.
    fn merge_indexes(&self, _pages: i64, _merge: Merge) -> Result<bool, Error> {
        Ok(false)
    }

    /// The pages are those of the server, whose VACUUM removes what was deleted.
    fn scrub_pages(&self, _after: i64, _max: usize) -> Result<Option<i64>, Error> {
        Ok(None)
    }
}
