//! A command that reads a call as JSON and carries it out, or previews what it would do.

use std::marker::PhantomData;

use clap::Args;
use ken_tool::{Answer, Error, Filter, MAX_DEPTH, Replied, Reply};
use ken_types::json;
use serde::de::DeserializeOwned;

use crate::gate;
use crate::preview::Preview;
use crate::settings::Settings;

/// One command. The implementing type holds its arguments.
pub(crate) trait Operation: DeserializeOwned + Send + Sync {
    /// The full name of the command, such as `ken-coder edit`.
    const NAME: &'static str;
    /// The word after `ken-coder`, such as `edit`.
    const COMMAND: &'static str = Self::NAME.split_at("ken-coder ".len()).1;
    const ABOUT: &'static str;
    /// The description of the fields for `--help`.
    const FIELDS: &'static str;
    /// Whether `run` asks itself whether it may go on. An operation whose effect depends on files asks while it holds the
    /// lock of the journal; any other one is asked about before it runs.
    const ASKS: bool = false;
    type Answer: Answer;

    /// Describes what the call would do, without changing anything.
    fn preview(&self, settings: &Settings) -> Result<Preview, Error>;

    fn run(&self, settings: &Settings) -> Result<Self::Answer, Error>;
}

#[derive(Args)]
pub(crate) struct Call<O: Operation> {
    /// The call, as a JSON object
    #[arg(short, long, value_name = "JSON")]
    json: Option<String>,
    /// Print what the call would do and whether it needs approval, and do nothing
    #[arg(long)]
    preview: bool,
    #[arg(skip)]
    operation: PhantomData<fn() -> O>,
}

impl<O: Operation> Filter for Call<O> {
    const NAME: &'static str = O::NAME;
    const ABOUT: &'static str = O::ABOUT;
    const AFTER_HELP: &'static str = O::FIELDS;

    fn inline(&self) -> Option<&str> {
        self.json.as_deref()
    }

    fn run(&self, input: &str, reply: Reply<'_>) -> Result<Replied, Error> {
        let operation: O = json::from_value(json::parse(input.as_bytes(), MAX_DEPTH)?)?;
        let settings = Settings::load()?;
        if self.preview {
            return Ok(reply.send(&operation.preview(&settings)?));
        }
        if settings.has_gate && !O::ASKS {
            gate::pass(&settings, &operation.preview(&settings)?)?;
        }
        Ok(reply.send(&operation.run(&settings)?))
    }
}
