//! Offsets: positions between two entries of a stream (ken-stream(5)).

use std::fmt;
use std::str::FromStr;

use serde_with::{DeserializeFromStr, SerializeDisplay};

/// A position in a stream: `-1`, `now`, or `digits_digits`. A read returns the entries strictly after it.
///
/// As text the numbers have 16 digits, so that offsets sort as text. Clients must not interpret them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, SerializeDisplay, DeserializeFromStr)]
pub enum Offset {
    /// Before the first entry: `-1`.
    Start,
    /// The end at the time of reading: `now`.
    Now,
    /// After this many entries. `0000000000000000_0000000000000003` is the position after the third entry.
    After(u64),
}

impl Offset {
    /// Returns the end of a stream of `count` entries: `-1` if it is empty.
    pub fn end(count: u64) -> Offset {
        if count == 0 { Offset::Start } else { Offset::After(count) }
    }

    /// Returns the number of entries before this offset in a stream of `count` entries. An offset beyond the end counts
    /// as the end.
    pub fn before(self, count: u64) -> u64 {
        match self {
            Offset::Start => 0,
            Offset::Now => count,
            Offset::After(entries) => entries.min(count),
        }
    }
}

impl fmt::Display for Offset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Offset::Start => f.write_str("-1"),
            Offset::Now => f.write_str("now"),
            Offset::After(entries) => write!(f, "{:016}_{entries:016}", 0),
        }
    }
}

/// The error for a text that is not an offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotAnOffset;

impl fmt::Display for NotAnOffset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an offset is -1, now, or two numbers joined by _")
    }
}

impl FromStr for Offset {
    type Err = NotAnOffset;

    fn from_str(text: &str) -> Result<Offset, NotAnOffset> {
        match text {
            "-1" => return Ok(Offset::Start),
            "now" => return Ok(Offset::Now),
            _ => {}
        }
        let (epoch, entries) = text.split_once('_').ok_or(NotAnOffset)?;
        let number = |digits: &str| -> Result<u64, NotAnOffset> {
            let plain = (1..=20).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit());
            digits.parse().ok().filter(|_| plain).ok_or(NotAnOffset)
        };
        // The only epoch is 0. An offset in a later epoch is beyond the end, and counts as the end.
        let beyond = number(epoch)? > 0;
        let entries = number(entries)?;
        Ok(Offset::After(if beyond { u64::MAX } else { entries }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms() {
        assert_eq!("-1".parse(), Ok(Offset::Start));
        assert_eq!("now".parse(), Ok(Offset::Now));
        assert_eq!("0_3".parse(), Ok(Offset::After(3)));
        assert_eq!(Offset::After(3).to_string(), "0000000000000000_0000000000000003");
        assert_eq!("1_3".parse::<Offset>().map(|offset| offset.before(7)), Ok(7));
        for bad in ["", "-2", "Now", "3", "_3", "3_", "0_-1", "0_3_4", "0_+3", "0_99999999999999999999999", " 0_3"] {
            assert_eq!(bad.parse::<Offset>(), Err(NotAnOffset), "{bad:?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn they_sort_as_text(a in 0u64..10_000_000_000_000_000, b in 0u64..10_000_000_000_000_000) {
            let order = Offset::After(a).to_string().cmp(&Offset::After(b).to_string());
            proptest::prop_assert_eq!(order, a.cmp(&b));
            proptest::prop_assert_eq!(Offset::After(a).to_string().parse(), Ok(Offset::After(a)));
        }
    }
}
