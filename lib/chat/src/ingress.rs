//! Accepts messages: determines session and action of a message, and has the store accept its event.

use std::time::Duration;

use ken_types::id::{EventId, Mint, Origin};
use ken_types::ops::store::{
    Accept, Accepted, Action, Admission, ChatAccept, FreshSession, InboundEvent, OpenSession, Policy, Scope, Target,
    WEB,
};
use ken_types::{Error, Offset, Timestamp};
use ken_wire::Pool;
use serde_json::Value;

use crate::command::{COMMANDS, Command, CommandName};
use crate::name::check_name;

/// The field of the context that names the author of a message which the user has only forwarded. It counts as text from outside.
pub const FORWARDED: &str = "forwarded";

/// The field of the context with the text that the message replies to, as [`ken_types::ops::store::Quoted`].
pub const QUOTED: &str = "quoted";

/// The field of the context with the connector's id of the message that the quoted text is from, if ken itself has sent it.
pub const QUOTED_ID: &str = "quotedId";

/// The connector that received a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Connector {
    Tui,
    Web,
    Messenger,
}

impl Connector {
    /// Returns its name in events and scopes.
    pub fn name(self) -> &'static str {
        match self {
            Connector::Tui => "tui",
            Connector::Web => WEB,
            Connector::Messenger => "messenger",
        }
    }

    /// Returns the origin of the sessions that it creates.
    pub fn origin(self) -> Origin {
        match self {
            Connector::Tui => Origin::Tui,
            Connector::Web => Origin::Web,
            Connector::Messenger => Origin::Connector,
        }
    }

    /// Creates the id of a new event. Events of the messenger have the platform's own number instead.
    pub fn event_id(self, mint: &mut Mint) -> EventId {
        EventId(mint.prefixed(match self {
            Connector::Tui => "tui:",
            Connector::Web => "web:",
            Connector::Messenger => "messenger:",
        }))
    }
}

/// A message that has passed the checks of its connector.
#[derive(Debug)]
pub struct Inbound {
    pub connector: Connector,
    pub scope: Scope,
    /// Not blank, at most 256 KiB.
    pub text: String,
    /// The id or the explicit name of the session to use.
    pub session: Option<String>,
    pub policy: Policy,
    pub context: Option<Value>,
    /// Data that the connector stores with the event, as JSON text.
    pub raw: Option<String>,
}

/// The result of receiving a message. The event is stored in every case.
#[derive(Debug)]
pub struct Received {
    pub event_id: EventId,
    pub received_at: Timestamp,
    pub kind: &'static str,
    pub done: Effect,
}

#[derive(Debug)]
pub enum Effect {
    /// There is no such session, or it cannot be used at the moment: `forbidden`, `not_found`, `conflict` or `busy`.
    Refused(Error),
    Prompted {
        session: OpenSession,
        submission: Admission,
    },
    Commanded(Reply),
}

/// The reply to a command.
#[derive(Debug)]
pub struct Reply {
    /// The command's name in lower case, without the slash.
    pub name: String,
    /// Whether there is such a command.
    pub handled: bool,
    pub text: String,
    pub session: Option<OpenSession>,
    /// The end of the session's stream before this command.
    pub offset: Option<Offset>,
    /// Set if the command was used incorrectly.
    pub error: Option<Error>,
    /// The compaction, if the command has started one.
    pub submission: Option<Admission>,
}

/// Receives messages on behalf of any connector.
#[derive(Debug, Clone)]
pub struct Ingress {
    store: Pool,
}

/// The maximum length of the name of a model, in bytes.
const MAX_MODEL_BYTES: usize = 256;

/// How long a message may wait in the store's queue. If the store has not begun to accept it by then, it never does.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(10);

impl Ingress {
    pub fn new(store: Pool) -> Ingress {
        Ingress { store }
    }

    /// Receives a message as the event `id`. Repeats the call to the store until it is known whether the message was
    /// accepted, for at most `time`. After that, the error says that the outcome is unknown.
    ///
    /// `mint` creates all other ids. With the same event id and an equal mint, a repetition finds the results of the
    /// earlier attempt.
    pub async fn receive(
        &self,
        id: EventId,
        mint: &mut Mint,
        inbound: Inbound,
        time: Duration,
    ) -> Result<Received, Error> {
        let prepared = Prepared::new(id, mint, inbound);
        let accepted = self.store.change::<ChatAccept>(&prepared.args, ATTEMPT_TIMEOUT, time).await?;
        prepared.received(accepted)
    }
}

/// A message whose session and action are determined, but which is not accepted yet. Used by connectors that accept it
/// together with other data.
#[derive(Debug)]
pub struct Prepared {
    /// The arguments of the call to the store.
    pub args: Accept,
    /// The reply to a command, as far as it is known before the call.
    text: Option<String>,
    error: Option<Error>,
}

impl Prepared {
    /// Determines session and action. `mint` creates all ids except that of the event.
    pub fn new(id: EventId, mint: &mut Mint, inbound: Inbound) -> Prepared {
        let (kind, plan) = match command(&inbound.text, inbound.context.as_ref()) {
            Some(command) => (COMMAND, Plan::of(&command, &inbound, mint)),
            None => ("chat.message", Plan::prompt(&inbound, mint)),
        };
        let event = InboundEvent {
            id,
            scope: inbound.scope,
            kind: kind.to_owned(),
            text: inbound.text,
            received_at: mint.at(),
            context: inbound.context,
            raw: inbound.raw,
            images: Vec::new(),
        };
        Prepared {
            args: Accept { event, target: plan.target, action: plan.action, counted: false },
            text: plan.text,
            error: plan.error,
        }
    }

    /// Returns the result, given the reply of the store.
    pub fn received(self, accepted: Accepted) -> Result<Received, Error> {
        let command = command(&self.args.event.text, self.args.event.context.as_ref());
        let kind = if command.is_some() { COMMAND } else { "chat.message" };
        let done = match (accepted.refused, &command) {
            (Some(error), _) => Effect::Refused(error),
            (None, Some(command)) => Effect::Commanded(Reply {
                text: self.text.unwrap_or_else(|| success_text(command, accepted.session.as_ref())),
                name: command.name.to_ascii_lowercase(),
                handled: command.known.is_some(),
                session: accepted.session,
                offset: accepted.offset,
                error: self.error,
                submission: accepted.submission,
            }),
            (None, None) => prompted(accepted.session, accepted.submission)?,
        };
        Ok(Received { event_id: accepted.event_id, received_at: accepted.received_at, kind, done })
    }
}

/// Returns the command in a text. A text that somebody else wrote and the user has only forwarded is never a command.
fn command<'a>(text: &'a str, context: Option<&Value>) -> Option<Command<'a>> {
    let is_forwarded = context.is_some_and(|context| context.get(FORWARDED).is_some());
    Command::parse(text).filter(|_| !is_forwarded)
}

/// The kind of a command's event.
const COMMAND: &str = "session-command";

fn prompted(session: Option<OpenSession>, submission: Option<Admission>) -> Result<Effect, Error> {
    match (session, submission) {
        (Some(session), Some(submission)) => Ok(Effect::Prompted { session, submission }),
        _ => Err(Error::internal("the store accepted a prompt and named no submission")),
    }
}

/// Returns the session to which a prompt goes (gateway-http 5.1). All connectors except the messenger create a session
/// if the message names none. Web callers can choose the ids of their sessions.
fn target(mint: &mut Mint, connector: Connector, session: Option<String>) -> Target {
    let origin = connector.origin();
    match (connector, session) {
        (Connector::Messenger, None) => Target::Active(FreshSession::new(mint.session(origin), origin)),
        (_, None) => Target::Fresh(FreshSession::new(mint.session(origin), origin)),
        (Connector::Web, Some(selector)) if is_web_id(&selector) => {
            Target::SelectorOrNew(FreshSession::new(ken_types::id::SessionId(selector), origin))
        }
        (_, Some(selector)) => Target::Selector(selector),
    }
}

/// Whether a selector is an id that web callers are allowed to choose: `web-[A-Za-z0-9_-]{1,116}`.
fn is_web_id(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    text.strip_prefix("web-").is_some_and(|rest| (1..=116).contains(&rest.len()) && rest.bytes().all(allowed))
}

/// The session and action of a message, and the reply to a command as far as it is already known.
struct Plan {
    target: Target,
    action: Action,
    text: Option<String>,
    error: Option<Error>,
}

impl Plan {
    fn prompt(inbound: &Inbound, mint: &mut Mint) -> Plan {
        Plan {
            target: target(mint, inbound.connector, inbound.session.clone()),
            action: Action::Prompt { submission_id: mint.submission(), policy: inbound.policy },
            text: None,
            error: None,
        }
    }

    fn of(command: &Command<'_>, inbound: &Inbound, mint: &mut Mint) -> Plan {
        let Some(known) = command.known else {
            let (name, known) = (command.name, list(inbound.connector));
            return Plan::reply_only(format!("There is no command `/{name}`. These are the commands:\n\n{known}"));
        };
        match known {
            CommandName::New | CommandName::Clear => Plan::open(command.rest, inbound, mint),
            CommandName::Resume if command.rest.is_empty() => {
                Plan::invalid("`/resume` needs the id or the name of a session: `/resume <id or name>`")
            }
            CommandName::Resume => Plan::on(command.rest, Action::Find),
            CommandName::Rename => match check_name(command.rest) {
                Err(error) => Plan::invalid(&format!("`/rename <name>`: {}", error.message)),
                Ok(name) => Plan::current("/rename", inbound, mint, Action::Name { name }),
            },
            CommandName::Model => {
                let action = match command.rest {
                    "" => Action::Find,
                    // The name of a model has a provider, so this is none.
                    DEFAULT => Action::Model { name: String::new() },
                    name if is_model(name) => Action::Model { name: name.to_owned() },
                    _ => return Plan::invalid("`/model provider/model` chooses a model, `/model default` none"),
                };
                Plan::current("/model", inbound, mint, action)
            }
            CommandName::Compact => {
                let submission_id = mint.submission();
                Plan::current("/compact", inbound, mint, Action::Compact { submission_id })
            }
            CommandName::Session => Plan::current("/session", inbound, mint, Action::Find),
            CommandName::Help => Plan::reply_only(list(inbound.connector)),
        }
    }

    /// Plans `/new` and `/clear`. Web callers create a session by sending a message that names none, so for them these
    /// commands do nothing. A new session works in the same folder as the current one.
    fn open(name: &str, inbound: &Inbound, mint: &mut Mint) -> Plan {
        if inbound.connector == Connector::Web {
            return Plan::reply_only("To start a fresh session, post a message without `session`.".to_owned());
        }
        let origin = inbound.connector.origin();
        let fresh = FreshSession::new(mint.session(origin), origin);
        let target = match &inbound.session {
            Some(current) => Target::Beside(fresh, current.clone()),
            None => Target::Fresh(fresh),
        };
        match name {
            "" => Plan::at(target, Action::Find),
            name => match check_name(name) {
                Ok(name) => Plan::at(target, Action::Name { name }),
                Err(error) => Plan::invalid(&error.message),
            },
        }
    }

    fn on(selector: &str, action: Action) -> Plan {
        Plan::at(Target::Selector(selector.to_owned()), action)
    }

    /// Plans an action in the current session. The message has to name this session, except in the messenger, where it
    /// is the active session.
    fn current(command: &str, inbound: &Inbound, mint: &mut Mint, action: Action) -> Plan {
        match (&inbound.session, inbound.connector) {
            (Some(session), _) => Plan::on(session, action),
            (None, Connector::Messenger) => Plan::at(target(mint, Connector::Messenger, None), action),
            (None, _) => Plan::no_session(command),
        }
    }

    fn at(target: Target, action: Action) -> Plan {
        Plan { target, action, text: None, error: None }
    }

    fn reply_only(text: String) -> Plan {
        Plan { target: Target::None, action: Action::Find, text: Some(text), error: None }
    }

    fn invalid(why: &str) -> Plan {
        Plan { error: Some(Error::invalid("/text", why)), ..Plan::reply_only(why.to_owned()) }
    }

    fn no_session(command: &str) -> Plan {
        let why = format!("`{command}` needs `session`");
        Plan { error: Some(Error::invalid("/session", why.clone())), ..Plan::reply_only(why) }
    }
}

/// Returns the model that a text chooses with `/model`.
pub fn chosen_model(text: &str) -> Option<&str> {
    let command = Command::parse(text)?;
    (command.known == Some(CommandName::Model) && is_model(command.rest)).then_some(command.rest)
}

/// The argument of `/model` that stands for the configured models.
const DEFAULT: &str = "default";

/// Whether a text can be the name of a model.
fn is_model(text: &str) -> bool {
    let is_plain = |letter: char| !letter.is_whitespace() && !letter.is_control();
    text.len() <= MAX_MODEL_BYTES && text.contains('/') && text.chars().all(is_plain)
}

/// Returns the list of the commands that do something for a connector, as Markdown.
fn list(connector: Connector) -> String {
    // Web callers start a session by not naming one; see `Plan::open`.
    let is_listed = |known| connector != Connector::Web || !matches!(known, CommandName::New | CommandName::Clear);
    let listed = COMMANDS.iter().filter(|(known, ..)| is_listed(*known));
    let lines = listed.map(|(_, name, arguments, does)| match *arguments {
        "" => format!("- `/{name}`: {does}"),
        arguments => format!("- `/{name} {arguments}`: {does}"),
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Returns the reply to a successful command, as Markdown. The session's name comes from the user. It is shown as code,
/// so that nothing in it is interpreted as markup.
fn success_text(command: &Command<'_>, session: Option<&OpenSession>) -> String {
    let Some(session) = session else {
        return "Done.".to_owned();
    };
    let id = code(session.id.as_str());
    let name = session.title.as_deref().map(code);
    let called = match &name {
        Some(name) => format!("{id} ({name})"),
        None => id,
    };
    match command.known {
        Some(CommandName::New | CommandName::Clear) => format!("Started session {called}."),
        Some(CommandName::Resume) => format!("Resumed session {called}."),
        Some(CommandName::Rename) => format!("This session is now called {}.", name.unwrap_or_default()),
        Some(CommandName::Model) => match &session.model {
            Some(model) => format!("In this session {} answers. `/model default` ends that.", code(model)),
            None => {
                "In this session the configured models answer, in their order. `/model provider/model` chooses one."
                    .to_owned()
            }
        },
        Some(CommandName::Compact) => format!("Compacted the history of session {called}."),
        _ => format!("This is session {called}."),
    }
}

/// Returns a Markdown code span (CommonMark 6.1). Its fence is longer than any run of backticks in the text.
fn code(text: &str) -> String {
    let longest = text.split(|letter| letter != '`').map(str::len).max().unwrap_or_default();
    let fence = "`".repeat(longest + 1);
    let pad = if text.starts_with('`') || text.ends_with('`') { " " } else { "" };
    format!("{fence}{pad}{text}{pad}{fence}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_code_whatever_they_hold() {
        for (text, shown) in [("Nightly", "`Nightly`"), ("a`b", "``a`b``"), ("``", "``` `` ```"), ("<b>", "`<b>`")] {
            assert_eq!(code(text), shown);
        }
    }

    #[test]
    fn the_list_names_every_command_that_does_something() {
        for (_, name, ..) in COMMANDS {
            let is_listed = |connector| list(connector).contains(&format!("- `/{name}"));
            assert!(is_listed(Connector::Tui) && is_listed(Connector::Messenger), "{name}");
            assert_eq!(is_listed(Connector::Web), !["new", "clear"].contains(&name), "{name}");
        }
    }

    #[test]
    fn web_ids() {
        assert!(is_web_id("web-a") && is_web_id(&format!("web-{}", "x".repeat(116))));
        for other in ["web-", "web", "tui-a", "web-a b", "web-ä", &format!("web-{}", "x".repeat(117))] {
            assert!(!is_web_id(other), "{other}");
        }
    }

    #[test]
    fn each_surface_finds_its_session() {
        let mut mint = Mint::fresh().unwrap();
        let mut of = |connector, session: Option<&str>| target(&mut mint, connector, session.map(str::to_owned));
        assert!(matches!(of(Connector::Tui, None), Target::Fresh(_)));
        assert!(matches!(of(Connector::Web, None), Target::Fresh(_)));
        assert!(matches!(of(Connector::Messenger, None), Target::Active(_)));
        assert!(matches!(of(Connector::Web, Some("web-mine")), Target::SelectorOrNew(_)));
        assert!(matches!(of(Connector::Tui, Some("web-mine")), Target::Selector(_)));
        assert!(matches!(of(Connector::Web, Some("Nightly")), Target::Selector(_)));
    }
}
