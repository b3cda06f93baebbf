//! Checklists and notes that an agent writes while it works. They belong to the conversation, are kept when its history
//! is compacted, and are available to every agent that works for it.

use ken_types::event::ToolResult;
use ken_types::fence::Outside;
use ken_types::ops::store::{ListNotes, Note, NoteKind, NotesList, NotesPut, PutNote};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{Builtin, Parts, fenced, result, store, tool};
use crate::ports::Caller;

/// The name of the checklist if a call gives none.
const LIST: &str = "todo";
/// The maximum number of items of a checklist.
const MAX_ITEMS: usize = 200;

pub(super) fn tools() -> Vec<Builtin> {
    let item = json!({
        "type": "object",
        "properties": {"text": {"type": "string", "minLength": 1}, "status": {"enum": ["open", "doing", "done"]}},
        "required": ["text"],
        "additionalProperties": false,
    });
    let name = json!({"type": "string", "minLength": 1, "maxLength": 120});
    vec![
        tool(
            "todo_write",
            "Write a checklist of this conversation, in place of the one of the same name; without items it is deleted. Use it \
             for work of several steps, and mark each step when it is done.",
            json!({"list": name, "items": {"type": "array", "items": item, "maxItems": MAX_ITEMS}}),
            &["items"],
            write_list,
        ),
        tool("todo_read", "Read the checklists of this conversation.", json!({"list": name}), &[], read_lists)
            .reading(),
        tool(
            "note_write",
            "Write a note of this conversation, in place of the one of the same name; an empty text deletes it.",
            json!({"name": name, "text": {"type": "string"}}),
            &["name", "text"],
            write_note,
        ),
        tool("note_read", "Read the notes of this conversation.", json!({"name": name}), &[], read_notes).reading(),
    ]
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Item {
    text: String,
    #[serde(default)]
    status: Status,
}

#[derive(Default, Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Status {
    #[default]
    Open,
    Doing,
    Done,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Checklist {
    list: Option<String>,
    items: Vec<Item>,
}

async fn write_list(parts: Parts, caller: Caller, checklist: Checklist) -> Result<ToolResult, String> {
    if checklist.items.len() > MAX_ITEMS {
        return Err(format!("A checklist has at most {MAX_ITEMS} items."));
    }
    let body = if checklist.items.is_empty() {
        String::new()
    } else {
        serde_json::to_string(&checklist.items).map_err(|error| error.to_string())?
    };
    let name = checklist.list.unwrap_or_else(|| LIST.to_owned());
    put(&parts, &caller, NoteKind::Checklist, &name, body).await?;
    let open = checklist.items.iter().filter(|item| !matches!(item.status, Status::Done)).count();
    Ok(result(json!({"list": name, "items": checklist.items.len(), "open": open})))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ListArgs {
    list: Option<String>,
}

async fn read_lists(parts: Parts, caller: Caller, which: ListArgs) -> Result<ToolResult, String> {
    let lists = list(&parts, &caller, NoteKind::Checklist, which.list.as_deref()).await?;
    let shown = lists.iter().map(|list| {
        let items: Value = serde_json::from_str(&list.body).unwrap_or_default();
        json!({"list": list.name, "items": items, "updatedAt": list.updated_at})
    });
    let shown = json!({ "lists": shown.collect::<Vec<_>>() });
    Ok(fenced(&caller, "checklists that agents have written in this conversation", shown, outside(&lists)))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NoteArgs {
    name: String,
    text: String,
}

async fn write_note(parts: Parts, caller: Caller, note: NoteArgs) -> Result<ToolResult, String> {
    put(&parts, &caller, NoteKind::Note, &note.name, note.text).await?;
    Ok(result(json!({ "name": note.name })))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NoteName {
    name: Option<String>,
}

async fn read_notes(parts: Parts, caller: Caller, which: NoteName) -> Result<ToolResult, String> {
    let notes = list(&parts, &caller, NoteKind::Note, which.name.as_deref()).await?;
    let shown = notes.iter().map(|note| json!({"name": note.name, "text": note.body, "updatedAt": note.updated_at}));
    let shown = json!({ "notes": shown.collect::<Vec<_>>() });
    Ok(fenced(&caller, "notes that agents have written in this conversation", shown, outside(&notes)))
}

/// Returns the origins of outside text that the turns had read that wrote the notes.
fn outside(notes: &[Note]) -> Outside {
    notes.iter().flat_map(|note| note.outside.iter().cloned()).collect()
}

async fn put(parts: &Parts, caller: &Caller, kind: NoteKind, name: &str, body: String) -> Result<(), String> {
    let note = PutNote {
        instance: caller.claim.instance.clone(),
        kind,
        name: name.to_owned(),
        body,
        turn: Some(caller.claim.lease.submission_id.clone()),
    };
    store::<NotesPut>(parts, &note).await.map(drop)
}

/// Lists the notes of a kind, or only the one with this name.
async fn list(parts: &Parts, caller: &Caller, kind: NoteKind, name: Option<&str>) -> Result<Vec<Note>, String> {
    let which = ListNotes { instance: caller.claim.instance.clone(), kind };
    let mut notes = store::<NotesList>(parts, &which).await?.notes;
    if let Some(name) = name {
        notes.retain(|note| note.name == name);
        if notes.is_empty() {
            return Err(format!("There is no {} {name}.", kind.name()));
        }
    }
    Ok(notes)
}
