//! The models: ken, and its agents by name.

use std::sync::Arc;

use ken_http::{Failure, Request, Response};
use ken_types::ops::schedules::AGENTS;
use serde_json::{Value, json};

use super::error::unknown_model;
use super::input::{MODEL, agent};
use crate::app::Gateway;
use crate::part::CALL_TIMEOUT;

/// GET /v1/models
pub(crate) async fn list(gateway: Arc<Gateway>, _: Request) -> Result<Response, Failure> {
    let agents = AGENTS.iter().map(|agent| format!("{MODEL}/{agent}"));
    let names = std::iter::once(MODEL.to_owned()).chain(agents).chain(raw(&gateway).await);
    let models: Vec<Value> = names.map(|name| model(&name)).collect();
    Response::json(200, &json!({"object": "list", "data": models}))
}

/// Returns the models themselves, if the configuration offers them.
async fn raw(gateway: &Gateway) -> Vec<String> {
    if !gateway.raw_models {
        return Vec::new();
    }
    let state = gateway.models.get(CALL_TIMEOUT).await;
    state.map(|state| state.choices().map(str::to_owned).collect()).unwrap_or_default()
}

/// GET /v1/models/:id and /v1/models/:provider/:name: programs do not encode the slash in the name of a model.
pub(crate) async fn get(gateway: Arc<Gateway>, request: Request) -> Result<Response, Failure> {
    let name = match request.segment("provider") {
        "" => request.segment("id").to_owned(),
        provider => format!("{provider}/{}", request.segment("name")),
    };
    if agent(&name).is_some() || raw(&gateway).await.contains(&name) {
        return Response::json(200, &model(&name));
    }
    Err(unknown_model(&name))
}

/// An agent has no date of its own.
fn model(name: &str) -> Value {
    let owner = name.split('/').next().unwrap_or(MODEL);
    json!({"id": name, "object": "model", "created": 0, "owned_by": owner})
}
