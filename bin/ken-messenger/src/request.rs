//! The text of a request for an approval in a chat. A request that does not fit whole into a few messages cannot be
//! approved in the chat, because nobody has read it there.

use ken_approval::{Part, Request};
use unicode_segmentation::UnicodeSegmentation;

use crate::split::{PIECE_UNITS, split, units};

/// The most messages that a person reads on a phone before pressing a button below the last one.
const MAX_PIECES: usize = 3;
/// The size of a code block in UTF-16 units. A longer text is put into several blocks, so that a message ends between
/// two of them and no line is lost at the cut.
const BLOCK_UNITS: usize = 3_600;
/// The longest fence of a code block. A text with longer runs of backquotes is not shown as a code block.
const MAX_FENCE: usize = 32;
const HEAD: &str = "**Approval needed**: ";

/// The messages that show a request, as Markdown.
pub(crate) struct Shown {
    body: String,
    /// Whether the body holds the whole request, so that it can be approved below it.
    pub(crate) is_whole: bool,
    footer: String,
}

impl Shown {
    pub(crate) fn of(request: &Request) -> Shown {
        let footer = format!("It waits for a decision. Elsewhere: `ken approvals {}`", request.id);
        let facts = head(request);
        let whole = if request.is_cut { None } else { blocks(request) };
        let whole = whole.map(|blocks| format!("{facts}{blocks}"));
        let whole = whole.filter(|body| split(&format!("{body}\n\n{footer}"), PIECE_UNITS).len() <= MAX_PIECES);
        let is_whole = whole.is_some();
        let reference = || {
            format!(
                "{facts}\n\nIt cannot be shown whole here, so it cannot be approved here. On the machine, \
                 `ken approvals {id}` shows all of it, and `ken approve {id}` decides.",
                id = request.id
            )
        };
        Shown { body: whole.unwrap_or_else(reference), is_whole, footer }
    }

    /// Returns the text while it waits for a decision.
    pub(crate) fn pending(&self) -> String {
        format!("{}\n\n{}", self.body, self.footer)
    }

    /// Returns the last message of the text after the decision. The messages before it stay as they are.
    pub(crate) fn ended(&self, request: &Request, outcome: &str) -> String {
        let outcome = format!("It was {}.", escaped(outcome));
        let last = split(&self.pending(), PIECE_UNITS).pop().unwrap_or_default();
        let kept = last.strip_suffix(&self.footer).unwrap_or_default().trim_end();
        let text = format!("{kept}\n\n{outcome}");
        if units(&text) <= PIECE_UNITS && !kept.is_empty() {
            return text;
        }
        format!("{HEAD}{}\n\n{outcome}", escaped(&request.summary))
    }
}

/// What, where, why and at what risk.
fn head(request: &Request) -> String {
    let facts = request.facts().into_iter().map(|(name, value)| format!("\n{name}: {}", escaped(&value)));
    format!("{HEAD}{}{}", escaped(&request.summary), facts.collect::<String>())
}

/// The action and the diff as code blocks. `None` if one of them cannot be put into a block.
fn blocks(request: &Request) -> Option<String> {
    let action: Vec<String> = request.action.iter().flat_map(Part::lines).collect();
    Some(code("", &action.join("\n"))? + &code("diff", &request.diff)?)
}

fn code(language: &str, text: &str) -> Option<String> {
    let longest = text.split(|letter| letter != '`').map(str::len).max().unwrap_or_default();
    let fence = "`".repeat((longest + 1).max(3));
    let block = |text: String| format!("\n\n{fence}{language}\n{text}\n{fence}");
    (fence.len() <= MAX_FENCE).then(|| parts(text).into_iter().map(block).collect())
}

/// Cuts a text between its lines into parts that fit into a message. A longer line is cut where it must be, with `…` on
/// both sides of the cut.
fn parts(text: &str) -> Vec<String> {
    let mut parts = Vec::new();
    let (mut part, mut used) = (String::new(), 0);
    for line in text.trim_end_matches('\n').split_inclusive('\n') {
        if used + units(line) > BLOCK_UNITS {
            parts.push(std::mem::take(&mut part));
            used = 0;
        }
        for letter in line.graphemes(true) {
            if used + units(letter) > BLOCK_UNITS {
                parts.push(std::mem::replace(&mut part, "…".to_owned()) + "…");
                used = 1;
            }
            part.push_str(letter);
            used += units(letter);
        }
    }
    parts.push(part);
    parts.retain(|part| !part.is_empty());
    parts.iter_mut().for_each(|part| {
        if part.ends_with('\n') {
            part.pop();
        }
    });
    parts
}

/// A text in which Markdown finds no markup.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len() + 8);
    for letter in text.chars() {
        if letter.is_ascii_punctuation() {
            escaped.push('\\');
        }
        escaped.push(letter);
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::html::html;
    use serde_json::json;

    fn request(action: serde_json::Value, diff: &str) -> Request {
        Request::of(&json!({"requestId": "apr_1", "request": {"id": "apr_1", "summary": "Run `x` *now* <b>",
            "target": "repos/a", "risk": "high", "actionType": "shell.execute", "expiresAt": "2026-11-23T18:00:00.000Z",
            "metadata": {"action": action, "diff": diff}}}))
        .unwrap()
    }

    /// The text that a person reads in all messages, without the tags.
    fn read(markdown: &str) -> String {
        let pieces = split(markdown, PIECE_UNITS);
        assert!(pieces.iter().all(|piece| units(piece) <= PIECE_UNITS));
        let html: Vec<String> = pieces.iter().map(|piece| html(piece)).collect();
        html.join("\n").replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
    }

    #[test]
    fn the_whole_action_is_read_as_it_is() {
        let input = "PWNED ```` <u>\n\n\n    four\n* [a](b) &amp; \u{200b}";
        let request = request(json!({"argv": ["sh"], "stdin": input, "network": {"hosts": ["evil.example"]}}), "");
        let shown = Shown::of(&request);
        assert!(shown.is_whole);
        let read = read(&shown.pending());
        for line in input.lines().filter(|line| !line.is_empty()) {
            assert!(read.contains(&line.replace('\u{200b}', "<U+200B>")), "{line}: {read}");
        }
        assert!(read.contains("Run `x` *now* <b>") && read.contains("evil.example"), "{read}");
        assert!(read.contains("\n  \n  \n      four"), "blank lines stay: {read}");
    }

    #[test]
    fn a_diff_fills_at_most_three_messages_and_loses_no_line() {
        let line = |number: usize| format!("+    let value_{number:04} = \"`code`\";\n");
        let diff: String = (0..200).map(line).collect();
        let shown = Shown::of(&request(json!({}), &diff));
        let pieces = split(&shown.pending(), PIECE_UNITS).len();
        assert!(shown.is_whole && (2..=3).contains(&pieces), "{pieces}");
        let read = read(&shown.pending());
        assert!((0..200).all(|number| read.contains(line(number).trim_end())));
        let long: String = (0..400).map(line).collect();
        let shown = Shown::of(&request(json!({}), &long));
        assert!(!shown.is_whole && shown.pending().contains("`ken approvals apr_1`"), "{}", shown.pending());
    }

    #[test]
    fn what_is_cut_or_cannot_be_fenced_is_not_whole() {
        let cut = "+x\n[cut: 131072 of 1900000 bytes are shown]";
        assert!(!Shown::of(&request(json!({}), cut)).is_whole);
        let quoted = Shown::of(&request(json!({"argv": ["`".repeat(40)]}), ""));
        assert!(!quoted.is_whole && quoted.pending().contains("It cannot be shown whole here"), "{}", quoted.pending());
        let long = "x".repeat(9_000);
        let shown = Shown::of(&request(json!({"argv": ["echo", long]}), ""));
        let letters = read(&shown.pending()).chars().filter(|letter| *letter == 'x').count();
        assert!(shown.is_whole && letters >= 9_000, "{letters}");
    }

    #[test]
    fn a_text_fills_its_blocks_exactly() {
        let line = |units: usize| "x".repeat(units - 1) + "\n";
        let half = line(BLOCK_UNITS / 2);
        let block = half.clone() + half.trim_end();
        for (text, expected) in [
            (String::new(), vec![]),
            ("a\nb\n".to_owned(), vec!["a\nb".to_owned()]),
            (half.clone() + &half, vec![block.clone()]),
            (half.clone() + &half + "\na", vec![block.clone(), "\na".to_owned()]),
            (half.clone() + &half + "a", vec![block.clone(), "a".to_owned()]),
            (
                half.clone() + &line(BLOCK_UNITS / 2 + 1) + "a",
                vec![half.trim_end().to_owned(), line(BLOCK_UNITS / 2 + 1) + "a"],
            ),
            ("x".repeat(BLOCK_UNITS), vec!["x".repeat(BLOCK_UNITS)]),
            ("x".repeat(BLOCK_UNITS + 1), vec!["x".repeat(BLOCK_UNITS) + "…", "…x".to_owned()]),
            (
                "x".repeat(2 * BLOCK_UNITS - 1),
                vec!["x".repeat(BLOCK_UNITS) + "…", "…".to_owned() + &"x".repeat(BLOCK_UNITS - 1)],
            ),
            (
                "👍".repeat(BLOCK_UNITS),
                vec![
                    "👍".repeat(BLOCK_UNITS / 2) + "…",
                    "…".to_owned() + &"👍".repeat(BLOCK_UNITS / 2 - 1) + "…",
                    "…👍".to_owned(),
                ],
            ),
        ] {
            assert_eq!(parts(&text), expected, "{} {}", text.len(), text.lines().count());
        }
        assert!(code("", &"`".repeat(MAX_FENCE - 1)).is_some() && code("", &"`".repeat(MAX_FENCE)).is_none());
    }

    #[test]
    fn an_end_that_does_not_fit_below_the_request_stands_alone() {
        let request = request(json!({}), "");
        let ended = |body: usize, outcome: usize| {
            let shown = Shown { body: "x".repeat(body), is_whole: true, footer: "f".to_owned() };
            let ended = shown.ended(&request, &"o".repeat(outcome));
            (units(&ended), ended.starts_with('x'))
        };
        let around = units("\n\nIt was .");
        assert_eq!(ended(4_000, PIECE_UNITS - 4_000 - around), (PIECE_UNITS, true));
        assert!(!ended(4_000, PIECE_UNITS - 4_000 - around + 1).1);
        let alone = Shown { body: String::new(), is_whole: true, footer: "f".to_owned() }.ended(&request, "denied");
        assert!(alone.starts_with(HEAD) && alone.ends_with("It was denied."), "{alone}");
    }

    #[test]
    fn the_last_message_says_how_it_ended() {
        let line = |number: usize| format!("+{number} {}\n", "y".repeat(90));
        for count in [1, 70, 100] {
            let request = request(json!({}), &(0..count).map(line).collect::<String>());
            let ended = Shown::of(&request).ended(&request, "denied by a_b");
            assert!(
                ended.ends_with(r"It was denied by a\_b\.") || ended.ends_with(r"It was denied by a\_b."),
                "{ended}"
            );
            assert!(units(&ended) <= PIECE_UNITS && !ended.contains("It waits"), "{ended}");
        }
    }
}
