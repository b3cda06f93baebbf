//! The description of all of this.

use std::sync::Arc;

use ken_http::{Failure, Request, Response};

use crate::gateway::Gateway;

const DOCUMENT: &str = include_str!("../../../share/openapi/gateway.json");

/// GET /openapi.json
pub(crate) async fn document(_: Arc<Gateway>, _: Request) -> Result<Response, Failure> {
    Ok(Response::json_bytes(200, DOCUMENT))
}
