//! `ken chat`: one turn, printed as it comes.

use std::io::{IsTerminal, Read};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use ken_client::Gateway;
use ken_client::chat::{Accepted, Identity, Prompt, Turn};
use ken_types::limits::PROMPT_BYTES;
use ken_types::{Code, Error};
use serde_json::Value;

use crate::cli::{Chat, Cli};
use crate::gateway;
use crate::needed::Needed;
use crate::output::{Outcome, put, remark, say, say_json};
use crate::progress::Progress;
use crate::sessions;

/// How often is looked at what is waited for.
const TICK: Duration = Duration::from_secs(1);

pub(crate) fn run(cli: &Cli, chat: &Chat) -> Outcome {
    let text = text(chat)?;
    let needed = Needed::of(cli)?;
    needed.check()?;
    let mut gateway = gateway::find(cli)?.patience(chat.wait);
    let mut prompt = Prompt::new(Identity::local(), &text);
    prompt.session = session(&mut gateway, chat)?;
    let accepted = say_it(&gateway, &prompt, &needed)?;
    match accepted.turn() {
        Some(turn) => Course::new(&turn, chat).follow(&gateway, &needed)?,
        // A command is done at once and has no turn.
        None => say(&accepted.result().unwrap_or_default())?,
    }
    if prompt.session.is_none() && accepted.session().is_some() && std::io::stderr().is_terminal() {
        remark("to continue this session: ken chat -c TEXT");
    }
    Ok(ExitCode::SUCCESS)
}

/// The words of the command line, or standard input when there are none.
fn text(chat: &Chat) -> Result<String, Error> {
    if chat.text.iter().any(|word| word != "-") {
        return Ok(chat.text.join(" "));
    }
    let input = std::io::stdin();
    if input.is_terminal() {
        return Err(
            Error::invalid("TEXT", "a message is missing").hint("ken chat TEXT, or a text on standard input")
        );
    }
    let mut text = String::new();
    let read = input.take(PROMPT_BYTES as u64 + 1).read_to_string(&mut text);
    read.map_err(|error| Error::invalid("-", format!("standard input: {error}")))?;
    Ok(text)
}

/// The session that was asked for. Without one the gateway makes a new one with the prompt itself.
fn session(gateway: &mut Gateway, chat: &Chat) -> Result<Option<String>, Error> {
    if chat.resume {
        return sessions::last(gateway).map(Some);
    }
    let Some(word) = &chat.session else {
        return Ok(None);
    };
    match sessions::find(gateway, Some(&Identity::local()), word) {
        Ok(session) => Ok(session
            .get("sessionId")
            .and_then(Value::as_str)
            .map(str::to_owned)),
        // It may be archived, or somebody else's: the gateway says which.
        Err(error) if error.code == Code::NotFound => Ok(Some(word.clone())),
        Err(error) => Err(error),
    }
}

fn say_it(gateway: &Gateway, prompt: &Prompt, needed: &Needed) -> Result<Accepted, Error> {
    let progress = Progress::start("sending");
    let (sender, reasons) = std::sync::mpsc::channel();
    let mut gateway = gateway
        .clone()
        .notice(move |error| _ = sender.send(error.message.clone()));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for reason in reasons {
                progress.set(&needed.waiting().unwrap_or(reason));
            }
        });
        let accepted = gateway.chat(prompt);
        // It owns the sender, and the thread above ends with that.
        drop(gateway);
        accepted
    })
}

/// What is shown of one submission.
struct Course<'a> {
    turn: &'a Turn,
    chat: &'a Chat,
    /// Whether the last thing printed was a piece of the answer.
    said: bool,
    heard: Instant,
}

impl<'a> Course<'a> {
    fn new(turn: &'a Turn, chat: &'a Chat) -> Course<'a> {
        Course {
            turn,
            chat,
            said: false,
            heard: Instant::now(),
        }
    }

    /// Reads the events of the turn from before its first to its last.
    fn follow(&mut self, gateway: &Gateway, needed: &Needed) -> Result<(), Error> {
        let mut events = gateway.events(&self.turn.stream, &self.turn.offset);
        let mut progress = None;
        while let Some(batch) = events.next(Some(TICK))? {
            let mine: Vec<Value> = batch.into_iter().filter(|event| self.is_mine(event)).collect();
            if mine.is_empty() {
                self.wait(&mut progress, needed)?;
                continue;
            }
            progress = None;
            self.heard = Instant::now();
            for event in mine {
                if self.show(&event)? {
                    return Ok(());
                }
            }
        }
        Err(Error::unavailable(
            "the session's stream ended before the turn did",
        ))
    }

    fn is_mine(&self, event: &Value) -> bool {
        event
            .get("submissionId")
            .is_some_and(|id| *id == *self.turn.submission)
    }

    fn wait(&self, progress: &mut Option<Progress>, needed: &Needed) -> Result<(), Error> {
        let silent = self.heard.elapsed();
        if silent < TICK {
            return Ok(());
        }
        let waiting = needed.waiting();
        if silent >= self.chat.wait {
            let for_what = waiting.map_or_else(String::new, |waiting| format!(", {waiting}"));
            let message = format!("nothing has come for {} s{for_what}", silent.as_secs());
            return Err(Error::deadline(message).hint(
                "the turn goes on: `ken sessions` names its session, `ken show SESSION` shows the answer",
            ));
        }
        // In the middle of a line of the answer there is no place for it.
        if !self.said || waiting.is_some() {
            let what = waiting.unwrap_or_else(|| "waiting for the answer".to_owned());
            progress.get_or_insert_with(|| Progress::start(&what)).set(&what);
        }
        Ok(())
    }

    /// Shows an event of this submission; whether it was the last.
    fn show(&mut self, event: &Value) -> Result<bool, Error> {
        let text = |name: &str| event.get(name).and_then(Value::as_str).unwrap_or_default();
        if self.chat.events {
            say_json(event)?;
        }
        match text("type") {
            "text_delta" if !self.chat.events && event.get("parentSession").is_none() => {
                self.said = true;
                put(text("text")).map(|()| false)
            }
            "tool_start" if std::io::stderr().is_terminal() => {
                remark(&format!("[{}]", text("toolName")));
                Ok(false)
            }
            "submission_settled" => self.settle(event).map(|()| true),
            _ => Ok(false),
        }
    }

    fn settle(&self, event: &Value) -> Result<(), Error> {
        if self.said {
            put("\n")?;
        }
        match event.get("outcome").and_then(Value::as_str) {
            Some("completed") => Ok(()),
            Some("aborted") => Err(Error::cancelled("the turn was cancelled")),
            _ => {
                let error = event.get("error");
                let message = error
                    .and_then(Value::as_str)
                    .or_else(|| error?.get("message")?.as_str());
                Err(Error::new(
                    Code::Unavailable,
                    message.unwrap_or("the turn failed"),
                ))
            }
        }
    }
}
