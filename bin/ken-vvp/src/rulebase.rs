use std::collections::{BTreeMap, BTreeSet};

use ken_logic::{Interner, Statement, Theory, check_rule, check_statement, normalise};
use ken_tool::Error;
use ken_types::json::kind_of;
use serde_json::Value;

use crate::issue::Issue;

/// The cost of a rule with variables in a derivation, in units of the cost of a rule without variables. It is higher
/// because the rule is first compiled into patterns.
const VARIABLE_RULE_WORK: usize = 32;

/// The well-formed rules, facts and goals of a document.
pub(crate) struct RuleBase<'v> {
    /// The number of rules in the document, including malformed ones.
    pub(crate) total: usize,
    pub(crate) rules: Vec<Rule<'v>>,
    pub(crate) facts: Vec<Fact<'v>>,
    pub(crate) goals: Vec<Fact<'v>>,
    atoms: Interner,
}

pub(crate) struct Rule<'v> {
    /// The index of the rule in the document.
    pub(crate) number: usize,
    pub(crate) premises: Vec<&'v str>,
    pub(crate) conclusion: &'v str,
    /// The premises as claims, in the same order.
    pub(crate) body: Vec<Claim>,
    pub(crate) head: Claim,
    pub(crate) has_variables: bool,
}

/// A statement in normal form or its negation, identified by a number within its [`RuleBase`]. Variables are renamed by
/// their order in the rule, so that rules that differ only in the names of variables have the same claims.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Claim(u32);

impl Claim {
    fn new(atom: u32, is_denial: bool) -> Claim {
        Claim(atom << 1 | u32::from(is_denial))
    }

    /// Returns the claim with this [`Claim::index`].
    pub(crate) fn at(index: usize) -> Claim {
        Claim(index as u32)
    }

    pub(crate) fn opposite(self) -> Claim {
        Claim(self.0 ^ 1)
    }

    /// Returns whether the claim is the negation of a statement.
    pub(crate) fn is_denial(self) -> bool {
        self.0 & 1 == 1
    }

    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// A fact or a goal, and its index in the document.
pub(crate) struct Fact<'v> {
    pub(crate) number: usize,
    pub(crate) text: &'v str,
}

impl<'v> RuleBase<'v> {
    /// Reads a document. An invalid rule, fact or goal is reported as an issue and left out. Fails only if the document
    /// is not an object, or if its rules, facts or goals are not lists.
    pub(crate) fn of(value: &'v Value) -> Result<(RuleBase<'v>, Vec<Issue>), Error> {
        let Value::Object(fields) = value else {
            return Err(Error::invalid("", format!("the document must be an object, not {}", kind_of(value))));
        };
        let rules = list(value, "rules")?.ok_or_else(|| Error::invalid("/rules", "missing field `rules`"))?;
        let mut issues = Vec::new();
        let mut base = RuleBase {
            total: rules.len(),
            rules: Vec::with_capacity(rules.len()),
            facts: Vec::new(),
            goals: Vec::new(),
            atoms: Interner::with_capacity(rules.len()),
        };
        for (number, value) in rules.iter().enumerate() {
            let before = issues.len();
            let rule = Rule::of(value, number, &mut base.atoms, &mut issues);
            base.rules.extend(rule.filter(|_| issues.len() == before));
        }
        // A result of ken-rep can have no rules, because induction needs none.
        if rules.is_empty() && !fields.contains_key("reasoning_chain") {
            issues.push(Issue::warning("empty", "/rules", "there is no rule"));
        }
        base.facts = statements(value, "facts", &mut issues)?;
        base.goals = statements(value, "goals", &mut issues)?;
        Ok((base, issues))
    }

    /// Returns a theory that contains the rules. Its rule ids are indices into `rules`.
    pub(crate) fn theory(&self) -> Theory<'_> {
        let mut theory = Theory::with_capacity(self.rules.len());
        for rule in &self.rules {
            // This cannot fail, because each rule was checked when it was read.
            let _ = theory.add_rule(rule.premises.iter().copied(), rule.conclusion);
        }
        theory
    }

    /// Returns the rule with this index in the document, if it is well formed.
    pub(crate) fn rule(&self, number: usize) -> Option<&Rule<'v>> {
        let place = self.rules.binary_search_by_key(&number, |rule| rule.number).ok()?;
        self.rules.get(place)
    }

    /// Returns the work with which each derivation with these rules begins, in the unit of [`ken_logic::MAX_WORK`].
    pub(crate) fn derivation_work(&self) -> usize {
        let work = |rule: &Rule<'_>| if rule.has_variables { VARIABLE_RULE_WORK } else { 1 };
        self.rules.iter().map(work).sum()
    }

    /// Returns a number that is greater than the index of every claim.
    pub(crate) fn claims(&self) -> usize {
        self.atoms.len() * 2
    }

    /// Returns the claim of a statement without variables; `None` if no rule contains the statement or its negation.
    pub(crate) fn claim(&self, wording: &str) -> Option<Claim> {
        let Statement { atom, negated } = normalise(wording);
        let atom = self.atoms.get(&atom)?;
        Some(Claim::new(atom, negated))
    }

    /// Returns the text of a claim in normal form.
    pub(crate) fn text(&self, claim: Claim) -> String {
        let atom = self.atoms.text(claim.0 >> 1);
        if claim.is_denial() { format!("not {atom}") } else { atom.to_owned() }
    }

    /// Returns for each claim whether a rule concludes it.
    pub(crate) fn concluded(&self) -> Vec<bool> {
        let mut concluded = vec![false; self.claims()];
        for rule in &self.rules {
            if let Some(is_concluded) = concluded.get_mut(rule.head.index()) {
                *is_concluded = true;
            }
        }
        concluded
    }
}

impl<'v> Rule<'v> {
    fn of(value: &'v Value, number: usize, atoms: &mut Interner, issues: &mut Vec<Issue>) -> Option<Rule<'v>> {
        let mut malformed = |below: &str, message: String| {
            issues.push(Issue::error("malformed", format!("/rules/{number}{below}"), message));
        };
        let Some([premises, conclusion]) = value.as_array().map(Vec::as_slice) else {
            malformed("", "a rule is a pair: [[premise, ...], conclusion]".to_owned());
            return None;
        };
        let Some(items) = premises.as_array() else {
            malformed("/0", format!("premises must be a list, not {}", kind_of(premises)));
            return None;
        };
        let mut parts = Vec::with_capacity(items.len() + 1);
        for (place, premise) in items.iter().enumerate() {
            match statement(premise) {
                Ok(part) => parts.push(part),
                Err(message) => malformed(&format!("/0/{place}"), format!("a premise {message}")),
            }
        }
        let conclusion =
            statement(conclusion).map_err(|message| malformed("/1", format!("a conclusion {message}"))).ok()?;
        let rule = Rule::new(number, &parts, &conclusion, atoms);
        // The parts are known not to be empty. The remaining checks concern variables.
        if rule.wordings().any(|wording| wording.contains('?')) {
            check_rule(&rule.premises, rule.conclusion).map_err(|invalid| malformed("", invalid.to_string())).ok()?;
        }
        Some(rule)
    }

    fn new(number: usize, premises: &[Part<'v>], conclusion: &Part<'v>, atoms: &mut Interner) -> Rule<'v> {
        let mut names = BTreeMap::new();
        let mut claim = |(_, statement): &Part<'v>| claim(statement, &mut names, atoms);
        let body = premises.iter().map(&mut claim).collect();
        let head = claim(conclusion);
        Rule {
            number,
            premises: premises.iter().map(|part| part.0).collect(),
            conclusion: conclusion.0,
            body,
            head,
            has_variables: !names.is_empty(),
        }
    }

    /// Returns the rule itself and, for each premise, the contrapositive that concludes the negation of that premise.
    pub(crate) fn ways(&self) -> Vec<(Vec<String>, String)> {
        let deny = |text: &str| format!("not {text}");
        let own = |text: &&str| (*text).to_owned();
        let forward = (self.premises.iter().map(own).collect(), self.conclusion.to_owned());
        let backward = |place: usize| {
            let refuted = self.body.get(place);
            let all = self.premises.iter().zip(&self.body);
            let others = all.filter(|&(_, claim)| Some(claim) != refuted);
            let mut premises: Vec<String> = others.map(|(text, _)| (*text).to_owned()).collect();
            premises.push(deny(self.conclusion));
            let denied = self.premises.get(place).map(|text| deny(text));
            (premises, denied.unwrap_or_default())
        };
        std::iter::once(forward).chain((0..self.premises.len()).map(backward)).collect()
    }

    /// Returns whether one premise is the negation of another, so that the rule can never apply.
    pub(crate) fn is_impossible(&self) -> bool {
        let denials: BTreeSet<Claim> = self.body.iter().copied().filter(|claim| claim.is_denial()).collect();
        !denials.is_empty() && self.body.iter().any(|claim| denials.contains(&claim.opposite()))
    }

    fn wordings(&self) -> impl Iterator<Item = &'v str> {
        self.premises.iter().copied().chain([self.conclusion])
    }

    pub(crate) fn at(&self) -> String {
        format!("/rules/{}", self.number)
    }
}

/// A premise or conclusion: its wording and its normal form.
type Part<'v> = (&'v str, Statement<'v>);

/// Returns the claim of a statement. Its variables are renamed by their order in `names`, to which new ones are added.
fn claim(statement: &Statement<'_>, names: &mut BTreeMap<String, usize>, atoms: &mut Interner) -> Claim {
    let atom = &statement.atom;
    let number = if atom.contains('?') { atoms.intern(&renamed(atom, names)).0 } else { atoms.intern(atom).0 };
    Claim::new(number, statement.negated)
}

fn renamed(atom: &str, names: &mut BTreeMap<String, usize>) -> String {
    let word = |word: &str| match variable(word) {
        Some(name) => {
            let next = names.len();
            let number = *names.entry(name.to_owned()).or_insert(next);
            format!("?{number}{}", word.get(name.len()..).unwrap_or_default())
        }
        None => word.to_owned(),
    };
    atom.split(' ').map(word).collect::<Vec<_>>().join(" ")
}

/// Returns the variable in a word, without the punctuation that follows it; `None` if the word is not a variable.
pub(crate) fn variable(word: &str) -> Option<&str> {
    let is_variable = word.len() > 1 && word.starts_with('?') && !word.starts_with("??");
    is_variable.then(|| word.trim_end_matches(|char: char| char.is_ascii_punctuation() && char != '_'))
}

/// Returns the items of a field of the document; `None` if it has no such field.
pub(crate) fn list<'v>(document: &'v Value, field: &str) -> Result<Option<&'v [Value]>, Error> {
    match document.get(field) {
        None => Ok(None),
        Some(Value::Array(items)) => Ok(Some(items)),
        Some(other) => Err(Error::invalid(format!("/{field}"), format!("must be a list, not {}", kind_of(other)))),
    }
}

fn statements<'v>(document: &'v Value, field: &str, issues: &mut Vec<Issue>) -> Result<Vec<Fact<'v>>, Error> {
    let items = list(document, field)?.unwrap_or_default();
    let mut facts = Vec::with_capacity(items.len());
    for (number, item) in items.iter().enumerate() {
        let checked = statement(item).and_then(|(text, _)| match check_statement(text) {
            Ok(()) => Ok(text),
            Err(invalid) => Err(format!("is not valid: {invalid}")),
        });
        match checked {
            Ok(text) => facts.push(Fact { number, text }),
            Err(message) => {
                issues.push(Issue::error("malformed", format!("/{field}/{number}"), format!("a statement {message}")))
            }
        }
    }
    Ok(facts)
}

/// Reads a statement, or returns what is wrong with it.
fn statement(value: &Value) -> Result<Part<'_>, String> {
    let Value::String(text) = value else {
        return Err(format!("must be text, not {}", kind_of(value)));
    };
    let statement = normalise(text);
    if statement.atom.is_empty() { Err("is empty".to_owned()) } else { Ok((text, statement)) }
}
