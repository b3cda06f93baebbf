use std::time::Duration;

use ken_types::Error;

use crate::answer::Answer;
use crate::model::Part;
use crate::pool::Pool;
use crate::protocol::Protocol;

/// What does the steps of one protocol; by itself, for a program that needs no workflow.
pub struct Tool {
    pub(crate) protocol: Protocol,
    pub(crate) pool: Pool,
    /// ken-model as a part, where it may be one.
    part: Option<Part>,
}

impl Tool {
    pub fn new(protocol: &Protocol) -> Tool {
        Tool {
            pool: Pool::new(protocol.clone()),
            part: protocol.socket.clone().map(Part::new),
            protocol: protocol.clone(),
        }
    }

    /// Sends a line to the part, if there is one, else to a co-process, and gives its answer, which may be an
    /// [`Answer::error`]. `time` is what a part is given; it is for the caller to give up. Dropped before its end, the call
    /// is cancelled or the process killed.
    pub async fn ask(&self, line: &str, time: Duration) -> Result<Answer, Error> {
        match &self.part {
            Some(part) if part.is_there() => part.ask(line, time).await,
            _ => self.pool.ask(line).await,
        }
    }
}
