//! Who waits for what. A waiter subscribes, reads, and when there was nothing yet waits for news; the writer spreads
//! them after each commit. News carry what was written, so that a reader at the end of a stream needs no other look at
//! the database. Whoever misses a piece is told that only, and reads again: what is stored is the truth.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ken_types::Error;
use ken_types::id::SubmissionId;
use ken_types::ops::store::Standing;
use tokio::sync::{Notify, watch};

use crate::backend::NewEntries;

/// Waiters at once. The wire allows 256 connections of 64 calls; a store that is waited for by more is ill-used.
const WAITERS: usize = 16_384;
const RETRY_MS: u64 = 1_000;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Topic {
    Stream(String),
    Submission(SubmissionId),
}

#[derive(Debug, Clone)]
pub(crate) enum News {
    Entries(Arc<NewEntries>),
    Stands(Arc<Standing>),
    /// More happened than one piece of news can tell.
    Missed,
}

/// Whether the store does its work.
#[derive(Debug, Clone, Default)]
pub(crate) enum Condition {
    #[default]
    Working,
    /// Nothing can be written at the moment, for this reason.
    Failing(Error),
    /// Whoever waits is sent away.
    Stopping,
}

#[derive(Default)]
pub(crate) struct Watch {
    waiting: Mutex<Waiting>,
    condition: watch::Sender<Condition>,
}

#[derive(Default)]
struct Waiting {
    topics: HashMap<Topic, Vec<Arc<Slot>>>,
    count: usize,
}

/// What a waiter has not seen yet.
#[derive(Default)]
struct Slot {
    news: Mutex<Option<News>>,
    told: Notify,
}

/// What a call hears that a stopping store does not finish.
pub(crate) fn stopping() -> Error {
    Error::unavailable("the store is stopping")
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Watch {
    /// Everything that is spread from here on reaches the subscription, until it is dropped.
    pub(crate) fn subscribe(self: &Arc<Watch>, topic: Topic) -> Result<Subscription, Error> {
        let slot = Arc::new(Slot::default());
        let mut waiting = lock(&self.waiting);
        if waiting.count >= WAITERS {
            let message = format!("{WAITERS} calls wait for something in the store");
            return Err(Error::busy(message, RETRY_MS));
        }
        waiting.count += 1;
        waiting
            .topics
            .entry(topic.clone())
            .or_default()
            .push(slot.clone());
        Ok(Subscription {
            watch: self.clone(),
            topic,
            slot,
        })
    }

    pub(crate) fn spread(&self, topic: &Topic, news: &News) {
        let waiting = lock(&self.waiting);
        for slot in waiting.topics.get(topic).into_iter().flatten() {
            let mut unseen = lock(&slot.news);
            let next = if unseen.is_none() {
                news.clone()
            } else {
                News::Missed
            };
            *unseen = Some(next);
            drop(unseen);
            slot.told.notify_one();
        }
    }

    pub(crate) fn len(&self) -> usize {
        lock(&self.waiting).count
    }

    /// Tells those who watch the condition. A store that stops stays so.
    pub(crate) fn set_condition(&self, condition: Condition) {
        let is_news = |now: &mut Condition| match (&*now, &condition) {
            (Condition::Stopping, _) | (Condition::Working, Condition::Working) => false,
            (Condition::Failing(_), Condition::Failing(_)) => false,
            _ => {
                *now = condition.clone();
                true
            }
        };
        self.condition.send_if_modified(is_news);
    }

    pub(crate) fn condition(&self) -> Condition {
        self.condition.borrow().clone()
    }

    /// Resolves with what is so once it is.
    pub(crate) async fn until<T>(&self, so: impl Fn(&Condition) -> Option<T>) -> T {
        let mut conditions = self.condition.subscribe();
        loop {
            let found = so(&conditions.borrow_and_update());
            if let Some(found) = found {
                return found;
            }
            // The sender lives as long as `self`.
            _ = conditions.changed().await;
        }
    }

    /// Resolves with the error of whoever waits when the store stops.
    pub(crate) async fn stopped(&self) -> Error {
        self.until(|condition| matches!(condition, Condition::Stopping).then(stopping))
            .await
    }

    fn remove(&self, topic: &Topic, slot: &Arc<Slot>) {
        let mut waiting = lock(&self.waiting);
        let Some(slots) = waiting.topics.get_mut(topic) else {
            return;
        };
        slots.retain(|other| !Arc::ptr_eq(other, slot));
        if slots.is_empty() {
            waiting.topics.remove(topic);
        }
        waiting.count -= 1;
    }
}

/// A place among the waiters.
pub(crate) struct Subscription {
    watch: Arc<Watch>,
    topic: Topic,
    slot: Arc<Slot>,
}

impl Subscription {
    /// The news since the last call; waits for some.
    pub(crate) async fn news(&self) -> News {
        loop {
            if let Some(news) = lock(&self.slot.news).take() {
                return news;
            }
            self.slot.told.notified().await;
        }
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.watch.remove(&self.topic, &self.slot);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ken_types::ops::streams::Payload;

    fn entries(first: u64) -> News {
        News::Entries(Arc::new(NewEntries {
            stream: "s".into(),
            first,
            payload: Payload::Messages(Vec::new()),
        }))
    }

    #[tokio::test]
    async fn one_piece_is_told_whole_and_two_as_missed() {
        let watch = Arc::new(Watch::default());
        let topic = Topic::Stream("s".into());
        let subscription = watch.subscribe(topic.clone()).unwrap();
        watch.spread(&topic, &entries(1));
        assert!(matches!(subscription.news().await, News::Entries(new) if new.first == 1));
        watch.spread(&topic, &entries(2));
        watch.spread(&topic, &entries(3));
        watch.spread(&Topic::Stream("other".into()), &entries(4));
        assert!(matches!(subscription.news().await, News::Missed));
        assert_eq!(watch.len(), 1);
        drop(subscription);
        assert_eq!(watch.len(), 0);
        assert!(lock(&watch.waiting).topics.is_empty());
    }
}
