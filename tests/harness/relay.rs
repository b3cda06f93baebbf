//! A relay between a store and its database server, which counts the round trips and can cut connections at a COMMIT.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::postgres::Postgres;

/// The end of the message with which a store commits.
const COMMIT: &[u8] = b"COMMIT\0";

/// What is done with a COMMIT, and then with its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// The server does not get it.
    Before,
    /// The server executes it, and its answer is thrown away.
    After,
}

/// Listens on a port of its own, and sends all bytes on.
pub struct Relay {
    port: u16,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    round_trips: AtomicU64,
    /// After how many more of them a COMMIT is cut; 0 for none.
    until_cut: AtomicU64,
    cuts_after: AtomicBool,
    cuts: AtomicU64,
}

impl Relay {
    /// Starts a relay before a server. It runs until the process ends.
    pub fn before(server: &Postgres) -> Relay {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let (port, server) = (listener.local_addr().unwrap().port(), server.port());
        let state = Arc::new(State::default());
        let shared = state.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                // While the server is away, nobody is connected.
                if let Ok(server) = TcpStream::connect(("127.0.0.1", server)) {
                    relay(client, server, &shared);
                }
            }
        });
        Relay { port, state }
    }

    /// Returns the URL of a database through the relay.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://ken@127.0.0.1:{}/{database}", self.port)
    }

    /// Returns how often a client has begun to wait for the server.
    pub fn round_trips(&self) -> u64 {
        self.state.round_trips.load(Ordering::SeqCst)
    }

    /// Cuts the connection of the COMMIT after so many others.
    pub fn cut_in(&self, commits: u64, cut: Cut) {
        self.state.cuts_after.store(cut == Cut::After, Ordering::SeqCst);
        self.state.until_cut.store(commits + 1, Ordering::SeqCst);
    }

    /// Returns how many connections were cut.
    pub fn cuts(&self) -> u64 {
        self.state.cuts.load(Ordering::SeqCst)
    }
}

impl State {
    /// Returns what is done with these bytes of a client, if they are a COMMIT that is to be cut.
    fn cut(&self, sent: &[u8]) -> Option<Cut> {
        if !sent.ends_with(COMMIT) {
            return None;
        }
        let before = self.until_cut.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        let after = self.cuts_after.load(Ordering::SeqCst);
        (before == Ok(1)).then_some(if after { Cut::After } else { Cut::Before })
    }
}

/// One connection.
struct Connection {
    state: Arc<State>,
    /// Whether the server has answered since the client sent something.
    has_answered: AtomicBool,
    /// Whether the next answer is thrown away, and the connection ends with it.
    ends_with_answer: AtomicBool,
}

fn relay(client: TcpStream, server: TcpStream, state: &Arc<State>) {
    let (has_answered, ends_with_answer) = (AtomicBool::new(true), AtomicBool::new(false));
    let connection = Arc::new(Connection { state: state.clone(), has_answered, ends_with_answer });
    for stream in [&client, &server] {
        stream.set_nodelay(true).unwrap();
    }
    let (to_server, to_client) = (server.try_clone().unwrap(), client.try_clone().unwrap());
    let requests = connection.clone();
    std::thread::spawn(move || pass(&client, &to_server, |bytes| requests.sees_request(bytes)));
    std::thread::spawn(move || pass(&server, &to_client, |_| connection.sees_answer()));
}

/// Sends everything on until one side ends, or `see` refuses what has come.
fn pass(mut from: &TcpStream, mut to: &TcpStream, mut see: impl FnMut(&[u8]) -> bool) {
    let mut buffer = vec![0; 1 << 16];
    while let Ok(length @ 1..) = from.read(&mut buffer)
        && see(&buffer[..length])
        && to.write_all(&buffer[..length]).is_ok()
    {}
    _ = from.shutdown(Shutdown::Both);
    _ = to.shutdown(Shutdown::Both);
}

impl Connection {
    fn sees_request(&self, bytes: &[u8]) -> bool {
        if self.has_answered.swap(false, Ordering::SeqCst) {
            self.state.round_trips.fetch_add(1, Ordering::SeqCst);
        }
        let cut = self.state.cut(bytes);
        if cut.is_some() {
            self.state.cuts.fetch_add(1, Ordering::SeqCst);
        }
        self.ends_with_answer.store(cut == Some(Cut::After), Ordering::SeqCst);
        cut != Some(Cut::Before)
    }

    fn sees_answer(&self) -> bool {
        self.has_answered.store(true, Ordering::SeqCst);
        !self.ends_with_answer.load(Ordering::SeqCst)
    }
}
