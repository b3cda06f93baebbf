//! The options of ken-laws, and how it processes one input.

use std::cell::{Cell, OnceCell};
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use ken_tool::{Error, Filter, MAX_DEPTH, Replied, Reply};

use crate::context::Context;
use crate::input::{self, Subject};
use crate::judge::Judge;
use crate::report::Report;
use crate::review::Reviewer;
use crate::rubric::{BARS, Bar};
use crate::score::Score;
use crate::sources::{self, Source};

#[derive(Args)]
pub(crate) struct Laws {
    /// The text to judge
    #[arg(short, long)]
    text: Option<String>,
    /// How strict the verdict is
    #[arg(short, long, value_enum, default_value_t = Strictness::Moderate)]
    strictness: Strictness,
    /// Known facts as a JSON object: statements and values that the text must not contradict
    #[arg(short, long, value_name = "JSON")]
    context: Option<String>,
    /// File with sources of the text: a plain text, or a JSON list of texts or of objects with id and text
    #[arg(long, value_name = "FILE")]
    sources: Vec<PathBuf>,
    /// FAIL unless every sentence could be compared with sources, and none is unsupported or contradicted
    #[arg(long)]
    require_support: bool,
    /// Model that judges each sentence by its passages of the sources
    #[arg(long, value_name = "PROVIDER/MODEL")]
    judge: Option<String>,
    /// Time limit of the judge for one text, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 60_000, value_parser = clap::value_parser!(u64).range(1..=600_000))]
    judge_timeout_ms: u64,
    #[arg(skip)]
    known: OnceCell<Result<Known, Error>>,
    #[arg(skip)]
    rubric: Cell<Judge>,
}

/// The settings for all texts.
struct Known {
    context: Context,
    sources: Vec<Source>,
    reviewer: Option<Reviewer>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Strictness {
    Lenient,
    Moderate,
    Strict,
}

impl Strictness {
    fn bar(self) -> &'static Bar {
        &BARS[self as usize] // one row per variant, in this order
    }
}

impl Filter for Laws {
    const NAME: &'static str = "ken-laws";
    const ABOUT: &'static str = "Judge a text by the five laws: architecture, governance, truth, energy, determinism";
    const AFTER_HELP: &'static str = "Exit status: 0 PASS or CONDITIONAL, 1 FAIL, 2 error. ken-laws(7) has the rubric.";

    fn inline(&self) -> Option<&str> {
        self.text.as_deref()
    }

    fn run(&self, input: &str, reply: Reply<'_>) -> Result<Replied, Error> {
        let known = self.known.get_or_init(|| self.read_known()).as_ref().map_err(Error::clone)?;
        let is_text = self.text.is_some() || !input::is_document(input);
        let mut subject = if is_text { Subject::of_text(input) } else { Subject::of_document(input)? };
        subject.context.merge(&known.context);
        let mut sources = std::mem::take(&mut subject.sources);
        sources.extend_from_slice(&known.sources);
        let mut compared = sources::compare(&subject.text, &sources, self.require_support);
        let reviewer = known.reviewer.as_ref().filter(|_| !sources.is_empty());
        let review = reviewer.map(|it| it.review(&subject.text, &sources, &mut compared)).transpose()?;
        let mut judge = self.rubric.take();
        let judgement = judge.judge(&subject.text, &subject.context, compared.support.as_ref());
        self.rubric.set(judge);
        let score = Score::new(&judgement, &compared, self.require_support, self.strictness.bar());
        Ok(reply.send(&Report::new(&subject, &judgement, &score, &sources, &compared, review.as_ref())))
    }
}

impl Laws {
    fn read_known(&self) -> Result<Known, Error> {
        let reviewer = self.judge.as_deref().map(|model| Reviewer::new(model, self.judge_timeout_ms)).transpose()?;
        let mut known = Known { context: Context::default(), sources: Vec::new(), reviewer };
        if let Some(text) = &self.context {
            let value = ken_types::json::parse(text.as_bytes(), MAX_DEPTH).map_err(|error| error.at("--context"))?;
            if !value.is_object() {
                return Err(Error::invalid("--context", "the context is not a JSON object")
                    .hint("for example {\"facts\": [\"The valve is open\"], \"timeout_s\": 30}"));
            }
            known.context.add(&value);
        }
        for path in &self.sources {
            known.sources.extend(sources::read_file(path)?);
        }
        Ok(known)
    }
}
