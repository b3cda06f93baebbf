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
pub(crate) struct Secrets(Vec<Secret>);

/// The ways in which a host can write each character of a text: as it is, and escaped for JSON, an address or HTML. A host
/// escapes some characters and leaves others, and which ones depends on its library.
#[derive(Debug, Clone)]
struct Secret(Vec<Vec<Vec<u8>>>);

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
        Secrets(found.iter().map(|secret| Secret(secret.iter().map(|byte| ways_to_write(*byte)).collect())).collect())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn redact(&self, bytes: &mut [u8]) {
        for secret in &self.0 {
            let mut from = 0;
            while let Some(begin) = bytes.get(from..).and_then(|rest| secret.next_begin(rest)).map(|at| from + at) {
                let (length, _) = bytes.get(begin..).map(|rest| secret.matched(rest)).unwrap_or_default();
                from = begin + length.unwrap_or(1);
                if length.is_some() {
                    bytes.get_mut(begin..from).unwrap_or_default().fill(b'*');
                }
            }
        }
    }

    /// Returns the length of the longest end of `bytes` with which one of the texts can begin.
    fn open_end(&self, bytes: &[u8]) -> usize {
        let longest = |secret: &Secret| {
            let mut from = bytes.len().saturating_sub(secret.max_length());
            while let Some(begin) = bytes.get(from..).and_then(|rest| secret.next_begin(rest)).map(|at| from + at) {
                if bytes.get(begin..).is_some_and(|rest| secret.matched(rest).1) {
                    return Some(bytes.len() - begin);
                }
                from = begin + 1;
            }
            None
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

impl Secret {
    fn max_length(&self) -> usize {
        self.0.iter().filter_map(|ways| ways.iter().map(Vec::len).max()).sum()
    }

    /// Returns the first position at which the text can begin.
    fn next_begin(&self, bytes: &[u8]) -> Option<usize> {
        let ways = self.0.first()?;
        bytes.iter().position(|byte| ways.iter().any(|way| way.first() == Some(byte)))
    }

    /// Returns the length of the text at the beginning of `bytes`, if it is there, and whether `bytes` ends within it.
    fn matched(&self, bytes: &[u8]) -> (Option<usize>, bool) {
        let (mut ends, mut is_open) = (vec![0], false);
        for ways in &self.0 {
            let mut next = Vec::new();
            for (end, way) in ends.iter().flat_map(|end| ways.iter().map(move |way| (*end, way))) {
                let rest = bytes.get(end..).unwrap_or_default();
                if rest.starts_with(way) {
                    next.push(end + way.len());
                } else {
                    is_open |= way.starts_with(rest);
                }
            }
            next.sort_unstable();
            next.dedup();
            ends = next;
        }
        (ends.last().copied(), is_open)
    }
}

fn ways_to_write(byte: u8) -> Vec<Vec<u8>> {
    let mut ways = vec![vec![byte]];
    if byte.is_ascii_alphanumeric() {
        return ways;
    }
    let numbers = [format!("{byte:02x}"), format!("{byte:02X}")];
    let escaped = numbers.iter().flat_map(|hex| [format!("%{hex}"), format!("\\u00{hex}"), format!("&#x{hex};")]);
    ways.extend(escaped.chain([format!("&#{byte};")]).map(String::into_bytes));
    let named: &[&str] = match byte {
        b' ' => &["+"],
        b'"' => &["&quot;", "\\\""],
        b'&' => &["&amp;"],
        b'\'' => &["&apos;"],
        b'/' => &["\\/"],
        b'<' => &["&lt;"],
        b'>' => &["&gt;"],
        b'\\' => &["\\\\"],
        _ => &[],
    };
    ways.extend(named.iter().map(|way| way.as_bytes().to_vec()));
    ways
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
    fn a_key_is_removed_however_its_characters_are_escaped() {
        let secrets = Secrets::of(Some("Bearer c2V/tok+en=="));
        for written in [
            "Bearer c2V\\/tok+en==",
            "Bearer c2V/tok+en\\u003d\\u003D",
            "Bearer+c2V%2Ftok%2ben%3D=",
            "Bearer%20c2V/tok%2Ben==",
            "Bearer c2V/tok&#43;en&#x3D;&#x3d;",
        ] {
            let text = format!("<{written}>");
            for cut in 0..text.len() {
                // In two pieces, as the body passes them on.
                let (first, second) = text.split_at(cut);
                let mut first = first.as_bytes().to_vec();
                secrets.redact(&mut first);
                let kept = first.split_off(first.len() - secrets.open_end(&first));
                let mut rest = [&kept, second.as_bytes()].concat();
                secrets.redact(&mut rest);
                let shown = String::from_utf8([first, rest].concat()).unwrap();
                assert_eq!(shown.len(), text.len());
                assert!(!shown.contains("tok") && !shown.contains("c2V") && shown.starts_with('<'), "{cut}: {shown}");
            }
        }
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
