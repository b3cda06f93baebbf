//! Reads a backup: checks each of its files, and puts them into a folder if there is one.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::{self, Read};
use std::path::{Component, Path, PathBuf};

use ken_types::Error;
use tar::{Archive, Entry, EntryType};

use super::manifest::{Content, FOLDER, MANIFEST, MAX_FILES, MAX_MANIFEST_BYTES, MAX_PATH, Manifest, Summed, VERSION};
use super::scope::Root;
use super::stage::{Stage, set_time};

/// How much may follow the end of the archive: tar fills the last block, of at most 10 KiB, with zeros.
const MAX_REST: u64 = 1024 * 1024;

/// Reads the backup to its end and checks everything that can be checked: its format, the places of its files, their sizes and
/// digests. With a stage, the files are put there; the caller removes it after an error.
pub(super) fn read(from: impl Read, stage: Option<&Stage>) -> Result<Manifest, Error> {
    let mut archive = Archive::new(from);
    let mut reader = Reader { stage, found: BTreeMap::new(), folders: Vec::new(), manifest: None, long_name: None };
    // Raw: a long name is an entry of its own, whose size has to be checked before it is read.
    for entry in archive.entries().map_err(|error| damaged(&error))?.raw(true) {
        reader.take(entry.map_err(|error| damaged(&error))?)?;
    }
    drain(archive.into_inner())?;
    let manifest = reader.manifest.ok_or_else(cut_short)?;
    compare(&manifest, &reader.found)?;
    // Only now, because each file that is put into a folder changes its time.
    for (root, path, time) in &reader.folders {
        if let Some(stage) = stage {
            stage.set_time(*root, path, *time)?;
        }
    }
    Ok(manifest)
}

fn damaged(why: &dyn std::fmt::Display) -> Error {
    Error::invalid("", format!("is no backup of ken, or is damaged: {why}"))
}

fn cut_short() -> Error {
    Error::invalid("", "was cut short: the list of its files, with which it ends, is missing")
}

/// Reads to the end, so that the program that writes into the pipe can end in peace.
fn drain(rest: impl Read) -> Result<(), Error> {
    let count = io::copy(&mut rest.take(MAX_REST + 1), &mut io::sink()).map_err(|error| damaged(&error))?;
    if count > MAX_REST {
        return Err(damaged(&"something else follows its end"));
    }
    Ok(())
}

fn compare(manifest: &Manifest, found: &BTreeMap<String, Content>) -> Result<(), Error> {
    for (name, content) in &manifest.files {
        match found.get(name) {
            Some(found) if found == content => {}
            Some(_) => return Err(damaged(&format_args!("{name} is not what was backed up"))),
            None => return Err(damaged(&format_args!("{name} is missing"))),
        }
    }
    match found.keys().find(|name| !manifest.files.contains_key(*name)) {
        Some(name) => Err(damaged(&format_args!("{name} is not in its list of files"))),
        None => Ok(()),
    }
}

/// What the name of an entry means.
enum Member {
    Manifest,
    /// The folder of the backup, or one of its two folders.
    Top,
    Path(Root, PathBuf),
}

struct Reader<'a> {
    stage: Option<&'a Stage>,
    found: BTreeMap<String, Content>,
    /// The folders that were made, with their times.
    folders: Vec<(Root, PathBuf, u64)>,
    manifest: Option<Manifest>,
    /// The name of the next entry, if it did not fit into its header.
    long_name: Option<Vec<u8>>,
}

impl Reader<'_> {
    fn take<R: Read>(&mut self, mut entry: Entry<'_, R>) -> Result<(), Error> {
        if self.manifest.is_some() {
            return Err(damaged(&"something follows its list of files"));
        }
        let kind = entry.header().entry_type();
        if kind == EntryType::GNULongName {
            self.long_name = Some(read_whole(&mut entry, MAX_PATH + 1)?);
            return Ok(());
        }
        let name = self.long_name.take().unwrap_or_else(|| entry.path_bytes().into_owned());
        let name = String::from_utf8(name).map_err(|_| damaged(&"a name in it is not UTF-8"))?;
        let name = name.trim_end_matches('\0');
        match (kind, parse(name)?) {
            (EntryType::Directory, Member::Top) => Ok(()),
            (EntryType::Directory, Member::Path(root, path)) => self.take_folder(&entry, root, &path),
            (EntryType::Regular, Member::Path(root, path)) => self.take_file(&mut entry, root, &path),
            (EntryType::Regular, Member::Manifest) => self.take_manifest(&mut entry),
            _ => Err(damaged(&format_args!("{name} is neither a file nor a folder"))),
        }
    }

    fn take_folder<R: Read>(&mut self, entry: &Entry<'_, R>, root: Root, path: &Path) -> Result<(), Error> {
        let header = entry.header();
        if self.folders.len() >= MAX_FILES {
            return Err(Error::too_large(format!("has more than {MAX_FILES} folders")));
        }
        if !is_restored(root, path) {
            return Ok(());
        }
        self.folders.push((root, path.to_owned(), header.mtime().unwrap_or_default()));
        match self.stage {
            Some(stage) => stage.make_folder(root, path, header.mode().unwrap_or(0o700)),
            None => Ok(()),
        }
    }

    fn take_file<R: Read>(&mut self, entry: &mut Entry<'_, R>, root: Root, path: &Path) -> Result<(), Error> {
        let name = format!("{}/{}", root.name(), path.display());
        if self.found.contains_key(&name) {
            return Err(damaged(&format_args!("{name} is in it twice")));
        }
        if self.found.len() >= MAX_FILES {
            return Err(Error::too_large(format!("has more than {MAX_FILES} files")));
        }
        let (size, mode) = (entry.size(), entry.header().mode().unwrap_or(0o600));
        let time = entry.header().mtime().unwrap_or_default();
        let stage = self.stage.filter(|_| is_restored(root, path));
        let file = stage.map(|stage| stage.create_file(root, path, size, mode)).transpose()?;
        let mut summed = Summed::of(entry);
        let copied = match file.as_ref() {
            Some(mut file) => io::copy(&mut summed, &mut file),
            None => io::copy(&mut summed, &mut io::sink()),
        };
        copied.map_err(|error| failed(&name, &error))?;
        let content = summed.content();
        if content.size != size {
            return Err(cut_short());
        }
        file.map_or(Ok(()), |file| set_time(&file, time)).map_err(|error| failed(&name, &error))?;
        self.found.insert(name, content);
        Ok(())
    }

    fn take_manifest<R: Read>(&mut self, entry: &mut Entry<'_, R>) -> Result<(), Error> {
        let text = read_whole(entry, MAX_MANIFEST_BYTES)?;
        let manifest = serde_json::from_slice(&text);
        self.manifest = Some(manifest.map_err(|error| damaged(&format_args!("its list of files: {error}")))?);
        Ok(())
    }
}

fn is_restored(root: Root, path: &Path) -> bool {
    path.iter().next().and_then(OsStr::to_str).is_some_and(|unit| root.has(unit))
}

/// An error while a file is copied, of the archive or of the place to which it goes.
fn failed(name: &str, error: &io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => cut_short(),
        _ => Error::unavailable(format!("{name}: {error}")),
    }
}

fn read_whole<R: Read>(entry: &mut Entry<'_, R>, max: u64) -> Result<Vec<u8>, Error> {
    let (size, mut bytes) = (entry.size(), Vec::new());
    if size > max {
        return Err(damaged(&format_args!("a name or a list in it has {size} bytes")));
    }
    entry.read_to_end(&mut bytes).map_err(|error| damaged(&error))?;
    if bytes.len() as u64 != size {
        return Err(cut_short());
    }
    Ok(bytes)
}

/// Says what a name in the archive means. Fails if it leaves the folders of the system, or is none that a backup of this version has.
fn parse(name: &str) -> Result<Member, Error> {
    let parts: Option<Vec<&str>> = Path::new(name)
        .components()
        .map(|part| match part {
            Component::Normal(part) => part.to_str(),
            _ => None,
        })
        .collect();
    let outside = || damaged(&format_args!("{name:?} is not a place in a system"));
    let parts = parts.ok_or_else(outside)?;
    let (folder, rest) = parts.split_first().ok_or_else(outside)?;
    let version = folder.strip_prefix(FOLDER).and_then(|version| version.parse::<u32>().ok()).ok_or_else(outside)?;
    if version != VERSION {
        let why = format!("has format {version}; ken {} reads format {VERSION}", env!("CARGO_PKG_VERSION"));
        return Err(Error::invalid("", why).hint("install the ken that has written it"));
    }
    match rest {
        [] => Ok(Member::Top),
        [MANIFEST] => Ok(Member::Manifest),
        [root, rest @ ..] => {
            let root = Root::ALL.into_iter().find(|known| known.name() == *root).ok_or_else(outside)?;
            match rest {
                [] => Ok(Member::Top),
                [unit, ..] if root.has(unit) || root.had(unit) => Ok(Member::Path(root, rest.iter().collect())),
                _ => Err(outside()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use ken_types::hex;
    use sha2::{Digest, Sha256};
    use tar::{Builder, Header};

    use super::*;

    /// An archive with these entries: type, name, content, and the size that the header claims, if it is another one.
    fn archive(entries: &[(u8, &str, &str, Option<u64>)]) -> Vec<u8> {
        let mut builder = Builder::new(Vec::new());
        for (kind, name, content, size) in entries {
            let mut header = Header::new_gnu();
            header.set_entry_type(EntryType::new(*kind));
            header.set_size(size.unwrap_or(content.len() as u64));
            header.set_mode(0o4777);
            header.as_gnu_mut().unwrap().name[..name.len()].copy_from_slice(name.as_bytes());
            header.set_cksum();
            builder.append(&header, content.as_bytes()).unwrap();
        }
        builder.into_inner().unwrap()
    }

    fn message(bytes: &[u8]) -> String {
        read(bytes, None).unwrap_err().message
    }

    const LIST: &str = r#"{"ken":"0.1.0","created":"2026-01-01T00:00:00.000Z","secrets":false,"files":{}}"#;

    #[test]
    fn what_leaves_the_folders_or_is_no_file_is_refused() {
        for (kind, name, why) in [
            (b'0', "/etc/passwd", "is not a place in a system"),
            (b'0', "ken-backup-1/state/../../x", "is not a place in a system"),
            (b'0', "ken-backup-1/config/.bashrc", "is not a place in a system"),
            (b'0', "ken-backup-1/state/log/kend.log", "is not a place in a system"),
            (b'0', "ken-backup-1/state/.restore/ready", "is not a place in a system"),
            (b'0', "ken-backup-1/other/x", "is not a place in a system"),
            (b'0', "x", "is not a place in a system"),
            (b'0', "ken-backup-2/state/coder/x", "has format 2; ken"),
            (b'2', "ken-backup-1/state/coder/x", "neither a file nor a folder"),
            (b'1', "ken-backup-1/state/coder/x", "neither a file nor a folder"),
            (b'3', "ken-backup-1/state/coder/x", "neither a file nor a folder"),
            (b'6', "ken-backup-1/state/coder/x", "neither a file nor a folder"),
            (b'S', "ken-backup-1/state/coder/x", "neither a file nor a folder"),
            (b'x', "ken-backup-1/state/coder/x", "neither a file nor a folder"),
        ] {
            let message = message(&archive(&[(kind, name, "", None)]));
            assert!(message.contains(why), "{name}: {message}");
        }
    }

    #[test]
    fn a_list_that_does_not_fit_the_files_is_refused() {
        let file = (b'0', "ken-backup-1/state/coder/x", "text", None);
        let listed = |text: &str| {
            let digest = hex::encode(&Sha256::digest(text));
            LIST.replace("{}}", &format!(r#"{{"state/coder/x":{{"size":{},"sha256":"{digest}"}}}}}}"#, text.len()))
        };
        let (right, wrong) = (listed("text"), listed("test"));
        let list = |text| (b'0', "ken-backup-1/manifest.json", text, None);
        assert_eq!(read(archive(&[file, list(right.as_str())]).as_slice(), None).unwrap().bytes(), 4);
        for (entries, why) in [
            (vec![file], "was cut short"),
            (vec![], "was cut short"),
            (vec![file, list(LIST)], "state/coder/x is not in its list of files"),
            (vec![list(right.as_str())], "state/coder/x is missing"),
            (vec![file, list(wrong.as_str())], "state/coder/x is not what was backed up"),
            (vec![file, file, list(right.as_str())], "state/coder/x is in it twice"),
            (vec![list(LIST), file], "something follows its list of files"),
            (vec![list("[]")], "its list of files"),
            (vec![(b'L', "name", "", Some(1 << 40))], "a name or a list in it has 1099511627776 bytes"),
            (vec![(b'0', "ken-backup-1/manifest.json", "", Some(1 << 40))], "has 1099511627776 bytes"),
            (vec![(b'0', "ken-backup-1/state/coder/x", "text", Some(1 << 40))], "was cut short"),
        ] {
            let message = message(&archive(&entries));
            assert!(message.contains(why), "{why}: {message}");
        }
    }

    #[test]
    fn a_backup_that_ends_early_is_refused_wherever_it_ends() {
        let whole = archive(&[(b'0', "ken-backup-1/manifest.json", LIST, None)]);
        assert!(read(whole.as_slice(), None).is_ok());
        for length in 0..512 + LIST.len() {
            assert!(read(&whole[..length], None).is_err(), "{length}");
        }
    }
}
