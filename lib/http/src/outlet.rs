//! Writes frames to sockets without hyper. A frame for a thousand readers is encoded once and written to each socket directly,
//! without waking tasks and without copies.

use std::sync::Arc;

use bytes::Bytes;

use crate::connection::{Connection, WriteResult};

/// A frame for any number of readers.
#[derive(Debug, Clone)]
pub struct SharedFrame {
    /// The complete chunk: size line, frame and line end.
    chunk: Bytes,
    frame: Bytes,
}

impl SharedFrame {
    /// Copies the parts of a frame, once for all its readers.
    pub fn of(parts: &[&[u8]]) -> SharedFrame {
        let length: usize = parts.iter().map(|part| part.len()).sum();
        let head = format!("{length:x}\r\n");
        let chunk = Bytes::from([&[head.as_bytes()], parts, &[b"\r\n"]].concat().concat());
        SharedFrame { frame: chunk.slice(head.len()..head.len() + length), chunk }
    }

    /// The frame without the chunk's framing.
    pub fn bytes(&self) -> &Bytes {
        &self.frame
    }
}

/// The destination of a stream's frames ([`crate::Request::outlet`]). Usable once the first frame has been sent.
#[derive(Debug, Clone)]
pub struct Outlet {
    connection: Arc<Connection>,
    /// Whether the response is chunked, which it is from HTTP/1.1 on.
    chunked: bool,
}

impl Outlet {
    pub(crate) fn new(connection: Arc<Connection>, chunked: bool) -> Outlet {
        Outlet { connection, chunked }
    }

    /// Writes a frame at once, from any task, without waiting.
    pub fn send(&self, frame: &SharedFrame) -> WriteResult {
        let bytes = if self.chunked { &frame.chunk } else { &frame.frame };
        self.connection.write_between(bytes)
    }
}
