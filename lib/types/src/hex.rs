//! Bytes as hexadecimal text.

/// Writes bytes in lower-case hexadecimal.
pub fn encode(bytes: &[u8]) -> String {
    let digit = |nibble: u8| char::from_digit(u32::from(nibble), 16).unwrap_or_default();
    let pairs = bytes.iter().map(|byte| [digit(byte >> 4), digit(byte & 15)]);
    pairs.flatten().collect()
}

/// Reads exactly `N` bytes of lower-case hexadecimal. Returns `None` for anything else.
pub fn decode<const N: usize>(text: &str) -> Option<[u8; N]> {
    let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    if text.len() != 2 * N || !text.as_bytes().iter().all(is_digit) {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back_and_nothing_else_is_read() {
        assert_eq!(encode(&[0, 0x0f, 0xa5, 0xff]), "000fa5ff");
        assert_eq!(decode("000fa5ff"), Some([0, 0x0f, 0xa5, 0xff]));
        for text in ["000fa5f", "000fa5ff0", "000FA5FF", "000fa5g0", "+0+0+0+0", ""] {
            assert_eq!(decode::<4>(text), None, "{text}");
        }
    }
}
