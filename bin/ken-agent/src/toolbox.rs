//! The interface through which an agent calls the tools of ken-tools.

use std::sync::Arc;
use std::time::Duration;

use ken_types::event::{Body, NO_TOOL, ToolResult};
use ken_types::limits::WIRE_DEADLINE_MAX_MS;
use ken_types::ops::model::ToolSpec;
use ken_types::ops::tools::{
    CallTool, Called, ListTools, Need, Tool, ToolProgress, ToolsCall, ToolsList, ToolsPreview,
};
use ken_types::{Code, Error};
use ken_wire::Pool;
use parking_lot::Mutex;
use tokio::time::{Instant, sleep, timeout};

use crate::ports::{Grant, Pending, RequestedCall, ToolFacts, Tools, interrupted, reason};

/// The timeout of a preview of a call that a crash interrupted.
const PREVIEW: Duration = Duration::from_secs(30);
const LIST: Duration = Duration::from_secs(2);
/// For how long a list is taken for the current one. Many turns that begin at once would otherwise all ask for the same list, which costs
/// each of them a twentieth of its processor time. Nobody adds a tool and sends a prompt within less.
const FRESH: Duration = Duration::from_millis(10);
/// How long a call waits for ken-tools while it restarts.
const MAX_UNREACHABLE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(50);
/// The maximum deadline, because ken-tools applies the tool's own timeout, which is shorter.
const CALL_TIMEOUT: Duration = Duration::from_millis(WIRE_DEADLINE_MAX_MS);

/// Calls ken-tools over its socket.
pub(crate) struct WireTools {
    pool: Pool,
    known: Mutex<Known>,
}

/// The list of tools as it was last read. It is kept while ken-tools restarts.
#[derive(Default)]
struct Known {
    /// When ken-tools was last asked for it. `None` if it has not answered yet.
    asked_at: Option<Instant>,
    tools: Arc<Vec<Tool>>,
    tag: String,
    process: String,
}

impl WireTools {
    pub(crate) fn new(pool: Pool) -> WireTools {
        WireTools { pool, known: Mutex::default() }
    }

    fn find(&self, name: &str) -> Option<Tool> {
        let tools = self.known.lock().tools.clone();
        tools.iter().find(|tool| tool.name == name).cloned()
    }
}

impl Tools for WireTools {
    fn refresh(&self) -> Pending<'_, ()> {
        Box::pin(async move {
            let (known, asked_at) = {
                let known = self.known.lock();
                (known.tag.clone(), known.asked_at)
            };
            if asked_at.is_some_and(|asked_at| asked_at.elapsed() < FRESH) {
                return;
            }
            let args = ListTools { unless: Some(known), ..ListTools::default() };
            let asked_at = Some(Instant::now());
            match self.pool.call::<ToolsList>(&args, LIST).await {
                Ok(list) if Some(&list.tag) == args.unless.as_ref() => self.known.lock().asked_at = asked_at,
                Ok(list) => {
                    let tools = Arc::new(list.tools);
                    *self.known.lock() = Known { asked_at, tools, tag: list.tag, process: list.process };
                }
                Err(error) => {
                    tracing::warn!(code = error.code.name(), "the list of tools cannot be read: {}", error.message);
                }
            }
        })
    }

    fn list(&self, agent: &str) -> Vec<ToolSpec> {
        let tools = self.known.lock().tools.clone();
        let own = tools.iter().filter(|tool| tool.agents.iter().any(|known| known == agent));
        own.map(Tool::spec).collect()
    }

    fn facts(&self, name: &str) -> ToolFacts {
        let process = self.known.lock().process.clone();
        let facts = self.find(name).map(|tool| ToolFacts {
            is_idempotent: tool.idempotent,
            outside: tool.outside,
            process: Some(process).filter(|process| !process.is_empty()),
            approval: Some(tool.approval),
            ..ToolFacts::default()
        });
        facts.unwrap_or_default()
    }

    fn asks(&self, call: CallTool) -> Pending<'static, bool> {
        let pool = self.pool.clone();
        Box::pin(async move {
            let preview = pool.call::<ToolsPreview>(&call, PREVIEW).await;
            preview.is_ok_and(|preview| preview.approval == Need::Ask)
        })
    }

    fn call(&self, requested: RequestedCall, grant: Option<Grant>) -> Pending<'static, Result<ToolResult, String>> {
        let (pool, tool) = (self.pool.clone(), self.find(&requested.call.name));
        let args = CallTool { grant, ..requested.request() };
        Box::pin(async move {
            let Some(tool) = tool else {
                return Err(format!("{NO_TOOL}{}`.", args.name));
            };
            let called = call(&pool, &args, &tool, &requested).await;
            match called {
                Ok(called) if called.is_error => Err(called.result.text()),
                Ok(called) => Ok(called.result),
                Err(error) => Err(message(&args.name, &error)),
            }
        })
    }
}

/// Calls a tool. A call of a tool that is not idempotent is repeated only if it has certainly not been sent.
async fn call(pool: &Pool, args: &CallTool, tool: &Tool, requested: &RequestedCall) -> Result<Called, Error> {
    // A call that is followed takes a connection of its own.
    let is_followed = tool.reports_progress;
    if tool.idempotent && !is_followed {
        return pool.call::<ToolsCall>(args, CALL_TIMEOUT).await;
    }
    let until = Instant::now() + MAX_UNREACHABLE;
    let mut may_repeat = tool.idempotent;
    loop {
        let called = if is_followed { followed(pool, args, requested).await } else { once(pool, args).await };
        match called {
            Err(error) if error.code != Code::Unavailable => return Err(error),
            Err(error) if error.is_outcome_unknown() && !std::mem::take(&mut may_repeat) => return Err(error),
            Err(_) if Instant::now() < until => sleep(PAUSE).await,
            called => return called,
        }
    }
}

async fn once(pool: &Pool, args: &CallTool) -> Result<Called, Error> {
    pool.connection(Instant::now() + LIST).await?.call::<ToolsCall>(args, CALL_TIMEOUT).await
}

/// Calls a tool, and records what it says while it runs.
async fn followed(pool: &Pool, args: &CallTool, requested: &RequestedCall) -> Result<Called, Error> {
    let follow = async {
        let mut items = pool.stream::<ToolsCall>(args, CALL_TIMEOUT).await?;
        while let Some(item) = items.next().await {
            let ToolProgress { progress, total, message } = item?;
            let (tool_name, tool_call_id) = (args.name.clone(), requested.call.id.clone());
            if let Some(events) = &requested.events {
                events.send(Body::ToolProgress { tool_name, tool_call_id, progress, total, message }).await;
            }
        }
        items.reply().await
    };
    let silent = |_| Error::deadline("ken-tools did not answer in time").outcome_unknown();
    timeout(CALL_TIMEOUT + LIST, follow).await.map_err(silent)?
}

/// Returns the message of a refused call, for the model.
fn message(tool: &str, error: &Error) -> String {
    match error.code {
        Code::Unavailable if !error.is_outcome_unknown() => {
            format!("The tool {tool} cannot be reached now; the call was not made.")
        }
        Code::Unavailable | Code::Deadline => interrupted(tool),
        Code::Conflict if error.at.as_deref() == Some("/repeated") => interrupted(tool),
        _ => format!("The call of {tool} was refused: {}", reason(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(name: &str, agents: &[&str], outside: &str) -> Tool {
        let text = serde_json::json!({
            "name": name, "description": "", "parameters": {}, "agents": agents, "approval": "none",
            "idempotent": name == "b", "outside": outside, "file": "",
        });
        serde_json::from_value(text).unwrap()
    }

    /// Of the tools that ken-tools has, each agent is offered its own.
    #[test]
    fn tools_are_known_by_their_names_and_agents() {
        let tools = WireTools::new(Pool::new("/nowhere"));
        let set = |process: &str| {
            let known = vec![tool("a", &["one", "two"], "web"), tool("b", &["two"], "mail")];
            *tools.known.lock() = Known { tools: Arc::new(known), process: process.to_owned(), ..Known::default() };
        };
        set("p1");
        let names = |agent: &str| tools.list(agent).into_iter().map(|tool| tool.name).collect::<Vec<_>>();
        assert_eq!([names("one"), names("two"), names("three")].map(|names| names.concat()), ["a", "ab", ""]);
        assert_eq!(["a", "b", "c"].map(|name| tools.facts(name).is_idempotent), [false, true, false]);
        assert_eq!(tools.facts("b").outside.as_deref(), Some("mail"));
        assert_eq!(["b", "c"].map(|name| tools.facts(name).process), [Some("p1".to_owned()), None]);
        set("");
        assert_eq!(tools.facts("b").process, None);
    }

    /// A call that has certainly not been sent is sent again while ken-tools may be restarting, and not for longer.
    #[test]
    fn a_call_that_cannot_be_sent_is_given_up_in_time() {
        let paused = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        let requested = RequestedCall {
            caller: crate::ports::Caller::root(Arc::new(crate::testing::claim("hello"))),
            call: crate::turn_state::Call::internal("a", serde_json::json!({})),
            ask: false,
            events: None,
        };
        let tools = WireTools::new(Pool::new("/nowhere"));
        assert_eq!(paused.block_on(tools.call(requested.clone(), None)).unwrap_err(), format!("{NO_TOOL}a`."));
        *tools.known.lock() = Known { tools: Arc::new(vec![tool("a", &["one"], "web")]), ..Known::default() };
        paused.block_on(async {
            let begun = Instant::now();
            let called = timeout(10 * MAX_UNREACHABLE, tools.call(requested, None)).await.expect("it is given up");
            assert_eq!(called.unwrap_err(), "The tool a cannot be reached now; the call was not made.");
            assert!(begun.elapsed() >= MAX_UNREACHABLE && begun.elapsed() < 2 * MAX_UNREACHABLE);
        });
    }

    /// What the model is told of a call that has not returned a result: whether it may have taken effect.
    #[test]
    fn what_is_said_of_a_call_without_a_result() {
        let unknown = interrupted("x");
        for (error, said) in [
            (Error::unavailable("away"), "The tool x cannot be reached now; the call was not made.".to_owned()),
            (Error::unavailable("away").outcome_unknown(), unknown.clone()),
            (Error::deadline("late"), unknown.clone()),
            (Error::deadline("late").outcome_unknown(), unknown.clone()),
            (Error::conflict("twice").at("/repeated"), unknown),
            (Error::conflict("used").at("/grant"), "The call of x was refused: /grant: used".to_owned()),
            (Error::forbidden("no"), "The call of x was refused: no".to_owned()),
        ] {
            assert_eq!(message("x", &error), said, "{error:?}");
        }
    }
}
