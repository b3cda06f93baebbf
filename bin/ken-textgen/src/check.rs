//! Checks whether the model in a directory can be run.

use std::path::Path;

use ken_types::Error;
use serde::Serialize;

use crate::config::{Config, Generation};
use crate::load::{check_folder, end_tokens};
use crate::model::{Model, linear_layers, own_head};
use crate::product::Engine;
use crate::simd::Isa;
use crate::vocabulary::Encoder;
use crate::weights::Weights;

/// The description of a model whose files are consistent.
#[derive(Debug, PartialEq, Serialize)]
pub struct Checked {
    pub ok: bool,
    pub model_dir: String,
    pub parameters: usize,
    pub layers: usize,
    pub heads: usize,
    pub width: usize,
    /// Maximum number of tokens of prompt and text together.
    pub positions: usize,
    pub vocabulary: usize,
    pub weights_bytes: u64,
}

impl Checked {
    /// Makes the same checks as a start: the configuration, the names, types and shapes of all tensors, the length of the
    /// file, and the tokenizer. The weights themselves are not read, so NaN values are not found.
    pub fn of(folder: &Path) -> Result<Checked, Error> {
        check_folder(folder)?;
        let config = Config::read(&folder.join("config.json"))?;
        let generation = Generation::read(&folder.join("generation_config.json"))?;
        let weights = Weights::open(&folder.join("model.safetensors"))?;
        end_tokens(&generation, &config)?;
        let checked = Checked {
            ok: true,
            model_dir: folder.display().to_string(),
            parameters: parameters(&config, &weights),
            layers: config.n_layer,
            heads: config.n_head,
            width: config.n_embd,
            positions: config.n_positions,
            vocabulary: config.vocab_size,
            weights_bytes: weights.identity.length,
        };
        Model::new(config, weights, &Engine::new(1, Isa::Scalar))?;
        Encoder::read(folder)?.vocabulary(checked.vocabulary)?;
        Ok(checked)
    }
}

/// The number of parameters. Output weights that are shared with the word embeddings count once.
fn parameters(config: &Config, weights: &Weights) -> usize {
    let width = config.n_embd;
    let layers = linear_layers(config).map(|(_, inputs, outputs)| (inputs + 1) * outputs);
    let block = layers.iter().sum::<usize>() + 4 * width;
    let tables = 1 + usize::from(own_head(config, weights).is_some());
    (tables * config.vocab_size + config.n_positions + 2) * width + config.n_layer * block
}
