//! The client as plain lines of text, without moving the cursor or overwriting anything. It is meant for screen
//! readers, logs and simple terminals.

use std::io::{self, BufRead, IsTerminal};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ken_approval::Request;
use ken_client::approvals::{Asking, Questions};
use ken_client::chat::{Prompt, Session, Turn, failure, local};
use ken_client::interrupt;
use ken_client::{Events, Gateway, LiveText, progress_line, source_lines};
use ken_text::visible_line;
use ken_types::Error;
use ken_types::live_text::prompt_text;
use ken_types::uri::encode_segment;
use serde_json::Value;
use signal_hook::consts::SIGINT;

use crate::find::Finder;
use crate::message::Selector;
use crate::model::events::text;
use crate::model::{PREFLIGHT, greeting, name_of, sentence};
use crate::net::{PAGE, open, preflight, readiness, works_in};
use crate::print::{for_output, outcome, print_note, put, with_retry_notes};

/// How often it is checked whether a running turn must be cancelled.
const TICK: Duration = Duration::from_millis(200);

pub(crate) fn run(finder: &Finder, selector: &Selector) -> Result<ExitCode, Error> {
    let mut gateway = with_retry_notes(finder.gateway(print_note)?);
    let report: Vec<String> =
        preflight(&gateway, readiness(&gateway).ok().as_ref()).into_iter().map(|row| row.text).collect();
    let session = open(&mut gateway, finder, selector, print_note)?;
    session.workspace.iter().for_each(|folder| print_note(&works_in(folder)));
    let failed = |error: io::Error| Error::internal(error.to_string());
    let (idle, interrupted) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicBool::new(false)));
    // Ctrl+C ends the program while it waits for a line. While a turn is running, it cancels the turn.
    signal_hook::flag::register_conditional_default(SIGINT, Arc::clone(&idle)).map_err(failed)?;
    signal_hook::flag::register(SIGINT, Arc::clone(&interrupted)).map_err(failed)?;
    let mut plain = Plain { gateway, session, ken: finder.command(), idle, interrupted };
    put(&format!("session {}\n", plain.session.id))?;
    if plain.session.created {
        report.iter().try_for_each(|row| put(&format!("{row}\n")))?;
        plain.send_line(greeting(&report), Some(PREFLIGHT.to_owned()))?;
    } else {
        plain.show_page()?
    }
    plain.read_lines()
}

struct Plain {
    gateway: Gateway,
    session: Session,
    /// The command `ken` for the same system.
    ken: String,
    /// Whether the program waits for a line.
    idle: Arc<AtomicBool>,
    interrupted: Arc<AtomicBool>,
}

impl Plain {
    fn read_lines(&mut self) -> Result<ExitCode, Error> {
        loop {
            put("> ")?;
            let Some(line) = read_line()? else {
                put("\n")?;
                break;
            };
            match line.trim() {
                "" => {}
                "/exit" | "/quit" => break,
                "/help" => put("/exit leaves, /session and /sessions show sessions, /resume ID goes to one; \
                                everything else that begins with / is done by the gateway\n")?,
                "/session" => put(&format!("{}\n", self.session.id))?,
                "/sessions" => self.show_sessions()?,
                text => {
                    if let Err(error) = self.send_line(text.to_owned(), None) {
                        print_note(&sentence(&error));
                    }
                }
            }
        }
        put(&format!("session {}\n", self.session.id))?;
        Ok(ExitCode::SUCCESS)
    }

    fn show_sessions(&mut self) -> Result<(), Error> {
        for session in self.gateway.own_sessions(PAGE)? {
            let name = name_of(&session).unwrap_or_default();
            put(&for_output(&format!("{}  {name}\n", text(&session, "sessionId"))))?;
        }
        Ok(())
    }

    /// Prints the newest page of a continued session, and follows its running turn, if any.
    fn show_page(&mut self) -> Result<(), Error> {
        let page = self.gateway.transcript(&local(), &self.session.id, PAGE, None)?;
        let mut open = None;
        let exchanges = page.get("exchanges").and_then(Value::as_array);
        for exchange in exchanges.into_iter().flatten() {
            let text = |pointer: &str| exchange.pointer(pointer).and_then(Value::as_str);
            if text("/prompt/text").is_some() {
                put(&for_output(&format!("> {}\n", prompt_text(exchange))))?;
            }
            let status = text("/status").unwrap_or_default();
            if status == "running" {
                open = text("/submissionId").map(str::to_owned);
                continue;
            }
            for (name, end) in past_approvals(exchange) {
                put(&for_output(&format!("[approval: {name}: {end}]\n")))?;
            }
            if let Some(answer) = text("/assistant/text") {
                put(&for_output(&format!("{answer}\n")))?;
            }
            let sources = exchange.get("assistant").map(source_lines).unwrap_or_default();
            if !sources.is_empty() {
                put(&for_output(&format!("\n{sources}\n")))?;
            }
            match status {
                "cancelled" => put("(cancelled)\n")?,
                "failed" => put(&for_output(&format!("(failed: {})\n", failure(exchange))))?,
                _ => {}
            }
        }
        let Some(submission) = open else { return Ok(()) };
        let offset = page.pointer("/stream/nextOffset").and_then(Value::as_str).unwrap_or("-1");
        let turn = Turn {
            submission,
            stream: format!("/agents/orchestrator/{}", encode_segment(&self.session.id)),
            offset: offset.to_owned(),
        };
        self.follow(&turn)
    }

    fn send_line(&mut self, text: String, workflow: Option<String>) -> Result<(), Error> {
        let session = Some(self.session.id.clone());
        let accepted = self.gateway.chat(&Prompt { text, session, workflow, ..Prompt::default() })?;
        if let Some(turn) = accepted.turn() {
            return self.follow(&turn);
        }
        if let Some(id) = accepted.session().filter(|id| *id != self.session.id) {
            self.session.id = id;
        }
        put(&for_output(&format!("{}\n", accepted.result().unwrap_or_default())))
    }

    fn follow(&mut self, turn: &Turn) -> Result<(), Error> {
        self.idle.store(false, Ordering::Relaxed);
        self.interrupted.store(false, Ordering::Relaxed);
        let mut events = self.gateway.events(&turn.stream, &turn.offset);
        let result = self.print(turn, &mut events);
        self.idle.store(true, Ordering::Relaxed);
        result
    }

    /// Returns the approvals of a turn. Without a terminal, a line of standard input is a prompt and decides nothing.
    fn questions(&self) -> Questions {
        let is_terminal = io::stdin().is_terminal() && io::stdout().is_terminal();
        let (gateway, ken) = (self.gateway.clone(), self.ken.clone());
        if is_terminal {
            Questions::new(gateway, Asking::Terminal, ken, |text| _ = put(&for_output(text)))
        } else {
            Questions::new(gateway, Asking::Nobody, ken, |text| print_note(text.trim_end()))
        }
    }

    fn print(&mut self, turn: &Turn, events: &mut Events) -> Result<(), Error> {
        let mut live = LiveText::default();
        let mut questions = self.questions();
        // An error is printed on a line of its own.
        while let Some(batch) = events.next(Some(TICK)).inspect_err(|_| {
            questions.end_line();
            _ = put(live.end_line());
        })? {
            if batch.is_empty() && questions.lacks_older() {
                questions.take_older(&self.session.id)?;
            }
            questions.read_line()?;
            if self.interrupted.swap(false, Ordering::Relaxed) {
                // At a question, Ctrl+C ends the program, and the request stays open.
                if questions.is_open() {
                    interrupt::end();
                }
                self.gateway.cancel(&local(), &self.session.id, None)?;
            }
            for event in batch {
                let text = |name: &str| text(&event, name);
                if Questions::concerns(&event) || !turn.owns(&event) {
                    put(live.end_line())?;
                    questions.take(&event);
                    continue;
                }
                if event.get("parentSession").is_some() {
                    continue;
                }
                put(&for_output(&live.add(&event)))?;
                let line = match text("type") {
                    "tool_start" => format!("[{} …]", text("toolName")),
                    "tool_progress" => format!("[{}]", progress_line(&event)),
                    "tool" if event.get("isError") == Some(&Value::Bool(true)) => {
                        format!("[{} failed]", text("toolName"))
                    }
                    "tool" => format!("[{} done]", text("toolName")),
                    "task_start" => format!("[task for {} …]", text("agent")),
                    "submission_settled" => {
                        questions.end_line();
                        return outcome(&event).map(|_| ());
                    }
                    _ => continue,
                };
                put(live.end_line())?;
                put(&for_output(&format!("{line}\n")))?;
                questions.ask_again();
            }
        }
        Err(Error::unavailable("the session's stream ended before the turn did"))
    }
}

/// Returns the requests for approvals of an exchange: what was asked, and who decided when.
fn past_approvals(exchange: &Value) -> impl Iterator<Item = (String, String)> {
    let activities = exchange.get("activities").and_then(Value::as_array);
    let end = |activity: &Value| Request::of(activity.get("approval")?)?.end();
    activities
        .into_iter()
        .flatten()
        .filter_map(move |activity| Some((visible_line(text(activity, "name")), end(activity)?)))
}

/// Reads a line of standard input. Returns `None` at its end.
fn read_line() -> Result<Option<String>, Error> {
    let mut line = String::new();
    let read = io::stdin().lock().read_line(&mut line);
    match read.map_err(|error| Error::invalid("-", format!("standard input: {error}")))? {
        0 => Ok(None),
        _ => Ok(Some(line)),
    }
}
