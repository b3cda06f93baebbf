//! The two halves of a connection, each registered only for its own events. The halves that tokio provides share one
//! registration. The kernel reports a Unix socket as writable whenever the peer has read something, so with tokio's
//! halves each line would wake its sender once more than necessary.

use std::io::{self, ErrorKind, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use tokio::io::Interest;
pub(crate) use tokio::net::unix::pipe::Receiver as ReadHalf;
use tokio::sync::mpsc;
use tokio::time::timeout;

/// The maximum number of lines that are written with one system call.
const BATCH_LINES: usize = 64;

/// The write half. Dropping it shuts down that direction.
#[derive(Debug)]
pub(crate) struct WriteHalf(UnixStream);

pub(crate) fn split(stream: tokio::net::UnixStream) -> io::Result<(ReadHalf, WriteHalf)> {
    let socket = stream.into_std()?;
    // A pipe receiver reads from any non-blocking descriptor, and is registered for reading only.
    let read = ReadHalf::from_owned_fd_unchecked(socket.try_clone()?.into())?;
    Ok((read, WriteHalf(socket)))
}

/// Returns when the peer has closed the connection or ended both directions. If the peer has only shut its write half,
/// it can still read. The kernel distinguishes the two: it reports a hang-up for the first, and an end of input for the
/// second.
pub(crate) async fn closed(read: &ReadHalf) {
    // A hang-up is reported for every interest, as a closed write side. An error has the same meaning here.
    _ = read.ready(Interest::WRITABLE).await;
}

/// Writes queued lines with as few system calls as possible. Ends when the peer has closed the connection, or has not read for as long
/// as `patience`, which closes the channel.
pub(crate) async fn write_lines(mut to: WriteHalf, mut lines: mpsc::Receiver<Vec<u8>>, patience: Option<Duration>) {
    let mut batch: Vec<Vec<u8>> = Vec::with_capacity(BATCH_LINES);
    while lines.recv_many(&mut batch, BATCH_LINES).await > 0 {
        let bytes = match batch.len() {
            1 => batch.pop().unwrap_or_default(),
            _ => batch.concat(),
        };
        batch.clear();
        let written = match patience {
            Some(patience) => timeout(patience, to.write_all(&bytes)).await.is_ok_and(|written| written.is_ok()),
            None => to.write_all(&bytes).await.is_ok(),
        };
        if !written {
            return;
        }
    }
}

impl WriteHalf {
    pub(crate) async fn write_all(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.0.write(bytes) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => bytes = bytes.get(count..).unwrap_or_default(),
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.room().await?,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Waits until there is room. The socket is registered only for this time, because it is rarely full.
    async fn room(&self) -> io::Result<()> {
        let socket = tokio::net::UnixStream::from_std(self.0.try_clone()?)?;
        socket.writable().await
    }
}

impl Drop for WriteHalf {
    fn drop(&mut self) {
        // This fails if the peer has closed the connection, which does not matter.
        _ = self.0.shutdown(Shutdown::Write);
    }
}
