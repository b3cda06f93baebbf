//! `ken complete`, which the completion scripts call: prints the values that can stand at the end of a command line, one
//! per line with a tab and a description. It asks the running parts, never starts one, and says nothing if none answers.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use clap::builder::ValueRange;
use ken_text::visible_line;
use ken_types::Error;
use ken_types::ops::Nothing;
use ken_types::ops::approvals::{ApprovalsPending, ListApprovals};
use ken_types::ops::ids::{FindIds, IdKind, IdsFind, MAX_FOUND};
use ken_types::ops::kend::{PartsStatus, StatusArgs};
use ken_types::ops::model::ModelInfo;
use ken_types::ops::schedules::{ListSchedules, SchedulesList};
use ken_types::places::Places;

use crate::client::{KEND, call};
use crate::globals::Globals;
use crate::ids::LAST;
use crate::output::{one_line, print_text};

/// The timeout of the one call that is made. A shell must not seem to hang.
const TIMEOUT: Duration = Duration::from_millis(150);

#[derive(Debug, Args)]
pub(crate) struct Complete {
    /// The words after `ken`; the last one is completed, and may be empty
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<String>,
}

/// What can stand at a place of the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Value {
    Part,
    Schedule,
    Model,
    Id(&'static [IdKind]),
    /// A request that can still be decided.
    Pending,
}

/// Prints the values, or nothing. `ken` is the command line of this program, as clap describes it.
pub(crate) fn run(globals: &Globals, args: &Complete, ken: &clap::Command) -> Result<(), Error> {
    let line = Line::read(ken, &args.words);
    let Some(value) = line.value() else { return Ok(()) };
    // The parts are those of this machine, so another one's are not known.
    if globals.url.is_some() || line.has_url {
        return Ok(());
    }
    let home = line.home.map(PathBuf::from).or_else(|| globals.home.clone());
    let globals = Globals { home, url: None, secret_file: None, raw: false };
    let found = globals.places().and_then(|places| values(&places, value)).unwrap_or_default();
    let fitting = found.iter().filter(|(value, _)| value.starts_with(line.current));
    let text: String = fitting.map(|(value, about)| format!("{value}\t{}\n", one_line(about))).collect();
    print_text(&text)
}

fn values(places: &Places, value: Value) -> Result<Vec<(String, String)>, Error> {
    let limit = Some(TIMEOUT);
    match value {
        Value::Part => {
            let parts = call::<PartsStatus>(places, KEND, &StatusArgs::default(), limit)?.parts;
            Ok(parts.into_iter().map(|part| (part.name, part.state.name().to_owned())).collect())
        }
        Value::Schedule => {
            let list = call::<SchedulesList>(places, "store", &ListSchedules { owner: None, all: false }, limit)?;
            Ok(list.schedules.into_iter().map(|found| (found.slug, found.schedule)).collect())
        }
        Value::Model => {
            let state = call::<ModelInfo>(places, "model", &Nothing {}, limit)?;
            Ok(state.choices().map(|model| (model.to_owned(), String::new())).collect())
        }
        Value::Id(kinds) => {
            let newest = FindIds { word: None, kinds: kinds.to_vec(), limit: MAX_FOUND };
            let found = call::<IdsFind>(places, "store", &newest, limit)?.ids;
            let last = found.first().map(|_| (LAST.to_owned(), "the newest".to_owned()));
            Ok(last
                .into_iter()
                .chain(found.into_iter().map(|found| (found.id, found.label.unwrap_or_default())))
                .collect())
        }
        Value::Pending => {
            let found = call::<ApprovalsPending>(places, "store", &ListApprovals::default(), limit)?.approvals;
            let last = (found.len() == 1).then(|| (LAST.to_owned(), "the only one".to_owned()));
            Ok(last
                .into_iter()
                .chain(found.into_iter().map(|found| (found.request_id, visible_line(&found.description))))
                .collect())
        }
    }
}

/// A command line as far as it is typed.
#[derive(Debug, Default)]
struct Line<'a> {
    /// The names of the command and its subcommands.
    path: Vec<&'a str>,
    /// The option or positional argument that the last word is a value of.
    argument: Option<&'a str>,
    current: &'a str,
    home: Option<&'a str>,
    has_url: bool,
}

impl<'a> Line<'a> {
    fn read(ken: &'a clap::Command, words: &'a [String]) -> Line<'a> {
        let mut line = Line::default();
        let Some((current, before)) = words.split_last() else {
            return line;
        };
        line.current = current;
        let (mut command, mut positional) = (ken, 0);
        let mut before = before.iter().map(String::as_str);
        while let Some(word) = before.next() {
            if word.starts_with('-') {
                let (name, given) = word.split_once('=').map_or((word, None), |(name, value)| (name, Some(value)));
                let option = option(command, name).or_else(|| option(ken, name));
                let Some(option) = option.filter(|option| takes_value(option)) else {
                    continue;
                };
                let id = option.get_id().as_str();
                let Some(value) = given.or_else(|| before.next()) else {
                    line.argument = Some(id);
                    return line;
                };
                match id {
                    "home" => line.home = Some(value),
                    "url" => line.has_url = true,
                    _ => {}
                }
            } else if let Some(found) = command.find_subcommand(word) {
                line.path.push(found.get_name());
                (command, positional) = (found, 0);
            } else {
                positional += 1;
            }
        }
        if !current.starts_with('-') {
            let mut shown = command.get_positionals().filter(|argument| !argument.is_hide_set());
            // The last positional argument may take several values.
            let last = command.get_positionals().last();
            let argument = shown.nth(positional).or_else(|| last.filter(|last| takes_several(last)));
            line.argument = argument.map(|argument| argument.get_id().as_str());
        }
        line
    }

    /// Returns what the last word is, if the system knows such values.
    fn value(&self) -> Option<Value> {
        use IdKind::{Approval, Event, Knowledge, Run, ScheduleRun, Session, Turn};
        Some(match (self.path.as_slice(), self.argument?) {
            (["status" | "start" | "stop" | "restart" | "kill"], "name") | (["logs"], "names") | (["call"], "part") => {
                Value::Part
            }
            (["schedule", _], "slug" | "slugs") if self.path != ["schedule", "add"] => Value::Schedule,
            (["chat"] | ["eval", "run"], "model") => Value::Model,
            (["chat" | "usage"], "session")
            | (["sessions", _], "session" | "sessions")
            | (["schedule", "add"], "deliver_to") => Value::Id(&[Session]),
            (["show"], "id") => Value::Id(&[Session, Turn, Run, Approval, ScheduleRun]),
            (["cancel"], "id") => Value::Id(&[Session, Turn, Run]),
            (["why"], "id") => Value::Id(&[Turn, Run, ScheduleRun, Event]),
            (["replay" | "undo" | "diff"] | ["eval", "add"], "run") => Value::Id(&[Turn]),
            (["approvals"], "id") => Value::Id(&[Approval]),
            (["approve" | "deny"], "id") => Value::Pending,
            (["knowledge", _], "id" | "ids") => Value::Id(&[Knowledge]),
            _ => return None,
        })
    }
}

fn option<'a>(command: &'a clap::Command, name: &str) -> Option<&'a clap::Arg> {
    let long = name.strip_prefix("--");
    let short = name.strip_prefix('-').and_then(|short| short.chars().last());
    command.get_opts().find(|option| match long {
        Some(long) => option.get_long() == Some(long),
        None => option.get_short() == short,
    })
}

fn takes_value(option: &clap::Arg) -> bool {
    option.get_action().takes_values()
}

fn takes_several(argument: &clap::Arg) -> bool {
    matches!(argument.get_action(), clap::ArgAction::Append)
        || argument.get_num_args().is_some_and(|range: ValueRange| range.max_values() > 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Some commands of `ken`, as clap describes them.
    fn ken() -> clap::Command {
        let named = |name: &'static str, augment: fn(clap::Command) -> clap::Command| augment(clap::Command::new(name));
        let mut ken = Globals::augment_args(clap::Command::new("ken")).subcommands([
            named("chat", crate::chat::Chat::augment_args),
            named("usage", crate::usage::Usage::augment_args),
            named("status", crate::status::Status::augment_args),
            named("restart", crate::parts::Change::augment_args),
            named("logs", crate::logs::Logs::augment_args),
            named("call", crate::call::Call::augment_args),
            named("schedule", crate::schedule::Schedule::augment_args),
            named("undo", crate::undo::RunArgs::augment_args),
            named("show", crate::runs::Show::augment_args),
            named("sessions", crate::sessions::Sessions::augment_args),
        ]);
        ken.build();
        ken
    }

    #[test]
    fn a_place_of_the_command_line_has_its_kind_of_value() {
        let ken = ken();
        let at = |words: &str| {
            let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
            Line::read(&ken, &words).value()
        };
        let session = Some(Value::Id(&[IdKind::Session]));
        for words in [
            "sessions rm ", "sessions rename ", "chat -s ", "chat --session tui-", "--home /x chat -m m/n -s ",
            "usage --by day --session ",
        ] {
            assert_eq!(at(words), session, "{words}");
        }
        for words in ["status ", "--home=/x restart st", "logs store ", "call ", "logs -n 5 "] {
            assert_eq!(at(words), Some(Value::Part), "{words}");
        }
        for words in ["schedule pause ", "schedule rm one tw", "schedule show "] {
            assert_eq!(at(words), Some(Value::Schedule), "{words}");
        }
        assert_eq!(at("chat -m "), Some(Value::Model));
        assert_eq!(at("undo "), Some(Value::Id(&[IdKind::Turn])));
        assert!(at("show ").is_some() && at("sessions ").is_none());
        for words in ["", "show --", "show x ", "status store ", "chat ", "schedule add ", "chat -s x ", "--home "] {
            assert_eq!(at(words), None, "{words}");
        }
    }

    #[test]
    fn the_system_is_that_of_the_command_line() {
        let ken = ken();
        let words = ["--home", "/x", "show", "tu"].map(str::to_owned);
        let line = Line::read(&ken, &words);
        assert_eq!((line.home, line.current, line.has_url), (Some("/x"), "tu", false));
        assert!(Line::read(&ken, &["--url=http://x".to_owned(), String::new()]).has_url);
    }
}
