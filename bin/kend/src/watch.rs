//! Notices changes of `ken.toml`, `secrets.env`, `client.secret` and the `workflows` folder beside them, by inotify(7).

use std::ffi::{OsStr, OsString};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ken_types::places::CLIENT_SECRET;
use rustix::fs::inotify::{self, CreateFlags, Event, ReadFlags, Reader, WatchFlags};
use rustix::io::Errno;

/// An editor makes several changes to save a file. They count as one when this much time has passed after the last one.
pub(crate) const QUIET_TIME: Duration = Duration::from_millis(200);
const WORKFLOWS: &str = "workflows";
/// What completes a change. A file that is still being written does not count, and opening one causes no event: other parts read
/// files in this folder at each turn, which must not wake up kend.
pub(crate) const COMPLETED: WatchFlags = WatchFlags::CLOSE_WRITE
    .union(WatchFlags::CREATE)
    .union(WatchFlags::DELETE)
    .union(WatchFlags::MOVE)
    .union(WatchFlags::ATTRIB);

pub(crate) struct Watch {
    /// Becomes readable when something has changed.
    inotify: OwnedFd,
    /// The number of the folder of the configuration in events.
    folder: i32,
    /// The names in it that matter.
    files: [OsString; 4],
    workflows: PathBuf,
    due: Option<Instant>,
}

impl Watch {
    /// Watches the folder of `config`. Returns the reason if there is no such folder or the system's limit of watches is reached.
    pub(crate) fn new(config: &Path) -> Result<Watch, Errno> {
        let folder = config.parent().unwrap_or(Path::new("/"));
        let workflows = folder.join(WORKFLOWS);
        let config = config.file_name().unwrap_or_default();
        let files = [config, "secrets.env".as_ref(), CLIENT_SECRET.as_ref(), WORKFLOWS.as_ref()].map(OsStr::to_owned);
        let inotify = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        let folder = inotify::add_watch(&inotify, folder, COMPLETED)?;
        let watch = Watch { inotify, folder, files, workflows, due: None };
        watch.watch_workflows();
        Ok(watch)
    }

    /// The folder of workflows is optional, and can be created later.
    fn watch_workflows(&self) {
        _ = inotify::add_watch(&self.inotify, &self.workflows, COMPLETED);
    }

    /// Reads the events. If one matters, the quiet time begins again.
    pub(crate) fn read(&mut self, now: Instant) {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut events = Reader::new(&self.inotify, &mut buffer);
        while let Ok(event) = events.next() {
            // kend makes this folder itself, for the part that may write there. As long as it is empty, nothing has changed; what is put
            // there from here on is seen.
            if is_new_folder(&event, self.folder) {
                self.watch_workflows();
                if is_empty(&self.workflows) {
                    continue;
                }
            }
            if concerns(&event, self.folder, &self.files) {
                self.due = Some(now + QUIET_TIME);
            }
        }
    }

    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.due
    }

    /// Returns true once after changes, when no more of them have arrived for the quiet time.
    pub(crate) fn is_settled(&mut self, now: Instant) -> bool {
        let settled = self.due.is_some_and(|due| due <= now);
        if settled {
            self.due = None;
            self.watch_workflows();
        }
        settled
    }
}

impl AsFd for Watch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inotify.as_fd()
    }
}

/// Whether the folder of workflows has come.
fn is_new_folder(event: &Event<'_>, folder: i32) -> bool {
    let is_named = event.file_name().is_some_and(|name| name.to_bytes() == WORKFLOWS.as_bytes());
    event.wd() == folder && is_named && event.events().contains(ReadFlags::CREATE)
}

fn is_empty(folder: &Path) -> bool {
    std::fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_none())
}

/// Whether an event is in the folder of workflows, about one of the files, or says that events were lost.
fn concerns(event: &Event<'_>, folder: i32, files: &[OsString]) -> bool {
    let name = event.file_name().map(|name| OsStr::from_bytes(name.to_bytes()));
    event.wd() != folder || name.is_some_and(|name| files.iter().any(|file| file == name))
}
