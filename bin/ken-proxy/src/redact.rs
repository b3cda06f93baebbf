//! Removes the key that the proxy has added to a request from the response. Some hosts repeat the headers of a request,
//! and the command must never see the key. Each byte of it becomes `*`, so that all lengths stay the same.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::header::HeaderValue;
use hyper::{HeaderMap, Response};

/// Shorter texts are not removed, because they also occur by chance.
const MIN_BYTES: usize = 4;

/// The texts to remove: the value of `Authorization`, and the secret parts of it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Secrets(Vec<Vec<u8>>);

impl Secrets {
    pub(crate) fn of(authorization: Option<&str>) -> Secrets {
        let mut found: Vec<Vec<u8>> = Vec::new();
        if let Some(value) = authorization {
            found.push(value.into());
            let token = value.split_once(' ').map_or(value, |(_, token)| token.trim());
            found.push(token.into());
            // Basic: USER:PASSWORD
            let pair = BASE64_STANDARD.decode(token).unwrap_or_default();
            let password = pair.iter().position(|byte| *byte == b':').and_then(|colon| pair.get(colon + 1..));
            found.extend(password.map(<[u8]>::to_vec));
            found.push(pair);
        }
        found.retain(|secret| secret.len() >= MIN_BYTES);
        Secrets(found)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn redact(&self, bytes: &mut [u8]) {
        for secret in &self.0 {
            let mut from = 0;
            while let Some(at) = bytes.get(from..).and_then(|rest| find(rest, secret)) {
                let end = from + at + secret.len();
                bytes.get_mut(from + at..end).unwrap_or_default().fill(b'*');
                from = end;
            }
        }
    }

    /// Returns the length of the longest end of `bytes` with which one of the texts can begin.
    fn open_end(&self, bytes: &[u8]) -> usize {
        let longest = |secret: &Vec<u8>| {
            let lengths = (1..secret.len().min(bytes.len() + 1)).rev();
            lengths.into_iter().find(|length| secret.get(..*length).is_some_and(|begin| bytes.ends_with(begin)))
        };
        self.0.iter().filter_map(longest).max().unwrap_or_default()
    }

    fn redact_headers(&self, headers: &mut HeaderMap) {
        for value in headers.values_mut() {
            let mut bytes = value.as_bytes().to_vec();
            self.redact(&mut bytes);
            if bytes != value.as_bytes()
                && let Ok(redacted) = HeaderValue::from_bytes(&bytes)
            {
                *value = redacted;
            }
        }
    }

    /// Returns the response without the texts, in its headers and in its body.
    pub(crate) fn removed_from(self, response: Response<Incoming>) -> Response<RedactedBody> {
        let (mut head, body) = response.into_parts();
        self.redact_headers(&mut head.headers);
        // The words after the status are not needed, and could contain the key too.
        head.extensions.remove::<hyper::ext::ReasonPhrase>();
        Response::from_parts(head, RedactedBody { body, secrets: self, kept: Vec::new(), trailers: None })
    }
}

fn find(bytes: &[u8], secret: &[u8]) -> Option<usize> {
    let first = secret.first()?;
    let mut from = 0;
    loop {
        let at = from + bytes.get(from..)?.iter().position(|byte| byte == first)?;
        if bytes.get(at..)?.starts_with(secret) {
            return Some(at);
        }
        from = at + 1;
    }
}

/// A body without the texts. Bytes with which one can begin are kept until the next ones arrive.
pub(crate) struct RedactedBody {
    body: Incoming,
    secrets: Secrets,
    kept: Vec<u8>,
    trailers: Option<HeaderMap>,
}

impl RedactedBody {
    /// Takes the next bytes, and returns those that can be passed on.
    fn pass(&mut self, data: Bytes) -> Bytes {
        if self.secrets.is_empty() {
            return data;
        }
        let mut bytes = std::mem::take(&mut self.kept);
        bytes.extend_from_slice(&data);
        self.secrets.redact(&mut bytes);
        self.kept = bytes.split_off(bytes.len() - self.secrets.open_end(&bytes));
        bytes.into()
    }
}

impl Body for RedactedBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        loop {
            if self.trailers.is_none() {
                match ready!(Pin::new(&mut self.body).poll_frame(context)) {
                    Some(Ok(frame)) => match frame.into_data() {
                        Ok(data) => {
                            let data = self.pass(data);
                            if data.is_empty() {
                                continue;
                            }
                            return Poll::Ready(Some(Ok(Frame::data(data))));
                        }
                        Err(frame) => self.trailers = frame.into_trailers().ok(),
                    },
                    Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                    None => {}
                }
            }
            // The end has come, so what was kept is not the beginning of one of the texts.
            if !self.kept.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(std::mem::take(&mut self.kept).into()))));
            }
            let trailers = self.trailers.take().map(|mut trailers| {
                self.secrets.redact_headers(&mut trailers);
                Ok(Frame::trailers(trailers))
            });
            return Poll::Ready(trailers);
        }
    }

    fn is_end_stream(&self) -> bool {
        self.kept.is_empty() && self.trailers.is_none() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (kept, left) = (self.kept.len() as u64, self.body.size_hint());
        let mut hint = SizeHint::new();
        if let Some(upper) = left.upper() {
            hint.set_upper(upper.saturating_add(kept));
        }
        hint.set_lower(left.lower().saturating_add(kept));
        hint
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_forms_of_a_key_are_removed_and_lengths_stay() {
        let secrets = Secrets::of(Some("Basic dXNlcjpwYXNzd29yZA=="));
        let text = "a: Basic dXNlcjpwYXNzd29yZA==, dXNlcjpwYXNzd29yZA== user:password password passwor";
        let mut bytes = text.as_bytes().to_vec();
        secrets.redact(&mut bytes);
        let shown = String::from_utf8(bytes).unwrap();
        assert_eq!(shown.len(), text.len());
        assert!(shown.starts_with("a: ***") && shown.ends_with("* passwor"), "{shown}");
        assert!(!shown.contains("dXNl") && !shown.contains("password"), "{shown}");
    }

    #[test]
    fn only_an_end_that_can_go_on_is_kept() {
        let secrets = Secrets::of(Some("Bearer ghp_abc"));
        assert_eq!(secrets.open_end(b"x Bearer ghp"), 10);
        assert_eq!(secrets.open_end(b"x ghp_ab"), 6);
        assert_eq!((secrets.open_end(b"x ghp_abd"), secrets.open_end(b"")), (0, 0));
        assert_eq!(Secrets::default().open_end(b"B"), 0);
    }
}
