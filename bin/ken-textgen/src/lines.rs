//! `--lines`: a co-process that answers many prompts. Texts that are requested at the same time are generated together, so that
//! the weights are read once for all of them.

use std::collections::VecDeque;
use std::io::BufRead;
use std::sync::mpsc::{Receiver, RecvError, SyncSender, TryRecvError, sync_channel};

use ken_textgen::generate::{Generator, Parameters, Run};
use ken_textgen::load::Opened;
use ken_textgen::vocabulary::Encoder;
use ken_tool::Output;
use ken_types::Error;

use crate::answer::{Tag, line};
use crate::cli::{Cli, Format};
use crate::parameters::{self, Request};

/// Maximum number of lines that have been read but not begun.
const MAX_WAITING: usize = 64;

/// Answers each line of standard input, or of the file that the flags name, in the order of the lines.
pub(crate) fn answer(cli: &Cli, opened: Opened, output: &mut Output) -> Result<(), Error> {
    if cli.format == Some(Format::Text) {
        return Err(Error::invalid("--format", "a text may have several lines; --lines writes JSON"));
    }
    let flags = parameters::from_flags(cli, &opened.generation)?;
    let input = input(cli)?;
    let mut batch = Batch {
        generator: opened.generator,
        encoder: opened.encoder,
        flags,
        stream: cli.stream,
        max: usize::from(cli.batch),
        measure: opened.measure,
        slots: VecDeque::new(),
        lines: 0,
    };
    batch.answer_all(&read_ahead(input), output)
}

/// A text that is being generated, or a finished answer that waits for the answers before it.
enum Slot {
    Grows { run: Box<Run>, tag: Tag, stream: bool },
    Done(String),
}

struct Batch {
    generator: Generator,
    encoder: Encoder,
    flags: Parameters,
    stream: bool,
    max: usize,
    measure: bool,
    /// In the order of the lines.
    slots: VecDeque<Slot>,
    lines: usize,
}

impl Batch {
    fn answer_all(&mut self, lines: &Receiver<Line>, output: &mut Output) -> Result<(), Error> {
        loop {
            let more = self.admit(lines)?;
            self.write_done(output);
            output.flush();
            if !output.has_no_error() || (self.slots.is_empty() && !more) {
                return Ok(());
            }
            self.step();
            self.write_pieces(output);
        }
    }

    /// Begins the texts of waiting lines while there is room. Blocks for a line only if no text is being generated. Returns false
    /// once the input has ended.
    fn admit(&mut self, lines: &Receiver<Line>) -> Result<bool, Error> {
        while self.slots.len() < self.max {
            let next = if self.slots.is_empty() {
                lines.recv().map_err(|RecvError| TryRecvError::Disconnected)
            } else {
                lines.try_recv()
            };
            match next {
                Ok(Line::Whole(text)) => {
                    let slot = self.slot(text);
                    self.slots.push_back(slot);
                }
                Ok(Line::Broken(error)) => return Err(error),
                Err(TryRecvError::Empty) => return Ok(true),
                Err(TryRecvError::Disconnected) => return Ok(false),
            }
        }
        Ok(true)
    }

    fn slot(&mut self, text: Result<String, Error>) -> Slot {
        self.lines += 1;
        let mut tag = Tag { line: Some(self.lines), id: None };
        let run = text.and_then(|text| Request::parse(&text)).and_then(|mut request| {
            tag.id = request.id.take();
            let stream = request.stream.unwrap_or(self.stream);
            if request.prompt.trim().is_empty() {
                return Err(Error::invalid("/prompt", "the prompt is empty"));
            }
            let tokens = self.encoder.encode(&request.prompt)?;
            let parameters = parameters::from_request(request, &self.flags)?;
            Ok((Box::new(Run::new(&self.generator.model, tokens, &parameters)?), stream))
        });
        match run {
            Ok((run, stream)) => Slot::Grows { run, tag, stream },
            Err(error) => Slot::Done(tag.error(&error)),
        }
    }

    /// Generates one token for every unfinished text. An error of the model becomes the answer to all of them.
    fn step(&mut self) {
        let mut runs: Vec<&mut Run> = self.slots.iter_mut().filter_map(Slot::run).collect();
        if runs.is_empty() {
            return;
        }
        if let Err(error) = self.generator.step(&mut runs) {
            for slot in &mut self.slots {
                if let Slot::Grows { tag, .. } = slot {
                    *slot = Slot::Done(tag.error(&error));
                }
            }
        } else if std::mem::take(&mut self.measure) {
            self.generator.model.choose_threads();
        }
    }

    fn write_pieces(&mut self, output: &mut Output) {
        for slot in &mut self.slots {
            let Slot::Grows { run, tag, stream } = slot else {
                continue;
            };
            if *stream {
                let new = run.text.take_new(run.reason.is_some());
                if !new.is_empty() {
                    output.text(&line(&tag.piece(new)));
                }
            }
            if run.reason.is_some() {
                *slot = Slot::Done(line(&tag.answer(run)));
            }
        }
    }

    fn write_done(&mut self, output: &mut Output) {
        while let Some(Slot::Done(_)) = self.slots.front() {
            if let Some(Slot::Done(text)) = self.slots.pop_front() {
                output.text(&text);
            }
        }
    }
}

impl Slot {
    fn run(&mut self) -> Option<&mut Run> {
        match self {
            Slot::Grows { run, .. } => Some(run),
            Slot::Done(_) => None,
        }
    }
}

type Input = Box<dyn BufRead + Send>;

pub(crate) fn input(cli: &Cli) -> Result<Input, Error> {
    match &cli.prompt_file {
        Some(path) if path.as_os_str() != "-" => {
            let file = std::fs::File::open(path).map_err(|error| ken_tool::unreadable(path, &error))?;
            Ok(Box::new(std::io::BufReader::new(file)))
        }
        _ => Ok(Box::new(std::io::BufReader::new(std::io::stdin()))),
    }
}

/// Starts a thread that reads lines while texts are generated, and skips blank lines. The thread ends with the input or the
/// process.
pub(crate) fn read_ahead(mut input: Input) -> Receiver<Line> {
    let (sender, receiver) = sync_channel(MAX_WAITING);
    std::thread::spawn(move || while read_one(&mut input, &sender) {});
    receiver
}

/// A result of reading.
pub(crate) enum Line {
    /// A line, or the reason why it cannot be read.
    Whole(Result<String, Error>),
    /// The input cannot be read any further.
    Broken(Error),
}

/// Reads a line and sends it. Returns false if the input has ended or the receiver was dropped.
fn read_one(input: &mut Input, sender: &SyncSender<Line>) -> bool {
    match read_line(input) {
        Ok(Some(Ok(line))) if line.trim().is_empty() => true,
        Ok(Some(line)) => sender.send(Line::Whole(line)).is_ok(),
        Ok(None) => false,
        Err(error) => {
            let broken = Error::invalid("", format!("cannot read the input: {error}"));
            let _ = sender.send(Line::Broken(broken)); // fails only if the receiver was dropped
            false
        }
    }
}

/// The next line without its line feed; `None` at the end of the input.
fn read_line(input: &mut Input) -> std::io::Result<Option<Result<String, Error>>> {
    let mut bytes = Vec::new();
    let limit = ken_tool::MAX_INPUT as u64 + 1;
    if std::io::Read::take(&mut *input, limit).read_until(b'\n', &mut bytes)? == 0 {
        return Ok(None);
    }
    if bytes.last() == Some(&b'\n') {
        bytes.pop();
    } else if bytes.len() > ken_tool::MAX_INPUT {
        input.skip_until(b'\n')?;
        let fault = format!("a line is longer than {} bytes", ken_tool::MAX_INPUT);
        return Ok(Some(Err(Error::too_large(fault))));
    }
    Ok(Some(match String::from_utf8(bytes) {
        Ok(line) => Ok(line.trim_end_matches('\r').to_owned()),
        Err(error) => {
            let place = error.utf8_error().valid_up_to();
            Err(Error::invalid("", format!("a line is not UTF-8 at byte {place}")))
        }
    }))
}
