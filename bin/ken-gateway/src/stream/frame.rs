//! The frames of server-sent events: data and control.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use ken_http::{Failure, Response};
use ken_types::ops::store::StreamPage;

use super::page::body;
use super::subject::{Form, Kind};

/// The position of a reader, and whether it is the end of a closed stream.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Position {
    pub(crate) next: u64,
    pub(crate) at_end: bool,
    pub(crate) closed: bool,
}

impl Position {
    pub(crate) fn after(page: &StreamPage) -> Position {
        Position { next: page.next, at_end: page.at_end(), closed: page.at_end() && page.closed }
    }

    /// Adds the headers that a client needs to continue from here.
    pub(crate) fn put(self, kind: Kind, response: Response) -> Result<Response, Failure> {
        let offset = kind.offset(self.next).to_string();
        let mut response = response.text_header("stream-next-offset", &offset)?;
        if self.at_end {
            response = response.text_header("stream-up-to-date", "true")?;
        }
        if self.closed {
            response = response.text_header("stream-closed", "true")?;
        }
        Ok(response)
    }

    pub(crate) fn control(self, kind: Kind, cursor: u64) -> Bytes {
        let offset = kind.offset(self.next);
        if self.closed {
            let text = format!("event: control\ndata:{{\"streamNextOffset\":\"{offset}\",\"streamClosed\":true}}\n\n");
            return text.into();
        }
        let up_to_date = if self.at_end { ",\"upToDate\":true" } else { "" };
        let data = format!("{{\"streamNextOffset\":\"{offset}\",\"streamCursor\":\"{cursor}\"{up_to_date}}}");
        format!("event: control\ndata:{data}\n\n").into()
    }
}

/// Returns a page as a data frame, or no bytes for an empty page. The frame's `id` is the offset after the page, from
/// which a browser's EventSource resumes automatically.
pub(crate) fn data_frame(mut page: StreamPage, form: Form, kind: Kind) -> Bytes {
    if page.is_empty() {
        return Bytes::new();
    }
    let body = body(&mut page);
    let mut frame = format!("id: {}\nevent: data\n", kind.offset(page.next)).into_bytes();
    match form {
        // Serialised JSON contains no line ends, so it is one line.
        Form::Json => push_line(&mut frame, &body),
        Form::Bytes => push_line(&mut frame, STANDARD.encode(&body).as_bytes()),
        Form::Text => lines(&body).for_each(|line| push_line(&mut frame, line)),
    }
    frame.push(b'\n');
    frame.into()
}

fn push_line(frame: &mut Vec<u8>, line: &[u8]) {
    frame.extend_from_slice(b"data:");
    // Readers take away one blank after the colon.
    if line.starts_with(b" ") {
        frame.push(b' ');
    }
    frame.extend_from_slice(line);
    frame.push(b'\n');
}

/// Splits a text at CR, LF and CRLF, because each of them ends a line in this format.
fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest?;
        let Some(end) = text.iter().position(|byte| matches!(byte, b'\r' | b'\n')) else {
            rest = None;
            return Some(text);
        };
        let (line, ended) = text.split_at_checked(end)?;
        rest = ended.strip_prefix(b"\r\n").or_else(|| ended.get(1..));
        Some(line)
    })
}
