//! The action of a request, part by part. Digests and the numbers of permission bits are left out: they mean nothing to
//! a person, and the JSON of the request has them.

use ken_text::{visible, visible_line};
use serde_json::{Map, Value};

/// The parts that a person needs first, each with the name under which it is shown. All others follow under their own
/// names.
const NAMES: [(&str, &str); 11] = [
    ("tool", "tool"),
    ("git", "git"),
    ("argv", "command"),
    ("arguments", "arguments"),
    ("cwd", "folder"),
    ("stdin", "input"),
    ("network", "network"),
    ("canChange", "may change"),
    ("changedUnseen", "changed by the agent and seen by nobody"),
    ("compared", "must stay unchanged until it runs"),
    ("timeoutSeconds", "time limit"),
];
/// Numbers that only repeat what the diff shows.
const LEFT_OUT: [&str; 2] = ["count", "diffBytes"];
/// A longer JSON value is shown on several lines.
const LINE_CHARACTERS: usize = 100;

/// A part of an action.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    pub name: String,
    /// The whole value, possibly on several lines.
    pub text: String,
}

impl Part {
    /// Returns its lines: one if the value has one line, else the name and below it the value, indented.
    pub fn lines(&self) -> Vec<String> {
        let Part { name, text } = self;
        if !text.contains('\n') {
            vec![format!("{name}: {text}")]
        } else {
            std::iter::once(format!("{name}:")).chain(text.split('\n').map(|line| format!("  {line}"))).collect()
        }
    }
}

/// Returns the parts of an action, the most important first.
pub(crate) fn parts(action: &Value) -> Vec<Part> {
    let Value::Object(fields) = action else {
        let text = shown(action);
        return Vec::from_iter((!text.is_empty()).then(|| Part { name: "action".to_owned(), text }));
    };
    let first = NAMES.iter().filter_map(|(field, name)| Some((*name, *field, fields.get(*field)?)));
    let is_first = |field: &str| NAMES.iter().any(|(name, _)| *name == field);
    let others = fields.iter().filter(|(field, _)| !is_first(field) && !LEFT_OUT.contains(&field.as_str()));
    let all = first.chain(others.map(|(field, value)| (field.as_str(), field.as_str(), value)));
    all.filter_map(|(name, field, value)| part(name, field, value)).collect()
}

fn part(name: &str, field: &str, value: &Value) -> Option<Part> {
    let mut name = visible_line(name);
    let text = match (field, value) {
        (_, Value::Null) => return None,
        ("argv", Value::Array(words)) => visible(&command_line(words)).into_owned(),
        ("arguments", value) => visible(&json(value)).into_owned(),
        ("stdin", Value::String(input)) => {
            name = format!("{name} ({} bytes)", input.len());
            visible(input.strip_suffix('\n').unwrap_or(input)).into_owned()
        }
        ("network", Value::Bool(false)) => "none".to_owned(),
        ("timeoutSeconds", Value::Number(seconds)) => format!("{} s", seconds.to_string().trim_end_matches(".0")),
        ("canChange", Value::Array(folders)) if folders.is_empty() => "nothing".to_owned(),
        (_, Value::Array(items)) if items.is_empty() => return None,
        ("files", Value::Array(files)) => files.iter().map(file).collect::<Vec<_>>().join("\n"),
        (_, value) => shown(&without_digests(value)?),
    };
    Some(Part { name, text })
}

/// Returns a value as text: a string as it is, a list of strings line by line, anything else as JSON.
fn shown(value: &Value) -> String {
    let text = match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Array(items) if items.iter().all(Value::is_string) => {
            items.iter().filter_map(Value::as_str).collect::<Vec<_>>().join("\n")
        }
        value => json(value),
    };
    visible(&text).into_owned()
}

fn json(value: &Value) -> String {
    let line = value.to_string();
    if line.chars().count() > LINE_CHARACTERS { format!("{value:#}") } else { line }
}

/// Returns a command line as a person would type it into a shell. A word that a shell would change is quoted.
fn command_line(words: &[Value]) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_@%+=:,./-".contains(c);
    let quoted = |word: &Value| match word.as_str() {
        Some(word) if !word.is_empty() && word.chars().all(plain) => word.to_owned(),
        Some(word) => format!("'{}'", word.replace('\'', r"'\''")),
        None => word.to_string(),
    };
    words.iter().map(quoted).collect::<Vec<_>>().join(" ")
}

/// Returns the path of a changed file and what happens to it.
fn file(file: &Value) -> String {
    let Some(path) = file.get("path").and_then(Value::as_str) else {
        return shown(file);
    };
    let side = |name: &str| file.get(name).filter(|version| !version.is_null());
    let is_program =
        |version: &Value| version.get("mode").and_then(Value::as_u64).is_some_and(|mode| mode & 0o111 != 0);
    let is_link = |version: &Value| version.get("link") == Some(&Value::Bool(true));
    let what = match (side("before"), side("after")) {
        (None, Some(after)) if is_link(after) => "new, a symbolic link",
        (None, Some(after)) if is_program(after) => "new, executable",
        (None, Some(_)) => "new",
        (Some(_), None) => "removed",
        (Some(before), Some(after)) if is_program(after) && !is_program(before) => "changed, becomes executable",
        _ => "changed",
    };
    format!("{} ({what})", visible_line(path))
}

/// Returns a value without digests and permission bits; `None` if nothing else is in it.
fn without_digests(value: &Value) -> Option<Value> {
    match value {
        Value::String(text) if is_digest(text) => None,
        Value::Object(fields) => {
            let kept = fields.iter().filter(|(name, value)| *name != "mode" || !value.is_number());
            let kept: Map<String, Value> =
                kept.filter_map(|(name, value)| Some((name.clone(), without_digests(value)?))).collect();
            (!kept.is_empty()).then_some(Value::Object(kept))
        }
        Value::Array(items) => {
            let kept: Vec<Value> = items.iter().filter_map(without_digests).collect();
            (!kept.is_empty() || items.is_empty()).then_some(Value::Array(kept))
        }
        other => Some(other.clone()),
    }
}

/// Whether a text is a digest by SHA-1 or SHA-256 in hexadecimal.
fn is_digest(text: &str) -> bool {
    matches!(text.len(), 40 | 64) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn lines(action: Value) -> Vec<String> {
        parts(&action).iter().flat_map(Part::lines).collect()
    }

    #[test]
    fn a_command_is_shown_with_everything_that_it_gets() {
        let shown =
            lines(json!({"argv": ["sh", "-c", "rm -rf 'x'"], "cwd": "repos/a", "canChange": [], "network": false,
            "stdin": "PWNED\n\u{200b}", "timeoutSeconds": 120.0, "changedUnseen": [], "compared": ["a/x.sh"]}));
        let wanted = [
            r"command: sh -c 'rm -rf '\''x'\'''",
            "folder: repos/a",
            "input (9 bytes):",
            "  PWNED",
            "  <U+200B>",
            "network: none",
            "may change: nothing",
            "must stay unchanged until it runs: a/x.sh",
            "time limit: 120 s",
        ];
        assert_eq!(shown, wanted);
    }

    #[test]
    fn an_unknown_part_is_shown_and_a_digest_is_not() {
        let sha = "b".repeat(40);
        let shown =
            lines(json!({"git": "commit", "tree": sha, "message": "One\n\nTwo", "odd": {"digest": sha, "x": 1},
            "reads": [{"path": "Makefile", "digest": sha}], "diffBytes": 7, "argv": [sha], "stdin": null}));
        let command = format!("command: {sha}");
        let wanted = [
            "git: commit",
            &command,
            "message:",
            "  One",
            "  ",
            "  Two",
            "odd: {\"x\":1}",
            "reads: [{\"path\":\"Makefile\"}]",
        ];
        assert_eq!(shown, wanted);
    }

    #[test]
    fn files_are_named_with_what_happens_to_them() {
        let version = |mode: u32| json!({"digest": "c".repeat(64), "mode": mode});
        let shown = lines(json!({"count": 3, "files": [
            {"path": "a", "before": null, "after": version(0o644)}, {"path": "b", "before": version(0o644), "after": null},
            {"path": "c", "before": version(0o644), "after": version(0o755)},
            {"path": "d", "before": version(0o755), "after": version(0o755)}]}));
        let files = ["files:", "  a (new)", "  b (removed)", "  c (changed, becomes executable)", "  d (changed)"];
        assert_eq!(shown, files);
    }

    /// A text is left out only if it is exactly a digest: no command and no message can be one by its length alone.
    #[test]
    fn only_a_digest_is_left_out() {
        let digit = |count: usize| "b".repeat(count);
        for (text, left_out) in [
            (digit(40), true),
            (digit(64), true),
            (digit(39), false),
            (digit(41), false),
            (digit(63) + "g", false),
            ("-".repeat(40), false),
        ] {
            assert_eq!(lines(json!({"message": text})).is_empty(), left_out, "{text}");
        }
        // Numbers of bits go with the digest, and a mode that is a word stays.
        let odd = json!({"odd": {"mode": 33188, "x": [digit(40), []]}, "even": {"mode": "fast"}, "gone": [digit(40)]});
        assert_eq!(lines(odd), ["even: {\"mode\":\"fast\"}", "odd: {\"x\":[[]]}"]);
        assert_eq!(lines(json!({"argv": ["echo", ""]})), ["command: echo ''"]);
        assert_eq!(lines(json!({"canChange": ["repos/a"], "odd": {"digest": digit(40)}})), ["may change: repos/a"]);
    }

    /// Beyond this length, a person reads a value line by line.
    #[test]
    fn a_long_value_has_several_lines() {
        let value = |length: usize| json!({"x": "y".repeat(length - json!({"x": ""}).to_string().chars().count())});
        for (length, count) in [(LINE_CHARACTERS, 1), (LINE_CHARACTERS + 1, 4)] {
            assert_eq!(lines(json!({"odd": value(length)})).len(), count, "{length}");
        }
    }

    #[test]
    fn the_arguments_of_a_tool_are_shown_as_they_are() {
        let shown = lines(json!({"tool": "gated", "argv": ["sh"], "arguments": {"word": "first", "mode": 1}}));
        assert_eq!(shown, ["tool: gated", "command: sh", r#"arguments: {"mode":1,"word":"first"}"#]);
        assert_eq!(lines(json!("{\"cut…")), ["action: {\"cut…"]);
        assert!(lines(Value::Null).is_empty());
    }
}
