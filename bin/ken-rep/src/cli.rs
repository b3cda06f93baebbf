use clap::Args;
use ken_tool::{Error, Filter, Need, Replied, Reply};

use crate::document::{Document, Kind};
use crate::rules::Rules;
use crate::{abductive, analogical, causal, deductive, inductive, scan};

#[derive(Args)]
pub(crate) struct Rep {
    /// The document as JSON
    #[arg(short, long, value_name = "JSON")]
    json: Option<String>,
    /// Type of reasoning; overrides the document
    #[arg(long, value_enum, value_name = "TYPE")]
    reasoning_type: Option<Kind>,
    /// Facts, instead of the document's. Write --facts=FACT for one that begins with -; a single - reads standard input
    #[arg(long, num_args = 1.., value_name = "FACT", allow_negative_numbers = true)]
    facts: Vec<String>,
    /// Rules as a JSON list of [[premise...], conclusion], instead of the document's
    #[arg(long, value_name = "JSON")]
    rules: Option<String>,
}

/// The argument that stands for standard input.
const STDIN: &str = "-";

impl Filter for Rep {
    const NAME: &'static str = "ken-rep";
    const ABOUT: &'static str = "Reason over facts and rules, and prove every conclusion";
    const AFTER_HELP: &'static str = "Exit status: 0 done, 2 an error. See ken-rep(1).";

    fn inline(&self) -> Option<&str> {
        self.json.as_deref()
    }

    fn need(&self) -> Need {
        let has_facts = self.given_facts().next().is_some();
        if self.asks_for_input() {
            return Need::Optional;
        }
        match (self.reasoning_type.unwrap_or_default(), has_facts, self.rules.is_some()) {
            (Kind::Deductive | Kind::Causal, true, true) | (Kind::Inductive, true, _) => Need::Nothing,
            (_, false, false) => Need::Input,
            _ => Need::Optional,
        }
    }

    fn run(&self, input: &str, reply: Reply<'_>) -> Result<Replied, Error> {
        let mut document = if input.trim().is_empty() { Document::default() } else { scan::read(input)? };
        if self.asks_for_input() && self.json.is_some() {
            return Err(Error::invalid("--facts", "more than one input is named")
                .hint("give one of --json, --file PATH, or - for standard input"));
        }
        self.override_with_flags(&mut document)?;
        match document.kind {
            Kind::Deductive => deductive::answer(&document, reply),
            Kind::Inductive => inductive::answer(&document, reply),
            Kind::Abductive => abductive::answer(&document, reply),
            Kind::Analogical => analogical::answer(&document, reply),
            Kind::Causal => causal::answer(&document, reply),
        }
    }
}

impl Rep {
    fn given_facts(&self) -> impl Iterator<Item = &str> {
        self.facts.iter().map(String::as_str).filter(|fact| *fact != STDIN)
    }

    /// Returns whether the parser has taken the `-` for standard input as a value of `--facts`, as in `--facts a -`.
    fn asks_for_input(&self) -> bool {
        self.facts.iter().any(|fact| fact == STDIN)
    }

    fn override_with_flags<'a>(&'a self, document: &mut Document<'a>) -> Result<(), Error> {
        if let Some(kind) = self.reasoning_type {
            document.kind = kind;
        }
        if self.given_facts().next().is_some() {
            document.facts = self.given_facts().map(Into::into).collect();
        }
        if let Some(rules) = &self.rules {
            document.rules = Rules::read(rules)?;
        }
        Ok(())
    }
}
