//! The table of routes: method, path, handler and requirements. `share/openapi/cognitive.json` describes the responses.

use std::sync::Arc;

use ken_http::{Area, Failure, Request, Response, Routes};

use crate::admission::Need;
use crate::app::Cognitive;
use crate::gate::{Access, Caller, pass};
use crate::keys::Role;
use crate::limits::Group;
use crate::{execute, health, keys_admin, listings, metrics_page, models_admin, openapi};

/// The first segments of paths that accept a body.
const AREAS: [&str; 3] = ["v1", "execute", "admin"];

/// The table of routes. Each request passes the gate before its handler.
struct Table(Routes<Cognitive>);

impl Table {
    fn on<F, W>(self, pattern: &str, access: Access, function: F) -> Table
    where
        F: Fn(Arc<Cognitive>, Caller, Request) -> W + Copy + Send + Sync + 'static,
        W: Future<Output = Result<Response, Failure>> + Send + 'static,
    {
        Table(self.0.on(pattern, move |app, request| pass(app, request, access, function)))
    }
}

pub(crate) fn table(body_bytes: u64) -> Routes<Cognitive> {
    let routes = AREAS
        .iter()
        .fold(Routes::new(), |routes, first| routes.area(Area { body_limit: body_bytes, ..Area::below(first) }));
    let access = |route, need, group| Access { route, need, group };
    let health = access("health", Need::Nothing, None);
    let openapi = access("openapi", Need::Nothing, None);
    let metrics = |need| access("metrics", need, Some(Group::Metrics));
    let execute = access("execute", Need::Role(Role::User), Some(Group::Execute));
    let protocols = access("protocols", Need::Role(Role::ReadOnly), Some(Group::Protocols));
    let templates = access("templates", Need::Role(Role::ReadOnly), Some(Group::Templates));
    let session = access("session", Need::Role(Role::ReadOnly), Some(Group::Session));
    let models = access("models", Need::Role(Role::Admin), Some(Group::Admin));
    let keys = access("api_keys", Need::Role(Role::Admin), Some(Group::Admin));
    Table(routes)
        .on("GET    /health", health, health::health)
        .on("GET    /health/detailed", health, health::detailed)
        .on("GET    /openapi.json", openapi, openapi::document)
        .on("GET    /metrics", metrics(Need::Role(Role::Admin)), metrics_page::metrics)
        .on("GET    /metrics/prometheus", metrics(Need::Scraper), metrics_page::prometheus)
        .on("POST   /v1/execute", execute, execute::execute)
        .on("POST   /execute", execute, execute::execute)
        .on("GET    /v1/protocols", protocols, listings::protocols)
        .on("GET    /protocols", protocols, listings::protocols)
        .on("GET    /v1/templates", templates, listings::templates)
        .on("GET    /templates", templates, listings::templates)
        .on("GET    /v1/session/:id", session, listings::session)
        .on("GET    /admin/models", models, models_admin::list)
        .on("POST   /admin/models/activate", models, models_admin::activate)
        .on("GET    /admin/api-keys", keys, keys_admin::list)
        .on("POST   /admin/api-keys", keys, keys_admin::add)
        .on("DELETE /admin/api-keys/:user_id", keys, keys_admin::remove)
        .0
}
