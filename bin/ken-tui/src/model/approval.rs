//! Requests for approval, and the dialog that decides one.

use ken_client::approvals::Decision;
use serde_json::Value;

use super::block::one_line;

/// What a person has to know to decide.
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
    /// The exact action, a line each.
    pub(crate) details: Vec<String>,
    /// A unified diff.
    pub(crate) diff: String,
}

impl Request {
    pub(crate) fn of(record: &Value) -> Option<Request> {
        let text = |name: &str| {
            let value = record
                .pointer(&format!("/request/{name}"))
                .or_else(|| record.get(name));
            one_line(value.and_then(Value::as_str).unwrap_or_default())
        };
        let id = record
            .pointer("/request/id")
            .or_else(|| record.get("requestId"))?
            .as_str()?;
        let metadata = record.pointer("/request/metadata").and_then(Value::as_object);
        let mut details = Vec::new();
        let mut diff = String::new();
        for (name, value) in metadata.into_iter().flatten() {
            match (name.as_str(), value) {
                ("diff", Value::String(text)) => diff = ken_text::for_terminal(text).into_owned(),
                (_, Value::Null) => {}
                (_, Value::String(text)) => {
                    details.push(format!("{}: {}", one_line(name), ken_text::for_terminal(text)))
                }
                (_, value) => details.push(format!("{}: {}", one_line(name), one_line(&value.to_string()))),
            }
        }
        Some(Request {
            id: id.to_owned(),
            action: text("actionType"),
            summary: text("summary"),
            risk: text("risk"),
            target: text("target"),
            reason: text("reason"),
            expires_at: text("expiresAt"),
            status: record
                .get("status")
                .and_then(Value::as_str)
                .unwrap_or("pending")
                .to_owned(),
            details,
            diff,
        })
    }
}

/// The open dialog.
#[derive(Debug)]
pub(crate) struct Dialog {
    pub(crate) request: Request,
    /// The first line that is shown.
    pub(crate) scroll: usize,
    /// The reason of a denial, while it is typed.
    pub(crate) reason: Option<String>,
}

impl Dialog {
    pub(crate) fn new(request: Request) -> Dialog {
        Dialog {
            request,
            scroll: 0,
            reason: None,
        }
    }
}

pub(crate) fn decision(approved: bool, for_session: bool, reason: Option<String>) -> Decision {
    Decision {
        approved,
        by: "local-tui".to_owned(),
        reason: reason.filter(|reason| !reason.trim().is_empty()),
        for_session,
    }
}
