//! Checks answers against the contracts of the gateway and of the cognitive server in `share/openapi`.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, OnceLock};

use jsonschema::Validator;
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::http::Answer;

/// A contract document, and the validators that have been compiled from it.
pub struct Contract {
    document: Value,
    validators: Mutex<HashMap<String, Arc<Validator>>>,
}

/// Headers that every answer has.
const COMMON: [&str; 4] = ["x-request-id", "cache-control", "x-content-type-options", "cross-origin-resource-policy"];

impl Contract {
    /// The contract of the gateway.
    pub fn get() -> &'static Contract {
        static CONTRACT: OnceLock<Contract> = OnceLock::new();
        CONTRACT.get_or_init(|| Contract::of(include_str!("../../share/openapi/gateway.json")))
    }

    /// The contract of the cognitive server.
    pub fn cognitive() -> &'static Contract {
        static CONTRACT: OnceLock<Contract> = OnceLock::new();
        CONTRACT.get_or_init(|| Contract::of(include_str!("../../share/openapi/cognitive.json")))
    }

    fn of(text: &str) -> Contract {
        Contract { document: serde_json::from_str(text).expect("an OpenAPI document"), validators: Mutex::default() }
    }

    pub fn document(&self) -> &Value {
        &self.document
    }

    /// The methods that are documented for a path, and HEAD if it has GET.
    pub fn methods(&self, path: &str) -> BTreeSet<String> {
        let item = self.document["paths"][path].as_object().expect("a path");
        let mut methods: BTreeSet<String> = item.keys().map(|key| key.to_uppercase()).collect();
        if methods.contains("GET") {
            methods.insert("HEAD".to_owned());
        }
        methods
    }

    /// Fails the test unless the contract describes this answer for this request.
    #[track_caller]
    pub fn check(&self, method: &str, target: &str, answer: &Answer) {
        let what = format!("{method} {target} -> {}", answer.status);
        for name in COMMON {
            assert!(answer.header(name).is_some(), "{what}: no header {name}");
        }
        let Some((key, response)) = self.response(method, target, answer.status) else {
            panic!("{what}: the contract has no such answer: {}", answer.body_text());
        };
        let response = self.resolve(response);
        self.check_headers(&what, &key, response, answer);
        self.check_body(&what, &key, response, answer);
    }

    fn check_headers(&self, what: &str, key: &str, response: &Value, answer: &Answer) {
        let own = response.get("headers").and_then(Value::as_object);
        let common = self.document.pointer("/components/headers").and_then(Value::as_object);
        let common = common.into_iter().flatten().filter(|(name, _)| {
            COMMON.contains(&name.to_ascii_lowercase().as_str()) || name.starts_with("X-RateLimit")
        });
        for (name, header) in own.into_iter().flatten().chain(common) {
            let header = self.resolve(header);
            match answer.header(&name.to_ascii_lowercase()) {
                Some(value) => self.check_value(
                    &format!("{what}, header {name}"),
                    &format!("{key} {name}"),
                    &header["schema"],
                    &json!(value),
                ),
                None => assert_ne!(header["required"], true, "{what}: no header {name}"),
            }
        }
    }

    fn check_body(&self, what: &str, key: &str, response: &Value, answer: &Answer) {
        let Some(content) = response.get("content") else {
            assert_eq!(answer.body, b"", "{what}: a body that the contract does not have");
            return;
        };
        let given = answer.header("content-type").unwrap_or_default();
        let media = content
            .get(given)
            .or_else(|| content.get("*/*"))
            .unwrap_or_else(|| panic!("{what}: not of type {given:?}"));
        if given == "application/json" && !answer.is_to_head && media.get("schema").is_some() {
            self.check_value(what, key, &media["schema"], &answer.json());
        }
    }

    fn check_value(&self, what: &str, key: &str, schema: &Value, value: &Value) {
        let validator = self.validator(key, schema);
        let errors: Vec<String> = validator
            .iter_errors(value)
            .map(|error| format!("{} at {:?}", error, error.instance_path().to_string()))
            .collect();
        assert!(errors.is_empty(), "{what}: {errors:#?}\nin {value:#}");
    }

    fn validator(&self, key: &str, schema: &Value) -> Arc<Validator> {
        let mut validators = self.validators.lock();
        let made = validators.entry(key.to_owned()).or_insert_with(|| {
            let whole = json!({"allOf": [schema], "components": self.document["components"]});
            let options = jsonschema::options().with_draft(jsonschema::Draft::Draft202012);
            Arc::new(options.build(&whole).unwrap_or_else(|error| panic!("the schema of {key}: {error}")))
        });
        made.clone()
    }

    /// The description of an answer: that of an operation or, for an unknown path or method, the common one for this
    /// status. The first part is a unique name.
    fn response(&self, method: &str, target: &str, status: u16) -> Option<(String, &Value)> {
        let path = target.split('?').next().unwrap_or_default();
        let found = self.path(path);
        let item = found.map(|(_, item)| item);
        let operation = item.and_then(|item| match method {
            "HEAD" => item.get("head").or_else(|| item.get("get")),
            _ => item.get(method.to_ascii_lowercase()),
        });
        if let Some(operation) = operation {
            let response = operation["responses"].get(status.to_string())?;
            return Some((format!("{method} {} {status}", found.map_or("", |(name, _)| name)), response));
        }
        // Port 8000 has paths below /v1/, too, and other errors.
        let is_openai =
            path.starts_with("/v1/") && self.document.pointer("/components/responses/OpenaiError").is_some();
        let typed = ["/agents/", "/workflows/", "/runs/", "/streams/"].iter().any(|area| path.starts_with(area));
        let name = match (item, status) {
            (None, _) | (_, 401 | 403 | 400 | 429 | 503) if is_openai => "OpenaiError",
            (None, 404) if typed => "AgentNotFound",
            (None, 404) => "NotFound",
            (Some(_), 405) => "MethodNotAllowed",
            (_, 401) => "Unauthenticated",
            (_, 403) => "Forbidden",
            (_, 400) => "Invalid",
            (_, 429) => "Busy",
            (_, 503) => "Unavailable",
            _ => return None,
        };
        let response = self.document.pointer(&format!("/components/responses/{name}"))?;
        Some((name.to_owned(), response))
    }

    /// The entry for a path. A literal segment has precedence over a parameter.
    fn path(&self, path: &str) -> Option<(&str, &Value)> {
        let rows = self.document["paths"].as_object()?;
        let fits = |row: &str| {
            let (row, path): (Vec<_>, Vec<_>) = (row.split('/').collect(), path.split('/').collect());
            let same =
                |(row, path): (&&str, &&str)| **row == decoded(path) || (row.starts_with('{') && !path.is_empty());
            let rest = row.last() == Some(&"{path}") && path.len() > row.len();
            (row.len() == path.len() || rest) && row.iter().zip(&path).all(same)
        };
        let found = rows.iter().filter(|(row, _)| fits(row));
        let found = found.min_by_key(|(row, _)| row.matches('{').count());
        found.map(|(row, item)| (row.as_str(), item))
    }

    /// The target of a reference, or the value itself.
    pub fn resolve<'a>(&'a self, value: &'a Value) -> &'a Value {
        let Some(reference) = value.get("$ref").and_then(Value::as_str) else {
            return value;
        };
        let found = self.document.pointer(reference.trim_start_matches('#'));
        found.unwrap_or_else(|| panic!("{reference} is nowhere"))
    }
}

/// Percent-decodes a segment that contains only ASCII.
fn decoded(segment: &str) -> String {
    let mut parts = segment.split('%');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| {
        let (code, rest) = part.split_at_checked(2).unwrap_or((part, ""));
        let code = u8::from_str_radix(code, 16).map_or('%', char::from);
        format!("{text}{code}{rest}")
    })
}
