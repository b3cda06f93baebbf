//! The work that a submission still needs, and the steps that do this work.

use ken_types::event::{Body, CitedSource, Failure, Message, ModelName, OperationKind, StopReason};
use ken_types::ops::store::{Claim, EndReason, SubmissionKind};
use ken_types::rule::Patterns;

use super::session::SessionName;
use super::turn::Call;
use crate::governance::Requirement;

/// The plan of a submission. Only `ending` can change while one process holds the submission.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) kind: SubmissionKind,
    pub(crate) operation: OperationKind,
    /// The number of the claim, starting at 1.
    pub(crate) attempt: u32,
    /// A list of `provider/model` in order of preference.
    pub(crate) models: Vec<String>,
    /// Whether a person has chosen the model, so that no other one is called.
    pub(crate) is_chosen: bool,
    /// The compaction to do before the prompt, or as requested by `/compact`.
    pub(crate) compaction: Option<Planned>,
    /// The compaction to do if a model refuses the context as too long. `None` if there is no history.
    pub(crate) on_overflow: Option<Planned>,
    /// The prompt of a worker. It appears on the stream, because no stored event contains it.
    pub(crate) prompt: Option<String>,
    /// The prompt as readers of the stream are shown it, before the first turn. The model is given it in another form.
    /// `None` for a prompt that transcripts do not show either.
    pub(crate) shown: Option<Message>,
    /// The sources that the model is given at the start, with the numbers by which an answer names them.
    pub(crate) sources: Vec<CitedSource>,
    /// The requirements of governing rules on the answer.
    pub(crate) duties: Duties,
    /// Set when the submission has to be closed instead of continued.
    pub(crate) ending: Option<Ending>,
}

/// The requirements that an answer must meet before it is accepted.
#[derive(Debug, Clone, Default)]
pub(crate) struct Duties {
    /// The tools that must be called successfully first.
    pub(crate) required: Vec<Requirement<Patterns>>,
    /// Whether a rule requires validation.
    pub(crate) is_judged: bool,
    /// Whether the turn was given knowledge at its start. An answer that contradicts it is rewritten.
    pub(crate) has_knowledge: bool,
}

/// A compaction that has to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Planned {
    pub(crate) reason: &'static str,
    pub(crate) estimated_tokens: u64,
    /// The number of messages in the history, including the summary if there is one.
    pub(crate) messages: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ending {
    Aborted,
    Timeout,
    RetryExhausted,
    /// Only for a worker: a crash interrupted its task.
    Interrupted,
    /// A governing rule requires the end. Contains the reason.
    Rule(String),
    /// A defect. Contains its description.
    Defect(String),
}

/// The name of the failure when a governing rule is violated.
pub(crate) const RULE: &str = "rule";
/// The result of a task that cannot be finished.
pub(crate) const TASK_INTERRUPTED: &str = "The task was interrupted.";

/// What the name of the engine begins with that answers without a language model.
const ANSWERS_WITHOUT_MODEL: &str = "rules/";

#[derive(Debug, Clone)]
pub(crate) enum Step {
    /// Record this event. If there is a reference, the event belongs to that task.
    Record(Box<Body>, Option<TaskRef>),
    /// Wait for about this time before the next attempt.
    Backoff {
        base_ms: u64,
        /// The minimum time, which the provider requested.
        least_ms: u64,
    },
    /// Call the model with this index in the list.
    CallModel { model: usize },
    /// Run these tools concurrently.
    CallTools(Vec<Call>),
    /// Validate the answer, and record the result.
    Validate,
    /// Record the end of the submission, with outcome and result.
    Settle,
}

/// The task that an event belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TaskRef {
    pub(crate) id: String,
    /// Set if the event is one of the worker itself.
    pub(crate) worker: Option<WorkerRef>,
}

/// The worker to which an event belongs, and the operation and turn in that worker.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct WorkerRef {
    /// The name of the worker, such as `coding-worker`.
    pub(crate) agent: String,
    pub(crate) session: SessionName,
    /// The session of the agent that gave the task.
    pub(crate) parent: SessionName,
    pub(crate) operation_id: Option<String>,
    pub(crate) turn_id: Option<String>,
}

impl TaskRef {
    /// Returns the reference for `task_start` and `task`, which the parent records.
    pub(crate) fn of(id: &str) -> TaskRef {
        TaskRef { id: id.to_owned(), worker: None }
    }
}

impl Plan {
    fn new(kind: SubmissionKind, operation: OperationKind) -> Plan {
        Plan {
            kind,
            operation,
            attempt: 1,
            models: Vec::new(),
            is_chosen: false,
            compaction: None,
            on_overflow: None,
            sources: Vec::new(),
            prompt: None,
            shown: None,
            duties: Duties::default(),
            ending: None,
        }
    }

    /// Returns the plan of a submission for which nothing is loaded yet.
    pub(crate) fn of_submission(claim: &Claim) -> Plan {
        let is_compaction = claim.kind == SubmissionKind::Compact;
        let operation = if is_compaction { OperationKind::Compact } else { OperationKind::Prompt };
        Plan { attempt: claim.attempt, ending: claim.verdict.map(Ending::from), ..Plan::new(claim.kind, operation) }
    }

    /// Returns the plan of a worker: one prompt, and no history to compact.
    pub(crate) fn of_worker(prompt: String, models: Vec<String>) -> Plan {
        Plan { models, prompt: Some(prompt), ..Plan::new(SubmissionKind::Prompt, OperationKind::Task) }
    }

    /// Returns provider and model at this index of the list, or the last entry if the index is too large.
    pub(crate) fn model(&self, index: usize) -> ModelName {
        let name = self.models.get(index).or(self.models.last()).map(String::as_str);
        let (provider, id) = name.unwrap_or_default().split_once('/').unwrap_or_default();
        ModelName { provider: provider.to_owned(), id: id.to_owned() }
    }

    /// Returns the index of the last language model of the list. `rules` answers without one, so nobody waits for it.
    pub(crate) fn last_model(&self) -> usize {
        let is_model = |name: &String| !name.starts_with(ANSWERS_WITHOUT_MODEL);
        self.models.iter().rposition(is_model).unwrap_or_default()
    }

    /// Returns the compaction that is in progress, if there is one.
    pub(super) fn planned(&self) -> Option<Planned> {
        self.compaction.or(self.on_overflow)
    }

    /// The plan that closes the open events of a worker whose task cannot be finished.
    pub(super) fn closing_worker(&self) -> Plan {
        Plan {
            ending: Some(self.ending.clone().unwrap_or(Ending::Interrupted)),
            ..Plan::new(SubmissionKind::Prompt, OperationKind::Task)
        }
    }

    /// The stop reason of a message that cannot be finished.
    pub(super) fn cut(&self) -> StopReason {
        match self.ending {
            Some(Ending::Aborted) => StopReason::Aborted,
            _ => StopReason::Interrupted,
        }
    }
}

impl From<EndReason> for Ending {
    fn from(verdict: EndReason) -> Ending {
        match verdict {
            EndReason::Abort => Ending::Aborted,
            EndReason::RetryExhausted => Ending::RetryExhausted,
            EndReason::Timeout => Ending::Timeout,
        }
    }
}

impl Ending {
    pub(super) fn failure(&self) -> Failure {
        match self {
            Ending::Aborted => EndReason::Abort.of_turn(),
            Ending::Timeout => EndReason::Timeout.of_turn(),
            Ending::RetryExhausted => EndReason::RetryExhausted.of_turn(),
            Ending::Interrupted => Failure::new("interrupted", TASK_INTERRUPTED),
            Ending::Rule(message) => Failure::new(RULE, message),
            Ending::Defect(message) => Failure::new("defect", message),
        }
    }
}
