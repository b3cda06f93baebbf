//! Where something was said, for rules that hold two places against each other.

use crate::judge::Findings;
use crate::rubric::index_of;

const CONTEXT: usize = index_of("context_conflict");

/// Where something was said.
#[derive(Clone, Copy)]
pub(crate) enum Place {
    Text { sentence: u32, start: u32, end: u32 },
    Context,
}

impl Place {
    /// Whether it is in the sentence that follows the other's.
    pub(crate) fn is_next_to(self, earlier: Place) -> bool {
        match (earlier, self) {
            (Place::Text { sentence: first, .. }, Place::Text { sentence: second, .. }) => {
                first + 1 == second
            }
            _ => false,
        }
    }

    /// Adds a finding at this place of the text.
    pub(crate) fn find(self, feature: usize, findings: &mut Findings) {
        if let Place::Text { sentence, start, end } = self {
            findings.add(feature, sentence as usize, start as usize, end as usize);
        }
    }
}

/// Finds both sides of a conflict, as one of the text or as one with the context.
pub(crate) fn report(earlier: Place, now: Place, within_text: usize, findings: &mut Findings) {
    match earlier {
        Place::Text { sentence, .. } => {
            let known = findings
                .features
                .get(sentence as usize)
                .is_some_and(|features| features & (1 << within_text) != 0);
            if !known {
                earlier.find(within_text, findings);
            }
            now.find(within_text, findings);
        }
        Place::Context => now.find(CONTEXT, findings),
    }
}
