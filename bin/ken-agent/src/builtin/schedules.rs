//! Schedules of the conversation: tasks that the agent does later or repeatedly. They belong to the scope of the turn
//! that creates them. Turns of other scopes cannot see them.

use std::time::Duration;

use ken_types::event::ToolResult;
use ken_types::id::Mint;
use ken_types::ops::Op;
use ken_types::ops::schedules::{
    CreateSchedule, DeliverTo, Fields, ListSchedules, OfSchedule, RunSchedule, ScheduleKind, SchedulesCreate,
    SchedulesDelete, SchedulesList, SchedulesPause, SchedulesResume, SchedulesRun, ToChat, ToSession,
};
use ken_types::ops::store::Scope;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Builtin, Parts, refused, result, tool};
use crate::clock;
use crate::names::ORCHESTRATOR;
use crate::ports::Caller;

/// How long a call waits for the scheduler, which can be switched off.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// The connector of scheduled turns.
const SCHEDULED: &str = "schedule";

pub(super) fn tools() -> Vec<Builtin> {
    let slug = json!({"type": "string", "pattern": "^[a-z0-9][a-z0-9-]{0,63}$", "description": "Its name."});
    let named = json!({"slug": slug});
    let tools = [
        tool(
            "schedule_create",
            "Let a prompt be answered later, or again and again. The answers appear in this conversation.",
            json!({
                "slug": slug,
                "kind": {"enum": ["cron", "every", "at"]},
                "schedule": {"type": "string", "description": "cron: an expression such as 0 9 * * MON-FRI; every: an \
                    interval such as 90m; at: an instant, or a local time such as 2027-02-03T09:00."},
                "tz": {"type": "string", "description": "IANA name of the time zone; that of this system, if it has a name, when it is absent."},
                "prompt": {"type": "string", "minLength": 1},
                "deliver": {"type": "boolean", "description": "false: the answers are kept, and not shown here."},
            }),
            &["slug", "kind", "schedule", "prompt"],
            create,
        )
        .not_repeated(),
        tool("schedule_list", "List the schedules of this conversation.", json!({}), &[], list).reading(),
        tool(
            "schedule_pause",
            "Let a schedule of this conversation fire no more until it is resumed.",
            named.clone(),
            &["slug"],
            one::<SchedulesPause>,
        ),
        tool(
            "schedule_resume",
            "Let a paused schedule of this conversation fire again.",
            named.clone(),
            &["slug"],
            one::<SchedulesResume>,
        ),
        tool(
            "schedule_delete",
            "Delete a schedule of this conversation.",
            named.clone(),
            &["slug"],
            one::<SchedulesDelete>,
        ),
        tool(
            "schedule_run",
            "Start a run of a schedule of this conversation now. It is not waited for.",
            named,
            &["slug"],
            run,
        )
        .not_repeated(),
    ];
    tools.map(|tool| Builtin { agents: &[ORCHESTRATOR], ..tool }).into()
}

/// Returns the scope on whose behalf a call is made. Schedules without a scope belong to the operator, and the agent
/// cannot see them.
fn owner(caller: &Caller) -> Result<Scope, String> {
    let owner = caller.claim.scope.clone();
    owner.ok_or_else(|| "This conversation belongs to no person, and can have no schedules.".to_owned())
}

async fn call<O: Op>(parts: &Parts, args: &O::Args) -> Result<O::Reply, String> {
    let called = parts.scheduler.call::<O>(args, CALL_TIMEOUT).await;
    called.map_err(|error| refused(&error))
}

fn new_id() -> Result<String, String> {
    Ok(Mint::fresh().map_err(|error| refused(&error))?.ulid())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CreateArgs {
    slug: String,
    kind: ScheduleKind,
    schedule: String,
    tz: Option<String>,
    prompt: String,
    deliver: Option<bool>,
}

async fn create(parts: Parts, caller: Caller, new: CreateArgs) -> Result<ToolResult, String> {
    let owner = owner(&caller)?;
    if owner.connector == SCHEDULED {
        return Err("A scheduled turn can make no schedules: nobody is there who could stop them.".to_owned());
    }
    let here = match owner.connector.as_str() {
        "messenger" => DeliverTo::Chat(ToChat {
            connector: owner.connector.clone(),
            chat_id: owner.conversation_id.clone(),
            thread_id: owner.thread_id.clone(),
        }),
        _ => DeliverTo::Session(ToSession { session: caller.claim.instance.clone() }),
    };
    let tz = match new.tz {
        Some(tz) => Some(tz),
        None => clock::zone()?,
    };
    let args = CreateSchedule {
        id: new_id()?,
        slug: new.slug,
        owner: Some(owner),
        replace: false,
        fields: Fields {
            kind: Some(new.kind),
            schedule: Some(new.schedule),
            tz,
            prompt: Some(new.prompt),
            deliver_to: (new.deliver != Some(false)).then_some(Some(here)),
            ..Fields::default()
        },
        turn: Some(caller.claim.lease.submission_id.clone()),
    };
    let made = call::<SchedulesCreate>(&parts, &args).await?;
    Ok(result(json!({"slug": made.slug, "timezone": made.settings.timezone, "next": at(made.next_fire_at)})))
}

fn at(ms: Option<i64>) -> Value {
    json!(ms.map(ken_types::Timestamp::from_millis))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NoArgs {}

async fn list(parts: Parts, caller: Caller, NoArgs {}: NoArgs) -> Result<ToolResult, String> {
    let args = ListSchedules { owner: Some(owner(&caller)?), all: false };
    let found = call::<SchedulesList>(&parts, &args).await?.schedules;
    let shown = found.iter().map(|schedule| {
        json!({"slug": schedule.slug, "kind": schedule.kind, "schedule": schedule.schedule,
            "timezone": schedule.timezone, "enabled": schedule.enabled, "next": at(schedule.next_fire_at),
            "last": at(schedule.last_fired_at), "lastStatus": schedule.last_run_status})
    });
    Ok(result(json!({"schedules": shown.collect::<Vec<_>>()})))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ScheduleArgs {
    slug: String,
}

/// Calls an operation on one schedule and ignores its reply.
async fn one<O: Op<Args = OfSchedule>>(
    parts: Parts,
    caller: Caller,
    which: ScheduleArgs,
) -> Result<ToolResult, String> {
    let args = OfSchedule { slug: which.slug, id: None, owner: Some(owner(&caller)?) };
    call::<O>(&parts, &args).await?;
    Ok(result(json!({"slug": args.slug, "done": true})))
}

async fn run(parts: Parts, caller: Caller, which: ScheduleArgs) -> Result<ToolResult, String> {
    let args = RunSchedule { slug: which.slug, owner: Some(owner(&caller)?), run_id: new_id()?, wait_ms: 0 };
    let begun = call::<SchedulesRun>(&parts, &args).await?;
    Ok(result(json!({"slug": args.slug, "runId": begun.run_id})))
}
