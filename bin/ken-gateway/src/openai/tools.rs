//! The tools of the calling program: what a model is told of them, and the calls with which an answer ends.

use std::collections::BTreeSet;

use ken_http::Failure;
use ken_types::Error;
use ken_types::event::ProgramCall;
use ken_types::id::SubmissionId;
use ken_types::ops::model::{SchemaText, ToolSpec};
use ken_types::ops::store::PROGRAM_TOOL;
use serde_json::{Map, Value, json};

use super::error::unsupported;
use crate::body::check_length;

/// The maximum number of tools, and the maximum length of a name: with what stands before it, it is as long as providers allow.
const TOOLS: usize = 128;
const NAME_CHARACTERS: usize = 64 - PROGRAM_TOOL.len();
/// The maximum size of all tools together, in bytes.
const TOOLS_BYTES: usize = 256 * 1024;

/// The tools that a request offers, and what the model is told about their use.
#[derive(Debug, Default)]
pub(super) struct Tools {
    pub(super) specs: Vec<ToolSpec>,
    pub(super) instruction: Option<String>,
}

impl Tools {
    /// Reads the tools of a request and the choice among them, which is about these alone.
    pub(super) fn read(fields: &Map<String, Value>) -> Result<Tools, Failure> {
        let given = match fields.get("tools") {
            None => &Vec::new(),
            Some(Value::Array(tools)) => tools,
            Some(_) => return Err(Error::invalid("/tools", "tools is not a list").into()),
        };
        if given.len() > TOOLS {
            return Err(Error::invalid("/tools", format!("{} tools, at most {TOOLS} are allowed", given.len())).into());
        }
        let specs = given.iter().enumerate().map(|(index, tool)| spec(tool, &format!("/tools/{index}")));
        let specs: Vec<ToolSpec> = specs.collect::<Result<_, _>>()?;
        check(&specs)?;
        Tools { specs, instruction: None }.chosen(fields.get("tool_choice"))
    }

    fn chosen(mut self, choice: Option<&Value>) -> Result<Tools, Failure> {
        match choice.map(|choice| choice.as_str().ok_or(choice)) {
            None | Some(Ok("auto")) => {}
            Some(Ok("none")) => self.specs.clear(),
            Some(Ok("required")) if !self.specs.is_empty() => {
                self.instruction = Some(format!("Answer with a call of a tool whose name begins with {PROGRAM_TOOL}."));
            }
            Some(Err(choice)) if choice.get("type").is_some_and(|kind| kind == "function") => {
                let name = choice.get("function").unwrap_or(choice).get("name").and_then(Value::as_str);
                let name = format!("{PROGRAM_TOOL}{}", name.unwrap_or_default());
                self.specs.retain(|tool| tool.name == name);
                if self.specs.is_empty() {
                    return Err(Error::invalid("/tool_choice", "the chosen tool is not among the tools").into());
                }
                self.instruction = Some(format!("Answer with a call of the tool {name}."));
            }
            _ => {
                return Err(unsupported(
                    "/tool_choice".to_owned(),
                    "the choice is none, auto, required, or a function",
                ));
            }
        }
        Ok(self)
    }
}

/// Reads one tool. In chat completions its fields are in `function`, in responses beside the type.
fn spec(tool: &Value, at: &str) -> Result<ToolSpec, Failure> {
    if tool.get("type").is_none_or(|kind| kind != "function") {
        return Err(unsupported(format!("{at}/type"), "only functions can be tools here"));
    }
    let function = tool.get("function").unwrap_or(tool);
    let text = |name: &str| function.get(name).and_then(Value::as_str).unwrap_or_default();
    let name = text("name");
    check_length(&format!("{at}/name"), name, 1, NAME_CHARACTERS)?;
    if !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-')) {
        return Err(Error::invalid(format!("{at}/name"), "a name has letters, digits, _ and -").into());
    }
    let parameters = match function.get("parameters") {
        None | Some(Value::Null) => json!({"type": "object", "properties": {}}),
        Some(given @ Value::Object(_)) => given.clone(),
        Some(_) => return Err(Error::invalid(format!("{at}/parameters"), "parameters is not a JSON schema").into()),
    };
    Ok(ToolSpec {
        name: format!("{PROGRAM_TOOL}{name}"),
        description: text("description").to_owned(),
        parameters: SchemaText::from(&parameters),
    })
}

fn check(specs: &[ToolSpec]) -> Result<(), Failure> {
    let names: BTreeSet<&str> = specs.iter().map(|tool| tool.name.as_str()).collect();
    if names.len() < specs.len() {
        return Err(Error::invalid("/tools", "two tools have the same name").into());
    }
    let size = |tool: &ToolSpec| tool.name.len() + tool.description.len() + tool.parameters.text().len();
    let bytes: usize = specs.iter().map(size).sum();
    if bytes > TOOLS_BYTES {
        return Err(Error::invalid(
            "/tools",
            format!("the tools have {bytes} bytes, at most {TOOLS_BYTES} are allowed"),
        )
        .into());
    }
    Ok(())
}

/// Returns the id of a call as the program gets it. It names the turn too, so that the results find it.
pub(super) fn call_id(submission: &SubmissionId, call: &ProgramCall) -> String {
    format!("call_{}_{}", submission.as_str().replace('-', ""), call.id)
}

/// Returns the submission with this id, which is written as 32 hexadecimal digits without the hyphens.
pub(super) fn submission_of_digits(digits: &str) -> Option<SubmissionId> {
    let is_plain = digits.len() == 32 && digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let parts = [digits.get(..8)?, digits.get(8..12)?, digits.get(12..16)?, digits.get(16..20)?, digits.get(20..)?];
    is_plain.then(|| SubmissionId(parts.join("-")))
}

/// Returns the turn and the call that an id stands for; `None` for one of another service.
pub(super) fn of_call_id(id: &str) -> Option<(SubmissionId, String)> {
    let (digits, call) = id.strip_prefix("call_")?.split_once('_')?;
    Some((submission_of_digits(digits)?, call.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(fields: Value) -> Result<Tools, Value> {
        let read = Tools::read(fields.as_object().unwrap());
        read.map_err(|failure| super::super::error::body(&failure)["error"]["param"].clone())
    }

    fn function(name: &str) -> Value {
        json!({"type": "function", "function": {"name": name, "parameters": {"type": "object"}}})
    }

    #[test]
    fn tools_have_names_of_their_own() {
        let tools = read(json!({"tools": [function("a"), {"type": "function", "name": "b"}]})).unwrap();
        let names: Vec<&str> = tools.specs.iter().map(|tool| tool.name.as_str()).collect();
        assert_eq!(names, ["client__a", "client__b"]);
        for (fields, param) in [
            (json!({"tools": {}}), "tools"),
            (json!({"tools": [function("")]}), "tools[0].name"),
            (json!({"tools": [function("a b")]}), "tools[0].name"),
            (json!({"tools": [function(&"a".repeat(57))]}), "tools[0].name"),
            (json!({"tools": [function("a"), function("a")]}), "tools"),
            (json!({"tools": [{"type": "web_search"}]}), "tools[0].type"),
            (json!({"tools": [{"type": "function", "name": "b", "parameters": 1}]}), "tools[0].parameters"),
            (
                json!({"tools": [function("a")], "tool_choice": {"type": "function", "function": {"name": "b"}}}),
                "tool_choice",
            ),
            (json!({"tools": [function("a")], "tool_choice": "any"}), "tool_choice"),
        ] {
            assert_eq!(read(fields).unwrap_err(), param);
        }
    }

    #[test]
    fn the_choice_is_among_them() {
        let two = || json!([function("a"), function("b")]);
        assert!(read(json!({"tools": two(), "tool_choice": "none"})).unwrap().specs.is_empty());
        let one = read(json!({"tools": two(), "tool_choice": {"type": "function", "name": "b"}})).unwrap();
        assert_eq!(
            (one.specs.len(), one.instruction.as_deref()),
            (1, Some("Answer with a call of the tool client__b."))
        );
        assert!(read(json!({"tools": two(), "tool_choice": "required"})).unwrap().instruction.is_some());
    }

    #[test]
    fn the_id_of_a_call_names_its_turn() {
        let submission = SubmissionId("3d2f6a0e-8a55-4d2b-9c55-6f0f6d1f8e11".into());
        let call = ProgramCall { id: "call_0_x".into(), name: "a".into(), arguments: Value::Null };
        assert_eq!(of_call_id(&call_id(&submission, &call)), Some((submission, "call_0_x".to_owned())));
        for other in ["", "call_", "call_1_2", "call_abcdefghijklmnop", "toolu_1"] {
            assert_eq!(of_call_id(other), None, "{other}");
        }
    }
}
