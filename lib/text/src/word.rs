use crate::Span;

/// A word: letters, digits, marks and `_`, with apostrophes and hyphens inside it; or a number, with periods and commas
/// inside it (`3.14`, `1,000`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Word<'a> {
    pub text: &'a str,
    pub span: Span,
}

/// Returns the words of a text, in order.
pub fn words(text: &str) -> Words<'_> {
    Words { text, at: 0 }
}

/// The iterator of [`words`].
#[derive(Debug, Clone)]
pub struct Words<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Iterator for Words<'a> {
    type Item = Word<'a>;

    fn next(&mut self) -> Option<Word<'a>> {
        let rest = self.text.get(self.at..)?;
        let start = self.at + rest.find(is_word_char)?;
        let end = start + length(self.text.get(start..)?);
        self.at = end;
        let span = Span { start, end };
        Some(Word { text: span.of(self.text), span })
    }
}

/// Returns whether a character belongs to a word at any position, even at its beginning and end.
fn is_word_char(char: char) -> bool {
    char.is_alphanumeric() || char == '_' || is_mark(char)
}

/// Returns whether this is a combining mark of a decomposed letter (Unicode blocks 0300, 1AB0 to 1AFF, 20D0 and FE20).
fn is_mark(char: char) -> bool {
    matches!(char, '\u{300}'..='\u{36f}' | '\u{1ab0}'..='\u{1aff}' | '\u{20d0}'..='\u{20ff}' | '\u{fe20}'..='\u{fe2f}')
}

/// Returns the length in bytes of the word at the beginning of `text`.
fn length(text: &str) -> usize {
    let mut last = ' ';
    let mut chars = text.char_indices().peekable();
    while let Some((offset, char)) = chars.next() {
        let next = chars.peek().map_or(' ', |&(_, next)| next);
        if !is_word_char(char) && !joins(last, char, next) {
            return offset;
        }
        last = char;
    }
    text.len()
}

/// Returns whether `char`, which is not a word character, joins the characters on both sides into one word.
fn joins(last: char, char: char, next: char) -> bool {
    match char {
        '\'' | '\u{2019}' | '-' => is_word_char(last) && is_word_char(next),
        '.' | ',' => last.is_ascii_digit() && next.is_ascii_digit(),
        _ => false,
    }
}

/// Returns whether a lower-case word says nothing about the topic of a text: an article, preposition, pronoun,
/// auxiliary or conjunction.
pub fn is_stop_word(word: &str) -> bool {
    STOP_WORDS.binary_search(&word).is_ok()
}

/// Returns whether a lower-case word of a question says nothing about its topic: a stop word, a word such as `tell` or
/// `please`, or a fragment of `it's` or `don't`.
pub fn is_filler(word: &str) -> bool {
    is_stop_word(word) || FILLERS.contains(&word)
}

const FILLERS: [&str; 27] = [
    "s", "t", "tell", "know", "please", "give", "show", "find", "get", "got", "let", "like", "list", "many", "much",
    "need", "say", "said", "want", "explain", "describe", "theirs", "ours", "use", "uses", "used", "using",
];

/// The stop words. A test checks that they are sorted.
#[rustfmt::skip]
const STOP_WORDS: [&str; 133] = [
    "a", "about", "above", "after", "again", "against", "all", "also", "am", "an", "and", "any", "are", "as",
    "at", "be", "because", "been", "before", "being", "below", "between", "both", "but", "by", "can", "could",
    "did", "do", "does", "doing", "done", "down", "during", "each", "every", "few", "for", "from", "further",
    "had", "has", "have", "having", "he", "her", "here", "hers", "him", "his", "how", "i", "if", "in", "into",
    "is", "it", "its", "itself", "just", "may", "me", "might", "more", "most", "must", "my", "no", "nor",
    "not", "of", "off", "on", "once", "one", "only", "or", "other", "our", "out", "over", "own", "same",
    "shall", "she", "should", "so", "some", "somebody", "something", "such", "than", "that", "the", "their",
    "them", "then", "there", "these", "they", "this", "those", "through", "to", "too", "under", "until", "up",
    "upon", "us", "very", "was", "we", "were", "what", "when", "where", "which", "while", "who", "whom",
    "whose", "why", "will", "with", "within", "without", "would", "yet", "you", "your", "yours", "yourself",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(text: &str) -> Vec<&str> {
        words(text).map(|word| word.text).collect()
    }

    #[test]
    fn words_keep_apostrophes_hyphens_and_numbers_whole() {
        assert_eq!(texts("I don't, well-known 'quoted' end-"), ["I", "don't", "well-known", "quoted", "end"]);
        assert_eq!(texts("It’s 3.14, 1,000 and 2."), ["It’s", "3.14", "1,000", "and", "2"]);
        assert_eq!(texts("naïve cafe\u{301}s 日本"), ["naïve", "cafe\u{301}s", "日本"]);
        assert_eq!(texts(" ... "), [""; 0]);
    }

    #[test]
    fn spans_are_bytes_of_the_text() {
        let text = "né: “two” words";
        for word in words(text) {
            assert_eq!(word.span.of(text), word.text);
        }
        assert_eq!(words(text).nth(1).unwrap().span, Span { start: 8, end: 11 });
    }

    #[test]
    fn stop_words_are_sorted() {
        assert!(STOP_WORDS.is_sorted());
        assert!(is_stop_word("the") && is_stop_word("is") && !is_stop_word("swan"));
    }
}
