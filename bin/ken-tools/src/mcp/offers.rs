//! What a server offers, as others have written it: tools, resources and prompts.

use std::collections::BTreeSet;

use ken_text::head;
use rmcp::model::{
    CallToolResult, ContentBlock, ErrorData, GetPromptRequestParams, GetPromptResponse, PaginatedRequestParams, Prompt,
    PromptMessage, ReadResourceRequestParams, ReadResourceResponse, Resource, ResourceTemplate, ServerCapabilities,
    ToolAnnotations,
};
use rmcp::service::ServiceError;
use rmcp::{Peer, RoleClient};
use serde_json::{Map, Value, json};

use super::accepted::{Kind, Pinned, PinnedTool};
use super::down::ERROR_BYTES;

/// The maximum number of tools of a server, besides those that read its resources.
pub(super) const MAX_TOOLS: usize = 128;
/// The maximum number of resources, and of templates of their addresses, that a model is shown.
const MAX_RESOURCES: usize = 200;
const MAX_PAGES: usize = 16;
/// The maximum length of what a list says about one resource, in bytes.
const MAX_ABOUT_BYTES: usize = 300;

/// Returns the items of a list that a server names page by page; `ask` asks for a page, and returns the cursor of the next one.
async fn all<T, F>(what: &str, ask: impl Fn(PaginatedRequestParams) -> F) -> Result<Vec<T>, String>
where
    F: Future<Output = Result<(Vec<T>, Option<String>), ServiceError>>,
{
    let (mut items, mut cursor) = (Vec::new(), None);
    for _ in 0..MAX_PAGES {
        let params = PaginatedRequestParams::default().with_cursor(cursor);
        let unnamed =
            |error: ServiceError| format!("it does not name its {what}: {}", head(&error.to_string(), ERROR_BYTES));
        let (page, next) = ask(params).await.map_err(unnamed)?;
        items.extend(page);
        if next.is_none() {
            return Ok(items);
        }
        cursor = next;
    }
    Err(format!("it names its {what} on more than {MAX_PAGES} pages"))
}

/// The tools of a server.
#[derive(Clone, Default)]
pub(crate) struct ToolList {
    /// The tools that can be used, sorted by name.
    pub(crate) tools: Pinned,
    /// The names of the tools beyond the limit, which cannot be used.
    pub(crate) beyond: Vec<String>,
}

/// Returns the wanted tools of a server, with those that read its resources. Other tools count for nothing.
pub(super) async fn tools(
    server: &Peer<RoleClient>,
    capabilities: &ServerCapabilities,
    wanted: Option<&BTreeSet<String>>,
) -> Result<ToolList, String> {
    let is_wanted = |tool: &PinnedTool| wanted.is_none_or(|names| names.contains(&tool.name));
    let mut tools = Vec::new();
    // A server that offers resources or prompts alone need not know the request.
    if capabilities.tools.is_some() || capabilities.resources.is_none() && capabilities.prompts.is_none() {
        let ask =
            |params| async move { server.list_tools(Some(params)).await.map(|page| (page.tools, page.next_cursor)) };
        tools.extend(all("tools", ask).await?.into_iter().map(pinned).filter(is_wanted));
    }
    let beyond = tools.split_off(tools.len().min(MAX_TOOLS)).into_iter().map(|tool| tool.name).collect();
    if capabilities.resources.is_some() {
        let own = [list_resources_tool(), read_resource_tool()];
        let is_free = |tool: &PinnedTool| tools.iter().all(|known: &PinnedTool| known.name != tool.name);
        let own: Vec<PinnedTool> = own.into_iter().filter(is_free).filter(is_wanted).collect();
        tools.extend(own);
    }
    tools.sort_by(|one: &PinnedTool, other| one.name.cmp(&other.name));
    Ok(ToolList { tools: Pinned(tools), beyond })
}

fn pinned(tool: rmcp::model::Tool) -> PinnedTool {
    let hint = |hint: fn(&ToolAnnotations) -> Option<bool>| tool.annotations.as_ref().and_then(hint).unwrap_or(false);
    PinnedTool {
        read_only: hint(|said| said.read_only_hint),
        idempotent: hint(|said| said.idempotent_hint),
        name: tool.name.to_string(),
        kind: Kind::Tool,
        description: tool.description.as_deref().unwrap_or_default().to_owned(),
        input_schema: Value::Object((*tool.input_schema).clone()),
        output_schema: tool.output_schema.as_deref().cloned().map_or(Value::Null, Value::Object),
    }
}

fn list_resources_tool() -> PinnedTool {
    PinnedTool {
        name: "list_resources".to_owned(),
        kind: Kind::ListResources,
        description: "List what this server has to read: addresses, and templates of addresses.".to_owned(),
        input_schema: json!({"type": "object", "properties": {}}),
        ..reading()
    }
}

fn read_resource_tool() -> PinnedTool {
    PinnedTool {
        name: "read_resource".to_owned(),
        kind: Kind::ReadResource,
        description: "Read a resource of this server, by its address (URI).".to_owned(),
        input_schema: json!({"type": "object", "properties": {"uri": {"type": "string"}}, "required": ["uri"]}),
        ..reading()
    }
}

/// A tool that reads resources. The protocol has no request that changes one.
fn reading() -> PinnedTool {
    PinnedTool { read_only: true, idempotent: true, ..PinnedTool::default() }
}

/// Returns the resources of a server as the result of a tool, one a line.
pub(super) async fn list_resources(server: &Peer<RoleClient>) -> Result<CallToolResult, ServiceError> {
    let mut lines = Vec::new();
    let mut cursor = None;
    for _ in 0..MAX_PAGES {
        let page = server.list_resources(Some(PaginatedRequestParams::default().with_cursor(cursor.take()))).await?;
        lines.extend(page.resources.iter().map(resource_line));
        cursor = page.next_cursor.filter(|_| lines.len() < MAX_RESOURCES);
        if cursor.is_none() {
            break;
        }
    }
    // Many servers have no templates, and do not know the request.
    let templates = server.list_resource_templates(None).await.map(|page| page.resource_templates);
    lines.extend(templates.unwrap_or_default().iter().map(template_line));
    let beyond = lines.len().saturating_sub(MAX_RESOURCES);
    lines.truncate(MAX_RESOURCES);
    if beyond > 0 {
        lines.push(format!("{beyond} more are left out here"));
    }
    let text = if lines.is_empty() { "There is nothing to read now.".to_owned() } else { lines.join("\n") };
    Ok(CallToolResult::success(vec![ContentBlock::text(text)]))
}

fn resource_line(resource: &Resource) -> String {
    let size = resource.size.map(|size| format!("{size} bytes"));
    line(&resource.uri, &resource.name, [resource.mime_type.as_ref(), size.as_ref(), resource.description.as_ref()])
}

fn template_line(template: &ResourceTemplate) -> String {
    let about = [template.mime_type.as_ref(), None, template.description.as_ref()];
    line(&template.uri_template, &template.name, about)
}

fn line(uri: &str, name: &str, about: [Option<&String>; 3]) -> String {
    let about: Vec<&str> = std::iter::once(name).chain(about.into_iter().flatten().map(String::as_str)).collect();
    let about = about.join(", ").replace(char::is_control, " ");
    format!("{uri}  {}", head(&about, MAX_ABOUT_BYTES))
}

/// Reads a resource, as the result of a tool.
pub(super) async fn read_resource(
    server: &Peer<RoleClient>,
    arguments: &Value,
) -> Result<CallToolResult, ServiceError> {
    let uri = arguments.get("uri").and_then(Value::as_str).unwrap_or_default();
    match server.read_resource_once(ReadResourceRequestParams::new(uri)).await? {
        ReadResourceResponse::Complete(read) => {
            let blocks = read.contents.into_iter().map(ContentBlock::resource);
            Ok(CallToolResult::success(blocks.collect()))
        }
        _ => Err(ServiceError::UnexpectedResponse),
    }
}

pub(super) async fn prompts(
    server: &Peer<RoleClient>,
    capabilities: &ServerCapabilities,
) -> Result<Vec<Prompt>, String> {
    if capabilities.prompts.is_none() {
        return Ok(Vec::new());
    }
    let ask =
        |params| async move { server.list_prompts(Some(params)).await.map(|page| (page.prompts, page.next_cursor)) };
    all("prompts", ask).await
}

/// Returns the messages of a prompt, with these values for its arguments.
pub(super) async fn prompt(
    server: &Peer<RoleClient>,
    name: &str,
    values: Map<String, Value>,
) -> Result<Vec<PromptMessage>, ServiceError> {
    let mut params = GetPromptRequestParams::new(name);
    params.arguments = (!values.is_empty()).then_some(values);
    match server.get_prompt_once(params).await? {
        GetPromptResponse::Complete(prompt) => Ok(prompt.messages),
        _ => Err(ServiceError::McpError(ErrorData::internal_error("it asks for something that ken does not do", None))),
    }
}
