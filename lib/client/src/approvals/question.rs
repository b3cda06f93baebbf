//! Asks the person at a terminal about the requests of a turn, line by line, while the events of the turn go on. Where
//! nobody can be asked, it says with which commands the request can be decided.
//!
//! A request can be decided in any other client as well. Therefore nothing here waits for the keyboard alone: the
//! caller reads events with a short timeout and calls [`Questions::read_line`] in between.

use std::collections::VecDeque;
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use std::time::Duration;

use ken_approval::{Request, decided};
use ken_types::Error;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::termios::{FlushArg, tcflush};
use serde_json::Value;

use super::{Decision, user};
use crate::gateway::Gateway;

/// A longer request is shown by the pager.
const PAGE_LINES: usize = 60;
/// How often the keyboard is looked at while a question is open.
const TICK: Duration = Duration::from_millis(200);
/// A longer line is not an answer.
const LINE_BYTES: usize = 4096;

/// Who can be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asking {
    /// The person at the terminal that is standard input.
    Terminal,
    Nobody,
}

impl Asking {
    /// Returns [`Asking::Terminal`] only if standard input and standard error are terminals. A line of a pipe is a
    /// prompt or data, and must not become a decision; and a question that nobody sees must not be asked.
    pub fn of_standard_streams() -> Asking {
        if io::stdin().is_terminal() && io::stderr().is_terminal() { Asking::Terminal } else { Asking::Nobody }
    }
}

/// The pending requests of a turn, and of the turns before it, for whose end it waits.
pub struct Questions {
    gateway: Gateway,
    asking: Asking,
    /// The command `ken` with the options that select the same system.
    ken: String,
    print: Box<dyn Fn(&str)>,
    requests: Requests,
    /// Whether the requests have been taken that can be older than the events.
    has_older: bool,
}

/// The requests that are not decided yet.
#[derive(Debug, Default)]
struct Requests {
    /// The ones to ask about, in the order in which they came.
    pending: VecDeque<Request>,
    /// Whether the first of them is asked about at the moment.
    is_open: bool,
    /// The requests that the person has left for a decision elsewhere.
    put_off: Vec<Request>,
}

impl Requests {
    fn all(&self) -> impl Iterator<Item = &Request> {
        self.pending.iter().chain(&self.put_off)
    }

    fn find(&self, id: &str) -> Option<&Request> {
        self.all().find(|known| known.id == id)
    }

    /// Returns the request that is asked about.
    fn open(&self) -> Option<&Request> {
        self.pending.front().filter(|_| self.is_open)
    }

    fn remove(&mut self, id: &str) {
        self.is_open &= self.pending.front().is_none_or(|first| first.id != id);
        self.pending.retain(|known| known.id != id);
        self.put_off.retain(|known| known.id != id);
    }

    /// Closes the question and returns its request, which then waits for a decision elsewhere.
    fn put_off_first(&mut self) -> Option<&Request> {
        self.is_open = false;
        self.put_off.push(self.pending.pop_front()?);
        self.put_off.last()
    }

    fn waiting(&self) -> Option<String> {
        let first = self.all().next()?;
        Some(match self.all().count() {
            1 => format!("waiting for a decision: {}", first.summary),
            count => format!("waiting for {count} decisions: {}, …", first.summary),
        })
    }
}

impl Questions {
    /// `ken` is the command of this system as a person types it, and `print` prints a text without adding a line end.
    pub fn new(gateway: Gateway, asking: Asking, ken: String, print: impl Fn(&str) + 'static) -> Questions {
        let requests = Requests::default();
        Questions { gateway, asking, ken, print: Box::new(print), requests, has_older: false }
    }

    /// Returns what the turn waits for, if it waits for a decision.
    pub fn waiting(&self) -> Option<String> {
        self.requests.waiting()
    }

    /// Whether a question stands on the terminal.
    pub fn is_open(&self) -> bool {
        self.requests.is_open
    }

    /// Returns how long the caller may wait for events before it calls [`Questions::read_line`].
    pub fn tick(&self, otherwise: Duration) -> Duration {
        if self.is_open() { TICK.min(otherwise) } else { otherwise }
    }

    /// Ends the line of an open question, so that something else can be printed.
    pub fn end_line(&self) {
        if self.is_open() {
            (self.print)("\n");
        }
    }

    /// Whether an event is about an approval. Its text is then printed by [`Questions::take`].
    pub fn concerns(event: &Value) -> bool {
        matches!(text(event, "type"), "approval_requested" | "approval_decided")
    }

    /// Whether an event ends a turn. [`Questions::take`] then says what became of requests that the turn has left.
    pub fn ends_turn(event: &Value) -> bool {
        text(event, "type") == "submission_settled"
    }

    /// Whether [`Questions::take_older`] is still to be called, at the first moment without events. Earlier, the events that led to a request
    /// would be printed behind its question.
    pub fn lacks_older(&self) -> bool {
        !self.has_older
    }

    /// Takes the requests of the session that are pending now. That of a turn before the own one can be older than the events that the
    /// caller reads, and the own turn waits for it.
    ///
    /// # Errors
    /// As [`Gateway::call`].
    pub fn take_older(&mut self, session: &str) -> Result<(), Error> {
        self.has_older = true;
        for record in self.gateway.pending_in_session(session)? {
            self.requested(text(&record, "requestId"), || Request::of(&record));
        }
        Ok(())
    }

    /// Handles an event of the turn, or of one before it. A request is known by its id, so an event that comes again changes nothing.
    pub fn take(&mut self, event: &Value) {
        let id = text(event, "requestId");
        match text(event, "type") {
            _ if Self::ends_turn(event) => self.turn_ended(text(event, "submissionId")),
            "approval_requested" => self.requested(id, || Request::of_event(event)),
            "approval_decided" => self.decided(id, text(event, "status"), text(event, "decidedBy")),
            _ => {}
        }
    }

    /// A turn that the store ends, because its agent was lost, has no events for the requests that end with it. Those of other turns
    /// stay: a turn that was only queued ends while the one before it waits.
    fn turn_ended(&mut self, submission: &str) {
        let of_turn = self.requests.all().filter(|request| request.submission.as_deref() == Some(submission));
        let left: Vec<String> = of_turn.map(|request| request.id.clone()).collect();
        left.iter().for_each(|id| self.decided(id, "cancelled", ""));
    }

    fn requested(&mut self, id: &str, known: impl FnOnce() -> Option<Request>) {
        if self.requests.find(id).is_some() {
            return;
        }
        // If the request cannot be had, the person still learns that there is one, and cannot approve it here.
        let request = self.gateway.whole_request(id).ok().or_else(known);
        let Some(request) = request.filter(Request::is_pending) else { return };
        if self.asking == Asking::Nobody {
            (self.print)(&elsewhere(&request, &self.ken));
        }
        self.requests.pending.push_back(request);
        self.ask();
    }

    fn decided(&mut self, id: &str, status: &str, by: &str) {
        let Some(summary) = self.requests.find(id).map(|known| known.summary.clone()) else {
            return;
        };
        // The record also says who that is as ken knows it.
        let known = self.gateway.approval(id).ok().and_then(|record| Request::of(&record)?.outcome);
        let outcome = known.unwrap_or_else(|| decided(status, by));
        self.end_line();
        (self.print)(&format!("{outcome}: {summary}\n"));
        self.requests.remove(id);
        self.ask_again();
        self.ask();
    }

    /// Asks about the first request, unless that is done already.
    fn ask(&mut self) {
        if self.is_open() || self.asking == Asking::Nobody {
            return;
        }
        if let Some(request) = self.requests.pending.front() {
            let text = format!("A decision is needed: {}", request.text());
            if !is_long(&text) || !page(&text) {
                (self.print)(&format!("\n{text}"));
            }
            self.requests.is_open = true;
            // What was typed before the request was shown is no answer to it.
            _ = tcflush(io::stdin().as_fd(), FlushArg::TCIFLUSH);
            self.ask_again();
        }
    }

    /// Prints the open question again. The caller calls it after it has printed something else.
    pub fn ask_again(&self) {
        if let Some(request) = self.requests.open() {
            (self.print)(&question(request));
        }
    }

    /// Reads the answer to the open question if a line has been typed.
    ///
    /// # Errors
    /// `invalid` if standard input cannot be read, `unavailable` if the gateway cannot be reached.
    pub fn read_line(&mut self) -> Result<(), Error> {
        if !self.is_open() || !has_input() {
            return Ok(());
        }
        let mut line = [0; LINE_BYTES];
        // A terminal returns one line at a time. Zero bytes are Ctrl+D.
        let length = nix::unistd::read(io::stdin(), &mut line)
            .map_err(|error| Error::invalid("-", format!("standard input: {error}")))?;
        let line = String::from_utf8_lossy(line.get(..length).unwrap_or_default()).into_owned();
        match answer(&line) {
            _ if length == 0 => self.later(),
            TypedDecision::Later => self.later(),
            TypedDecision::Decided(approved, for_session, reason) => self.decide(approved, for_session, reason),
            TypedDecision::Unclear => self.ask_again(),
        }
        Ok(())
    }

    /// Leaves the first request for a decision elsewhere, and asks about the next one.
    fn later(&mut self) {
        if let Some(request) = self.requests.put_off_first() {
            (self.print)(&format!("\n{}", elsewhere(request, &self.ken)));
        }
        self.ask();
    }

    /// Sends a decision. The event that follows it prints the outcome.
    fn decide(&mut self, approved: bool, for_session: bool, reason: Option<String>) {
        let Some(request) = self.requests.pending.front().filter(|request| may_decide(request, approved)) else {
            return self.ask_again();
        };
        let decision = Decision { approved, by: user(), reason, for_session, digest: request.digest.clone() };
        match self.gateway.decide(&request.id, &decision) {
            Ok(_) => self.requests.is_open = false,
            // It may have been decided elsewhere at the same time. If not, it is asked about again.
            Err(error) => {
                (self.print)(&format!("{error}\n"));
                self.ask_again();
            }
        }
    }
}

fn is_long(text: &str) -> bool {
    text.lines().count() > PAGE_LINES
}

/// Whether a person can decide so. What is not shown whole can only be denied.
fn may_decide(request: &Request, approved: bool) -> bool {
    !approved || !request.is_cut
}

/// The line that asks, with the answers that there are.
fn question(request: &Request) -> String {
    let approve = match (request.is_cut, &request.digest) {
        (true, _) => "it is not shown whole, so it can only be denied: ",
        (false, Some(_)) => "[a]pprove once, ",
        (false, None) => "[a]pprove once, for this [s]ession, ",
    };
    format!("{}:\n{approve}[d]eny REASON, or [l]ater? ", request.summary)
}

/// Says how a request can be decided elsewhere.
fn elsewhere(request: &Request, ken: &str) -> String {
    let Request { id, summary, risk, .. } = request;
    let decide = match &request.digest {
        None => format!(", `{ken} approve {id}` or `{ken} deny {id}` decides"),
        Some(_) => format!(" and how to approve it; `{ken} deny {id}` denies it"),
    };
    format!("waiting for a decision: {summary} ({risk} risk): `{ken} approvals {id}` shows it{decide}\n")
}

#[derive(Debug, PartialEq, Eq)]
enum TypedDecision {
    Later,
    /// Whether it is approved, whether for the session, and why.
    Decided(bool, bool, Option<String>),
    Unclear,
}

/// Reads an answer. An approval is a single word, so that no sentence that happens to begin with it approves anything.
fn answer(line: &str) -> TypedDecision {
    let line = line.trim();
    let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    match (word, rest.trim()) {
        ("a" | "approve", "") => TypedDecision::Decided(true, false, None),
        ("s" | "session", "") => TypedDecision::Decided(true, true, None),
        ("d" | "deny", rest) => {
            TypedDecision::Decided(false, false, Some(rest.to_owned()).filter(|rest| !rest.is_empty()))
        }
        ("l" | "later", "") => TypedDecision::Later,
        _ => TypedDecision::Unclear,
    }
}

/// Shows a text in the pager of the environment. Returns false if there is none, or if it fails. Its output is the
/// terminal that is standard error, because standard output may be a file.
fn page(text: &str) -> bool {
    let Some(pager) = std::env::var_os("PAGER").filter(|pager| !pager.is_empty()) else {
        return false;
    };
    let Ok(terminal) = io::stderr().as_fd().try_clone_to_owned() else {
        return false;
    };
    // The variable can contain arguments, so the shell splits it, as in other programs.
    let mut command = Command::new("/bin/sh");
    let child = command.arg("-c").arg(pager).stdin(Stdio::piped()).stdout(Stdio::from(terminal)).spawn();
    let Ok(mut child) = child else { return false };
    if let Some(mut input) = child.stdin.take() {
        // A person may leave the pager before its end.
        _ = input.write_all(text.as_bytes());
    }
    child.wait().is_ok_and(|status| status.success())
}

/// Whether a line has been typed, or the input has ended.
fn has_input() -> bool {
    let stdin = io::stdin();
    let mut fds = [PollFd::new(stdin.as_fd(), PollFlags::POLLIN)];
    poll(&mut fds, PollTimeout::ZERO).is_ok_and(|count| count > 0)
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value.get(name).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(id: &str) -> Request {
        let record =
            serde_json::json!({"requestId": id, "request": {"id": id, "summary": format!("Do {id}"), "risk": "low"}});
        Request::of(&record).unwrap()
    }

    fn requests(pending: &[&str], put_off: &[&str], is_open: bool) -> Requests {
        let of = |ids: &[&str]| ids.iter().map(|id| request(id)).collect::<Vec<_>>();
        Requests { pending: of(pending).into(), is_open, put_off: of(put_off) }
    }

    fn ids(requests: &Requests) -> (Vec<&str>, Vec<&str>) {
        (
            requests.pending.iter().map(|request| request.id.as_str()).collect(),
            requests.put_off.iter().map(|request| request.id.as_str()).collect(),
        )
    }

    /// A question stands until its own request is decided, here or elsewhere, and not when another one is.
    #[test]
    fn a_decided_request_closes_its_own_question_only() {
        for (decided, is_open, left) in [
            ("a", false, (vec!["b", "c"], vec!["x", "y"])),
            ("b", true, (vec!["a", "c"], vec!["x", "y"])),
            ("y", true, (vec!["a", "b", "c"], vec!["x"])),
            ("z", true, (vec!["a", "b", "c"], vec!["x", "y"])),
        ] {
            let mut waiting = requests(&["a", "b", "c"], &["x", "y"], true);
            assert_eq!(waiting.find(decided).is_some(), decided != "z");
            waiting.remove(decided);
            assert_eq!((waiting.is_open, ids(&waiting)), (is_open, left), "{decided}");
            assert_eq!(waiting.open().map(|request| request.id.as_str()), is_open.then_some("a"), "{decided}");
        }
        let mut none = requests(&[], &["x"], false);
        none.remove("x");
        assert!(!none.is_open && none.open().is_none() && none.waiting().is_none());
    }

    #[test]
    fn what_is_put_off_still_waits() {
        let mut waiting = requests(&["a", "b"], &[], true);
        assert_eq!(waiting.waiting().as_deref(), Some("waiting for 2 decisions: Do a, …"));
        assert_eq!(waiting.put_off_first().map(|request| request.id.clone()).as_deref(), Some("a"));
        assert_eq!((waiting.is_open, ids(&waiting)), (false, (vec!["b"], vec!["a"])));
        assert_eq!(waiting.waiting().as_deref(), Some("waiting for 2 decisions: Do b, …"));
        waiting.remove("b");
        assert_eq!(waiting.waiting().as_deref(), Some("waiting for a decision: Do a"));
        assert!(waiting.put_off_first().is_none());
    }

    #[test]
    fn what_can_be_answered_is_offered() {
        for (is_cut, is_long, offer, may_approve) in [
            (false, false, "[a]pprove once, for this [s]ession, [d]eny REASON, or [l]ater? ", true),
            (false, true, "[a]pprove once, [d]eny REASON, or [l]ater? ", true),
            (true, false, "it is not shown whole, so it can only be denied: [d]eny REASON, or [l]ater? ", false),
            (true, true, "it is not shown whole, so it can only be denied: [d]eny REASON, or [l]ater? ", false),
        ] {
            let request = Request { is_cut, digest: is_long.then(|| "d".to_owned()), ..request("a") };
            assert_eq!(question(&request), format!("Do a:\n{offer}"));
            assert_eq!([true, false].map(|approved| may_decide(&request, approved)), [may_approve, true]);
            let shows = "waiting for a decision: Do a (low risk): `ken approvals a` shows it";
            let decides = if is_long {
                " and how to approve it; `ken deny a` denies it\n"
            } else {
                ", `ken approve a` or `ken deny a` decides\n"
            };
            assert_eq!(elsewhere(&request, "ken"), format!("{shows}{decides}"));
        }
        assert!(!is_long(&"x\n".repeat(PAGE_LINES)) && is_long(&"x\n".repeat(PAGE_LINES + 1)));
    }

    #[test]
    fn only_a_single_word_approves() {
        for (line, wanted) in [
            ("a\n", TypedDecision::Decided(true, false, None)),
            ("approve", TypedDecision::Decided(true, false, None)),
            ("s", TypedDecision::Decided(true, true, None)),
            ("d", TypedDecision::Decided(false, false, None)),
            ("deny  not today \n", TypedDecision::Decided(false, false, Some("not today".into()))),
            ("later", TypedDecision::Later),
            ("a quick question", TypedDecision::Unclear),
            ("session please", TypedDecision::Unclear),
            ("A", TypedDecision::Unclear),
            ("yes", TypedDecision::Unclear),
            ("\n", TypedDecision::Unclear),
        ] {
            assert_eq!(answer(line), wanted, "{line:?}");
        }
    }
}
