//! A text while it is generated: decodes bytes to characters and finds stop sequences.

/// Collects the bytes of tokens.
#[derive(Default)]
pub struct Text {
    /// The bytes of an incomplete character at the end.
    incomplete: Vec<u8>,
    text: String,
    returned: usize,
    stops: Vec<String>,
    /// The stop sequence that ended the text.
    stopped_by: Option<String>,
}

impl Text {
    pub fn new(stops: &[String]) -> Text {
        Text { stops: stops.iter().filter(|stop| !stop.is_empty()).cloned().collect(), ..Text::default() }
    }

    /// Adds the bytes of a token. Invalid UTF-8 becomes U+FFFD; bytes that may still become a character are kept.
    pub fn push(&mut self, bytes: &[u8]) {
        self.incomplete.extend_from_slice(bytes);
        for chunk in std::mem::take(&mut self.incomplete).utf8_chunks() {
            self.finish(); // what is left of the chunk before this one cannot become a character
            self.add(chunk.valid());
            self.incomplete.extend_from_slice(chunk.invalid());
        }
        if std::str::from_utf8(&self.incomplete).is_err_and(|error| error.error_len().is_some()) {
            self.finish();
        }
    }

    /// Ends the text. An incomplete character becomes U+FFFD.
    pub fn finish(&mut self) {
        if !std::mem::take(&mut self.incomplete).is_empty() {
            self.add("\u{fffd}");
        }
    }

    pub fn stopped_by(&self) -> Option<&str> {
        self.stopped_by.as_deref()
    }

    /// The text, up to the stop sequence.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The text that was not returned before and cannot be the beginning of a stop sequence; at the `end` of the text, all of
    /// the rest.
    pub fn take_new(&mut self, end: bool) -> &str {
        let until = if end || self.stopped_by.is_some() { self.text.len() } else { self.safe_length() };
        let from = self.returned;
        self.returned = until.max(from);
        self.text.get(from..until).unwrap_or_default()
    }

    fn add(&mut self, text: &str) {
        if self.stopped_by.is_some() {
            return;
        }
        let longest = self.stops.iter().map(String::len).max().unwrap_or(0);
        let mut from = self.text.len().saturating_sub(longest);
        while !self.text.is_char_boundary(from) {
            from -= 1;
        }
        self.text.push_str(text);
        let found = self.stops.iter().filter_map(|stop| Some((self.text[from..].find(stop.as_str())? + from, stop)));
        if let Some((at, stop)) = found.min_by_key(|(at, _)| *at) {
            self.stopped_by = Some(stop.clone());
            self.text.truncate(at);
        }
    }

    /// The length of the text without its longest suffix that is the beginning of a stop sequence.
    fn safe_length(&self) -> usize {
        let held = self.stops.iter().filter_map(|stop| {
            let ends = (1..stop.len()).rev().filter(|length| stop.is_char_boundary(*length));
            ends.into_iter().find(|length| self.text.ends_with(&stop[..*length]))
        });
        self.text.len() - held.max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The pieces that are returned when the bytes are added one by one.
    fn stream(bytes: &[u8], stops: &[&str]) -> Vec<String> {
        let stops: Vec<String> = stops.iter().map(|stop| stop.to_string()).collect();
        let mut text = Text::new(&stops);
        let mut pieces = Vec::new();
        for byte in bytes {
            text.push(&[*byte]);
            pieces.push(text.take_new(false).to_owned());
        }
        text.finish();
        pieces.push(text.take_new(true).to_owned());
        pieces.retain(|piece| !piece.is_empty());
        pieces
    }

    #[test]
    fn characters_are_whole_however_the_bytes_arrive() {
        let all = "a é 漢字 👩‍👩‍👧 e\u{301}";
        assert_eq!(stream(all.as_bytes(), &[]).concat(), all);
        assert!(stream("👩‍👧".as_bytes(), &[]).iter().all(|piece| piece.chars().count() == 1));
        for cut in 0..all.len() {
            let mut text = Text::new(&[]);
            text.push(&all.as_bytes()[..cut]);
            text.push(&all.as_bytes()[cut..]);
            assert_eq!(text.as_str(), all);
        }
    }

    #[test]
    fn invalid_utf8_is_replaced_once_it_is_certain() {
        assert_eq!(stream(b"a\xffb", &[]), ["a", "\u{fffd}", "b"]);
        assert_eq!(stream(b"a\xe2\x82", &[]), ["a", "\u{fffd}"]);
        assert_eq!(stream(b"\xe2\x82a", &[]), ["\u{fffd}a"]);
    }

    #[test]
    fn a_stop_sequence_ends_the_text_and_no_part_of_it_is_shown() {
        assert_eq!(stream(b"one\nUser: two", &["\nUser:"]).concat(), "one");
        assert_eq!(stream(b"one\nUsed", &["\nUser:"]).concat(), "one\nUsed");
        assert_eq!(stream(b"aab", &["aab"]).concat(), "");
        assert_eq!(stream(b"aaab", &["aab"]).concat(), "a");
        assert_eq!(stream(b"one two", &["two", "ne"]).concat(), "o");
        assert_eq!(stream("x漢y".as_bytes(), &["漢z"]).concat(), "x漢y");
    }
}
