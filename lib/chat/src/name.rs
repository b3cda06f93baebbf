//! Explicit names of sessions.

use ken_types::Error;
use ken_types::limits::NAME_CHARACTERS;

/// Checks a session name and returns it trimmed. It must then have 1 to 120 characters and no
/// control characters.
pub(crate) fn check_name(text: &str) -> Result<String, Error> {
    let name = text.trim();
    let length = name.chars().count();
    if length == 0 {
        return Err(Error::invalid("/text", "the name is blank"));
    }
    if length > NAME_CHARACTERS {
        let message = format!("the name has {length} characters, at most {NAME_CHARACTERS} are allowed");
        return Err(Error::invalid("/text", message));
    }
    if name.chars().any(char::is_control) {
        return Err(Error::invalid("/text", "the name holds control characters"));
    }
    Ok(name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        assert_eq!(check_name("  Nightly ").unwrap(), "Nightly");
        assert_eq!(check_name(&"ü".repeat(120)).unwrap().chars().count(), 120);
        for bad in ["", "   ", "a\tb", "a\u{7f}", &"x".repeat(121)] {
            assert!(check_name(bad).is_err(), "{bad:?}");
        }
    }
}
