//! The guard: one end of a socket pair whose other end `kend` holds. When kend ends, for whatever reason, reading from
//! the guard returns EOF, and the daemon exits. Unlike PR_SET_PDEATHSIG, this also works if kend ends before the daemon
//! has started.

use std::future::pending;
use std::os::unix::net::UnixStream;

use ken_types::Error;
use tokio::io::AsyncReadExt;

use crate::descriptor;

const VARIABLE: &str = "KEN_GUARD_FD";

/// Takes the inherited end of the guard; `None` if there is no guard. Call this once, at the start.
pub(crate) fn inherited() -> Result<Option<UnixStream>, Error> {
    let Some(fd) = descriptor::inherited(VARIABLE)? else {
        return Ok(None);
    };
    let guard = UnixStream::from(fd);
    let set = guard.set_nonblocking(true);
    set.map_err(|error| Error::invalid(VARIABLE, format!("it is not a guard: {error}")))?;
    Ok(Some(guard))
}

/// Resolves when kend has exited. Without a guard it never resolves.
pub(crate) async fn kend_gone(guard: Option<UnixStream>) {
    let Some(mut guard) = guard.and_then(|guard| tokio::net::UnixStream::from_std(guard).ok()) else {
        return pending().await;
    };
    let mut byte = [0];
    // kend never writes, so any byte is ignored.
    while matches!(guard.read(&mut byte).await, Ok(1)) {}
}
