//! The end of a listener: first it drains, then it stops.

use tokio::sync::watch;

/// How far the end has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    Running,
    /// No new work; what is being worked on is finished.
    Draining,
    /// The time to drain is over.
    Stopped,
}

/// Tells whoever waits that the listener is to end. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Shutdown(watch::Receiver<Phase>);

impl Shutdown {
    pub(crate) fn channel() -> (watch::Sender<Phase>, Shutdown) {
        let (sender, receiver) = watch::channel(Phase::Running);
        (sender, Shutdown(receiver))
    }

    /// Whether no new work is taken any more.
    pub fn is_requested(&self) -> bool {
        self.phase() >= Phase::Draining
    }

    /// Returns when the listener begins to drain. A waiting prompt then gives its 202, a stream its last frame.
    pub async fn requested(&mut self) {
        self.reached(Phase::Draining).await;
    }

    pub(crate) fn phase(&self) -> Phase {
        *self.0.borrow()
    }

    pub(crate) async fn reached(&mut self, phase: Phase) {
        // An error says that the listener is gone altogether, which is the same to whoever waits.
        let _ = self.0.wait_for(|now| *now >= phase).await;
    }
}
