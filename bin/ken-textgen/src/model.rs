//! GPT-2 (Radford et al. 2019) over mapped weights: word and position embeddings, then blocks of attention and feed-forward
//! layers with layer normalisation before each, and the word embeddings again as output head.

use std::cell::RefCell;
use std::sync::Arc;

use candle_core::{Device, Tensor};
use ken_types::Error;
use safetensors::Dtype;

use crate::attention::{Attention, LayerNorm, Part};
pub use crate::cache::{Cache, Next};
use crate::config::Config;
use crate::plain::{self, Plain};
use crate::product::{Engine, Matrix, Product};
use crate::simd::{self, GROUP};
use crate::weights::{Slice, Weights};

/// A model that is ready to compute.
pub struct Model {
    pub config: Config,
    engine: Arc<Engine>,
    words: Matrix,
    positions: Slice,
    blocks: Vec<Block>,
    last_norm: LayerNorm,
    head: Product,
    weights: Weights,
    /// The model on a GPU, if one is used.
    plain: Option<Plain>,
}

struct Block {
    norm_1: LayerNorm,
    attention_in: Product,
    attention_out: Product,
    norm_2: LayerNorm,
    inner: Product,
    outer: Product,
}

impl Model {
    /// A model over the published f32 weights, or over the int8 file that `sidecar` has made from them.
    pub fn new(config: Config, weights: Weights, engine: &Arc<Engine>) -> Result<Model, Error> {
        let load = Load { config: &config, engine, weights: &weights, prefix: prefix(&weights) };
        let words = load.rows("wte.weight")?;
        let positions = load.floats("wpe.weight", &[config.n_positions, config.n_embd])?;
        let blocks = (0..config.n_layer).map(|layer| load.block(layer)).collect::<Result<_, _>>()?;
        let last_norm = load.norm("ln_f")?;
        let head = load.head()?;
        Ok(Model {
            engine: Arc::clone(engine),
            words,
            positions,
            blocks,
            last_norm,
            head,
            weights,
            plain: None,
            config,
        })
    }

    /// Moves the model to this device. int8 weights work on the processor only.
    pub fn on(mut self, device: Device) -> Result<Model, Error> {
        if !device.is_cpu() {
            let plain = self.plain(&device).map_err(|error| Error::unavailable(format!("candle: {error}")))?;
            self.plain = Some(plain);
        }
        Ok(self)
    }

    /// The model with candle's own operations.
    pub fn plain(&self, device: &Device) -> candle_core::Result<Plain> {
        let (Matrix::Rows(words), Matrix::Rows(head)) = (&self.words, &self.head.matrix) else {
            candle_core::bail!("int8 weights are for the processor; set PYTORCH_FORCE_CPU=1 or leave out --int8")
        };
        let blocks = self.blocks.iter().map(|block| block.plain(device)).collect::<Result<_, _>>()?;
        let tables = (words, &self.positions, head);
        Plain::new(self.config.clone(), device.clone(), tables, blocks, self.last_norm.plain(device)?)
    }

    /// Measures how many threads read the weights fastest. Each number of threads reads different parts of the output head, so
    /// that none finds its data in the cache. Results do not depend on the number of threads.
    pub fn choose_threads(&self) {
        const PARTS: usize = 16;
        // The time to read a part must be long compared with the time to start it.
        if self.weights.data_len() < PARTS << 22 {
            return;
        }
        let max = self.engine.threads.size();
        let sizes: Vec<usize> =
            std::iter::successors(Some(max), |size| Some(size / 2)).take_while(|size| *size > 0).collect();
        let mut best = (max, f64::INFINITY);
        for (index, size) in sizes.into_iter().enumerate().take(PARTS / 2) {
            self.engine.threads.resize(size);
            let seconds = self.head.read_part(2 * index, PARTS).min(self.head.read_part(2 * index + 1, PARTS));
            // Fewer threads are chosen only if they are clearly faster.
            if seconds < best.1 * 0.9 {
                best = (size, seconds);
            }
        }
        self.engine.threads.resize(best.0);
    }

    pub fn cache(&self) -> Cache {
        Cache::new(self.config.n_layer, self.config.n_embd)
    }

    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    pub fn weights(&self) -> &Weights {
        &self.weights
    }

    /// Maps the pages of the weights now, except for the position embeddings, of which each token needs only one row.
    pub fn prefetch(&self) {
        self.weights.prefetch(&self.positions);
    }

    /// Computes the next tokens of several texts and returns, for each text, the `vocabulary` logits after its last token. The
    /// caller ensures that no text is empty or exceeds `n_positions`, and that all tokens are in the vocabulary.
    pub fn forward(&self, batch: &mut [Next<'_>]) -> Result<Vec<Vec<f32>>, Error> {
        let computed = self.engine.threads.install(|| self.compute(batch));
        let logits = computed.map_err(|error| Error::internal(format!("candle: {error}")))?;
        for next in batch {
            next.cache.advance(next.tokens.len());
        }
        if logits.iter().all(|logits| self.are_finite(logits)) { Ok(logits) } else { Err(self.not_finite()) }
    }

    fn are_finite(&self, logits: &[f32]) -> bool {
        let mut finite = false;
        simd::are_finite(self.engine.isa, logits, &mut finite);
        finite
    }

    /// The error for a weight that is not finite. The weights are searched only when the logits show that there is one, because a
    /// check at the start would have to read the whole file.
    fn not_finite(&self) -> Error {
        let path = self.weights.path().display();
        let message = match self.weights.first_not_finite() {
            Some(name) => format!("{path}: {name} holds a value that is not a finite number"),
            None => format!("{path}: the weights are finite but their products overflow"),
        };
        Error::invalid("", message).hint("the weights are damaged; download them again")
    }

    fn compute(&self, batch: &mut [Next<'_>]) -> candle_core::Result<Vec<Vec<f32>>> {
        if let Some(plain) = &self.plain {
            return plain.compute(batch);
        }
        let mut x = self.embed(batch)?;
        let ends = ends(batch);
        let mut parts: Vec<Part<'_>> =
            batch.iter_mut().map(|next| Part { cache: &mut *next.cache, tokens: next.tokens.len() }).collect();
        for (layer, block) in self.blocks.iter().enumerate() {
            x = self.block(layer, block, &x, &mut parts)?;
        }
        if x.dim(0)? > ends.len() {
            x = x.index_select(&Tensor::new(ends, &Device::Cpu)?, 0)?;
        }
        let x = x.apply_op1_no_bwd(&self.last_norm)?.flatten_all()?.to_vec1()?;
        Ok(self.logits(self.head.apply(&x)))
    }

    /// Splits the logits by text. Those of a single text are not copied.
    fn logits(&self, all: Vec<f32>) -> Vec<Vec<f32>> {
        if all.len() == self.config.vocab_size {
            vec![all]
        } else {
            all.chunks_exact(self.config.vocab_size).map(<[f32]>::to_vec).collect()
        }
    }

    fn block(&self, layer: usize, block: &Block, x: &Tensor, parts: &mut [Part<'_>]) -> candle_core::Result<Tensor> {
        let attention = Attention {
            engine: &self.engine,
            layer,
            heads: self.config.n_head,
            scale: self.config.attention_scale(layer),
            parts: RefCell::new(parts),
        };
        let seen = x.apply_op1_no_bwd(&block.norm_1)?.apply_op1_no_bwd(&block.attention_in)?;
        let seen = seen.apply_op1_no_bwd(&attention)?.apply_op1_no_bwd(&block.attention_out)?;
        let x = (x + seen)?;
        let thought = x.apply_op1_no_bwd(&block.norm_2)?.apply_op1_no_bwd(&block.inner)?;
        x + thought.apply_op1_no_bwd(&block.outer)?
    }

    /// The sums of word and position embedding of all tokens, `[tokens, width]`.
    fn embed(&self, batch: &[Next<'_>]) -> candle_core::Result<Tensor> {
        let width = self.config.n_embd;
        let mut rows = Vec::new();
        for next in batch {
            let positions = self.positions.floats().chunks_exact(width).skip(next.cache.len());
            for (token, position) in next.tokens.iter().zip(positions) {
                let start = rows.len();
                append_row(&self.words, *token as usize, width, &mut rows);
                let word = rows[start..].iter_mut().zip(position);
                word.for_each(|(word, position)| *word += f32::from_le_bytes(*position));
            }
        }
        let tokens = rows.len() / width;
        Tensor::from_vec(rows, (tokens, width), &Device::Cpu)
    }
}

impl Block {
    fn plain(&self, device: &Device) -> candle_core::Result<plain::Block> {
        Ok(plain::Block {
            norm_1: self.norm_1.plain(device)?,
            attention_in: self.attention_in.plain(device)?,
            attention_out: self.attention_out.plain(device)?,
            norm_2: self.norm_2.plain(device)?,
            inner: self.inner.plain(device)?,
            outer: self.outer.plain(device)?,
        })
    }
}

/// Appends a row of the word embeddings.
fn append_row(table: &Matrix, token: usize, width: usize, rows: &mut Vec<f32>) {
    match table {
        Matrix::Rows(table) | Matrix::Columns(table) => {
            let row = &table.floats()[token * width..][..width];
            rows.extend(row.iter().map(|value| f32::from_le_bytes(*value)));
        }
        Matrix::Bytes { weights, scales } => {
            let groups = width.div_ceil(GROUP);
            let weights = &weights.bytes()[token * groups * GROUP..][..width];
            let scales = &scales.floats()[token * groups..][..groups];
            for (weights, scale) in weights.chunks(GROUP).zip(scales) {
                let scale = f32::from_le_bytes(*scale);
                rows.extend(weights.iter().map(|byte| (f32::from(*byte) - 128.0) * scale));
            }
        }
    }
}

/// The index of each text's last token within the batch.
fn ends(batch: &[Next<'_>]) -> Vec<u32> {
    let mut end = 0;
    let lengths = batch.iter().map(|next| next.tokens.len() as u32);
    lengths
        .map(|length| {
            end += length;
            end - 1
        })
        .collect()
}

/// The prefix of all tensor names in this file; some publishers use it and some do not.
pub fn prefix(weights: &Weights) -> &'static str {
    if weights.has("transformer.wte.weight") { "transformer." } else { "" }
}

/// The name of the output head's weights, if they are not the word embeddings.
pub fn own_head(config: &Config, weights: &Weights) -> Option<&'static str> {
    (weights.has("lm_head.weight") && !(config.is_tied() && weights.has(&format!("{}wte.weight", prefix(weights)))))
        .then_some("lm_head.weight")
}

/// The linear layers of a block: name, number of inputs, number of outputs.
pub fn linear_layers(config: &Config) -> [(&'static str, usize, usize); 4] {
    let (width, inner) = (config.n_embd, config.inner());
    [
        ("attn.c_attn", width, 3 * width),
        ("attn.c_proj", width, width),
        ("mlp.c_fc", width, inner),
        ("mlp.c_proj", inner, width),
    ]
}

/// Reads parts of a model from a weights file.
struct Load<'a> {
    config: &'a Config,
    engine: &'a Arc<Engine>,
    weights: &'a Weights,
    prefix: &'static str,
}

impl Load<'_> {
    fn floats(&self, name: &str, shape: &[usize]) -> Result<Slice, Error> {
        self.weights.tensor(&format!("{}{name}", self.prefix), Dtype::F32, shape)
    }

    /// The int8 weights of this name and their scales, if the file contains them.
    fn bytes(&self, name: &str, inputs: usize, outputs: usize) -> Result<Option<(Slice, Slice)>, Error> {
        let scales = format!("{}{name}.scales", self.prefix);
        if !self.weights.has(&scales) {
            return Ok(None);
        }
        let groups = inputs.div_ceil(GROUP);
        let name = format!("{}{name}", self.prefix);
        let weights = self.weights.tensor(&name, Dtype::U8, &[outputs, groups * GROUP])?;
        Ok(Some((weights, self.weights.tensor(&scales, Dtype::F32, &[outputs, groups])?)))
    }

    /// A table with a row for each word: the embeddings or the output head.
    fn rows(&self, name: &str) -> Result<Matrix, Error> {
        let (words, width) = (self.config.vocab_size, self.config.n_embd);
        Ok(match self.bytes(name, width, words)? {
            Some((weights, scales)) => Matrix::Bytes { weights, scales },
            None => Matrix::Rows(self.floats(name, &[words, width])?),
        })
    }

    fn head(&self) -> Result<Product, Error> {
        let own = own_head(self.config, self.weights);
        let load = Load { prefix: if own.is_some() { "" } else { self.prefix }, ..*self };
        Ok(Product {
            engine: Arc::clone(self.engine),
            matrix: load.rows(own.unwrap_or("wte.weight"))?,
            bias: None,
            gelu: false,
            inputs: self.config.n_embd,
            outputs: self.config.vocab_size,
        })
    }

    fn norm(&self, name: &str) -> Result<LayerNorm, Error> {
        let width = self.config.n_embd;
        Ok(LayerNorm {
            engine: Arc::clone(self.engine),
            scale: self.floats(&format!("{name}.weight"), &[width])?,
            shift: self.floats(&format!("{name}.bias"), &[width])?,
            epsilon: self.config.layer_norm_epsilon,
            width,
        })
    }

    fn block(&self, layer: usize) -> Result<Block, Error> {
        let [attention_in, attention_out, inner, outer] = linear_layers(self.config);
        Ok(Block {
            norm_1: self.norm(&format!("h.{layer}.ln_1"))?,
            attention_in: self.linear(layer, attention_in, false)?,
            attention_out: self.linear(layer, attention_out, false)?,
            norm_2: self.norm(&format!("h.{layer}.ln_2"))?,
            inner: self.linear(layer, inner, true)?,
            outer: self.linear(layer, outer, false)?,
        })
    }

    fn linear(
        &self,
        layer: usize,
        (name, inputs, outputs): (&str, usize, usize),
        gelu: bool,
    ) -> Result<Product, Error> {
        let weight = format!("h.{layer}.{name}.weight");
        let matrix = match self.bytes(&weight, inputs, outputs)? {
            Some((weights, scales)) => Matrix::Bytes { weights, scales },
            None => Matrix::Columns(self.floats(&weight, &[inputs, outputs])?),
        };
        let bias = Some(self.floats(&format!("h.{layer}.{name}.bias"), &[outputs])?);
        Ok(Product { engine: Arc::clone(self.engine), matrix, bias, gelu, inputs, outputs })
    }
}
