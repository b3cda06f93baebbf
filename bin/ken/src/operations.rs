//! `ken call PART --list`: prints the operations of a part with their arguments, as `lib/types` declares and documents
//! them.
//!
//! The declarations are compiled in as text and parsed here. They have a regular form and are the only place that
//! describes the arguments, so the list cannot differ from what the part accepts.

use std::fmt::Write;

/// The source files that declare the operations of all parts.
const SOURCES: &[&str] = &[
    include_str!("../../../lib/types/src/ops/agent.rs"),
    include_str!("../../../lib/types/src/ops/approvals.rs"),
    include_str!("../../../lib/types/src/ops/blobs.rs"),
    include_str!("../../../lib/types/src/ops/budget.rs"),
    include_str!("../../../lib/types/src/ops/cognitive.rs"),
    include_str!("../../../lib/types/src/ops/documents.rs"),
    include_str!("../../../lib/types/src/ops/gateway.rs"),
    include_str!("../../../lib/types/src/ops/hosts.rs"),
    include_str!("../../../lib/types/src/ops/ids.rs"),
    include_str!("../../../lib/types/src/ops/kend.rs"),
    include_str!("../../../lib/types/src/ops/messenger.rs"),
    include_str!("../../../lib/types/src/ops/model.rs"),
    include_str!("../../../lib/types/src/ops/outbox.rs"),
    include_str!("../../../lib/types/src/ops/rules.rs"),
    include_str!("../../../lib/types/src/ops/runs.rs"),
    include_str!("../../../lib/types/src/ops/schedules.rs"),
    include_str!("../../../lib/types/src/ops/service.rs"),
    include_str!("../../../lib/types/src/ops/store.rs"),
    include_str!("../../../lib/types/src/ops/streams.rs"),
    include_str!("../../../lib/types/src/ops/telemetry.rs"),
    include_str!("../../../lib/types/src/ops/texts.rs"),
    include_str!("../../../lib/types/src/ops/tools.rs"),
];

/// Returns the description of an operation as lines: its name, its arguments and what they mean.
pub(crate) fn describe(op: &str) -> String {
    let mut text = format!("{op}\n");
    let Some((doc, arguments)) = SOURCES.iter().find_map(|source| declaration(source, op)) else {
        return text;
    };
    for line in doc {
        _ = writeln!(text, "    {line}");
    }
    for Field { name, kind, needed, doc } in fields(&arguments) {
        let optional = if needed { "" } else { "?" };
        _ = writeln!(text, "    {name}{optional}={kind}  {}", doc.join(" "));
    }
    text
}

/// Finds the declaration of an operation: `Name, "noun.verb": Args => Reply;`. Returns its doc comment and the type of
/// its arguments.
fn declaration<'a>(source: &'a str, op: &str) -> Option<(Vec<&'a str>, String)> {
    let key = format!("\"{op}\":");
    let mut doc = Vec::new();
    for line in source.lines().map(str::trim) {
        if let Some(comment) = line.strip_prefix("///") {
            doc.push(comment.trim());
        } else if let Some((_, rest)) = line.split_once(&key) {
            let arguments = rest.split("=>").next()?.trim();
            return Some((doc, arguments.to_owned()));
        } else {
            doc.clear();
        }
    }
    None
}

struct Field {
    name: String,
    kind: String,
    /// Whether a call without this field is refused.
    needed: bool,
    doc: Vec<String>,
}

/// Returns the fields of a struct, or none if no struct has this name.
fn fields(name: &str) -> Vec<Field> {
    let start = format!("pub struct {name} {{");
    let Some((before, rest)) = SOURCES.iter().find_map(|source| source.split_once(&start)) else {
        return Vec::new();
    };
    let attributes = before.rsplit("\n\n").next().unwrap_or_default();
    let is_camel = attributes.contains("rename_all = \"camelCase\"");
    let body = rest.split("\n}").next().unwrap_or_default();
    let mut found = Vec::new();
    let (mut doc, mut attributes) = (Vec::new(), String::new());
    for line in body.lines().map(str::trim) {
        if let Some(comment) = line.strip_prefix("///") {
            doc.push(comment.trim().to_owned());
        } else if line.starts_with("#[") {
            attributes += line;
        } else if let Some((name, kind)) = line.strip_prefix("pub ").and_then(|line| line.split_once(": ")) {
            let kind = kind.trim_end_matches(',');
            let inner = inner_type(kind, "Option<");
            found.push(Field {
                name: if is_camel { camel(name) } else { name.to_owned() },
                kind: placeholder(inner.unwrap_or(kind)),
                needed: inner.is_none() && !attributes.contains("default"),
                doc: std::mem::take(&mut doc),
            });
            attributes.clear();
        }
    }
    found
}

/// Returns `T` of `Option<T>` when `start` is `Option<`.
fn inner_type<'a>(kind: &'a str, start: &str) -> Option<&'a str> {
    kind.strip_prefix(start)?.strip_suffix('>')
}

/// Returns a placeholder for a value of this type, as it is shown to a caller: `NUMBER`, `[TEXT]`.
fn placeholder(kind: &str) -> String {
    if let Some(inner) = inner_type(kind, "Vec<") {
        return format!("[{}]", placeholder(inner));
    }
    match kind {
        "u16" | "u32" | "u64" | "i32" | "i64" | "usize" => "NUMBER".to_owned(),
        "bool" => "true|false".to_owned(),
        "String" => "TEXT".to_owned(),
        "Value" | "Box<RawValue>" => "JSON".to_owned(),
        "Timestamp" => "TIME".to_owned(),
        kind => {
            let inner = fields(kind);
            if inner.is_empty() {
                return kind.to_uppercase();
            }
            let names = inner.iter().map(|field| {
                let optional = if field.needed { "" } else { "?" };
                format!("{}{optional}", field.name)
            });
            format!("{{{}}}", names.collect::<Vec<_>>().join(","))
        }
    }
}

fn camel(name: &str) -> String {
    let mut words = name.split('_');
    let mut camel = words.next().unwrap_or_default().to_owned();
    for word in words {
        let (first, rest) = word.split_at(word.len().min(1));
        camel += &first.to_uppercase();
        camel += rest;
    }
    camel
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_those_of_the_declaration() {
        let text = describe("sessions.list");
        for part in [
            "sessions.list\n",
            "limit?=NUMBER",
            "archived?=true|false",
            "scope?={connector,actorId,conversationId,threadId?}",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(describe("knowledge.get").contains("\n    id=TEXT"), "{}", describe("knowledge.get"));
        assert!(describe("parts.stop").contains("\n    name=TEXT"));
        assert_eq!(describe("no.such"), "no.such\n");
    }

    /// An operation whose declaration is missing or not understood would be listed without arguments.
    #[test]
    fn every_operation_is_understood() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../lib/types/src/ops");
        for file in std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()) {
            let text = std::fs::read_to_string(&file).unwrap();
            assert!(!text.contains("crate::operations! {") || SOURCES.contains(&text.as_str()), "{}", file.display());
        }
        let mut seen = 0;
        for line in SOURCES
            .iter()
            .flat_map(|source| source.lines())
            .filter(|line| line.contains("\": ") && line.contains(" => "))
        {
            let op = line.split('"').nth(1).unwrap();
            let (_, arguments) = SOURCES.iter().find_map(|source| declaration(source, op)).unwrap();
            assert!(arguments == "Nothing" || !fields(&arguments).is_empty(), "{op}: {arguments}");
            seen += 1;
        }
        assert!(seen > 40, "{seen}");
    }
}
