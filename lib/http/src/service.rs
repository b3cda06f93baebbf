//! Handles a request: the checks in their order, and the headers of every response.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::body::Incoming;
use ken_types::{Code, Error};

use crate::access::{Admission, Caller, Foreign};
use crate::body::Body;
use crate::connection::Connection;
use crate::failure::{Envelope, Failure, plain};
use crate::head::is_request_id;
use crate::listener::Listener;
use crate::rate::{Key, Limiter, Quota};
use crate::request::{Request, Response};
use crate::routes::{Area, PageHeaders, Work};

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");

/// Answers the requests of one connection.
pub(crate) struct Service<S> {
    listener: Arc<Listener<S>>,
    connection: Arc<Connection>,
}

impl<S> Service<S> {
    pub(crate) fn new(listener: Arc<Listener<S>>, connection: Arc<Connection>) -> Service<S> {
        Service { listener, connection }
    }
}

impl<S: Send + Sync + 'static> hyper::service::Service<http::Request<Incoming>> for Service<S> {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = PendingResponse<S>;

    fn call(&self, request: http::Request<Incoming>) -> PendingResponse<S> {
        let (head, body) = request.into_parts();
        let mut answer = PendingResponse {
            page: self.listener.server.access.configured_origin(&head.headers).cloned(),
            id: self.listener.request_id(&head.headers),
            listener: self.listener.clone(),
            connection: self.connection.clone(),
            envelope: plain,
            is_own_form: false,
            for_pages: None,
            quota: None,
            work: Err(None),
        };
        answer.work = self.begin(&mut answer, head, body).map_err(Some);
        answer
    }
}

/// The response to one request while it is being made.
pub(crate) struct PendingResponse<S> {
    listener: Arc<Listener<S>>,
    connection: Arc<Connection>,
    id: HeaderValue,
    envelope: Envelope,
    is_own_form: bool,
    for_pages: Option<PageHeaders>,
    /// The origin of the page that has sent the request, if it is configured.
    page: Option<HeaderValue>,
    quota: Option<Quota>,
    /// The running function of the route, or the reason why there is none.
    work: Result<Work, Option<Failure>>,
}

impl<S: Send + Sync + 'static> Service<S> {
    /// Makes the checks in the order of the contract: the request itself, shutdown, identity, rate, path, method.
    fn begin(
        &self,
        answer: &mut PendingResponse<S>,
        head: http::request::Parts,
        body: Incoming,
    ) -> Result<Work, Failure> {
        if let Some(refusal) = self.connection.take_refusal() {
            return Err(refusal);
        }
        if self.connection.resources.shutdown.is_requested() {
            return Err(Failure::from(draining()).closing().common());
        }
        let routes = &self.listener.server.routes;
        let area = routes.area_of(head.uri.path());
        answer.envelope = area.envelope;
        answer.is_own_form = area.is_own_form;
        answer.for_pages = area.for_pages;
        if answer.page.is_some() && area.for_pages.is_none() && is_preflight(&head) {
            // The browser asks before it sends the page's request, without the secret, for any path. The request itself is checked.
            let allowed = preflight(&head.headers);
            return Ok(Box::pin(async { Ok(allowed) }));
        }
        let caller = answer.admit(area, &head)?;
        let found = routes.find(&head.method, head.uri.path());
        let limiter = match &found {
            Ok((row, _)) => row.limiter(area),
            Err(_) => area.limiter.as_ref(),
        };
        if let Some(limiter) = limiter {
            answer.count(caller, limiter)?;
        }
        let (row, values) = found?;
        let request = Request {
            head,
            body,
            segments: row.segments(values),
            caller,
            id: answer.id.clone(),
            media: area.media,
            body_limit: area.body_limit,
            connection: self.connection.clone(),
        };
        Ok((row.function)(self.listener.server.state.clone(), request))
    }
}

impl<S> PendingResponse<S> {
    /// Identifies the caller.
    fn admit(&self, area: &Area, head: &http::request::Parts) -> Result<Caller, Failure> {
        let (access, peer) = (&self.listener.server.access, self.connection.peer);
        let Some(foreign) = access.foreign(peer, &head.uri, &head.headers) else {
            return Ok(Caller::Local { uid: peer.owner });
        };
        let asks_first = area.for_pages.is_some() && head.method == http::Method::OPTIONS;
        if !area.guarded || asks_first {
            return Ok(Caller::Anyone);
        }
        match access.admit(&head.headers, area.takes_bearer) {
            Admission::Right => Ok(Caller::Operator),
            Admission::Wrong => Err(self.unauthenticated(foreign)),
            Admission::NotConfigured => Err(foreign.refusal()),
        }
    }

    /// Counts a wrong secret against the caller that has sent it; nothing else is counted.
    fn unauthenticated(&self, foreign: Foreign) -> Failure {
        let quota = self.listener.server.wrong_secrets.take(Key::of(self.connection.peer.address));
        let failure = match quota.retry_after_ms {
            None => Failure::from(Error::new(Code::Unauthenticated, "the secret is wrong or missing")),
            Some(wait) => Error::busy("too many wrong secrets from this address", wait).into(),
        };
        foreign.explain(failure).common().at("x-api-secret")
    }

    fn count(&mut self, caller: Caller, limiter: &Limiter) -> Result<(), Failure> {
        let key = match caller {
            Caller::Local { .. } if !self.listener.server.limit_loopback => return Ok(()),
            Caller::Operator => Key::Secret,
            Caller::Local { .. } | Caller::Anyone => Key::of(self.connection.peer.address),
        };
        let quota = limiter.take(key);
        self.quota = Some(quota);
        match quota.retry_after_ms {
            None => Ok(()),
            Some(wait) => Err(Failure::from(Error::busy("the rate limit is reached", wait)).common()),
        }
    }

    fn finish(&self, done: Result<Response, Failure>) -> http::Response<Body> {
        let mut response = match done {
            Ok(response) => response.0,
            Err(failure) => self.failed(failure),
        };
        response.body_mut().attach(&self.connection);
        let must_close = self.connection.body_is_open() || self.connection.resources.shutdown.is_requested();
        let headers = response.headers_mut();
        headers.reserve(4);
        headers.insert(REQUEST_ID, self.id.clone());
        headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
        headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        for (name, value) in self.for_pages.into_iter().flatten() {
            headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        if let (Some(origin), None) = (&self.page, self.for_pages) {
            headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
            headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static("*"));
            headers.append(header::VARY, HeaderValue::from_static("origin"));
        }
        let policy = headers.entry(RESOURCE_POLICY);
        policy.or_insert(HeaderValue::from_static("same-origin"));
        if must_close {
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        for (name, value) in self.quota.iter().flat_map(Quota::headers) {
            headers.insert(name, value);
        }
        response
    }

    fn failed(&self, failure: Failure) -> http::Response<Body> {
        let id = self.id.to_str().unwrap_or_default();
        if failure.error().code == Code::Internal {
            tracing::error!(request = id, error = %failure.error(), "a request failed");
        }
        let status = failure.status_code();
        let (failure, envelope) = match self.listener.server.envelope {
            Some(envelope) => (failure.of_area(), envelope),
            None if self.is_own_form => (failure.of_area(), self.envelope),
            None => (failure, self.envelope),
        };
        let mut response = Response::json_bytes(status.as_u16(), failure.body(envelope, id)).0;
        if status.as_u16() == 499 {
            // The status is not registered, so the http crate has no phrase for it.
            response.extensions_mut().insert(hyper::ext::ReasonPhrase::from_static(b"Cancelled"));
        }
        let headers = response.headers_mut();
        headers.extend(failure.headers().iter().map(|(name, value)| (name.clone(), value.clone())));
        if failure.closes() {
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        if let Some(wait) = failure.error().retry_after_ms {
            headers.insert(header::RETRY_AFTER, wait.div_ceil(1_000).max(1).into());
        }
        response
    }
}

impl<S: Send + Sync + 'static> Future for PendingResponse<S> {
    type Output = Result<http::Response<Body>, Infallible>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let done = match &mut self.work {
            Ok(work) => ready!(work.as_mut().poll(cx)),
            Err(failure) => Err(failure.take().unwrap_or_else(|| draining().into())),
        };
        Poll::Ready(Ok(self.finish(done)))
    }
}

fn is_preflight(head: &http::request::Parts) -> bool {
    head.method == http::Method::OPTIONS && head.headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD)
}

/// Allows a configured page what local programs may send: every method, and the headers that it asks for. Libraries add headers of their
/// own. Cookies are not allowed: nothing here uses them.
fn preflight(asked: &HeaderMap) -> Response {
    let methods = HeaderValue::from_static("GET, HEAD, POST, PUT, PATCH, DELETE");
    let response = Response::empty(204)
        .header(header::ACCESS_CONTROL_ALLOW_METHODS, methods)
        .header(header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("600"));
    match asked.get(header::ACCESS_CONTROL_REQUEST_HEADERS) {
        Some(names) => response.header(header::ACCESS_CONTROL_ALLOW_HEADERS, names.clone()),
        None => response,
    }
}

fn draining() -> Error {
    let mut error = Error::unavailable("shutting down; no new work is taken");
    error.retry_after_ms = Some(1_000);
    error
}

impl<S> Listener<S> {
    /// The caller's own id if it is visible text of reasonable length, else a new one.
    fn request_id(&self, headers: &HeaderMap) -> HeaderValue {
        match headers.get(REQUEST_ID) {
            Some(id) if is_request_id(id.as_bytes()) => id.clone(),
            _ => self.ids.next(),
        }
    }
}
