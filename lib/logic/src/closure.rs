use std::ops::Range;

use crate::literal::{Literal, RuleId};

/// How a step follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Inference {
    /// A rule without premises.
    Axiom,
    /// The premises hold, so the conclusion does.
    ModusPonens,
    /// The conclusion does not hold, all premises but one do: so that one does not.
    ModusTollens,
}

/// One derivation: the first, and so a shallowest, of its conclusion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    pub inference: Inference,
    pub rule: RuleId,
    pub conclusion: Literal,
    /// The most steps on a path from a given statement to this conclusion.
    pub depth: u32,
    /// Where [`Closure::premises`] are.
    pub(crate) start: u32,
    pub(crate) end: u32,
}

/// What follows from what was given, with a proof for everything.
#[derive(Debug, Default)]
pub struct Closure {
    /// One step for each derived literal, premises before conclusions. A given literal has none.
    pub steps: Vec<Step>,
    pub(crate) premises: Vec<Literal>,
    /// The given literals, each once. They came to hold first, then the conclusions of the steps, in order.
    pub(crate) given: Vec<Literal>,
    /// By literal: its place in that order, or [`NOWHERE`].
    pub(crate) places: Vec<u32>,
    pub(crate) work: usize,
}

/// The place of what does not hold. Not 0, which fresh memory is: to read its pages before they are written faults them in
/// twice.
pub(crate) const NOWHERE: u32 = u32::MAX;

/// A statement that holds together with its negation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Contradiction {
    /// The one that came to hold first.
    pub first: Literal,
    pub second: Literal,
    /// Whether neither proof rests on a statement of an earlier contradiction: the place to repair.
    pub is_root: bool,
}

impl Closure {
    /// What it took, in the measure of [`crate::MAX_WORK`]; rules without variables count by their steps.
    pub fn work(&self) -> usize {
        self.work + self.steps.len()
    }

    pub fn holds(&self, literal: Literal) -> bool {
        self.place(literal) != NOWHERE
    }

    /// Every literal that holds, in the order it came to hold.
    pub fn held(&self) -> impl Iterator<Item = Literal> {
        let derived = self.steps.iter().map(|step| step.conclusion);
        self.given.iter().copied().chain(derived)
    }

    /// The literal that came to hold in this place.
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

    /// The number of the step that derives the literal.
    pub fn step_of(&self, literal: Literal) -> Option<usize> {
        let place = Some(self.place(literal)).filter(|&place| place != NOWHERE);
        (place? as usize).checked_sub(self.given.len())
    }

    /// The literal's place in the order in which literals came to hold, if it does.
    pub(crate) fn place(&self, literal: Literal) -> u32 {
        self.places.get(literal.index()).copied().unwrap_or(NOWHERE)
    }

    /// What a step follows from: given literals or conclusions of earlier steps.
    pub fn premises(&self, step: &Step) -> &[Literal] {
        self.premises.get(range(step)).unwrap_or_default()
    }

    /// The depth of a literal that holds: 0 when it is given or an axiom.
    pub fn depth(&self, literal: Literal) -> u32 {
        self.step_of(literal)
            .and_then(|step| self.steps.get(step))
            .map_or(0, |step| step.depth)
    }

    /// The numbers of all steps that the literal rests on, in order, its own last. Empty for a given literal.
    /// `None` when there are more than `most`.
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

    /// The given literals that a proof rests on, in the order they are used.
    pub fn grounds(&self, proof: &[usize]) -> Vec<Literal> {
        let steps = proof.iter().filter_map(|&number| self.steps.get(number));
        let premises = steps.flat_map(|step| self.premises(step));
        let mut grounds: Vec<Literal> = Vec::new();
        let mut known = std::collections::HashSet::new();
        grounds.extend(
            premises
                .copied()
                .filter(|&literal| self.is_given(literal) && known.insert(literal)),
        );
        grounds
    }

    /// Every statement that holds together with its negation, in the order in which the second of the two came to hold.
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
        // By literal: the earliest contradiction that its proof, without itself, goes through.
        let mut through: Vec<usize> = vec![usize::MAX; own.len()];
        let at = |list: &[usize], literal: Literal| list.get(literal.index()).copied().unwrap_or(usize::MAX);
        for step in &self.steps {
            let premises = self.premises(step).iter();
            let earliest = premises
                .map(|&premise| at(&own, premise).min(at(&through, premise)))
                .min();
            if let (Some(place), Some(earliest)) = (through.get_mut(step.conclusion.index()), earliest) {
                *place = earliest;
            }
        }
        let root = |number: usize, first, second| at(&through, first).min(at(&through, second)) >= number;
        let pairs = pairs.iter().enumerate();
        let contradiction = |(number, &(first, second))| Contradiction {
            first,
            second,
            is_root: root(number, first, second),
        };
        pairs.map(contradiction).collect()
    }
}

fn range(step: &Step) -> Range<usize> {
    step.start as usize..step.end as usize
}
