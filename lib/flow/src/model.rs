//! Calls the language model of the running system: `model.generate` on its socket.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use ken_tool::MAX_DEPTH;
use ken_types::Error;
use ken_types::event::Block;
use ken_types::ops::Nothing;
use ken_types::ops::call::{self, Answered, Failed};
use ken_types::ops::model::{Delta, Generate, ModelGenerate, ModelInfo};
use ken_wire::Pool;

use crate::answer::Answer;

/// A connection to ken-model. Because ken-model has the API keys, tools need none.
pub(crate) struct ModelPart {
    socket: PathBuf,
    pool: Pool,
}

impl ModelPart {
    pub(crate) fn new(socket: PathBuf) -> ModelPart {
        ModelPart { pool: Pool::new(&socket), socket }
    }

    pub(crate) fn is_there(&self) -> bool {
        self.socket.exists()
    }

    /// Takes a line as `ken-model --lines` reads it, and returns the answer that it would write. `time` limits the whole
    /// call. Dropping the future cancels it.
    pub(crate) async fn ask(&self, line: &str, time: Duration) -> Result<Answer, Error> {
        let until = Instant::now() + time;
        let mut request = call::read(line, MAX_DEPTH)?;
        let models = match request.model.take() {
            Some(model) => vec![model],
            None => self.pool.call::<ModelInfo>(&Nothing {}, time).await?.models,
        };
        let mut failed = Vec::new();
        for model in models {
            request.model = Some(model.clone());
            let left = until.saturating_duration_since(Instant::now());
            match self.generate(&request, left).await {
                Ok(answered) => return line_of(&Answered { failed, ..answered }),
                Err(error) => failed.push(Failed { model, error }),
            }
        }
        Err(Failed::all(failed))
    }

    async fn generate(&self, request: &Generate, time: Duration) -> Result<Answered, Error> {
        let mut items = self.pool.stream::<ModelGenerate>(request, time).await?;
        let (mut text, mut tool_calls) = (String::new(), Vec::new());
        while let Some(item) = items.next().await {
            match item? {
                Delta::Text { delta } => text.push_str(&delta),
                Delta::ToolCall { id, name, arguments } => tool_calls.push(Block::ToolCall { id, name, arguments }),
                Delta::Start { .. } | Delta::Think { .. } => {}
            }
        }
        let end = items.reply().await?;
        Ok(Answered {
            text,
            tool_calls,
            usage: end.usage,
            model: end.model,
            stop_reason: end.stop_reason,
            failed: Vec::new(),
        })
    }
}

/// The line that `ken-model --lines` would write (ken-model(8)). A test checks that both write the same.
fn line_of(answered: &Answered) -> Result<Answer, Error> {
    let line = serde_json::to_string(answered).map_err(|error| Error::internal(error.to_string()))?;
    Answer::read(line)
}
