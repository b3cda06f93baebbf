use std::collections::BTreeSet;
use std::fmt::{self, Write};

use ken_tool::Verdict;
use serde::Serialize;

use crate::conflicts::Conflict;
use crate::issue::{Issue, Severity};
use crate::rulebase::RuleBase;

#[derive(Serialize)]
pub(crate) struct Answer {
    validation_status: &'static str,
    reason: String,
    issues: Vec<Issue>,
    warnings: Vec<String>,
    total_rules: usize,
    valid_rules: usize,
    conflicts: Vec<Conflict>,
    /// The share of the rules that are well formed, from 0 to 1. If there are facts, a rule only counts if it can
    /// apply.
    completeness: f64,
}

impl Answer {
    pub(crate) fn of(
        base: &RuleBase<'_>,
        mut issues: Vec<Issue>,
        conflicts: Vec<Conflict>,
        idle: usize,
        strict: bool,
    ) -> Answer {
        if strict {
            issues.iter_mut().for_each(|issue| issue.severity = Severity::Error);
        }
        let failed = issues.iter().any(|issue| issue.severity == Severity::Error);
        let warnings = issues.iter().filter(|issue| issue.severity == Severity::Warning);
        let (total, valid) = (base.total, base.rules.len());
        let share = if total == 0 { 1.0 } else { (valid - idle) as f64 / total as f64 };
        Answer {
            validation_status: if failed { "failure" } else { "success" },
            reason: reason(&issues, total),
            warnings: warnings.map(|issue| issue.message.clone()).collect(),
            total_rules: total,
            valid_rules: valid,
            conflicts,
            completeness: (share * 1e6).round() / 1e6,
            issues,
        }
    }
}

fn reason(issues: &[Issue], total: usize) -> String {
    let rules = format_count(total, "rule");
    let of = |severity| issues.iter().filter(move |issue| issue.severity == severity);
    let (errors, warnings) = (of(Severity::Error).count(), of(Severity::Warning).count());
    let worst = if errors > 0 { Severity::Error } else { Severity::Warning };
    let kinds: BTreeSet<&str> = of(worst).map(|issue| issue.kind).collect();
    let kinds = kinds.into_iter().collect::<Vec<_>>().join(", ").replace('_', " ");
    match (errors, warnings) {
        (0, 0) => format!("{rules}, no problem found"),
        (0, _) => format!("{rules}, {}: {kinds}", format_count(warnings, "warning")),
        (_, 0) => format!("{rules}, {}: {kinds}", format_count(errors, "error")),
        _ => format!("{rules}, {}: {kinds}; {}", format_count(errors, "error"), format_count(warnings, "warning")),
    }
}

fn format_count(count: usize, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

impl ken_tool::Answer for Answer {
    fn verdict(&self) -> Verdict {
        match self.validation_status {
            "success" => Verdict::Positive,
            _ => Verdict::Negative,
        }
    }

    fn summary(&self, verbose: bool, to: &mut dyn Write) -> fmt::Result {
        writeln!(to, "{}: {}", self.validation_status, self.reason)?;
        for issue in &self.issues {
            let severity = if issue.severity == Severity::Error { "error" } else { "warning" };
            writeln!(to, "  {severity} {}: {} (at {})", issue.kind, issue.message, issue.at)?;
        }
        for conflict in self.conflicts.iter().filter(|_| verbose) {
            conflict.summary(to)?;
        }
        Ok(())
    }
}
