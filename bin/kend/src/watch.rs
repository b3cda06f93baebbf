//! Notices changes of `ken.toml`, `secrets.env`, `client.secret` and the `workflows` folder beside them. A thread sleeps until
//! inotify(7) reports a change, so an idle kend does not wake up.

use std::ffi::OsString;
use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ken_types::places::CLIENT_SECRET;
use notify::event::{AccessKind, AccessMode, EventKind, ModifyKind};
use notify::{Event, RecommendedWatcher, RecursiveMode, Watcher};

/// An editor makes several changes to save a file. They count as one when this much time has passed after the last one.
const QUIET_TIME: Duration = Duration::from_millis(200);

pub(crate) struct Watch {
    watcher: RecommendedWatcher,
    /// Becomes readable when something has changed.
    changes: UnixStream,
    workflows: PathBuf,
    due: Option<Instant>,
}

impl Watch {
    /// Watches the folder of `config`. Returns the reason as text if there is no such folder or the system's limit of
    /// watches is reached.
    pub(crate) fn new(config: &Path) -> Result<Watch, String> {
        let folder = config.parent().unwrap_or(Path::new("/"));
        let workflows = folder.join("workflows");
        let config = config.file_name().unwrap_or_default().to_owned();
        let files = [config, OsString::from("secrets.env"), OsString::from(CLIENT_SECRET)];
        let failed = |error: std::io::Error| error.to_string();
        let (changes, mut writer) = UnixStream::pair().map_err(failed)?;
        for end in [&changes, &writer] {
            end.set_nonblocking(true).map_err(failed)?;
        }
        let watched = workflows.clone();
        let watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
            if event.is_ok_and(|event| concerns(&event, &files, &watched)) {
                // If the pipe is full, the change has been signalled already.
                _ = writer.write(&[0]);
            }
        });
        let mut watcher = watcher.map_err(|error| error.to_string())?;
        watcher.watch(folder, RecursiveMode::NonRecursive).map_err(|error| error.to_string())?;
        // The folder of workflows is optional, and can be created later.
        _ = watcher.watch(&workflows, RecursiveMode::NonRecursive);
        Ok(Watch { watcher, changes, workflows, due: None })
    }

    /// Reads the signalled changes and restarts the quiet time.
    pub(crate) fn read(&mut self, now: Instant) {
        let mut buffer = [0; 64];
        while matches!(self.changes.read(&mut buffer), Ok(1..)) {}
        self.due = Some(now + QUIET_TIME);
    }

    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.due
    }

    /// Returns true once after changes, when no more of them have arrived for the quiet time.
    pub(crate) fn is_settled(&mut self, now: Instant) -> bool {
        let settled = self.due.is_some_and(|due| due <= now);
        if settled {
            self.due = None;
            _ = self.watcher.watch(&self.workflows, RecursiveMode::NonRecursive);
        }
        settled
    }
}

impl AsFd for Watch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.changes.as_fd()
    }
}

/// Whether an event completes a change of one of the files. A file that is still being written does not count.
fn concerns(event: &Event, files: &[OsString; 3], workflows: &Path) -> bool {
    let completes = matches!(
        event.kind,
        EventKind::Access(AccessKind::Close(AccessMode::Write))
            | EventKind::Create(_)
            | EventKind::Remove(_)
            | EventKind::Modify(ModifyKind::Name(_) | ModifyKind::Metadata(_))
    );
    completes
        && event.paths.iter().any(|path| {
            path.starts_with(workflows) || path.file_name().is_some_and(|name| files.iter().any(|file| file == name))
        })
}
