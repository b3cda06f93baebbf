//! Continues one prompt.

use std::io::{IsTerminal, Read};
use std::path::Path;

use ken_textgen::generate::{Generator, Run};
use ken_textgen::load::Opened;
use ken_tool::{Failure, Output};
use ken_types::Error;

use crate::answer::{Tag, Trim, indented, line};
use crate::cli::{Cli, Format};
use crate::parameters::{self, Request};

/// What is asked for, and whether it was asked in JSON, which is then also the default format of the answer.
pub(crate) fn request(cli: &Cli) -> Result<(Request, bool), Failure> {
    let (request, is_json) = match &cli.prompt {
        Some(prompt) => (Request { prompt: prompt.clone(), ..Request::default() }, false),
        None => Request::of_input(input(cli)?)?,
    };
    if request.prompt.trim().is_empty() {
        return Err(Error::invalid(if is_json { "/prompt" } else { "--prompt" }, "the prompt is empty").into());
    }
    Ok((request, is_json))
}

/// The file that the options name, or standard input.
fn input(cli: &Cli) -> Result<String, Failure> {
    let input = match &cli.prompt_file {
        Some(path) if path.as_os_str() != "-" => read(std::fs::File::open(path), path)?,
        None if std::io::stdin().is_terminal() => {
            let usage = "Usage: ken-textgen --model-dir DIR --prompt TEXT [OPTIONS]";
            return Err(Failure::NothingToRead(usage.to_owned()));
        }
        _ => read(Ok(std::io::stdin().lock()), Path::new("standard input"))?,
    };
    // A line feed at the end of a file is not part of the prompt.
    let line = input.strip_suffix('\n').map(|line| line.strip_suffix('\r').unwrap_or(line));
    Ok(line.unwrap_or(&input).to_owned())
}

fn read<R: Read>(source: std::io::Result<R>, path: &Path) -> Result<String, Error> {
    let unreadable = |error| ken_tool::unreadable(path, &error).at("--prompt-file");
    let mut bytes = Vec::new();
    let source = source.map_err(unreadable)?;
    source.take(ken_tool::MAX_INPUT as u64 + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() > ken_tool::MAX_INPUT {
        return Err(Error::too_large(format!("{} is larger than {} bytes", path.display(), ken_tool::MAX_INPUT)));
    }
    String::from_utf8(bytes).map_err(|error| {
        let place = error.utf8_error().valid_up_to();
        Error::invalid("--prompt-file", format!("{} is not UTF-8 at byte {place}", path.display()))
    })
}

/// Generates the text and writes it in the format that the options ask for.
pub(crate) fn answer(
    cli: &Cli,
    opened: Opened,
    (mut request, is_json): (Request, bool),
    output: &mut Output,
) -> Result<(), Error> {
    let flags = parameters::from_flags(cli, &opened.generation)?;
    let tokens = opened.encoder.encode(&request.prompt)?;
    let tag = Tag { line: None, id: request.id.take() };
    let stream = request.stream.unwrap_or(cli.stream);
    let parameters = parameters::from_request(request, &flags)?;
    let mut run = Run::new(&opened.generator.model, tokens, &parameters)?;
    let measure = opened.measure;
    let generator = if cli.int8 { opened.drop_encoder() } else { opened.forget_encoder() };
    let format = cli.format.unwrap_or(if is_json { Format::Json } else { Format::Text });
    let mut writer = Writer { format, stream, trim: Trim::default(), tag };
    generate(&generator, &mut run, measure, |run| {
        writer.piece(run, output);
        output.has_no_error()
    })?;
    writer.finish(&mut run, output);
    Ok(())
}

/// Generates tokens until the text ends or `each` reports that the output is closed.
fn generate(
    generator: &Generator,
    run: &mut Run,
    measure: bool,
    mut each: impl FnMut(&mut Run) -> bool,
) -> Result<(), Error> {
    let mut first = true;
    while run.reason.is_none() {
        generator.step(&mut [run])?;
        if !each(run) {
            return Ok(());
        }
        if std::mem::take(&mut first) && measure {
            generator.model.choose_threads();
        }
    }
    Ok(())
}

struct Writer {
    format: Format,
    stream: bool,
    trim: Trim,
    tag: Tag,
}

impl Writer {
    /// Writes and flushes the new text, so that the reader sees each token at once.
    fn piece(&mut self, run: &mut Run, output: &mut Output) {
        if !self.stream {
            return;
        }
        let new = run.text.take_new(run.reason.is_some());
        let text = match self.format {
            Format::Text => self.trim.pass(new),
            Format::Json | Format::Compact if new.is_empty() => return,
            Format::Json | Format::Compact => line(&self.tag.piece(new)),
        };
        if !text.is_empty() {
            output.text(&text);
            output.flush();
        }
    }

    fn finish(&self, run: &mut Run, output: &mut Output) {
        match (self.format, self.stream) {
            (Format::Text, true) => output.text("\n"),
            (Format::Text, false) => output.text(&format!("{}\n", run.text.as_str().trim())),
            (Format::Json, false) => output.text(&indented(&self.tag.answer(run))),
            (Format::Compact, _) | (Format::Json, true) => output.text(&line(&self.tag.answer(run))),
        }
    }
}
