//! OpenTelemetry traces. Submissions and runs that have ended are read from the store and sent to a collector, as OTLP
//! over HTTP. The store serves as the queue. Therefore no turn ever waits for a collector, and what could not
//! be sent before a kill is sent after the restart. The crates of OpenTelemetry are not used, because they depend on
//! forty others to write a document of one page.

mod otlp;
mod poster;
mod spans;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ken_service::Stop;
use ken_types::config::{self, OtlpProtocol};
use ken_types::ops::Nothing;
use ken_types::ops::store::{ReadStream, StreamsRead};
use ken_types::ops::telemetry::{EndedRun, Exported, TelemetryEnded, TelemetryExported};
use ken_types::{Error, Offset, Timestamp};
use ken_wire::Pool;
use serde_json::Value;

use otlp::{OfHost, Span};
use poster::{Poster, decoded_headers};
use spans::Spans;

const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
const PROTOCOL: &str = "OTEL_EXPORTER_OTLP_PROTOCOL";
const HEADERS: &str = "OTEL_EXPORTER_OTLP_HEADERS";

/// The interval between two reads from the store, and the maximum pause after a failure of the collector.
const POLL: Duration = Duration::from_secs(1);
const MAX_PAUSE: Duration = Duration::from_secs(60);
const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum number of submissions and runs that wait. If there are more, the oldest are dropped.
const MAX_QUEUED: u64 = 4_096;
/// The approximate number of spans of one request.
const BATCH: usize = 512;

/// The numbers of submissions and runs that were sent, and that were dropped.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) exported: AtomicU64,
    pub(crate) lost: AtomicU64,
}

pub(crate) struct Exporter {
    store: Pool,
    poster: Poster,
    with_content: bool,
    /// The first export sends what has ended after this time.
    started: Timestamp,
    counts: Arc<Counts>,
}

impl Exporter {
    /// Returns `None` if no collector is configured. `setting` returns settings and secrets.
    pub(crate) fn configured(
        config: &config::Telemetry,
        setting: impl Fn(&str) -> Option<String>,
        store: Pool,
        counts: Arc<Counts>,
    ) -> Result<Option<Exporter>, Error> {
        let address = setting(ENDPOINT).unwrap_or_else(|| config.otlp.clone());
        let address = address.trim().trim_end_matches('/');
        if address.is_empty() {
            return Ok(None);
        }
        let url = format!("{address}/v1/traces");
        let protocol = match setting(PROTOCOL).filter(|name| !name.trim().is_empty()) {
            Some(name) => protocol_of(name.trim())?,
            None => config.protocol,
        };
        let headers =
            decoded_headers(&setting(HEADERS).unwrap_or_default()).map_err(|why| Error::invalid(HEADERS, why))?;
        let proxy = ken_tls::proxy(&url, &setting)?;
        Ok(Some(Exporter {
            store,
            poster: Poster::new(url, protocol, headers, proxy).map_err(|error| error.at(ENDPOINT))?,
            with_content: config.content,
            started: Timestamp::now(),
            counts,
        }))
    }

    pub(crate) async fn run(self, mut stop: Stop) {
        let mut pause = POLL;
        loop {
            tokio::select! {
                () = stop.stopped() => return,
                () = tokio::time::sleep(pause) => {}
            }
            pause = match self.round().await {
                Ok(()) => POLL,
                Err(error) => {
                    if pause == POLL {
                        tracing::warn!("telemetry waits: {error}");
                    }
                    (pause * 2).min(MAX_PAUSE)
                }
            };
        }
    }

    /// Sends the traces of everything that has ended since the last round.
    async fn round(&self) -> Result<(), Error> {
        loop {
            let ended = self.store.call::<TelemetryEnded>(&Nothing {}, CALL_TIMEOUT).await?;
            if ended.since.is_none() {
                self.acknowledge(self.started, 0).await?;
                continue;
            }
            let runs = whole_milliseconds(ended.runs, ended.waiting > 0);
            let Some(last) = runs.last() else { return Ok(()) };
            if ended.waiting > MAX_QUEUED {
                let lost = runs.len();
                tracing::warn!(lost, "too much telemetry waits: the oldest is dropped");
                self.acknowledge(last.ended_at, lost as u64).await?;
            } else {
                self.send_all(&runs).await?;
            }
            if ended.waiting == 0 {
                return Ok(());
            }
        }
    }

    async fn send_all(&self, runs: &[EndedRun]) -> Result<(), Error> {
        let (mut hosts, mut length, mut count): (Vec<OfHost>, _, _) = (Vec::new(), 0, 0);
        for (at, run) in runs.iter().enumerate() {
            let spans = self.spans(run).await?;
            length += spans.len();
            count += 1;
            add(&mut hosts, run, spans);
            let next = runs.get(at + 1);
            let is_apart = next.is_none_or(|next| next.ended_at > run.ended_at);
            if !is_apart || (length < BATCH && next.is_some()) {
                continue;
            }
            length = 0;
            let lost = match self.send(&std::mem::take(&mut hosts)).await? {
                None => 0,
                Some(status) => {
                    let protocol = self.poster.protocol().name();
                    tracing::warn!(status, protocol, lost = count, "the collector refused telemetry");
                    count
                }
            };
            self.counts.exported.fetch_add(count - lost, Ordering::Relaxed);
            self.acknowledge(run.ended_at, lost).await?;
            count = 0;
        }
        Ok(())
    }

    async fn acknowledge(&self, until: Timestamp, lost: u64) -> Result<(), Error> {
        self.counts.lost.fetch_add(lost, Ordering::Relaxed);
        let exported = Exported { until, lost };
        self.store.call::<TelemetryExported>(&exported, CALL_TIMEOUT).await.map(drop)
    }

    async fn spans(&self, run: &EndedRun) -> Result<Vec<Span>, Error> {
        let mut spans = Spans::of(run, self.with_content);
        let mut offset = run.recorded_from;
        'stream: loop {
            let page = ReadStream { stream: run.stream.clone(), offset, ..ReadStream::default() };
            let page = match self.store.call::<StreamsRead>(&page, CALL_TIMEOUT).await {
                // The session was deleted in the meantime.
                Err(error) if error.code == ken_types::Code::NotFound => break,
                page => page?,
            };
            for entry in &page.entries {
                let event: Value = serde_json::from_str(entry.get()).unwrap_or_default();
                let of = event.get("submissionId").or_else(|| event.get("runId"));
                if of.and_then(Value::as_str) != Some(run.id.as_str()) {
                    continue;
                }
                spans.add(&event);
                if event.get("type").and_then(Value::as_str) == Some("submission_settled") {
                    break 'stream;
                }
            }
            if page.next >= page.end {
                break;
            }
            offset = Offset::After(page.next);
        }
        Ok(spans.end())
    }

    /// Returns the status with which the collector refused the spans for good, if it did.
    async fn send(&self, hosts: &[OfHost]) -> Result<Option<u16>, Error> {
        match self.poster.post(hosts).await? {
            200..300 => Ok(None),
            // The OTLP specification lists these statuses as retryable.
            status @ (429 | 502 | 503 | 504) => Err(Error::unavailable(format!("the collector answered {status}"))),
            status => Ok(Some(status)),
        }
    }
}

/// Adds the spans of a run to those of its host.
fn add(hosts: &mut Vec<OfHost>, run: &EndedRun, spans: Vec<Span>) {
    match hosts.iter_mut().find(|(host, _)| *host == run.host) {
        Some((_, known)) => known.extend(spans),
        None => hosts.push((run.host.clone(), spans)),
    }
}

fn protocol_of(name: &str) -> Result<OtlpProtocol, Error> {
    OtlpProtocol::named(name).ok_or_else(|| {
        let names: Vec<&str> = OtlpProtocol::ALL.iter().map(|known| known.name()).collect();
        let names = names.join(" or ");
        Error::invalid(PROTOCOL, format!("must be {names}, not `{name}`"))
    })
}

/// If more runs follow, removes those of the last millisecond, because some of that millisecond may be missing.
fn whole_milliseconds(mut runs: Vec<EndedRun>, has_more: bool) -> Vec<EndedRun> {
    let last = runs.last().map(|run| run.ended_at);
    if has_more && runs.first().map(|run| run.ended_at) != last {
        runs.retain(|run| Some(run.ended_at) != last);
    }
    runs
}
