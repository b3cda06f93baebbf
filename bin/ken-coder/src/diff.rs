//! Formats changes as a unified diff for the person who approves them.

use std::time::Duration;

use ken_types::json;
use similar::TextDiff;

use crate::rel_path::RelPath;
use crate::tree::Node;

/// The length from which on no more files are added, in bytes. A person is never shown a longer diff: ken-tools denies a
/// call whose diff exceeds the size of a blob.
pub(crate) const MAX_DIFF: usize = 16 * 1024 * 1024;
/// How long the search for the smallest diff of a file can take. After that, a larger diff is used.
const SEARCH_TIMEOUT: Duration = Duration::from_millis(200);
const CONTEXT: usize = 3;

/// A diff that is built file by file.
#[derive(Debug, Default)]
pub(crate) struct Diff {
    text: String,
    left_out: usize,
}

impl Diff {
    /// Adds a file. Returns the number of lines that were added and removed, or `None` if the file is left out.
    pub(crate) fn add(
        &mut self,
        place: &RelPath,
        before: Option<&Node>,
        after: Option<&Node>,
    ) -> Option<(usize, usize)> {
        if self.text.len() > MAX_DIFF {
            self.left_out += 1;
            return None;
        }
        let text = one(place, before, after);
        self.text.push_str(&text);
        let hunks = text.lines().skip_while(|line| !line.starts_with("@@"));
        Some(hunks.fold((0, 0), |(added, removed), line| match line.as_bytes().first() {
            Some(b'+') => (added + 1, removed),
            Some(b'-') => (added, removed + 1),
            _ => (added, removed),
        }))
    }

    /// Returns the text of the diff. At its end it says how much was left out.
    pub(crate) fn finish(mut self) -> String {
        if self.left_out > 0 {
            self.text.push_str(&format!("[{} more files change]\n", self.left_out));
        }
        self.text
    }
}

fn one(place: &RelPath, before: Option<&Node>, after: Option<&Node>) -> String {
    let mut text = format!("diff --git a/{place} b/{place}\n");
    match (before, after) {
        (None, Some(node)) => text.push_str(&format!("new file mode {}\n", mode(node))),
        (Some(node), None) => text.push_str(&format!("deleted file mode {}\n", mode(node))),
        (Some(old), Some(new)) if mode(old) != mode(new) => {
            text.push_str(&format!("old mode {}\nnew mode {}\n", mode(old), mode(new)));
        }
        _ => {}
    }
    // A call writes text only. Content that is not text was there before, and is removed, moved or replaced.
    for (side, node) in [("old", before), ("new", after)] {
        if let Some(node) = node.filter(|node| text_of(Some(node)).is_none()) {
            let (bytes, digest) = (node.bytes.len(), &node.version.digest);
            text.push_str(&format!("Binary {side} file of {bytes} bytes, SHA-256 {digest}\n"));
        }
    }
    let (old, new) = (text_of(before).unwrap_or_default(), text_of(after).unwrap_or_default());
    if old == new {
        return text;
    }
    let name = |side: &str, node: Option<&Node>| match node {
        Some(_) => format!("{side}/{place}"),
        None => "/dev/null".to_owned(),
    };
    let diff = TextDiff::configure().timeout(SEARCH_TIMEOUT).diff_lines(old, new);
    let mut unified = diff.unified_diff();
    unified.context_radius(CONTEXT).header(&name("a", before), &name("b", after));
    // NUL is made visible last: a change from NUL to its picture is a change, too.
    text + &json::visible_nul(unified.to_string())
}

fn mode(node: &Node) -> String {
    if node.version.link { "120000".to_owned() } else { format!("100{:03o}", node.version.mode & 0o777) }
}

/// Returns the content if it is text. A missing file counts as empty text.
fn text_of(node: Option<&Node>) -> Option<&str> {
    std::str::from_utf8(node.map_or(&[][..], |node| &node.bytes)).ok()
}
