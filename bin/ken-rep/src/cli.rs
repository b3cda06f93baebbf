use clap::Args;
use ken_tool::{Error, Filter, MAX_DEPTH, Need, Replied, Reply};
use ken_types::json;
use serde_json::Value;

use crate::document::{Document, Hypothesis, Kind};
use crate::rules::{Rules, list};
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
    /// Observations, for induction and abduction; by default these are the facts
    #[arg(long, num_args = 1.., value_name = "TEXT", allow_negative_numbers = true)]
    observations: Vec<String>,
    /// Hypotheses, for abduction; by default these are found in the rules
    #[arg(long, num_args = 1.., value_name = "TEXT", allow_negative_numbers = true)]
    hypotheses: Vec<String>,
    /// The known case of an analogy
    #[arg(long, value_name = "JSON")]
    source_case: Option<String>,
    /// The case of an analogy about which something is to be found
    #[arg(long, value_name = "JSON")]
    target_case: Option<String>,
    /// Events as a JSON list, for causal reasoning
    #[arg(long, value_name = "JSON")]
    events: Option<String>,
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
        if self.asks_for_input() {
            return Need::Optional;
        }
        let [facts, observations, hypotheses] = self.lists().map(|list| given(list).next().is_some());
        let (rules, events) = (self.rules.is_some(), self.events.is_some());
        let (source, target) = (self.source_case.is_some(), self.target_case.is_some());
        let is_enough = match self.reasoning_type.unwrap_or_default() {
            Kind::Deductive => facts && rules,
            Kind::Causal => (facts || events) && rules,
            Kind::Inductive => facts || observations,
            Kind::Abductive => (facts || observations) && (rules || hypotheses),
            Kind::Analogical => source && target,
        };
        let is_nothing = ![facts, observations, hypotheses, rules, events, source, target].contains(&true);
        match (is_enough, is_nothing) {
            (true, _) => Need::Nothing,
            (_, true) => Need::Input,
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
    /// The values of the options that take several texts.
    fn lists(&self) -> [&[String]; 3] {
        [&self.facts, &self.observations, &self.hypotheses]
    }

    /// Returns whether the parser has taken the `-` for standard input as a value of such an option, as in `--facts a -`.
    fn asks_for_input(&self) -> bool {
        self.lists().iter().any(|list| list.iter().any(|text| text == STDIN))
    }

    fn override_with_flags<'a>(&'a self, document: &mut Document<'a>) -> Result<(), Error> {
        if let Some(kind) = self.reasoning_type {
            document.kind = kind;
        }
        if given(&self.facts).next().is_some() {
            document.facts = given(&self.facts).map(Into::into).collect();
        }
        if given(&self.observations).next().is_some() {
            document.observations = given(&self.observations).map(Into::into).collect();
        }
        if given(&self.hypotheses).next().is_some() {
            let hypothesis = |text: &str| Hypothesis { statement: text.to_owned(), cost: 1.0 };
            document.hypotheses = given(&self.hypotheses).map(hypothesis).collect();
        }
        if let Some(rules) = &self.rules {
            document.rules = Rules::read(rules)?;
        }
        if let Some(case) = &self.source_case {
            document.source_case = json("--source-case", case)?;
        }
        if let Some(case) = &self.target_case {
            document.target_case = json("--target-case", case)?;
        }
        if let Some(events) = &self.events {
            document.events = list(&json("--events", events)?, "--events")?.to_vec();
        }
        Ok(())
    }
}

/// The values of an option without the `-` for standard input.
fn given(list: &[String]) -> impl Iterator<Item = &str> {
    list.iter().map(String::as_str).filter(|text| *text != STDIN)
}

fn json(option: &str, text: &str) -> Result<Value, Error> {
    json::parse(text.as_bytes(), MAX_DEPTH).map_err(|error| Error::invalid(option, error.message))
}
