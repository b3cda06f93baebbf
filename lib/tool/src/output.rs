//! Standard output, and what became of it.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::fd::AsFd;

use crate::failure::Failure;
use crate::{Code, Error};

/// Answers are written in blocks of this many bytes.
const BUFFER: usize = 64 * 1024;

/// Buffered standard output. The first error sticks: what follows is dropped, and [`Output::finish`] reports it.
pub struct Output {
    writer: Option<BufWriter<File>>,
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
        match file {
            Ok(file) => Output {
                writer: Some(BufWriter::with_capacity(BUFFER, file)),
                error: None,
            },
            Err(error) => Output {
                writer: None,
                error: Some(error),
            },
        }
    }

    /// Whether all that was written so far went well; after an error more is not worth computing.
    pub fn is_fine(&self) -> bool {
        self.error.is_none()
    }

    /// Adds text to what is to be written.
    pub fn text(&mut self, text: &str) {
        self.write(|writer| writer.write_all(text.as_bytes()));
    }

    /// Writes what was added.
    pub fn flush(&mut self) {
        self.write(Write::flush);
    }

    pub(crate) fn write(&mut self, write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>) {
        let Some(writer) = self.writer.as_mut().filter(|_| self.error.is_none()) else {
            return;
        };
        self.error = write(writer).err();
    }

    /// Flushes, and says whether all that was written arrived.
    pub fn finish(mut self) -> Result<(), Failure> {
        self.flush();
        // After an error the buffer still holds bytes; dropping it would try, and fail, to write them once more.
        self.writer.map(BufWriter::into_parts);
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
