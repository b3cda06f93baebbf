//! Builds the message to send from the text, the template, the fragments and the attachments.

use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ken_client::chat::Image;
use ken_types::Error;
use ken_types::limits::{IMAGE_CHARACTERS, IMAGES, PROMPT_BYTES};
use ken_types::places::Places;

use super::{Chat, template};
use crate::input::{read_bytes, read_text, words_or_stdin};

/// The text of a message and its images.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) text: String,
    pub(super) images: Vec<Image>,
    /// Whether the text contains attached files.
    pub(super) attached: bool,
}

/// Reads all texts and files before anything is sent. If one cannot be used, returns an `invalid` error that names the
/// flag and the file.
pub(super) fn message(chat: &Chat, places: &Places) -> Result<Message, Error> {
    let mut text = words_or_stdin(&chat.text, PROMPT_BYTES, "TEXT", "ken chat TEXT")?;
    if let Some(name) = &chat.template {
        text = template::filled(places, name, &chat.param, &text)?;
    }
    let mut parts = Vec::new();
    for path in &chat.fragment {
        parts.push(read_text("--fragment", path, PROMPT_BYTES as u64)?);
    }
    parts.push(text);
    let (mut images, mut attached) = (Vec::new(), false);
    for path in &chat.attach {
        match attachment(path)? {
            Attachment::Image(image) => images.push(image),
            Attachment::Text(text) => {
                parts.push(fenced(path, &text));
                attached = true;
            }
        }
    }
    if images.len() > IMAGES {
        let message = format!("{} images, at most {IMAGES} can be sent", images.len());
        return Err(Error::invalid("--attach", message));
    }
    Ok(Message { text: parts.join("\n\n"), images, attached })
}

enum Attachment {
    Image(Image),
    Text(String),
}

fn attachment(path: &Path) -> Result<Attachment, Error> {
    let wrong = |what: String| Error::invalid("--attach", format!("{}: {what}", path.display()));
    let max = (IMAGE_CHARACTERS / 4 * 3) as u64;
    let bytes = read_bytes("--attach", path, max)?;
    if let Some(media_type) = image_type(&bytes) {
        return Ok(Attachment::Image(Image { media_type: media_type.to_owned(), data: STANDARD.encode(&bytes) }));
    }
    if bytes.len() > PROMPT_BYTES {
        return Err(wrong(format!("has more than {PROMPT_BYTES} bytes, the most of a text")));
    }
    let text = String::from_utf8(bytes);
    let text = text.map_err(|_| wrong("is neither text in UTF-8 nor a PNG, JPEG, GIF or WebP image".to_owned()))?;
    Ok(Attachment::Text(text))
}

/// Returns the media type of an image by its first bytes, or `None` if it is not one of the four formats that models
/// accept.
fn image_type(bytes: &[u8]) -> Option<&'static str> {
    match bytes {
        [0x89, b'P', b'N', b'G', ..] => Some("image/png"),
        [0xff, 0xd8, 0xff, ..] => Some("image/jpeg"),
        [b'G', b'I', b'F', b'8', ..] => Some("image/gif"),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some("image/webp"),
        _ => None,
    }
}

/// Puts a text into a Markdown code block. The fence is longer than any run of backquotes in the text.
fn fenced(path: &Path, text: &str) -> String {
    let longest = text.split(|letter| letter != '`').map(str::len).max().unwrap_or_default();
    let fence = "`".repeat((longest + 1).max(3));
    let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
    format!("Attached file {name:?}:\n\n{fence}\n{}\n{fence}", text.trim_end_matches('\n'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_closes_its_fence() {
        for (text, fence) in [("plain", "```"), ("```\ncode\n```", "````"), ("`````", "``````")] {
            let fenced = fenced(Path::new("/x/a.md"), text);
            assert_eq!(fenced, format!("Attached file \"a.md\":\n\n{fence}\n{text}\n{fence}"));
        }
    }
}
