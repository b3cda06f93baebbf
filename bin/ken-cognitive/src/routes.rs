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

const READ: Need = Need::Role(Role::ReadOnly);
const USER: Need = Need::Role(Role::User);
const ADMIN: Need = Need::Role(Role::Admin);

pub(crate) fn table(body_bytes: u64) -> Routes<Cognitive> {
    let routes =
        AREAS.iter().fold(Routes::new(), |routes, first| routes.area(Area::below(first).body_limit(body_bytes)));
    administration(workflows(open(routes)))
}

fn open(routes: Routes<Cognitive>) -> Routes<Cognitive> {
    let health = access("health", Need::Nothing, None);
    let routes = add(routes, "GET /health", health, health::health);
    let routes = add(routes, "GET /health/detailed", health, health::detailed);
    let openapi = access("openapi", Need::Nothing, None);
    let routes = add(routes, "GET /openapi.json", openapi, openapi::document);
    let metrics = |need| access("metrics", need, Some(Group::Metrics));
    let routes = add(routes, "GET /metrics", metrics(ADMIN), metrics_page::metrics);
    add(routes, "GET /metrics/prometheus", metrics(Need::Scraper), metrics_page::prometheus)
}

fn workflows(routes: Routes<Cognitive>) -> Routes<Cognitive> {
    let execute = access("execute", USER, Some(Group::Execute));
    let routes = add(routes, "POST /v1/execute", execute, execute::execute);
    let routes = add(routes, "POST /execute", execute, execute::execute);
    let protocols = access("protocols", READ, Some(Group::Protocols));
    let routes = add(routes, "GET /v1/protocols", protocols, listings::protocols);
    let routes = add(routes, "GET /protocols", protocols, listings::protocols);
    let templates = access("templates", READ, Some(Group::Templates));
    let routes = add(routes, "GET /v1/templates", templates, listings::templates);
    let routes = add(routes, "GET /templates", templates, listings::templates);
    let session = access("session", READ, Some(Group::Session));
    add(routes, "GET /v1/session/:id", session, listings::session)
}

fn administration(routes: Routes<Cognitive>) -> Routes<Cognitive> {
    let models = access("models", ADMIN, Some(Group::Admin));
    let routes = add(routes, "GET /admin/models", models, models_admin::list);
    let routes = add(routes, "POST /admin/models/activate", models, models_admin::activate);
    let keys = access("api_keys", ADMIN, Some(Group::Admin));
    let routes = add(routes, "GET /admin/api-keys", keys, keys_admin::list);
    let routes = add(routes, "POST /admin/api-keys", keys, keys_admin::add);
    add(routes, "DELETE /admin/api-keys/:user_id", keys, keys_admin::remove)
}

fn access(route: &'static str, need: Need, group: Option<Group>) -> Access {
    Access { route, need, group }
}

fn add<F, W>(routes: Routes<Cognitive>, pattern: &str, gate: Access, function: F) -> Routes<Cognitive>
where
    F: Fn(Arc<Cognitive>, Caller, Request) -> W + Copy + Send + Sync + 'static,
    W: Future<Output = Result<Response, Failure>> + Send + 'static,
{
    routes.on(pattern, move |app, request| pass(app, request, gate, function))
}
