//! Builds the message to send from the text, the template, the fragments and the attachments.

use std::io::IsTerminal;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use ken_client::chat::{Image, Prompt};
use ken_client::piped::{fenced, is_piped, read_stdin, text_of_stdin};
use ken_types::Error;
use ken_types::limits::{IMAGE_CHARACTERS, IMAGES, PROMPT_BYTES};
use ken_types::places::Places;

use super::{Chat, server_prompt, template};
use crate::input::{read_bytes, read_text};
use crate::output::print_note;

/// Reads all texts and files before anything is sent. If one cannot be used, returns an `invalid` error that names the
/// flag and the file.
pub(super) fn message(chat: &Chat, places: &Places) -> Result<Prompt, Error> {
    let stdin = Stdin::read(chat)?;
    let mut text = match stdin {
        Stdin::Prompt(ref text) => text.clone(),
        _ => chat.text.join(" "),
    };
    let prompt = chat.template.as_deref().and_then(server_prompt::named);
    match &chat.template {
        Some(name) if prompt.is_none() => text = template::filled(places, name, &chat.param, &text)?,
        Some(_) if text.is_empty() => server_prompt::CHOSEN.clone_into(&mut text),
        _ => {}
    }
    let mut parts = Vec::new();
    for path in chat.fragment.iter().filter(|path| !is_stdin(path)) {
        let text = read_text("--fragment", path, PROMPT_BYTES as u64);
        parts.push(text.map_err(|error| or_stdin(error, path, "-f"))?);
    }
    // A log or a diff is text from outside, as an attached file is.
    let (mut images, mut attached) = (Vec::new(), matches!(stdin, Stdin::Before(_)));
    if let Stdin::Before(text) = &stdin {
        parts.push(fenced("stdin", text));
    }
    let mut mcp_server = None;
    if let Some((server, name)) = prompt {
        parts.push(server_prompt::text(places, server, name, &chat.param)?);
        mcp_server = Some(server.to_owned());
    }
    parts.push(text);
    let named = |path: &Path| path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
    let files = chat.attach.iter().filter(|path| !is_stdin(path)).map(|path| Ok((named(path), attachment(path)?)));
    let piped = stdin.into_attachment().map(|attachment| Ok(("stdin".to_owned(), attachment)));
    for attached_file in files.chain(piped) {
        match attached_file? {
            (_, Attachment::Image(image)) => images.push(image),
            (name, Attachment::Text(text)) => {
                parts.push(fenced(&format!("Attached file {name:?}"), &text));
                attached = true;
            }
        }
    }
    if images.len() > IMAGES {
        let message = format!("{} images, at most {IMAGES} can be sent", images.len());
        return Err(Error::invalid("--attach", message));
    }
    let text = parts.join("\n\n");
    if text.len() > PROMPT_BYTES {
        let message =
            format!("the message has {} bytes with its files, at most {PROMPT_BYTES} can be sent", text.len());
        return Err(Error::too_large(message));
    }
    Ok(Prompt { text, images, attached, mcp_server, model: chat.model.clone(), ..Prompt::default() })
}

/// What standard input is in the message.
enum Stdin {
    Nothing,
    /// The message itself.
    Prompt(String),
    /// A text that stands before the message.
    Before(String),
    Attached(Attachment),
}

impl Stdin {
    fn read(chat: &Chat) -> Result<Stdin, Error> {
        let is_prompt = chat.text.iter().all(|word| word == "-");
        let fragments = chat.fragment.iter().filter(|path| is_stdin(path)).count();
        let attached = chat.attach.iter().filter(|path| is_stdin(path)).count();
        let is_named = chat.text.first().is_some_and(|word| word == "-");
        if fragments + attached + usize::from(is_prompt && is_named) > 1 {
            return Err(Error::invalid("-", "standard input is named twice, and can be read only once"));
        }
        let bytes = |max: usize| read_stdin(max, chat.wait, print_note);
        if attached == 1 {
            return Ok(Stdin::Attached(kind_of(bytes(IMAGE_BYTES)?, "standard input")?));
        }
        if is_prompt && fragments == 0 {
            let has_prompt = chat.template.as_deref().and_then(server_prompt::named).is_some();
            if std::io::stdin().is_terminal() && has_prompt && !is_named {
                return Ok(Stdin::Nothing);
            }
            if std::io::stdin().is_terminal() {
                let hint = "ken chat TEXT, or a text on standard input";
                return Err(Error::invalid("TEXT", "the text is missing").hint(hint));
            }
            return Ok(Stdin::Prompt(text_of_stdin(bytes(PROMPT_BYTES)?)?));
        }
        if fragments == 0 && !is_piped() {
            return Ok(Stdin::Nothing);
        }
        let text = text_of_stdin(bytes(PROMPT_BYTES)?)?;
        Ok(if text.trim().is_empty() { Stdin::Nothing } else { Stdin::Before(text) })
    }

    fn into_attachment(self) -> Option<Attachment> {
        match self {
            Stdin::Attached(attachment) => Some(attachment),
            _ => None,
        }
    }
}

fn is_stdin(path: &Path) -> bool {
    path == Path::new("-")
}

enum Attachment {
    Image(Image),
    Text(String),
}

const IMAGE_BYTES: usize = IMAGE_CHARACTERS / 4 * 3;

fn attachment(path: &Path) -> Result<Attachment, Error> {
    let bytes = read_bytes("--attach", path, IMAGE_BYTES as u64).map_err(|error| or_stdin(error, path, "-a"))?;
    kind_of(bytes, &path.display().to_string())
}

/// Says how a pipe is read, such as `<(COMMAND)` of a shell. A named one could be silent for ever.
fn or_stdin(error: Error, path: &Path, flag: &str) -> Error {
    let is_pipe = std::fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_fifo());
    if is_pipe { error.hint(format!("`COMMAND | ken chat {flag} - TEXT` reads a pipe")) } else { error }
}

/// `name` is the file or the input in error messages.
fn kind_of(bytes: Vec<u8>, name: &str) -> Result<Attachment, Error> {
    let wrong = |what: String| Error::invalid("--attach", format!("{name}: {what}"));
    if let Some(image) = Image::of_bytes(&bytes) {
        return Ok(Attachment::Image(image));
    }
    if bytes.len() > PROMPT_BYTES {
        return Err(wrong(format!("has {} bytes, a text may have {PROMPT_BYTES}", bytes.len())));
    }
    let text = String::from_utf8(bytes);
    let text = text.map_err(|_| wrong("is neither text in UTF-8 nor a PNG, JPEG, GIF or WebP image".to_owned()))?;
    Ok(Attachment::Text(text))
}
