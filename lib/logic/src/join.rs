//! Rules with variables. Each premise is a pattern, and the statements that match it form a relation over the phrases
//! to which its variables are bound. A rule is a join of such relations. The evaluation is semi-naive: each round only
//! joins combinations that contain a tuple that is new in that round.

use std::collections::HashMap;

use crate::error::Exhausted;
use crate::interner::Interner;
use crate::literal::{Literal, RuleId};
use crate::pattern::{Matcher, Pattern, UNKNOWN_WORD, Words, instantiate, worded};
use crate::statement::normalise;
use crate::theory::Theory;

/// The maximum number of premises of a rule with variables.
pub const MAX_VARIABLE_PREMISES: usize = 16;

/// The cost of applying a rule once, in the unit of [`crate::MAX_WORK`], where visiting a tuple costs 1. It is high
/// because the result occupies memory until the round ends.
const FIRING_WORK: usize = 30;

/// The number of bytes of a statement that can be searched for a phrase in the time that visiting a tuple takes.
const BYTES_OF_WORK: usize = 8;

pub(crate) struct Joins {
    words: Interner,
    phrases: Interner,
    /// For each phrase, its first wording in the input.
    wordings: Vec<String>,
    relations: Vec<Relation>,
    /// The relations that have got new tuples in this round.
    fresh: Vec<usize>,
    by_pattern: HashMap<Pattern, usize>,
    /// For each word, the relations whose pattern may match a statement with this word. Each pattern is listed at its
    /// rarest word only.
    by_word: HashMap<u32, Vec<usize>>,
    /// The relations whose pattern consists of variables only.
    wordless: Vec<usize>,
    rules: Vec<JoinRule>,
    /// For each relation, the rules in which it occurs, in ascending order.
    users: Vec<Vec<usize>>,
    plans: HashMap<(usize, usize, usize), Plan>,
    work: usize,
}

/// The statements that match a pattern, as tuples of phrases.
struct Relation {
    pattern: Pattern,
    columns: usize,
    /// The numbers of the phrases. Each tuple has `columns` of them.
    cells: Vec<u32>,
    /// For each tuple, the statement from which it comes.
    literals: Vec<Literal>,
    /// The index of the first tuple that is new in this round.
    new_from: usize,
    indexes: Vec<Index>,
}

/// An index that finds tuples by the values in some of their columns.
struct Index {
    key: Vec<usize>,
    tuples: HashMap<Vec<u32>, Vec<u32>>,
}

/// A rule as a list of parts: its premises, followed by the negation of its conclusion. These cannot all hold, so if
/// all parts but one hold, the negation of that one follows.
struct JoinRule {
    id: RuleId,
    parts: Vec<Part>,
    variables: usize,
    names: Vec<String>,
}

struct Part {
    relation: usize,
    /// For each column of the relation, the number of the variable of the rule.
    variables: Vec<usize>,
    wording: String,
    /// The statement that the wording negates, if it is a negation. It is then the wording of the negated part.
    affirmed: Option<String>,
}

/// The order in which to join the parts of a rule, except the part whose negation is concluded. The join starts from
/// the new tuples of one of the parts.
struct Plan {
    lookups: Vec<Lookup>,
}

struct Lookup {
    part: usize,
    index: usize,
    /// The variables by which the tuples are looked up, in the order of the index's columns. Earlier parts have bound
    /// them.
    key: Vec<usize>,
}

/// One application of a rule.
pub(crate) struct Firing {
    pub(crate) rule: RuleId,
    pub(crate) premises: Vec<Literal>,
    join_rule: usize,
    /// The index of the part whose negation is concluded.
    head: usize,
    tollens: bool,
    /// For each variable of the rule, the number of the phrase to which it is bound.
    binding: Vec<u32>,
}

impl Firing {
    pub(crate) fn is_tollens(&self) -> bool {
        self.tollens
    }
}

impl Joins {
    /// Compiles the rules of a theory that have variables; `None` if there are none.
    pub(crate) fn of(theory: &Theory<'_>) -> Option<Joins> {
        if theory.variable_rules.is_empty() {
            return None;
        }
        let mut joins = Joins {
            words: Interner::new(),
            phrases: Interner::new(),
            wordings: Vec::new(),
            relations: Vec::new(),
            fresh: Vec::new(),
            by_pattern: HashMap::new(),
            by_word: HashMap::new(),
            wordless: Vec::new(),
            rules: Vec::new(),
            users: Vec::new(),
            plans: HashMap::new(),
            work: 0,
        };
        for rule in &theory.variable_rules {
            joins.add(rule.id, &rule.premises, rule.conclusion);
        }
        joins.index_patterns();
        Some(joins)
    }

    fn add(&mut self, id: RuleId, premises: &[&str], conclusion: &str) {
        let mut rule = JoinRule { id, parts: Vec::new(), variables: 0, names: Vec::new() };
        for premise in premises {
            let part = self.part(premise, false, &mut rule.names);
            let known = |other: &Part| other.relation == part.relation && other.variables == part.variables;
            if !rule.parts.iter().any(known) {
                rule.parts.push(part);
            }
        }
        let conclusion = self.part(conclusion, true, &mut rule.names);
        rule.parts.push(conclusion);
        rule.variables = rule.names.len();
        self.users.resize(self.relations.len(), Vec::new());
        for part in &rule.parts {
            let users = self.users.get_mut(part.relation);
            users.into_iter().for_each(|users| users.push(self.rules.len()));
        }
        self.rules.push(rule);
    }

    fn part(&mut self, wording: &str, deny: bool, names: &mut Vec<String>) -> Part {
        let (mut pattern, own) = Pattern::of(wording, &mut self.words);
        pattern.negated ^= deny;
        let variables = own.into_iter().map(|name| {
            let known = names.iter().position(|known| *known == name);
            known.unwrap_or_else(|| {
                names.push(name);
                names.len() - 1
            })
        });
        let variables = variables.collect();
        let statement = normalise(wording);
        Part {
            relation: self.relation(pattern),
            variables,
            wording: wording.to_owned(),
            affirmed: statement.negated.then(|| statement.atom.into_owned()),
        }
    }

    fn relation(&mut self, pattern: Pattern) -> usize {
        let next = self.relations.len();
        let number = *self.by_pattern.entry(pattern.clone()).or_insert(next);
        if number == next {
            let columns = pattern.columns();
            let (cells, literals, indexes) = (Vec::new(), Vec::new(), Vec::new());
            self.relations.push(Relation { pattern, columns, cells, literals, new_from: 0, indexes });
        }
        number
    }

    fn index_patterns(&mut self) {
        let mut uses: HashMap<u32, usize> = HashMap::new();
        for word in self.relations.iter().flat_map(|relation| relation.pattern.words()) {
            *uses.entry(word).or_default() += 1;
        }
        for (number, relation) in self.relations.iter().enumerate() {
            match relation.pattern.words().min_by_key(|word| uses.get(word).copied()) {
                Some(rarest) => self.by_word.entry(rarest).or_default().push(number),
                None => self.wordless.push(number),
            }
        }
    }

    /// Returns the work done so far, in the unit of [`crate::MAX_WORK`].
    pub(crate) fn work(&self) -> usize {
        self.work
    }

    /// Adds to the work. Fails if it then exceeds [`crate::MAX_WORK`].
    pub(crate) fn spend(&mut self, work: usize) -> Result<(), Exhausted> {
        self.work = self.work.saturating_add(work);
        if self.work > crate::MAX_WORK { Err(Exhausted) } else { Ok(()) }
    }

    /// Begins a round: adds the literals that are new in it to the relations that they match.
    pub(crate) fn begin_round(&mut self, theory: &Theory<'_>, literals: &[Literal]) -> Result<(), Exhausted> {
        for number in std::mem::take(&mut self.fresh) {
            if let Some(relation) = self.relations.get_mut(number) {
                relation.new_from = relation.literals.len();
            }
        }
        for &literal in literals {
            let text = theory.atoms.text(literal.atom());
            let words = Words::of(text, &self.words);
            self.spend(words.words.len() + self.wordless.len())?;
            for number in self.candidates(&words) {
                self.match_one(theory, literal, &words, number)?;
            }
        }
        Ok(())
    }

    /// Returns the relations whose pattern may match, each once, in ascending order.
    fn candidates(&self, words: &Words<'_>) -> Vec<usize> {
        let known = words.words.iter().filter(|(word, _, _)| *word != UNKNOWN_WORD);
        let listed = known.filter_map(|(word, _, _)| self.by_word.get(word)).flatten();
        let mut candidates: Vec<usize> = listed.chain(&self.wordless).copied().collect();
        candidates.sort_unstable();
        candidates.dedup();
        candidates
    }

    fn match_one(
        &mut self,
        theory: &Theory<'_>,
        literal: Literal,
        words: &Words<'_>,
        number: usize,
    ) -> Result<(), Exhausted> {
        let Some(relation) = self.relations.get_mut(number) else {
            return Ok(());
        };
        if relation.pattern.negated != literal.is_negated() {
            return Ok(());
        }
        let had_new = relation.has_new();
        let left = crate::MAX_WORK - self.work.min(crate::MAX_WORK);
        let found = Matcher::run(&relation.pattern, words, left);
        let (matches, mut work) = (found.matches, found.work);
        for phrases in &matches {
            let mut tuple = Vec::with_capacity(phrases.len());
            for &phrase in phrases {
                let (number, new) = self.phrases.intern(phrase);
                if new {
                    self.wordings.push(worded(phrase, &theory.wording(literal)));
                    work += words.text.len() / BYTES_OF_WORK;
                }
                tuple.push(number);
            }
            relation.push(&tuple, literal);
            if work > left {
                break;
            }
        }
        if !had_new && relation.has_new() {
            self.fresh.push(number);
        }
        self.spend(work)
    }

    /// Returns every application of a rule that uses a new tuple. Without `with_negations`, those that conclude the
    /// negation of a premise are left out.
    pub(crate) fn join(&mut self, with_negations: bool) -> Result<Vec<Firing>, Exhausted> {
        let mut found = Vec::new();
        for rule in self.rules_to_join() {
            let parts = self.rules.get(rule).map_or(0, |rule| rule.parts.len());
            let first = if with_negations { 0 } else { parts - 1 };
            for head in (first..parts).rev() {
                for start in (0..parts).filter(|&start| start != head) {
                    self.join_from(rule, head, start, &mut found)?;
                }
            }
        }
        Ok(found)
    }

    /// Returns the rules of which at least one part has new tuples, each once, in ascending order.
    fn rules_to_join(&self) -> Vec<usize> {
        let users = self.fresh.iter().filter_map(|&relation| self.users.get(relation));
        let mut rules: Vec<usize> = users.flatten().copied().collect();
        rules.sort_unstable();
        rules.dedup();
        rules
    }

    fn join_from(&mut self, rule: usize, head: usize, start: usize, found: &mut Vec<Firing>) -> Result<(), Exhausted> {
        self.spend(1)?;
        if !self.is_worth_a_join(rule, head, start) {
            return Ok(());
        }
        let key = (rule, head, start);
        if !self.plans.contains_key(&key) {
            let plan = self.plan(rule, head, start);
            self.plans.insert(key, plan);
        }
        let (Some(plan), Some(join_rule)) = (self.plans.get(&key), self.rules.get(rule)) else {
            return Ok(());
        };
        let mut search = Search {
            relations: &self.relations,
            rule: join_rule,
            plan,
            start,
            binding: vec![None; join_rule.variables],
            chosen: vec![0; join_rule.parts.len()],
            found: Vec::new(),
            work: 0,
            max: crate::MAX_WORK - self.work.min(crate::MAX_WORK),
        };
        search.begin();
        let (work, choices) = (search.work, search.found);
        self.spend(work)?;
        found.extend(choices.into_iter().filter_map(|choice| self.firing(rule, head, choice)));
        Ok(())
    }

    /// Returns whether the join can give a result: the part `start` has new tuples, all other parts except `head` have
    /// tuples, and together they bind all variables of `head`.
    fn is_worth_a_join(&self, rule: usize, head: usize, start: usize) -> bool {
        let Some(rule) = self.rules.get(rule) else {
            return false;
        };
        let relation = |part: &Part| self.relations.get(part.relation);
        let has_new = rule.parts.get(start).and_then(relation).is_some_and(Relation::has_new);
        let body = || rule.parts.iter().enumerate().filter(|&(place, _)| place != head).map(|(_, part)| part);
        let head = rule.parts.get(head).map_or(&[][..], |part| &part.variables);
        has_new
            && body().filter_map(relation).all(|relation| !relation.literals.is_empty())
            && head.iter().all(|variable| body().any(|part| part.variables.contains(variable)))
    }

    /// Plans the order of the parts after `start`, greedily: the next part is always the one with the most columns that
    /// are bound by then.
    fn plan(&mut self, rule: usize, head: usize, start: usize) -> Plan {
        let Some(rule) = self.rules.get(rule) else {
            return Plan { lookups: Vec::new() };
        };
        let mut left: Vec<usize> = (0..rule.parts.len()).filter(|&part| part != head && part != start).collect();
        let mut bound: Vec<usize> = rule.parts.get(start).map_or(Vec::new(), |part| part.variables.clone());
        let mut lookups = Vec::new();
        while let Some(part) = most_bound(rule, &left, &bound) {
            left.retain(|&other| other != part);
            let Some(next) = rule.parts.get(part) else {
                continue;
            };
            let columns: Vec<usize> =
                (0..next.variables.len()).filter(|&column| is_bound(next, column, &bound)).collect();
            let key = columns.iter().filter_map(|&column| next.variables.get(column).copied()).collect();
            let index = self.relations.get_mut(next.relation).map_or(0, |relation| relation.index(columns));
            lookups.push(Lookup { part, index, key });
            bound.extend(&next.variables);
        }
        Plan { lookups }
    }

    fn firing(&self, join_rule: usize, head: usize, choice: Choice) -> Option<Firing> {
        let rule = self.rules.get(join_rule)?;
        let last = rule.parts.len() - 1;
        let literal = |part: usize| {
            let relation = self.relations.get(rule.parts.get(part)?.relation)?;
            relation.literals.get(*choice.chosen.get(part)? as usize).copied()
        };
        // The order is the same as for rules without variables: the negated conclusion, if it is used, and then the
        // premises that hold.
        let refuting = (head != last).then_some(last);
        let others = (0..last).filter(|&part| part != head);
        let premises = refuting.into_iter().chain(others).filter_map(literal).collect();
        let tollens = head != last;
        Some(Firing { rule: rule.id, premises, join_rule, head, tollens, binding: choice.binding })
    }

    /// Returns the wording of a statement, and whether the application of the rule concludes the negation of that
    /// statement.
    pub(crate) fn head(&self, firing: &Firing) -> (String, bool) {
        let Some(rule) = self.rules.get(firing.join_rule) else {
            return (String::new(), false);
        };
        let value = |name: &str| {
            let variable = rule.names.iter().position(|known| known == name)?;
            self.wordings.get(*firing.binding.get(variable)? as usize).map(String::as_str)
        };
        let Some(part) = rule.parts.get(firing.head) else {
            return (String::new(), false);
        };
        match &part.affirmed {
            Some(affirmed) if firing.tollens => (instantiate(affirmed, value), false),
            _ => (instantiate(&part.wording, value), firing.tollens),
        }
    }
}

fn is_bound(part: &Part, column: usize, bound: &[usize]) -> bool {
    part.variables.get(column).is_some_and(|variable| bound.contains(variable))
}

fn most_bound(rule: &JoinRule, left: &[usize], bound: &[usize]) -> Option<usize> {
    let count = |part: &usize| {
        let part = rule.parts.get(*part);
        part.map_or(0, |part| (0..part.variables.len()).filter(|&column| is_bound(part, column, bound)).count())
    };
    // max_by_key returns the last of equal elements, so the order is reversed to get the first.
    left.iter().rev().copied().max_by_key(count)
}

impl Relation {
    fn has_new(&self) -> bool {
        self.new_from < self.literals.len()
    }

    fn push(&mut self, tuple: &[u32], literal: Literal) {
        let number = self.literals.len() as u32;
        self.cells.extend_from_slice(tuple);
        self.literals.push(literal);
        for index in &mut self.indexes {
            index.insert(tuple, number);
        }
    }

    fn tuple(&self, number: u32) -> &[u32] {
        let start = number as usize * self.columns;
        self.cells.get(start..start + self.columns).unwrap_or_default()
    }

    /// Returns the number of the index over these columns. Creates the index if it does not exist.
    fn index(&mut self, key: Vec<usize>) -> usize {
        if let Some(known) = self.indexes.iter().position(|index| index.key == key) {
            return known;
        }
        let mut index = Index { key, tuples: HashMap::new() };
        for number in 0..self.literals.len() as u32 {
            index.insert(self.tuple(number), number);
        }
        self.indexes.push(index);
        self.indexes.len() - 1
    }
}

impl Index {
    fn insert(&mut self, tuple: &[u32], number: u32) {
        let key = self.key.iter().filter_map(|&column| tuple.get(column).copied()).collect();
        self.tuples.entry(key).or_default().push(number);
    }
}

/// A result of a search: the tuple that is chosen for each part, and the phrases to which the variables are bound.
struct Choice {
    chosen: Vec<u32>,
    binding: Vec<u32>,
}

/// The evaluation of one join, depth first.
struct Search<'s> {
    relations: &'s [Relation],
    rule: &'s JoinRule,
    plan: &'s Plan,
    start: usize,
    binding: Vec<Option<u32>>,
    chosen: Vec<u32>,
    found: Vec<Choice>,
    work: usize,
    max: usize,
}

impl Search<'_> {
    fn begin(&mut self) {
        let Some(relation) = self.relation(self.start) else {
            return;
        };
        for number in relation.new_from as u32..relation.literals.len() as u32 {
            self.choose(self.start, number, 0);
        }
    }

    fn relation(&self, part: usize) -> Option<&'_ Relation> {
        self.relations.get(self.rule.parts.get(part)?.relation)
    }

    /// Chooses a tuple for a part, continues with the next lookup, and then undoes the choice.
    fn choose(&mut self, part: usize, number: u32, next: usize) {
        self.work += 1;
        if self.work > self.max {
            return;
        }
        let before = self.binding.clone();
        if self.bind(part, number) {
            if let Some(chosen) = self.chosen.get_mut(part) {
                *chosen = number;
            }
            self.go(next);
        }
        self.binding = before;
    }

    fn bind(&mut self, part: usize, number: u32) -> bool {
        let (relations, rule) = (self.relations, self.rule);
        let Some(part) = rule.parts.get(part) else {
            return false;
        };
        let tuple = relations.get(part.relation).map_or(&[][..], |relation| relation.tuple(number));
        part.variables.iter().zip(tuple).all(|(&variable, &phrase)| match self.binding.get_mut(variable) {
            Some(bound @ None) => {
                *bound = Some(phrase);
                true
            }
            Some(Some(bound)) => *bound == phrase,
            None => false,
        })
    }

    fn go(&mut self, next: usize) {
        let (relations, rule, plan) = (self.relations, self.rule, self.plan);
        let Some(lookup) = plan.lookups.get(next) else {
            let binding = self.binding.iter().map(|bound| bound.unwrap_or(0)).collect();
            self.work += FIRING_WORK;
            self.found.push(Choice { chosen: self.chosen.clone(), binding });
            return;
        };
        let Some(relation) = rule.parts.get(lookup.part).and_then(|part| relations.get(part.relation)) else {
            return;
        };
        let key: Vec<u32> =
            lookup.key.iter().filter_map(|&variable| self.binding.get(variable).copied().flatten()).collect();
        self.work += 1;
        let tuples = relation.indexes.get(lookup.index).and_then(|index| index.tuples.get(&key));
        // Parts before the start only use old tuples. Otherwise a combination with two new tuples would be found twice.
        let end = if lookup.part < self.start { relation.new_from } else { relation.literals.len() };
        for &number in tuples.into_iter().flatten().take_while(|&&number| (number as usize) < end) {
            self.choose(lookup.part, number, next + 1);
        }
    }
}
