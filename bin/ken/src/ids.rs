//! Reads fields of records, and resolves ids that people type in full or shortened to a unique beginning.

use ken_types::{Code, Error};
use serde_json::Value;

/// Returns a text field of a record, or an empty text if it is absent or not a text.
pub(crate) fn field<'a>(record: &'a Value, name: &str) -> &'a str {
    record.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// Returns the items of a list in a record, or none if it is absent or not a list.
pub(crate) fn items<'a>(record: &'a Value, name: &str) -> &'a [Value] {
    let list = record.get(name).and_then(Value::as_array);
    list.map(Vec::as_slice).unwrap_or_default()
}

/// Whether a word is a beginning of an id of at least 4 characters. A shorter one could match by mistake.
pub(crate) fn is_short(id: &str, word: &str) -> bool {
    word.len() >= 4 && id.starts_with(word)
}

/// Returns the only id that matches a word: the id itself, or one that begins with the word, with or without `prefix`.
/// Fails if no id matches, or several. `kind` names the things in the error.
pub(crate) fn only_one(ids: Vec<String>, word: &str, prefix: &str, kind: &str, hint: &str) -> Result<String, Error> {
    let is_meant =
        |id: &&String| is_short(id, word) || id.strip_prefix(prefix).is_some_and(|rest| is_short(rest, word));
    let meant: Vec<&String> = match ids.iter().find(|id| *id == word) {
        Some(exact) => vec![exact],
        None => ids.iter().filter(is_meant).collect(),
    };
    match meant.as_slice() {
        [one] => Ok((*one).clone()),
        [] => Err(Error::not_found(format!("there is no {kind} `{word}`")).hint(hint)),
        several => {
            let shown: Vec<&str> = several.iter().take(5).map(|id| id.as_str()).collect();
            let message = format!("`{word}` is ambiguous: {} of {kind}: {}", several.len(), shown.join(", "));
            Err(Error::new(Code::Conflict, message).hint("use more of the id"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_beginning_is_enough_when_it_is_unique() {
        let ids = || vec!["run_01K2AB".to_owned(), "run_01K2AC".to_owned(), "run_01K3XY".to_owned()];
        let found = |word| only_one(ids(), word, "run_", "run", "hint");
        for word in ["run_01K3", "01K3", "01K3XY", "run_01K3XY"] {
            assert_eq!(found(word), Ok("run_01K3XY".to_owned()), "{word}");
        }
        assert_eq!(found("01K2").unwrap_err().code, Code::Conflict);
        for word in ["01K", "", "01K4", "run_01K3XYZ"] {
            assert_eq!(found(word).unwrap_err().code, Code::NotFound, "{word}");
        }
        assert_eq!(only_one(vec!["ab".into(), "abcd".into()], "ab", "", "x", ""), Ok("ab".into()));
    }
}
