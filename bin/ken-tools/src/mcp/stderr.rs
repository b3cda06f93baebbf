//! Reads what a server writes to standard error, and keeps its end.

use std::sync::Arc;
use std::time::Duration;

use ken_text::for_terminal;
use parking_lot::Mutex;
use tokio::io::AsyncReadExt;
use tokio::process::ChildStderr;
use tokio::sync::Notify;
use tokio::time::timeout;

/// The maximum length of the text that is kept, in bytes, and the number of lines that are shown of it.
const MAX_BYTES: usize = 4 * 1024;
const MAX_LINES: usize = 12;
/// How long standard error is read after the server has ended.
const END_TIMEOUT: Duration = Duration::from_millis(250);

/// The end of a server's standard error.
#[derive(Debug, Clone, Default)]
pub(super) struct Stderr {
    text: Arc<Mutex<Vec<u8>>>,
    ended: Arc<Notify>,
}

impl Stderr {
    /// Reads to the end, so that the server is never blocked.
    pub(super) async fn read(self, mut from: ChildStderr) {
        let mut buffer = [0; 4096];
        while let Ok(count @ 1..) = from.read(&mut buffer).await {
            let mut text = self.text.lock();
            text.extend(buffer.iter().take(count));
            let extra = text.len().saturating_sub(MAX_BYTES + ken_service::longest_secret());
            text.drain(..extra);
        }
        self.ended.notify_one();
    }

    /// Returns the last lines, without what controls a terminal. Waits a moment for the end of the stream.
    pub(super) async fn last_lines(&self) -> Vec<String> {
        _ = timeout(END_TIMEOUT, self.ended.notified()).await;
        self.ended.notify_one();
        let kept = self.text.lock();
        let text = ken_service::redacted_tail(&kept, MAX_BYTES);
        let lines: Vec<&str> = text.lines().map(str::trim_end).filter(|line| !line.trim().is_empty()).collect();
        let first = lines.len().saturating_sub(MAX_LINES);
        lines.into_iter().skip(first).map(|line| for_terminal(line).into_owned()).collect()
    }
}
