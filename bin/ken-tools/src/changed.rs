//! A flag that something has changed. One task clears it when it reads again, while another one waits for it to be set.

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

    /// Clears the flag. Returns whether it was set.
    pub(crate) fn take(&self) -> bool {
        self.has_changed.swap(false, Ordering::AcqRel)
    }

    /// Waits until the flag has been set since the last wait, even if it has been cleared in the meantime.
    pub(crate) async fn wait(&self) {
        self.waiting.notified().await;
    }
}
