//! Generates texts token by token, one or several at the same time.

use std::time::Instant;

use ken_types::Error;

use crate::cache::{Cache, Next};
use crate::model::Model;
use crate::sample::{Sampler, Sampling};
use crate::text::Text;
use crate::vocabulary::Vocabulary;

/// The settings that all texts share.
pub struct Generator {
    pub model: Model,
    pub vocabulary: Vocabulary,
    /// Tokens that end a text.
    pub ends: Vec<u32>,
}

/// The settings of one text.
#[derive(Debug, Clone, PartialEq)]
pub struct Parameters {
    pub sampling: Sampling,
    /// Maximum number of tokens; the default is 128, or fewer if the model has no more positions.
    pub max_new_tokens: Option<usize>,
    pub stops: Vec<String>,
    /// When all positions are used, forget the oldest tokens instead of ending the text.
    pub sliding_window: bool,
}

/// The reason why a text ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// The model produced one of its end tokens.
    Eos,
    /// The requested number of tokens was reached or, if none was requested, the default or the model's last position.
    Length,
    /// The text contained a stop sequence.
    Stop,
}

/// A text that is being generated.
pub struct Run {
    /// Prompt and generated tokens.
    tokens: Vec<u32>,
    prompt: usize,
    /// The number of tokens that the model has processed.
    fed_tokens: usize,
    cache: Cache,
    sampler: Sampler,
    limit: usize,
    pub text: Text,
    pub reason: Option<Reason>,
    first_token: Option<Instant>,
    last_token: Instant,
}

const DEFAULT_LENGTH: usize = 128;

impl Run {
    /// Starts a text that continues these tokens.
    pub fn new(model: &Model, prompt: Vec<u32>, parameters: &Parameters) -> Result<Run, Error> {
        let limit = limit(prompt.len(), model.config.n_positions, parameters)?;
        Ok(Run {
            prompt: prompt.len(),
            tokens: prompt,
            fed_tokens: 0,
            cache: model.cache(),
            sampler: Sampler::new(parameters.sampling, model.engine().isa),
            limit,
            text: Text::new(&parameters.stops),
            reason: None,
            first_token: None,
            last_token: Instant::now(),
        })
    }

    pub fn prompt(&self) -> &[u32] {
        &self.tokens[..self.prompt]
    }

    /// The tokens generated so far, including an end token.
    pub fn generated(&self) -> &[u32] {
        &self.tokens[self.prompt..]
    }

    /// Tokens per second after the first one; `None` if there was only one.
    pub fn speed(&self) -> Option<f64> {
        let seconds = self.last_token.duration_since(self.first_token?).as_secs_f64();
        (seconds > 0.0).then(|| (self.generated().len() as f64 - 1.0) / seconds)
    }

    pub fn first_token(&self) -> Option<Instant> {
        self.first_token
    }

    /// The tokens to feed next. When all positions are used, the last three quarters of the tokens are fed again from position 0,
    /// because GPT-2 adds a learned embedding to each position, so that a cached token cannot be moved.
    fn next(&mut self, positions: usize) -> Next<'_> {
        if self.cache.len() + self.tokens.len() - self.fed_tokens > positions {
            self.cache.clear();
            self.fed_tokens = self.tokens.len().saturating_sub((positions * 3 / 4).max(1));
        }
        Next { cache: &mut self.cache, tokens: &self.tokens[self.fed_tokens..] }
    }

    fn accept(&mut self, token: u32, generator: &Generator) {
        self.fed_tokens = self.tokens.len();
        self.tokens.push(token);
        self.last_token = Instant::now();
        self.first_token.get_or_insert(self.last_token);
        if generator.ends.contains(&token) {
            self.reason = Some(Reason::Eos);
        } else {
            self.text.push(generator.vocabulary.bytes(token));
            if self.text.stopped_by().is_some() {
                self.reason = Some(Reason::Stop);
            } else if self.generated().len() == self.limit {
                self.reason = Some(Reason::Length);
            }
        }
        if self.reason.is_some() {
            self.text.finish();
        }
    }
}

impl Generator {
    /// Generates one token for each of these texts, none of which may have ended. The weights are read once for all of them.
    pub fn step(&self, runs: &mut [&mut Run]) -> Result<(), Error> {
        let positions = self.model.config.n_positions;
        let mut batch: Vec<Next<'_>> = runs.iter_mut().map(|run| run.next(positions)).collect();
        let logits = self.model.forward(&mut batch)?;
        for (run, mut logits) in runs.iter_mut().zip(logits) {
            let token = run.sampler.pick(&mut logits, &run.tokens);
            run.accept(token, self);
        }
        Ok(())
    }
}

/// How many tokens may follow a prompt of this length.
fn limit(prompt: usize, positions: usize, parameters: &Parameters) -> Result<usize, Error> {
    let slide = "--sliding-window forgets the oldest tokens instead";
    if prompt == 0 {
        return Err(Error::invalid("/prompt", "the prompt is empty"));
    }
    if parameters.max_new_tokens == Some(0) {
        return Err(Error::invalid("/max_new_tokens", "max_new_tokens is 0; it must be at least 1"));
    }
    if parameters.sliding_window {
        return Ok(parameters.max_new_tokens.unwrap_or(DEFAULT_LENGTH));
    }
    // The last token is not fed to the model, so it needs no position.
    let Some(room) = (positions + 1).checked_sub(prompt).filter(|room| *room > 0) else {
        let fault = format!("the prompt is too long: {prompt} tokens, and the model has {positions} positions");
        return Err(Error::too_large(fault).at("/prompt").hint(slide));
    };
    match parameters.max_new_tokens {
        Some(requested) if requested > room => {
            let fault = format!(
                "a prompt of {prompt} tokens leaves room for {room} more in the model's {positions} positions; {requested} were asked for"
            );
            Err(Error::too_large(fault).at("/max_new_tokens").hint(slide))
        }
        asked => Ok(asked.unwrap_or(DEFAULT_LENGTH.min(room))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parameters(max_new_tokens: Option<usize>, sliding_window: bool) -> Parameters {
        Parameters { sampling: Sampling::default(), max_new_tokens, stops: Vec::new(), sliding_window }
    }

    #[test]
    fn the_limit_is_the_requested_length_or_what_fits() {
        assert_eq!(limit(3, 1024, &parameters(None, false)), Ok(128));
        assert_eq!(limit(1000, 1024, &parameters(None, false)), Ok(25));
        assert_eq!(limit(1024, 1024, &parameters(None, false)), Ok(1));
        assert_eq!(limit(1000, 1024, &parameters(Some(25), false)), Ok(25));
        assert_eq!(limit(2000, 1024, &parameters(Some(500), true)), Ok(500));
        for (prompt, parameters) in [
            (0, parameters(None, true)),
            (1025, parameters(None, false)),
            (1000, parameters(Some(26), false)),
            (1, parameters(Some(0), true)),
        ] {
            assert!(limit(prompt, 1024, &parameters).is_err(), "{prompt} {parameters:?}");
        }
    }
}
