//! Workflow runs: listing, reading and aborting them.

use std::sync::Arc;

use ken_http::{Failure, Request, Response, typed};
use ken_types::id::{Mint, RunId};
use ken_types::limits::PAGE_RUNS;
use ken_types::ops::runs::{ByRun, ListRuns, RunStatus, RunsAbort, RunsGet, RunsList};
use ken_types::{Code, Error};
use serde_json::{Value, json};

use crate::app::Gateway;
use crate::body;
use crate::idempotency::{ReplayableResponse, once};
use crate::page;
use crate::stream::read;
use crate::stream::subject::Subject;
use crate::workflows;

/// GET /runs
pub(crate) async fn list(gateway: Arc<Gateway>, request: Request) -> Result<Response, Failure> {
    let query = request.query()?;
    let args = ListRuns {
        status: page::choice(&query, "status", RunStatus::named, "active, completed or errored")?,
        workflow: query.one("workflowName")?.map(str::to_owned),
        limit: page::limit(&query, PAGE_RUNS, 100)?,
        cursor: page::cursor(&query, "cursor")?,
    };
    Response::json(200, &gateway.store.call::<RunsList>(&args).await?)
}

/// GET and HEAD /runs/:runId: the run's stream. If the query has the key `meta`, with any value, the response is the
/// run's record.
pub(crate) async fn read(gateway: Arc<Gateway>, request: Request) -> Result<Response, Failure> {
    if !request.query()?.has("meta") {
        let subject = Subject::run(request.segment("runId"));
        return read::read(gateway, &request, subject).await;
    }
    let by = run_args(&request);
    let record = gateway.store.call::<RunsGet>(&by).await;
    Response::json(200, &record.map_err(|error| missing(error, &by))?)
}

/// POST /runs/:runId/abort
pub(crate) async fn abort(gateway: Arc<Gateway>, mut request: Request) -> Result<Response, Failure> {
    let bytes = request.body().await?;
    // The body has no defined fields, and unknown ones are ignored on this route.
    body::read::<Value>(&bytes)?;
    let by = run_args(&request);
    let work = async |_: Mint| {
        let aborted = gateway.store.change::<RunsAbort>(&by).await;
        let aborted = aborted.map_err(|error| missing(error, &by))?;
        ReplayableResponse::json(200, &json!({"aborted": aborted.aborted}))
    };
    once(&gateway, &request, b"{}", typed, work).await
}

/// POST /runs/:runId/again: another run of the same workflow with the same payload.
pub(crate) async fn again(gateway: Arc<Gateway>, mut request: Request) -> Result<Response, Failure> {
    let bytes = request.body().await?;
    body::read::<Value>(&bytes)?;
    let by = run_args(&request);
    let record = gateway.store.call::<RunsGet>(&by).await.map_err(|error| missing(error, &by))?;
    workflows::begin(&gateway, &request, record.workflow_name, record.payload.unwrap_or_default(), b"{}").await
}

fn run_args(request: &Request) -> ByRun {
    ByRun { run_id: RunId(request.segment("runId").to_owned()) }
}

fn missing(error: Error, by: &ByRun) -> Failure {
    match error.code {
        Code::NotFound => Failure::from(Error::not_found(format!("No run {}.", by.run_id))).kind("run_not_found"),
        _ => error.into(),
    }
}
