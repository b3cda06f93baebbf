//! Vectors of texts, with one signed byte for each dimension, compared by their cosine; and the fusion of two rankings.

/// The constant k of reciprocal rank fusion, which limits the weight of the first places (Cormack, Clarke and Büttcher, "Reciprocal rank
/// fusion", 2009).
const RANK_CONSTANT: f64 = 60.0;

/// Scales a vector so that its largest component is 127. The rounding changes a cosine by less than one percent. Empty if the vector is
/// zero or not finite.
pub(crate) fn pack(values: &[f32]) -> Vec<u8> {
    let longest = values.iter().fold(0.0_f32, |longest, value| longest.max(value.abs()));
    if longest == 0.0 || !longest.is_finite() {
        return Vec::new();
    }
    let scaled = values.iter().map(|value| (value / longest * 127.0).round() as i8);
    scaled.map(i8::cast_unsigned).collect()
}

/// Returns the cosine, from -1 to 1; 0 if one of the vectors is zero or their lengths differ.
pub(crate) fn cosine(query: &[f32], packed: &[u8]) -> f64 {
    if query.len() != packed.len() {
        return 0.0;
    }
    let (mut product, mut left, mut right) = (0.0_f32, 0.0_f32, 0.0_f32);
    for (value, byte) in query.iter().zip(packed) {
        let other = f32::from(byte.cast_signed());
        product += value * other;
        left += value * value;
        right += other * other;
    }
    let length = f64::from(left).sqrt() * f64::from(right).sqrt();
    if length > 0.0 { f64::from(product) / length } else { 0.0 }
}

/// Returns the score that an entry gets for its place in one ranking, counted from 0. The sum of these scores over all rankings gives its
/// place in the combined ranking.
pub(crate) fn rank_score(place: usize) -> f64 {
    1.0 / (RANK_CONSTANT + 1.0 + place as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packed_vector_has_nearly_the_same_angle() {
        let one: Vec<f32> = (0..384_u16).map(|at| (f32::from(at) * 0.7).sin()).collect();
        let other: Vec<f32> = (0..384_u16).map(|at| (f32::from(at) * 0.7 + 0.5).sin()).collect();
        assert!((cosine(&one, &pack(&one)) - 1.0).abs() < 1e-3);
        let exact = one.iter().zip(&other).map(|(a, b)| a * b).sum::<f32>()
            / one.iter().map(|a| a * a).sum::<f32>().sqrt()
            / other.iter().map(|b| b * b).sum::<f32>().sqrt();
        assert!((cosine(&one, &pack(&other)) - f64::from(exact)).abs() < 1e-2);
        assert_eq!((cosine(&one, &[]), cosine(&[0.0; 3], &pack(&[1.0, 2.0, 3.0]))), (0.0, 0.0));
        assert!(pack(&[0.0, 0.0]).is_empty() && pack(&[f32::NAN, f32::INFINITY]).is_empty());
    }
}
