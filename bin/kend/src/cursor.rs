//! Reads a log from its last lines to the end, and new lines as they are written, across rotations. A cursor holds a
//! position in a file but no content, so a caller that does not read costs no memory.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};

use crate::logs::CHUNK;
use crate::rotating::LogFiles;

/// The maximum number of bytes that are searched backwards for the first requested line.
const MAX_SEARCHED_BYTES: u64 = 16 * 1024 * 1024;
/// The maximum length of a line, in bytes. A longer line is returned in pieces.
const MAX_LINE_BYTES: usize = 256 * 1024;

/// What comes next in a log.
pub(crate) enum Next {
    Lines(Vec<String>),
    /// This is the current end.
    End,
    /// The files are being renamed.
    Later,
}

/// A position in a log.
pub(crate) struct Cursor {
    file: Option<File>,
    /// The number of rotations when the file was the current one.
    rotation: u64,
    rest: Vec<u8>,
}

impl Cursor {
    /// Returns the position `lines` lines before the end, or the start of the oldest file if there are fewer lines. `None` while the
    /// files are being renamed.
    pub(crate) fn last(files: &LogFiles, lines: u32) -> Option<Cursor> {
        let rotations = files.hold()?;
        let mut missing = u64::from(lines);
        let mut budget = MAX_SEARCHED_BYTES;
        let mut best = Cursor { file: None, rotation: *rotations, rest: Vec::new() };
        for age in 0..=files.keep() {
            let Ok(mut file) = File::open(files.path(age)) else {
                continue;
            };
            let Ok(offset) = find_start(&mut file, &mut missing, &mut budget) else {
                break;
            };
            let _ = file.seek(SeekFrom::Start(offset));
            best.file = Some(file);
            // Files that an earlier kend wrote were rotated before this one counts rotations, so the number may wrap
            // below 0.
            best.rotation = rotations.wrapping_sub(age);
            if missing == 0 || budget == 0 {
                break;
            }
        }
        Some(best)
    }

    /// Returns the next lines, about one chunk of bytes at most.
    pub(crate) fn read(&mut self, files: &LogFiles, chunk: &mut [u8]) -> Next {
        // They are held before anything is read. A file whose end is read can otherwise be written to and renamed after that, and the
        // rest of it would be skipped.
        let Some(rotations) = files.hold() else {
            return Next::Later;
        };
        loop {
            let count = self.file.as_mut().map_or(0, |file| file.read(chunk).unwrap_or(0));
            if count > 0 {
                return Next::Lines(self.split(chunk.get(..count).unwrap_or_default()));
            }
            if !self.advance(files, *rotations) {
                return Next::End;
            }
        }
    }

    /// Moves on to the next file. Returns false if there is none.
    fn advance(&mut self, files: &LogFiles, rotations: u64) -> bool {
        let age = rotations.wrapping_sub(self.rotation);
        if self.file.is_none() {
            self.file = File::open(files.path(age.min(files.keep()))).ok();
            return self.file.is_some();
        }
        if age == 0 {
            return false;
        }
        // The next file has been deleted by rotation, or a kill between two renames has left its name free: continue with the oldest
        // file that still exists.
        let newer = (0..=(age - 1).min(files.keep())).rev();
        match newer.filter_map(|next| Some((next, File::open(files.path(next)).ok()?))).next() {
            Some((next, file)) => {
                self.file = Some(file);
                self.rotation = rotations.wrapping_sub(next);
                true
            }
            None => false,
        }
    }

    fn split(&mut self, bytes: &[u8]) -> Vec<String> {
        let mut lines = Vec::new();
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.rest.extend_from_slice(piece);
            if piece.ends_with(b"\n") || self.rest.len() >= MAX_LINE_BYTES {
                let line = String::from_utf8_lossy(&self.rest);
                // ken-wire(5) does not allow NUL characters in a line.
                lines.push(line.trim_end_matches('\n').replace('\0', "\u{fffd}"));
                self.rest.clear();
            }
        }
        lines
    }
}

/// Returns the offset at which the last `missing` lines of a file begin, or 0 if the file has fewer. Subtracts the
/// lines found from `missing` and the bytes searched from `budget`.
fn find_start(file: &mut File, missing: &mut u64, budget: &mut u64) -> std::io::Result<u64> {
    let size = file.seek(SeekFrom::End(0))?;
    let mut end = size;
    let mut block = vec![0; CHUNK];
    while end > 0 && *missing > 0 && *budget > 0 {
        let length = end.min(CHUNK as u64);
        let begin = end - length;
        file.seek(SeekFrom::Start(begin))?;
        let block = block.get_mut(..length as usize).unwrap_or_default();
        file.read_exact(block)?;
        *budget = budget.saturating_sub(length);
        // Every LF is followed by another line, except one at the end of the file.
        let ends = block.iter().enumerate().rev().filter(|(_, byte)| **byte == b'\n');
        for (index, _) in ends.filter(|(index, _)| begin + *index as u64 + 1 < size) {
            *missing -= 1;
            if *missing == 0 {
                return Ok(begin + index as u64 + 1);
            }
        }
        end = begin;
    }
    if size > 0 && end == 0 {
        *missing = missing.saturating_sub(1);
    }
    Ok(end)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::rotating::Rotating;

    struct Log {
        files: std::sync::Arc<LogFiles>,
        out: Rotating,
    }

    fn open(path: &Path, max: u64) -> Log {
        let files = LogFiles::new(path.to_owned(), max, 100);
        Log { out: Rotating::new(files.clone(), false), files }
    }

    fn drain(cursor: &mut Cursor, log: &Log) -> Vec<String> {
        let mut chunk = vec![0; 7];
        let next = || match cursor.read(&log.files, &mut chunk) {
            Next::Lines(lines) => Some(lines),
            Next::End | Next::Later => None,
        };
        std::iter::from_fn(next).flatten().collect()
    }

    fn last(log: &Log, lines: u32) -> Cursor {
        Cursor::last(&log.files, lines).unwrap()
    }

    fn numbered(range: std::ops::Range<u32>) -> Vec<String> {
        range.map(|line| format!("line {line}")).collect()
    }

    fn write(log: &mut Log, range: std::ops::Range<u32>) {
        for line in numbered(range) {
            log.out.write(format!("{line}\n").as_bytes());
        }
    }

    #[test]
    fn the_last_lines_over_files_of_any_size() {
        for max in [8, 20, 50, 10_000] {
            let dir = tempfile::tempdir().unwrap();
            let mut log = open(&dir.path().join("a.log"), max);
            write(&mut log, 10..40);
            for lines in [0, 1, 2, 3, 7, 29, 30, 31] {
                let got = drain(&mut last(&log, lines), &log);
                let want = numbered(40 - lines.min(30)..40);
                assert_eq!(got, want, "max {max}, {lines} lines");
            }
        }
    }

    #[test]
    fn following_over_rotations_loses_nothing_that_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let mut log = open(&dir.path().join("a.log"), 20);
        let mut cursor = last(&log, 10);
        assert_eq!(drain(&mut cursor, &log), [""; 0]);
        let mut got = Vec::new();
        for step in 0..10 {
            write(&mut log, 10 + step * 7..10 + (step + 1) * 7);
            if step % 2 == 0 {
                got.extend(drain(&mut cursor, &log));
            }
        }
        got.extend(drain(&mut cursor, &log));
        assert_eq!(got, numbered(10..80));
    }

    /// Renames the files of a log, from the oldest on, but not all of them.
    #[test]
    fn a_rotation_that_a_kill_cut_off_hides_no_line() {
        for renamed in 0..=4 {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("a.log");
            let mut log = open(&path, 20);
            write(&mut log, 10..20);
            for age in (0..=4).rev().take(renamed) {
                std::fs::rename(log.files.path(age), log.files.path(age + 1)).unwrap();
            }
            let mut log = open(&path, 20);
            let mut cursor = last(&log, 100);
            assert_eq!(drain(&mut cursor, &log), numbered(10..20), "{renamed} renamed");
            write(&mut log, 20..30);
            assert_eq!(drain(&mut cursor, &log), numbered(20..30), "{renamed} renamed");
        }
    }

    #[test]
    fn files_of_an_earlier_kend_are_read_too() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.log");
        let mut log = open(&path, 20);
        write(&mut log, 10..20);
        let mut log = open(&path, 20);
        let mut cursor = last(&log, 6);
        assert_eq!(drain(&mut cursor, &log), numbered(14..20));
        write(&mut log, 20..30);
        assert_eq!(drain(&mut cursor, &log), numbered(20..30));
    }
}
