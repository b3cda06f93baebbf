//! The provider `local`: a GPT-2 model on this machine, run by `ken-textgen`. The model only continues plain text: it calls no tools, and
//! it does not see text beyond its small number of positions.

mod process;
mod prompt;
mod vectors;

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use ken_types::event::{ModelName, Purpose, StopReason, Usage};
use ken_types::ops::model::{Delta, Generate};
use ken_types::{Code, Error};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::breaker::{Breakers, Failed, Fault};
use crate::provider::{Completion, DeltaSink, Pending, Provider, Window, full_name};
use crate::rules;
use process::{End, Idle, Line, Process};
pub(crate) use vectors::Vectors;

/// Maximum number of tokens in an answer: a quarter of GPT-2's positions.
const MAX_TOKENS: u64 = USUAL_POSITIONS / 4;

/// The positions that are assumed for a model that cannot be examined.
const USUAL_POSITIONS: u64 = 1024;

/// The minimum interval between deltas. Tokens arrive faster than a person can read, and each delta becomes a durable
/// event.
const BETWEEN_DELTAS: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(crate) struct Local {
    name: ModelName,
    /// The alias of the model. `None` means the default model of ken-textgen.
    alias: Option<String>,
    /// Admits one text at a time, because two would share the memory bandwidth and be no faster together.
    turn: Semaphore,
    idle: Idle,
    window: OnceLock<Window>,
    breakers: Arc<Breakers>,
}

impl Local {
    pub(crate) fn new(alias: Option<&str>, breakers: Arc<Breakers>) -> Local {
        let name = ModelName { provider: "local".into(), id: alias.unwrap_or("default").into() };
        Local {
            name,
            alias: alias.map(str::to_owned),
            turn: Semaphore::new(1),
            idle: Idle::default(),
            window: OnceLock::new(),
            breakers,
        }
    }

    async fn generate(&self, request: &Generate, sink: &dyn DeltaSink) -> Result<Completion, Error> {
        let name = full_name(self);
        self.breakers.admit(&self.name.provider, &name, request.chosen, Instant::now())?;
        match self.continued(request, sink).await {
            Ok(completion) => {
                self.breakers.succeed(&self.name.provider, &name);
                Ok(completion)
            }
            // That a model does not exist that is in no list concerns no other call.
            Err(failed) if request.unlisted => Err(failed.error),
            Err(failed) => Err(self.breakers.fail(&self.name.provider, &name, failed, Instant::now())),
        }
    }

    async fn continued(&self, request: &Generate, sink: &dyn DeltaSink) -> Result<Completion, Failed> {
        let turn = self.turn.acquire().await;
        let _turn = turn.map_err(|_| Error::internal("the turns have ended"))?;
        let model = match &self.alias {
            Some(alias) => Some(alias.clone()),
            None => process::active().await,
        };
        let mut process = self.idle.process(model.as_deref(), &[]).map_err(unusable)?;
        process.ask(&request_json(request)).await;
        // If the call is cancelled or fails here, the process is dropped, which kills it.
        let completion = relay_text(&mut process, request, sink).await?;
        self.idle.keep(process);
        Ok(completion)
    }
}

/// An error of the process itself. One that cannot use its model says why. One that is killed says nothing, which may happen once.
fn unusable(error: Error) -> Failed {
    match error.code {
        Code::Unavailable => Failed::new(error, Fault::Server),
        // The part can read only folders that existed when it was started.
        _ if error.hint.is_none() => {
            Failed::new(error.hint("if the model's folder came after the start: ken restart model"), Fault::Model)
        }
        _ => Failed::new(error, Fault::Model),
    }
}

impl Provider for Local {
    fn api(&self) -> &'static str {
        "textgen"
    }

    fn name(&self) -> &ModelName {
        &self.name
    }

    /// Returns the model's positions, which are looked up only once.
    fn window(&self) -> Window {
        *self.window.get_or_init(|| {
            let positions = process::positions(self.alias.as_deref()).unwrap_or_else(|error| {
                tracing::warn!(model = self.name.id, hint = error.hint, "local: {}", error.message);
                USUAL_POSITIONS
            });
            Window { tokens: positions, reserve: MAX_TOKENS.min(positions / 4) }
        })
    }

    /// This model continues a text but cannot summarise it. A compaction therefore keeps first sentences, as the engine
    /// `rules` does.
    fn answer<'a>(&'a self, request: &'a Generate, sink: &'a dyn DeltaSink) -> Pending<'a, Result<Completion, Error>> {
        match request.purpose {
            Purpose::Agent => Box::pin(self.generate(request, sink)),
            Purpose::Compaction | Purpose::CompactionPrefix => {
                let window = self.window();
                let tokens = (window.tokens - window.reserve) / SUMMARY_SHARE;
                Box::pin(rules::summarize(request, tokens, sink))
            }
        }
    }
}

/// A summary may use this fraction of the window (one fourth). The rest is for rules, sources and later exchanges.
const SUMMARY_SHARE: u64 = 4;

fn request_json(request: &Generate) -> Value {
    json!({
        "prompt": prompt::of(request),
        "stop": prompt::STOPS,
        "max_new_tokens": MAX_TOKENS,
        "sliding_window": true,
        "stream": true,
    })
}

/// Passes on the text as it arrives, in a few pieces per second.
async fn relay_text(process: &mut Process, request: &Generate, sink: &dyn DeltaSink) -> Result<Completion, Failed> {
    let mut speech =
        DeltaBuffer { sink, begun: !request.prefix.is_empty(), waiting: String::new(), last_sent_at: None };
    loop {
        match process.next().await.map_err(unusable)? {
            Line::Piece { delta } => speech.add(&delta).await?,
            Line::Error { error } => return Err(Failed::new(error, Fault::Request)),
            Line::Vector { .. } => {
                return Err(Error::unavailable("ken-textgen gives a vector instead of a text").into());
            }
            Line::End(end) => {
                speech.flush().await?;
                return if speech.begun {
                    Ok(completion(&end))
                } else {
                    Err(Failed::new(Error::invalid("", "the model has nothing to say to this"), Fault::Request))
                };
            }
        }
    }
}

fn completion(end: &End) -> Completion {
    let (input, output) = (end.prompt_tokens, end.completion_tokens);
    Completion {
        stop_reason: match end.stop_reason.as_str() {
            "length" => StopReason::Length,
            _ => StopReason::Stop,
        },
        usage: Usage { input, output, total_tokens: input + output, ..Usage::default() },
    }
}

/// The state of an answer that is being passed on.
struct DeltaBuffer<'a> {
    sink: &'a dyn DeltaSink,
    /// Whether anything other than white space has arrived, in this call or in an earlier one that was interrupted.
    begun: bool,
    waiting: String,
    last_sent_at: Option<Instant>,
}

impl DeltaBuffer<'_> {
    async fn add(&mut self, delta: &str) -> Result<(), Error> {
        let delta = if self.begun { delta } else { delta.trim_start() };
        self.begun |= !delta.is_empty();
        self.waiting.push_str(delta);
        match self.last_sent_at {
            Some(spoke) if spoke.elapsed() < BETWEEN_DELTAS => Ok(()),
            _ => self.flush().await,
        }
    }

    async fn flush(&mut self) -> Result<(), Error> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        self.last_sent_at = Some(Instant::now());
        let delta = std::mem::take(&mut self.waiting);
        self.sink.send(Delta::Text { delta }).await
    }
}
