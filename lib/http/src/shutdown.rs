//! Shutdown of a listener: it drains, then it stops.

use tokio::sync::watch;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    Running,
    /// No new work is accepted; what has begun is finished.
    Draining,
    /// The drain time is over.
    Stopped,
}

/// Signals that the listener shuts down. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Shutdown(watch::Receiver<Phase>);

impl Shutdown {
    pub(crate) fn channel() -> (watch::Sender<Phase>, Shutdown) {
        let (sender, receiver) = watch::channel(Phase::Running);
        (sender, Shutdown(receiver))
    }

    /// Whether the listener has stopped accepting new work.
    pub fn is_requested(&self) -> bool {
        *self.0.borrow() >= Phase::Draining
    }

    /// Returns when the listener begins to drain. A waiting prompt then answers 202, a stream sends its last frame.
    pub async fn requested(&mut self) {
        self.reached(Phase::Draining).await;
    }

    pub(crate) async fn reached(&mut self, phase: Phase) {
        // An error means that the listener is gone.
        let _ = self.0.wait_for(|now| *now >= phase).await;
    }
}
