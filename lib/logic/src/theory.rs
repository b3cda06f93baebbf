use std::borrow::Cow;

use crate::error::Invalid;
use crate::interner::Interner;
use crate::literal::{Literal, RuleId};
use crate::opposite::implied;
use crate::pattern::has_variable;
use crate::statement::{Statement, normalise};

/// A set of rules, and the statements that occur in them. `'a` is the lifetime of the wordings.
pub struct Theory<'a> {
    pub(crate) atoms: Interner,
    /// The user's wording of each literal, if it differs from the atom (or, for a negated literal, from "not" and the
    /// atom).
    wordings: Vec<Option<Cow<'a, str>>>,
    /// The triggers of all rules without variables, one rule after the other. The triggers of a rule are its premises
    /// and the negation of its conclusion. These cannot all hold, so once all of them but one hold, the negation of
    /// that one follows.
    pub(crate) triggers: Vec<Literal>,
    /// The index in `triggers` at which the triggers of each rule end. Rules with variables and refused rules have no
    /// triggers.
    ends: Vec<u32>,
    pub(crate) variable_rules: Vec<VariableRule<'a>>,
    /// For each literal, the last rule with several premises in which it is a premise. This shows whether a premise is
    /// repeated, so that it counts only once.
    seen: Vec<RuleId>,
    /// Literals that exclude each other although neither is the negation of the other.
    pub(crate) contraries: Vec<(Literal, Literal)>,
    /// The last wording and its literal. They are stored because the conclusion of a rule is often the premise of the
    /// next one.
    last: Option<(&'a str, Literal)>,
}

pub(crate) struct VariableRule<'a> {
    pub(crate) id: RuleId,
    pub(crate) premises: Vec<&'a str>,
    pub(crate) conclusion: &'a str,
}

impl<'a> Theory<'a> {
    pub fn new() -> Theory<'a> {
        Theory::with_capacity(0)
    }

    /// Creates a theory with capacity for this many rules.
    pub fn with_capacity(rules: usize) -> Theory<'a> {
        Theory {
            atoms: Interner::with_capacity(rules),
            wordings: Vec::new(),
            triggers: Vec::with_capacity(rules * 2),
            ends: Vec::with_capacity(rules),
            variable_rules: Vec::new(),
            seen: Vec::new(),
            contraries: Vec::new(),
            last: None,
        }
    }

    /// Returns the literal of a wording. Of several wordings of one literal, the first that differs from the normal
    /// form is shown to users. Fails if the normal form is empty, or if the wording contains a variable.
    pub fn statement(&mut self, wording: &'a str) -> Result<Literal, Invalid> {
        if has_variable(wording) {
            return Err(Invalid::VariableInFact);
        }
        self.ground(wording)
    }

    fn ground(&mut self, wording: &'a str) -> Result<Literal, Invalid> {
        let statement = normalise(wording);
        if statement.atom.is_empty() {
            return Err(Invalid::Empty);
        }
        let plain = !statement.negated && statement.atom == wording;
        let literal = self.literal(&statement);
        if !plain {
            self.set_wording(literal, Cow::Borrowed(wording.trim()));
        }
        self.last = Some((wording, literal));
        Ok(literal)
    }

    /// Returns the literal of a statement. What a new statement implies by its words is remembered.
    fn literal(&mut self, statement: &Statement<'_>) -> Literal {
        let known = self.atoms.len();
        let literal = Literal::new(self.atoms.intern(&statement.atom).0, statement.negated);
        if self.atoms.len() > known {
            let affirmed = Statement { atom: Cow::Borrowed(&statement.atom), negated: false };
            for weaker in implied(&affirmed) {
                let weaker = Literal::new(self.atoms.intern(&weaker.atom).0, weaker.negated);
                let stronger = Literal::new(literal.atom(), false);
                self.contraries.push((stronger, weaker.negation()));
            }
        }
        literal
    }

    /// Returns the literal of a derived wording or, with `deny`, its negation; `None` if the normal form is empty.
    pub(crate) fn derived_literal(&mut self, wording: String, deny: bool) -> Option<Literal> {
        let statement = normalise(&wording);
        if statement.atom.is_empty() {
            return None;
        }
        let plain = !statement.negated && statement.atom == wording;
        let affirmed = self.literal(&statement);
        if !plain {
            self.set_wording(affirmed, Cow::Owned(wording));
        }
        Some(if deny { affirmed.negation() } else { affirmed })
    }

    /// Sets the wording of a literal, unless it has one.
    fn set_wording(&mut self, literal: Literal, wording: Cow<'a, str>) {
        if self.wordings.len() <= literal.index() {
            self.wordings.resize(literal.index() + 1, None);
        }
        if let Some(place @ None) = self.wordings.get_mut(literal.index()) {
            *place = Some(wording);
        }
    }

    /// Returns the wording of a literal, in the user's words if possible.
    pub fn wording(&self, literal: Literal) -> Cow<'_, str> {
        match self.words(literal) {
            ("", words) => Cow::Borrowed(words),
            (not, words) => Cow::Owned(not.to_owned() + words),
        }
    }

    /// Returns the wording of a literal in two parts: `""` or `"not "`, and the other words.
    pub fn words(&self, literal: Literal) -> (&'static str, &str) {
        let own = |literal: Literal| self.wordings.get(literal.index()).and_then(Option::as_deref);
        match own(literal) {
            Some(wording) => ("", wording),
            None if !literal.is_negated() => ("", self.atoms.text(literal.atom())),
            None => {
                let affirmed = own(literal.negation()).unwrap_or_else(|| self.atoms.text(literal.atom()));
                ("not ", affirmed.trim_end_matches('.'))
            }
        }
    }

    /// Returns texts that contain every text that [`Theory::words`] can return.
    pub fn all_words(&self) -> impl Iterator<Item = &str> {
        let own = self.wordings.iter().flatten().map(AsRef::as_ref);
        std::iter::once(self.atoms.texts()).chain(own)
    }

    /// Adds a rule. Rules are numbered in the order of the calls. A refused rule also takes a number.
    pub fn add_rule(
        &mut self,
        premises: impl Iterator<Item = &'a str> + Clone,
        conclusion: &'a str,
    ) -> Result<RuleId, Invalid> {
        let id = self.ends.len() as RuleId;
        let start = self.triggers.len();
        let rule = if premises.clone().any(has_variable) || has_variable(conclusion) {
            self.variable_rule(id, premises.collect(), conclusion)
        } else {
            self.ground_rule(id, premises, conclusion)
        };
        if rule.is_err() {
            self.triggers.truncate(start);
        }
        self.ends.push(self.triggers.len() as u32);
        rule.map(|()| id)
    }

    fn ground_rule(
        &mut self,
        id: RuleId,
        premises: impl Iterator<Item = &'a str>,
        conclusion: &'a str,
    ) -> Result<(), Invalid> {
        let mut only = None;
        for (place, premise) in premises.enumerate() {
            let premise = match self.last {
                Some((wording, literal)) if wording == premise => literal,
                _ => self.ground(premise)?,
            };
            if place == 0 {
                only = Some(premise);
                self.triggers.push(premise);
                continue;
            }
            // Most rules have one premise, so repeated premises are only tracked from the second premise on.
            only.take().map(|first| self.first_use_in(id, first));
            if self.first_use_in(id, premise) {
                self.triggers.push(premise);
            }
        }
        let conclusion = self.ground(conclusion)?;
        self.triggers.push(conclusion.negation());
        Ok(())
    }

    fn variable_rule(&mut self, id: RuleId, premises: Vec<&'a str>, conclusion: &'a str) -> Result<(), Invalid> {
        check_variable_rule(&premises, conclusion)?;
        self.variable_rules.push(VariableRule { id, premises, conclusion });
        Ok(())
    }

    fn first_use_in(&mut self, rule: RuleId, premise: Literal) -> bool {
        if self.seen.len() <= premise.index() {
            self.seen.resize(premise.index() + 1, RuleId::MAX);
        }
        let last = self.seen.get_mut(premise.index()).map(|seen| std::mem::replace(seen, rule));
        last != Some(rule)
    }

    /// Returns the triggers of a rule: its premises, followed by its negated conclusion. Empty for a rule with
    /// variables.
    pub(crate) fn triggers_of(&self, rule: RuleId) -> &[Literal] {
        let rule = rule as usize;
        let end = |rule: usize| self.ends.get(rule).map_or(0, |&end| end as usize);
        let start = rule.checked_sub(1).map_or(0, end);
        self.triggers.get(start..end(rule)).unwrap_or_default()
    }

    pub fn rule_count(&self) -> usize {
        self.ends.len()
    }
}

impl Default for Theory<'_> {
    fn default() -> Self {
        Theory::new()
    }
}

/// Fails in the same cases as [`Theory::statement`], but adds nothing to a theory.
pub fn check_statement(wording: &str) -> Result<(), Invalid> {
    if has_variable(wording) {
        return Err(Invalid::VariableInFact);
    }
    check_wording(wording)
}

/// Fails in the same cases as [`Theory::add_rule`], but adds nothing to a theory.
pub fn check_rule(premises: &[&str], conclusion: &str) -> Result<(), Invalid> {
    if premises.iter().chain([&conclusion]).any(|text| has_variable(text)) {
        return check_variable_rule(premises, conclusion);
    }
    premises.iter().chain([&conclusion]).try_for_each(|text| check_wording(text))
}

fn check_variable_rule(premises: &[&str], conclusion: &str) -> Result<(), Invalid> {
    if premises.len() > crate::MAX_VARIABLE_PREMISES {
        return Err(Invalid::TooManyPremises);
    }
    premises.iter().chain([&conclusion]).try_for_each(|text| check_wording(text))?;
    crate::pattern::check_variables(premises, conclusion)
}

fn check_wording(wording: &str) -> Result<(), Invalid> {
    if normalise(wording).atom.is_empty() { Err(Invalid::Empty) } else { Ok(()) }
}
