//! The answer of a tool, and how it is written.

use std::fmt;
use std::io;
use std::process::ExitCode;

use serde::Serialize;

use crate::Tag;
use crate::cli::{Format, OutputFlags};
use crate::json;
use crate::mark::Mark;
use crate::output::Output;

/// An answer: its serialisation is the JSON document, with the fields in the order of the contract.
pub trait Answer: Serialize {
    /// Whether the answer is positive; a negative one gives exit status 1.
    fn verdict(&self) -> Verdict {
        Verdict::Positive
    }

    /// Writes the answer as lines of text for people; `verbose` adds details.
    fn summary(&self, verbose: bool, to: &mut dyn fmt::Write) -> fmt::Result;

    /// Writes the document on one line, without a line feed. A tool may override it with something faster that writes the
    /// same bytes.
    fn line(&self, to: &mut Output) {
        json::compact(self, None, to);
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Success: exit status 0.
    Positive,
    /// A negative answer, such as a validator's FAIL or a failed verification: exit status 1.
    Negative,
}

impl From<bool> for Verdict {
    fn from(is_positive: bool) -> Verdict {
        if is_positive { Verdict::Positive } else { Verdict::Negative }
    }
}

impl Verdict {
    pub(crate) fn exit_code(self) -> ExitCode {
        match self {
            Verdict::Positive => ExitCode::SUCCESS,
            Verdict::Negative => ExitCode::from(1),
        }
    }
}

/// Takes the answer to one input.
pub struct Reply<'a> {
    output: &'a mut Output,
    format: Format,
    verbose: bool,
    tag: Option<Tag>,
    mark: Option<Mark>,
}

/// Proof that an answer was sent. Only [`Reply::send`] returns it, so [`crate::Filter::run`] sends exactly one.
#[derive(Debug)]
pub struct Replied(Verdict);

impl Replied {
    pub(crate) fn verdict(&self) -> Verdict {
        self.0
    }
}

impl<'a> Reply<'a> {
    pub(crate) fn new(output: &'a mut Output, flags: &OutputFlags) -> Reply<'a> {
        Reply { output, format: flags.format, verbose: flags.verbose, tag: None, mark: None }
    }

    /// A reply to a line of `--lines` with this tag and this id.
    pub(crate) fn to_line(output: &'a mut Output, verbose: bool, tag: Option<Tag>, mark: Option<Mark>) -> Reply<'a> {
        Reply { output, format: Format::Compact, verbose, tag, mark }
    }

    /// Adds the name of the file that the answer is about, if there are several.
    pub(crate) fn about(mut self, file: Option<&str>) -> Reply<'a> {
        self.mark = file.map(Mark::file);
        self
    }

    /// Whether `--verbose` was given, for answers whose JSON depends on it.
    pub fn is_verbose(&self) -> bool {
        self.verbose
    }

    /// Writes the answer in the format that the flags choose. It is written in blocks and may borrow from the input. An
    /// error of the output is reported when the tool ends.
    pub fn send(self, answer: &impl Answer) -> Replied {
        let Reply { output, format, verbose, tag, mark } = self;
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
        Replied(answer.verdict())
    }
}

pub(crate) fn end_line(output: &mut Output, tag: Option<Tag>) {
    output.push(tag.as_ref().map_or(&[], Tag::as_bytes));
    output.text("\n");
}
