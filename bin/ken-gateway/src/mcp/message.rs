//! JSON-RPC 2.0: one message of a client, and the replies to it.

use ken_types::{Code, Error, json};
use serde_json::{Map, Value};

use ken_http::{Failure, Response};

pub(super) const INVALID_REQUEST: i64 = -32_600;
pub(super) const METHOD_NOT_FOUND: i64 = -32_601;
pub(super) const INVALID_PARAMS: i64 = -32_602;
const INTERNAL_ERROR: i64 = -32_603;
const PARSE_ERROR: i64 = -32_700;

#[derive(Debug)]
pub(super) enum Message {
    Request(Call),
    Notification {
        method: String,
        params: Map<String, Value>,
    },
    /// An answer to a request of the server, which never makes one.
    Response,
}

/// A request with its id, a string or an integer.
#[derive(Debug, Clone)]
pub(super) struct Call {
    pub(super) id: Value,
    pub(super) method: String,
    pub(super) params: Map<String, Value>,
}

/// The error of a request or of a whole message.
#[derive(Debug)]
pub(super) struct RpcError {
    pub(super) code: i64,
    pub(super) message: String,
    pub(super) data: Option<Value>,
    /// The status of the response where the message itself is at fault.
    pub(super) status: u16,
}

impl RpcError {
    pub(super) fn new(code: i64, message: impl Into<String>) -> RpcError {
        RpcError { code, message: message.into(), data: None, status: 200 }
    }

    pub(super) fn status(mut self, status: u16) -> RpcError {
        self.status = status;
        self
    }

    pub(super) fn data(mut self, data: Value) -> RpcError {
        self.data = Some(data);
        self
    }

    /// The response with this error. A message whose id cannot be read has the id null.
    pub(super) fn response(&self, id: &Value) -> Result<Response, Failure> {
        Response::json(self.status, &self.reply(id))
    }

    pub(super) fn reply(&self, id: &Value) -> Value {
        let mut error = serde_json::json!({"code": self.code, "message": self.message});
        if let Some(data) = &self.data {
            error["data"] = data.clone();
        }
        serde_json::json!({"jsonrpc": "2.0", "id": id, "error": error})
    }
}

impl From<Error> for RpcError {
    fn from(error: Error) -> RpcError {
        let code = match error.code {
            Code::Invalid | Code::NotFound | Code::TooLarge => INVALID_PARAMS,
            _ => INTERNAL_ERROR,
        };
        RpcError::new(code, told(&error))
    }
}

/// What a client, and the model behind it, is told of an error. A defect is only named.
pub(super) fn told(error: &Error) -> String {
    if error.code == Code::Internal {
        tracing::error!("a call over MCP: {error}");
        return "internal error; the log of ken-gateway says more".to_owned();
    }
    let place = error.at.as_deref().filter(|at| !at.is_empty()).map(|at| format!("{at}: ")).unwrap_or_default();
    let hint = error.hint.as_deref().map(|hint| format!(" ({hint})")).unwrap_or_default();
    format!("{place}{}{hint}", error.message)
}

pub(super) fn reply(id: &Value, result: Value) -> Value {
    serde_json::json!({"jsonrpc": "2.0", "id": id, "result": result})
}

/// Reads the body of a request. The error has the id of the message, if that can be read.
pub(super) fn read(bytes: &[u8]) -> Result<Message, (Value, RpcError)> {
    let wrong = |id: Value, code, message: String| Err((id, RpcError::new(code, message).status(400)));
    let value = match json::parse(bytes, json::MAX_DEPTH) {
        Ok(value) => value,
        Err(error) => return wrong(Value::Null, PARSE_ERROR, format!("not JSON: {}", error.message)),
    };
    let Value::Object(mut fields) = value else {
        let message = format!("a message is one object, not {}; batches are not supported", json::kind_of(&value));
        return wrong(Value::Null, INVALID_REQUEST, message);
    };
    let id = fields.remove("id");
    let is_id = |id: &Value| id.is_string() || id.is_i64() || id.is_u64();
    let shown = id.clone().filter(is_id).unwrap_or_default();
    if fields.get("jsonrpc").and_then(Value::as_str) != Some("2.0") {
        return wrong(shown, INVALID_REQUEST, "jsonrpc must be \"2.0\"".to_owned());
    }
    if let Some(other) = id.as_ref().filter(|id| !is_id(id)) {
        let message = format!("id is {}, not a string or an integer", json::kind_of(other));
        return wrong(Value::Null, INVALID_REQUEST, message);
    }
    let other = ["params", "result", "error"].into_iter().find_map(|name| {
        let other = fields.get(name).filter(|value| !value.is_object())?;
        Some(format!("{name} is {}, not an object", json::kind_of(other)))
    });
    if let Some(message) = other {
        return wrong(shown, INVALID_REQUEST, message);
    }
    let method = match fields.remove("method") {
        Some(Value::String(method)) => method,
        None if fields.contains_key("result") || fields.contains_key("error") => return Ok(Message::Response),
        _ => return wrong(shown, INVALID_REQUEST, "method is missing, or not a string".to_owned()),
    };
    let params = match fields.remove("params") {
        Some(Value::Object(params)) => params,
        _ => Map::new(),
    };
    Ok(match id {
        None => Message::Notification { method, params },
        Some(id) => Message::Request(Call { id, method, params }),
    })
}
