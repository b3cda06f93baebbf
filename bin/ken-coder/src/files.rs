//! `ken-coder list` and `ken-coder read`: list folders and read files.

use std::fmt;

use ken_tool::{Answer, Error};
use rustix::fs::FileType;
use serde::{Deserialize, Serialize};

use crate::call::Operation;
use crate::confine::{Access, with_tree};
use crate::preview::Preview;
use crate::rel_path::RelPath;
use crate::settings::Settings;
use crate::tree::{Links, kind_name};
use crate::walk::{Ignored, place_of, walk};

/// The maximum size of a file that is read, in bytes.
const MAX_FILE_BYTES: u64 = 64 * 1024 * 1024;
/// The default and the maximum number of bytes of text in a reply.
const TEXT_BYTES: usize = 24 * 1024;
const MAX_TEXT_BYTES: usize = 256 * 1024;
const ENTRIES: usize = 500;
const MAX_ENTRIES: usize = 5_000;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct List {
    #[serde(default)]
    path: RelPath,
    /// The number of levels of folders that are listed.
    depth: Option<usize>,
    max_entries: Option<usize>,
    #[serde(default)]
    all: bool,
}

#[derive(Debug, Serialize)]
pub(crate) struct ListResult {
    path: RelPath,
    entries: Vec<ListedEntry>,
    /// Whether there are more entries than the listed ones.
    truncated: bool,
}

#[derive(Debug, Serialize)]
struct ListedEntry {
    path: RelPath,
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
}

impl Operation for List {
    const NAME: &'static str = "ken-coder list";
    const ABOUT: &'static str = "List the files of a folder";
    const FIELDS: &'static str = "Fields: path (the folder; default: the workspace), depth (levels, default 2), \
        maxEntries (default 500), all (true: also what git ignores).";
    type Answer = ListResult;

    fn preview(&self, settings: &Settings) -> Result<Preview, Error> {
        Ok(Preview::of_read(settings, "file.list", &self.path))
    }

    fn run(&self, settings: &Settings) -> Result<ListResult, Error> {
        with_tree(settings, Access::Read, |tree| {
            // Fail early if the path is not a folder or leads through a link.
            tree.folder(&self.path)?;
            let max = self.max_entries.unwrap_or(ENTRIES).min(MAX_ENTRIES);
            let ignored = if self.all { None } else { Some(Ignored::around(settings, &self.path)?) };
            let mut walk = walk(settings, &self.path, ignored);
            walk.max_depth(Some(self.depth.unwrap_or(2).max(1)));
            let mut entries = walk.build().flatten().skip(1).filter_map(|entry| {
                let about = entry.metadata().ok()?;
                let kind = FileType::from_raw_mode(std::os::unix::fs::MetadataExt::mode(&about));
                Some(ListedEntry {
                    path: place_of(settings, entry.path())?,
                    kind: kind_name(kind).trim_start_matches("a "),
                    bytes: about.is_file().then_some(about.len()),
                })
            });
            let listed: Vec<_> = entries.by_ref().take(max).collect();
            Ok(ListResult { path: self.path.clone(), truncated: entries.next().is_some(), entries: listed })
        })
    }
}

impl Answer for ListResult {
    fn summary(&self, verbose: bool, to: &mut dyn fmt::Write) -> fmt::Result {
        for entry in &self.entries {
            let end = if entry.kind == "folder" { "/" } else { "" };
            match entry.bytes.filter(|_| verbose) {
                Some(bytes) => writeln!(to, "{bytes:>10} {}", entry.path)?,
                None => writeln!(to, "{}{end}", entry.path)?,
            }
        }
        if self.truncated { writeln!(to, "[more]") } else { Ok(()) }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct Read {
    path: RelPath,
    /// The number of the first line, from 1.
    first_line: Option<usize>,
    lines: Option<usize>,
    max_bytes: Option<usize>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ReadResult {
    path: RelPath,
    /// The digest of the whole file, for the field `expect` of a change.
    digest: String,
    bytes: usize,
    lines: usize,
    first_line: usize,
    text: String,
    /// Whether the file continues after this text.
    truncated: bool,
}

impl Operation for Read {
    const NAME: &'static str = "ken-coder read";
    const ABOUT: &'static str = "Read a text file";
    const FIELDS: &'static str =
        "Fields: path, firstLine (default 1), lines (default: all), maxBytes (of the text; default 24576).";
    type Answer = ReadResult;

    fn preview(&self, settings: &Settings) -> Result<Preview, Error> {
        Ok(Preview::of_read(settings, "file.read", &self.path))
    }

    fn run(&self, settings: &Settings) -> Result<ReadResult, Error> {
        with_tree(settings, Access::Read, |tree| {
            let node = tree.read(&self.path, Links::Follow, MAX_FILE_BYTES)?;
            let node = node.ok_or_else(|| Error::not_found(format!("there is no file {}", self.path)).at("/path"))?;
            let text = String::from_utf8(node.bytes)
                .map_err(|_| Error::invalid("/path", format!("{} is not text in UTF-8", self.path)))?;
            Ok(self.part(&text, node.version.digest))
        })
    }
}

impl Read {
    fn part(&self, text: &str, digest: String) -> ReadResult {
        let first = self.first_line.unwrap_or(1).max(1);
        let max = self.max_bytes.unwrap_or(TEXT_BYTES).min(MAX_TEXT_BYTES);
        let lines = text.split_inclusive('\n').count();
        let wanted = text.split_inclusive('\n').skip(first - 1).take(self.lines.unwrap_or(usize::MAX));
        let (mut part, mut taken) = (String::new(), 0);
        for line in wanted {
            if part.len() + line.len() > max {
                // A single line that is too long is cut off rather than omitted.
                if part.is_empty() {
                    let end = (0..=max).rev().find(|end| line.is_char_boundary(*end)).unwrap_or(0);
                    part.push_str(line.get(..end).unwrap_or_default());
                }
                break;
            }
            part.push_str(line);
            taken += 1;
        }
        ReadResult {
            path: self.path.clone(),
            digest,
            bytes: text.len(),
            lines,
            first_line: first,
            truncated: first - 1 + taken < lines,
            text: part,
        }
    }
}

impl Answer for ReadResult {
    fn summary(&self, _: bool, to: &mut dyn fmt::Write) -> fmt::Result {
        to.write_str(&self.text)
    }
}
