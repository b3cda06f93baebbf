//! The names of sessions.

/// The session of an agent as its events name it: `default` for the root, `task:<parent session>:<taskId>` for a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SessionName(String);

impl Default for SessionName {
    fn default() -> SessionName {
        SessionName("default".to_owned())
    }
}

impl SessionName {
    pub(crate) fn of_task(&self, task: &str) -> SessionName {
        SessionName(format!("task:{}:{task}", self.0))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}
