//! Starts threads with names, which tools for debugging show.

use std::thread::JoinHandle;

use ken_types::Error;

pub(crate) fn spawn<T: Send + 'static>(
    name: &str,
    run: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, Error> {
    let thread = std::thread::Builder::new().name(name.to_owned()).spawn(run);
    thread.map_err(|error| Error::unavailable(format!("the thread {name} could not be started: {error}")))
}
