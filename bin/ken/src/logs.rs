//! `ken logs`: the lines as the part wrote them.

use std::process::ExitCode;
use std::time::Duration;

use ken_types::ops::kend::{LogLine, LogsArgs};
use ken_types::places::Places;
use ken_types::{Code, Error};

use crate::cli::Logs;
use crate::output::{Outcome, say};
use crate::parts::{kend, to_args, typed};

pub(crate) fn run(places: &Places, logs: &Logs) -> Outcome {
    let args = LogsArgs {
        name: logs.name.clone(),
        lines: logs.lines,
        follow: logs.follow,
    };
    let mut kend = kend(places).map_err(|error| where_it_lies(error, places, &logs.name))?;
    // A quiet log is no stalled one.
    let limit = (!logs.follow).then_some(Duration::from_secs(10));
    kend.call("parts.logs", &to_args(&args)?, limit, |item| {
        let LogLine { line } = typed(item)?;
        say(&line)
    })?;
    Ok(ExitCode::SUCCESS)
}

fn where_it_lies(error: Error, places: &Places, name: &str) -> Error {
    match error.code {
        Code::Unavailable => error.hint(format!("its log is {}", places.log(name).display())),
        _ => error,
    }
}
