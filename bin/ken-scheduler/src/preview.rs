//! `ken-scheduler preview`: prints when a schedule would fire. It needs no running system.

use std::fmt;

use clap::{Args, ValueEnum};
use jiff::Timestamp;
use ken_tool::{Answer, Error, Replied, Reply, Report};
use ken_types::ops::schedules::ScheduleKind;
use serde::Serialize;

use crate::definition::Definition;
use crate::timing::Timing;
use crate::zone::zone;

#[derive(Args)]
pub(crate) struct Preview {
    /// A cron expression, an interval such as 90m, or an instant
    schedule: String,
    /// What SCHEDULE is
    #[arg(long, value_name = "KIND", default_value = "cron")]
    kind: Kind,
    /// Time zone
    #[arg(long, value_name = "ZONE", default_value = "UTC")]
    tz: String,
    /// Number of slots
    #[arg(short = 'n', long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    number: u32,
    /// Slots after this instant instead of now (RFC 3339)
    #[arg(long, value_name = "TIME")]
    after: Option<String>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Kind {
    Cron,
    Every,
    At,
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
        let settings = Definition::preview(self.kind.into(), &self.schedule, &self.tz)?.settings;
        let (timing, timezone) = Timing::parse("", &settings, after.millis())?;
        timing.check(after.millis())?;
        let (zone, _) = zone(&timezone)?;
        let slots = std::iter::successors(timing.slot_after(after.millis()), |slot| timing.slot_after(*slot));
        let shown = slots.take(self.number as usize).map(|at| SlotShown {
            at,
            utc: ken_types::Timestamp::from_millis(at).to_string(),
            local: Timestamp::from_millisecond(at)
                .map(|instant| instant.to_zoned(zone.clone()).strftime("%a %Y-%m-%d %H:%M:%S %Z").to_string())
                .unwrap_or_default(),
        });
        Ok(reply.send(&Slots { schedule: self.schedule.clone(), slots: shown.collect(), timezone }))
    }
}

impl From<Kind> for ScheduleKind {
    fn from(kind: Kind) -> ScheduleKind {
        match kind {
            Kind::Cron => ScheduleKind::Cron,
            Kind::Every => ScheduleKind::Every,
            Kind::At => ScheduleKind::At,
        }
    }
}

impl Answer for Slots {
    fn summary(&self, verbose: bool, to: &mut dyn fmt::Write) -> fmt::Result {
        for slot in &self.slots {
            if verbose { writeln!(to, "{}  {}", slot.local, slot.utc)? } else { writeln!(to, "{}", slot.local)? }
        }
        Ok(())
    }
}
