//! The control socket, `kend.sock`, with its connections and their open requests.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::{Duration, Instant};

use ken_types::Error;
use ken_types::limits::{WIRE_CONNECTIONS, WIRE_DEADLINE_MAX_MS};
use ken_wire::Request;
use nix::poll::PollFlags;
use nix::sys::socket::{getsockopt, sockopt};
use nix::unistd::geteuid;

use crate::connection::{Connection, Open};
use crate::logs::CHUNK;
use crate::ops::{self, OpReply};
use crate::sockets::bind_unix;
use crate::system::System;

/// The maximum number of connections accepted in one round of the loop.
const MAX_ACCEPTED: usize = 16;

pub(crate) struct Control {
    listener: UnixListener,
    connections: Vec<Connection>,
}

impl Control {
    pub(crate) fn bind(path: &Path) -> Result<Control, String> {
        let listener = bind_unix(path, |path| {
            let listener = UnixListener::bind(path)?;
            listener.set_nonblocking(true)?;
            Ok(listener)
        })?;
        Ok(Control { listener, connections: Vec::new() })
    }

    /// Goes on with a socket that is bound already.
    pub(crate) fn over(listener: OwnedFd) -> Control {
        Control { listener: UnixListener::from(listener), connections: Vec::new() }
    }

    /// Whether another connection can be accepted. At the limit, callers wait in the queue of the socket.
    pub(crate) fn has_room(&self) -> bool {
        self.connections.len() < WIRE_CONNECTIONS
    }

    pub(crate) fn connections(&self) -> &[Connection] {
        &self.connections
    }

    pub(crate) fn accept(&mut self) {
        for _ in 0..MAX_ACCEPTED {
            // An error of accept needs no handling: it concerns only that caller, or is temporary.
            match self.listener.accept() {
                Ok((stream, _)) if self.has_room() => self.connections.extend(admit(stream)),
                _ => return,
            }
        }
    }

    /// Handles poll events of one connection: reads its input, or notes that it is closed.
    pub(crate) fn serve(&mut self, index: usize, events: PollFlags, now: Instant) {
        let Some(connection) = self.connections.get_mut(index) else {
            return;
        };
        if events.intersects(PollFlags::POLLERR | PollFlags::POLLNVAL) {
            connection.hang_up();
        }
        if events.contains(PollFlags::POLLIN) {
            connection.read(now);
        } else if events.contains(PollFlags::POLLHUP) {
            connection.hang_up();
        }
    }

    /// Carries out new requests, sends replies to requests whose result is now known, and drops closed connections.
    pub(crate) fn settle(&mut self, system: &mut System, now: Instant) {
        let mut chunk = Vec::new();
        for connection in &mut self.connections {
            // Sending makes room for further lines. If it does not make enough, there is output left, and the loop wakes up
            // when the caller reads it.
            connection.flush(now);
            while let Some(line) = connection.next_line(now) {
                take(connection, &line, system, now);
                connection.flush(now);
            }
            if !connection.open.is_empty() {
                chunk.resize(CHUNK, 0);
                finish(connection, system, &mut chunk, now);
            }
            connection.expire(now);
            connection.flush(now);
        }
        self.connections.retain(|connection| !connection.is_over());
    }

    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.connections.iter().filter_map(Connection::next_deadline).min()
    }
}

impl AsFd for Control {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

/// Accepts connections of kend's own user and of root. Any other user gets an error line and is disconnected.
fn admit(stream: UnixStream) -> Option<Connection> {
    stream.set_nonblocking(true).ok()?;
    let peer = getsockopt(&stream, sockopt::PeerCredentials).ok()?;
    let mut connection = Connection::new(stream);
    if peer.uid() != geteuid().as_raw() && peer.uid() != 0 {
        connection.refuse(None, &Error::forbidden(format!("uid {} may not call this part", peer.uid())));
        connection.flush(Instant::now());
        return None;
    }
    Some(connection)
}

fn take(connection: &mut Connection, line: &[u8], system: &mut System, now: Instant) {
    match Request::parse(line) {
        Err(malformed) => connection.refuse(malformed.id, &malformed.error),
        Ok(Request::Cancel { id }) => {
            let before = connection.open.len();
            connection.open.retain(|open| open.id != id);
            if connection.open.len() < before {
                connection.finish(id, Err(Error::cancelled("cancelled by the caller")));
            }
        }
        Ok(Request::Call { id, .. }) if connection.open.iter().any(|open| open.id == id) => {
            connection.refuse(Some(id), &Error::invalid("/id", "a request with this id is open"));
        }
        Ok(Request::Call { id, .. }) if connection.is_full() => {
            let error = Error::busy("too many open requests on this connection", 100);
            connection.refuse(Some(id), &error);
        }
        Ok(Request::Call { id, op, args, deadline }) => match ops::call(system, &op, args, now) {
            Err(error) => connection.refuse(Some(id), &error),
            Ok(OpReply::Now(value)) => connection.finish(id, Ok(value)),
            Ok(OpReply::Later(pending, timeout)) => {
                let requested = timeout.map(|ms| Duration::from_millis(ms.min(WIRE_DEADLINE_MAX_MS)));
                let limit = requested.unwrap_or(deadline);
                connection.open.push(Open { id, deadline: pending.has_deadline().then(|| now + limit), pending });
            }
        },
    }
}

fn finish(connection: &mut Connection, system: &System, chunk: &mut [u8], now: Instant) {
    for mut open in std::mem::take(&mut connection.open) {
        let late = open.deadline.is_some_and(|deadline| deadline <= now);
        let result = match ops::settle(&mut open.pending, system, connection, open.id, chunk, now) {
            None if late => Some(Err(ops::deadline_error(&open.pending, system, now))),
            result => result,
        };
        match result {
            Some(result) => connection.finish(open.id, result),
            None => connection.open.push(open),
        }
    }
}
