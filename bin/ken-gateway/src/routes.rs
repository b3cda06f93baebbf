//! The table of routes: method, path and handler. `share/openapi/gateway.json` documents the responses.

use std::sync::Arc;

use ken_http::{Area, Limiter, Media, Routes};

use crate::app::Gateway;
use crate::stream::{public, read};
use crate::{
    agents, approvals, chat, console, health, ids, knowledge, messenger, openai, openapi, runs, schedules, sessions,
    system, telemetry, workflows,
};

/// The limit for bodies that may contain images, in bytes.
const IMAGE_BODY: u64 = 16 << 20;

pub(crate) fn table(chat_rate: &Arc<Limiter>, api_rate: &Arc<Limiter>) -> Routes<Gateway> {
    let routes = Routes::new()
        .area(Area::below("api").guarded().limited(api_rate))
        .area(Area::below("agents").guarded().strict().typed_errors().body_limit(IMAGE_BODY).limited(api_rate))
        .area(Area::below("workflows").guarded().strict().typed_errors().limited(api_rate))
        .area(Area::below("runs").guarded().typed_errors().limited(api_rate))
        .area(
            Area::below("streams")
                .guarded()
                .media(Media::Any)
                .typed_errors()
                .for_pages(public::CORS_HEADERS)
                .limited(api_rate),
        )
        .area(
            Area::below("v1")
                .guarded()
                .bearer()
                .envelope_everywhere(openai::error::envelope)
                .body_limit(IMAGE_BODY)
                .limited(api_rate),
        )
        .area(Area::below("channels").strict())
        .area(Area::below("console").strict().limited(api_rate));
    routes
        .on("GET    /health", health::health)
        .on("GET    /ready", health::ready)
        .on("GET    /openapi.json", openapi::document)
        .on("POST   /console/token", console::trade)
        .on("GET    /api/system", system::state)
        .on("POST   /api/system/parts/:name/restart", system::restart)
        .on("GET    /api/logs", system::logs)
        .on("GET    /api/audit", system::audit)
        .on("GET    /api/usage", telemetry::usage)
        .on("GET    /api/why/:id", telemetry::why)
        .on("POST   /api/chat/events", chat::receive)
        .limited(chat_rate)
        .on("POST   /api/chat/sessions", sessions::create)
        .on("GET    /api/chat/sessions", sessions::list)
        .on("POST   /api/chat/sessions/:selector/resume", sessions::resume)
        .on("GET    /api/chat/sessions/:id/transcript", sessions::transcript)
        .on("POST   /api/chat/sessions/:id/cancel", sessions::cancel)
        .on("PATCH  /api/chat/sessions/:id", sessions::update)
        .on("DELETE /api/chat/sessions/:id", sessions::delete)
        .on("POST   /api/knowledge", knowledge::put)
        .on("GET    /api/knowledge", knowledge::list)
        .on("POST   /api/knowledge/reindex", knowledge::reindex)
        .on("GET    /api/knowledge/reindex/:jobId", knowledge::job)
        .on("GET    /api/knowledge/:id", knowledge::get)
        .on("DELETE /api/knowledge/:id", knowledge::delete)
        .on("GET    /api/schedules", schedules::list)
        .on("POST   /api/schedules", schedules::create)
        .on("GET    /api/schedules/:slug", schedules::get)
        .on("PATCH  /api/schedules/:slug", schedules::update)
        .on("DELETE /api/schedules/:slug", schedules::delete)
        .on("POST   /api/schedules/:slug/pause", schedules::pause)
        .on("POST   /api/schedules/:slug/resume", schedules::resume)
        .on("POST   /api/schedules/:slug/run", schedules::run)
        .on("GET    /api/schedules/:slug/runs", schedules::runs)
        .on("GET    /api/schedule-preview", schedules::preview)
        .on("GET    /api/schedule-runs", schedules::all_runs)
        .on("GET    /api/schedules/:slug/runs/:runId", schedules::get_run)
        .on("GET    /api/connectors/messenger/status", messenger::status)
        .on("GET    /api/connectors/messenger/health", messenger::health)
        .on("POST   /api/connectors/messenger/pair", messenger::pair)
        .on("POST   /api/connectors/messenger/deny", messenger::deny)
        .on("POST   /api/connectors/messenger/allow", messenger::allow)
        .on("POST   /api/connectors/messenger/remove", messenger::remove)
        .on("POST   /api/connectors/messenger/policy", messenger::policy)
        .on("GET    /api/connectors/messenger/groups", messenger::groups)
        .on("POST   /api/connectors/messenger/group", messenger::group)
        .on("DELETE /api/connectors/messenger/group/:groupId", messenger::remove_group)
        .on("POST   /channels/messenger/webhook", messenger::webhook)
        .on("GET    /api/approvals", approvals::list)
        .on("GET    /api/approvals/pending", approvals::pending)
        .on("GET    /api/approvals/bindings/pending", approvals::bindings)
        .on("GET    /api/approvals/:requestId", approvals::get)
        .on("GET    /api/approvals/:requestId/diff", approvals::diff)
        .on("POST   /api/approvals/:requestId/decision", approvals::decide)
        .on("GET    /api/ids", ids::find)
        .on("GET    /api/telemetry/runs", telemetry::list)
        .on("GET    /api/telemetry/runs/:runId", telemetry::get)
        .on("POST   /agents/:name/:id", agents::prompt)
        .limited(chat_rate)
        .on("GET    /agents/:name/:id", agents::stream)
        .on("POST   /agents/:name/:id/abort", agents::abort)
        .on("POST   /workflows/:name", workflows::start)
        .limited(chat_rate)
        .on("GET    /runs", runs::list)
        .on("GET    /runs/:runId", runs::read)
        .on("POST   /runs/:runId/abort", runs::abort)
        .on("GET    /api/events", read::system_events)
        .on("GET    /v1/models", openai::models::list)
        .on("GET    /v1/models/:id", openai::models::get)
        .on("GET    /v1/models/ken/:agent", openai::models::get)
        .on("POST   /v1/chat/completions", openai::chat::complete)
        .limited(chat_rate)
        .on("GET    /streams", public::list)
        .on("PUT    /streams/*path", public::create)
        .on("POST   /streams/*path", public::append)
        .on("GET    /streams/*path", public::read)
        .on("DELETE /streams/*path", public::delete)
        .on("OPTIONS /streams/*path", public::options)
}
