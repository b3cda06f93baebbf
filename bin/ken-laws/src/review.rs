//! The review of the lexical comparison by a model, with `--judge`.
//!
//! ken-laws has no key and opens no network connection. It asks ken-model: the part of the running system if there is
//! one, else a process that it starts for each call.

use std::io::{self, ErrorKind, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use ken_support::{Judged, Judging, MAX_ANSWER_BYTES, Support};
use ken_tool::{Code, Error, MAX_DEPTH, find_program, part_socket};
use ken_types::event::Usage;
use ken_types::fence::Fence;
use ken_types::ops::model::{Delta, Generate, Generated};
use ken_types::{Engine, json};
use ken_wire::blocking::Client;
use serde_json::Value;

use crate::sources::{Compared, Source};

/// What the judge said, and what it took.
pub(crate) struct Review {
    pub(crate) model: String,
    pub(crate) judged: Judged,
    /// The score of the text without the judge.
    pub(crate) lexical_score: f64,
    pub(crate) time: Duration,
}

/// A model that judges sentences.
pub(crate) struct Reviewer {
    /// `PROVIDER/MODEL`.
    model: String,
    /// The time limit for all calls of a text.
    limit: Duration,
}

/// The field of errors of the configuration.
const FLAG: &str = "--judge";

impl Reviewer {
    /// Fails if the name is not that of a model.
    pub(crate) fn new(model: &str, limit_ms: u64) -> Result<Reviewer, Error> {
        Engine::judge(model).map_err(|error| error.at(FLAG))?;
        Ok(Reviewer { model: model.to_owned(), limit: Duration::from_millis(limit_ms) })
    }

    /// Asks the model about each sentence, and applies its verdicts. Fails if the model is not configured. After any other
    /// failure, the lexical comparison stays.
    pub(crate) fn review(&self, text: &str, sources: &[Source], compared: &mut Compared) -> Result<Review, Error> {
        let texts: Vec<&str> = sources.iter().map(Source::text).collect();
        let is_lexical = compared.support.is_some();
        // The rules for words cannot compare these languages, but they find the passages.
        let without_scores = || without_scores(ken_support::support(text, &texts));
        let support = compared.support.get_or_insert_with(without_scores);
        let lexical_score = support.score;
        let started = Instant::now();
        let mut judging = Judging::new(text, &texts, support, Fence::fresh()?);
        while let Some(request) = judging.next_request() {
            let answer = self.ask(&request, started);
            match answer {
                Err(error) if is_misconfigured(&error) => {
                    return Err(error.at(FLAG).hint("see --judge in ken-laws(1), and KEYS in ken-model(8)"));
                }
                answer => judging.take(answer),
            }
        }
        let judged = judging.end();
        judged.apply(support);
        let is_complete = is_lexical || judged.count() == support.sentences.len();
        compared.missing = compared.missing.filter(|_| !is_complete);
        Ok(Review { model: self.model.clone(), judged, lexical_score, time: started.elapsed() })
    }

    fn ask(&self, request: &Generate, started: Instant) -> Result<(String, Usage), Error> {
        let left = self.limit.saturating_sub(started.elapsed());
        let late = || Error::deadline(format!("the judge did not answer within {} ms", self.limit.as_millis()));
        if left.is_zero() {
            return Err(late());
        }
        let answer = match part_socket("model").map(|socket| Client::connect(&socket, "ken-model")) {
            None => self.ask_process(request, left),
            Some(Err(error)) if error.kind() == ErrorKind::NotFound => self.ask_process(request, left),
            Some(Err(error)) => Err(Error::unavailable(format!("cannot connect to ken-model: {error}"))),
            Some(Ok(client)) => self.ask_part(client, request, left),
        };
        answer.map_err(|error| if error.code == Code::Deadline { late() } else { error })
    }

    fn ask_part(&self, mut client: Client, request: &Generate, left: Duration) -> Result<(String, Usage), Error> {
        let request = Generate { model: Some(self.model.clone()), unlisted: true, ..request.clone() };
        let mut text = String::new();
        let args = serde_json::to_value(&request).map_err(|error| Error::internal(error.to_string()))?;
        let ended = client.call("model.generate", &args, Some(left), |item| {
            if let Delta::Text { delta } = json::from_value(item)? {
                text.push_str(&delta);
            }
            if text.len() > MAX_ANSWER_BYTES { Err(too_long()) } else { Ok(()) }
        })?;
        let ended: Generated = json::from_value(ended)?;
        Ok((text, ended.usage))
    }

    /// Starts ken-model as a filter for one request.
    fn ask_process(&self, request: &Generate, left: Duration) -> Result<(String, Usage), Error> {
        let program = find_program("ken-model")
            .ok_or_else(|| Error::not_found("program ken-model not found beside this program or on PATH"))?;
        let line = serde_json::to_string(request).map_err(|error| Error::internal(error.to_string()))?;
        let answer = run(&program, &["--lines", "--model", &self.model], line, left)?;
        let answer = json::parse(answer.trim().as_bytes(), MAX_DEPTH)
            .map_err(|_| Error::unavailable("ken-model ended before it answered"))?;
        if let Some(error) = answer.get("error") {
            return Err(json::from_value(error.clone())?);
        }
        let text = answer.get("text").and_then(Value::as_str).unwrap_or_default();
        let usage = answer.get("usage").cloned().map(json::from_value).transpose()?;
        Ok((text.to_owned(), usage.unwrap_or_default()))
    }
}

/// Runs a program with this input and returns its output. At the time limit, the program is killed.
fn run(program: &Path, args: &[&str], input: String, limit: Duration) -> Result<String, Error> {
    let failed = |error: io::Error| Error::unavailable(format!("{}: {error}", program.display()));
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = Killed(command.spawn().map_err(failed)?);
    let (stdin, stdout) = (child.0.stdin.take(), child.0.stdout.take());
    let (sender, received) = mpsc::sync_channel(1);
    std::thread::spawn(move || {
        let exchange = || -> io::Result<String> {
            // A program that ends without reading everything may have answered nevertheless.
            _ = stdin.map(|mut stdin| stdin.write_all(input.as_bytes()));
            let mut output = String::new();
            let mut limited = stdout.ok_or(ErrorKind::BrokenPipe)?.take(2 * MAX_ANSWER_BYTES as u64);
            limited.read_to_string(&mut output)?;
            Ok(output)
        };
        _ = sender.send(exchange());
    });
    let output = received.recv_timeout(limit).map_err(|_| Error::deadline("ken-model did not answer in time"))?;
    output.map_err(failed)
}

/// A process that is killed, and waited for, when this value is dropped.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

fn too_long() -> Error {
    Error::unavailable("the judge's answer is too long")
}

/// Whether the error says that the model cannot be called until a person changes something.
fn is_misconfigured(error: &Error) -> bool {
    match error.code {
        Code::Unauthenticated | Code::NotFound => true,
        Code::Invalid => error.at.as_deref().is_some_and(|at| !at.is_empty()), // an error of the provider names no field
        _ => false,
    }
}

/// Removes scores and findings that have no meaning in a language that the rules do not know.
fn without_scores(mut support: Support) -> Support {
    support.score = 0.0;
    for sentence in &mut support.sentences {
        sentence.score = 0.0;
        sentence.findings.clear();
    }
    support
}
