//! The state and the clients that all routes share.

use std::sync::Arc;
use std::time::Instant;

use ken_audit::Record;
use ken_claims::Held;
use ken_flow::{Catalog, Engine};
use ken_http::Limiter;
use ken_types::Error;
use ken_wire::Daemon;
use serde_json::{Map, Value};

use crate::audit::Audit;
use crate::keys::Keys;
use crate::limits::Limits;
use crate::metrics::Metrics;
use crate::models::Models;
use crate::research::Research;
use crate::sessions::Sessions;
use crate::settings::Settings;

/// The state of the server.
pub(crate) struct Cognitive {
    pub(crate) settings: Settings,
    pub(crate) keys: Keys,
    pub(crate) limits: Limits,
    pub(crate) wrong_keys: Limiter,
    pub(crate) audit: Audit,
    pub(crate) metrics: Metrics,
    pub(crate) sessions: Sessions,
    pub(crate) engine: Engine,
    pub(crate) catalog: Catalog,
    pub(crate) models: Models,
    pub(crate) research: Research,
    pub(crate) started: Instant,
    /// The runs that this process has claimed.
    pub(crate) held: Arc<Held>,
}

impl Daemon for Cognitive {
    fn stats(&self) -> Map<String, Value> {
        [
            ("sessions".to_owned(), self.sessions.count().into()),
            ("audit_waiting".to_owned(), self.audit.waiting().into()),
            ("runs".to_owned(), self.held.running().into()),
        ]
        .into_iter()
        .collect()
    }
}

impl Cognitive {
    /// Records an action before it is taken or its reply is sent. After an error, the action must not be taken.
    pub(crate) async fn record(&self, records: Vec<Record>) -> Result<(), Error> {
        let count = records.len();
        let written = self.audit.write(records).await;
        self.metrics.audited(count, &written);
        written
    }

    /// Returns the result of an action. If it failed although it had been recorded, records that too.
    pub(crate) async fn settle(&self, record: Record, done: Result<(), Error>) -> Result<(), Error> {
        if done.is_err() {
            _ = self.record(vec![record.with("outcome", "failed")]).await;
        }
        done
    }

    pub(crate) fn metrics_text(&self) -> Result<String, Error> {
        self.metrics.set_state(self.audit.waiting(), self.sessions.count(), &self.engine.state());
        self.metrics.text()
    }
}
