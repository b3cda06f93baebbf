//! Converts the response of a server to the form for the model: its texts, marked as written by others.

use ken_types::event::{Block, ToolResult};
use rmcp::model::{CallToolResult, ContentBlock, ResourceContents};
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
    let text = match texts.is_empty() {
        true => structured.to_string(),
        false => texts.join("\n"),
    };
    let shown = match failed {
        // An error cannot refer to a stored text, so a long one is only shortened.
        true => Outputs(None).show(&text).await,
        false => outputs.show(&text).await,
    };
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
    Ok(ToolResult {
        content: vec![Block::text(text)],
        details: details(structured, bytes),
        output,
        ..ToolResult::default()
    })
}

const UNKNOWN: &str = "[something that is not shown]";

/// Returns a content block as text. Images and audio are only mentioned.
fn text(block: &ContentBlock) -> String {
    match block {
        ContentBlock::Text(text) => text.text.clone(),
        ContentBlock::Image(image) => left_out("an image", &image.mime_type, image.data.len()),
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
