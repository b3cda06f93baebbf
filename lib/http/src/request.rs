//! The request that a route's function gets, and the response that it returns.

use std::net::IpAddr;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, HeaderName, HeaderValue, IF_NONE_MATCH};
use http::{HeaderMap, Method, StatusCode};
use http_body::Body as _;
use hyper::body::Incoming;
use ken_types::{Code, Error, json};
use serde::Serialize;
use serde_json::Value;
use tokio::sync::OwnedSemaphorePermit;

use crate::access::Caller;
use crate::body::{Body, Frames};
use crate::connection::Connection;
use crate::failure::Failure;
use crate::memory::Share;
use crate::outlet::Outlet;
use crate::path::Query;
use crate::places::caller_of;
use crate::shutdown::Shutdown;

/// One request, admitted and routed. Its body has not been read.
pub struct Request {
    pub(crate) head: http::request::Parts,
    pub(crate) body: Incoming,
    pub(crate) segments: Vec<(String, String)>,
    pub(crate) caller: Caller,
    pub(crate) id: HeaderValue,
    pub(crate) media: Media,
    pub(crate) body_limit: u64,
    pub(crate) connection: Arc<Connection>,
}

/// The types of request bodies that an area accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Media {
    /// JSON, whether or not the content type is given.
    Json,
    /// JSON; a body needs the content type.
    StrictJson,
    /// Any type; the function checks it.
    Any,
}

/// A place among the connections with long responses, returned when dropped.
#[derive(Debug)]
pub struct LongResponse(#[allow(dead_code, reason = "held, not read")] OwnedSemaphorePermit);

impl Request {
    pub fn method(&self) -> &Method {
        &self.head.method
    }

    /// The path as it was sent.
    pub fn path(&self) -> &str {
        self.head.uri.path()
    }

    /// The segment that `:name` of the row stands for, decoded; empty if the row has no such name. For `*name` it is
    /// the rest of the path as it was sent.
    pub fn segment(&self, name: &str) -> &str {
        let segment = self.segments.iter().find(|(key, _)| key == name);
        segment.map(|(_, value)| value.as_str()).unwrap_or_default()
    }

    /// The query, decoded. Malformed escapes are 400.
    pub fn query(&self) -> Result<Query, Error> {
        Query::parse(self.head.uri.query().unwrap_or_default())
    }

    pub fn headers(&self) -> &HeaderMap {
        &self.head.headers
    }

    /// A header's value. `None` if it is absent; the first one if there are several.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// Whether `If-None-Match` names this strong ETag, with its quotes. The comparison is weak, as RFC 9110 asks of this
    /// header.
    pub fn knows(&self, etag: &str) -> bool {
        let given = self.head.headers.get_all(IF_NONE_MATCH).iter();
        given.flat_map(|value| value.as_bytes().split(|byte| *byte == b',')).any(|one| {
            let one = one.trim_ascii();
            one == b"*" || one.strip_prefix(b"W/").unwrap_or(one) == etag.as_bytes()
        })
    }

    pub fn caller(&self) -> Caller {
        self.caller
    }

    pub fn peer(&self) -> IpAddr {
        self.connection.peer.address
    }

    /// The request's id, which the answer carries too: the caller's own, or a ULID.
    pub fn id(&self) -> &str {
        self.id.to_str().unwrap_or_default()
    }

    /// Signals when the listener begins to drain.
    pub fn shutdown(&self) -> Shutdown {
        self.connection.resources.shutdown.clone()
    }

    /// Takes a place among the long responses: for a stream, a long poll, or a waiting prompt. Keep it until the response
    /// ends. The failure is 429 if all places are taken.
    pub fn hold(&self) -> Result<LongResponse, Failure> {
        let permit = self.connection.resources.long_responses.clone().try_acquire_owned();
        permit.map(LongResponse).map_err(|_| {
            let message = "too many connections are held by streams and waiting requests";
            Failure::from(Error::busy(message, 1_000)).common()
        })
    }

    /// Returns when the peer has shut its write half; the future outlives the request. Such a peer may be waiting for the
    /// response, or it may have closed the connection, which only the next write shows. A stream that is silent for long
    /// therefore writes a comment then.
    pub fn half_closed(&self) -> impl Future<Output = ()> + Send + use<> {
        let connection = self.connection.clone();
        async move { connection.half_closed().await }
    }

    /// Where the frames of a streamed answer to this request will go.
    pub fn outlet(&self) -> Outlet {
        Outlet::new(self.connection.clone(), self.head.version >= http::Version::HTTP_11)
    }

    /// The announced length of the body; `None` if it comes in chunks.
    pub fn body_length(&self) -> Option<u64> {
        self.body.size_hint().exact()
    }

    /// Reads the whole body. The failure is 413 if it is too long, before a byte is read if its length is announced; 415 if the
    /// area needs another type or the body is encoded; 408 if it pauses or is too slow; 429 if bodies use up the memory for them; 400 if its framing is
    /// malformed.
    pub async fn body(&mut self) -> Result<Bytes, Failure> {
        let announced = self.body.size_hint().lower();
        if announced > 0 || !self.body.is_end_stream() {
            self.check_coding()?;
            self.check_media()?;
        }
        if announced > self.body_limit {
            return Err(self.too_large());
        }
        let mut share = self.connection.resources.body_memory.share(caller_of(self.peer()));
        share.grow_to(announced)?;
        let bytes = self.collect(&mut share).await?;
        self.connection.set_body_open(false);
        Ok(share.hold(bytes))
    }

    /// The body as a JSON value; without a body, an empty object.
    pub async fn value(&mut self) -> Result<Value, Failure> {
        let bytes = self.body().await?;
        if bytes.is_empty() {
            return Ok(Value::Object(serde_json::Map::new()));
        }
        let value = json::parse(&bytes, json::MAX_DEPTH);
        value.map_err(|error| Failure::from(error).kind("invalid_json"))
    }

    /// For a request without fields: no body, or `{}`.
    pub async fn no_fields(&mut self) -> Result<(), Failure> {
        match self.value().await? {
            Value::Object(fields) => match fields.keys().next() {
                None => Ok(()),
                Some(name) => {
                    let at = format!("/{}", json::escape_pointer(name));
                    Err(Error::invalid(at, format!("unknown field `{name}`")).into())
                }
            },
            _ => Err(Error::invalid("", "the body is not an object").into()),
        }
    }

    fn check_media(&self) -> Result<(), Failure> {
        let given = self.head.headers.get(CONTENT_TYPE);
        let is_json = |value: &HeaderValue| {
            let essence = value.as_bytes().split(|byte| *byte == b';').next().unwrap_or_default();
            essence.trim_ascii().eq_ignore_ascii_case(b"application/json")
        };
        let fits = match (self.media, given) {
            (Media::Any, _) | (Media::Json, None) => true,
            (Media::StrictJson, None) => false,
            (Media::Json | Media::StrictJson, Some(given)) => is_json(given),
        };
        if fits { Ok(()) } else { Err(Failure::media_type("the body must be application/json")) }
    }

    /// Refuses compressed bodies. Nothing here decodes them, so their bytes would be taken for JSON or stored as they are.
    fn check_coding(&self) -> Result<(), Failure> {
        let codings = self.head.headers.get_all(CONTENT_ENCODING).iter();
        let mut codings = codings.flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
        if codings.all(|coding| coding.trim_ascii().eq_ignore_ascii_case(b"identity")) {
            return Ok(());
        }
        // RFC 9110 (15.5.16) asks for this header, which says which codings are accepted.
        let failure =
            Failure::media_type("the body must not be compressed or otherwise encoded").at("content-encoding");
        Err(failure.header(ACCEPT_ENCODING, HeaderValue::from_static("identity")))
    }

    async fn collect(&mut self, share: &mut Share) -> Result<Bytes, Failure> {
        let mut first = Bytes::new();
        let mut all = BytesMut::new();
        while let Some(frame) = next_frame(&mut self.body).await {
            let frame = frame.map_err(|_| self.broken())?;
            let Ok(data) = frame.into_data() else {
                continue; // trailers
            };
            let length = first.len() + all.len() + data.len();
            if length as u64 > self.body_limit {
                return Err(self.too_large());
            }
            share.grow_to(length as u64)?;
            if first.is_empty() && all.is_empty() {
                first = data;
            } else {
                // The announced length was compared with the limit, so this is not more than the limit.
                let announced = usize::try_from(self.body.size_hint().lower()).unwrap_or_default();
                all.reserve(first.len() + data.len() + announced);
                all.extend_from_slice(&std::mem::take(&mut first));
                all.extend_from_slice(&data);
            }
        }
        Ok(if all.is_empty() { first } else { all.freeze() })
    }

    fn broken(&self) -> Failure {
        let unknown = || Failure::from(Error::new(Code::Invalid, "malformed request: the body is broken")).closing();
        self.connection.take_fault().unwrap_or_else(unknown)
    }

    fn too_large(&self) -> Failure {
        Error::too_large(format!("the body is larger than {} bytes", self.body_limit)).into()
    }
}

async fn next_frame(body: &mut Incoming) -> Option<Result<http_body::Frame<Bytes>, hyper::Error>> {
    std::future::poll_fn(|cx| std::pin::Pin::new(&mut *body).poll_frame(cx)).await
}

/// Text as the value of a header. Text that is not valid in a header is a defect.
pub fn header_value(text: &str) -> Result<HeaderValue, Failure> {
    HeaderValue::from_str(text).map_err(|_| Error::internal("text that is not valid in a header").into())
}

/// An answer. The listener adds the headers that every answer has.
pub struct Response(pub(crate) http::Response<Body>);

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const EVENT_STREAM: HeaderValue = HeaderValue::from_static("text/event-stream");

impl Response {
    /// A value as JSON.
    pub fn json(status: u16, value: &impl Serialize) -> Result<Response, Failure> {
        let bytes = serde_json::to_vec(value)
            .map_err(|error| Error::internal(format!("an answer could not be written: {error}")))?;
        Ok(Response::bytes(status, JSON, bytes))
    }

    /// A response with these bytes.
    pub fn bytes(status: u16, content_type: HeaderValue, bytes: impl Into<Bytes>) -> Response {
        let mut response = Response::of(status, Body::Full(bytes.into()));
        response.0.headers_mut().insert(CONTENT_TYPE, content_type);
        response
    }

    /// A response with serialised JSON.
    pub fn json_bytes(status: u16, bytes: impl Into<Bytes>) -> Response {
        Response::bytes(status, JSON, bytes)
    }

    /// A response without a body.
    pub fn empty(status: u16) -> Response {
        Response::of(status, Body::Full(Bytes::new()))
    }

    /// Server-sent events: frames written by `produce` until it ends, and then the end of the connection.
    ///
    /// `produce` runs as a part of the response. It pauses while its reader does not read, and is dropped when the reader is gone,
    /// when the reader has read nothing for [`crate::Limits::stalled_reader`], or when the listener stops.
    pub fn events<P, W>(produce: P) -> Response
    where
        P: FnOnce(Frames) -> W,
        W: Future<Output = ()> + Send + 'static,
    {
        let mut response = Response::stream(200, EVENT_STREAM, produce);
        let headers = response.0.headers_mut();
        headers.insert(http::header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        headers.insert(http::header::CONNECTION, HeaderValue::from_static("close"));
        response
    }

    /// A body of frames of any type; otherwise like [`Response::events`].
    pub fn stream<P, W>(status: u16, content_type: HeaderValue, produce: P) -> Response
    where
        P: FnOnce(Frames) -> W,
        W: Future<Output = ()> + Send + 'static,
    {
        let mut response = Response::of(status, Body::stream(produce));
        response.0.headers_mut().insert(CONTENT_TYPE, content_type);
        response
    }

    /// Adds a header, or replaces it.
    pub fn header(mut self, name: HeaderName, value: HeaderValue) -> Response {
        self.0.headers_mut().insert(name, value);
        self
    }

    /// Adds a header whose value is text. Text that is not valid in a header is a defect.
    pub fn text_header(self, name: &'static str, value: &str) -> Result<Response, Failure> {
        Ok(self.header(HeaderName::from_static(name), header_value(value)?))
    }

    pub fn status(&self) -> StatusCode {
        self.0.status()
    }

    fn of(status: u16, body: Body) -> Response {
        let mut response = http::Response::new(body);
        // A number that is not a status is a defect of the caller.
        *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        Response(response)
    }
}
