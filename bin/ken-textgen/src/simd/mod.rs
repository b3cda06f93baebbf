//! Arithmetic over the weights, written once for sixteen lanes and compiled for three instruction sets.
//!
//! Every product, sum and rounding happens in the same order with each of them: multiply-add is fused and rounds once, sums over
//! lanes use one fixed tree, and int8 products are exact. Machines with AVX-512, with AVX2 and with neither therefore give the
//! same bits, and equal input gives equal bytes on every machine.

#[macro_use]
mod lanes;
mod kernels;

pub use kernels::{BLOCK, CHUNKS, GROUP, quantise_group};
pub use lanes::{Float, Isa};

kernels! {
    /// Adds `x[r] * rows[r][c]` to the sum of each column, in the order of the rows.
    fn stream(rows: &[Float], x: &[f32], into: &mut [f32]);
    /// Multiplies some columns of a matrix with many tokens.
    fn multiply(tile: &kernels::Tile<'_>, into: &mut [f32]);
    /// The dot product of `x` with each row of `weights`.
    fn row_dots(weights: &[Float], x: &[f32], into: &mut [f32]);
    /// The dot product of each quantised token with each row of quantised weights.
    fn byte_dots(rows: &kernels::ByteRows<'_>, tokens: &[kernels::ByteToken], into: &mut [&mut [f32]]);
    /// Rounds one token to int8 in groups of 64.
    fn quantise(x: &[f32], into: &mut kernels::ByteToken);
    /// `x / (1 + exp(-2u))` with `u = sqrt(2/pi) (x + 0.044715 x^3)`: GELU in its tanh form (Hendrycks and Gimpel 2016).
    fn gelu(x: &mut [f32]);
    /// Normalises the row to mean 0 and variance 1, then scales and shifts it.
    fn normalise(x: &[f32], norm: &kernels::Norm<'_>, into: &mut [f32]);
    /// The softmax-weighted sum of the values for one head of one query.
    fn attend(head: &kernels::Head<'_>, scores: &mut Vec<f32>, into: &mut [f32]);
    /// `into += x`.
    fn add(x: &[f32], into: &mut [f32]);
    /// `into += x`, where `x` is in a weights file.
    fn add_weights(x: &[Float], into: &mut [f32]);
    /// The largest number of each block.
    fn maxima(x: &[f32], into: &mut Vec<f32>);
    /// Whether all numbers are finite.
    fn are_finite(x: &[f32], into: &mut bool);
    /// `exp(x - shift)` in place.
    fn exp_from(x: &mut [f32], shift: f32);
}

pub use kernels::{ByteRows, ByteToken, Head, Norm, Tile};

#[cfg(test)]
mod tests;
