//! The commands that change the state of parts: start, stop, restart, kill, reload, down.

use std::time::{Duration, Instant};

use clap::Args;
use ken_tool::find_program;
use ken_types::ops::kend::{
    ChangeArgs, Changed, KendReload, KendStop, KendUpgrade, KillArgs, PartState, PartStatus, PartsKill, PartsStatus,
    PartsStop, PartsWaitReady, StatusArgs, StopArgs, SystemStatus, Upgraded, WaitFor, WaitReadyArgs,
};
use ken_types::ops::{Nothing, Op};
use ken_types::places::Places;
use ken_types::{Code, Error};

use crate::client::{GRACE, KEND, call, call_on, connect};
use crate::duration::duration;
use crate::output::{print_line, print_note};
use crate::progress::during;

/// Each part may finish what it has begun.
const UPGRADE_TIMEOUT: Duration = Duration::from_secs(180);

/// The timeout of calls that kend answers at once.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Debug, Args)]
pub(crate) struct Change {
    /// Name of a part; `ken down` and `ken up` are for the whole system
    #[arg(value_name = "PART")]
    pub(crate) name: String,
    /// Return when the part is `ready` (the default of start and restart) or `stopped` (of stop)
    #[arg(long, value_name = "STATE", value_parser = wait_for)]
    pub(crate) wait: Option<WaitFor>,
    /// Return at once
    #[arg(long, conflicts_with = "wait")]
    pub(crate) no_wait: bool,
    /// Timeout: 500ms, 5s, 2m
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "30s")]
    pub(crate) timeout: Duration,
}

#[derive(Debug, Args)]
pub(crate) struct Stop {
    #[command(flatten)]
    pub(crate) change: Change,
    /// Stop the parts that require it too
    #[arg(long)]
    pub(crate) dependents: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Kill {
    /// Name of a part
    pub(crate) name: String,
    /// Name or number of the signal: TERM, 15
    #[arg(short = 's', long, default_value = "KILL")]
    pub(crate) signal: Option<String>,
}

/// Starts or restarts a part, and prints its new state.
pub(crate) fn start<O>(places: &Places, change: &Change) -> Result<(), Error>
where
    O: Op<Args = ChangeArgs, Reply = PartStatus>,
{
    let args = ChangeArgs {
        name: change.name.clone(),
        wait: change.waits(WaitFor::Ready),
        timeout_ms: Some(millis(change.timeout)),
    };
    let what = format!("waiting for {}", change.name);
    let part = during(&what, || call::<O>(places, KEND, &args, Some(change.timeout)))?;
    print_line(&format!("{} {}", part.name, part.state.name()))
}

pub(crate) fn stop(places: &Places, stop: &Stop) -> Result<(), Error> {
    let change = &stop.change;
    let args = StopArgs {
        name: change.name.clone(),
        dependents: stop.dependents,
        wait: change.waits(WaitFor::Stopped),
        timeout_ms: Some(millis(change.timeout)),
    };
    let what = format!("stopping {}", change.name);
    let stopped = during(&what, || call::<PartsStop>(places, KEND, &args, Some(change.timeout)));
    let Changed { part, also } = stopped?;
    let state = part.state.name();
    for name in also.iter().chain([&part.name]) {
        print_line(&format!("{name} {state}"))?;
    }
    let killed = part.deaths.last().filter(|death| death.requested && death.signal == Some(9));
    if part.pid.is_none() && killed.is_some() {
        print_note(&format!("{} did not end within its time and was killed", part.name));
    }
    Ok(())
}

pub(crate) fn kill(places: &Places, kill: &Kill) -> Result<(), Error> {
    let args = KillArgs { name: kill.name.clone(), signal: kill.signal.clone() };
    let sent = call::<PartsKill>(places, KEND, &args, Some(CALL_TIMEOUT))?;
    print_line(&format!("{} {} sent to process {}", sent.name, sent.signal, sent.pid))
}

pub(crate) fn reload(places: &Places) -> Result<(), Error> {
    let done =
        during("reading the configuration", || call::<KendReload>(places, KEND, &Nothing {}, Some(CALL_TIMEOUT)))?;
    for (what, names) in [
        ("added", &done.added),
        ("removed", &done.removed),
        ("restarted", &done.restarted),
        ("started", &done.started),
        ("stopped", &done.stopped),
        ("unchanged", &done.unchanged),
    ] {
        if !names.is_empty() {
            print_line(&format!("{what}: {}", names.join(" ")))?;
        }
    }
    Ok(())
}

/// Lets the programs take over that are installed now, and returns when all parts run them that can.
pub(crate) fn upgrade(places: &Places) -> Result<(), Error> {
    let call_upgrade = || call::<KendUpgrade>(places, KEND, &Nothing {}, Some(CALL_TIMEOUT));
    let done = during("asking the new kend", call_upgrade)?;
    let status = during("waiting for the parts", || replaced(places, &done))?;
    if status.version != done.version {
        let why = format!("kend {} has agreed to take over, but {} still runs", done.version, status.version);
        return Err(Error::unavailable(why).hint("`ken logs kend` says why"));
    }
    print_line(&format!("kend {} has taken over, pid {}", done.version, status.pid))?;
    if !done.parts.is_empty() {
        print_line(&format!("restarted: {}", done.parts.join(" ")))?;
    }
    let missing = |part: &&PartStatus| part.wanted && part.state != PartState::Ready;
    for part in status.parts.iter().filter(missing) {
        let why = part.deaths.last().map(|death| format!(": {}", death.cause)).unwrap_or_default();
        let not_ready = format!("not ready: {} ({}{why})", part.name, part.state.name());
        if done.parts.contains(&part.name) {
            let hint = format!(
                "`ken logs {}` shows more; parts that were to follow it keep the programs that they had",
                part.name
            );
            return Err(Error::unavailable(not_ready).hint(hint));
        }
        print_note(&not_ready);
    }
    note_other_place(&status);
    Ok(())
}

/// Waits until the parts whose programs have been replaced are ready with the new ones, or one of them cannot become ready.
fn replaced(places: &Places, done: &Upgraded) -> Result<SystemStatus, Error> {
    const LOOK: Duration = Duration::from_secs(1);
    let begun = Instant::now();
    let wait = WaitReadyArgs { timeout_ms: Some(millis(LOOK)) };
    loop {
        match call::<PartsWaitReady>(places, KEND, &wait, Some(CALL_TIMEOUT)) {
            Err(error) if error.code == Code::Deadline && begun.elapsed() < UPGRADE_TIMEOUT => {}
            waited => return waited,
        }
        // A part that was not ready before would keep the others waiting for ever.
        let status = call::<PartsStatus>(places, KEND, &StatusArgs::default(), Some(CALL_TIMEOUT))?;
        let of_upgrade = |part: &&PartStatus| done.parts.contains(&part.name);
        let is_new = |part: &PartStatus| part.uptime_ms.is_some_and(|uptime| uptime <= millis(begun.elapsed()));
        let is_lost = |part: &PartStatus| matches!(part.state, PartState::Failed | PartState::Backoff);
        let mut parts = status.parts.iter().filter(of_upgrade);
        if parts.clone().any(is_lost) || parts.all(|part| part.state == PartState::Ready && is_new(part)) {
            return Ok(status);
        }
    }
}

/// Says if kend runs at another place than where this program is installed: what is new here has then not taken over.
fn note_other_place(status: &SystemStatus) {
    let running = std::fs::read_link(format!("/proc/{}/exe", status.pid)).ok();
    let here = find_program(KEND).and_then(|kend| kend.canonicalize().ok());
    if let (Some(running), Some(here)) = (running, here)
        && running != here
    {
        let (running, here) = (running.display(), here.display());
        print_note(&format!(
            "this system runs {running}, and not {here}: `ken down`, then `ken up -d` starts that one"
        ));
    }
}

pub(crate) fn down(places: &Places) -> Result<(), Error> {
    let mut kend = match connect(places, KEND) {
        Err(error) if error.code == Code::Unavailable => {
            print_note("kend is not running");
            return Ok(());
        }
        kend => kend?,
    };
    let done = during("stopping", || {
        let done = call_on::<KendStop>(&mut kend, KEND, &Nothing {}, None)?;
        kend.wait_for_end(GRACE);
        Ok::<_, Error>(done)
    })?;
    for name in done.killed {
        print_note(&format!("{name} did not end within its time and was killed"));
    }
    Ok(())
}

impl Change {
    fn waits(&self, sensible: WaitFor) -> Option<WaitFor> {
        if self.no_wait { None } else { Some(self.wait.unwrap_or(sensible)) }
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn wait_for(text: &str) -> Result<WaitFor, String> {
    match text {
        "ready" => Ok(WaitFor::Ready),
        "stopped" => Ok(WaitFor::Stopped),
        _ => Err(String::from("`ready` or `stopped`")),
    }
}
