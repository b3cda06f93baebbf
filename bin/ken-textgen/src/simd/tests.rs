use super::*;

/// Pseudo-random numbers in [-1, 1).
fn numbers(seed: u64, count: usize) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 40) as f32) / (1u32 << 23) as f32 - 1.0
    };
    (0..count).map(|_| next()).collect()
}

fn floats(values: &[f32]) -> Vec<Float> {
    values.iter().map(|value| value.to_le_bytes()).collect()
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// Runs the computation with every instruction set of this processor, expects the bits of the scalar one, and returns the numbers.
fn on_all(compute: impl Fn(Isa) -> Vec<f32>) -> Vec<f32> {
    let scalar = compute(Isa::Scalar);
    for isa in Isa::available() {
        assert_eq!(bits(&compute(isa)), bits(&scalar), "{}", isa.name());
    }
    scalar
}

fn close(left: f32, right: f64, tolerance: f64) {
    assert!((f64::from(left) - right).abs() <= tolerance, "{left} is not {right} within {tolerance}");
}

#[test]
fn row_dots_are_dot_products() {
    for width in [1, 7, 16, 40, 64, 100, 768] {
        let (weights, x) = (numbers(1, 5 * width), numbers(2, width));
        let out = on_all(|isa| {
            let mut out = vec![0.0; 5];
            row_dots(isa, &floats(&weights), &x, &mut out);
            out
        });
        for (row, out) in weights.chunks(width).zip(out) {
            let sum: f64 = row.iter().zip(&x).map(|(w, x)| f64::from(*w) * f64::from(*x)).sum();
            close(out, sum, 1e-4);
        }
    }
}

#[test]
fn streamed_rows_and_multiplied_tiles_give_the_same_bits_and_the_product() {
    for (inputs, width, tokens) in [(5, 3, 1), (40, 72, 3), (33, 48, 8), (64, 100, 9), (16, 161, 23)] {
        let (weights, x) = (floats(&numbers(3, inputs * width)), numbers(4, inputs * tokens));
        let out = on_all(|isa| {
            let mut out = vec![f32::NAN; tokens * width];
            let tile = Tile { weights: &weights, width, columns: 0..width, x: &x, inputs, chunk: 16 };
            multiply(isa, &tile, &mut out);
            out
        });
        for (x, out) in x.chunks(inputs).zip(out.chunks(width)) {
            let mut sums = vec![0.0; width];
            for (chunk, x) in x.chunks(16).enumerate() {
                let rows = &weights[chunk * 16 * width..][..x.len() * width];
                let part = on_all(|isa| {
                    let mut part = vec![0.0; width];
                    stream(isa, rows, x, &mut part);
                    part
                });
                if chunk == 0 { sums = part } else { add(Isa::Scalar, &part, &mut sums) }
            }
            assert_eq!(bits(&sums), bits(out));
            for (column, out) in out.iter().enumerate() {
                let weight = |row: usize| f64::from(f32::from_le_bytes(weights[row * width + column]));
                close(*out, (0..inputs).map(|row| weight(row) * f64::from(x[row])).sum(), 1e-5);
            }
        }
    }
}

#[test]
fn a_tile_is_a_part_of_the_whole() {
    let (inputs, width, tokens) = (40, 130, 5);
    let (weights, x) = (floats(&numbers(5, inputs * width)), numbers(6, inputs * tokens));
    let tile = |isa, columns: std::ops::Range<usize>| {
        let mut out = vec![0.0; tokens * columns.len()];
        multiply(isa, &Tile { weights: &weights, width, columns, x: &x, inputs, chunk: 7 }, &mut out);
        out
    };
    let whole = tile(Isa::Scalar, 0..width);
    let part = on_all(|isa| tile(isa, 49..97));
    for (whole, part) in whole.chunks(width).zip(part.chunks(48)) {
        assert_eq!(bits(&whole[49..97]), bits(part));
    }
}

/// The products of one token with rows of bytes, with one instruction set.
fn bytes(isa: Isa, x: &[f32], weights: &[u8], scales: &[Float]) -> Vec<f32> {
    let mut token = ByteToken::default();
    quantise(isa, x, &mut token);
    let groups = x.len().div_ceil(GROUP);
    let mut out = vec![0.0; scales.len() / groups];
    byte_dots(isa, &ByteRows { weights, scales, groups }, &[token], &mut [&mut out]);
    out
}

#[test]
fn byte_products_are_exact_where_pairs_would_saturate() {
    // 255 stands for 127. The sum of two such products does not fit into 16 bits.
    for (x, weight, expected) in [(1.0, 255, 127.0), (-1.0, 255, -127.0), (1.0, 1, -127.0), (-1.0, 1, 127.0)] {
        let out = on_all(|isa| bytes(isa, &[x; GROUP], &[weight; GROUP], &floats(&[1.0])));
        close(out[0], 64.0 * expected, 1e-3);
    }
}

#[test]
fn byte_dots_are_close_to_the_product_of_the_rounded_values() {
    let (inputs, rows) = (150usize, 9);
    let groups = inputs.div_ceil(GROUP);
    let x = numbers(7, inputs);
    let weights: Vec<u8> = numbers(8, rows * groups * GROUP).iter().map(|w| (w * 127.0 + 128.0) as u8).collect();
    let scales = numbers(9, rows * groups);
    let out = on_all(|isa| bytes(isa, &x, &weights, &floats(&scales)));
    for (row, out) in out.iter().enumerate() {
        let product = |i: usize| {
            let weight = f64::from(weights[row * groups * GROUP + i]) - 128.0;
            weight * f64::from(scales[row * groups + i / GROUP]) * f64::from(x[i])
        };
        // Each of 150 numbers up to 1 was rounded by at most 1/254 and multiplied by at most 127.
        close(*out, (0..inputs).map(product).sum(), 150.0 * 127.0 / 254.0);
    }
}

#[test]
fn nan_stays_in_the_scale_of_its_group() {
    let mut group = [0.5; GROUP];
    assert_eq!(quantise_group(&[0.0; GROUP]), ([0; GROUP], 0.0));
    assert_eq!(quantise_group(&group), ([127; GROUP], 0.5 / 127.0));
    for value in [f32::NAN, f32::INFINITY] {
        group[63] = value;
        assert!(quantise_group(&group).1.is_nan());
    }
}

#[test]
fn groups_are_rounded_alike_on_all_paths() {
    let mut x = numbers(9, 200);
    x[0] = 0.5 / 127.0; // halfway between two integers, if the largest number is 1
    x[1] = 1.0;
    x[2] = -1.0;
    x[3] = 1.5 / 127.0;
    let (values, scale) = quantise_group(&std::array::from_fn(|i| x[i]));
    for isa in Isa::available() {
        let mut token = ByteToken::default();
        quantise(isa, &x, &mut token);
        assert_eq!((token.values[0], token.scales[0]), (values, scale), "{}", isa.name());
        assert_eq!(token.values.len(), 4);
        for (values, starts) in token.values.iter().zip(&token.starts) {
            let sums = values.chunks(4).map(|four| -128 * four.iter().map(|x| i32::from(*x)).sum::<i32>());
            assert!(sums.eq(starts.iter().copied()));
        }
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut token = ByteToken::default();
            quantise(isa, &[1.0, bad], &mut token);
            assert!(token.scales[0].is_nan() && token.values[0] == [0; GROUP]);
        }
    }
}

#[test]
fn nonfinite_values_are_detected_and_the_largest_are_found() {
    for isa in Isa::available() {
        for length in [1, 16, 63, 64, 65, 1000] {
            let mut x = numbers(3, length);
            let (mut finite, mut largest) = (false, Vec::new());
            are_finite(isa, &x, &mut finite);
            maxima(isa, &x, &mut largest);
            let expected: Vec<f32> = x.chunks(BLOCK).map(|x| x.iter().copied().fold(f32::MIN, f32::max)).collect();
            assert!(finite && largest == expected, "{}", isa.name());
            for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                x[length - 1] = bad;
                are_finite(isa, &x, &mut finite);
                assert!(!finite, "{bad} among {length}");
            }
        }
    }
}

#[test]
fn exp_is_within_two_units_in_the_last_place() {
    let x: Vec<f32> = (-8700..=8800).map(|i| i as f32 / 100.0).collect();
    let out = on_all(|isa| {
        let mut out = x.clone();
        exp_from(isa, &mut out, 0.0);
        out
    });
    for (x, out) in x.iter().zip(out) {
        let exact = f64::from(*x).exp();
        close(out, exact, exact * 2.0 * f64::from(f32::EPSILON));
    }
}

#[test]
fn gelu_is_its_tanh_form() {
    let x: Vec<f32> = (-1203..1203).map(|i| i as f32 / 100.0).collect();
    let out = on_all(|isa| {
        let mut out = x.clone();
        gelu(isa, &mut out);
        out
    });
    for (x, out) in x.iter().zip(out) {
        let x = f64::from(*x);
        let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3));
        close(out, 0.5 * x * (1.0 + inner.tanh()), 1e-6 * x.abs().max(1.0));
    }
}

#[test]
fn normalised_rows_have_mean_zero_and_variance_one() {
    for width in [3, 16, 40, 768] {
        let x = numbers(10, width);
        let (scale, shift) = (floats(&vec![1.0; width]), floats(&vec![0.0; width]));
        let out = on_all(|isa| {
            let mut out = vec![0.0; width];
            normalise(isa, &x, &Norm { scale: &scale, shift: &shift, epsilon: 1e-12 }, &mut out);
            out
        });
        let mean: f64 = out.iter().map(|out| f64::from(*out)).sum::<f64>() / width as f64;
        let variance: f64 = out.iter().map(|out| f64::from(*out).powi(2)).sum::<f64>() / width as f64;
        assert!(mean.abs() < 1e-5 && (variance - 1.0).abs() < 1e-4, "{mean} {variance}");
    }
}

#[test]
fn attention_is_the_softmax_weighted_sum() {
    for (size, positions) in [(10, 1), (16, 5), (40, 33)] {
        let (stride, offset) = (size * 3, size);
        let query = numbers(11, size);
        let (keys, values) = (numbers(12, positions * stride), numbers(13, positions * stride));
        let head = Head { query: &query, keys: &keys, values: &values, stride, offset, scale: 0.7 };
        let out = on_all(|isa| {
            let mut out = vec![0.0; size];
            attend(isa, &head, &mut Vec::new(), &mut out);
            out
        });
        let row = |list: &[f32], position: usize, i: usize| f64::from(list[position * stride + offset + i]);
        let score = |p| (0.7 * (0..size).map(|i| f64::from(query[i]) * row(&keys, p, i)).sum::<f64>()).exp();
        let total: f64 = (0..positions).map(score).sum();
        for (i, out) in out.iter().enumerate() {
            let exact: f64 = (0..positions).map(|p| score(p) * row(&values, p, i)).sum();
            close(*out, exact / total, 1e-5);
        }
    }
}

#[test]
fn attention_propagates_nan() {
    let (query, values) = (vec![f32::from_bits(0x7fc0_0001); 16], vec![1.0; 16]);
    let head = Head { query: &query, keys: &values, values: &values, stride: 16, offset: 0, scale: 1.0 };
    for isa in Isa::available() {
        let mut out = vec![0.0; 16];
        attend(isa, &head, &mut Vec::new(), &mut out);
        assert!(out.iter().all(|value| value.is_nan()), "{}", isa.name());
    }
}
