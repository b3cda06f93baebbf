//! The operations of the control socket.

use std::time::Instant;

use ken_text::nearest;
use ken_types::ops::kend::{
    ChangeArgs, Changed, KillArgs, Killed, LogLine, LogsArgs, StatusArgs, StopArgs, Stopped, WaitFor, WaitReadyArgs,
    unknown_part,
};
use ken_types::ops::service::Info;
use ken_types::ops::{Nothing, read_args};
use ken_types::{Code, Error};
use nix::sys::signal::{Signal, kill};
use serde::Serialize;
use serde_json::{Value, json};

use crate::connection::Connection;
use crate::cursor::{Cursor, Next};
use crate::part::{Part, State, describe};
use crate::pending::Pending;
use crate::reports;
use crate::rotating::LogFiles;
use crate::status::measure;
use crate::system::System;
use crate::writer::Outlet;

/// The names of all operations, sorted.
const NAMES: [&str; 17] = [
    "kend.config", "kend.diff", "kend.doctor", "kend.reload", "kend.stop", "kend.undo", "kend.upgrade", "parts.kill",
    "parts.logs", "parts.restart", "parts.start", "parts.status", "parts.stop", "parts.wait_ready", "service.info",
    "service.ping", "service.stats",
];
const MAX_LINES: u32 = 10_000;

/// The result of calling an operation.
pub(crate) enum OpReply {
    Now(Value),
    /// The reply follows later. The number is the caller's timeout in milliseconds, if it set one.
    Later(Pending, Option<u64>),
}

/// Returns the error for a request whose timeout has passed.
pub(crate) fn deadline_error(pending: &Pending, system: &System, now: Instant) -> Error {
    let name = match pending {
        Pending::Ready { name, .. } | Pending::Stopped { name, .. } => name,
        Pending::Command { .. } => return Error::deadline("the command has not ended in time"),
        _ => return Error::deadline("not all parts got ready in time").hint("`ken status` shows which"),
    };
    let Some(part) = system.parts.get(name) else {
        return Error::deadline(format!("{name} has been removed"));
    };
    let status = system.part_status(name, part, now);
    let mut message = format!("{name} is still {}", status.state.name());
    if !status.waits_for.is_empty() {
        message.push_str(&format!(" for {}", status.waits_for.join(", ")));
    }
    if let Some(last) = status.last_exit {
        message.push_str(&format!(", it last ended by: {last}"));
    }
    Error::deadline(message)
}

/// Carries a request out. Returns its reply, or what the reply has to wait for.
pub(crate) fn call(system: &mut System, op: &str, args: &str, now: Instant) -> Result<OpReply, Error> {
    match op {
        "service.info" => read_args(args).and_then(|Nothing {}| answer(&info())),
        "service.ping" => read_args(args).and_then(|Nothing {}| answer(&Nothing {})),
        "service.stats" => read_args(args).and_then(|Nothing {}| answer(&stats(system))),
        "parts.status" => status(system, &read_args(args)?, now),
        "parts.start" => start(system, read_args(args)?, System::want, now),
        "parts.restart" => start(system, read_args(args)?, System::restart, now),
        "parts.stop" => stop(system, read_args(args)?, now),
        "parts.kill" => send_signal(system, &read_args(args)?),
        "parts.wait_ready" => {
            let args: WaitReadyArgs = read_args(args)?;
            Ok(OpReply::Later(Pending::AllReady, args.timeout_ms))
        }
        "parts.logs" => logs(system, read_args(args)?),
        "kend.reload" => {
            let Nothing {} = read_args(args)?;
            let done = system.reload().map_err(|errors| {
                Error::new(Code::Invalid, errors.join("\n")).hint("the last good configuration stays in force")
            })?;
            answer(&done)
        }
        "kend.upgrade" => read_args(args).and_then(|Nothing {}| answer(&system.upgrade(now)?)),
        "kend.stop" => {
            let Nothing {} = read_args(args)?;
            if !system.stopping {
                system.journal.warn(None, "stopped by `ken down`");
            }
            system.stop("`ken down`");
            Ok(OpReply::Later(Pending::Down, None))
        }
        _ => match reports::start(system, op, args, now)? {
            Some((number, kind)) => Ok(OpReply::Later(Pending::Command { number, kind }, None)),
            None => {
                Err(Error::not_found(format!("kend has no operation `{op}`")).hint("service.info lists what there is"))
            }
        },
    }
}

fn answer(value: &impl Serialize) -> Result<OpReply, Error> {
    written(value).map(OpReply::Now)
}

fn info() -> Info {
    Info {
        name: String::from("kend"),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        wire: 1,
        ops: NAMES.iter().map(|name| (*name).to_owned()).collect(),
    }
}

fn stats(system: &System) -> Value {
    let count = |test: fn(&Part) -> bool| system.parts.values().filter(|part| test(part)).count();
    json!({
        "parts": system.parts.len(),
        "ready": count(Part::is_ready),
        "failed": count(|part| matches!(part.state, State::Failed { .. })),
        "starts": system.parts.values().map(|part| part.starts).sum::<u64>(),
    })
}

fn status(system: &System, args: &StatusArgs, now: Instant) -> Result<OpReply, Error> {
    let mut all = system.status(now);
    if let Some(name) = &args.name {
        all.parts.retain(|part| part.name == *name);
        if all.parts.is_empty() {
            return Err(unknown(system, name));
        }
    }
    if args.usage {
        all.parts.iter_mut().for_each(measure);
    }
    answer(&all)
}

/// Returns a part that may be changed. Fails if the system is stopping or there is no such part.
fn find<'a>(system: &'a System, name: &str) -> Result<&'a Part, Error> {
    system.check_not_stopping()?;
    let part = system.parts.get(name).filter(|part| !part.removed);
    part.ok_or_else(|| unknown(system, name))
}

fn unknown(system: &System, name: &str) -> Error {
    let error = unknown_part(name).at("/args/name");
    match nearest(name, system.parts.keys().map(String::as_str)) {
        Some(near) => error.hint(format!("did you mean `{near}`? `ken status` lists the parts")),
        None => error,
    }
}

fn check_wait(wait: Option<WaitFor>, possible: WaitFor) -> Result<(), Error> {
    match wait {
        Some(wait) if wait != possible => Err(Error::invalid("/args/wait", "this would never come to be")),
        _ => Ok(()),
    }
}

fn start(system: &mut System, args: ChangeArgs, act: fn(&mut System, &str), now: Instant) -> Result<OpReply, Error> {
    let name = args.name;
    system.reload_if_changed();
    let starts = find(system, &name)?.starts;
    check_wait(args.wait, WaitFor::Ready)?;
    act(system, &name);
    system.advance(now);
    let part = find(system, &name)?;
    let after = if part.restart_wanted { starts } else { 0 };
    match args.wait {
        Some(_) => Ok(OpReply::Later(Pending::Ready { name, after }, args.timeout_ms)),
        None => answer(&system.part_status(&name, part, now)),
    }
}

fn stop(system: &mut System, args: StopArgs, now: Instant) -> Result<OpReply, Error> {
    let name = args.name;
    find(system, &name)?;
    check_wait(args.wait, WaitFor::Stopped)?;
    let also = system.unwant(&name, args.dependents);
    system.advance(now);
    match args.wait {
        Some(_) => Ok(OpReply::Later(Pending::Stopped { name, also }, args.timeout_ms)),
        None => {
            let part = system.part_status(&name, find(system, &name)?, now);
            answer(&Changed { part, also })
        }
    }
}

fn send_signal(system: &mut System, args: &KillArgs) -> Result<OpReply, Error> {
    let text = args.signal.as_deref().unwrap_or("KILL");
    let signal = signal(text).ok_or_else(|| {
        Error::invalid("/args/signal", format!("there is no signal `{text}`")).hint("a name or a number, see signal(7)")
    })?;
    let part = find(system, &args.name)?;
    let Some(pid) = part.pid() else {
        let state = part.public_state().name();
        return Err(Error::conflict(format!("{} has no process, it is {state}", args.name)));
    };
    kill(pid, signal).map_err(|errno| Error::unavailable(format!("{pid}: {}", errno.desc())))?;
    system.journal.note(Some(&args.name), &format!("{signal} sent by a person"));
    answer(&Killed { name: args.name.clone(), pid: pid.as_raw(), signal: signal.to_string() })
}

/// Parses a signal: a name, with or without `SIG`, or a number.
fn signal(text: &str) -> Option<Signal> {
    if let Ok(number) = text.parse::<i32>() {
        return Signal::try_from(number).ok();
    }
    let name = text.to_ascii_uppercase();
    let name = name.strip_prefix("SIG").unwrap_or(&name);
    format!("SIG{name}").parse().ok()
}

fn logs(system: &System, args: LogsArgs) -> Result<OpReply, Error> {
    if args.lines > MAX_LINES {
        return Err(Error::invalid("/args/lines", format!("at most {MAX_LINES}")));
    }
    let log = system.log(&args.name).ok_or_else(|| unknown(system, &args.name))?;
    let (lines, until, follow) = (args.lines, log.position(), args.follow);
    Ok(OpReply::Later(Pending::Logs { name: args.name, lines, until, cursor: None, follow }, None))
}

impl System {
    fn log(&self, name: &str) -> Option<&Outlet> {
        match name {
            "kend" => Some(&self.journal.out),
            _ => self.parts.get(name).map(|part| &part.log.out),
        }
    }
}

/// Returns the result of a request if it is complete, and `None` if it still has to wait. Log lines are sent as items
/// meanwhile.
pub(crate) fn settle(
    pending: &mut Pending,
    system: &System,
    caller: &mut Connection,
    id: u64,
    chunk: &mut [u8],
    now: Instant,
) -> Option<Result<Value, Error>> {
    match pending {
        Pending::AllReady => (system.is_ready() && system.upgrade.is_over()).then(|| written(&system.status(now))),
        Pending::Ready { name, after } => ready(system, name, *after, now),
        Pending::Stopped { name, also } => stopped(system, name, also, now),
        Pending::Command { number, kind } => {
            let output = system.commands.result(*number)?;
            Some(output.and_then(|output| reports::reply(*kind, &output)))
        }
        Pending::Down => system.is_down().then(|| written(&Stopped { killed: system.killed.clone() })),
        Pending::Logs { name, lines, until, cursor, follow } => {
            let Some(log) = system.log(name) else {
                return Some(Err(unknown_part(name)));
            };
            // If the disk stands still, what is in the files is all there is.
            let is_stalled = system.writer.is_stalled(now);
            if !is_stalled && !log.is_written(*until) {
                return None;
            }
            if cursor.is_none() {
                *cursor = Cursor::last(log.files(), *lines);
            }
            let next = cursor.as_mut().map_or(Next::Later, |cursor| send_lines(log.files(), cursor, caller, id, chunk));
            let is_over = matches!(next, Next::End) || is_stalled && matches!(next, Next::Later);
            (is_over && !*follow).then(|| Ok(json!({})))
        }
    }
}

fn written(value: &impl Serialize) -> Result<Value, Error> {
    serde_json::to_value(value).map_err(|error| Error::internal(error.to_string()))
}

fn ready(system: &System, name: &str, after: u64, now: Instant) -> Option<Result<Value, Error>> {
    let part = match system.parts.get(name) {
        Some(part) if part.wanted => part,
        _ => return Some(Err(Error::conflict(format!("{name} has been stopped meanwhile")))),
    };
    if part.is_ready() && part.starts > after {
        return Some(written(&system.part_status(name, part, now)));
    }
    if part.cannot_become_ready() {
        return Some(Err(cannot_start(name, part)));
    }
    let blockers = system.blockers(part).filter_map(|name| system.parts.get_key_value(name));
    let blocked_by = blockers.into_iter().find(|(_, other)| other.cannot_become_ready());
    blocked_by.map(|(other, part)| {
        let error = cannot_start(other, part);
        Err(Error { message: format!("{name} waits for {other}: {}", error.message), ..error })
    })
}

/// Returns the error for a part that is not expected to become ready.
fn cannot_start(name: &str, part: &Part) -> Error {
    let last = part.deaths.back().map(describe).unwrap_or_default();
    let mut message = format!("{name} {last}{}", part.last_line());
    if let State::Failed { cause } = &part.state {
        message.push_str(&format!("; given up after {cause}"));
    }
    Error::unavailable(message).hint(format!("`ken logs {name}` shows more"))
}

fn stopped(system: &System, name: &str, also: &[String], now: Instant) -> Option<Result<Value, Error>> {
    match system.parts.get(name) {
        None => Some(Err(Error::conflict(format!("{name} has been removed meanwhile")))),
        Some(part) if part.wanted => Some(Err(Error::conflict(format!("{name} has been started meanwhile")))),
        Some(part) if part.process().is_some() => None,
        Some(part) => Some(written(&Changed { part: system.part_status(name, part, now), also: also.to_vec() })),
    }
}

/// Sends new log lines while the caller's output buffer has room. Returns what comes next.
fn send_lines(files: &LogFiles, cursor: &mut Cursor, caller: &mut Connection, id: u64, chunk: &mut [u8]) -> Next {
    while caller.has_room() {
        match cursor.read(files, chunk) {
            Next::Lines(lines) => lines.into_iter().for_each(|line| caller.item(id, &LogLine { line })),
            next => return next,
        }
    }
    Next::Lines(Vec::new())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_has_a_name_or_a_number() {
        for text in ["KILL", "SIGKILL", "kill", "sigkill", "9"] {
            assert_eq!(signal(text), Some(Signal::SIGKILL), "{text}");
        }
        for text in ["", "SIG", "0", "99", "-9", "SIGSIGKILL"] {
            assert_eq!(signal(text), None, "{text}");
        }
    }
}
