//! Writes a backup: a tar archive with the files of a system, and the manifest as its last file.

use std::ffi::OsString;
use std::fs::{File, Metadata};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use ken_types::Error;
use ken_types::places::Places;
use nix::errno::Errno;
use tar::{Builder, EntryType, Header};

use super::below::Below;
use super::manifest::{FOLDER, MANIFEST, MAX_FILES, Manifest, Summed, VERSION};
use super::scope::{DATABASE, Root, STORE, is_secret, present};

/// What was written, and what was not.
pub(super) struct Written {
    pub(super) manifest: Manifest,
    /// The secrets that are not in it.
    pub(super) secrets: Vec<String>,
    /// Links and other things that are neither files nor folders.
    pub(super) left_out: Vec<String>,
}

/// Writes the files of a system, with `database` as its database, if it has one of its own.
pub(super) fn write(to: impl Write, places: &Places, database: Option<File>, secrets: bool) -> Result<Written, Error> {
    let written = Written { manifest: Manifest::new(secrets), secrets: Vec::new(), left_out: Vec::new() };
    let mut archive = Archive { builder: Builder::new(to), written };
    for unit in present(places).map_err(|error| failed(&places.state.display(), &error))? {
        let path = unit.path(places);
        let name = format!("{}/{}", unit.root.name(), unit.name);
        if unit.root == Root::State && unit.name == STORE {
            database.iter().try_for_each(|database| archive.add_database(database))?;
            continue;
        }
        let folder = Below::of(path.parent().unwrap_or(Path::new("/")));
        let folder = folder.map_err(|error| failed(&path.display(), &error))?;
        archive.add(&folder, path.file_name().map(Path::new).unwrap_or(&path), &name)?;
    }
    archive.finish()
}

fn failed(what: &dyn std::fmt::Display, error: &dyn std::fmt::Display) -> Error {
    Error::unavailable(format!("{what}: {error}"))
}

struct Archive<W: Write> {
    builder: Builder<W>,
    written: Written,
}

impl<W: Write> Archive<W> {
    /// Adds a file, or a folder with everything in it.
    fn add(&mut self, root: &Below, path: &Path, name: &str) -> Result<(), Error> {
        if is_secret(name) && !self.written.manifest.secrets {
            self.written.secrets.push(name.to_owned());
            return Ok(());
        }
        let file = match root.open(path) {
            Ok(file) => file,
            Err(Errno::ENOENT) => return Ok(()), // it was removed since it was listed
            Err(Errno::ELOOP | Errno::ENXIO) => {
                self.written.left_out.push(name.to_owned());
                return Ok(());
            }
            Err(errno) => return Err(failed(&name, &errno.desc())),
        };
        let about = file.metadata().map_err(|error| failed(&name, &error))?;
        if about.is_dir() {
            self.add_folder(name, about.mode(), about.mtime())?;
            return self.add_entries(root, &file, path, name);
        }
        if !about.is_file() {
            self.written.left_out.push(name.to_owned());
            return Ok(());
        }
        self.add_file(file, name, &about)
    }

    fn add_entries(&mut self, root: &Below, folder: &File, path: &Path, name: &str) -> Result<(), Error> {
        // Through its descriptor, so that it is the folder that was opened.
        let entries = std::fs::read_dir(format!("/proc/self/fd/{}", folder.as_raw_fd()));
        let listed = entries.and_then(|entries| entries.map(|entry| Ok(entry?.file_name())).collect());
        let mut entries: Vec<OsString> = listed.map_err(|error: io::Error| failed(&name, &error))?;
        // A record of the coding worker's journal moves from `pending` to `journal`, and `journal` refers to `objects`. In this
        // order, a backup that is made meanwhile has every record, and what it refers to.
        entries.sort_by_key(|entry| (entry != "pending", entry.clone()));
        for entry in entries {
            let path = path.join(&entry);
            match entry.to_str() {
                Some(entry) => self.add(root, &path, &format!("{name}/{entry}"))?,
                None => self.written.left_out.push(format!("{name}/{}", entry.to_string_lossy())),
            }
        }
        Ok(())
    }

    fn add_database(&mut self, database: &File) -> Result<(), Error> {
        let about = database.metadata().map_err(|error| failed(&DATABASE, &error))?;
        self.add_folder(&format!("{}/{STORE}", Root::State.name()), 0o700, about.mtime())?;
        self.add_file(database, DATABASE, &about)
    }

    fn add_folder(&mut self, name: &str, mode: u32, time: i64) -> Result<(), Error> {
        let mut header = header(EntryType::Directory, 0, mode, time);
        let path = format!("{}/", inside(name));
        self.builder.append_data(&mut header, path, io::empty()).map_err(|error| failed(&name, &error))
    }

    /// Adds a file as long as it is now: logs grow while they are copied.
    fn add_file(&mut self, file: impl Read, name: &str, about: &Metadata) -> Result<(), Error> {
        let size = about.len();
        let mut summed = Summed::of(file.take(size));
        let mut header = header(EntryType::Regular, size, about.mode(), about.mtime());
        self.builder.append_data(&mut header, inside(name), &mut summed).map_err(|error| failed(&name, &error))?;
        let content = summed.content();
        if content.size != size {
            return Err(failed(&name, &"became shorter while it was copied").hint("try again"));
        }
        self.written.manifest.files.insert(name.to_owned(), content);
        if self.written.manifest.files.len() > MAX_FILES {
            return Err(Error::too_large(format!("a backup has at most {MAX_FILES} files")));
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Written, Error> {
        let text = serde_json::to_vec(&self.written.manifest).map_err(|error| Error::internal(error.to_string()))?;
        let mut header = header(EntryType::Regular, text.len() as u64, 0o600, 0);
        let added = self.builder.append_data(&mut header, inside(MANIFEST), text.as_slice());
        let ended = added.and_then(|()| self.builder.into_inner()?.flush());
        ended.map_err(|error| failed(&"the backup", &error))?;
        Ok(self.written)
    }
}

/// The path of a file in the archive.
fn inside(name: &str) -> String {
    format!("{FOLDER}{VERSION}/{name}")
}

/// The time counts: undo journals are listed, and removed, by the time of their folders.
fn header(kind: EntryType, size: u64, mode: u32, time: i64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_size(size);
    header.set_mode(mode & 0o777);
    header.set_mtime(time.try_into().unwrap_or_default());
    // Whoever restores it owns it.
    header.set_uid(0);
    header.set_gid(0);
    header
}
