//! Notices by inotify(7) that a file of the system was replaced for which parts have rules, or that it has come: the file itself, or
//! what a link in its place leads to.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use ken_walls::part::REPLACED;
use rustix::fs::inotify::{self, CreateFlags, Event, ReadFlags, Reader};
use rustix::io::Errno;

use crate::watch::{COMPLETED, QUIET_TIME};

/// As many links in a row are followed.
const MAX_LINKS: usize = 8;

pub(crate) struct SystemFiles {
    /// Becomes readable when something has changed.
    inotify: OwnedFd,
    /// Folders, by their numbers in events, and the names in them that matter.
    places: BTreeSet<(i32, OsString)>,
    due: Option<Instant>,
}

impl SystemFiles {
    /// Fails if the limit of the system for such watches is reached.
    pub(crate) fn watch() -> Result<SystemFiles, Errno> {
        let inotify = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        let mut files = SystemFiles { inotify, places: BTreeSet::new(), due: None };
        files.find_places();
        Ok(files)
    }

    /// Finds the places again, because links may lead elsewhere now. A folder that is watched already keeps its number.
    fn find_places(&mut self) {
        self.places.clear();
        for path in REPLACED.iter().flat_map(|path| links(Path::new(path))) {
            if let Some((folder, name)) = place(&path)
                && let Ok(number) = inotify::add_watch(&self.inotify, folder, COMPLETED)
            {
                self.places.insert((number, name.to_owned()));
            }
        }
    }

    /// Reads the events. If one matters, the quiet time begins again: such a file is often removed and then written.
    pub(crate) fn read(&mut self, now: Instant) {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut events = Reader::new(&self.inotify, &mut buffer);
        while let Ok(event) = events.next() {
            if concerns(&event, &self.places) {
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
            self.find_places();
        }
        settled
    }
}

impl AsFd for SystemFiles {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inotify.as_fd()
    }
}

/// A path, and those that links at it lead to.
fn links(path: &Path) -> impl Iterator<Item = PathBuf> {
    let next = |path: &PathBuf| Some(path.parent()?.join(std::fs::read_link(path).ok()?));
    std::iter::successors(Some(path.to_owned()), next).take(MAX_LINKS)
}

/// The nearest folder that exists, and the name in it by which the path goes on.
fn place(path: &Path) -> Option<(&Path, &OsStr)> {
    let (path, folder) = path.ancestors().zip(path.ancestors().skip(1)).find(|(_, folder)| folder.is_dir())?;
    Some((folder, path.file_name()?))
}

/// Whether an event is about one of the names, or says that a folder is gone or that events were lost.
fn concerns(event: &Event<'_>, places: &BTreeSet<(i32, OsString)>) -> bool {
    let Some(name) = event.file_name() else {
        return event.events().intersects(ReadFlags::IGNORED | ReadFlags::QUEUE_OVERFLOW);
    };
    places.contains(&(event.wd(), OsStr::from_bytes(name.to_bytes()).to_owned()))
}
