//! Every change to a log is detected, and a log is usable again after a crash.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::path::{Path, PathBuf};

use ken_audit::{FILE, LineFault, Link, MAX_OLD_FILES, Record, Trail, Verified, files, verify};
use ken_types::Timestamp;
use proptest::prelude::*;
use sha2::{Digest, Sha256};

const DAY: i64 = 86_400_000;

fn record(number: usize, time: i64) -> Record {
    let record = Record::new("execute_completed", &format!("req-{number}"), "anna");
    Record { time: Timestamp::from_millis(time), ..record }.with("workflow", "full_reasoning").with("quality", 0.82)
}

/// Writes a log with `count` records, `each` milliseconds apart.
fn log(dir: &Path, count: usize, each: i64) {
    let mut trail = Trail::open(dir).unwrap();
    let records: Vec<Record> =
        (0..count).map(|number| record(number, 1_800_000_000_000 + number as i64 * each)).collect();
    // All records of one call must have the same day.
    for day in records.chunk_by(|a, b| a.time.millis() / DAY == b.time.millis() / DAY) {
        trail.append(day).unwrap();
    }
}

fn check(dir: &Path) -> Result<Verified, String> {
    let found = verify(&files(dir).unwrap(), "").unwrap();
    found.map_err(|bad| bad.to_string())
}

fn current(dir: &Path) -> PathBuf {
    dir.join(FILE)
}

#[test]
fn a_whole_log_is_good_and_its_files_are_private() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    log(dir.path(), 10, 1);
    let good = check(dir.path()).unwrap();
    assert_eq!((good.records, good.first, good.last.seq), (11, 1, 11));
    for name in [FILE, "security_events.head"] {
        let mode = fs::metadata(dir.path().join(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
    let text = fs::read_to_string(current(dir.path())).unwrap();
    let line: serde_json::Value = serde_json::from_str(text.lines().nth(3).unwrap()).unwrap();
    assert_eq!(line["user_id"], "anna");
    assert_eq!(line["details"]["quality"], 0.82);
    assert_eq!(line["time"], "2027-01-15T08:00:00.002Z");
}

/// In a log of 100,000 records, one bit is flipped, one record is removed, or two are exchanged. The change must be
/// reported at the right line.
#[test]
fn whatever_is_changed_is_found() {
    const RECORDS: usize = 100_000;
    let dir = tempfile::tempdir().unwrap();
    log(dir.path(), RECORDS - 1, 1);
    let path = current(dir.path());
    let good = fs::read(&path).unwrap();
    let lines: Vec<&[u8]> = good.split_inclusive(|byte| *byte == b'\n').collect();
    assert_eq!(lines.len(), RECORDS);
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(16));
    let strategy = (any::<prop::sample::Index>(), any::<prop::sample::Index>(), 0..8u8, 0..3u8);
    let result = runner.run(&strategy, |(one, other, bit, what)| {
        let (changed, first_line) = match what {
            0 => {
                let at = one.index(good.len());
                let mut changed = good.clone();
                changed[at] ^= 1 << bit;
                (changed, good[..at].iter().filter(|byte| **byte == b'\n').count())
            }
            1 => {
                let gone = one.index(lines.len());
                ([lines[..gone].concat(), lines[gone + 1..].concat()].concat(), gone)
            }
            _ => {
                let (a, b) = (one.index(lines.len()), other.index(lines.len()));
                prop_assume!(a != b);
                let mut swapped = lines.clone();
                swapped.swap(a, b);
                (swapped.concat(), a.min(b))
            }
        };
        fs::write(&path, &changed).unwrap();
        let bad = verify(std::slice::from_ref(&path), "").unwrap();
        let bad = bad.expect_err("a change that nobody saw");
        // If records are missing at the end, the reported line is 0.
        let line = if bad.line == 0 { lines.len() as u64 } else { bad.line };
        prop_assert_eq!(line, first_line as u64 + 1, "{}", bad);
        Ok(())
    });
    result.unwrap();
}

/// A program other than ken can verify the chain as ken-audit(5) describes: a hash covers all bytes of the line before
/// it, including the previous hash.
#[test]
fn a_hash_covers_the_one_before_it() {
    let dir = tempfile::tempdir().unwrap();
    log(dir.path(), 3, 1);
    let text = fs::read_to_string(current(dir.path())).unwrap();
    let mut before = "0".repeat(64);
    for line in text.lines() {
        let (hashed, tail) = line.rsplit_once(",\"hash\":\"").unwrap();
        let hash = tail.strip_suffix("\"}").unwrap();
        assert!(hashed.contains(&format!("\"prev\":\"{before}\"")), "{line}");
        assert_eq!(ken_types::hex::encode(&Sha256::digest(hashed)), hash, "{line}");
        before = hash.to_owned();
    }
}

/// A hash covers its whole record, however long that is.
#[test]
fn every_byte_of_a_long_record_counts() {
    let dir = tempfile::tempdir().unwrap();
    let long = record(1, 1_800_000_000_000).with("reason", "long ".repeat(400));
    let mut trail = Trail::open(dir.path()).unwrap();
    trail.append(&[record(0, 1_800_000_000_000), long, record(2, 1_800_000_000_000)]).unwrap();
    drop(trail);
    let path = current(dir.path());
    let good = fs::read(&path).unwrap();
    let lines: Vec<&[u8]> = good.split_inclusive(|byte| *byte == b'\n').collect();
    let start = lines[0].len() + lines[1].len();
    assert!(lines[2].len() > 2_000);
    for at in start..start + lines[2].len() {
        let mut changed = good.clone();
        changed[at] ^= 1;
        fs::write(&path, &changed).unwrap();
        let bad = verify(std::slice::from_ref(&path), "").unwrap();
        assert_eq!(bad.map_err(|bad| bad.line), Err(3), "byte {at}");
    }
}

#[test]
fn a_pipe_or_a_device_is_no_log() {
    let dir = tempfile::tempdir().unwrap();
    nix::unistd::mkfifo(&current(dir.path()), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let refused = Trail::open(dir.path()).unwrap_err();
    assert!(refused.message.contains("not a regular file"), "{refused}");
    for path in [current(dir.path()), PathBuf::from("/dev/zero")] {
        let refused = verify(&[path], "").unwrap_err();
        assert!(refused.message.contains("not a regular file"), "{refused}");
    }
}

#[test]
fn the_end_cut_off_is_found_by_the_head_and_the_last_hash() {
    let dir = tempfile::tempdir().unwrap();
    log(dir.path(), 5, 1);
    let last = check(dir.path()).unwrap().last;
    let path = current(dir.path());
    let text = fs::read_to_string(&path).unwrap();
    let shorter: String = text.split_inclusive('\n').take(4).collect();
    fs::write(&path, &shorter).unwrap();
    let bad = check(dir.path()).unwrap_err();
    assert!(bad.contains("record 5") && bad.contains("cut off"), "{bad}");
    // Without the head file, the cut can only be detected with a hash that was recorded elsewhere.
    fs::remove_file(dir.path().join("security_events.head")).unwrap();
    assert_eq!(check(dir.path()).unwrap().records, 4);
    let noted = verify(&[path], last.hash_text()).unwrap().unwrap();
    assert!(!noted.holds);
    // If the whole log is removed, a new chain begins.
    fs::remove_file(current(dir.path())).unwrap();
    log(dir.path(), 1, 1);
    assert_eq!(check(dir.path()).unwrap().records, 2);
}

/// Also a single record, which is the smallest cut.
#[test]
fn each_number_of_records_cut_off_is_found() {
    let dir = tempfile::tempdir().unwrap();
    log(dir.path(), 5, 1);
    let path = current(dir.path());
    let text = fs::read_to_string(&path).unwrap();
    for kept in 0..6 {
        fs::write(&path, text.split_inclusive('\n').take(kept).collect::<String>()).unwrap();
        let bad = check(dir.path()).unwrap_err();
        let first = format!("record {}: it is missing, like all up to record 6", kept + 1);
        assert!(bad.contains(&first), "{kept} of 6: {bad}");
    }
    fs::write(&path, &text).unwrap();
    assert_eq!(check(dir.path()).unwrap().records, 6);
}

#[test]
fn going_on_after_a_cut_leaves_the_gap() {
    for (kept, gap) in [(4, "records 5 to 6 are missing"), (5, "record 6 is missing")] {
        let dir = tempfile::tempdir().unwrap();
        log(dir.path(), 5, 1);
        let path = current(dir.path());
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, text.split_inclusive('\n').take(kept).collect::<String>()).unwrap();
        log(dir.path(), 3, 1);
        let bad = check(dir.path()).unwrap_err();
        assert!(bad.contains("it is record 7") && bad.contains(gap), "{bad}");
    }
}

/// Whoever can write the log, and not the head file, can put another last record with a right hash in the place of the true one.
#[test]
fn another_last_record_is_found_by_the_head() {
    let dir = tempfile::tempdir().unwrap();
    log(dir.path(), 5, 1);
    let (path, head) = (current(dir.path()), dir.path().join("security_events.head"));
    let (text, acknowledged) = (fs::read_to_string(&path).unwrap(), fs::read(&head).unwrap());
    fs::write(&path, text.split_inclusive('\n').take(5).collect::<String>()).unwrap();
    fs::remove_file(&head).unwrap();
    log(dir.path(), 1, 1);
    assert_eq!(check(dir.path()).map(|good| good.records), Ok(6));
    fs::write(&head, &acknowledged).unwrap();
    let bad = check(dir.path()).unwrap_err();
    assert!(bad.contains("record 6: it is not the record that was written last"), "{bad}");
}

#[test]
fn a_clock_that_is_set_back_by_a_day_begins_no_file() {
    let dir = tempfile::tempdir().unwrap();
    let mut trail = Trail::open(dir.path()).unwrap();
    for day in [1, 0, 1] {
        trail.append(&[record(0, 1_800_000_000_000 + day * DAY)]).unwrap();
    }
    assert_eq!(files(dir.path()).unwrap(), [current(dir.path())]);
    assert_eq!(check(dir.path()).unwrap().records, 4);
}

#[test]
fn days_have_files_of_their_own_and_one_chain() {
    let dir = tempfile::tempdir().unwrap();
    log(dir.path(), 4, DAY);
    let names: Vec<String> =
        files(dir.path()).unwrap().iter().map(|path| path.file_name().unwrap().to_str().unwrap().to_owned()).collect();
    let expected = [
        "security_events.2027-01-15.log",
        "security_events.2027-01-16.log",
        "security_events.2027-01-17.log",
        "security_events.log",
    ];
    assert_eq!(names, expected);
    assert_eq!(check(dir.path()).unwrap().records, 8);
    // The files can be given in any order, but none of them can be missing in between.
    let mut given = files(dir.path()).unwrap();
    given.reverse();
    assert!(verify(&given, "").unwrap().is_ok());
    given.remove(1);
    let bad = verify(&given, "").unwrap().unwrap_err();
    assert_eq!(bad.line, 1);
    // Consecutive files are valid without the others.
    let good = verify(&given[1..], "").unwrap().unwrap();
    assert_eq!((good.first, good.last.seq), (1, 4));
}

#[test]
fn fourteen_days_are_kept_and_the_rest_still_verifies() {
    let dir = tempfile::tempdir().unwrap();
    log(dir.path(), 20, DAY);
    assert_eq!(files(dir.path()).unwrap().len(), MAX_OLD_FILES + 1);
    let good = check(dir.path()).unwrap();
    assert_eq!((good.records, good.first), (30, 11));
}

#[test]
fn a_record_taken_off_the_beginning_of_a_file_is_found() {
    let dir = tempfile::tempdir().unwrap();
    log(dir.path(), 20, DAY);
    let first = files(dir.path()).unwrap().remove(0);
    let text = fs::read_to_string(&first).unwrap();
    fs::write(&first, text.split_inclusive('\n').skip(1).collect::<String>()).unwrap();
    let bad = check(dir.path()).unwrap_err();
    assert!(bad.contains("not the beginning of a file"), "{bad}");
}

#[test]
fn what_a_crash_left_half_written_is_cut_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    log(dir.path(), 5, 1);
    let path = current(dir.path());
    let whole = fs::read(&path).unwrap();
    for torn in [&b"{\"seq\":7,\"prev\":\"00"[..], b"\0\0\0\0\n{\"seq\":8}\n", b"{}\n"] {
        for keep_head in [true, false] {
            let mut text = whole.clone();
            text.extend_from_slice(torn);
            fs::write(&path, &text).unwrap();
            if !keep_head {
                fs::remove_file(dir.path().join("security_events.head")).unwrap();
            }
            let trail = Trail::open(dir.path()).unwrap();
            assert_eq!(trail.link().seq, 6);
            drop(trail);
            if keep_head {
                assert_eq!(fs::read(&path).unwrap(), whole);
            }
            fs::write(&path, &whole).unwrap();
            // Writes a new, intact log with a head file.
            fs::remove_file(&path).unwrap();
            _ = fs::remove_file(dir.path().join("security_events.head"));
            log(dir.path(), 5, 1);
        }
    }
}

/// A last record without its line feed counts as partly written, because the next record would be on the same line.
#[test]
fn a_last_record_without_its_line_feed_is_half_written() {
    for gone in [1, 2, 70] {
        let dir = tempfile::tempdir().unwrap();
        let (path, head) = (current(dir.path()), dir.path().join("security_events.head"));
        log(dir.path(), 2, 1);
        let acknowledged = fs::read(&head).unwrap();
        log(dir.path(), 1, 1);
        let text = fs::read(&path).unwrap();
        fs::write(&path, &text[..text.len() - gone]).unwrap();
        fs::write(&head, &acknowledged).unwrap();
        log(dir.path(), 2, 1);
        assert_eq!(check(dir.path()).map(|good| good.records), Ok(5), "{gone}");
    }
}

/// Records that are on the disk but not yet in the head file are kept, because their append may have succeeded.
#[test]
fn records_behind_the_head_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    log(dir.path(), 5, 1);
    let head = fs::read(dir.path().join("security_events.head")).unwrap();
    log(dir.path(), 3, 1);
    fs::write(dir.path().join("security_events.head"), &head).unwrap();
    log(dir.path(), 1, 1);
    assert_eq!(check(dir.path()).unwrap().records, 10);
    // The same across a change of the day, when the head file names a record of the previous file.
    let head = fs::read(dir.path().join("security_events.head")).unwrap();
    let mut trail = Trail::open(dir.path()).unwrap();
    trail.append(&[record(0, 1_800_000_000_000 + DAY)]).unwrap();
    drop(trail);
    fs::write(dir.path().join("security_events.head"), &head).unwrap();
    let mut trail = Trail::open(dir.path()).unwrap();
    trail.append(&[record(1, 1_800_000_000_000 + DAY)]).unwrap();
    assert_eq!(check(dir.path()).unwrap().records, 13);
}

#[test]
fn a_fault_in_the_middle_is_never_repaired() {
    let dir = tempfile::tempdir().unwrap();
    log(dir.path(), 9, 1);
    let path = current(dir.path());
    let text = fs::read_to_string(&path).unwrap().replace("req-3", "req-4");
    fs::write(&path, &text).unwrap();
    fs::remove_file(dir.path().join("security_events.head")).unwrap();
    log(dir.path(), 2, 1);
    let bad = check(dir.path()).unwrap_err();
    assert!(bad.contains("record 5: it was changed"), "{bad}");
    assert_eq!(fs::read_to_string(&path).unwrap().lines().count(), 12);
}

#[test]
fn one_writer_at_a_time() {
    let dir = tempfile::tempdir().unwrap();
    let first = Trail::open(dir.path()).unwrap();
    assert_eq!(Trail::open(dir.path()).unwrap_err().code, ken_types::Code::Conflict);
    drop(first);
    Trail::open(dir.path()).unwrap();
}

#[test]
fn lines_that_are_no_records() {
    for line in ["", "{}", "x", "{\"seq\":1}"] {
        assert_eq!(Link::START.follow(line.as_bytes()), Err(LineFault::Form), "{line}");
    }
}
