//! Responses that the proxy sends itself, instead of those of a server.

use bytes::Bytes;
use http_body_util::{Either, Full};
use hyper::header::{HeaderValue, PROXY_AUTHENTICATE};
use hyper::{Response, StatusCode};

/// The status and the reason with which the proxy refuses a request or reports that a server cannot be reached.
pub(crate) struct Refused(pub(crate) StatusCode, pub(crate) String);

impl Refused {
    pub(crate) fn wrong(why: &str) -> Refused {
        Refused(StatusCode::BAD_REQUEST, why.to_owned())
    }

    pub(crate) fn forbidden(host: &str) -> Refused {
        let why = format!("{host} is not among the hosts that the rule of this folder names");
        Refused(StatusCode::FORBIDDEN, why)
    }

    pub(crate) fn response<B>(self) -> Response<Either<B, Full<Bytes>>> {
        let Refused(status, why) = self;
        let mut response = Response::new(Either::Right(Full::from(format!("ken-proxy: {why}\n"))));
        *response.status_mut() = status;
        if status == StatusCode::PROXY_AUTHENTICATION_REQUIRED {
            let value = HeaderValue::from_static("Basic realm=\"ken\"");
            response.headers_mut().insert(PROXY_AUTHENTICATE, value);
        }
        response
    }
}
