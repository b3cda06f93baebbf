//! Numbers: two spellings of one value are one number.

use crate::token::{CLOCK, YEAR};
use crate::word;

/// A number as it is being read: two spellings of one value have one hash.
#[derive(Default)]
pub(crate) struct Digits {
    /// The digits without leading zeros, and without trailing ones after the point, as a hash.
    state: u64,
    /// The whole part; saturates.
    value: u64,
    /// Zeros after the point that a further digit would make count.
    zeros: u32,
    count: u32,
    /// Whether a minus sign stands before it.
    negative: bool,
    point: bool,
    fraction: bool,
    comma: bool,
    pub(crate) clock: bool,
}

impl Digits {
    pub(crate) fn after_sign(negative: bool) -> Digits {
        Digits {
            negative,
            ..Digits::default()
        }
    }

    pub(crate) fn push(&mut self, byte: u8) {
        self.count += 1;
        if self.point {
            return self.push_fraction(byte);
        }
        self.value = self
            .value
            .saturating_mul(10)
            .saturating_add(u64::from(byte - b'0'));
        if byte != b'0' || self.state != 0 {
            self.state = word::step(self.state, byte);
        }
    }

    fn push_fraction(&mut self, byte: u8) {
        if byte == b'0' {
            self.zeros += 1;
            return;
        }
        if !self.fraction {
            self.fraction = true;
            self.state = word::step(self.state, b'.');
        }
        self.flush_zeros();
        self.state = word::step(self.state, byte);
    }

    fn flush_zeros(&mut self) {
        for _ in 0..std::mem::take(&mut self.zeros) {
            self.state = word::step(self.state, b'0');
        }
    }

    pub(crate) fn mark(&mut self, byte: u8) {
        match byte {
            b',' => self.comma = true,
            b'.' if !self.point => self.point = true,
            // A time of day, or the second point of a version.
            _ => {
                self.fraction |= byte == b'.';
                self.clock |= byte == b':';
                self.flush_zeros();
                self.state = word::step(self.state, byte);
            }
        }
    }

    fn is_whole(&self) -> bool {
        !self.fraction && !self.clock
    }

    pub(crate) fn hash(&self) -> u64 {
        let is_zero = self.state == 0;
        if self.negative && !is_zero {
            !self.size()
        } else {
            self.size()
        }
    }

    /// The hash without the sign. A whole number hashes as its digits, so that a phrase can name it.
    fn size(&self) -> u64 {
        if !self.is_whole() || self.value > 9_999_999_999 {
            return word::finish(self.state);
        }
        let (mut digits, mut rest) = (0, self.value);
        loop {
            digits = digits << 8 | u128::from(b'0' + (rest % 10) as u8);
            rest /= 10;
            if rest == 0 {
                return word::hash_of(digits);
            }
        }
    }

    pub(crate) fn small(&self) -> u16 {
        if self.is_whole() && !self.negative {
            u16::try_from(self.value).unwrap_or(u16::MAX)
        } else {
            0
        }
    }

    pub(crate) fn marks(&self) -> u32 {
        let year = self.is_whole()
            && !self.negative
            && !self.point
            && !self.comma
            && self.count == 4
            && (1000..=2100).contains(&self.value);
        (u32::from(self.clock) * CLOCK) | (u32::from(year) * YEAR)
    }
}
