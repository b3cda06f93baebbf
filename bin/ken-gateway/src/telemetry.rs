//! Telemetry: summaries of prompts, commands, schedules and workflow runs; what they used, and why they ended as they did.

use std::sync::Arc;
use std::time::Duration;

use ken_http::{Failure, Request, Response};
use ken_types::ops::model::{ModelBudget, OfSession};
use ken_types::ops::telemetry::{
    ByWork, EventsWhy, GroupBy, GroupUsage, ListSummaries, TelemetryGet, TelemetryList, TelemetryUsage, WorkKind,
};
use ken_types::{Code, Error};
use serde_json::{Value, json};

use crate::app::Gateway;
use crate::page;

/// GET /api/telemetry/runs
pub(crate) async fn list(gateway: Arc<Gateway>, request: Request) -> Result<Response, Failure> {
    let query = request.query()?;
    let args = ListSummaries {
        connector: query.one("connector")?.map(str::to_owned),
        kind: page::choice(&query, "kind", WorkKind::named, "prompt, command, schedule or workflow")?,
        limit: page::limit(&query, 100, 50)?,
        after: page::cursor(&query, "after")?,
    };
    Response::json(200, &gateway.store.call::<TelemetryList>(&args).await?)
}

/// GET /api/telemetry/runs/:runId
pub(crate) async fn get(gateway: Arc<Gateway>, request: Request) -> Result<Response, Failure> {
    let id = request.segment("runId").to_owned();
    let found = gateway.store.call::<TelemetryGet>(&ByWork { id: id.clone() }).await;
    let summary = found.map_err(|error| match error.code {
        Code::NotFound => Failure::from(Error::not_found(format!("No run {id}."))).with("runId", id.as_str()),
        _ => error.into(),
    })?;
    Response::json(200, &summary)
}

/// The timeout of the call for the budget, without which the answer is still worth something.
const BUDGET_TIMEOUT: Duration = Duration::from_secs(2);

/// The maximum number of groups in an answer. What further ones have used is one sum.
const MAX_USAGE_GROUPS: u32 = 1_000;

/// GET /api/usage
pub(crate) async fn usage(gateway: Arc<Gateway>, request: Request) -> Result<Response, Failure> {
    let query = request.query()?;
    let read = |text: &str| match text {
        "day" => Some(GroupBy::Day),
        "model" => Some(GroupBy::Model),
        "session" => Some(GroupBy::Session),
        _ => None,
    };
    let by = page::choice(&query, "by", read, "day, model or session")?.unwrap_or(GroupBy::Day);
    let limit = page::limit(&query, MAX_USAGE_GROUPS, MAX_USAGE_GROUPS)? as usize;
    let args = GroupUsage { by, session: page::filter(&query, "session")?, limit: Some(limit) };
    let (used, budget) = tokio::join!(gateway.store.call::<TelemetryUsage>(&args), budget(&gateway));
    let used = used?;
    let mut body = json!({"groups": used.groups, "others": used.others});
    match budget {
        Ok(budget) => body["budget"] = json!(budget),
        Err(error) => {
            body["budget"] = Value::Null;
            body["budgetUnknown"] = error.message.into();
        }
    }
    Response::json(200, &body)
}

/// The limits of a day and what is used of them; `None` if there are none. Fails if the part that knows does not answer.
pub(crate) async fn budget(gateway: &Gateway) -> Result<Option<Value>, Error> {
    let state = gateway.model.call_within::<ModelBudget>(&OfSession::default(), BUDGET_TIMEOUT).await?;
    let (caps, spent) = (state.caps, state.spent.day);
    Ok((!caps.is_unlimited()).then(|| {
        json!({
            "day": state.day,
            "tokensPerDay": caps.tokens_per_day,
            "costPerDay": caps.cost_per_day,
            "tokens": spent.tokens,
            "cost": spent.cost,
        })
    }))
}

/// GET /api/why/:id
pub(crate) async fn why(gateway: Arc<Gateway>, request: Request) -> Result<Response, Failure> {
    let args = ByWork { id: request.segment("id").to_owned() };
    Response::json(200, &gateway.store.call::<EventsWhy>(&args).await?)
}
