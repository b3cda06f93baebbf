//! The field that names the input that an answer belongs to.

use ken_types::json::escape;

/// A field that is added at the end of an answer: the `id` of its input line, or the `file` that it is about.
#[derive(Debug, Clone)]
pub(crate) struct Mark {
    name: &'static str,
    json: String,
}

impl Mark {
    /// `json` must be a JSON value on one line.
    pub(crate) fn id(json: &str) -> Mark {
        Mark { name: "id", json: json.to_owned() }
    }

    pub(crate) fn file(name: &str) -> Mark {
        let mut json = Vec::with_capacity(name.len() + 2);
        json.push(b'"');
        escape(name, |bytes| json.extend_from_slice(bytes));
        json.push(b'"');
        Mark { name: "file", json: String::from_utf8_lossy(&json).into_owned() }
    }

    /// The line before a summary.
    pub(crate) fn heading(&self) -> String {
        format!("{}:\n", self.json.trim_matches('"'))
    }

    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    /// Its value, as JSON.
    pub(crate) fn json(&self) -> &str {
        &self.json
    }

    /// The field as text for a JSON object: name, colon and value.
    pub(crate) fn field(&self) -> String {
        format!("\"{}\":{}", self.name, self.json)
    }
}
