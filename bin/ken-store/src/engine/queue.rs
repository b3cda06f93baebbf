//! A bounded queue from callers to threads. Some items go before all others.

use std::collections::VecDeque;
use std::time::Duration;

use ken_types::Error;
use parking_lot::{Condvar, Mutex, MutexGuard};

/// The time after which a caller can try again when the queue is full, in milliseconds. It is part of the error.
const RETRY_MS: u64 = 20;

pub(crate) struct Queue<T> {
    name: &'static str,
    limit: usize,
    state: Mutex<State<T>>,
    changed: Condvar,
}

struct State<T> {
    /// The items that are taken before all others.
    first: VecDeque<T>,
    others: VecDeque<T>,
    closed: bool,
    /// The number of threads that wait for an item. If there is none, no thread is woken, because waking costs a system call.
    waiting: usize,
}

impl<T> State<T> {
    fn take(&mut self) -> Option<T> {
        self.first.pop_front().or_else(|| self.others.pop_front())
    }

    fn len(&self) -> usize {
        self.first.len() + self.others.len()
    }

    fn has_work_for_somebody(&self) -> bool {
        self.waiting > 0 && self.len() > 0
    }
}

impl<T> Queue<T> {
    pub(crate) fn new(name: &'static str, limit: usize) -> Queue<T> {
        let state = State { first: VecDeque::new(), others: VecDeque::new(), closed: false, waiting: 0 };
        Queue { name, limit, state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Adds an item, which goes before all others if it `comes_first`. Fails with `busy` when the queue is full, and with `unavailable` when
    /// it is closed.
    pub(crate) fn push(&self, item: T, comes_first: bool) -> Result<(), Error> {
        drop(self.push_without_wake(item, comes_first)?);
        Ok(())
    }

    /// Adds an item even if the queue is full. The number of such items is limited elsewhere: one for each connection or lease.
    pub(crate) fn push_always(&self, item: T) {
        // The push can only fail if the queue is closed, and then nobody takes items any more.
        _ = self.put(item, usize::MAX, false);
        self.wake();
    }

    /// Puts items that were taken from the queue back to where they were. None of them may be one that comes first.
    pub(crate) fn put_back(&self, items: impl DoubleEndedIterator<Item = T>) {
        let mut state = self.state.lock();
        items.rev().for_each(|item| state.others.push_front(item));
    }

    /// Puts an item that was taken from the queue back, before all others, for another thread.
    pub(crate) fn give_back(&self, item: T) {
        self.state.lock().first.push_front(item);
        self.wake();
    }

    /// Adds an item as [`Queue::push`] does. A thread is woken only when the returned value is dropped.
    pub(crate) fn push_without_wake(&self, item: T, comes_first: bool) -> Result<Pushed<'_, T>, Error> {
        self.put(item, self.limit, comes_first)?;
        Ok(Pushed(self))
    }

    fn wake(&self) {
        let state = self.state.lock();
        let wanted = state.has_work_for_somebody();
        drop(state);
        if wanted {
            self.changed.notify_one();
        }
    }

    fn put(&self, item: T, limit: usize, comes_first: bool) -> Result<(), Error> {
        let mut state = self.state.lock();
        if state.closed {
            return Err(Error::unavailable("the store is stopping"));
        }
        if state.len() >= limit {
            let message = format!("the store's {} queue is full ({limit} wait)", self.name);
            return Err(Error::busy(message, RETRY_MS));
        }
        if comes_first {
            state.first.push_back(item)
        } else {
            state.others.push_back(item)
        }
        Ok(())
    }

    /// Waits for items and takes at most `max`. Returns an empty list if none arrives within `timeout`, and `None` once the queue is
    /// closed and empty.
    pub(crate) fn pop_many(&self, max: usize, timeout: Option<Duration>) -> Option<Vec<T>> {
        let mut state = self.wait(timeout);
        if state.len() == 0 && state.closed {
            return None;
        }
        Some(std::iter::from_fn(|| state.take()).take(max).collect())
    }

    fn wait(&self, timeout: Option<Duration>) -> MutexGuard<'_, State<T>> {
        let mut state = self.state.lock();
        let idle = |state: &mut State<T>| state.len() == 0 && !state.closed;
        state.waiting += 1;
        match timeout {
            None => self.changed.wait_while(&mut state, idle),
            Some(timeout) => _ = self.changed.wait_while_for(&mut state, idle, timeout),
        }
        state.waiting -= 1;
        state
    }

    /// Closes the queue: it accepts no more items, but those in it are still taken.
    pub(crate) fn close(&self) {
        self.state.lock().closed = true;
        self.changed.notify_all();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.state.lock().closed
    }

    pub(crate) fn len(&self) -> usize {
        self.state.lock().len()
    }
}

/// An item that was added to the queue, but for which no thread has been woken yet.
pub(crate) struct Pushed<'a, T>(&'a Queue<T>);

impl<T> Pushed<'_, T> {
    /// Takes the item back if it is the only one in the queue.
    pub(crate) fn take_if_alone(&self) -> Option<T> {
        let mut state = self.0.state.lock();
        match state.len() {
            1 => state.take(),
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
        queue.push(1, false).unwrap();
        queue.push(2, false).unwrap();
        let error = queue.push(3, true).unwrap_err();
        assert_eq!((error.code, error.retry_after_ms), (Code::Busy, Some(RETRY_MS)));
        queue.push_always(4);
        queue.close();
        assert_eq!(queue.push(5, false).unwrap_err().code, Code::Unavailable);
        assert_eq!(queue.pop_many(2, None), Some(vec![1, 2]));
        queue.put_back([1, 2].into_iter());
        assert_eq!(queue.pop_many(2, None), Some(vec![1, 2]));
        assert_eq!((queue.pop_many(2, None), queue.pop_many(2, None)), (Some(vec![4]), None));
    }

    #[test]
    fn what_was_pushed_quietly_is_taken_by_its_caller_alone_or_by_the_thread() {
        let queue = Queue::new("test", 2);
        let first = queue.push_without_wake(1, false).unwrap();
        assert_eq!(first.take_if_alone(), Some(1));
        drop(first);
        std::thread::scope(|scope| {
            let popped = scope.spawn(|| queue.pop_many(2, None));
            let first = queue.push_without_wake(2, false).unwrap();
            let second = queue.push_without_wake(3, false).unwrap();
            assert_eq!(first.take_if_alone(), None);
            drop((first, second));
            assert!(popped.join().unwrap().is_some_and(|items| items[0] == 2));
        });
    }

    #[test]
    fn what_comes_first_goes_before_all_others_in_its_own_order() {
        let queue = Queue::new("test", 8);
        for (item, comes_first) in [(1, false), (2, true), (3, false), (4, true)] {
            queue.push(item, comes_first).unwrap();
        }
        assert_eq!(queue.pop_many(1, None), Some(vec![2]));
        assert_eq!(queue.pop_many(2, None), Some(vec![4, 1]));
        queue.put_back([1].into_iter());
        queue.push(5, true).unwrap();
        queue.give_back(6);
        assert_eq!(queue.pop_many(8, None), Some(vec![6, 5, 1, 3]));
    }

    #[test]
    fn nobody_is_woken_for_nothing() {
        for (waiting, items, is) in [(0, 0, false), (1, 0, false), (0, 1, false), (1, 1, true), (2, 3, true)] {
            let state = State { first: VecDeque::new(), others: (0..items).collect(), closed: false, waiting };
            assert_eq!(state.has_work_for_somebody(), is, "{waiting} {items}");
        }
    }

    #[test]
    fn a_timeout_takes_nothing() {
        let queue: Queue<u8> = Queue::new("test", 2);
        assert_eq!(queue.pop_many(2, Some(Duration::ZERO)), Some(vec![]));
    }
}
