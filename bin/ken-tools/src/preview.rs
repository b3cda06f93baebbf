//! Previews: what a call would do, for the person who decides about it.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use ken_types::fence::{Outside, named};
use ken_types::limits::BLOB_BYTES;
use ken_types::ops::tools::{Approval, Need, Preview, Risk, Whole};
use ken_types::{Error, hex, json};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::admitted::{Admitted, written};
use crate::output::{self, Outputs};
use crate::process;

/// The maximum size of the output of a tool's preview command, in bytes. The diff is a part of it, and has at most
/// [`BLOB_BYTES`] without the escapes of JSON.
const MAX_OUTPUT_BYTES: usize = 24 * 1024 * 1024;
const MAX_DEPTH: usize = 64;
/// The maximum size of a program that is read before a call to see whether it is the one that was approved. A larger one is
/// recognised by its inode, its size and the time of its last change.
const MAX_PROGRAM_BYTES: u64 = 1024 * 1024;
/// The maximum sizes of what a request shows of the diff, of the action and of each other text, in bytes of JSON.
/// Together they fit into a request for approval.
const MAX_DIFF_BYTES: usize = 128 * 1024;
const ACTION_BYTES: usize = 64 * 1024;
const TEXT_BYTES: usize = 2 * 1024;

/// Returns the preview of a call. A call that cannot be previewed is denied, with the reason.
pub(crate) async fn of(call: &Admitted<'_>) -> Preview {
    let made = match &call.entry.preview {
        Some(command) => own_preview(call, command).await,
        None => Ok(default_preview(call)),
    };
    let made =
        made.unwrap_or_else(|reason| Preview { approval: Need::Deny, reason: Some(reason), ..default_preview(call) });
    bounded(completed(call, made))
}

/// Returns the preview that a tool gives when it asks whether it may go on. It has no texts for a person.
pub(crate) fn asked(call: &Admitted<'_>, question: &str) -> Result<Preview, String> {
    read(&call.entry.tool.name, question).map(|preview| completed(call, preview))
}

/// Adds what the tool does not know: the rule of the caller, and what else determines what the call does.
fn completed(call: &Admitted<'_>, preview: Preview) -> Preview {
    let mut preview = with_rule(preview, call.call.ask, &call.call.outside);
    preview.fingerprint = fingerprint(call, &preview.fingerprint);
    preview
}

/// Applies the rule of the caller. What the tool denies stays denied.
fn with_rule(mut preview: Preview, asks: bool, outside: &Outside) -> Preview {
    if asks {
        preview.approval = preview.approval.max(Need::Ask);
    }
    if preview.approval == Need::Ask && !outside.is_empty() {
        preview.reason = Some(with_origins(preview.reason.as_deref().unwrap_or_default(), outside));
    }
    preview
}

/// Returns the reason, and where the agent that makes the call has read what others wrote: the person who decides has to know
/// that the call may be their idea.
fn with_origins(reason: &str, outside: &Outside) -> String {
    let origins = format!("this turn has read text from outside ({})", named(outside));
    match reason {
        "" => origins,
        reason => format!("{reason}; {origins}"),
    }
}

/// Runs the preview command of the tool and returns its preview.
async fn own_preview(call: &Admitted<'_>, command: &[String]) -> Result<Preview, String> {
    let ended = process::run(&call.work(command, false, MAX_OUTPUT_BYTES)).await?;
    let preview = read(&call.entry.tool.name, written(call.entry, &ended, &[0], MAX_OUTPUT_BYTES)?)?;
    Ok(completed_by(preview, default_preview(call)))
}

/// Fills in what the preview of a tool leaves out.
fn completed_by(mut preview: Preview, known: Preview) -> Preview {
    for (text, known) in [
        (&mut preview.action_type, known.action_type),
        (&mut preview.summary, known.summary),
        (&mut preview.target, known.target),
    ] {
        if text.is_empty() {
            *text = known;
        }
    }
    if preview.action.is_null() {
        preview.action = known.action;
    }
    preview
}

/// Reads the preview that the tool `name` gives.
fn read(name: &str, text: &str) -> Result<Preview, String> {
    let wrong = |error: Error| {
        let place = error.at.unwrap_or_default();
        ken_service::redacted(format!("The preview of the tool {name} is not one: {place} {}", error.message))
    };
    let value = json::parse(text.as_bytes(), MAX_DEPTH).map(ken_service::redacted_value).map_err(wrong)?;
    let preview: Preview = json::from_value(value).map_err(wrong)?;
    // Only this part knows what is in the store.
    let preview = Preview { whole: None, ..preview };
    if preview.approval == Need::Ask && hex::decode::<32>(&preview.fingerprint).is_none() {
        return Err(format!("The preview of the tool {name} has no fingerprint."));
    }
    Ok(preview)
}

/// Returns a preview that works for any call: the tool and its arguments.
fn default_preview(call: &Admitted<'_>) -> Preview {
    let tool = &call.entry.tool;
    Preview {
        approval: match tool.approval {
            Approval::None => Need::None,
            Approval::Ask | Approval::Preview => Need::Ask,
        },
        action_type: "tool.call".to_owned(),
        summary: format!("Call the tool {}", tool.name),
        reason: None,
        risk: Risk::Medium,
        target: tool.name.clone(),
        action: json!({"tool": tool.name, "argv": call.entry.command, "arguments": call.call.arguments}),
        diff: None,
        whole: None,
        fingerprint: String::new(),
        trusted: false,
    }
}

/// Returns a hash of everything that determines what the call does: tool, arguments, session, the program, its environment
/// and what it can access, and what the tool's own preview covers (files before and after). Of the program, that is its file as well as
/// its name: who can write to it could otherwise replace it while a person decides. Keys of objects are sorted, so equal arguments have
/// equal hashes.
fn fingerprint(call: &Admitted<'_>, of_preview: &str) -> String {
    let entry = call.entry;
    let value = |name: &String| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned());
    let environment: Vec<_> = entry.env.iter().map(|name| (name, value(name))).collect();
    let files: Vec<_> = entry.command.iter().map(|word| state_of_file(word)).collect();
    let all = json!([
        entry.tool.name, call.call.arguments, call.call.session, entry.command, entry.touch, entry.sandbox,
        entry.secrets, environment, files, entry.server_settings, of_preview,
    ]);
    hex::encode(&Sha256::digest(all.to_string()))
}

/// Returns a text that changes with the file that a word of a command names. Programs without a slash in their name are those of the
/// machine.
fn state_of_file(word: &str) -> Option<String> {
    let path = Path::new(word);
    let about = path.metadata().ok().filter(|about| path.is_absolute() && about.is_file())?;
    // An installed interpreter can be large. Only root can set the time of its last change back.
    let stamp = || format!("{} {} {} {}", about.ino(), about.size(), about.ctime(), about.ctime_nsec());
    if about.size() > MAX_PROGRAM_BYTES {
        return Some(stamp());
    }
    let content = std::fs::read(path).map(|content| hex::encode(&Sha256::digest(content)));
    Some(content.unwrap_or_else(|_| stamp()))
}

/// Denies a call that a person could not be shown in full, and shortens the texts that only describe it. The fingerprint
/// covers the whole texts.
fn bounded(mut preview: Preview) -> Preview {
    for text in [&mut preview.action_type, &mut preview.summary, &mut preview.target] {
        *text = cut(text, TEXT_BYTES);
    }
    preview.reason = preview.reason.map(|reason| cut(&reason, TEXT_BYTES));
    let Some(why) = cannot_be_shown(&preview) else {
        return preview;
    };
    let (action, diff) = (Value::Null, None);
    match preview.approval {
        Need::Ask => Preview { approval: Need::Deny, reason: Some(why), action, diff, ..preview },
        // Nobody is asked, so nobody has to see it.
        Need::None | Need::Deny => Preview { action, diff, ..preview },
    }
}

/// Returns why a person cannot be shown exactly what the call would do; `None` if that is possible.
fn cannot_be_shown(preview: &Preview) -> Option<String> {
    let action = preview.action.to_string().len();
    if action > ACTION_BYTES {
        return Some(format!(
            "What it would do takes {action} bytes to show, and a person can be shown {ACTION_BYTES}. Give long texts in a file."
        ));
    }
    let diff = preview.diff.as_deref().unwrap_or_default().len() as u64;
    (diff > BLOB_BYTES).then(|| {
        format!("The diff has {diff} bytes, and a person can be shown {BLOB_BYTES}. Make the change in several parts.")
    })
}

/// Keeps a diff that is too long for a request in the store, and leaves its beginning in the preview. Without a store,
/// in a shell, the preview keeps all of it.
pub(crate) async fn keep_diff(preview: Preview, outputs: &Outputs) -> Result<Preview, Error> {
    let Some((diff, store)) = preview.diff.as_deref().zip(outputs.0.as_ref()) else {
        return Ok(preview);
    };
    let (shown, is_kept) = shown(diff, preview.approval);
    let whole = if is_kept {
        let kept = output::keep(store, diff.as_bytes()).await?;
        Some(Whole { digest: kept.blob, bytes: kept.bytes })
    } else {
        None
    };
    Ok(Preview { diff: Some(shown.to_owned()), whole, ..preview })
}

/// Returns how much of a diff a request shows, and whether all of it is kept for the person who decides.
fn shown(diff: &str, approval: Need) -> (&str, bool) {
    let shown = beginning(diff, MAX_DIFF_BYTES);
    (shown, shown.len() < diff.len() && approval == Need::Ask)
}

/// Returns the text, or as much of its beginning as takes at most `max` bytes as a JSON string.
fn beginning(text: &str, max: usize) -> &str {
    let takes = |letter: char| match letter {
        '"' | '\\' | '\n' | '\r' | '\t' | '\u{8}' | '\u{c}' => 2,
        '\0'..='\x1f' => 6,
        _ => letter.len_utf8(),
    };
    let mut taken = 2; // the quotes
    let end = text.char_indices().find(|(_, letter)| {
        taken += takes(*letter);
        taken > max
    });
    end.and_then(|(end, _)| text.get(..end)).unwrap_or(text)
}

/// Returns the text, or its beginning followed by a note.
fn cut(text: &str, max: usize) -> String {
    let shown = beginning(text, max);
    if shown.len() == text.len() {
        text.to_owned()
    } else {
        format!("{shown} [cut: {} of {} bytes are shown]", shown.len(), text.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_by_what_it_takes_as_json() {
        assert_eq!(cut("short", 64), "short");
        let long = cut(&"x".repeat(100), 64);
        assert!(long.ends_with(" [cut: 62 of 100 bytes are shown]"), "{long}");
        // Each of these characters takes six bytes as JSON.
        let escaped = cut(&"\u{1}".repeat(40), 64);
        assert!(escaped.ends_with(" [cut: 10 of 40 bytes are shown]"), "{escaped}");
    }

    #[test]
    fn a_rule_asks_for_what_is_free_and_frees_nothing() {
        let origins = Outside::from(["web".to_owned()]);
        for (by_tool, asks, expected) in [
            (Need::None, false, Need::None),
            (Need::None, true, Need::Ask),
            (Need::Ask, false, Need::Ask),
            (Need::Ask, true, Need::Ask),
            (Need::Deny, false, Need::Deny),
            (Need::Deny, true, Need::Deny),
        ] {
            for outside in [&Outside::new(), &origins] {
                let preview = serde_json::from_value(json!({"approval": by_tool, "reason": "why"})).unwrap();
                let preview = with_rule(preview, asks, outside);
                // The person who is asked has to know that the call may be somebody else's idea.
                let is_told = expected == Need::Ask && !outside.is_empty();
                let reason = if is_told { "why; this turn has read text from outside (web)" } else { "why" };
                let wanted = (expected, Some(reason));
                assert_eq!((preview.approval, preview.reason.as_deref()), wanted, "{by_tool:?} {asks} {outside:?}");
            }
        }
    }

    #[test]
    fn a_preview_that_asks_has_a_fingerprint_and_names_no_blob() {
        let mark = "ab".repeat(32);
        for (approval, fingerprint, is_one) in [
            ("ask", &*mark, true),
            ("ask", &mark[1..], false),
            ("ask", "", false),
            ("ask", &mark.to_uppercase(), false),
            ("none", "", true),
            ("deny", "", true),
        ] {
            let whole = json!({"digest": mark, "bytes": 1});
            let text = json!({"approval": approval, "fingerprint": fingerprint, "whole": whole}).to_string();
            let preview = read("x", &text);
            assert_eq!(preview.is_ok(), is_one, "{approval} {fingerprint}");
            assert!(preview.is_ok_and(|preview| preview.whole.is_none()) || !is_one);
        }
    }

    #[test]
    fn what_a_preview_leaves_out_is_filled_in() {
        let known = json!({"approval": "ask", "actionType": "tool.call", "summary": "Call x", "target": "x", "action": {"a": 1}});
        let read = |value: &Value| serde_json::from_value::<Preview>(value.clone()).unwrap();
        for name in ["actionType", "summary", "target", "action"] {
            let mut own = json!({"approval": "none"});
            own[name] = json!("own");
            let filled = serde_json::to_value(completed_by(read(&own), read(&known))).unwrap();
            for other in ["actionType", "summary", "target", "action"] {
                assert_eq!(filled[other], if other == name { json!("own") } else { known[other].clone() }, "{name}");
            }
            assert_eq!(filled["approval"], "none");
        }
    }

    /// Each line break takes two bytes as JSON, and the quotes take two more.
    #[test]
    fn a_long_diff_is_kept_whole_where_somebody_is_asked() {
        let fitting = "\n".repeat(MAX_DIFF_BYTES / 2 - 1);
        for (diff, is_long) in [(fitting.clone(), false), (fitting.clone() + "\n", true), (String::new(), false)] {
            for (approval, asks) in [(Need::Ask, true), (Need::None, false), (Need::Deny, false)] {
                assert_eq!(shown(&diff, approval), (if is_long { &*fitting } else { &*diff }, is_long && asks));
            }
        }
    }

    #[test]
    fn what_a_person_cannot_be_shown_is_denied() {
        let of = |action: usize, diff: usize| {
            let action = "x".repeat(action - "\"\"".len());
            let preview = json!({"approval": "ask", "action": action, "diff": "x".repeat(diff)});
            bounded(serde_json::from_value(preview).unwrap()).approval
        };
        let diff = BLOB_BYTES as usize;
        assert_eq!(of(ACTION_BYTES, diff), Need::Ask);
        assert_eq!(of(ACTION_BYTES + 1, diff), Need::Deny);
        assert_eq!(of(ACTION_BYTES, diff + 1), Need::Deny);
    }
}
