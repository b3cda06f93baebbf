//! `ken rules`: manages the governing rules, which the runtime enforces in every turn. They are changed over the socket
//! of the store, so only on the machine itself and never over HTTP.

use std::io::Read;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use ken_types::Error;
use ken_types::places::Places;
use ken_types::rule::Rule;
use serde_json::{Value, json};

use crate::client::ask;
use crate::ids::{field, items};
use crate::output::{ListArgs, Outcome, fail_each, print_json, print_line, print_table};

const MAX_RULE_BYTES: u64 = 64 * 1024;
const CALL_TIMEOUT: Duration = Duration::from_secs(10);

const EXAMPLES: &str = r#"Examples:
  echo '{"name": "no-push", "directives": [{"deny_tool": "git_push"}]}' | ken rules check -
  echo '{"name": "no-push", "directives": [{"deny_tool": "git_push"}]}' | ken rules add -
  ken rules list"#;

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Rules {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List the rules: the built-in ones and your own
    List(ListArgs),
    /// Add a rule, or replace the rule of the same name
    Add(Source),
    /// Switch one of your own rules on
    Enable(Named),
    /// Switch one of your own rules off; built-in rules stay on
    Disable(Named),
    /// Delete one of your own rules
    Rm(Named),
    /// Check whether files are valid rules; exit status 2 if one is not
    Check(Files),
}

#[derive(Debug, Args)]
struct Source {
    /// File with the rule as JSON; - is standard input
    file: PathBuf,
}

#[derive(Debug, Args)]
struct Named {
    /// Name of the rule
    name: String,
}

#[derive(Debug, Args)]
struct Files {
    /// Files, each with one rule; - is standard input
    #[arg(required = true)]
    files: Vec<PathBuf>,
}

/// Runs the command. `check` does not call `places`, because it needs no system.
pub(crate) fn run(places: impl Fn() -> Result<Places, Error>, rules: &Rules) -> Outcome {
    match &rules.command {
        Command::List(args) => list(&places()?, args)?,
        Command::Add(source) => {
            let rule = read(&source.file)?;
            let places = places()?;
            refuse_base_name(&places, &rule.name)?;
            call(&places, "store", "rules.put", &json!({ "rule": rule }))?;
            print_line(&rule.name)?;
        }
        Command::Enable(Named { name }) => {
            let args = json!({"name": name, "enabled": true});
            change_user_rule(&places()?, "rules.switch", name, args)?;
        }
        Command::Disable(Named { name }) => {
            let args = json!({"name": name, "enabled": false});
            change_user_rule(&places()?, "rules.switch", name, args)?;
        }
        Command::Rm(Named { name }) => change_user_rule(&places()?, "rules.delete", name, json!({"name": name}))?,
        Command::Check(files) => {
            let mut errors = Vec::new();
            for file in &files.files {
                match read(file) {
                    Ok(rule) => print_line(&format!("{}: {}", file.display(), rule.name))?,
                    Err(error) => errors.push(error),
                }
            }
            return Ok(fail_each(errors));
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn call(places: &Places, part: &str, op: &str, args: &Value) -> Result<Value, Error> {
    ask(places, part, op, args, Some(CALL_TIMEOUT))
}

/// Calls an operation of the store on a rule of the user. If it fails because the rule is a built-in one, the error
/// says so.
fn change_user_rule(places: &Places, op: &str, name: &str, args: Value) -> Result<(), Error> {
    let Err(error) = call(places, "store", op, &args) else {
        return Ok(());
    };
    Err(if is_base(places, name)? {
        Error::forbidden(format!("the rule {name} is one of ken itself, and stays on"))
    } else {
        error
    })
}

/// Fails if a built-in rule has this name, because somebody who switches off the new rule could believe that the
/// built-in one is off. While ken-agent is down, the built-in rules are not known and every name is accepted.
fn refuse_base_name(places: &Places, name: &str) -> Result<(), Error> {
    match is_base(places, name) {
        Ok(true) => Err(Error::conflict(format!("{name} is the name of a built-in rule")).at("/name")),
        _ => Ok(()),
    }
}

fn is_base(places: &Places, name: &str) -> Result<bool, Error> {
    let base = call(places, "agent", "rules.base", &json!({}))?;
    let is_named = |base: &Value| base.pointer("/rule/name").and_then(Value::as_str) == Some(name);
    Ok(items(&base, "rules").iter().any(is_named))
}

fn read(file: &PathBuf) -> Result<Rule, Error> {
    let name = file.display().to_string();
    let unreadable = |error: std::io::Error| Error::invalid(name.clone(), format!("cannot be read: {error}"));
    let mut text = Vec::new();
    let input: Box<dyn Read> = match name.as_str() {
        "-" => Box::new(std::io::stdin()),
        _ => Box::new(ken_tool::open_regular(file).map_err(unreadable)?),
    };
    input.take(MAX_RULE_BYTES + 1).read_to_end(&mut text).map_err(unreadable)?;
    if text.len() as u64 > MAX_RULE_BYTES {
        return Err(Error::too_large(format!("{name}: a rule has at most {MAX_RULE_BYTES} bytes")));
    }
    Rule::parse(&text).map_err(|error| {
        let place = error.at.as_deref().unwrap_or_default();
        Error::invalid(format!("{name}{place}"), error.message).hint("ken-rules(5) describes rules")
    })
}

fn list(places: &Places, args: &ListArgs) -> Result<(), Error> {
    let base = call(places, "agent", "rules.base", &json!({}))?;
    let own = call(places, "store", "rules.list", &json!({}))?;
    let (base, own) = (items(&base, "rules").iter(), items(&own, "rules").iter());
    if args.json {
        let base = base.map(|base| json!({"rule": base["rule"], "state": "base", "file": base["file"]}));
        let own = own.map(|own| json!({"rule": own["rule"], "state": state(own)}));
        return base.chain(own).try_for_each(|line| print_json(&line));
    }
    let base = base.map(|base| row(&base["rule"], "base"));
    let own = own.map(|own| row(&own["rule"], state(own)));
    print_table(["NAME", "STATE", "PRIORITY", "DIRECTIVES"], base.chain(own))
}

fn state(own: &Value) -> &'static str {
    match own.get("enabled") {
        Some(Value::Bool(true)) => "on",
        _ => "off",
    }
}

fn row(rule: &Value, state: &str) -> [String; 4] {
    let directives = items(rule, "directives").iter().filter_map(Value::as_object);
    let names: Vec<&str> = directives.flat_map(|one| one.keys().map(String::as_str)).collect();
    let priority = rule.get("priority").map(Value::to_string).unwrap_or_default();
    [field(rule, "name").to_owned(), state.to_owned(), priority, names.join(" ")]
}
