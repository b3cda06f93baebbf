//! Commands that change something: start, stop, restart, kill, reload, down.

use std::process::ExitCode;
use std::time::Duration;

use ken_types::ops::kend::{
    ChangeArgs, Changed, KillArgs, Killed, PartStatus, Reloaded, StopArgs, Stopped, WaitFor,
};
use ken_types::places::Places;
use ken_types::{Code, Error};
use ken_wire::blocking::Client;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::cli::{Change, Kill, Stop};
use crate::client::{self, GRACE};
use crate::output::{Outcome, remark, say};
use crate::progress::during;

pub(crate) const KEND: &str = "kend";
/// For what is answered at once.
const SOON: Duration = Duration::from_secs(10);

pub(crate) fn kend(places: &Places) -> Result<Client, Error> {
    client::connect(&places.socket(KEND), KEND)
}

/// What a part has answered. One of another version may answer something else.
pub(crate) fn typed<T: DeserializeOwned>(part: &str, value: Value) -> Result<T, Error> {
    serde_json::from_value(value).map_err(|error| {
        Error::internal(format!("the answer of {part} is not understood: {error}"))
            .hint(format!("are ken and {part} of one version?"))
    })
}

/// The arguments of an operation as they travel.
pub(crate) fn to_args(args: &impl serde::Serialize) -> Result<Value, Error> {
    serde_json::to_value(args).map_err(|error| Error::internal(error.to_string()))
}

/// Calls an operation of kend, and shows what is waited for when that takes long.
fn ask(places: &Places, what: &str, op: &str, args: &Value, limit: Duration) -> Result<Value, Error> {
    during(what, || kend(places)?.call(op, args, Some(limit), |_| Ok(())))
}

/// Starts or restarts a part, and says what state that led to.
pub(crate) fn start(places: &Places, op: &str, change: &Change) -> Outcome {
    let args = ChangeArgs {
        name: change.name.clone(),
        wait: change.waits(WaitFor::Ready),
        timeout_ms: Some(millis(change.timeout)),
    };
    let what = format!("waiting for {}", change.name);
    let value = ask(places, &what, op, &to_args(&args)?, change.timeout)?;
    let part: PartStatus = typed(KEND, value)?;
    say(&format!("{} {}", part.name, part.state.name()))?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn stop(places: &Places, stop: &Stop) -> Outcome {
    let change = &stop.change;
    let args = StopArgs {
        name: change.name.clone(),
        dependents: stop.dependents,
        wait: change.waits(WaitFor::Stopped),
        timeout_ms: Some(millis(change.timeout)),
    };
    let what = format!("stopping {}", change.name);
    let value = ask(places, &what, "parts.stop", &to_args(&args)?, change.timeout)?;
    let Changed { part, also } = typed(KEND, value)?;
    let state = part.state.name();
    for name in also.iter().chain([&part.name]) {
        say(&format!("{name} {state}"))?;
    }
    let killed = part
        .deaths
        .last()
        .filter(|death| death.asked && death.signal == Some(9));
    if part.pid.is_none() && killed.is_some() {
        remark(&format!(
            "{} did not end within its time and was killed",
            part.name
        ));
    }
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn kill(places: &Places, kill: &Kill) -> Outcome {
    let args = KillArgs {
        name: kill.name.clone(),
        signal: kill.signal.clone(),
    };
    let value = kend(places)?.call("parts.kill", &to_args(&args)?, Some(SOON), |_| Ok(()))?;
    let sent: Killed = typed(KEND, value)?;
    say(&format!(
        "{} {} sent to process {}",
        sent.name, sent.signal, sent.pid
    ))?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn reload(places: &Places) -> Outcome {
    let value = ask(
        places,
        "reading the configuration",
        "kend.reload",
        &json!({}),
        SOON,
    )?;
    let done: Reloaded = typed(KEND, value)?;
    for (what, names) in [
        ("added", &done.added),
        ("removed", &done.removed),
        ("restarted", &done.restarted),
        ("unchanged", &done.unchanged),
    ] {
        if !names.is_empty() {
            say(&format!("{what}: {}", names.join(" ")))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn down(places: &Places) -> Outcome {
    let mut kend = match kend(places) {
        Err(error) if error.code == Code::Unavailable => {
            remark("kend is not running");
            return Ok(ExitCode::SUCCESS);
        }
        kend => kend?,
    };
    let value = during("stopping", || {
        let value = kend.call("kend.stop", &json!({}), None, |_| Ok(()))?;
        kend.wait_for_end(GRACE);
        Ok(value)
    })?;
    let done: Stopped = typed(KEND, value)?;
    for name in done.killed {
        remark(&format!("{name} did not end within its time and was killed"));
    }
    Ok(ExitCode::SUCCESS)
}

impl Change {
    fn waits(&self, sensible: WaitFor) -> Option<WaitFor> {
        match self.no_wait {
            true => None,
            false => Some(self.wait.unwrap_or(sensible)),
        }
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_is_not_understood_is_that_of_the_part_that_was_asked() {
        let error = typed::<u64>("store", json!("seven")).unwrap_err();
        assert!(
            error
                .message
                .starts_with("the answer of store is not understood: "),
            "{error}"
        );
        assert_eq!(error.hint.as_deref(), Some("are ken and store of one version?"));
    }
}
