//! The values that a step can refer to.

use crate::answer::Answer;
use crate::data::Data;
use crate::progress::Progress;

/// The input of the run, and its state so far.
pub(crate) struct Scope<'a> {
    pub(crate) data: &'a Data,
    pub(crate) progress: &'a Progress,
}

impl Scope<'_> {
    pub(crate) fn result(&self, id: &str) -> Option<&Answer> {
        let made = self.progress.results.iter().flatten().find(|made| *made.id == *id)?;
        made.result.as_deref().ok()
    }

    /// The newest result of a protocol's steps.
    pub(crate) fn newest_of(&self, protocol: &str) -> Option<&Answer> {
        let newest_first = self.progress.order.iter().rev();
        let mut made = newest_first.filter_map(|step| self.progress.results.get(*step)?.as_ref());
        made.find(|made| *made.protocol == *protocol)?.result.as_deref().ok()
    }
}
