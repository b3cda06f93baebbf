//! The kernels, generic over the lanes. `WIDE` is the number of vectors of columns that an instruction set has registers for. It
//! changes the use of the registers, but never the order of additions.
//!
//! The callers in `product.rs` and `attention.rs` pass slices of the right size. The bounds of the loops keep all indices within
//! them, which also lets the compiler remove the checks.

#![allow(clippy::needless_range_loop)] // the index of a lane, vector or token is part of the computation
#![allow(unsafe_code)] // loads without bounds checks in the innermost loop of `multiply`

use std::ops::Range;

use super::lanes::{Float, Lanes};

/// Replaces each group of sixteen numbers with an expression of them; the remainder at the end is computed in a padded copy. This is a
/// macro because a closure would be compiled without the target features, and each operation in it would be a call.
macro_rules! map_lanes {
    ($lanes:ident, $x:expr, |$value:ident| $result:expr) => {{
        let (vectors, rest) = $x.as_chunks_mut::<16>();
        for vector in vectors {
            let $value = $lanes::load(vector);
            $result.store(vector);
        }
        if !rest.is_empty() {
            let mut padded = [0f32; 16];
            padded[..rest.len()].copy_from_slice(rest);
            let $value = $lanes::load(&padded);
            $result.store(&mut padded);
            rest.copy_from_slice(&padded[..rest.len()]);
        }
    }};
}

/// The sum over an expression of each group of sixteen numbers; the remainder at the end is padded with `$padding`.
macro_rules! sum_lanes {
    ($lanes:ident, $x:expr, $padding:expr, |$value:ident| $term:expr) => {{
        let (vectors, rest) = $x.as_chunks::<16>();
        let mut sum = $lanes::splat(0.0);
        for vector in vectors {
            let $value = $lanes::load(vector);
            sum = sum.add($term);
        }
        if !rest.is_empty() {
            let mut padded = [$padding; 16];
            padded[..rest.len()].copy_from_slice(rest);
            let $value = $lanes::load(&padded);
            sum = sum.add($term);
        }
        sum.sum()
    }};
}

/// The products over a long column are added up in this many separate sums, so that threads can share the work while the order of
/// additions is fixed.
pub const CHUNKS: usize = 16;

/// The number of logits in a block, whose maximum is computed first.
pub const BLOCK: usize = 64;

/// The number of weights or activations that share one int8 scale.
pub const GROUP: usize = 64;

/// Adds `x[r] * w[r][c]` to the sum of each column `c`, row after row. With one token the time is spent on reading the weights, and
/// reading whole rows in sequence is fastest.
#[inline(always)]
pub(super) fn stream<L: Lanes, const WIDE: usize>(rows: &[Float], x: &[f32], into: &mut [f32]) {
    for (row, x) in rows.chunks_exact(into.len()).zip(x) {
        let ((row, row_rest), (into, into_rest)) = (row.as_chunks::<16>(), into.as_chunks_mut::<16>());
        let factor = L::splat(*x);
        for (weights, sum) in row.iter().zip(into) {
            L::load_le(weights).fma(factor, L::load(sum)).store(sum);
        }
        for (weight, sum) in row_rest.iter().zip(into_rest) {
            *sum = f32::from_le_bytes(*weight).mul_add(*x, *sum);
        }
    }
}

/// Some columns of an `[in, out]` matrix and the tokens to multiply them with.
pub struct Tile<'a> {
    pub weights: &'a [Float],
    /// Length of a row of weights.
    pub width: usize,
    pub columns: Range<usize>,
    /// The tokens, one after the other, `inputs` numbers each.
    pub x: &'a [f32],
    /// Length of a token.
    pub inputs: usize,
    /// Number of rows whose products are added to each other before they are added to the sum.
    pub chunk: usize,
}

/// Multiplies the columns with all tokens, and writes the result token by token. The order of additions is that of `stream` over
/// chunks of rows.
#[inline(always)]
pub(super) fn multiply<L: Lanes, const WIDE: usize>(tile: &Tile<'_>, into: &mut [f32]) {
    let columns = tile.columns.len();
    let mut column = 0;
    while column + 16 * WIDE <= columns {
        multiply_columns::<L, WIDE>(tile, column, into);
        column += 16 * WIDE;
    }
    while column + 16 <= columns {
        multiply_columns::<L, 1>(tile, column, into);
        column += 16;
    }
    for column in column..columns {
        for (x, into) in tile.x.chunks_exact(tile.inputs).zip(into.chunks_exact_mut(columns)) {
            into[column] = column_product(tile, column, x);
        }
    }
}

#[inline(always)]
fn column_product(tile: &Tile<'_>, column: usize, x: &[f32]) -> f32 {
    let weights = tile.weights[tile.columns.start + column..].iter().step_by(tile.width);
    let mut pairs = x.iter().zip(weights);
    let mut chunks = (0..tile.inputs).step_by(tile.chunk).map(|_| {
        let chunk = pairs.by_ref().take(tile.chunk);
        chunk.fold(0.0, |sum, (x, weight)| f32::from_le_bytes(*weight).mul_add(*x, sum))
    });
    let first = chunks.next().unwrap_or(0.0);
    chunks.fold(first, |sum, chunk| sum + chunk)
}

/// Processes as many tokens at once as there are registers for their sums.
#[inline(always)]
fn multiply_columns<L: Lanes, const WIDE: usize>(tile: &Tile<'_>, column: usize, into: &mut [f32]) {
    let tokens = tile.x.len() / tile.inputs;
    let mut token = 0;
    while WIDE > 1 && token + 8 <= tokens {
        multiply_block::<L, 8, WIDE>(tile, token, column, into);
        token += 8;
    }
    while token + 4 <= tokens {
        multiply_block::<L, 4, WIDE>(tile, token, column, into);
        token += 4;
    }
    while token + 2 <= tokens {
        multiply_block::<L, 2, WIDE>(tile, token, column, into);
        token += 2;
    }
    if token < tokens {
        multiply_block::<L, 1, WIDE>(tile, token, column, into);
    }
}

#[inline(always)]
fn multiply_block<L: Lanes, const TALL: usize, const WIDE: usize>(
    tile: &Tile<'_>,
    token: usize,
    column: usize,
    into: &mut [f32],
) {
    let columns = tile.columns.len();
    let start = tile.columns.start + column;
    // The SAFETY comments below rely on these slices: `inputs` numbers per token, and the vectors from `start` in each row.
    let x = &tile.x[token * tile.inputs..][..TALL * tile.inputs];
    let weights = &tile.weights[start..][..(tile.inputs - 1) * tile.width + 16 * WIDE];
    for from in (0..tile.inputs).step_by(tile.chunk) {
        let mut sums = [[L::splat(0.0); WIDE]; TALL];
        for row in from..(from + tile.chunk).min(tile.inputs) {
            let mut vectors = [L::splat(0.0); WIDE];
            for wide in 0..WIDE {
                // SAFETY: `row < inputs`, and a row has 16 * WIDE numbers from here.
                let place = unsafe { weights.as_ptr().add(row * tile.width + 16 * wide) };
                // SAFETY: as above; the type has alignment 1.
                vectors[wide] = L::load_le(unsafe { &*place.cast::<[Float; 16]>() });
            }
            if token == 0 {
                prefetch_row::<L, WIDE>(weights, (row + AHEAD) * tile.width);
            }
            for tall in 0..TALL {
                // SAFETY: `tall < TALL` and `row < inputs`.
                let factor = L::splat(unsafe { *x.as_ptr().add(tall * tile.inputs + row) });
                for wide in 0..WIDE {
                    sums[tall][wide] = vectors[wide].fma(factor, sums[tall][wide]);
                }
            }
        }
        for (tall, sums) in sums.iter().enumerate() {
            let into = &mut into[(token + tall) * columns + column..][..16 * WIDE];
            for (place, sum) in into.as_chunks_mut::<16>().0.iter_mut().zip(sums) {
                let sum = if from == 0 { *sum } else { L::load(place).add(*sum) };
                sum.store(place);
            }
        }
    }
}

/// How many rows ahead are prefetched. The processor's own prefetcher does not recognise that columns of distant rows follow.
const AHEAD: usize = 16;

#[inline(always)]
fn prefetch_row<L: Lanes, const WIDE: usize>(weights: &[Float], index: usize) {
    for wide in 0..WIDE {
        L::prefetch(weights.as_ptr().wrapping_add(index + 16 * wide).cast());
    }
}

#[inline(always)]
pub(super) fn row_dots<L: Lanes, const WIDE: usize>(weights: &[Float], x: &[f32], into: &mut [f32]) {
    for (row, into) in weights.chunks_exact(x.len()).zip(into) {
        *into = row_dot::<L>(row, x);
    }
}

/// Uses four independent sums, so that no addition waits for the previous one.
#[inline(always)]
fn row_dot<L: Lanes>(row: &[Float], x: &[f32]) -> f32 {
    let (quads, rest) = row.as_chunks::<64>();
    let (x_quads, x_rest) = x.as_chunks::<64>();
    let mut sums = [L::splat(0.0); 4];
    for (weights, x) in quads.iter().zip(x_quads) {
        let (weights, x) = (weights.as_chunks::<16>().0, x.as_chunks::<16>().0);
        for part in 0..4 {
            sums[part] = L::load_le(&weights[part]).fma(L::load(&x[part]), sums[part]);
        }
    }
    let (vectors, tail) = rest.as_chunks::<16>();
    let (x_vectors, x_tail) = x_rest.as_chunks::<16>();
    for (weights, x) in vectors.iter().zip(x_vectors) {
        sums[0] = L::load_le(weights).fma(L::load(x), sums[0]);
    }
    let mut sum = sums[0].add(sums[1]).add(sums[2].add(sums[3])).sum();
    for (weight, x) in tail.iter().zip(x_tail) {
        sum = f32::from_le_bytes(*weight).mul_add(*x, sum);
    }
    sum
}

/// Rows of int8 weights, stored as the value plus 128, and one scale per group.
pub struct ByteRows<'a> {
    pub weights: &'a [u8],
    pub scales: &'a [Float],
    pub groups: usize,
}

/// One token as int8 in groups, the last one padded with zeros.
#[derive(Default)]
pub struct ByteToken {
    pub values: Vec<[i8; GROUP]>,
    /// One scale per group, padded with zeros to whole vectors.
    pub scales: Vec<f32>,
    /// -128 times the sums of four values each, which compensates for the 128 in the weights.
    pub starts: Vec<[i32; 16]>,
}

#[inline(always)]
pub(super) fn byte_dots<L: Lanes, const WIDE: usize>(
    rows: &ByteRows<'_>,
    tokens: &[ByteToken],
    into: &mut [&mut [f32]],
) {
    let weights = rows.weights.as_chunks::<GROUP>().0;
    for (index, row) in weights.chunks_exact(rows.groups).enumerate() {
        for line in row {
            L::prefetch_far(line.as_ptr().wrapping_add(BYTES_AHEAD));
        }
        let scales = &rows.scales[index * rows.groups..];
        for (token, into) in tokens.iter().zip(into.iter_mut()) {
            into[index] = byte_dot::<L>(row, scales, token);
        }
    }
}

/// How many bytes ahead weights are prefetched: with computation between the loads, the processor alone has too few in flight.
const BYTES_AHEAD: usize = 4096;

/// The dot product of one row, whose scales are the first of `scales`.
#[inline(always)]
fn byte_dot<L: Lanes>(row: &[[u8; GROUP]], scales: &[Float], token: &ByteToken) -> f32 {
    let mut sum = L::splat(0.0);
    let x_scales = token.scales.as_chunks::<16>().0;
    let parts = row.chunks(16).zip(token.values.chunks(16)).zip(token.starts.chunks(16));
    for (part, ((weights, x), starts)) in parts.enumerate() {
        let factors = factors::<L>(&scales[16 * part..], &x_scales[part]);
        for (((weights, x), start), factor) in weights.iter().zip(x).zip(starts).zip(&factors) {
            sum = L::byte_dot(weights, x, start).fma(L::splat(*factor), sum);
        }
    }
    sum.sum()
}

/// Sixteen products of scales at once: the fewer instructions per byte, the more loads are in flight.
#[inline(always)]
fn factors<L: Lanes>(scales: &[Float], x_scales: &[f32; 16]) -> [f32; 16] {
    let mut factors = [0f32; 16];
    match scales.first_chunk() {
        Some(scales) => L::load_le(scales).mul(L::load(x_scales)).store(&mut factors),
        None => {
            for ((factor, scale), x_scale) in factors.iter_mut().zip(scales).zip(x_scales) {
                *factor = f32::from_le_bytes(*scale) * x_scale;
            }
        }
    }
    factors
}

#[inline(always)]
pub(super) fn quantise<L: Lanes, const WIDE: usize>(x: &[f32], into: &mut ByteToken) {
    let groups = x.len().div_ceil(GROUP);
    into.values.reserve(groups);
    into.scales.reserve(groups.next_multiple_of(16));
    into.starts.reserve(groups);
    for group in x.chunks(GROUP) {
        let mut padded = [0f32; GROUP];
        padded[..group.len()].copy_from_slice(group);
        let (values, scale) = quantise_lanes::<L>(&padded);
        let mut starts = L::quads(&values);
        starts.iter_mut().for_each(|start| *start *= -128);
        into.starts.push(starts);
        into.values.push(values);
        into.scales.push(scale);
    }
    into.scales.resize(groups.next_multiple_of(16), 0.0);
}

/// [`quantise_group`] with vectors.
#[inline(always)]
fn quantise_lanes<L: Lanes>(group: &[f32; GROUP]) -> ([i8; GROUP], f32) {
    let mut vectors = [L::splat(0.0); 4];
    // `zero` stays zero unless a value is not finite: its product with zero is NaN, which equals nothing.
    let (mut largest, mut zero) = (L::splat(0.0), L::splat(0.0));
    for (vector, values) in vectors.iter_mut().zip(group.as_chunks::<16>().0) {
        *vector = L::load(values);
        largest = vector.max(L::splat(0.0).sub(*vector)).max(largest);
        zero = vector.fma(L::splat(0.0), zero);
    }
    if zero.sum() != 0.0 {
        return ([0; GROUP], f32::NAN);
    }
    let mut lanes = [0f32; 16];
    largest.store(&mut lanes);
    let largest = lanes.into_iter().fold(0.0, f32::max);
    let factor = if largest > 0.0 { 127.0 / largest } else { 0.0 };
    for vector in &mut vectors {
        *vector = vector.mul(L::splat(factor));
    }
    (L::round(&vectors), largest / 127.0)
}

/// The largest number of each [`BLOCK`]; the input contains no NaN.
#[inline(always)]
pub(super) fn maxima<L: Lanes, const WIDE: usize>(x: &[f32], into: &mut Vec<f32>) {
    into.clear();
    for block in x.chunks(BLOCK) {
        let mut padded = [f32::NEG_INFINITY; BLOCK];
        padded[..block.len()].copy_from_slice(block);
        let mut largest = L::splat(f32::NEG_INFINITY);
        for vector in padded.as_chunks::<16>().0 {
            largest = L::load(vector).max(largest);
        }
        let mut lanes = [0f32; 16];
        largest.store(&mut lanes);
        into.push(lanes.into_iter().fold(f32::NEG_INFINITY, f32::max));
    }
}

/// Whether all numbers are finite: then the sum of their products with zero is zero, and otherwise it is NaN.
#[inline(always)]
pub(super) fn are_finite<L: Lanes, const WIDE: usize>(x: &[f32], into: &mut bool) {
    *into = sum_lanes!(L, x, 0.0, |x| x.mul(L::splat(0.0))) == 0.0;
}

/// Rounds a group to int8 and returns its scale. If a value is not finite, the scale is NaN, so that it is not lost.
#[inline(always)]
pub fn quantise_group(group: &[f32; GROUP]) -> ([i8; GROUP], f32) {
    let mut largest = 0f32;
    let mut finite = true;
    for value in group {
        largest = if value.abs() > largest { value.abs() } else { largest };
        finite &= value.is_finite();
    }
    if !finite {
        return ([0; GROUP], f32::NAN);
    }
    let factor = if largest > 0.0 { 127.0 / largest } else { 0.0 };
    (group.map(|value| (value * factor).round_ties_even() as i8), largest / 127.0)
}

/// e^x as 2^n times a polynomial on [-ln 2 / 2, ln 2 / 2] (coefficients of the Cephes library), with an error of at most 2 units
/// in the last place. x is clamped to [-87, 88].
#[inline(always)]
fn exp<L: Lanes>(x: L) -> L {
    const ROUND: f32 = 12_582_912.0; // 1.5 * 2^23: adding it rounds to a whole number
    let x = L::splat(-87.0).max(L::splat(88.0).min(x));
    let shifted = x.fma(L::splat(std::f32::consts::LOG2_E), L::splat(ROUND));
    let n = shifted.sub(L::splat(ROUND));
    let r = n.fma(L::splat(-0.693_359_4), x);
    let r = n.fma(L::splat(2.121_944_4e-4), r);
    let mut p = L::splat(1.987_569_1e-4);
    for coefficient in [1.398_2e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5] {
        p = p.fma(r, L::splat(coefficient));
    }
    let value = p.fma(r.mul(r), r.add(L::splat(1.0)));
    value.scale_by_power(shifted)
}

#[inline(always)]
pub(super) fn add<L: Lanes, const WIDE: usize>(x: &[f32], into: &mut [f32]) {
    for (x, into) in x.iter().zip(into) {
        *into += x;
    }
}

#[inline(always)]
pub(super) fn add_weights<L: Lanes, const WIDE: usize>(x: &[Float], into: &mut [f32]) {
    for (x, into) in x.iter().zip(into) {
        *into += f32::from_le_bytes(*x);
    }
}

#[inline(always)]
pub(super) fn exp_from<L: Lanes, const WIDE: usize>(x: &mut [f32], shift: f32) {
    map_lanes!(L, x, |x| exp(x.sub(L::splat(shift))));
}

#[inline(always)]
pub(super) fn gelu<L: Lanes, const WIDE: usize>(x: &mut [f32]) {
    map_lanes!(L, x, |x| gelu_lanes(x));
}

#[inline(always)]
fn gelu_lanes<L: Lanes>(x: L) -> L {
    const MINUS_TWO_ROOT: f32 = -1.595_769; // -2 sqrt(2/pi)
    let cubic = x.mul(x).fma(L::splat(0.044_715), L::splat(1.0)).mul(x);
    let below = exp(cubic.mul(L::splat(MINUS_TWO_ROOT))).add(L::splat(1.0));
    x.div(below)
}

/// The parameters of a layer norm.
pub struct Norm<'a> {
    pub scale: &'a [Float],
    pub shift: &'a [Float],
    pub epsilon: f32,
}

#[inline(always)]
pub(super) fn normalise<L: Lanes, const WIDE: usize>(x: &[f32], norm: &Norm<'_>, into: &mut [f32]) {
    let length = x.len() as f32;
    let mean = sum_lanes!(L, x, 0.0, |x| x) / length;
    let variance = sum_lanes!(L, x, mean, |x| square(x.sub(L::splat(mean)))) / length;
    let factor = 1.0 / (variance + norm.epsilon).sqrt();
    let parameters = norm.scale.iter().zip(norm.shift);
    for ((x, into), (scale, shift)) in x.iter().zip(into).zip(parameters) {
        *into = ((x - mean) * factor).mul_add(f32::from_le_bytes(*scale), f32::from_le_bytes(*shift));
    }
}

#[inline(always)]
fn square<L: Lanes>(x: L) -> L {
    x.mul(x)
}

/// One head of one query, and the keys and values that it attends to.
pub struct Head<'a> {
    pub query: &'a [f32],
    /// The keys and values of all positions so far, `stride` numbers each; those of this head are `query.len()` numbers from `offset`.
    pub keys: &'a [f32],
    pub values: &'a [f32],
    pub stride: usize,
    pub offset: usize,
    pub scale: f32,
}

#[inline(always)]
pub(super) fn attend<L: Lanes, const WIDE: usize>(head: &Head<'_>, scores: &mut Vec<f32>, into: &mut [f32]) {
    let part = head.offset..head.offset + head.query.len();
    scores.clear();
    let mut largest = f32::NEG_INFINITY;
    let mut finite = true;
    for key in head.keys.chunks_exact(head.stride) {
        let score = dot::<L>(head.query, &key[part.clone()]) * head.scale;
        largest = if score > largest { score } else { largest };
        finite &= score.is_finite();
        scores.push(score);
    }
    exp_from::<L, WIDE>(scores, largest);
    // Set explicitly, because `exp` may not preserve the bits of a NaN.
    let total = if finite { sum_lanes!(L, scores, 0.0, |x| x) } else { f32::NAN };
    into.fill(0.0);
    for (value, weight) in head.values.chunks_exact(head.stride).zip(scores.iter()) {
        add_scaled::<L>(&value[part.clone()], *weight, into);
    }
    for value in into.iter_mut() {
        *value /= total;
    }
}

#[inline(always)]
fn dot<L: Lanes>(a: &[f32], b: &[f32]) -> f32 {
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<16>(), b.as_chunks::<16>());
    let mut sum = L::splat(0.0);
    for (a, b) in a.iter().zip(b) {
        sum = L::load(a).fma(L::load(b), sum);
    }
    let mut sum = sum.sum();
    for (a, b) in a_rest.iter().zip(b_rest) {
        sum = a.mul_add(*b, sum);
    }
    sum
}

#[inline(always)]
fn add_scaled<L: Lanes>(from: &[f32], factor: f32, into: &mut [f32]) {
    let ((from, from_rest), (into, into_rest)) = (from.as_chunks::<16>(), into.as_chunks_mut::<16>());
    for (from, into) in from.iter().zip(into) {
        L::load(from).fma(L::splat(factor), L::load(into)).store(into);
    }
    for (from, into) in from_rest.iter().zip(into_rest) {
        *into = from.mul_add(factor, *into);
    }
}
