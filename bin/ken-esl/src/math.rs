//! Arithmetic that gives the same bits on every machine, which `exp` and `ln` of the C library do not.

/// Returns e^x with a relative error below 3e-7. x is clamped to the range of f32.
pub fn exp(x: f32) -> f32 {
    const LN2_HIGH: f32 = 0.693_359_4; // has nine bits, so multiplying it by k is exact (Cody and Waite)
    const LN2_LOW: f32 = -2.121_944_4e-4;
    let x = x.clamp(-87.0, 87.0);
    let k = (x * std::f32::consts::LOG2_E).round();
    let r = x - k * LN2_HIGH - k * LN2_LOW;
    let series = 1.0 + r * (1.0 + r * (0.5 + r * (1.0 / 6.0 + r * (1.0 / 24.0 + r * (1.0 / 120.0 + r / 720.0)))));
    series * f32::from_bits(((k as i32 + 127) as u32) << 23)
}

/// The logistic function.
pub fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

/// The hyperbolic tangent.
pub fn tanh(x: f32) -> f32 {
    2.0 * sigmoid(2.0 * x) - 1.0
}

/// Mixes two numbers into one, each bit of which depends on both: the folded product of wyhash.
pub const fn mix(a: u64, b: u64) -> u64 {
    let product = (a ^ 0x9E37_79B9_7F4A_7C15) as u128 * (b ^ 0xD1B5_4A32_D192_ED03) as u128;
    (product >> 64) as u64 ^ product as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_is_close_to_the_c_librarys() {
        for step in -8000..8000 {
            let x = step as f32 / 100.0;
            let error = (exp(x) / x.exp() - 1.0).abs();
            assert!(error < 1e-5, "{x}: {error}");
        }
    }

    #[test]
    fn sigmoid_and_tanh_keep_their_range() {
        for x in [f32::MIN, -90.0, -1.0, 0.0, 1.0, 90.0, f32::MAX] {
            assert!((0.0..=1.0).contains(&sigmoid(x)));
            assert!((-1.0..=1.0).contains(&tanh(x)));
        }
    }
}
