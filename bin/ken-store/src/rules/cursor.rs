//! Cursors: opaque texts that identify a position in a list. A cursor contains a digest of its list, so that a cursor of another list is
//! recognised.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ken_types::Error;
use ken_types::ops::Page;

use crate::rules::digest;

/// The identity of a list: its kind, and everything that selects its items.
pub(crate) struct List(String);

impl List {
    pub(crate) fn named(kind: &str, parts: &[Option<&str>]) -> List {
        List(format!("{kind}.{}", digest::of(parts, 6)))
    }

    /// Returns the cursor of a position in this list.
    pub(crate) fn cursor<const N: usize>(&self, position: [i64; N]) -> String {
        let numbers: Vec<String> = position.iter().map(i64::to_string).collect();
        URL_SAFE_NO_PAD.encode(format!("{}.{}", self.0, numbers.join(".")))
    }

    /// Returns the position of a cursor. Without a cursor, returns the beginning of a list that goes from newest to oldest. Fails with
    /// `invalid` at `at` if the cursor belongs to another list.
    pub(crate) fn newest_or(&self, cursor: Option<&String>, at: &str) -> Result<i64, Error> {
        let [position] = cursor.map_or(Ok([i64::MAX]), |cursor| self.position(cursor, at))?;
        Ok(position)
    }

    /// Cuts `found` to `limit` items. If there were more, also returns the cursor of the next page.
    pub(crate) fn page<const N: usize, T>(
        &self,
        found: &mut Vec<T>,
        limit: u32,
        position: impl Fn(&T) -> [i64; N],
    ) -> Page {
        let has_more = found.len() > limit as usize;
        found.truncate(limit as usize);
        let last = found.last().filter(|_| has_more);
        Page { limit, has_more, after: last.map(|last| self.cursor(position(last))) }
    }

    /// Returns the position of a cursor. Fails with `invalid` at `at` if the cursor belongs to another list.
    pub(crate) fn position<const N: usize>(&self, cursor: &str, at: &str) -> Result<[i64; N], Error> {
        self.read(cursor).ok_or_else(|| Error::invalid(at, "this cursor was not issued for this list"))
    }

    fn read<const N: usize>(&self, cursor: &str) -> Option<[i64; N]> {
        let text = String::from_utf8(URL_SAFE_NO_PAD.decode(cursor).ok()?).ok()?;
        let numbers = text.strip_prefix(&self.0)?.strip_prefix('.')?;
        let numbers: Result<Vec<i64>, _> = numbers.split('.').map(str::parse).collect();
        numbers.ok()?.try_into().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_good_in_its_own_list_only() {
        let list = List::named("sessions", &[Some("a"), None]);
        let cursor = list.cursor([-5, 7]);
        assert_eq!(list.position(&cursor, "?after"), Ok([-5, 7]));
        for other in [
            List::named("sessions", &[None, Some("a")]),
            List::named("sessions", &[Some("a"), Some("")]),
            List::named("knowledge", &[Some("a"), None]),
        ] {
            let error = other.position::<2>(&cursor, "?after").unwrap_err();
            assert_eq!(error.at.as_deref(), Some("?after"));
        }
        assert!(list.position::<3>(&cursor, "?after").is_err());
        for garbage in ["", "Q2x", "%%%", "é", &URL_SAFE_NO_PAD.encode("sessions.1.2")] {
            assert!(list.position::<2>(garbage, "?after").is_err(), "{garbage}");
        }
    }
}
