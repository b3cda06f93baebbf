//! `ken knowledge import`: stores the Markdown files of a folder as entries. Files that have not changed since the last
//! import are not sent again.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use ken_text::sections;
use ken_types::Error;
use ken_types::hex;
use ken_types::limits::WIRE_LINE_BYTES;
use ken_types::ops::documents::*;
use ken_types::places::Places;
use ken_wire::blocking::Client;
use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::client::{STORE, call_on, connect};
use crate::output::{Outcome, format_count, print_json, print_line, print_note};
use crate::progress::Progress;

/// The maximum size of a file, in bytes, and the maximum number of files in a folder.
const MAX_FILE_BYTES: u64 = 1024 * 1024;
const MAX_FILES: usize = 20_000;
const MAX_DEPTH: usize = 32;
/// The maximum number of files, and of bytes of JSON, in one call of the store.
const MAX_BATCH: usize = 100;
const MAX_BATCH_BYTES: usize = 1024 * 1024;
/// The maximum size of a file as JSON, in bytes. It must fit on one line of the wire protocol.
const MAX_DOCUMENT_BYTES: usize = WIRE_LINE_BYTES / 2;

#[derive(Debug, Args)]
pub(super) struct Import {
    /// Folder whose Markdown files are imported; names that begin with a dot are left out
    folder: PathBuf,
    /// Delete the entries of files that no longer exist
    #[arg(long)]
    prune: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// The result of an import.
#[derive(Debug, Default, Serialize)]
struct Report {
    folder: String,
    /// The number of Markdown files in the folder, and how many of them are new or changed.
    files: u64,
    changed: u64,
    /// The number of entries that were added, removed and left unchanged.
    added: u64,
    removed: u64,
    kept: u64,
    /// The number of files that were imported before and no longer exist.
    gone: u64,
    pruned: bool,
    refused: Vec<Refused>,
}

/// A file that was not imported.
#[derive(Debug, Serialize)]
struct Refused {
    path: String,
    why: String,
}

/// Imports the folder. The exit status is 1 if files were not imported.
pub(super) fn run(places: &Places, args: &Import) -> Outcome {
    let name = args.folder.display().to_string();
    let wrong = |why: String| Error::invalid(name.clone(), why);
    let cannot_open = |error| wrong(format!("cannot be opened: {error}"));
    // A folder that no longer exists can still be pruned, if it has been imported.
    let (folder, missing) = match args.folder.canonicalize() {
        Ok(folder) => (folder, None),
        Err(error) if args.prune && error.kind() == ErrorKind::NotFound => {
            (path_of_missing(&args.folder).map_err(cannot_open)?, Some(error))
        }
        Err(error) => return Err(cannot_open(error)),
    };
    if missing.is_none() && !folder.is_dir() {
        return Err(wrong("it is not a folder".into()).hint("`ken knowledge add TITLE < FILE` adds one file"));
    }
    let collection = folder.to_str().ok_or_else(|| wrong("its path is not text in UTF-8".into()))?;
    let progress = Progress::start("reading the folder");
    let mut report = Report { folder: collection.to_owned(), pruned: args.prune, ..Report::default() };
    let mut files = Vec::new();
    if missing.is_none() {
        find(&folder, &folder, MAX_DEPTH, &mut files, &mut report.refused)?;
    }
    report.files = files.len() as u64;
    let mut store = connect(places, STORE)?;
    let mut known = known_digests(&mut store, collection)?;
    if let Some(error) = missing.filter(|_| known.is_empty()) {
        return Err(cannot_open(error));
    }
    let mut batch = Batch::new(collection);
    for (number, path) in files.iter().enumerate() {
        progress.set(&format!("importing {} of {} files", number + 1, files.len()));
        let before = known.remove(path.as_str());
        match read(&folder, path) {
            Ok(document) if before.as_ref() == Some(&document.digest) => {}
            Ok(document) => {
                report.changed += 1;
                batch.make_room(length(&document), &mut store, &mut report)?;
                batch.sync.documents.push(document);
            }
            Err(why) => report.refused.push(Refused { path: path.clone(), why }),
        }
    }
    // A file that exists but cannot be read keeps the entries of its last import, and so do those below a folder that is refused.
    known.retain(|path, _| !report.refused.iter().any(|refused| Path::new(path).starts_with(&refused.path)));
    report.gone = known.len() as u64;
    for path in known.into_keys().filter(|_| args.prune) {
        batch.make_room(path.len(), &mut store, &mut report)?;
        batch.sync.gone.push(path);
    }
    batch.send(&mut store, &mut report)?;
    drop(progress);
    print_report(args, &report)?;
    Ok(ExitCode::from(u8::from(!report.refused.is_empty())))
}

fn print_report(args: &Import, report: &Report) -> Result<(), Error> {
    if args.json {
        return print_json(report);
    }
    for refused in &report.refused {
        print_note(&format!("{} is left out: {}", refused.path, refused.why));
    }
    print_line(&format!(
        "{}, {} new or changed: {} added, {} removed, {} kept",
        format_count(report.files, "file", "files"),
        report.changed,
        format_count(report.added, "entry", "entries"),
        report.removed,
        report.kept
    ))?;
    let gone = format_count(report.gone, "file is gone", "files are gone");
    match report.gone {
        0 => Ok(()),
        1 if report.pruned => print_line(&format!("{gone}, and its entries with it")),
        _ if report.pruned => print_line(&format!("{gone}, and their entries with them")),
        1 => print_line(&format!("{gone}; --prune deletes its entries")),
        _ => print_line(&format!("{gone}; --prune deletes their entries")),
    }
}

/// Documents that are sent to the store in one call.
struct Batch {
    sync: SyncDocuments,
    bytes: usize,
}

impl Batch {
    fn new(collection: &str) -> Batch {
        let sync = SyncDocuments { collection: collection.to_owned(), ..SyncDocuments::default() };
        Batch { sync, bytes: 0 }
    }

    /// Counts a document of so many bytes into the batch. Sends the batch first if the document does not fit into it.
    fn make_room(&mut self, bytes: usize, store: &mut Client, report: &mut Report) -> Result<(), Error> {
        let count = self.sync.documents.len() + self.sync.gone.len();
        if self.bytes + bytes > MAX_BATCH_BYTES || count == MAX_BATCH {
            self.send(store, report)?;
        }
        self.bytes += bytes;
        Ok(())
    }

    fn send(&mut self, store: &mut Client, report: &mut Report) -> Result<(), Error> {
        let mut next = Batch::new(&self.sync.collection);
        std::mem::swap(self, &mut next);
        let synced = call_on::<DocumentsSync>(store, STORE, &next.sync, None)?;
        report.added += synced.added;
        report.removed += synced.removed;
        report.kept += synced.kept;
        Ok(())
    }
}

/// Returns the path that a folder had which no longer exists: the part that exists is canonical.
fn path_of_missing(folder: &Path) -> io::Result<PathBuf> {
    Ok(ken_trusted::resolved(&std::path::absolute(folder)?))
}

/// Returns the path and digest of each document of a folder that the store has.
fn known_digests(store: &mut Client, collection: &str) -> Result<BTreeMap<String, String>, Error> {
    let mut known = BTreeMap::new();
    let mut after = String::new();
    loop {
        let list = ListDocuments { collection: collection.to_owned(), after, limit: PAGE_DOCUMENTS };
        let page = call_on::<DocumentsList>(store, STORE, &list, None)?;
        let last = page.documents.last().map(|document| document.path.clone());
        known.extend(page.documents.into_iter().map(|document| (document.path, document.digest)));
        match last.filter(|_| page.has_more) {
            Some(last) => after = last,
            None => return Ok(known),
        }
    }
}

/// Collects the Markdown files below a folder, in order, as paths relative to `root`. Symbolic links are not followed;
/// a link that leads out of the folder is reported as refused.
fn find(
    root: &Path,
    folder: &Path,
    depth: usize,
    files: &mut Vec<String>,
    refused: &mut Vec<Refused>,
) -> Result<(), Error> {
    let shown = folder.display().to_string();
    let wrong = |error: io::Error| Error::invalid(shown.clone(), format!("cannot be read: {error}"));
    let mut entries = fs::read_dir(folder).map_err(wrong)?.collect::<Result<Vec<_>, _>>().map_err(wrong)?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let path = entry.path();
        let kind = entry.file_type().map_err(wrong)?;
        let is_markdown = path.extension().is_some_and(|kind| kind == "md" || kind == "markdown");
        let relative = path.strip_prefix(root).unwrap_or(&path);
        let mut refuse = |why: &str| {
            let path = relative.to_string_lossy().into_owned();
            refused.push(Refused { path, why: why.to_owned() });
        };
        if entry.file_name().as_encoded_bytes().starts_with(b".") {
        } else if kind.is_symlink() {
            // The target of a link within the folder is found at its own path.
            match path.canonicalize() {
                Ok(target) if target.starts_with(root) => {}
                Ok(_) => refuse("it is a link that leads out of the folder"),
                Err(error) => refuse(&format!("it is a link that cannot be followed: {error}")),
            }
        } else if kind.is_dir() {
            match depth {
                0 => refuse("it is too deep"),
                _ => find(root, &path, depth - 1, files, refused)?,
            }
        } else if is_markdown {
            match relative.to_str() {
                Some(relative) if files.len() < MAX_FILES => files.push(relative.to_owned()),
                Some(_) => {
                    let message = format!("it has more than {MAX_FILES} Markdown files");
                    return Err(Error::too_large(format!("{}: {message}", root.display())).hint("import folders of it"));
                }
                None => refuse("its name is not text in UTF-8"),
            }
        }
    }
    Ok(())
}

fn read(root: &Path, path: &str) -> Result<ReadDocument, String> {
    // `read_below` follows no symbolic link, because a link may have replaced the file or a folder above it since it
    // was found.
    let bytes = ken_trusted::read_below(root, Path::new(path), MAX_FILE_BYTES);
    let bytes = bytes.map_err(|error| format!("it {}", error.message))?;
    let text = String::from_utf8(bytes).map_err(|_| "it is not text in UTF-8")?;
    if text.contains('\0') {
        return Err("it has NUL characters".into());
    }
    let sections = sections(path, &text).into_iter();
    let pieces = sections.map(|section| Piece {
        title: section.title,
        line: section.line as u64,
        text: section.text,
        tags: section.tags,
    });
    let document =
        ReadDocument { path: path.to_owned(), digest: hex::encode(&Sha256::digest(&text)), pieces: pieces.collect() };
    match document.pieces.len() {
        count if count > DOCUMENT_PIECES => {
            Err(format!("it has {count} sections; at most {DOCUMENT_PIECES} are allowed"))
        }
        _ if length(&document) > MAX_DOCUMENT_BYTES => {
            Err(format!("its sections take more than {MAX_DOCUMENT_BYTES} bytes of JSON"))
        }
        _ => Ok(document),
    }
}

/// Returns the size of a document as JSON, in bytes.
fn length(document: &ReadDocument) -> usize {
    serde_json::to_string(document).map_or(usize::MAX, |text| text.len())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_document_has_at_most_the_largest_number_of_sections() {
        let folder = tempfile::tempdir().unwrap();
        for (count, expected) in [(DOCUMENT_PIECES, Ok(DOCUMENT_PIECES)), (DOCUMENT_PIECES + 1, Err("at most 2000"))] {
            let text: String = (0..count).map(|number| format!("# Section {number}\n\nText.\n\n")).collect();
            std::fs::write(folder.path().join("a.md"), text).unwrap();
            match (read(folder.path(), "a.md"), expected) {
                (Ok(document), expected) => assert_eq!(Ok(document.pieces.len()), expected),
                (Err(why), expected) => assert!(why.contains(expected.unwrap_err()), "{why}"),
            }
        }
    }
}
