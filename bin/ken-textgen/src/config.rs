//! `config.json` and `generation_config.json`: the architecture of the model, and its recommended settings for sampling.

use std::path::Path;

use ken_tool::unreadable;
use ken_types::Error;
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// The shape of a GPT-2 model. Names are those of `config.json`.
#[derive(Debug, Clone, Deserialize)]
pub struct Config {
    pub n_embd: usize,
    pub n_head: usize,
    pub n_layer: usize,
    pub n_positions: usize,
    pub vocab_size: usize,
    /// Width of the feed-forward layer; the default is four times `n_embd`.
    pub n_inner: Option<usize>,
    #[serde(default = "epsilon")]
    pub layer_norm_epsilon: f32,
    #[serde(default = "gelu_new")]
    activation_function: String,
    #[serde(default)]
    model_type: Option<String>,
    #[serde(default)]
    eos_token_id: Ids,
    #[serde(default = "default_true")]
    scale_attn_weights: bool,
    #[serde(default)]
    scale_attn_by_inverse_layer_idx: bool,
    #[serde(default = "default_true")]
    tie_word_embeddings: bool,
}

/// The model's defaults for sampling; flags override them.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct Generation {
    #[serde(default)]
    eos_token_id: Ids,
    pub do_sample: Option<bool>,
    pub temperature: Option<f32>,
    pub top_k: Option<usize>,
    pub top_p: Option<f32>,
    pub repetition_penalty: Option<f32>,
    pub no_repeat_ngram_size: Option<usize>,
}

/// `eos_token_id` is a number, a list of them, or null.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(untagged)]
enum Ids {
    One(u32),
    Many(Vec<u32>),
    #[default]
    None,
}

impl Ids {
    fn list(&self) -> Vec<u32> {
        match self {
            Ids::One(id) => vec![*id],
            Ids::Many(ids) => ids.clone(),
            Ids::None => Vec::new(),
        }
    }
}

impl Config {
    /// Reads and checks `config.json`. The error names a value that no GPT-2 model can have.
    pub fn read(path: &Path) -> Result<Config, Error> {
        let config: Config = read_json(path)?;
        match config.invalid_setting() {
            Some((field, fault)) => {
                Err(Error::invalid(format!("/{field}"), format!("{}: {field} {fault}", path.display())))
            }
            None => Ok(config),
        }
    }

    fn invalid_setting(&self) -> Option<(&'static str, String)> {
        let sizes = [
            ("n_embd", self.n_embd),
            ("n_head", self.n_head),
            ("n_layer", self.n_layer),
            ("n_positions", self.n_positions),
            ("vocab_size", self.vocab_size),
            ("n_inner", self.inner()),
        ];
        // A limit that keeps products of two sizes from overflowing; the largest size of GPT-2 is its vocabulary of 50 257.
        const MAX_SIZE: usize = 1 << 24;
        if let Some((name, size)) = sizes.into_iter().find(|(_, size)| !(1..=MAX_SIZE).contains(size)) {
            return Some((name, format!("is {size}; it must be from 1 to {MAX_SIZE}")));
        }
        if !self.n_embd.is_multiple_of(self.n_head) {
            return Some(("n_head", format!("is {}, which does not divide n_embd {}", self.n_head, self.n_embd)));
        }
        if !(self.layer_norm_epsilon > 0.0 && self.layer_norm_epsilon < 1.0) {
            return Some(("layer_norm_epsilon", format!("is {}", self.layer_norm_epsilon)));
        }
        self.unsupported_setting()
    }

    /// The first setting that requires an architecture which this program does not support, if there is one.
    fn unsupported_setting(&self) -> Option<(&'static str, String)> {
        if self.model_type.as_deref().is_some_and(|kind| kind != "gpt2") {
            let kind = self.model_type.as_deref().unwrap_or_default();
            return Some(("model_type", format!("is {kind:?}; only \"gpt2\" is supported")));
        }
        // Other activation functions, including the exact GELU, would give wrong text instead of an error.
        if !["gelu_new", "gelu_pytorch_tanh", "gelu_fast"].contains(&self.activation_function.as_str()) {
            let name = &self.activation_function;
            return Some(("activation_function", format!("is {name:?}; only \"gelu_new\" is supported")));
        }
        None
    }

    pub fn inner(&self) -> usize {
        self.n_inner.unwrap_or(self.n_embd.saturating_mul(4))
    }

    pub fn head_size(&self) -> usize {
        self.n_embd / self.n_head
    }

    /// The factor of the attention scores of a layer.
    pub fn attention_scale(&self, layer: usize) -> f32 {
        let root = if self.scale_attn_weights { (self.head_size() as f32).sqrt() } else { 1.0 };
        let depth = if self.scale_attn_by_inverse_layer_idx { layer as f32 + 1.0 } else { 1.0 };
        1.0 / (root * depth)
    }

    pub fn is_tied(&self) -> bool {
        self.tie_word_embeddings
    }
}

impl Generation {
    /// Reads `generation_config.json`, which may be absent.
    pub fn read(path: &Path) -> Result<Generation, Error> {
        if path.try_exists().is_ok_and(|exists| !exists) {
            return Ok(Generation::default());
        }
        read_json(path)
    }

    /// The tokens that end a text: those of `generation_config.json`, else those of `config.json`.
    pub fn end_tokens(&self, config: &Config) -> Vec<u32> {
        let own = self.eos_token_id.list();
        if own.is_empty() { config.eos_token_id.list() } else { own }
    }
}

fn epsilon() -> f32 {
    1e-5
}

fn gelu_new() -> String {
    "gelu_new".to_owned()
}

fn default_true() -> bool {
    true
}

/// Reads a JSON file as a type. Errors name the file and the field.
pub fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T, Error> {
    let bytes = read_file(path)?;
    let value = ken_types::json::parse(&bytes, ken_tool::MAX_DEPTH).and_then(ken_types::json::from_value);
    value.map_err(|error| {
        let place = error.at.as_deref().filter(|at| !at.is_empty()).map(|at| format!("{at}: "));
        let message = format!("{}: {}{}", path.display(), place.unwrap_or_default(), error.message);
        Error { message, ..error }
    })
}

/// Reads a whole file. Errors name it.
pub fn read_file(path: &Path) -> Result<Vec<u8>, Error> {
    std::fs::read(path).map_err(|error| unreadable(path, &error))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(change: &str) -> Result<Config, Error> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.json");
        let mut value = serde_json::json!({
            "n_embd": 8, "n_head": 2, "n_layer": 1, "n_positions": 16, "vocab_size": 30, "eos_token_id": [1, 2],
        });
        let change: serde_json::Value = serde_json::from_str(change).unwrap();
        value.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        std::fs::write(&path, value.to_string()).unwrap();
        Config::read(&path)
    }

    #[test]
    fn missing_fields_have_the_values_of_the_architecture() {
        let config = config("{}").unwrap();
        assert_eq!(config.inner(), 32);
        assert_eq!(config.attention_scale(3), 0.5);
        assert!(config.is_tied());
        assert_eq!(Generation::default().end_tokens(&config), [1, 2]);
    }

    #[test]
    fn each_fault_is_named() {
        for (change, at) in [
            (r#"{"n_head": 3}"#, "/n_head"),
            (r#"{"n_layer": 0}"#, "/n_layer"),
            (r#"{"n_embd": 99999999999}"#, "/n_embd"),
            (r#"{"vocab_size": "many"}"#, "/vocab_size"),
            (r#"{"activation_function": "gelu"}"#, "/activation_function"),
            (r#"{"model_type": "llama"}"#, "/model_type"),
            (r#"{"layer_norm_epsilon": 0}"#, "/layer_norm_epsilon"),
            (r#"{"eos_token_id": -1}"#, "/eos_token_id"),
        ] {
            let error = config(change).expect_err(change);
            assert_eq!(error.at.as_deref(), Some(at), "{error}");
            assert!(error.message.contains("config.json"), "{error}");
        }
    }
}
