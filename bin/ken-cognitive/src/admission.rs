//! Authentication: the key of a request and its role.

use ken_audit::Record;
use ken_http::http::header::{AUTHORIZATION, HeaderMap, HeaderValue, WWW_AUTHENTICATE};
use ken_http::{Failure, Key, Request, single};
use ken_types::{Code, Error};

use crate::app::Cognitive;
use crate::keys::{Owner, Role};

/// What a route requires of its caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    /// No key.
    Nothing,
    /// A key of this role or a higher one.
    Role(Role),
    /// An admin key, unless `METRICS_PUBLIC` makes the route public.
    Scraper,
}

impl Cognitive {
    /// Returns the owner of the request's key, or `None` if the route requires no key. Fails if the key is missing,
    /// wrong, or of too low a role.
    pub(crate) async fn admit(&self, request: &Request, need: Need) -> Result<Option<Owner>, Failure> {
        let role = match need {
            Need::Nothing => return Ok(None),
            Need::Scraper if self.settings.metrics_public => return Ok(None),
            Need::Scraper => Role::Admin,
            Need::Role(role) => role,
        };
        let given = key_of(request.headers());
        let Some(owner) = given.and_then(|key| self.keys.find(key)) else {
            return Err(self.refuse(request, given.is_some()).await);
        };
        if owner.role < role {
            let message = format!("this requires a key with the role {}", name(role));
            return Err(Error::forbidden(message).into());
        }
        Ok(Some(owner))
    }

    /// Returns the failure for a wrong or missing key, and counts it for the caller's address.
    async fn refuse(&self, request: &Request, was_given: bool) -> Failure {
        self.metrics.auth_failed();
        let quota = self.wrong_keys.take(Key::of(request.peer()));
        if let Some(wait) = quota.retry_after_ms {
            self.metrics.limited("wrong_keys");
            return Error::busy("too many wrong keys from this address", wait).into();
        }
        let what = if was_given { "the key is wrong" } else { "the key is missing" };
        let record = Record::new("auth_failed", request.id(), "")
            .with("address", request.peer().to_string())
            .with("reason", if was_given { "wrong" } else { "missing" });
        // The request is refused even if the record cannot be written; that error is in the log.
        _ = self.audit.write(vec![record]).await;
        Failure::from(Error::new(Code::Unauthenticated, what))
            .at("authorization")
            .hint("Authorization: Bearer KEY, or X-API-Key: KEY")
            .header(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"))
    }
}

/// Returns the key of a request. A header that occurs twice is ignored.
fn key_of(headers: &HeaderMap) -> Option<&[u8]> {
    let bearer = single(headers, AUTHORIZATION).and_then(bearer);
    bearer.or_else(|| single(headers, "x-api-key").map(<[u8]>::trim_ascii))
}

/// Returns the token of a `Bearer` header. The case of the scheme's name is ignored (RFC 9110, section 11.1).
fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, key) = value.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| key.trim_ascii())
}

pub(crate) fn name(role: Role) -> &'static str {
    match role {
        Role::ReadOnly => "read-only",
        Role::User => "user",
        Role::Admin => "admin",
    }
}
