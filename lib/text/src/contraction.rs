/// The two words that a contraction stands for, in lower case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Contraction {
    /// The number of bytes of the contraction that spell the first word; all bytes if the spelling is irregular.
    pub stem: usize,
    /// The first word if it is spelled differently than in the contraction, such as `will` for "won't".
    pub irregular: Option<&'static str>,
    /// The second word, such as `not` for "isn't".
    pub second: &'static str,
}

impl Contraction {
    /// Returns the first word. `word` is the contraction; a regular first word is returned as spelled there.
    pub fn first<'a>(&self, word: &'a str) -> &'a str {
        self.irregular.unwrap_or_else(|| word.get(..self.stem).unwrap_or_default())
    }
}

/// Splits a contraction: "isn't" is `is` and `not`. The word may be in any case, with the typewriter apostrophe, the
/// typographic one (U+2019) or the modifier letter (U+02BC). Returns `None` for any other word, including possessives: "'s" is
/// `is` only after a pronoun or a question word, since "the server's log" does not mean that the server is a log.
pub fn expand(word: &str) -> Option<Contraction> {
    if word.eq_ignore_ascii_case("cannot") {
        return Some(Contraction { stem: 3, irregular: None, second: "not" });
    }
    let (stem, tail) = split(word)?;
    let before = word.get(..stem)?;
    if tail.eq_ignore_ascii_case("t") {
        return not(before);
    }
    let second = SECOND_WORDS.iter().find(|(ending, _)| tail.eq_ignore_ascii_case(ending))?.1;
    if second == "is" && !TAKES_IS.iter().any(|known| known.eq_ignore_ascii_case(before)) {
        let let_us = before.eq_ignore_ascii_case("let");
        return let_us.then_some(Contraction { stem, irregular: None, second: "us" });
    }
    Some(Contraction { stem, irregular: None, second })
}

/// Returns the number of bytes before the last apostrophe, and the part after it.
fn split(word: &str) -> Option<(usize, &str)> {
    let (offset, apostrophe) = word.char_indices().rfind(|&(_, char)| matches!(char, '\'' | '\u{2019}' | '\u{2bc}'))?;
    Some((offset, word.get(offset + apostrophe.len_utf8()..)?))
}

/// Expands a contraction that ends in "'t". `before` is the part before the apostrophe, such as "isn", "won" or "can".
fn not(before: &str) -> Option<Contraction> {
    let irregular = IRREGULAR.iter().find(|(spelled, _)| before.eq_ignore_ascii_case(spelled));
    if let Some(&(_, full)) = irregular {
        return Some(Contraction { stem: before.len(), irregular: Some(full), second: "not" });
    }
    let stem = before.len().checked_sub(1)?;
    let auxiliary = before.get(..stem)?;
    let known = TAKES_NOT.iter().any(|known| known.eq_ignore_ascii_case(auxiliary));
    (known && before.ends_with(['n', 'N'])).then_some(Contraction { stem, irregular: None, second: "not" })
}

const SECOND_WORDS: [(&str, &str); 6] =
    [("m", "am"), ("re", "are"), ("s", "is"), ("ve", "have"), ("ll", "will"), ("d", "would")];

const TAKES_IS: [&str; 12] =
    ["it", "he", "she", "that", "this", "there", "here", "what", "who", "where", "how", "everything"];

const IRREGULAR: [(&str, &str); 4] = [("can", "can"), ("won", "will"), ("shan", "shall"), ("ain", "is")];

const TAKES_NOT: [&str; 18] = [
    "is", "are", "was", "were", "do", "does", "did", "has", "have", "had", "could", "would", "should", "might", "must",
    "need", "dare", "ought",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn full(word: &str) -> Option<String> {
        expand(word).map(|contraction| format!("{} {}", contraction.first(word), contraction.second))
    }

    #[test]
    fn contractions_are_split() {
        for (word, expected) in [
            ("isn't", "is not"),
            ("don’t", "do not"),
            ("CAN'T", "can not"),
            ("cannot", "can not"),
            ("won't", "will not"),
            ("I'm", "I am"),
            ("it's", "it is"),
            ("They’ve", "They have"),
            ("let's", "let us"),
        ] {
            assert_eq!(full(word).as_deref(), Some(expected));
        }
    }

    #[test]
    fn other_words_stay_whole() {
        for word in ["server's", "not", "'t", "n't", "o'clock", "rock'n'roll", "", "’", "xn't"] {
            assert_eq!(full(word), None, "{word}");
        }
    }
}
