//! Reads a log from its last lines to the end, and new lines as they are written, across rotations. A cursor holds a
//! position in a file but no content, so a caller that does not read costs no memory.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};

use crate::logs::{CHUNK, Rotating, open_to_read};

/// The maximum number of bytes that are searched backwards for the first requested line.
const MAX_SEARCHED_BYTES: u64 = 16 * 1024 * 1024;
/// The maximum length of a line, in bytes. A longer line is returned in pieces.
const MAX_LINE_BYTES: usize = 256 * 1024;

/// A position in a log.
pub(crate) struct Cursor {
    file: Option<File>,
    /// The value of `Rotating::rotations` when the file was the current one.
    rotation: u64,
    rest: Vec<u8>,
}

impl Cursor {
    /// Returns the position `lines` lines before the end, or the start of the oldest file if there are fewer lines.
    pub(crate) fn last(log: &Rotating, lines: u32) -> Cursor {
        let mut missing = u64::from(lines);
        let mut budget = MAX_SEARCHED_BYTES;
        let mut best = Cursor { file: None, rotation: log.rotations(), rest: Vec::new() };
        for age in 0..=u64::from(log.keep()) {
            let Some(mut file) = open_to_read(&log.path(age)) else {
                continue;
            };
            let Ok(offset) = find_start(&mut file, &mut missing, &mut budget) else {
                break;
            };
            let _ = file.seek(SeekFrom::Start(offset));
            best.file = Some(file);
            // Files that an earlier kend wrote were rotated before this one counts rotations, so the number may wrap
            // below 0.
            best.rotation = log.rotations().wrapping_sub(age);
            if missing == 0 || budget == 0 {
                break;
            }
        }
        best
    }

    /// Returns the next lines, about one chunk of bytes at most, or `None` at the current end of the log.
    pub(crate) fn read(&mut self, log: &Rotating, chunk: &mut [u8]) -> Option<Vec<String>> {
        loop {
            let count = self.file.as_mut().map_or(0, |file| file.read(chunk).unwrap_or(0));
            if count > 0 {
                return Some(self.split(chunk.get(..count).unwrap_or_default()));
            }
            if !self.advance(log) {
                return None;
            }
        }
    }

    /// Moves on to the next file. Returns false if there is none.
    fn advance(&mut self, log: &Rotating) -> bool {
        let age = log.rotations().wrapping_sub(self.rotation);
        if self.file.is_none() {
            self.file = open_to_read(&log.path(age.min(u64::from(log.keep()))));
            return self.file.is_some();
        }
        if age == 0 {
            return false;
        }
        // The next file has been deleted by rotation, or a kill between two renames has left its name free: continue with the oldest
        // file that still exists.
        let newer = (0..=(age - 1).min(u64::from(log.keep()))).rev();
        match newer.filter_map(|next| Some((next, open_to_read(&log.path(next))?))).next() {
            Some((next, file)) => {
                self.file = Some(file);
                self.rotation = log.rotations().wrapping_sub(next);
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
    use super::*;

    fn drain(cursor: &mut Cursor, log: &Rotating) -> Vec<String> {
        let mut chunk = vec![0; 7];
        std::iter::from_fn(|| cursor.read(log, &mut chunk)).flatten().collect()
    }

    fn numbered(range: std::ops::Range<u32>) -> Vec<String> {
        range.map(|line| format!("line {line}")).collect()
    }

    fn write(log: &mut Rotating, range: std::ops::Range<u32>) {
        for line in numbered(range) {
            log.write(format!("{line}\n").as_bytes());
        }
    }

    #[test]
    fn the_last_lines_over_files_of_any_size() {
        for max in [8, 20, 50, 10_000] {
            let dir = tempfile::tempdir().unwrap();
            let mut log = Rotating::new(dir.path().join("a.log"), max, 100);
            write(&mut log, 10..40);
            for lines in [0, 1, 2, 3, 7, 29, 30, 31] {
                let got = drain(&mut Cursor::last(&log, lines), &log);
                let want = numbered(40 - lines.min(30)..40);
                assert_eq!(got, want, "max {max}, {lines} lines");
            }
        }
    }

    #[test]
    fn following_over_rotations_loses_nothing_that_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let mut log = Rotating::new(dir.path().join("a.log"), 20, 100);
        let mut cursor = Cursor::last(&log, 10);
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
            let mut log = Rotating::new(path.clone(), 20, 100);
            write(&mut log, 10..20);
            for age in (0..=4).rev().take(renamed) {
                std::fs::rename(log.path(age), log.path(age + 1)).unwrap();
            }
            let mut log = Rotating::new(path, 20, 100);
            let mut cursor = Cursor::last(&log, 100);
            assert_eq!(drain(&mut cursor, &log), numbered(10..20), "{renamed} renamed");
            write(&mut log, 20..30);
            assert_eq!(drain(&mut cursor, &log), numbered(20..30), "{renamed} renamed");
        }
    }

    #[test]
    fn files_of_an_earlier_kend_are_read_too() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.log");
        let mut log = Rotating::new(path.clone(), 20, 100);
        write(&mut log, 10..20);
        let mut log = Rotating::new(path, 20, 100);
        let mut cursor = Cursor::last(&log, 6);
        assert_eq!(drain(&mut cursor, &log), numbered(14..20));
        write(&mut log, 20..30);
        assert_eq!(drain(&mut cursor, &log), numbered(20..30));
    }
}
