//! The parameters of a read: the offset, the amount, and the mode.

use ken_http::Query;
use ken_types::ops::store::ReadStream;
use ken_types::{Error, Offset};

use super::subject::Subject;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reading {
    pub(crate) offset: Offset,
    pub(crate) tail: Option<u64>,
    pub(crate) mode: Mode,
    pub(crate) cursor: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    CatchUp,
    LongPoll,
    Sse,
}

impl Reading {
    /// Parses the parameters. Errors are reported in the order of the contract: two offsets, two tails, tail, live
    /// without offset, live, offset.
    pub(crate) fn of(query: &Query) -> Result<Reading, Error> {
        Reading::with_defaults(query, None, None)
    }

    /// Parses the parameters of `/api/events`. By default the mode is live and only new entries are read.
    pub(crate) fn of_changes(query: &Query) -> Result<Reading, Error> {
        Reading::with_defaults(query, Some("now"), Some("sse"))
    }

    fn with_defaults(query: &Query, offset: Option<&str>, live: Option<&str>) -> Result<Reading, Error> {
        let offset = query.one("offset")?.or(offset);
        let tail = query.one("tail")?;
        // Clients send `tail` with every follow-up request, so it is ignored except at the start.
        let from_start = matches!(offset, None | Some("-1"));
        let tail = tail.map(parse_tail).transpose()?.filter(|_| from_start);
        let live = query.one("live")?.or(live);
        if live.is_some() && offset.is_none() {
            return Err(Error::invalid("?offset", "live needs an offset"));
        }
        let mode = match live {
            None => Mode::CatchUp,
            Some("long-poll") => Mode::LongPoll,
            Some("sse") => Mode::Sse,
            Some(other) => {
                return Err(Error::invalid("?live", format!("live is {other:?}, it must be long-poll or sse")));
            }
        };
        let offset = match offset {
            None => Offset::Start,
            Some(text) => {
                text.parse().map_err(|error| Error::invalid("?offset", format!("offset {text:?}: {error}")))?
            }
        };
        // A cursor that this server has not sent is ignored.
        let cursor = query.one("cursor").unwrap_or_default().and_then(|cursor| cursor.parse().ok());
        Ok(Reading { offset, tail, mode, cursor })
    }
}

/// Parses a number of the form `[1-9][0-9]*`.
fn parse_tail(text: &str) -> Result<u64, Error> {
    let digits = !text.starts_with('0') && !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits {
        return Err(Error::invalid("?tail", "tail is a number from 1"));
    }
    // A number that is too large to parse requests all entries.
    Ok(text.parse().unwrap_or(u64::MAX))
}

impl Reading {
    /// Returns the arguments of the first read.
    pub(crate) fn first(&self, subject: &Subject) -> ReadStream {
        ReadStream { tail: self.tail, touch: true, ..subject.read_from(self.offset) }
    }

    /// Continues after the last event that the client has received. A value that is not an offset of this server is
    /// ignored.
    pub(crate) fn resumed_after(self, last_event: Option<&str>) -> Reading {
        match last_event.map(str::parse) {
            Some(Ok(offset @ Offset::After(_))) => Reading { offset, tail: None, ..self },
            _ => self,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_valid_last_event_id_overrides_the_offset() {
        let reading = Reading::of(&Query::parse("offset=0_7&live=sse").unwrap()).unwrap();
        for (last_event, offset) in [
            (Some("0000000000000000_0000000000000009"), 9),
            (Some("now"), 7),
            (Some("-1"), 7),
            (Some("abc"), 7),
            (Some(""), 7),
            (None, 7),
        ] {
            let resumed = reading.clone().resumed_after(last_event);
            assert_eq!(resumed.offset, Offset::After(offset), "{last_event:?}");
        }
    }
}
