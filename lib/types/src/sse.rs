//! A parser for server-sent events (HTML standard, section 9.2.6). A chunk can end at any byte, even within a
//! character.

use crate::Error;

/// The maximum size of an event's data, in MiB. A larger event is an error.
const MAX_DATA_MIB: usize = 8;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Event {
    /// The event's name. Empty if the stream gives none.
    pub name: String,
    pub data: String,
    pub id: Option<String>,
}

/// Parses a stream chunk by chunk.
#[derive(Debug, Default)]
pub struct Parser {
    line: Vec<u8>,
    open: Event,
    has_data: bool,
    /// Whether the last byte was CR. An LF right after it belongs to the same line end.
    after_cr: bool,
    started: bool,
}

impl Parser {
    /// Parses the next chunk; returns the events that it completes.
    ///
    /// # Errors
    /// `invalid` for an event of more than 8 MiB: a server that is asked again sends it again.
    pub fn push(&mut self, chunk: &[u8]) -> Result<Vec<Event>, Error> {
        let mut events = Vec::new();
        for byte in chunk {
            match byte {
                b'\n' if self.after_cr => {}
                b'\n' | b'\r' => events.extend(self.end_line()),
                _ => self.line.push(*byte),
            }
            self.after_cr = *byte == b'\r';
            if self.line.len() + self.open.data.len() > MAX_DATA_MIB * 1024 * 1024 {
                let message = format!("the server sent an event of more than {MAX_DATA_MIB} MiB");
                return Err(Error::invalid("", message));
            }
        }
        Ok(events)
    }

    /// Ends the stream. Returns the last event if only its blank line is missing.
    pub fn finish(mut self) -> Option<Event> {
        let unfinished = self.end_line();
        unfinished.or_else(|| self.dispatch())
    }

    fn end_line(&mut self) -> Option<Event> {
        let line = std::mem::take(&mut self.line);
        let line = String::from_utf8_lossy(&line);
        let line =
            if !std::mem::replace(&mut self.started, true) { line.trim_start_matches('\u{feff}') } else { &line };
        if line.is_empty() {
            return self.dispatch();
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "data" => {
                if self.has_data {
                    self.open.data.push('\n');
                }
                self.open.data.push_str(value);
                self.has_data = true;
            }
            "event" => value.clone_into(&mut self.open.name),
            "id" => self.open.id = Some(value.to_owned()),
            _ => {} // comments, `retry`
        }
        None
    }

    fn dispatch(&mut self) -> Option<Event> {
        let event = std::mem::take(&mut self.open);
        std::mem::take(&mut self.has_data).then_some(event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn all(chunks: &[&[u8]]) -> Vec<Event> {
        let mut parser = Parser::default();
        let mut events = Vec::new();
        for chunk in chunks {
            events.extend(parser.push(chunk).unwrap());
        }
        events.extend(parser.finish());
        events
    }

    fn event(name: &str, data: &str) -> Event {
        Event { name: name.into(), data: data.into(), id: None }
    }

    #[test]
    fn every_form_of_the_format_is_read() {
        let text = "\u{feff}: keep-alive\r\n\r\ndata:a\r\ndata: b\r\n\r\nevent: x\rdata\r\rid: 7\nretry: 3\nevent: y\n\n\
                    data:  two blanks\n\ndata: [DONE]";
        let wanted = [event("", "a\nb"), event("x", ""), event("", " two blanks"), event("", "[DONE]")];
        assert_eq!(all(&[text.as_bytes()]), wanted);
    }

    #[test]
    fn a_line_without_an_end_is_bounded() {
        let mut parser = Parser::default();
        let chunk = vec![b'x'; 1024 * 1024];
        let refused = (0..9).find_map(|_| parser.push(&chunk).err());
        assert_eq!(refused.unwrap().message, "the server sent an event of more than 8 MiB");
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn any_cut_gives_the_same_events(
            lines in prop::collection::vec("(data|event|:)?:? ?[a-zé🦀語\u{301}]{0,6}(\n|\r\n|\r|\n\n)", 0..12),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
        ) {
            let text = lines.concat();
            let bytes = text.as_bytes();
            let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
            at.extend([0, bytes.len()]);
            at.sort_unstable();
            let chunks: Vec<&[u8]> = at.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
            prop_assert_eq!(all(&chunks), all(&[bytes]));
            let single: Vec<&[u8]> = bytes.chunks(1).collect();
            prop_assert_eq!(all(&single), all(&[bytes]));
        }
    }
}
