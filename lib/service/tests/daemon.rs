//! Tests of the skeleton in a real process, which runs the example `skeleton`.

#![allow(clippy::unwrap_used)]

use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ken_wire::conformance::{Subject, check};

fn probe(home: &Path) -> Command {
    let exe = std::env::current_exe().unwrap();
    let target = exe.parent().and_then(Path::parent).unwrap();
    let mut command = Command::new(target.join("examples/skeleton"));
    command.env_clear().arg("--home").arg(home).stderr(Stdio::piped());
    command
}

/// Starts the daemon and waits until it reports that it is ready.
fn start(mut command: Command, dir: &Path) -> Child {
    let path = dir.join("notify");
    _ = std::fs::remove_file(&path);
    let notify = UnixDatagram::bind(&path).unwrap();
    notify.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let child = command.env("NOTIFY_SOCKET", &path).spawn().unwrap();
    let mut text = [0; 64];
    let length = notify.recv(&mut text).unwrap();
    assert_eq!(&text[..length], b"READY=1\n");
    child
}

fn end(mut child: Child, signal: Option<i32>) -> (Option<i32>, String) {
    if let Some(signal) = signal {
        let signal = nix::sys::signal::Signal::try_from(signal).unwrap();
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(child.id().try_into().unwrap()), signal).unwrap();
    }
    let until = Instant::now() + Duration::from_secs(10);
    while child.try_wait().unwrap().is_none() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(5));
    }
    _ = child.kill();
    let mut stderr = String::new();
    child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    (child.wait().unwrap().code(), stderr)
}

fn socket(home: &Path) -> PathBuf {
    home.join("run/probe.sock")
}

#[test]
fn it_passes_the_conformance_suite_and_ends_on_term_with_0() {
    let dir = tempfile::tempdir().unwrap();
    let child = start(probe(dir.path()), dir.path());
    let slow = Some(("probe.sleep", serde_json::json!({})));
    let failed = check(&Subject { socket: socket(dir.path()), slow });
    assert!(failed.is_empty(), "{failed:#?}");
    let (code, stderr) = end(child, Some(15));
    assert_eq!(code, Some(0), "{stderr}");
    for line in stderr.lines() {
        serde_json::from_str::<serde_json::Value>(line).unwrap();
    }
}

#[test]
fn a_second_one_in_the_same_home_is_refused_and_the_first_continues() {
    let dir = tempfile::tempdir().unwrap();
    let first = start(probe(dir.path()), dir.path());
    let (code, stderr) = end(probe(dir.path()).spawn().unwrap(), None);
    assert_eq!(code, Some(2), "{stderr}");
    assert!(stderr.contains("another process listens at"), "{stderr}");
    UnixStream::connect(socket(dir.path())).unwrap();
    end(first, Some(9));
    // After a kill -9, the daemon starts again although the old socket file still exists.
    end(start(probe(dir.path()), dir.path()), Some(15));
}

#[test]
fn it_exits_when_kend_has_ended() {
    let dir = tempfile::tempdir().unwrap();
    let (ours, theirs) = UnixStream::pair().unwrap();
    nix::fcntl::fcntl(&theirs, nix::fcntl::F_SETFD(nix::fcntl::FdFlag::empty())).unwrap();
    let mut command = probe(dir.path());
    command.env("KEN_GUARD_FD", theirs.as_raw_fd().to_string());
    let child = start(command, dir.path());
    drop((ours, theirs));
    let (code, stderr) = end(child, None);
    assert_eq!(code, Some(0), "{stderr}");
    assert!(stderr.contains("kend has exited"), "{stderr}");
}

#[test]
fn a_bad_configuration_ends_it_with_one_line() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("ken.toml"), "[gateway]\nport = \"x\"\n").unwrap();
    let (code, stderr) = end(probe(dir.path()).spawn().unwrap(), None);
    assert_eq!((code, stderr.lines().count()), (Some(2), 1), "{stderr}");
    assert!(stderr.contains("ken.toml:2"), "{stderr}");
}

#[test]
fn help_and_wrong_arguments() {
    let dir = tempfile::tempdir().unwrap();
    let help = probe(dir.path()).arg("--help").output().unwrap();
    assert!(help.status.success() && help.stdout.starts_with(b"Answers what every part answers"));
    let mistake = probe(dir.path()).arg("--no-such").output().unwrap();
    assert_eq!(mistake.status.code(), Some(2));
}
