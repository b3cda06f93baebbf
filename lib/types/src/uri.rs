//! Percent-encoding for URLs.

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_are_encoded() {
        assert_eq!(encode_segment("schedule:01K2:01K3"), "schedule:01K2:01K3");
        assert_eq!(encode_segment("a/b c%ü?"), "a%2Fb%20c%25%C3%BC%3F");
    }

    #[test]
    fn values_of_a_query_are_encoded() {
        assert_eq!(encode_query("a b&c=d+e/ü?"), "a%20b%26c%3Dd%2Be%2F%C3%BC%3F");
    }
}
