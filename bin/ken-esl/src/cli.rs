//! The flags of ken-esl.

use std::borrow::Cow;
use std::cell::RefCell;

use ken_tool::{Error, Filter, MAX_DEPTH, Replied, Reply};
use ken_types::json;

use crate::answer::State;
use crate::reading::Reading;
use crate::risk::Risk;
use crate::rows::Rows;
use crate::table::Table;
use crate::window::WordSums;

#[derive(clap::Args)]
pub struct Esl {
    /// The text, or a JSON object with the text as its user_input
    #[arg(short, long, value_name = "TEXT")]
    text: Option<String>,
    /// Read a CSV table, and the texts of this column of it, by the column's name in the first line
    #[arg(long, value_name = "COLUMN", conflicts_with_all = ["text", "lines"])]
    csv: Option<String>,
    #[arg(skip)]
    words: RefCell<WordSums>,
}

impl Filter for Esl {
    const NAME: &'static str = "ken-esl";
    const ABOUT: &'static str = "Detect the emotions that a text expresses, with evidence, valence and intensity";
    const AFTER_HELP: &'static str = "Exit status: 0 done, 2 an error. See ken-esl(1).";

    fn inline(&self) -> Option<&str> {
        self.text.as_deref()
    }

    fn run(&self, input: &str, reply: Reply<'_>) -> Result<Replied, Error> {
        if let Some(column) = &self.csv {
            return Ok(reply.send(&Rows::read(input, column, &mut self.words.borrow_mut())?));
        }
        let text = text_of(input)?;
        let reading = Reading::of(&Table::shipped(), &mut self.words.borrow_mut(), &text);
        Ok(reply.send(&State { text: &text, reading: &reading, risk: &Risk::of(&text) }))
    }
}

/// Returns the text of an input: the input itself, or `user_input` of a JSON object. An input that begins like a JSON
/// object must be one.
fn text_of(input: &str) -> Result<Cow<'_, str>, Error> {
    if !input.trim_start().starts_with('{') {
        return Ok(Cow::Borrowed(input));
    }
    let document = json::parse(input.as_bytes(), MAX_DEPTH)?;
    match document.get("user_input") {
        Some(serde_json::Value::String(text)) if !text.trim().is_empty() => Ok(Cow::Owned(text.clone())),
        Some(serde_json::Value::String(_)) => Err(Error::invalid("/user_input", "the text is empty")),
        Some(_) => Err(Error::invalid("/user_input", "user_input is not a text")),
        None => {
            Err(Error::invalid("/user_input", "user_input is missing")
                .hint("give plain text, or {\"user_input\": \"…\"}"))
        }
    }
}
