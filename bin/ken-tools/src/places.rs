//! Limits how many processes run at the same time, and how many of them for one session, so that no session can take
//! the places of all others.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};

pub(crate) struct Places {
    all: Semaphore,
    total: usize,
    per_session: usize,
    sessions: Mutex<HashMap<String, Arc<Semaphore>>>,
}

impl Places {
    pub(crate) fn new(total: usize, per_session: usize) -> Places {
        Places { all: Semaphore::new(total), total, per_session, sessions: Mutex::default() }
    }

    pub(crate) fn taken(&self) -> usize {
        self.total - self.all.available_permits()
    }

    /// Waits for a place. Calls without a session share the places of one.
    pub(crate) async fn take(&self, session: Option<&str>) -> Place<'_> {
        let session = self.session(session.unwrap_or_default());
        // First a place of the session: its waiting calls must not stand in the queue for the places of all.
        // Neither wait can fail, because the semaphores are never closed.
        let own = Arc::clone(&session.places).acquire_owned().await.ok();
        let all = self.all.acquire().await.ok();
        Place { _own: own, _all: all, _session: session }
    }

    fn session(&self, name: &str) -> Session<'_> {
        let mut sessions = self.sessions.lock();
        let places = sessions.entry(name.to_owned()).or_insert_with(|| Arc::new(Semaphore::new(self.per_session)));
        Session { of: self, name: name.to_owned(), places: Arc::clone(places) }
    }
}

/// A place. It is free again when this is dropped.
pub(crate) struct Place<'a> {
    // The permits are dropped before the session, which then knows whether it is the last one.
    _own: Option<OwnedSemaphorePermit>,
    _all: Option<SemaphorePermit<'a>>,
    _session: Session<'a>,
}

/// The session of a call that runs or waits. The last one removes the session from the map.
struct Session<'a> {
    of: &'a Places,
    name: String,
    places: Arc<Semaphore>,
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        let mut sessions = self.of.sessions.lock();
        // Two remain: this one and the map's.
        if Arc::strong_count(&self.places) == 2 {
            sessions.remove(&self.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_session_takes_only_its_share_and_leaves_nothing_behind() {
        let places = Places::new(3, 2);
        let (first, second) = (places.take(Some("a")).await, places.take(Some("a")).await);
        let third = tokio::time::timeout(std::time::Duration::from_millis(20), places.take(Some("a")));
        assert!(third.await.is_err());
        let other = places.take(Some("b")).await;
        assert_eq!((places.taken(), places.sessions.lock().len()), (3, 2));
        drop((first, other));
        assert_eq!((places.taken(), places.sessions.lock().len()), (1, 1));
        let third = places.take(Some("a")).await;
        drop((second, third));
        assert_eq!((places.taken(), places.sessions.lock().len()), (0, 0));
    }
}
