use std::time::Duration;

use ken_types::Error;

use crate::answer::Answer;
use crate::model::ModelPart;
use crate::pool::Pool;
use crate::protocol::Protocol;

/// The tool of one protocol. It can also be used without a workflow.
pub struct Tool {
    pub(crate) protocol: Protocol,
    pub(crate) pool: Pool,
    /// The connection to ken-model, if this is the protocol `MODEL`.
    part: Option<ModelPart>,
}

impl Tool {
    pub fn new(protocol: &Protocol) -> Tool {
        Tool {
            pool: Pool::new(protocol.clone()),
            part: protocol.socket.clone().map(ModelPart::new),
            protocol: protocol.clone(),
        }
    }

    /// Sends a line to ken-model's socket, if there is one, else to a co-process, and returns its answer, which may be an
    /// [`Answer::error`]. `time` is the deadline that is sent to ken-model; the caller has to enforce it. Dropping the
    /// future cancels the call or kills the process.
    pub async fn ask(&self, line: &str, time: Duration) -> Result<Answer, Error> {
        match &self.part {
            Some(part) if part.is_there() => part.ask(line, time).await,
            _ => self.pool.ask(line).await,
        }
    }
}
