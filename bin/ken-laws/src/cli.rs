//! The flags of ken-laws, and what it does with one input.

use std::cell::{Cell, OnceCell, RefCell};

use clap::{Args, ValueEnum};
use ken_tool::{Error, Filter, MAX_DEPTH, Reply, Sent};

use crate::context::Context;
use crate::evidence::{Evidence, Item};
use crate::input::{self, Subject};
use crate::judge::Judge;
use crate::report::Report;
use crate::rubric::{BARS, Bar};
use crate::score::Score;

#[derive(Args)]
pub(crate) struct Laws {
    /// The text to judge
    #[arg(short, long)]
    text: Option<String>,
    /// How much a text must reach
    #[arg(short, long, value_enum, default_value_t = Strictness::Moderate)]
    strictness: Strictness,
    /// What is known, as JSON: statements and values that the text must not contradict
    #[arg(short, long, value_name = "JSON")]
    context: Option<String>,
    #[arg(skip)]
    known: OnceCell<Result<Context, Error>>,
    #[arg(skip)]
    work: RefCell<Work>,
}

/// What is kept from one text to the next, for its memory alone.
#[derive(Default)]
struct Work {
    judge: Judge,
    score: Score,
    items: Vec<Item>,
    room: Cell<Vec<u8>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Strictness {
    Lenient,
    Moderate,
    Strict,
}

impl Strictness {
    fn bar(self) -> &'static Bar {
        &BARS[self as usize] // one row each, in this order; a test holds it so
    }
}

impl Filter for Laws {
    const NAME: &'static str = "ken-laws";
    const ABOUT: &'static str =
        "Judge a text by the five laws: architecture, governance, truth, energy, determinism";
    const AFTER_HELP: &'static str =
        "Exit status: 0 PASS or CONDITIONAL, 1 FAIL, 2 error. ken-laws(7) has the rubric.";

    fn inline(&self) -> Option<&str> {
        self.text.as_deref()
    }

    fn run(&self, input: &str, reply: Reply<'_>) -> Result<Sent, Error> {
        let known = self
            .known
            .get_or_init(|| self.read_context())
            .as_ref()
            .map_err(Error::clone)?;
        if self.text.is_some() || !input::is_document(input) {
            return Ok(self.judge(input, known, None, reply));
        }
        let mut subject = Subject::of_document(input)?;
        match subject.context.take() {
            Some(mut own) => {
                own.merge(known);
                Ok(self.judge(&subject.text, &own, Some(&subject), reply))
            }
            None => Ok(self.judge(&subject.text, known, Some(&subject), reply)),
        }
    }
}

impl Laws {
    fn judge(&self, text: &str, context: &Context, subject: Option<&Subject>, reply: Reply<'_>) -> Sent {
        let mut work = self.work.borrow_mut();
        let Work {
            judge,
            score,
            items,
            room,
        } = &mut *work;
        judge.examine(text, context);
        score.fill(judge, self.strictness.bar());
        Item::list(&judge.findings, score, items);
        let evidence = Evidence { text, subject, items };
        reply.send(&Report {
            score,
            evidence,
            room,
        })
    }

    fn read_context(&self) -> Result<Context, Error> {
        let mut context = Context::default();
        if let Some(text) = &self.context {
            let value =
                ken_types::json::parse(text.as_bytes(), MAX_DEPTH).map_err(|error| error.at("--context"))?;
            context.add(&value);
        }
        Ok(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_strictness_has_its_row() {
        for (value, bar) in Strictness::value_variants().iter().zip(&BARS) {
            assert_eq!(value.to_possible_value().unwrap().get_name(), bar.name);
            assert_eq!(value.bar().name, bar.name);
        }
    }
}
