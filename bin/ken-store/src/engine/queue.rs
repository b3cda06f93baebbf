//! A bounded queue from callers to threads.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ken_types::Error;

/// The time after which a caller can try again when the queue is full, in milliseconds. It is part of the error.
const RETRY_MS: u64 = 20;

pub(crate) struct Queue<T> {
    name: &'static str,
    limit: usize,
    state: Mutex<State<T>>,
    changed: Condvar,
}

struct State<T> {
    items: VecDeque<T>,
    closed: bool,
    /// The number of threads that wait for an item. If there is none, no thread is woken, because waking costs a system call.
    waiting: usize,
}

impl<T> Queue<T> {
    pub(crate) fn new(name: &'static str, limit: usize) -> Queue<T> {
        let state = State { items: VecDeque::new(), closed: false, waiting: 0 };
        Queue { name, limit, state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Adds an item. Fails with `busy` when the queue is full, and with `unavailable` when it is closed.
    pub(crate) fn push(&self, item: T) -> Result<(), Error> {
        self.push_within(item, self.limit)
    }

    /// Adds an item even if the queue is full. The number of such items is limited elsewhere: one for each connection or lease.
    pub(crate) fn push_always(&self, item: T) {
        // The push can only fail if the queue is closed, and then nobody takes items any more.
        _ = self.push_within(item, usize::MAX);
    }

    /// Adds an item as [`Queue::push`] does. A thread is woken only when the returned value is dropped.
    pub(crate) fn push_quietly(&self, item: T) -> Result<Pushed<'_, T>, Error> {
        self.put(item, self.limit)?;
        Ok(Pushed(self))
    }

    fn push_within(&self, item: T, limit: usize) -> Result<(), Error> {
        self.put(item, limit)?;
        self.wake();
        Ok(())
    }

    fn wake(&self) {
        let state = self.lock();
        let wanted = state.waiting > 0 && !state.items.is_empty();
        drop(state);
        if wanted {
            self.changed.notify_one();
        }
    }

    fn put(&self, item: T, limit: usize) -> Result<(), Error> {
        let mut state = self.lock();
        if state.closed {
            return Err(Error::unavailable("the store is stopping"));
        }
        if state.items.len() >= limit {
            let message = format!("the store's {} queue is full ({limit} wait)", self.name);
            return Err(Error::busy(message, RETRY_MS));
        }
        state.items.push_back(item);
        Ok(())
    }

    /// Waits for the next item and takes it. Returns `None` once the queue is closed and empty.
    pub(crate) fn pop(&self) -> Option<T> {
        self.wait(None).items.pop_front()
    }

    /// Waits for items and takes at most `most`. Returns an empty list if none arrives within `timeout`, and `None` once the queue is
    /// closed and empty.
    pub(crate) fn pop_many(&self, most: usize, timeout: Option<Duration>) -> Option<Vec<T>> {
        let mut state = self.wait(timeout);
        if state.items.is_empty() && state.closed {
            return None;
        }
        let count = state.items.len().min(most);
        Some(state.items.drain(..count).collect())
    }

    fn wait(&self, timeout: Option<Duration>) -> MutexGuard<'_, State<T>> {
        let mut state = self.lock();
        let idle = |state: &mut State<T>| state.items.is_empty() && !state.closed;
        state.waiting += 1;
        state = match timeout {
            None => self.changed.wait_while(state, idle).unwrap_or_else(PoisonError::into_inner),
            Some(timeout) => {
                let waited = self.changed.wait_timeout_while(state, timeout, idle);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
        };
        state.waiting -= 1;
        state
    }

    /// Closes the queue: it accepts no more items, but those in it are still taken.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().items.len()
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An item that was added to the queue, but for which no thread has been woken yet.
pub(crate) struct Pushed<'a, T>(&'a Queue<T>);

impl<T> Pushed<'_, T> {
    /// Takes the item back if it is the only one in the queue.
    pub(crate) fn take_if_alone(&self) -> Option<T> {
        let mut state = self.0.lock();
        match state.items.len() {
            1 => state.items.pop_front(),
            _ => None,
        }
    }
}

impl<T> Drop for Pushed<'_, T> {
    fn drop(&mut self) {
        self.0.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ken_types::Code;

    #[test]
    fn full_is_busy_and_closed_is_unavailable_after_the_last_item() {
        let queue = Queue::new("test", 2);
        queue.push(1).unwrap();
        queue.push(2).unwrap();
        let error = queue.push(3).unwrap_err();
        assert_eq!((error.code, error.retry_after_ms), (Code::Busy, Some(RETRY_MS)));
        queue.push_always(4);
        queue.close();
        assert_eq!(queue.push(5).unwrap_err().code, Code::Unavailable);
        assert_eq!(queue.pop_many(2, None), Some(vec![1, 2]));
        assert_eq!(queue.pop(), Some(4));
        assert_eq!((queue.pop(), queue.pop_many(2, None)), (None, None));
    }

    #[test]
    fn what_was_pushed_quietly_is_taken_by_its_caller_alone_or_by_the_thread() {
        let queue = Queue::new("test", 2);
        let first = queue.push_quietly(1).unwrap();
        assert_eq!(first.take_if_alone(), Some(1));
        drop(first);
        std::thread::scope(|scope| {
            let popped = scope.spawn(|| queue.pop_many(2, None));
            let first = queue.push_quietly(2).unwrap();
            let second = queue.push_quietly(3).unwrap();
            assert_eq!(first.take_if_alone(), None);
            drop((first, second));
            assert!(popped.join().unwrap().is_some_and(|items| items[0] == 2));
        });
    }

    #[test]
    fn a_timeout_takes_nothing() {
        let queue: Queue<u8> = Queue::new("test", 2);
        assert_eq!(queue.pop_many(2, Some(Duration::ZERO)), Some(vec![]));
    }
}
