//! Requests for approval, and the dialog that decides one.

use ken_client::approvals::Decision;
use serde_json::Value;

use super::block::one_line;

/// What a person must know for a decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) id: String,
    pub(crate) action: String,
    pub(crate) summary: String,
    pub(crate) risk: String,
    pub(crate) target: String,
    pub(crate) reason: String,
    pub(crate) expires_at: String,
    pub(crate) status: String,
    pub(crate) session: Option<String>,
    /// The exact action, as lines.
    pub(crate) details: Vec<String>,
    /// A unified diff.
    pub(crate) diff: String,
}

impl Request {
    pub(crate) fn of(record: &Value) -> Option<Request> {
        let text = |name: &str| {
            let value = record.pointer(&format!("/request/{name}")).or_else(|| record.get(name));
            one_line(value.and_then(Value::as_str).unwrap_or_default())
        };
        let id = record.pointer("/request/id").or_else(|| record.get("requestId"))?.as_str()?;
        let metadata = |name: &str| record.pointer(&format!("/request/metadata/{name}"));
        let diff = metadata("diff").and_then(Value::as_str).unwrap_or_default();
        // The action of an ordinary tool call names the tool already.
        let tool = metadata("tool").filter(|_| metadata("action/tool").is_none());
        let tool = tool.and_then(Value::as_str).map(|tool| format!("tool: {}", one_line(tool)));
        let action = metadata("action").map(fields).unwrap_or_default();
        Some(Request {
            id: id.to_owned(),
            action: text("actionType"),
            summary: text("summary"),
            risk: text("risk"),
            target: text("target"),
            reason: text("reason"),
            expires_at: text("expiresAt"),
            status: record.get("status").and_then(Value::as_str).unwrap_or("pending").to_owned(),
            session: metadata("sessionId").and_then(Value::as_str).map(str::to_owned),
            details: tool.into_iter().chain(action).collect(),
            diff: ken_text::for_terminal(diff).into_owned(),
        })
    }
}

/// Formats an action as lines, field by field, without shortening any value.
fn fields(action: &Value) -> Vec<String> {
    let shown = |value: &Value| match value {
        Value::String(text) => ken_text::for_terminal(text).into_owned(),
        other => ken_text::for_terminal(&other.to_string()).into_owned(),
    };
    match action {
        Value::Null => Vec::new(),
        Value::Object(fields) => {
            let fields = fields.iter().filter(|(_, value)| !value.is_null());
            fields.map(|(name, value)| format!("{}: {}", one_line(name), shown(value))).collect()
        }
        other => vec![shown(other)],
    }
}

/// The open dialog.
#[derive(Debug)]
pub(crate) struct Dialog {
    pub(crate) request: Request,
    /// The index of the first visible line.
    pub(crate) scroll: usize,
    /// The reason for a denial, while it is being typed.
    pub(crate) reason: Option<String>,
}

impl Dialog {
    pub(crate) fn new(request: Request) -> Dialog {
        Dialog { request, scroll: 0, reason: None }
    }
}

pub(crate) fn decision(approved: bool, for_session: bool, reason: Option<String>) -> Decision {
    Decision {
        approved,
        by: "local-tui".to_owned(),
        reason: reason.filter(|reason| !reason.trim().is_empty()),
        for_session,
        digest: None,
    }
}
