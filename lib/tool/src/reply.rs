//! What a tool answers, and how it is written.

use std::fmt;
use std::io;
use std::process::ExitCode;

use serde::Serialize;

use crate::Tag;
use crate::cli::{Format, Shown};
use crate::json;
use crate::mark::Mark;
use crate::output::Output;

/// An answer: its serialisation is the JSON document, with the fields in the order of the contract.
pub trait Answer: Serialize {
    /// Whether the answer is a yes; a no ends the tool with exit status 1.
    fn verdict(&self) -> Verdict {
        Verdict::Positive
    }

    /// The answer as text for people, whole lines; `verbose` asks for the details too.
    fn summary(&self, verbose: bool, to: &mut dyn fmt::Write) -> fmt::Result;

    /// The document on one line, without its line feed. For a tool whose answers are many times its input and that has a
    /// quicker way than its serialisation; the bytes must be the same.
    fn line(&self, to: &mut Output) {
        json::compact(self, None, to);
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Done: exit status 0.
    Positive,
    /// Done, and the answer is no (validator FAIL, VVP failure): exit status 1.
    Negative,
}

impl Verdict {
    pub(crate) fn exit_code(self) -> ExitCode {
        match self {
            Verdict::Positive => ExitCode::SUCCESS,
            Verdict::Negative => ExitCode::from(1),
        }
    }
}

/// The one place for the answer to one input.
pub struct Reply<'a> {
    output: &'a mut Output,
    format: Format,
    verbose: bool,
    tag: Option<Tag>,
    mark: Option<Mark>,
}

/// That an answer was sent: only [`Reply::send`] makes one, so [`crate::Filter::run`] sends exactly one.
#[derive(Debug)]
pub struct Sent(Verdict);

impl Sent {
    pub(crate) fn verdict(&self) -> Verdict {
        self.0
    }
}

impl<'a> Reply<'a> {
    pub(crate) fn new(output: &'a mut Output, shown: &Shown) -> Reply<'a> {
        Reply {
            output,
            format: shown.format,
            verbose: shown.verbose,
            tag: None,
            mark: None,
        }
    }

    /// On one line, in answer to a line with this tag and this id.
    pub(crate) fn to_line(
        output: &'a mut Output,
        verbose: bool,
        tag: Option<Tag>,
        mark: Option<Mark>,
    ) -> Reply<'a> {
        Reply {
            output,
            format: Format::Compact,
            verbose,
            tag,
            mark,
        }
    }

    /// Adds the name of the file that the answer is about.
    pub(crate) fn about(self, file: &str) -> Reply<'a> {
        Reply {
            mark: Some(Mark::file(file)),
            ..self
        }
    }

    /// Whether `--verbose` asks for the details, for answers whose document has them too.
    pub fn is_verbose(&self) -> bool {
        self.verbose
    }

    /// Writes the answer in the format that the flags chose. The answer may borrow from the input: it is written here
    /// and now, in blocks, never held as one text. Whether it arrived is the skeleton's to report.
    pub fn send(self, answer: &impl Answer) -> Sent {
        let Reply {
            output,
            format,
            verbose,
            tag,
            mark,
        } = self;
        match format {
            Format::Summary => {
                let mut text = mark.as_ref().map_or_else(String::new, Mark::heading);
                match answer.summary(verbose, &mut text) {
                    Ok(()) => output.text(&text),
                    Err(error) => output.fail(io::Error::other(error)),
                }
            }
            Format::Json => json::open(answer, mark.as_ref(), output),
            Format::Compact if mark.is_some() => json::compact(answer, mark.as_ref(), output),
            Format::Compact => answer.line(output),
        }
        if format != Format::Summary {
            end_line(output, tag);
        }
        Sent(answer.verdict())
    }
}

pub(crate) fn end_line(output: &mut Output, tag: Option<Tag>) {
    output.push(tag.as_ref().map_or(&[], Tag::as_bytes));
    output.text("\n");
}
