//! A write that fails in the middle, as on a full disk. The limit holds for the whole process, so this test is alone in it.

#![allow(clippy::unwrap_used)]

use ken_audit::{FILE, Record, Trail, files, verify};
use ken_types::{Code, Timestamp};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{SigSet, Signal};

#[test]
fn what_a_failed_write_left_is_gone_before_the_next_record() {
    let dir = tempfile::tempdir().unwrap();
    let record =
        || Record { time: Timestamp::from_millis(1_800_000_000_000), ..Record::new("key_refused", "req", "anna") };
    let mut trail = Trail::open(dir.path()).unwrap();
    trail.append(&[record(), record()]).unwrap();
    let length = || std::fs::metadata(dir.path().join(FILE)).unwrap().len();
    let (whole, one) = (length(), length() / 3);
    // Beyond the limit a write fails, and the process gets a signal.
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGXFSZ);
    signals.thread_block().unwrap();
    let (soft, hard) = getrlimit(Resource::RLIMIT_FSIZE).unwrap();
    setrlimit(Resource::RLIMIT_FSIZE, whole + 3 * one, hard).unwrap();
    let batch: Vec<Record> = (0..8).map(|_| record()).collect();
    assert_eq!(trail.append(&batch).unwrap_err().code, Code::Unavailable);
    setrlimit(Resource::RLIMIT_FSIZE, soft, hard).unwrap();
    assert!(length() > whole + 2 * one, "the batch was written in part");

    trail.append(&[record()]).unwrap();
    let found = verify(&files(dir.path()).unwrap(), "").unwrap().unwrap();
    assert_eq!(found.records, 4, "the file's first record, two and one");
}
