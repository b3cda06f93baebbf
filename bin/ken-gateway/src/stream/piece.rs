//! The newest entries of a followed stream, as frames that are built once for all readers.

use std::collections::VecDeque;

use bytes::Bytes;
use ken_http::SharedFrame;
use ken_types::ops::store::StreamPage;

use super::cursor::next_cursor;
use super::frame::{Position, data_frame};
use super::subject::{Form, Kind};

/// The end of a stream, and its newest entries.
#[derive(Debug)]
pub(crate) struct Newest {
    pub(crate) position: Position,
    /// The newest pieces, oldest first and without gaps, up to `position`. A reader that is slightly behind gets them
    /// from here and not from the store.
    recent: VecDeque<Piece>,
}

/// One page of entries, as frames.
#[derive(Debug, Clone)]
pub(crate) struct Piece {
    /// The number of entries before it.
    pub(crate) start: u64,
    /// The position after it.
    pub(crate) end: Position,
    /// The entries as a data frame.
    pub(crate) data: Bytes,
    /// The data frame followed by a control frame, for readers whose cursor is lower than `cursor`.
    frames: SharedFrame,
    cursor: u64,
}

/// The maximum number of pieces and bytes that are kept. A reader that is behind and does not read can hold a copy of
/// all of them.
const RECENT_PIECES: usize = 32;
const RECENT_BYTES: usize = 16 * 1024;

impl Newest {
    pub(crate) fn at(end: u64) -> Newest {
        let position = Position { next: end, at_end: true, closed: false };
        Newest { position, recent: VecDeque::new() }
    }

    pub(crate) fn push(&mut self, piece: Piece) {
        self.position = piece.end;
        self.recent.push_back(piece);
        let mut bytes: usize = self.recent.iter().map(Piece::size).sum();
        while self.recent.len() > 1 && (self.recent.len() > RECENT_PIECES || bytes > RECENT_BYTES) {
            bytes -= self.recent.pop_front().map_or(0, |piece| piece.size());
        }
    }

    pub(crate) fn is_beyond(&self, position: Position) -> bool {
        self.position.next > position.next || self.position.closed
    }

    /// Returns the pieces after the first `next` entries, or `None` if the piece that begins there is no longer kept.
    pub(crate) fn since(&self, next: u64) -> Option<Vec<Piece>> {
        let first = self.recent.iter().position(|piece| piece.start == next)?;
        Some(self.recent.iter().skip(first).cloned().collect())
    }
}

impl Piece {
    pub(crate) fn of(page: StreamPage, form: Form, kind: Kind) -> Piece {
        let end = Position::after(&page);
        let start = page.start;
        let cursor = next_cursor(None).unwrap_or_default();
        let data = data_frame(page, form, kind);
        let control = end.control(kind, cursor);
        Piece { start, end, frames: SharedFrame::of(&[&data, &control]), data, cursor }
    }

    fn size(&self) -> usize {
        self.frames.bytes().len()
    }

    /// Returns the frames for a reader with this cursor, or `None` if it needs its own control frame.
    pub(crate) fn frames(&self, cursor: Option<u64>) -> Option<&SharedFrame> {
        let shared = cursor.is_none_or(|cursor| cursor < self.cursor);
        shared.then_some(&self.frames)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ken_types::Octets;
    use ken_types::ops::streams::PublicPage;

    fn page(start: u64, bytes: usize) -> StreamPage {
        let public =
            PublicPage { content_type: "text/plain".into(), lifetime: None, bytes: Some(Octets(vec![b'x'; bytes])) };
        StreamPage { start, next: start + 1, end: start + 1, public: Some(public), ..StreamPage::default() }
    }

    #[test]
    fn a_reader_that_is_a_little_behind_continues_without_the_store() {
        let piece = |start, bytes| Piece::of(page(start, bytes), Form::Text, Kind::Public);
        let mut newest = Newest::at(5);
        assert!(newest.since(5).is_none());
        for start in 5..60 {
            newest.push(piece(start, 10));
        }
        assert_eq!(newest.position.next, 60);
        assert_eq!(newest.since(58).map(|pieces| pieces.len()), Some(2));
        assert_eq!(newest.since(28).map(|pieces| pieces.len()), Some(RECENT_PIECES));
        assert!(newest.since(27).is_none());
        // The last piece is always kept. If it is too large, it is the only one.
        newest.push(piece(60, RECENT_BYTES));
        assert!(newest.since(59).is_none());
        let last = newest.since(60).unwrap();
        let frames = last[0].frames(None).unwrap();
        assert!(frames.bytes().ends_with(b"\"upToDate\":true}\n\n"));
        assert!(last[0].frames(Some(u64::MAX)).is_none());
    }
}
