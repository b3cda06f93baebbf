//! One answer of `/v1/responses`: as an object, and as the events of its making. The number of each event follows from what is
//! stored, so that a caller whose connection broke can go on after the last one it has.

use ken_http::{Failure, Frames, LongResponse, Response};
use ken_types::event::{TurnResult, Usage};
use ken_types::id::SubmissionId;
use ken_types::ops::store::{State, SubmissionStatus};
use serde_json::{Value, json};

use super::accept::delivered;
use super::error;
use super::sending::sent_whole;
use super::tools::{call_id, submission_of_digits};
use super::turn::Turn;

const ID: &str = "resp_";

pub(super) struct Answer {
    model: String,
    pub(super) turn: Turn,
    previous: Option<SubmissionId>,
    /// The text so far.
    text: String,
    /// The number of the next event, and that of the last one that the caller has.
    number: u64,
    after: Option<u64>,
    _held: Option<LongResponse>,
}

/// Returns the submission that the id of an answer stands for.
pub(super) fn submission_of(id: &str) -> Option<SubmissionId> {
    submission_of_digits(id.strip_prefix(ID)?)
}

/// Returns the id of the answer of a submission.
pub(super) fn id_of(submission: &SubmissionId) -> String {
    format!("{ID}{}", submission.as_str().replace('-', ""))
}

impl Answer {
    pub(super) fn new(model: String, turn: Turn, previous: Option<SubmissionId>, held: Option<LongResponse>) -> Answer {
        Answer { model, turn, previous, text: String::new(), number: 0, after: None, _held: held }
    }

    /// Leaves out the events that the caller has.
    pub(super) fn after(self, after: Option<u64>, held: LongResponse) -> Answer {
        Answer { after, _held: Some(held), ..self }
    }

    /// Waits until the turn ends. Returns false if it waits for a decision instead.
    pub(super) async fn ends(&mut self) -> Result<bool, Failure> {
        loop {
            let progress = self.turn.progress().await?;
            if progress.has_ended || progress.asks {
                return Ok(progress.has_ended);
            }
        }
    }

    /// Returns the object of an answer that is not there yet.
    pub(super) fn begun(self) -> Response {
        let body = self.object("in_progress", None);
        sent_whole(self.turn, &body)
    }

    /// Returns the object of an answer whose turn has ended.
    pub(super) async fn completed(&self) -> Result<Value, Failure> {
        let result = self.turn.result().await?;
        Ok(self.object(self.status(), Some(&result)))
    }

    /// Returns the object as it is now.
    pub(super) async fn now(mut self) -> Result<Value, Failure> {
        let standing = self.turn.standing().await?;
        if standing.state.is_settled() {
            // The events say whether the text was cut off.
            self.turn.end().await?;
        }
        Ok(self.of_standing(&standing))
    }

    fn of_standing(&self, standing: &SubmissionStatus) -> Value {
        let partial = || standing.result.as_ref();
        let (status, result) = match standing.state {
            State::Queued => ("queued", None),
            State::Running | State::Waiting => ("in_progress", None),
            State::Completed => (self.status(), partial()),
            State::Failed => ("failed", partial()),
            State::Aborted => ("cancelled", partial()),
        };
        let mut object = self.object(status, result);
        if let (State::Failed, Some(error)) = (standing.state, &standing.error) {
            object["error"] = json!({"code": "server_error", "message": error.message});
        }
        object
    }

    fn status(&self) -> &'static str {
        if self.turn.is_cut { "incomplete" } else { "completed" }
    }

    fn object(&self, status: &str, result: Option<&TurnResult>) -> Value {
        let text = result.map(|result| self.turn.text_of(result)).filter(|text| !text.is_empty());
        let message = text.map(|text| self.item(status, Some(&text)));
        let calls = result.map(|result| self.calls(result)).unwrap_or_default();
        let incomplete = (status == "incomplete").then(|| json!({"reason": "max_output_tokens"}));
        json!({
            "id": id_of(&self.turn.submission.submission_id),
            "object": "response",
            "created_at": self.turn.received_at.millis() / 1_000,
            "status": status,
            "error": null,
            "incomplete_details": incomplete,
            "instructions": null,
            "metadata": {},
            "model": self.model,
            "output": message.into_iter().chain(calls).collect::<Vec<Value>>(),
            "parallel_tool_calls": true,
            "previous_response_id": self.previous.as_ref().map(id_of),
            "store": true,
            "temperature": null,
            "text": {"format": {"type": "text"}},
            "tool_choice": "auto",
            "tools": [],
            "top_p": null,
            "truncation": "disabled",
            "usage": result.map(|result| tokens(&result.usage)),
        })
    }

    fn item_id(&self) -> String {
        format!("msg_{}", self.turn.id())
    }

    fn item(&self, status: &str, text: Option<&str>) -> Value {
        let content = text.map(part);
        json!({"type": "message", "id": self.item_id(), "status": status, "role": "assistant", "content": Vec::from_iter(content)})
    }

    /// Returns the calls that the program is to make.
    fn calls(&self, result: &TurnResult) -> Vec<Value> {
        let calls = result.calls.iter().enumerate().map(|(index, call)| {
            json!({
                "type": "function_call",
                "id": format!("fc_{}_{index}", self.turn.id()),
                "call_id": call_id(&self.turn.submission.submission_id, call),
                "name": call.name,
                "arguments": call.arguments.to_string(),
                "status": "completed",
            })
        });
        calls.collect()
    }

    /// Returns the events of the calls. `first` is the place of the first one in the output.
    fn call_events(&mut self, calls: Vec<Value>, first: usize) -> String {
        let mut events = String::new();
        for (place, call) in (first..).zip(calls) {
            let (id, arguments) = (call["id"].clone(), call["arguments"].clone());
            let mut begun = call.clone();
            begun["arguments"] = "".into();
            begun["status"] = "in_progress".into();
            events += &self.event("response.output_item.added", json!({"output_index": place, "item": begun}));
            let delta = json!({"item_id": id, "output_index": place, "delta": arguments});
            events += &self.event("response.function_call_arguments.delta", delta);
            let done = json!({"item_id": id, "output_index": place, "name": call["name"], "arguments": arguments});
            events += &self.event("response.function_call_arguments.done", done);
            events += &self.event("response.output_item.done", json!({"output_index": place, "item": call}));
        }
        events
    }

    pub(super) async fn stream(mut self, mut frames: Frames) {
        let begun = self.object("in_progress", None);
        let first = self.event("response.created", json!({"response": begun}))
            + &self.event("response.in_progress", json!({"response": begun}));
        frames.send(first).await;
        let last = match self.send_text(&mut frames).await {
            Ok(()) => self.last_events().await,
            Err(failure) => Err(failure),
        };
        let last = last.unwrap_or_else(|failure| {
            let fields = error::body(&failure).get("error").cloned().unwrap_or_default();
            self.event("error", fields)
        });
        frames.send(last).await;
        delivered(&self.turn.gateway, &self.turn.event).await;
    }

    /// Sends the text as it is made, and a comment where there is none for long.
    async fn send_text(&mut self, frames: &mut Frames) -> Result<(), Failure> {
        loop {
            let progress = self.turn.progress().await?;
            let mut sent = String::new();
            for text in progress.texts.into_iter().filter(|text| !text.is_empty()) {
                if self.text.is_empty() {
                    sent += &self.first_text();
                }
                sent += &self.of_part("response.output_text.delta", json!({"delta": text, "logprobs": []}));
                self.text += &text;
            }
            if progress.is_silent && !progress.has_ended {
                sent += ": waiting\n\n";
            }
            frames.send(sent).await;
            if progress.has_ended {
                return Ok(());
            }
        }
    }

    /// Returns the events before the first text.
    fn first_text(&mut self) -> String {
        let item = self.item("in_progress", None);
        self.event("response.output_item.added", json!({"output_index": 0, "item": item}))
            + &self.of_part("response.content_part.added", json!({"part": part("")}))
    }

    /// Returns the events after the last text.
    async fn last_events(&mut self) -> Result<String, Failure> {
        let standing = self.turn.standing().await?;
        let mut last = String::new();
        let text = std::mem::take(&mut self.text);
        if !text.is_empty() {
            let item = self.item(self.status(), Some(&text));
            last += &self.of_part("response.output_text.done", json!({"text": text, "logprobs": []}));
            last += &self.of_part("response.content_part.done", json!({"part": part(&text)}));
            last += &self.event("response.output_item.done", json!({"output_index": 0, "item": item}));
        }
        let calls = standing.result.as_ref().map(|result| self.calls(result)).unwrap_or_default();
        last += &self.call_events(calls, usize::from(!text.is_empty()));
        let kind = match standing.state {
            State::Completed if self.turn.is_cut => "response.incomplete",
            State::Completed => "response.completed",
            _ => "response.failed",
        };
        let mut object = self.of_standing(&standing);
        if let Some(output) = object.pointer_mut("/output/0/content/0/text") {
            // What was streamed contains all texts of the turn.
            *output = text.into();
        }
        Ok(last + &self.event(kind, json!({"response": object})))
    }

    fn of_part(&mut self, kind: &str, mut fields: Value) -> String {
        fields["item_id"] = self.item_id().into();
        fields["output_index"] = 0.into();
        fields["content_index"] = 0.into();
        self.event(kind, fields)
    }

    /// Returns the frame of the next event, which is empty if the caller has that event.
    fn event(&mut self, kind: &str, fields: Value) -> String {
        let number = self.number;
        self.number += 1;
        if self.after.is_some_and(|after| number <= after) {
            return String::new();
        }
        frame(kind, number, fields)
    }
}

fn frame(kind: &str, number: u64, mut fields: Value) -> String {
    // An error has a type of its own, which is not that of its event.
    fields["type"] = kind.into();
    fields["sequence_number"] = number.into();
    format!("event: {kind}\ndata: {fields}\n\n")
}

fn part(text: &str) -> Value {
    json!({"type": "output_text", "text": text, "annotations": [], "logprobs": []})
}

/// Returns the tokens of all calls of the turn, as the original counts them. Providers do not all say how many were thoughts, so these are
/// among the others.
fn tokens(usage: &Usage) -> Value {
    let input = usage.input + usage.cache_read + usage.cache_write;
    json!({
        "input_tokens": input,
        "input_tokens_details": {"cached_tokens": usage.cache_read},
        "output_tokens": usage.output,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": input + usage.output,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use ken_types::Error;

    #[test]
    fn the_event_of_an_error_is_one_of_that_type() {
        let fields = error::body(&Error::unavailable("down").into())["error"].take();
        let expected = json!({"type": "error", "sequence_number": 7, "message": "down", "param": null, "code": null});
        assert_eq!(frame("error", 7, fields), format!("event: error\ndata: {expected}\n\n"));
    }

    #[test]
    fn the_id_of_an_answer_is_that_of_its_submission() {
        let submission = SubmissionId("3d2f6a0e-8a55-4d2b-9c55-6f0f6d1f8e11".into());
        let id = id_of(&submission);
        assert_eq!(id, "resp_3d2f6a0e8a554d2b9c556f0f6d1f8e11");
        assert_eq!(submission_of(&id), Some(submission));
        for other in ["", "resp_", "resp_3D2F6A0E8A554D2B9C556F0F6D1F8E11", "chatcmpl-3d2f6a0e8a554d2b9c556f0f6d1f8e11"]
        {
            assert_eq!(submission_of(other), None, "{other}");
        }
    }
}
