//! How much of a result is passed on.

/// What a model is told of a result, in bytes; the rest is left out and it says so.
const TEXT_BYTES: usize = 32 * 1024;
/// Results up to here are also kept whole, as JSON.
pub(crate) const DETAILS_BYTES: usize = 128 * 1024;

pub(crate) fn shortened(text: &str) -> String {
    if text.len() <= TEXT_BYTES {
        return text.to_owned();
    }
    let head = ken_text::head(text, TEXT_BYTES);
    format!("{head}\n[cut: {} of {} bytes are shown]", head.len(), text.len())
}
