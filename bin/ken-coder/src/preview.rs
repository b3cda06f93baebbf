//! The preview of a call, for the person who approves it.

use std::fmt;

use ken_tool::Answer;
use ken_types::ops::tools::Risk;
use serde::Serialize;
use serde_json::Value;

use crate::approved;
use crate::change::Plan;
use crate::diff::Diff;
use crate::git_guard::GitFolders;
use crate::inputs::is_executed_by_tools;
use crate::policy::{Approval, Requirement, of_files, with_approval, without_approval};
use crate::rel_path::RelPath;
use crate::settings::Settings;
use crate::tree::digest;

/// A preview in the form of ken-tools(5).
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Preview {
    pub(crate) approval: Approval,
    pub(crate) action_type: &'static str,
    pub(crate) summary: String,
    pub(crate) reason: String,
    pub(crate) risk: Risk,
    pub(crate) target: String,
    pub(crate) action: Value,
    pub(crate) diff: Option<String>,
    pub(crate) fingerprint: String,
    pub(crate) trusted: bool,
}

/// The data that a fingerprint covers, in this order.
#[derive(Serialize)]
struct FingerprintData<'a> {
    action_type: &'a str,
    target: &'a str,
    action: &'a Value,
    /// What the call depends on besides the action, such as the state of a repository.
    state: &'a Value,
    root: String,
    sandbox: &'a str,
}

impl Preview {
    /// Returns a preview. `sandbox` describes what the call can access, and `state` everything else that it depends on.
    #[allow(clippy::too_many_arguments)] // each is a field of the answer
    pub(crate) fn new(
        settings: &Settings,
        verdict: Requirement,
        action_type: &'static str,
        (summary, target, risk): (String, &RelPath, Risk),
        action: Value,
        diff: Option<String>,
        (sandbox, state): (&str, &Value),
    ) -> Preview {
        let trusted = settings.rules.trusts(target);
        let target = settings.shown(target);
        let exact = FingerprintData {
            action_type,
            target: &target,
            action: &action,
            state,
            root: settings.root.display().to_string(),
            sandbox,
        };
        let fingerprint = digest(&serde_json::to_vec(&exact).unwrap_or_default());
        Preview {
            approval: verdict.approval,
            action_type,
            summary,
            reason: verdict.reason,
            risk,
            target,
            action,
            diff,
            fingerprint,
            trusted,
        }
    }

    /// Adds what undo will not restore. It is shown, and is no part of the fingerprint: builds change how many files git
    /// ignores.
    pub(crate) fn with_left_out(mut self, lines: Vec<String>) -> Preview {
        if let Some(action) = self.action.as_object_mut().filter(|_| !lines.is_empty()) {
            action.insert("notUndone".to_owned(), lines.into());
        }
        self
    }

    /// Returns the preview of a call that only reads.
    pub(crate) fn of_read(settings: &Settings, action_type: &'static str, target: &RelPath) -> Preview {
        let verdict = without_approval("it only reads");
        let about = (format!("Read {target}"), target, Risk::Low);
        Preview::new(settings, verdict, action_type, about, Value::Null, None, ("read", &Value::Null))
    }

    /// Converts the preview of a change of files into that of a plan to make it. A person must always approve a plan.
    pub(crate) fn into_proposal(self, summary: &str) -> Preview {
        let (approval, reason) = match self.approval {
            Approval::Deny => (Approval::Deny, self.reason),
            _ => (Approval::Ask, "approving the plan approves each of these edits, once".to_owned()),
        };
        Preview {
            approval,
            reason,
            action_type: "plan.approve",
            summary: format!("Plan: {summary} ({})", self.summary),
            fingerprint: digest(format!("plan.approve {}", self.fingerprint).as_bytes()),
            ..self
        }
    }

    /// Returns the preview of a change of files, with its diff. `guard` has the repositories of the projects that need no approval.
    pub(crate) fn of_plan(settings: &Settings, plan: &Plan<'_>, guard: &GitFolders) -> Preview {
        let mut diff = Diff::default();
        for (place, before, after) in plan.pairs() {
            diff.add(place, before, after);
        }
        Preview { diff: Some(diff.finish()), ..Preview::without_diff(settings, plan, guard) }
    }

    /// Returns the same without the diff, which the fingerprint does not need: it covers the digests of the files.
    pub(crate) fn without_diff(settings: &Settings, plan: &Plan<'_>, guard: &GitFolders) -> Preview {
        let (mut files, mut places, mut removed) = (Vec::new(), Vec::new(), 0);
        for (place, before, after) in plan.pairs() {
            removed += usize::from(after.is_none());
            let [before, after] = [before, after].map(|node| node.map(|node| &node.version));
            files.push(serde_json::json!({"path": place, "before": before, "after": after}));
            places.push(place);
        }
        let mut verdict = of_files(&settings.rules, places.iter().copied());
        if verdict.approval == Approval::None && places.iter().any(|place| guard.executes(place) || guard.holds(place))
        {
            verdict = with_approval("a file is changed that git executes or includes");
        }
        if verdict.approval == Approval::Ask && approved::covers(settings, &plan.entries()) {
            verdict = without_approval("a person approved exactly this with the plan");
        }
        let target = common(settings, &places);
        let runs = places.iter().any(|place| is_executed_by_tools(place));
        let risk = match (removed, places.len()) {
            (0, ..=20) if !runs => Risk::Low,
            _ => Risk::Medium,
        };
        let summary = summary(&places, removed, &target);
        // The shown action lists a limited number of files. The fingerprint covers all of them.
        const MAX_SHOWN_BYTES: usize = 200;
        let all = Value::from(files);
        let shown: Vec<_> = all.as_array().into_iter().flatten().take(MAX_SHOWN_BYTES).cloned().collect();
        let action = serde_json::json!({"files": shown, "count": places.len()});
        Preview::new(settings, verdict, "file.edit", (summary, &target, risk), action, None, ("files", &all))
    }
}

/// Adds a place to an action, if there is one.
pub(crate) fn add(action: &mut Value, name: &str, place: Option<&RelPath>) {
    if let (Value::Object(action), Some(place)) = (action, place) {
        action.insert(name.to_owned(), place.as_str().into());
    }
}

fn summary(places: &[&RelPath], removed: usize, target: &RelPath) -> String {
    let files = |count: usize| match count {
        1 => "1 file".to_owned(),
        count => format!("{count} files"),
    };
    match places {
        [] => "Change nothing".to_owned(),
        [one] if removed == 1 => format!("Remove {one}"),
        [one] => format!("Edit {one}"),
        all if removed == 0 => format!("Edit {} in {target}", files(all.len())),
        all => format!("Edit {} in {target}, {removed} of them removed", files(all.len())),
    }
}

/// Returns the only file, or else the project that contains all files, or else the workspace.
fn common(settings: &Settings, places: &[&RelPath]) -> RelPath {
    let project = places.first().and_then(|place| settings.layout.project(place));
    match places {
        [one] => (*one).clone(),
        all if all.iter().all(|place| settings.layout.project(place) == project) => project.unwrap_or_default(),
        _ => RelPath::default(),
    }
}

impl Answer for Preview {
    fn summary(&self, _: bool, to: &mut dyn fmt::Write) -> fmt::Result {
        let asks = match self.approval {
            Approval::None => "runs without approval",
            Approval::Ask => "needs approval",
            Approval::Deny => "is denied",
        };
        writeln!(to, "{}: {asks}: {}", self.summary, self.reason)?;
        to.write_str(self.diff.as_deref().unwrap_or_default())
    }
}
