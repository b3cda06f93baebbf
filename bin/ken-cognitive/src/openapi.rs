//! The OpenAPI document.

use std::sync::Arc;

use ken_http::{Failure, Request, Response};

use crate::app::Cognitive;
use crate::gate::Caller;

const DOCUMENT: &str = include_str!("../../../share/openapi/cognitive.json");

/// GET /openapi.json
pub(crate) async fn document(_: Arc<Cognitive>, _: Caller, _: Request) -> Result<Response, Failure> {
    Ok(Response::json_bytes(200, DOCUMENT))
}
