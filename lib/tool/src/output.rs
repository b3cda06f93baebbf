//! Standard output, and what became of it.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;

use crate::failure::Failure;
use crate::{Code, Error};

/// Answers are written in blocks of at most this many bytes.
const BLOCK: usize = 256 * 1024;

/// The first block's size: a small answer needs no more, and a process that waits for the next one keeps no more.
const FIRST_BLOCK: usize = 4 * 1024;

/// Buffered standard output. The first error sticks: what follows is dropped, and [`Output::finish`] reports it.
pub struct Output {
    file: Option<File>,
    block: Vec<u8>,
    /// How much of the block is to be written.
    filled: usize,
    error: Option<io::Error>,
}

impl Output {
    /// Standard output, or an error for [`Output::finish`] if the process was started without one.
    pub fn open() -> Output {
        Output::stdout(crate::start::stdout_was_closed())
    }

    /// Standard output without std's line buffer, which hides a closed descriptor and writes line by line.
    fn stdout(was_closed: bool) -> Output {
        let file = match io::stdout().as_fd().try_clone_to_owned() {
            _ if was_closed => Err(io::Error::other("it is closed")),
            descriptor => descriptor.map(File::from),
        };
        let (file, error) = match file {
            Ok(file) => (Some(file), None),
            Err(error) => (None, Some(error)),
        };
        Output {
            file,
            block: vec![0; FIRST_BLOCK],
            filled: 0,
            error,
        }
    }

    #[cfg(test)]
    pub(crate) fn to_memory() -> Output {
        Output {
            file: None,
            block: vec![0; BLOCK],
            filled: 0,
            error: None,
        }
    }

    #[cfg(test)]
    pub(crate) fn memory(&self) -> &[u8] {
        self.block.get(..self.filled).unwrap_or_default()
    }

    /// Whether all that was written so far went well; after an error more is not worth computing.
    pub fn is_fine(&self) -> bool {
        self.error.is_none()
    }

    /// Adds text to what is to be written.
    pub fn text(&mut self, text: &str) {
        self.push(text.as_bytes());
    }

    /// Adds bytes to what is to be written.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.push(bytes);
    }

    /// How many bytes wait to be written.
    pub(crate) fn filled(&self) -> usize {
        self.filled
    }

    /// Writes what was added.
    pub fn flush(&mut self) {
        let whole = self.block.get(..self.filled).unwrap_or_default();
        if let Some(file) = self.file.as_mut().filter(|_| self.error.is_none()) {
            self.error = file.write_all(whole).err();
        }
        self.filled = 0;
    }

    /// Adds bytes.
    #[inline(always)]
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        match self.place(bytes.len()) {
            Some(place) => place.copy_from_slice(bytes),
            None => self.push_long(bytes),
        }
    }

    /// A place for so many bytes at the end of what is to be written, all of which the caller fills. None if they are more
    /// than a block holds.
    #[inline(always)]
    pub(crate) fn place(&mut self, bytes: usize) -> Option<&mut [u8]> {
        if self.block.len() - self.filled < bytes {
            self.make_room(bytes);
        }
        let start = self.filled;
        let place = self.block.get_mut(start..start + bytes)?;
        self.filled = start + bytes;
        Some(place)
    }

    /// A larger block, or, once it is as large as they get, an empty one.
    #[cold]
    fn make_room(&mut self, bytes: usize) {
        if self.filled + bytes <= BLOCK {
            let larger = (self.filled + bytes).max(2 * self.block.len()).min(BLOCK);
            self.block.resize(larger, 0);
        } else {
            self.flush();
            self.block.resize(BLOCK, 0);
        }
    }

    fn push_long(&mut self, bytes: &[u8]) {
        for part in bytes.chunks(BLOCK) {
            if let Some(place) = self.place(part.len()) {
                place.copy_from_slice(part);
            }
        }
    }

    pub(crate) fn fail(&mut self, error: io::Error) {
        self.error.get_or_insert(error);
    }

    /// Flushes, and says whether all that was written arrived.
    pub fn finish(mut self) -> Result<(), Failure> {
        self.flush();
        match self.error {
            None => Ok(()),
            Some(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(Failure::ReaderGone),
            Some(error) => {
                let message = format!("cannot write to standard output: {error}");
                Err(Error::new(Code::Unavailable, message).into())
            }
        }
    }
}

/// Never fails: an error of the file is kept for [`Output::finish`].
impl Write for Output {
    #[inline]
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.push(bytes);
        Ok(bytes.len())
    }

    #[inline]
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.push(bytes);
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        Output::flush(self);
        Ok(())
    }
}
