//! The tools that programs outside can call: the pure ones of ken-tools, the search in the knowledge, and those that start work.

use ken_types::event::Block;
use ken_types::ops::Nothing;
use ken_types::ops::cognitive::WorkflowsList;
use ken_types::ops::store::{Found, KnowledgeRecord, KnowledgeSearch, Search};
use ken_types::ops::tools::{CallTool, Called, ListTools, Tool, ToolsCall, ToolsList};
use ken_types::{Code, Error};
use serde::Deserialize;
use serde_json::{Value, json};

use super::client::Client;
use super::message::{Call, INVALID_PARAMS, RpcError, told};
use super::work::{arguments, result};
use crate::app::Gateway;

/// How long a pure tool may take; each has a limit of its own.
const TOOL_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(60);
/// The maximum number of entries that a search returns, and of characters of each.
const MAX_FOUND: u32 = 20;
const MAX_CONTENT_CHARACTERS: usize = 4_000;

/// Returns the result of `tools/list`. Without ken-tools or ken-cognitive it lists the others.
pub(super) async fn list(gateway: &Gateway) -> Value {
    let pure = pure(gateway).await.unwrap_or_default();
    let mut tools: Vec<Value> = pure.iter().map(described).collect();
    tools.extend(own(&workflows(gateway).await));
    json!({"tools": tools})
}

async fn pure(gateway: &Gateway) -> Result<Vec<Tool>, Error> {
    let listed = gateway.tools.call::<ToolsList>(&ListTools::default()).await?;
    Ok(listed.tools.into_iter().filter(|tool| tool.pure).collect())
}

fn described(tool: &Tool) -> Value {
    json!({
        "name": tool.name,
        "description": tool.description,
        "inputSchema": tool.parameters.value(),
        "annotations": {"readOnlyHint": true, "idempotentHint": true, "openWorldHint": false},
    })
}

async fn workflows(gateway: &Gateway) -> String {
    let listed = gateway.cognitive.call::<WorkflowsList>(&Nothing {}).await;
    let lines = listed.map(|listed| {
        let lines = listed.workflows.into_iter().map(|one| format!("\n{}: {}", one.name, one.description));
        lines.collect::<String>()
    });
    lines.unwrap_or_default()
}

fn own(workflows: &str) -> [Value; 4] {
    let text = |description: &str| json!({"type": "string", "minLength": 1, "description": description});
    let tool = |name: &str, description: &str, properties: Value, required: &str, annotations: &Value| {
        let schema =
            json!({"type": "object", "properties": properties, "required": [required], "additionalProperties": false});
        json!({"name": name, "description": description, "inputSchema": schema, "annotations": annotations})
    };
    let acts = json!({"readOnlyHint": false, "destructiveHint": false, "openWorldHint": true});
    [
        tool(
            "knowledge_search",
            "Search what ken knows: the entries that its people, its agents and imports have stored. \
             Returns the best matches with their ids.",
            json!({
                "query": text("Words to search for"),
                "limit": {"type": "integer", "minimum": 1, "maximum": MAX_FOUND, "default": 5},
            }),
            "query",
            &json!({"readOnlyHint": true, "idempotentHint": true, "openWorldHint": false}),
        ),
        tool(
            "ask_ken",
            "Ask ken, the agent of this machine. It answers from its knowledge and with its own tools; what needs an \
             approval waits for a person at ken. If the answer is not there within a minute, the result \
             has an id for get_result.",
            json!({
                "question": text("The question or the task"),
                "session": text("The session of an earlier answer, to go on with that conversation"),
            }),
            "question",
            &acts,
        ),
        tool(
            "run_workflow",
            &format!(
                "Run a workflow of ken. If it has not ended within a minute, the result has an id for get_result.{workflows}"
            ),
            json!({
                "workflow": text("The name of the workflow"),
                "input": {"type": "object", "description": "The input, as the workflow describes it"},
            }),
            "workflow",
            &acts,
        ),
        tool(
            "get_result",
            "Get the result of an earlier ask_ken or run_workflow. Waits for it for up to a minute.",
            json!({"id": text("The id that ask_ken or run_workflow has returned")}),
            "id",
            &json!({"readOnlyHint": true, "openWorldHint": false}),
        ),
    ]
}

/// Calls a tool that answers at once.
pub(super) async fn call(gateway: &Gateway, client: &Client, call: &Call) -> Result<Value, RpcError> {
    let Some(name) = call.params.get("name").and_then(Value::as_str) else {
        return Err(RpcError::new(INVALID_PARAMS, "params has no name, a string"));
    };
    if name == "knowledge_search" {
        return Ok(search(gateway, client, call).await.unwrap_or_else(|error| failed(&error)));
    }
    // Only the list says which tools are pure, so a call of any other one never reaches ken-tools.
    let known = pure(gateway).await?;
    if !known.iter().any(|tool| tool.name == name) {
        return Err(RpcError::new(INVALID_PARAMS, format!("there is no tool `{name}`; tools/list names them")));
    }
    let arguments = call.params.get("arguments").cloned().unwrap_or_default();
    let args = CallTool { name: name.to_owned(), arguments, ..CallTool::default() };
    Ok(match gateway.tools.0.call::<ToolsCall>(&args, TOOL_TIMEOUT).await {
        Ok(called) => called_result(called),
        Err(error) => failed(&error),
    })
}

fn called_result(called: Called) -> Value {
    let texts = called.result.content.iter().filter_map(|block| match block {
        Block::Text { text } => Some(json!({"type": "text", "text": text})),
        _ => None,
    });
    let mut result = json!({"content": texts.collect::<Vec<_>>(), "isError": called.is_error});
    if called.result.details.is_object() {
        result["structuredContent"] = called.result.details;
    }
    result
}

/// The result for arguments that a model can correct, and for a part that is down.
fn failed(error: &Error) -> Value {
    let code = if error.code == Code::Invalid { "invalid" } else { error.code.name() };
    result(&told(error), json!({"status": "refused", "code": code}), true)
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    query: String,
    #[serde(default = "five")]
    limit: u32,
}

fn five() -> u32 {
    5
}

async fn search(gateway: &Gateway, client: &Client, call: &Call) -> Result<Value, Error> {
    let Wanted { query, limit } = arguments(call)?;
    if query.trim().is_empty() {
        return Err(Error::invalid("/query", "query is blank"));
    }
    if !(1..=MAX_FOUND).contains(&limit) {
        return Err(Error::invalid("/limit", format!("limit is {limit}, it must be 1 to {MAX_FOUND}")));
    }
    let args = Search { query, scope: Some(client.scope.clone()), limit, vector: None, session: None };
    let Found { found } = gateway.store.call::<KnowledgeSearch>(&args).await?;
    let shown: Vec<Value> = found.iter().map(|one| entry(&one.entry, one.score)).collect();
    let lines = found.iter().map(|one| format!("{} ({})\n{}", one.entry.title, one.entry.id, content(&one.entry)));
    let text = lines.collect::<Vec<_>>().join("\n\n");
    let text = if text.is_empty() { "nothing was found".to_owned() } else { text };
    Ok(result(&text, json!({"found": shown}), false))
}

fn entry(entry: &KnowledgeRecord, score: f64) -> Value {
    json!({
        "id": entry.id,
        "title": entry.title,
        "content": content(entry),
        "tags": entry.tags,
        "source": entry.source,
        "score": score,
        "truncated": entry.content.chars().nth(MAX_CONTENT_CHARACTERS).is_some(),
    })
}

fn content(entry: &KnowledgeRecord) -> &str {
    let end = entry.content.char_indices().nth(MAX_CONTENT_CHARACTERS).map(|(at, _)| at);
    end.and_then(|end| entry.content.get(..end)).unwrap_or(&entry.content)
}
