//! Arithmetic over the weights, written once over sixteen lanes and compiled three times.
//!
//! Every product, sum and rounding happens in the same order on each path (fused multiply-add is one rounding
//! everywhere, sums over lanes go by one fixed tree, int8 products are exact), so a machine with AVX-512, one with AVX2
//! and one with neither give the same bits. That is what makes equal input give equal bytes on every machine.

#[macro_use]
mod lanes;
mod kernels;

pub use kernels::{BLOCK, CHUNKS, GROUP, quantise_group};
pub use lanes::{Float, Isa};

kernels! {
    /// Adds `x[r] * rows[r][c]` to each column's sum, rows in order.
    fn stream(rows: &[Float], x: &[f32], into: &mut [f32]);
    /// Some columns of a matrix for many tokens.
    fn multiply(tile: &kernels::Tile<'_>, into: &mut [f32]);
    /// The dot product of `x` with each row of `weights`.
    fn row_dots(weights: &[Float], x: &[f32], into: &mut [f32]);
    /// The dot product of each quantised token with each row of quantised weights.
    fn byte_dots(rows: &kernels::ByteRows<'_>, tokens: &[kernels::ByteToken], into: &mut [&mut [f32]]);
    /// Rounds one token to int8 by groups of 64.
    fn quantise(x: &[f32], into: &mut kernels::ByteToken);
    /// `x / (1 + exp(-2u))` with `u = sqrt(2/pi) (x + 0.044715 x^3)`: GELU by its tanh form (Hendrycks and Gimpel 2016).
    fn gelu(x: &mut [f32]);
    /// Mean 0 and variance 1 over the row, then scale and shift.
    fn normalise(x: &[f32], norm: &kernels::Norm<'_>, into: &mut [f32]);
    /// Softmax-weighted sum of the values for one head of one query.
    fn attend(head: &kernels::Head<'_>, scores: &mut Vec<f32>, into: &mut [f32]);
    /// `into += x`.
    fn add(x: &[f32], into: &mut [f32]);
    /// `into += x`, where `x` lies in a weights file.
    fn add_weights(x: &[Float], into: &mut [f32]);
    /// The largest of each block of numbers.
    fn maxima(x: &[f32], into: &mut Vec<f32>);
    /// Whether all are finite.
    fn are_finite(x: &[f32], into: &mut bool);
    /// `exp(x - shift)` in place.
    fn exp_from(x: &mut [f32], shift: f32);
}

pub use kernels::{ByteRows, ByteToken, Head, Norm, Tile};

#[cfg(test)]
mod tests;
