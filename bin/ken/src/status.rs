//! `ken status`: prints a table for a person, or one line of JSON per part for a program.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use ken_types::ops::Nothing;
use ken_types::ops::approvals::{ApprovalsPending, ListApprovals};
use ken_types::ops::hosts::{HostState, HostsList};
use ken_types::ops::kend::{Listener, PartState, PartStatus, PartsStatus, StatusArgs, SystemStatus};
use ken_types::places::Places;
use ken_types::{Code, Error};

use crate::client::{KEND, STORE, call, silent_parts};
use crate::config::effective_config;
use crate::hosts;
use crate::output::{
    Outcome, fail, format_count, print_coloured, print_json, print_line, print_list, print_note, table, wants_colour,
};

/// The exit statuses of `status` in LSB init scripts.
const NOT_ALL_UP: u8 = 3;
const UNKNOWN: u8 = 4;

/// A part that does not answer must not delay the status of the others for long.
const NOTE_TIMEOUT: Duration = Duration::from_secs(1);

#[derive(Debug, Args)]
pub(crate) struct Status {
    /// Show only this part
    pub(crate) name: Option<String>,
    /// Show the addresses at which the system answers, instead of its parts
    #[arg(long, conflicts_with = "name")]
    pub(crate) addresses: bool,
    /// Show the hosts that share the database on a server, instead of the parts
    #[arg(long, conflicts_with_all = ["name", "addresses"])]
    pub(crate) hosts: bool,
    /// Print one JSON object per line
    #[arg(long)]
    pub(crate) json: bool,
}

pub(crate) fn run(places: &Places, args: &Status) -> Outcome {
    if args.hosts {
        return hosts::list(places, args.json).map(|()| ExitCode::SUCCESS);
    }
    match ask(places, args) {
        Ok(status) if args.addresses => {
            let row = |listener: &Listener| [listener.name.clone(), listener.url.clone()];
            print_list(&status.listeners, args.json, ["NAME", "ADDRESS"], row)?;
            Ok(ExitCode::SUCCESS)
        }
        Ok(status) => {
            if args.json {
                status.parts.iter().try_for_each(print_json)?;
            } else {
                show_table(&status.parts)?;
            }
            for error in &status.config.errors {
                print_note(&format!("the last good configuration is in force: {error}"));
            }
            note_reports(&status.parts);
            // With a file that cannot be read, nothing is known of the parts.
            let config = effective_config(&places.config).unwrap_or_default();
            let silent = silent_parts(places, &config, &status.parts);
            // The store might wait, or be the one that is silent.
            if args.name.is_none() && silent.is_empty() {
                note_approvals(places);
                note_absent_hosts(places);
            }
            let down = status.parts.iter().filter_map(what_is_missing);
            let down: Vec<String> = down.chain(silent.iter().map(|part| format!("{part} (does not answer)"))).collect();
            if down.is_empty() {
                return Ok(ExitCode::SUCCESS);
            }
            print_note(&format!("not ready: {}", down.join(", ")));
            Ok(ExitCode::from(NOT_ALL_UP))
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

/// Prints what parts have reported about themselves, such as why the store cannot write.
pub(crate) fn note_reports(parts: &[PartStatus]) {
    for (name, says) in parts.iter().filter_map(|part| Some((&part.name, part.status_text.as_ref()?))) {
        if !says.is_empty() {
            print_note(&format!("{name}: {says}"));
        }
    }
}

fn ask(places: &Places, args: &Status) -> Result<SystemStatus, Error> {
    let args = StatusArgs { name: args.name.clone(), usage: true };
    call::<PartsStatus>(places, KEND, &args, Some(Duration::from_secs(5)))
}

/// Says how many requests wait for a person. Without an answer of the store nothing is said, because the table shows
/// its state.
fn note_approvals(places: &Places) {
    let pending = call::<ApprovalsPending>(places, STORE, &ListApprovals::default(), Some(NOTE_TIMEOUT));
    let count = pending.map_or(0, |pending| pending.approvals.len() as u64);
    if count > 0 {
        let waiting = format_count(count, "approval waits", "approvals wait");
        print_note(&format!("{waiting} for a decision: `ken approvals` lists what"));
    }
}

/// Says how many turns wait for a host that is away.
fn note_absent_hosts(places: &Places) {
    let hosts = call::<HostsList>(places, STORE, &Nothing {}, Some(NOTE_TIMEOUT)).unwrap_or_default().hosts;
    for host in hosts.iter().filter(|host| host.state == HostState::Away && host.waiting > 0) {
        let turns = format_count(host.waiting, "turn waits", "turns wait");
        let (name, seen_at) = (&host.name, host.seen_at);
        print_note(&format!("{turns} for the host {name}, last seen at {seen_at}: `ken hosts rm` ends what waits"));
    }
}

/// Returns the name and state of a part that should be ready and is not. A part should be ready if its entry is
/// enabled, even when a person has stopped it, or if a person has started it.
fn what_is_missing(part: &PartStatus) -> Option<String> {
    if part.state == PartState::Ready || !part.enabled && !part.wanted {
        return None;
    }
    let waits = match part.waits_for.as_slice() {
        [] => String::new(),
        names => format!(" for {}", names.join(" and ")),
    };
    Some(format!("{} ({}{waits})", part.name, part.state.name()))
}

fn show_table(parts: &[PartStatus]) -> Result<(), Error> {
    let lines = table(&rows(parts));
    if !wants_colour() {
        return lines.iter().try_for_each(|line| print_line(line));
    }
    let names = parts.iter().map(|part| part.name.len()).chain(["NAME".len()]);
    let column = names.max().unwrap_or_default() + 2;
    let states = std::iter::once(None).chain(parts.iter().map(|part| Some(part.state)));
    for (line, state) in lines.iter().zip(states) {
        let (name, rest) = line.split_at_checked(column).unwrap_or((line, ""));
        let width = state.map_or(0, |state| state.name().len());
        let (shown, rest) = rest.split_at_checked(width).unwrap_or(("", rest));
        print_coloured(&[(None, name), (state.map(colour_of), shown), (None, rest)])?;
    }
    Ok(())
}

fn colour_of(state: PartState) -> u8 {
    match state {
        PartState::Ready => 32,
        PartState::Failed | PartState::Backoff => 31,
        PartState::Stopped => 2,
        PartState::Starting | PartState::Stopping | PartState::Waiting => 33,
    }
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
        or_dash(last_exit(part)),
    ]
}

/// Returns how the last process ended, and why kend no longer restarts the part.
fn last_exit(part: &PartStatus) -> Option<String> {
    let last = part.last_exit.clone();
    match &part.cause {
        Some(cause) => Some(format!("{}, given up after {cause}", last.unwrap_or_default())),
        None => last,
    }
}

/// Formats a duration with its two largest units: `12s`, `3m 5s`, `2h 13m`, `5d 3h`.
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
        for (ms, text) in
            [(0, "0s"), (59_999, "59s"), (185_000, "3m 5s"), (7_980_000, "2h 13m"), (442_800_000, "5d 3h")]
        {
            assert_eq!(uptime(ms), text);
        }
    }
}
