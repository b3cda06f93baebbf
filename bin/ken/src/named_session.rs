//! The session that a person names.

use ken_client::Gateway;
use ken_client::chat::{Chosen, Identity};
use ken_types::Error;
use ken_types::ops::ids::{FoundId, IdKind};
use serde_json::{Value, json};

use crate::ids::{Wanted, field};

pub(crate) const SESSION: Wanted =
    Wanted { kinds: &[IdKind::Session], last: &[IdKind::Session], name: "session", hint: "`ken sessions` lists them" };

/// Returns the id of the session that was used last.
pub(crate) fn last(gateway: &mut Gateway) -> Result<String, Error> {
    let sessions = gateway.sessions(Some(&Identity::local()), Chosen::default(), 1)?;
    let last = sessions.first().map(|session| field(session, "sessionId").to_owned());
    last.ok_or_else(|| Error::not_found("there is no session to continue"))
}

/// Returns the only session that a word names: by its id, a piece of it, its name, or `last`. An archived session is
/// named only by its whole id. `of` is the only one to whom it may belong.
pub(crate) fn find(gateway: &mut Gateway, of: Option<&Identity>, word: &str) -> Result<Value, Error> {
    let found = match of {
        None => SESSION.find(gateway, word)?,
        Some(of) => SESSION.find_own(gateway, word, |found| identity(found).as_ref() == Some(of))?,
    };
    let mut record = found.scope.map_or_else(|| Ok(json!({})), serde_json::to_value).unwrap_or_default();
    if let Some(fields) = record.as_object_mut() {
        fields.insert("sessionId".to_owned(), found.id.into());
        fields.insert("title".to_owned(), found.label.into());
    }
    Ok(record)
}

fn identity(found: &FoundId) -> Option<Identity> {
    Identity::of(&serde_json::to_value(found.scope.as_ref()?).ok()?)
}
