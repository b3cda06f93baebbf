//! Statements that are concluded from themselves by way of others.

use std::collections::{HashMap, VecDeque};

use crate::answer::Issue;
use crate::rulebase::RuleBase;

/// What a rule leads from one statement to another, for rules without variables: recursion over variables is how
/// transitive relations are said.
struct Graph<'b> {
    statements: Vec<&'b str>,
    /// By statement: what is concluded from it, and by which rule.
    edges: Vec<Vec<(usize, usize)>>,
}

pub(crate) fn find(base: &RuleBase) -> Vec<Issue> {
    let graph = Graph::of(base);
    let components = graph.components();
    let mut issues: Vec<Issue> = components
        .iter()
        .filter_map(|component| graph.issue(component))
        .collect();
    issues.sort_by_key(|issue| {
        issue
            .at
            .rsplit('/')
            .next()
            .and_then(|number| number.parse::<usize>().ok())
    });
    issues
}

impl<'b> Graph<'b> {
    fn of(base: &'b RuleBase) -> Graph<'b> {
        let mut numbers: HashMap<&str, usize> = HashMap::new();
        let mut graph = Graph {
            statements: Vec::new(),
            edges: Vec::new(),
        };
        for rule in base.rules.iter().filter(|rule| !rule.has_variables) {
            let body: Vec<usize> = rule
                .body
                .iter()
                .map(|premise| graph.number(premise, &mut numbers))
                .collect();
            let head = graph.number(&rule.head, &mut numbers);
            for from in body {
                if let Some(edges) = graph.edges.get_mut(from).filter(|_| from != head) {
                    edges.push((head, rule.number));
                }
            }
        }
        graph
    }

    fn number(&mut self, statement: &'b str, numbers: &mut HashMap<&'b str, usize>) -> usize {
        *numbers.entry(statement).or_insert_with(|| {
            self.statements.push(statement);
            self.edges.push(Vec::new());
            self.statements.len() - 1
        })
    }

    fn edges(&self, from: usize) -> &[(usize, usize)] {
        self.edges.get(from).map_or(&[], Vec::as_slice)
    }

    /// Strongly connected components of two statements or more (Tarjan 1972), with a stack of its own: a chain of rules
    /// may be longer than the process's.
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

    /// A shortest cycle through the component's first statement.
    fn issue(&self, component: &[usize]) -> Option<Issue> {
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
        let path: Vec<String> = path
            .iter()
            .filter_map(|&number| self.statements.get(number))
            .map(|&text| text.to_owned())
            .collect();
        let numbers: Vec<String> = rules.iter().map(usize::to_string).collect();
        let message = format!("{} (rules {})", path.join(" -> "), numbers.join(", "));
        let rule = rules.iter().min()?;
        Some(Issue {
            path,
            ..Issue::warning("cycle", format!("/rules/{rule}"), message)
        })
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
    fn from(&mut self, graph: &Graph<'_>, start: usize) {
        let mut path: Vec<(usize, usize)> = vec![(start, 0)]; // a statement, and its next edge
        self.enter(start);
        while let Some(&mut (at, ref mut edge)) = path.last_mut() {
            let next = graph.edges(at).get(*edge).map(|edge| edge.0);
            *edge += 1;
            match next {
                Some(to) if self.index.get(to) == Some(&usize::MAX) => {
                    self.enter(to);
                    path.push((to, 0));
                }
                Some(to) if self.is_open.get(to) == Some(&true) => {
                    self.lower(at, self.index.get(to).copied())
                }
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

    /// Closes a component at its root.
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
