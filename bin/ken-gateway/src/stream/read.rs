//! Reads a stream in one of three modes: a page, a long poll, or server-sent events. The same code serves the streams
//! of agents, of runs, of the system, and those of other programs below `/streams`.

use std::sync::Arc;
use std::time::Duration;

use ken_http::http::Method;
use ken_http::{Failure, Request, Response, header_value};
use ken_types::limits::LONG_POLL_MS;
use ken_types::ops::store::{ReadStream, StreamPage};
use ken_types::ops::streams::{Lifetime, media_type};
use ken_types::{Code, Offset, hex};
use sha2::{Digest, Sha256};
use tokio::time::{Instant, sleep};

use super::cursor::next_cursor;
use super::frame::Position;
use super::page::{PAUSE, body, page};
use super::reading::{Mode, Reading};
use super::sse;
use super::subject::Subject;
use crate::app::Gateway;

/// How long a long poll collects further events after its first one, in milliseconds.
const GATHER_MS: u64 = 20;

/// GET /api/events: the changes in the system. Without parameters, only new ones are sent, as server-sent events.
pub(crate) async fn system_events(gateway: Arc<Gateway>, request: Request) -> Result<Response, Failure> {
    let reading = Reading::of_changes(&request.query()?)?;
    read_as(gateway, &request, Subject::system(), reading).await
}

/// GET and HEAD of any stream.
pub(crate) async fn read(gateway: Arc<Gateway>, request: &Request, subject: Subject) -> Result<Response, Failure> {
    let reading = Reading::of(&request.query()?)?;
    read_as(gateway, request, subject, reading).await
}

/// Like [`read`], with parameters that have been parsed already.
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

/// Returns a response 200 with a page as its body.
fn found(mut page: StreamPage) -> Result<Response, Failure> {
    let bytes = body(&mut page);
    let Some(public) = page.public else {
        return Ok(Response::json_bytes(200, bytes));
    };
    let response = Response::bytes(200, header_value(&public.content_type)?, bytes);
    if is_inert(&public.content_type) {
        Ok(response)
    } else {
        // A page that another program has stored must not run scripts with the rights of this server's origin.
        response.text_header("content-security-policy", "sandbox")?.text_header("content-disposition", "attachment")
    }
}

/// Whether browsers only show, play or store content of this type. In content of other types they may run scripts.
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

async fn head(gateway: &Gateway, subject: &Subject) -> Result<Response, Failure> {
    let page = page(&gateway.store, subject, &subject.read_from(Offset::Now)).await?;
    let end = Position::after(&page);
    let lifetime = page.public.as_ref().and_then(|public| public.lifetime);
    let etag = etag(subject, &page);
    let response = end.put(subject.kind, found(page)?)?.text_header("etag", &etag)?;
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
    let page = page(&gateway.store, subject, &reading.first(subject)).await?;
    let end = Position::after(&page);
    if reading.offset == Offset::Now {
        return end.put(subject.kind, found(page)?);
    }
    let etag = etag(subject, &page);
    let response = if request.knows(&etag) { Response::empty(304) } else { found(page)? };
    end.put(subject.kind, response)?.text_header("etag", &etag)
}

async fn long_poll(
    gateway: &Gateway,
    request: &Request,
    subject: &Subject,
    reading: &Reading,
) -> Result<Response, Failure> {
    let _held = request.hold()?;
    let mut shutdown = request.shutdown();
    let mut page = page(&gateway.store, subject, &reading.first(subject)).await?;
    if page.is_empty() && !page.closed {
        tokio::select! {
            waited = wait(gateway, subject, &page) => page = waited?.unwrap_or(page),
            () = shutdown.requested() => {}
        }
    }
    let end = Position::after(&page);
    let response = if page.is_empty() { Response::empty(204) } else { found(page)? };
    end.put(subject.kind, response)?.text_header("stream-cursor", &next_cursor(reading.cursor)?.to_string())
}

/// Waits for entries after a page, even while the store restarts. Returns `None` if none arrive in time.
async fn wait(gateway: &Gateway, subject: &Subject, after: &StreamPage) -> Result<Option<StreamPage>, Failure> {
    let until = Instant::now() + Duration::from_millis(LONG_POLL_MS);
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let args = ReadStream {
            id: Some(after.id),
            wait_ms: u64::try_from(left.as_millis()).unwrap_or(LONG_POLL_MS),
            gather_ms: GATHER_MS,
            ..subject.read_from(Offset::After(after.next))
        };
        match page(&gateway.store, subject, &args).await {
            Err(_) if left.is_zero() => return Ok(None),
            Err(error) if error.error().code == Code::Unavailable => sleep(PAUSE).await,
            answered => return answered.map(Some),
        }
    }
}

/// Returns a strong entity tag. Entries never change, so a page is identified by stream, start, end and closure.
fn etag(subject: &Subject, page: &StreamPage) -> String {
    let digest = Sha256::digest(subject.name.as_bytes());
    let name = hex::encode(digest.get(..8).unwrap_or_default());
    let state = if page.closed && page.next == page.end { "closed" } else { "open" };
    format!("\"{name}-{}-{}-{}-{state}\"", page.id, page.start, page.next)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_that_a_browser_would_execute() {
        for runs in [
            "text/html; charset=utf-8", "TEXT/HTML", "application/xhtml+xml", "image/svg+xml", "text/xml",
            "application/pdf", "text/javascript", "multipart/x-mixed-replace",
        ] {
            assert!(!is_inert(runs), "{runs}");
        }
        for inert in [
            "application/json", "application/problem+json", "text/plain;charset=utf-8", "image/png",
            "application/octet-stream",
        ] {
            assert!(is_inert(inert), "{inert}");
        }
    }
}
