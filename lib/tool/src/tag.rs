//! The mark by which an answer of a co-process is matched with its line.

/// Twelve characters of white space at the end of a line, which JSON ignores: a tab, ten tabs or spaces, a tab. With
/// `--lines`, a tool ends its answer with the tag of its line. A caller that shares a tool among requests can then
/// recognise an answer that is late, repeated or unsolicited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tag([u8; Tag::BYTES]);

impl Tag {
    /// The length of a tag in bytes.
    pub const BYTES: usize = 12;

    /// The tag of a number. It differs from the tags of the 1023 numbers before and after it.
    pub fn new(number: u64) -> Tag {
        let mut bytes = [b'\t'; Tag::BYTES];
        let inner = bytes.iter_mut().skip(1).take(Tag::BYTES - 2);
        for (place, byte) in inner.enumerate() {
            if number >> place & 1 == 0 {
                *byte = b' ';
            }
        }
        Tag(bytes)
    }

    /// The tag at the end of a line without its line feed.
    pub fn of(line: &[u8]) -> Option<Tag> {
        let tag = *line.last_chunk::<{ Tag::BYTES }>()?;
        let is_blank = tag.iter().all(|byte| matches!(byte, b' ' | b'\t'));
        (is_blank && tag.first() == Some(&b'\t') && tag.last() == Some(&b'\t')).then_some(Tag(tag))
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_tag_is_found_at_the_end_and_differs_from_its_neighbours() {
        let tags = (0..1024).map(|number| Tag::new(number).0);
        assert_eq!(tags.collect::<BTreeSet<_>>().len(), 1024);
        for number in [0, 1, 511, 1023, u64::MAX] {
            let tag = Tag::new(number);
            let line = [b"{}", tag.as_bytes()].concat();
            assert_eq!(Tag::of(&line), Some(tag));
        }
        for line in [&b"{}"[..], b"", b"{}            ", b"{}\t\t\t\t\t\t\t\t\t\t\t", b"\t           }"] {
            assert_eq!(Tag::of(line), None);
        }
    }
}
