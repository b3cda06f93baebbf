use std::ops::Range;

use crate::literal::{Literal, RuleId};

/// The inference rule of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Inference {
    /// A rule without premises.
    Axiom,
    /// The premises hold, so the conclusion holds.
    ModusPonens,
    /// The conclusion does not hold, and all premises but one do. So that premise does not hold.
    ModusTollens,
}

impl Inference {
    pub fn name(self) -> &'static str {
        match self {
            Inference::Axiom => "axiom",
            Inference::ModusPonens => "modus_ponens",
            Inference::ModusTollens => "modus_tollens",
        }
    }
}

/// The derivation of one statement by one rule. It is the first derivation of that statement, so no other has a smaller
/// depth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    pub inference: Inference,
    pub rule: RuleId,
    pub conclusion: Literal,
    /// The length of the longest path of steps from a given statement to this conclusion.
    pub depth: u32,
    /// The premises are `start..end` in [`Closure::premises`].
    pub(crate) start: u32,
    pub(crate) end: u32,
}

/// Everything that follows from the given statements, with proofs.
#[derive(Debug, Default)]
pub struct Closure {
    /// One step for each derived literal. A step comes after the steps that derive its premises. Given literals have no
    /// step.
    pub steps: Vec<Step>,
    pub(crate) premises: Vec<Literal>,
    /// The given literals, each once. In the order of derivation they come first, and the conclusions of the steps
    /// follow.
    pub(crate) given: Vec<Literal>,
    /// The position of each literal in the order of derivation, or [`NOT_DERIVED`] if it does not hold.
    pub(crate) places: Vec<u32>,
    /// The literals that hold although they exclude each other, other than a literal and its negation.
    pub(crate) contraries: Vec<(Literal, Literal)>,
    pub(crate) work: usize,
}

/// The position of a literal that does not hold. It is not 0, because a table of zeros is not written when it is
/// created. Each of its pages would then cost two page faults, one at the first read and one at the first write.
pub(crate) const NOT_DERIVED: u32 = u32::MAX;

/// A statement and its negation, or another statement that excludes it, both of which hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Contradiction {
    /// The literal that was derived first.
    pub first: Literal,
    pub second: Literal,
    /// Whether neither of the two proofs uses a statement of an earlier contradiction. Contradictions that are not
    /// roots may disappear when the roots are repaired.
    pub is_root: bool,
}

impl Closure {
    /// Returns the work of the derivation in the unit of [`crate::MAX_WORK`]: the work of all joins, plus one for each
    /// step.
    pub fn work(&self) -> usize {
        self.work + self.steps.len()
    }

    pub fn holds(&self, literal: Literal) -> bool {
        self.place(literal) != NOT_DERIVED
    }

    /// Returns every literal that holds, in the order of derivation.
    pub fn derived(&self) -> impl Iterator<Item = Literal> {
        let derived = self.steps.iter().map(|step| step.conclusion);
        self.given.iter().copied().chain(derived)
    }

    /// Returns the literal at a position in the order of derivation.
    pub(crate) fn derived_at(&self, place: usize) -> Option<Literal> {
        let derived = |step: usize| self.steps.get(step).map(|step| step.conclusion);
        match place.checked_sub(self.given.len()) {
            Some(step) => derived(step),
            None => self.given.get(place).copied(),
        }
    }

    /// Returns the index of the step that derives the literal; `None` if the literal is given or does not hold.
    pub fn step_of(&self, literal: Literal) -> Option<usize> {
        let place = Some(self.place(literal)).filter(|&place| place != NOT_DERIVED);
        (place? as usize).checked_sub(self.given.len())
    }

    /// Returns the position of a literal in the order of derivation, or [`NOT_DERIVED`] if it does not hold.
    pub(crate) fn place(&self, literal: Literal) -> u32 {
        self.places.get(literal.index()).copied().unwrap_or(NOT_DERIVED)
    }

    /// Returns the premises of a step. They are given literals or conclusions of earlier steps.
    pub fn premises(&self, step: &Step) -> &[Literal] {
        self.premises.get(range(step)).unwrap_or_default()
    }

    /// Returns the depth of the step that derives a literal; 0 for a given literal and for an axiom.
    pub fn depth(&self, literal: Literal) -> u32 {
        self.step_of(literal).and_then(|step| self.steps.get(step)).map_or(0, |step| step.depth)
    }

    /// Returns the indices of all steps in the proof of a literal, in ascending order; the last one derives the
    /// literal. Empty for a given literal; `None` if there are more than `max` steps.
    pub fn proof(&self, literal: Literal, max: usize) -> Option<Vec<usize>> {
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
            if proof.len() > max {
                return None;
            }
            next += 1;
        }
        proof.sort_unstable();
        Some(proof)
    }

    /// Returns every contradiction, in the order in which the second of its two literals was derived.
    pub fn contradictions(&self) -> Vec<Contradiction> {
        if self.contraries.is_empty() && !self.derived().any(Literal::is_negated) {
            return Vec::new();
        }
        let in_order = |&(one, other): &(Literal, Literal)| {
            if self.place(one) < self.place(other) { (one, other) } else { (other, one) }
        };
        let mut pairs: Vec<(Literal, Literal)> = self.contraries.iter().map(in_order).collect();
        let mut held = vec![false; self.places.len()];
        for literal in self.derived() {
            if let Some(place) = held.get_mut(literal.index()) {
                *place = true;
            }
            if held.get(literal.negation().index()) == Some(&true) {
                pairs.push((literal.negation(), literal));
            }
        }
        pairs.sort_by_key(|&(_, second)| self.place(second));
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
        // For each literal, the number of the earliest contradiction in the proof of its premises.
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
