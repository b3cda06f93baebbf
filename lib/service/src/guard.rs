//! The guard: one end of a socketpair whose other end `kend` holds. When kend is gone, however it ended, reading gives
//! EOF and the part leaves. It also covers what PR_SET_PDEATHSIG does not: a kend that died before the signal was set.

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
    let wrong = |why: String| Error::invalid("KEN_GUARD_FD", format!("{number:?} is no guard: {why}"));
    let fd = number
        .parse()
        .map_err(|_| wrong("it is not a number".to_owned()))?;
    let guard = UnixStream::from(own(fd)?);
    guard
        .set_nonblocking(true)
        .map_err(|error| wrong(error.to_string()))?;
    Ok(Some(guard))
}

/// Resolves when kend is gone; never without a guard.
pub(crate) async fn kend_gone(guard: Option<UnixStream>) {
    let Some(mut guard) = guard.and_then(|guard| tokio::net::UnixStream::from_std(guard).ok()) else {
        return pending().await;
    };
    let mut byte = [0];
    // kend never writes; whatever comes that is not EOF is waited out.
    while matches!(guard.read(&mut byte).await, Ok(1)) {}
}
