//! `ken-coder search`: searches the text of files.

use std::fmt;

use ignore::overrides::OverrideBuilder;
use ken_tool::{Answer, Error};
use regex::bytes::{Regex, RegexBuilder};
use serde::{Deserialize, Serialize};

use crate::call::Operation;
use crate::confine::{Access, with_tree};
use crate::preview::Preview;
use crate::rel_path::RelPath;
use crate::settings::Settings;
use crate::tree::{Links, Tree};
use crate::walk::{Ignored, place_of, walk};

/// The maximum size of a file that is searched, in bytes.
const MAX_FILE_BYTES: u64 = 4 * 1024 * 1024;
const DEFAULT_MATCHES: usize = 100;
const MAX_MATCHES: usize = 1_000;
/// The maximum number of characters of a line that are shown.
const MAX_LINE_CHARACTERS: usize = 240;
/// The maximum memory for a compiled expression, in bytes.
const MAX_EXPRESSION_BYTES: usize = 1 << 20;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct Search {
    pattern: String,
    #[serde(default)]
    path: RelPath,
    /// A pattern for file names, such as `*.rs`.
    glob: Option<String>,
    #[serde(default)]
    literal: bool,
    #[serde(default)]
    ignore_case: bool,
    max_matches: Option<usize>,
    #[serde(default)]
    all: bool,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SearchResult {
    matches: Vec<Match>,
    files_searched: usize,
    /// The number of files that were not searched: binary and large ones, and those that are not regular files.
    files_skipped: usize,
    truncated: bool,
}

#[derive(Debug, Serialize)]
struct Match {
    path: RelPath,
    line: usize,
    text: String,
}

impl Operation for Search {
    const NAME: &'static str = "ken-coder search";
    const ABOUT: &'static str = "Search the text of files";
    const FIELDS: &'static str = "Fields: pattern (a regular expression), literal (true: plain text), ignoreCase, path (a folder), \
        glob (such as *.rs), maxMatches (default 100), all (true: also what git ignores).";
    type Answer = SearchResult;

    fn preview(&self, settings: &Settings) -> Result<Preview, Error> {
        Ok(Preview::of_read(settings, "file.search", &self.path))
    }

    fn run(&self, settings: &Settings) -> Result<SearchResult, Error> {
        let pattern = self.compiled()?;
        with_tree(settings, Access::Read, |tree| self.search(settings, tree, &pattern))
    }
}

impl Search {
    fn compiled(&self) -> Result<Regex, Error> {
        if self.pattern.is_empty() {
            return Err(Error::invalid("/pattern", "the pattern is empty"));
        }
        let pattern = if self.literal { regex::escape(&self.pattern) } else { self.pattern.clone() };
        let compiled =
            RegexBuilder::new(&pattern).case_insensitive(self.ignore_case).size_limit(MAX_EXPRESSION_BYTES).build();
        compiled.map_err(|error| {
            let message = error.to_string();
            let last = message.lines().last().unwrap_or_default();
            Error::invalid("/pattern", format!("not a regular expression: {}", last.trim()))
        })
    }

    fn search(&self, settings: &Settings, tree: &Tree, pattern: &Regex) -> Result<SearchResult, Error> {
        tree.folder(&self.path)?;
        let max = self.max_matches.unwrap_or(DEFAULT_MATCHES).clamp(1, MAX_MATCHES);
        let ignored = if self.all { None } else { Some(Ignored::around(settings, &self.path)?) };
        let mut walk = walk(settings, &self.path, ignored);
        if let Some(glob) = &self.glob {
            let wrong = |error: ignore::Error| Error::invalid("/glob", error.to_string());
            let mut globs = OverrideBuilder::new(settings.root.join(self.path.as_str()));
            walk.overrides(globs.add(glob).map_err(wrong)?.build().map_err(wrong)?);
        }
        let mut found = SearchResult { matches: Vec::new(), files_searched: 0, files_skipped: 0, truncated: false };
        for entry in walk.build().flatten() {
            if entry.file_type().is_none_or(|kind| kind.is_dir()) {
                continue;
            }
            let node = place_of(settings, entry.path())
                .and_then(|place| Some((tree.read(&place, Links::Refuse, MAX_FILE_BYTES).ok()??, place)))
                .filter(|(node, _)| !node.version.link && !node.bytes.contains(&0));
            let Some((node, place)) = node else {
                found.files_skipped += 1;
                continue;
            };
            found.files_searched += 1;
            for (number, line) in node.bytes.split_inclusive(|byte| *byte == b'\n').enumerate() {
                // An expression with `$` is meant for the text of a line, without either form of its end.
                let line = line.strip_suffix(b"\n").unwrap_or(line);
                let line = line.strip_suffix(b"\r").unwrap_or(line);
                if !pattern.is_match(line) {
                    continue;
                }
                if found.matches.len() == max {
                    found.truncated = true;
                    return Ok(found);
                }
                found.matches.push(Match {
                    path: place.clone(),
                    line: number + 1,
                    text: String::from_utf8_lossy(line).chars().take(MAX_LINE_CHARACTERS).collect(),
                });
            }
        }
        Ok(found)
    }
}

impl Answer for SearchResult {
    fn summary(&self, _: bool, to: &mut dyn fmt::Write) -> fmt::Result {
        for Match { path, line, text } in &self.matches {
            writeln!(to, "{path}:{line}:{text}")?;
        }
        if self.truncated { writeln!(to, "[more]") } else { Ok(()) }
    }
}
