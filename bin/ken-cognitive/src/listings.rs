//! Lists protocols, workflows, and the history of a session.

use std::sync::Arc;

use ken_flow::Definition;
use ken_http::{Failure, Request, Response};
use ken_types::Error;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::app::Cognitive;
use crate::gate::Caller;

/// GET /v1/protocols: the protocols as an object by name.
pub(crate) async fn protocols(app: Arc<Cognitive>, _: Caller, _: Request) -> Result<Response, Failure> {
    let mut all = Map::new();
    for (protocol, state) in app.engine.protocols().iter().zip(app.engine.state()) {
        let entry = json!({
            "name": protocol.name,
            "description": protocol.description,
            "program": protocol.program,
            "output": protocol.promises,
            "available": state.is_there,
        });
        all.insert(protocol.name.clone(), entry);
    }
    Response::json(200, &all)
}

/// GET /v1/templates: the workflows as an object by name. A workflow whose file is invalid is listed with its error.
pub(crate) async fn templates(app: Arc<Cognitive>, _: Caller, _: Request) -> Result<Response, Failure> {
    let mut all = Map::new();
    for (name, found) in app.catalog.list() {
        let entry = match found {
            Ok(definition) => template(&definition),
            Err(error) => json!({"name": name, "error": error}),
        };
        all.insert(name, entry);
    }
    Response::json(200, &all)
}

fn template(definition: &Definition) -> Value {
    let steps: Vec<Value> =
        definition.steps().iter().map(|step| json!({"id": step.id, "protocol": step.protocol})).collect();
    json!({
        "name": definition.name(),
        "description": definition.description(),
        "public": definition.is_public(),
        "input": definition.schema(),
        "steps": steps,
    })
}

/// GET /v1/session/:id: the last responses, oldest first. The status is 404 for anybody but the owner and admins.
pub(crate) async fn session(app: Arc<Cognitive>, caller: Caller, request: Request) -> Result<Response, Failure> {
    let id = request.segment("id");
    let owner = caller.owner.as_ref();
    let history = owner.and_then(|owner| app.sessions.history(id, owner));
    let Some(history) = history else {
        return Err(Error::not_found("there is no such session").into());
    };
    let mut entries = Vec::with_capacity(history.len());
    for entry in history {
        let entry: Box<RawValue> = serde_json::from_slice(&entry)
            .map_err(|error| Error::internal(format!("an entry of a session cannot be read: {error}")))?;
        entries.push(entry);
    }
    #[derive(serde::Serialize)]
    struct Body<'a> {
        session_id: &'a str,
        history: Vec<Box<RawValue>>,
    }
    Response::json(200, &Body { session_id: id, history: entries })
}
