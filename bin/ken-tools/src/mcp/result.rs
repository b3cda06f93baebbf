//! Converts the response of a server to the form for the model: its texts, marked as written by others.

use ken_types::event::{Block, ToolResult};
use ken_types::limits::IMAGES;
use rmcp::model::{CallToolResult, ContentBlock, PromptMessage, ResourceContents, Role};
use serde_json::Value;

use super::down::quote;
use crate::output::{Outputs, details};
use crate::schema::Schema;

/// Reads the response to a call. Fails if the tool reports a failure, or if its result does not match its schema.
pub(crate) async fn read(
    server: &str,
    answer: CallToolResult,
    schema: Option<&Schema>,
    outputs: &Outputs,
) -> Result<ToolResult, String> {
    let texts: Vec<String> = answer.content.iter().map(text).collect();
    let structured = answer.structured_content.unwrap_or(Value::Null);
    let failed = answer.is_error.unwrap_or(false);
    if let Some(schema) = schema.filter(|_| !failed) {
        schema
            .check("", &structured)
            .map_err(|error| format!("The server {server} does not answer as it describes its tool: {error}"))?;
    }
    let text = if texts.is_empty() { structured.to_string() } else { texts.join("\n") };
    // An error cannot refer to a stored text, so a long one is only shortened.
    let shown = if failed { Outputs(None).show(&text).await } else { outputs.show(&text).await };
    let mut text = quote(server, &shown.text)?;
    if failed {
        return Err(text);
    }
    let mut output = shown.output;
    if let (None, Some(image)) = (&output, answer.content.iter().find_map(ContentBlock::as_image)) {
        output = outputs.keep_picture(&image.data).await;
        if output.is_some() {
            text.push_str("\nThe first image is kept. `ken why` tells the user where.");
        }
    }
    let bytes = structured.to_string().len();
    let content = std::iter::once(Block::text(text)).chain(images(answer.content)).collect();
    Ok(ToolResult { content, details: details(structured, bytes), output, ..ToolResult::default() })
}

/// Returns the texts of a prompt's messages, each with the role of its speaker if there are several.
pub(crate) fn of_messages(messages: &[PromptMessage]) -> String {
    let several = messages.len() > 1;
    let texts = messages.iter().map(|message| match (several, &message.role) {
        (false, _) => text(&message.content),
        (true, Role::Assistant) => format!("Assistant: {}", text(&message.content)),
        (true, _) => format!("User: {}", text(&message.content)),
    });
    texts.collect::<Vec<_>>().join("\n\n")
}

/// The maximum length of all images of a result in base64. A line of the wire holds twice as much.
const MAX_IMAGES_BYTES: usize = 2 * 1024 * 1024;
/// The kinds of images that providers accept.
const IMAGE_KINDS: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];

/// Returns the first images that a model can be shown.
fn images(content: Vec<ContentBlock>) -> impl Iterator<Item = Block> {
    let images = content.into_iter().filter_map(|block| match block {
        ContentBlock::Image(image) if IMAGE_KINDS.contains(&image.mime_type.as_str()) => Some(image),
        _ => None,
    });
    let within = images.take(IMAGES).scan(0, |length, image| {
        *length += image.data.len();
        (*length <= MAX_IMAGES_BYTES).then_some(image)
    });
    within.map(|image| Block::Image { data: image.data, mime_type: image.mime_type })
}

const UNKNOWN: &str = "[something that is not shown]";

/// Returns a content block as text. Images, which a model may be shown beside the text, and audio are only mentioned.
fn text(block: &ContentBlock) -> String {
    match block {
        ContentBlock::Text(text) => text.text.clone(),
        ContentBlock::Image(image) => format!("[an image, {}, {} bytes]", image.mime_type, image.data.len() / 4 * 3),
        ContentBlock::Audio(audio) => left_out("a sound", &audio.mime_type, audio.data.len()),
        ContentBlock::Resource(embedded) => match &embedded.resource {
            ResourceContents::TextResourceContents { uri, text, .. } => format!("[{uri}]\n{text}"),
            ResourceContents::BlobResourceContents { uri, mime_type, blob, .. } => {
                let kind = mime_type.as_deref().unwrap_or("bytes");
                left_out(uri, kind, blob.len())
            }
            _ => UNKNOWN.to_owned(),
        },
        ContentBlock::ResourceLink(link) => format!("[{}: {}]", link.name, link.uri),
        _ => UNKNOWN.to_owned(),
    }
}

/// Returns the note for omitted content. `encoded` is its length in base64, which uses four bytes for three.
fn left_out(what: &str, kind: &str, encoded: usize) -> String {
    format!("[{what}, {kind}, {} bytes, is not shown]", encoded / 4 * 3)
}
