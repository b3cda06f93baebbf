//! The models: ken, and its agents by name.

use std::sync::Arc;

use ken_http::{Failure, Request, Response};
use ken_types::ops::schedules::AGENTS;
use serde_json::{Value, json};

use super::error::unknown_model;
use super::input::{MODEL, agent};
use crate::app::Gateway;

/// GET /v1/models
pub(crate) async fn list(_: Arc<Gateway>, _: Request) -> Result<Response, Failure> {
    let agents = AGENTS.iter().map(|agent| format!("{MODEL}/{agent}"));
    let names = std::iter::once(MODEL.to_owned()).chain(agents);
    let models: Vec<Value> = names.map(|name| model(&name)).collect();
    Response::json(200, &json!({"object": "list", "data": models}))
}

/// GET /v1/models/:id and /v1/models/ken/:agent: programs do not encode the slash in the name of a model.
pub(crate) async fn get(_: Arc<Gateway>, request: Request) -> Result<Response, Failure> {
    let name = match request.segment("agent") {
        "" => request.segment("id").to_owned(),
        agent => format!("{MODEL}/{agent}"),
    };
    match agent(&name) {
        Some(_) => Response::json(200, &model(&name)),
        None => Err(unknown_model(&name)),
    }
}

/// An agent has no date of its own.
fn model(name: &str) -> Value {
    json!({"id": name, "object": "model", "created": 0, "owned_by": MODEL})
}
