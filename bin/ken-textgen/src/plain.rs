//! The model of `model.rs`, implemented with candle's own operations and with its weights in the memory of the device. It is
//! used on a GPU, and tests on the processor compare both implementations.

use candle_core::{D, Device, Result, Tensor};

use crate::cache::{Cache, Next};
use crate::config::Config;
use crate::weights::Slice;

/// The model with its weights as tensors.
pub struct Plain {
    config: Config,
    device: Device,
    words: Tensor,
    positions: Tensor,
    blocks: Vec<Block>,
    last_norm: Norm,
    head: Tensor,
}

/// The tensors of a block, in the order of the computation.
pub struct Block {
    pub norm_1: Norm,
    pub attention_in: Linear,
    pub attention_out: Linear,
    pub norm_2: Norm,
    pub inner: Linear,
    pub outer: Linear,
}

pub struct Norm {
    scale: Tensor,
    shift: Tensor,
    epsilon: f64,
}

/// A linear layer with weights `[in, out]` and a bias `[out]`.
pub struct Linear {
    weight: Tensor,
    bias: Tensor,
}

impl Norm {
    pub fn new(scale: &Slice, shift: &Slice, epsilon: f32, device: &Device) -> Result<Norm> {
        let tensor = |slice: &Slice| Tensor::new(slice.to_vec(), device);
        Ok(Norm { scale: tensor(scale)?, shift: tensor(shift)?, epsilon: f64::from(epsilon) })
    }

    pub fn apply(&self, x: &Tensor) -> Result<Tensor> {
        let x = x.broadcast_sub(&x.mean_keepdim(D::Minus1)?)?;
        let variance = x.sqr()?.mean_keepdim(D::Minus1)?;
        let x = x.broadcast_div(&(variance + self.epsilon)?.sqrt()?)?;
        x.broadcast_mul(&self.scale)?.broadcast_add(&self.shift)
    }
}

impl Linear {
    pub fn new(weight: &Slice, bias: &Slice, shape: (usize, usize), device: &Device) -> Result<Linear> {
        let weight = Tensor::from_vec(weight.to_vec(), shape, device)?;
        Ok(Linear { weight, bias: Tensor::new(bias.to_vec(), device)? })
    }

    /// The same layer from the transposed weights, `[out, in]`.
    pub fn transposed(weight: &Slice, bias: &Slice, shape: (usize, usize), device: &Device) -> Result<Linear> {
        let weight = Tensor::from_vec(weight.to_vec(), shape, device)?.t()?.contiguous()?;
        Ok(Linear { weight, bias: Tensor::new(bias.to_vec(), device)? })
    }

    pub fn apply(&self, x: &Tensor) -> Result<Tensor> {
        x.matmul(&self.weight)?.broadcast_add(&self.bias)
    }
}

impl Plain {
    /// `words` and `head` are `[vocabulary, width]`.
    pub fn new(
        config: Config,
        device: Device,
        (words, positions, head): (&Slice, &Slice, &Slice),
        blocks: Vec<Block>,
        last_norm: Norm,
    ) -> Result<Plain> {
        let table = |slice: &Slice, rows| Tensor::from_vec(slice.to_vec(), (rows, config.n_embd), &device);
        let (words, head) = (table(words, config.vocab_size)?, table(head, config.vocab_size)?.t()?);
        let positions = table(positions, config.n_positions)?;
        Ok(Plain { words, positions, head, blocks, last_norm, config, device })
    }

    /// Returns the logits after the last token of each text. The texts are computed one after the other.
    pub fn compute(&self, batch: &mut [Next<'_>]) -> Result<Vec<Vec<f32>>> {
        batch.iter_mut().map(|next| self.text(next.cache, next.tokens)).collect()
    }

    fn text(&self, cache: &mut Cache, tokens: &[u32]) -> Result<Vec<f32>> {
        let words = self.words.index_select(&Tensor::new(tokens, &self.device)?, 0)?;
        let mut x = (words + self.positions.narrow(0, cache.len(), tokens.len())?)?;
        for (layer, block) in self.blocks.iter().enumerate() {
            let seen = self.attend(layer, &block.attention_in.apply(&block.norm_1.apply(&x)?)?, cache)?;
            x = (x + block.attention_out.apply(&seen)?)?;
            let thought = block.inner.apply(&block.norm_2.apply(&x)?)?.gelu()?;
            x = (x + block.outer.apply(&thought)?)?;
        }
        let last = self.last_norm.apply(&x.narrow(0, tokens.len() - 1, 1)?)?;
        last.matmul(&self.head)?.squeeze(0)?.to_vec1()
    }

    fn attend(&self, layer: usize, rows: &Tensor, cache: &mut Cache) -> Result<Tensor> {
        let (tokens, width, heads) = (rows.dim(0)?, self.config.n_embd, self.config.n_head);
        let part = |nth: usize| {
            let part = rows.narrow(1, nth * width, width)?.contiguous()?;
            part.reshape((tokens, heads, width / heads))?.transpose(0, 1)?.contiguous()
        };
        let (keys, values) = cache.extend(layer, part(1)?, part(2)?)?;
        let scale = f64::from(self.config.attention_scale(layer));
        let scores = (part(0)?.matmul(&keys.transpose(1, 2)?.contiguous()?)? * scale)?;
        let scores = scores.broadcast_add(&self.mask(tokens, keys.dim(1)?)?)?;
        softmax(&scores)?.matmul(&values)?.transpose(0, 1)?.contiguous()?.reshape((tokens, width))
    }

    /// The causal mask, `[tokens, seen]`: minus infinity where a token would attend to a later one.
    fn mask(&self, tokens: usize, seen: usize) -> Result<Tensor> {
        let before = seen - tokens;
        let row = |token| (0..seen).map(move |other| if other > before + token { f32::NEG_INFINITY } else { 0.0 });
        Tensor::from_vec((0..tokens).flat_map(row).collect(), (tokens, seen), &self.device)
    }
}

/// Softmax over the last dimension.
pub fn softmax(scores: &Tensor) -> Result<Tensor> {
    let weights = scores.broadcast_sub(&scores.max_keepdim(D::Minus1)?)?.exp()?;
    weights.broadcast_div(&weights.sum_keepdim(D::Minus1)?)
}
