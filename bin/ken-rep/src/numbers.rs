//! Numbers that several types of reasoning use.

/// Returns the lower end of Wilson's score interval for `k` of `n`, at 95 % (Wilson, "Probable inference, the law of
/// succession, and statistical inference", 1927): a cautious estimate for the next case.
pub(crate) fn wilson(k: usize, n: usize) -> f64 {
    if n == 0 {
        return 0.0;
    }
    const Z: f64 = 1.959_963_984_540_054;
    let (k, n) = (k as f64, n as f64);
    let share = k / n;
    let centre = share + Z * Z / (2.0 * n);
    let spread = Z * ((share * (1.0 - share) + Z * Z / (4.0 * n)) / n).sqrt();
    ((centre - spread) / (1.0 + Z * Z / n)).clamp(0.0, 1.0)
}

/// Rounds a share to six decimals, which hides rounding errors.
pub(crate) fn rounded(share: f64) -> f64 {
    (share * 1e6).round() / 1e6
}

/// Returns a count with its noun: "1 fact", "2 facts".
pub(crate) fn format_count(count: usize, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wilson_is_cautious_with_few() {
        assert_eq!(rounded(wilson(3, 3)), 0.438503);
        assert_eq!(rounded(wilson(95, 100)), 0.88825);
        assert_eq!((wilson(0, 0), wilson(0, 5)), (0.0, 0.0));
    }
}
