use std::ops::Range;

/// The texts of a document in order. Each takes eight bytes: a range in the document or, if the text contains escapes,
/// a range in a separate buffer.
#[derive(Default)]
pub(crate) struct Wordings<'a> {
    document: &'a str,
    own: String,
    places: Vec<Place>,
}

/// A text to be added: its range in the document or, if it contains escapes, the unescaped text.
pub(crate) enum Part {
    Place { start: usize, end: usize },
    Own(String),
}

struct Place {
    start: u32,
    /// The length, with [`DECODED_FLAG`] set if the text is in the separate buffer.
    length: u32,
}

const DECODED_FLAG: u32 = 1 << 31;

impl<'a> Wordings<'a> {
    pub(crate) fn of(document: &'a str) -> Wordings<'a> {
        Wordings { document, own: String::new(), places: Vec::new() }
    }

    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    pub(crate) fn get(&self, number: usize) -> &str {
        let Some(place) = self.places.get(number) else {
            return "";
        };
        let (text, length) = match place.length & DECODED_FLAG {
            0 => (self.document, place.length),
            _ => (self.own.as_str(), place.length - DECODED_FLAG),
        };
        let start = place.start as usize;
        text.get(start..start + length as usize).unwrap_or_default()
    }

    /// Returns the text of a rule as it is written in the document; `None` if an answer would write it differently,
    /// because it contains blanks or escapes or has no premises.
    pub(crate) fn as_written(&self, texts: Range<usize>) -> Option<&str> {
        let places = self.places.get(texts)?;
        let [first, .., conclusion] = places else {
            return None;
        };
        let start = (first.start as usize).checked_sub("[[\"".len())?;
        let end = conclusion.start as usize + conclusion.length as usize + "\"]".len();
        let letters: usize = places.iter().map(|place| place.length as usize).sum();
        let shortest = letters + 3 * places.len() + 3;
        let text = self.document.get(start..end)?;
        (text.len() == shortest && text.starts_with("[[") && text.ends_with(']')).then_some(text)
    }

    pub(crate) fn push(&mut self, part: Part) {
        let place = match part {
            Part::Place { start, end } => Place { start: start as u32, length: (end - start) as u32 },
            Part::Own(text) => self.keep(&text),
        };
        self.places.push(place);
    }

    fn keep(&mut self, text: &str) -> Place {
        let start = self.own.len() as u32;
        self.own.push_str(text);
        Place { start, length: text.len() as u32 | DECODED_FLAG }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_found_where_they_are() {
        let mut wordings = Wordings::of("one two");
        wordings.push(Part::Place { start: 4, end: 7 });
        wordings.push(Part::Own("three".to_owned()));
        wordings.push(Part::Own("é".to_owned()));
        wordings.push(Part::Place { start: 0, end: 3 });
        let all: Vec<&str> = (0..=wordings.len()).map(|number| wordings.get(number)).collect();
        assert_eq!(all, ["two", "three", "é", "one", ""]);
    }
}
