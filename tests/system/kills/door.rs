//! How a client makes a request: again and again, until it is accepted.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use ken_tests::{Answer, Client};
use parking_lot::Mutex;
use serde_json::Value;

/// A request that is not accepted for so long is a session that hangs.
const STUCK: Duration = Duration::from_secs(90);

/// What all clients know.
pub(crate) struct Shared {
    pub(crate) address: SocketAddr,
    /// No further work is begun.
    pub(crate) over: AtomicBool,
    /// All work has ended, so that a reader that has everything is at the end.
    pub(crate) is_quiet: AtomicBool,
    /// Odd while there may be no kend, because it is being killed and started again.
    pub(crate) epoch: AtomicU64,
    /// Connects that were refused while there was a kend.
    pub(crate) refused: AtomicUsize,
    outages: Mutex<Outages>,
}

#[derive(Clone, Copy)]
pub(crate) struct Outages {
    last: (Instant, u64),
    pub(crate) kend_ran: Duration,
    pub(crate) kend_died: Duration,
}

impl Shared {
    pub(crate) fn new(address: SocketAddr) -> Shared {
        let none = Outages { last: (Instant::now(), 0), kend_ran: Duration::ZERO, kend_died: Duration::ZERO };
        Shared {
            address,
            over: AtomicBool::new(false),
            is_quiet: AtomicBool::new(false),
            epoch: AtomicU64::new(0),
            refused: AtomicUsize::new(0),
            outages: Mutex::new(none),
        }
    }

    pub(crate) fn outages(&self) -> Outages {
        *self.outages.lock()
    }

    fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::SeqCst)
    }

    fn accepted(&self) {
        let mut outages = self.outages.lock();
        let now = (Instant::now(), self.epoch());
        let (since, ran) = (now.0 - outages.last.0, now.1 == outages.last.1 && now.1.is_multiple_of(2));
        let longest = if ran { &mut outages.kend_ran } else { &mut outages.kend_died };
        *longest = since.max(*longest);
        outages.last = now;
    }

    /// Connects. Only while kend is away can this be refused, because it holds the listening sockets.
    pub(crate) fn connect(&self) -> std::io::Result<Client> {
        let before = self.epoch();
        let connected = Client::try_connect(self.address);
        if connected.as_ref().is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
            && before == self.epoch()
            && before.is_multiple_of(2)
        {
            self.refused.fetch_add(1, Ordering::SeqCst);
        }
        connected
    }
}

/// What a client was told.
pub(crate) struct Tally {
    pub(crate) name: &'static str,
    /// The labels of the accepted requests, in order.
    pub(crate) accepted: Vec<String>,
    /// The longest time from the first attempt of a request until it was accepted.
    pub(crate) longest: Duration,
}

/// A client's way to the system.
pub(crate) struct Door {
    pub(crate) tally: Tally,
    pub(crate) shared: Arc<Shared>,
}

/// A request: method, target, further headers and body.
pub(crate) struct Request<'a> {
    pub(crate) method: &'a str,
    pub(crate) target: &'a str,
    pub(crate) headers: Vec<(&'a str, &'a str)>,
    pub(crate) body: Value,
}

impl Door {
    pub(crate) fn new(name: &'static str, shared: Arc<Shared>) -> Door {
        Door { tally: Tally { name, accepted: Vec::new(), longest: Duration::ZERO }, shared }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.shared.over.load(Ordering::SeqCst)
    }

    /// A label that no other request has.
    pub(crate) fn label(&self) -> String {
        format!("{}-{}", self.tally.name, self.tally.accepted.len())
    }

    /// Makes the request until it is accepted, and notes its label.
    pub(crate) fn accept(&mut self, label: &str, request: &Request<'_>) -> Answer {
        self.accept_if(label, request, is_success)
    }

    /// Makes the request until its answer is good, and notes its label.
    pub(crate) fn accept_if(&mut self, label: &str, request: &Request<'_>, is_good: fn(&Answer) -> bool) -> Answer {
        let answer = self.ask_for(request, is_good);
        self.tally.accepted.push(label.to_owned());
        answer
    }

    /// Makes the request until it is answered with 2xx.
    pub(crate) fn ask(&mut self, request: &Request<'_>) -> Answer {
        self.ask_for(request, is_success)
    }

    /// Makes the request until its answer is good. What is neither good nor says that a part is away is a defect.
    pub(crate) fn ask_for(&mut self, request: &Request<'_>, is_good: impl Fn(&Answer) -> bool) -> Answer {
        let begun = Instant::now();
        let mut last = String::new();
        loop {
            match self.try_once(request) {
                Ok(answer) if is_good(&answer) => {
                    self.tally.longest = self.tally.longest.max(begun.elapsed());
                    self.shared.accepted();
                    return answer;
                }
                Ok(answer) => {
                    last = format!("{} {}", answer.status, answer.body_text());
                    assert!(
                        [200, 499, 503, 504].contains(&answer.status),
                        "{} {}: {last}",
                        request.target,
                        request.body
                    );
                }
                Err(error) => last = format!("{error}; before: {last}"),
            }
            let waited = begun.elapsed();
            assert!(waited < STUCK, "{} {}: not accepted in {waited:?}: {last}", request.target, request.body);
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn try_once(&self, request: &Request<'_>) -> std::io::Result<Answer> {
        let mut client = self.shared.connect()?;
        client.set_timeout(Duration::from_secs(20));
        let to = client.request(request.method, request.target);
        let to = request.headers.iter().fold(to, |to, (name, value)| to.header(name, value));
        if request.body.is_null() { to.try_send() } else { to.json(&request.body).try_send() }
    }
}

fn is_success(answer: &Answer) -> bool {
    (200..300).contains(&answer.status)
}
