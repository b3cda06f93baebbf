//! Reads fields of records, and finds what a person means by an id, a piece of one, a name, or `last`.

use ken_client::Gateway;
use ken_types::ops::ids::{FindIds, FoundId, FoundIds, IdKind, IdsFind, is_meant};
use ken_types::places::Places;
use ken_types::uri::encode_query;
use ken_types::{Error, Timestamp};
use serde_json::Value;

use crate::client;

/// Returns a text field of a record, or an empty text if it is absent or not a text.
pub(crate) fn field<'a>(record: &'a Value, name: &str) -> &'a str {
    record.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// Returns the items of a list in a record, or none if it is absent or not a list.
pub(crate) fn items<'a>(record: &'a Value, name: &str) -> &'a [Value] {
    let list = record.get(name).and_then(Value::as_array);
    list.map(Vec::as_slice).unwrap_or_default()
}

/// The word that means the newest thing.
pub(crate) const LAST: &str = "last";
/// The maximum number of things that are listed if a word can mean several.
const MAX_LISTED: usize = 10;

/// What a command takes.
pub(crate) struct Wanted {
    pub(crate) kinds: &'static [IdKind],
    /// The kinds among which `last` is the newest.
    pub(crate) last: &'static [IdKind],
    /// The name of such a thing in an error: `session`, `turn or run`.
    pub(crate) name: &'static str,
    /// Where a person finds the ids.
    pub(crate) hint: &'static str,
}

/// A session: by its id, a piece of it, its name, or `last`. An archived one is named only by its whole id.
pub(crate) const SESSION: Wanted = Wanted::of(&[IdKind::Session], "session", "`ken sessions` lists them");

impl Wanted {
    /// One kind of thing.
    pub(crate) const fn of(kinds: &'static [IdKind], name: &'static str, hint: &'static str) -> Wanted {
        Wanted { kinds, last: kinds, name, hint }
    }

    /// Returns what a word means, according to the gateway.
    pub(crate) fn find(&self, gateway: &mut Gateway, word: &str) -> Result<FoundId, Error> {
        self.one(self.ask_gateway(gateway, word, asked(word))?, word)
    }

    /// Returns what a word means to one person only, to whom sessions belong that `is_own` accepts.
    pub(crate) fn find_own(
        &self,
        gateway: &mut Gateway,
        word: &str,
        is_own: impl Fn(&FoundId) -> bool,
    ) -> Result<FoundId, Error> {
        let found = self.ask_gateway(gateway, word, ken_types::ops::ids::MAX_FOUND)?;
        let own = found.into_iter().filter(is_own);
        // Without this, the newest ones of a person would be as many as were asked for.
        self.one(own.take(if word == LAST { 1 } else { usize::MAX }).collect(), word)
    }

    fn ask_gateway(&self, gateway: &mut Gateway, word: &str, limit: u32) -> Result<Vec<FoundId>, Error> {
        let FindIds { word: asked, kinds, limit } = self.question(word, limit);
        let mut target = format!("/api/ids?limit={limit}");
        if !kinds.is_empty() {
            let kinds: Vec<&str> = kinds.iter().map(|kind| kind.name()).collect();
            target += &format!("&kind={}", kinds.join(","));
        }
        if let Some(word) = asked {
            target += &format!("&word={}", encode_query(&word));
        }
        let answer = gateway.get(&target)?;
        client::parse_reply::<FoundIds>("gateway", answer).map(|found| found.ids)
    }

    /// Returns what a word means, according to ken-store. For commands that need no gateway.
    pub(crate) fn find_in_store(&self, places: &Places, word: &str) -> Result<FoundId, Error> {
        let found = client::call::<IdsFind>(places, "store", &self.question(word, asked(word)), None)?;
        self.one(found.ids, word)
    }

    fn question(&self, word: &str, limit: u32) -> FindIds {
        let kinds = if word == LAST { self.last } else { self.kinds };
        FindIds { word: (word != LAST).then(|| word.to_owned()), kinds: kinds.to_vec(), limit }
    }

    /// Returns the only thing that a word means, of a list that holds all of them.
    pub(crate) fn only_one(&self, known: Vec<FoundId>, word: &str) -> Result<FoundId, Error> {
        let is_exact = |found: &FoundId| found.id == word;
        let meant: Vec<FoundId> = match known.iter().find(|found| is_exact(found)) {
            Some(exact) => vec![exact.clone()],
            None => known.into_iter().filter(|found| word == LAST || is_meant(&found.id, word)).collect(),
        };
        self.one(meant, word)
    }

    fn one(&self, found: Vec<FoundId>, word: &str) -> Result<FoundId, Error> {
        match <[FoundId; 1]>::try_from(found) {
            Ok([one]) => Ok(one),
            Err(none) if none.is_empty() && word == LAST => {
                Err(Error::not_found(format!("there is no {}", self.name)).hint(self.hint))
            }
            Err(none) if none.is_empty() => {
                let hint = match word.len() {
                    0..4 => format!("a piece of an id has at least 4 characters; {}", self.hint),
                    _ => self.hint.to_owned(),
                };
                Err(Error::not_found(format!("there is no {} `{word}`", self.name)).hint(hint))
            }
            Err(several) => Err(ambiguous(&several, word)),
        }
    }
}

/// Returns how many things are asked for: one more than is listed, so that an error can say that there are more.
fn asked(word: &str) -> u32 {
    if word == LAST { 1 } else { MAX_LISTED as u32 + 1 }
}

fn ambiguous(several: &[FoundId], word: &str) -> Error {
    let mut message = format!("`{word}` can mean several things:");
    for FoundId { kind, at, id, label, .. } in several.iter().take(MAX_LISTED) {
        let label = label.as_deref().unwrap_or_default();
        message += format!("\n  {:12}  {}  {id}  {label}", kind.name(), seconds(*at)).trim_end();
    }
    if several.len() > MAX_LISTED {
        message += "\n  and more";
    }
    Error::invalid("", message).hint("Use more of the id.")
}

fn seconds(at: Timestamp) -> String {
    // The form of a time is fixed, as in `2027-02-03T04:05:06.789Z`.
    at.to_string().chars().take("2027-02-03T04:05:06".len()).chain(['Z']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ken_types::Code;

    const RUNS: Wanted = Wanted::of(&[IdKind::Run], "run", "`ken runs` lists them");

    fn run(id: &str) -> FoundId {
        let at = Timestamp::from_millis(0);
        let label = Some("research".to_owned());
        FoundId {
            kind: IdKind::Run,
            id: id.to_owned(),
            at,
            label,
            session_id: None,
            submission_id: None,
            offset: None,
            scope: None,
        }
    }

    #[test]
    fn a_piece_is_enough_when_it_is_unique() {
        let runs = || vec![run("run_01K2AB"), run("run_01K2AC"), run("run_01K3XY")];
        let found = |word| RUNS.only_one(runs(), word).map(|found| found.id);
        for word in ["run_01K3", "01K3", "K3XY", "run_01K3XY"] {
            assert_eq!(found(word), Ok("run_01K3XY".to_owned()), "{word}");
        }
        let error = found("01K2").unwrap_err();
        let shown =
            "`01K2` can mean several things:\n  run           1970-01-01T00:00:00Z  run_01K2AB  research\n  run  ";
        assert!(error.code == Code::Invalid && error.message.starts_with(shown), "{error}");
        for word in ["01K", "", "01K4", "run_01K3XYZ"] {
            assert_eq!(found(word).unwrap_err().code, Code::NotFound, "{word}");
        }
        assert_eq!(RUNS.only_one(vec![run("ab"), run("abcd")], "ab").unwrap().id, "ab");
        assert_eq!(RUNS.only_one(vec![run("ab")], LAST).unwrap().id, "ab");
        assert_eq!(RUNS.only_one(runs(), LAST).unwrap_err().code, Code::Invalid);
        assert_eq!(RUNS.only_one(Vec::new(), LAST).unwrap_err().code, Code::NotFound);
    }

    #[test]
    fn at_most_ten_are_listed() {
        let many: Vec<FoundId> = (0..12).map(|number| run(&format!("run_01K2A{number}"))).collect();
        let error = RUNS.only_one(many, "01K2").unwrap_err();
        assert_eq!(error.message.lines().count(), 12, "{error}");
        assert!(error.message.ends_with("  and more"), "{error}");
    }
}
