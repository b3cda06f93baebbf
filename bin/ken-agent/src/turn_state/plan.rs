//! The work that a submission still needs, and the steps that do it.

use ken_types::event::{Body, Failure, ModelName, OperationKind, StopReason};
use ken_types::ops::store::{Claim, SubmissionKind, Verdict};
use ken_types::rule::Patterns;

use super::session::SessionName;
use super::turn::Call;
use crate::governance::Demand;

/// The plan of a submission. It does not change while the submission is held, except for `ending`.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) kind: SubmissionKind,
    /// The kind under which the operation is shown.
    pub(crate) operation: OperationKind,
    /// 1 for the first claim.
    pub(crate) attempt: u32,
    /// `provider/model`, first choice first.
    pub(crate) models: Vec<String>,
    /// The compaction that is due before the prompt, or that `/compact` asks for.
    pub(crate) compaction: Option<Planned>,
    /// The compaction that is made when a model refuses the context as too long; none when there is no history.
    pub(crate) on_overflow: Option<Planned>,
    /// The prompt of a worker. It appears on the stream, because no stored event contains it.
    pub(crate) prompt: Option<String>,
    /// The requirements of governing rules on the answer.
    pub(crate) duties: Duties,
    /// Set when the submission has to be closed instead of continued.
    pub(crate) ending: Option<Ending>,
}

/// The requirements that an answer must meet before it counts.
#[derive(Debug, Clone, Default)]
pub(crate) struct Duties {
    /// The tools that must succeed first.
    pub(crate) required: Vec<Demand<Patterns>>,
    /// A rule wants it judged.
    pub(crate) is_judged: bool,
    /// The turn began with knowledge, and an answer that contradicts it is written anew.
    pub(crate) has_knowledge: bool,
}

/// A compaction that is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Planned {
    pub(crate) reason: &'static str,
    pub(crate) estimated_tokens: u64,
    /// Messages of the history, with the summary if there is one.
    pub(crate) messages: u64,
}

/// Why a submission ends before its time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ending {
    Aborted,
    Timeout,
    RetryExhausted,
    /// Only for a worker: a crash interrupted its task.
    Interrupted,
    /// A governing rule ends it, in words.
    Rule(String),
    /// A defect, in words.
    Defect(String),
}

/// The name of the failure when a governing rule is not met.
pub(crate) const RULE: &str = "rule";
/// The result of a task that nobody can finish.
pub(crate) const TASK_INTERRUPTED: &str = "The task was interrupted.";

/// What to do next.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    /// Record this event, of a task if one is named.
    Record(Box<Body>, Option<TaskRef>),
    /// Wait for about this long before the next attempt.
    Backoff {
        base_ms: u64,
        /// What the provider asked for.
        least_ms: u64,
    },
    /// Call the model at this place of the list.
    CallModel { model: usize },
    /// Run these tools, all at once.
    CallTools(Vec<Call>),
    /// Judge the answer, and record how.
    Validate,
    /// Record the end, with outcome and result.
    Settle,
}

/// The task that an event belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TaskRef {
    pub(crate) id: String,
    /// Set for events of the worker itself.
    pub(crate) worker: Option<WorkerRef>,
}

/// The worker that an event belongs to, and operation and turn within it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct WorkerRef {
    pub(crate) session: SessionName,
    /// The session of the agent that gave the task.
    pub(crate) parent: SessionName,
    pub(crate) operation_id: Option<String>,
    pub(crate) turn_id: Option<String>,
}

impl TaskRef {
    /// `task_start` and `task`, which the parent records.
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
            compaction: None,
            on_overflow: None,
            prompt: None,
            duties: Duties::default(),
            ending: None,
        }
    }

    /// The plan of a submission before anything is loaded.
    pub(crate) fn of_submission(claim: &Claim) -> Plan {
        let operation = match claim.kind {
            SubmissionKind::Compact => OperationKind::Compact,
            _ => OperationKind::Prompt,
        };
        Plan { attempt: claim.attempt, ending: claim.verdict.map(Ending::from), ..Plan::new(claim.kind, operation) }
    }

    /// The plan of a worker: one prompt, without a history that could be compacted.
    pub(crate) fn of_worker(prompt: String, models: Vec<String>) -> Plan {
        Plan { models, prompt: Some(prompt), ..Plan::new(SubmissionKind::Prompt, OperationKind::Task) }
    }

    /// Provider and model of this place in the list; past its end, the last of it.
    pub(crate) fn model(&self, index: usize) -> ModelName {
        let name = self.models.get(index).or(self.models.last()).map(String::as_str);
        let (provider, id) = name.unwrap_or_default().split_once('/').unwrap_or_default();
        ModelName { provider: provider.to_owned(), id: id.to_owned() }
    }

    /// The compaction that is under way, if one is.
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

impl From<Verdict> for Ending {
    fn from(verdict: Verdict) -> Ending {
        match verdict {
            Verdict::Abort => Ending::Aborted,
            Verdict::RetryExhausted => Ending::RetryExhausted,
            Verdict::Timeout => Ending::Timeout,
        }
    }
}

impl Ending {
    pub(super) fn failure(&self) -> Failure {
        match self {
            Ending::Aborted => Verdict::Abort.of_turn(),
            Ending::Timeout => Verdict::Timeout.of_turn(),
            Ending::RetryExhausted => Verdict::RetryExhausted.of_turn(),
            Ending::Interrupted => Failure::new("interrupted", TASK_INTERRUPTED),
            Ending::Rule(message) => Failure::new(RULE, message),
            Ending::Defect(message) => Failure::new("defect", message),
        }
    }
}
