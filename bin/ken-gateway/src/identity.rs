//! The identity on whose behalf a request is made: `connector`, `actorId`, `conversationId`, `threadId`.

use ken_chat::Connector;
use ken_http::{Caller, Failure, Query};
use ken_types::Error;
use ken_types::ops::store::{OPENAI, Scope};
use nix::unistd::geteuid;
use serde::Deserialize;

use crate::body::{check_identity, given, pointer, required};

/// The four fields, not yet checked.
#[serde_with::apply(Option => #[serde(default, deserialize_with = "given")])]
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Identity {
    pub(crate) connector: Option<String>,
    pub(crate) actor_id: Option<String>,
    pub(crate) conversation_id: Option<String>,
    pub(crate) thread_id: Option<String>,
}

/// Formats the place of a field for an error: as a JSON pointer in a body, as `?name` in a query.
type FormatPlace = fn(&str) -> String;

fn in_query(name: &str) -> String {
    format!("?{name}")
}

const CONNECTORS: [&str; 5] = ["tui", "web-api", "messenger", "schedule", OPENAI];

impl Identity {
    /// Reads a query, where each field may be given once.
    pub(crate) fn of_query(query: &Query) -> Result<Identity, Error> {
        let one = |name| query.one(name).map(|value| value.map(str::to_owned));
        Ok(Identity {
            connector: one("connector")?,
            actor_id: one("actorId")?,
            conversation_id: one("conversationId")?,
            thread_id: one("threadId")?,
        })
    }

    /// Reads a complete identity from a query, with any connector.
    pub(crate) fn scope_of_query(query: &Query) -> Result<Scope, Failure> {
        Ok(Identity::of_query(query)?.scope(&CONNECTORS, in_query)?)
    }

    /// Reads a complete identity from a query, or none at all.
    pub(crate) fn scope_or_none(query: &Query) -> Result<Option<Scope>, Failure> {
        let identity = Identity::of_query(query)?;
        let given = [&identity.connector, &identity.actor_id, &identity.conversation_id, &identity.thread_id];
        if given.iter().any(|field| field.is_some()) {
            Ok(Some(identity.scope(&CONNECTORS, in_query)?))
        } else {
            Ok(None)
        }
    }

    /// Checks a complete identity from a body, with any connector.
    pub(crate) fn into_scope(self) -> Result<Scope, Error> {
        self.scope(&CONNECTORS, pointer)
    }

    /// Checks a complete identity from a body of the terminal client.
    pub(crate) fn into_tui_scope(self) -> Result<Scope, Error> {
        self.scope(&["tui"], pointer)
    }

    /// Reads who calls the web API from a query.
    pub(crate) fn web_scope(query: &Query) -> Result<Scope, Error> {
        Identity::of_query(query)?.on(Connector::Web, in_query)
    }

    /// Checks the identity of a caller of this connector. One of the web API that names nobody is anonymous, and has no memory beyond its
    /// sessions.
    pub(crate) fn on(self, connector: Connector, at: FormatPlace) -> Result<Scope, Error> {
        let name = connector.name();
        self.complete(name.to_owned(), (connector == Connector::Web).then_some(name), at)
    }

    fn scope(mut self, connectors: &[&str], at: FormatPlace) -> Result<Scope, Error> {
        let connector = text("connector", self.connector.take(), at)?;
        if !connectors.contains(&connector.as_str()) {
            let known = connectors.join(" or ");
            let message = format!("connector is {connector:?}, it must be {known}");
            return Err(Error::invalid(at("connector"), message));
        }
        self.complete(connector, None, at)
    }

    fn complete(self, connector: String, absent: Option<&str>, at: FormatPlace) -> Result<Scope, Error> {
        let or_absent = |value: Option<String>| value.or_else(|| absent.map(str::to_owned));
        let thread = self.thread_id.map(|thread| text("threadId", Some(thread), at));
        Ok(Scope {
            connector,
            actor_id: text("actorId", or_absent(self.actor_id), at)?,
            conversation_id: text("conversationId", or_absent(self.conversation_id), at)?,
            thread_id: thread.transpose()?,
        })
    }
}

fn text(name: &str, value: Option<String>, at: FormatPlace) -> Result<String, Error> {
    let value = required(name, value).map_err(|error| error.at(at(name)))?;
    check_identity(&at(name), &value)?;
    Ok(value)
}

/// Whether the caller is the person to whom the system belongs: its user, or whoever has the secret.
pub(crate) fn is_owner(caller: Caller) -> bool {
    match caller {
        Caller::Operator => true,
        Caller::Local { uid } => uid == Some(geteuid().as_raw()),
        Caller::Anyone => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_system_belongs_to_its_user_and_to_whoever_has_the_secret() {
        let own = geteuid().as_raw();
        for (caller, is) in [
            (Caller::Operator, true),
            (Caller::Local { uid: Some(own) }, true),
            (Caller::Local { uid: Some(own + 1) }, false),
            (Caller::Local { uid: None }, false),
            (Caller::Anyone, false),
        ] {
            assert_eq!(is_owner(caller), is, "{caller:?}");
        }
    }
}
