//! Keeps the histories of recent conversations, so that the next turn of one reads only its new exchanges. The store says whether
//! its reply continues the history that is kept here; if not, the reply is the whole history.

use std::collections::HashMap;
use std::sync::Arc;

use ken_types::id::SubmissionId;
use ken_types::ops::store::ReadHistory;
use parking_lot::Mutex;

use crate::past::{Loaded, Past};

/// The maximum size of all kept histories together, in bytes: some hundred conversations of usual length. Most of those that are kept
/// have ended, and are memory without a use.
const MAX_BYTES: usize = 1024 * 1024;

/// Histories by instance.
#[derive(Debug, Clone, Default)]
pub(crate) struct Recent(Arc<Mutex<Kept>>);

#[derive(Debug, Default)]
struct Kept {
    by_instance: HashMap<String, Entry>,
    bytes: usize,
    /// Counts the uses of all histories, to find the least recently used one.
    uses: u64,
}

#[derive(Debug)]
struct Entry {
    /// The newest exchanges, at most `limit` of them, oldest first.
    past: Vec<Arc<Past>>,
    limit: u32,
    bytes: usize,
    used: u64,
}

impl Recent {
    /// Returns the id of the newest kept exchange of this conversation. `None` if no history with this limit is kept.
    pub(crate) fn newest(&self, request: &ReadHistory) -> Option<SubmissionId> {
        let kept = self.0.lock();
        let entry = kept.by_instance.get(&request.instance)?;
        let newest = entry.past.last().filter(|_| entry.limit == request.limit);
        newest.map(|newest| newest.id.clone())
    }

    /// Puts the kept exchanges before those of the store's reply, and keeps the result. Returns false if the reply continues a
    /// history that is no longer kept; the caller then has to read the whole history.
    pub(crate) fn complete(&self, request: &ReadHistory, loaded: &mut Loaded) -> bool {
        let mut kept = self.0.lock();
        let earlier = kept.take(&request.instance);
        if loaded.history.continues {
            let fits = |entry: &Entry| entry.past.last().map(|newest| &newest.id) == request.after.as_ref();
            let Some(entry) = earlier.filter(fits) else {
                return false;
            };
            let mut past = entry.past;
            past.append(&mut loaded.past);
            past.drain(..past.len().saturating_sub(request.limit as usize));
            loaded.past = past;
        }
        kept.put(request, &loaded.past);
        true
    }
}

impl Kept {
    fn take(&mut self, instance: &str) -> Option<Entry> {
        let entry = self.by_instance.remove(instance)?;
        self.bytes -= entry.bytes;
        Some(entry)
    }

    /// Keeps a history, unless it is empty or exceeds [`MAX_BYTES`]. The least recently used ones are dropped to make room.
    fn put(&mut self, request: &ReadHistory, past: &[Arc<Past>]) {
        let bytes = past.iter().map(|past| past.bytes()).sum();
        if past.is_empty() || bytes > MAX_BYTES {
            return;
        }
        while self.bytes + bytes > MAX_BYTES {
            let oldest = self.by_instance.iter().min_by_key(|(_, entry)| entry.used);
            let Some(oldest) = oldest.map(|(instance, _)| instance.clone()) else {
                break;
            };
            self.take(&oldest);
        }
        self.uses += 1;
        self.bytes += bytes;
        let entry = Entry { past: past.to_vec(), limit: request.limit, bytes, used: self.uses };
        self.by_instance.insert(request.instance.clone(), entry);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::exchange;
    use ken_types::ops::store::{History, PastExchange};

    fn past(id: u32, bytes: usize) -> PastExchange {
        exchange(&id.to_string(), &"p".repeat(bytes), "")
    }

    fn read_request(instance: &str, recent: &Recent) -> ReadHistory {
        let mut request = ReadHistory {
            instance: instance.into(),
            before: SubmissionId("next".into()),
            limit: 3,
            after: None,
            search: None,
        };
        request.after = recent.newest(&request);
        request
    }

    fn history(exchanges: impl IntoIterator<Item = PastExchange>, continues: bool) -> Loaded {
        Loaded::from(History { exchanges: exchanges.into_iter().collect(), continues, ..History::default() })
    }

    fn ids(loaded: &Loaded) -> Vec<&str> {
        loaded.past.iter().map(|past| past.id.as_str()).collect()
    }

    #[test]
    fn only_what_is_new_is_asked_for_and_the_newest_are_kept() {
        let recent = Recent::default();
        let first = read_request("i", &recent);
        assert_eq!(first.after, None);
        assert!(recent.complete(&first, &mut history([past(1, 1), past(2, 1)], false)));
        let second = read_request("i", &recent);
        assert_eq!(second.after, Some(SubmissionId("2".into())));
        let mut more = history([past(3, 1), past(4, 1)], true);
        assert!(recent.complete(&second, &mut more));
        assert_eq!(ids(&more), ["2", "3", "4"]);
        // After a compaction the store sends the whole history.
        let third = read_request("i", &recent);
        let mut anew = history([past(5, 1)], false);
        assert!(recent.complete(&third, &mut anew));
        assert_eq!(ids(&anew), ["5"]);
        assert_eq!(read_request("i", &recent).after, Some(SubmissionId("5".into())));
        // A history that was read with another limit is not used.
        let wider = ReadHistory { limit: 4, ..read_request("i", &recent) };
        assert_eq!(recent.newest(&wider), None);
    }

    #[test]
    fn a_reply_that_continues_another_history_is_not_put_behind_this_one() {
        // What is kept ends before, or after, the exchange that the reply continues.
        for kept in [vec![1], vec![1, 2, 3]] {
            let recent = Recent::default();
            let first = read_request("i", &recent);
            assert!(recent.complete(&first, &mut history(kept.iter().map(|id| past(*id, 1)), false)));
            let stale = ReadHistory { after: Some(SubmissionId("2".into())), ..read_request("i", &recent) };
            assert!(!recent.complete(&stale, &mut history([past(4, 1)], true)), "{kept:?}");
            assert_eq!(read_request("i", &recent).after, None);
        }
    }

    #[test]
    fn what_was_used_the_longest_ago_makes_room() {
        let recent = Recent::default();
        for instance in ["a", "b", "a", "c"] {
            let request = read_request(instance, &recent);
            recent.complete(&request, &mut history([past(1, MAX_BYTES / 3)], false));
        }
        let kept = |instance| read_request(instance, &recent).after.is_some();
        assert_eq!((kept("a"), kept("b"), kept("c")), (true, false, true));
        // A reply cannot be completed if the history was dropped in the meantime.
        let gone = ReadHistory { after: Some(SubmissionId("1".into())), ..read_request("b", &recent) };
        assert!(!recent.complete(&gone, &mut history([], true)));
        // A history that is larger than the maximum is not kept, and no other is dropped for it.
        let large = read_request("d", &recent);
        assert!(recent.complete(&large, &mut history([past(1, MAX_BYTES)], false)));
        assert!(!kept("d") && kept("a"));
    }

    #[test]
    fn a_history_may_fill_all_of_the_memory() {
        let without_text = Past::all(vec![past(1, 0)])[0].bytes();
        let room = MAX_BYTES - without_text;
        for (bytes, is_kept) in [(room, true), (room + 1, false)] {
            let recent = Recent::default();
            recent.complete(&read_request("i", &recent), &mut history([past(1, bytes)], false));
            assert_eq!(read_request("i", &recent).after.is_some(), is_kept, "{bytes}");
        }
        // Two that fill it together are both kept.
        let recent = Recent::default();
        for instance in ["a", "b"] {
            let bytes = MAX_BYTES / 2 - without_text;
            recent.complete(&read_request(instance, &recent), &mut history([past(1, bytes)], false));
        }
        assert!(["a", "b"].iter().all(|instance| read_request(instance, &recent).after.is_some()));
    }
}
