//! Finds the end of a chunked body (RFC 9112, section 7.1), so that bytes of the next request are not passed to hyper with it.
//! hyper decodes the body.

/// Follows the framing of one body as it arrives.
#[derive(Debug)]
pub(crate) struct ChunkReader {
    state: State,
    /// The number of bytes of size lines and trailers since the last data.
    overhead: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Within the digits of a size; counts the digits.
    Size {
        size: u64,
        digits: u32,
    },
    /// After the digits, up to the CR.
    Extension {
        size: u64,
    },
    SizeLf {
        size: u64,
    },
    Data {
        left: u64,
    },
    DataCr,
    DataLf,
    /// Within a trailer line, which may be empty so far.
    Trailer {
        empty: bool,
    },
    TrailerLf {
        last: bool,
    },
    End,
}

/// The framing of the body is malformed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

/// Maximum number of bytes of a size line with its extension, or of all trailers together.
const MAX_OVERHEAD: usize = 4 << 10;

impl ChunkReader {
    pub(crate) fn new() -> ChunkReader {
        ChunkReader { state: State::Size { size: 0, digits: 0 }, overhead: 0 }
    }

    pub(crate) fn is_at_end(&self) -> bool {
        self.state == State::End
    }

    /// How many of these bytes belong to the body.
    pub(crate) fn read(&mut self, bytes: &[u8]) -> Result<usize, Malformed> {
        let mut used = 0;
        while let Some(byte) = bytes.get(used) {
            used += match self.state {
                State::End => break,
                State::Data { left } => self.skip_data(left, bytes.len() - used),
                state => self.step(state, *byte)?,
            };
        }
        Ok(used)
    }

    fn skip_data(&mut self, left: u64, available: usize) -> usize {
        let take = usize::try_from(left).unwrap_or(usize::MAX).min(available);
        let left = left - take as u64;
        self.state = if left == 0 { State::DataCr } else { State::Data { left } };
        self.overhead = 0;
        take
    }

    /// Reads one byte outside the data.
    fn step(&mut self, state: State, byte: u8) -> Result<usize, Malformed> {
        self.overhead += 1;
        if self.overhead > MAX_OVERHEAD {
            return Err(Malformed);
        }
        self.state = match (state, byte) {
            (State::Size { size, digits }, _) => Self::next_in_size(size, digits, byte)?,
            (State::Extension { size }, b'\r') => State::SizeLf { size },
            (State::Extension { size }, b' '..=b'~' | b'\t') => State::Extension { size },
            (State::SizeLf { size: 0 }, b'\n') => State::Trailer { empty: true },
            (State::SizeLf { size }, b'\n') => State::Data { left: size },
            (State::DataCr, b'\r') => State::DataLf,
            (State::DataLf, b'\n') => State::Size { size: 0, digits: 0 },
            (State::Trailer { empty }, b'\r') => State::TrailerLf { last: empty },
            (State::Trailer { .. }, b' '..=b'~' | b'\t') => State::Trailer { empty: false },
            (State::TrailerLf { last: true }, b'\n') => State::End,
            (State::TrailerLf { last: false }, b'\n') => State::Trailer { empty: true },
            _ => return Err(Malformed),
        };
        Ok(1)
    }

    fn next_in_size(size: u64, digits: u32, byte: u8) -> Result<State, Malformed> {
        match char::from(byte).to_digit(16) {
            // Fifteen digits are less than 2^60, so this does not overflow.
            Some(digit) if digits < 15 => Ok(State::Size { size: size << 4 | u64::from(digit), digits: digits + 1 }),
            None if digits > 0 && byte == b'\r' => Ok(State::SizeLf { size }),
            None if digits > 0 && matches!(byte, b';' | b' ' | b'\t') => Ok(State::Extension { size }),
            _ => Err(Malformed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_is_found_however_the_bytes_are_cut() {
        let body = b"5;a=b\r\nhello\r\n1\r\n\n\r\n0\r\nx: y\r\n\r\nGET / HTTP/1.1";
        let end = body.len() - 14;
        for cut in 0..end {
            let mut reader = ChunkReader::new();
            let first = reader.read(&body[..cut]).unwrap();
            assert_eq!((first, reader.is_at_end()), (cut, false));
            assert_eq!(reader.read(&body[cut..]), Ok(end - cut));
            assert!(reader.is_at_end());
        }
    }

    #[test]
    fn malformed_framing_is_seen() {
        for body in [
            &b"x\r\n"[..],
            b"\r\n",
            b"-1\r\n",
            b"1\n",
            b"1\r\nab",
            b"1\r\na\r\r",
            b"fffffffffffffffff\r\n",
            b"0\r\n\x01\r\n",
            b"1;\x00\r\n",
        ] {
            assert_eq!(ChunkReader::new().read(body), Err(Malformed), "{body:?}");
        }
        let long = [&b"1;"[..], &b"a".repeat(5_000)].concat();
        assert_eq!(ChunkReader::new().read(&long), Err(Malformed));
    }

    /// The limit is for each size line and for all trailers together, not for the framing of a whole body.
    #[test]
    fn a_body_has_any_number_of_chunks_but_not_of_trailers() {
        let chunks = b"1\r\nx\r\n".repeat(2_000);
        let whole = [&chunks[..], b"00000000000000a\r\n0123456789\r\n0\r\nx: y\r\n\r\n"].concat();
        let mut reader = ChunkReader::new();
        assert_eq!((reader.read(&whole), reader.is_at_end()), (Ok(whole.len()), true));
        assert_eq!(ChunkReader::new().read(b"000000000000000a\r\n"), Err(Malformed));
        let trailers = [&chunks[..], b"0\r\n", &b"x: y\r\n".repeat(700)].concat();
        assert_eq!(ChunkReader::new().read(&trailers), Err(Malformed));
    }
}
