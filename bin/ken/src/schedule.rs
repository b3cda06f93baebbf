//! `ken schedule`: manages prompts that run at set times. See ken-schedule(1).

use std::process;

use clap::{Args, Subcommand};
use ken_client::Gateway;
use ken_types::ops::schedules::{
    Delivery, MAX_LISTED_SLOTS, Missed, Overlap, RunState, SCHEDULE_PROMPT_BYTES, Schedule as Record, ScheduleKind,
    ScheduleRun, Settings,
};
use ken_types::uri::{encode_query, encode_segment};
use ken_types::{Code, Error, Timestamp};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::client::parse_reply;
use crate::external::{exec, installed, printed};
use crate::gateway;
use crate::globals::Globals;
use crate::ids::SESSION;
use crate::input::words_or_stdin;
use crate::output::{print_json, print_line, print_list, print_note, print_table};
use crate::progress::during;

const TARGET: &str = "/api/schedules";
/// How much of a result stands in the list of runs.
const NOTE_CHARACTERS: usize = 60;

const EXAMPLES: &str = "Examples:
  ken schedule add morning --cron '0 9 * * MON-FRI' --tz Europe/Zurich 'Summarise the night.'
  ken schedule add pulse --every 90m 'Is everything well?'
  ken schedule run morning --wait
  ken schedule preview '30 2 * * *' --tz Europe/Zurich

Manual: ken-schedule(1)";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Schedule {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List schedules by slug
    List(ListArgs),
    /// Add a schedule
    Add(Box<Add>),
    /// Show a schedule and its last runs
    Show(Show),
    /// Pause schedules: they do not fire until they are resumed
    Pause(Slugs),
    /// Resume paused schedules
    Resume(Slugs),
    /// Start a run now, even if the schedule is paused, and print its id
    Run(Run),
    /// List the runs of a schedule, or of all, newest first
    Runs(Runs),
    /// Delete schedules
    Rm(Slugs),
    /// List the schedules that fire next, or the next times of one: next [SLUG] [N]
    Next(Next),
    /// Show when a cron expression fires; the system need not run
    Preview(Preview),
}

#[derive(Debug, Args)]
struct ListArgs {
    /// Also list those that have ended
    #[arg(long)]
    all: bool,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
}

const ADD_USAGE: &str = "ken schedule add [OPTIONS] <--cron EXPRESSION|--every INTERVAL|--at TIME> <SLUG> [PROMPT]...";
const ADD_EXAMPLE: &str = "ken schedule add morning --cron '0 9 * * MON-FRI' 'Summarise the night.'";

#[derive(Debug, Args)]
#[command(override_usage = ADD_USAGE)]
struct Add {
    /// Name: 1 to 64 of a-z, 0-9 and -
    // Checked by `add`, whose error has an example.
    slug: Option<String>,
    /// Fire whenever this cron expression matches
    #[arg(long, value_name = "EXPRESSION", group = "when")]
    cron: Option<String>,
    /// Fire at this interval, such as 90m
    #[arg(long, value_name = "INTERVAL", group = "when")]
    every: Option<String>,
    /// Fire once, at an instant or a local time
    #[arg(long, value_name = "TIME", group = "when")]
    at: Option<String>,
    /// Time zone, such as Europe/Zurich
    #[arg(long, value_name = "ZONE")]
    tz: Option<String>,
    /// Which slots run if they are found too late: skip (none), last or all
    #[arg(long, value_name = "POLICY", value_parser = policy::<Missed>)]
    missed: Option<Missed>,
    /// What happens to slots that are due while a run is active: skip or queue
    #[arg(long, value_name = "POLICY", value_parser = policy::<Overlap>)]
    overlap: Option<Overlap>,
    /// Add the results to this session: its id, its beginning or end, its name, or `last`
    #[arg(long, value_name = "ID")]
    deliver_to: Option<String>,
    /// Any other field of ken-schedule(5); may be repeated
    #[arg(long = "set", value_name = "FIELD=JSON", value_parser = field)]
    set: Vec<(String, Value)>,
    /// Overwrite the schedule with this name
    #[arg(long)]
    replace: bool,
    /// Print the schedule as JSON
    #[arg(long)]
    json: bool,
    /// The prompt; without it, or with -, standard input is read
    prompt: Vec<String>,
}

#[derive(Debug, Args)]
struct Show {
    /// Name of the schedule
    slug: String,
    /// Id of an older schedule with this name, which has ended
    #[arg(long)]
    id: Option<String>,
    /// Print the schedule as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct Slugs {
    /// Names of schedules
    #[arg(required = true)]
    slugs: Vec<String>,
}

#[derive(Debug, Args)]
struct Run {
    /// Name of the schedule
    slug: String,
    /// Wait up to a minute for the run to end, and print the result
    #[arg(long)]
    wait: bool,
}

#[derive(Debug, Args)]
struct Runs {
    /// Name of a schedule; without it, the runs of all schedules are listed
    slug: Option<String>,
    /// Id of an older schedule with this name, which has ended
    #[arg(long, requires = "slug")]
    id: Option<String>,
    /// Maximum number of runs
    #[arg(short = 'n', long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=500))]
    limit: u32,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct Next {
    /// Name of a schedule: show its next times; without it, all schedules are listed
    slug: Option<String>,
    /// Number of schedules or times to list [default: 10]
    #[arg(value_name = "N", value_parser = clap::value_parser!(u32).range(1..=MAX_LISTED_SLOTS))]
    number: Option<u32>,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct Preview {
    /// Five fields, or six with seconds first
    expression: String,
    /// Time zone
    #[arg(long, value_name = "ZONE", default_value = "UTC")]
    tz: String,
    /// Number of times to list
    #[arg(short = 'n', long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=MAX_LISTED_SLOTS))]
    number: u32,
    /// Print one JSON object on one line
    #[arg(long)]
    json: bool,
}

/// Parses a policy by its name in JSON.
fn policy<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    let named = serde_json::from_value(Value::String(text.to_owned()));
    named.map_err(|error| error.to_string().replace('`', ""))
}

fn field(text: &str) -> Result<(String, Value), String> {
    let (name, value) = text.split_once('=').ok_or("FIELD=JSON is expected")?;
    let value = serde_json::from_str(value).unwrap_or_else(|_| Value::String(value.to_owned()));
    Ok((name.to_owned(), value))
}

pub(crate) fn run(globals: &Globals, schedule: &Schedule) -> Result<(), Error> {
    if let Command::Preview(args) = &schedule.command {
        return preview(args);
    }
    let gateway = &mut gateway::find(globals)?;
    match &schedule.command {
        Command::List(shown) => print(&all(gateway, shown.all)?, shown.json),
        Command::Add(new) => add(gateway, new),
        Command::Show(args) => show(gateway, args),
        Command::Pause(several) => each(several, |slug| post_action(gateway, slug, "pause").map(drop)),
        Command::Resume(several) => each(several, |slug| post_action(gateway, slug, "resume").map(drop)),
        Command::Rm(several) => each(several, |slug| gateway.delete(&target(slug)).map(drop)),
        Command::Run(args) => start(gateway, args),
        Command::Runs(args) => runs(gateway, args),
        Command::Next(args) => next(gateway, args),
        Command::Preview(_) => Ok(()),
    }
}

fn target(slug: &str) -> String {
    format!("{TARGET}/{}", encode_segment(slug))
}

/// Returns the query that names an older schedule, in front of another parameter.
fn older(id: Option<&String>) -> String {
    id.map_or_else(String::new, |id| format!("id={}&", encode_query(id)))
}

fn each(several: &Slugs, mut act: impl FnMut(&str) -> Result<(), Error>) -> Result<(), Error> {
    several.slugs.iter().try_for_each(|slug| act(slug))
}

fn post_action(gateway: &mut Gateway, slug: &str, what: &str) -> Result<Value, Error> {
    gateway.post(&format!("{}/{what}", target(slug)), &json!({}))
}

/// Converts a field of a reply to a record.
fn read<T: DeserializeOwned>(answer: &mut Value, name: &str) -> Result<T, Error> {
    parse_reply("gateway", answer.get_mut(name).map(Value::take).unwrap_or_default())
}

fn time(ms: Option<i64>) -> String {
    let second = |ms: i64| Timestamp::from_millis(ms - ms.rem_euclid(1_000)).to_string().replace(".000Z", "Z");
    ms.map_or_else(|| "-".to_owned(), second)
}

fn status(state: Option<RunState>) -> String {
    state.map_or("-", RunState::name).to_owned()
}

/// Returns the schedules, with `ended` also those that have ended.
fn all(gateway: &mut Gateway, ended: bool) -> Result<Vec<Value>, Error> {
    let target = format!("{TARGET}?all={ended}");
    let mut answer = during("waiting for the gateway", || gateway.get(&target))?;
    read(&mut answer, "schedules")
}

fn print(schedules: &[Value], as_json: bool) -> Result<(), Error> {
    let row = |schedule: &Value| {
        let text = |name: &str| schedule.get(name).and_then(Value::as_str).unwrap_or("-").to_owned();
        let instant = |name: &str| time(schedule.get(name).and_then(Value::as_i64));
        let is_enabled = schedule.get("enabled") == Some(&Value::Bool(true));
        let has_ended = schedule.get("endedAt").is_some_and(Value::is_number);
        [
            text("slug"),
            text("kind"),
            state(is_enabled, has_ended).to_owned(),
            instant("nextFireAt"),
            instant("lastFiredAt"),
            match text("lastDelivery").as_str() {
                "failed" => format!("{}, not delivered", text("lastRunStatus")),
                _ => text("lastRunStatus"),
            },
        ]
    };
    print_list(schedules, as_json, ["SLUG", "KIND", "STATE", "NEXT", "LAST", "RESULT"], row)
}

fn state(is_enabled: bool, has_ended: bool) -> &'static str {
    match (is_enabled, has_ended) {
        (_, true) => "ended",
        (true, _) => "active",
        (false, _) => "paused",
    }
}

fn next(gateway: &mut Gateway, args: &Next) -> Result<(), Error> {
    const NUMBER: u32 = 10;
    // If the only argument is a number, it is the number of schedules to list.
    let number = match (&args.slug, args.number) {
        (None, _) => NUMBER,
        (Some(word), None) if word.bytes().all(|byte| byte.is_ascii_digit()) => {
            let wrong = || Error::invalid("N", format!("{word} is not a number from 1 to {MAX_LISTED_SLOTS}"));
            let number = word.parse().ok();
            number.filter(|number| (1..=MAX_LISTED_SLOTS).contains(&i64::from(*number))).ok_or_else(wrong)?
        }
        (Some(slug), number) => return times(gateway, slug, number.unwrap_or(NUMBER), args.json),
    };
    let fires = |schedule: &Value| schedule.get("nextFireAt").and_then(Value::as_i64);
    let mut schedules = all(gateway, false)?;
    schedules.retain(|schedule| fires(schedule).is_some());
    schedules.sort_by_key(fires);
    schedules.truncate(number as usize);
    print(&schedules, args.json)
}

fn times(gateway: &mut Gateway, slug: &str, number: u32, as_json: bool) -> Result<(), Error> {
    let mut answer = gateway.get(&target(slug))?;
    let record: Record = read(&mut answer, "schedule")?;
    let Some(first) = record.next_fire_at else {
        let fires_later = !record.enabled && record.ended_at.is_none();
        print_note(&format!("{slug} {}", if fires_later { "is paused" } else { "does not fire any more" }));
        return Ok(());
    };
    let is_last = number == 1 || matches!(record.settings.kind, ScheduleKind::At);
    let later = if is_last { Vec::new() } else { times_after(&record.settings, first, number - 1)? };
    std::iter::once(first).chain(later).try_for_each(|at| {
        if as_json { print_json(&json!({"slug": slug, "nextFireAt": at})) } else { print_line(&time(Some(at))) }
    })
}

/// Returns the next `number` times at which a schedule fires after `at`, in milliseconds since 1970, without jitter.
/// ken-scheduler computes them; `at` is itself a time at which the schedule fires.
fn times_after(settings: &Settings, at: i64, number: u32) -> Result<Vec<i64>, Error> {
    #[derive(Deserialize)]
    struct Preview {
        slots: Vec<Slot>,
    }
    #[derive(Deserialize)]
    struct Slot {
        at: i64,
    }
    let kind = serde_json::to_value(settings.kind).map_err(|error| Error::internal(error.to_string()))?;
    let mut command = previewing("compact", number, &settings.timezone)?;
    command.args(["--kind", kind.as_str().unwrap_or_default()]);
    command.args(["--after", &Timestamp::from_millis(at).to_string(), "--", &settings.schedule]);
    let preview: Preview = serde_json::from_slice(&printed(&mut command, Code::Internal)?)
        .map_err(|error| Error::internal(format!("the answer of ken-scheduler is not understood: {error}")))?;
    Ok(preview.slots.into_iter().map(|slot| slot.at).collect())
}

fn add(gateway: &mut Gateway, new: &Add) -> Result<(), Error> {
    let Some(slug) = &new.slug else {
        return Err(Error::invalid("SLUG", "the name of the schedule is missing").hint(ADD_EXAMPLE));
    };
    let when = [("cron", &new.cron), ("every", &new.every), ("at", &new.at)];
    let Some((kind, schedule)) = when.iter().find_map(|(kind, text)| Some((kind, text.as_ref()?))) else {
        let message = "the time is missing: --cron EXPRESSION, --every INTERVAL or --at TIME";
        return Err(Error::invalid("--cron", message).hint(ADD_EXAMPLE));
    };
    let prompt = words_or_stdin(&new.prompt, SCHEDULE_PROMPT_BYTES, "PROMPT", ADD_EXAMPLE)?;
    if prompt.len() > SCHEDULE_PROMPT_BYTES {
        return Err(Error::invalid("/prompt", format!("prompt has more than {SCHEDULE_PROMPT_BYTES} bytes")));
    }
    let deliver_to = new.deliver_to.as_ref().map(|word| SESSION.find(gateway, word)).transpose()?;
    let mut body = json!({"slug": slug, "kind": kind, "schedule": schedule, "prompt": prompt});
    if let Some(fields) = body.as_object_mut() {
        let optional = [
            ("tz", new.tz.as_ref().map(|zone| json!(zone))),
            ("missed", new.missed.map(|policy| json!(policy))),
            ("overlap", new.overlap.map(|policy| json!(policy))),
            ("deliverTo", deliver_to.map(|session| json!({"session": session.id}))),
            ("replace", new.replace.then_some(json!(true))),
        ];
        let given = optional.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
        fields.extend(given);
        fields.extend(new.set.iter().cloned());
    }
    let mut answer = during("adding", || gateway.post(TARGET, &body)).map_err(|error| match error.at.as_deref() {
        Some("/slug") if error.code == Code::Conflict => error.hint("--replace overwrites it"),
        _ => error,
    })?;
    let record = answer.get_mut("schedule").map(Value::take).unwrap_or_default();
    if new.json { print_json(&record) } else { print_line(&time(record.get("nextFireAt").and_then(Value::as_i64))) }
}

fn show(gateway: &mut Gateway, args: &Show) -> Result<(), Error> {
    let (target, query) = (target(&args.slug), older(args.id.as_ref()));
    let mut answer = gateway.get(&format!("{target}?{query}"))?;
    if args.json {
        return print_json(answer.get("schedule").unwrap_or(&Value::Null));
    }
    let record: Record = read(&mut answer, "schedule")?;
    let settings = &record.settings;
    let shown = |value: &Value| match value {
        Value::String(text) => text.clone(),
        Value::Null => "-".to_owned(),
        other => other.to_string(),
    };
    let rows = [
        ("slug", record.slug.clone()),
        ("id", record.id.clone()),
        ("state", state(record.enabled, record.ended_at.is_some()).to_owned()),
        ("ended", time(record.ended_at)),
        ("fires", format!("{} {}", shown(&json!(settings.kind)), settings.schedule)),
        ("timezone", settings.timezone.clone()),
        ("next", time(record.next_fire_at)),
        ("last", time(record.last_fired_at)),
        ("result", status(record.last_run_status)),
        ("owner", record.owner_scope.clone()),
        ("agent", settings.target_agent.clone()),
        ("missed", format!("{}, later than {} ms", shown(&json!(settings.missed)), settings.grace_ms)),
        ("overlap", shown(&json!(settings.overlap))),
        ("timeout", format!("{} ms", settings.timeout_ms)),
        ("attempts", settings.max_attempts.to_string()),
        ("delivery", shown(&json!(settings.deliver_to))),
    ];
    for (name, value) in rows {
        print_line(&format!("{name:10} {value}"))?;
    }
    print_line("")?;
    print_line(record.prompt.trim_end())?;
    print_line("")?;
    let mut answer = gateway.get(&format!("{target}/runs?{query}limit=5"))?;
    print_runs(&read::<Vec<ScheduleRun>>(&mut answer, "runs")?)
}

fn start(gateway: &mut Gateway, args: &Run) -> Result<(), Error> {
    if !args.wait {
        let answer = post_action(gateway, &args.slug, "run")?;
        return print_line(answer.get("runId").and_then(Value::as_str).unwrap_or_default());
    }
    let answer = during("running", || post_action(gateway, &args.slug, "run?wait=1"))?;
    let text = |name: &str| answer.get(name).and_then(Value::as_str).unwrap_or_default();
    print_line(text("resultText").trim_end())?;
    if text("delivery") == Delivery::Failed.name() {
        print_note(text("error"));
    }
    Ok(())
}

fn runs(gateway: &mut Gateway, args: &Runs) -> Result<(), Error> {
    let list = match &args.slug {
        Some(slug) => format!("{}/runs?{}", target(slug), older(args.id.as_ref())),
        None => "/api/schedule-runs?".to_owned(),
    };
    let mut answer = during("waiting for the gateway", || gateway.get(&format!("{list}limit={}", args.limit)))?;
    if args.json {
        let runs: Vec<Value> = read(&mut answer, "runs")?;
        return runs.iter().try_for_each(print_json);
    }
    print_runs(&read::<Vec<ScheduleRun>>(&mut answer, "runs")?)
}

fn print_runs(runs: &[ScheduleRun]) -> Result<(), Error> {
    let row = |run: &ScheduleRun| {
        let took = run.finished_at.zip(run.started_at).map(|(end, start)| end - start);
        let why = run.reason.and_then(|reason| serde_json::to_value(reason).ok());
        let why = why.as_ref().and_then(Value::as_str);
        let result = run.result_text.as_deref().map(|text| text.chars().take(NOTE_CHARACTERS).collect());
        let note = why.or(run.error.as_deref()).map(str::to_owned).or(result);
        [
            run.run_id.clone(),
            run.slug.clone(),
            match (run.slot_at, run.started_at) {
                (None, None) => "by hand".to_owned(),
                (None, at) => format!("{} by hand", time(at)),
                (slot, _) => time(slot),
            },
            run.status.name().to_owned(),
            run.attempt.to_string(),
            took.map_or_else(|| "-".to_owned(), |ms| format!("{ms} ms")),
            if run.delivery == Delivery::None { "-" } else { run.delivery.name() }.to_owned(),
            note.unwrap_or_else(|| "-".to_owned()),
        ]
    };
    print_table(["RUN", "SCHEDULE", "SLOT", "STATUS", "TRY", "TOOK", "DELIVERY", "NOTE"], runs.iter().map(row))
}

fn preview(args: &Preview) -> Result<(), Error> {
    let format = if args.json { "compact" } else { "summary" };
    let mut command = previewing(format, args.number, &args.tz)?;
    Err(exec(command.arg("--").arg(&args.expression)))
}

/// Returns the command `ken-scheduler preview`. The caller appends the schedule.
fn previewing(format: &str, number: u32, zone: &str) -> Result<process::Command, Error> {
    let mut command = installed("ken-scheduler")?;
    command.args(["preview", "--format", format, "--number", &number.to_string(), "--tz", zone]);
    Ok(command)
}
