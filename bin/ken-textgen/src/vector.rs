//! `--embed`: the vector of each text.

use ken_textgen::embed::Embedder;
use ken_tool::{Failure, Output};
use ken_types::Error;
use serde::Serialize;
use serde_json::Value;

use crate::answer::{Tag, indented, line};
use crate::cli::{Cli, Format};
use crate::lines::{Line, input, read_ahead};
use crate::parameters::Request;
use crate::single;

#[derive(Serialize)]
struct Answer<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a Value>,
    vector: &'a [f32],
    tokens: usize,
}

pub(crate) fn answer(cli: &Cli, embedder: &Embedder, output: &mut Output) -> Result<(), Failure> {
    if cli.format == Some(Format::Text) {
        return Err(Error::invalid("--format", "a vector is written as JSON").into());
    }
    if !cli.lines {
        let found = embedder.embed(&single::request(cli)?.0.prompt)?;
        let answer = Answer { line: None, id: None, vector: &found.vector, tokens: found.tokens };
        output.text(&match cli.format {
            Some(Format::Json) => indented(&answer),
            _ => line(&answer),
        });
        return Ok(());
    }
    for (number, read) in read_ahead(input(cli)?).iter().enumerate() {
        let text = match read {
            Line::Whole(text) => text,
            Line::Broken(error) => return Err(error.into()),
        };
        output.text(&answer_to(embedder, number + 1, text));
        output.flush();
        if !output.has_no_error() {
            break;
        }
    }
    Ok(())
}

fn answer_to(embedder: &Embedder, number: usize, text: Result<String, Error>) -> String {
    let mut tag = Tag { line: Some(number), id: None };
    let found = text.and_then(|text| Request::parse(&text)).and_then(|mut request| {
        tag.id = request.id.take();
        embedder.embed(&request.prompt)
    });
    match found {
        Ok(found) => line(&Answer { line: tag.line, id: tag.id.as_ref(), vector: &found.vector, tokens: found.tokens }),
        Err(error) => tag.error(&error),
    }
}
