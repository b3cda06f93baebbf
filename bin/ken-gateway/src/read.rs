//! Reading a stream, in its three modes. The same reader serves every kind of stream: those of agents, those of runs,
//! and those of other programs below /streams.

use std::fmt::Write;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use ken_http::http::{HeaderValue, Method, StatusCode};
use ken_http::{Failure, Query, Request, Response};
use ken_types::id::random;
use ken_types::limits::{LONG_POLL_MS, PAGE_EVENTS};
use ken_types::ops::store::{ReadStream, StreamPage, StreamsRead};
use ken_types::ops::streams::{Lifetime, media_type};
use ken_types::{Code, Error, Offset};
use sha2::{Digest, Sha256};
use tokio::time::{Instant, sleep};

use crate::agents::instance;
use crate::gateway::{CALL, Gateway};
use crate::sse;

/// How long a long poll gathers from its first event on.
const GATHER_MS: u64 = 20;
/// Between tries while the store restarts.
pub(crate) const PAUSE: Duration = Duration::from_millis(20);
/// Cursors count intervals of so many seconds from 2024-10-09T00:00:00Z.
const CURSOR_SECONDS: u64 = 20;
const CURSOR_EPOCH: u64 = 1_728_432_000;

/// A stream that a route serves.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Subject {
    /// Its name in the store.
    pub(crate) name: String,
    pub(crate) kind: Kind,
}

/// Where streams of different kinds differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    Agent,
    Run,
    /// The stream of changes.
    System,
    /// Below /streams.
    Public,
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

    /// A read of this stream from a place on.
    pub(crate) fn from(&self, offset: Offset) -> ReadStream {
        ReadStream {
            stream: self.name.clone(),
            offset,
            limit: match self.kind {
                // Many clients read one page only, so it is as large as its bytes allow.
                Kind::Public => u32::MAX,
                Kind::Agent | Kind::Run | Kind::System => PAGE_EVENTS,
            },
            ..ReadStream::default()
        }
    }

    fn missing(&self) -> Failure {
        let kind = match self.kind {
            Kind::Run => "run_not_found",
            Kind::Agent | Kind::System | Kind::Public => "stream_not_found",
        };
        Failure::from(Error::not_found(format!("No stream {}.", self.name))).kind(kind)
    }

    /// 410: deleted while forks live.
    pub(crate) fn gone(error: Error) -> Failure {
        Failure::from(error).status(StatusCode::GONE).kind("stream_gone")
    }

    /// 410: before what is kept.
    fn too_old(error: Error) -> Failure {
        Subject::gone(error).at("?offset")
    }
}

impl Kind {
    /// After so many entries: an empty stream below /streams answers the all-zero form, any other one `-1`.
    pub(crate) fn place(self, entries: u64) -> Offset {
        match self {
            Kind::Agent | Kind::Run | Kind::System => Offset::end(entries),
            Kind::Public => Offset::After(entries),
        }
    }
}

/// What the entries of a stream are, and so how they are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// JSON values; as an array.
    Json,
    /// As lines, where there are lines.
    Text,
    /// As base64, where there is only text.
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
        // Clients send it on every follow-up request, so elsewhere than at the start it is ignored.
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

/// `[1-9][0-9]*`
fn parse_tail(text: &str) -> Result<u64, Error> {
    let digits = !text.starts_with('0') && !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits {
        return Err(Error::invalid("?tail", "tail is a number from 1"));
    }
    // A number too large for any stream asks for all of it.
    Ok(text.parse().unwrap_or(u64::MAX))
}

impl Reading {
    /// The first read of this reader.
    pub(crate) fn first(&self, subject: &Subject) -> ReadStream {
        ReadStream {
            tail: self.tail,
            touch: true,
            ..subject.from(self.offset)
        }
    }

    /// Goes on after the last event that the client has seen, if that is an offset as this server sends them.
    fn resumed_after(self, last_event: Option<&str>) -> Reading {
        match last_event.map(str::parse) {
            Some(Ok(offset @ Offset::After(_))) => Reading {
                offset,
                tail: None,
                ..self
            },
            _ => self,
        }
    }

    pub(crate) fn cursor(&self) -> Option<u64> {
        self.cursor
    }
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
        Mode::Sse => {
            let reading = reading.resumed_after(request.header("last-event-id"));
            sse::open(gateway, request, subject, reading).await
        }
    }
}

/// Reads one page.
pub(crate) async fn page(
    gateway: &Gateway,
    subject: &Subject,
    args: &ReadStream,
) -> Result<StreamPage, Failure> {
    let time = CALL + Duration::from_millis(args.wait_ms);
    let page = gateway.store.call::<StreamsRead>(args, time).await;
    page.map_err(|error| match error.code {
        Code::NotFound if error.at.as_deref() == Some("/offset") => Subject::too_old(error),
        Code::NotFound => subject.missing(),
        Code::Conflict => Subject::gone(error),
        _ => error.into(),
    })
}

/// The entries as one JSON array, or their bytes joined.
pub(crate) fn body(page: &mut StreamPage) -> Bytes {
    let bytes = page.public.as_mut().and_then(|public| public.bytes.take());
    match bytes {
        Some(bytes) => bytes.0.into(),
        None => array(page).into(),
    }
}

fn array(page: &StreamPage) -> Vec<u8> {
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

/// 200 with a page as its body.
fn found(mut page: StreamPage) -> Result<Response, Failure> {
    let bytes = body(&mut page);
    let Some(public) = page.public else {
        return Ok(Response::json_bytes(200, bytes));
    };
    let response = Response::bytes(200, header_value(&public.content_type)?, bytes);
    match is_inert(&public.content_type) {
        true => Ok(response),
        // What any program has put there is not run with the rights of this server's own pages.
        false => response
            .text_header("content-security-policy", "sandbox")?
            .text_header("content-disposition", "attachment"),
    }
}

/// Whether a browser only shows, plays or stores what has this type. Of others it may run scripts.
fn is_inert(content_type: &str) -> bool {
    let media_type = media_type(content_type);
    let (kind, subtype) = media_type.split_once('/').unwrap_or_default();
    match kind {
        "audio" | "video" => true,
        "image" => subtype != "svg+xml",
        "text" => matches!(subtype, "plain" | "csv" | "markdown"),
        "application" => subtype == "octet-stream" || subtype == "json" || subtype.ends_with("+json"),
        _ => false,
    }
}

/// The value of a header that came in one.
pub(crate) fn header_value(text: &str) -> Result<HeaderValue, Failure> {
    HeaderValue::from_str(text)
        .map_err(|_| Error::internal("a content type that cannot stand in a header").into())
}

async fn head(gateway: &Gateway, subject: &Subject) -> Result<Response, Failure> {
    let page = page(gateway, subject, &subject.from(Offset::Now)).await?;
    let place = Place::of(subject, &page);
    let lifetime = page.public.as_ref().and_then(|public| public.lifetime);
    let etag = etag(subject, &page);
    let response = place.put(found(page)?)?.text_header("etag", &etag)?;
    match lifetime {
        None => Ok(response),
        Some(Lifetime::Ttl(seconds)) => response.text_header("stream-ttl", &seconds.to_string()),
        Some(Lifetime::ExpiresAt(at)) => response.text_header("stream-expires-at", &at.to_string()),
    }
}

async fn catch_up(
    gateway: &Gateway,
    request: &Request,
    subject: &Subject,
    reading: &Reading,
) -> Result<Response, Failure> {
    let page = page(gateway, subject, &reading.first(subject)).await?;
    let place = Place::of(subject, &page);
    if reading.offset == Offset::Now {
        return place.put(found(page)?);
    }
    let etag = etag(subject, &page);
    let known = request
        .headers()
        .get_all("if-none-match")
        .iter()
        .any(|given| names(given.as_bytes(), &etag));
    let response = match known {
        true => Response::empty(304),
        false => found(page)?,
    };
    place.put(response)?.text_header("etag", &etag)
}

async fn long_poll(
    gateway: &Gateway,
    request: &Request,
    subject: &Subject,
    reading: &Reading,
) -> Result<Response, Failure> {
    let _held = request.hold()?;
    let mut shutdown = request.shutdown();
    let mut page = page(gateway, subject, &reading.first(subject)).await?;
    if page.is_empty() && !page.closed {
        tokio::select! {
            waited = wait(gateway, subject, &page) => page = waited?.unwrap_or(page),
            () = shutdown.requested() => {}
        }
    }
    let place = Place::of(subject, &page);
    let response = match page.is_empty() {
        true => Response::empty(204),
        false => found(page)?,
    };
    place
        .put(response)?
        .text_header("stream-cursor", &next_cursor(reading.cursor)?.to_string())
}

/// Waits for what comes after a page. A store that restarts meanwhile, however often, only makes it come later.
async fn wait(
    gateway: &Gateway,
    subject: &Subject,
    after: &StreamPage,
) -> Result<Option<StreamPage>, Failure> {
    let until = Instant::now() + Duration::from_millis(LONG_POLL_MS);
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let args = ReadStream {
            id: Some(after.id),
            wait_ms: u64::try_from(left.as_millis()).unwrap_or(LONG_POLL_MS),
            gather_ms: GATHER_MS,
            ..subject.from(Offset::After(after.next))
        };
        match page(gateway, subject, &args).await {
            Err(_) if left.is_zero() => return Ok(None),
            Err(error) if error.error().code == Code::Unavailable => sleep(PAUSE).await,
            answered => return answered.map(Some),
        }
    }
}

/// Where to read on, and whether that is the end.
struct Place {
    next: Offset,
    at_end: bool,
    closed: bool,
}

impl Place {
    fn of(subject: &Subject, page: &StreamPage) -> Place {
        Place {
            next: subject.kind.place(page.next),
            at_end: page.at_end(),
            closed: page.closed && page.at_end(),
        }
    }

    fn put(&self, response: Response) -> Result<Response, Failure> {
        let mut response = response.text_header("stream-next-offset", &self.next.to_string())?;
        if self.at_end {
            response = response.text_header("stream-up-to-date", "true")?;
        }
        if self.closed {
            response = response.text_header("stream-closed", "true")?;
        }
        Ok(response)
    }
}

/// Strong: entries never change, so stream, start, end and closure say it all.
fn etag(subject: &Subject, page: &StreamPage) -> String {
    let digest = Sha256::digest(subject.name.as_bytes());
    let mut tag = String::from("\"");
    for byte in digest.iter().take(8) {
        _ = write!(tag, "{byte:02x}");
    }
    let state = if page.closed && page.next == page.end {
        "closed"
    } else {
        "open"
    };
    _ = write!(tag, "-{}-{}-{}-{state}\"", page.id, page.start, page.next);
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
            ("tail=x&offset=0_1", "?tail"),
            ("live=x", "?offset"),
            ("live=x&offset=y", "?live"),
            ("live=&offset=-1", "?live"),
            ("offset=", "?offset"),
            ("offset=abc", "?offset"),
        ] {
            assert_eq!(reading(query).unwrap_err().at.as_deref(), Some(at), "{query}");
        }
        assert_eq!(reading("").unwrap().offset, Offset::Start);
        for (query, tail) in [
            ("offset=-1&tail=5", Some(5)),
            ("tail=5", Some(5)),
            ("tail=99999999999999999999", Some(u64::MAX)),
            ("offset=now&tail=5", None),
            ("offset=0_7&tail=5", None),
        ] {
            assert_eq!(reading(query).unwrap().tail, tail, "{query}");
        }
        assert_eq!(
            reading("offset=now&live=sse&cursor=zzz&other=1&other=2")
                .unwrap()
                .mode,
            Mode::Sse
        );
    }

    #[test]
    fn the_last_event_wins_over_the_offset_if_it_is_one_of_ours() {
        let reading = reading("offset=0_7&live=sse").unwrap();
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

    #[test]
    fn types_that_a_browser_would_run() {
        for runs in [
            "text/html; charset=utf-8",
            "TEXT/HTML",
            "application/xhtml+xml",
            "image/svg+xml",
            "text/xml",
            "application/pdf",
            "text/javascript",
            "multipart/x-mixed-replace",
        ] {
            assert!(!is_inert(runs), "{runs}");
        }
        for inert in [
            "application/json",
            "application/problem+json",
            "text/plain;charset=utf-8",
            "image/png",
            "application/octet-stream",
        ] {
            assert!(is_inert(inert), "{inert}");
        }
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
            next: 2,
            end: 2,
            id: 1,
            ..StreamPage::default()
        };
        let subject = Subject::agent("a");
        let tag = etag(&subject, &page);
        assert_ne!(tag, etag(&Subject::agent("b"), &page));
        let (closed, later) = (true, 2);
        assert_ne!(
            tag,
            etag(
                &subject,
                &StreamPage {
                    closed,
                    ..page.clone()
                }
            )
        );
        assert_ne!(
            tag,
            etag(
                &subject,
                &StreamPage {
                    id: later,
                    ..page.clone()
                }
            )
        );
        assert!(names(format!("\"x\", W/{tag}").as_bytes(), &tag) && names(b"*", &tag));
        assert!(!names(b"\"x\"", &tag));
    }
}
