//! The dialog that decides a request for an approval.

use ken_approval::Request;
use ken_client::approvals::{Decision, user};
use ratatui::text::Line;

#[derive(Debug)]
pub(crate) struct Dialog {
    pub(crate) request: Request,
    /// Whether all that there is of the request is here. The list of requests omits long actions and diffs.
    pub(crate) is_loaded: bool,
    /// Whether the window has room for the request. What is not on the screen cannot be approved.
    pub(crate) is_shown: bool,
    /// The number of lines of the request that are on the screen.
    pub(crate) page: usize,
    pub(crate) drawn: Option<Drawn>,
    /// The index of the first visible line.
    pub(crate) scroll: usize,
    /// The reason for a denial, while it is being typed.
    pub(crate) reason: Option<String>,
    /// What became of the request, if it was decided elsewhere while the dialog was open. The dialog stays, so that a key that was meant for
    /// it does not go into the draft.
    pub(crate) outcome: Option<String>,
}

/// The lines of a request for a width. They are kept, because a diff can have many thousands.
#[derive(Debug)]
pub(crate) struct Drawn {
    pub(crate) columns: u16,
    pub(crate) lines: Vec<Line<'static>>,
    /// Whether all of each line fits into the width. One cluster of letters can be wider than a window, and is not drawn then.
    pub(crate) fits: bool,
}

impl Dialog {
    pub(crate) fn new(request: Request) -> Dialog {
        Dialog {
            request,
            is_loaded: false,
            is_shown: false,
            page: 0,
            drawn: None,
            scroll: 0,
            reason: None,
            outcome: None,
        }
    }

    /// Shows the whole request. The person stays at the same line.
    pub(crate) fn load(&mut self, request: Request) {
        let (reason, outcome) = (self.reason.take(), self.outcome.take());
        *self = Dialog { scroll: self.scroll, reason, outcome, is_loaded: true, ..Dialog::new(request) };
    }

    /// Whether it can be approved, and also for the session. Nothing that cannot be read whole can be, and a change that
    /// is longer than a request only once.
    pub(crate) fn may_approve(&self, for_session: bool) -> bool {
        let is_whole = self.is_loaded && self.is_shown && !self.request.is_cut;
        is_whole && (!for_session || self.request.digest.is_none())
    }

    /// Returns an approval of exactly what is shown.
    pub(crate) fn approval(&self, for_session: bool) -> Decision {
        Decision { approved: true, by: user(), reason: None, for_session, digest: self.request.digest.clone() }
    }
}

pub(crate) fn denial(reason: Option<String>) -> Decision {
    let reason = reason.filter(|reason| !reason.trim().is_empty());
    Decision { approved: false, by: user(), reason, for_session: false, digest: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_blank_reason_is_none() {
        for (typed, reason) in [(None, None), (Some(""), None), (Some(" \n"), None), (Some(" no "), Some(" no "))] {
            let denial = denial(typed.map(str::to_owned));
            assert_eq!((denial.approved, denial.reason.as_deref()), (false, reason), "{typed:?}");
        }
    }

    /// Nothing that is not shown whole can be approved, and a change that is longer than a request only once.
    #[test]
    fn what_may_be_approved() {
        for (is_loaded, is_shown) in [(false, true), (true, false), (true, true)] {
            for is_cut in [false, true] {
                for is_long in [false, true] {
                    let record = serde_json::json!({"requestId": "apr_1", "request": {"id": "apr_1", "metadata": {}}});
                    let mut request = Request::of(&record).unwrap();
                    (request.is_cut, request.digest) = (is_cut, is_long.then(|| "d".to_owned()));
                    let mut dialog = Dialog::new(request.clone());
                    if is_loaded {
                        dialog.load(request);
                    }
                    // A request that has just been loaded is not on the screen yet.
                    assert!(!dialog.may_approve(false));
                    dialog.is_shown = is_shown;
                    let is_whole = is_loaded && is_shown && !is_cut;
                    let may = [dialog.may_approve(false), dialog.may_approve(true)];
                    assert_eq!(may, [is_whole, is_whole && !is_long], "{is_loaded} {is_shown} {is_cut} {is_long}");
                    let approval = dialog.approval(is_long);
                    assert_eq!((approval.approved, approval.for_session), (true, is_long));
                    assert_eq!(approval.digest.is_some(), is_long);
                }
            }
        }
    }
}
