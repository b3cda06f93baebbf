//! The dialog that decides a request for an approval.

use ken_approval::Request;
use ken_client::approvals::{Decision, user};

/// The open dialog.
#[derive(Debug)]
pub(crate) struct Dialog {
    pub(crate) request: Request,
    /// Whether the whole request is here. The list of requests omits long actions and diffs, and nothing that is not
    /// shown whole can be approved.
    pub(crate) is_whole: bool,
    /// The index of the first visible line.
    pub(crate) scroll: usize,
    /// The reason for a denial, while it is being typed.
    pub(crate) reason: Option<String>,
}

impl Dialog {
    pub(crate) fn new(request: Request) -> Dialog {
        Dialog { request, is_whole: false, scroll: 0, reason: None }
    }
}

pub(crate) fn decision(approved: bool, for_session: bool, reason: Option<String>) -> Decision {
    Decision { approved, by: user(), reason: reason.filter(|reason| !reason.trim().is_empty()), for_session }
}
