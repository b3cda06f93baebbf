//! The key-value cache of a text.

use candle_core::{Result, Tensor};

/// The keys and values of the tokens of one text, layer by layer: `length` positions of `width` numbers each.
pub struct Cache {
    layers: Vec<Layer>,
    /// The same as `[heads, positions, head size]` tensors in the memory of a device, if the model runs on one.
    tensors: Vec<Option<(Tensor, Tensor)>>,
    width: usize,
    length: usize,
}

#[derive(Default, Clone)]
pub(crate) struct Layer {
    pub(crate) keys: Vec<f32>,
    pub(crate) values: Vec<f32>,
}

impl Cache {
    pub fn new(layers: usize, width: usize) -> Cache {
        Cache { layers: vec![Layer::default(); layers], tensors: vec![None; layers], width, length: 0 }
    }

    /// The number of cached positions.
    pub fn len(&self) -> usize {
        self.length
    }

    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Removes all positions, but keeps the allocated memory.
    pub fn clear(&mut self) {
        self.length = 0;
        self.tensors.fill(None);
        for layer in &mut self.layers {
            layer.keys.clear();
            layer.values.clear();
        }
    }

    /// Adds keys and values on a device. Returns all keys and values of the layer.
    pub fn extend(&mut self, layer: usize, keys: Tensor, values: Tensor) -> Result<(Tensor, Tensor)> {
        let Some(place) = self.tensors.get_mut(layer) else { candle_core::bail!("there is no layer {layer}") };
        let all = match place.take() {
            None => (keys, values),
            Some((old_keys, old_values)) => {
                (Tensor::cat(&[&old_keys, &keys], 1)?, Tensor::cat(&[&old_values, &values], 1)?)
            }
        };
        Ok(place.insert(all).clone())
    }

    /// Increases the length by positions whose keys and values have been added to every layer.
    pub fn advance(&mut self, positions: usize) {
        self.length += positions;
    }

    /// The length of a position's keys, in numbers.
    pub(crate) fn width(&self) -> usize {
        self.width
    }

    pub(crate) fn layer(&self, layer: usize) -> &Layer {
        &self.layers[layer]
    }

    /// Adds the keys and values of rows that contain query, key and value side by side.
    pub(crate) fn append(&mut self, layer: usize, rows: &[f32]) {
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

/// The next tokens of one text, whose earlier tokens are in the cache.
pub struct Next<'a> {
    pub cache: &'a mut Cache,
    pub tokens: &'a [u32],
}
