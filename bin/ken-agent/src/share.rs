//! The texts that are shipped with ken and can be changed by an administrator: the governing rules and the instructions
//! of each agent. They are read from `share/ken` of the installation, or `share` of a checkout, when the agent starts.
//! If a file is missing, the copy in the program is used.

use std::fmt::Display;
use std::io::{ErrorKind, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use ken_trusted::Others;
use ken_types::Error;
use ken_types::ops::rules::BaseRule;
use ken_types::rule::Rule;

use crate::names::{CODING_WORKER, ORCHESTRATOR, RESEARCH_WORKER};

/// The maximum size of a text. A longer one would fill the model's window by itself.
const MAX_TEXT_BYTES: u64 = 64 * 1024;

/// A text and the file from which it was read. `file` is `None` for the copy in the program.
#[derive(Debug, Clone)]
pub(crate) struct Text {
    pub(crate) text: String,
    pub(crate) file: Option<PathBuf>,
}

#[derive(Debug, Clone)]
pub(crate) struct Share {
    pub(crate) rules: Text,
    agents: Vec<(&'static str, Text)>,
    /// The governing rules that nobody can switch off.
    pub(crate) base: Vec<BaseRule>,
}

/// The path of a file below `share`, and its copy in the program.
macro_rules! shipped {
    ($file:literal) => {
        ($file, include_str!(concat!("../../../share/", $file)))
    };
}

const RULES: (&str, &str) = shipped!("protocols/governing-rules.md");
const BASE: [(&str, &str); 1] = [shipped!("protocols/orchestrator-has-no-hands.json")];
const AGENTS: [(&str, (&str, &str)); 3] = [
    (ORCHESTRATOR, shipped!("agents/orchestrator.md")),
    (RESEARCH_WORKER, shipped!("agents/research-worker.md")),
    (CODING_WORKER, shipped!("agents/coding-worker.md")),
];

impl Share {
    /// Reads the texts of the installation that this program belongs to. Fails if a file exists but cannot be used,
    /// because no turn may run with other rules than the administrator has written.
    pub(crate) fn installed() -> Result<Share, Error> {
        let folders = ken_types::share::folders();
        let agents = AGENTS.map(|(agent, shipped)| Ok((agent, read(&folders, shipped)?)));
        Ok(Share {
            rules: read(&folders, RULES)?,
            agents: agents.into_iter().collect::<Result<_, Error>>()?,
            base: base(&folders)?,
        })
    }

    pub(crate) fn base_rules(&self) -> Vec<Rule> {
        self.base.iter().map(|base| base.rule.clone()).collect()
    }

    /// Returns the beginning of an agent's system prompt: the governing rules, then its own instructions.
    pub(crate) fn system(&self, agent: &str) -> String {
        let own = self.agents.iter().find(|(name, _)| *name == agent);
        let own = own.map_or("", |(_, text)| text.text.as_str());
        format!("{}\n{own}", self.rules.text)
    }

    fn texts(&self) -> impl Iterator<Item = &Text> {
        std::iter::once(&self.rules).chain(self.agents.iter().map(|(_, text)| text))
    }

    /// Returns the copies in the program.
    #[cfg(test)]
    pub(crate) fn built_in() -> Share {
        Share {
            rules: built_in(RULES.1),
            agents: AGENTS.map(|(agent, shipped)| (agent, built_in(shipped.1))).to_vec(),
            base: base(&[]).unwrap_or_default(),
        }
    }
}

fn built_in(text: &str) -> Text {
    Text { text: text.to_owned(), file: None }
}

/// Returns the text from the first folder that has this file, or else the copy in the program.
fn read(folders: &[PathBuf], (name, copy): (&str, &str)) -> Result<Text, Error> {
    for file in folders.iter().map(|folder| folder.join(name)) {
        let remedy = if copy.is_empty() { "" } else { " to use the text that the program holds" };
        let wrong = |why: String| {
            Error::invalid(file.display().to_string(), why).hint(format!("mend the file, or remove it{remedy}"))
        };
        let found = ken_trusted::find(&file, Others::MayRead, MAX_TEXT_BYTES);
        let Some(bytes) = found.map_err(|error| wrong(error.message))? else {
            continue;
        };
        let text = String::from_utf8(bytes).map_err(|error| wrong(format!("cannot be read: {error}")))?;
        if text.trim().is_empty() {
            return Err(wrong("is empty".into()));
        }
        return Ok(Text { text, file: Some(file) });
    }
    Ok(built_in(copy))
}

/// Returns the names of the files in the first existing folder `protocols`. One that cannot be listed is an error, because a rule
/// in it would not be in force.
fn protocols(folders: &[PathBuf]) -> Result<Vec<String>, Error> {
    for folder in folders.iter().map(|folder| folder.join("protocols")) {
        let names: std::io::Result<_> = std::fs::read_dir(&folder)
            .and_then(|files| files.map(|file| Ok(file?.file_name().to_string_lossy().into_owned())).collect());
        match names {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            names => {
                return names.map_err(|error| {
                    let message = format!("the governing rules in it cannot be listed: {error}");
                    Error::invalid(folder.display().to_string(), message)
                        .hint("let the user of ken-agent read the folder")
                });
            }
        }
    }
    Ok(Vec::new())
}

/// Returns the rules that are shipped, and all other rules of the installation. Fails if one cannot be read.
fn base(folders: &[PathBuf]) -> Result<Vec<BaseRule>, Error> {
    let mut names: Vec<String> = BASE.map(|(name, _)| name.to_owned()).to_vec();
    for file in protocols(folders)? {
        let name = format!("protocols/{file}");
        if name.ends_with(".json") && !names.contains(&name) {
            names.push(name);
        }
    }
    names.sort();
    let rules = names.iter().map(|name| {
        let copy = BASE.iter().find(|(shipped, _)| shipped == name);
        let text = read(folders, (name, copy.map_or("", |(_, copy)| copy)))?;
        let file = text.file.map(|file| file.display().to_string());
        let rule = Rule::parse(text.text.as_bytes()).map_err(|error| {
            let place = file.clone().unwrap_or_else(|| name.clone());
            let message = match &error.at {
                Some(at) if !at.is_empty() => format!("{at}: {}", error.message),
                _ => error.message,
            };
            Error::invalid(place, message).hint("ken rules check FILE tells what is wrong with a rule")
        })?;
        Ok(BaseRule { rule, file })
    });
    rules.collect()
}

/// Prints a line on standard output. That nobody reads it any more is no error.
pub(crate) fn print_line(line: impl Display) -> Result<(), Error> {
    match writeln!(std::io::stdout(), "{line}") {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Error::internal(format!("standard output: {error}")))
        }
        _ => Ok(()),
    }
}

/// `--print-rules`: prints the texts in force on standard output. Before each is a line that says where it comes from.
pub(crate) fn print() -> ExitCode {
    let shown = Share::installed().and_then(|share| {
        let base = share.base.iter().map(|base| {
            let rule = serde_json::to_string_pretty(&base.rule).unwrap_or_default();
            Text { text: rule, file: base.file.as_ref().map(PathBuf::from) }
        });
        let base: Vec<Text> = base.collect();
        share.texts().chain(&base).try_for_each(|text| {
            let from = text.file.as_ref().map_or("built in".to_owned(), |file| file.display().to_string());
            print_line(format_args!("<!-- {from} -->\n{}", text.text.trim_end()))
        })
    });
    match shown {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            _ = writeln!(std::io::stderr(), "ken-agent: {error}");
            ExitCode::from(error.code.exit_status())
        }
    }
}
