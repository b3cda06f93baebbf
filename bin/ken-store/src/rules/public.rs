//! Rules for streams below `streams/`: whether a stream can be used, when it expires, and whether it matches a request to create it.

use ken_types::ops::streams::{CreateStream, Creation, Fork, Lifetime, Made, StreamItem, is_json, media_type};
use ken_types::{Error, Timestamp};

use crate::tables::PublicRow;

const BYTES: &str = "application/octet-stream";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Liveness {
    Live,
    /// The stream is deleted or has expired, but is kept because it has forks.
    Gone,
    /// The stream has expired, but it is not removed yet.
    Expired,
}

const FOLDER: &str = "streams/";

/// Returns the name that the store uses for the path of a stream below `/streams/`.
pub(crate) fn name_of(path: &str) -> String {
    format!("{FOLDER}{path}")
}

impl PublicRow {
    pub(crate) fn is_json(&self) -> bool {
        is_json(&self.content_type)
    }

    pub(crate) fn lifetime(&self) -> Option<Lifetime> {
        match (self.ttl, self.expires_at) {
            (Some(seconds), _) => Some(Lifetime::Ttl(seconds.cast_unsigned())),
            (None, at) => at.map(Lifetime::ExpiresAt),
        }
    }

    /// Returns when the stream expires if it is used now.
    pub(crate) fn next_expiry(&self, now: Timestamp) -> Option<Timestamp> {
        match self.ttl {
            Some(seconds) => {
                let end = now.millis().saturating_add(seconds.saturating_mul(1_000));
                Some(Timestamp::from_millis(end))
            }
            None => self.expires_at,
        }
    }

    pub(crate) fn liveness(&self, now: Timestamp) -> Liveness {
        let over = self.expires_at.is_some_and(|at| at <= now);
        match (self.gone, over) {
            (true, _) => Liveness::Gone,
            (false, true) if self.forks > 0 => Liveness::Gone,
            (false, true) => Liveness::Expired,
            (false, false) => Liveness::Live,
        }
    }

    pub(crate) fn into_item(self) -> StreamItem {
        let path = self.name.strip_prefix(FOLDER).unwrap_or(&self.name).to_owned();
        StreamItem {
            path,
            content_type: self.content_type,
            entries: self.entries,
            closed: self.closed,
            expires_at: self.expires_at,
        }
    }

    pub(crate) fn made(&self) -> Made {
        Made { content_type: self.content_type.clone(), end: self.entries, closed: self.closed }
    }

    fn set_lifetime(&mut self, lifetime: Option<Lifetime>, now: Timestamp) {
        match lifetime {
            Some(Lifetime::Ttl(seconds)) => self.ttl = Some(i64::try_from(seconds).unwrap_or(i64::MAX)),
            Some(Lifetime::ExpiresAt(at)) => self.expires_at = Some(at),
            None => {}
        }
        self.expires_at = self.next_expiry(now);
    }
}

pub(crate) fn unknown(name: &str, at: &str) -> Error {
    Error::not_found(format!("there is no stream {name}")).at(at)
}

pub(crate) fn kept_for_forks(name: &str) -> String {
    format!("{name} was deleted and is kept for its forks")
}

/// Returns the stream if it can be used. Fails with `conflict` if it is only kept for its forks, and otherwise with `not_found`.
pub(crate) fn live(found: Option<PublicRow>, name: &str, now: Timestamp) -> Result<PublicRow, Error> {
    match found.map(|stream| (stream.liveness(now), stream)) {
        Some((Liveness::Live, stream)) => Ok(stream),
        Some((Liveness::Gone, _)) => Err(Error::conflict(kept_for_forks(name)).at("/stream")),
        _ => Err(unknown(name, "/stream")),
    }
}

/// Compares an existing stream with a request to create it.
pub(crate) fn compare(there: &PublicRow, args: &CreateStream) -> Creation {
    let given = args.content_type.as_deref();
    // If the request names no type or lifetime, a fork has those of its source, so there is nothing to compare.
    let type_differs = match (&args.fork, given) {
        (Some(_), None) => false,
        _ => media_type(given.unwrap_or(BYTES)) != media_type(&there.content_type),
    };
    let lifetime_differs = match (&args.fork, args.lifetime) {
        (Some(_), None) => false,
        (_, lifetime) => lifetime != there.lifetime(),
    };
    let differs = [
        (type_differs, "content type"),
        (lifetime_differs, "lifetime"),
        (args.closed != there.closed, "closure"),
        (fork_description(args.fork.as_ref()) != there.fork_description, "fork source"),
    ];
    match differs.iter().find(|(differs, _)| *differs) {
        Some((_, what)) => Creation::Exists(format!("{} already exists with another {what}", there.name)),
        None => Creation::Known(there.made()),
    }
}

fn fork_description(fork: Option<&Fork>) -> Option<String> {
    fork.and_then(|fork| serde_json::to_string(fork).ok())
}

/// Returns a new stream that is not a fork. It is not stored yet.
pub(crate) fn plain(args: &CreateStream, now: Timestamp) -> PublicRow {
    let mut stream = PublicRow {
        key: 0,
        name: args.stream.clone(),
        content_type: args.content_type.clone().unwrap_or_else(|| BYTES.to_owned()),
        entries: 0,
        closed: args.closed,
        ttl: None,
        expires_at: None,
        last_seq: None,
        source: None,
        base: 0,
        fork_description: fork_description(args.fork.as_ref()),
        forks: 0,
        gone: false,
    };
    stream.set_lifetime(args.lifetime, now);
    stream
}

/// Returns a new fork that shares the first `base` entries of its source. It is not stored yet.
pub(crate) fn forked(source: &PublicRow, base: u64, args: &CreateStream, now: Timestamp) -> PublicRow {
    let content_type = args.content_type.as_ref().unwrap_or(&source.content_type);
    let mut stream = PublicRow {
        content_type: content_type.clone(),
        entries: base,
        base,
        source: Some(source.key),
        ..plain(args, now)
    };
    stream.set_lifetime(args.lifetime.or_else(|| source.lifetime()), now);
    stream
}

pub(crate) fn has_type_of(source: &PublicRow, args: &CreateStream) -> bool {
    let content_type = args.content_type.as_deref().unwrap_or(&source.content_type);
    media_type(content_type) == media_type(&source.content_type)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn create(fields: serde_json::Value) -> CreateStream {
        let mut args = serde_json::json!({"stream": "streams/a"});
        args.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        serde_json::from_value(args).unwrap()
    }

    /// A stream can be used before its time is over. What has forks is kept for them.
    #[test]
    fn a_stream_expires_at_its_time() {
        let now = Timestamp::from_millis(1_000);
        for (gone, expires_at, forks, expected) in [
            (false, None, 0, Liveness::Live),
            (false, Some(1_001), 1, Liveness::Live),
            (false, Some(1_000), 0, Liveness::Expired),
            (false, Some(999), 0, Liveness::Expired),
            (false, Some(1_000), 1, Liveness::Gone),
            (true, None, 1, Liveness::Gone),
            (true, Some(999), 0, Liveness::Gone),
        ] {
            let row = plain(&create(serde_json::json!({})), now);
            let row = PublicRow { gone, forks, expires_at: expires_at.map(Timestamp::from_millis), ..row };
            assert_eq!(row.liveness(now), expected, "{gone} {expires_at:?} {forks}");
        }
    }

    /// A repeated request finds its stream. One that asks for another stream is told the first thing that differs.
    #[test]
    fn another_stream_of_the_same_name_is_told_from_the_same() {
        let now = Timestamp::default();
        let there = plain(&create(serde_json::json!({"content_type": "text/plain"})), now);
        let fork = serde_json::json!({"from": "streams/b"});
        for (fields, differs) in [
            (serde_json::json!({"content_type": "text/plain; charset=utf-8"}), None),
            (serde_json::json!({}), Some("content type")),
            (serde_json::json!({"content_type": "text/plain", "closed": true}), Some("closure")),
            (serde_json::json!({"content_type": "text/plain", "fork": fork}), Some("fork source")),
            (serde_json::json!({"content_type": "text/html", "closed": true, "fork": fork}), Some("content type")),
        ] {
            let found = match compare(&there, &create(fields.clone())) {
                Creation::Exists(text) => Some(text),
                _ => None,
            };
            let expected = differs.map(|what| format!("streams/a already exists with another {what}"));
            assert_eq!(found, expected, "{fields}");
        }
    }
}
