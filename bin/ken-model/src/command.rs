//! The commands of `ken-model`: `list` prints what the providers offer, `check` reads the configuration, `try` sends one prompt, and
//! `events` prints an answer piece by piece.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::{Parser, Subcommand};
use ken_text::{for_terminal, nearest};
use ken_tool::{Failure, MAX_DEPTH, MAX_INPUT, error_text, has_flag, usage_error};
use ken_types::error::wants_json_errors;
use ken_types::event::{Block, Message};
use ken_types::ops::call::{self, Failed};
use ken_types::ops::model::{Delta, Generate};
use ken_types::providers::{KNOWN_PROVIDERS, RESERVED_NAMES};
use ken_types::{Code, Error};
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::choice::{Choice, Setup};
use crate::filter::runtime;
use crate::generate::generate;
use crate::installed::Installed;
use crate::provider::{DeltaSink, Pending, Provider, Rates, full_name};
use crate::remote::Endpoint;

#[derive(Debug, Parser)]
#[command(
    name = "ken-model",
    about = "Ask the providers for their models, try one, or write its events",
    after_help = "Keys come from the environment, else from secrets.env beside ken.toml; see ken-model(8)."
)]
struct Commands {
    #[command(subcommand)]
    command: Command,
    /// Write JSON, one object per line
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List the models of every provider that has a key or an address, and those of KEN_MODEL
    #[command(alias = "ls")]
    List {
        /// Ask only this provider, whether or not it is set up
        provider: Option<String>,
    },
    /// Check models.toml and what ken.toml says of models, as the part reads them at its start. No model is called
    Check,
    /// Write the events of one call as they arrive, one JSON object per line
    Events {
        /// File with a request or with what the user says; - is standard input
        #[arg(default_value = "-")]
        file: PathBuf,
        /// Models, first choice first, instead of those of KEN_MODEL
        #[arg(short, long, value_name = "PROVIDER/MODEL,...")]
        model: Option<String>,
    },
    /// Send one word to a model and say what came back, how fast, and what it cost
    Try {
        /// PROVIDER/MODEL, for instance openai/gpt-4o
        model: String,
        /// What to send
        #[arg(default_value = "Say the word: ready")]
        text: String,
    },
}

pub(crate) fn is_requested() -> bool {
    let first = std::env::args_os().nth(1);
    first.is_some_and(|word| ["list", "ls", "try", "check", "events"].iter().any(|command| word == *command))
}

pub(crate) fn run() -> ExitCode {
    let commands = match Commands::try_parse() {
        Ok(commands) => commands,
        Err(wrong) if wrong.use_stderr() && (has_flag("--json") || wants_json_errors()) => {
            return fail(&usage_error(&wrong), true);
        }
        Err(shown) => {
            _ = shown.print();
            return ExitCode::from(if shown.use_stderr() { 2 } else { 0 });
        }
    };
    let done = Installed::for_person().and_then(|installed| {
        let choice = &installed.model.choice;
        installed.with_setup(|setup| match &commands.command {
            Command::List { provider: Some(provider) } => list_one(provider, setup, commands.json),
            Command::List { provider: None } => list(choice, setup, commands.json),
            Command::Check => check(choice, &installed.model.embed, setup, commands.json),
            Command::Events { file, model } => events(file, &Choice::of_command(model.as_deref(), choice, setup)?),
            Command::Try { model, text } => try_model(model, text, setup, commands.json),
        })
    });
    done.unwrap_or_else(|error| fail(&error, commands.json))
}

/// Prints an error: a sentence, or the line of JSON that every tool writes. An error without a message comes from [`write`]
/// when the reader of standard output has closed it, and is not printed.
fn fail(error: &Error, as_json: bool) -> ExitCode {
    if error.message.is_empty() {
        return Failure::ReaderGone.report("ken-model");
    }
    _ = std::io::stderr().write_all(error_text("ken-model", error, as_json).as_bytes());
    ExitCode::from(error.code.exit_status())
}

/// Prints the models that can be called with the keys that this command finds, and names the others.
fn check(choice: &str, embed: &str, setup: &Setup<'_>, as_json: bool) -> Result<ExitCode, Error> {
    let state = Choice::configured(choice, setup)?.with_embedder(embed, setup)?.state();
    if as_json {
        write(&json!(state).to_string())?
    } else {
        state.models.iter().try_for_each(|model| show(model, false))?;
        state.unusable.iter().for_each(|one| print_note(&format!("{}: {}", one.model, one.why)));
    }
    Ok(ExitCode::from(u8::from(!state.unusable.is_empty())))
}

fn print_note(text: &str) {
    _ = writeln!(std::io::stderr(), "ken-model: {}", for_terminal(text));
}

fn write(line: &str) -> Result<(), Error> {
    ken_tool::print(format!("{line}\n").as_bytes())
}

/// Prints the models. The exit status is 1 if a configured provider could not list its models.
fn list(configured: &str, setup: &Setup<'_>, as_json: bool) -> Result<ExitCode, Error> {
    let choice = Choice::configured(configured, setup)?;
    let mut all_answered = true;
    let mut asked = Vec::new();
    for (name, is_meant) in providers(&choice, setup) {
        let endpoint = Endpoint::new(&name, setup.providers, setup.setting)?;
        // Of the many services that ken knows, only those are asked that a person uses.
        if !is_meant && !endpoint.is_usable() {
            continue;
        }
        match endpoint.list() {
            Ok(models) => models.iter().try_for_each(|model| show(&format!("{name}/{model}"), as_json))?,
            Err(error) => {
                // It is not a failure if a provider is not configured.
                all_answered &= !endpoint.is_usable();
                if as_json {
                    write(&json!({"provider": name, "error": error}).to_string())?
                } else {
                    print_note(&format!("{name}: {}", error.message))
                }
            }
        }
        asked.push(name);
    }
    for provider in choice.providers().filter(|provider| !asked.contains(&provider.name().provider)) {
        show(&full_name(provider), as_json)?;
    }
    Ok(ExitCode::from(u8::from(!all_answered)))
}

fn list_one(provider: &str, setup: &Setup<'_>, as_json: bool) -> Result<ExitCode, Error> {
    let models = Endpoint::new(provider, setup.providers, setup.setting)?.list()?;
    models.iter().try_for_each(|model| show(&format!("{provider}/{model}"), as_json))?;
    Ok(ExitCode::SUCCESS)
}

fn show(model: &str, as_json: bool) -> Result<(), Error> {
    if as_json { write(&json!({"model": model}).to_string()) } else { write(&for_terminal(model)) }
}

/// Returns the providers to ask, each with whether it is asked in any case: those of the list, of ken.toml, and the two for which an
/// address can be set. Other services are asked if their key is set; a server on this machine that nobody has named is not.
fn providers(choice: &Choice, setup: &Setup<'_>) -> Vec<(String, bool)> {
    let listed = choice.providers().map(|provider| provider.name().provider.clone());
    let listed = listed.filter(|name| !RESERVED_NAMES.contains(&name.as_str()));
    let own = listed.chain(setup.providers.keys().cloned()).chain(["openai", "anthropic"].map(str::to_owned));
    let services = KNOWN_PROVIDERS.iter().filter(|known| known.key.is_some()).map(|known| known.name.to_owned());
    let mut all: Vec<(String, bool)> = Vec::new();
    for (name, is_meant) in own.map(|name| (name, true)).chain(services.map(|name| (name, false))) {
        if !all.iter().any(|(known, _)| *known == name) {
            all.push((name, is_meant));
        }
    }
    all
}

/// Writes each event at once. The flag is set when the answer has begun or writing has failed. No other model is then
/// tried.
struct Lines(AtomicBool);

impl DeltaSink for Lines {
    fn send(&self, delta: Delta) -> Pending<'_, Result<(), Error>> {
        let line = serde_json::to_string(&delta).map_err(|error| Error::internal(error.to_string()));
        let written = line.and_then(|line| write(&line));
        self.0.fetch_or(!matches!(delta, Delta::Start { .. }) || written.is_err(), Ordering::Relaxed);
        Box::pin(std::future::ready(written))
    }
}

/// Tries the configured models in order until one has begun its answer. The last line has the type `end`. It is written
/// only for a complete answer.
fn events(file: &Path, choice: &Choice) -> Result<ExitCode, Error> {
    let request = call::read(&input(file)?, MAX_DEPTH)?;
    let runtime = runtime()?;
    let mut failed = Vec::new();
    for provider in choice.candidates(request.model.as_deref())? {
        let sink = Lines(AtomicBool::new(false));
        match runtime.block_on(generate(provider, &request, &sink)) {
            Ok(end) => {
                let mut end = serde_json::to_value(&end).map_err(|error| Error::internal(error.to_string()))?;
                end["type"] = json!("end");
                write(&end.to_string())?;
                return Ok(ExitCode::SUCCESS);
            }
            Err(error) if sink.0.into_inner() => return Err(error),
            Err(error) => failed.push(Failed { model: full_name(provider), error }),
        }
    }
    Err(Failed::all(failed))
}

fn input(file: &Path) -> Result<String, Error> {
    let wrong = |error: std::io::Error| Error::invalid(file.display().to_string(), format!("cannot be read: {error}"));
    let input: Box<dyn Read> = if file == Path::new("-") {
        Box::new(std::io::stdin())
    } else {
        Box::new(std::fs::File::open(file).map_err(wrong)?)
    };
    let mut text = String::new();
    input.take(MAX_INPUT as u64 + 1).read_to_string(&mut text).map_err(wrong)?;
    match text.len() {
        0..=MAX_INPUT => Ok(text),
        _ => Err(Error::too_large(format!("the input has more than {MAX_INPUT} bytes"))),
    }
}

/// Records the text of the answer, and the time at which its first delta arrived.
#[derive(Default)]
struct TimedText(Mutex<(Option<Instant>, String)>);

impl DeltaSink for TimedText {
    fn send(&self, delta: Delta) -> Pending<'_, Result<(), Error>> {
        let mut timed = self.0.lock();
        if !matches!(delta, Delta::Start { .. }) {
            timed.0.get_or_insert_with(Instant::now);
        }
        if let Delta::Text { delta } = delta {
            timed.1.push_str(&delta);
        }
        Box::pin(std::future::ready(Ok(())))
    }
}

fn try_model(model: &str, text: &str, setup: &Setup<'_>, as_json: bool) -> Result<ExitCode, Error> {
    let choice = Choice::read(model, "MODEL", setup)?;
    let provider = choice.find(None)?;
    let (content, timestamp) = (vec![Block::text(text)], 0);
    let request = Generate {
        system: "You are being tested. Answer in a few words.".to_owned(),
        messages: vec![Message::User { content, timestamp, now: None }],
        ..Generate::default()
    };
    let runtime = runtime()?;
    let (sink, started) = (TimedText::default(), Instant::now());
    let generated = runtime.block_on(generate(provider, &request, &sink));
    let generated = generated.map_err(|error| with_nearest(error, provider, setup))?;
    let took = started.elapsed();
    let (first, text) = sink.0.into_inner();
    let first = first.map_or(took, |first| first - started);
    let usage = generated.usage;
    let ms = |duration: Duration| duration.as_millis() as u64;
    let shown: Value = json!({
        "model": full_name(provider),
        "text": text,
        "firstMs": ms(first),
        "totalMs": ms(took),
        "usage": usage,
        "stopReason": generated.stop_reason,
    });
    if as_json {
        write(&shown.to_string())?
    } else {
        write(&format!(
            "{}: {:?}\nfirst word after {} ms, all after {} ms; {} tokens in, {} out; {}",
            full_name(provider),
            text.trim(),
            ms(first),
            ms(took),
            usage.input + usage.cache_read + usage.cache_write,
            usage.output,
            if provider.rates() == Rates::default() {
                "no price is known".to_owned()
            } else {
                format!("${:.6}", usage.cost.total)
            },
        ))?
    }
    Ok(ExitCode::SUCCESS)
}

/// Adds the nearest name that the provider lists to the error for a model that it does not have.
fn with_nearest(error: Error, provider: &dyn Provider, setup: &Setup<'_>) -> Error {
    let name = provider.name();
    // Some servers answer 400 for an unknown name.
    if !matches!(error.code, Code::NotFound | Code::Invalid) || RESERVED_NAMES.contains(&name.provider.as_str()) {
        return error;
    }
    let endpoint = Endpoint::new(&name.provider, setup.providers, setup.setting);
    let models = endpoint.and_then(|endpoint| endpoint.list()).unwrap_or_default();
    match nearest(&name.id, models.iter().map(String::as_str)) {
        Some(near) if near != name.id => error.hint(format!("did you mean `{}/{near}`?", name.provider)),
        _ if error.code == Code::Invalid => error,
        _ => error.hint(format!("`ken model list {}` prints the models of this provider", name.provider)),
    }
}
