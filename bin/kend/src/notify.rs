//! Readiness by sd_notify(3): reports of the parts to kend, and of kend to systemd.

use std::io::IoSliceMut;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::path::Path;

use nix::sys::socket::{ControlMessageOwned, MsgFlags, UnixCredentials, recvmsg, setsockopt, sockopt};
use nix::unistd::{Pid, getpgid};
use sd_notify::NotifyState;

use crate::sockets::bind_unix;

/// The maximum size of a datagram, in bytes. The rest of a longer one is dropped; those of sd_notify(3) are far
/// shorter.
const MAX_DATAGRAM_BYTES: usize = 4096;
/// The maximum number of datagrams read in one round of the loop.
const MAX_DATAGRAMS: usize = 64;

/// The socket to which all parts report. The kernel adds the pid of the sender to each datagram.
pub(crate) struct Notify {
    socket: UnixDatagram,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Report {
    pub(crate) ready: bool,
    pub(crate) stopping: bool,
    pub(crate) alive: bool,
    pub(crate) status_text: Option<String>,
}

impl Notify {
    pub(crate) fn bind(path: &Path) -> Result<Notify, String> {
        let socket = bind_unix(path, |path| {
            let socket = UnixDatagram::bind(path)?;
            socket.set_nonblocking(true)?;
            setsockopt(&socket, sockopt::PassCred, &true)?;
            Ok(socket)
        })?;
        Ok(Notify { socket })
    }

    /// Goes on with a socket that is bound already.
    pub(crate) fn over(socket: OwnedFd) -> Notify {
        Notify { socket: UnixDatagram::from(socket) }
    }

    /// Returns the reports that have arrived, each with the leader of its sender's process group.
    pub(crate) fn read(&self) -> Vec<(Pid, Report)> {
        std::iter::from_fn(|| self.read_one()).take(MAX_DATAGRAMS).flatten().collect()
    }

    /// Reads one datagram. Returns `None` if there is none, and `Some(None)` if the sender is unknown.
    fn read_one(&self) -> Option<Option<(Pid, Report)>> {
        let mut text = [0; MAX_DATAGRAM_BYTES];
        let mut slices = [IoSliceMut::new(&mut text)];
        let mut space = nix::cmsg_space!(UnixCredentials);
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_CMSG_CLOEXEC;
        let message = recvmsg::<()>(self.socket.as_raw_fd(), &mut slices, Some(&mut space), flags).ok()?;
        let sender = message.cmsgs().ok().and_then(|mut all| {
            all.find_map(|one| match one {
                ControlMessageOwned::ScmCredentials(sender) => Some(Pid::from_raw(sender.pid())),
                _ => None,
            })
        });
        let length = message.bytes;
        // A child in the same process group may report for its part. A sender that has ended has no group, so its
        // report is ignored.
        let leader = sender.and_then(|pid| getpgid(Some(pid)).ok());
        Some(leader.map(|leader| (leader, Report::parse(text.get(..length).unwrap_or_default()))))
    }
}

impl AsFd for Notify {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Report {
    fn parse(datagram: &[u8]) -> Report {
        let mut report = Report::default();
        for line in String::from_utf8_lossy(datagram).lines() {
            match line.split_once('=') {
                Some(("READY", "1")) => report.ready = true,
                Some(("STOPPING", "1")) => report.stopping = true,
                Some(("WATCHDOG", "1")) => report.alive = true,
                Some(("STATUS", text)) => report.status_text = Some(text.chars().take(256).collect()),
                _ => {}
            }
        }
        report
    }
}

/// Sends a state to systemd, if systemd started kend and expects reports.
pub(crate) fn notify_systemd(state: &[NotifyState<'_>]) {
    let _ = sd_notify::notify(state);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_lines_are_taken_and_others_left() {
        let report = Report::parse(b"READY=1\nSTATUS=up, 3 open\nX=1\nREADY=0\n");
        assert!(report.ready && !report.stopping && !report.alive);
        assert_eq!(report.status_text.as_deref(), Some("up, 3 open"));
        assert!(Report::parse(b"WATCHDOG=1").alive);
        assert_eq!(Report::parse(b"READY=2\n\xff"), Report::default());
    }
}
