//! What a turn or run has changed in the workspace, and the undo of it.

use std::sync::Arc;

use ken_http::{Failure, Request, Response, plain};
use ken_types::Error;
use ken_types::id::Mint;
use ken_types::limits::FILES_RUN_BYTES;
use ken_types::ops::kend::{KendDiff, KendUndo, RunOfFiles};

use crate::app::Gateway;
use crate::doctor::COMMAND_TIMEOUT;
use crate::idempotency::{ReplayableResponse, once};
use crate::identity::is_owner;

/// GET /api/undo/:run
pub(crate) async fn preview(gateway: Arc<Gateway>, request: Request) -> Result<Response, Failure> {
    let args = run(&request)?;
    let _held = request.hold()?;
    Response::json(200, &gateway.kend.call_within::<KendDiff>(&args, COMMAND_TIMEOUT).await?)
}

/// POST /api/undo/:run
pub(crate) async fn undo(gateway: Arc<Gateway>, mut request: Request) -> Result<Response, Failure> {
    request.no_fields().await?;
    let args = run(&request)?;
    let _held = request.hold()?;
    let work = async |_: Mint| {
        let undone = gateway.kend.change_once_within::<KendUndo>(&args, COMMAND_TIMEOUT).await?;
        ReplayableResponse::json(200, &undone)
    };
    once(&gateway, &request, b"{}", plain, work).await
}

/// Fails unless the caller is the person whose files they are.
fn run(request: &Request) -> Result<RunOfFiles, Error> {
    if !is_owner(request.caller()) {
        let message = "only the user of the gateway, or a caller with the secret, can see and undo changes of files";
        return Err(Error::forbidden(message));
    }
    let run = request.segment("run").to_owned();
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    if run.len() > FILES_RUN_BYTES || !run.bytes().all(is_plain) {
        let message = format!("a run has 1 to {FILES_RUN_BYTES} letters, digits, - and _");
        return Err(Error::invalid("/run", message));
    }
    Ok(RunOfFiles { run })
}
