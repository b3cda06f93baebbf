//! The parameters of a text, combined from the fields of a request, the options, and the model's defaults.

use ken_textgen::config::Generation;
use ken_textgen::generate::Parameters;
use ken_textgen::sample::Sampling;
use ken_types::Error;
use serde::Deserialize;
use serde_json::Value;

use crate::cli::Cli;

/// A line of `--lines` as JSON. Absent fields have the values of the options.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Request {
    /// Repeated in every line of the answer.
    pub(crate) id: Option<Value>,
    pub(crate) prompt: String,
    pub(crate) max_new_tokens: Option<usize>,
    pub(crate) greedy: Option<bool>,
    pub(crate) temperature: Option<f32>,
    pub(crate) top_k: Option<usize>,
    pub(crate) top_p: Option<f32>,
    pub(crate) repetition_penalty: Option<f32>,
    pub(crate) no_repeat_ngram_size: Option<usize>,
    pub(crate) seed: Option<u64>,
    #[serde(default)]
    pub(crate) stop: Stops,
    pub(crate) stream: Option<bool>,
    pub(crate) sliding_window: Option<bool>,
}

/// A stop sequence or a list of them.
#[derive(Debug, Default, Deserialize)]
#[serde(untagged)]
pub(crate) enum Stops {
    One(String),
    Many(Vec<String>),
    #[default]
    None,
}

impl Stops {
    fn list(self) -> Vec<String> {
        match self {
            Stops::One(stop) => vec![stop],
            Stops::Many(stops) => stops,
            Stops::None => Vec::new(),
        }
    }
}

impl Request {
    /// Parses a line. A line that begins like a JSON object or string is parsed as JSON; any other line is the prompt itself.
    pub(crate) fn parse(line: &str) -> Result<Request, Error> {
        let prompt = |prompt: String| Request { prompt, ..Request::default() };
        match line.trim_start().bytes().next() {
            Some(b'{') => {
                let value = ken_types::json::parse(line.as_bytes(), ken_tool::MAX_DEPTH)?;
                ken_types::json::from_value(value)
            }
            Some(b'"') => {
                let value = ken_types::json::parse(line.as_bytes(), ken_tool::MAX_DEPTH)?;
                ken_types::json::from_value(value).map(prompt)
            }
            _ => Ok(prompt(line.to_owned())),
        }
    }
}

impl Request {
    /// Parses a whole input: a JSON object with a `prompt`, which returns true, or else the prompt itself. A text that only begins
    /// like JSON, such as a program that is to be continued, is a prompt.
    pub(crate) fn of_input(input: String) -> Result<(Request, bool), Error> {
        let value = ken_types::json::parse(input.as_bytes(), ken_tool::MAX_DEPTH).ok();
        match value.filter(|value| value.get("prompt").is_some()) {
            Some(value) => Ok((ken_types::json::from_value(value)?, true)),
            None => Ok((Request { prompt: input, ..Request::default() }, false)),
        }
    }
}

/// The parameters that the options set, checked. Errors name options.
pub(crate) fn from_flags(cli: &Cli, generation: &Generation) -> Result<Parameters, Error> {
    let flags = &cli.sampling;
    let sampled = flags.temperature.is_some() || flags.top_k.is_some() || flags.top_p.is_some() || flags.seed.is_some();
    let default = Sampling::default();
    let sampling = Sampling {
        // If the model's default is greedy, an option for sampling overrides it.
        greedy: flags.greedy || (generation.do_sample == Some(false) && !sampled),
        temperature: flags.temperature.or(generation.temperature).unwrap_or(default.temperature),
        top_k: flags.top_k.or(generation.top_k).unwrap_or(default.top_k),
        top_p: flags.top_p.or(generation.top_p).unwrap_or(default.top_p),
        repetition_penalty: flags
            .repetition_penalty
            .or(generation.repetition_penalty)
            .unwrap_or(default.repetition_penalty),
        no_repeat_ngram: flags
            .no_repeat_ngram_size
            .or(generation.no_repeat_ngram_size)
            .unwrap_or(default.no_repeat_ngram),
        seed: flags.seed.unwrap_or(default.seed),
    };
    sampling.check(|field| format!("--{}", field.replace('_', "-")))?;
    if cli.max_new_tokens == Some(0) {
        return Err(Error::invalid("--max-new-tokens", "--max-new-tokens is 0; it must be at least 1"));
    }
    Ok(Parameters {
        sampling,
        max_new_tokens: cli.max_new_tokens,
        stops: cli.stop.clone(),
        sliding_window: cli.sliding_window,
    })
}

/// The parameters of a request, with those of the options as defaults, checked. Errors name fields.
pub(crate) fn from_request(request: Request, flags: &Parameters) -> Result<Parameters, Error> {
    let base = flags.sampling;
    let sampling = Sampling {
        greedy: request.greedy.unwrap_or(base.greedy),
        temperature: request.temperature.unwrap_or(base.temperature),
        top_k: request.top_k.unwrap_or(base.top_k),
        top_p: request.top_p.unwrap_or(base.top_p),
        repetition_penalty: request.repetition_penalty.unwrap_or(base.repetition_penalty),
        no_repeat_ngram: request.no_repeat_ngram_size.unwrap_or(base.no_repeat_ngram),
        seed: request.seed.unwrap_or(base.seed),
    };
    sampling.check(|field| format!("/{field}"))?;
    let stops = request.stop.list();
    Ok(Parameters {
        sampling,
        max_new_tokens: request.max_new_tokens.or(flags.max_new_tokens),
        stops: if stops.is_empty() { flags.stops.clone() } else { stops },
        sliding_window: request.sliding_window.unwrap_or(flags.sliding_window),
    })
}
