//! Previews: what a call would do, for the person who decides about it.

use ken_types::limits::BLOB_BYTES;
use ken_types::ops::tools::{Approval, Need, Preview, Risk, Whole};
use ken_types::{Error, hex, json};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::admitted::{Admitted, written};
use crate::output::{self, Outputs};

/// The maximum size of the output of a tool's preview command, in bytes. The diff is a part of it, and has at most
/// [`BLOB_BYTES`] without the escapes of JSON.
const MAX_OUTPUT: usize = 24 * 1024 * 1024;
const MAX_DEPTH: usize = 64;
/// The maximum sizes of what a request shows of the diff, of the action and of each other text, in bytes of JSON.
/// Together they fit into a request for approval.
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
    let wrong = |error: Error| {
        let place = error.at.unwrap_or_default();
        ken_service::redacted(format!("The preview of the tool {name} is not one: {place} {}", error.message))
    };
    let value = json::parse(text.as_bytes(), MAX_DEPTH).map(ken_service::redacted_value).map_err(wrong)?;
    let mut preview: Preview = json::from_value(value).map_err(wrong)?;
    preview.whole = None; // only this part knows what is in the store
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
        whole: None,
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

/// Denies a call that a person could not be shown in full, and shortens the texts that only describe it. The fingerprint
/// covers the whole texts.
fn bounded(mut preview: Preview) -> Preview {
    for text in [&mut preview.action_type, &mut preview.summary, &mut preview.target] {
        *text = cut(text, TEXT_BYTES);
    }
    preview.reason = preview.reason.map(|reason| cut(&reason, TEXT_BYTES));
    if let Some(why) = cannot_be_shown(&preview) {
        // It is refused also where nobody would be asked, so that the same call is not possible under one rule and
        // impossible under another.
        let (approval, reason) = match preview.approval {
            Need::Ask => (Need::Deny, Some(why)),
            need => (need, preview.reason),
        };
        preview = Preview { approval, reason, action: Value::Null, diff: None, ..preview };
    }
    preview
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
    let shown = beginning(diff, DIFF_BYTES);
    if shown.len() == diff.len() {
        return Ok(preview);
    }
    if preview.approval != Need::Ask {
        return Ok(Preview { diff: Some(shown.to_owned()), ..preview }); // nobody is asked
    }
    let kept = output::keep(store, diff).await?;
    let whole = Some(Whole { digest: kept.blob, bytes: kept.bytes });
    Ok(Preview { diff: Some(shown.to_owned()), whole, ..preview })
}

/// Returns the text, or as much of its beginning as takes at most `max` bytes as a JSON string.
fn beginning(text: &str, max: usize) -> &str {
    let mut shown = ken_text::head(text, max);
    while Value::from(shown).to_string().len() > max {
        shown = ken_text::head(shown, shown.len() / 2);
    }
    shown
}

/// Returns the text, or its beginning followed by a note.
fn cut(text: &str, max: usize) -> String {
    let shown = beginning(text, max);
    match shown.len() == text.len() {
        true => text.to_owned(),
        false => format!("{shown} [cut: {} of {} bytes are shown]", shown.len(), text.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::cut;

    #[test]
    fn a_text_is_cut_by_what_it_takes_as_json() {
        assert_eq!(cut("short", 64), "short");
        let long = cut(&"x".repeat(100), 64);
        assert!(long.ends_with(" [cut: 32 of 100 bytes are shown]"), "{long}");
        // Each of these characters takes six bytes as JSON.
        let escaped = cut(&"\u{1}".repeat(40), 64);
        assert!(escaped.ends_with(" [cut: 10 of 40 bytes are shown]"), "{escaped}");
    }
}
