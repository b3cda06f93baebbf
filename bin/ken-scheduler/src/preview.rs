//! `ken-scheduler preview`: prints when a schedule would fire. It needs no running system.

use std::fmt;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use jiff::Timestamp;
use ken_tool::{Answer, Error, Replied, Reply, Report};
use ken_types::ops::schedules::{self, MAX_LISTED_SLOTS, PREVIEW_SLOTS, PreviewSchedule, PreviewedSlot, ScheduleKind};
use serde::Serialize;

use crate::definition::Definition;
use crate::timing::Timing;
use crate::zone::zone;

#[derive(Args)]
pub(crate) struct Preview {
    /// A cron expression, an interval such as 90m, or an instant
    schedule: String,
    /// What SCHEDULE is
    #[arg(long, value_name = "KIND", default_value = "cron", value_parser = kind())]
    kind: ScheduleKind,
    /// Time zone
    #[arg(long, value_name = "ZONE", default_value = "UTC")]
    tz: String,
    /// Number of slots
    #[arg(short = 'n', long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=MAX_LISTED_SLOTS))]
    number: u32,
    /// Slots after this instant instead of now (RFC 3339)
    #[arg(long, value_name = "TIME")]
    after: Option<String>,
}

fn kind() -> impl TypedValueParser<Value = ScheduleKind> {
    PossibleValuesParser::new(["cron", "every", "at"]).map(|kind| match kind.as_str() {
        "every" => ScheduleKind::Every,
        "at" => ScheduleKind::At,
        _ => ScheduleKind::Cron,
    })
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Slots {
    schedule: String,
    timezone: String,
    slots: Vec<SlotShown>,
}

#[derive(Serialize)]
struct SlotShown {
    /// The time of the slot, in milliseconds since the epoch.
    at: i64,
    utc: String,
    local: String,
}

impl Report for Preview {
    const NAME: &'static str = "ken-scheduler preview";
    const ABOUT: &'static str = "Show when a schedule fires";
    const AFTER_HELP: &'static str = "Exit status: 0 done, 2 the schedule is refused.";

    fn run(&self, reply: Reply<'_>) -> Result<Replied, Error> {
        let after = match &self.after {
            Some(text) => ken_types::Timestamp::from_rfc3339(text)
                .map_err(|error| Error::invalid("--after", format!("--after {text:?}: {error}")))?,
            None => ken_types::Timestamp::now(),
        };
        let found = slots(self.kind, &self.schedule, &self.tz, after.millis(), self.number)?;
        let shown = found.slots.into_iter().map(|PreviewedSlot { at, local }| SlotShown {
            at,
            utc: ken_types::Timestamp::from_millis(at).to_string(),
            local,
        });
        let schedule = self.schedule.clone();
        Ok(reply.send(&Slots { schedule, slots: shown.collect(), timezone: found.timezone }))
    }
}

/// Answers `schedules.preview`.
pub(crate) fn answer(args: &PreviewSchedule) -> Result<schedules::Preview, Error> {
    if !(1..=PREVIEW_SLOTS).contains(&args.count) {
        return Err(Error::invalid("/count", format!("count is {}, it must be 1 to {PREVIEW_SLOTS}", args.count)));
    }
    slots(args.kind, &args.schedule, &args.tz, ken_types::Timestamp::now().millis(), args.count)
}

fn slots(kind: ScheduleKind, schedule: &str, tz: &str, after: i64, count: u32) -> Result<schedules::Preview, Error> {
    let settings = Definition::preview(kind, schedule, tz)?.settings;
    let (timing, timezone) = Timing::parse("", &settings, after)?;
    timing.check(after)?;
    let (zone, _) = zone(&timezone)?;
    let slots = std::iter::successors(timing.slot_after(after), |slot| timing.slot_after(*slot));
    let local = |at| {
        let instant = Timestamp::from_millisecond(at).map(|instant| instant.to_zoned(zone.clone()));
        instant.map(|time| time.strftime("%a %Y-%m-%d %H:%M:%S %Z").to_string()).unwrap_or_default()
    };
    let slots = slots.take(count as usize).map(|at| PreviewedSlot { at, local: local(at) });
    Ok(schedules::Preview { slots: slots.collect(), timezone })
}

impl Answer for Slots {
    fn summary(&self, verbose: bool, to: &mut dyn fmt::Write) -> fmt::Result {
        for slot in &self.slots {
            if verbose { writeln!(to, "{}  {}", slot.local, slot.utc)? } else { writeln!(to, "{}", slot.local)? }
        }
        Ok(())
    }
}
