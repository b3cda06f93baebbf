//! `/streams/*path`: the public Durable Streams protocol over the streams of the store.

use std::sync::Arc;

use bytes::Bytes;
use ken_http::http::HeaderMap;
use ken_http::http::header::{HeaderName, HeaderValue};
use ken_http::{Failure, PageHeaders, Request, Response, decode, header_value};
use ken_types::limits::{PRODUCER_ID_BYTES, STREAM_PATH_BYTES, STREAM_PATH_SEGMENTS};
use ken_types::ops::streams::{
    AppendStream, Appending, CreateStream, Creation, DeleteStream, Fork, Lifetime, ListStreams, Made, Payload,
    Producer, StreamsAppend, StreamsCreate, StreamsDelete, StreamsList, is_json, messages,
};
use ken_types::{Code, Error, Octets, Offset, Timestamp};

use super::read::read as read_stream;
use super::subject::{Kind, Subject};
use crate::app::Gateway;
use crate::page;

/// The CORS headers of every response.
pub(crate) const CORS_HEADERS: PageHeaders = &[
    ("access-control-allow-origin", "*"),
    (
        "access-control-expose-headers",
        "Stream-Next-Offset, Stream-Up-To-Date, Stream-Closed, Stream-Cursor, Stream-TTL, Stream-Expires-At, \
         Stream-SSE-Data-Encoding, Producer-Epoch, Producer-Seq, Producer-Expected-Seq, Producer-Received-Seq, ETag",
    ),
    ("cross-origin-resource-policy", "cross-origin"),
];

const ALLOWED_METHODS: &str = "GET, POST, PUT, DELETE, HEAD, OPTIONS";
const ALLOWED_HEADERS: &str = "Content-Type, If-None-Match, Last-Event-ID, x-api-secret, Stream-Seq, Stream-TTL, Stream-Expires-At, \
     Stream-Closed, Stream-Forked-From, Stream-Fork-Offset, Stream-Fork-Sub-Offset, Producer-Id, Producer-Epoch, \
     Producer-Seq";

/// The longest time for which a stream can be kept unused, in seconds: 3,170 years. The end of a longer one may have no date.
const MAX_TTL: u64 = 100_000_000_000;

/// A path segment that the protocol reserves for an optional feature, which is not supported.
const RESERVED: &str = "__ds";

/// OPTIONS /streams/*path
pub(crate) async fn options(_: Arc<Gateway>, _: Request) -> Result<Response, Failure> {
    Response::empty(204)
        .text_header("access-control-allow-methods", ALLOWED_METHODS)?
        .text_header("access-control-allow-headers", ALLOWED_HEADERS)?
        .text_header("access-control-max-age", "86400")
}

/// GET /streams
pub(crate) async fn list(gateway: Arc<Gateway>, request: Request) -> Result<Response, Failure> {
    let query = request.query()?;
    let args = ListStreams {
        prefix: query.one("prefix")?.unwrap_or_default().to_owned(),
        limit: page::limit(&query, 1_000, 100)?,
        after: page::cursor(&query, "after")?,
    };
    Response::json(200, &gateway.store.call::<StreamsList>(&args).await?)
}

/// GET and HEAD /streams/*path
pub(crate) async fn read(gateway: Arc<Gateway>, request: Request) -> Result<Response, Failure> {
    let subject = Subject { name: name(request.segment("path"))?, kind: Kind::Public };
    read_stream(gateway, &request, subject).await
}

/// DELETE /streams/*path
pub(crate) async fn delete(gateway: Arc<Gateway>, request: Request) -> Result<Response, Failure> {
    let stream = name(request.segment("path"))?;
    let slot = gateway.dedup_slots.take();
    let args = DeleteStream { stream: stream.clone(), call: Some(slot.mark()) };
    let deleted = gateway.store.change::<StreamsDelete>(&args).await;
    deleted.map_err(|error| refused(error, &stream))?;
    Ok(Response::empty(204))
}

/// PUT /streams/*path
pub(crate) async fn create(gateway: Arc<Gateway>, mut request: Request) -> Result<Response, Failure> {
    let stream = name(request.segment("path"))?;
    let mut args = creation(request.headers(), stream)?;
    let body = request.body().await?;
    args.body = (!body.is_empty()).then(|| Octets(body.into()));
    let slot = gateway.dedup_slots.take();
    args.call = Some(slot.mark());
    let made = gateway.store.change::<StreamsCreate>(&args).await;
    match made.map_err(|error| refused_creation(error, &args))? {
        Creation::Made(made) => {
            let location = format!("{}{}", gateway.base_url(&request), request.path());
            existing_stream(201, &made)?.text_header("location", &location)
        }
        Creation::Known(made) => existing_stream(200, &made),
        Creation::Exists(differs) => Err(conflict("stream_exists", differs)),
    }
}

/// Reads the headers of a PUT.
fn creation(headers: &HeaderMap, stream: String) -> Result<CreateStream, Failure> {
    Ok(CreateStream {
        stream,
        content_type: text(headers, "content-type").filter(|given| is_media_type(given)).map(str::to_owned),
        lifetime: lifetime(headers)?,
        closed: closes(headers),
        fork: fork(headers)?,
        body: None,
        call: None,
    })
}

fn existing_stream(status: u16, made: &Made) -> Result<Response, Failure> {
    let response = Response::empty(status).text_header("content-type", &made.content_type)?;
    ended(response, made.end, made.closed)
}

/// Adds the headers that give the end of the stream.
fn ended(response: Response, end: u64, closed: bool) -> Result<Response, Failure> {
    let response = response.text_header("stream-next-offset", &Kind::Public.offset(end).to_string())?;
    if closed { response.text_header("stream-closed", "true") } else { Ok(response) }
}

/// POST /streams/*path
pub(crate) async fn append(gateway: Arc<Gateway>, mut request: Request) -> Result<Response, Failure> {
    let stream = name(request.segment("path"))?;
    let producer = producer(request.headers())?;
    let body = request.body().await?;
    let slot = gateway.dedup_slots.take();
    let headers = request.headers();
    let close = closes(headers);
    let content_type = text(headers, "content-type").unwrap_or_default();
    let args = AppendStream {
        payload: payload(content_type, body, close)?,
        content_type: content_type.to_owned(),
        seq: text(headers, "stream-seq").map(str::to_owned),
        producer,
        close,
        call: Some(slot.mark()),
        stream,
    };
    let appending = gateway.store.change::<StreamsAppend>(&args).await;
    answer(appending.map_err(|error| refused(error, &args.stream))?, &args)
}

/// Returns the entries to append, or `None` for an empty body that only closes the stream.
fn payload(content_type: &str, body: Bytes, close: bool) -> Result<Option<Payload>, Failure> {
    if body.is_empty() {
        return if close { Ok(None) } else { Err(Error::invalid("", "there is nothing to append").into()) };
    }
    if !is_media_type(content_type) {
        return Err(Error::invalid("content-type", "Content-Type must have the form type/subtype").into());
    }
    if !is_json(content_type) {
        return Ok(Some(Payload::Bytes(Octets(body.into()))));
    }
    match messages(&body).map_err(|error| Failure::from(error).kind("invalid_json"))? {
        none if none.is_empty() => Err(Error::invalid("", "the array contains no messages").into()),
        messages => Ok(Some(Payload::Messages(messages))),
    }
}

fn answer(appending: Appending, args: &AppendStream) -> Result<Response, Failure> {
    match appending {
        Appending::Done { end, closed } => done(args, end, closed),
        Appending::Known { end, closed, epoch, seq } => {
            let response = ended(Response::empty(204), end, closed)?;
            produced(response, epoch, seq)
        }
        Appending::Closed { end } => {
            let failure = conflict("stream_closed", format!("{} is closed", args.stream));
            let offset = Kind::Public.offset(end).to_string();
            let headers = [("stream-closed", "true"), ("stream-next-offset", &offset)];
            Err(with_headers(failure, headers)?)
        }
        Appending::OtherType { content_type } => {
            Err(conflict("stream_exists", format!("{} holds {content_type}", args.stream)).at("content-type"))
        }
        Appending::Behind { seq } => {
            let message = format!("Stream-Seq must be greater than the last one, {seq:?}");
            Err(conflict("sequence_conflict", message).at("stream-seq"))
        }
        Appending::Fenced { epoch } => {
            let error = Error::forbidden(format!("a producer with the newer epoch {epoch} has appended"));
            let failure = Failure::from(error).kind("producer_fenced");
            Err(with_headers(failure, [("producer-epoch", &epoch.to_string())])?)
        }
        Appending::Gap { expected } => {
            let received = args.producer.as_ref().map_or(0, |producer| producer.seq);
            let message = format!("the producer's next sequence is {expected}");
            let (expected, received) = (expected.to_string(), received.to_string());
            let headers = [("producer-expected-seq", expected.as_str()), ("producer-received-seq", &received)];
            Err(with_headers(conflict("sequence_conflict", message), headers)?)
        }
        Appending::BadStart => Err(Error::invalid("producer-seq", "a new epoch begins with sequence 0").into()),
    }
}

fn done(args: &AppendStream, end: u64, closed: bool) -> Result<Response, Failure> {
    match &args.producer {
        None => ended(Response::empty(204), end, closed),
        Some(producer) => {
            let status = if args.payload.is_some() { 200 } else { 204 };
            let response = ended(Response::empty(status), end, closed)?;
            produced(response, producer.epoch, producer.seq)
        }
    }
}

fn produced(response: Response, epoch: u64, seq: u64) -> Result<Response, Failure> {
    response.text_header("producer-epoch", &epoch.to_string())?.text_header("producer-seq", &seq.to_string())
}

fn with_headers<const N: usize>(failure: Failure, headers: [(&'static str, &str); N]) -> Result<Failure, Failure> {
    headers.into_iter().try_fold(failure, |failure, (name, value)| {
        Ok(failure.header(HeaderName::from_static(name), header_value(value)?))
    })
}

fn conflict(kind: &'static str, message: String) -> Failure {
    Failure::from(Error::conflict(message)).kind(kind)
}

/// Returns the response for a stream that the store does not have or has deleted.
fn refused(error: Error, stream: &str) -> Failure {
    match error.code {
        Code::NotFound => Failure::from(Error::not_found(format!("No stream {stream}."))).kind("stream_not_found"),
        Code::Conflict => Subject::gone(error),
        _ => error.into(),
    }
}

fn refused_creation(error: Error, args: &CreateStream) -> Failure {
    let source = args.fork.as_ref().map_or(&args.stream, |fork| &fork.from);
    match (error.code, error.at.as_deref()) {
        (Code::Invalid, Some("/fork/offset")) => Failure::from(error).at("stream-fork-offset"),
        (Code::Invalid, Some("/fork/sub_offset")) => Failure::from(error).at("stream-fork-sub-offset"),
        (Code::Invalid, _) => Failure::from(error).kind("invalid_json"),
        _ => refused(error, source),
    }
}

/// Returns the name of the stream for an encoded path. Each segment is decoded once. `%` and `/` within a segment are
/// encoded in the name, so two different paths never have the same name.
fn name(path: &str) -> Result<String, Failure> {
    let mut name = String::from("streams");
    for (number, segment) in path.split('/').enumerate() {
        let malformed = || Error::new(Code::Invalid, "malformed percent-encoding in the path");
        let segment = decode(segment).ok_or_else(malformed)?;
        if segment.is_empty() || segment == RESERVED || number >= STREAM_PATH_SEGMENTS {
            return Err(Error::not_found("no such path").into());
        }
        if segment.chars().any(char::is_control) {
            return Err(Error::new(Code::Invalid, "a path must not contain control characters").into());
        }
        name.push('/');
        name.push_str(&segment.replace('%', "%25").replace('/', "%2F"));
    }
    let length = name.len() - "streams/".len();
    if length > STREAM_PATH_BYTES {
        let message = format!("the path has {length} bytes, at most {STREAM_PATH_BYTES} are allowed");
        return Err(Error::new(Code::Invalid, message).into());
    }
    Ok(name)
}

/// Returns a header's value without surrounding blanks, or `None` if it is absent or empty.
fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let value = headers.get(name)?.to_str().ok()?.trim_ascii();
    (!value.is_empty()).then_some(value)
}

fn closes(headers: &HeaderMap) -> bool {
    text(headers, "stream-closed").is_some_and(|value| value.eq_ignore_ascii_case("true"))
}

/// Whether a text has the form `type/subtype`, with or without parameters.
fn is_media_type(text: &str) -> bool {
    let essence = text.split(';').next().unwrap_or_default().trim_ascii();
    let token = |part: &str| {
        let sign = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        !part.is_empty() && part.bytes().all(sign)
    };
    essence.split_once('/').is_some_and(|(first, second)| token(first) && token(second))
}

/// Parses a number of the form `0|[1-9][0-9]*`.
fn number(text: &str) -> Option<u64> {
    let plain = text == "0" || (!text.starts_with('0') && text.bytes().all(|byte| byte.is_ascii_digit()));
    text.parse().ok().filter(|_| plain)
}

fn lifetime(headers: &HeaderMap) -> Result<Option<Lifetime>, Failure> {
    let wrong = |at: &str, message: &str| Err(Error::invalid(at, message).into());
    match (headers.get("stream-ttl"), headers.get("stream-expires-at")) {
        (None, None) => Ok(None),
        (Some(_), Some(_)) => wrong("stream-ttl", "Stream-TTL and Stream-Expires-At exclude each other"),
        (Some(_), None) => match text(headers, "stream-ttl").and_then(number) {
            Some(seconds) if seconds <= MAX_TTL => Ok(Some(Lifetime::Ttl(seconds))),
            _ => wrong("stream-ttl", &format!("Stream-TTL must be a number of seconds, at most {MAX_TTL}")),
        },
        (None, Some(_)) => match text(headers, "stream-expires-at").map(Timestamp::from_rfc3339) {
            Some(Ok(at)) => Ok(Some(Lifetime::ExpiresAt(at))),
            _ => wrong("stream-expires-at", "Stream-Expires-At must be a time in RFC 3339"),
        },
    }
}

fn fork(headers: &HeaderMap) -> Result<Option<Fork>, Failure> {
    let offset = headers.get("stream-fork-offset").map(|_| text(headers, "stream-fork-offset").unwrap_or_default());
    let sub_offset = headers.get("stream-fork-sub-offset");
    let wrong = |at: &str, message: &str| Err(Error::invalid(at, message).into());
    let Some(from) = text(headers, "stream-forked-from") else {
        return match (headers.get("stream-forked-from"), offset, sub_offset) {
            (None, None, None) => Ok(None),
            (None, ..) => wrong("stream-forked-from", "Stream-Forked-From is missing: a fork needs a source"),
            _ => wrong("stream-forked-from", "Stream-Forked-From must be the path of a stream"),
        };
    };
    let sub_offset = match sub_offset.map(|_| text(headers, "stream-fork-sub-offset").and_then(number)) {
        None => 0,
        Some(Some(sub_offset)) if sub_offset == 0 || offset.is_some() => sub_offset,
        Some(found) => {
            let message = match found {
                Some(_) => "it counts from Stream-Fork-Offset, which is missing",
                None => "Stream-Fork-Sub-Offset must be a number",
            };
            return wrong("stream-fork-sub-offset", message);
        }
    };
    let Ok(offset) = offset.map(str::parse::<Offset>).transpose() else {
        return wrong("stream-fork-offset", "Stream-Fork-Offset must be an offset");
    };
    let path = from.strip_prefix("/streams/").unwrap_or(from);
    Ok(Some(Fork { from: name(path.strip_prefix('/').unwrap_or(path))?, offset, sub_offset }))
}

fn producer(headers: &HeaderMap) -> Result<Option<Producer>, Failure> {
    const NAMES: [&str; 3] = ["producer-id", "producer-epoch", "producer-seq"];
    let wrong = |at: &str, message: &str| Err(Error::invalid(at, message).into());
    let [id, epoch, seq] = NAMES.map(|name| headers.get(name).map(HeaderValue::to_str));
    let (id, epoch, seq) = match (id, epoch, seq) {
        (None, None, None) => return Ok(None),
        (Some(Ok(id)), Some(Ok(epoch)), Some(Ok(seq))) => (id, epoch, seq),
        _ => {
            return wrong("producer-id", "Producer-Id, Producer-Epoch and Producer-Seq must be sent together");
        }
    };
    if !(1..=PRODUCER_ID_BYTES).contains(&id.len()) {
        return wrong("producer-id", &format!("Producer-Id has {} bytes; it has 1 to {PRODUCER_ID_BYTES}", id.len()));
    }
    match (counter(epoch), counter(seq)) {
        (Some(epoch), Some(seq)) => Ok(Some(Producer { id: id.to_owned(), epoch, seq })),
        (None, _) => wrong("producer-epoch", "Producer-Epoch must be a number below 2^53"),
        _ => wrong("producer-seq", "Producer-Seq must be a number below 2^53"),
    }
}

/// Parses a number of digits, which must be below 2^53.
fn counter(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|number| digits && *number < 1 << 53)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_stream_has_one_name() {
        assert_eq!(name("a/b%20c").unwrap(), "streams/a/b c");
        assert_eq!(name("a%2fb").unwrap(), name("a%2Fb").unwrap());
        assert_ne!(name("a%2Fb").unwrap(), name("a/b").unwrap());
        assert_ne!(name("a%252Fb").unwrap(), name("a%2Fb").unwrap());
        for (path, status) in [
            ("a/__ds/b", 404),
            ("a//b", 404),
            ("1/2/3/4/5/6/7/8/9", 404),
            ("%zz", 400),
            ("a%0ab", 400),
            (&"x".repeat(513), 400),
        ] {
            assert_eq!(name(path).unwrap_err().status_code().as_u16(), status, "{path}");
        }
        assert!(name("1/2/3/4/5/6/7/8").is_ok() && name(&"x".repeat(512)).is_ok());
    }

    #[test]
    fn numbers() {
        assert_eq!(
            ["0", "10", "", "01", "+1", "-1", "1.5", "1e3"].map(number),
            [Some(0), Some(10), None, None, None, None, None, None]
        );
        assert_eq!(counter("9007199254740991"), Some((1 << 53) - 1));
        assert_eq!(["9007199254740992", "", "1.0", "-1"].map(counter), [None; 4]);
    }

    #[test]
    fn media_types() {
        for good in ["text/plain", "application/json; charset=utf-8", "a/b"] {
            assert!(is_media_type(good), "{good}");
        }
        for bad in ["", "text", "/", "a/", "a b/c", ";"] {
            assert!(!is_media_type(bad), "{bad}");
        }
    }
}
