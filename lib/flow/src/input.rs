//! The default input of a step, for workflows that do not define one.

use ken_types::Error;
use serde_json::value::RawValue;

use crate::data::{push_flat, push_text};
use crate::protocol::Kind;
use crate::scope::Scope;

/// The fields that can hold the text of a step; the first that is present is used.
const TEXT: [&str; 4] = ["user_input", "text", "prompt", "message"];
const REASONING: [&str; 9] = [
    "reasoning_type", "facts", "rules", "observations", "hypotheses", "source_case", "target_case", "events", "options",
];
const RULES: [&str; 3] = ["rules", "facts", "goals"];

impl Kind {
    /// Makes the tool's input, one line of JSON, from the data and the results so far. Returns `invalid`, with a pointer
    /// into the data as `at`, if a field is missing.
    pub(crate) fn line(self, scope: &Scope<'_>) -> Result<String, Error> {
        match self {
            Kind::Esl => Ok(Line::default().raw("user_input", text(scope)?).end()),
            Kind::Rep => Ok(Line::default().copies(scope, &REASONING).issues(scope).end()),
            Kind::Vvp => Ok(verification(scope)),
            Kind::Laws => judgement(scope),
            Kind::Model => conversation(scope),
            Kind::Other if !scope.data.is_object() => Ok(scope.data.tree().to_string()),
            Kind::Other => {
                let names: Vec<&str> = scope.data.names().collect();
                Ok(Line::default().copies(scope, &names).issues(scope).end())
            }
        }
    }
}

fn text<'a>(scope: &'a Scope<'_>) -> Result<&'a RawValue, Error> {
    scope.data.first(&TEXT).ok_or_else(|| {
        Error::invalid(format!("/{}", TEXT[0]), format!("missing field `{}`", TEXT[0]))
            .hint(format!("or one of {}", TEXT[1..].join(", ")))
    })
}

/// The newest result of REP, which contains facts, rules and proofs. If there is none, the rules of the data.
fn verification(scope: &Scope<'_>) -> String {
    let Some(reasoned) = scope.newest_of("REP") else {
        return Line::default().copies(scope, &RULES).end();
    };
    match (scope.data.get("goals"), reasoned.text().strip_suffix('}')) {
        (Some(goals), Some(open)) => {
            let mut line = String::with_capacity(reasoned.text().len() + goals.get().len() + 16);
            line.push_str(open);
            line.push_str(",\"goals\":");
            push_flat(&mut line, goals.get());
            line.push('}');
            line
        }
        _ => reasoned.text().to_owned(),
    }
}

/// The newest text of a model, or else the text of the data; with the context and the facts of the data.
fn judgement(scope: &Scope<'_>) -> Result<String, Error> {
    let model_text = scope.newest_of("MODEL").and_then(|answer| answer.field("text"));
    let line = match model_text {
        Some(model_text) => Line::default().json("text", model_text),
        None => Line::default().raw("text", text(scope)?),
    };
    Ok(line.copies(scope, &["context", "facts"]).end())
}

/// The messages of the data, or else its text as one message. Issues are added to the system prompt.
fn conversation(scope: &Scope<'_>) -> Result<String, Error> {
    let mut line = Line::default().copies(scope, &["model"]);
    line = match scope.progress.issues.as_slice() {
        [] => line.copies(scope, &["system"]),
        issues => line.text("system", &with_issues(scope, issues)),
    };
    if let Some(messages) = scope.data.get("messages") {
        return Ok(line.raw("messages", messages).end());
    }
    let mut messages = String::from(r#"[{"role":"user","content":"#);
    push_flat(&mut messages, text(scope)?.get());
    messages.push_str("}]");
    Ok(line.json("messages", &messages).end())
}

fn with_issues(scope: &Scope<'_>, issues: &[String]) -> String {
    let system = scope.data.get("system");
    let system: Option<String> = system.and_then(|raw| serde_json::from_str(raw.get()).ok());
    let mut words = system.unwrap_or_default();
    words.push_str("\nA first answer was not coherent. Do not repeat this:\n");
    for issue in issues {
        words.push_str("- ");
        words.push_str(issue);
        words.push('\n');
    }
    words.trim_start().to_owned()
}

/// Builds a JSON object on one line.
struct Line(String);

impl Default for Line {
    fn default() -> Line {
        Line("{".to_owned())
    }
}

impl Line {
    fn name(&mut self, name: &str) {
        if self.0.len() > 1 {
            self.0.push(',');
        }
        push_text(&mut self.0, name);
        self.0.push(':');
    }

    fn json(mut self, name: &str, json: &str) -> Line {
        self.name(name);
        push_flat(&mut self.0, json);
        self
    }

    fn raw(self, name: &str, value: &RawValue) -> Line {
        self.json(name, value.get())
    }

    fn text(mut self, name: &str, text: &str) -> Line {
        self.name(name);
        push_text(&mut self.0, text);
        self
    }

    /// Copies the named fields that the data contains.
    fn copies(mut self, scope: &Scope<'_>, names: &[&str]) -> Line {
        for name in names {
            if let Some(value) = scope.data.get(name) {
                self = self.raw(name, value);
            }
        }
        self
    }

    /// Adds the issues of the first result when the step runs for the second time.
    fn issues(self, scope: &Scope<'_>) -> Line {
        match scope.progress.issues.as_slice() {
            [] => self,
            issues => {
                let issues = serde_json::Value::from(issues.to_vec()).to_string();
                self.json("issues", &issues)
            }
        }
    }

    fn end(mut self) -> String {
        self.0.push('}');
        self.0
    }
}
