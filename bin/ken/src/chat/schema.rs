//! `ken chat --schema`: checks that an answer is JSON and fits a JSON Schema.

use std::path::Path;

use jsonschema::Validator;
use ken_types::{Error, json};
use serde_json::value::RawValue;

use crate::input::read_text;

const SCHEMA_BYTES: u64 = 64 * 1024;
const MAX_DEPTH: usize = 64;

/// The JSON Schema that an answer must fit.
pub(super) struct Schema {
    text: String,
    validator: Validator,
}

impl Schema {
    /// Reads a schema. Returns an `invalid` error if the file is not a JSON Schema. References to other documents are
    /// not resolved.
    pub(super) fn read(path: &Path) -> Result<Schema, Error> {
        let text = read_text("--schema", path, SCHEMA_BYTES)?;
        let wrong = |what: String| Error::invalid("--schema", format!("{}: {what}", path.display()));
        let schema = json::parse(text.as_bytes(), MAX_DEPTH).map_err(|error| wrong(error.to_string()))?;
        let validator = jsonschema::validator_for(&schema).map_err(|error| wrong(error.to_string()))?;
        Ok(Schema { text, validator })
    }

    /// Returns the instruction that is appended to the prompt for the model.
    pub(super) fn instruction(&self) -> String {
        format!(
            "Answer with one JSON value that fits this JSON Schema, and with nothing else: no words around it.\n\n```json\n{}\n```",
            self.text.trim()
        )
    }

    /// Returns the JSON of an answer on one line, or the reason why it does not fit. A code block around it is ignored.
    /// Numbers stay as the model wrote them. Because the text is passed on, a key may not be repeated: another reader
    /// could take the value that was not checked.
    pub(super) fn parse_answer(&self, answer: &str) -> Result<Box<RawValue>, String> {
        let text = without_code_block(answer);
        let value = json::parse_output(text.as_bytes(), MAX_DEPTH)
            .map_err(|error| format!("it is not JSON: {}", error.message))?;
        match self.validator.validate(&value) {
            Ok(()) => RawValue::from_string(json::compact(text)).map_err(|error| format!("it is not JSON: {error}")),
            Err(error) => {
                let at = error.instance_path().to_string();
                let at = if at.is_empty() { "the value" } else { &at };
                Err(format!("{at}: {}", error.masked()))
            }
        }
    }
}

fn without_code_block(answer: &str) -> &str {
    let answer = answer.trim();
    let inner =
        answer.strip_prefix("```").and_then(|rest| rest.strip_suffix("```")).and_then(|rest| rest.split_once('\n'));
    inner.map_or(answer, |(_, inner)| inner.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_block_around_an_answer_is_taken_away() {
        assert_eq!(without_code_block(" {\"a\": 1}\n"), "{\"a\": 1}");
        assert_eq!(without_code_block("```json\n{\"a\": 1}\n```\n"), "{\"a\": 1}");
        assert_eq!(without_code_block("```\n[1]\n```"), "[1]");
        assert_eq!(without_code_block("Here: ```json\n1\n```"), "Here: ```json\n1\n```");
        assert_eq!(without_code_block("```"), "```");
    }
}
