//! Telemetry: summaries of prompts, commands, schedules and workflow runs.

use std::sync::Arc;

use ken_http::{Failure, Request, Response};
use ken_types::ops::telemetry::{ByWork, ListSummaries, TelemetryGet, TelemetryList, WorkKind};
use ken_types::{Code, Error};

use crate::app::Gateway;
use crate::page;
use crate::store::CALL_TIMEOUT;

/// GET /api/telemetry/runs
pub(crate) async fn list(gateway: Arc<Gateway>, request: Request) -> Result<Response, Failure> {
    let query = request.query()?;
    let kind = query.one("kind")?.map(|name| {
        let message = || format!("kind is {name:?}, it must be prompt, command, schedule or workflow");
        WorkKind::named(name).ok_or_else(|| Error::invalid("?kind", message()))
    });
    let args = ListSummaries {
        connector: query.one("connector")?.map(str::to_owned),
        kind: kind.transpose()?,
        limit: page::limit(&query, 100, 50)?,
        after: page::cursor(&query, "after")?,
    };
    Response::json(200, &gateway.store.call::<TelemetryList>(&args, CALL_TIMEOUT).await?)
}

/// GET /api/telemetry/runs/:runId
pub(crate) async fn get(gateway: Arc<Gateway>, request: Request) -> Result<Response, Failure> {
    let id = request.segment("runId").to_owned();
    let found = gateway.store.call::<TelemetryGet>(&ByWork { id: id.clone() }, CALL_TIMEOUT).await;
    let summary = found.map_err(|error| match error.code {
        Code::NotFound => Failure::from(Error::not_found(format!("No run {id}."))).with("runId", id.as_str()),
        _ => error.into(),
    })?;
    Response::json(200, &summary)
}
