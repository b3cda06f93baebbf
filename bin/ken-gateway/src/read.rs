//! GET /agents/:name/:id: reading a stream, in its three modes. The same reader serves every kind of stream.

use std::fmt::Write;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use ken_http::http::{Method, StatusCode};
use ken_http::{Failure, Query, Request, Response};
use ken_types::id::random;
use ken_types::limits::{LONG_POLL_MS, PAGE_EVENTS};
use ken_types::ops::store::{ReadStream, StreamPage, StreamsRead};
use ken_types::{Code, Error, Offset};
use sha2::{Digest, Sha256};

use crate::agents::instance;
use crate::gateway::{CALL, Gateway};
use crate::sse;

/// How long a long poll gathers from its first event on.
const GATHER_MS: u64 = 20;
/// Cursors count intervals of so many seconds from 2024-10-09T00:00:00Z.
const CURSOR_SECONDS: u64 = 20;
const CURSOR_EPOCH: u64 = 1_728_432_000;

/// A stream that a route serves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Subject {
    /// Its name in the store.
    pub(crate) name: String,
    kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Agent,
    Run,
    System,
}

impl Subject {
    pub(crate) fn agent(instance: &str) -> Subject {
        Subject {
            name: format!("agents/orchestrator/{instance}"),
            kind: Kind::Agent,
        }
    }

    pub(crate) fn run(run: &str) -> Subject {
        Subject {
            name: format!("runs/{run}"),
            kind: Kind::Run,
        }
    }

    /// The stream of changes.
    pub(crate) fn system() -> Subject {
        Subject {
            name: "system".to_owned(),
            kind: Kind::System,
        }
    }

    fn missing(&self) -> Failure {
        let kind = match self.kind {
            Kind::Run => "run_not_found",
            Kind::Agent | Kind::System => "stream_not_found",
        };
        Failure::from(Error::not_found(format!("No stream {}.", self.name))).kind(kind)
    }
}

/// 410: before what is kept.
fn gone(error: Error) -> Failure {
    Failure::from(Error {
        at: Some("?offset".to_owned()),
        ..error
    })
    .status(StatusCode::GONE)
}

/// What a reader asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reading {
    pub(crate) offset: Offset,
    pub(crate) tail: Option<u64>,
    mode: Mode,
    cursor: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    CatchUp,
    LongPoll,
    Sse,
}

impl Reading {
    /// Checks in the order of the contract: two offsets, two tails, tail, live without offset, live, offset.
    pub(crate) fn of(query: &Query) -> Result<Reading, Error> {
        Reading::with_defaults(query, None, None)
    }

    /// Of the stream of changes: from now on, and always live.
    pub(crate) fn of_changes(query: &Query) -> Result<Reading, Error> {
        Reading::with_defaults(query, Some("now"), Some("sse"))
    }

    fn with_defaults(query: &Query, offset: Option<&str>, live: Option<&str>) -> Result<Reading, Error> {
        let offset = query.one("offset")?.or(offset);
        let tail = query.one("tail")?;
        let tail = tail.map(|tail| parse_tail(tail, offset)).transpose()?;
        let live = query.one("live")?.or(live);
        if live.is_some() && offset.is_none() {
            return Err(Error::invalid("?offset", "live needs an offset"));
        }
        let mode = match live {
            None => Mode::CatchUp,
            Some("long-poll") => Mode::LongPoll,
            Some("sse") => Mode::Sse,
            Some(other) => {
                return Err(Error::invalid(
                    "?live",
                    format!("live is {other:?}, it must be long-poll or sse"),
                ));
            }
        };
        let offset = match offset {
            None => Offset::Start,
            Some(text) => text
                .parse()
                .map_err(|error| Error::invalid("?offset", format!("offset {text:?}: {error}")))?,
        };
        // Opaque and ours: one that we did not issue is like none.
        let cursor = query
            .one("cursor")
            .unwrap_or_default()
            .and_then(|cursor| cursor.parse().ok());
        Ok(Reading {
            offset,
            tail,
            mode,
            cursor,
        })
    }
}

/// `[1-9][0-9]*`, and only with offset `-1`.
fn parse_tail(text: &str, offset: Option<&str>) -> Result<u64, Error> {
    let wrong = |message: &str| Error::invalid("?tail", message);
    let digits = !text.starts_with('0') && !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits {
        return Err(wrong("tail is a number from 1"));
    }
    if offset != Some("-1") {
        return Err(wrong("tail goes with offset=-1 only"));
    }
    // A number too large for any stream asks for all of it.
    Ok(text.parse().unwrap_or(u64::MAX))
}

/// GET and HEAD of an instance's stream.
pub(crate) async fn stream(gateway: Arc<Gateway>, request: Request) -> Result<Response, Failure> {
    let subject = Subject::agent(&instance(&request)?);
    read(gateway, &request, subject).await
}

/// GET and HEAD of any stream.
pub(crate) async fn read(
    gateway: Arc<Gateway>,
    request: &Request,
    subject: Subject,
) -> Result<Response, Failure> {
    let reading = Reading::of(&request.query()?)?;
    read_as(gateway, request, subject, reading).await
}

/// As `read`, of what is known to be asked for.
pub(crate) async fn read_as(
    gateway: Arc<Gateway>,
    request: &Request,
    subject: Subject,
    reading: Reading,
) -> Result<Response, Failure> {
    if request.method() == Method::HEAD {
        return head(&gateway, &subject).await;
    }
    match reading.mode {
        Mode::CatchUp => catch_up(&gateway, request, &subject, &reading).await,
        Mode::LongPoll => long_poll(&gateway, request, &subject, &reading).await,
        Mode::Sse => sse::open(gateway, request, subject, reading).await,
    }
}

/// Reads one page. Without `wait_ms` it answers at once.
pub(crate) async fn page(
    gateway: &Gateway,
    subject: &Subject,
    reading: &Reading,
    wait_ms: u64,
) -> Result<StreamPage, Failure> {
    let args = ReadStream {
        stream: subject.name.clone(),
        offset: reading.offset,
        limit: PAGE_EVENTS,
        tail: reading.tail,
        wait_ms,
        gather_ms: if wait_ms > 0 { GATHER_MS } else { 0 },
    };
    let time = CALL + std::time::Duration::from_millis(wait_ms);
    let page = gateway.store.call::<StreamsRead>(&args, time).await;
    page.map_err(|error| match error.code {
        Code::NotFound if error.at.as_deref() == Some("/offset") => gone(error),
        Code::NotFound => subject.missing(),
        _ => error.into(),
    })
}

/// The entries as one JSON array.
pub(crate) fn array(page: &StreamPage) -> Vec<u8> {
    let length = page
        .entries
        .iter()
        .map(|entry| entry.get().len() + 1)
        .sum::<usize>();
    let mut bytes = Vec::with_capacity(length + 2);
    bytes.push(b'[');
    for (index, entry) in page.entries.iter().enumerate() {
        if index > 0 {
            bytes.push(b',');
        }
        bytes.extend_from_slice(entry.get().as_bytes());
    }
    bytes.push(b']');
    bytes
}

async fn head(gateway: &Gateway, subject: &Subject) -> Result<Response, Failure> {
    let end = Reading {
        offset: Offset::Now,
        tail: None,
        mode: Mode::CatchUp,
        cursor: None,
    };
    let page = page(gateway, subject, &end, 0).await?;
    let response = place(Response::json_bytes(200, &b"[]"[..]), &page)?;
    response.text_header("etag", &etag(&subject.name, &page))
}

async fn catch_up(
    gateway: &Gateway,
    request: &Request,
    subject: &Subject,
    reading: &Reading,
) -> Result<Response, Failure> {
    let page = page(gateway, subject, reading, 0).await?;
    if reading.offset == Offset::Now {
        return place(Response::json_bytes(200, array(&page)), &page);
    }
    let etag = etag(&subject.name, &page);
    let known = request
        .headers()
        .get_all("if-none-match")
        .iter()
        .any(|given| names(given.as_bytes(), &etag));
    let response = match known {
        true => Response::empty(304),
        false => Response::json_bytes(200, array(&page)),
    };
    place(response, &page)?.text_header("etag", &etag)
}

async fn long_poll(
    gateway: &Gateway,
    request: &Request,
    subject: &Subject,
    reading: &Reading,
) -> Result<Response, Failure> {
    let _held = request.hold()?;
    let mut shutdown = request.shutdown();
    let page = tokio::select! {
        page = page(gateway, subject, reading, LONG_POLL_MS) => page?,
        () = shutdown.requested() => page(gateway, subject, reading, 0).await?,
    };
    let response = match page.entries.is_empty() {
        true => Response::empty(204),
        false => Response::json_bytes(200, array(&page)),
    };
    place(response, &page)?.text_header("stream-cursor", &next_cursor(reading.cursor)?.to_string())
}

/// Where to read on, and whether that is the end.
fn place(response: Response, page: &StreamPage) -> Result<Response, Failure> {
    let at_end = page.next == page.end;
    let response = response.text_header("stream-next-offset", &next_offset(page))?;
    let response = if at_end {
        response.text_header("stream-up-to-date", "true")?
    } else {
        response
    };
    if at_end && page.closed {
        response.text_header("stream-closed", "true")
    } else {
        Ok(response)
    }
}

/// An empty agent's stream answers `-1`.
fn next_offset(page: &StreamPage) -> String {
    Offset::end(page.next).to_string()
}

/// Strong: entries never change, so name, start, end and closure say it all.
fn etag(stream: &str, page: &StreamPage) -> String {
    let digest = Sha256::digest(stream.as_bytes());
    let mut tag = String::from("\"");
    for byte in digest.iter().take(8) {
        _ = write!(tag, "{byte:02x}");
    }
    let state = if page.closed && page.next == page.end {
        "closed"
    } else {
        "open"
    };
    _ = write!(tag, "-{}-{}-{state}\"", page.start, page.next);
    tag
}

/// Whether `If-None-Match` names this tag. A weak comparison, as RFC 9110 asks of this header.
fn names(given: &[u8], etag: &str) -> bool {
    let mut given = given.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
    given.any(|one| one == b"*" || one.strip_prefix(b"W/").unwrap_or(one) == etag.as_bytes())
}

/// The interval that now is, but always beyond what the reader has seen: so caches in between cannot loop.
pub(crate) fn next_cursor(seen: Option<u64>) -> Result<u64, Error> {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs();
    let interval = now.saturating_sub(CURSOR_EPOCH) / CURSOR_SECONDS;
    match seen {
        Some(seen) if seen >= interval => {
            let [byte] = random::<1>()?;
            Ok(seen.saturating_add(1 + u64::from(byte) * 180 / 256))
        }
        _ => Ok(interval),
    }
}

impl Reading {
    pub(crate) fn cursor(&self) -> Option<u64> {
        self.cursor
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(query: &str) -> Result<Reading, Error> {
        Reading::of(&Query::parse(query).unwrap())
    }

    #[test]
    fn parameters_are_checked_in_the_order_of_the_contract() {
        for (query, at) in [
            ("offset=1&offset=x&tail=0&tail=1", "?offset"),
            ("tail=0&tail=1&live=x", "?tail"),
            ("tail=0&live=x", "?tail"),
            ("tail=01&offset=-1", "?tail"),
            ("tail=5&offset=0_1", "?tail"),
            ("tail=5", "?tail"),
            ("live=x", "?offset"),
            ("live=x&offset=y", "?live"),
            ("live=&offset=-1", "?live"),
            ("offset=", "?offset"),
            ("offset=abc", "?offset"),
        ] {
            assert_eq!(reading(query).unwrap_err().at.as_deref(), Some(at), "{query}");
        }
        assert_eq!(reading("").unwrap().offset, Offset::Start);
        assert_eq!(reading("offset=-1&tail=5").unwrap().tail, Some(5));
        assert_eq!(
            reading("offset=now&live=sse&cursor=zzz&other=1&other=2")
                .unwrap()
                .mode,
            Mode::Sse
        );
    }

    #[test]
    fn cursors_only_go_forward() {
        let now = next_cursor(None).unwrap();
        assert_eq!(next_cursor(Some(now - 1)).unwrap(), now);
        for _ in 0..100 {
            let next = next_cursor(Some(now + 5)).unwrap();
            assert!((now + 6..=now + 5 + 180).contains(&next), "{next}");
        }
    }

    #[test]
    fn tags() {
        let page = StreamPage {
            start: 0,
            next: 2,
            end: 2,
            closed: false,
            entries: Vec::new(),
        };
        let tag = etag("a", &page);
        assert_ne!(tag, etag("b", &page));
        assert_ne!(
            tag,
            etag(
                "a",
                &StreamPage {
                    closed: true,
                    ..page.clone()
                }
            )
        );
        assert!(names(format!("\"x\", W/{tag}").as_bytes(), &tag) && names(b"*", &tag));
        assert!(!names(b"\"x\"", &tag));
    }
}
