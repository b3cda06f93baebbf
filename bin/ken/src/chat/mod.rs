//! `ken chat`: sends a message and prints the answer as it arrives.

mod compose;
mod follow;
mod reply;
mod schema;
mod server_prompt;
mod template;

use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use clap::Args;
use ken_client::Gateway;
use ken_client::approvals::{Asking, Questions};
use ken_client::chat::{Accepted, Prompt, local};
use ken_client::interrupt::{self, Interrupt};
use ken_types::{Code, Error};

use crate::duration::duration;
use crate::gateway;
use crate::globals::Globals;
use crate::ids::{SESSION, field};
use crate::needed::NeededParts;
use crate::output::{Outcome, fail, print_json, print_note, print_on_stderr};
use crate::progress::Progress;
use crate::workspace;
use follow::{GLANCE, TurnFollower};
use reply::{Presenter, Reply};
use schema::Schema;

/// After this time, what a prompt waits for is told where no progress line is shown.
const TELL_AFTER: Duration = Duration::from_secs(2);

#[derive(Debug, Args)]
pub(crate) struct Chat {
    /// Message; without it, or with -, standard input is the message; with it, a pipe or file there stands before it
    pub(crate) text: Vec<String>,
    /// Continue the session with this id, end of an id, or name [default: a new session]
    #[arg(short = 's', long, value_name = "SESSION")]
    pub(crate) session: Option<String>,
    /// Continue the last session
    #[arg(short = 'c', long = "continue", conflicts_with = "session")]
    pub(crate) resume: bool,
    /// Folder in which a new session works [default: the trusted folder around the current one]
    #[arg(short = 'w', long, value_name = "DIR", conflicts_with_all = ["session", "resume"])]
    pub(crate) workspace: Option<PathBuf>,
    /// Stop when no data has arrived for this long: 30s, 5m
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "5m")]
    pub(crate) wait: Duration,
    /// Fail at once, instead of waiting, when the system is still starting
    #[arg(long)]
    pub(crate) no_start: bool,
    /// Use only this model: provider/model, one of the configured ones
    #[arg(short = 'm', long, value_name = "MODEL")]
    pub(crate) model: Option<String>,
    /// Put the text of a file before the message, or with - that of standard input; may be repeated
    #[arg(short = 'f', long, value_name = "FILE")]
    pub(crate) fragment: Vec<PathBuf>,
    /// Attach a file: a text, or a PNG, JPEG, GIF or WebP image; - is standard input; may be repeated
    #[arg(short = 'a', long, value_name = "FILE")]
    pub(crate) attach: Vec<PathBuf>,
    /// Use a prompt template; the message replaces its {{input}}. SERVER/PROMPT is a prompt of an MCP server
    #[arg(short = 't', long, value_name = "NAME")]
    pub(crate) template: Option<String>,
    /// Value of a placeholder of the template; may be repeated
    #[arg(short = 'p', long, value_name = "NAME=VALUE", requires = "template", value_parser = pair)]
    pub(crate) param: Vec<(String, String)>,
    /// Print an answer only if it is JSON that fits this JSON Schema; otherwise exit with status 1
    #[arg(long, value_name = "FILE", conflicts_with = "events")]
    pub(crate) schema: Option<PathBuf>,
    /// Print the answer when it is complete
    #[arg(long)]
    pub(crate) no_stream: bool,
    /// Print one JSON object: the answer, model, usage and ids
    #[arg(long, conflicts_with = "events")]
    pub(crate) json: bool,
    /// Print the events of the turn instead of its text, one JSON object per line
    #[arg(long)]
    pub(crate) events: bool,
}

pub(crate) fn run(globals: &Globals, chat: &Chat) -> Outcome {
    let schema = chat.schema.as_deref().map(Schema::read).transpose()?;
    let mut prompt = compose::message(chat, &globals.places()?)?;
    let folder = if chat.session.is_some() || chat.resume {
        None
    } else {
        workspace::of_new_session(globals, chat.workspace.as_deref())?
    };
    let needed = NeededParts::of(globals)?;
    needed.check(chat.no_start)?;
    let interrupt = Interrupt::catch()?;
    let mut gateway = gateway::find(globals)?.retry_for(chat.wait);
    prompt.session = session(&mut gateway, chat)?;
    let is_new = prompt.session.is_none();
    if let Some(folder) = &folder {
        prompt.session = Some(gateway.create_session(Some(folder))?.id);
    }
    let talk = ChatRun { gateway: &gateway, chat, needed: &needed, ken: globals.command(), interrupt };
    let answered = match &schema {
        None => talk.answer_as_text(&prompt),
        Some(schema) => talk.answer_by_schema(prompt, schema),
    };
    let (status, session) = match answered {
        Err(error) if talk.interrupt.was_for_turn() => {
            fail(&error);
            return Ok(interrupt::end());
        }
        answered => answered?,
    };
    if is_new && session.is_some() && std::io::stderr().is_terminal() {
        print_note("to continue this session: ken chat -c TEXT");
    }
    Ok(status)
}

/// Returns the session that `--session` or `--continue` selects. Without these options it returns `None`, and the gateway
/// creates a session together with the prompt.
fn session(gateway: &mut Gateway, chat: &Chat) -> Result<Option<String>, Error> {
    if chat.resume {
        let last = gateway.own_sessions(1)?;
        let last = last.first().map(|session| field(session, "sessionId").to_owned());
        return last.ok_or_else(|| Error::not_found("there is no session to continue")).map(Some);
    }
    let Some(word) = &chat.session else {
        return Ok(None);
    };
    match SESSION.find_own(gateway, word, |found| found.scope == Some(local())) {
        Ok(session) => Ok(Some(session.id)),
        // The session may be older, archived or belong to somebody else. The gateway's error says which.
        Err(error) if error.code == Code::NotFound => Ok(Some(gateway.existing_session(word)?.id)),
        Err(error) => Err(error),
    }
}

/// What all prompts of one `ken chat` share.
struct ChatRun<'a> {
    gateway: &'a Gateway,
    chat: &'a Chat,
    needed: &'a NeededParts,
    /// The command `ken` for the same system.
    ken: String,
    interrupt: Interrupt,
}

impl ChatRun<'_> {
    /// Runs one turn and prints the answer, as it arrives or at the end. Returns the exit status and the session.
    fn answer_as_text(&self, prompt: &Prompt) -> Result<(ExitCode, Option<String>), Error> {
        let mut presenter = Presenter::of(self.chat);
        let reply = self.reply(prompt, &mut presenter)?;
        presenter.finish(&reply)?;
        Ok((ExitCode::SUCCESS, reply.session))
    }

    /// Prints an answer that fits the schema. If the first answer does not fit, the model gets one chance to correct
    /// it. If the second one does not fit either, no answer is printed and the exit status is 1.
    fn answer_by_schema(&self, mut prompt: Prompt, schema: &Schema) -> Result<(ExitCode, Option<String>), Error> {
        prompt.text = format!("{}\n\n{}", prompt.text, schema.instruction());
        let mut is_corrected = false;
        loop {
            let reply = self.reply(&prompt, &mut Presenter::of(self.chat))?;
            if reply.submission.is_none() {
                return Err(Error::invalid("--schema", "a command has no answer to check"));
            }
            match schema.parse_answer(reply.text()) {
                Ok(value) if self.chat.json => print_json(&reply.record(value))?,
                Ok(value) => print_json(&value)?,
                // The turn ended before it could be cancelled, and no further one may begin.
                Err(why) if self.interrupt.was_for_turn() => {
                    return Err(Error::cancelled(format!("the answer does not fit the schema: {why}")));
                }
                Err(why) if is_corrected => {
                    print_note(&format!("the answer does not fit the schema: {why}"));
                    return Ok((ExitCode::from(1), reply.session));
                }
                Err(why) => {
                    is_corrected = true;
                    prompt = Prompt {
                        text: format!("Your answer does not fit the schema: {why}.\n\n{}", schema.instruction()),
                        session: reply.session,
                        images: Vec::new(),
                        ..prompt
                    };
                    continue;
                }
            }
            return Ok((ExitCode::SUCCESS, reply.session));
        }
    }

    /// Sends a prompt and follows its turn, if it starts one. Ctrl+C is for the turn from the beginning, because the gateway may have accepted
    /// the prompt before its answer is here.
    fn reply(&self, prompt: &Prompt, presenter: &mut Presenter) -> Result<Reply, Error> {
        self.interrupt.turn_begins();
        let reply = self.turn(prompt, presenter);
        self.interrupt.turn_ends();
        reply
    }

    fn turn(&self, prompt: &Prompt, presenter: &mut Presenter) -> Result<Reply, Error> {
        let accepted = self.send(prompt)?;
        let reply = Reply::of(&accepted);
        let Some(turn) = accepted.turn() else {
            return Ok(reply);
        };
        let (gateway, ken) = (self.gateway.clone(), self.ken.clone());
        let follower = TurnFollower {
            turn: &turn,
            questions: Questions::new(gateway, Asking::of_standard_streams(), ken, print_on_stderr),
            presenter,
            timeout: self.chat.wait,
            last_event_at: Instant::now(),
            is_behind: false,
            interrupt: &self.interrupt,
            reply,
        };
        follower.read_to_end(self.gateway, self.needed)
    }

    fn send(&self, prompt: &Prompt) -> Result<Accepted, Error> {
        let progress = Progress::start("sending");
        let (sender, reasons) = std::sync::mpsc::sync_channel(1);
        let mut gateway = self.gateway.clone().on_retry(move |error, _| _ = sender.send(error.message.clone()));
        let pressed = self.interrupt.pressed();
        let (needed, progress) = (self.needed, &progress);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let begun = Instant::now();
                // A terminal shows the progress line.
                let mut is_told = std::io::stderr().is_terminal();
                let mut is_cancelled = false;
                loop {
                    let reason = reasons.recv_timeout(GLANCE);
                    if !is_cancelled && pressed.load(Ordering::Relaxed) {
                        print_note(
                            "it is cancelled when the gateway answers; Ctrl+C again leaves, and the turn may run",
                        );
                        is_cancelled = true;
                    }
                    let reason = match reason {
                        Ok(reason) => needed.waiting().unwrap_or(reason),
                        Err(RecvTimeoutError::Timeout) => continue,
                        Err(RecvTimeoutError::Disconnected) => break,
                    };
                    progress.set(&reason);
                    if !is_told && begun.elapsed() > TELL_AFTER {
                        print_note(&format!("waiting: {reason}"));
                        is_told = true;
                    }
                }
            });
            let accepted = gateway.chat(prompt);
            // The gateway owns the sender. Dropping it ends the loop of the thread above.
            drop(gateway);
            accepted
        })
    }
}

fn pair(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("it must be NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}
