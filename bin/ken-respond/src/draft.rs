//! Requests drafts from a program or from ken-model.

use std::time::Duration;

use ken_flow::{Kind, Limits, Protocol, Tool, run_once};
use ken_tool::{Error, MAX_INPUT};
use serde::Serialize;
use serde_json::Value;
use tokio::time::timeout;

use crate::attempt::Attempt;
use crate::model;
use crate::question::Question;

pub(crate) struct Drafter {
    who: Source,
    time: Duration,
}

enum Source {
    /// A program with its arguments. It is started once for each draft.
    Program(Vec<String>),
    /// ken-model: the one of the running system if there is one, otherwise a co-process.
    Model(Box<Tool>),
}

impl Drafter {
    /// Uses the command, or ken-model if the command is empty. `time` is the time limit of one draft.
    pub(crate) fn of(command: &[String], time: Duration) -> Drafter {
        let who = match command {
            [] => Source::Model(Box::new(Tool::new(&Protocol::new("MODEL", Kind::Model, "ken-model", "")))),
            words => Source::Program(words.to_vec()),
        };
        Drafter { who, time }
    }

    /// Requests the next draft. The request includes the faults of the previous draft, if there is one.
    pub(crate) async fn draft(&self, question: &Question, attempts: &[Attempt]) -> Result<String, Error> {
        let model = match &self.who {
            Source::Program(words) => return self.run(words, question, attempts).await,
            Source::Model(model) => model,
        };
        let drafted = timeout(self.time, model::ask(model, question, attempts, self.time)).await;
        let took_too_long = |_| Error::deadline(format!("ken-model took longer than {:?}", self.time));
        check_not_blank("ken-model", drafted.map_err(took_too_long)??)
    }

    async fn run(&self, words: &[String], question: &Question, attempts: &[Attempt]) -> Result<String, Error> {
        let brief =
            serde_json::to_vec(&Brief::of(question, attempts)).map_err(|error| Error::internal(error.to_string()))?;
        let limits = Limits { time: self.time, bytes: MAX_INPUT };
        let output = run_once(words, &brief, limits).await.map_err(|error| error.at("--draft"))?;
        let name = words.first().map_or("the command", String::as_str);
        let output = String::from_utf8(output)
            .map_err(|_| Error::invalid("--draft", format!("the draft of {name} is not UTF-8")))?;
        written(name, &output).and_then(|draft| check_not_blank(name, draft)).map_err(|error| error.at("--draft"))
    }
}

/// The line that a drafting program reads on standard input.
#[derive(Serialize)]
struct Brief<'a> {
    prompt: &'a str,
    context: &'a Value,
    /// The number of the attempt, counted from 1.
    attempt: usize,
    /// The previous draft, and what was wrong with it.
    previous: Option<&'a str>,
    violations: &'a [String],
    recommendations: &'a [String],
}

impl<'a> Brief<'a> {
    fn of(question: &'a Question, attempts: &'a [Attempt]) -> Brief<'a> {
        let last = attempts.last();
        let judgement = last.map(|last| &last.judgement);
        Brief {
            prompt: &question.prompt,
            context: &question.context,
            attempt: attempts.len() + 1,
            previous: last.map(|last| last.response.as_str()),
            violations: judgement.map_or(&[], |judgement| &judgement.violations),
            recommendations: judgement.map_or(&[], |judgement| &judgement.recommendations),
        }
    }
}

/// Extracts the draft from the output of a program: the `response` or `text` field of a JSON object, or the whole
/// output if it is no JSON object. Fails with `invalid` for an object with neither field, because it is probably an
/// error message.
fn written(who: &str, output: &str) -> Result<String, Error> {
    let Ok(Value::Object(mut document)) = serde_json::from_str(output) else {
        return Ok(output.trim_end_matches(['\n', '\r']).to_owned());
    };
    let field = ["response", "text"].iter().find_map(|name| document.remove(*name));
    let wrong = match field {
        Some(Value::String(draft)) => return Ok(draft),
        Some(_) => "whose response is not text",
        None => "without response or text",
    };
    Err(Error::invalid("", format!("{who} wrote a JSON object {wrong}"))
        .hint("a draft that is JSON itself is the text of response"))
}

fn check_not_blank(who: &str, draft: String) -> Result<String, Error> {
    if draft.trim().is_empty() { Err(Error::unavailable(format!("{who} drafted nothing"))) } else { Ok(draft) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_draft_is_text_or_the_field_of_a_document() {
        for (output, draft) in [
            ("a b\n", "a b"),
            ("{\"response\":\"a\"}\n", "a"),
            (" {\"text\":\"a\",\"more\":1}", "a"),
            ("{\"text\":\"a\",\"response\":\"b\"}", "b"),
            ("{braces} are text", "{braces} are text"),
        ] {
            assert_eq!(written("it", output).unwrap(), draft);
        }
        for output in ["{}", "{\"error\":{\"message\":\"overloaded\"}}", "{\"response\":5,\"text\":\"a\"}"] {
            assert!(written("it", output).is_err(), "{output}");
        }
    }
}
