//! `--lines`: the tool as a co-process.

use std::io::{self, BufRead, BufReader, Read};

use memchr::memmem;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::cli::{Cli, Format};
use crate::failure::{self, Failure};
use crate::input::{self, Source};
use crate::mark::Mark;
use crate::output::Output;
use crate::reply;
use crate::{Error, Filter, MAX_INPUT, Reply, Tag, Verdict};

/// How many bytes of input are read at once.
const BUFFER: usize = 64 * 1024;

/// Answers are written when this many bytes have been collected, or when no further input line is buffered. They fit into
/// a pipe, so a write rarely blocks.
const FLUSH_BYTES: usize = 60 * 1024;

/// Answers every line with one line. An error in a line becomes its answer, and the next line is read, so the exit status
/// says only whether all lines were read and all answers written. The `id` of a line is repeated as the last field of its
/// answer.
pub(crate) fn answer_each<F: Filter>(
    cli: &Cli<F>,
    source: &Source<'_>,
    output: &mut Output,
) -> Result<Verdict, Failure> {
    if cli.common.output.format == Format::Summary {
        return Err(Error::invalid("--format", "a summary is more than one line; --lines cannot write it").into());
    }
    let mut reader = BufReader::with_capacity(BUFFER, source.open()?);
    let mut line = Vec::new();
    while output.has_no_error() {
        let end = memchr::memchr(b'\n', reader.buffer());
        // The writer of the input may be waiting for an answer before it sends more.
        if end.is_none() || output.filled() >= FLUSH_BYTES {
            output.flush();
        }
        match next(&mut reader, end, &mut line).map_err(|error| source.unreadable(&error))? {
            Line::End => break,
            Line::Whole => answer_one(cli, &mut line, output),
            Line::TooLong => output.text(&failure::line(&input::too_large())),
        }
    }
    Ok(Verdict::Positive)
}

fn answer_one<F: Filter>(cli: &Cli<F>, line: &mut Vec<u8>, output: &mut Output) {
    let tag = Tag::of(line);
    if tag.is_some() {
        line.truncate(line.len() - Tag::BYTES);
    }
    let mark = id_of(line);
    let result = input::text(std::mem::take(line)).and_then(|text| {
        input::check_blank(&text, cli.filter.need())?;
        let reply = Reply::to_line(output, cli.common.output.verbose, tag, mark.clone());
        let sent = cli.filter.run(&text, reply);
        *line = text.into_bytes(); // reuse the allocation
        sent
    });
    if let Err(error) = result {
        output.text(&failure::answer(&error, mark.as_ref()));
        reply::end_line(output, tag);
    }
}

/// The `id` of a line, if it is a JSON object with this field.
fn id_of(line: &[u8]) -> Option<Mark> {
    #[derive(Deserialize)]
    struct Line<'a> {
        #[serde(borrow)]
        id: Option<&'a RawValue>,
    }
    memmem::find(line, b"\"id\"")?; // most lines have none, and need not be parsed twice
    let line: Line<'_> = serde_json::from_slice(line).ok()?;
    line.id.map(|id| Mark::id(id.get()))
}

enum Line {
    Whole,
    TooLong,
    End,
}

/// Reads the next line into `line`, without its line feed. The last line may lack the line feed. `end` is the position of
/// the line's end in the buffer, if the buffer contains it.
fn next(reader: &mut BufReader<impl Read>, end: Option<usize>, line: &mut Vec<u8>) -> io::Result<Line> {
    line.clear();
    if let Some(end) = end {
        line.extend_from_slice(reader.buffer().get(..end).unwrap_or_default());
        reader.consume(end + 1);
        return Ok(Line::Whole);
    }
    let count = reader.by_ref().take(MAX_INPUT as u64 + 1).read_until(b'\n', line)?;
    if count == 0 {
        return Ok(Line::End);
    }
    if line.last() == Some(&b'\n') {
        line.pop();
    } else if line.len() > MAX_INPUT {
        line.clear();
        reader.skip_until(b'\n')?;
        return Ok(Line::TooLong);
    }
    Ok(Line::Whole)
}
