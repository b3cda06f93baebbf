//! The flags of ken-textgen.

use std::path::PathBuf;

use clap::{Parser, ValueEnum};
use ken_textgen::simd::Isa;
use ken_types::Error;

/// Generate text with a local GPT-2 model
#[derive(Parser)]
#[command(name = "ken-textgen", version, after_help = "ken-textgen(1) tells the rest.")]
pub(crate) struct Cli {
    /// The model: config.json, model.safetensors, tokenizer.json or vocab.json and merges.txt
    #[arg(long, value_name = "DIR", conflicts_with = "model")]
    pub(crate) model_dir: Option<PathBuf>,
    /// The model, as an alias of MVLM_MODEL_DIRS (alias:directory,…); ACTIVE_MVLM_MODEL or its first one without this flag
    #[arg(long, value_name = "ALIAS")]
    pub(crate) model: Option<String>,
    /// Say whether the model would run, and what it is; generate nothing
    #[arg(long, conflicts_with_all = ["prompt", "prompt_file", "lines", "stream", "format"])]
    pub(crate) check: bool,
    /// List the aliases of MVLM_MODEL_DIRS
    #[arg(long, exclusive = true)]
    pub(crate) list_models: bool,
    /// The text to go on from
    #[arg(short, long, value_name = "TEXT", conflicts_with_all = ["prompt_file", "lines"])]
    pub(crate) prompt: Option<String>,
    /// Read the prompt from PATH; - is standard input
    #[arg(short = 'f', long, visible_alias = "file", value_name = "PATH")]
    pub(crate) prompt_file: Option<PathBuf>,
    /// What computes; there is one
    #[arg(long, default_value = "hf", value_parser = ["hf"])]
    pub(crate) engine: String,
    #[command(flatten)]
    pub(crate) sampling: SamplingFlags,
    /// Generate at most N tokens [default: 128, or what the model has positions for]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(crate) max_new_tokens: Option<usize>,
    /// End the text where TEXT would come; may be given several times
    #[arg(long, value_name = "TEXT")]
    pub(crate) stop: Vec<String>,
    /// Past the model's positions, forget the oldest tokens
    #[arg(long)]
    pub(crate) sliding_window: bool,
    /// Write each token as soon as it is there
    #[arg(long)]
    pub(crate) stream: bool,
    /// How the answer is written
    #[arg(long, value_enum)]
    pub(crate) format: Option<Format>,
    /// One prompt a line in, plain or as JSON; one answer a line out
    #[arg(long)]
    pub(crate) lines: bool,
    /// With --lines, generate up to N texts side by side
    #[arg(long, value_name = "N", allow_negative_numbers = true, default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) batch: u16,
    /// Compute with int8 weights; the first time, they are written beside the model
    #[arg(long)]
    pub(crate) int8: bool,
    /// Threads [default: by measurement]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) threads: Option<u16>,
    /// Instructions to use: avx512, avx2 or scalar [default: the best there is]
    #[arg(long, value_name = "NAME", value_parser = isa)]
    pub(crate) isa: Option<Isa>,
}

#[derive(clap::Args)]
pub(crate) struct SamplingFlags {
    /// Take the likeliest token each time
    #[arg(long)]
    pub(crate) greedy: bool,
    /// Below 1 bolder in what is likely, above 1 more even [default: 1]
    #[arg(long, value_name = "T", allow_negative_numbers = true)]
    pub(crate) temperature: Option<f32>,
    /// Choose among the K likeliest tokens; 0 is all [default: 50]
    #[arg(long, value_name = "K", allow_negative_numbers = true)]
    pub(crate) top_k: Option<usize>,
    /// Choose among the likeliest tokens that together have the share P [default: 1]
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    pub(crate) top_p: Option<f32>,
    /// Divide the logits of tokens that occurred by X [default: 1]
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    pub(crate) repetition_penalty: Option<f32>,
    /// Let no sequence of N tokens occur twice; 0 lets it [default: 0]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(crate) no_repeat_ngram_size: Option<usize>,
    /// Equal seeds give equal texts [default: 0]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(crate) seed: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// The generated text
    Text,
    /// JSON, indented; with --stream, JSON lines
    Json,
    /// JSON in one line
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
            Err(error) => Err(ken_tool::usage_error(&error).hint("ken-textgen --help lists the flags")),
        }
    }
}

fn isa(name: &str) -> Result<Isa, String> {
    let names: Vec<&str> = Isa::available().into_iter().map(Isa::name).collect();
    Isa::named(name).ok_or_else(|| format!("this processor has {}", names.join(", ")))
}
