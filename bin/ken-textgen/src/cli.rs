//! The flags of ken-textgen.

use std::path::PathBuf;

use clap::{Parser, ValueEnum};
use ken_textgen::simd::Isa;
use ken_types::Error;

/// Generate text with a local GPT-2 model
#[derive(Parser)]
#[command(name = "ken-textgen", version, after_help = "Manual: ken-textgen(1)")]
pub(crate) struct Cli {
    /// Model directory: config.json, model.safetensors, tokenizer.json or vocab.json and merges.txt
    #[arg(long, value_name = "DIR", conflicts_with = "model")]
    pub(crate) model_dir: Option<PathBuf>,
    /// Alias in MVLM_MODEL_DIRS (alias:directory,…) [default: ACTIVE_MVLM_MODEL, else the first]
    #[arg(long, value_name = "ALIAS")]
    pub(crate) model: Option<String>,
    /// Check the model and describe it, without generating text
    #[arg(long, conflicts_with_all = ["prompt", "prompt_file", "lines", "stream", "format"])]
    pub(crate) check: bool,
    /// Write the vector of the text as JSON; the model is an encoder of the kind of BERT
    #[arg(long, conflicts_with_all = ["check", "stream", "int8"])]
    pub(crate) embed: bool,
    /// List the aliases of MVLM_MODEL_DIRS
    #[arg(long, exclusive = true)]
    pub(crate) list_models: bool,
    /// Text to continue
    #[arg(short, long, value_name = "TEXT", conflicts_with_all = ["prompt_file", "lines"])]
    pub(crate) prompt: Option<String>,
    /// Read the prompt from PATH; - is standard input
    #[arg(short = 'f', long, visible_alias = "file", value_name = "PATH")]
    pub(crate) prompt_file: Option<PathBuf>,
    /// Engine; only `hf`
    #[arg(long, default_value = "hf", value_parser = ["hf"])]
    pub(crate) engine: String,
    #[command(flatten)]
    pub(crate) sampling: SamplingFlags,
    /// Maximum number of tokens [default: 128, or as many as the model has positions for]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(crate) max_new_tokens: Option<usize>,
    /// Stop before TEXT; may be repeated
    #[arg(long, value_name = "TEXT")]
    pub(crate) stop: Vec<String>,
    /// Drop the oldest tokens when the positions of the model are used up
    #[arg(long)]
    pub(crate) sliding_window: bool,
    /// Write each token as soon as it is generated
    #[arg(long)]
    pub(crate) stream: bool,
    /// Output format
    #[arg(long, value_enum)]
    pub(crate) format: Option<Format>,
    /// Read one prompt per line, plain or as JSON, and write one answer per line
    #[arg(long)]
    pub(crate) lines: bool,
    /// With --lines, generate up to N texts concurrently
    #[arg(long, value_name = "N", allow_negative_numbers = true, default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) batch: u16,
    /// Use int8 weights, which are written beside the model on first use
    #[arg(long)]
    pub(crate) int8: bool,
    /// Threads [default: by measurement]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) threads: Option<u16>,
    /// Instruction set: avx512, avx2 or scalar [default: the best available]
    #[arg(long, value_name = "NAME", value_parser = isa)]
    pub(crate) isa: Option<Isa>,
}

#[derive(clap::Args)]
pub(crate) struct SamplingFlags {
    /// Always choose the most likely token
    #[arg(long)]
    pub(crate) greedy: bool,
    /// Sampling temperature: below 1 favours likely tokens, above 1 evens out [default: 1]
    #[arg(long, value_name = "T", allow_negative_numbers = true)]
    pub(crate) temperature: Option<f32>,
    /// Sample from the K most likely tokens; 0 for all [default: 50]
    #[arg(long, value_name = "K", allow_negative_numbers = true)]
    pub(crate) top_k: Option<usize>,
    /// Sample from the most likely tokens with a total probability of P [default: 1]
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    pub(crate) top_p: Option<f32>,
    /// Penalty for tokens that have occurred [default: 1]
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    pub(crate) repetition_penalty: Option<f32>,
    /// Never repeat a sequence of N tokens; 0 for no limit [default: 0]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(crate) no_repeat_ngram_size: Option<usize>,
    /// Seed of the random numbers [default: 0]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(crate) seed: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// The generated text
    Text,
    /// JSON, indented; with --stream, JSON lines
    Json,
    /// JSON on one line
    Compact,
}

/// The flags, or a text for standard output.
pub(crate) enum Parsed {
    Run(Box<Cli>),
    Print(String),
}

impl Parsed {
    pub(crate) fn from_arguments() -> Result<Parsed, Error> {
        match Cli::try_parse() {
            Ok(cli) => Ok(Parsed::Run(Box::new(cli))),
            Err(error) if !error.use_stderr() => Ok(Parsed::Print(error.render().to_string())),
            Err(error) => Err(ken_tool::usage_error(&error).hint("ken-textgen --help lists the options")),
        }
    }
}

fn isa(name: &str) -> Result<Isa, String> {
    let names: Vec<&str> = Isa::available().into_iter().map(Isa::name).collect();
    Isa::named(name).ok_or_else(|| format!("this processor has {}", names.join(", ")))
}
