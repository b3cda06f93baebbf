//! Standard output, and what became of it.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;

use crate::failure::Failure;
use crate::{Code, Error};

/// Answers are written in blocks of about this many bytes.
const BLOCK: usize = 128 * 1024;

/// Buffered standard output. The first error sticks: what follows is dropped, and [`Output::finish`] reports it.
pub struct Output {
    file: Option<File>,
    /// What is to be written; it grows as answers need it, so that a process that waits for the next one keeps no more.
    block: Vec<u8>,
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
            block: Vec::new(),
            error,
        }
    }

    /// Whether all that was written so far went well; after an error more is not worth computing.
    pub fn is_fine(&self) -> bool {
        self.error.is_none()
    }

    /// Adds text to what is to be written.
    pub fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }

    /// Writes what was added.
    pub fn flush(&mut self) {
        let block = std::mem::take(&mut self.block);
        self.write_through(&block);
        self.block = block;
        self.block.clear();
    }

    fn write_through(&mut self, bytes: &[u8]) {
        if let Some(file) = self.file.as_mut().filter(|_| self.error.is_none()) {
            self.error = file.write_all(bytes).err();
        }
    }

    /// Adds bytes to what is to be written.
    #[inline]
    pub fn bytes(&mut self, bytes: &[u8]) {
        if self.block.len() + bytes.len() > BLOCK {
            return self.push_over(bytes);
        }
        self.block.extend_from_slice(bytes);
    }

    /// Adds bytes that the block has no room for.
    #[cold]
    fn push_over(&mut self, bytes: &[u8]) {
        self.flush();
        match bytes.len() {
            ..BLOCK => self.block.extend_from_slice(bytes),
            _ => self.write_through(bytes),
        }
    }

    /// Keeps what went wrong with an answer, if nothing did before.
    pub(crate) fn note<E: Into<Box<dyn std::error::Error + Send + Sync>>>(&mut self, written: Result<(), E>) {
        if let Err(error) = written {
            self.error.get_or_insert(io::Error::other(error));
        }
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

/// For serde_json, whose pieces are small. What goes wrong sticks, as above, and is not told twice.
impl Write for Output {
    #[inline]
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes(bytes);
        Ok(bytes.len())
    }

    #[inline]
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.bytes(bytes);
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        Output::flush(self);
        Ok(())
    }
}
