//! Skills of ken as prompts.

use ken_types::Code;
use ken_types::ops::Nothing;
use ken_types::ops::agent::{AgentSkill, AgentSkills, NamedSkill};
use serde_json::{Value, json};

use super::message::{Call, INVALID_PARAMS, RpcError};
use crate::app::Gateway;

/// Returns the result of `prompts/list`.
pub(super) async fn list(gateway: &Gateway) -> Result<Value, RpcError> {
    let known = gateway.agent.call::<AgentSkills>(&Nothing {}).await?;
    let prompts = known.skills.iter().map(|skill| {
        let task = json!({"name": "task", "description": "What to do by this skill", "required": false});
        json!({"name": skill.name, "description": skill.description, "arguments": [task]})
    });
    Ok(json!({"prompts": prompts.collect::<Vec<_>>()}))
}

/// Returns the result of `prompts/get`.
pub(super) async fn get(gateway: &Gateway, call: &Call) -> Result<Value, RpcError> {
    let Some(name) = call.params.get("name").and_then(Value::as_str) else {
        return Err(RpcError::new(INVALID_PARAMS, "params has no name, a string"));
    };
    let args = NamedSkill { name: name.to_owned() };
    let skill = gateway.agent.call::<AgentSkill>(&args).await.map_err(|error| match error.code {
        Code::NotFound => error.hint("prompts/list names them"),
        _ => error,
    })?;
    let task = call.params.get("arguments").and_then(|given| given.get("task")?.as_str()).unwrap_or_default();
    let text = if task.is_empty() { skill.text } else { format!("{}\n\n{task}", skill.text) };
    let message = json!({"role": "user", "content": {"type": "text", "text": text}});
    Ok(json!({"description": skill.description, "messages": [message]}))
}
