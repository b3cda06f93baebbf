//! Previews: what a call would do, for the person who decides about it.

use ken_types::hex;
use ken_types::json;
use ken_types::ops::tools::{Approval, Need, Preview, Risk};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::admitted::{Admitted, written};

/// The maximum size of the output of a tool's preview command, in bytes.
const MAX_OUTPUT: usize = 3 * 1024 * 1024;
const MAX_DEPTH: usize = 64;
/// The maximum sizes of the diff, the action and each other text that is shown, in bytes of JSON. Together they fit
/// into a request for approval.
const DIFF_BYTES: usize = 128 * 1024;
const ACTION_BYTES: usize = 64 * 1024;
const TEXT_BYTES: usize = 2 * 1024;

/// Returns the preview of a call. A call that cannot be previewed is denied, with the reason.
pub(crate) async fn of(call: &Admitted<'_>) -> Preview {
    let made = match &call.entry.preview {
        Some(command) => own_preview(call, command).await,
        None => Ok(default_preview(call)),
    };
    let mut preview =
        made.unwrap_or_else(|reason| Preview { approval: Need::Deny, reason: Some(reason), ..default_preview(call) });
    if call.call.ask && preview.approval == Need::None {
        preview.approval = Need::Ask;
    }
    preview.fingerprint = fingerprint(call, &preview.fingerprint);
    bounded(preview)
}

/// Runs the preview command of the tool and returns its preview.
async fn own_preview(call: &Admitted<'_>, command: &[String]) -> Result<Preview, String> {
    let name = &call.entry.tool.spec.name;
    let ended = call.process(command, false, MAX_OUTPUT).await?;
    let text = written(call.entry, &ended, &[0], MAX_OUTPUT)?;
    let wrong = |error: ken_types::Error| {
        let place = error.at.unwrap_or_default();
        ken_service::redacted(format!("The preview of the tool {name} is not one: {place} {}", error.message))
    };
    let value = json::parse(text.as_bytes(), MAX_DEPTH).map(ken_service::redacted_value).map_err(wrong)?;
    let mut preview: Preview = json::from_value(value).map_err(wrong)?;
    if preview.approval == Need::Ask && hex::decode::<32>(&preview.fingerprint).is_none() {
        return Err(format!("The preview of the tool {name} has no fingerprint."));
    }
    let known = default_preview(call);
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
        summary: format!("Call the tool {}", tool.spec.name),
        reason: None,
        risk: Risk::Medium,
        target: tool.spec.name.clone(),
        action: json!({"tool": tool.spec.name, "argv": call.entry.command, "arguments": call.call.arguments}),
        diff: None,
        fingerprint: String::new(),
    }
}

/// Returns a hash of everything that determines what the call does: tool, arguments, session, the program and what it
/// can access, and what the tool's own preview covers (files before and after). Keys of objects are sorted, so equal
/// arguments have equal hashes.
fn fingerprint(call: &Admitted<'_>, of_preview: &str) -> String {
    let entry = call.entry;
    let all = json!([
        entry.tool.spec.name,
        call.call.arguments,
        call.call.session,
        entry.command,
        entry.touch,
        entry.sandbox,
        entry.env,
        of_preview,
    ]);
    hex::encode(&Sha256::digest(all.to_string()))
}

/// Shortens the texts so that they fit into a request, with a note in each shortened one. The fingerprint covers the
/// whole texts.
fn bounded(mut preview: Preview) -> Preview {
    for text in [&mut preview.action_type, &mut preview.summary, &mut preview.target] {
        *text = cut(text, TEXT_BYTES, " ");
    }
    preview.reason = preview.reason.map(|reason| cut(&reason, TEXT_BYTES, " "));
    preview.diff = preview.diff.map(|diff| cut(&diff, DIFF_BYTES, "\n"));
    let action = preview.action.to_string();
    if action.len() > ACTION_BYTES {
        preview.action = Value::String(cut(&action, ACTION_BYTES, " "));
    }
    preview
}

/// Returns the text, or as much of its beginning as takes at most `max` bytes as a JSON string, followed by a note.
fn cut(text: &str, max: usize, before_note: &str) -> String {
    let mut shown = ken_text::head(text, max);
    while Value::from(shown).to_string().len() > max {
        shown = ken_text::head(shown, shown.len() / 2);
    }
    match shown.len() == text.len() {
        true => text.to_owned(),
        false => {
            let (part, whole) = (shown.len(), text.len());
            format!("{shown}{before_note}[cut: {part} of {whole} bytes are shown]")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::cut;

    #[test]
    fn a_text_is_cut_by_what_it_takes_as_json() {
        assert_eq!(cut("short", 64, " "), "short");
        let long = cut(&"x".repeat(100), 64, "\n");
        assert!(long.ends_with("\n[cut: 32 of 100 bytes are shown]"), "{long}");
        // Each of these characters takes six bytes as JSON.
        let escaped = cut(&"\u{1}".repeat(40), 64, " ");
        assert!(escaped.ends_with(" [cut: 10 of 40 bytes are shown]"), "{escaped}");
    }
}
