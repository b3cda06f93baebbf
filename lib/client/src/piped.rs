//! Standard input as a part of a message: `cat error.log | ken chat "what is wrong here?"`.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use ken_types::Error;

/// After this long without data, the person is told what is waited for.
const NOTE_AFTER: Duration = Duration::from_secs(2);
/// How long bytes above the limit are counted for the error. Without an end, `yes |` would be counted for ever.
const COUNT_TIME: Duration = Duration::from_secs(1);
const BLOCK: usize = 64 * 1024;

/// Whether standard input is a pipe, a socket or a file. A terminal, `/dev/null`, another device and a closed descriptor,
/// which the standard library replaces by `/dev/null`, hold nothing to send.
pub fn is_piped() -> bool {
    let file = io::stdin().as_fd().try_clone_to_owned().map(File::from);
    let kind = file.and_then(|file| file.metadata()).map(|metadata| metadata.file_type());
    // sshd passes its client's input through a socket.
    kind.is_ok_and(|kind| kind.is_fifo() || kind.is_socket() || kind.is_file())
}

/// Reads standard input to its end. `note` is called once with a text for the person if nothing comes for two seconds.
///
/// # Errors
/// `too_large` above `max` bytes, with both sizes; `deadline` if nothing has come for `patience`; `invalid` if it cannot be
/// read.
pub fn read_stdin(max: usize, patience: Duration, note: impl FnOnce(&str)) -> Result<Vec<u8>, Error> {
    read(&blocks(), max, patience, note)
}

type Blocks = Receiver<io::Result<Vec<u8>>>;

fn read(blocks: &Blocks, max: usize, patience: Duration, note: impl FnOnce(&str)) -> Result<Vec<u8>, Error> {
    let (mut bytes, mut note) = (Vec::new(), Some(note));
    let mut heard = Instant::now();
    while bytes.len() <= max {
        let silent = heard.elapsed();
        if silent >= NOTE_AFTER
            && let Some(note) = note.take()
        {
            note("waiting for the end of standard input; `< /dev/null` sends the message without it");
        }
        if silent >= patience {
            let message = format!("standard input is open, and nothing has come from it for {} s", silent.as_secs());
            return Err(Error::deadline(message).hint("`< /dev/null` sends the message without it"));
        }
        let next = if note.is_some() { NOTE_AFTER.min(patience) } else { patience };
        match blocks.recv_timeout(next.saturating_sub(silent)) {
            Ok(block) => {
                bytes.extend(block.map_err(|error| Error::invalid("-", format!("standard input: {error}")))?);
                heard = Instant::now();
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Ok(bytes),
        }
    }
    Err(too_large(bytes.len(), max, blocks))
}

/// Reads standard input in a thread, because a pipe that stays open would block for ever. The channel ends with the input.
fn blocks() -> Blocks {
    let (sender, blocks) = sync_channel(1);
    std::thread::spawn(move || {
        let mut input = io::stdin().lock();
        let mut block = vec![0; BLOCK];
        loop {
            let read = match input.read(&mut block) {
                Ok(0) => return,
                Ok(count) => Ok(block.get(..count).unwrap_or_default().to_vec()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => Err(error),
            };
            let is_over = read.is_err();
            if sender.send(read).is_err() || is_over {
                return;
            }
        }
    });
    blocks
}

/// Counts what follows, and returns the error for an input above the limit.
fn too_large(read: usize, max: usize, blocks: &Blocks) -> Error {
    let (mut size, end) = (read, Instant::now() + COUNT_TIME);
    let about = loop {
        match blocks.recv_timeout(end.saturating_duration_since(Instant::now())) {
            Ok(Ok(block)) if Instant::now() < end => size = size.saturating_add(block.len()),
            Err(RecvTimeoutError::Disconnected) => break "",
            _ => break "more than ",
        }
    };
    Error::too_large(format!("standard input has {about}{size} bytes, at most {max} can be sent"))
        .hint("send a part of it, such as `tail -n 500 FILE | …`")
}

/// Returns standard input as text.
///
/// # Errors
/// `invalid` for anything but text in UTF-8. The hint says how an image is sent.
pub fn text_of_stdin(bytes: Vec<u8>) -> Result<String, Error> {
    let wrong = |what: String| {
        let error = Error::invalid("-", format!("standard input is not text: {what}"));
        error.hint("`-a -` sends a PNG, JPEG, GIF or WebP image; `iconv -t UTF-8` converts other text")
    };
    if let Some(at) = bytes.iter().position(|byte| *byte == 0) {
        return Err(wrong(format!("byte {at} is NUL")));
    }
    String::from_utf8(bytes).map_err(|error| wrong(format!("not UTF-8 at byte {}", error.utf8_error().valid_up_to())))
}

/// Puts a text into a Markdown code block below a line that names it.
pub fn fenced(heading: &str, text: &str) -> String {
    let fence = fence_for(text);
    format!("{heading}:\n\n{fence}\n{}\n{fence}", text.trim_end_matches('\n'))
}

/// Returns a fence for a code block that is longer than any run of backquotes in the text, so that the text cannot close it.
pub fn fence_for(text: &str) -> String {
    let longest = text.split(|letter| letter != '`').map(str::len).max().unwrap_or_default();
    "`".repeat((longest + 1).max(3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_closes_its_fence() {
        for (text, fence) in [("plain", "```"), ("```\ncode\n```", "````"), ("`````", "``````")] {
            assert_eq!(fenced("stdin", text), format!("stdin:\n\n{fence}\n{text}\n{fence}"));
        }
    }

    #[test]
    fn an_input_that_stays_silent_is_given_up_after_the_wait_that_was_asked_for() {
        for (patience, notes) in [(Duration::from_millis(20), 0), (NOTE_AFTER + Duration::from_millis(20), 1)] {
            let (_open, blocks) = sync_channel(1);
            let (begun, mut shown) = (Instant::now(), 0);
            let error = read(&blocks, 8, patience, |_| shown += 1).unwrap_err();
            assert_eq!((error.code, shown), (ken_types::Code::Deadline, notes));
            assert!((patience..patience + Duration::from_secs(1)).contains(&begun.elapsed()), "{:?}", begun.elapsed());
        }
    }

    #[test]
    fn the_largest_input_is_read_and_one_byte_more_is_refused_with_its_size() {
        for (sent, expected) in [(8, Ok(8)), (9, Err("standard input has 9 bytes, at most 8 can be sent"))] {
            let (sender, blocks) = sync_channel(2);
            sender.send(Ok(vec![b'x'; sent - 1])).unwrap();
            sender.send(Ok(vec![b'x'])).unwrap();
            drop(sender);
            let read = read(&blocks, 8, Duration::from_secs(60), |_| {}).map(|bytes| bytes.len());
            assert_eq!(read.as_ref().map_err(|error| error.message.as_str()), expected.as_ref().map_err(|why| *why));
        }
    }

    #[test]
    fn only_text_is_text() {
        assert_eq!(text_of_stdin(b"a\nb".to_vec()).unwrap(), "a\nb");
        for (bytes, why) in [(&b"a\0b"[..], "byte 1 is NUL"), (b"ab\xff", "not UTF-8 at byte 2")] {
            let error = text_of_stdin(bytes.to_vec()).unwrap_err();
            assert!(error.to_string().starts_with(&format!("standard input is not text: {why}; ")), "{error}");
            assert!(error.message.ends_with(why) && error.hint.unwrap().contains("-a -"), "{}", error.message);
        }
    }
}
