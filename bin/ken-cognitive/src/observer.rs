//! Observes a run for the audit log and the metrics.

use std::future::ready;

use ken_audit::Record;
use ken_flow::{Event, Observer, Pending, StepEnd};
use ken_types::Error;
use parking_lot::Mutex;
use serde_json::json;

use crate::metrics::Metrics;

/// Counts steps and collects audit records. All records of a run are written together before its response is sent.
pub(crate) struct AuditObserver<'a> {
    metrics: &'a Metrics,
    request_id: &'a str,
    user_id: &'a str,
    records: Mutex<Vec<Record>>,
}

impl<'a> AuditObserver<'a> {
    pub(crate) fn new(metrics: &'a Metrics, request_id: &'a str, user_id: &'a str) -> AuditObserver<'a> {
        AuditObserver { metrics, request_id, user_id, records: Mutex::default() }
    }

    pub(crate) fn into_records(self) -> Vec<Record> {
        self.records.into_inner()
    }

    /// Returns the audit record of an event. It contains numbers and names of steps, but not the issues, because these
    /// contain the user's text.
    fn record(&self, event: &Event) -> Record {
        let record = Record::new(event.name(), self.request_id, self.user_id);
        match event {
            Event::GovernanceLowQuality { step, quality, min_quality } => {
                record.with("step", step.as_str()).with("quality", *quality).with("min_quality", *min_quality)
            }
            Event::GovernanceIncoherenceDetected { score, issues } => {
                record.with("score", *score).with("issues", issues.len())
            }
            Event::RecoveryDecision { decision, .. } => record.with("decision", json!(decision)),
            Event::GovernanceAbort { issues } => record.with("issues", issues.len()),
        }
    }
}

impl Observer for AuditObserver<'_> {
    fn ended<'a>(&'a self, step: &'a StepEnd<'a>) -> Pending<'a, Result<(), Error>> {
        self.metrics.step(step);
        Box::pin(ready(Ok(())))
    }

    fn event<'a>(&'a self, event: &'a Event) -> Pending<'a, Result<(), Error>> {
        self.metrics.governance(event);
        let record = self.record(event);
        self.records.lock().push(record);
        Box::pin(ready(Ok(())))
    }
}
