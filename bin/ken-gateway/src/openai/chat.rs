//! POST /v1/chat/completions

use std::sync::Arc;

use ken_chat::door::{Conversation, waiting};
use ken_http::http::header::HeaderValue;
use ken_http::{Failure, Frames, LongResponse, Request, Response};
use ken_types::event::TurnResult;
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::accept::{Begun, SESSION, accept, delivered, noticed};
use super::completions::{self, Head, KNOWN, frame, messages};
use super::error;
use super::input::Input;
use super::params::sort;
use super::raw;
use super::sending::{named_ignored, sent_whole};
use super::tools::{Tools, call_id};
use super::turn::Turn;
use crate::app::Gateway;
use crate::body::{self, text};
use crate::idempotency::replayed;
use crate::turn::check_model;

/// A request for an answer.
struct Asked {
    input: Input,
    /// As [`completions::stream`] returns it.
    stream: Option<bool>,
    ignored: Vec<String>,
}

impl Asked {
    fn read(bytes: &[u8]) -> Result<Asked, Failure> {
        let mut fields = body::read::<Map<String, Value>>(bytes)?;
        let ignored = sort(&mut fields, &KNOWN)?;
        let mut input = Input::new(
            text(&fields, "model")?,
            text(&fields, "user")?,
            messages(&fields)?,
            Tools::read(&fields)?,
            false,
        )?;
        if let Some(format) = fields.get("response_format") {
            input.instruct_form(format, "/json_schema/schema", "/response_format")?;
        }
        Ok(Asked { input, stream: completions::stream(&fields)?, ignored })
    }
}

/// POST /v1/chat/completions
pub(crate) async fn complete(gateway: Arc<Gateway>, mut request: Request) -> Result<Response, Failure> {
    let bytes = request.body().await?;
    if gateway.raw_models
        && let Some(asked) = raw::Asked::read(&bytes)?
    {
        return raw::complete(gateway, &request, asked).await;
    }
    let asked = Asked::read(&bytes)?;
    check_model(&gateway).await?;
    let held = request.hold()?;
    let until = Instant::now() + gateway.door_wait;
    let Begun { turn, shortened, conversation, is_replayed } =
        accept(&gateway, &request, &bytes, &asked.input, None).await?;
    let session = turn.session.to_string();
    let (id, created) = (format!("chatcmpl-{}", turn.id()), turn.received_at);
    let answer = Answer { head: Head { id, created, model: asked.input.model }, turn, conversation, _held: held };
    let done = match asked.stream {
        Some(with_usage) => Ok(Response::events(|frames| answer.stream(frames, with_usage))),
        None => answer.whole(until).await,
    };
    let response = if is_replayed { replayed(done) } else { done }?;
    named_ignored(response.text_header(SESSION, &session)?, asked.ignored, shortened)
}

struct Answer {
    head: Head,
    turn: Turn,
    conversation: Option<Conversation>,
    _held: LongResponse,
}

impl Answer {
    /// Returns the answer as one document.
    async fn whole(mut self, until: Instant) -> Result<Response, Failure> {
        let requests = self.turn.end_or_requests(until).await?;
        if !requests.is_empty() {
            return self.notice(&requests).await;
        }
        let result = match self.turn.result().await {
            Ok(result) => result,
            Err(failure) => {
                delivered(&self.turn.gateway, &self.turn.event).await;
                return Err(failure);
            }
        };
        let body = self.completion(&self.turn.text_of(&result), Some(&result));
        Ok(sent_whole(self.turn, &body))
    }

    /// Returns a notice that the turn waits for a decision, in place of its answer. The turn goes on.
    async fn notice(self, requests: &[String]) -> Result<Response, Failure> {
        let text = waiting(requests);
        let submission = self.turn.submission.submission_id.clone();
        if let Some(conversation) = &self.conversation {
            // The next message may come as soon as the notice is there, and must find its session.
            noticed(&self.turn.gateway, &submission, Some(conversation.after.add("assistant", &text))).await?;
        }
        let body = self.completion(&text, None).to_string();
        Ok(Response::stream(200, HeaderValue::from_static("application/json"), |mut frames| async move {
            frames.send(body).await;
            if let Err(error) = noticed(&self.turn.gateway, &submission, None).await {
                tracing::warn!("the next answer does not begin with that of {submission}: {}", error.error());
            }
        }))
    }

    /// Returns the document of an answer with this text. A notice has no result.
    fn completion(&self, content: &str, result: Option<&TurnResult>) -> Value {
        let mut message = json!({"role": "assistant", "content": content, "refusal": null});
        if let Some(result) = result.filter(|result| !result.calls.is_empty()) {
            message["tool_calls"] = self.calls(result);
            if content.is_empty() {
                message["content"] = Value::Null;
            }
        }
        let reason = result.map_or("stop", |result| self.finish_reason(result));
        self.head.whole(message, reason, &result.map(|result| result.usage).unwrap_or_default())
    }

    fn finish_reason(&self, result: &TurnResult) -> &'static str {
        match self.turn.is_cut {
            _ if !result.calls.is_empty() => "tool_calls",
            true => "length",
            false => "stop",
        }
    }

    /// Returns the calls that the program is to make.
    fn calls(&self, result: &TurnResult) -> Value {
        let calls = result.calls.iter().map(|call| {
            let function = json!({"name": call.name, "arguments": call.arguments.to_string()});
            json!({"id": call_id(&self.turn.submission.submission_id, call), "type": "function", "function": function})
        });
        calls.collect()
    }

    async fn stream(mut self, mut frames: Frames, with_usage: bool) {
        frames.send(self.head.piece(json!({"role": "assistant", "content": ""}), None)).await;
        let end = match self.send_text(&mut frames).await {
            Ok(()) => self.turn.result().await,
            Err(failure) => Err(failure),
        };
        let last = match end {
            Ok(result) => self.last_pieces(&result, with_usage),
            // The stream has begun, so its status is sent.
            Err(failure) => frame(&error::body(&failure)),
        };
        frames.send(last).await;
        delivered(&self.turn.gateway, &self.turn.event).await;
    }

    /// Sends the text as it is made, and a comment where there is none for long.
    async fn send_text(&mut self, frames: &mut Frames) -> Result<(), Failure> {
        loop {
            let progress = self.turn.progress().await?;
            let text = progress.texts.concat();
            if !text.is_empty() {
                frames.send(self.head.piece(json!({"content": text}), None)).await;
            } else if progress.is_silent && !progress.has_ended {
                frames.send(": waiting\n\n").await;
            }
            if progress.has_ended {
                return Ok(());
            }
        }
    }

    fn last_pieces(&self, result: &TurnResult, with_usage: bool) -> String {
        let mut last = String::new();
        for (index, mut call) in self.calls(result).as_array().cloned().unwrap_or_default().into_iter().enumerate() {
            call["index"] = index.into();
            last.push_str(&self.head.piece(json!({"tool_calls": [call]}), None));
        }
        last + &self.head.last_pieces(self.finish_reason(result), with_usage.then_some(&result.usage))
    }
}
