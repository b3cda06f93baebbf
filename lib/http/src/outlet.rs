//! The way past hyper. What a thousand readers get at once is made ready once and written to each socket as it is: no
//! task is woken for it, and nothing is copied.

use std::sync::Arc;

use bytes::Bytes;

use crate::connection::{Connection, Sent};

/// A frame for any number of readers.
#[derive(Debug, Clone)]
pub struct SharedFrame {
    /// Between the size and the end of its chunk.
    chunk: Bytes,
    frame: Bytes,
}

impl SharedFrame {
    /// Copies the parts of a frame, once for all its readers.
    pub fn of(parts: &[&[u8]]) -> SharedFrame {
        let length: usize = parts.iter().map(|part| part.len()).sum();
        let head = format!("{length:x}\r\n");
        let chunk = Bytes::from([&[head.as_bytes()], parts, &[b"\r\n"]].concat().concat());
        SharedFrame {
            frame: chunk.slice(head.len()..head.len() + length),
            chunk,
        }
    }

    /// The frame as it was given.
    pub fn bytes(&self) -> &Bytes {
        &self.frame
    }
}

/// Where a stream's frames go ([`crate::Request::outlet`]). Of use once the first frame has been sent.
#[derive(Debug, Clone)]
pub struct Outlet {
    connection: Arc<Connection>,
    /// Whether the answer is in chunks, as it is from HTTP/1.1 on.
    chunked: bool,
}

impl Outlet {
    pub(crate) fn new(connection: Arc<Connection>, chunked: bool) -> Outlet {
        Outlet { connection, chunked }
    }

    /// Writes a frame at once, from whatever task, without waiting.
    pub fn send(&self, frame: &SharedFrame) -> Sent {
        let bytes = match self.chunked {
            true => &frame.chunk,
            false => &frame.frame,
        };
        self.connection.write_between(bytes)
    }
}
