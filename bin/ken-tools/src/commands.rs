//! The commands for a shell: `ken-tools list`, `ken-tools check`, `ken-tools call` and `ken-tools preview`.

use std::fmt;
use std::path::PathBuf;

use clap::Args;
use ken_text::{for_terminal, visible_line};
use ken_tool::{Answer, Error, Filter, Replied, Reply, Report, Verdict};
use ken_types::event::Block;
use ken_types::json;
use ken_types::ops::tools::{Approval, CallTool, Called, Need, Problem, Tools};
use serde::Serialize;
use tokio::runtime::{Builder, Runtime};

use crate::call::Caller;
use crate::catalog::{Catalog, Listing, folders};
use crate::entry::Entry;
use crate::gate::ApprovalGate;
use crate::output::Outputs;

/// The folders that hold the descriptions.
#[derive(Args)]
pub(crate) struct Folders {
    /// Read the descriptions in DIR instead of the usual folders; can be given more than once
    #[arg(long, value_name = "DIR")]
    dir: Vec<PathBuf>,
}

impl Folders {
    pub(crate) fn catalog(&self) -> Catalog {
        Catalog::new(if self.dir.is_empty() { folders(None) } else { self.dir.clone() })
    }
}

#[derive(Args)]
pub(crate) struct List {
    #[command(flatten)]
    folders: Folders,
    /// Only the tools that AGENT may call
    #[arg(long, value_name = "AGENT")]
    agent: Option<String>,
}

impl Report for List {
    const NAME: &'static str = "ken-tools list";
    const ABOUT: &'static str = "List the tools that agents may call";

    fn run(&self, reply: Reply<'_>) -> Result<Replied, Error> {
        let tools = self.folders.catalog().read().tools_of(self.agent.as_deref());
        Ok(reply.send(&ListResult(tools)))
    }
}

#[derive(Serialize)]
#[serde(transparent)]
struct ListResult(Tools);

impl Answer for ListResult {
    fn summary(&self, verbose: bool, to: &mut dyn fmt::Write) -> fmt::Result {
        for tool in &self.0.tools {
            let asks = match tool.approval {
                Approval::None => "",
                Approval::Ask => " (asks)",
                Approval::Preview => " (may ask)",
            };
            writeln!(to, "{}{asks}: {}", tool.name, tool.description)?;
            if verbose {
                writeln!(to, "  for {}; {}", tool.agents.join(", "), tool.file)?;
            }
        }
        for Problem { file, error } in &self.0.problems {
            writeln!(to, "{file}: not offered: {}", visible_line(&error.to_string()))?;
        }
        Ok(())
    }
}

#[derive(Args)]
pub(crate) struct Check {
    /// Descriptions of tools
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
}

impl Report for Check {
    const NAME: &'static str = "ken-tools check";
    const ABOUT: &'static str = "Check descriptions of tools, and say what is wrong where";
    const AFTER_HELP: &'static str = "Exit status: 0 all describe a tool, 1 some do not, 2 an error.";

    fn run(&self, reply: Reply<'_>) -> Result<Replied, Error> {
        let problems = self.files.iter().filter_map(|file| {
            let error = Entry::read(file).err()?;
            Some(Problem { file: file.display().to_string(), error })
        });
        Ok(reply.send(&CheckResult { files: self.files.len(), problems: problems.collect() }))
    }
}

#[derive(Serialize)]
struct CheckResult {
    files: usize,
    problems: Vec<Problem>,
}

impl Answer for CheckResult {
    fn verdict(&self) -> Verdict {
        self.problems.is_empty().into()
    }

    fn summary(&self, _: bool, to: &mut dyn fmt::Write) -> fmt::Result {
        for Problem { file, error } in &self.problems {
            writeln!(to, "{file}: {error}")?;
        }
        let wrong = self.problems.len();
        writeln!(to, "{} of {} describe a tool", self.files - wrong, self.files)
    }
}

#[derive(Args)]
pub(crate) struct Call {
    #[command(flatten)]
    words: CallWords,
}

/// Returns a runtime for the asynchronous work of a command.
pub(crate) fn runtime() -> Result<Runtime, Error> {
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| Error::internal(format!("no runtime: {error}")))
}

/// The call as given on the command line.
#[derive(Args)]
struct CallWords {
    /// The tool
    #[arg(value_name = "NAME")]
    name: String,
    /// The arguments, as JSON
    #[arg(short, long, value_name = "JSON")]
    json: Option<String>,
    /// Call it as AGENT would
    #[arg(long, value_name = "AGENT")]
    agent: Option<String>,
    #[command(flatten)]
    folders: Folders,
}

impl CallWords {
    /// Passes the call to `work`. No approval is requested: the operator who runs this command approves the call by
    /// that.
    fn with_call<T>(
        &self,
        input: &str,
        work: impl AsyncFnOnce(Caller, &Listing, CallTool) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let call = CallTool {
            name: self.name.clone(),
            arguments: json::parse_arguments(input.as_bytes(), ken_tool::MAX_DEPTH)?,
            agent: self.agent.clone(),
            ..CallTool::default()
        };
        let catalog = self.folders.catalog();
        let listing = catalog.read();
        let caller = Caller::new(ApprovalGate::Operator, catalog.servers.clone(), Outputs(None))?;
        runtime()?.block_on(work(caller, &listing, call))
    }
}

impl Filter for Call {
    const NAME: &'static str = "ken-tools call";
    const ABOUT: &'static str = "Call a tool with the JSON object that is read, as an agent would";
    const AFTER_HELP: &'static str = "Exit status: 0 the tool answered, 1 it failed, 2 an error.";

    fn inline(&self) -> Option<&str> {
        self.words.json.as_deref()
    }

    fn run(&self, input: &str, reply: Reply<'_>) -> Result<Replied, Error> {
        let called =
            self.words.with_call(input, async |caller, listing, call| caller.call(listing, call, None).await)?;
        Ok(reply.send(&CallResult(called)))
    }
}

#[derive(Args)]
pub(crate) struct Preview {
    #[command(flatten)]
    words: CallWords,
}

impl Filter for Preview {
    const NAME: &'static str = "ken-tools preview";
    const ABOUT: &'static str = "Say what a call would do and who has to approve it, without doing it";
    const AFTER_HELP: &'static str = "Exit status: 0 it may be made, 1 it may not, 2 an error.";

    fn inline(&self) -> Option<&str> {
        self.words.json.as_deref()
    }

    fn run(&self, input: &str, reply: Reply<'_>) -> Result<Replied, Error> {
        let preview = self.words.with_call(input, async |caller, listing, call| caller.preview(listing, call).await)?;
        Ok(reply.send(&PreviewResult(preview)))
    }
}

#[derive(Serialize)]
#[serde(transparent)]
struct PreviewResult(ken_types::ops::tools::Preview);

impl Answer for PreviewResult {
    fn verdict(&self) -> Verdict {
        (self.0.approval != Need::Deny).into()
    }

    fn summary(&self, _: bool, to: &mut dyn fmt::Write) -> fmt::Result {
        let preview = &self.0;
        let need = match preview.approval {
            Need::None => "needs no approval",
            Need::Ask => "has to be approved",
            Need::Deny => "not allowed",
        };
        let summary = for_terminal(&preview.summary);
        writeln!(to, "{summary} (risk {}): {need}", preview.risk.name())?;
        for text in preview.reason.iter().chain(&preview.diff) {
            writeln!(to, "{}", for_terminal(text))?;
        }
        Ok(())
    }
}

#[derive(Serialize)]
#[serde(transparent)]
struct CallResult(Called);

impl Answer for CallResult {
    fn verdict(&self) -> Verdict {
        (!self.0.is_error).into()
    }

    fn summary(&self, _: bool, to: &mut dyn fmt::Write) -> fmt::Result {
        for block in &self.0.result.content {
            if let Block::Text { text } = block {
                writeln!(to, "{text}")?;
            }
        }
        Ok(())
    }
}
