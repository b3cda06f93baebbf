//! The state of a run.

use std::sync::Arc;

use crate::observer::Recorded;

#[derive(Clone)]
pub(crate) struct StepResult {
    /// The step's id and protocol.
    pub(crate) id: Arc<str>,
    pub(crate) protocol: Arc<str>,
    /// The line that was sent to its tool; empty if no line could be made.
    pub(crate) input: Arc<str>,
    pub(crate) result: Recorded,
}

/// The state of a run. Each branch of `parallel` works on its own copy, which does not contain the results of the other
/// branches.
#[derive(Clone)]
pub(crate) struct Progress {
    /// The newest result of each step, by its index in the definition.
    pub(crate) results: Vec<Option<StepResult>>,
    /// The number of times that each step has run.
    turns: Vec<u32>,
    /// The steps that have run, the latest last.
    pub(crate) order: Vec<usize>,
    /// The issues of the first result, while a step runs for the second time.
    pub(crate) issues: Vec<String>,
    /// The actions of governance, for the summary.
    pub(crate) actions: Vec<String>,
    /// Whether a step has run once more because results did not agree. A run has one such retry.
    pub(crate) has_retried: bool,
    /// Whether this is the copy of a branch. Its results are compared when all branches have ended, and only then: a branch
    /// that judged and retried on its own would do so a second time when its results are taken over.
    pub(crate) is_branch: bool,
}

impl Progress {
    pub(crate) fn new(steps: usize) -> Progress {
        Progress {
            results: (0..steps).map(|_| None).collect(),
            turns: vec![0; steps],
            order: Vec::with_capacity(steps),
            issues: Vec::new(),
            actions: Vec::new(),
            has_retried: false,
            is_branch: false,
        }
    }

    /// A copy for a branch of `parallel`.
    pub(crate) fn branch(&self) -> Progress {
        Progress { is_branch: true, ..self.clone() }
    }

    /// Counts another run of a step, from 1.
    pub(crate) fn next_turn(&mut self, step: usize) -> u32 {
        self.turns.get_mut(step).map_or(1, |turn| {
            *turn += 1;
            *turn
        })
    }

    pub(crate) fn keep(&mut self, step: usize, made: StepResult) {
        self.order.retain(|known| *known != step);
        self.order.push(step);
        if let Some(place) = self.results.get_mut(step) {
            *place = Some(made);
        }
    }

    /// The steps that a branch has run, in the order in which it ran them, each with its number of turns and its newest
    /// result. No step is in two branches.
    pub(crate) fn new_results_of(&self, mut branch: Progress) -> Vec<(usize, u32, StepResult)> {
        let mut news = Vec::new();
        for step in std::mem::take(&mut branch.order) {
            let (before, after) = (self.turns.get(step), branch.turns.get(step));
            if let (true, Some(turn)) = (before < after, after)
                && let Some(made) = branch.results.get_mut(step).and_then(Option::take)
            {
                news.push((step, *turn, made));
            }
        }
        news
    }

    /// Adds a step that a branch has run.
    pub(crate) fn take(&mut self, step: usize, turn: u32, made: StepResult) {
        if let Some(known) = self.turns.get_mut(step) {
            *known = turn;
        }
        self.keep(step, made);
    }
}
