//! A mark that something has changed, for whoever reads it again and for whoever waits for it.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

#[derive(Debug, Default)]
pub(crate) struct Changed {
    has_changed: AtomicBool,
    waiting: Notify,
}

impl Changed {
    pub(crate) fn set(&self) {
        self.has_changed.store(true, Ordering::Release);
        self.waiting.notify_one();
    }

    /// Whether it was set; then it is not any more.
    pub(crate) fn take(&self) -> bool {
        self.has_changed.swap(false, Ordering::AcqRel)
    }

    /// Resolves once it was set after the last time.
    pub(crate) async fn wait(&self) {
        self.waiting.notified().await;
    }
}
