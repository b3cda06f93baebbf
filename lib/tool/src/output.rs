//! Buffered standard output that remembers its first error.

use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;

use ken_text::TerminalBytes;

use crate::failure::Failure;
use crate::start::stdout_was_closed;
use crate::{Code, Error};

/// Answers are written in blocks of at most this many bytes.
const BLOCK: usize = 256 * 1024;

/// The initial size of the block, which is enough for a small answer and keeps an idle co-process small.
const FIRST_BLOCK: usize = 4 * 1024;

/// Buffered standard output. After an error all further output is dropped, and [`Output::finish`] reports the error.
pub struct Output {
    file: Option<File>,
    /// What waits to be written.
    block: Vec<u8>,
    /// Set if the output is a terminal. It removes control characters, which quoted text can contain and the terminal would
    /// obey.
    guard: Option<TerminalBytes>,
    error: Option<io::Error>,
}

impl Output {
    /// Standard output, or an error for [`Output::finish`] if the process was started without one. Bypasses the line buffer
    /// of the standard library, which ignores a closed descriptor and writes line by line.
    pub fn open() -> Output {
        let file =
            if stdout_was_closed() { Err(closed()) } else { io::stdout().as_fd().try_clone_to_owned().map(File::from) };
        let (file, error) = match file {
            Ok(file) => (Some(file), None),
            Err(error) => (None, Some(error)),
        };
        Output {
            file,
            block: Vec::with_capacity(FIRST_BLOCK),
            guard: io::stdout().is_terminal().then(TerminalBytes::default),
            error,
        }
    }

    #[cfg(test)]
    pub(crate) fn to_memory() -> Output {
        Output { file: None, block: Vec::new(), guard: None, error: None }
    }

    #[cfg(test)]
    pub(crate) fn memory(&self) -> &[u8] {
        &self.block
    }

    /// Whether no error has occurred yet.
    pub fn has_no_error(&self) -> bool {
        self.error.is_none()
    }

    /// Appends text.
    pub fn text(&mut self, text: &str) {
        self.push(text.as_bytes());
    }

    /// How many bytes wait to be written.
    pub(crate) fn filled(&self) -> usize {
        self.block.len()
    }

    /// Writes the block to the file.
    pub fn flush(&mut self) {
        if let Some(file) = self.file.as_mut().filter(|_| self.error.is_none()) {
            let written = match &mut self.guard {
                Some(guard) => file.write_all(guard.push(&self.block).as_bytes()),
                None => file.write_all(&self.block),
            };
            self.error = written.err();
        }
        self.block.clear();
    }

    #[inline(always)]
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        if BLOCK - self.block.len() < bytes.len() {
            self.push_by_blocks(bytes);
        } else {
            self.block.extend_from_slice(bytes);
        }
    }

    /// Flushes the block before it would become too large, and splits what is larger than a block.
    #[cold]
    fn push_by_blocks(&mut self, bytes: &[u8]) {
        for part in bytes.chunks(BLOCK) {
            if BLOCK - self.block.len() < part.len() {
                self.flush();
            }
            self.block.extend_from_slice(part);
        }
    }

    pub(crate) fn fail(&mut self, error: io::Error) {
        self.error.get_or_insert(error);
    }

    /// Flushes, and returns the first error of all writes.
    pub fn finish(mut self) -> Result<(), Failure> {
        self.flush();
        match self.error {
            None => Ok(()),
            Some(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(Failure::ReaderGone),
            Some(error) => Err(unwritten(&error).into()),
        }
    }
}

/// Writes to standard output and flushes it, for a program that is no filter.
///
/// # Errors
/// `unavailable` if it cannot be written, or was closed when the process started; `cancelled` without a message if its reader has ended, which
/// is no error.
pub fn print(bytes: &[u8]) -> Result<(), Error> {
    if stdout_was_closed() {
        return Err(unwritten(&closed()));
    }
    let mut out = io::stdout().lock();
    out.write_all(bytes).and_then(|()| out.flush()).map_err(|error| match error.kind() {
        io::ErrorKind::BrokenPipe => Error::new(Code::Cancelled, ""),
        _ => unwritten(&error),
    })
}

fn closed() -> io::Error {
    io::Error::other("it is closed")
}

fn unwritten(error: &io::Error) -> Error {
    Error::new(Code::Unavailable, format!("cannot write to standard output: {error}"))
}

/// Never returns an error: [`Output::finish`] does.
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
