//! Removes what the journal of ken-coder(1) holds of sessions that were deleted for good: by the console, over HTTP or by `[retention]`.
//! `ken sessions rm` does that itself.

use std::collections::BTreeSet;
use std::time::Duration;

use ken_types::ops::store::{BySession, ReadStream, SessionsScope, StreamPage, StreamsRead};
use ken_types::places::Places;
use ken_types::{Code, Error, Offset};
use ken_wire::Pool;
use serde::Deserialize;
use tokio::time::sleep;

use crate::process::unconfined;

const SYSTEM: &str = "system";
/// How long one read of the system's stream waits for an event, and then for more of them, in milliseconds.
const FOLLOW_MS: u64 = 60_000;
const GATHER_MS: u64 = 1_000;
const CALL_TIMEOUT: Duration = Duration::from_secs(5);
/// The pause after a failure. The store may be away.
const PAUSE: Duration = Duration::from_secs(5);
/// How long a turn that is cancelled by the deletion may still write to the journal.
const STOP_TIME: Duration = Duration::from_secs(3);
const CODER: &str = "ken-coder";

/// Follows the system's stream. At the start, what was deleted before is looked for.
pub(crate) async fn follow(places: &Places, store: &Pool) {
    let mut offset = Offset::Now;
    loop {
        let is_start = offset == Offset::Now;
        let wait_ms = if is_start { 0 } else { FOLLOW_MS };
        let read =
            ReadStream { stream: SYSTEM.to_owned(), offset, wait_ms, gather_ms: GATHER_MS, ..ReadStream::default() };
        let time = CALL_TIMEOUT + Duration::from_millis(wait_ms + GATHER_MS);
        let followed = match store.call::<StreamsRead>(&read, time).await {
            Ok(page) => {
                offset = Offset::After(page.next);
                if is_start || has_deletions(&page) { forget(places, store, is_start).await } else { Ok(()) }
            }
            Err(error) => Err(error),
        };
        if let Err(error) = followed {
            if error.code != Code::Unavailable {
                tracing::warn!("what the journal of {CODER} holds of deleted sessions stays for now: {error}");
            }
            offset = Offset::Now;
            sleep(PAUSE).await;
        }
    }
}

fn has_deletions(page: &StreamPage) -> bool {
    page.entries.iter().any(|event| event.get().starts_with(r#"{"v":1,"type":"session.purged""#))
}

async fn forget(places: &Places, store: &Pool, is_start: bool) -> Result<(), Error> {
    #[derive(Deserialize)]
    struct Journal {
        runs: Vec<Run>,
    }
    #[derive(Deserialize)]
    struct Run {
        session: Option<String>,
    }
    if !is_start {
        sleep(STOP_TIME).await;
    }
    if !places.state.join("coder").is_dir() {
        return Ok(());
    }
    let listed = coder(places, &["journal", "--format", "compact"]).await?;
    let journal: Journal = serde_json::from_slice(&listed)
        .map_err(|error| Error::internal(format!("the journal of {CODER} cannot be read: {error}")))?;
    let sessions: BTreeSet<String> = journal.runs.into_iter().filter_map(|run| run.session).collect();
    for session_id in sessions {
        let of = BySession { session_id };
        match store.call::<SessionsScope>(&of, CALL_TIMEOUT).await {
            Err(error) if error.code == Code::Gone => {
                coder(places, &["prune", "--session", &of.session_id]).await?;
            }
            Err(error) if error.code != Code::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// Runs a command of ken-coder for people, which confines itself. Returns what it prints.
async fn coder(places: &Places, words: &[&str]) -> Result<Vec<u8>, Error> {
    let mut command = unconfined(CODER).map_err(Error::internal)?;
    command.args(words).env("KEN_CONFIG", &places.config).env("KEN_STATE_DIR", &places.state).kill_on_drop(true);
    let failed = |why: &str| Error::internal(format!("{CODER} {}: {}", words.join(" "), why.trim()));
    let output = command.output().await.map_err(|error| failed(&error.to_string()))?;
    if output.status.success() { Ok(output.stdout) } else { Err(failed(&String::from_utf8_lossy(&output.stderr))) }
}
