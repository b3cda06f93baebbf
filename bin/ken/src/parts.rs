//! Commands that change something: start, stop, restart, reload, down.

use std::process::ExitCode;
use std::time::Duration;

use ken_types::ops::kend::{ChangeArgs, PartStatus, Reloaded, Stopped};
use ken_types::places::Places;
use ken_types::{Code, Error};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::cli::Change;
use crate::client::Client;
use crate::output::{Outcome, remark, say};

pub(crate) fn kend(places: &Places) -> Result<Client, Error> {
    Client::connect(&places.socket("kend"), "kend")
}

pub(crate) fn typed<T: DeserializeOwned>(value: Value) -> Result<T, Error> {
    serde_json::from_value(value).map_err(|error| {
        Error::internal(format!("kend's answer is not understood: {error}"))
            .hint("are ken and kend of one version?")
    })
}

/// The arguments of an operation as they travel.
pub(crate) fn to_args(args: &impl serde::Serialize) -> Result<Value, Error> {
    serde_json::to_value(args).map_err(|error| Error::internal(error.to_string()))
}

pub(crate) fn change(places: &Places, op: &str, change: &Change) -> Outcome {
    let args = ChangeArgs {
        name: change.name.clone(),
        wait: change.wait,
        timeout_ms: u64::try_from(change.timeout.as_millis()).ok(),
    };
    let answer = kend(places)?.call(op, &to_args(&args)?, Some(change.timeout), |_| Ok(()));
    match answer {
        Ok(value) => {
            let part: PartStatus = typed(value)?;
            say(&format!("{} {}", part.name, part.state.name()))?;
            Ok(ExitCode::SUCCESS)
        }
        Err(error) => Err(error),
    }
}

pub(crate) fn reload(places: &Places) -> Outcome {
    let limit = Some(Duration::from_secs(10));
    let value = kend(places)?.call("kend.reload", &json!({}), limit, |_| Ok(()))?;
    let done: Reloaded = typed(value)?;
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
    let done: Stopped = typed(kend.call("kend.stop", &json!({}), None, |_| Ok(()))?)?;
    kend.wait_for_end();
    for name in done.killed {
        remark(&format!("{name} did not end within its time and was killed"));
    }
    Ok(ExitCode::SUCCESS)
}
