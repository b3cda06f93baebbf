//! Starting workflow runs.

use std::sync::Arc;

use ken_http::http::header::{HeaderValue, LOCATION};
use ken_http::{Failure, Request, Response, typed};
use ken_types::id::{Mint, RunId, SubmissionId};
use ken_types::ops::Nothing;
use ken_types::ops::cognitive::{CheckWorkflow, SEARCH, WorkflowsCheck, WorkflowsList};
use ken_types::ops::runs::{AdmitRun, ByRun, RunRecord, RunStatus, RunsAdmit, RunsGet};
use ken_types::uri::encode_segment;
use ken_types::{Code, Error};
use serde_json::{Value, json};

use crate::agents::waits;
use crate::app::Gateway;
use crate::body;
use crate::idempotency::{ReplayableResponse, once};
use crate::part::{CHANGE, failed_change};
use crate::turn::{Waited, failure, wait};

/// The offset at which a new run's stream starts. It is empty before the run is admitted.
const START: &str = "-1";

/// POST /workflows/:name
pub(crate) async fn start(gateway: Arc<Gateway>, mut request: Request) -> Result<Response, Failure> {
    waits(&request)?;
    let workflow = request.segment("name").to_owned();
    check_name(&gateway, &workflow).await?;
    let bytes = request.body().await?;
    let payload = body::value(&bytes)?;
    begin(&gateway, &request, workflow, payload, &bytes).await
}

/// Starts a run. `body` is what an idempotency key stands for.
pub(crate) async fn begin(
    gateway: &Gateway,
    request: &Request,
    workflow: String,
    payload: Value,
    body: &[u8],
) -> Result<Response, Failure> {
    let waits = waits(request)?;
    check_payload(gateway, &workflow, &payload).await?;
    let _held = if waits { Some(request.hold()?) } else { None };
    let work = async |mut mint: Mint| {
        let run = AdmitRun { run_id: mint.run(), workflow, payload };
        admitted(gateway, request, run, waits).await
    };
    once(gateway, request, body, typed, work).await
}

fn unknown(workflow: &str) -> Failure {
    Failure::from(Error::not_found(format!("No workflow {workflow}."))).kind("workflow_not_found")
}

/// Refuses a workflow that does not exist or that clients cannot start.
async fn check_name(gateway: &Gateway, workflow: &str) -> Result<(), Failure> {
    let known = gateway.cognitive.call::<WorkflowsList>(&Nothing {}).await?.workflows;
    if known.iter().any(|known| known.name == workflow) { Ok(()) } else { Err(unknown(workflow)) }
}

async fn check_payload(gateway: &Gateway, workflow: &str, payload: &Value) -> Result<(), Failure> {
    let check = CheckWorkflow { name: workflow.to_owned(), payload: payload.clone() };
    let checked = gateway.cognitive.call::<WorkflowsCheck>(&check).await;
    checked.map(drop).map_err(|error| match error.code {
        Code::NotFound => unknown(workflow),
        Code::Unavailable if error.at.as_deref() == Some(SEARCH) => {
            Failure::from(Error { at: None, ..error }).kind("search_not_configured")
        }
        _ => error.into(),
    })
}

/// Returns the absolute URL of a run's stream.
fn stream_url(gateway: &Gateway, request: &Request, run: &RunId) -> String {
    format!("{}/runs/{}", gateway.base_url(request), encode_segment(run.as_str()))
}

async fn admitted(
    gateway: &Gateway,
    request: &Request,
    run: AdmitRun,
    waits: bool,
) -> Result<ReplayableResponse, Failure> {
    let time = if waits { gateway.wait.max(CHANGE) } else { CHANGE };
    let admitted = gateway.store.change_within::<RunsAdmit>(&run, time).await;
    admitted.map_err(|error| failed_change(error, "runId", run.run_id.as_str()))?;
    let url = stream_url(gateway, request, &run.run_id);
    if !waits {
        return accepted(&run.run_id, &url);
    }
    let id = SubmissionId(run.run_id.as_str().to_owned());
    let by = ByRun { run_id: run.run_id };
    if let Waited::Settled(_) = wait(gateway, request.shutdown(), &id, None).await?
        // The run has been accepted even if the store fails now, and the response is then 202.
        && let Ok(record) = gateway.store.call::<RunsGet>(&by).await
    {
        return ended(record, &url);
    }
    Ok(accepted(&by.run_id, &url)?.temporary())
}

fn accepted(run: &RunId, url: &str) -> Result<ReplayableResponse, Failure> {
    let answer = ReplayableResponse::json(202, &json!({"runId": run, "streamUrl": url, "offset": START}))?;
    Ok(answer.header("location", url).header("stream-next-offset", START))
}

fn ended(record: RunRecord, url: &str) -> Result<ReplayableResponse, Failure> {
    if record.status == RunStatus::Completed {
        let result = record.result.unwrap_or_default();
        let body = json!({"result": result, "runId": record.run_id, "streamUrl": url, "offset": START});
        return ReplayableResponse::json(200, &body);
    }
    let location = HeaderValue::from_str(url).map_err(|_| Error::internal("a run's URL is not a valid header"))?;
    let aborted = record.error.as_ref().is_some_and(|cause| cause.name == "Aborted");
    Err(failure(aborted, record.error).with("runId", json!(record.run_id)).header(LOCATION, location))
}
