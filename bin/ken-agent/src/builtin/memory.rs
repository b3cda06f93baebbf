//! Memory tool: past turns of the same actor.

use ken_claims::patiently;
use ken_types::event::ToolResult;
use ken_types::ops::store::MemorySearch;
use serde_json::{Value, json};

use super::knowledge::Asked;
use super::{Builtin, EVERYONE, Parts, arguments, refused, result, spec};
use crate::passage::passage;
use crate::seams::Caller;

pub(super) fn tools() -> Vec<Builtin> {
    vec![Builtin {
        spec: spec(
            "memory_search",
            "Search past conversations with the same person. Gives questions with their answers, best first.",
            json!({
                "type": "object",
                "properties": {
                    "query": {"type": "string", "minLength": 1, "description": "The words to look for"},
                    "limit": {"type": "integer", "minimum": 1, "maximum": 10},
                },
                "required": ["query"],
                "additionalProperties": false,
            }),
        ),
        agents: EVERYONE,
        idempotent: true,
        run: |parts, caller, given| Box::pin(search(parts, caller, given)),
    }]
}

async fn search(parts: Parts, caller: Caller, given: Value) -> Result<ToolResult, String> {
    let asked: Asked = arguments(given)?;
    if caller.claim.scope.is_none() {
        return Err("This conversation belongs to no person, so there is nothing to remember.".to_owned());
    }
    let found = patiently::<MemorySearch>(&parts.store, &asked.search(&caller)).await;
    let found = found.map_err(|error| refused(&error))?.found;
    let turns = found.iter().map(|found| {
        let turn = &found.entry;
        json!({
            "id": turn.id,
            "at": turn.at,
            "prompt": passage(&turn.prompt, &asked.query),
            "answer": passage(&turn.answer, &asked.query),
            "score": found.score,
        })
    });
    Ok(result(json!({ "turns": turns.collect::<Vec<_>>() })))
}
