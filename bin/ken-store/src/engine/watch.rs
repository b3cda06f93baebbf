//! Calls that wait for a change. A waiting call subscribes to a topic and reads the tables. If there is nothing yet, it waits for news,
//! which the writer publishes after each commit.
//!
//! News contains what was written, so a reader at the end of a stream need not read the tables again. A subscriber that misses news learns
//! only that it missed some, and reads the tables again.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use ken_types::Error;
use ken_types::id::SubmissionId;
use ken_types::ops::store::SubmissionStatus;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use crate::engine::change::NewEntries;

/// The maximum number of waiting calls: the wire allows 256 connections with 64 calls each.
const MAX_WAITERS: usize = 16_384;
const RETRY_MS: u64 = 1_000;
/// The maximum number of topics that are remembered as new.
const MAX_BEGUN: usize = 64;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Topic {
    Stream(String),
    Submission(SubmissionId),
    /// One request for an approval, by its id. `Approvals` stands for all requests.
    Approval(String),
    Approvals,
    Outbox,
    /// Documents to read, and entries without a vector.
    Documents,
}

#[derive(Debug, Clone)]
pub(crate) enum News {
    Entries(Arc<NewEntries>),
    Status(Arc<SubmissionStatus>),
    /// The subscriber has missed news, or this news has no content. The subscriber must read the tables.
    Missed,
}

impl Topic {
    /// Returns what stands for the topic in notices of other hosts.
    pub(crate) fn mark(&self) -> u64 {
        match self {
            Topic::Stream(name) => mark("stream", name),
            Topic::Submission(id) => mark("submission", id.as_str()),
            Topic::Approval(id) => mark("approval", id),
            Topic::Approvals => mark("approvals", ""),
            Topic::Outbox => mark("outbox", ""),
            Topic::Documents => mark("documents", ""),
        }
    }
}

/// Returns a number for a name of a kind. It is FNV-1a, because all hosts must compute the same. Two names with one number only cause a look at
/// the tables.
pub(crate) const fn mark(kind: &str, name: &str) -> u64 {
    fnv(fnv(fnv(0xcbf2_9ce4_8422_2325, kind.as_bytes()), b":"), name.as_bytes())
}

const fn fnv(mut hash: u64, mut bytes: &[u8]) -> u64 {
    while let [byte, rest @ ..] = bytes {
        hash = (hash ^ *byte as u64).wrapping_mul(0x0100_0000_01b3);
        bytes = rest;
    }
    hash
}

/// Whether the store can do its work.
#[derive(Debug, Clone, Default)]
pub(crate) enum Condition {
    #[default]
    Working,
    /// Nothing can be written at the moment because of this error.
    Failing(Error),
    /// The store is stopping. All calls that wait return an error.
    Stopping,
}

#[derive(Default)]
pub(crate) struct Watch {
    waiting: Mutex<Waiting>,
    condition: watch::Sender<Condition>,
}

#[derive(Default)]
struct Waiting {
    topics: HashMap<Topic, Vec<Arc<Waiter>>>,
    count: usize,
    /// Topics that have begun and of which there has been no news since, oldest first.
    begun: VecDeque<Topic>,
}

/// A waiting call, and the news that it has not taken yet.
#[derive(Default)]
struct Waiter {
    news: Mutex<Option<News>>,
    wake: Notify,
}

/// Returns the error of a call that the store cannot finish because it is stopping.
pub(crate) fn stopping() -> Error {
    Error::unavailable("the store is stopping")
}

impl Watch {
    /// Subscribes to a topic. From now on, all news of this topic reaches the subscription until it is dropped. Fails with `busy` if too
    /// many calls wait.
    pub(crate) fn subscribe(self: &Arc<Watch>, topic: Topic) -> Result<Subscription, Error> {
        let waiter = Arc::new(Waiter::default());
        let mut waiting = self.waiting.lock();
        if waiting.count >= MAX_WAITERS {
            let message = format!("{MAX_WAITERS} calls wait for something in the store");
            return Err(Error::busy(message, RETRY_MS));
        }
        waiting.count += 1;
        waiting.topics.entry(topic.clone()).or_default().push(waiter.clone());
        let is_complete = waiting.begun.contains(&topic);
        Ok(Subscription { watch: self.clone(), topic, waiter, is_complete })
    }

    /// Remembers that a topic begins now. Who subscribes before there is news of it need not read the tables: mostly the caller who has begun
    /// it, and who waits for it at once.
    pub(crate) fn begin(&self, topic: Topic) {
        let mut waiting = self.waiting.lock();
        waiting.begun.push_back(topic);
        if waiting.begun.len() > MAX_BEGUN {
            waiting.begun.pop_front();
        }
    }

    pub(crate) fn notify(&self, topic: &Topic, news: &News) {
        let mut waiting = self.waiting.lock();
        waiting.begun.retain(|begun| begun != topic);
        for waiter in waiting.topics.get(topic).into_iter().flatten() {
            let mut unseen = waiter.news.lock();
            let next = if unseen.is_none() { news.clone() } else { News::Missed };
            *unseen = Some(next);
            drop(unseen);
            waiter.wake.notify_one();
        }
    }

    /// Wakes those who wait for what another host has changed; all of them if that is not known.
    pub(crate) fn hear(&self, marks: Option<&[u64]>) {
        let topics: Vec<Topic> = {
            let waiting = self.waiting.lock();
            let is_changed = |topic: &&Topic| marks.is_none_or(|marks| marks.contains(&topic.mark()));
            waiting.topics.keys().filter(is_changed).cloned().collect()
        };
        topics.iter().for_each(|topic| self.notify(topic, &News::Missed));
    }

    pub(crate) fn len(&self) -> usize {
        self.waiting.lock().count
    }

    /// Sets the condition and wakes those that wait for it. Once the store is stopping, the condition no longer changes.
    pub(crate) fn set_condition(&self, condition: Condition) {
        let is_news = |now: &mut Condition| match (&*now, &condition) {
            (Condition::Stopping, _) | (Condition::Working, Condition::Working) => false,
            (Condition::Failing(old), Condition::Failing(new)) if old.message == new.message => false,
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

    /// Waits until `so` returns a value for the current condition. Returns that value.
    pub(crate) async fn until<T>(&self, find: impl Fn(&Condition) -> Option<T>) -> T {
        let mut conditions = self.condition.subscribe();
        loop {
            let found = find(&conditions.borrow_and_update());
            if let Some(found) = found {
                return found;
            }
            // This cannot fail, because `self` owns the sender.
            _ = conditions.changed().await;
        }
    }

    /// Waits until the store is stopping. Returns the error for calls that wait then.
    pub(crate) async fn stopped(&self) -> Error {
        self.until(|condition| matches!(condition, Condition::Stopping).then(stopping)).await
    }

    fn remove(&self, topic: &Topic, waiter: &Arc<Waiter>) {
        let mut waiting = self.waiting.lock();
        let Some(waiters) = waiting.topics.get_mut(topic) else {
            return;
        };
        waiters.retain(|other| !Arc::ptr_eq(other, waiter));
        if waiters.is_empty() {
            waiting.topics.remove(topic);
        }
        waiting.count -= 1;
    }
}

pub(crate) struct Subscription {
    watch: Arc<Watch>,
    topic: Topic,
    waiter: Arc<Waiter>,
    /// Whether it gets all news since the topic began, so that the tables need not be read before the first.
    pub(crate) is_complete: bool,
}

impl Subscription {
    /// Returns the news since the last call. Waits until there is some.
    pub(crate) async fn news(&self) -> News {
        loop {
            if let Some(news) = self.waiter.news.lock().take() {
                return news;
            }
            self.waiter.wake.notified().await;
        }
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.watch.remove(&self.topic, &self.waiter);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ken_types::ops::streams::Payload;

    fn entries(first: u64) -> News {
        News::Entries(Arc::new(NewEntries { stream: "s".into(), first, payload: Payload::Messages(Vec::new()) }))
    }

    #[tokio::test]
    async fn one_piece_is_delivered_whole_and_two_as_missed() {
        let watch = Arc::new(Watch::default());
        let topic = Topic::Stream("s".into());
        let subscription = watch.subscribe(topic.clone()).unwrap();
        watch.notify(&topic, &entries(1));
        assert!(matches!(subscription.news().await, News::Entries(new) if new.first == 1));
        watch.notify(&topic, &entries(2));
        watch.notify(&topic, &entries(3));
        watch.notify(&Topic::Stream("other".into()), &entries(4));
        assert!(matches!(subscription.news().await, News::Missed));
        assert_eq!(watch.len(), 1);
        drop(subscription);
        assert_eq!(watch.len(), 0);
        assert!(watch.waiting.lock().topics.is_empty());
    }

    #[tokio::test]
    async fn who_subscribes_before_the_first_news_of_a_topic_gets_all_of_it() {
        let watch = Arc::new(Watch::default());
        let topic = |number: usize| Topic::Stream(number.to_string());
        (0..=MAX_BEGUN).for_each(|number| watch.begin(topic(number)));
        assert_eq!(watch.len(), 0);
        let subscribe = |number: usize| watch.subscribe(topic(number)).unwrap();
        let before = [subscribe(1), subscribe(1)];
        watch.notify(&topic(1), &entries(1));
        let after = subscribe(1);
        assert_eq!([&before[0], &before[1], &after].map(|one| one.is_complete), [true, true, false]);
        for one in &before {
            assert!(matches!(one.news().await, News::Entries(new) if new.first == 1));
        }
        // So many topics are remembered and no more, and one that never began is not.
        let others = [0, 2, MAX_BEGUN, MAX_BEGUN + 1].map(|number| subscribe(number).is_complete);
        assert_eq!(others, [false, true, true, false]);
        drop((before, after));
        assert_eq!((watch.len(), watch.waiting.lock().topics.len()), (0, 0));
    }

    #[test]
    fn so_many_calls_wait_and_no_more() {
        let watch = Arc::new(Watch::default());
        let subscribe = |number: usize| watch.subscribe(Topic::Approval(number.to_string()));
        let mut waiting: Vec<_> = (0..MAX_WAITERS).map(|number| subscribe(number).unwrap()).collect();
        let error = subscribe(MAX_WAITERS).err().unwrap();
        assert_eq!((error.code, error.retry_after_ms), (ken_types::Code::Busy, Some(RETRY_MS)));
        waiting.pop();
        subscribe(MAX_WAITERS).unwrap();
    }
}
