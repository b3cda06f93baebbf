//! Percent-encoding for URLs. The crate `percent-encoding` keeps malformed escapes as they are, which the contract refuses.

use std::borrow::Cow;
use std::fmt::Write;

/// Percent-encodes the characters that a path segment must not contain (RFC 3986: `pchar`).
pub fn encode_segment(text: &str) -> String {
    let mut segment = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            _ if byte.is_ascii_alphanumeric() || b"-._~:@!$&'()*+,;=".contains(&byte) => segment.push(char::from(byte)),
            // Writing to a String always succeeds.
            other => _ = write!(segment, "%{other:02X}"),
        }
    }
    segment
}

/// Percent-encodes a value in a query string. In addition to the characters that a path segment must not contain, it
/// encodes `&` and `=`, which delimit pairs, and `+`, which stands for a space.
pub fn encode_query(text: &str) -> String {
    encode_segment(text).replace('&', "%26").replace('+', "%2B").replace('=', "%3D")
}

/// Returns what follows `http://` or `https://` in an address; `None` if the text does not begin so, or has no host there.
pub fn after_http(address: &str) -> Option<&str> {
    let rest = address.strip_prefix("http://").or_else(|| address.strip_prefix("https://"))?;
    (!rest.is_empty() && !rest.starts_with('/')).then_some(rest)
}

/// Returns the host of a URL with its port, without the name and the password that can stand before it.
pub fn host_of(url: &str) -> &str {
    let host = url.split('/').nth(2).unwrap_or(url);
    host.rsplit('@').next().unwrap_or(host)
}

/// Percent-decodes a text, such as a segment of a path, once. `None`: the escapes are malformed or the result is not UTF-8.
pub fn decode(segment: &str) -> Option<Cow<'_, str>> {
    // Here and below, a loop over the bytes is faster than the searches of `str`, which take long to start.
    if !segment.bytes().any(|byte| byte == b'%') {
        return Some(Cow::Borrowed(segment));
    }
    let mut bytes = Vec::with_capacity(segment.len());
    let mut rest = segment.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        let (byte, tail) = match first {
            b'%' => escaped(tail)?,
            byte => (*byte, tail),
        };
        bytes.push(byte);
        rest = tail;
    }
    String::from_utf8(bytes).ok().map(Cow::Owned)
}

fn escaped(tail: &[u8]) -> Option<(u8, &[u8])> {
    let (digits, rest) = tail.split_at_checked(2)?;
    let mut value = 0;
    for digit in digits {
        value = value << 4 | char::from(*digit).to_digit(16)?;
    }
    Some((u8::try_from(value).ok()?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_are_encoded() {
        assert_eq!(encode_segment("schedule:01K2:01K3"), "schedule:01K2:01K3");
        assert_eq!(encode_segment("a/b c%ü?"), "a%2Fb%20c%25%C3%BC%3F");
    }

    #[test]
    fn an_address_has_a_scheme_and_a_host() {
        for (address, rest) in [
            ("http://a", Some("a")),
            ("https://a:1/b", Some("a:1/b")),
            ("localhost:4318", None),
            ("http://", None),
            ("http:///v1/traces", None),
            ("ftp://a", None),
            ("", None),
        ] {
            assert_eq!(after_http(address), rest, "{address}");
        }
    }

    #[test]
    fn values_of_a_query_are_encoded() {
        assert_eq!(encode_query("a b&c=d+e/ü?"), "a%20b%26c%3Dd%2Be%2F%C3%BC%3F");
    }

    #[test]
    fn segments_are_decoded_once() {
        assert_eq!(decode("a%2Fb%253A").as_deref(), Some("a/b%3A"));
        assert_eq!(decode("%e2%82%ac").as_deref(), Some("€"));
        for bad in ["%", "%1", "%zz", "%+1", "%ff"] {
            assert_eq!(decode(bad), None, "{bad}");
        }
    }
}
