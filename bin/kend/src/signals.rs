//! Makes signals pollable: each handler writes to a pipe whose other end the event loop watches.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use nix::sys::signal::Signal;
use signal_hook::iterator::backend::SignalDelivery;
use signal_hook::iterator::exfiltrator::SignalOnly;

/// The signals that kend handles. All others keep their default effect.
const CAUGHT: [Signal; 4] = [Signal::SIGCHLD, Signal::SIGHUP, Signal::SIGINT, Signal::SIGTERM];

pub(crate) struct Signals {
    delivery: SignalDelivery<UnixStream, SignalOnly>,
}

impl Signals {
    pub(crate) fn catch() -> io::Result<Signals> {
        let (read, write) = UnixStream::pair()?;
        read.set_nonblocking(true)?;
        let numbers = CAUGHT.map(|signal| signal as i32);
        let delivery = SignalDelivery::with_pipe(read, write, SignalOnly, numbers)?;
        Ok(Signals { delivery })
    }

    /// Returns the signals that have arrived since the last call, each of them once.
    pub(crate) fn pending(&mut self) -> Vec<Signal> {
        let numbers = self.delivery.pending();
        numbers.filter_map(|number| Signal::try_from(number).ok()).collect()
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.delivery.get_read().as_fd()
    }
}
