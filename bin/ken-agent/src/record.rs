//! `agent.record`: returns the record of a turn that has ended, for a replay.

use std::collections::BTreeMap;
use std::sync::Arc;

use ken_types::ops::agent::{AgentRecord, Record};
use ken_types::ops::model::ModelState;
use ken_types::ops::store::{Claim, ReadHistory, ReadStream, SubmissionKind, SubmissionsRecord};
use ken_types::ops::telemetry::ByWork;
use ken_types::{Error, Offset};
use ken_wire::{Context, Pool};
use serde_json::Value;

use crate::all_tools::AllTools;
use crate::background::search;
use crate::model::{Model, WireModel};
use crate::names::{CODING_WORKER, ORCHESTRATOR, RESEARCH_WORKER};
use crate::ports::Tools;
use crate::store::{CALL_TIMEOUT, Store, WireStore};

/// The maximum number of past exchanges in a record.
const MAX_EXCHANGES: u32 = 100;

pub(crate) struct RecordSources {
    pub(crate) pool: Pool,
    pub(crate) model: WireModel,
    pub(crate) tools: Arc<AllTools>,
}

impl RecordSources {
    pub(crate) async fn record(&self, caller: Context<AgentRecord>, work: ByWork) -> Result<Record, Error> {
        let mut claim = self.pool.call::<SubmissionsRecord>(&work, CALL_TIMEOUT).await?;
        if claim.kind == SubmissionKind::Workflow {
            let message =
                format!("{} is a run of a workflow, which has no turns of an agent", claim.lease.submission_id);
            return Err(Error::invalid("/id", message));
        }
        let images = std::mem::take(&mut claim.images).len();
        self.send_events(&caller, &claim).await?;
        self.tools.refresh().await;
        let agents = [ORCHESTRATOR, RESEARCH_WORKER, CODING_WORKER];
        let tools = agents.map(|agent| (agent.to_owned(), self.tools.list(agent)));
        let tools = BTreeMap::from(tools);
        let names = tools.values().flatten().map(|tool| &tool.name);
        let built_in = names.filter(|name| self.tools.facts(name).is_built_in).cloned();
        let ModelState { context_window, output_reserve, .. } = self.model.info().await?;
        let history = ReadHistory {
            instance: claim.instance.clone(),
            before: claim.lease.submission_id.clone(),
            limit: MAX_EXCHANGES,
            after: None,
            search: search(&claim),
        };
        Ok(Record {
            history: WireStore::new(self.pool.clone()).read_history(&history).await?,
            claim,
            built_in: built_in.collect(),
            tools,
            context_window,
            output_reserve,
            images,
        })
    }

    async fn send_events(&self, caller: &Context<AgentRecord>, claim: &Claim) -> Result<(), Error> {
        let store = WireStore::new(self.pool.clone());
        let mut offset = claim.recorded_from;
        loop {
            let page = ReadStream { stream: claim.stream.clone(), offset, ..ReadStream::default() };
            let page = store.recorded(page).await?;
            for entry in &page.entries {
                let event: Value = serde_json::from_str(entry.get())
                    .map_err(|error| Error::internal(format!("a recorded event was not understood: {error}")))?;
                let of = event.get("submissionId").and_then(Value::as_str);
                if of != Some(claim.lease.submission_id.as_str()) {
                    continue;
                }
                caller.item(&event).await?;
                if event.get("type").and_then(Value::as_str) == Some("submission_settled") {
                    return Ok(());
                }
            }
            if page.next >= page.end {
                return Ok(());
            }
            offset = Offset::After(page.next);
        }
    }
}
