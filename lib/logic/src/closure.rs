use std::ops::Range;

use crate::literal::{Literal, RuleId};

/// The inference rule of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Inference {
    /// A rule without premises.
    Axiom,
    /// The premises hold, so the conclusion holds.
    ModusPonens,
    /// The conclusion does not hold and all premises but one do, so that one does not hold.
    ModusTollens,
}

/// One derivation. It is the first one of its conclusion, and so one of least depth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    pub inference: Inference,
    pub rule: RuleId,
    pub conclusion: Literal,
    /// The number of steps on the longest path from a given statement to this conclusion.
    pub depth: u32,
    /// The range of its premises in [`Closure::premises`].
    pub(crate) start: u32,
    pub(crate) end: u32,
}

/// Everything that follows from the given statements, with proofs.
#[derive(Debug, Default)]
pub struct Closure {
    /// One step for each derived literal, premises before conclusions. A given literal has none.
    pub steps: Vec<Step>,
    pub(crate) premises: Vec<Literal>,
    /// The given literals, each once. They come first in the order of derivation, followed by the conclusions of the steps.
    pub(crate) given: Vec<Literal>,
    /// The position of each literal in that order, or [`NOWHERE`].
    pub(crate) places: Vec<u32>,
    pub(crate) work: usize,
}

/// The position of a literal that does not hold. It is not 0 because a table of zeros would be read before it is written, and
/// reading a fresh page before writing it costs two page faults.
pub(crate) const NOWHERE: u32 = u32::MAX;

/// A statement and its negation that both hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Contradiction {
    /// The one that was derived first.
    pub first: Literal,
    pub second: Literal,
    /// Whether neither proof uses a statement of an earlier contradiction. These are the contradictions to repair.
    pub is_root: bool,
}

impl Closure {
    /// The work of the derivation in the unit of [`crate::MAX_WORK`]; rules without variables count one per step.
    pub fn work(&self) -> usize {
        self.work + self.steps.len()
    }

    pub fn holds(&self, literal: Literal) -> bool {
        self.place(literal) != NOWHERE
    }

    /// Every literal that holds, in the order of derivation.
    pub fn held(&self) -> impl Iterator<Item = Literal> {
        let derived = self.steps.iter().map(|step| step.conclusion);
        self.given.iter().copied().chain(derived)
    }

    /// The literal at this position of the order.
    pub(crate) fn held_at(&self, place: usize) -> Option<Literal> {
        let derived = |step: usize| self.steps.get(step).map(|step| step.conclusion);
        match place.checked_sub(self.given.len()) {
            Some(step) => derived(step),
            None => self.given.get(place).copied(),
        }
    }

    pub fn is_given(&self, literal: Literal) -> bool {
        self.holds(literal) && self.step_of(literal).is_none()
    }

    /// The index of the step that derives the literal.
    pub fn step_of(&self, literal: Literal) -> Option<usize> {
        let place = Some(self.place(literal)).filter(|&place| place != NOWHERE);
        (place? as usize).checked_sub(self.given.len())
    }

    /// The literal's position in the order of derivation, if it holds.
    pub(crate) fn place(&self, literal: Literal) -> u32 {
        self.places.get(literal.index()).copied().unwrap_or(NOWHERE)
    }

    /// The premises of a step: given literals or conclusions of earlier steps.
    pub fn premises(&self, step: &Step) -> &[Literal] {
        self.premises.get(range(step)).unwrap_or_default()
    }

    /// The depth of a literal; 0 for a given one and for an axiom.
    pub fn depth(&self, literal: Literal) -> u32 {
        self.step_of(literal).and_then(|step| self.steps.get(step)).map_or(0, |step| step.depth)
    }

    /// The indices of all steps in the literal's proof, in order, its own last. Empty for a given literal; `None` if there
    /// are more than `most` steps.
    pub fn proof(&self, literal: Literal, most: usize) -> Option<Vec<usize>> {
        let mut proof: Vec<usize> = self.step_of(literal).into_iter().collect();
        let mut known: std::collections::HashSet<usize> = proof.iter().copied().collect();
        let mut next = 0;
        while let Some(&number) = proof.get(next) {
            let premises = self.steps.get(number).map_or(&[][..], |step| self.premises(step));
            for step in premises.iter().filter_map(|&premise| self.step_of(premise)) {
                if known.insert(step) {
                    proof.push(step);
                }
            }
            if proof.len() > most {
                return None;
            }
            next += 1;
        }
        proof.sort_unstable();
        Some(proof)
    }

    /// The given literals that a proof uses, in order of use.
    pub fn grounds(&self, proof: &[usize]) -> Vec<Literal> {
        let steps = proof.iter().filter_map(|&number| self.steps.get(number));
        let premises = steps.flat_map(|step| self.premises(step));
        let mut grounds: Vec<Literal> = Vec::new();
        let mut known = std::collections::HashSet::new();
        grounds.extend(premises.copied().filter(|&literal| self.is_given(literal) && known.insert(literal)));
        grounds
    }

    /// Every contradiction, in the order in which the second of its statements was derived.
    pub fn contradictions(&self) -> Vec<Contradiction> {
        if !self.held().any(Literal::is_negated) {
            return Vec::new();
        }
        let mut pairs = Vec::new();
        let mut held = vec![false; self.places.len()];
        for literal in self.held() {
            if let Some(place) = held.get_mut(literal.index()) {
                *place = true;
            }
            if held.get(literal.negation().index()) == Some(&true) {
                pairs.push((literal.negation(), literal));
            }
        }
        self.with_roots(&pairs)
    }

    fn with_roots(&self, pairs: &[(Literal, Literal)]) -> Vec<Contradiction> {
        if pairs.is_empty() {
            return Vec::new();
        }
        let mut own: Vec<usize> = vec![usize::MAX; self.places.len() + 1];
        for (number, (first, second)) in pairs.iter().enumerate() {
            for literal in [first, second] {
                if let Some(place) = own.get_mut(literal.index()) {
                    *place = number;
                }
            }
        }
        // For each literal, the earliest contradiction in its proof, not counting the literal itself.
        let mut through: Vec<usize> = vec![usize::MAX; own.len()];
        let at = |list: &[usize], literal: Literal| list.get(literal.index()).copied().unwrap_or(usize::MAX);
        for step in &self.steps {
            let premises = self.premises(step).iter();
            let earliest = premises.map(|&premise| at(&own, premise).min(at(&through, premise))).min();
            if let (Some(place), Some(earliest)) = (through.get_mut(step.conclusion.index()), earliest) {
                *place = earliest;
            }
        }
        let root = |number: usize, first, second| at(&through, first).min(at(&through, second)) >= number;
        let pairs = pairs.iter().enumerate();
        let contradiction =
            |(number, &(first, second))| Contradiction { first, second, is_root: root(number, first, second) };
        pairs.map(contradiction).collect()
    }
}

fn range(step: &Step) -> Range<usize> {
    step.start as usize..step.end as usize
}
