//! Sends one question without a screen and prints the answer.

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::time::Duration;

use ken_client::approvals::{Asking, Questions};
use ken_client::chat::{Accepted, Prompt, Turn, failure, local};
use ken_client::interrupt::{self, Interrupt};
use ken_client::piped::{fenced, is_piped, read_stdin, text_of_stdin};
use ken_client::{Gateway, LiveText};
use ken_text::for_terminal;
use ken_types::Error;
use ken_types::limits::PROMPT_BYTES;
use parking_lot::Mutex;
use serde_json::Value;

use crate::find::Finder;
use crate::message::Selector;
use crate::model::events::text;
use crate::net::last;

/// The longest wait for events before it is checked whether Ctrl+C was pressed.
const GLANCE: Duration = Duration::from_millis(200);
/// How long standard input may be silent before its end.
const PATIENCE: Duration = Duration::from_secs(300);

/// Sends the words of the command line, before which standard input stands.
pub(crate) fn run(finder: &Finder, words: &str, selector: &Selector, as_json: bool) -> Result<ExitCode, Error> {
    let (text, has_stdin) = whole(words)?;
    let mut gateway = with_retry_notes(finder.gateway(print_note)?);
    let session = match selector {
        // The gateway creates the session together with the prompt.
        Selector::Fresh(None) => None,
        Selector::Fresh(folder) => Some(gateway.create_session(folder.as_deref())?.id),
        // A program cannot see that a fresh session has begun instead, so that is an error.
        Selector::Named(word) => {
            let id = gateway.session_of_word(word);
            Some(gateway.existing_session(&id)?.id)
        }
        Selector::Last => {
            let id = last(&mut gateway)?;
            Some(id.ok_or_else(|| Error::not_found("there is no session to continue"))?)
        }
    };
    let interrupt = Interrupt::catch()?;
    // The gateway may have accepted the prompt before its answer is here.
    interrupt.turn_begins();
    // A log or a diff is text from outside, as an attached file is.
    let accepted = gateway.chat(&Prompt { text, session, attached: has_stdin, ..Prompt::default() })?;
    match accepted.turn() {
        Some(turn) => {
            let session = accepted.session().unwrap_or_default();
            let followed = follow(&gateway, (&turn, &session), finder.command(), as_json, &interrupt);
            match followed {
                Err(_) if interrupt.was_for_turn() => {
                    print_note("the turn was cancelled; what was said is kept");
                    Ok(interrupt::end())
                }
                followed => followed,
            }
        }
        None => command(&accepted, as_json),
    }
}

/// Returns the question, with the text from standard input before it if there is one, and whether there is both.
fn whole(text: &str) -> Result<(String, bool), Error> {
    let piped =
        if is_piped() { text_of_stdin(read_stdin(PROMPT_BYTES, PATIENCE, print_note)?)? } else { String::new() };
    match (text.trim().is_empty(), piped.trim().is_empty()) {
        (true, true) => Err(Error::invalid("--print", "a question is missing")
            .hint("ken-tui --print TEXT, or a text on standard input")),
        (true, false) => Ok((piped.trim_end().to_owned(), false)),
        (false, true) => Ok((text.trim_end().to_owned(), false)),
        (false, false) => Ok((format!("{}\n\n{}", fenced("stdin", &piped), text.trim_end()), true)),
    }
}

fn command(accepted: &Accepted, as_json: bool) -> Result<ExitCode, Error> {
    if as_json {
        put(&format!("{}\n", accepted.body))?
    } else {
        put(&format!("{}\n", for_output(&accepted.result().unwrap_or_default())))?
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints a turn from its first event to its last. Ctrl+C cancels the turn in its session.
fn follow(
    gateway: &Gateway,
    (turn, session): (&Turn, &str),
    ken: String,
    as_json: bool,
    interrupt: &Interrupt,
) -> Result<ExitCode, Error> {
    let mut events = gateway.events(&turn.stream, &turn.offset);
    let note = |text: &str| print_note(text.trim_end());
    let mut questions = Questions::new(gateway.clone(), Asking::Nobody, ken, note);
    let mut live = LiveText::default();
    // An error is printed on a line of its own.
    while let Some(batch) = events.next(Some(GLANCE)).inspect_err(|_| _ = put(live.end_line()))? {
        if interrupt.take() {
            gateway.clone().cancel(&local(), session, Some(&turn.submission))?;
        }
        if batch.is_empty() && questions.lacks_older() {
            questions.take_older(session)?;
        }
        for event in batch {
            if Questions::concerns(&event) {
                put(live.end_line())?;
            }
            questions.take(&event);
            if !turn.owns(&event) {
                continue;
            }
            if as_json {
                put(&format!("{event}\n"))?;
            } else {
                put(&for_output(&live.add(&event)))?;
            }
            if text(&event, "type") == "submission_settled" {
                return outcome(&event);
            }
        }
    }
    Err(Error::unavailable("the session's stream ended before the turn did"))
}

/// Returns the exit status or the error for the event that ends a turn.
pub(crate) fn outcome(event: &Value) -> Result<ExitCode, Error> {
    match event.get("outcome").and_then(Value::as_str) {
        Some("completed") => Ok(ExitCode::SUCCESS),
        Some("aborted") => Err(Error::cancelled("the turn was cancelled")),
        _ => Err(Error::unavailable(failure(event))),
    }
}

/// Returns a text for standard output: without control characters on a terminal, unchanged elsewhere.
pub(crate) fn for_output(text: &str) -> String {
    if io::stdout().is_terminal() { for_terminal(text).into_owned() } else { text.to_owned() }
}

pub(crate) fn put(text: &str) -> Result<(), Error> {
    ken_tool::print(text.as_bytes())
}

/// Returns a gateway that prints what a request waits for, each reason once, if standard error is a terminal.
pub(crate) fn with_retry_notes(gateway: Gateway) -> Gateway {
    if !io::stderr().is_terminal() {
        return gateway;
    }
    let printed = Mutex::new(String::new());
    gateway.on_retry(move |error, _| {
        let mut printed = printed.lock();
        if *printed != error.message {
            printed.clone_from(&error.message);
            print_note(&format!("waiting: {printed}"));
        }
    })
}

pub(crate) fn print_note(text: &str) {
    _ = io::stderr().write_all(format!("ken-tui: {}\n", for_terminal(text)).as_bytes());
}
