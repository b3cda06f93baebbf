//! The tool that reads a skill, so that its text is loaded only when it is used.

use ken_types::event::{Block, ToolResult};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Builtin, Parts, arguments, tool};
use crate::names::ORCHESTRATOR;

pub(super) fn tools() -> Vec<Builtin> {
    vec![Builtin {
        agents: &[ORCHESTRATOR],
        ..tool(
            "skill",
            "Read one of the skills that are listed above: how a certain kind of work is done. Read it before that work.",
            json!({"name": {"type": "string", "minLength": 1, "maxLength": 64}}),
            &["name"],
            |parts, _, given| Box::pin(std::future::ready(read(&parts, given))),
        )
    }]
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SkillArgs {
    name: String,
}

fn read(parts: &Parts, given: Value) -> Result<ToolResult, String> {
    let which: SkillArgs = arguments(given)?;
    let skill = parts.skills.find(&which.name);
    let skill = skill.ok_or_else(|| format!("There is no skill `{}`.", which.name))?;
    Ok(ToolResult {
        content: vec![Block::text(skill.body())],
        details: json!({"name": skill.name, "sha256": skill.sha256}),
        ..ToolResult::default()
    })
}
