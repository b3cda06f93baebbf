//! The governing rules that users have written. The history of each turn contains the enabled ones.

use ken_types::Error;
use ken_types::ops::Nothing;
use ken_types::ops::rules::*;

use crate::engine::change::Change;
use crate::ops::{Read, Write};
use crate::tables::Tables;

/// The maximum number of rules. It is limited because all enabled rules are read for each turn.
const RULES: usize = 256;

pub(super) fn enabled(tables: &dyn Tables) -> Result<Vec<StoredRule>, Error> {
    tables.governing_rules(true)
}

fn unknown(name: &str) -> Error {
    Error::not_found(format!("there is no rule {name} of a user"))
        .at("/name")
        .hint("`ken rules list` shows which there are; those of ken itself stay on")
}

impl Write for RulesPut {
    fn check(args: &PutRule) -> Result<(), Error> {
        args.rule.check().map_err(|error| {
            let at = format!("/rule{}", error.at.as_deref().unwrap_or_default());
            error.at(at)
        })
    }

    fn run(tables: &dyn Tables, args: &PutRule, change: &mut Change) -> Result<Nothing, Error> {
        let known = tables.governing_rules(false)?;
        if known.len() >= RULES && !known.iter().any(|rule| rule.name == args.rule.name) {
            return Err(Error::conflict(format!("there are {RULES} rules already")));
        }
        let rule = serde_json::to_value(&args.rule)
            .map_err(|error| Error::internal(format!("a rule could not be written as JSON: {error}")))?;
        tables.put_rule(&args.rule.name, &rule, change.now)?;
        Ok(Nothing {})
    }
}

impl Read for RulesList {
    fn run(tables: &dyn Tables, _: &Nothing) -> Result<Rules, Error> {
        let rules = tables.governing_rules(false)?;
        Ok(Rules { rules })
    }
}

impl Write for RulesSwitch {
    fn run(tables: &dyn Tables, args: &SwitchRule, change: &mut Change) -> Result<Nothing, Error> {
        if tables.switch_rule(&args.name, args.enabled, change.now)? {
            Ok(Nothing {})
        } else {
            Err(unknown(&args.name))
        }
    }
}

impl Write for RulesDelete {
    fn run(tables: &dyn Tables, args: &NamedRule, _: &mut Change) -> Result<Nothing, Error> {
        if tables.delete_rule(&args.name)? { Ok(Nothing {}) } else { Err(unknown(&args.name)) }
    }
}
