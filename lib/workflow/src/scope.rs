//! What a step can see.

use std::sync::Arc;

use crate::answer::Answer;
use crate::data::Data;
use crate::definition::{Definition, Step};

/// The input of the run, the newest result of every step so far, and what governance found wrong with the first try.
pub(crate) struct Scope<'a> {
    pub(crate) definition: &'a Definition,
    pub(crate) data: &'a Data,
    /// By the steps of the definition.
    pub(crate) results: Vec<Option<Arc<Answer>>>,
    /// The steps that have a result, oldest result first.
    pub(crate) order: Vec<usize>,
    pub(crate) issues: &'a [String],
}

impl Scope<'_> {
    pub(crate) fn result(&self, id: &str) -> Option<&Answer> {
        let step = self.definition.steps().iter().position(|step| step.id == id)?;
        self.results.get(step)?.as_deref()
    }

    /// The newest result of a protocol's steps.
    pub(crate) fn newest_of(&self, protocol: &str) -> Option<&Answer> {
        self.newest(|step| step.protocol == protocol)
    }

    fn newest(&self, wanted: impl Fn(&Step) -> bool) -> Option<&Answer> {
        let steps = self.definition.steps();
        let mut newest_first = self.order.iter().rev();
        let step = newest_first.find(|step| steps.get(**step).is_some_and(&wanted))?;
        self.results.get(*step)?.as_deref()
    }
}
