//! Reports work that fails while nobody looks: schedules whose last run failed or did not deliver its result, messages, and telemetry that was lost.

use ken_types::Timestamp;
use ken_types::ops::Nothing;
use ken_types::ops::messenger::MessengerStatus;
use ken_types::ops::schedules::{Delivery, ListSchedules, RunState, SchedulesList};
use ken_types::ops::service::ServiceStats;
use ken_types::places::Places;
use serde_json::Value;

use super::{Findings, call};

pub(super) fn check(places: &Places, findings: &mut Findings) {
    check_schedules(places, findings);
    check_telemetry(places, findings);
    check_messenger(places, findings);
}

/// Reports a messenger whose platform refuses it: the last error, which the next success removes.
fn check_messenger(places: &Places, findings: &mut Findings) {
    let Some(state) = call::<MessengerStatus>(places, "store", &Nothing {}) else { return };
    if let Some(error) = state.counts.last_error {
        let fix = "ken logs messenger; a token that is refused is MESSENGER_BOT_TOKEN in secrets.env, and of two programs with one token \
                   only one can ask for updates";
        findings.warning("messenger-failing", "messenger", error, fix);
    }
}

fn check_schedules(places: &Places, findings: &mut Findings) {
    let all = ListSchedules { owner: None, all: false };
    let Some(list) = call::<SchedulesList>(places, "scheduler", &all) else { return };
    for schedule in list.schedules {
        let ended = match (schedule.last_run_status, schedule.last_delivery) {
            (Some(status @ (RunState::Error | RunState::Timeout | RunState::Unknown)), _) => {
                format!("ended with {}", status.name())
            }
            (_, Some(Delivery::Failed)) => "could not deliver its result".to_owned(),
            _ => continue,
        };
        let at = schedule.last_fired_at.map(|at| format!(", fired at {},", Timestamp::from_millis(at)));
        let paused = if schedule.enabled { "" } else { "; it is paused" };
        let why = format!("its last run{} {ended}{paused}", at.unwrap_or_default());
        let slug = schedule.slug;
        let fix = format!("ken schedule runs {slug}; ken schedule run {slug} --wait tries it now");
        findings.warning("schedule-failing", slug, why, fix);
    }
}

fn check_telemetry(places: &Places, findings: &mut Findings) {
    let Some(stats) = call::<ServiceStats>(places, "model", &Nothing {}) else { return };
    let lost = stats.get("telemetry_lost").and_then(Value::as_u64).unwrap_or_default();
    if lost > 0 {
        let why = format!("the traces of {lost} turns and runs have been lost since the part model started");
        let fix = "ken logs model says why; when it is mended, ken restart model begins to count anew";
        findings.warning("telemetry-lost", "model", why, fix);
    }
}
