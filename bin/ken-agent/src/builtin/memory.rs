//! The memory tool: searches past turns of the same actor.

use ken_types::event::ToolResult;
use ken_types::ops::store::{MemorySearch, Search};
use serde_json::json;

use super::knowledge::{SearchArgs, search_properties};
use super::{Builtin, Parts, fenced, store, tool};
use crate::passage::passage;
use crate::ports::Caller;

pub(super) fn tools() -> Vec<Builtin> {
    let about = "Search past conversations with the same person. Gives questions with their answers, best first.";
    vec![tool("memory_search", about, search_properties(), &["query"], search).reading()]
}

async fn search(parts: Parts, caller: Caller, args: SearchArgs) -> Result<ToolResult, String> {
    let Some(scope) = &caller.claim.scope else {
        return Err("This conversation belongs to no person, so there is nothing to remember.".to_owned());
    };
    let scope = Some(scope.of_memory(&caller.claim.instance));
    let search = Search { scope, ..args.search(&caller) };
    let found = store::<MemorySearch>(&parts, &search).await?.found;
    let turns = found.iter().map(|found| {
        let turn = &found.entry;
        json!({
            "id": turn.id,
            "at": turn.at,
            "prompt": passage(&turn.prompt, &args.query),
            "answer": passage(&turn.answer, &args.query),
            "score": found.score,
        })
    });
    let shown = json!({ "turns": turns.collect::<Vec<_>>() });
    let outside = found.iter().flat_map(|found| found.entry.outside.iter().cloned()).collect();
    Ok(fenced(&caller, "what the search of past conversations has found", shown, outside))
}
