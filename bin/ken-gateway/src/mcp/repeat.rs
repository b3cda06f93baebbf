//! Calls that start work, and their repetitions. A client that has lost an answer calls again, with another request id or the same;
//! it must find the turn of its first call. The same call after its answer has arrived is a new one. Both look alike, so
//! the store keeps which calls were answered to their end.

use ken_types::id::{Mint, SubmissionId};
use ken_types::ops::store::{KeptAnswer, KeyEnd, KeyState};
use ken_types::{Code, Error};
use serde_json::Value;

use super::client::Client;
use super::message::Call;
use crate::app::Gateway;
use crate::idempotency::{self, KeyName, begin, digest, mint};
use crate::turn::standing;

/// The maximum number of equal calls of one caller in a day, the time for which keys are kept.
const MAX_EQUAL_CALLS: u32 = 10_000;
/// The place of an error that is about the key of a request.
pub(super) const IDEMPOTENCY_KEY: &str = "idempotency-key";

/// How a call has ended, as the status of its kept answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// Its result was delivered.
    Answered = 200,
    /// The id was delivered by which its result can be asked for.
    Named = 202,
    Cancelled = 499,
}

/// The key of a call, and the source of the ids of its work.
#[derive(Debug)]
pub(super) struct Claim {
    pub(super) key: String,
    pub(super) mint: Mint,
    /// Whether an earlier request with the same `Idempotency-Key` has done the work.
    pub(super) is_replayed: bool,
}

/// Finds the key of a call: that of its request, if it has one. `id_of` makes the id under which the store waits for its work.
pub(super) async fn claim(
    gateway: &Gateway,
    client: &Client,
    call: &Call,
    key: Option<&KeyName>,
    id_of: fn(Mint) -> SubmissionId,
) -> Result<Claim, Error> {
    let text = |name: &str| call.params.get(name).map(Value::to_string).unwrap_or_default();
    let (tool, arguments) = (text("name"), text("arguments"));
    let body = digest(&[tool.as_bytes(), arguments.as_bytes()]);
    if let Some(key) = key {
        // The owner names the actor and the conversation, too, which are not in the path.
        let key = digest(&[b"mcp", key.name().as_bytes(), client.owner().as_bytes()]);
        let state = begin(gateway, &key, body).await.map_err(|error| match error.code {
            Code::Conflict | Code::Gone => error.at(IDEMPOTENCY_KEY),
            _ => error,
        })?;
        let mint = mint(&state)?;
        let is_replayed = state.answer.is_some() && !is_running(gateway, &id_of(mint.clone())).await?;
        return Ok(Claim { key, mint, is_replayed });
    }
    let equal = digest(&[b"mcp", client.owner().as_bytes(), body.as_bytes()]);
    for count in gateway.mcp_answered.of(&equal)..MAX_EQUAL_CALLS {
        let key = digest(&[equal.as_bytes(), &count.to_be_bytes()]);
        let state = begin(gateway, &key, body.clone()).await?;
        if is_same(&state, client, call) || is_named(&state) && is_running(gateway, &id_of(mint(&state)?)).await? {
            return Ok(Claim { mint: mint(&state)?, key, is_replayed: false });
        }
        gateway.mcp_answered.set(&equal, count + 1);
    }
    Err(Error::busy("the same call was made too often today", 60_000))
}

/// Whether work has not ended. Work that the store does not know has not begun.
async fn is_running(gateway: &Gateway, id: &SubmissionId) -> Result<bool, Error> {
    match standing(gateway, id).await {
        Ok(status) => Ok(!status.state.is_settled()),
        Err(error) if error.code == Code::NotFound => Ok(true),
        Err(error) => Err(error),
    }
}

/// Whether a call with this key was not answered yet, or is this request, which its client sends again.
fn is_same(state: &KeyState, client: &Client, call: &Call) -> bool {
    match &state.answer {
        None => true,
        Some(answer) => {
            answer.status == End::Answered as u16 && client.request_name(&call.id).is_some_and(|id| id == answer.body)
        }
    }
}

fn is_named(state: &KeyState) -> bool {
    state.answer.as_ref().is_some_and(|answer| answer.status == End::Named as u16)
}

/// Records that a call has ended. If the store cannot be reached, an equal call finds the work of this one.
pub(super) async fn finish(gateway: &Gateway, client: &Client, call: &Call, key: &str, end: End) {
    let body = client.request_name(&call.id).unwrap_or_default();
    let answer = KeptAnswer { status: end as u16, body, headers: Vec::new() };
    idempotency::finish(gateway, key, KeyEnd::Answered(answer)).await;
}
