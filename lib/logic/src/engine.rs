//! Computes the closure of a set of statements, in rounds that each derive what follows in one more step.

use crate::closure::{Closure, Inference, NOT_DERIVED, Step};
use crate::error::Exhausted;
use crate::grouped::Grouped;
use crate::join::Joins;
use crate::literal::{Literal, RuleId};
use crate::theory::Theory;

impl Theory<'_> {
    /// Derives everything that follows from the given statements and the axioms. Fails if the derivation exceeds a
    /// limit.
    pub fn derive(&mut self, given: &[Literal]) -> Result<Closure, Exhausted> {
        Engine::new(self, given).close()
    }

    /// Finds every instance of a rule whose premises are all given, and returns the instances as steps. Nothing is
    /// derived from the conclusions, which can themselves be given. [`Closure::derived`] contains the given literals and
    /// the conclusions.
    pub fn instances(&mut self, given: &[Literal]) -> Result<Closure, Exhausted> {
        Engine::new(self, given).instances()
    }
}

struct Engine<'t, 'a> {
    theory: &'t mut Theory<'a>,
    closure: Closure,
    /// The ground rules that each literal triggers, in the order of the rules.
    watches: Grouped<RuleId>,
    /// For each rule with several premises, the number of its triggers that hold and have been processed.
    processed_triggers: Vec<u32>,
    /// The number of literals that hold and have been processed. They are processed in the order of derivation.
    looked_at: usize,
    joins: Option<Joins>,
    /// Whether to find the instances of rules instead of the closure.
    only_instances: bool,
    instances: Vec<Step>,
}

impl<'t, 'a> Engine<'t, 'a> {
    fn new(theory: &'t mut Theory<'a>, given: &[Literal]) -> Engine<'t, 'a> {
        let literals = theory.atoms.len() * 2;
        let mut closure = Closure {
            places: vec![NOT_DERIVED; literals],
            // There is room for the conclusions of all rules. This costs nothing until the memory is used.
            steps: Vec::with_capacity(theory.rule_count()),
            ..Closure::default()
        };
        for &literal in given {
            if let Some(place @ &mut NOT_DERIVED) = closure.places.get_mut(literal.index()) {
                *place = closure.given.len() as u32;
                closure.given.push(literal);
            }
        }
        Engine {
            watches: Grouped::of(literals, triggers(theory)),
            processed_triggers: vec![0; theory.rule_count()],
            looked_at: 0,
            joins: Joins::of(theory),
            theory,
            closure,
            only_instances: false,
            instances: Vec::new(),
        }
    }

    fn close(mut self) -> Result<Closure, Exhausted> {
        self.axioms();
        let mut depth = 0;
        while self.looked_at < self.held_count() {
            depth += 1;
            self.round(depth)?;
        }
        self.closure.work = self.joins.as_ref().map_or(0, Joins::work);
        let both_hold = |pair: &&(Literal, Literal)| self.closure.holds(pair.0) && self.closure.holds(pair.1);
        self.closure.contraries = self.theory.contraries.iter().filter(both_hold).copied().collect();
        Ok(self.closure)
    }

    fn held_count(&self) -> usize {
        self.closure.given.len() + self.closure.steps.len()
    }

    fn instances(mut self) -> Result<Closure, Exhausted> {
        self.only_instances = true;
        self.round(1)?;
        Ok(Closure { steps: self.instances, ..self.closure })
    }

    /// Derives everything that follows in one step from the literals that have not been processed yet. `depth` is the
    /// depth of the new steps.
    fn round(&mut self, depth: u32) -> Result<(), Exhausted> {
        let (start, end) = (self.looked_at, self.held_count());
        for place in start..end {
            if let Some(literal) = self.closure.derived_at(place) {
                self.looked_at = place + 1;
                self.process(literal, depth);
            }
            if self.is_exhausted() {
                return Err(Exhausted);
            }
        }
        let Some(mut joins) = self.joins.take() else {
            return Ok(());
        };
        let new: Vec<Literal> = (start..end).filter_map(|place| self.closure.derived_at(place)).collect();
        joins.begin_round(self.theory, &new)?;
        let with_negations = !self.only_instances;
        let found = joins.join(with_negations)?;
        for firing in &found {
            let (wording, negated) = joins.head(firing);
            joins.spend(wording.len())?;
            if let Some(conclusion) = self.theory.derived_literal(wording, negated) {
                let inference = if firing.is_tollens() { Inference::ModusTollens } else { Inference::ModusPonens };
                self.conclude(conclusion, inference, firing.rule, depth, |premises| premises.extend(&firing.premises));
            }
            if self.closure.steps.len() > crate::MAX_DERIVED {
                return Err(Exhausted);
            }
        }
        self.joins = Some(joins);
        Ok(())
    }

    fn axioms(&mut self) {
        for rule in 0..self.theory.rule_count() as RuleId {
            if let &[not_conclusion] = self.theory.triggers_of(rule) {
                self.conclude(not_conclusion.negation(), Inference::Axiom, rule, 0, |_| ());
            }
        }
    }

    /// Processes a literal: counts it in every rule that it triggers, and applies the rules that are complete.
    fn process(&mut self, literal: Literal, depth: u32) {
        for place in self.watches.places(literal.index()) {
            let Some(rule) = self.watches.at(place) else {
                continue;
            };
            let (held, all) = (self.count(rule), self.theory.triggers_of(rule).len());
            if held + 1 == all {
                self.conclude_last_negation(rule, depth);
            } else if held == all {
                self.conclude_each_negation(rule, literal, depth);
            }
        }
    }

    /// Counts another trigger of a rule as processed, and returns how many have been processed. A rule with one
    /// premise, as most are, needs no counter.
    fn count(&mut self, rule: RuleId) -> usize {
        match (self.theory.triggers_of(rule), self.processed_triggers.get_mut(rule as usize)) {
            (triggers @ [_, _], _) => triggers.iter().filter(|&&trigger| self.is_processed(trigger)).count(),
            (_, Some(held)) => {
                *held += 1;
                *held as usize
            }
            _ => 0,
        }
    }

    fn is_processed(&self, literal: Literal) -> bool {
        (self.closure.place(literal) as usize) < self.looked_at
    }

    /// Concludes the negation of the only trigger of a rule that does not hold.
    fn conclude_last_negation(&mut self, rule: RuleId, depth: u32) {
        let triggers = self.theory.triggers_of(rule);
        if let Some(left) = triggers.iter().position(|&trigger| !self.is_processed(trigger)) {
            self.conclude_negation_of(rule, left, depth);
        }
    }

    /// Concludes the negation of each trigger of a rule. All of its triggers hold, which is a contradiction, so each
    /// one is refuted by the others. `last` is the trigger that was derived last.
    fn conclude_each_negation(&mut self, rule: RuleId, last: Literal, depth: u32) {
        let triggers = self.theory.triggers_of(rule);
        let count = triggers.len();
        if self.only_instances && triggers.last() == Some(&last) {
            return; // this instance was found when the last premise was processed
        }
        for left in (0..count).rev() {
            if !self.is_exhausted() {
                self.conclude_negation_of(rule, left, depth);
            }
        }
    }

    fn is_exhausted(&self) -> bool {
        self.closure.premises.len() > crate::MAX_PREMISES
    }

    /// Concludes the negation of the trigger at index `left` from the other triggers, all of which hold.
    fn conclude_negation_of(&mut self, rule: RuleId, left: usize, depth: u32) {
        let theory = &*self.theory;
        let triggers = theory.triggers_of(rule);
        let (Some(&refuted), last) = (triggers.get(left), triggers.len() - 1) else {
            return;
        };
        let tollens = left != last;
        if tollens && self.only_instances {
            return;
        }
        let inference = if tollens { Inference::ModusTollens } else { Inference::ModusPonens };
        let closure = &mut self.closure;
        let into = if self.only_instances { Some(&mut self.instances) } else { None };
        conclude(closure, into, refuted.negation(), inference, rule, depth, |premises| {
            // The negated conclusion, which refutes the premise, comes first. The premises that hold follow.
            premises.extend(triggers.last().filter(|_| tollens));
            premises.extend_from_slice(triggers.get(..left).unwrap_or_default());
            premises.extend_from_slice(triggers.get(left + 1..last).unwrap_or_default());
        });
    }

    fn conclude(
        &mut self,
        conclusion: Literal,
        inference: Inference,
        rule: RuleId,
        depth: u32,
        premises: impl FnOnce(&mut Vec<Literal>),
    ) {
        let into = if self.only_instances { Some(&mut self.instances) } else { None };
        conclude(&mut self.closure, into, conclusion, inference, rule, depth, premises);
    }
}

/// Returns every trigger of a ground rule, as an index, and the rule.
fn triggers(theory: &Theory<'_>) -> impl Iterator<Item = (usize, RuleId)> + Clone {
    let rules = 0..theory.rule_count() as RuleId;
    rules.flat_map(|rule| theory.triggers_of(rule).iter().map(move |trigger| (trigger.index(), rule)))
}

/// Records a step if its conclusion is new. If instances of rules are wanted, records every step.
fn conclude(
    closure: &mut Closure,
    instances: Option<&mut Vec<Step>>,
    conclusion: Literal,
    inference: Inference,
    rule: RuleId,
    depth: u32,
    premises: impl FnOnce(&mut Vec<Literal>),
) {
    if closure.places.len() <= conclusion.index() {
        closure.places.resize((conclusion.index() | 1) + 1, NOT_DERIVED);
    }
    let Some(place) = closure.places.get_mut(conclusion.index()) else {
        return;
    };
    if instances.is_none() && *place != NOT_DERIVED {
        return;
    }
    let start = closure.premises.len() as u32;
    premises(&mut closure.premises);
    let end = closure.premises.len() as u32;
    let step = Step { inference, rule, conclusion, depth, start, end };
    match instances {
        Some(instances) => instances.push(step),
        None => {
            *place = (closure.given.len() + closure.steps.len()) as u32;
            closure.steps.push(step);
        }
    }
}
