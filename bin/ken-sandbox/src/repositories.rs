//! What makes git run programs, in the repositories below the writable folders: the person's next `git status` outside would
//! run what a command has written there. So the configuration and the hooks of each repository become read-only, and every
//! folder that leads there is held in place: otherwise `mv .git x; cp -r x .git` would make it writable again. Objects, refs,
//! the index, HEAD and the logs stay writable, so `git commit` works.

use std::collections::{BTreeMap, HashSet};
use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use nix::dir::{Dir, Type};
use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat, mkdirat};
use nix::unistd::{UnlinkatFlags, unlinkat, write};

use crate::cli::{Job, Refusal};
use crate::grant::{Grant, Grants, open_below, refused};
use crate::mounts::{Held, Hold};

/// Files and folders of a repository from which git takes programs to run, or the place of such files. Those that are missing
/// are made for as long as the command runs, because it could make them itself.
const HELD: [(&str, Content); 7] = [
    ("config", Content::Text(b"")),
    ("config.worktree", Content::Text(b"")),
    ("hooks", Content::Folder),
    ("info", Content::Folder),
    // Addresses of remotes, as older versions of git had them beside the configuration.
    ("branches", Content::Folder),
    ("remotes", Content::Folder),
    // Where the repository with the configuration is, from here.
    ("commondir", Content::Text(b".\n")),
];
/// The same in the folder that belongs to a further worktree, which has its configuration elsewhere.
const HELD_OF_WORKTREE: [(&str, Content); 2] =
    [("config.worktree", Content::Text(b"")), ("commondir", Content::Text(b""))];
/// Folders of a repository in which there are repositories: of submodules, and the folders of further worktrees.
const INNER: [(&str, Within); 2] = [("modules", Within::Modules), ("worktrees", Within::Worktrees)];
/// The maximum number of folders that are looked into, and of files and folders that are held. The kernel allows 100,000 mounts.
const MAX_FOLDERS: usize = 1_000_000;
const MAX_HELD: usize = 50_000;
/// The maximum length of a path of a folder that is looked into: what is deeper is read-only as a whole.
const MAX_PATH_BYTES: usize = 3_000;

type Expected = [(&'static str, Content)];

/// Where a folder is that is looked into.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Within {
    Tree,
    Modules,
    Worktrees,
}

#[derive(Clone, Copy)]
enum Content {
    Folder,
    Text(&'static [u8]),
}

/// What is to be held, and what has been made for it. That is removed again when this is dropped.
#[derive(Default)]
pub(crate) struct Protection {
    pub(crate) held: Held,
    made: Vec<Made>,
}

struct Made {
    folder: OwnedFd,
    name: &'static str,
    /// The size of a file, to see whether it is still as it was made; `None` for a folder.
    size: Option<usize>,
}

impl Drop for Protection {
    fn drop(&mut self) {
        for Made { folder, name, size } in &self.made {
            // Whoever has written into it meanwhile, outside of the sandbox, keeps it.
            let _ = match size {
                None => unlinkat(folder, *name, UnlinkatFlags::RemoveDir),
                Some(size) => match look(folder, Path::new(name)) {
                    Ok(about) if usize::try_from(about.st_size) == Ok(*size) => {
                        unlinkat(folder, *name, UnlinkatFlags::NoRemoveDir)
                    }
                    _ => Ok(()),
                },
            };
        }
    }
}

impl Protection {
    pub(crate) fn of(job: &Job, grants: &Grants) -> Result<Protection, Refusal> {
        let mut protection = Protection::default();
        for (number, path) in &job.read_only_below {
            // The grants of descriptors come first, in the order of the options.
            let root = job.write_fd.iter().position(|other| other == number);
            let root = root.and_then(|root| Some((root, grants.write.get(root)?)));
            let (index, root) = root.ok_or_else(|| refused(path, format!("--write-fd {number} is missing")))?;
            protection.hold(index, root, path).map_err(|errno| refused(path, errno))?;
        }
        if job.protect_git {
            // The last one is the temporary folder, which is empty and goes away.
            let roots = grants.write.len().saturating_sub(1);
            for (index, root) in grants.write.iter().enumerate().take(roots) {
                let name = root.path().unwrap_or_default();
                Search { root, index, protection: &mut protection, folders: 0 }
                    .run()
                    .map_err(|(path, errno)| refused(name.join(path), explained(errno)))?;
            }
        }
        Ok(protection)
    }

    /// Makes a file or folder read-only, if it is there, and the target of a symbolic link too, if that lies below the root.
    fn hold(&mut self, index: usize, root: &Grant, path: &Path) -> Result<(), Errno> {
        let about = match look(root, path) {
            Ok(about) => about,
            Err(Errno::ENOENT | Errno::ENOTDIR) => return Ok(()),
            Err(errno) => return Err(errno),
        };
        self.add(index, path, Hold::ReadOnly)?;
        if let Some(target) = target(root, path, &about) {
            self.add(index, &target, Hold::ReadOnly)?;
        }
        Ok(())
    }

    /// Holds the folders on the way too.
    fn add(&mut self, index: usize, path: &Path, hold: Hold) -> Result<(), Errno> {
        for above in path.ancestors().skip(1).filter(|above| !above.as_os_str().is_empty()) {
            self.held.entry((index, above.to_owned())).or_insert(Hold::InPlace);
        }
        if !path.as_os_str().is_empty() {
            let known = self.held.entry((index, path.to_owned())).or_insert(hold);
            *known = hold.max(*known);
        }
        if self.held.len() > MAX_HELD { Err(Errno::E2BIG) } else { Ok(()) }
    }

    /// Makes what is missing in the folder of a repository.
    fn complete(&mut self, folder: &OwnedFd, expected: &Expected) -> Result<(), Errno> {
        for (name, content) in expected {
            let made = match content {
                Content::Folder => mkdirat(folder, *name, Mode::from_bits_truncate(0o755)).map(|()| None),
                Content::Text(text) => make_file(folder, name, text).map(|()| Some(text.len())),
            };
            let size = match (made, content) {
                (Ok(size), _) => size,
                // A supervisor that was killed may have left it; the configuration is always the person's.
                (Err(Errno::EEXIST), Content::Text(text)) if *name != "config" => Some(text.len()),
                (Err(Errno::EEXIST), _) => continue,
                (Err(errno), _) => return Err(errno),
            };
            self.made.push(Made { folder: folder.try_clone().map_err(|_| Errno::EMFILE)?, name, size });
        }
        Ok(())
    }
}

fn make_file(folder: &OwnedFd, name: &str, text: &[u8]) -> Result<(), Errno> {
    let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let file = openat(folder, name, flags, Mode::from_bits_truncate(0o644))?;
    write(&file, text).map(drop)
}

/// Tells what is at a path below a folder, of a symbolic link itself.
fn look(folder: &impl AsFd, path: &Path) -> Result<FileStat, Errno> {
    fstat(&open_below(folder, path, OFlag::O_PATH)?)
}

/// What a symbolic link leads to, as a path below the root; `None` for everything else, and if it leads elsewhere.
fn target(root: &Grant, path: &Path, about: &FileStat) -> Option<PathBuf> {
    if SFlag::from_bits_truncate(about.st_mode) & SFlag::S_IFMT != SFlag::S_IFLNK {
        return None;
    }
    let root = root.path().ok()?;
    let target = root.join(path).canonicalize().ok()?;
    target.strip_prefix(&root).ok().map(Path::to_owned)
}

fn explained(errno: Errno) -> String {
    match errno {
        Errno::E2BIG => {
            "it has too many folders or repositories to protect them all; start the command in one of them".into()
        }
        errno => format!("its git repository cannot be protected: {}", errno.desc()),
    }
}

/// Looks for repositories below a writable folder.
struct Search<'a> {
    root: &'a Grant,
    index: usize,
    protection: &'a mut Protection,
    folders: usize,
}

type Failure = (PathBuf, Errno);

impl Search<'_> {
    fn run(mut self) -> Result<(), Failure> {
        let mut open = vec![(PathBuf::new(), Within::Tree)];
        // What a symbolic link leads to is looked at as a folder of the tree, and as the repository that the link says it is: a
        // command may have removed what the folder itself would be recognized by.
        let mut seen = HashSet::new();
        while let Some((path, within)) = open.pop() {
            self.folders += 1;
            if self.folders > MAX_FOLDERS {
                return Err((PathBuf::new(), Errno::E2BIG));
            }
            let below = self.folder(&path, within).map_err(|errno| (path.clone(), errno))?;
            open.extend(below.into_iter().filter(|found| seen.insert(found.clone())));
        }
        Ok(())
    }

    /// Protects what is in a folder, and returns the folders in it that are to be looked into.
    fn folder(&mut self, path: &Path, within: Within) -> Result<Vec<(PathBuf, Within)>, Errno> {
        let Some(folder) = self.open(path)? else { return Ok(Vec::new()) };
        let entries = entries(folder.try_clone().map_err(|_| Errno::EMFILE)?)?;
        let has = |name: &str| entries.contains_key(OsStr::new(name));
        match repository_of(path, within, has) {
            Some(expected) => {
                self.repository(path, &folder, expected)?;
                Ok(INNER.map(|(name, within)| (path.join(name), within)).into())
            }
            None => self.below(path, within, entries),
        }
    }

    /// `None` for what is no folder, and for a folder that is read-only as a whole.
    fn open(&mut self, path: &Path) -> Result<Option<OwnedFd>, Errno> {
        let name = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        match open_below(self.root, name, OFlag::O_RDONLY | OFlag::O_DIRECTORY) {
            Ok(folder) if path.as_os_str().len() <= MAX_PATH_BYTES => Ok(Some(folder)),
            // Its owner could make it accessible again, from inside the sandbox too.
            Ok(_) | Err(Errno::EACCES) => self.read_only(path).map(|()| None),
            Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    fn read_only(&mut self, path: &Path) -> Result<(), Errno> {
        self.protection.add(self.index, path, Hold::ReadOnly)
    }

    fn repository(&mut self, path: &Path, folder: &OwnedFd, expected: &Expected) -> Result<(), Errno> {
        match self.protection.complete(folder, expected) {
            Ok(()) => {}
            // The same holds for a folder that cannot be changed.
            Err(Errno::EACCES | Errno::EPERM | Errno::EROFS) => return self.read_only(path),
            Err(errno) => return Err(errno),
        }
        for name in expected.iter().map(|(name, _)| *name).chain(["gitdir"]) {
            self.protection.hold(self.index, self.root, &path.join(name))?;
        }
        self.protection.add(self.index, path, Hold::InPlace)
    }

    fn below(&mut self, path: &Path, within: Within, entries: Entries) -> Result<Vec<(PathBuf, Within)>, Errno> {
        let mut folders = Vec::new();
        for (name, kind) in entries {
            let below = path.join(&name);
            match kind {
                Type::Directory => folders.push((below, within)),
                _ if name == ".git" => folders.extend(self.git_file(&below)?.map(|target| (target, Within::Modules))),
                _ => {}
            }
        }
        Ok(folders)
    }

    /// `.git` as a file names the folder of the repository, and as a symbolic link it leads there. Returns that folder if it
    /// is known: it has any name.
    fn git_file(&mut self, path: &Path) -> Result<Option<PathBuf>, Errno> {
        let about = look(self.root, path)?;
        self.protection.add(self.index, path, Hold::ReadOnly)?;
        let target = target(self.root, path, &about);
        if let Some(target) = &target {
            self.protection.add(self.index, target, Hold::InPlace)?;
        }
        Ok(target)
    }
}

/// What a folder has to have if it is that of a repository. Below a repository the file alone that is held tells what a folder
/// is: a command could remove the others, and with the next one the folder would not be recognized.
fn repository_of(path: &Path, within: Within, has: impl Fn(&str) -> bool) -> Option<&'static Expected> {
    let is_named = path.file_name().is_some_and(|name| name == ".git");
    let looks_complete = has("HEAD") && has("objects") && has("refs");
    if is_named || looks_complete || has("config") && within == Within::Modules {
        return Some(&HELD);
    }
    let is_worktree = has("commondir") && (has("HEAD") || within == Within::Worktrees);
    is_worktree.then_some(&HELD_OF_WORKTREE as &Expected)
}

type Entries = BTreeMap<std::ffi::OsString, Type>;

/// The names in a folder with their kinds. A file system that does not tell the kind is asked for each.
fn entries(folder: OwnedFd) -> Result<Entries, Errno> {
    let own = folder.try_clone().map_err(|_| Errno::EMFILE)?;
    let mut found = BTreeMap::new();
    for entry in Dir::from_fd(folder)?.iter() {
        let entry = entry?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if name == "." || name == ".." {
            continue;
        }
        let kind = entry.file_type().or_else(|| kind(&own, name).ok()).unwrap_or(Type::File);
        found.insert(name.to_owned(), kind);
    }
    Ok(found)
}

/// What a name in a folder is: a folder, or something else.
fn kind(folder: &OwnedFd, name: &OsStr) -> Result<Type, Errno> {
    let kind = SFlag::from_bits_truncate(look(folder, Path::new(name))?.st_mode) & SFlag::S_IFMT;
    Ok(if kind == SFlag::S_IFDIR { Type::Directory } else { Type::File })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All combinations of the files that tell what a folder is, at each kind of place.
    #[test]
    fn what_a_folder_is_told_by_its_files() {
        const FILES: [&str; 5] = ["HEAD", "objects", "refs", "config", "commondir"];
        for bits in 0..32 {
            let there = |name: &str| FILES.iter().position(|file| *file == name).is_some_and(|at| bits & 1 << at != 0);
            for within in [Within::Tree, Within::Modules, Within::Worktrees] {
                for name in ["a/.git", "a/git", "a/.github"] {
                    // A repository, the folder of a further worktree, or neither.
                    let is_whole = there("HEAD") && there("objects") && there("refs");
                    let expected = if name == "a/.git" || is_whole || within == Within::Modules && there("config") {
                        Some(HELD.len())
                    } else if there("commondir") && (within == Within::Worktrees || there("HEAD")) {
                        Some(HELD_OF_WORKTREE.len())
                    } else {
                        None
                    };
                    let found = repository_of(Path::new(name), within, there).map(|expected| expected.len());
                    assert_eq!(found, expected, "{name} {bits:05b} {within:?}");
                }
            }
        }
    }

    /// Everything below a writable folder that decides what git runs, in a tree with a repository of each kind.
    #[test]
    fn what_decides_what_git_runs_is_held_and_what_was_made_for_it_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let at = |path: &str| folder.path().join(path);
        let write = |path: &str, text: &str| {
            std::fs::create_dir_all(at(path).parent().unwrap()).unwrap();
            std::fs::write(at(path), text).unwrap();
        };
        for name in ["a/.git/objects/info", "a/.git/refs", "a/.git/worktrees/w", "plain/objects"] {
            std::fs::create_dir_all(at(name)).unwrap();
        }
        for name in ["a/.git/HEAD", "a/.git/modules/sub/config", "plain/HEAD", "plain/config"] {
            write(name, "x");
        }
        write("a/.git/worktrees/w/commondir", "../..\n");
        write("b/.git", "gitdir: ../a/.git/modules/sub\n");
        write("store/config", "x");
        // As it would have been made.
        write("a/.git/config", "");
        // To the folder in which it is.
        write("round/x", "x");
        std::os::unix::fs::symlink(".", at("round/.git")).unwrap();
        std::fs::create_dir_all(at("c")).unwrap();
        std::os::unix::fs::symlink("../store", at("c/.git")).unwrap();
        // A path of exactly the length up to which it is looked into, and one of a byte more.
        let path = |length: usize| {
            let mut path = format!("{}/", "d".repeat(100)).repeat(length / 101);
            path.push_str(&"e".repeat(length - path.len()));
            path
        };
        let (fits, long) = (path(MAX_PATH_BYTES - 5), path(MAX_PATH_BYTES - 4));
        std::fs::create_dir_all(at(&format!("{fits}/.git"))).unwrap();
        std::fs::create_dir_all(at(&format!("{long}/.git"))).unwrap();
        let root = Grant::open(folder.path()).unwrap();
        let mut protection = Protection::default();
        Search { root: &root, index: 0, protection: &mut protection, folders: 0 }.run().unwrap();
        let hold = |path: &str| protection.held.get(&(0, PathBuf::from(path))).copied();
        for (path, expected) in [
            ("a/.git", Some(Hold::InPlace)),
            ("a/.git/config", Some(Hold::ReadOnly)),
            ("a/.git/hooks", Some(Hold::ReadOnly)),
            ("a/.git/HEAD", None),
            ("a/.git/modules/sub", Some(Hold::InPlace)),
            ("a/.git/modules/sub/config", Some(Hold::ReadOnly)),
            ("a/.git/worktrees/w/commondir", Some(Hold::ReadOnly)),
            ("a/.git/worktrees/w/config", None),
            ("b/.git", Some(Hold::ReadOnly)),
            ("c/.git", Some(Hold::ReadOnly)),
            ("store/config", Some(Hold::ReadOnly)),
            ("plain/config", None),
            ("round/.git", Some(Hold::ReadOnly)),
            (&format!("{fits}/.git/config"), Some(Hold::ReadOnly)),
            (&format!("{long}/.git"), Some(Hold::ReadOnly)),
            (&format!("{long}/.git/config"), None),
        ] {
            assert_eq!(hold(path), expected, "{}", &path[path.len().saturating_sub(60)..]);
        }
        assert!(at("a/.git/hooks").is_dir() && at("a/.git/config.worktree").is_file());
        // What somebody outside has written meanwhile is kept.
        write("a/.git/commondir", "changed");
        write("a/.git/hooks/x", "made");
        drop(protection);
        let left =
            ["config", "config.worktree", "commondir", "hooks", "info"].map(|name| at("a/.git").join(name).exists());
        assert_eq!(left, [true, false, true, true, false]);
        assert!(!at("store/hooks").exists() && !at("a/.git/modules/sub/hooks").exists());
    }

    #[test]
    fn a_tree_is_looked_through_up_to_a_number_of_folders() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("a")).unwrap();
        let root = Grant::open(folder.path()).unwrap();
        for (folders, is_done) in [(MAX_FOLDERS - 2, true), (MAX_FOLDERS - 1, false)] {
            let mut protection = Protection::default();
            let done = Search { root: &root, index: 0, protection: &mut protection, folders }.run();
            assert_eq!(done.is_ok(), is_done, "{folders}");
        }
    }

    /// Some file systems do not tell what a name is.
    #[test]
    fn what_a_name_is_can_be_looked_up() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("folder")).unwrap();
        std::fs::write(folder.path().join("file"), "").unwrap();
        std::os::unix::fs::symlink("folder", folder.path().join("link")).unwrap();
        let opened = OwnedFd::from(std::fs::File::open(folder.path()).unwrap());
        let kinds = ["folder", "file", "link"].map(|name| kind(&opened, OsStr::new(name)).unwrap());
        assert_eq!(kinds, [Type::Directory, Type::File, Type::File]);
        assert_eq!(kind(&opened, OsStr::new("none")).err(), Some(Errno::ENOENT));
    }

    #[test]
    fn what_is_held_stays_held_with_all_that_leads_there() {
        let mut protection = Protection::default();
        let add = |protection: &mut Protection, path: &str, hold| protection.add(0, Path::new(path), hold).unwrap();
        add(&mut protection, "a/b/.git", Hold::InPlace);
        add(&mut protection, "a/b/.git/config", Hold::ReadOnly);
        add(&mut protection, "a/b/.git/config", Hold::InPlace);
        add(&mut protection, "a", Hold::ReadOnly);
        add(&mut protection, "", Hold::ReadOnly);
        let held: Vec<_> = protection.held.clone().into_iter().map(|((_, path), hold)| (path, hold)).collect();
        let wanted = [
            ("a", Hold::ReadOnly),
            ("a/b", Hold::InPlace),
            ("a/b/.git", Hold::InPlace),
            ("a/b/.git/config", Hold::ReadOnly),
        ];
        assert_eq!(held, wanted.map(|(path, hold)| (PathBuf::from(path), hold)));
        // As many as there may be, and one more.
        let mut many = Protection::default();
        let added =
            (0..=MAX_HELD).position(|number| many.add(0, Path::new(&number.to_string()), Hold::InPlace).is_err());
        assert_eq!(added, Some(MAX_HELD));
    }
}
