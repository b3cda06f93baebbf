//! Confines the work on files to a thread that can access the workspace and the journal, and nothing else. The kernel
//! enforces this with Landlock. The thread that waits for it is not confined, because ken-sandbox(1) needs more access
//! to set up its own confinement.

use ken_types::Error;
use ken_walls::files;
use landlock::{Access as _, AccessNet, CompatLevel, PathFd, RulesetStatus};

use crate::settings::Settings;
use crate::tree::Tree;

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

/// Like [`run_confined`], with the workspace opened inside the confined thread.
pub(crate) fn with_tree<T: Send>(
    settings: &Settings,
    access: Access,
    work: impl FnOnce(&Tree) -> Result<T, Error> + Send,
) -> Result<T, Error> {
    run_confined(settings, access, || work(&Tree::open(settings)?))
}

fn restrict(settings: &Settings, access: Access) -> Result<(), Error> {
    let refused = |error: &dyn std::fmt::Display| {
        Error::unavailable(format!("this kernel cannot confine ken-coder to the workspace (Landlock): {error}"))
            .hint("use Linux 5.13 or newer with `landlock` among the security modules (/sys/kernel/security/lsm)")
    };
    let granted = match access {
        Access::Read => files::look(),
        Access::Write => files::change(files::NEWEST),
    };
    // With an older version of Landlock the thread could truncate files elsewhere, send signals and connect to abstract
    // sockets; it does none of these, and it runs no program.
    let ruleset = files::empty(files::NEWEST, AccessNet::from_all(files::NEWEST), CompatLevel::BestEffort);
    let state = PathFd::new(&settings.state).map_err(|error| refused(&error))?;
    let status = ruleset
        .map_err(|error| error.to_string())
        .and_then(|ruleset| files::allow(ruleset, &settings.folder, granted))
        .and_then(|ruleset| files::allow(ruleset, state, granted))
        .and_then(|ruleset| ruleset.restrict_self().map_err(|error| error.to_string()))
        .map_err(|error| refused(&error))?;
    match status.ruleset {
        RulesetStatus::FullyEnforced | RulesetStatus::PartiallyEnforced => Ok(()),
        RulesetStatus::NotEnforced => Err(refused(&"the kernel does not have it")),
    }
}
