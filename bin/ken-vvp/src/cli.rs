use clap::Args;
use ken_tool::{Error, Filter, MAX_DEPTH, Replied, Reply};
use ken_types::json;

use crate::answer::Answer;
use crate::rulebase::RuleBase;
use crate::{chain, conflicts, cycles, redundancy};

#[derive(Args)]
pub(crate) struct Vvp {
    /// The document as JSON
    #[arg(short, long, value_name = "JSON")]
    json: Option<String>,
    /// Treat warnings as errors
    #[arg(long)]
    strict: bool,
}

impl Filter for Vvp {
    const NAME: &'static str = "ken-vvp";
    const ABOUT: &'static str = "Validate a rule set, or a result of ken-rep, and find all its problems";
    const AFTER_HELP: &'static str = "Exit status: 0 success, 1 failure, 2 an error. See ken-vvp(1).";

    fn inline(&self) -> Option<&str> {
        self.json.as_deref()
    }

    fn run(&self, input: &str, reply: Reply<'_>) -> Result<Replied, Error> {
        let value = json::parse(input.as_bytes(), MAX_DEPTH)?;
        let (base, mut issues) = RuleBase::of(&value)?;
        issues.extend(redundancy::find(&base));
        issues.extend(cycles::find(&base));
        let found = conflicts::find(&base)?;
        issues.extend(found.issues);
        issues.extend(chain::check(&base, &value)?);
        Ok(reply.send(&Answer::of(&base, issues, found.conflicts, found.idle, self.strict)))
    }
}
