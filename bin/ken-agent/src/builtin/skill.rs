//! The tool that reads a skill, so that its text is loaded only when it is used.

use ken_skills::Skill;
use ken_types::event::{Block, ToolResult};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Builtin, Parts, arguments, reader};

/// The maximum size of a file that a model is shown, in bytes.
const MAX_SHOWN_BYTES: u64 = 64 * 1024;

pub(super) fn tools() -> Vec<Builtin> {
    vec![reader(
        "skill",
        "Read one of the skills that are listed above: how a certain kind of work is done. Read it before that work.",
        json!({
            "name": {"type": "string", "minLength": 1, "maxLength": 64},
            "file": {"type": "string", "minLength": 1, "description": "One of the skill's other files, instead of its text."},
        }),
        &["name"],
        |parts, _, given| Box::pin(std::future::ready(read(&parts, given))),
    )]
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SkillArgs {
    name: String,
    file: Option<String>,
}

fn read(parts: &Parts, given: Value) -> Result<ToolResult, String> {
    let which: SkillArgs = arguments(given)?;
    let skill = parts.skills.find(&which.name);
    let skill = skill.ok_or_else(|| format!("There is no skill `{}`.", which.name))?;
    let text = match &which.file {
        Some(path) => file_text(&skill, path)?,
        None => format!("{}{}", skill.body(), other_files(&skill)),
    };
    Ok(ToolResult {
        content: vec![Block::text(text)],
        details: json!({"name": skill.name, "sha256": skill.sha256, "file": which.file}),
        ..ToolResult::default()
    })
}

fn other_files(skill: &Skill) -> String {
    if skill.files.is_empty() {
        return String::new();
    }
    let lines: String = skill.files.iter().map(|file| format!("\n- {} ({} bytes)", file.path, file.bytes)).collect();
    format!("\n\nThe skill has these files, which this tool reads too:{lines}")
}

fn file_text(skill: &Skill, path: &str) -> Result<String, String> {
    let found = skill.files.iter().find(|file| file.path == path);
    if let Some(file) = found.filter(|file| file.bytes > MAX_SHOWN_BYTES) {
        return Err(format!("{path} has {} bytes; files of at most {MAX_SHOWN_BYTES} bytes can be read.", file.bytes));
    }
    let content = skill.open(path).map_err(|error| format!("{}.{}", error.message, other_files(skill)))?;
    String::from_utf8(content).map_err(|_| format!("{path} is not text."))
}
