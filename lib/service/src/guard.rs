//! The guard: one end of a socketpair whose other end `kend` holds. However kend ends, reading from the guard then gives
//! EOF, and the part exits. Unlike PR_SET_PDEATHSIG this also works when kend dies before the part has started.

use std::future::pending;
use std::os::unix::net::UnixStream;

use ken_types::Error;
use tokio::io::AsyncReadExt;

use crate::descriptor::own;

/// Takes the inherited end, if there is one. Call once, at the start.
pub(crate) fn inherited() -> Result<Option<UnixStream>, Error> {
    let Ok(number) = std::env::var("KEN_GUARD_FD") else {
        return Ok(None);
    };
    let wrong = |why: String| Error::invalid("KEN_GUARD_FD", format!("{number:?} is not a guard: {why}"));
    let fd = number
        .parse()
        .map_err(|_| wrong("it is not a number".to_owned()))?;
    let guard = UnixStream::from(own(fd)?);
    guard
        .set_nonblocking(true)
        .map_err(|error| wrong(error.to_string()))?;
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
