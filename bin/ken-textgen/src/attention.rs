//! Attention over a key-value cache, and layer norm, as candle operations.

use std::cell::RefCell;
use std::sync::Arc;

use candle_core::{CpuStorage, CustomOp1, Device, Layout, Result, Shape};

use crate::cache::{Cache, Layer};
use crate::plain;
use crate::product::{Engine, contiguous};
use crate::simd::{self, Head, Norm};
use crate::weights::Slice;

/// The tokens of one text within a batch.
pub struct Part<'a> {
    pub cache: &'a mut Cache,
    pub tokens: usize,
}

/// Attention as an operation from `[tokens, 3 * width]`, with query, key and value side by side, to `[tokens, width]`. It adds
/// the keys and values to the caches of the texts that the tokens belong to.
pub struct Attention<'a, 'c> {
    pub engine: &'a Engine,
    pub layer: usize,
    pub heads: usize,
    pub scale: f32,
    pub parts: RefCell<&'a mut [Part<'c>]>,
}

/// One token: the cache whose keys it attends to, and the number of these keys.
struct Query<'a> {
    row: &'a [f32],
    layer: &'a Layer,
    visible: usize,
}

impl CustomOp1 for Attention<'_, '_> {
    fn name(&self) -> &'static str {
        "attention"
    }

    fn cpu_fwd(&self, storage: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        let rows = contiguous(storage, layout)?;
        let mut parts = self.parts.borrow_mut();
        let width = parts.first().map_or(0, |part| part.cache.width());
        let mut rest = rows;
        for part in parts.iter_mut() {
            let own;
            (own, rest) = rest.split_at(part.tokens * 3 * width);
            part.cache.append(self.layer, own);
        }
        let out = self.attend(&self.queries(rows, &parts, width), width);
        Ok((CpuStorage::F32(out), Shape::from((rows.len() / (3 * width), width))))
    }
}

impl Attention<'_, '_> {
    fn queries<'q>(&self, rows: &'q [f32], parts: &'q [Part<'_>], width: usize) -> Vec<Query<'q>> {
        let visible_ranges = parts.iter().flat_map(|part| {
            let seen = part.cache.len();
            (1..=part.tokens).map(move |nth| (part.cache.layer(self.layer), seen + nth))
        });
        let rows = rows.chunks_exact(3 * width);
        rows.zip(visible_ranges).map(|(row, (layer, visible))| Query { row, layer, visible }).collect()
    }

    /// Computes every head of every query, on several threads if there is enough work.
    fn attend(&self, queries: &[Query<'_>], width: usize) -> Vec<f32> {
        let mut out = vec![0.0; queries.len() * width];
        let size = width / self.heads;
        let work: usize = queries.iter().map(|query| query.visible * width).sum();
        // Handing work to another thread costs about as much as 32 K multiplications.
        let chunk = if work < 32 * 1024 { out.len() } else { self.chunk_length(width, queries.len()) };
        let (isa, scale) = (self.engine.isa, self.scale);
        self.engine.threads.each(out.chunks_mut(chunk), |index, out| {
            let mut scores = Vec::new();
            for (nth, out) in out.chunks_exact_mut(size).enumerate() {
                let position = index * chunk + nth * size;
                let (query, offset) = (&queries[position / width], position % width);
                let seen = query.visible * width;
                let head = Head {
                    query: &query.row[offset..offset + size],
                    keys: &query.layer.keys[..seen],
                    values: &query.layer.values[..seen],
                    stride: width,
                    offset,
                    scale,
                };
                simd::attend(isa, &head, &mut scores, out);
            }
        });
        out
    }

    /// The length of one task's share of the output, in numbers: whole heads, and about four shares per thread.
    fn chunk_length(&self, width: usize, queries: usize) -> usize {
        let heads = (queries * self.heads).div_ceil(4 * self.engine.threads.size());
        heads * (width / self.heads)
    }
}

/// Layer normalisation with its parameters from the weights file.
pub struct LayerNorm {
    pub engine: Arc<Engine>,
    pub scale: Slice,
    pub shift: Slice,
    pub epsilon: f32,
    pub width: usize,
}

impl LayerNorm {
    pub fn plain(&self, device: &Device) -> Result<plain::Norm> {
        plain::Norm::new(&self.scale, &self.shift, self.epsilon, device)
    }
}

impl CustomOp1 for LayerNorm {
    fn name(&self) -> &'static str {
        "layer-norm"
    }

    fn cpu_fwd(&self, storage: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        let x = contiguous(storage, layout)?;
        let mut out = vec![0.0; x.len()];
        let norm = Norm { scale: self.scale.floats(), shift: self.shift.floats(), epsilon: self.epsilon };
        for (x, out) in x.chunks_exact(self.width).zip(out.chunks_exact_mut(self.width)) {
            simd::normalise(self.engine.isa, x, &norm, out);
        }
        Ok((CpuStorage::F32(out), Shape::from((x.len() / self.width, self.width))))
    }
}
