//! A tap on a part's socket. It listens in place of the real socket, forwards every line, and can stop at one chosen call. A
//! test can then kill a process between two steps that otherwise follow each other immediately.

use std::io::{BufRead, BufReader, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};
use serde_json::Value;

/// Where a call is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The call is not forwarded to the part.
    Request,
    /// The part has executed the call, but the reply is not forwarded to the caller.
    Reply,
    /// The call is not stopped. The test is notified as soon as the call is forwarded, while the part executes it.
    Through,
}

#[derive(Default)]
struct State {
    /// The call to stop at: its operation, a text that its line contains, and the side.
    armed: Option<(&'static str, &'static str, Side)>,
    reached: bool,
    /// All calls so far: the operation and the line.
    calls: Vec<(String, String)>,
}

/// The tap. Every connection that is made after its creation passes through it.
pub struct WireTap {
    state: Arc<(Mutex<State>, Condvar)>,
}

fn lock(state: &(Mutex<State>, Condvar)) -> MutexGuard<'_, State> {
    state.0.lock()
}

impl WireTap {
    /// Moves the socket aside and listens in its place.
    pub fn put_in(socket: &Path) -> WireTap {
        let real = socket.with_extension("real");
        std::fs::rename(socket, &real).expect("the socket is moved");
        let listener = UnixListener::bind(socket).expect("the tap listens");
        let state = Arc::new((Mutex::new(State::default()), Condvar::new()));
        let known = state.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let (real, known) = (real.clone(), known.clone());
                std::thread::spawn(move || pass(&client, &real, &known));
            }
        });
        WireTap { state }
    }

    /// Stops the next call of this operation.
    pub fn stop_at(&self, op: &'static str, side: Side) {
        self.stop_at_line(op, "", side);
    }

    /// Stops the next call of this operation whose line has this text.
    pub fn stop_at_line(&self, op: &'static str, text: &'static str, side: Side) {
        let mut state = lock(&self.state);
        state.armed = Some((op, text, side));
        state.reached = false;
    }

    /// Returns all calls since the last time: the operation and the line of each.
    pub fn take_calls(&self) -> Vec<(String, String)> {
        std::mem::take(&mut lock(&self.state).calls)
    }

    /// Waits until the call has been stopped or, with [`Side::Through`], forwarded.
    #[track_caller]
    pub fn reached(&self) {
        let mut state = lock(&self.state);
        let late = self.state.1.wait_while_for(&mut state, |state| !state.reached, Duration::from_secs(20));
        assert!(!late.timed_out(), "the call that is to be stopped was not made within 20 s");
    }
}

/// Returns the side at which to stop, if this is the chosen call, and resets the choice.
fn stop(state: &(Mutex<State>, Condvar), op: &str, line: &str) -> Option<Side> {
    let mut known = lock(state);
    let (_, _, side) = known.armed.take_if(|(armed, text, _)| *armed == op && line.contains(*text))?;
    Some(side)
}

fn print_stopped(state: &(Mutex<State>, Condvar)) {
    lock(state).reached = true;
    state.1.notify_all();
}

fn pass(client: &UnixStream, real: &PathBuf, state: &Arc<(Mutex<State>, Condvar)>) {
    let part = UnixStream::connect(real).expect("the part");
    let awaited = Arc::new(Mutex::new(None::<u64>));
    let (mut to_client, from_part) = (client.try_clone().expect("a socket"), part.try_clone().expect("a socket"));
    let (replies, known) = (awaited.clone(), state.clone());
    let back = std::thread::spawn(move || {
        for line in BufReader::new(&from_part).lines().map_while(Result::ok) {
            let id = serde_json::from_str::<Value>(&line).ok().and_then(|line| line["id"].as_u64());
            let mut awaited = replies.lock();
            if awaited.is_some() && *awaited == id {
                *awaited = None;
                print_stopped(&known);
                continue;
            }
            if writeln!(to_client, "{line}").is_err() {
                break;
            }
        }
        _ = to_client.shutdown(Shutdown::Both);
    });
    let mut to_part = &part;
    for line in BufReader::new(client).lines().map_while(Result::ok) {
        let call = serde_json::from_str::<Value>(&line).unwrap_or_default();
        let op = call["op"].as_str().unwrap_or_default();
        lock(state).calls.push((op.to_owned(), line.clone()));
        let side = stop(state, op, &line);
        match side {
            Some(Side::Request) => {
                print_stopped(state);
                continue;
            }
            Some(Side::Reply) => {
                *awaited.lock() = call["id"].as_u64();
            }
            Some(Side::Through) | None => {}
        }
        if writeln!(to_part, "{line}").is_err() {
            break;
        }
        if side == Some(Side::Through) {
            print_stopped(state);
        }
    }
    _ = part.shutdown(Shutdown::Both);
    _ = back.join();
}
