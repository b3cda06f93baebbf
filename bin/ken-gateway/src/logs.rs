//! The logs of the parts: the last lines, and, for a reader who stays, the new ones as they are written.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use ken_http::{Failure, Frames, LongResponse, Request, Response, Shutdown};
use ken_types::Error;
use ken_types::ops::kend::{LogsArgs, PartsLogs};
use ken_wire::Items;
use serde::Deserialize;
use serde_json::json;
use tokio::time::timeout;

use crate::app::Gateway;
use crate::page;
use crate::part::deadline_as_unavailable;

/// The timeout of a call for the last lines.
const CALL_TIMEOUT: Duration = Duration::from_secs(2);
/// The maximum number of lines in an answer, and their maximum size together in bytes.
const MAX_LINES: u64 = 1_000;
const MAX_BYTES: usize = 1 << 20;
/// How often a reader of a log that is not written sees that the connection holds.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// Log levels, the most severe first.
const LEVELS: [&str; 5] = ["error", "warn", "info", "debug", "trace"];
const INFO: usize = 2;

/// GET /api/logs
pub(crate) async fn logs(gateway: Arc<Gateway>, request: Request) -> Result<Response, Failure> {
    let query = request.query()?;
    let name = query.one("part")?.ok_or_else(|| Error::invalid("?part", "part is missing"))?.to_owned();
    let lines = u32::try_from(query.number("lines", 1..=MAX_LINES, 200)?).unwrap_or_default();
    // Without a level, lines of all levels are shown.
    let level = page::choice(&query, "level", place, &LEVELS.join(", "))?.unwrap_or(LEVELS.len());
    let is_sse = |text: &str| (text == "sse").then_some(true);
    let follow = page::choice(&query, "follow", is_sse, "sse")?.unwrap_or(false);
    let held = if follow { Some(request.hold()?) } else { None };
    let args = LogsArgs { name, lines, follow };
    let items = gateway.kend.0.stream::<PartsLogs>(&args, CALL_TIMEOUT).await.map_err(deadline_as_unavailable)?;
    match held {
        Some(held) => followed(items, level, request.shutdown(), held).await,
        None => {
            let lines = last(items, level).await.map_err(deadline_as_unavailable)?;
            Response::json(200, &json!({"part": args.name, "lines": lines}))
        }
    }
}

/// Returns the place of a level in [`LEVELS`].
fn place(name: &str) -> Option<usize> {
    LEVELS.iter().position(|level| *level == name)
}

/// Whether a line is as severe as a level. One without a level, which no part of ken has written, counts as `info`.
fn is_shown(line: &str, level: usize) -> bool {
    #[derive(Deserialize)]
    struct Leveled {
        level: String,
    }
    let of_line = serde_json::from_str(line).ok().and_then(|line: Leveled| place(&line.level.to_ascii_lowercase()));
    of_line.unwrap_or(INFO) <= level
}

async fn last(mut items: Items<PartsLogs>, level: usize) -> Result<VecDeque<String>, Error> {
    let (mut kept, mut size) = (VecDeque::new(), 0);
    while let Some(item) = items.next().await {
        let line = item?.line;
        if !is_shown(&line, level) {
            continue;
        }
        size += line.len();
        kept.push_back(line);
        while size > MAX_BYTES
            && let Some(oldest) = kept.pop_front()
        {
            size -= oldest.len();
        }
    }
    items.reply().await?;
    Ok(kept)
}

async fn followed(
    mut items: Items<PartsLogs>,
    level: usize,
    shutdown: Shutdown,
    held: LongResponse,
) -> Result<Response, Failure> {
    // A part that is not known is refused with a status, before the answer begins.
    let first = match timeout(Duration::from_millis(200), items.next()).await {
        Ok(None) => return Err(items.reply().await.map_or_else(deadline_as_unavailable, |_| ended()).into()),
        Ok(Some(line)) => Some(line?.line),
        Err(_) => None,
    };
    Ok(Response::events(move |frames| send(frames, first, items, level, shutdown, held)))
}

fn ended() -> Error {
    Error::unavailable("kend is shutting down")
}

async fn send(
    mut frames: Frames,
    first: Option<String>,
    mut items: Items<PartsLogs>,
    level: usize,
    mut shutdown: Shutdown,
    _held: LongResponse,
) {
    let mut line = first;
    loop {
        if let Some(line) = line.filter(|line| is_shown(line, level)) {
            frames.send(format!("data: {}\n\n", json!(line))).await;
        }
        let item = tokio::select! {
            item = timeout(HEARTBEAT, items.next()) => item,
            () = shutdown.requested() => return,
        };
        line = match item {
            Ok(Some(Ok(item))) => Some(item.line),
            // kend restarts, and the reader comes back.
            Ok(_) => return,
            Err(_) => {
                frames.send(": heartbeat\n\n").await;
                None
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_as_severe_as_it_says() {
        let shown = |line: &str| LEVELS.iter().enumerate().filter(|(level, _)| is_shown(line, *level)).count();
        for (line, count) in [
            (r#"{"level":"ERROR","message":"x"}"#, 5),
            (r#"{"level":"warn"}"#, 4),
            ("a line of another program", 3),
            (r#"{"level":7}"#, 3),
            (r#"{"level":"TRACE"}"#, 1),
        ] {
            assert_eq!(shown(line), count, "{line}");
        }
    }
}
