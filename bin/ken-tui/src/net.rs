//! Requests to the gateway. Each one runs on its own thread, which sends a message with the result.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use ken_client::chat::{Session, local};
use ken_client::{Gateway, History, Method};
use ken_types::ops::model::Down;
use ken_types::uri::encode_segment;
use ken_types::{Code, Error};
use parking_lot::Mutex;
use serde_json::Value;

use crate::find::Finder;
use crate::message::{Call, Message, Preflight, Readiness, Selector};

/// The number of exchanges per page, enough for one or two screens.
pub(crate) const PAGE: u32 = 50;
const SESSIONS: u32 = 100;
/// How long a prompt is retried while the gateway is unreachable: practically without limit.
const RETRY_TIME: Duration = Duration::from_secs(24 * 3_600);
const PAUSE: Duration = Duration::from_secs(1);

/// Sends messages to the loop: a bounded channel, and a pipe that wakes the loop with a byte.
#[derive(Debug, Clone)]
pub(crate) struct Port {
    pub(crate) messages: SyncSender<Message>,
    pub(crate) wake: Arc<UnixStream>,
}

impl Port {
    /// Sends a message. Returns whether the receiver still exists.
    pub(crate) fn send(&self, message: Message) -> bool {
        let is_heard = self.messages.send(message).is_ok();
        // If the pipe is full, the reader will wake up anyway.
        _ = (&*self.wake).write(&[1]);
        is_heard
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Net {
    finder: Finder,
    port: Port,
    gateway: Arc<Mutex<Option<Gateway>>>,
    /// The current epoch. Threads that follow a stream of an earlier epoch end.
    epoch: Arc<AtomicU64>,
}

impl Net {
    pub(crate) fn new(finder: Finder, port: Port) -> Net {
        Net { finder, port, gateway: Arc::default(), epoch: Arc::default() }
    }

    /// Runs `work` with the gateway on a new thread.
    fn spawn(&self, work: impl FnOnce(&Net, Gateway) + Send + 'static) {
        let net = self.clone();
        let run = move || {
            let held = net.gateway.lock().clone();
            if let Some(gateway) = held {
                let port = net.port.clone();
                let on_retry = move |error: &Error, _: Duration| _ = port.send(Message::Trouble(error.message.clone()));
                work(&net, gateway.on_retry(on_retry));
            }
        };
        self.thread(run);
    }

    fn thread(&self, run: impl FnOnce() + Send + 'static) {
        let spawned = std::thread::Builder::new().spawn(run);
        if let Err(error) = spawned {
            // This thread reads the channel itself, so it must not wait for room in it.
            let what = "no thread";
            let error = Error::internal(error.to_string());
            _ = self.port.messages.try_send(Message::Failed { what, error });
        }
    }

    /// Connects to the gateway if needed, and opens a session. At the start of the client, a new session begins with
    /// the start-up report.
    pub(crate) fn open(&self, selector: Selector) {
        let net = self.clone();
        self.thread(move || {
            let show = |row: Preflight| _ = net.port.send(Message::Preflight(row));
            let say = |text: &str| show(Preflight::fact(text));
            let opened = net.connect(say).and_then(|(mut gateway, is_first)| {
                let session = open(&mut gateway, &net.finder, &selector, say)?;
                session.workspace.iter().for_each(|folder| say(&works_in(folder)));
                if is_first && session.created {
                    let readiness = readiness(&gateway).ok();
                    preflight(&gateway, readiness.as_ref()).into_iter().for_each(show);
                    readiness.into_iter().for_each(|readiness| _ = net.port.send(Message::Readiness(readiness)));
                }
                Ok(session)
            });
            net.port.send(Message::Opened(opened));
        });
    }

    /// Removes from the history what was typed in sessions that were deleted for good.
    pub(crate) fn forget_deleted(&self, history: History) {
        self.spawn(move |net, gateway| {
            let is_deleted = |session: &str| {
                let stream = format!("/agents/orchestrator/{}", encode_segment(session));
                let answer = gateway.send(&Method::HEAD, &stream, &[], &[]).ok()?;
                matches!(answer.status, 200 | 404 | 410).then_some(answer.status == 410)
            };
            if history.forget_deleted(is_deleted) {
                net.port.send(Message::History(history.prompts()));
            }
        });
    }

    /// Returns the gateway, and whether this is the first connection.
    fn connect(&self, say: impl Fn(&str)) -> Result<(Gateway, bool), Error> {
        if let Some(gateway) = self.gateway.lock().clone() {
            return Ok((gateway, false));
        }
        let gateway = self.finder.gateway(say)?;
        *self.gateway.lock() = Some(gateway.clone());
        Ok((gateway, true))
    }

    /// Follows a session's stream until another one is attached.
    pub(crate) fn attach(&self, epoch: u64, session: &str, offset: String) {
        self.epoch.store(epoch, Ordering::Relaxed);
        let target = format!("/agents/orchestrator/{}", encode_segment(session));
        self.spawn(move |net, gateway| net.read(epoch, &gateway, &target, offset));
    }

    fn read(&self, epoch: u64, gateway: &Gateway, target: &str, mut offset: String) {
        let is_current = || self.epoch.load(Ordering::Relaxed) == epoch;
        while is_current() {
            let mut events = gateway.events(target, &offset);
            let error = loop {
                match events.next(None) {
                    Ok(Some(events)) => {
                        if !is_current() || !self.port.send(Message::Stream { epoch, events }) {
                            return;
                        }
                    }
                    Ok(None) => break Error::unavailable("the stream ended"),
                    Err(error) => break error,
                }
            };
            offset = events.offset().to_owned();
            if !is_retryable(&error) {
                self.port.send(Message::StreamEnded { epoch, error });
                return;
            }
            self.port.send(Message::Trouble(error.message));
            std::thread::sleep(PAUSE);
        }
    }

    pub(crate) fn call(&self, call: Call) {
        self.spawn(move |net, mut gateway| {
            let failed = |what, error| Message::Failed { what, error };
            let message = match call {
                Call::Page { epoch, session, before } => {
                    let page = gateway.transcript(&local(), &session, PAGE, before.as_deref());
                    Some(Message::Page { epoch, older: before.is_some(), page })
                }
                Call::Send { id, prompt } => {
                    let answer = gateway.retry_for(RETRY_TIME).chat(&prompt).map(|accepted| accepted.body);
                    Some(Message::Sent { id, answer })
                }
                Call::Cancel { session } => {
                    gateway.cancel(&local(), &session, None).err().map(|error| failed("cancel", error))
                }
                Call::Sessions { after } => Some(Message::Sessions(gateway.session_page(SESSIONS, after.as_deref()))),
                // A gateway without the approvals route has no approvals.
                Call::Approvals => gateway.retry_for(PAUSE).pending_approvals().ok().map(Message::Approvals),
                Call::Approval { request } => Some(match gateway.whole_request(&request) {
                    Ok(request) => Message::Approval(Box::new(request)),
                    Err(error) => failed("approval", error),
                }),
                Call::Decide { request, decision } => {
                    let answer = gateway.decide(&request, &decision);
                    Some(Message::Decided { request, answer })
                }
                Call::Parts => readiness(&gateway).ok().map(Message::Readiness),
            };
            message.into_iter().for_each(|message| _ = net.port.send(message));
        });
    }
}

/// Opens a session. One that does not exist is replaced by a new one, of which the person is told.
pub(crate) fn open(
    gateway: &mut Gateway,
    finder: &Finder,
    selector: &Selector,
    say: impl Fn(&str),
) -> Result<Session, Error> {
    if let Selector::Fresh(folder) = selector {
        return gateway.create_session(folder.as_deref());
    }
    let found = finder.folder();
    let folder = found.as_ref().ok().and_then(Option::as_deref);
    let id = match selector {
        Selector::Named(word) => Some(gateway.session_of_word(word)),
        _ => last(gateway)?,
    };
    let session = match id {
        Some(id) => gateway.resume_session(&id, folder)?,
        None => gateway.create_session(folder)?,
    };
    if session.created {
        say(&missing(gateway, selector));
        if let Err(why) = found {
            say(&why);
        }
    }
    Ok(session)
}

/// Returns the id of the session that was used last.
pub(crate) fn last(gateway: &mut Gateway) -> Result<Option<String>, Error> {
    let last = gateway.own_sessions(1)?;
    Ok(last.first().and_then(|session| session.get("sessionId")?.as_str()).map(str::to_owned))
}

pub(crate) fn works_in(folder: &str) -> String {
    format!("the agent works in {folder}")
}

/// Returns what a person is told whose session does not exist.
fn missing(gateway: &mut Gateway, selector: &Selector) -> String {
    let Selector::Named(name) = selector else {
        return "there is no session to continue: this is a new one".to_owned();
    };
    match gateway.nearest_session(name) {
        Some(nearest) => format!("there is no session {name} (the nearest is {nearest}): this is a new one"),
        None => format!("there is no session {name}: this is a new one"),
    }
}

pub(crate) fn preflight(gateway: &Gateway, readiness: Option<&Readiness>) -> Vec<Preflight> {
    let url = gateway.url();
    let mut rows = vec![match gateway.send(&Method::GET, "/health", &[], &[]) {
        Ok(answer) if answer.status == 200 => Preflight::fact(format!("gateway {url} answers")),
        Ok(answer) => Preflight::problem(format!("gateway {url} answers with {}", answer.status)),
        Err(_) => Preflight::problem(format!("gateway {url} does not answer yet")),
    }];
    if let Some(readiness) = readiness {
        rows.push(match &readiness.waiting[..] {
            [] => Preflight::fact("all parts are ready"),
            waiting => Preflight::problem(format!("not ready: {}", waiting.join(", "))),
        });
        rows.extend(readiness.degraded.iter().map(|down| Preflight::problem(format!("down: {down}"))));
    }
    rows
}

pub(crate) fn readiness(gateway: &Gateway) -> Result<Readiness, Error> {
    let answer = gateway.send(&Method::GET, "/ready", &[], &[])?;
    let body = answer.json()?;
    let list = |field| body.get(field).and_then(Value::as_array).into_iter().flatten();
    Ok(Readiness {
        waiting: list("waiting").filter_map(Value::as_str).map(str::to_owned).collect(),
        degraded: list("degraded")
            .filter_map(|down| Some(is_down(&serde_json::from_value(down.clone()).ok()?)))
            .collect(),
    })
}

/// Returns a line for a provider that is down, with the time of day at which that began.
fn is_down(down: &Down) -> String {
    let since = Timestamp::from_millisecond(down.since.millis()).unwrap_or_default().to_zoned(TimeZone::system());
    format!("{} (since {})", down.why, since.strftime("%H:%M"))
}

/// Whether a later attempt can succeed.
pub(crate) fn is_retryable(error: &Error) -> bool {
    matches!(error.code, Code::Unavailable | Code::Busy | Code::Deadline)
}
