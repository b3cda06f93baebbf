//! The tense of a statement.

use std::fmt;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tense {
    Past,
    Future,
}

impl fmt::Display for Tense {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Tense::Past => "past",
            Tense::Future => "future",
        })
    }
}

/// Splits a statement into the event and its tense; `None` for the present, and for a statement with several tenses. `atom` is a statement in normal form.
pub(crate) fn of(atom: &str) -> Option<(String, Tense)> {
    let mut tense = None;
    let mut event = String::with_capacity(atom.len());
    let mut words = atom.split(' ').peekable();
    while let Some(word) = words.next() {
        let new = match word {
            "will" | "shall" => Some(Tense::Future),
            "was" | "were" => Some(Tense::Past),
            "has" | "have" | "had" if words.peek() == Some(&"been") => Some(Tense::Past),
            "be" | "been" => None,
            _ => {
                event.push(' ');
                event.push_str(word);
                continue;
            }
        };
        match (tense, new) {
            (None, _) => tense = new,
            (Some(_), Some(_)) => return None,
            (Some(_), None) => {}
        }
    }
    tense.map(|tense| (event, tense))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_and_their_tense() {
        let past = |event: &str| Some((event.to_owned(), Tense::Past));
        assert_eq!(of("the file was sent"), past(" the file sent"));
        assert_eq!(of("the file has been sent"), past(" the file sent"));
        assert_eq!(of("the file will be sent"), Some((" the file sent".to_owned(), Tense::Future)));
        assert_eq!(of("the file is sent"), None);
        assert_eq!(of("a will"), Some((" a".to_owned(), Tense::Future)));
        assert_eq!(of("it was said that it will rain"), None);
        assert_eq!(of(""), None);
    }
}
