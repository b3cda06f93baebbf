//! What a step can see.

use crate::answer::Answer;
use crate::data::Data;
use crate::definition::Definition;
use crate::progress::Made;

/// The input of the run, the newest result of every step so far, and what governance found wrong with the first try.
pub(crate) struct Scope<'a> {
    pub(crate) definition: &'a Definition,
    pub(crate) data: &'a Data,
    /// By the steps of the definition.
    pub(crate) made: &'a [Option<Made>],
    /// The steps that ran, the last to run last.
    pub(crate) order: &'a [usize],
    pub(crate) issues: &'a [String],
}

impl Scope<'_> {
    pub(crate) fn result(&self, id: &str) -> Option<&Answer> {
        let step = self.definition.steps().iter().position(|step| step.id == id)?;
        self.answer(step)
    }

    /// The newest result of a protocol's steps.
    pub(crate) fn newest_of(&self, protocol: &str) -> Option<&Answer> {
        let steps = self.definition.steps();
        let is_one = |step: &&usize| steps.get(**step).is_some_and(|step| step.protocol == protocol);
        let newest = self.order.iter().rev().find(is_one)?;
        self.answer(*newest)
    }

    fn answer(&self, step: usize) -> Option<&Answer> {
        self.made.get(step)?.as_ref()?.result.as_deref().ok()
    }
}
