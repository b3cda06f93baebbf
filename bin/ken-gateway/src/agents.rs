//! Prompts to an agent instance, and aborting what runs in it.

use std::sync::Arc;

use ken_http::{Failure, Request, Response, typed};
use ken_types::id::Mint;
use ken_types::limits::{IDENTITY_CHARACTERS, INSTANCE_BYTES, PROMPT_BYTES};
use ken_types::ops::store::{
    Admission, Admit, Admitted, OfInstance, Policy, State, SubmissionStatus, SubmissionsAbort, SubmissionsAdmit,
};
use ken_types::{Code, Error};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::app::Gateway;
use crate::body::{self, check_length, check_size, given, required};
use crate::idempotency::{ReplayableResponse, once};
use crate::images;
use crate::page;
use crate::part::{CHANGE, failed_change};
use crate::stream::read;
use crate::stream::subject::Subject;
use crate::turn::{Waited, check_model, check_named_model, failure, stream_url, wait};

/// The request body. Unknown fields are ignored.
#[serde_with::apply(Option => #[serde(default, deserialize_with = "given")])]
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Prompt {
    message: Option<String>,
    #[serde(default)]
    images: Vec<Value>,
    #[serde(default)]
    policy: Policy,
    /// The only model that can answer, as `provider/model`; `None` for the configured ones.
    model: Option<String>,
    /// The MCP server that has written a part of the message.
    mcp_server: Option<String>,
}

impl Prompt {
    fn check(self, instance: String, mint: &mut Mint) -> Result<Admit, Error> {
        let message = required("message", self.message)?;
        check_size("message", &message, PROMPT_BYTES)?;
        if let Some(server) = &self.mcp_server {
            check_length("/mcpServer", server, 0, IDENTITY_CHARACTERS)?;
        }
        images::check_count(self.images.len(), "/images")?;
        let images = self.images.into_iter().enumerate();
        let images = images.map(|(index, image)| images::read(image, &format!("/images/{index}")));
        Ok(Admit {
            instance,
            submission_id: mint.submission(),
            message,
            images: images.collect::<Result<_, _>>()?,
            blobs: Vec::new(),
            policy: self.policy,
            model: self.model,
            mcp_server: self.mcp_server,
        })
    }
}

/// POST /agents/:name/:id
pub(crate) async fn prompt(gateway: Arc<Gateway>, mut request: Request) -> Result<Response, Failure> {
    let waits = waits(&request)?;
    let instance = instance(&request)?;
    let bytes = request.body().await?;
    let prompt = body::read::<Prompt>(&bytes)?;
    // An invalid prompt is refused before the store creates its idempotency key.
    let checked = prompt.check(instance, &mut Mint::fresh()?)?;
    check_model(&gateway).await.map_err(|error| Failure::from(error).kind("model_not_configured"))?;
    check_named_model(&gateway, checked.model.as_deref()).await?;
    let _long_response = if waits { Some(request.hold()?) } else { None };
    let work = async |mut mint: Mint| {
        let admit = Admit { submission_id: mint.submission(), ..checked };
        admit_and_wait(&gateway, &request, admit, waits).await
    };
    once(&gateway, &request, &bytes, typed, work).await
}

async fn admit_and_wait(
    gateway: &Gateway,
    request: &Request,
    admit: Admit,
    waits: bool,
) -> Result<ReplayableResponse, Failure> {
    let time = if waits { gateway.wait.max(CHANGE) } else { CHANGE };
    let admitted = gateway
        .store
        .change_within::<SubmissionsAdmit>(&admit, time)
        .await
        .map_err(|error| failed_change(error, "submissionId", admit.submission_id.as_str()))?;
    let admission = match admitted {
        Admitted::Accepted(admission) => admission,
        Admitted::Refused { refused } if refused.code == Code::Conflict => {
            return Err(Failure::from(refused).kind("session_busy"));
        }
        Admitted::Refused { refused } => return Err(refused.into()),
    };
    let stream_url = stream_url(gateway, request, &admit.instance);
    if !waits {
        return accepted_response(&admission, &stream_url);
    }
    match wait(gateway, request.shutdown(), &admission.submission_id, None).await? {
        Waited::Settled(status) => settled_response(*status, &admission, &stream_url),
        Waited::Running(_) | Waited::Stopping => Ok(accepted_response(&admission, &stream_url)?.temporary()),
    }
}

fn fields(admission: &Admission, stream_url: &str) -> Value {
    json!({"streamUrl": stream_url, "offset": admission.offset, "submissionId": admission.submission_id})
}

fn accepted_response(admission: &Admission, stream_url: &str) -> Result<ReplayableResponse, Failure> {
    let answer = ReplayableResponse::json(202, &fields(admission, stream_url))?;
    Ok(answer.header("location", stream_url).header("stream-next-offset", admission.offset.to_string()))
}

fn settled_response(
    status: SubmissionStatus,
    admission: &Admission,
    stream_url: &str,
) -> Result<ReplayableResponse, Failure> {
    match (status.state, status.result) {
        (State::Completed, Some(result)) => {
            let mut body = fields(admission, stream_url);
            body["result"] = json!(result);
            ReplayableResponse::json(200, &body)
        }
        (state, _) => {
            Err(failure(state == State::Aborted, status.error).with("submissionId", json!(admission.submission_id)))
        }
    }
}

/// GET and HEAD /agents/:name/:id: the instance's stream.
pub(crate) async fn stream(gateway: Arc<Gateway>, request: Request) -> Result<Response, Failure> {
    let subject = Subject::agent(&instance(&request)?);
    read::read(gateway, &request, subject).await
}

/// POST /agents/:name/:id/abort
pub(crate) async fn abort(gateway: Arc<Gateway>, mut request: Request) -> Result<Response, Failure> {
    let instance = instance(&request)?;
    let bytes = request.body().await?;
    // The body has no defined fields, and unknown ones are ignored on this route.
    body::read::<Value>(&bytes)?;
    let work = async |_: Mint| {
        let aborted = gateway.store.change_once::<SubmissionsAbort>(&OfInstance { instance }).await?;
        let ids = aborted.submission_ids;
        ReplayableResponse::json(200, &json!({"aborted": !ids.is_empty(), "submissionIds": ids}))
    };
    once(&gateway, &request, b"{}", typed, work).await
}

/// Whether the caller waits for the result: `?wait=result`, given once.
pub(crate) fn waits(request: &Request) -> Result<bool, Failure> {
    let read = |text: &str| (text == "result").then_some(true);
    Ok(page::choice(&request.query()?, "wait", read, "result")?.unwrap_or(false))
}

/// Returns the instance that the path names. Only the orchestrator can be addressed.
fn instance(request: &Request) -> Result<String, Failure> {
    let (name, id) = (request.segment("name"), request.segment("id"));
    if name != "orchestrator" {
        return Err(Failure::from(Error::not_found(format!("No agent {name}."))).kind("agent_not_found"));
    }
    if id.len() > INSTANCE_BYTES || id.chars().any(char::is_control) {
        let message = format!("an instance's id has 1 to {INSTANCE_BYTES} bytes and no control characters");
        return Err(Error::new(Code::Invalid, message).into());
    }
    Ok(id.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ken_types::limits::{IMAGE_CHARACTERS, IMAGES};

    #[test]
    fn the_limits_of_a_prompt() {
        let check = |message: usize, images: Value| {
            let prompt = json!({"message": "x".repeat(message), "images": images});
            let prompt: Prompt = serde_json::from_value(prompt).unwrap();
            let checked = prompt.check("i".to_owned(), &mut Mint::fresh().unwrap());
            checked.map(drop).map_err(|error| error.at.unwrap_or_default())
        };
        let image = |length: usize| json!({"type": "image", "mimeType": "image/webp", "data": "A".repeat(length)});
        assert_eq!(check(PROMPT_BYTES, json!(vec![image(4); IMAGES])), Ok(()));
        assert_eq!(check(PROMPT_BYTES + 1, json!([])), Err("/message".to_owned()));
        assert_eq!(check(1, json!(vec![image(4); IMAGES + 1])), Err("/images".to_owned()));
        assert_eq!(check(1, json!([image(4), image(0)])), Err("/images/1/data".to_owned()));
        assert_eq!(check(1, json!([image(4), image(IMAGE_CHARACTERS)])), Ok(()));
        assert_eq!(check(1, json!([image(4), image(IMAGE_CHARACTERS + 4)])), Err("/images/1/data".to_owned()));
    }
}
