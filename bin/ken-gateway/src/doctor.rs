//! What is wrong with the system, and which configuration is in force. kend runs the commands of ken(1) for both, because the gateway
//! has neither files nor programs.

use std::sync::Arc;
use std::time::Duration;

use ken_http::{Failure, Request, Response};
use ken_types::ops::kend::{KendConfig, KendDoctor};
use ken_types::ops::{Nothing, Op};

use crate::app::Gateway;

/// How long the command may take: a little longer than kend lets it run, so that its error arrives.
pub(crate) const COMMAND_TIMEOUT: Duration = Duration::from_secs(65);

/// GET /api/doctor
pub(crate) async fn doctor(gateway: Arc<Gateway>, request: Request) -> Result<Response, Failure> {
    report::<KendDoctor>(&gateway, &request).await
}

/// GET /api/config
pub(crate) async fn config(gateway: Arc<Gateway>, request: Request) -> Result<Response, Failure> {
    report::<KendConfig>(&gateway, &request).await
}

async fn report<O: Op<Args = Nothing>>(gateway: &Gateway, request: &Request) -> Result<Response, Failure> {
    let _held = request.hold()?;
    Response::json(200, &gateway.kend.call_within::<O>(&Nothing {}, COMMAND_TIMEOUT).await?)
}
