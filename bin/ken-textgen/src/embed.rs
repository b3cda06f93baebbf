//! Embeds texts with an encoder like BERT (Devlin et al. 2019), in the format of sentence-transformers: word, position and type
//! embeddings, blocks of attention and feed-forward layers with layer norm after each, and pooling of the token vectors into one
//! vector.

use std::path::Path;

use candle_core::{Device, Tensor};
use ken_types::{Code, Error};
use safetensors::Dtype;
use serde::Deserialize;
use tokenizers::{Tokenizer, TruncationParams};

use crate::config::{read_file, read_json};
use crate::load::check_folder;
use crate::plain::{Linear, Norm, softmax};
use crate::weights::{Slice, Weights};

/// The minimum number of tokens of a text: one token, and the special tokens at both ends.
const MIN_TOKENS: usize = 3;

/// The vector of a text, normalised to length 1, and the number of its tokens.
#[derive(Debug, Clone, PartialEq)]
pub struct Embedded {
    pub vector: Vec<f32>,
    pub tokens: usize,
}

/// An encoder that is ready to compute.
pub struct Embedder {
    tokenizer: Tokenizer,
    heads: usize,
    words: Tensor,
    /// The position embeddings. The embedding of the only token type has been added to each of them.
    positions: Tensor,
    norm: Norm,
    blocks: Vec<Block>,
    pooling: Pooling,
}

/// The shape of the model. Field names are those of `config.json`.
#[derive(Deserialize)]
struct Config {
    model_type: String,
    hidden_size: usize,
    num_hidden_layers: usize,
    num_attention_heads: usize,
    intermediate_size: usize,
    max_position_embeddings: usize,
    type_vocab_size: usize,
    vocab_size: usize,
    hidden_act: String,
    layer_norm_eps: f32,
    #[serde(default = "absolute")]
    position_embedding_type: String,
}

fn absolute() -> String {
    "absolute".to_owned()
}

/// How the token vectors are combined; `1_Pooling/config.json`.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
struct Pooling {
    /// Whether the vector of the first token is used; otherwise the mean of all.
    #[serde(default)]
    pooling_mode_cls_token: bool,
    #[serde(default)]
    pooling_mode_max_tokens: bool,
}

/// `sentence_bert_config.json`: the longest text that the model was trained for, in tokens.
#[derive(Default, Deserialize)]
struct SequenceLimit {
    max_seq_length: Option<usize>,
}

struct Block {
    query: Linear,
    key: Linear,
    value: Linear,
    out: Linear,
    norm_1: Norm,
    inner: Linear,
    outer: Linear,
    norm_2: Norm,
}

impl Embedder {
    /// Opens `config.json`, `model.safetensors` and `tokenizer.json` of a model directory, and checks that they fit together.
    pub fn open(folder: &Path) -> Result<Embedder, Error> {
        check_folder(folder)?;
        let path = folder.join("config.json");
        let config: Config = read_json(&path)?;
        if let Some((field, fault)) = config.fault() {
            let message = format!("{}: {field} {fault}", path.display());
            return Err(Error::invalid(format!("/{field}"), message));
        }
        let pooling: Pooling = optional(&folder.join("1_Pooling/config.json"))?;
        if pooling.pooling_mode_max_tokens {
            let message = format!("{}: only pooling by the mean or by the first token is supported", folder.display());
            return Err(Error::invalid("/pooling_mode_max_tokens", message));
        }
        let usual: SequenceLimit = optional(&folder.join("sentence_bert_config.json"))?;
        let max = usual.max_seq_length.unwrap_or(usize::MAX).min(config.max_position_embeddings);
        let tokenizer = tokenizer(folder, &config, max.max(MIN_TOKENS))?;
        let weights = Weights::open(&folder.join("model.safetensors"))?;
        let prefix = if weights.has("bert.embeddings.word_embeddings.weight") { "bert." } else { "" };
        let load = Load { config: &config, weights: &weights, prefix };
        Ok(Embedder {
            tokenizer,
            heads: config.num_attention_heads,
            words: load.table("embeddings.word_embeddings", config.vocab_size)?,
            positions: load.positions()?,
            norm: load.norm("embeddings.LayerNorm")?,
            blocks: (0..config.num_hidden_layers).map(|layer| load.block(layer)).collect::<Result<_, _>>()?,
            pooling,
        })
    }

    /// The vector of a text. Tokens beyond the longest text of the model are ignored.
    pub fn embed(&self, text: &str) -> Result<Embedded, Error> {
        let encoding = self.tokenizer.encode(text, true);
        let encoding = encoding.map_err(|error| Error::internal(format!("the tokenizer failed: {error}")))?;
        let tokens = encoding.get_ids();
        let vector = self.compute(tokens).map_err(computing)?;
        if vector.iter().any(|value| !value.is_finite()) {
            return Err(Error::invalid("", "the model's output contains values that are not finite numbers")
                .hint("the weights are damaged; fetch them again"));
        }
        Ok(Embedded { vector, tokens: tokens.len() })
    }

    fn compute(&self, tokens: &[u32]) -> candle_core::Result<Vec<f32>> {
        let ids = Tensor::new(tokens, &Device::Cpu)?;
        let words = self.words.index_select(&ids, 0)?;
        let positions = self.positions.narrow(0, 0, tokens.len())?;
        let mut x = self.norm.apply(&(words + positions)?)?;
        for block in &self.blocks {
            x = block.apply(&x, self.heads)?;
        }
        let pooled = if self.pooling.pooling_mode_cls_token { x.get(0)? } else { x.mean(0)? };
        let length = pooled.sqr()?.sum_all()?.sqrt()?;
        pooled.broadcast_div(&length)?.to_vec1()
    }
}

impl Config {
    fn fault(&self) -> Option<(&'static str, String)> {
        // Above this, the product of two sizes could overflow.
        const MAX_SIZE: usize = 1 << 24;
        let sizes = [
            ("hidden_size", self.hidden_size),
            ("num_hidden_layers", self.num_hidden_layers),
            ("num_attention_heads", self.num_attention_heads),
            ("intermediate_size", self.intermediate_size),
            ("max_position_embeddings", self.max_position_embeddings),
            ("type_vocab_size", self.type_vocab_size),
            ("vocab_size", self.vocab_size),
        ];
        if let Some((name, size)) = sizes.into_iter().find(|(_, size)| !(1..=MAX_SIZE).contains(size)) {
            return Some((name, format!("is {size}; it must be from 1 to {MAX_SIZE}")));
        }
        if self.max_position_embeddings < MIN_TOKENS {
            let fault = format!("is {}; a text has at least {MIN_TOKENS} tokens", self.max_position_embeddings);
            return Some(("max_position_embeddings", fault));
        }
        let only = |field, found: &str, known: &str| {
            (found != known).then(|| (field, format!("is {found:?}; only {known:?} is known")))
        };
        if !self.hidden_size.is_multiple_of(self.num_attention_heads) {
            let fault =
                format!("is {}, which does not divide hidden_size {}", self.num_attention_heads, self.hidden_size);
            return Some(("num_attention_heads", fault));
        }
        only("model_type", &self.model_type, "bert")
            .or_else(|| only("hidden_act", &self.hidden_act, "gelu"))
            .or_else(|| only("position_embedding_type", &self.position_embedding_type, "absolute"))
    }
}

/// Reads an optional JSON file; without it, the default is returned.
fn optional<T: serde::de::DeserializeOwned + Default>(path: &Path) -> Result<T, Error> {
    if path.exists() { read_json(path) } else { Ok(T::default()) }
}

/// The tokenizer of the directory, for single texts of at most this many tokens.
fn tokenizer(folder: &Path, config: &Config, max: usize) -> Result<Tokenizer, Error> {
    let path = folder.join("tokenizer.json");
    let wrong = |fault: String| Error::new(Code::Invalid, format!("{}: {fault}", path.display()));
    let mut tokenizer = Tokenizer::from_bytes(read_file(&path)?).map_err(|error| wrong(error.to_string()))?;
    let own = tokenizer.get_vocab_size(true);
    if own > config.vocab_size {
        let fault = format!("it has {own} tokens; the model's vocab_size is {}", config.vocab_size);
        return Err(wrong(fault).at("/vocab_size"));
    }
    let truncation = TruncationParams { max_length: max, ..TruncationParams::default() };
    tokenizer.with_padding(None);
    let cut = tokenizer.with_truncation(Some(truncation));
    cut.map_err(|error| wrong(error.to_string()))?;
    Ok(tokenizer)
}

fn computing(error: candle_core::Error) -> Error {
    Error::internal(format!("candle: {error}"))
}

/// Reads tensors of a model.
struct Load<'a> {
    config: &'a Config,
    weights: &'a Weights,
    prefix: &'a str,
}

impl Load<'_> {
    fn floats(&self, name: &str, shape: &[usize]) -> Result<Slice, Error> {
        self.weights.tensor(&format!("{}{name}", self.prefix), Dtype::F32, shape)
    }

    fn table(&self, name: &str, rows: usize) -> Result<Tensor, Error> {
        let shape = [rows, self.config.hidden_size];
        let table = self.floats(&format!("{name}.weight"), &shape)?;
        Tensor::from_vec(table.to_vec(), &shape, &Device::Cpu).map_err(computing)
    }

    fn positions(&self) -> Result<Tensor, Error> {
        let positions = self.table("embeddings.position_embeddings", self.config.max_position_embeddings)?;
        let types = self.table("embeddings.token_type_embeddings", self.config.type_vocab_size)?;
        let first = types.get(0).map_err(computing)?;
        positions.broadcast_add(&first).map_err(computing)
    }

    fn norm(&self, name: &str) -> Result<Norm, Error> {
        let part = |part: &str| self.floats(&format!("{name}.{part}"), &[self.config.hidden_size]);
        let (scale, shift) = (part("weight")?, part("bias")?);
        Norm::new(&scale, &shift, self.config.layer_norm_eps, &Device::Cpu).map_err(computing)
    }

    fn linear(&self, name: &str, inputs: usize, outputs: usize) -> Result<Linear, Error> {
        let weight = self.floats(&format!("{name}.weight"), &[outputs, inputs])?;
        let bias = self.floats(&format!("{name}.bias"), &[outputs])?;
        Linear::transposed(&weight, &bias, (outputs, inputs), &Device::Cpu).map_err(computing)
    }

    fn block(&self, layer: usize) -> Result<Block, Error> {
        let (width, inner) = (self.config.hidden_size, self.config.intermediate_size);
        let name = |part: &str| format!("encoder.layer.{layer}.{part}");
        Ok(Block {
            query: self.linear(&name("attention.self.query"), width, width)?,
            key: self.linear(&name("attention.self.key"), width, width)?,
            value: self.linear(&name("attention.self.value"), width, width)?,
            out: self.linear(&name("attention.output.dense"), width, width)?,
            norm_1: self.norm(&name("attention.output.LayerNorm"))?,
            inner: self.linear(&name("intermediate.dense"), width, inner)?,
            outer: self.linear(&name("output.dense"), inner, width)?,
            norm_2: self.norm(&name("output.LayerNorm"))?,
        })
    }
}

impl Block {
    /// Applies the layer to a matrix with one row per token, and returns a matrix of the same shape.
    fn apply(&self, x: &Tensor, heads: usize) -> candle_core::Result<Tensor> {
        let (tokens, width) = x.dims2()?;
        let size = width / heads;
        let by_head = |linear: &Linear| {
            let rows = linear.apply(x)?.reshape((tokens, heads, size))?;
            rows.transpose(0, 1)?.contiguous()
        };
        let (query, key, value) = (by_head(&self.query)?, by_head(&self.key)?, by_head(&self.value)?);
        let scores = (query.matmul(&key.transpose(1, 2)?.contiguous()?)? / (size as f64).sqrt())?;
        let seen = softmax(&scores)?.matmul(&value)?;
        let seen = seen.transpose(0, 1)?.contiguous()?.reshape((tokens, width))?;
        let x = self.norm_1.apply(&(self.out.apply(&seen)? + x)?)?;
        let thought = self.outer.apply(&self.inner.apply(&x)?.gelu_erf()?)?;
        self.norm_2.apply(&(thought + x)?)
    }
}
