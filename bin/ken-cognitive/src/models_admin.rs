//! Administration of local models.

use std::sync::Arc;

use ken_audit::Record;
use ken_http::{Failure, Request, Response};
use ken_types::Error;
use serde::Deserialize;

use crate::app::Cognitive;
use crate::body::fields;
use crate::failure::unprocessable;
use crate::gate::Caller;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ActivateBody {
    alias: String,
}

/// GET /admin/models
pub(crate) async fn list(app: Arc<Cognitive>, _: Caller, _: Request) -> Result<Response, Failure> {
    Response::json(200, &app.models.list().await?)
}

/// POST /admin/models/activate
pub(crate) async fn activate(app: Arc<Cognitive>, caller: Caller, mut request: Request) -> Result<Response, Failure> {
    let ActivateBody { alias } = fields(request.value().await?)?;
    let known = app.models.aliases().await?;
    if !known.iter().any(|known| known.alias == alias) {
        let names: Vec<&str> = known.iter().map(|known| known.alias.as_str()).collect();
        let error = Error::invalid("/alias", format!("MVLM_MODEL_DIRS has no alias {alias:?}"));
        let hint = if names.is_empty() { "it is empty".to_owned() } else { format!("it has: {}", names.join(", ")) };
        return Err(error.hint(hint).into());
    }
    app.models.check(&alias).await.map_err(|error| unprocessable(error.at("/alias")))?;
    let record = Record::new("model_activated", request.id(), caller.user_id()).with("alias", alias.as_str());
    app.record(vec![record.clone()]).await?;
    let written = app.models.choose(&alias);
    app.settle(record, written).await?;
    // Running tools still use the previous model.
    app.engine.restart_tools();
    Response::json(200, &app.models.list().await?)
}
