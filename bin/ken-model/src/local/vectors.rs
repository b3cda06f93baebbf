//! Vectors from a model directory on this machine, computed by `ken-textgen --embed`.

use ken_types::Error;
use ken_types::event::Usage;
use ken_types::ops::model::Embedded;
use serde_json::json;
use tokio::sync::Semaphore;

use super::process::{Idle, Line};

#[derive(Debug)]
pub(crate) struct Vectors {
    alias: String,
    /// Admits one text at a time, because two would share the processor and be no faster together. A query thus waits
    /// for at most one text of an entry, not for a whole call.
    turn: Semaphore,
    idle: Idle,
}

impl Vectors {
    /// Uses the model with this alias in `MVLM_MODEL_DIRS`.
    pub(crate) fn new(alias: &str) -> Vectors {
        Vectors { alias: alias.to_owned(), turn: Semaphore::new(1), idle: Idle::default() }
    }

    /// Returns the name, `provider/model`.
    pub(crate) fn name(&self) -> String {
        format!("local/{}", self.alias)
    }

    /// Returns a vector for each text, in order.
    pub(crate) async fn embed(&self, texts: &[String]) -> Result<Embedded, Error> {
        let (mut vectors, mut input) = (Vec::new(), 0);
        for text in texts {
            let (vector, tokens) = self.vector(text).await?;
            vectors.push(vector);
            input += tokens;
        }
        Ok(Embedded { model: self.name(), vectors, usage: Usage { input, total_tokens: input, ..Usage::default() } })
    }

    /// Returns the vector of a text, and its number of tokens.
    async fn vector(&self, text: &str) -> Result<(Vec<f32>, u64), Error> {
        let turn = self.turn.acquire().await;
        let _turn = turn.map_err(|_| Error::internal("the turns have ended"))?;
        let mut process = self.idle.process(Some(&self.alias), &["--embed"])?;
        process.ask(&json!({ "prompt": text })).await;
        let line = process.next().await?;
        self.idle.keep(process);
        match line {
            Line::Vector { vector, tokens } => Ok((vector, tokens)),
            Line::Error { error } => Err(error),
            Line::Piece { .. } | Line::End(_) => {
                Err(Error::unavailable("ken-textgen gives a text instead of a vector"))
            }
        }
    }
}
