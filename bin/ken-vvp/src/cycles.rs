//! Finds cycles: statements from which, through a chain of rules, they themselves are concluded.

use std::collections::{HashMap, VecDeque};

use ken_logic::Grouped;

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
    /// The edges from each claim. Each consists of the claim to which it leads and the index of the rule.
    edges: Grouped<(usize, usize)>,
    /// When the rules first mention each claim.
    order: Vec<usize>,
}

impl Graph {
    fn of(base: &RuleBase<'_>) -> Graph {
        let rules = base.rules.iter().filter(|rule| !rule.has_variables);
        let mut order = vec![usize::MAX; base.claims()];
        let mentions = rules.clone().flat_map(|rule| rule.body.iter().chain([&rule.head]));
        for (place, claim) in mentions.enumerate() {
            if let Some(first) = order.get_mut(claim.index()) {
                *first = place.min(*first);
            }
        }
        let edges = rules.flat_map(|rule| {
            let others = rule.body.iter().filter(|&&premise| premise != rule.head);
            others.map(move |premise| (premise.index(), (rule.head.index(), rule.number)))
        });
        Graph { edges: Grouped::of(base.claims(), edges), order }
    }

    /// Returns the strongly connected components of two or more statements (Tarjan 1972). The search uses its own
    /// stack, because a chain of rules can be too long for recursion.
    fn components(&self) -> Vec<Vec<usize>> {
        let mut search = Search {
            index: vec![usize::MAX; self.order.len()],
            low: vec![0; self.order.len()],
            is_open: vec![false; self.order.len()],
            open: Vec::new(),
            next: 0,
            found: Vec::new(),
        };
        for start in 0..self.order.len() {
            if search.index.get(start) == Some(&usize::MAX) {
                search.from(self, start);
            }
        }
        search.found
    }

    /// Reports a shortest cycle through the first statement of a component.
    fn issue(&self, base: &RuleBase<'_>, component: &[usize]) -> Option<Issue> {
        let start = component.iter().copied().min_by_key(|&claim| self.order.get(claim))?;
        let mut came: HashMap<usize, (usize, usize)> = HashMap::new();
        let mut open = VecDeque::from([start]);
        while let Some(from) = open.pop_front() {
            for &(to, rule) in self.edges.of_key(from) {
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
        let path: Vec<String> = path.into_iter().map(|index| base.text(Claim::at(index))).collect();
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
            let next = graph.edges.of_key(at).get(*edge).map(|edge| edge.0);
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
