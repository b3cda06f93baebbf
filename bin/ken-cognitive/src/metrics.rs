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
use prometheus_client::registry::{Registry, Unit};

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
        let mut metrics = Metrics {
            registry: Registry::with_prefix("ken"),
            requests: Family::default(),
            request_duration: Family::new_with_constructor(duration_histogram),
            requests_open: Gauge::default(),
            workflows: Family::default(),
            steps: Family::default(),
            step_duration: Family::new_with_constructor(duration_histogram),
            step_quality: Family::new_with_constructor(ratio_histogram),
            low_quality: Counter::default(),
            coherence_failures: Counter::default(),
            retries: Counter::default(),
            aborts: Counter::default(),
            tool_processes: Family::default(),
            auth_failures: Counter::default(),
            limited: Family::default(),
            audit_records: Counter::default(),
            audit_failures: Counter::default(),
            queue: Family::default(),
            sessions: Gauge::default(),
        };
        metrics.register_requests();
        metrics.register_workflows();
        // All limits start at zero, so that the first refusal is visible as an increase.
        for limit in GROUPS.map(|(name, ..)| name).into_iter().chain(["quota", "wrong_keys"]) {
            drop(metrics.limited.get_or_create(&[("limit", limit.to_owned())]));
        }
        metrics
    }

    fn register_workflows(&mut self) {
        let to = &mut self.registry;
        to.register("workflows", "Workflows run, by how they ended", self.workflows.clone());
        to.register("steps", "Steps, by protocol and how they ended", self.steps.clone());
        to.register_with_unit(
            "step_duration",
            "Time from the start of a step to the answer of its tool",
            Unit::Seconds,
            self.step_duration.clone(),
        );
        to.register("step_quality", "Quality of steps, 0 to 1", self.step_quality.clone());
        to.register("governance_low_quality", "Steps below GOV_MIN_QUALITY", self.low_quality.clone());
        to.register(
            "governance_coherence_failures",
            "Times that results did not agree",
            self.coherence_failures.clone(),
        );
        to.register(
            "governance_retries",
            "Steps that ran once more because results did not agree",
            self.retries.clone(),
        );
        to.register("governance_aborts", "Workflows aborted", self.aborts.clone());
        to.register("tool_processes", "Processes of tools, by protocol and state", self.tool_processes.clone());
    }

    fn register_requests(&mut self) {
        let to = &mut self.registry;
        to.register("requests", "Requests answered, by route and status", self.requests.clone());
        to.register_with_unit(
            "request_duration",
            "Time from the head of a request to its answer",
            Unit::Seconds,
            self.request_duration.clone(),
        );
        to.register("requests_open", "Requests being answered", self.requests_open.clone());
        to.register("auth_failures", "Requests with a wrong or missing key", self.auth_failures.clone());
        to.register("rate_limited", "Requests refused by a limit", self.limited.clone());
        to.register("audit_records", "Records written to the audit log", self.audit_records.clone());
        to.register("audit_failures", "Acts refused because they could not be recorded", self.audit_failures.clone());
        to.register("queue_length", "Entries that wait, by queue", self.queue.clone());
        to.register("sessions", "Sessions whose history is kept", self.sessions.clone());
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

/// Returns a histogram for ratios, with buckets of a tenth each.
fn ratio_histogram() -> Histogram {
    Histogram::new([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0])
}

/// Returns a histogram for durations, with buckets from 0.1 ms to 10 s.
fn duration_histogram() -> Histogram {
    Histogram::new([
        0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
    ])
}
