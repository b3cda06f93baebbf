//! The content of a prompt of an editor, as a prompt of ken.

use ken_client::chat::{Image, Prompt};
use ken_types::Error;
use ken_types::fence::Fence;
use serde_json::Value;

/// Reads the blocks of a prompt. The error names one that cannot be sent.
pub(super) fn read(blocks: &Value) -> Result<Prompt, Error> {
    let blocks = blocks.as_array().ok_or_else(|| Error::invalid("/prompt", "prompt is not a list of blocks"))?;
    let mut prompt = Prompt::default();
    let mut texts = Vec::new();
    for (index, block) in blocks.iter().enumerate() {
        let wrong =
            |what: &str| Error::invalid(format!("/prompt/{index}"), format!("block {index} of the prompt {what}"));
        let text = |pointer: &str| block.pointer(pointer).and_then(Value::as_str);
        match text("/type") {
            Some("text") => texts.push(text("/text").ok_or_else(|| wrong("has no text"))?.to_owned()),
            Some("resource_link") => {
                let uri = text("/uri").ok_or_else(|| wrong("has no uri"))?;
                texts.push(path_of(uri).to_owned());
            }
            Some("resource") => {
                let inner = text("/resource/text").ok_or_else(|| wrong("is a file that is not text"))?;
                let uri = text("/resource/uri").unwrap_or_default();
                texts.push(Fence::fresh()?.block(path_of(uri), inner));
                prompt.attached = true;
            }
            Some("image") => prompt.images.push(Image {
                media_type: text("/mimeType").ok_or_else(|| wrong("has no mimeType"))?.to_owned(),
                data: text("/data").ok_or_else(|| wrong("has no data"))?.to_owned(),
            }),
            Some(other) => return Err(wrong(&format!("is of the type `{other}`, which ken does not read"))),
            None => return Err(wrong("has no type")),
        }
    }
    prompt.text = texts.join("\n");
    Ok(prompt)
}

/// Returns the path of a file, as a person would write it.
fn path_of(uri: &str) -> &str {
    uri.strip_prefix("file://").unwrap_or(uri)
}
