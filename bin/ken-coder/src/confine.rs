//! Confines the work on files to a thread that can access the workspace and the journal, and nothing else. The kernel
//! enforces this with Landlock. The thread that waits for it is not confined, because ken-sandbox(1) needs more access
//! to set up its own confinement.

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset,
    RulesetAttr, RulesetCreatedAttr, RulesetStatus, Scope, make_bitflags,
};
use std::path::Path;

use ken_types::Error;

use crate::settings::Settings;

/// The last version of Landlock whose rights are used, as in ken-sandbox. With an older one the thread could truncate files
/// elsewhere, send signals and connect to abstract sockets; it does none of these, and it runs no program.
const NEWEST: ABI = ABI::V6;

/// The access that the confined thread gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
}

/// Runs `work` in a confined thread. Fails with the reason if the kernel cannot confine it.
pub(crate) fn run_confined<T: Send>(
    settings: &Settings,
    access: Access,
    work: impl FnOnce() -> Result<T, Error> + Send,
) -> Result<T, Error> {
    std::thread::scope(|scope| {
        let confined = scope.spawn(|| {
            restrict(settings, access)?;
            work()
        });
        confined.join().unwrap_or_else(|_| Err(Error::internal("the work on the workspace failed")))
    })
}

fn restrict(settings: &Settings, access: Access) -> Result<(), Error> {
    let refused = |error: &dyn std::fmt::Display| {
        Error::unavailable(format!("this kernel cannot confine ken-coder to the workspace (Landlock): {error}"))
            .hint("use Linux 5.13 or newer with `landlock` among the security modules (/sys/kernel/security/lsm)")
    };
    let all = AccessFs::from_all(NEWEST);
    let look = make_bitflags!(AccessFs::{ReadFile | ReadDir});
    let change = all & !make_bitflags!(AccessFs::{Execute | MakeChar | MakeBlock | MakeFifo | MakeSock | IoctlDev});
    let granted = match access {
        Access::Read => look,
        Access::Write => change,
    };
    let beneath = |path: &Path, access: BitFlags<AccessFs>| {
        PathFd::new(path).map(|opened| PathBeneath::new(opened, access)).map_err(|error| refused(&error))
    };
    let created = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(all)
        .and_then(|ruleset| ruleset.handle_access(AccessNet::from_all(NEWEST)))
        .and_then(|ruleset| ruleset.scope(Scope::from_all(NEWEST)))
        .and_then(Ruleset::create)
        .map_err(|error| refused(&error))?;
    let state = beneath(&settings.state, granted)?;
    let status = created
        .add_rule(PathBeneath::new(&settings.folder, granted))
        .and_then(|ruleset| ruleset.add_rule(state))
        .map_err(|error| refused(&error))?
        .restrict_self()
        .map_err(|error| refused(&error))?;
    match status.ruleset {
        RulesetStatus::FullyEnforced | RulesetStatus::PartiallyEnforced => Ok(()),
        RulesetStatus::NotEnforced => Err(refused(&"the kernel does not have it")),
    }
}
