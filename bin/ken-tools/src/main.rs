//! ken-tools: the tools that agents can call. A tool is any program that reads one JSON document and writes one,
//! described by a file in `tools.d`. Each call runs it as one process in a sandbox. See ken-tools(8), ken-tools(5).

mod add;
mod admitted;
mod begun;
mod call;
mod catalog;
mod changed;
mod commands;
mod entry;
mod forget;
mod gate;
mod mcp;
mod output;
mod places;
mod preview;
mod process;
mod reach;
mod schema;
mod servers;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use ken_service::{NoOptions, Program, Start};
use ken_skills::{InForce, Sources};
use ken_tool::{Filter, Report};
use ken_types::Error;
use ken_types::ops::texts::{RulesBelow, TextsBelow, TextsList, TextsSkill};
use ken_types::ops::tools::{Problem, Tools as Listed, ToolsCall, ToolsList, ToolsPreview};
use ken_wire::{Daemon, Pool, Table};
use parking_lot::Mutex;
use serde_json::{Map, Value};

use crate::add::Add;
use crate::call::Caller;
use crate::catalog::Catalog;
use crate::commands::{Call, Check, List, Preview};
use crate::gate::ApprovalGate;
use crate::output::Outputs;
use crate::servers::{Accept, GetPrompt, ListServers};

const ABOUT: &str = "Run the tools that agents may call";

fn main() -> ExitCode {
    let command = std::env::args_os().nth(1);
    match command.as_deref().and_then(|word| word.to_str()) {
        Some("list") => ken_tool::report::<List>(),
        Some("check") => ken_tool::report::<Check>(),
        Some("call") => ken_tool::subcommand::<Call>(),
        Some("preview") => ken_tool::subcommand::<Preview>(),
        Some("servers") => ken_tool::report::<ListServers>(),
        Some("accept") => ken_tool::report::<Accept>(),
        Some("add") => ken_tool::subcommand::<Add>(),
        Some("prompt") => ken_tool::report::<GetPrompt>(),
        // ken-tools itself starts this command, in a sandbox.
        Some("bridge") => mcp::bridge(),
        _ if ken_service::is_part() => ken_service::run(
            Program {
                name: "ken-tools",
                version: env!("CARGO_PKG_VERSION"),
                about: ABOUT,
                drain: Duration::from_secs(5),
            },
            start,
        ),
        _ => ken_tool::front(
            "ken-tools",
            ABOUT,
            &[
                ("list", List::ABOUT),
                ("check", Check::ABOUT),
                ("call", Call::ABOUT),
                ("preview", Preview::ABOUT),
                ("servers", ListServers::ABOUT),
                ("accept", Accept::ABOUT),
                ("add", Add::ABOUT),
                ("prompt", GetPrompt::ABOUT),
            ],
        ),
    }
}

/// The state of the daemon.
struct Tools {
    catalog: Catalog,
    caller: Caller,
    texts: InForce,
    /// The problems that have been logged already.
    logged_problems: Mutex<Vec<Problem>>,
}

impl Tools {
    /// Reads what has changed, logs new problems, and sends the state of the MCP servers to kend for `ken status`.
    fn refresh(&self) {
        let listing = self.catalog.read();
        let mut logged = self.logged_problems.lock();
        for problem in listing.problems.iter().filter(|problem| !logged.contains(problem)) {
            tracing::warn!(file = problem.file, "not offered: {}", problem.error);
        }
        logged.clone_from(&listing.problems);
        let status = self.catalog.servers.status();
        _ = sd_notify::notify(&[sd_notify::NotifyState::Status(&status)]);
    }

    /// Calls `refresh` after each change, even while no caller requests the tools.
    async fn keep_refreshing(&self) {
        loop {
            self.catalog.wait().await;
            // Editors write a file in several steps.
            tokio::time::sleep(SETTLE_TIME).await;
            self.refresh();
        }
    }
}

/// The time between a change and reading it.
const SETTLE_TIME: Duration = Duration::from_millis(100);

impl Daemon for Tools {
    fn stats(&self) -> Map<String, Value> {
        let listing = self.catalog.read();
        Map::from_iter([
            ("tools".to_owned(), listing.entries.len().into()),
            ("problems".to_owned(), listing.problems.len().into()),
            ("calls_running".to_owned(), self.caller.running().into()),
        ])
    }
}

async fn start(start: &mut Start<NoOptions>) -> Result<(Table<Tools>, Arc<Tools>), Error> {
    let catalog = Catalog::watched(catalog::folders(Some(&start.places.config)));
    let gate = ApprovalGate::Person(Pool::new(start.places.socket("store")));
    let outputs = Outputs(Some(Pool::new(start.places.socket("store"))));
    let workspace = std::env::var_os("KEN_WORKSPACE").map(PathBuf::from);
    let workspace = start.config.workspace.folder(&start.places.state, workspace);
    let tools = Arc::new(Tools {
        texts: InForce::new(Sources::of(&start.places.config, workspace)),
        caller: Caller::new(gate, catalog.servers.clone(), outputs)?,
        catalog,
        logged_problems: Mutex::default(),
    });
    tools.refresh();
    let (looking, mut stop) = (tools.clone(), start.stop.clone());
    let (places, store) = (start.places.clone(), Pool::new(start.places.socket("store")));
    start.tasks.spawn(async move {
        tokio::select! {
            () = looking.keep_refreshing() => {}
            () = forget::follow(&places, &store) => {}
            () = stop.stopped() => {}
        }
    });
    Ok((table(), tools))
}

fn table() -> Table<Tools> {
    Table::new("tools", env!("CARGO_PKG_VERSION"))
        .op::<ToolsList, _, _>(|tools: Arc<Tools>, _, args| async move {
            let listing = tools.catalog.read();
            let process = tools.caller.process();
            let tag = format!("{process}:{}", listing.generation);
            if args.unless.as_ref() == Some(&tag) {
                return Ok(Listed { tools: Vec::new(), tag, process, problems: Vec::new() });
            }
            Ok(Listed { tag, process, ..listing.tools_of(args.agent.as_deref()) })
        })
        .op::<ToolsCall, _, _>(|tools: Arc<Tools>, context, call| async move {
            let listing = tools.catalog.read();
            tools.caller.call(&listing, call, Some(&context)).await
        })
        .op::<ToolsPreview, _, _>(|tools: Arc<Tools>, _, call| async move {
            let listing = tools.catalog.read();
            tools.caller.preview(&listing, call).await
        })
        .op::<TextsList, _, _>(|tools: Arc<Tools>, _, args| async move {
            Ok(tools.texts.texts(args.folder.as_deref().map(Path::new)))
        })
        .op::<TextsSkill, _, _>(|tools: Arc<Tools>, _, args| async move {
            tools.texts.skill(&args.name, args.file.as_deref())
        })
        .op::<TextsBelow, _, _>(|tools: Arc<Tools>, _, args| async move {
            Ok(RulesBelow { rules: tools.texts.below(args.folder.as_deref().map(Path::new), &args.paths) })
        })
}
