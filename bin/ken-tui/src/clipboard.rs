//! Copies text to the terminal's clipboard with OSC 52. This also works through ssh, and through tmux if tmux is
//! configured to pass it on.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// The maximum size of a text, in bytes. Terminals would truncate a longer one or show the sequence as text.
pub(crate) const MAX_BYTES: usize = 74_994;

/// Returns the sequence that copies a text, or `None` if the text is too long. Terminals do not report whether they
/// accepted it.
pub(crate) fn copy_sequence(text: &str, in_tmux: bool) -> Option<String> {
    let encoded = STANDARD.encode(text);
    if encoded.len() > MAX_BYTES.div_ceil(3) * 4 {
        return None;
    }
    let sequence = format!("\x1b]52;c;{encoded}\x07");
    // tmux passes the second sequence on to its terminal. With `set-clipboard on`, it also takes the text from the first one.
    Some(if in_tmux { format!("{sequence}\x1bPtmux;{}\x1b\\", sequence.replace('\x1b', "\x1b\x1b")) } else { sequence })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_offered_whole_or_not_at_all() {
        assert_eq!(copy_sequence("hi", false).as_deref(), Some("\x1b]52;c;aGk=\x07"));
        assert_eq!(
            copy_sequence("hi", true).as_deref(),
            Some("\x1b]52;c;aGk=\x07\x1bPtmux;\x1b\x1b]52;c;aGk=\x07\x1b\\")
        );
        assert!(copy_sequence(&"x".repeat(MAX_BYTES), false).is_some());
        assert!(copy_sequence(&"x".repeat(MAX_BYTES + 3), false).is_none());
    }
}
