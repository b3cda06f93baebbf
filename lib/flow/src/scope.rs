//! The values that a step can refer to.

use crate::answer::Answer;
use crate::data::Data;
use crate::progress::StepResult;

/// The input of the run, the newest result of every step so far and, while a step runs for the second time, the issues
/// that governance found in its first result.
pub(crate) struct Scope<'a> {
    pub(crate) data: &'a Data,
    /// The newest results, by the index of the step in the definition.
    pub(crate) results: &'a [Option<StepResult>],
    /// The steps that have run, the latest last.
    pub(crate) order: &'a [usize],
    pub(crate) issues: &'a [String],
}

impl Scope<'_> {
    pub(crate) fn result(&self, id: &str) -> Option<&Answer> {
        let made = self.results.iter().flatten().find(|made| *made.id == *id)?;
        made.result.as_deref().ok()
    }

    /// The newest result of a protocol's steps.
    pub(crate) fn newest_of(&self, protocol: &str) -> Option<&Answer> {
        let newest_first = self.order.iter().rev();
        let mut made = newest_first.filter_map(|step| self.results.get(*step)?.as_ref());
        made.find(|made| *made.protocol == *protocol)?.result.as_deref().ok()
    }
}
