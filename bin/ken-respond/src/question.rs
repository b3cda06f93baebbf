use ken_tool::{Error, MAX_DEPTH};
use ken_types::json;
use serde_json::Value;

/// The prompt, and the facts that a response can use.
pub(crate) struct Question {
    pub(crate) prompt: String,
    /// Facts that a response must not contradict, or null.
    pub(crate) context: Value,
}

/// The field names under which a document can contain the prompt. The first one that is present is used.
const PROMPT: [&str; 3] = ["prompt", "user_input", "text"];

impl Question {
    /// Reads the prompt from a text, or from a JSON object that contains it and an optional `context`. An input that
    /// begins with `{` is read as an object.
    pub(crate) fn read(input: &str) -> Result<Question, Error> {
        if !input.trim_start().starts_with('{') {
            return Ok(Question { prompt: input.trim_end_matches(['\n', '\r']).to_owned(), context: Value::Null });
        }
        let mut document = json::parse(input.as_bytes(), MAX_DEPTH)?;
        let name = PROMPT.iter().find(|name| document.get(**name).is_some());
        let name = name.ok_or_else(|| Error::invalid("/prompt", "there is no prompt to answer"))?;
        match document.get_mut(*name).map(Value::take) {
            Some(Value::String(prompt)) if !prompt.trim().is_empty() => {
                Ok(Question { prompt, context: document.get_mut("context").map(Value::take).unwrap_or_default() })
            }
            Some(Value::String(_)) => Err(Error::invalid(format!("/{name}"), "the prompt is blank")),
            _ => Err(Error::invalid(format!("/{name}"), "the prompt must be text")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_and_documents_are_read() {
        let read = |input: &str| Question::read(input).map(|question| question.prompt);
        assert_eq!(read("Why?\n").unwrap(), "Why?");
        assert_eq!(read(r#"{"user_input":"Why?"}"#).unwrap(), "Why?");
        assert_eq!(Question::read(r#"{"prompt":"a","context":[1]}"#).unwrap().context, serde_json::json!([1]));
        for (input, at) in [("{}", "/prompt"), (r#"{"prompt":7}"#, "/prompt"), (r#"{"text":" "}"#, "/text")] {
            assert_eq!(read(input).unwrap_err().at.as_deref(), Some(at), "{input}");
        }
    }
}
