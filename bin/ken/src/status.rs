//! `ken status`: a table for a person, a line of JSON a part for a program.

use std::process::ExitCode;
use std::time::Duration;

use ken_types::ops::kend::{PartState, PartStatus, StatusArgs, SystemStatus};
use ken_types::places::Places;
use ken_types::{Code, Error};

use crate::cli::Status;
use crate::output::{Outcome, fail, remark, say, say_json, table};
use crate::parts::{kend, to_args, typed};

/// Exit statuses as the init scripts of LSB have them.
const NOT_ALL_UP: u8 = 3;
const UNKNOWN: u8 = 4;

pub(crate) fn run(places: &Places, args: &Status) -> Outcome {
    match ask(places, args) {
        Ok(status) => {
            if args.json {
                status.parts.iter().try_for_each(say_json)?;
            } else {
                table(&rows(&status.parts))
                    .iter()
                    .try_for_each(|line| say(line))?;
            }
            for error in &status.config.errors {
                remark(&format!("the last good configuration is in force: {error}"));
            }
            let up = status.parts.iter().all(is_as_wanted);
            Ok(ExitCode::from(if up { 0 } else { NOT_ALL_UP }))
        }
        Err(error) => {
            fail(&error);
            Ok(ExitCode::from(match error.code {
                Code::NotFound => UNKNOWN,
                _ => NOT_ALL_UP,
            }))
        }
    }
}

fn ask(places: &Places, args: &Status) -> Result<SystemStatus, Error> {
    let args = StatusArgs {
        name: args.name.clone(),
    };
    let limit = Some(Duration::from_secs(5));
    typed(kend(places)?.call("parts.status", &to_args(&args)?, limit, |_| Ok(()))?)
}

fn is_as_wanted(part: &PartStatus) -> bool {
    !part.wanted || part.state == PartState::Ready
}

fn rows(parts: &[PartStatus]) -> Vec<[String; 6]> {
    let head = ["NAME", "STATE", "PID", "UPTIME", "RESTARTS", "LAST-EXIT"].map(String::from);
    std::iter::once(head).chain(parts.iter().map(row)).collect()
}

fn row(part: &PartStatus) -> [String; 6] {
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| String::from("-"));
    [
        part.name.clone(),
        part.state.name().to_owned(),
        or_dash(part.pid.map(|pid| pid.to_string())),
        or_dash(part.uptime_ms.map(uptime)),
        part.restarts.to_string(),
        or_dash(part.cause.clone().or_else(|| part.last_exit.clone())),
    ]
}

/// The two largest units: `12s`, `3m 5s`, `2h 13m`, `5d 3h`.
fn uptime(ms: u64) -> String {
    let seconds = ms / 1_000;
    let (minutes, hours, days) = (seconds / 60, seconds / 3_600, seconds / 86_400);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, _) => format!("{minutes}m {}s", seconds % 60),
        (0, _, _) => format!("{hours}h {}m", minutes % 60),
        _ => format!("{days}d {}h", hours % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uptimes() {
        for (ms, text) in [
            (0, "0s"),
            (59_999, "59s"),
            (185_000, "3m 5s"),
            (7_980_000, "2h 13m"),
            (442_800_000, "5d 3h"),
        ] {
            assert_eq!(uptime(ms), text);
        }
    }
}
