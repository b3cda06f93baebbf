//! Thoughts between `<think>` and `</think>` at the start of an answer. Servers send them there if they do not know that
//! the model thinks.

use ken_types::ops::model::Delta;

const OPEN: &str = "<think>";
const CLOSE: &str = "</think>";

#[derive(Debug, PartialEq)]
pub(super) enum Said {
    Text(String),
    Thought(String),
}

impl Said {
    pub(super) fn into_inner(self) -> String {
        match self {
            Said::Text(text) | Said::Thought(text) => text,
        }
    }

    /// Returns `None` if the piece is empty.
    pub(super) fn into_delta(self) -> Option<Delta> {
        match self {
            Said::Text(text) | Said::Thought(text) if text.is_empty() => None,
            Said::Text(delta) => Some(Delta::Text { delta }),
            Said::Thought(delta) => Some(Delta::Think { delta, opaque: None }),
        }
    }
}

/// Separates the thoughts from the text of an answer, whose pieces can end anywhere.
#[derive(Debug, Default)]
pub(super) struct Tag {
    place: Place,
    /// The end of the last piece, if the next piece decides what it is.
    held: String,
}

#[derive(Debug, Default, Clone, Copy, PartialEq)]
enum Place {
    /// Only white space or the beginning of the first tag has arrived.
    #[default]
    Start,
    /// Before the first letter of the thought.
    Opened,
    Inside,
    /// After the second tag, before the first letter of the text.
    Closed,
    Text,
}

impl Tag {
    /// Takes a piece of the answer. Returns the pieces of thought and text that it completes.
    pub(super) fn push(&mut self, text: &str) -> Vec<Said> {
        self.held.push_str(text);
        let mut said = Vec::new();
        while self.step(&mut said) {}
        said
    }

    /// Moves to the next place, if what is held reaches to it.
    fn step(&mut self, said: &mut Vec<Said>) -> bool {
        let held = std::mem::take(&mut self.held);
        let begun = held.trim_start();
        let (next, rest) = match self.place {
            Place::Start => match begun.strip_prefix(OPEN) {
                Some(rest) => (Place::Opened, rest),
                None if OPEN.starts_with(begun) => (Place::Start, held.as_str()),
                None => (Place::Text, held.as_str()),
            },
            Place::Opened | Place::Closed if begun.is_empty() => (self.place, ""),
            Place::Opened => (Place::Inside, begun),
            Place::Inside => match held.split_once(CLOSE) {
                Some((thought, rest)) => {
                    said.push(Said::Thought(thought.to_owned()));
                    (Place::Closed, rest)
                }
                None => {
                    let (thought, rest) = held.split_at(held.len() - begun_tag(&held));
                    said.push(Said::Thought(thought.to_owned()));
                    (Place::Inside, rest)
                }
            },
            Place::Closed => (Place::Text, begun),
            Place::Text => {
                said.push(Said::Text(held));
                return false;
            }
        };
        let has_moved = next != self.place;
        (self.place, self.held) = (next, rest.to_owned());
        has_moved
    }

    pub(super) fn held_bytes(&self) -> usize {
        self.held.len()
    }

    /// Called at the end of the answer. Returns what was held. A thought that does not end is no text.
    pub(super) fn end(self) -> Option<Said> {
        let said = match self.place {
            Place::Opened | Place::Inside => Said::Thought(self.held),
            Place::Start | Place::Closed | Place::Text => Said::Text(self.held),
        };
        Some(said)
    }
}

/// Returns the length of the beginning of the closing tag with which the text ends.
fn begun_tag(text: &str) -> usize {
    let is_end = |length: &usize| CLOSE.get(..*length).is_some_and(|begun| text.ends_with(begun));
    (1..CLOSE.len()).rev().find(is_end).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the thought and the text of an answer that arrives in these pieces.
    fn read<'a>(pieces: impl IntoIterator<Item = &'a str>) -> (String, String) {
        let mut tag = Tag::default();
        let mut said: Vec<Said> = pieces.into_iter().flat_map(|piece| tag.push(piece)).collect();
        said.extend(tag.end());
        let (mut thought, mut text) = (String::new(), String::new());
        for one in said {
            match one {
                Said::Thought(piece) => thought.push_str(&piece),
                Said::Text(piece) => text.push_str(&piece),
            }
        }
        (thought, text)
    }

    #[test]
    fn a_thought_is_recognised_however_the_answer_is_cut() {
        for (answer, thought, text) in [
            ("<think>Hm, é </thin</think>\n\nYes <think>no</think>", "Hm, é </thin", "Yes <think>no</think>"),
            ("\n<think>\nHm.\n</think>Yes", "Hm.\n", "Yes"),
            ("<think>\n\n</think>\n\nYes", "", "Yes"),
            ("<think></think>", "", ""),
            ("<think>endless </thi", "endless </thi", ""),
            ("<thing>", "", "<thing>"),
            ("<thin", "", "<thin"),
            ("  Yes", "", "  Yes"),
            ("<<think>x</think>", "", "<<think>x</think>"),
            ("", "", ""),
        ] {
            let wanted = (thought.to_owned(), text.to_owned());
            assert_eq!(read([answer]), wanted, "{answer:?}");
            let cuts = (0..=answer.len()).filter(|at| answer.is_char_boundary(*at));
            for at in cuts {
                let (one, two) = answer.split_at(at);
                assert_eq!(read([one, two]), wanted, "{answer:?} cut at {at}");
            }
            assert_eq!(read(answer.split_inclusive(|_| true)), wanted, "{answer:?}");
        }
    }
}
