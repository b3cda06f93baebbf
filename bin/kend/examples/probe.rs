//! A part for the tests of kend. It carries out its arguments as actions, one after the other: `probe ready say:hello
//! hang`.

#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::exit)] // a test program

use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::net::UnixDatagram;
use std::process::{Command, exit};
use std::thread::sleep;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigHandler, Signal, signal};

fn main() {
    for action in std::env::args().skip(1) {
        let (name, value) = action.split_once(':').unwrap_or((&action, ""));
        act(name, value);
    }
}

fn act(name: &str, value: &str) {
    match name {
        "ready" => print("READY=1"),
        "stopping" => print("STOPPING=1"),
        "status" => print(&format!("STATUS={value}")),
        "say" => println!("{value}"),
        "raw" => std::io::stdout().write_all(&[b'a', 0, 0xff, b'z', b'\n']).unwrap(),
        "pid" => append(value, &format!("{}\n", std::process::id())),
        "env" => {
            let mut names: Vec<_> = std::env::vars().map(|(name, value)| format!("{name}={value}\n")).collect();
            names.sort();
            append(value, &names.concat());
        }
        "secrets" => append(value, &secrets()),
        "fds" => append(value, &descriptors()),
        "sleep" => sleep(millis(value)),
        "exit" => exit(value.parse().unwrap()),
        "exit-if" if std::path::Path::new(value).exists() => exit(1),
        "exit-if" => {}
        "hang" => loop {
            sleep(Duration::from_secs(3600));
        },
        "deaf" => ignore(if value == "ABRT" { Signal::SIGABRT } else { Signal::SIGTERM }),
        // Reports how an attempt to read a file ended.
        "read" => print(&format!("STATUS={:?}", std::fs::read(value).err().map(|error| error.kind()))),
        "lines" => (0..value.parse::<u32>().unwrap()).for_each(|line| println!("line {line}")),
        "flood" => flood(value.parse().unwrap()),
        "alive-for" => (0..value.parse::<u32>().unwrap() / 20).for_each(|_| {
            print("WATCHDOG=1");
            sleep(Duration::from_millis(20));
        }),
        "alive" => loop {
            print("WATCHDOG=1");
            sleep(millis(value));
        },
        // `child` starts a process in the same group. `daemon` starts one that leaves the group and the session;
        // `detach` is its intermediate process. `watcher` leaves both too and ends with the guard.
        "child" => again(&["deaf", &format!("pid:{value}"), "hang"]),
        "daemon" => again(&[&format!("detach:{value}")]),
        "detach" => again(&["session", "deaf", &format!("pid:{value}"), "hang"]),
        "watcher" => again(&["session", "deaf", &format!("pid:{value}"), "guard"]),
        // The same with a cleared environment: `bare` stays in the group, `unmarked` leaves the group and the session
        // and its parent ends.
        "bare" => again_with(Command::new("/usr/bin/env").arg("-i"), &["deaf", &format!("pid:{value}"), "hang"]),
        "unmarked" => again_with(Command::new("/usr/bin/env").arg("-i"), &[&format!("detach:{value}")]),
        "session" => drop(nix::unistd::setsid()),
        "guard" => wait_for_end(),
        "accept" => accept(),
        _ => exit(64),
    }
}

fn millis(value: &str) -> Duration {
    Duration::from_millis(value.parse().unwrap())
}

fn print(text: &str) {
    if let Some(path) = std::env::var_os("NOTIFY_SOCKET") {
        UnixDatagram::unbound().unwrap().send_to(text.as_bytes(), path).unwrap();
    }
}

fn append(path: &str, text: &str) {
    let mut file = OpenOptions::new().create(true).append(true).open(path).unwrap();
    file.write_all(text.as_bytes()).unwrap();
}

fn again(actions: &[&str]) {
    again_with(&mut Command::new("/usr/bin/env"), actions);
}

#[allow(clippy::zombie_processes)] // kend has to collect them
fn again_with(command: &mut Command, actions: &[&str]) {
    command.arg(std::env::current_exe().unwrap()).args(actions).spawn().unwrap();
}

/// Returns the content of the secrets descriptor, one entry per line.
fn secrets() -> String {
    let Ok(number) = std::env::var("KEN_SECRETS_FD") else {
        return String::from("none\n");
    };
    let descriptor = inherited(number.parse().unwrap()).try_clone_to_owned().unwrap();
    let mut text = String::new();
    std::fs::File::from(descriptor).read_to_string(&mut text).unwrap();
    text.replace('\0', "\n")
}

fn descriptors() -> String {
    let shown = |entry: std::fs::DirEntry| {
        let target = std::fs::read_link(entry.path()).ok()?;
        Some(format!("{} {}\n", entry.file_name().to_str()?, target.display()))
    };
    let entries = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    entries.filter_map(shown).collect()
}

fn ignore(one: Signal) {
    // SAFETY: ignoring a signal runs no code.
    #[allow(unsafe_code)]
    unsafe { signal(one, SigHandler::SigIgn) }.unwrap();
}

fn flood(megabytes_a_second: u32) {
    let line = [vec![b'x'; 99], vec![b'\n']].concat();
    let block = line.repeat(1000);
    loop {
        for _ in 0..megabytes_a_second {
            std::io::stdout().write_all(&block).unwrap();
        }
        sleep(Duration::from_millis(100));
    }
}

fn inherited(number: i32) -> BorrowedFd<'static> {
    // SAFETY: kend has passed this descriptor, and it stays open as long as this process runs.
    #[allow(unsafe_code)]
    unsafe {
        BorrowedFd::borrow_raw(number)
    }
}

fn wait_for_end() {
    let guard = inherited(std::env::var("KEN_GUARD_FD").unwrap().parse().unwrap());
    let mut file = std::fs::File::from(guard.try_clone_to_owned().unwrap());
    let _ = file.read(&mut [0]);
    exit(0);
}

/// Answers each connection to the first socket with a line that holds the pid.
fn accept() {
    let listener = inherited(3);
    loop {
        let mut wait = [PollFd::new(listener.as_fd(), PollFlags::POLLIN)];
        let _ = poll(&mut wait, PollTimeout::NONE);
        if let Ok(caller) = nix::sys::socket::accept(listener.as_raw_fd()) {
            // SAFETY: accept has just returned this descriptor, and nothing else uses it.
            #[allow(unsafe_code)]
            let mut file = unsafe { <std::fs::File as std::os::fd::FromRawFd>::from_raw_fd(caller) };
            let _ = file.write_all(format!("{}\n", std::process::id()).as_bytes());
        }
    }
}
