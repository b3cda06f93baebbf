//! Finds cycles: statements from which, through a chain of rules, they themselves are concluded.

use std::collections::{HashMap, VecDeque};

use crate::issue::Issue;
use crate::rulebase::{Claim, RuleBase};

pub(crate) fn find(base: &RuleBase<'_>) -> Vec<Issue> {
    let graph = Graph::of(base);
    let components = graph.components();
    let mut issues: Vec<Issue> = components.iter().filter_map(|component| graph.issue(base, component)).collect();
    issues.sort_by_key(|issue| issue.at.rsplit('/').next().and_then(|number| number.parse::<usize>().ok()));
    issues
}

/// A graph with an edge from each premise of a rule to its conclusion. Rules with variables are left out, because a
/// recursive one is normal: it expresses a transitive relation.
struct Graph {
    /// The statements, in the order in which the rules mention them.
    statements: Vec<Claim>,
    /// The edges, grouped by the statement from which they start. Each consists of the statement to which it leads and
    /// the index of the rule.
    edges: Vec<(usize, usize)>,
    /// The index in `edges` at which the edges of each statement begin. The last entry is the number of edges.
    starts: Vec<usize>,
}

/// Assigns numbers to claims in the order of their first use.
struct Numbers {
    by_claim: Vec<usize>,
    claims: Vec<Claim>,
}

impl Numbers {
    fn of(&mut self, claim: Claim) -> usize {
        let next = self.claims.len();
        match self.by_claim.get_mut(claim.index()) {
            Some(number @ &mut usize::MAX) => {
                *number = next;
                self.claims.push(claim);
                next
            }
            known => known.map_or(next, |number| *number),
        }
    }
}

impl Graph {
    fn of(base: &RuleBase<'_>) -> Graph {
        let mut numbers = Numbers { by_claim: vec![usize::MAX; base.claims()], claims: Vec::new() };
        let mut steps = Vec::with_capacity(base.rules.len()); // each is (from, to, rule)
        for rule in base.rules.iter().filter(|rule| !rule.has_variables) {
            let from = steps.len();
            for &premise in &rule.body {
                steps.push((numbers.of(premise), 0, rule.number));
            }
            let head = numbers.of(rule.head);
            for step in steps.iter_mut().skip(from) {
                step.1 = head;
            }
        }
        steps.retain(|(from, to, _)| from != to);
        steps.sort_by_key(|step| step.0); // a stable sort keeps the rules of a statement in order
        let statements = numbers.claims;
        let begins = |number: usize| steps.partition_point(|step| step.0 < number);
        Graph {
            starts: (0..=statements.len()).map(begins).collect(),
            edges: steps.iter().map(|&(_, to, rule)| (to, rule)).collect(),
            statements,
        }
    }

    fn edges(&self, from: usize) -> &[(usize, usize)] {
        match self.starts.get(from..from + 2) {
            Some(&[start, end]) => self.edges.get(start..end).unwrap_or_default(),
            _ => &[],
        }
    }

    /// Returns the strongly connected components of two or more statements (Tarjan 1972). The search uses its own
    /// stack, because a chain of rules can be too long for recursion.
    fn components(&self) -> Vec<Vec<usize>> {
        let mut search = Search {
            index: vec![usize::MAX; self.statements.len()],
            low: vec![0; self.statements.len()],
            is_open: vec![false; self.statements.len()],
            open: Vec::new(),
            next: 0,
            found: Vec::new(),
        };
        for start in 0..self.statements.len() {
            if search.index.get(start) == Some(&usize::MAX) {
                search.from(self, start);
            }
        }
        search.found
    }

    /// Reports a shortest cycle through the first statement of a component.
    fn issue(&self, base: &RuleBase<'_>, component: &[usize]) -> Option<Issue> {
        let start = component.iter().copied().min()?;
        let mut came: HashMap<usize, (usize, usize)> = HashMap::new();
        let mut open = VecDeque::from([start]);
        while let Some(from) = open.pop_front() {
            for &(to, rule) in self.edges(from) {
                if let std::collections::hash_map::Entry::Vacant(place) = came.entry(to) {
                    place.insert((from, rule));
                    open.push_back(to);
                }
            }
            if came.contains_key(&start) {
                break;
            }
        }
        let mut path = vec![start];
        let mut rules = Vec::new();
        let mut at = start;
        while let Some(&(from, rule)) = came.get(&at) {
            path.push(from);
            rules.push(rule);
            at = from;
            if at == start {
                break;
            }
        }
        path.reverse();
        rules.reverse();
        let path: Vec<String> =
            path.iter().filter_map(|&number| self.statements.get(number)).map(|&claim| base.text(claim)).collect();
        let numbers: Vec<String> = rules.iter().map(usize::to_string).collect();
        let message = format!("{} (rules {})", path.join(" -> "), numbers.join(", "));
        let rule = rules.iter().min()?;
        Some(Issue { path, ..Issue::warning("cycle", format!("/rules/{rule}"), message) })
    }
}

struct Search {
    index: Vec<usize>,
    low: Vec<usize>,
    is_open: Vec<bool>,
    open: Vec<usize>,
    next: usize,
    found: Vec<Vec<usize>>,
}

impl Search {
    fn from(&mut self, graph: &Graph, start: usize) {
        let mut path: Vec<(usize, usize)> = vec![(start, 0)]; // a statement and the index of its next edge
        self.enter(start);
        while let Some(&mut (at, ref mut edge)) = path.last_mut() {
            let next = graph.edges(at).get(*edge).map(|edge| edge.0);
            *edge += 1;
            match next {
                Some(to) if self.index.get(to) == Some(&usize::MAX) => {
                    self.enter(to);
                    path.push((to, 0));
                }
                Some(to) if self.is_open.get(to) == Some(&true) => self.lower(at, self.index.get(to).copied()),
                Some(_) => {}
                None => {
                    path.pop();
                    self.leave(at);
                    if let Some(&(below, _)) = path.last() {
                        self.lower(below, self.low.get(at).copied());
                    }
                }
            }
        }
    }

    fn enter(&mut self, at: usize) {
        set(&mut self.index, at, self.next);
        set(&mut self.low, at, self.next);
        set(&mut self.is_open, at, true);
        self.open.push(at);
        self.next += 1;
    }

    fn lower(&mut self, at: usize, to: Option<usize>) {
        if let (Some(low), Some(to)) = (self.low.get_mut(at), to) {
            *low = (*low).min(to);
        }
    }

    /// Ends the visit of a statement. If the statement is the root of a component, that component is complete.
    fn leave(&mut self, at: usize) {
        if self.low.get(at) != self.index.get(at) {
            return;
        }
        let mut component = Vec::new();
        while let Some(last) = self.open.pop() {
            set(&mut self.is_open, last, false);
            component.push(last);
            if last == at {
                break;
            }
        }
        if component.len() > 1 {
            self.found.push(component);
        }
    }
}

fn set<T>(list: &mut [T], at: usize, to: T) {
    if let Some(place) = list.get_mut(at) {
        *place = to;
    }
}
