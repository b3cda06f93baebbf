use std::borrow::Cow;

use unicode_normalization::UnicodeNormalization;

/// Returns the normal form of a text for comparisons: Unicode NFC, lower case, typewriter apostrophes, single blanks
/// between words and no blanks around them. A text that is already in this form is borrowed, and only read once.
pub fn fold(text: &str) -> Cow<'_, str> {
    if is_folded(text) {
        return Cow::Borrowed(text);
    }
    let mut folded = String::with_capacity(text.len());
    for word in text.split_whitespace() {
        if !folded.is_empty() {
            folded.push(' ');
        }
        push_folded(word, &mut folded);
    }
    Cow::Owned(folded)
}

/// Returns true if the bytes alone show that [`fold`] would change nothing: they are ASCII without capitals, and all
/// blanks are single. False does not mean that it would change something.
pub fn is_folded(text: &str) -> bool {
    let mut last = b' ';
    for &byte in text.as_bytes() {
        let plain = byte.is_ascii_graphic() && !byte.is_ascii_uppercase();
        if !plain && (byte != b' ' || last == b' ') {
            return false;
        }
        last = byte;
    }
    last != b' ' || text.is_empty()
}

fn push_folded(word: &str, to: &mut String) {
    if word.is_ascii() {
        to.extend(word.chars().map(|char| char.to_ascii_lowercase()));
        return;
    }
    // Converting to lower case may decompose (the Turkish dotted capital I), so composition comes last.
    let plain = word.nfc().collect::<String>().to_lowercase();
    to.extend(plain.nfc().map(|char| if matches!(char, '\u{2019}' | '\u{2bc}') { '\'' } else { char }));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_texts_fold_to_equal_bytes() {
        assert_eq!(fold(" Socrates  is\ta man "), "socrates is a man");
        assert_eq!(fold("CAFE\u{301}"), fold("café"));
        assert_eq!(fold("Isn’t"), "isn't");
        assert_eq!(fold(""), "");
        assert!(matches!(fold("a plain text?"), Cow::Borrowed(_)));
    }

    proptest::proptest! {
        #[test]
        fn folding_twice_changes_nothing(text in "\\PC{0,20}") {
            let once = fold(&text).into_owned();
            let twice = fold(&once).into_owned();
            proptest::prop_assert_eq!(twice, once);
        }
    }
}
