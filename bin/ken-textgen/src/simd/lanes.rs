//! Sixteen f32 lanes: one AVX-512 register, two AVX2 registers, or an array.

#![allow(unsafe_code)] // intrinsics; each path runs only after its features were detected (`Isa::detect`)

/// A little-endian f32 as stored in a weights file, with any alignment.
pub type Float = [u8; 4];

/// The operations of a vector of sixteen lanes. The three implementations give the same bits for finite numbers.
pub(super) trait Lanes: Copy {
    fn splat(value: f32) -> Self;
    fn load(from: &[f32; 16]) -> Self;
    fn load_le(from: &[Float; 16]) -> Self;
    fn store(self, into: &mut [f32; 16]);
    /// Tells the processor that this address, which need not be valid, will be read soon.
    #[inline(always)]
    fn prefetch(_place: *const u8) {}
    /// Like `prefetch`, for an address that is read later: the data is not loaded into the first-level cache.
    #[inline(always)]
    fn prefetch_far(_place: *const u8) {}
    fn add(self, other: Self) -> Self;
    fn sub(self, other: Self) -> Self;
    fn mul(self, other: Self) -> Self;
    fn div(self, other: Self) -> Self;
    /// `self * factor + term` with a single rounding.
    fn fma(self, factor: Self, term: Self) -> Self;
    /// The smaller number, or `other` if either is NaN.
    fn min(self, other: Self) -> Self;
    /// The larger number, or `other` if either is NaN.
    fn max(self, other: Self) -> Self;
    /// `self * 2^n`, where `shifted` is `n` plus 1.5 * 2^23, the sum by which `n` was rounded.
    fn scale_by_power(self, shifted: Self) -> Self;
    /// The sum of the lanes, folded in halves: 16 to 8 to 4 to 2 to 1.
    fn sum(self) -> f32;
    /// Lane j is the exact sum of `start[j]` and the products of bytes 4j to 4j+3, as f32.
    fn byte_dot(weights: &[u8; 64], x: &[i8; 64], start: &[i32; 16]) -> Self;
    /// Rounds to the nearest integers, halfway cases to even. All numbers are between -127.5 and 127.5.
    fn round(vectors: &[Self; 4]) -> [i8; 64];
    /// The sums of four bytes each.
    fn quads(x: &[i8; 64]) -> [i32; 16];
}

/// The instruction sets that a kernel is compiled for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Isa {
    #[cfg(target_arch = "x86_64")]
    Avx512,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    Scalar,
}

impl Isa {
    /// The best instruction set that this processor supports.
    pub fn detect() -> Isa {
        Isa::available().first().copied().unwrap_or(Isa::Scalar)
    }

    /// All instruction sets that this processor supports, best first.
    pub fn available() -> Vec<Isa> {
        let mut list = Vec::new();
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::is_x86_feature_detected as has;
            if has!("avx512f") && has!("avx512bw") && has!("avx512vl") && has!("avx512dq") && has!("avx512vnni") {
                list.push(Isa::Avx512);
            }
            if has!("avx2") && has!("fma") {
                list.push(Isa::Avx2);
            }
        }
        list.push(Isa::Scalar);
        list
    }

    pub fn name(self) -> &'static str {
        match self {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => "avx512",
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => "avx2",
            Isa::Scalar => "scalar",
        }
    }

    /// The instruction set for `stream`, where the store buffer limits the speed and two half vectors are faster than a whole one
    /// (measured on Zen 4: 25 against 23 GB/s, of 28 for one core). The bits are the same.
    pub fn for_stream(self) -> Isa {
        match self {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => Isa::Avx2,
            other => other,
        }
    }

    /// The instruction set of this name, if the processor supports it.
    pub fn named(name: &str) -> Option<Isa> {
        Isa::available().into_iter().find(|isa| isa.name() == name)
    }
}

/// Compiles each kernel of `kernels.rs` once per instruction set, and adds a function that selects one by `Isa`.
macro_rules! kernels {
    ($($(#[$doc:meta])* fn $name:ident($($argument:ident: $type:ty),* $(,)?);)*) => {
        #[cfg(target_arch = "x86_64")]
        #[allow(unsafe_code)]
        mod avx512 {
            use super::*;
            $(#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma")]
            pub(super) fn $name($($argument: $type),*) {
                kernels::$name::<lanes::Avx512, { lanes::Avx512::WIDE }>($($argument),*)
            })*
        }

        #[cfg(target_arch = "x86_64")]
        #[allow(unsafe_code)]
        mod avx2 {
            use super::*;
            $(#[target_feature(enable = "avx2,fma")]
            pub(super) fn $name($($argument: $type),*) {
                kernels::$name::<lanes::Avx2, { lanes::Avx2::WIDE }>($($argument),*)
            })*
        }

        $($(#[$doc])*
        #[allow(unsafe_code)]
        pub fn $name(isa: Isa, $($argument: $type),*) {
            match isa {
                // SAFETY: an `Isa` other than `Scalar` comes only from `Isa::available`, which detected its features.
                #[cfg(target_arch = "x86_64")]
                Isa::Avx512 => unsafe { avx512::$name($($argument),*) },
                // SAFETY: as above.
                #[cfg(target_arch = "x86_64")]
                Isa::Avx2 => unsafe { avx2::$name($($argument),*) },
                Isa::Scalar => kernels::$name::<lanes::Scalar, { lanes::Scalar::WIDE }>($($argument),*),
            }
        })*
    };
}

/// The reference implementation: an array of sixteen numbers.
#[derive(Clone, Copy)]
pub(super) struct Scalar([f32; 16]);

impl Scalar {
    pub(super) const WIDE: usize = 1;

    #[inline(always)]
    fn zip(self, other: Self, f: impl Fn(f32, f32) -> f32) -> Self {
        Scalar(std::array::from_fn(|lane| f(self.0[lane], other.0[lane])))
    }
}

impl Lanes for Scalar {
    #[inline(always)]
    fn splat(value: f32) -> Self {
        Scalar([value; 16])
    }
    #[inline(always)]
    fn load(from: &[f32; 16]) -> Self {
        Scalar(*from)
    }
    #[inline(always)]
    fn load_le(from: &[Float; 16]) -> Self {
        Scalar(from.map(f32::from_le_bytes))
    }
    #[inline(always)]
    fn store(self, into: &mut [f32; 16]) {
        *into = self.0;
    }
    #[inline(always)]
    fn add(self, other: Self) -> Self {
        self.zip(other, |a, b| a + b)
    }
    #[inline(always)]
    fn sub(self, other: Self) -> Self {
        self.zip(other, |a, b| a - b)
    }
    #[inline(always)]
    fn mul(self, other: Self) -> Self {
        self.zip(other, |a, b| a * b)
    }
    #[inline(always)]
    fn div(self, other: Self) -> Self {
        self.zip(other, |a, b| a / b)
    }
    #[inline(always)]
    fn fma(self, factor: Self, term: Self) -> Self {
        Scalar(std::array::from_fn(|lane| self.0[lane].mul_add(factor.0[lane], term.0[lane])))
    }
    #[inline(always)]
    fn min(self, other: Self) -> Self {
        self.zip(other, |a, b| if a < b { a } else { b })
    }
    #[inline(always)]
    fn max(self, other: Self) -> Self {
        self.zip(other, |a, b| if a > b { a } else { b })
    }
    #[inline(always)]
    fn scale_by_power(self, shifted: Self) -> Self {
        self.zip(shifted, |a, s| f32::from_bits(a.to_bits().wrapping_add(s.to_bits() << 23)))
    }
    #[inline(always)]
    fn sum(self) -> f32 {
        let mut lanes = self.0;
        for half in [8, 4, 2, 1] {
            for lane in 0..half {
                lanes[lane] += lanes[lane + half];
            }
        }
        lanes[0]
    }
    #[inline(always)]
    fn byte_dot(weights: &[u8; 64], x: &[i8; 64], start: &[i32; 16]) -> Self {
        Scalar(std::array::from_fn(|lane| {
            let products = (4 * lane..4 * lane + 4).map(|i| i32::from(weights[i]) * i32::from(x[i]));
            (start[lane] + products.sum::<i32>()) as f32
        }))
    }
    #[inline(always)]
    fn round(vectors: &[Self; 4]) -> [i8; 64] {
        std::array::from_fn(|i| vectors[i / 16].0[i % 16].round_ties_even() as i8)
    }
    #[inline(always)]
    fn quads(x: &[i8; 64]) -> [i32; 16] {
        std::array::from_fn(|lane| x[4 * lane..4 * lane + 4].iter().map(|x| i32::from(*x)).sum())
    }
}

#[cfg(target_arch = "x86_64")]
pub(super) use x86::{Avx2, Avx512};

// SAFETY of every block in this module: the functions are inlined into the `#[target_feature]` functions that `kernels!`
// generates, which run only on processors where these features were detected. Loads and stores are unaligned, and take
// references to arrays of exactly their size.
#[cfg(target_arch = "x86_64")]
#[allow(clippy::undocumented_unsafe_blocks)]
mod x86 {
    use std::arch::x86_64::*;

    use super::{Float, Lanes};

    #[derive(Clone, Copy)]
    pub(crate) struct Avx512(__m512);

    impl Avx512 {
        pub(crate) const WIDE: usize = 3;
    }

    macro_rules! binary {
        ($($name:ident $instruction:ident;)*) => {
            $(#[inline(always)]
            fn $name(self, other: Self) -> Self {
                Avx512(unsafe { $instruction(self.0, other.0) })
            })*
        };
    }

    impl Lanes for Avx512 {
        #[inline(always)]
        fn splat(value: f32) -> Self {
            Avx512(unsafe { _mm512_set1_ps(value) })
        }
        #[inline(always)]
        fn load(from: &[f32; 16]) -> Self {
            Avx512(unsafe { _mm512_loadu_ps(from.as_ptr()) })
        }
        #[inline(always)]
        fn load_le(from: &[Float; 16]) -> Self {
            Avx512(unsafe { _mm512_loadu_ps(from.as_ptr().cast()) })
        }
        #[inline(always)]
        fn store(self, into: &mut [f32; 16]) {
            unsafe { _mm512_storeu_ps(into.as_mut_ptr(), self.0) }
        }
        #[inline(always)]
        fn prefetch(place: *const u8) {
            // A prefetch of an unmapped address does nothing.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(place.cast()) }
        }
        #[inline(always)]
        fn prefetch_far(place: *const u8) {
            unsafe { _mm_prefetch::<_MM_HINT_T1>(place.cast()) }
        }
        binary! {
            add _mm512_add_ps;
            sub _mm512_sub_ps;
            mul _mm512_mul_ps;
            div _mm512_div_ps;
            min _mm512_min_ps;
            max _mm512_max_ps;
        }
        #[inline(always)]
        fn fma(self, factor: Self, term: Self) -> Self {
            Avx512(unsafe { _mm512_fmadd_ps(self.0, factor.0, term.0) })
        }
        #[inline(always)]
        fn scale_by_power(self, shifted: Self) -> Self {
            Avx512(unsafe {
                let power = _mm512_slli_epi32::<23>(_mm512_castps_si512(shifted.0));
                _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(self.0), power))
            })
        }
        #[inline(always)]
        fn sum(self) -> f32 {
            unsafe {
                let low = _mm512_castps512_ps256(self.0);
                let high = _mm512_extractf32x8_ps::<1>(self.0);
                sum_eight(_mm256_add_ps(low, high))
            }
        }
        #[inline(always)]
        fn byte_dot(weights: &[u8; 64], x: &[i8; 64], start: &[i32; 16]) -> Self {
            Avx512(unsafe {
                let weights = _mm512_loadu_si512(weights.as_ptr().cast());
                let x = _mm512_loadu_si512(x.as_ptr().cast());
                let start = _mm512_loadu_si512(start.as_ptr().cast());
                _mm512_cvtepi32_ps(_mm512_dpbusd_epi32(start, weights, x))
            })
        }
        #[inline(always)]
        fn round(vectors: &[Self; 4]) -> [i8; 64] {
            let mut bytes = [0; 64];
            for (vector, bytes) in vectors.iter().zip(bytes.as_chunks_mut::<16>().0) {
                unsafe {
                    let whole = _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(vector.0));
                    _mm_storeu_si128(bytes.as_mut_ptr().cast(), whole);
                }
            }
            bytes
        }
        #[inline(always)]
        fn quads(x: &[i8; 64]) -> [i32; 16] {
            let mut sums = [0; 16];
            unsafe {
                let x = _mm512_loadu_si512(x.as_ptr().cast());
                let quads = _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_set1_epi8(1), x);
                _mm512_storeu_si512(sums.as_mut_ptr().cast(), quads);
            }
            sums
        }
    }

    #[derive(Clone, Copy)]
    pub(crate) struct Avx2(__m256, __m256);

    impl Avx2 {
        pub(crate) const WIDE: usize = 1;
    }

    macro_rules! binary {
        ($($name:ident $instruction:ident;)*) => {
            $(#[inline(always)]
            fn $name(self, other: Self) -> Self {
                unsafe { Avx2($instruction(self.0, other.0), $instruction(self.1, other.1)) }
            })*
        };
    }

    impl Lanes for Avx2 {
        #[inline(always)]
        fn splat(value: f32) -> Self {
            unsafe { Avx2(_mm256_set1_ps(value), _mm256_set1_ps(value)) }
        }
        #[inline(always)]
        fn load(from: &[f32; 16]) -> Self {
            unsafe { Avx2(_mm256_loadu_ps(from.as_ptr()), _mm256_loadu_ps(from.as_ptr().add(8))) }
        }
        #[inline(always)]
        fn load_le(from: &[Float; 16]) -> Self {
            let from = from.as_ptr().cast::<f32>();
            unsafe { Avx2(_mm256_loadu_ps(from), _mm256_loadu_ps(from.add(8))) }
        }
        #[inline(always)]
        fn store(self, into: &mut [f32; 16]) {
            unsafe {
                _mm256_storeu_ps(into.as_mut_ptr(), self.0);
                _mm256_storeu_ps(into.as_mut_ptr().add(8), self.1);
            }
        }
        #[inline(always)]
        fn prefetch(place: *const u8) {
            // A prefetch of an unmapped address does nothing.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(place.cast()) }
        }
        #[inline(always)]
        fn prefetch_far(place: *const u8) {
            unsafe { _mm_prefetch::<_MM_HINT_T1>(place.cast()) }
        }
        binary! {
            add _mm256_add_ps;
            sub _mm256_sub_ps;
            mul _mm256_mul_ps;
            div _mm256_div_ps;
            min _mm256_min_ps;
            max _mm256_max_ps;
        }
        #[inline(always)]
        fn fma(self, factor: Self, term: Self) -> Self {
            unsafe { Avx2(_mm256_fmadd_ps(self.0, factor.0, term.0), _mm256_fmadd_ps(self.1, factor.1, term.1)) }
        }
        #[inline(always)]
        fn scale_by_power(self, shifted: Self) -> Self {
            unsafe { Avx2(scale_eight(self.0, shifted.0), scale_eight(self.1, shifted.1)) }
        }
        #[inline(always)]
        fn sum(self) -> f32 {
            unsafe { sum_eight(_mm256_add_ps(self.0, self.1)) }
        }
        #[inline(always)]
        fn byte_dot(weights: &[u8; 64], x: &[i8; 64], start: &[i32; 16]) -> Self {
            unsafe {
                let (weights, x, start) = (weights.as_ptr(), x.as_ptr(), start.as_ptr());
                Avx2(byte_dot_eight(weights, x, start), byte_dot_eight(weights.add(32), x.add(32), start.add(8)))
            }
        }
        #[inline(always)]
        fn round(vectors: &[Self; 4]) -> [i8; 64] {
            let mut bytes = [0; 64];
            let pairs = vectors.as_chunks::<2>().0.iter();
            for ([low, high], bytes) in pairs.zip(bytes.as_chunks_mut::<32>().0) {
                unsafe {
                    let (low, high) = (round_sixteen(low), round_sixteen(high));
                    let whole = _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_packs_epi16(low, high));
                    _mm256_storeu_si256(bytes.as_mut_ptr().cast(), whole);
                }
            }
            bytes
        }
        #[inline(always)]
        fn quads(x: &[i8; 64]) -> [i32; 16] {
            let mut sums = [0; 16];
            for (x, sums) in x.as_chunks::<32>().0.iter().zip(sums.as_chunks_mut::<8>().0) {
                unsafe {
                    let pairs = _mm256_maddubs_epi16(_mm256_set1_epi8(1), _mm256_loadu_si256(x.as_ptr().cast()));
                    let quads = _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
                    _mm256_storeu_si256(sums.as_mut_ptr().cast(), quads);
                }
            }
            sums
        }
    }

    /// Converts sixteen numbers to 16-bit integers. A permutation restores their order, because `packs` works on halves.
    #[inline(always)]
    unsafe fn round_sixteen(vector: &Avx2) -> __m256i {
        unsafe {
            let words = _mm256_packs_epi32(_mm256_cvtps_epi32(vector.0), _mm256_cvtps_epi32(vector.1));
            _mm256_permute4x64_epi64::<0b11_01_10_00>(words)
        }
    }

    /// Eight sums of four products each. The bytes are widened first, because `maddubs` would saturate.
    #[inline(always)]
    unsafe fn byte_dot_eight(weights: *const u8, x: *const i8, start: *const i32) -> __m256 {
        unsafe {
            let first = byte_pairs(weights, x);
            let second = byte_pairs(weights.add(16), x.add(16));
            let quads = _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_hadd_epi32(first, second));
            _mm256_cvtepi32_ps(_mm256_add_epi32(quads, _mm256_loadu_si256(start.cast())))
        }
    }

    #[inline(always)]
    unsafe fn byte_pairs(weights: *const u8, x: *const i8) -> __m256i {
        unsafe {
            let weights = _mm256_cvtepu8_epi16(_mm_loadu_si128(weights.cast()));
            let x = _mm256_cvtepi8_epi16(_mm_loadu_si128(x.cast()));
            _mm256_madd_epi16(weights, x)
        }
    }

    #[inline(always)]
    unsafe fn scale_eight(value: __m256, shifted: __m256) -> __m256 {
        unsafe {
            let power = _mm256_slli_epi32::<23>(_mm256_castps_si256(shifted));
            _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(value), power))
        }
    }

    #[inline(always)]
    unsafe fn sum_eight(lanes: __m256) -> f32 {
        unsafe {
            let four = _mm_add_ps(_mm256_castps256_ps128(lanes), _mm256_extractf128_ps::<1>(lanes));
            let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps::<1>(two, two)))
        }
    }
}
