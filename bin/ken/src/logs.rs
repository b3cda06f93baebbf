//! `ken logs`: prints the logs of the parts, merged by time. It reads the files that kend writes, so it also works
//! while the system is down.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, UNIX_EPOCH};

use clap::Args;
use ken_types::ops::kend::{PartsStatus, StatusArgs, unknown_part};
use ken_types::places::Places;
use ken_types::{Code, Error, Timestamp};
use serde_json::{Map, Value};

use crate::access::denied;
use crate::client::{KEND, call, lost_error};
use crate::output::{print_coloured, print_line, wants_colour};

const DEFAULT_LINES: usize = 50;
const CHUNK: usize = 64 * 1024;
/// How often `--follow` reads the files again.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Log levels, the most severe first. A line without a level counts as INFO.
const LEVELS: [&str; 5] = ["ERROR", "WARN", "INFO", "DEBUG", "TRACE"];
const INFO: u8 = 2;

#[derive(Debug, Args)]
pub(crate) struct Logs {
    /// Names of parts, or kend; all by default
    pub(crate) names: Vec<String>,
    /// Number of lines [default: 50, or all with --since]
    #[arg(short = 'n', long, value_name = "N")]
    pub(crate) lines: Option<usize>,
    /// Keep printing new lines
    #[arg(short = 'f', long)]
    pub(crate) follow: bool,
    /// Print the lines as the parts wrote them, which are JSON for the parts of ken
    #[arg(long)]
    pub(crate) json: bool,
    /// Show lines logged after TIME: 30s, 10m, 2h or 1d ago, or 2026-11-22T04:30 (UTC)
    #[arg(long, value_name = "TIME", value_parser = since)]
    pub(crate) since: Option<i64>,
    /// Show lines of LEVEL and more severe ones: error, warn, info, debug, trace
    #[arg(long, value_name = "LEVEL", value_parser = level)]
    pub(crate) level: Option<u8>,
}

pub(crate) fn run(places: &Places, logs: &Logs) -> Result<(), Error> {
    let guard = logs.follow.then(|| connect(places)).transpose()?;
    let mut tails = open(places, logs)?;
    let view = View::new(logs, &tails);
    let mut records = Vec::new();
    for tail in &mut tails {
        records.extend(tail.last(logs));
    }
    // The sort is stable, so lines of one part keep their order.
    records.sort_by_key(|record| record.time);
    let surplus = records.len().saturating_sub(logs.max_lines());
    records.iter().skip(surplus).try_for_each(|record| view.show(record))?;
    match guard {
        Some(kend) => follow(places, logs, tails, &view, kend),
        None => Ok(()),
    }
}

/// Returns a connection to kend. It is used only to notice when kend ends.
fn connect(places: &Places) -> Result<UnixStream, Error> {
    let stream =
        UnixStream::connect(places.socket("kend")).and_then(|stream| stream.set_nonblocking(true).map(|()| stream));
    let is_down = || {
        Error::unavailable("kend is not running, so there is nothing to follow")
            .hint("without -f this shows what has been logged")
    };
    stream.map_err(|_| lost_error(places).unwrap_or_else(is_down))
}

fn follow(places: &Places, logs: &Logs, mut tails: Vec<Tail>, view: &View, mut kend: UnixStream) -> Result<(), Error> {
    loop {
        let ended = !matches!(kend.read(&mut [0]), Err(error) if error.kind() == ErrorKind::WouldBlock);
        let mut records = Vec::new();
        for tail in &mut tails {
            tail.read(&mut |record| records.extend(Some(record).filter(|record| logs.shows(record))));
        }
        records.sort_by_key(|record| record.time);
        records.iter().try_for_each(|record| view.show(record))?;
        if ended {
            return Err(Error::unavailable("kend has ended"));
        }
        if logs.names.is_empty() {
            let known = |name: &String| tails.iter().any(|tail| tail.name == *name);
            let new: Vec<String> = log_names(places).into_iter().filter(|name| !known(name)).collect();
            tails.extend(new.into_iter().map(|name| Tail::new(places, name)));
        }
        sleep(POLL_INTERVAL);
    }
}

/// Returns the requested logs, or all of them if no names are given. A name is valid if it has a log or if kend has a
/// part of that name.
fn open(places: &Places, logs: &Logs) -> Result<Vec<Tail>, Error> {
    let folder = places.state.join("log");
    if let Err(error) = std::fs::read_dir(&folder)
        && error.kind() == ErrorKind::PermissionDenied
    {
        return Err(denied(&folder, &error));
    }
    let found = log_names(places);
    if logs.names.is_empty() && found.is_empty() {
        let message = format!("nothing has been logged in {}", folder.display());
        return Err(Error::not_found(message));
    }
    for name in logs.names.iter().filter(|name| !found.contains(name)) {
        is_part(places, name).map_err(|error| match error.code {
            Code::Unavailable => unknown_part(name).hint(format!("there are logs of {}", found.join(", "))),
            _ => error,
        })?;
    }
    let names = if logs.names.is_empty() { found } else { logs.names.clone() };
    Ok(names.into_iter().map(|name| Tail::new(places, name)).collect())
}

/// Returns an error if kend has no part of this name.
fn is_part(places: &Places, name: &str) -> Result<(), Error> {
    let args = StatusArgs { name: Some(name.to_owned()), ..StatusArgs::default() };
    call::<PartsStatus>(places, KEND, &args, Some(Duration::from_secs(5))).map(drop)
}

/// Returns the names of all logs: those of the parts, and kend's own.
fn log_names(places: &Places) -> Vec<String> {
    let entries = std::fs::read_dir(places.state.join("log")).into_iter().flatten().flatten();
    let mut names: Vec<String> =
        entries.filter_map(|entry| Some(entry.file_name().to_str()?.strip_suffix(".log")?.to_owned())).collect();
    names.sort();
    names
}

impl Logs {
    fn max_lines(&self) -> usize {
        self.lines.unwrap_or(if self.since.is_some() { usize::MAX } else { DEFAULT_LINES })
    }

    /// A time is in milliseconds since 1970, and a level an index into `LEVELS`.
    fn shows(&self, record: &Record) -> bool {
        self.since.is_none_or(|since| record.time >= since) && self.level.is_none_or(|level| record.level() <= level)
    }

    fn shows_all(&self) -> bool {
        self.since.is_none() && self.level.is_none()
    }
}

struct Record {
    part: String,
    line: String,
    /// The parsed line, if it is a JSON object.
    fields: Option<Map<String, Value>>,
    /// In milliseconds since 1970. A line without a time has the time of the line before it.
    time: i64,
}

impl Record {
    fn new(part: &str, line: String, before: i64) -> Record {
        let fields: Option<Map<String, Value>> = serde_json::from_str(&line).ok();
        let time = fields.as_ref().and_then(|fields| {
            let text = fields.get("timestamp")?.as_str()?;
            Some(Timestamp::from_rfc3339(text).ok()?.millis())
        });
        Record { part: part.to_owned(), line, fields, time: time.unwrap_or(before) }
    }

    fn text(&self, key: &str) -> Option<&str> {
        self.fields.as_ref()?.get(key)?.as_str()
    }

    fn level(&self) -> u8 {
        self.text("level").and_then(|name| level(name).ok()).unwrap_or(INFO)
    }
}

struct View {
    json: bool,
    /// The width of the column of part names. `None` if a single part was named, because the column is then left out.
    names: Option<usize>,
    colour: bool,
}

impl View {
    fn new(logs: &Logs, tails: &[Tail]) -> View {
        let longest = tails.iter().map(|tail| tail.name.len()).max();
        View { json: logs.json, names: longest.filter(|_| logs.names.len() != 1), colour: wants_colour() }
    }

    fn show(&self, record: &Record) -> Result<(), Error> {
        let line = if self.json { record.line.clone() } else { self.readable(record) };
        match (self.colour && !self.json, record.level()) {
            (true, 0) => print_coloured(&[(Some(31), &line)]),
            (true, 1) => print_coloured(&[(Some(33), &line)]),
            _ => print_line(&line),
        }
    }

    /// Formats a JSON record as `TIME LEVEL PART message key=value`. Any other line is kept as it is, after the name of
    /// its part.
    fn readable(&self, record: &Record) -> String {
        let part = self.names.map(|width| format!("{:width$}  ", record.part)).unwrap_or_default();
        let Some(message) = record.text("message") else {
            return format!("{part}{}", record.line);
        };
        let time = Timestamp::from_millis(record.time);
        let level = LEVELS.get(usize::from(record.level())).copied().unwrap_or_default();
        let mut text = format!("{time} {level:5} {part}{}", message.replace('\n', "\n    "));
        for (key, value) in record.fields.iter().flatten() {
            if !["timestamp", "level", "target", "message"].contains(&key.as_str()) {
                let plain = value.as_str().filter(|text| !text.contains([' ', '"', '\n']));
                let value = plain.map_or_else(|| value.to_string(), str::to_owned);
                text.push_str(&format!(" {key}={value}"));
            }
        }
        text
    }
}

/// Reads the log of one part to its end and as it grows, across rotations.
struct Tail {
    name: String,
    path: PathBuf,
    file: Option<File>,
    /// The start of a line that is not complete yet.
    rest: Vec<u8>,
    /// The time of the last line.
    time: i64,
}

impl Tail {
    fn new(places: &Places, name: String) -> Tail {
        Tail { path: places.log(&name), name, file: None, rest: Vec::new(), time: 0 }
    }

    /// Returns the last lines that are shown, oldest first. After that, [`Tail::read`] returns only newer
    /// lines.
    fn last(&mut self, logs: &Logs) -> VecDeque<Record> {
        self.file = self.first_file(logs).and_then(|path| File::open(path).ok());
        let mut last = VecDeque::new();
        self.read(&mut |record| {
            if logs.shows(&record) {
                if last.len() >= logs.max_lines() {
                    last.pop_front();
                }
                last.extend(Some(record).filter(|_| logs.max_lines() > 0));
            }
        });
        last
    }

    /// Returns the file to start with: the newest one that gives enough lines, or that starts before the
    /// earliest time.
    fn first_file(&self, logs: &Logs) -> Option<PathBuf> {
        let mut lines = 0;
        let mut best = None;
        for age in 0.. {
            let path = self.rotated_path(age);
            let Ok(meta) = std::fs::metadata(&path) else { break };
            let written = meta.modified().ok().and_then(|at| at.duration_since(UNIX_EPOCH).ok());
            let written = written.and_then(|at| i64::try_from(at.as_millis()).ok()).unwrap_or(i64::MAX);
            if best.is_some() && logs.since.is_some_and(|since| written < since) {
                break;
            }
            if logs.shows_all() {
                lines += count_lines(&path);
            }
            best = Some(path);
            if lines > logs.max_lines() {
                break;
            }
        }
        best
    }

    /// Passes each line written since the last call to `each`.
    fn read(&mut self, each: &mut dyn FnMut(Record)) {
        if self.file.is_none() {
            self.file = File::open(&self.path).ok();
        }
        self.drain(each);
        while let Some(next) = self.next_file() {
            // The file may have grown between the last read and its rotation.
            self.drain(each);
            self.file = File::open(next).ok();
            self.drain(each);
        }
    }

    fn drain(&mut self, each: &mut dyn FnMut(Record)) {
        let Some(file) = &mut self.file else { return };
        let mut chunk = vec![0; CHUNK];
        while let Ok(count @ 1..) = file.read(&mut chunk) {
            for piece in chunk.get(..count).unwrap_or_default().split_inclusive(|byte| *byte == b'\n') {
                self.rest.extend_from_slice(piece);
                if let Some(line) = self.rest.strip_suffix(b"\n") {
                    let line = String::from_utf8_lossy(line).into_owned();
                    self.rest.clear();
                    let record = Record::new(&self.name, line, self.time);
                    self.time = record.time;
                    each(record);
                }
            }
        }
    }

    /// Returns the file that follows the open one if that has been rotated. If the open one has been deleted, returns
    /// the oldest file that still exists.
    fn next_file(&self) -> Option<PathBuf> {
        let own = self.file.as_ref()?.metadata().ok()?.ino();
        let mut newer = None;
        for age in 0.. {
            let path = self.rotated_path(age);
            match std::fs::metadata(&path) {
                Ok(meta) if meta.ino() == own => return newer,
                Ok(_) => newer = Some(path),
                Err(_) => break,
            }
        }
        newer
    }

    fn rotated_path(&self, age: u32) -> PathBuf {
        match age {
            0 => self.path.clone(),
            _ => PathBuf::from(format!("{}.{age}", self.path.display())),
        }
    }
}

fn count_lines(path: &Path) -> usize {
    let bytes = std::fs::read(path).unwrap_or_default();
    bytes.iter().filter(|byte| **byte == b'\n').count()
}

/// Parses a level and returns its index in `LEVELS`.
fn level(text: &str) -> Result<u8, String> {
    let found = (0..).zip(LEVELS).find(|(_, name)| name.eq_ignore_ascii_case(text));
    found.map(|(number, _)| number).ok_or_else(|| String::from("error, warn, info, debug or trace"))
}

/// Parses a time and returns milliseconds since 1970. The text is an age (`30s`, `10m`, `2h`, `1d`), or a date or time
/// of RFC 3339 whose end may be left out.
fn since(text: &str) -> Result<i64, String> {
    let wrong = || String::from("30s, 10m, 2h, 1d, or a time such as 2026-11-22T04:30 (UTC)");
    let unit = match text.chars().last() {
        Some('s') => Some(1_000),
        Some('m') => Some(60_000),
        Some('h') => Some(3_600_000),
        Some('d') => Some(86_400_000),
        _ => None,
    };
    if let Some(unit) = unit {
        let number = text.get(..text.len() - 1).and_then(|number| number.parse::<u32>().ok());
        let ago = i64::from(number.ok_or_else(wrong)?) * unit;
        return Ok(Timestamp::now().plus_millis(-ago).millis());
    }
    // Completes a shortened time. The date must be complete.
    let rest = "0000-01-01T00:00:00Z".get(text.len().max(10)..).unwrap_or_default();
    let time = Timestamp::from_rfc3339(&format!("{text}{rest}"));
    time.map(Timestamp::millis).map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        let at = |text: &str| Timestamp::from_rfc3339(text).unwrap().millis();
        for (text, full) in [
            ("2026-11-22", "2026-11-22T00:00:00Z"),
            ("2026-11-22T04", "2026-11-22T04:00:00Z"),
            ("2026-11-22T04:30", "2026-11-22T04:30:00Z"),
            ("2026-11-22T04:30:05.250Z", "2026-11-22T04:30:05.250Z"),
            ("2026-11-22T04:30:05+01:00", "2026-11-22T03:30:05Z"),
        ] {
            assert_eq!(since(text), Ok(at(full)), "{text}");
        }
        let ago = Timestamp::now().millis() - since("2h").unwrap();
        assert!((7_140_000..=7_200_000).contains(&ago), "{ago}");
        for text in ["", "h", "x", "1w", "-1h", "2026-13-01", "yesterday", "é"] {
            assert!(since(text).is_err(), "{text}");
        }
    }
}
