//! Schedules and their runs. ken-scheduler does all the work, so every route responds with 503 while it is down.

use std::sync::Arc;
use std::time::Duration;

use ken_http::{Failure, Query, Request, Response, plain};
use ken_types::id::Mint;
use ken_types::ops::schedules::*;
use ken_types::{Code, Error, json as strict_json};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::app::Gateway;
use crate::body::{self, required, switch, text};
use crate::idempotency::{ReplayableResponse, once};
use crate::page;
use crate::part::CALL_TIMEOUT;

/// How long `?wait=1` waits for the end of a run.
const WAIT: Duration = Duration::from_secs(60);

fn schedule_args(request: &Request) -> OfSchedule {
    OfSchedule { slug: request.segment("slug").to_owned(), id: None, owner: None }
}

/// Like [`schedule_args`]; `?id=` names one of several schedules that have had the slug.
fn schedule_args_with_id(request: &Request) -> Result<OfSchedule, Error> {
    Ok(OfSchedule { id: page::filter(&request.query()?, "id")?, ..schedule_args(request) })
}

/// GET /api/schedules
pub(crate) async fn list(gateway: Arc<Gateway>, request: Request) -> Result<Response, Failure> {
    let args = ListSchedules { owner: None, all: page::flag(&request.query()?, "all")? };
    let mut list = json!(gateway.scheduler.call::<SchedulesList>(&args).await?);
    let items = list.get_mut("schedules").and_then(Value::as_array_mut);
    for item in items.into_iter().flatten().filter_map(Value::as_object_mut) {
        item.retain(|name, _| !["schedule", "timezone"].contains(&name.as_str()));
    }
    Response::json(200, &list)
}

/// Reads the fields of a body, without the given others.
fn fields(mut body: Map<String, Value>, others: &[&str]) -> Result<Fields, Failure> {
    body.retain(|name, _| !others.contains(&name.as_str()));
    Ok(strict_json::from_value(Value::Object(body))?)
}

/// POST /api/schedules
pub(crate) async fn create(gateway: Arc<Gateway>, mut request: Request) -> Result<Response, Failure> {
    let bytes = request.body().await?;
    let body = body::read::<Map<String, Value>>(&bytes)?;
    let slug = required("slug", text(&body, "slug")?)?.to_owned();
    let replace = switch(&body, "replace")?;
    let fields = fields(body, &["slug", "replace"])?;
    let work = async |mut mint: Mint| {
        let args = CreateSchedule { id: mint.ulid(), slug, owner: None, replace, fields, turn: None };
        let schedule = gateway.scheduler.change::<SchedulesCreate>(&args).await?;
        ReplayableResponse::json(201, &json!({"schedule": schedule}))
    };
    once(&gateway, &request, &bytes, plain, work).await
}

/// GET /api/schedule-preview: the next ten times. It is not below /api/schedules, where any word can be a slug.
pub(crate) async fn preview(gateway: Arc<Gateway>, request: Request) -> Result<Response, Failure> {
    let query = request.query()?;
    let word = |name: &str| -> Result<String, Error> {
        let missing = || Error::invalid(format!("?{name}"), format!("{name} is missing"));
        page::filter(&query, name)?.ok_or_else(missing)
    };
    let kind = word("kind")?;
    let kind = strict_json::from_value(kind.into()).map_err(|error| Error { at: Some("?kind".to_owned()), ..error })?;
    let tz = page::filter(&query, "tz")?.unwrap_or_else(|| "UTC".to_owned());
    let args = PreviewSchedule { kind, schedule: word("schedule")?, tz, count: 10 };
    Response::json(200, &gateway.scheduler.call::<SchedulesPreview>(&args).await?)
}

/// GET /api/schedules/:slug
pub(crate) async fn get(gateway: Arc<Gateway>, request: Request) -> Result<Response, Failure> {
    let schedule = gateway.scheduler.call::<SchedulesGet>(&schedule_args_with_id(&request)?).await?;
    Response::json(200, &json!({"schedule": schedule}))
}

/// The fields of the record that nobody sets. A change ignores them, so that a record that was read can be sent back: some of
/// them may differ by then.
const READ_ONLY: [&str; 9] =
    ["id", "ownerScope", "protect", "lastFiredAt", "nextFireAt", "lastRunStatus", "endedAt", "createdAt", "updatedAt"];

/// PATCH /api/schedules/:slug
pub(crate) async fn update(gateway: Arc<Gateway>, mut request: Request) -> Result<Response, Failure> {
    let bytes = request.body().await?;
    let mut body = body::read::<Map<String, Value>>(&bytes)?;
    let slug = request.segment("slug").to_owned();
    if text(&body, "slug")?.is_some_and(|given| given != slug) {
        return Err(Error::invalid("/slug", "slug: it cannot be changed").into());
    }
    body.remove("slug");
    let args = UpdateSchedule { slug, owner: None, fields: fields(body, &READ_ONLY)? };
    let schedule = gateway.scheduler.change::<SchedulesUpdate>(&args).await?;
    Response::json(200, &json!({"schedule": schedule}))
}

/// DELETE /api/schedules/:slug
pub(crate) async fn delete(gateway: Arc<Gateway>, request: Request) -> Result<Response, Failure> {
    let args = schedule_args_with_id(&request)?;
    gateway.scheduler.change::<SchedulesDelete>(&args).await?;
    Response::json(200, &json!({"slug": args.slug, "deleted": true}))
}

/// POST /api/schedules/:slug/pause
pub(crate) async fn pause(gateway: Arc<Gateway>, mut request: Request) -> Result<Response, Failure> {
    request.no_fields().await?;
    let args = schedule_args(&request);
    let work = async |_: Mint| {
        gateway.scheduler.change::<SchedulesPause>(&args).await?;
        ReplayableResponse::json(200, &json!({"slug": args.slug, "paused": true}))
    };
    once(&gateway, &request, b"{}", plain, work).await
}

/// POST /api/schedules/:slug/resume
pub(crate) async fn resume(gateway: Arc<Gateway>, mut request: Request) -> Result<Response, Failure> {
    request.no_fields().await?;
    let args = schedule_args(&request);
    let work = async |_: Mint| {
        let next = gateway.scheduler.change::<SchedulesResume>(&args).await?.next_fire_at;
        let body = json!({"slug": args.slug, "resumed": true, "nextFireAt": next});
        ReplayableResponse::json(200, &body)
    };
    once(&gateway, &request, b"{}", plain, work).await
}

/// POST /api/schedules/:slug/run
pub(crate) async fn run(gateway: Arc<Gateway>, mut request: Request) -> Result<Response, Failure> {
    let waits = page::flag(&request.query()?, "wait")?;
    request.no_fields().await?;
    let slug = request.segment("slug").to_owned();
    let _held = if waits { Some(request.hold()?) } else { None };
    let work = async |mut mint: Mint| {
        let mut args = RunSchedule { slug: slug.clone(), owner: None, run_id: mint.ulid(), wait_ms: 0 };
        let run = gateway.scheduler.change::<SchedulesRun>(&args).await?;
        if !waits {
            return ReplayableResponse::json(200, &json!({"slug": slug, "runId": run.run_id}));
        }
        args.wait_ms = u64::try_from(WAIT.as_millis()).unwrap_or_default();
        let mut shutdown = request.shutdown();
        let ended = tokio::select! {
            ended = gateway.scheduler.call_within::<SchedulesRun>(&args, WAIT + CALL_TIMEOUT) => ended?,
            () = shutdown.requested() => run,
        };
        run_response(ended)
    };
    once(&gateway, &request, b"{}", plain, work).await
}

/// Returns the response to `?wait=1`.
fn run_response(run: ScheduleRun) -> Result<ReplayableResponse, Failure> {
    #[derive(Serialize)]
    struct Waited {
        #[serde(flatten)]
        run: ScheduleRun,
        #[serde(skip_serializing_if = "Option::is_none")]
        code: Option<Code>,
    }
    let (status, code, why) = match run.status {
        RunState::Ok => (200, None, None),
        state if state.is_terminal() => {
            let why = format!("the run ended with {}", state.name());
            (502, Some(Code::Unavailable), Some(why))
        }
        _ => {
            let why = "the run has not ended yet; GET .../runs/:runId shows how it ends".to_owned();
            (504, Some(Code::Deadline), Some(why))
        }
    };
    let run = ScheduleRun { error: run.error.or(why), ..run };
    let response = ReplayableResponse::json(status, &Waited { run, code })?;
    Ok(match status {
        504 => response.temporary(),
        _ => response,
    })
}

/// GET /api/schedules/:slug/runs
pub(crate) async fn runs(gateway: Arc<Gateway>, request: Request) -> Result<Response, Failure> {
    let query = request.query()?;
    let slug = request.segment("slug").to_owned();
    let args = ListScheduleRuns { slug: Some(slug), id: page::filter(&query, "id")?, ..of_all_schedules(&query)? };
    let found = gateway.scheduler.call::<SchedulesRuns>(&args).await?;
    let body = json!({"slug": args.slug, "runs": found.runs, "page": found.page});
    Response::json(200, &body)
}

/// GET /api/schedule-runs. A schedule can be called `runs`, so this list cannot stand below the schedules.
pub(crate) async fn all_runs(gateway: Arc<Gateway>, request: Request) -> Result<Response, Failure> {
    let args = of_all_schedules(&request.query()?)?;
    Response::json(200, &gateway.scheduler.call::<SchedulesRuns>(&args).await?)
}

fn of_all_schedules(query: &Query) -> Result<ListScheduleRuns, Error> {
    let limit = page::limit(query, PAGE_SCHEDULE_RUNS, 50)?;
    Ok(ListScheduleRuns { slug: None, id: None, limit, after: page::cursor(query, "after")? })
}

/// GET /api/schedules/:slug/runs/:runId
pub(crate) async fn get_run(gateway: Arc<Gateway>, request: Request) -> Result<Response, Failure> {
    let args = OneScheduleRun { slug: request.segment("slug").to_owned(), run_id: request.segment("runId").to_owned() };
    let run = gateway.scheduler.call::<SchedulesRunGet>(&args).await?;
    Response::json(200, &json!({"slug": args.slug, "run": run}))
}
