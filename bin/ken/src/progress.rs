//! A progress line on the terminal that says what `ken` is waiting for. It appears after one second.

use std::io::{self, IsTerminal, Write};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ken_text::for_terminal;

const TICK: Duration = Duration::from_secs(1);

/// Shows the progress line until it is dropped. If standard error is not a terminal, nothing is printed.
pub(crate) struct Progress {
    thread: Option<(SyncSender<String>, JoinHandle<()>)>,
}

impl Progress {
    pub(crate) fn start(what: &str) -> Progress {
        if !io::stderr().is_terminal() {
            return Progress { thread: None };
        }
        let (sender, texts) = sync_channel(1);
        let mut what = what.to_owned();
        let since = Instant::now();
        let thread = std::thread::spawn(move || {
            let mut is_shown = false;
            loop {
                match texts.recv_timeout(TICK) {
                    Ok(text) => what = text,
                    Err(RecvTimeoutError::Disconnected) => break,
                    Err(RecvTimeoutError::Timeout) => {}
                }
                if since.elapsed() >= TICK {
                    write(&format!("\r\x1b[Kken: {} · {} s", for_terminal(&what), since.elapsed().as_secs()));
                    is_shown = true;
                }
            }
            if is_shown {
                write("\r\x1b[K");
            }
        });
        Progress { thread: Some((sender, thread)) }
    }

    pub(crate) fn set(&self, what: &str) {
        if let Some((sender, _)) = &self.thread {
            _ = sender.send(what.to_owned());
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some((sender, thread)) = self.thread.take() {
            drop(sender);
            _ = thread.join();
        }
    }
}

/// Runs `work` and shows a progress line with `what` while it runs.
pub(crate) fn during<T>(what: &str, work: impl FnOnce() -> T) -> T {
    let _progress = Progress::start(what);
    work()
}

fn write(text: &str) {
    let mut stderr = io::stderr().lock();
    _ = stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush());
}
