//! The greeting of a new session: the built-in skill `greeting`.

use ken_types::ops::model::Generate;

/// Whether the greeting is requested: the agent has added the skill, or the prompt itself mentions
/// it.
pub(super) fn is_requested(request: &Generate, question: &str) -> bool {
    let skill = "# Skill: greeting";
    let is_added = request.aside.as_ref().is_some_and(|aside| aside.contains(skill)) || request.system.contains(skill);
    is_added || question.contains("greeting skill")
}

/// Returns a greeting that introduces ken, reports the problems that the preflight found, and
/// suggests a first step.
pub(super) fn of(preflight: &str, no_model: &str) -> String {
    let mut text = format!(
        "Hello, I am ken. {no_model}: I answer from your knowledge entries and our past turns, and name the entry that an \
         answer rests on."
    );
    let lines = preflight.lines().map(str::trim);
    let troubles: Vec<&str> = lines.filter(|line| is_problem(line)).collect();
    if !troubles.is_empty() {
        text.push_str("\n\nThe preflight reports:\n");
        text.push_str(&troubles.join("\n"));
    }
    text.push_str(
        "\n\nAdd knowledge with `ken knowledge add` or POST /api/knowledge, ask me about it, or type /help for the commands.",
    );
    text
}

/// Whether a line of the report names a problem.
fn is_problem(line: &str) -> bool {
    let lower = line.to_lowercase();
    let mut words = lower.split(|char: char| !char.is_alphanumeric());
    words.any(|word| PROBLEM_WORDS.contains(&word)) && !HARMLESS.iter().any(|word| lower.contains(word))
}

const PROBLEM_WORDS: [&str; 9] =
    ["fail", "failed", "failing", "error", "down", "missing", "unavailable", "unreachable", "warning"];
/// Parts of lines that report no problem, and of the instruction in the prompt.
const HARMLESS: [&str; 5] = ["skill", "0 failed", "no error", "none missing", "if "];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_greeting_reports_only_problems_of_the_preflight() {
        let text =
            of("Use the greeting skill.\ngateway: ok\nscheduler: down since 10:00", "No language model is configured");
        assert!(text.contains("scheduler: down since 10:00"), "{text}");
        assert!(!text.contains("gateway: ok") && !text.contains("greeting skill"), "{text}");
        assert!(text.contains("No language model is configured:"));
        assert!(!of("all ok", "No language model is configured").contains("preflight"));
    }
}
