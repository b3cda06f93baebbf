//! Formats changes as a unified diff for the person who approves them.

use std::time::Duration;

use similar::TextDiff;

use crate::place::Place;
use crate::tree::Node;

/// The maximum length of a diff, in bytes. Of the rest, only the size is given.
pub(crate) const MAX_DIFF: usize = 128 * 1024;
/// The maximum size of a file whose diff is shown, in bytes. A larger file is only named.
const MAX_FILE: usize = 2 * 1024 * 1024;
/// How long the search for the smallest diff of a file can take. After that, a larger diff is used.
const SEARCH_TIMEOUT: Duration = Duration::from_millis(200);
const CONTEXT: usize = 3;

/// A diff that is built file by file and stays within its limit.
#[derive(Debug, Default)]
pub(crate) struct Diff {
    text: String,
    left_out: usize,
}

impl Diff {
    pub(crate) fn add(&mut self, place: &Place, before: Option<&Node>, after: Option<&Node>) {
        let file = one(place, before, after);
        match self.text.len() + file.len() <= MAX_DIFF {
            true => self.text.push_str(&file),
            false => self.left_out += 1,
        }
    }

    /// Returns the text of the diff. At its end it says how much was left out.
    pub(crate) fn finish(mut self) -> String {
        if self.left_out > 0 {
            self.text.push_str(&format!(
                "[{} more files change; a diff of at most {MAX_DIFF} bytes is shown]\n",
                self.left_out
            ));
        }
        self.text
    }
}

fn one(place: &Place, before: Option<&Node>, after: Option<&Node>) -> String {
    let mut text = format!("diff --git a/{place} b/{place}\n");
    match (before, after) {
        (None, Some(node)) => text.push_str(&format!("new file mode {}\n", mode(node))),
        (Some(node), None) => text.push_str(&format!("deleted file mode {}\n", mode(node))),
        (Some(old), Some(new)) if mode(old) != mode(new) => {
            text.push_str(&format!("old mode {}\nnew mode {}\n", mode(old), mode(new)));
        }
        _ => {}
    }
    let (Some(old), Some(new)) = (text_of(before), text_of(after)) else {
        return text + "Binary or large files differ\n";
    };
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
    text + &unified.to_string()
}

fn mode(node: &Node) -> String {
    match node.version.link {
        true => "120000".to_owned(),
        false => format!("100{:03o}", node.version.mode & 0o777),
    }
}

/// Returns the content if it is text. A missing file counts as empty text.
fn text_of(node: Option<&Node>) -> Option<&str> {
    let bytes = node.map_or(&[][..], |node| &node.bytes);
    if bytes.len() > MAX_FILE || bytes.contains(&0) {
        return None;
    }
    std::str::from_utf8(bytes).ok()
}
