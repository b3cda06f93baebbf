//! Small sets, as the bits of a number.

/// The members of a set of at most 64, from the lowest on.
#[derive(Clone, Copy, Default)]
pub(crate) struct Bits(pub(crate) u64);

impl Iterator for Bits {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        let first = (self.0 != 0).then(|| self.0.trailing_zeros())?;
        self.0 &= self.0 - 1;
        Some(first as usize)
    }
}
