//! Decodes a body with the encoding that its header, its byte order mark or its first kilobyte declares.

use encoding_rs::{Encoding, UTF_8};

/// How many bytes are searched for a `meta` element (HTML, "prescan a byte stream").
const PRESCAN: usize = 1024;

/// Decodes a body. Bytes that are invalid in the encoding become U+FFFD.
pub(crate) fn decode(body: &[u8], content_type: Option<&str>) -> String {
    let named = content_type.and_then(charset_of).or_else(|| meta(body));
    let encoding = named.unwrap_or(UTF_8);
    // A byte order mark takes precedence over both declarations.
    encoding.decode(body).0.into_owned()
}

fn charset_of(text: &str) -> Option<&'static Encoding> {
    let lower = text.to_ascii_lowercase();
    let rest = lower.get(lower.find("charset")? + "charset".len()..)?;
    let value = rest.trim_start().strip_prefix('=')?.trim_start();
    let value = value.trim_start_matches(['"', '\'']);
    let end = value.find(|c: char| c.is_whitespace() || "\"';>/".contains(c));
    Encoding::for_label(value.get(..end.unwrap_or(value.len()))?.as_bytes())
}

fn meta(body: &[u8]) -> Option<&'static Encoding> {
    let head = body.get(..body.len().min(PRESCAN))?;
    let head = String::from_utf8_lossy(head).to_ascii_lowercase();
    let encoding = head.split("<meta").skip(1).find_map(charset_of)?;
    // If the declaration could be read as ASCII, the body is not UTF-16, even if it declares that.
    Some(if encoding.is_ascii_compatible() { encoding } else { UTF_8 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_then_meta_then_utf_8() {
        assert_eq!(decode(b"caf\xe9", Some("text/html; charset=\"ISO-8859-1\"")), "café");
        assert_eq!(decode(b"<meta charset='windows-1251'>\xcf", None), "<meta charset='windows-1251'>П");
        let old = b"<meta http-equiv=Content-Type content='text/html; charset=shift_jis'>\x83\x65";
        assert!(decode(old, Some("text/html")).ends_with('テ'));
        assert_eq!(decode("ü".as_bytes(), Some("text/html; charset=nonsense")), "ü");
        assert_eq!(decode(b"\xef\xbb\xbfx", Some("text/plain; charset=latin1")), "x");
        assert_eq!(decode(b"\xff!", None), "\u{fffd}!");
    }
}
