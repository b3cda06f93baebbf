//! The stream of changes, for consoles.

use std::sync::Arc;

use ken_http::{Failure, Request, Response};

use crate::gateway::Gateway;
use crate::read::{self, Reading, Subject};

/// GET /api/events: from now on, as server-sent events, unless the reader asks for something else.
pub(crate) async fn follow(gateway: Arc<Gateway>, request: Request) -> Result<Response, Failure> {
    let reading = Reading::of_changes(&request.query()?)?;
    read::read_as(gateway, &request, Subject::system(), reading).await
}
