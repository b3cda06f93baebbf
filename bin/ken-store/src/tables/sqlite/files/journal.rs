//! Reads the write-ahead log and its index in the format of SQLite (sqlite.org/fileformat2.html, sqlite.org/walformat.html). This is done
//! before SQLite reads them, because its recovery silently drops everything after the first damaged frame.

use std::fs::File;
use std::io::{BufReader, ErrorKind, Read};
use std::path::Path;

const HEADER: usize = 32;
const FRAME_HEADER: usize = 24;
/// The common part of the two magic numbers of the log. Their last bit gives the byte order in which checksums are computed.
const MAGIC: u32 = 0x377f_0682;
const LARGEST_PAGE: u32 = 65_536;
/// The value of a read mark in the index that no reader has set.
const UNUSED_MARK: u32 = u32::MAX;

/// The content of the write-ahead log.
#[derive(Debug, Default)]
pub(super) struct Journal {
    /// Whether the file exists.
    pub(super) exists: bool,
    /// The length in bytes.
    pub(super) length: u64,
    /// The salt of the current generation of the log. Frames with another salt are left from an earlier one.
    pub(super) salt: Option<[u8; 8]>,
    /// The number of readable frames up to the last commit. SQLite recovers these.
    pub(super) frames: u64,
    /// The number of frames of the current generation that cannot be read.
    unreadable: u64,
}

/// The content of the index of the log (`-shm`). It is only valid until the operating system stops, because it is never synced.
#[derive(Debug, Clone, Copy)]
pub(super) struct Index {
    /// The number of frames up to the last commit.
    pub(super) frames: u64,
    /// The number of frames that have been copied into the database.
    pub(super) copied: u64,
    pub(super) salt: [u8; 8],
    /// Whether the index has just been rebuilt from the log. It then contains nothing that the log does not show.
    pub(super) is_fresh: bool,
}

impl Journal {
    /// Reads the log at `path`. A missing file counts as an empty log.
    pub(super) fn read(path: &Path) -> std::io::Result<Journal> {
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Journal::default()),
            Err(error) => return Err(error),
        };
        let length = file.metadata()?.len();
        let mut journal = Journal { exists: true, length, ..Journal::default() };
        if length > 0 {
            journal.scan(&mut BufReader::with_capacity(1 << 20, file))?;
        }
        Ok(journal)
    }

    fn scan(&mut self, from: &mut impl Read) -> std::io::Result<()> {
        let mut header = [0; HEADER];
        let header_length = fill(from, &mut header)?;
        let Some((mut sum, page_size)) = read_header(&header).filter(|_| header_length == HEADER) else {
            // If the header cannot be read, everything after it is lost.
            self.unreadable = self.length.div_ceil(4_096 + FRAME_HEADER as u64);
            return Ok(());
        };
        let salt = take(&header, 16);
        self.salt = Some(salt);
        let mut frame = vec![0; FRAME_HEADER + page_size];
        let (mut number, mut intact) = (0, true);
        loop {
            let length = fill(from, &mut frame)?;
            let same_generation = length >= FRAME_HEADER && take(&frame, 8) == salt;
            if length == 0 {
                return Ok(());
            }
            number += 1;
            if intact && same_generation && length == frame.len() {
                sum.add(&frame[..8]);
                sum.add(&frame[FRAME_HEADER..]);
                intact = sum.matches(&frame[16..FRAME_HEADER]);
            } else {
                intact = false;
            }
            if !intact {
                self.unreadable += u64::from(same_generation);
            } else if word(&frame, 4) > 0 {
                self.frames = number;
            }
        }
    }

    /// Returns whether the index may belong to this log. If the header of the log cannot be read, every index may.
    pub(super) fn is_of(&self, index: &Index) -> bool {
        self.salt.is_none_or(|salt| salt == index.salt)
    }

    /// Returns how many committed frames SQLite's recovery would drop. Without a trustworthy index, this includes a frame that was only
    /// partly written when the system went down.
    pub(super) fn lost(&self, index: Option<&Index>) -> u64 {
        match index {
            Some(index) => index.frames.saturating_sub(self.frames),
            None => self.unreadable,
        }
    }
}

impl Index {
    /// Reads the index at `path`; `None` if it is missing or damaged.
    pub(super) fn read(path: &Path) -> Option<Index> {
        let mut bytes = [0; 132];
        File::open(path).ok()?.read_exact(&mut bytes).ok()?;
        let native = |at: usize| u32::from_ne_bytes(take(&bytes, at));
        let mut sum = Sum::new(cfg!(target_endian = "big"));
        sum.add(&bytes[..40]);
        let intact = (sum.0, sum.1) == (native(40), native(44)) && bytes[..48] == bytes[48..96];
        let frames = u64::from(native(16));
        let is_fresh = match frames {
            // In a log that was restarted, the first read mark is 0.
            0 => native(104) == UNUSED_MARK,
            _ => native(96) == 0 && u64::from(native(128)) == frames,
        };
        intact.then(|| Index { frames, copied: u64::from(native(96)).min(frames), salt: take(&bytes, 32), is_fresh })
    }
}

/// The checksum of a log up to a position, and whether it reads words in big-endian order.
struct Sum(u32, u32, bool);

impl Sum {
    fn new(big_endian: bool) -> Sum {
        Sum(0, 0, big_endian)
    }

    /// Adds bytes to the checksum. Their number must be a multiple of 8.
    fn add(&mut self, bytes: &[u8]) {
        let read = if self.2 { u32::from_be_bytes } else { u32::from_le_bytes };
        for pair in bytes.chunks_exact(8) {
            self.0 = self.0.wrapping_add(read(take(pair, 0))).wrapping_add(self.1);
            self.1 = self.1.wrapping_add(read(take(pair, 4))).wrapping_add(self.0);
        }
    }

    fn matches(&self, stored: &[u8]) -> bool {
        (self.0, self.1) == (word(stored, 0), word(stored, 4))
    }
}

/// Returns the checksum of the header and the page size; `None` if the header is damaged.
fn read_header(header: &[u8; HEADER]) -> Option<(Sum, usize)> {
    let (magic, page_size) = (word(header, 0), word(header, 8));
    let mut sum = Sum::new(magic & 1 == 1);
    sum.add(&header[..24]);
    let intact = magic & !1 == MAGIC
        && page_size.is_power_of_two()
        && (512..=LARGEST_PAGE).contains(&page_size)
        && sum.matches(&header[24..]);
    intact.then_some((sum, page_size as usize))
}

fn take<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let found = bytes.get(at..at + N).and_then(|found| found.try_into().ok());
    found.unwrap_or([0; N])
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(take(bytes, at))
}

/// Fills the buffer up to the end of the file, and returns the number of bytes read.
fn fill(from: &mut impl Read, buffer: &mut [u8]) -> std::io::Result<usize> {
    let mut filled = 0;
    while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match from.read(rest) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}
