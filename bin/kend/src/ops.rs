//! What the control socket can be asked for.

use std::time::Instant;

use ken_types::ops::Nothing;
use ken_types::ops::kend::{
    ChangeArgs, LogLine, LogsArgs, StatusArgs, Stopped, WaitFor, WaitReadyArgs, unknown_part,
};
use ken_types::ops::service::Info;
use ken_types::{Code, Error, json};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::connection::Connection;
use crate::cursor::Cursor;
use crate::logs::Rotating;
use crate::part::{Part, State};
use crate::system::System;

/// All names, sorted.
const NAMES: [&str; 11] = [
    "kend.reload",
    "kend.stop",
    "parts.logs",
    "parts.restart",
    "parts.start",
    "parts.status",
    "parts.stop",
    "parts.wait_ready",
    "service.info",
    "service.ping",
    "service.stats",
];
const MOST_LINES: u32 = 10_000;

/// What comes of a request.
pub(crate) enum Answer {
    Now(Value),
    /// Later, at the latest after so many milliseconds if the caller said so.
    Later(Pending, Option<u64>),
}

/// What a request waits for. Looked at whenever something has happened, never by the clock.
pub(crate) enum Pending {
    AllReady,
    Ready {
        name: String,
        /// Only a process after so many starts counts.
        after: u64,
    },
    Stopped {
        name: String,
    },
    Down,
    Logs {
        name: String,
        cursor: Cursor,
        follow: bool,
    },
}

impl Pending {
    /// Whether the deadline of the request ends it.
    pub(crate) fn has_deadline(&self) -> bool {
        !matches!(self, Pending::Down | Pending::Logs { .. })
    }

    /// For the message when it takes too long.
    pub(crate) fn late(&self, system: &System, now: Instant) -> Error {
        let name = match self {
            Pending::Ready { name, .. } | Pending::Stopped { name } => name,
            _ => return Error::deadline("not all parts got ready in time").hint("`ken status` shows which"),
        };
        let status = system.parts.get(name).map(|part| part.status(name, now));
        let state = status.as_ref().map_or("gone", |status| status.state.name());
        let last = status.and_then(|status| status.last_exit);
        let last = last
            .map(|last| format!(", it last ended by: {last}"))
            .unwrap_or_default();
        Error::deadline(format!("{name} is still {state}{last}"))
    }
}

/// Does what is asked, or says what it waits for.
pub(crate) fn call(system: &mut System, op: &str, args: Value, now: Instant) -> Result<Answer, Error> {
    match op {
        "service.info" => read(args).and_then(|Nothing {}| give(&info())),
        "service.ping" => read(args).and_then(|Nothing {}| give(&Nothing {})),
        "service.stats" => read(args).and_then(|Nothing {}| give(&stats(system))),
        "parts.status" => status(system, &read(args)?, now),
        "parts.start" => change(system, read(args)?, WaitFor::Ready, System::want, now),
        "parts.stop" => change(system, read(args)?, WaitFor::Stopped, System::unwant, now),
        "parts.restart" => change(system, read(args)?, WaitFor::Ready, System::renew, now),
        "parts.wait_ready" => {
            let args: WaitReadyArgs = read(args)?;
            Ok(Answer::Later(Pending::AllReady, args.timeout_ms))
        }
        "parts.logs" => logs(system, read(args)?),
        "kend.reload" => {
            let Nothing {} = read(args)?;
            let done = system.reload().map_err(|errors| {
                Error::new(Code::Invalid, errors.join("\n"))
                    .hint("the last good configuration stays in force")
            })?;
            give(&done)
        }
        "kend.stop" => {
            let Nothing {} = read(args)?;
            system.stop();
            Ok(Answer::Later(Pending::Down, None))
        }
        _ => Err(Error::not_found(format!("kend has no operation `{op}`"))
            .hint("service.info lists what there is")),
    }
}

fn read<T: DeserializeOwned>(args: Value) -> Result<T, Error> {
    json::from_value(args).map_err(|error| {
        let at = format!("/args{}", error.at.as_deref().unwrap_or_default());
        error.at(at)
    })
}

fn give(value: &impl Serialize) -> Result<Answer, Error> {
    written(value).map(Answer::Now)
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

fn status(system: &System, args: &StatusArgs, now: Instant) -> Result<Answer, Error> {
    let mut all = system.status(now);
    if let Some(name) = &args.name {
        all.parts.retain(|part| part.name == *name);
        if all.parts.is_empty() {
            return Err(unknown_part(name).at("/args/name"));
        }
    }
    give(&all)
}

fn change(
    system: &mut System,
    args: ChangeArgs,
    sensible: WaitFor,
    act: fn(&mut System, &str),
    now: Instant,
) -> Result<Answer, Error> {
    let name = args.name;
    let Some(part) = system.parts.get(&name).filter(|part| !part.removed) else {
        return Err(unknown_part(&name).at("/args/name"));
    };
    if system.stopping {
        return Err(Error::unavailable("kend is stopping"));
    }
    if args.wait.is_some_and(|wait| wait != sensible) {
        return Err(Error::invalid("/args/wait", "this would never come to be"));
    }
    let starts = part.starts;
    act(system, &name);
    let renewed = system.parts.get(&name).is_some_and(|part| part.again);
    let after = if renewed { starts } else { 0 };
    match args.wait {
        Some(WaitFor::Ready) => Ok(Answer::Later(Pending::Ready { name, after }, args.timeout_ms)),
        Some(WaitFor::Stopped) => Ok(Answer::Later(Pending::Stopped { name }, args.timeout_ms)),
        None => give(&system.parts.get(&name).map(|part| part.status(&name, now))),
    }
}

fn logs(system: &System, args: LogsArgs) -> Result<Answer, Error> {
    if args.lines > MOST_LINES {
        return Err(Error::invalid("/args/lines", format!("at most {MOST_LINES}")));
    }
    let log = system
        .log(&args.name)
        .ok_or_else(|| unknown_part(&args.name).at("/args/name"))?;
    let pending = Pending::Logs {
        cursor: Cursor::last(log, args.lines),
        name: args.name,
        follow: args.follow,
    };
    Ok(Answer::Later(pending, None))
}

impl System {
    fn log(&self, name: &str) -> Option<&Rotating> {
        match name {
            "kend" => Some(&self.journal.out),
            _ => self.parts.get(name).map(|part| &part.log.out),
        }
    }
}

/// The final line, when what a request waits for has come. Log lines go out on the way.
pub(crate) fn settle(
    pending: &mut Pending,
    system: &System,
    caller: &mut Connection,
    id: u64,
    chunk: &mut [u8],
    now: Instant,
) -> Option<Result<Value, Error>> {
    match pending {
        Pending::AllReady => system.is_ready().then(|| written(&system.status(now))),
        Pending::Ready { name, after } => ready(system, name, *after, now),
        Pending::Stopped { name } => stopped(system, name, now),
        Pending::Down => system.is_down().then(|| {
            written(&Stopped {
                killed: system.killed.clone(),
            })
        }),
        Pending::Logs { name, cursor, follow } => {
            let Some(log) = system.log(name) else {
                return Some(Err(unknown_part(name)));
            };
            let at_end = send_lines(log, cursor, caller, id, chunk);
            (at_end && !*follow).then(|| Ok(json!({})))
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
    if let State::Failed { cause } = &part.state {
        let message = format!("{name} was given up on: {cause}");
        return Some(Err(Error::unavailable(message)));
    }
    (part.is_ready() && part.starts > after).then(|| written(&part.status(name, now)))
}

fn stopped(system: &System, name: &str, now: Instant) -> Option<Result<Value, Error>> {
    match system.parts.get(name) {
        Some(part) if part.wanted => Some(Err(Error::conflict(format!("{name} has been started meanwhile")))),
        Some(part) if part.process().is_some() => None,
        part => Some(written(&part.map(|part| part.status(name, now)))),
    }
}

/// Sends what there is and the caller has room for. True at the present end of the log.
fn send_lines(
    log: &Rotating,
    cursor: &mut Cursor,
    caller: &mut Connection,
    id: u64,
    chunk: &mut [u8],
) -> bool {
    while caller.has_room() {
        let Some(lines) = cursor.read(log, chunk) else {
            return true;
        };
        for line in lines {
            caller.item(id, &LogLine { line });
        }
    }
    false
}
