//! `ken-coder documents`: returns the text files of the workspace, or the documents that an installation offers, split into
//! pieces that become knowledge entries. It returns one page per call and keeps no state, so the caller can be killed
//! between two pages.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;

use ken_text::{Section, lines_of_text, sections};
use ken_tool::{Answer, Error};
use ken_types::ops::documents::{DOCUMENT_PIECES, Piece, ReadDocument};
use ken_types::share;
use serde::{Deserialize, Serialize};

use crate::call::Operation;
use crate::confine::{Access, with_tree};
use crate::preview::Preview;
use crate::rel_path::RelPath;
use crate::settings::Settings;
use crate::tree::{Links, Tree};
use crate::walk::{Ignored, place_of, walk};

/// The maximum size of a file that is read, in bytes.
const MAX_FILE_BYTES: u64 = 256 * 1024;
/// A page ends when it has this many bytes of JSON. A file with more than `MAX_REPLY_BYTES` bytes is left out, because
/// ken-tools passes on at most 128 KiB.
const PAGE_BYTES: usize = 64 * 1024;
const MAX_REPLY_BYTES: usize = 120 * 1024;
/// The maximum number of files that one page examines, and of files in a collection.
const MAX_PAGE_FILES: usize = 1_000;
const FILES: usize = 50_000;
/// The folder of the installation with documents for all its users. Other files of the installation tell agents what to do, so
/// they are no sources: an answer does not have to agree with an instruction.
const SHARED: &str = "knowledge";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct Documents {
    collection: Collection,
    /// Only files whose paths sort after this one, compared by bytes.
    #[serde(default)]
    after: String,
    /// Only files whose paths do not sort after this one.
    #[serde(default)]
    until: Option<String>,
    /// The digests, by path, of the files between `after` and `until` that the caller already has.
    #[serde(default)]
    known: BTreeMap<String, String>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Collection {
    Share,
    Workspace,
}

#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Page {
    /// Files that are new or have changed.
    documents: Vec<ReadDocument>,
    /// Known files that no longer exist, or are no longer text.
    gone: BTreeSet<String>,
    /// The number of text files on this page, and the number of files that follow it.
    done: usize,
    left: usize,
    /// The path for `after` of the next page; absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

impl Operation for Documents {
    const NAME: &'static str = "ken-coder documents";
    const ABOUT: &'static str = "Read text files as pieces of knowledge";
    const FIELDS: &'static str = "Fields: collection (workspace, or share: the folder knowledge of the installation), after and until (paths), \
        known (digests by path: these files are left out while they are the same).";
    type Answer = Page;

    fn preview(&self, settings: &Settings) -> Result<Preview, Error> {
        Ok(Preview::of_read(settings, "file.read", &RelPath::default()))
    }

    fn run(&self, settings: &Settings) -> Result<Page, Error> {
        match self.collection {
            Collection::Workspace => with_tree(settings, Access::Read, |tree| self.page(settings, tree, lines)),
            Collection::Share => match share::find(SHARED).next() {
                None => Ok(self.empty()),
                Some(root) => {
                    let settings = settings.at(root)?;
                    with_tree(&settings, Access::Read, |tree| self.page(&settings, tree, markdown))
                }
            },
        }
    }
}

/// A function that splits a file into sections. It takes the name and the text, and returns `None` if the file is not a
/// document.
type Split = fn(&str, &str) -> Option<Vec<Section>>;

fn is_markdown(name: &str) -> bool {
    Path::new(name).extension().is_some_and(|kind| kind == "md" || kind == "markdown")
}

fn markdown(name: &str, text: &str) -> Option<Vec<Section>> {
    is_markdown(name).then(|| sections(name, text))
}

fn lines(name: &str, text: &str) -> Option<Vec<Section>> {
    if is_markdown(name) { Some(sections(name, text)) } else { Some(lines_of_text(name, text)) }
}

impl Documents {
    /// Returns the page before any file is read: all known files count as gone.
    fn empty(&self) -> Page {
        Page { gone: self.known.keys().cloned().collect(), next: self.until.clone(), ..Page::default() }
    }

    fn page(&self, settings: &Settings, tree: &Tree, cut: Split) -> Result<Page, Error> {
        let files = self.files(settings)?;
        let mut page = self.empty();
        let (mut bytes, mut last) = (0, None);
        for (number, place) in files.iter().enumerate() {
            if number == MAX_PAGE_FILES || bytes > PAGE_BYTES {
                page.next = last;
                page.left = files.len() - number;
                break;
            }
            last = Some(place.as_str().to_owned());
            let Some((digest, text)) = read(tree, place) else {
                continue;
            };
            if self.known.get(place.as_str()) != Some(&digest) {
                let Some((document, length)) = document(place, digest, &text, cut) else {
                    continue;
                };
                bytes += length;
                page.documents.push(document);
            }
            page.done += 1;
            page.gone.remove(place.as_str());
        }
        // Files after this page have not been examined, so they do not count as gone.
        if let Some(next) = &page.next {
            page.gone.retain(|gone| gone <= next);
        }
        Ok(page)
    }

    /// Returns the files between `after` and `until`, sorted by path.
    fn files(&self, settings: &Settings) -> Result<Vec<RelPath>, Error> {
        let walk = walk(settings, &RelPath::default(), Some(Ignored::on_disk(settings)?)).build().flatten();
        let files = walk.filter(|entry| entry.file_type().is_some_and(|kind| kind.is_file()));
        let mut places: Vec<RelPath> = files.filter_map(|entry| place_of(settings, entry.path())).take(FILES).collect();
        let is_wanted = |place: &RelPath| {
            let path = place.as_str();
            path > self.after.as_str() && self.until.as_deref().is_none_or(|until| path <= until)
        };
        places.retain(is_wanted);
        places.sort();
        Ok(places)
    }
}

/// Returns the digest and the text of a file, or `None` if it is not text.
fn read(tree: &Tree, place: &RelPath) -> Option<(String, String)> {
    let node = tree.read(place, Links::Refuse, MAX_FILE_BYTES).ok()??;
    let text = String::from_utf8(node.bytes).ok().filter(|text| !node.version.link && !text.contains('\0'))?;
    Some((node.version.digest, text))
}

/// Returns a document and its size as JSON in bytes, or `None` if it is too long.
fn document(place: &RelPath, digest: String, text: &str, cut: Split) -> Option<(ReadDocument, usize)> {
    let pieces = cut(place.as_str(), text)?.into_iter().map(|section| Piece {
        title: section.title,
        line: section.line as u64,
        text: section.text,
        tags: section.tags,
    });
    let document = ReadDocument { path: place.as_str().to_owned(), digest, pieces: pieces.collect() };
    let length = serde_json::to_string(&document).ok()?.len();
    (document.pieces.len() <= DOCUMENT_PIECES && length <= MAX_REPLY_BYTES).then_some((document, length))
}

impl Answer for Page {
    fn summary(&self, _: bool, to: &mut dyn fmt::Write) -> fmt::Result {
        for document in &self.documents {
            writeln!(to, "{} {}", document.pieces.len(), document.path)?;
        }
        for gone in &self.gone {
            writeln!(to, "- {gone}")?;
        }
        match self.next {
            Some(_) => writeln!(to, "[more]"),
            None => Ok(()),
        }
    }
}
