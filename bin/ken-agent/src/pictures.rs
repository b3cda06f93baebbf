//! The images in the results of tools. Events do not contain them, so they are kept beside the turn, for as long as it lasts: after
//! a crash the model reads only that there was an image.

use std::collections::HashMap;
use std::sync::Arc;

use ken_types::event::{Block, Message};
use parking_lot::Mutex;

/// What stands in an event in place of the bytes of an image. Clients of the event format know it by these words.
pub(crate) const NO_IMAGE_DATA: &str = "[image data omitted from event]";
/// The maximum length of all images of a request in base64. A line of the wire holds twice as much.
const MAX_REQUEST_BYTES: usize = 2 * 1024 * 1024;

/// The images of each call, by its id.
#[derive(Debug, Clone, Default)]
pub(crate) struct Pictures(Arc<Mutex<HashMap<String, Vec<Block>>>>);

impl Pictures {
    /// Takes the images out of the result of a call. The note that events contain in place of their bytes stays.
    pub(crate) fn take(&self, call: &str, content: &mut [Block]) {
        let mut taken = Vec::new();
        for block in content {
            if let Block::Image { data, mime_type } = block {
                let data = std::mem::replace(data, NO_IMAGE_DATA.to_owned());
                taken.push(Block::Image { data, mime_type: mime_type.clone() });
            }
        }
        if !taken.is_empty() {
            self.0.lock().insert(call.to_owned(), taken);
        }
    }

    /// Puts the images back into the results of a request, those of the newest results first, as far as there is room. Of the
    /// others only the mention in the text is left.
    pub(crate) fn put_back(&self, messages: &mut [Message]) {
        let kept = self.0.lock();
        let mut room = MAX_REQUEST_BYTES;
        for message in messages.iter_mut().rev() {
            let Message::ToolResult { tool_call_id, content, .. } = message else {
                continue;
            };
            content.retain(|block| !matches!(block, Block::Image { .. }));
            for block in kept.get(tool_call_id).into_iter().flatten() {
                if let Block::Image { data, .. } = block
                    && data.len() <= room
                {
                    room -= data.len();
                    content.push(block.clone());
                }
            }
        }
    }
}
