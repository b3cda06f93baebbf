//! One turn for an editor: its events as updates, its approvals as questions, and its end.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ken_approval::Request;
use ken_client::approvals::{Decision, user};
use ken_client::chat::{Turn, failure, local};
use ken_client::{Gateway, LiveText};
use ken_types::{Code, Error};
use serde_json::{Value, json};

use super::peer::{Asked, Peer};
use crate::ids::{field, items};

/// How often the answers of the editor and its wish to stop are looked at.
const TICK: Duration = Duration::from_millis(100);

/// A turn that an editor follows.
pub(super) struct TurnUpdates<'a> {
    pub(super) peer: &'a Peer,
    pub(super) gateway: Gateway,
    pub(super) session: &'a str,
    pub(super) turn: &'a Turn,
    /// Set when the editor wants the turn to stop.
    pub(super) stops: &'a AtomicBool,
}

struct Question<'a> {
    request: Request,
    asked: Asked<'a>,
}

impl<'a> TurnUpdates<'a> {
    /// Follows the turn to its end, and returns why it stopped.
    pub(super) fn follow(mut self) -> Result<&'static str, Error> {
        let mut events = self.gateway.events(&self.turn.stream, &self.turn.offset);
        let (mut live, mut questions) = (LiveText::default(), Vec::new());
        let mut is_cancelled = false;
        // A turn before this one may have asked when no editor was there.
        for request in self.gateway.pending_in_session(self.session)? {
            self.ask(field(&request, "requestId"), &mut questions);
        }
        while let Some(batch) = events.next(Some(TICK))? {
            if self.stops.swap(false, Ordering::Relaxed) {
                is_cancelled = true;
                self.gateway.cancel(&local(), self.session, Some(&self.turn.submission))?;
            }
            self.take_answers(&mut questions)?;
            for event in &batch {
                match (self.turn.owns(event), field(event, "type")) {
                    (true, "submission_settled") => {
                        self.update_text(live.end_line());
                        return ended(event, is_cancelled);
                    }
                    // Whatever became of the questions of that turn. A turn that was only queued ends while another one waits.
                    (false, "submission_settled") => {
                        let ended = field(event, "submissionId");
                        questions.retain(|question| question.request.submission.as_deref() != Some(ended));
                    }
                    (true, _) | (false, "approval_requested" | "approval_decided") => {
                        self.take(event, &mut live, &mut questions);
                    }
                    (false, _) => {}
                }
            }
        }
        Err(Error::unavailable("the session's stream ended before the turn did"))
    }

    fn take(&mut self, event: &Value, live: &mut LiveText, questions: &mut Vec<Question<'a>>) {
        match field(event, "type") {
            "approval_requested" => self.ask(field(event, "requestId"), questions),
            "approval_decided" => {
                let id = field(event, "requestId");
                questions.retain(|question| question.request.id != id);
                let status = if field(event, "status") == "approved" { "completed" } else { "failed" };
                self.update(&json!({"sessionUpdate": "tool_call_update", "toolCallId": id, "status": status}));
            }
            // The steps of a worker are told, its texts are not: the agent says what came of them.
            "tool_start" => self.update(&json!({
                "sessionUpdate": "tool_call",
                "toolCallId": field(event, "toolCallId"),
                "title": field(event, "toolName"),
                "kind": kind(field(event, "toolName")),
                "status": "in_progress",
                "rawInput": event.get("args"),
            })),
            "tool" => self.update(&tool_end(event)),
            _ if event.get("parentSession").is_some() => {}
            "thinking_delta" => self.peer.chunk(self.session, "agent_thought_chunk", field(event, "delta")),
            _ => self.update_text(&live.add(event)),
        }
    }

    fn update_text(&self, text: &str) {
        self.peer.chunk(self.session, "agent_message_chunk", text);
    }

    fn update(&self, update: &Value) {
        self.peer.update(self.session, update);
    }

    /// Asks the editor about a request. If the request cannot be read, other clients can still decide it.
    fn ask(&mut self, id: &str, questions: &mut Vec<Question<'a>>) {
        if questions.iter().any(|question| question.request.id == id) {
            return;
        }
        let Ok(request) = self.gateway.whole_request(id) else { return };
        if !request.is_pending() {
            return;
        }
        let call = json!({
            "toolCallId": id,
            "title": request.summary,
            "kind": kind(&request.action_type),
            "status": "pending",
            "content": [text_block(&request.text())],
        });
        let params = json!({"sessionId": self.session, "toolCall": call, "options": options(&request)});
        questions.push(Question { asked: self.peer.ask("session/request_permission", &params), request });
    }

    /// Takes the answers that have come. What is cancelled is decided by nobody.
    fn take_answers(&mut self, questions: &mut Vec<Question<'a>>) -> Result<(), Error> {
        let mut answered = Vec::new();
        questions.retain(|question| match question.asked.result() {
            None => true,
            Some(result) => {
                answered.push((question.request.clone(), result));
                false
            }
        });
        for (request, result) in answered {
            let chosen = result.pointer("/outcome/optionId").and_then(Value::as_str);
            if let Some(option) = chosen.filter(|_| result.pointer("/outcome/outcome") == Some(&json!("selected"))) {
                self.decide(&request, option)?;
            }
        }
        Ok(())
    }

    fn decide(&mut self, request: &Request, option: &str) -> Result<(), Error> {
        // Only what was offered is a decision.
        let is_offered = options(request).iter().any(|offered| offered["optionId"] == option);
        if !is_offered {
            return Ok(());
        }
        let decision = Decision {
            approved: option != REJECT,
            by: user(),
            reason: None,
            for_session: option == ALWAYS,
            digest: request.digest.clone(),
        };
        match self.gateway.decide(&request.id, &decision) {
            // Somebody else was faster; an event says what was decided.
            Err(error) if error.code == Code::Conflict => Ok(()),
            decided => decided.map(drop),
        }
    }
}

const ONCE: &str = "allow_once";
const ALWAYS: &str = "allow_always";
const REJECT: &str = "reject_once";

/// What a person can decide. What is not shown whole cannot be approved, and a diff that is read by its digest only once.
fn options(request: &Request) -> Vec<Value> {
    let option = |id: &str, name: &str| json!({"optionId": id, "name": name, "kind": id});
    let mut options = Vec::new();
    if !request.is_cut {
        options.push(option(ONCE, "Approve once"));
    }
    if !request.is_cut && request.digest.is_none() {
        options.push(option(ALWAYS, "Approve in this session"));
    }
    options.push(option(REJECT, "Deny"));
    options
}

/// Why a turn stopped, or the error with which it failed.
fn ended(event: &Value, is_cancelled: bool) -> Result<&'static str, Error> {
    match field(event, "outcome") {
        "completed" => Ok("end_turn"),
        "aborted" => Ok("cancelled"),
        _ if is_cancelled => Ok("cancelled"),
        _ => Err(Error::unavailable(failure(event))),
    }
}

fn tool_end(event: &Value) -> Value {
    let failed = event.get("isError") == Some(&json!(true));
    let blocks = items(event.get("result").unwrap_or(&Value::Null), "content").iter();
    let content = blocks.filter_map(|block| Some(text_block(block.get("text")?.as_str()?)));
    json!({
        "sessionUpdate": "tool_call_update",
        "toolCallId": field(event, "toolCallId"),
        "status": if failed { "failed" } else { "completed" },
        "content": content.collect::<Vec<_>>(),
    })
}

/// A call of an earlier turn, from its activity in the transcript.
pub(super) fn past_call(activity: &Value) -> Value {
    let shown = ["preview", "error"].map(|name| field(activity, name)).into_iter().find(|text| !text.is_empty());
    json!({
        "sessionUpdate": "tool_call",
        "toolCallId": field(activity, "id"),
        "title": ken_text::visible_line(field(activity, "name")),
        "kind": kind(field(activity, "name")),
        "status": if field(activity, "status") == "completed" { "completed" } else { "failed" },
        "content": Vec::from_iter(shown.map(text_block)),
    })
}

fn text_block(text: &str) -> Value {
    json!({"type": "content", "content": {"type": "text", "text": text}})
}

/// The kind of a tool or an action, by which an editor chooses a picture.
fn kind(name: &str) -> &'static str {
    let has = |words: &[&str]| words.iter().any(|word| name.contains(word));
    if has(&["search"]) {
        "search"
    } else if has(&["web", "fetch", "clone"]) {
        "fetch"
    } else if has(&["edit", "write", "patch"]) {
        "edit"
    } else if has(&["run", "command", "test", "git_commit", "git_push"]) {
        "execute"
    } else if has(&["read", "list", "git_"]) {
        "read"
    } else {
        "other"
    }
}
