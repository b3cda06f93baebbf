//! Drafts by ken-model, which runs as a part of the running system or as a co-process.

use std::time::Duration;

use ken_flow::Tool;
use ken_tool::Error;
use ken_types::event::{Block, Message, Usage};
use ken_types::ops::model::Generate;
use serde::Deserialize;

use crate::attempt::Attempt;
use crate::question::Question;

const SYSTEM: &str = "Answer the user. Tie each claim to its reason or source, with numbers, units and dates where you have \
    them; say what you did not check; say nothing twice.";

pub(crate) async fn ask(
    model: &Tool,
    question: &Question,
    attempts: &[Attempt],
    time: Duration,
) -> Result<String, Error> {
    #[derive(Deserialize)]
    struct StructuredAnswer {
        text: String,
    }
    let line =
        serde_json::to_string(&request(question, attempts)).map_err(|error| Error::internal(error.to_string()))?;
    let answer = model.ask(&line, time).await?;
    if let Some(error) = answer.error() {
        return Err(error.at(""));
    }
    let answered: StructuredAnswer = serde_json::from_str(answer.text())
        .map_err(|error| Error::internal(format!("cannot read the answer of ken-model: {error}")))?;
    Ok(answered.text)
}

fn request(question: &Question, attempts: &[Attempt]) -> Generate {
    let mut messages = vec![user(prompt(question))];
    if let Some(last) = attempts.last() {
        messages.push(assistant(&last.response));
        messages.push(user(feedback(last)));
    }
    Generate { system: SYSTEM.to_owned(), messages, ..Generate::default() }
}

fn prompt(question: &Question) -> String {
    match &question.context {
        serde_json::Value::Null => question.prompt.clone(),
        context => format!("{}\n\nWhat is known:\n{context}", question.prompt),
    }
}

fn feedback(attempt: &Attempt) -> String {
    let judgement = &attempt.judgement;
    let items = |items: &[String]| items.iter().map(|item| format!("- {item}\n")).collect::<String>();
    format!(
        "Revise your answer.\n\nWhat is wrong with it:\n{}\nWhat would help:\n{}\nWrite the revised answer alone.",
        items(&judgement.violations),
        items(&judgement.recommendations)
    )
}

fn user(text: String) -> Message {
    Message::User { content: vec![Block::text(text)], timestamp: 0, now: None }
}

/// Returns a message of the assistant. Author, usage and time are empty, because providers do not use them.
fn assistant(text: &str) -> Message {
    Message::Assistant {
        content: vec![Block::text(text)],
        api: String::new(),
        provider: String::new(),
        model: String::new(),
        usage: Usage::default(),
        stop_reason: None,
        error: None,
        timestamp: 0,
    }
}
