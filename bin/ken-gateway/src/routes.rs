//! The table of routes: method, path and handler. `share/openapi/gateway.json` documents the responses.

use std::sync::Arc;

use ken_http::{Area, Limiter, Media, Routes, typed};

use crate::app::Gateway;
use crate::stream::{public, read};
use crate::{
    agents, approvals, chat, console, doctor, export, fork, health, ids, import, inbox, knowledge, logs, mcp,
    messenger, openai, openapi, runs, schedules, sessions, system, telemetry, undo, workflows,
};

/// The limit for bodies that may contain images, in bytes.
const IMAGE_BODY: u64 = 16 << 20;

pub(crate) fn table(chat_rate: &Arc<Limiter>, api_rate: &Arc<Limiter>) -> Routes<Gateway> {
    let limited = |first| Area { limiter: Some(api_rate.clone()), ..Area::below(first) };
    let guarded = |first| Area { guarded: true, ..limited(first) };
    let strict = Media::StrictJson;
    let routes = Routes::new()
        .area(guarded("api"))
        .area(Area { media: strict, envelope: typed, body_limit: IMAGE_BODY, ..guarded("agents") })
        .area(Area { media: strict, envelope: typed, ..guarded("workflows") })
        .area(Area { envelope: typed, ..guarded("runs") })
        .area(Area { media: Media::Any, envelope: typed, for_pages: Some(public::CORS_HEADERS), ..guarded("streams") })
        .area(Area {
            takes_bearer: true,
            envelope: openai::error::envelope,
            is_own_form: true,
            body_limit: IMAGE_BODY,
            ..guarded("v1")
        })
        .area(Area { media: strict, ..guarded("mcp") })
        .area(Area { media: strict, ..Area::below("channels") })
        .area(Area { media: strict, ..limited("console") });
    routes
        .on("GET    /health", health::health)
        .on("GET    /ready", health::ready)
        .on("GET    /openapi.json", openapi::document)
        .on("POST   /console/token", console::trade)
        .on("GET    /api/system", system::state)
        .on("POST   /api/system/parts/:name/restart", system::restart)
        .on("GET    /api/logs", logs::logs)
        .on("GET    /api/audit", system::audit)
        .on("GET    /api/inbox", inbox::inbox)
        .on("GET    /api/doctor", doctor::doctor)
        .on("GET    /api/config", doctor::config)
        .on("GET    /api/undo/:run", undo::preview)
        .on("POST   /api/undo/:run", undo::undo)
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
        .on("POST   /api/chat/sessions/:id/fork", fork::fork)
        .on("GET    /api/chat/sessions/:id/export", export::export)
        .on("GET    /api/chat/sessions/:id/blobs/:digest", export::blob)
        .on("GET    /api/chat/sessions/:id/images/:submissionId/:number", export::image)
        .on("GET    /api/chat/sessions/:id", sessions::get)
        .on("DELETE /api/chat/sessions/:id", sessions::delete)
        .on("POST   /api/knowledge", knowledge::put)
        .on("GET    /api/knowledge", knowledge::list)
        .on("POST   /api/knowledge/import", import::import)
        .on("POST   /api/knowledge/reindex", knowledge::reindex)
        .on("GET    /api/knowledge/reindex/:jobId", knowledge::job)
        .on("GET    /api/knowledge/:id", knowledge::get)
        .on("GET    /api/knowledge/:id/uses", knowledge::uses)
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
        .on("POST   /mcp", mcp::post)
        .limited(chat_rate)
        .on("GET    /mcp", mcp::get)
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
        .on("POST   /runs/:runId/again", runs::again)
        .limited(chat_rate)
        .on("GET    /api/events", read::system_events)
        .on("GET    /v1/models", openai::models::list)
        .on("GET    /v1/models/:id", openai::models::get)
        .on("GET    /v1/models/:provider/:name", openai::models::get)
        .on("POST   /v1/chat/completions", openai::chat::complete)
        .limited(chat_rate)
        .on("POST   /v1/responses", openai::responses::create)
        .limited(chat_rate)
        .on("GET    /v1/responses/:id", openai::responses::get)
        .on("DELETE /v1/responses/:id", openai::responses::delete)
        .on("POST   /v1/responses/:id/cancel", openai::responses::cancel)
        .on("GET    /streams", public::list)
        .on("PUT    /streams/*path", public::create)
        .on("POST   /streams/*path", public::append)
        .on("GET    /streams/*path", public::read)
        .on("DELETE /streams/*path", public::delete)
        .on("OPTIONS /streams/*path", public::options)
}
