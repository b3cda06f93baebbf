//! One call of a tool: checks the arguments, runs the process and checks the result.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use ken_types::Error;
use ken_types::event::{Block, ToolResult};
use ken_types::json;
use ken_types::ops::tools::{CallTool, Called, Preview};
use ken_wire::Pool;
use tokio::time::timeout;

use crate::admitted::{Admitted, failed, written};
use crate::begun::Begun;
use crate::catalog::Listing;
use crate::entry::{Entry, OutputFormat};
use crate::gate::{self, ApprovalGate, GateResult};
use crate::mcp::{Listener, ServerCall, Servers};
use crate::output::{Outputs, details};
use crate::places::Places;
use crate::preview;
use crate::process::{self, Ended};

/// The maximum number of calls that run at the same time, of all and of one session. Further calls wait. An agent runs at
/// most 16 calls of a turn at a time.
const MAX_CALLS: usize = 32;
const MAX_CALLS_OF_SESSION: usize = 8;
/// The same for previews, which have places of their own, so that a person sees what waits however long the calls take.
const MAX_PREVIEWS: usize = 16;
const MAX_PREVIEWS_OF_SESSION: usize = 4;
/// How long a call waits for a place. After the deadline of the request, its caller could not know that it never began.
const PLACE_TIMEOUT: Duration = Duration::from_secs(300);
/// The maximum nesting of a result.
const MAX_DEPTH: usize = 64;

/// The maximum size of a tool's standard output, in bytes. A tool that writes more is killed. A text can be as long as
/// a blob. The limit for JSON is lower, because a parsed document takes many times its length in memory.
const MAX_TEXT_BYTES: usize = 16 * 1024 * 1024;
const MAX_JSON_BYTES: usize = 4 * 1024 * 1024;

/// Runs calls.
pub(crate) struct Caller {
    calls: Places,
    previews: Places,
    begun: Begun,
    gate: ApprovalGate,
    servers: Arc<Servers>,
    outputs: Outputs,
}

impl Caller {
    pub(crate) fn new(gate: ApprovalGate, servers: Arc<Servers>, outputs: Outputs) -> Result<Caller, Error> {
        Ok(Caller {
            calls: Places::new(MAX_CALLS, MAX_CALLS_OF_SESSION),
            previews: Places::new(MAX_PREVIEWS, MAX_PREVIEWS_OF_SESSION),
            begun: Begun::new()?,
            gate,
            servers,
            outputs,
        })
    }

    pub(crate) fn running(&self) -> usize {
        self.calls.taken()
    }

    /// The name of this process, for [`CallTool::repeated`].
    pub(crate) fn process(&self) -> String {
        self.begun.process()
    }

    pub(crate) async fn call(
        &self,
        listing: &Listing,
        call: CallTool,
        listener: Listener<'_>,
    ) -> Result<Called, Error> {
        let call = Admitted::new(listing, call)?;
        let place = timeout(PLACE_TIMEOUT, self.calls.take(call.call.session.as_deref())).await;
        let _place = place.map_err(|_| {
            let message = format!("no place was free for {} s, so the call was not made", PLACE_TIMEOUT.as_secs());
            Error::busy(message, 1_000)
        })?;
        let started = Instant::now();
        let result = match self.gate.asked_by(call.entry) {
            Some(store) => self.run_asking(&call, store).await?,
            None => match self.gate.pass(&call).await? {
                GateResult::Refused(reason) => Err(reason),
                GateResult::MayRun => {
                    self.begun.begin(&call.call, call.entry.tool.idempotent)?;
                    self.run(&call, listener).await
                }
            },
        };
        let (is_error, result) = match result {
            Ok(result) => (false, result),
            Err(why) => (true, ToolResult::of_text(why)),
        };
        Ok(Called { is_error, result, duration_ms: u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX) })
    }

    /// Runs a tool that asks itself whether it may go on. The inner error is for the model.
    async fn run_asking(&self, call: &Admitted<'_>, store: &Pool) -> Result<Result<ToolResult, String>, Error> {
        let verdict = OnceLock::new();
        let decide = async |question: String| {
            let found = match gate::answer(store, call, &question).await {
                Ok(GateResult::MayRun) => {
                    self.begun.begin(&call.call, call.entry.tool.idempotent).map(|()| GateResult::MayRun)
                }
                refused => refused,
            };
            let may_run = matches!(found, Ok(GateResult::MayRun));
            _ = verdict.set(found);
            may_run
        };
        let max = max_output(call.entry);
        let ended = process::run_asking(&call.work(&call.entry.command, true, max), decide).await;
        Ok(match (verdict.into_inner().transpose()?, ended) {
            (Some(GateResult::Refused(reason)), _) => Err(reason),
            // It was let go on, or it failed before it asked.
            (_, Ok(ended)) => read(call.entry, &ended, max, &self.outputs).await,
            (_, Err(why)) => Err(why),
        })
    }

    async fn run(&self, call: &Admitted<'_>, listener: Listener<'_>) -> Result<ToolResult, String> {
        if let Some((server, tool)) = &call.entry.server {
            let server = self.servers.find(server).map_err(|error| error.to_string())?;
            let (arguments, entry, outputs) = (&call.call.arguments, call.entry, &self.outputs);
            return server.call(&ServerCall { tool, arguments, entry, outputs, listener }).await;
        }
        let max = max_output(call.entry);
        let ended = process::run(&call.work(&call.entry.command, true, max)).await?;
        read(call.entry, &ended, max, &self.outputs).await
    }

    pub(crate) async fn preview(&self, listing: &Listing, call: CallTool) -> Result<Preview, Error> {
        let call = Admitted::new(listing, call)?;
        let _place = self.previews.take(call.call.session.as_deref()).await;
        preview::keep_diff(preview::of(&call).await, &self.outputs).await
    }
}

fn max_output(entry: &Entry) -> usize {
    match entry.writes {
        OutputFormat::Text => MAX_TEXT_BYTES,
        OutputFormat::Json => MAX_JSON_BYTES,
    }
}

/// Returns the tool's result, or an error message for the model.
async fn read(entry: &Entry, ended: &Ended, max: usize, outputs: &Outputs) -> Result<ToolResult, String> {
    let name = &entry.tool.name;
    let written = written(entry, ended, &entry.ok_status, max)?;
    if entry.writes == OutputFormat::Text {
        let output = outputs.show(&json::visible_nul(ken_service::redacted(written.to_owned()))).await;
        return Ok(ToolResult {
            content: vec![Block::text(output.text)],
            output: output.output,
            ..ToolResult::default()
        });
    }
    if written.is_empty() {
        return Err(failed(name, "wrote nothing", &ended.errors));
    }
    let value =
        json::parse_output(written.as_bytes(), MAX_DEPTH).map(ken_service::redacted_value).map_err(|error| {
            let why = ken_service::redacted(error.message);
            format!("The tool {name} did not write JSON: {why}")
        })?;
    if let Some(schema) = &entry.output {
        schema
            .check("", &value)
            .map_err(|error| format!("The result of the tool {name} is not as its description says: {error}"))?;
    }
    let compact = value.to_string();
    let output = entry.shows.as_ref();
    let output = output.and_then(|place| value.pointer(place)?.as_str());
    let output = outputs.show(output.unwrap_or(&compact)).await;
    Ok(ToolResult {
        content: vec![Block::text(output.text)],
        details: details(value, compact.len()),
        output: output.output,
        ..ToolResult::default()
    })
}
