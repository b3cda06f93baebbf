//! What the process knows of the calls of clients: those that are being answered, and how many equal ones were answered.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::Notify;

/// The maximum number of calls whose count is remembered, to find their next key at once.
const MAX_REMEMBERED: usize = 1_000;

/// How many equal calls were answered, as far as this process has seen them.
#[derive(Debug, Default)]
pub(crate) struct Answered(Mutex<HashMap<String, u32>>);

impl Answered {
    pub(super) fn of(&self, call: &str) -> u32 {
        self.0.lock().get(call).copied().unwrap_or_default()
    }

    pub(super) fn set(&self, call: &str, count: u32) {
        let mut counts = self.0.lock();
        if counts.len() >= MAX_REMEMBERED {
            counts.clear();
        }
        counts.insert(call.to_owned(), count);
    }
}

/// The calls that are being answered, so that a client can cancel them. Each holds a long response, which limits their number.
#[derive(Debug, Default)]
pub(crate) struct Running(Mutex<Calls>);

#[derive(Debug, Default)]
struct Calls {
    by_number: HashMap<u64, RunningCall>,
    last_number: u64,
}

#[derive(Debug)]
struct RunningCall {
    /// The client and the id of its request. `None` if another client may use the same ids.
    name: Option<String>,
    params: Value,
    /// The id of the work that it waits for.
    work: Option<String>,
    cancelled: Arc<Notify>,
}

/// A call that is being answered; it ends when this is dropped.
#[derive(Debug)]
pub(super) struct Entered {
    running: Arc<Running>,
    number: u64,
    cancelled: Arc<Notify>,
}

impl Running {
    /// Enters a call. `None` if another call has its name. An equal call is its repetition.
    pub(super) fn enter(self: &Arc<Running>, name: Option<String>, params: Value) -> Option<Entered> {
        let mut calls = self.0.lock();
        let is_other = |other: &RunningCall| name.is_some() && other.name == name && !is_equal(&other.params, &params);
        if calls.by_number.values().any(is_other) {
            return None;
        }
        calls.last_number += 1;
        let (number, cancelled) = (calls.last_number, Arc::<Notify>::default());
        calls.by_number.insert(number, RunningCall { name, params, work: None, cancelled: cancelled.clone() });
        Some(Entered { running: self.clone(), number, cancelled })
    }

    /// Cancels the calls with this name that are being answered.
    pub(super) fn cancel(&self, name: &str) {
        let calls = self.0.lock();
        for call in calls.by_number.values().filter(|call| call.name.as_deref() == Some(name)) {
            call.cancelled.notify_one();
        }
    }
}

/// Whether two calls are the same. Only the metadata of a repetition may differ.
fn is_equal(one: &Value, other: &Value) -> bool {
    ["name", "arguments"].iter().all(|field| one.get(field) == other.get(field))
}

impl Entered {
    /// Says for which work the call waits.
    pub(super) fn waits_for(&self, work: &str) {
        if let Some(call) = self.running.0.lock().by_number.get_mut(&self.number) {
            call.work = Some(work.to_owned());
        }
    }

    /// Whether another call waits for the same work, so that it must go on.
    pub(super) fn is_shared(&self, work: &str) -> bool {
        let calls = self.running.0.lock();
        calls.by_number.iter().any(|(number, call)| *number != self.number && call.work.as_deref() == Some(work))
    }

    /// Returns when the client has cancelled the call.
    pub(super) async fn cancelled(&self) {
        self.cancelled.notified().await;
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        self.running.0.lock().by_number.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_id_belongs_to_one_call_and_its_repetitions() {
        let running = Arc::new(Running::default());
        let enter = |name: Option<&str>, question: &str| {
            running.enter(name.map(str::to_owned), json!({"name": "ask_ken", "arguments": {"question": question}}))
        };
        let first = enter(Some("a 1"), "x").unwrap();
        first.waits_for("turn-1");
        assert!(enter(Some("a 1"), "y").is_none());
        assert!(enter(Some("b 1"), "y").is_some());
        assert!(enter(None, "y").is_some());
        let again = enter(Some("a 1"), "x").unwrap();
        assert!(!first.is_shared("turn-1"));
        again.waits_for("turn-1");
        assert!(first.is_shared("turn-1"));
        drop(again);
        assert!(!first.is_shared("turn-1"));
        drop(first);
        assert!(enter(Some("a 1"), "y").is_some());
    }
}
