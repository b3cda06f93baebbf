//! The last responses of each session, kept in limited memory until the process ends. Runs (ken-workflow(1)) and the
//! audit log are durable.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use ken_types::Error;
use parking_lot::Mutex;

use crate::keys::{Owner, Role};

#[derive(Default)]
pub(crate) struct Sessions(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    by_id: HashMap<String, Session>,
    /// Session ids by last use, oldest first.
    by_use: BTreeMap<u64, String>,
    uses: u64,
    bytes: usize,
}

struct Session {
    owner: Arc<str>,
    used: u64,
    entries: VecDeque<Bytes>,
}

/// The maximum numbers of sessions, of entries per session, and of bytes of all sessions. If one is exceeded, the least
/// recently used session is removed first.
const MAX_SESSIONS: usize = 1_000;
const MAX_ENTRIES: usize = 50;
const MAX_BYTES: usize = 2 << 20;

impl Sessions {
    /// Creates a session, or checks that an existing one belongs to the caller.
    pub(crate) fn claim(&self, id: &str, user_id: &str) -> Result<(), Error> {
        let mut kept = self.0.lock();
        match kept.by_id.get(id) {
            Some(session) if &*session.owner != user_id => {
                Err(Error::forbidden("this session belongs to another user").at("/session_id"))
            }
            Some(_) => {
                kept.touch(id);
                Ok(())
            }
            None => {
                kept.insert(id, user_id);
                kept.make_room();
                Ok(())
            }
        }
    }

    /// Adds a JSON entry. A session that has been removed in the meantime is created again, unless another user has it now.
    pub(crate) fn record(&self, id: &str, user_id: &str, entry: Bytes) {
        let mut kept = self.0.lock();
        match kept.by_id.get(id) {
            Some(session) if &*session.owner != user_id => return,
            Some(_) => kept.touch(id),
            None => kept.insert(id, user_id),
        }
        kept.push(id, entry);
        kept.make_room();
    }

    /// Returns the entries, oldest first, to the owner and to admins. Returns `None` for other callers.
    pub(crate) fn history(&self, id: &str, caller: &Owner) -> Option<Vec<Bytes>> {
        let kept = self.0.lock();
        let session = kept.by_id.get(id)?;
        let may_see = session.owner == caller.user_id || caller.role == Role::Admin;
        may_see.then(|| session.entries.iter().cloned().collect())
    }

    /// Removes the sessions of a user, whose name may become that of somebody else.
    pub(crate) fn forget(&self, user_id: &str) {
        let mut kept = self.0.lock();
        let of_user = kept.by_id.iter().filter(|(_, session)| &*session.owner == user_id);
        let ids: Vec<String> = of_user.map(|(id, _)| id.clone()).collect();
        for id in ids {
            kept.remove(&id);
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.0.lock().by_id.len()
    }
}

impl Kept {
    fn insert(&mut self, id: &str, user_id: &str) {
        self.uses += 1;
        self.by_use.insert(self.uses, id.to_owned());
        let session = Session { owner: user_id.into(), used: self.uses, entries: VecDeque::new() };
        self.by_id.insert(id.to_owned(), session);
        self.bytes += id.len();
    }

    fn touch(&mut self, id: &str) {
        self.uses += 1;
        if let Some(session) = self.by_id.get_mut(id) {
            self.by_use.remove(&session.used);
            session.used = self.uses;
            self.by_use.insert(self.uses, id.to_owned());
        }
    }

    fn push(&mut self, id: &str, entry: Bytes) {
        let Some(session) = self.by_id.get_mut(id) else {
            return;
        };
        self.bytes += entry.len();
        session.entries.push_back(entry);
        if session.entries.len() > MAX_ENTRIES {
            self.bytes -= session.entries.pop_front().map_or(0, |entry| entry.len());
        }
    }

    fn make_room(&mut self) {
        while self.by_id.len() > MAX_SESSIONS || self.bytes > MAX_BYTES {
            let Some((_, id)) = self.by_use.pop_first() else {
                return;
            };
            self.remove(&id);
        }
    }

    fn remove(&mut self, id: &str) {
        if let Some(session) = self.by_id.remove(id) {
            self.by_use.remove(&session.used);
            self.bytes -= id.len() + session.entries.iter().map(Bytes::len).sum::<usize>();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_sessions_is_bounded_and_the_oldest_is_removed() {
        let sessions = Sessions::default();
        let anna = Owner { user_id: "anna".into(), role: Role::User, digest: [0; 32] };
        for n in 0..60u8 {
            sessions.record("first", "anna", Bytes::from(vec![n]));
        }
        let history = sessions.history("first", &anna).unwrap();
        assert_eq!((history.len(), history[0][0], history[49][0]), (50, 10, 59));
        for n in 0..1_000 {
            sessions.claim(&format!("s{n}"), "anna").unwrap();
        }
        assert_eq!(sessions.count(), 1_000);
        assert_eq!(sessions.history("first", &anna), None);
        sessions.claim("s0", "anna").unwrap();
        sessions.record("big", "anna", Bytes::from(vec![0; MAX_BYTES - 100]));
        assert!(sessions.count() < 100, "{}", sessions.count());
        assert!(sessions.history("s0", &anna).is_some(), "used last");
        sessions.claim("berta's", "berta").unwrap();
        // The answer to a call of anna, whose session was removed meanwhile.
        sessions.record("berta's", "anna", Bytes::from_static(b"{}"));
        let berta = Owner { user_id: "berta".into(), ..anna };
        assert_eq!(sessions.history("berta's", &berta), Some(Vec::new()));
        sessions.forget("anna");
        assert_eq!(sessions.count(), 1);
        let kept = sessions.0.lock();
        let bytes: usize =
            kept.by_id.iter().map(|(id, one)| id.len() + one.entries.iter().map(Bytes::len).sum::<usize>()).sum();
        assert_eq!((kept.bytes, kept.by_use.len()), (bytes, kept.by_id.len()));
    }
}
