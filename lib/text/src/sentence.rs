use crate::Span;

/// A sentence with its closing punctuation, and without the blanks around it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sentence<'a> {
    pub text: &'a str,
    pub span: Span,
}

/// Returns the sentences of a text, in order. A sentence ends after a `.`, `!`, `?` or `…` that is followed by a blank.
/// Closing quotation marks and brackets between the mark and the blank belong to the sentence. It also ends at an empty
/// line. It does not end at the period of an initial or an abbreviation. Only an abbreviation that can be the last word
/// of a sentence ("5 min.", "the dept.") ends it, if a new sentence can begin after it.
pub fn sentences(text: &str) -> Sentences<'_> {
    Sentences { text, at: 0 }
}

/// The iterator of [`sentences`].
#[derive(Debug, Clone)]
pub struct Sentences<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Iterator for Sentences<'a> {
    type Item = Sentence<'a>;

    fn next(&mut self) -> Option<Sentence<'a>> {
        let rest = self.text.get(self.at..)?;
        let start = self.at + rest.find(|char: char| !char.is_whitespace())?;
        let end = start + end_of_first(self.text.get(start..)?);
        self.at = end;
        let length = self.text.get(start..end)?.trim_end().len();
        let span = Span { start, end: start + length };
        Some(Sentence { text: span.of(self.text), span })
    }
}

/// Returns the length of the first sentence of `text` in bytes.
fn end_of_first(text: &str) -> usize {
    let mut word_start = 0; // the first byte of the word before a period
    let mut closing = false; // whether only closing marks have followed the last end mark
    for (offset, char) in text.char_indices() {
        match char {
            '.' => {
                let word = text.get(word_start..offset).unwrap_or_default();
                closing = !is_abbreviation(word, text.get(offset + 1..).unwrap_or_default());
            }
            '!' | '?' | '…' | '。' | '！' | '？' => closing = true,
            ')' | ']' | '"' | '\'' | '”' | '’' | '»' => {}
            '\n' if closing || ends_paragraph(text.get(offset..).unwrap_or_default()) => return offset,
            _ if char.is_whitespace() && closing => return offset,
            _ => closing = false,
        }
        if !char.is_alphanumeric() && char != '.' {
            word_start = offset + char.len_utf8();
        }
    }
    text.len()
}

/// Returns whether a paragraph ends here: `rest`, which starts with a line feed, continues with an empty line, or with
/// nothing but blanks.
fn ends_paragraph(rest: &str) -> bool {
    let mut chars = rest.chars().skip(1);
    matches!(chars.find(|&char| char != ' ' && char != '\t' && char != '\r'), Some('\n') | None)
}

/// Returns whether the period between `word` and `rest` belongs to `word` and does not end a sentence. `word` can
/// itself contain periods (`e.g`).
fn is_abbreviation(word: &str, rest: &str) -> bool {
    let mut letters = word.chars();
    let (first, second) = (letters.next(), letters.next());
    let is_capital = first.is_some_and(char::is_uppercase);
    let initial = is_capital && second.is_none() && first != Some('I');
    let is_one_of = |list: &[&str]| list.iter().any(|known| known.eq_ignore_ascii_case(word));
    initial || is_one_of(&ATTACHED) || is_capital && is_one_of(&TITLES) || is_one_of(&CLOSING) && !opens_sentence(rest)
}

/// Returns whether the text after the period of an abbreviation can begin a sentence: it begins with a capital or is
/// empty. A Roman numeral ("Vol. II") counts as a number, which cannot.
pub fn opens_sentence(rest: &str) -> bool {
    let opens = |char: char| char.is_whitespace() || matches!(char, '"' | '“' | '”' | '\'' | '‘' | '’' | '(' | ')');
    let rest = rest.trim_start_matches(opens);
    let word = rest.split(|char: char| !char.is_alphanumeric()).next();
    let is_roman = |word: &str| word.len() > 1 && word.bytes().all(|byte| b"IVXLC".contains(&byte));
    rest.chars().next().is_none_or(char::is_uppercase) && !word.is_some_and(is_roman)
}

/// Abbreviations that never end a sentence.
const ATTACHED: [&str; 8] = ["vs", "e.g", "i.e", "cf", "fig", "figs", "eq", "resp"];

/// Abbreviations that precede a name if they have a capital: "Ms. Smith", but not "5 ms."
const TITLES: [&str; 6] = ["mr", "mrs", "ms", "dr", "prof", "st"];

/// Abbreviations that end a sentence if a capital follows. Before a number or a small letter they do not.
const CLOSING: [&str; 13] = ["approx", "dept", "est", "no", "nos", "vol", "pp", "ed", "eds", "al", "ca", "sec", "min"];

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(text: &str) -> Vec<&str> {
        sentences(text).map(|sentence| sentence.text).collect()
    }

    #[test]
    fn sentences_end_where_a_reader_stops() {
        assert_eq!(texts("One. Two! Three?  Four"), ["One.", "Two!", "Three?", "Four"]);
        assert_eq!(texts("He said \"stop.\" Then left."), ["He said \"stop.\"", "Then left."]);
        assert_eq!(texts("It costs 3.50 at ken.example today."), ["It costs 3.50 at ken.example today."]);
        assert_eq!(
            texts("Dr. A. Smith came, e.g. by car. So did I. Yes."),
            ["Dr. A. Smith came, e.g. by car.", "So did I.", "Yes."]
        );
        assert_eq!(texts("A title\n\nA line that\ngoes on.\n"), ["A title", "A line that\ngoes on."]);
        assert_eq!(texts("What?! No..."), ["What?!", "No..."]);
        assert_eq!(texts(" \n "), [""; 0]);
    }

    #[test]
    fn an_abbreviation_closes_a_sentence_where_another_opens() {
        for word in ["5 min", "5 ms", "5 sec", "no", "vol", "est", "approx", "the dept", "Miller et al"] {
            let text = format!("It took {word}. It ended.");
            assert_eq!(texts(&text), [&format!("It took {word}."), "It ended."]);
        }
        for text in [
            "See No. 5, Vol. 2, Vol. II and approx. 5 more.",
            "Ms. Smith and Dr. Smith met Miller et al. (1998) in est. 5 min. of time.",
        ] {
            assert_eq!(texts(text), [text]);
        }
        assert_eq!(texts("He said \"no.\" “It ended.”"), ["He said \"no.\"", "“It ended.”"]);
    }

    #[test]
    fn spans_are_bytes_of_the_text() {
        let text = " Né?  “Two.” ";
        let spans: Vec<Span> = sentences(text).map(|sentence| sentence.span).collect();
        assert_eq!(spans, [Span { start: 1, end: 5 }, Span { start: 7, end: 17 }]);
        assert!(sentences(text).all(|sentence| sentence.span.of(text) == sentence.text));
    }
}
