//! Readers that follow a stream of events, and continue where they were whenever the connection breaks.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

use ken_tests::Stream;
use serde_json::Value;

use super::door::Shared;

/// Follows a stream from its beginning until everything is quiet. Returns what it has read.
pub(crate) fn start(shared: &Arc<Shared>, target: &'static str) -> JoinHandle<Vec<Value>> {
    let shared = shared.clone();
    std::thread::spawn(move || {
        let mut reader = Reader { offset: "-1".to_owned(), seen: Vec::new() };
        while !matches!(reader.read(&shared, target), Ok(true)) {
            std::thread::sleep(Duration::from_millis(10));
        }
        reader.seen
    })
}

struct Reader {
    offset: String,
    seen: Vec<Value>,
}

impl Reader {
    /// Reads until the connection breaks, or until there is nothing more to come: then it is true. What stands before a control
    /// frame is certain; the rest comes again.
    fn read(&mut self, shared: &Shared, target: &str) -> std::io::Result<bool> {
        let mut stream = Stream::over(shared.connect()?, &format!("{target}?offset={}&live=sse", self.offset), &[])?;
        // A reader that waits in vain looks again whether everything is quiet.
        stream.set_timeout(Duration::from_secs(1));
        let mut uncertain = Vec::new();
        while let Some(frame) = stream.try_frame()? {
            match frame.kind() {
                "data" => uncertain.extend(frame.data().as_array().expect("an array").iter().cloned()),
                "control" => {
                    let control = frame.data();
                    self.offset = control["streamNextOffset"].as_str().expect("an offset").to_owned();
                    self.seen.append(&mut uncertain);
                    if control["upToDate"] == true && shared.is_quiet.load(Ordering::SeqCst) {
                        return Ok(true);
                    }
                }
                _ => {}
            }
        }
        Ok(false)
    }
}
