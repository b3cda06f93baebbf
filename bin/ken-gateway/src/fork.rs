//! Forks of sessions: a new session that goes on from an earlier message, while the old one stays as it is.

use std::sync::Arc;

use ken_http::{Failure, Request, Response, plain};
use ken_types::id::{Mint, Origin, SessionId, SubmissionId};
use ken_types::ops::store::{BySession, ForkSession, SessionsFork, SessionsScope};
use serde::Deserialize;
use serde_json::json;

use crate::app::Gateway;
use crate::body::{self, given, required};
use crate::idempotency::{ReplayableResponse, once};
use crate::identity::Identity;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Fork {
    /// The first message that the new session does not have.
    #[serde(default, deserialize_with = "given")]
    before: Option<SubmissionId>,
}

/// POST /api/chat/sessions/:id/fork
pub(crate) async fn fork(gateway: Arc<Gateway>, mut request: Request) -> Result<Response, Failure> {
    let bytes = request.body().await?;
    let before = required("before", body::read::<Fork>(&bytes)?.before)?;
    let scope = Identity::scope_or_none(&request.query()?)?;
    let id = SessionId(request.segment("id").to_owned());
    let by = BySession { session_id: id.to_string() };
    let owner = gateway.store.call::<SessionsScope>(&by).await?;
    let origin = if owner.connector == "tui" { Origin::Tui } else { Origin::Web };
    let work = async |mut mint: Mint| {
        let args = ForkSession { scope, id, before, fork: mint.session(origin) };
        let session = gateway.store.change::<SessionsFork>(&args).await?;
        ReplayableResponse::json(201, &json!({"session": session}))
    };
    once(&gateway, &request, &bytes, plain, work).await
}
