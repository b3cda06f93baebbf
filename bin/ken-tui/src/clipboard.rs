//! The clipboard of the terminal, by OSC 52: it also works through ssh, and through tmux as far as that allows it.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// The largest text, in bytes, that terminals accept; a longer one would be cut or shown as text.
pub(crate) const LARGEST: usize = 74_994;

/// The sequence that copies a text. Terminals do not report whether they accepted it.
pub(crate) fn offer(text: &str, in_tmux: bool) -> Option<String> {
    let encoded = STANDARD.encode(text);
    if encoded.len() > LARGEST.div_ceil(3) * 4 {
        return None;
    }
    let sequence = format!("\x1b]52;c;{encoded}\x07");
    Some(match in_tmux {
        // tmux passes this on to its terminal; with `set-clipboard on` it also takes the text itself.
        true => format!("{sequence}\x1bPtmux;{}\x1b\\", sequence.replace('\x1b', "\x1b\x1b")),
        false => sequence,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_offered_whole_or_not_at_all() {
        assert_eq!(offer("hi", false).as_deref(), Some("\x1b]52;c;aGk=\x07"));
        assert_eq!(offer("hi", true).as_deref(), Some("\x1b]52;c;aGk=\x07\x1bPtmux;\x1b\x1b]52;c;aGk=\x07\x1b\\"));
        assert!(offer(&"x".repeat(LARGEST), false).is_some());
        assert!(offer(&"x".repeat(LARGEST + 3), false).is_none());
    }
}
