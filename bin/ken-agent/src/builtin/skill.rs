//! The tool that reads a skill, so that its text is loaded only when it is used.

use ken_types::Code;
use ken_types::event::{Block, ToolResult};
use ken_types::ops::texts::SkillInForce;
use serde::Deserialize;
use serde_json::json;

use super::{Builtin, Parts, tool};
use crate::ports::Caller;

pub(super) fn tools() -> Vec<Builtin> {
    let skill = tool(
        "skill",
        "Read one of the skills that are listed above: how a certain kind of work is done. Read it before that work.",
        json!({
            "name": {"type": "string", "minLength": 1, "maxLength": 64},
            "file": {"type": "string", "minLength": 1, "description": "One of the skill's other files, instead of its text."},
        }),
        &["name"],
        read,
    );
    vec![skill.reading()]
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SkillArgs {
    name: String,
    file: Option<String>,
}

async fn read(parts: Parts, _: Caller, which: SkillArgs) -> Result<ToolResult, String> {
    let skill = parts.skills.read_skill(&which.name, None).await.map_err(|error| match error.code {
        Code::NotFound => format!("There is no skill `{}`.", which.name),
        _ => error.message,
    })?;
    let text = match &which.file {
        Some(path) => {
            let read = parts.skills.read_skill(&which.name, Some(path)).await;
            read.map_err(|error| format!("{}.{}", error.message, other_files(&skill)))?.text
        }
        None => format!("{}{}", skill.text, other_files(&skill)),
    };
    Ok(ToolResult {
        content: vec![Block::text(text)],
        details: json!({"name": skill.name, "sha256": skill.sha256, "file": which.file}),
        ..ToolResult::default()
    })
}

fn other_files(skill: &SkillInForce) -> String {
    if skill.files.is_empty() {
        return String::new();
    }
    let lines: String = skill.files.iter().map(|file| format!("\n- {} ({} bytes)", file.path, file.bytes)).collect();
    format!("\n\nThe skill has these files, which this tool reads too:{lines}")
}
