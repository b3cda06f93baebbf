//! Attention over a key-value cache, and layer norm, as candle operations.

use std::cell::RefCell;
use std::sync::Arc;

use candle_core::{CpuStorage, CustomOp1, Device, Layout, Result, Shape, Tensor};

use crate::plain;
use crate::product::{Engine, contiguous};
use crate::simd::{self, Head, Norm};
use crate::weights::Slice;

/// Keys and values of one text, layer by layer: `length` positions of `width` numbers each.
pub struct Cache {
    layers: Vec<Layer>,
    /// The same in the memory of a device, `[heads, positions, head size]`, where the model runs on one.
    tensors: Vec<Option<(Tensor, Tensor)>>,
    width: usize,
    length: usize,
}

#[derive(Default, Clone)]
struct Layer {
    keys: Vec<f32>,
    values: Vec<f32>,
}

impl Cache {
    pub fn new(layers: usize, width: usize) -> Cache {
        Cache {
            layers: vec![Layer::default(); layers],
            tensors: vec![None; layers],
            width,
            length: 0,
        }
    }

    /// How many positions are in it.
    pub fn len(&self) -> usize {
        self.length
    }

    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Forgets all positions and keeps the memory.
    pub fn clear(&mut self) {
        self.length = 0;
        self.tensors.fill(None);
        for layer in &mut self.layers {
            layer.keys.clear();
            layer.values.clear();
        }
    }

    /// Adds keys and values on a device, and gives all of the layer's.
    pub fn extend(&mut self, layer: usize, keys: Tensor, values: Tensor) -> Result<(Tensor, Tensor)> {
        let Some(place) = self.tensors.get_mut(layer) else {
            candle_core::bail!("there is no layer {layer}")
        };
        let all = match place.take() {
            None => (keys, values),
            Some((old_keys, old_values)) => (
                Tensor::cat(&[&old_keys, &keys], 1)?,
                Tensor::cat(&[&old_values, &values], 1)?,
            ),
        };
        Ok(place.insert(all).clone())
    }

    /// Counts positions whose keys and values are now in every layer.
    pub fn advance(&mut self, positions: usize) {
        self.length += positions;
    }
}

/// The tokens of one text within a batch.
pub struct Part<'a> {
    pub cache: &'a mut Cache,
    pub tokens: usize,
}

/// From queries, keys and values side by side (`[tokens, 3 width]`) to `[tokens, width]`; the keys and values are added
/// to the caches of the texts that the tokens belong to.
pub struct Attention<'a, 'c> {
    pub engine: &'a Engine,
    pub layer: usize,
    pub heads: usize,
    pub scale: f32,
    pub parts: RefCell<&'a mut [Part<'c>]>,
}

/// One token's place: whose keys it sees and how many of them.
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
        let width = parts.first().map_or(0, |part| part.cache.width);
        let mut rest = rows;
        for part in parts.iter_mut() {
            let own;
            (own, rest) = rest.split_at(part.tokens * 3 * width);
            part.cache.remember(self.layer, own);
        }
        let out = self.attend(&self.queries(rows, &parts, width), width);
        Ok((
            CpuStorage::F32(out),
            Shape::from((rows.len() / (3 * width), width)),
        ))
    }
}

impl Cache {
    fn remember(&mut self, layer: usize, rows: &[f32]) {
        let Some(layer) = self.layers.get_mut(layer) else {
            return;
        };
        for row in rows.chunks_exact(3 * self.width) {
            let (key, value) = row[self.width..].split_at(self.width);
            layer.keys.extend_from_slice(key);
            layer.values.extend_from_slice(value);
        }
    }
}

impl Attention<'_, '_> {
    fn queries<'q>(&self, rows: &'q [f32], parts: &'q [Part<'_>], width: usize) -> Vec<Query<'q>> {
        let places = parts.iter().flat_map(|part| {
            let seen = part.cache.len();
            (1..=part.tokens).map(move |nth| (&part.cache.layers[self.layer], seen + nth))
        });
        let rows = rows.chunks_exact(3 * width);
        rows.zip(places)
            .map(|(row, (layer, visible))| Query { row, layer, visible })
            .collect()
    }

    /// Each head of each query by itself; shared among threads where there is enough to do.
    fn attend(&self, queries: &[Query<'_>], width: usize) -> Vec<f32> {
        let mut out = vec![0.0; queries.len() * width];
        let size = width / self.heads;
        let work: usize = queries.iter().map(|query| query.visible * width).sum();
        // Handing work over costs about as much as 32 K multiplications.
        let share = if work < 32 * 1024 {
            out.len()
        } else {
            self.share(width, queries.len())
        };
        let (isa, scale) = (self.engine.isa, self.scale);
        self.engine.team.each(out.chunks_mut(share), |index, out| {
            let mut scores = Vec::new();
            for (nth, out) in out.chunks_exact_mut(size).enumerate() {
                let place = index * share + nth * size;
                let (query, offset) = (&queries[place / width], place % width);
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

    /// Whole heads, at least four shares a thread.
    fn share(&self, width: usize, queries: usize) -> usize {
        let heads = (queries * self.heads).div_ceil(4 * self.engine.team.size());
        heads * (width / self.heads)
    }
}

/// Layer norm with its parameters in the weights file.
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
        let norm = Norm {
            scale: self.scale.floats(),
            shift: self.shift.floats(),
            epsilon: self.epsilon,
        };
        for (x, out) in x.chunks_exact(self.width).zip(out.chunks_exact_mut(self.width)) {
            simd::normalise(self.engine.isa, x, &norm, out);
        }
        Ok((
            CpuStorage::F32(out),
            Shape::from((x.len() / self.width, self.width)),
        ))
    }
}
