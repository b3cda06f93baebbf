//! `ken setup`: finds a model that can be used, asks what is not clear, tries it, and writes it into ken.toml and secrets.env.

use std::process::ExitCode;

use clap::Args;
use ken_types::Error;
use ken_types::places::Places;
use ken_types::providers::{KNOWN_PROVIDERS, KnownProvider, known_provider};
use ken_types::secrets;

use super::change::{Change, NewModels};
use super::config_file::ProviderTable;
use super::running;
use super::secret_file::{SecretFile, checked_key, piped_key};
use super::trial::{Trial, models_here};
use crate::doctor;
use crate::globals::Globals;
use crate::output::{Outcome, print_line, print_note};
use crate::typed;

/// The number of models that are listed before a person is asked for one.
const SHOWN_MODELS: usize = 20;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ken setup
  ken setup --provider ollama --model qwen3 --yes
  ken setup --provider openai --model gpt-5-mini --key-env OPENAI_API_KEY --yes")]
pub(crate) struct Setup {
    /// Provider of the model: openai, anthropic, ollama, ... or a name of your own with --address
    #[arg(long, value_name = "NAME")]
    provider: Option<String>,
    /// Model, as the provider calls it
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
    /// Address of a provider that ken does not know, for instance http://10.0.0.7:8000/v1
    #[arg(long, value_name = "URL", requires = "provider")]
    address: Option<String>,
    /// Wire format of such a provider
    #[arg(long, value_name = "FORMAT", value_parser = ["openai", "anthropic"], requires = "address")]
    kind: Option<String>,
    /// Take the key from this environment variable
    #[arg(long, value_name = "NAME", conflicts_with = "key_stdin")]
    key_env: Option<String>,
    /// Read the key from standard input
    #[arg(long)]
    key_stdin: bool,
    /// Write without asking
    #[arg(short, long)]
    yes: bool,
}

pub(crate) fn run(globals: &Globals, args: &Setup) -> Outcome {
    if let Some(url) = &globals.url {
        let error = Error::invalid(
            "--url",
            format!("{url} is the address of a gateway, and models are set up on this machine"),
        );
        return Err(error.hint("the address of a provider is --address URL"));
    }
    let places = globals.places()?;
    // What cannot be read is said before anything is asked.
    Change::default().applied(&places)?;
    let secrets = SecretFile::open(&places)?;
    let provider = match &args.provider {
        Some(provider) => provider.clone(),
        None => ask_provider(&secrets)?,
    };
    let reached = Reached::of(args, &provider, &secrets)?;
    let key = key(args, &reached, &secrets)?;
    let given: Vec<(String, String)> = reached.address.clone().into_iter().chain(key).collect();
    let provider_alone = Change { provider: Some(reached.table.clone()), ..Change::default() };
    let trial = Trial::of(&provider_alone.applied(&places)?.text(), &places)?;
    let model = match &args.model {
        Some(model) => model.clone(),
        None => ask_model(&trial, &provider, &given)?,
    };
    let full = format!("{provider}/{model}");
    let tried = trial.ask(&full, &given)?;
    drop(trial);
    print_line(&format!("{full} answered in {} ms: {:?}", tried.ms, tried.text))?;
    let is_new = |(name, value): &(String, String)| secrets.get(name) != Some(value);
    let change = Change {
        provider: Some(reached.table),
        models: Some(NewModels::First(full.clone())),
        secrets: given.into_iter().filter(is_new).collect(),
    };
    let config = change.applied(&places)?;
    // With the new list kend must still start.
    Trial::of(&config.text(), &places)?;
    for line in plan(&places, &change, &secrets, config.is_changed(), config.used()) {
        print_line(&line)?;
    }
    let is_change = config.is_changed() || !change.secrets.is_empty();
    if is_change && !args.yes && !confirmed()? {
        print_note("nothing was changed");
        return Ok(ExitCode::from(1));
    }
    change.write(&places)?;
    print_line(&running::sentence(&places, Some(&full)))?;
    doctor::run(globals, &doctor::Doctor { json: false, fix: false }, ["doctor".into()])
}

/// Returns what will be written, or that nothing will.
fn plan(places: &Places, change: &Change, secrets: &SecretFile, is_config: bool, used: &str) -> Vec<String> {
    let mut lines = Vec::new();
    if is_config {
        lines.push(format!("{}: [model] use = \"{used}\"", places.config.display()));
    }
    for (name, value) in &change.secrets {
        let shown = if name.ends_with("_BASE_URL") { format!("{name}={value}") } else { name.clone() };
        let what = if secrets.get(name).is_some() { "replaces another one that is there" } else { "is new" };
        lines.push(format!("{}: {shown} {what}", places.secrets().display()));
    }
    if lines.is_empty() {
        lines.push("all of it is written already".to_owned());
    }
    lines
}

fn confirmed() -> Result<bool, Error> {
    if !typed::is_person() {
        let error = Error::invalid("--yes", "nobody is there to ask whether to write it");
        return Err(error.hint("add --yes"));
    }
    let answer = typed::line("write this? [Y/n] ")?;
    Ok(matches!(answer.as_str(), "" | "y" | "Y" | "yes"))
}

/// A provider that can be used as it is.
struct Found {
    known: KnownProvider,
    why: String,
}

/// Returns the servers of this machine that answer, and the services whose key is there.
fn found(secrets: &SecretFile) -> Vec<Found> {
    let mut found = Vec::new();
    for known in KNOWN_PROVIDERS {
        let why = match known.key {
            None => models_here(known.name).map(|models| format!("runs on this machine with {} models", models.len())),
            Some(key) if secrets.get(key).is_some() => Some(format!("{key} is in secrets.env")),
            Some(key) => environment(key).map(|_| format!("{key} is set in your environment")),
        };
        found.extend(why.map(|why| Found { known, why }));
    }
    found
}

fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.trim().is_empty())
}

fn ask_provider(secrets: &SecretFile) -> Result<String, Error> {
    let found = found(secrets);
    if !typed::is_person() {
        let names: Vec<&str> = found.iter().map(|found| found.known.name).collect();
        let error = Error::invalid("--provider", "nobody is there to ask which provider to use");
        return Err(if names.is_empty() {
            error.hint("ken setup --provider NAME --model MODEL --key-env VARIABLE --yes")
        } else {
            error.hint(format!("found here: {}", names.join(", ")))
        });
    }
    for Found { known, why } in &found {
        print_line(&format!("  {:<11} {why}", known.name))?;
    }
    let others = KNOWN_PROVIDERS
        .iter()
        .map(|known| known.name)
        .filter(|name| found.iter().all(|found| found.known.name != *name));
    print_line(&format!(
        "  {}: {}",
        if found.is_empty() { "known" } else { "also" },
        others.collect::<Vec<_>>().join(", ")
    ))?;
    let first = found.first().map(|found| found.known.name);
    let default = first.map(|first| format!(" [{first}]")).unwrap_or_default();
    let answer = typed::line(&format!("which provider?{default} "))?;
    match (answer.as_str(), first) {
        ("", Some(first)) => Ok(first.to_owned()),
        ("", None) => Err(Error::invalid("provider", "no provider was named; nothing was changed")),
        (name, _) if known_provider(name).is_some() => Ok(name.to_owned()),
        (name, _) => Err(unknown(name)),
    }
}

fn unknown(name: &str) -> Error {
    let error = Error::invalid("--provider", format!("ken does not know where a provider `{name}` is"));
    match ken_text::nearest(name, KNOWN_PROVIDERS.map(|known| known.name)) {
        Some(near) if near != name => error.hint(format!("did you mean `{near}`? Any other needs --address")),
        _ => error.hint("give its address: ken setup --provider NAME --address URL"),
    }
}

struct Reached {
    table: ProviderTable,
    /// The variable with its address, if there is one.
    address: Option<(String, String)>,
    /// The name of its key. `None` for a server that needs none.
    key: Option<String>,
}

impl Reached {
    fn of(args: &Setup, provider: &str, secrets: &SecretFile) -> Result<Reached, Error> {
        let known = known_provider(provider);
        if args.address.is_none() && known.is_none_or(|known| known.base_url.is_none()) {
            return Err(unknown(provider));
        }
        let is_given = args.key_env.is_some() || args.key_stdin;
        let own_key = known.and_then(|known| known.key);
        let key = own_key.map(str::to_owned).or_else(|| is_given.then(|| key_name(provider)));
        let table = ProviderTable {
            name: provider.to_owned(),
            kind: args.kind.clone().or_else(|| known.is_none().then(|| "openai".to_owned())),
            base_url: args.address.clone(),
            key: key.clone().filter(|_| own_key.is_none()),
            models: None,
        };
        let address = address_setting(provider, secrets).filter(|_| args.address.is_none());
        Ok(Reached { table, address, key })
    }
}

/// Returns the variable with the address of one of the two providers that have one. The environment of this shell comes first, and is kept,
/// because the system may be started in another one.
fn address_setting(provider: &str, secrets: &SecretFile) -> Option<(String, String)> {
    let name = match provider {
        "openai" => "OPENAI_BASE_URL",
        "anthropic" => "ANTHROPIC_BASE_URL",
        _ => return None,
    };
    let address = environment(name).or_else(|| secrets.get(name).map(str::to_owned))?;
    Some((name.to_owned(), address))
}

fn key_name(provider: &str) -> String {
    format!("{}_API_KEY", provider.to_uppercase().replace('-', "_"))
}

/// Returns the key with its name: the one that was given, or the one that is there, or the one that a person types.
fn key(args: &Setup, reached: &Reached, secrets: &SecretFile) -> Result<Option<(String, String)>, Error> {
    let Some(name) = reached.key.clone() else {
        return Ok(None);
    };
    let value = if args.key_stdin {
        piped_key()?
    } else if let Some(variable) = &args.key_env {
        if !secrets::is_name(variable) {
            return Err(Error::invalid("--key-env", "this is no name of a variable; a key itself is never given here"));
        }
        let missing = || Error::invalid("--key-env", format!("the variable {variable} is not set or empty"));
        checked_key(&environment(variable).ok_or_else(missing)?)?
    } else if let Some(stored) = secrets.get(&name) {
        stored.to_owned()
    } else if let Some(set) = environment(&name) {
        checked_key(&set)?
    } else if typed::is_person() {
        checked_key(&typed::hidden(&format!("{name} (is not shown): "))?)?
    } else {
        let error =
            Error::invalid("--key-env", format!("{} needs a key, and {name} is set nowhere", reached.table.name));
        return Err(error.hint("--key-env VARIABLE takes it from the environment, --key-stdin from standard input"));
    };
    Ok(Some((name, value)))
}

fn ask_model(trial: &Trial, provider: &str, given: &[(String, String)]) -> Result<String, Error> {
    let listed = trial.list(provider, given);
    let prefix = format!("{provider}/");
    let names: Vec<&str> = listed.iter().map(String::as_str).collect();
    if !typed::is_person() {
        let error = Error::invalid("--model", "nobody is there to ask which model to use");
        return Err(if names.is_empty() { error } else { error.hint(format!("{provider} has: {}", shown(&names))) });
    }
    if !names.is_empty() {
        print_line(&format!("  {provider} has: {}", shown(&names)))?;
    }
    let only = names.first().filter(|_| names.len() == 1);
    let default = only.map(|only| format!(" [{only}]")).unwrap_or_default();
    let answer = typed::line(&format!("which model?{default} "))?;
    match (answer.strip_prefix(&prefix).unwrap_or(&answer), only) {
        ("", Some(only)) => Ok((*only).to_owned()),
        ("", None) => Err(Error::invalid("model", "no model was named; nothing was changed")),
        (model, _) => Ok(model.to_owned()),
    }
}

fn shown(names: &[&str]) -> String {
    let first = names.iter().take(SHOWN_MODELS).copied().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(SHOWN_MODELS) {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}
