//! ken-workflow: runs, lists and checks workflows over protocol tools. See ken-workflow(1), ken-workflow(5).

mod check;
mod list;
mod run;

use std::process::ExitCode;

use ken_tool::{Filter, Report};

fn main() -> ExitCode {
    let command = std::env::args_os().nth(1);
    match command.as_deref().and_then(|word| word.to_str()) {
        Some("run") => ken_tool::subcommand::<run::Run>(),
        Some("list") => ken_tool::report::<list::List>(),
        Some("check") => ken_tool::report::<check::Check>(),
        _ => ken_tool::front(
            "ken-workflow",
            "Run, list and check workflows over protocol tools",
            &[("run", run::Run::ABOUT), ("list", list::List::ABOUT), ("check", check::Check::ABOUT)],
        ),
    }
}
