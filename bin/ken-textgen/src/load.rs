//! Loads a model from its directory.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use candle_core::Device;
use ken_types::Error;

use crate::config::{Config, Generation};
use crate::generate::Generator;
use crate::memory;
use crate::model::Model;
use crate::product::Engine;
use crate::sidecar;
use crate::simd::Isa;
use crate::vocabulary::Encoder;
use crate::weights::Weights;

/// Which model to load, and how to compute.
pub struct Plan {
    pub folder: PathBuf,
    pub int8: bool,
    /// The number of threads; the default is one per processor, or fewer if a measurement shows that this is faster.
    pub threads: Option<usize>,
    pub isa: Isa,
}

/// A model that has been opened and checked, but whose weights have not been read.
pub struct Opened {
    pub generation: Generation,
    pub encoder: Encoder,
    pub generator: Generator,
    /// Whether the number of threads will be determined by measurement.
    pub measure: bool,
}

impl Plan {
    /// Opens all files and checks that they fit together. `progress` is called with a description of each step.
    pub fn open(&self, progress: impl Fn(&str) + Sync) -> Result<Opened, Error> {
        check_folder(&self.folder)?;
        let config = Config::read(&self.folder.join("config.json"))?;
        let generation = Generation::read(&self.folder.join("generation_config.json"))?;
        let floats = Weights::open(&self.folder.join("model.safetensors"))?;
        progress(&format!("loading {}", self.folder.display()));
        let engine = Engine::new(self.threads(&floats), self.isa);
        let weights = self.weights(&config, floats, &engine, &progress)?;
        let ends = end_tokens(&generation, &config)?;
        let model = Model::new(config, weights, &engine)?;
        // One thread maps the pages while another reads the vocabulary. With int8 weights this is done in sequence: the
        // vocabulary would be a large part of the peak memory, so it is freed before the weights are mapped.
        let encoder = std::thread::scope(|scope| {
            if !self.int8 {
                scope.spawn(|| model.prefetch());
            }
            Encoder::read(&self.folder)
        })?;
        let vocabulary = encoder.vocabulary(model.config.vocab_size)?;
        let model = model.on(device()?)?;
        let generator = Generator { model, vocabulary, ends };
        Ok(Opened { generation, encoder, generator, measure: self.threads.is_none() })
    }

    fn weights(
        &self,
        config: &Config,
        floats: Weights,
        engine: &Arc<Engine>,
        progress: &impl Fn(&str),
    ) -> Result<Weights, Error> {
        if self.int8 { sidecar::open_or_make(config, &floats, engine, progress) } else { Ok(floats) }
    }

    fn threads(&self, weights: &Weights) -> usize {
        const MAX_THREADS: usize = 64;
        // The number of bytes below which computing a token takes less time than synchronising threads.
        const SMALL_MODEL: usize = 4 << 20;
        let processors = || std::thread::available_parallelism().map_or(1, usize::from);
        match self.threads {
            Some(threads) => threads.clamp(1, MAX_THREADS),
            None if weights.data_len() < SMALL_MODEL => 1,
            None => processors().min(MAX_THREADS),
        }
    }
}

impl Opened {
    /// Returns the generator and leaks the encoder: freeing its 150 000 words takes longer than a token, and the process ends
    /// soon.
    pub fn forget_encoder(self) -> Generator {
        std::mem::forget(self.encoder);
        self.generator
    }

    /// Returns the generator and frees the encoder before the weights are mapped, to keep the peak memory low.
    pub fn drop_encoder(self) -> Generator {
        drop(self.encoder);
        memory::return_freed_memory();
        self.generator.model.prefetch();
        self.generator
    }
}

pub(crate) fn check_folder(folder: &Path) -> Result<(), Error> {
    let about = std::fs::metadata(folder).map_err(|error| ken_tool::unreadable(folder, &error))?;
    if !about.is_dir() {
        let fault = format!("{} is not a directory", folder.display());
        return Err(Error::invalid("--model-dir", fault)
            .hint("it must contain config.json, model.safetensors and tokenizer.json"));
    }
    Ok(())
}

pub(crate) fn end_tokens(generation: &Generation, config: &Config) -> Result<Vec<u32>, Error> {
    let ends = generation.end_tokens(config);
    match ends.iter().find(|end| **end as usize >= config.vocab_size) {
        Some(end) => {
            let fault = format!("eos_token_id {end} is not below vocab_size {}", config.vocab_size);
            Err(Error::invalid("/eos_token_id", fault))
        }
        None => Ok(ends),
    }
}

/// The device to compute on: a GPU if this build supports it and one is visible and not disabled; otherwise the processor.
fn device() -> Result<Device, Error> {
    let variable = |name: &str| std::env::var(name).ok();
    let forced = variable("PYTORCH_FORCE_CPU").is_some_and(|value| value == "1" || value == "true");
    let hidden = variable("CUDA_VISIBLE_DEVICES").is_some_and(|value| value.is_empty() || value == "-1");
    if forced || hidden || !cfg!(feature = "cuda") {
        return Ok(Device::Cpu);
    }
    Device::cuda_if_available(0).map_err(|error| {
        let fault = format!("the CUDA device cannot be used: {error}");
        Error::unavailable(fault).hint("set PYTORCH_FORCE_CPU=1 to compute on the processor")
    })
}
