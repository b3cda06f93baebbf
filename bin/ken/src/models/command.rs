//! `ken model add` and `ken model use`. The other commands of `ken model` are those of ken-model.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use ken_types::providers::{KNOWN_PROVIDERS, known_provider, name_problem};
use ken_types::{Error, secrets};

use super::change::{Change, NewModels};
use super::config_file::ProviderTable;
use super::running;
use super::secret_file::{SecretFile, checked_key, piped_key};
use super::trial::Trial;
use crate::globals::Globals;
use crate::output::{Outcome, print_line, print_note, show_clap_error};
use crate::typed;

#[derive(Debug, Parser)]
#[command(
    name = "ken model",
    bin_name = "ken model",
    after_help = "`ken model list`, `check`, `try` and `events` are those of ken-model: `ken-model list --help`."
)]
struct Commands {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Write a provider into ken.toml and its key into secrets.env, and try it
    Add(Add),
    /// Choose the models, first choice first
    #[command(aliases = ["default", "set"])]
    Use(Use),
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  ken model add groq\n  ken model add box --base-url http://10.0.0.7:8000/v1 --model qwen3"
)]
struct Add {
    /// Name of the provider, as in NAME/MODEL
    name: String,
    /// Wire format of the provider [default: that of a known name, else openai]
    #[arg(long, value_name = "FORMAT", value_parser = ["openai", "anthropic"])]
    kind: Option<String>,
    /// Its address, for instance http://127.0.0.1:8000/v1
    #[arg(long, value_name = "URL")]
    base_url: Option<String>,
    /// Name of its key in secrets.env; an empty one sends none [default: that of a known name]
    #[arg(long, value_name = "NAME")]
    key: Option<String>,
    /// Read the key from standard input, also if secrets.env has one
    #[arg(long)]
    key_stdin: bool,
    /// A model of it; can be repeated, and the first one is tried
    #[arg(long = "model", value_name = "MODEL")]
    models: Vec<String>,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  ken model use openai/gpt-5-mini,rules")]
struct Use {
    /// PROVIDER/MODEL,...
    list: String,
}

/// Whether these words are a command of this module.
pub(crate) fn is_own(words: &[OsString]) -> bool {
    let word = |place: usize| words.get(place).and_then(|word| word.to_str());
    word(0) == Some("model") && matches!(word(1), Some("add" | "use" | "default" | "set"))
}

pub(crate) fn run(globals: &Globals, words: &[OsString]) -> Outcome {
    match Commands::try_parse_from(words) {
        Ok(Commands { command: Command::Add(add) }) => self::add(globals, &add),
        Ok(Commands { command: Command::Use(list) }) => choose(globals, &list),
        Err(shown) => Ok(show_clap_error(&shown)),
    }
}

fn choose(globals: &Globals, args: &Use) -> Outcome {
    let places = globals.places()?;
    let list: Vec<&str> = args.list.split(',').map(str::trim).collect();
    let list = list.join(",");
    let change = Change { models: Some(NewModels::List(list.clone())), ..Change::default() };
    Trial::of(&change.applied(&places)?.text(), &places)?;
    let written = change.write(&places)?;
    let what = if written.config { "written" } else { "already there" };
    print_line(&format!("{}: use = \"{list}\" ({what})", places.config.display()))?;
    let first = list.split(',').next().filter(|first| first.contains('/'));
    print_line(&running::sentence(&places, first))?;
    Ok(ExitCode::SUCCESS)
}

fn add(globals: &Globals, args: &Add) -> Outcome {
    let places = globals.places()?;
    let known = known_provider(&args.name);
    check(args, known.is_some_and(|known| known.base_url.is_some()))?;
    let secrets = SecretFile::open(&places)?;
    let name = args.key.as_deref().or(known.and_then(|known| known.key)).filter(|name| !name.is_empty());
    let fresh = match name {
        Some(name) if args.key_stdin || secrets.get(name).is_none() => Some(read_key(name, args.key_stdin)?),
        _ => None,
    };
    let provider = ProviderTable {
        name: args.name.clone(),
        kind: args.kind.clone().or_else(|| known.is_none().then(|| "openai".to_owned())),
        base_url: args.base_url.clone(),
        key: args.key.clone(),
        models: (!args.models.is_empty()).then(|| args.models.clone()),
    };
    let fresh: Vec<(String, String)> =
        name.zip(fresh).map(|(name, value)| (name.to_owned(), value)).into_iter().collect();
    let change = Change { provider: Some(provider), secrets: fresh, models: None };
    let trial = Trial::of(&change.applied(&places)?.text(), &places)?;
    let written = change.write(&places)?;
    if written.config {
        print_line(&format!("{}: [model.provider.{}] is written", places.config.display(), args.name))?;
    }
    for (name, _) in change.secrets.iter().filter(|_| written.secrets) {
        let what = if secrets.get(name).is_some() { "is replaced" } else { "is written" };
        print_line(&format!("{}: {name} {what}", places.secrets().display()))?;
    }
    if !written.config && !written.secrets {
        print_line(&format!("{} is there already, nothing was changed", args.name))?;
    }
    print_line(&running::sentence(&places, None))?;
    let stored = name.and_then(|name| Some((name.to_owned(), secrets.get(name)?.to_owned())));
    let key: Vec<(String, String)> = stored.into_iter().chain(change.secrets).collect();
    try_first(&trial, &args.name, &args.models, &key)
}

/// Tries the first model of a provider, or else says how many it lists. A failure is one of the provider: what was written stays.
fn try_first(trial: &Trial, name: &str, models: &[String], key: &[(String, String)]) -> Outcome {
    let Some(model) = models.first() else {
        let listed = trial.list(name, key);
        return match listed.first() {
            Some(first) => {
                print_line(&format!(
                    "{name} lists {} models; `ken model use {name}/{first}` chooses one",
                    listed.len()
                ))?;
                Ok(ExitCode::SUCCESS)
            }
            None => {
                print_note(&format!(
                    "{name} lists no model: `ken model list` says why, `ken model try {name}/MODEL` tries one"
                ));
                Ok(ExitCode::from(1))
            }
        };
    };
    let model = format!("{name}/{model}");
    let tried = trial.ask(&model, key)?;
    print_line(&format!("{model} answered in {} ms: {:?}", tried.ms, tried.text))?;
    print_line(&format!("`ken model use {model},rules` chooses it"))?;
    Ok(ExitCode::SUCCESS)
}

fn check(args: &Add, is_known: bool) -> Result<(), Error> {
    let name = &args.name;
    if let Some(problem) = name_problem(name) {
        return Err(Error::invalid("NAME", problem).hint("for instance: ken model add box"));
    }
    if !is_known && args.base_url.is_none() {
        let names = KNOWN_PROVIDERS.map(|known| known.name);
        let error =
            Error::invalid("--base-url", format!("ken does not know where `{name}` is, so its address is needed"));
        return Err(match ken_text::nearest(name, names) {
            Some(near) if near != name => error.hint(format!("did you mean `{near}`? Otherwise give --base-url")),
            _ => error.hint(format!("known without an address: {}", names.join(", "))),
        });
    }
    if let Some(key) = args.key.as_ref().filter(|key| !key.is_empty() && !secrets::is_name(key)) {
        let error = Error::invalid("--key", "this is no name of a variable; a key itself is never given here");
        return Err(error.hint(format!(
            "--key {}_API_KEY, and the key on standard input ({} bytes were given)",
            name.to_uppercase().replace('-', "_"),
            key.len()
        )));
    }
    Ok(())
}

/// Reads a key: from standard input, or from the person at the terminal without an echo.
fn read_key(name: &str, is_piped: bool) -> Result<String, Error> {
    if typed::is_person() && !is_piped {
        return checked_key(&typed::hidden(&format!("{name} (is not shown): "))?);
    }
    piped_key().map_err(|error| error.hint(format!("{name} is read from standard input: ken model add NAME < FILE")))
}
