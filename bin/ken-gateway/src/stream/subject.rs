//! Which stream a route serves, and how its entries are sent.

use ken_http::Failure;
use ken_http::http::StatusCode;
use ken_types::limits::PAGE_EVENTS;
use ken_types::ops::store::{ReadStream, StreamPage};
use ken_types::ops::streams::media_type;
use ken_types::{Error, Offset};

/// A stream that a route serves.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Subject {
    /// Its name in the store.
    pub(crate) name: String,
    pub(crate) kind: Kind,
}

/// The kinds of streams, which differ in details.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    Agent,
    Run,
    /// The stream of changes in the system.
    System,
    /// A stream below /streams.
    Public,
}

impl Subject {
    pub(crate) fn agent(instance: &str) -> Subject {
        Subject { name: format!("agents/orchestrator/{instance}"), kind: Kind::Agent }
    }

    pub(crate) fn run(run: &str) -> Subject {
        Subject { name: format!("runs/{run}"), kind: Kind::Run }
    }

    /// Returns the stream of changes in the system.
    pub(crate) fn system() -> Subject {
        Subject { name: "system".to_owned(), kind: Kind::System }
    }

    /// Returns the arguments for reading this stream from an offset.
    pub(crate) fn read_from(&self, offset: Offset) -> ReadStream {
        ReadStream {
            stream: self.name.clone(),
            offset,
            limit: match self.kind {
                // Many clients read only one page, so its size is limited by bytes alone.
                Kind::Public => u32::MAX,
                Kind::Agent | Kind::Run | Kind::System => PAGE_EVENTS,
            },
            ..ReadStream::default()
        }
    }

    pub(crate) fn missing(&self) -> Failure {
        let kind = match self.kind {
            Kind::Run => "run_not_found",
            Kind::Agent | Kind::System | Kind::Public => "stream_not_found",
        };
        Failure::from(Error::not_found(format!("No stream {}.", self.name))).kind(kind)
    }

    /// Returns a response 410: the stream was deleted while it has forks, or with its session.
    pub(crate) fn gone(error: Error) -> Failure {
        Failure::from(error).status(StatusCode::GONE).kind("stream_gone")
    }

    /// Returns a response 410: the offset is before the oldest entry that still exists.
    pub(crate) fn too_old(error: Error) -> Failure {
        Subject::gone(error).at("?offset")
    }
}

impl Kind {
    /// Returns the offset after a number of entries. For 0 entries it is all zeros below `/streams`, and `-1` for other
    /// streams.
    pub(crate) fn offset(self, entries: u64) -> Offset {
        match self {
            Kind::Agent | Kind::Run | Kind::System => Offset::end(entries),
            Kind::Public => Offset::After(entries),
        }
    }
}

/// How the entries of a stream are sent as server-sent events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// JSON values, as an array.
    Json,
    /// Text, line by line.
    Text,
    /// Other bytes, as base64.
    Bytes,
}

impl Form {
    pub(crate) fn of(page: &StreamPage) -> Form {
        match &page.public {
            None => Form::Json,
            Some(public) if public.bytes.is_none() => Form::Json,
            Some(public) if media_type(&public.content_type).starts_with("text/") => Form::Text,
            Some(_) => Form::Bytes,
        }
    }
}
