//! What a request says: the conversation so far, the new messages, and the instructions of the calling program.

use std::borrow::Cow;

use ken_chat::door::{Conversation, DOOR, INSTRUCTIONS, Prefix};
use ken_http::Failure;
use ken_types::Error;
use ken_types::id::SubmissionId;
use ken_types::limits::{IDENTITY_CHARACTERS, PROMPT_BYTES};
use ken_types::ops::schedules::AGENTS;
use ken_types::ops::store::{Answered, Image, ImportedExchange, OPENAI, PROGRAM_TOOLS, ProgramResult, Scope};
use serde_json::{Map, Value, json};

use super::error::{unknown_model, unsupported};
use super::tools::{Tools, of_call_id};
use crate::body::check_length;
use crate::idempotency::digest;
use crate::images::{self, check_count};

/// The name of the model that stands for the usual agent.
pub(super) const MODEL: &str = "ken";
/// The maximum size of the earlier messages with which a new session begins, in bytes, and their number. A model is shown no more,
/// and a line of the wire has room for them.
const IMPORTED_BYTES: usize = 1 << 20;
const IMPORTED: usize = 1_000;
/// Stands for the message that an answer of the caller's history has no message before it.
const NO_PROMPT: &str = "(no message)";
/// The text that stands for a message without text, and for each image of an earlier message, which later turns do not see.
const ONLY_IMAGES: &str = "[image]";

/// One message of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Said {
    pub(super) role: Role,
    pub(super) text: String,
    pub(super) images: Vec<Image>,
    /// The ids of the calls that an answer has made; of a result, that of its call.
    pub(super) calls: Vec<String>,
}

impl Said {
    pub(super) fn new(role: Role, text: impl Into<String>) -> Said {
        Said { role, text: text.into(), images: Vec::new(), calls: Vec::new() }
    }

    /// Returns what a conversation is found by: the text, and what its images are.
    fn digested(&self) -> Cow<'_, str> {
        if self.images.is_empty() {
            return Cow::Borrowed(&self.text);
        }
        let images =
            self.images.iter().map(|image| format!("\n[{} {}]", image.mime_type, digest(&[image.data.as_bytes()])));
        Cow::Owned(self.text.clone() + &images.collect::<String>())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    System,
    User,
    Assistant,
    Tool,
}

impl Role {
    fn named(name: &str) -> Option<Role> {
        Some(match name {
            "system" | "developer" => Role::System,
            "user" => Role::User,
            "assistant" => Role::Assistant,
            "tool" => Role::Tool,
            _ => return None,
        })
    }

    fn name(self) -> &'static str {
        match self {
            Role::System => "system",
            Role::User => "user",
            Role::Assistant => "assistant",
            Role::Tool => "tool",
        }
    }
}

/// A request as its turn needs it.
#[derive(Debug)]
pub(super) struct Input {
    /// The model as the caller names it.
    pub(super) model: String,
    /// The agent, unless it is the usual one.
    pub(super) agent: Option<&'static str>,
    pub(super) scope: Scope,
    pub(super) instructions: String,
    /// The messages up to the last one of the assistant, without instructions.
    before: Vec<Said>,
    /// The text of the messages behind it, and their images.
    pub(super) prompt: String,
    pub(super) images: Vec<Image>,
    new: Vec<Said>,
    pub(super) tools: Tools,
}

impl Input {
    /// `continues` says that the caller names the answer before these messages, which are then only the new ones.
    pub(super) fn new(
        model: Option<&str>,
        user: Option<&str>,
        messages: Vec<Said>,
        tools: Tools,
        continues: bool,
    ) -> Result<Input, Failure> {
        let model = model.ok_or_else(|| Error::invalid("/model", "you must provide a model parameter"))?;
        let agent = agent(model).ok_or_else(|| unknown_model(model))?;
        let (system, said): (Vec<Said>, Vec<Said>) = messages.into_iter().partition(|said| said.role == Role::System);
        let instructions = joined(&system);
        let last = said.iter().rposition(|said| said.role == Role::Assistant);
        let (before, new) = said.split_at(last.map_or(0, |last| last + 1));
        let (before, new) = (before.to_vec(), new.to_vec());
        if !continues || !before.is_empty() {
            check_answers(before.last(), &new)?;
        }
        let mut prompt = joined(&new);
        let images: Vec<Image> = new.iter().flat_map(|said| said.images.iter().cloned()).collect();
        check_count(images.len(), "/messages")?;
        if prompt.trim().is_empty() && !images.is_empty() {
            ONLY_IMAGES.clone_into(&mut prompt);
        }
        check_prompt(&prompt, &instructions)?;
        let (model, scope) = (model.to_owned(), scope(user)?);
        let mut input = Input { model, agent, scope, instructions, before, prompt, images, new, tools };
        if let Some(instruction) = input.tools.instruction.take() {
            input.instruct(&instruction);
        }
        Ok(input)
    }

    fn instruct(&mut self, text: &str) {
        if !self.instructions.is_empty() {
            self.instructions.push_str("\n\n");
        }
        self.instructions.push_str(text);
    }

    /// Adds what the model is told about the form of its answer; see [`form`].
    pub(super) fn instruct_form(&mut self, format: &Value, schema: &str, at: &str) -> Result<(), Failure> {
        if let Some(text) = form(format, schema, at)? {
            self.instruct(&text);
        }
        Ok(())
    }

    /// Returns the results of calls that a turn of ken has made, with that turn. Those of another service have no such turn.
    pub(super) fn answered(&self) -> Result<Option<Answered>, Error> {
        let mut found: Option<Answered> = None;
        for said in self.new.iter().filter(|said| said.role == Role::Tool) {
            let Some((of, id)) = said.calls.first().and_then(|call| of_call_id(call)) else { continue };
            let result = ProgramResult { id, text: said.text.clone() };
            match &mut found {
                None => found = Some(Answered { of, results: vec![result] }),
                Some(found) if found.of == of => found.results.push(result),
                Some(_) => return Err(Error::invalid("/messages", "the results are of calls of two answers")),
            }
        }
        Ok(found)
    }

    /// Returns the digests of the conversation before and after the new messages.
    pub(super) fn conversation(&self, caller: &str) -> Conversation {
        let add = |prefix: Prefix, said: &Said| prefix.add(said.role.name(), &said.digested());
        let before = self.before.iter().fold(Prefix::start(caller, &self.scope), add);
        let after = self.new.iter().fold(before.clone(), add);
        Conversation { before: (!self.before.is_empty()).then_some(before), after }
    }

    /// Returns the newest earlier messages that a new session can begin with, and whether older ones are left out.
    pub(super) fn imported(&self) -> (Vec<ImportedExchange>, bool) {
        let mut exchanges = exchanges(&self.before);
        let mut bytes = 0;
        let fitting = exchanges.iter().rev().take(IMPORTED).take_while(|exchange| {
            bytes += exchange.prompt.len() + exchange.answer.len();
            bytes <= IMPORTED_BYTES
        });
        let left_out = exchanges.len() - fitting.count();
        exchanges.drain(..left_out);
        (exchanges, left_out > 0)
    }

    /// Returns what is stored with the prompt: the conversation, unless its session is found in another way, and the answer that the
    /// caller continues.
    pub(super) fn context(
        &self,
        conversation: Option<&Conversation>,
        previous: Option<&SubmissionId>,
        answered: Option<&Answered>,
    ) -> Option<Value> {
        let mut context = Map::new();
        if !self.tools.specs.is_empty() {
            context.insert(PROGRAM_TOOLS.to_owned(), json!(self.tools.specs));
        }
        if let Some(answered) = answered {
            context.insert(Answered::NAME.to_owned(), json!(answered));
        }
        if self.new.iter().any(|said| said.role == Role::Tool) {
            // Nobody knows where the program has the results from.
            context.insert("attached".to_owned(), true.into());
        }
        if let Some(conversation) = conversation {
            context.insert(DOOR.to_owned(), json!(conversation));
        }
        let instructions = Some(self.instructions.as_str()).filter(|text| !text.is_empty());
        let previous = previous.map(SubmissionId::as_str);
        for (name, value) in [(INSTRUCTIONS, instructions), ("agent", self.agent), ("previous", previous)] {
            if let Some(value) = value {
                context.insert(name.to_owned(), value.into());
            }
        }
        (!context.is_empty()).then_some(Value::Object(context))
    }
}

/// Returns what a model is told about the form of its answer. `schema` is where the format holds its schema, and `at` its own place.
pub(super) fn form(format: &Value, schema: &str, at: &str) -> Result<Option<String>, Failure> {
    match format.get("type").and_then(Value::as_str) {
        Some("text") => Ok(None),
        Some("json_schema") => {
            let missing = || Error::invalid(format!("{at}{schema}"), "the schema is missing");
            let schema = format.pointer(schema).ok_or_else(missing)?;
            let form = "Answer with one JSON value that fits this schema, and with nothing else:";
            Ok(Some(format!("{form}\n{schema}")))
        }
        _ => Err(unsupported(at.to_owned(), "the form of an answer is text or json_schema")),
    }
}

fn check_prompt(prompt: &str, instructions: &str) -> Result<(), Failure> {
    if prompt.trim().is_empty() {
        return Err(Error::invalid("/messages", "the last message must be one of the user, and not blank").into());
    }
    for (what, text) in [("the new messages have", prompt), ("the instructions have", instructions)] {
        if text.len() > PROMPT_BYTES {
            let message = format!("{what} {} bytes, at most {PROMPT_BYTES} are allowed", text.len());
            return Err(Failure::from(Error::invalid("/messages", message)).code("context_length_exceeded"));
        }
    }
    Ok(())
}

/// Checks that the results of all calls of the last answer are there, each once, and no others.
fn check_answers(last: Option<&Said>, new: &[Said]) -> Result<(), Failure> {
    let mut open: Vec<&str> = last.iter().flat_map(|last| &last.calls).map(String::as_str).collect();
    for said in new.iter().filter(|said| said.role == Role::Tool) {
        let id = said.calls.first().map(String::as_str).unwrap_or_default();
        let Some(found) = open.iter().position(|open| *open == id) else {
            let message = format!("the result of {id:?} answers no call of the last answer, or is there twice");
            return Err(Error::invalid("/messages", message).into());
        };
        open.remove(found);
    }
    if open.is_empty() {
        return Ok(());
    }
    let message =
        format!("An assistant message with 'tool_calls' must be followed by the results of all: {}", open.join(", "));
    Err(Error::invalid("/messages", message).into())
}

/// Returns the agent that a model stands for, if it stands for one; `Some(None)` for the usual agent.
pub(super) fn agent(model: &str) -> Option<Option<&'static str>> {
    if model == MODEL {
        return Some(None);
    }
    let name = model.strip_prefix("ken/")?;
    let found = AGENTS.into_iter().position(|agent| agent == name)?;
    // The first one is the usual one, and the others are named in the context.
    Some(if found == 0 { None } else { AGENTS.get(found).copied() })
}

/// Returns on whose behalf a request is made. The caller names only its user.
fn scope(user: Option<&str>) -> Result<Scope, Error> {
    if let Some(user) = user {
        check_length("/user", user.trim(), 1, IDENTITY_CHARACTERS)?;
    }
    let actor = user.unwrap_or(OPENAI).to_owned();
    Ok(Scope { connector: OPENAI.to_owned(), conversation_id: actor.clone(), actor_id: actor, thread_id: None })
}

fn joined(said: &[Said]) -> String {
    let text = |said: &Said| match said.role {
        Role::Tool => result(&said.text),
        _ => said.text.clone(),
    };
    said.iter().map(text).collect::<Vec<_>>().join("\n\n")
}

/// Returns the result of a tool as a text, where it is not one of a call that is known.
fn result(text: &str) -> String {
    format!("[the result of a tool: {text}]")
}

/// Returns messages in pairs of what the user and the assistant said.
fn exchanges(said: &[Said]) -> Vec<ImportedExchange> {
    let mut exchanges: Vec<ImportedExchange> = Vec::new();
    for said in said {
        let opens = exchanges.last().is_none_or(|last| said.role == Role::User && !last.answer.is_empty());
        if opens {
            exchanges.push(ImportedExchange { prompt: String::new(), answer: String::new() });
        }
        let Some(last) = exchanges.last_mut() else { continue };
        let (to, text) = match said.role {
            Role::User | Role::System => (&mut last.prompt, with_marks(said)),
            Role::Assistant => (&mut last.answer, said.text.clone()),
            Role::Tool => (&mut last.answer, result(&said.text)),
        };
        if !to.is_empty() && !text.is_empty() {
            to.push_str("\n\n");
        }
        to.push_str(&text);
    }
    for exchange in exchanges.iter_mut().filter(|exchange| exchange.prompt.trim().is_empty()) {
        NO_PROMPT.clone_into(&mut exchange.prompt);
    }
    exchanges
}

/// Returns the text of an earlier message, with a mark for each image.
fn with_marks(said: &Said) -> String {
    let text = Some(said.text.as_str()).filter(|text| !text.is_empty());
    text.into_iter().chain(said.images.iter().map(|_| ONLY_IMAGES)).collect::<Vec<_>>().join("\n")
}

/// Reads one message. `at` is its place.
pub(super) fn message(message: &Map<String, Value>, at: &str) -> Result<Said, Failure> {
    let name = message.get("role").and_then(Value::as_str);
    let name = name.ok_or_else(|| Error::invalid(format!("{at}/role"), "a message needs a role"))?;
    let role = Role::named(name).ok_or_else(|| {
        let message = format!("role is {name:?}, it must be system, developer, user, assistant or tool");
        Error::invalid(format!("{at}/role"), message)
    })?;
    let content = match message.get("content") {
        None | Some(Value::Null) if role == Role::Assistant => "".into(),
        None => Value::Null,
        Some(content) => content.clone(),
    };
    let (text, images) = content_parts(&content, &format!("{at}/content"), role == Role::User)?;
    Ok(Said { role, text, images, calls: calls(message, role, at)? })
}

/// Returns the ids of the calls of an answer, or that of the call of a result.
fn calls(message: &Map<String, Value>, role: Role, at: &str) -> Result<Vec<String>, Failure> {
    let given = match (role, message.get("tool_calls")) {
        (Role::Tool, _) => vec![(message.get("tool_call_id"), format!("{at}/tool_call_id"))],
        (Role::Assistant, Some(Value::Array(calls))) => {
            let place = |index: usize| format!("{at}/tool_calls/{index}/id");
            calls.iter().enumerate().map(|(index, call)| (call.get("id"), place(index))).collect()
        }
        _ => Vec::new(),
    };
    let id = |(id, at): (Option<&Value>, String)| {
        let missing = || Error::invalid(at, "the id of the call is missing");
        Ok(id.and_then(Value::as_str).ok_or_else(missing)?.to_owned())
    };
    given.into_iter().map(id).collect()
}

/// Returns the text of a message's content and its images. Content is a text or a list of parts.
fn content_parts(content: &Value, at: &str, with_images: bool) -> Result<(String, Vec<Image>), Failure> {
    let parts = match content {
        Value::String(text) => return Ok((text.clone(), Vec::new())),
        Value::Array(parts) => parts,
        _ => return Err(Error::invalid(at, "content is neither a string nor a list of parts").into()),
    };
    let (mut texts, mut images) = (Vec::new(), Vec::new());
    for (index, part) in parts.iter().enumerate() {
        let at = format!("{at}/{index}");
        match image_url(part).filter(|_| with_images) {
            Some((url, place)) => images.push(images::of_url(url, &format!("{at}{place}"))?),
            None => texts.push(part_text(part, &at)?),
        }
    }
    Ok((texts.join("\n"), images))
}

/// Returns the text of content that cannot have images.
pub(super) fn content_text(content: &Value, at: &str) -> Result<String, Failure> {
    content_parts(content, at, false).map(|(text, _)| text)
}

/// Returns the URL of a part that is an image, and its place in the part.
fn image_url(part: &Value) -> Option<(&str, &'static str)> {
    let place = match part.get("type")?.as_str()? {
        "image_url" => "/image_url/url",
        "input_image" => "/image_url",
        _ => return None,
    };
    Some((part.pointer(place).and_then(Value::as_str)?, place))
}

fn part_text(part: &Value, at: &str) -> Result<String, Failure> {
    let kind = part.get("type").and_then(Value::as_str).unwrap_or_default();
    let text = match kind {
        "text" | "input_text" | "output_text" => part.get("text"),
        "refusal" => part.get("refusal"),
        _ => {
            let message = format!(
                "a part of type {kind:?} cannot be taken here: only text, and images of the user as data: URLs"
            );
            return Err(unsupported(at.to_owned(), message));
        }
    };
    let missing = || Error::invalid(at, format!("a part of type {kind:?} has no text"));
    Ok(text.and_then(Value::as_str).ok_or_else(missing)?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(role: &str, text: &str) -> Said {
        Said::new(Role::named(role).unwrap(), text)
    }

    fn input(messages: Vec<Said>) -> Input {
        Input::new(Some("ken"), None, messages, Tools::default(), false).unwrap()
    }

    #[test]
    fn a_conversation_goes_on_with_what_was_answered() {
        let first = input(vec![said("system", "It is nine."), said("user", "Hi")]);
        assert_eq!(first.instructions, "It is nine.");
        assert_eq!(first.conversation("local").before, None);
        let tip = first.conversation("local").after.add("assistant", "Hello.");
        let second = input(vec![
            said("developer", "It is ten."),
            said("user", "Hi"),
            said("assistant", "Hello.\n"),
            said("user", "And?"),
        ]);
        assert_eq!(second.conversation("local").before, Some(tip));
        assert_eq!(second.prompt, "And?");
        let imported = ImportedExchange { prompt: "Hi".into(), answer: "Hello.\n".into() };
        assert_eq!(second.imported(), (vec![imported], false));
    }

    #[test]
    fn any_history_becomes_pairs() {
        let pairs = |said: &[Said]| {
            exchanges(said).into_iter().map(|pair| (pair.prompt, pair.answer)).collect::<Vec<(String, String)>>()
        };
        let pair = |prompt: &str, answer: &str| (prompt.to_owned(), answer.to_owned());
        assert_eq!(pairs(&[]), []);
        assert_eq!(pairs(&[said("assistant", "Welcome.")]), [pair(NO_PROMPT, "Welcome.")]);
        let long = [
            said("user", "a"),
            said("user", "b"),
            said("assistant", ""),
            said("tool", "42"),
            said("assistant", "c"),
            said("user", "d"),
            said("assistant", "e"),
        ];
        assert_eq!(pairs(&long), [pair("a\n\nb", "[the result of a tool: 42]\n\nc"), pair("d", "e")]);
    }

    #[test]
    fn only_the_newest_messages_are_imported() {
        let mut messages = Vec::new();
        for number in 0..3 {
            messages.push(said("user", &number.to_string()));
            messages.push(said("assistant", &"x".repeat(IMPORTED_BYTES / 2 - 10)));
        }
        messages.push(said("user", "now"));
        let (imported, left_out) = input(messages).imported();
        assert_eq!((imported.len(), left_out), (2, true));
        assert_eq!(imported[0].prompt, "1");
    }

    #[test]
    fn the_results_of_all_calls_are_there_once() {
        let call = |digit: &str| format!("call_{}_{digit}", "0".repeat(32));
        let with_calls = |said: Said, calls: &[String]| Said { calls: calls.to_vec(), ..said };
        let asked = || vec![said("user", "Hi"), with_calls(said("assistant", ""), &[call("a"), call("b")])];
        let result = |id: &str| with_calls(said("tool", "42"), &[id.to_owned()]);
        let read = |more: Vec<Said>| {
            let messages = asked().into_iter().chain(more).collect();
            Input::new(Some("ken"), None, messages, Tools::default(), false)
        };
        let answered = read(vec![result(&call("b")), result(&call("a"))]).unwrap().answered().unwrap().unwrap();
        let ids: Vec<&str> = answered.results.iter().map(|result| result.id.as_str()).collect();
        assert_eq!((answered.of.as_str(), ids), ("00000000-0000-0000-0000-000000000000", vec!["b", "a"]));
        for wrong in [
            vec![said("user", "And?")],
            vec![result(&call("a"))],
            vec![result(&call("a")), result(&call("a"))],
            vec![result(&call("a")), result(&call("b")), result(&call("c"))],
        ] {
            assert!(read(wrong).is_err());
        }
        let alone = vec![said("user", "Hi"), result("x")];
        assert!(Input::new(Some("ken"), None, alone, Tools::default(), false).is_err());
    }

    #[test]
    fn models_stand_for_agents() {
        for (model, found) in [
            ("ken", Some(None)),
            ("ken/orchestrator", Some(None)),
            ("ken/coding-worker", Some(Some("coding-worker"))),
            ("ken/", None),
            ("gpt-4o", None),
        ] {
            assert_eq!(agent(model), found, "{model}");
        }
    }
}
