//! The folders outside the workspace that a person has trusted, in the file `trust/folders.json` of the state directory. An agent
//! works in such a folder only while it is the one that was trusted: path, device and inode are compared at each use.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use ken_types::{Error, json};
use nix::errno::Errno;
use nix::fcntl::{OFlag, open, openat};
use nix::sys::stat::Mode;
use serde::{Deserialize, Serialize};

use crate::{OTHERS_WRITE, Others, Owner, STICKY, find_of, locked, replace_json};

/// The name of the file in the state directory. It is alone in its folder, because the gateway may read that folder and nothing else
/// there; a rule for the file itself would end when the file is replaced.
const FILE: &str = "trust/folders.json";
/// Where the file was before.
const OLD_FILE: &str = "folders.json";
/// The maximum size of this file, in bytes.
const MAX_BYTES: u64 = 1024 * 1024;
const MAX_DEPTH: usize = 8;

/// Moves the file from its old place, which the gateway cannot do: whoever else reads it first does.
fn adopt(old: &Path, path: &Path) {
    if old.is_file() && !path.exists() {
        _ = path.parent().map(std::fs::create_dir_all);
        _ = std::fs::rename(old, path);
    }
}

/// What a path meant when its folder was trusted. Device and inode together name a folder of a running system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Identity {
    pub device: u64,
    pub inode: u64,
}

impl Identity {
    fn of(meta: &Metadata) -> Identity {
        Identity { device: meta.dev(), inode: meta.ino() }
    }
}

/// The list of the trusted folders. All paths are absolute and without symbolic links.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Folders {
    pub trusted: BTreeMap<PathBuf, Identity>,
    /// The folders about which the person was asked and said no. They are not asked about again.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub declined: BTreeSet<PathBuf>,
}

impl Folders {
    /// Reads the list. Without the file, no folder is trusted. Fails if other users can read or change the file, or if it
    /// is damaged.
    pub fn read(state: &Path) -> Result<Folders, Error> {
        let path = state.join(FILE);
        // Root reads the list of another user, to whom it belongs, and changes nothing there.
        let owner = Owner::other(state);
        if owner.is_none() {
            adopt(&state.join(OLD_FILE), &path);
        }
        let read = find_of(&path, Others::Nothing, MAX_BYTES, owner.as_ref()).and_then(|found| match found {
            Some(bytes) => json::parse(&bytes, MAX_DEPTH).and_then(json::from_value),
            None => Ok(Folders::default()),
        });
        read.map_err(|error| Error { at: Some(path.display().to_string()), ..error })
    }

    /// Changes the list as it is now. If the change fails, nothing is written.
    pub fn change<T>(state: &Path, change: impl FnOnce(&mut Folders) -> Result<T, Error>) -> Result<T, Error> {
        let path = state.join(FILE);
        locked(&path, || {
            let mut folders = Folders::read(state)?;
            let done = change(&mut folders)?;
            replace_json(&path, &folders, Others::Nothing)?;
            Ok(done)
        })
    }

    /// Opens a trusted folder as a path only. Fails with `forbidden` if it is not trusted, or if something else is at its
    /// path by now.
    pub fn open(&self, path: &Path) -> Result<OwnedFd, Error> {
        let hint = format!("`ken workspace trust {}`", path.display());
        let Some(known) = self.trusted.get(path) else {
            return Err(Error::forbidden(format!("{} is not a trusted folder", path.display())).hint(hint));
        };
        let gone = |why: &str| Error::forbidden(format!("{} {why}", path.display())).hint(hint.clone());
        let Ok(walk) = walk(path) else {
            let is_there = path.canonicalize().is_ok_and(|found| found == path && found.is_dir());
            return Err(gone(if is_there { "was trusted, and other users can replace it by now" } else { "is gone" }));
        };
        if walk.chain.last() == Some(known) {
            Ok(walk.folder.into())
        } else {
            Err(gone("was replaced by another folder since it was trusted"))
        }
    }

    /// Trusts a folder. Fails if an agent must not work there: it is `home` or holds it, it holds or lies in one of `own`
    /// (ken's own files and folders) or another trusted folder, or another user could put something else in its place.
    /// Returns its path without symbolic links.
    pub fn trust(&mut self, folder: &Path, home: &[PathBuf], own: &[PathBuf]) -> Result<PathBuf, Error> {
        let path = folder.canonicalize();
        let path =
            path.map_err(|error| Error::invalid("DIR", format!("{} cannot be used: {error}", folder.display())))?;
        let at = |message: String| Error::forbidden(message).at(path.display().to_string());
        // The path is shown to people and to models.
        if path.to_str().is_none_or(|text| text.chars().any(char::is_control)) {
            return Err(at("the path of this folder holds a control character, or is not UTF-8".to_owned()));
        }
        let Walk { chain, .. } = walk(&path)?;
        let Some(folder) = chain.last().filter(|_| path != Path::new("/")) else {
            return Err(at("the root of the file system cannot be trusted".to_owned()));
        };
        for home in home {
            if identities(home).contains(folder) {
                return Err(at(
                    "this folder is your home folder, or holds it: trust the folder of one project".to_owned()
                ));
            }
        }
        check_apart(&path, own)?;
        // A change is recorded and undone relative to its folder. With one folder in another, the same file would have two
        // places, and neither record would know of the other's changes.
        for other in self.trusted.keys().filter(|other| **other != path) {
            let name = other.display();
            match apart(&path, other) {
                Ok(()) => {}
                Err(Apart::Holds) => return Err(at(format!("this folder holds the trusted folder {name}"))),
                Err(Apart::LiesIn) => return Err(at(format!("this folder lies in the trusted folder {name}"))),
            }
        }
        self.trusted.insert(path.clone(), *folder);
        self.declined.remove(&path);
        Ok(path)
    }

    /// Returns the trusted folder that is or contains this one.
    pub fn around(&self, folder: &Path) -> Option<&Path> {
        folder.ancestors().find_map(|folder| Some(self.trusted.get_key_value(folder)?.0.as_path()))
    }
}

/// Fails if a folder holds one of ken's own files and folders, or lies in one. One that is not there yet would be made in the folder
/// above it.
pub fn check_apart(folder: &Path, own: &[PathBuf]) -> Result<(), Error> {
    let at = |what: &str, own: &Path| {
        Error::forbidden(format!("this folder {what} own {}", own.display())).at(folder.display().to_string())
    };
    own.iter().try_for_each(|own| {
        let there = own.ancestors().find(|path| path.exists()).unwrap_or(own);
        match apart(folder, there) {
            Err(Apart::Holds) => Err(at(if there == own { "holds ken's" } else { "is where ken makes its" }, own)),
            Err(Apart::LiesIn) if there == own => Err(at("lies in ken's", own)),
            Err(Apart::LiesIn) | Ok(()) => Ok(()),
        }
    })
}

/// Returns an absolute path without symbolic links, as far as there is something at it.
pub fn resolved(path: &Path) -> PathBuf {
    let found = path.ancestors().find_map(|above| {
        let rest = path.strip_prefix(above).ok()?;
        Some(above.canonicalize().ok()?.join(rest))
    });
    // Joined with nothing, a path ends with a slash.
    found.as_deref().unwrap_or(path).components().collect()
}

/// How two folders are not apart. The first one is the subject.
enum Apart {
    Holds,
    LiesIn,
}

/// Compares two paths by device and inode, so that neither a link nor a second mount can hide that one holds the other.
fn apart(folder: &Path, other: &Path) -> Result<(), Apart> {
    let (here, there) = (identities(folder), identities(other));
    match (here.last(), there.last()) {
        (Some(folder), _) if there.contains(folder) => Err(Apart::Holds),
        (_, Some(other)) if here.contains(other) => Err(Apart::LiesIn),
        _ => Ok(()),
    }
}

/// A folder, with the identities of the folders from the root down to it.
struct Walk {
    folder: File,
    chain: Vec<Identity>,
}

/// Opens a folder by its absolute path, component by component and without following links. Fails if another user could put
/// something else at one of them: a folder of the path belongs to somebody else, or others can write to it.
///
/// In a sticky folder such as /tmp, others can create entries, and only the owner of an entry, or of the folder, can rename
/// or remove it. So a sticky folder may stand above an entry that belongs to root or to this user, and nowhere else: it cannot
/// be trusted itself.
fn walk(path: &Path) -> Result<Walk, Error> {
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let failed = |at: &Path, why: &dyn std::fmt::Display| {
        Error::invalid(at.display().to_string(), format!("cannot be opened as a folder: {why}"))
    };
    let names: Vec<&OsStr> = path
        .components()
        .filter_map(|part| match part {
            Component::Normal(name) => Some(name),
            _ => None,
        })
        .collect();
    let mut at = PathBuf::from("/");
    let root = open(&at, flags, Mode::empty()).map_err(|errno: Errno| failed(&at, &errno))?;
    let mut folder = File::from(root);
    let mut meta = folder.metadata().map_err(|error| failed(&at, &error))?;
    let mut chain = vec![Identity::of(&meta)];
    check_owner(&at, &meta)?;
    for name in names {
        check_writers(&at, &meta, true)?;
        at.push(name);
        folder = openat(&folder, name, flags, Mode::empty()).map(File::from).map_err(|errno| failed(&at, &errno))?;
        meta = folder.metadata().map_err(|error| failed(&at, &error))?;
        check_owner(&at, &meta)?;
        chain.push(Identity::of(&meta));
    }
    check_writers(&at, &meta, false)?;
    Ok(Walk { folder, chain })
}

fn check_owner(at: &Path, meta: &Metadata) -> Result<(), Error> {
    crate::check_owner(at, meta).map_err(|error| error.at(at.display().to_string()))
}

/// The access list of a folder shows in the bits of its group, so these bits cover it too.
fn check_writers(at: &Path, meta: &Metadata, is_parent: bool) -> Result<(), Error> {
    if meta.mode() & OTHERS_WRITE == 0 || (is_parent && meta.mode() & STICKY != 0) {
        return Ok(());
    }
    crate::check_mode(at, meta.mode() & 0o7777).map_err(|error| error.at(at.display().to_string()))
}

/// Returns the identities of the folders above a path, from the root, and its own. If nothing is there, it returns none.
fn identities(path: &Path) -> Vec<Identity> {
    let Ok(path) = path.canonicalize() else { return Vec::new() };
    let mut above: Vec<&Path> = path.ancestors().collect();
    above.reverse();
    above.into_iter().filter_map(|path| Some(Identity::of(&path.symlink_metadata().ok()?))).collect()
}

#[cfg(test)]
mod tests {
    use std::fs::{create_dir, create_dir_all, rename, set_permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn mode(path: &Path, mode: u32) {
        set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    }

    /// Trusts a folder of a person with this home and this state, and returns the message of the error.
    fn trust(folders: &mut Folders, at: &Path, folder: &str) -> Result<PathBuf, String> {
        let (home, own) = ([at.join("home")], [at.join("home/.local/state/ken")]);
        folders.trust(&at.join(folder), &home, &own).map_err(|error| error.message)
    }

    #[test]
    fn a_trusted_folder_is_one_of_a_project_and_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path().canonicalize().unwrap();
        for name in ["home/src/site/docs", "home/src/other", "home/.local/state/ken/store"] {
            create_dir_all(at.join(name)).unwrap();
        }
        std::os::unix::fs::symlink(at.join("home/src/site"), at.join("link")).unwrap();
        let mut folders = Folders::default();
        for (refused, why) in [
            ("home", "this folder is your home folder"),
            (".", "this folder is your home folder"),
            ("home/.local/state", "this folder holds ken's own"),
            ("home/.local/state/ken", "this folder holds ken's own"),
            ("home/.local/state/ken/store", "this folder lies in ken's own"),
            ("nothing", "cannot be used"),
        ] {
            let message = trust(&mut folders, &at, refused).unwrap_err();
            assert!(message.contains(why), "{refused}: {message}");
        }
        assert!(folders.trust(Path::new("/"), &[], &[]).is_err());
        // A link is trusted as the folder that it leads to.
        assert_eq!(trust(&mut folders, &at, "link"), Ok(at.join("home/src/site")));
        assert_eq!(trust(&mut folders, &at, "home/src/site"), Ok(at.join("home/src/site")));
        assert!(trust(&mut folders, &at, "home/src").unwrap_err().starts_with("this folder holds the trusted folder"));
        assert!(
            trust(&mut folders, &at, "home/src/site/docs")
                .unwrap_err()
                .starts_with("this folder lies in the trusted folder")
        );
        assert!(trust(&mut folders, &at, "home/src/other").is_ok());
        let written = Folders::change(&at, |list| {
            list.clone_from(&folders);
            Ok(())
        });
        assert_eq!((written, Folders::read(&at)), (Ok(()), Ok(folders.clone())));
        // A home of an older version has the file in the folder above.
        std::fs::rename(at.join(FILE), at.join(OLD_FILE)).unwrap();
        std::fs::remove_dir(at.join("trust")).unwrap();
        assert_eq!(Folders::read(&at), Ok(folders));
        assert!(at.join(FILE).is_file() && !at.join(OLD_FILE).exists());
    }

    /// Its folder may be there or not, and be reached by a link.
    #[test]
    fn a_folder_in_which_ken_would_make_its_files_is_not_trusted() {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path().canonicalize().unwrap();
        create_dir_all(at.join("dotfiles/config/git")).unwrap();
        std::os::unix::fs::symlink(at.join("dotfiles/config"), at.join("link")).unwrap();
        let message = |folder: &str, own: &str| {
            let trusted = Folders::default().trust(&at.join(folder), &[], &[at.join(own)]);
            trusted.map(drop).map_err(|error| error.message)
        };
        for own in ["dotfiles/config/ken", "dotfiles/config/ken/ken.toml", "link/ken/ken.toml"] {
            for refused in ["dotfiles", "dotfiles/config"] {
                let why = format!("this folder is where ken makes its own {}", at.join(own).display());
                assert_eq!(message(refused, own), Err(why));
            }
            assert_eq!(message("dotfiles/config/git", own), Ok(()));
        }
        create_dir(at.join("dotfiles/config/ken")).unwrap();
        assert!(
            message("dotfiles/config/ken", "link/ken/ken.toml").unwrap_err().contains("is where ken makes its own")
        );
        assert!(message("dotfiles/config/ken", "link/ken").unwrap_err().contains("holds ken's own"));
        assert_eq!(message("dotfiles/config/git", "link/ken"), Ok(()));
    }

    #[test]
    fn what_others_can_replace_is_not_trusted_but_for_an_own_folder_in_a_sticky_one() {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path().canonicalize().unwrap();
        create_dir_all(at.join("shared/site")).unwrap();
        let mut folders = Folders::default();
        for (bits, is_trusted) in [(0o755, true), (0o775, false), (0o757, false), (0o1777, true)] {
            mode(&at.join("shared"), bits);
            assert_eq!(trust(&mut folders, &at, "shared/site").is_ok(), is_trusted, "{bits:o}");
        }
        // Others can create files in a sticky folder, so it is not trusted itself.
        folders = Folders::default();
        assert!(trust(&mut folders, &at, "shared").unwrap_err().contains("others can change it"));
    }

    #[test]
    fn a_folder_that_was_replaced_moved_or_opened_to_others_is_refused_at_use() {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path().canonicalize().unwrap();
        create_dir_all(at.join("src/site")).unwrap();
        let mut folders = Folders::default();
        let site = trust(&mut folders, &at, "src/site").unwrap();
        let open = || folders.open(&site).map(drop).map_err(|error| error.message);
        assert_eq!(open(), Ok(()));
        mode(&at.join("src"), 0o777);
        assert!(open().unwrap_err().contains("other users can replace it"));
        mode(&at.join("src"), 0o755);
        rename(&site, at.join("src/away")).unwrap();
        assert!(open().unwrap_err().contains("is gone"));
        std::os::unix::fs::symlink(at.join("src/away"), &site).unwrap();
        assert!(open().unwrap_err().contains("is gone"));
        std::fs::remove_file(&site).unwrap();
        std::fs::write(&site, "a file").unwrap();
        assert!(open().unwrap_err().contains("is gone"));
        std::fs::remove_file(&site).unwrap();
        create_dir(&site).unwrap();
        assert!(open().unwrap_err().contains("was replaced"));
        assert!(folders.open(&at).unwrap_err().message.contains("is not a trusted folder"));
    }
}
