//! A piece of text that the compiler puts together, with the room behind it.

#[derive(Clone, Copy)]
pub(crate) struct Part<const ROOM: usize> {
    pub(crate) bytes: [u8; ROOM],
    pub(crate) length: usize,
}

impl<const ROOM: usize> Part<ROOM> {
    pub(crate) const fn new() -> Part<ROOM> {
        Part {
            bytes: [0; ROOM],
            length: 0,
        }
    }

    /// Fails the build where there is no room.
    pub(crate) const fn with(mut self, text: &[u8]) -> Part<ROOM> {
        let mut index = 0;
        while index < text.len() {
            self.bytes[self.length] = text[index];
            self.length += 1;
            index += 1;
        }
        self
    }

    /// The same with some bytes less at its end.
    pub(crate) const fn without(mut self, count: usize) -> Part<ROOM> {
        self.length -= count;
        self
    }
}
