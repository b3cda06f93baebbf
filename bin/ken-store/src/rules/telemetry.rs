//! The summary of a submission or a run, computed from its events. It contains no text of a conversation: from each event it only takes the
//! fields of [`EventSummary`], and only if they have the form of a name, a number or an id.

use ken_types::Timestamp;
use ken_types::event::{Block, Cost, Failure, Judgement, ModelName, ToolResult, Usage};
use ken_types::ops::telemetry::{Counts, EventSummary, FailedCall, FailedTool, Tokens};
use serde::{Deserialize, Serialize};

use crate::rules::check::event_type;
use crate::rules::title::shorten;

/// The maximum number of events that a summary contains.
const EVENTS: usize = 500;
const NAME_BYTES: usize = 128;
const RESEARCHER: &str = "research-worker";
const WEB_RESEARCH: &str = "web_research";
/// The workflow whose first step is the tool `web_research`.
const RESEARCH: &str = "research";

/// The types of events that a summary contains. Other events are only counted.
const RECORDED_TYPES: [&str; 17] = [
    "agent_end", "agent_start", "compaction", "compaction_start", "log", "operation", "operation_start", "run_end",
    "run_resume", "run_start", "task", "task_start", "tool", "tool_start", "turn", "turn_start", "approval_requested",
];

/// A summary as it is stored.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Fold {
    event_count: u64,
    pub delegated: bool,
    pub researched: bool,
    pub counts: Counts,
    pub usage: Tokens,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    pub events: Vec<EventSummary>,
    #[serde(default)]
    pub truncated: bool,
}

/// What a `turn` event says about its model.
#[derive(Default, Deserialize)]
#[serde(default)]
struct TurnFields {
    model: String,
    provider: String,
    usage: Usage,
}

/// What the result of a run can contain about its model.
#[derive(Default, Deserialize)]
#[serde(default)]
struct RunEnd {
    result: Option<RunResult>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RunResult {
    model: Option<ModelName>,
    usage: Option<Used>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Used {
    #[serde(flatten)]
    tokens: Tokens,
    cost: Cost,
}

/// What a `validation` event says about the model that judged the answer.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Validated {
    judge: Option<Judge>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Judge {
    usage: Used,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Workflow {
    workflow_name: String,
}

impl Fold {
    pub(crate) fn event_count(&self) -> u64 {
        self.event_count
    }

    pub(crate) fn add_event(&mut self, event: &str) {
        self.event_count += 1;
        let kind = event_type(event);
        if kind == "validation" {
            self.count_judge(event);
        }
        if !RECORDED_TYPES.contains(&kind) {
            return;
        }
        let Ok(mut shown) = serde_json::from_str::<EventSummary>(event) else {
            return;
        };
        replace_odd_names(&mut shown);
        self.started_at = self.started_at.or(shown.timestamp);
        self.count(&shown, event);
        if kind == "approval_requested" {
            return;
        }
        if self.events.len() < EVENTS { self.events.push(shown) } else { self.truncated = true }
    }

    fn count(&mut self, summary: &EventSummary, event: &str) {
        let is_end = |kind: &str| summary.r#type == kind;
        self.counts.errors += u64::from(summary.is_error == Some(true));
        self.counts.tool_calls += u64::from(is_end("tool"));
        self.counts.tasks += u64::from(is_end("task_start"));
        self.counts.approvals += u64::from(is_end("approval_requested"));
        self.delegated |= is_end("task_start") && summary.agent.as_deref() == Some(RESEARCHER);
        self.researched |= summary.tool_name.as_deref() == Some(WEB_RESEARCH);
        match summary.r#type.as_str() {
            "turn" => {
                self.counts.turns += 1;
                self.usage += summary.usage.unwrap_or_default();
                let spent: TurnFields = serde_json::from_str(event).unwrap_or_default();
                self.spend(&spent.provider, &spent.model, spent.usage.cost.total);
            }
            "run_start" => {
                let run: Workflow = serde_json::from_str(event).unwrap_or_default();
                self.researched |= run.workflow_name == RESEARCH;
            }
            "run_end" => {
                let end: RunEnd = serde_json::from_str(event).unwrap_or_default();
                let result = end.result.unwrap_or_default();
                let (model, used) = (result.model.unwrap_or_default(), result.usage.unwrap_or_default());
                self.usage += used.tokens;
                self.spend(&model.provider, &model.id, used.cost.total);
            }
            _ => {}
        }
    }

    /// Counts what the model used that judged an answer. It is not the model of the turn.
    fn count_judge(&mut self, event: &str) {
        let validated: Validated = serde_json::from_str(event).unwrap_or_default();
        if let Some(Judge { usage: used }) = validated.judge {
            self.usage += used.tokens;
            self.spend("", "", used.cost.total);
        }
    }

    fn spend(&mut self, provider: &str, model: &str, cost: f64) {
        if is_name(provider) && is_name(model) {
            self.model = Some(format!("{provider}/{model}"));
        }
        if cost > 0.0 {
            self.cost = Some(self.cost.unwrap_or_default() + cost);
        }
    }
}

/// What went wrong in a submission before its end: calls of models and tools that failed, and answers that had to be
/// written again.
#[derive(Debug, Default)]
pub(crate) struct Troubles {
    pub failures: Vec<FailedCall>,
    pub tool_failures: Vec<FailedTool>,
    pub violations: Vec<String>,
}

/// The maximum number of failed calls of each kind, and of violations, that are listed.
pub(crate) const MAX_TROUBLES: usize = 20;
/// The maximum length of the reason why a tool failed, in characters.
const REASON_CHARACTERS: usize = 300;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct TroubleFields {
    submission_id: String,
    #[serde(default)]
    model: String,
    #[serde(default)]
    provider: String,
    error: Option<Failure>,
    verdict: Option<Judgement>,
    #[serde(default)]
    violations: Vec<String>,
    #[serde(default)]
    tool_name: String,
    #[serde(default)]
    is_error: bool,
    result: Option<ToolResult>,
}

impl Troubles {
    /// Takes an event of the stream into account, if it belongs to the submission.
    pub(crate) fn add_event(&mut self, submission: &str, event: &str) {
        let kind = event_type(event);
        let is_failed_tool = || kind == "tool" && event.contains("\"isError\":true");
        if !["turn", "validation"].contains(&kind) && !is_failed_tool() {
            return;
        }
        let Ok(fields) = serde_json::from_str::<TroubleFields>(event) else {
            return;
        };
        if fields.submission_id != submission {
            return;
        }
        if kind == "tool" {
            self.tool_failures.extend(fields.failed_tool().filter(|_| self.tool_failures.len() < MAX_TROUBLES));
            return;
        }
        if kind == "validation" {
            let is_bad = fields.verdict == Some(Judgement::Fail);
            self.violations.extend(fields.violations.into_iter().filter(|_| is_bad));
            self.violations.truncate(MAX_TROUBLES);
            return;
        }
        let model = format!("{}/{}", fields.provider, fields.model);
        if let Some(failed) = self.failures.last_mut().filter(|failed| failed.next.is_none()) {
            failed.next = Some(model.clone());
        }
        if let Some(error) = fields.error.filter(|_| self.failures.len() < MAX_TROUBLES) {
            let error = format!("{}: {}", error.name, error.message);
            self.failures.push(FailedCall { model, error, next: None });
        }
    }
}

impl TroubleFields {
    fn failed_tool(self) -> Option<FailedTool> {
        let content = self.result.filter(|_| self.is_error)?.content;
        let texts = content.into_iter().filter_map(|block| match block {
            Block::Text { text } => Some(text),
            _ => None,
        });
        let error = shorten(&texts.collect::<Vec<_>>().join(" "), REASON_CHARACTERS);
        Some(FailedTool { tool: self.tool_name, error })
    }
}

/// Replaces names that do not have the form of a name. A model can invent the name of a tool, so it could contain any text.
fn replace_odd_names(summary: &mut EventSummary) {
    let is_tool =
        |name: &str| name.len() <= TOOL_BYTES && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if summary.tool_name.as_deref().is_some_and(|name| !is_tool(name)) {
        summary.tool_name = Some(NO_NAME.to_owned());
    }
    for name in [&mut summary.agent, &mut summary.operation_kind] {
        if name.as_ref().is_some_and(|name| !is_name(name)) {
            *name = Some(NO_NAME.to_owned());
        }
    }
}

const NO_NAME: &str = "(not a name)";
/// The maximum length of the name of a tool, in bytes.
const TOOL_BYTES: usize = 64;

fn is_name(text: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"_-./:".contains(&byte);
    (1..=NAME_BYTES).contains(&text.len()) && text.bytes().all(is_part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_earlier_text_is_taken_over() {
        let secret = "the secret";
        let events = [
            r#"{"v":1,"type":"operation_start","operationKind":"prompt","eventIndex":0,"timestamp":"2027-02-03T04:05:06.789Z"}"#
                .to_owned(),
            format!(r#"{{"v":1,"type":"text_delta","text":"{secret}"}}"#),
            format!(
                r#"{{"v":1,"type":"tool_start","toolName":"{secret}","toolCallId":"c","args":{{"x":"{secret}"}}}}"#
            ),
            format!(
                r#"{{"v":1,"type":"tool","toolName":"web_research","isError":true,"result":"{secret}","durationMs":3}}"#
            ),
            format!(r#"{{"v":1,"type":"task_start","agent":"research-worker","prompt":"{secret}"}}"#),
            format!(r#"{{"v":1,"type":"approval_requested","requestId":"apr_1","actionType":"{secret}"}}"#),
            format!(r#"{{"v":1,"type":"log","level":"info","message":"{secret}"}}"#),
            format!(
                r#"{{"v":1,"type":"turn","provider":"openai","model":"m","output":[{{"type":"text","text":"{secret}"}}],"durationMs":7,
                "usage":{{"input":5,"output":2,"totalTokens":7,"cost":{{"total":0.25}}}},"isError":false}}"#
            ),
        ];
        let mut fold = Fold::default();
        events.iter().for_each(|event| fold.add_event(event));
        let text = serde_json::to_string(&fold).unwrap();
        assert!(!text.contains(secret), "{text}");
        let counts = Counts { turns: 1, tool_calls: 1, tasks: 1, errors: 1, approvals: 1 };
        assert_eq!((fold.event_count(), fold.counts, fold.events.len()), (8, counts, 6));
        assert_eq!((fold.usage.total_tokens, fold.cost, fold.model.as_deref()), (7, Some(0.25), Some("openai/m")));
        assert!(fold.delegated && fold.researched && fold.started_at.is_some());
        assert_eq!(serde_json::from_str::<Fold>(&text).unwrap(), fold);
    }

    #[test]
    fn failed_calls_name_the_next_model_and_violations_are_those_of_failed_checks() {
        let turn = |model: &str, error: &str| {
            format!(r#"{{"v":1,"type":"turn","submissionId":"s","provider":"p","model":"{model}"{error}}}"#)
        };
        let busy = r#","error":{"name":"busy","message":"later"}"#;
        let check = |verdict: &str| {
            format!(
                r#"{{"v":1,"type":"validation","submissionId":"s","verdict":"{verdict}","violations":["too bold"]}}"#
            )
        };
        let other = r#"{"v":1,"type":"turn","submissionId":"t","provider":"p","model":"x"}"#.to_owned();
        let mut troubles = Troubles::default();
        for event in
            [turn("a", busy), other, turn("a", busy), turn("b", ""), check("pass"), check("fail"), turn("b", busy)]
        {
            troubles.add_event("s", &event);
        }
        let shown: Vec<_> =
            troubles.failures.iter().map(|failed| (failed.model.as_str(), failed.next.as_deref())).collect();
        assert_eq!(shown, [("p/a", Some("p/a")), ("p/a", Some("p/b")), ("p/b", None)]);
        assert_eq!(
            (troubles.failures[0].error.as_str(), troubles.violations),
            ("busy: later", vec!["too bold".to_owned()])
        );
    }

    #[test]
    fn failed_tools_are_listed_with_their_reasons() {
        let tool = |name: &str, is_error: bool, text: &str| {
            let result = serde_json::json!({"content": [{"type": "text", "text": text}]});
            format!(
                r#"{{"v":1,"type":"tool","toolName":"{name}","isError":{is_error},"result":{result},"submissionId":"s"}}"#
            )
        };
        let mut troubles = Troubles::default();
        // The text of a call that went well may look like the mark of a failure.
        for event in [
            tool("read_file", false, r#""isError":true"#),
            tool("edit_file", true, "no such text"),
            tool("run_command", true, &"x".repeat(400)),
        ] {
            troubles.add_event("s", &event);
            troubles.add_event("t", &event);
        }
        let shown: Vec<_> =
            troubles.tool_failures.iter().map(|failed| (failed.tool.as_str(), failed.error.chars().count())).collect();
        assert_eq!(shown, [("edit_file", "no such text".len()), ("run_command", REASON_CHARACTERS)]);
        (0..MAX_TROUBLES).for_each(|_| troubles.add_event("s", &tool("edit_file", true, "")));
        assert_eq!(troubles.tool_failures.len(), MAX_TROUBLES);
    }

    #[test]
    fn many_events_are_counted_and_some_kept() {
        let mut fold = Fold::default();
        for _ in 0..EVENTS + 5 {
            fold.add_event(r#"{"v":1,"type":"tool","toolName":"sum","isError":false,"durationMs":1}"#);
        }
        assert_eq!((fold.counts.tool_calls, fold.events.len(), fold.truncated), (505, EVENTS, true));
    }

    #[test]
    fn a_name_has_a_form_and_a_length() {
        for (tool, agent, is_kept) in [
            ("t".repeat(64), "a".repeat(128), true),
            ("t".repeat(65), "a".repeat(129), false),
            ("a_1".to_owned(), "a_-./:1".to_owned(), true),
            ("a-1".to_owned(), "a 1".to_owned(), false),
        ] {
            let mut fold = Fold::default();
            fold.add_event(&format!(r#"{{"v":1,"type":"task_start","toolName":"{tool}","agent":"{agent}"}}"#));
            let shown = fold.events.remove(0);
            let kept = (shown.tool_name == Some(tool), shown.agent == Some(agent));
            assert_eq!(kept, (is_kept, is_kept), "{kept:?}");
        }
    }
}
