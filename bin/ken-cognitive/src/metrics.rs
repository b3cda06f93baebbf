//! Metrics. Labels are names of routes, statuses and protocols, never text from a caller.

use std::time::Duration;

use ken_flow::{Definition, Event, Outcome, StepEnd, ToolState};
use ken_http::http::StatusCode;
use ken_types::Error;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Metric, Registry, Unit};

use crate::settings::GROUPS;

type Labels<const N: usize> = [(&'static str, String); N];
type Counters<const N: usize> = Family<Labels<N>, Counter>;
type Histograms = Family<Labels<1>, Histogram, fn() -> Histogram>;

/// All metrics, and the registry that encodes them.
pub(crate) struct Metrics {
    registry: Registry,
    requests: Counters<2>,
    request_duration: Histograms,
    requests_open: Gauge,
    workflows: Counters<1>,
    steps: Counters<2>,
    step_duration: Histograms,
    step_quality: Histograms,
    low_quality: Counter,
    coherence_failures: Counter,
    retries: Counter,
    aborts: Counter,
    tool_processes: Family<Labels<2>, Gauge>,
    auth_failures: Counter,
    limited: Counters<1>,
    audit_records: Counter,
    audit_failures: Counter,
    queue: Family<Labels<1>, Gauge>,
    sessions: Gauge,
}

/// Counts a request as in progress until it is dropped.
pub(crate) struct Open(Gauge);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl Metrics {
    pub(crate) fn new() -> Metrics {
        let mut registry = Registry::with_prefix("ken");
        let to = &mut registry;
        let metrics = Metrics {
            requests: registered(to, "requests", "Requests answered, by route and status"),
            request_duration: durations(to, "request_duration", "Time from the head of a request to its answer"),
            requests_open: registered(to, "requests_open", "Requests being answered"),
            auth_failures: registered(to, "auth_failures", "Requests with a wrong or missing key"),
            limited: registered(to, "rate_limited", "Requests refused by a limit"),
            audit_records: registered(to, "audit_records", "Records written to the audit log"),
            audit_failures: registered(to, "audit_failures", "Acts refused because they could not be recorded"),
            queue: registered(to, "queue_length", "Entries that wait, by queue"),
            sessions: registered(to, "sessions", "Sessions whose history is kept"),
            workflows: registered(to, "workflows", "Workflows run, by how they ended"),
            steps: registered(to, "steps", "Steps, by protocol and how they ended"),
            step_duration: durations(to, "step_duration", "Time from the start of a step to the answer of its tool"),
            step_quality: ratios(to, "step_quality", "Quality of steps, 0 to 1"),
            low_quality: registered(to, "governance_low_quality", "Steps below GOV_MIN_QUALITY"),
            coherence_failures: registered(to, "governance_coherence_failures", "Times that results did not agree"),
            retries: registered(to, "governance_retries", "Steps that ran once more because results did not agree"),
            aborts: registered(to, "governance_aborts", "Workflows aborted"),
            tool_processes: registered(to, "tool_processes", "Processes of tools, by protocol and state"),
            registry,
        };
        // All limits start at zero, so that the first refusal is visible as an increase.
        for limit in GROUPS.map(|(name, ..)| name).into_iter().chain(["quota", "wrong_keys"]) {
            drop(metrics.limited.get_or_create(&[("limit", limit.to_owned())]));
        }
        metrics
    }

    pub(crate) fn open(&self) -> Open {
        self.requests_open.inc();
        Open(self.requests_open.clone())
    }

    pub(crate) fn request(&self, route: &'static str, status: StatusCode, took: Duration) {
        let labels = [("route", route.to_owned()), ("status", status.as_str().to_owned())];
        self.requests.get_or_create(&labels).inc();
        let labels = [("route", route.to_owned())];
        self.request_duration.get_or_create(&labels).observe(took.as_secs_f64());
    }

    pub(crate) fn step(&self, step: &StepEnd<'_>) {
        let protocol = ("protocol", step.protocol.to_owned());
        let outcome = match step.result {
            Ok(_) => "done",
            Err(error) => error.code.name(),
        };
        let labels = [protocol.clone(), ("outcome", outcome.to_owned())];
        self.steps.get_or_create(&labels).inc();
        self.step_duration.get_or_create(&[protocol]).observe(step.time.as_secs_f64());
    }

    pub(crate) fn workflow(&self, definition: &Definition, outcome: &Outcome) {
        let status = outcome.status.name().to_owned();
        self.workflows.get_or_create(&[("status", status)]).inc();
        for (step, quality) in &outcome.governance_summary.quality_scores {
            let protocol = definition.protocol_of(step).unwrap_or_default();
            self.step_quality.get_or_create(&[("protocol", protocol.to_owned())]).observe(*quality);
        }
    }

    pub(crate) fn governance(&self, event: &Event) {
        match event {
            Event::GovernanceLowQuality { .. } => self.low_quality.inc(),
            Event::GovernanceIncoherenceDetected { .. } => self.coherence_failures.inc(),
            Event::RecoveryDecision { decision: ken_flow::Decision::Retry, .. } => self.retries.inc(),
            Event::RecoveryDecision { .. } => 0,
            Event::GovernanceAbort { .. } => self.aborts.inc(),
        };
    }

    pub(crate) fn auth_failed(&self) {
        self.auth_failures.inc();
    }

    pub(crate) fn limited(&self, limit: &'static str) {
        self.limited.get_or_create(&[("limit", limit.to_owned())]).inc();
    }

    pub(crate) fn audited(&self, records: usize, written: &Result<(), Error>) {
        match written {
            Ok(()) => drop(self.audit_records.inc_by(records as u64)),
            Err(_) => drop(self.audit_failures.inc()),
        }
    }

    /// Updates the gauges. It is called just before they are read.
    pub(crate) fn set_state(&self, audit_queue: usize, sessions: usize, tools: &[ToolState]) {
        let count = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        self.queue.get_or_create(&[("queue", "audit".to_owned())]).set(count(audit_queue));
        self.sessions.set(count(sessions));
        for tool in tools {
            for (state, number) in [("idle", tool.idle), ("busy", tool.at_work)] {
                let labels = [("protocol", tool.protocol.clone()), ("state", state.to_owned())];
                self.tool_processes.get_or_create(&labels).set(count(number));
            }
        }
    }

    /// Returns the metrics as OpenMetrics text.
    pub(crate) fn text(&self) -> Result<String, Error> {
        let mut text = String::new();
        encode(&mut text, &self.registry)
            .map_err(|error| Error::internal(format!("the metrics could not be written: {error}")))?;
        Ok(text)
    }
}

/// Makes a metric and registers it.
fn registered<M: Metric + Clone + Default>(to: &mut Registry, name: &str, help: &str) -> M {
    let metric = M::default();
    to.register(name, help, metric.clone());
    metric
}

/// Makes histograms of ratios, with buckets of a tenth each.
fn ratios(to: &mut Registry, name: &str, help: &str) -> Histograms {
    let metric =
        Histograms::new_with_constructor(|| Histogram::new([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0]));
    to.register(name, help, metric.clone());
    metric
}

/// Makes histograms of durations, with buckets from 0.1 ms to 10 s.
fn durations(to: &mut Registry, name: &str, help: &str) -> Histograms {
    let metric = Histograms::new_with_constructor(|| {
        Histogram::new([
            0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
        ])
    });
    to.register_with_unit(name, help, Unit::Seconds, metric.clone());
    metric
}
