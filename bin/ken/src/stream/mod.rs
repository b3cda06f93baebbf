//! `ken stream`: append-only logs that any program may use, as filters. See ken-stream(1).

mod append;
mod name;
mod reader;

use std::io::Write;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use ken_types::places::Places;
use ken_types::{Error, json};
use serde_json::Value;
use ureq::http::Method;

use crate::output::{Outcome, put_bytes, say_json};
use crate::remote::Remote;
use name::Name;
pub(crate) use reader::{Page, Reader};

const EXAMPLES: &str = "Examples:
  tail -f server.log | ken stream append logs/server
  ken stream follow logs/server | grep --line-buffered ERROR
  printf '%s\\n' '{\"n\":1}' '{\"n\":2}' | ken stream append --json numbers
  ken stream read numbers | jq .n

Manual: ken-stream(1)";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Stream {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Make a stream; one that is there with the same settings stays as it is
    Create(Create),
    /// Append each line of standard input; makes the stream if it is not there
    Append(Append),
    /// Print what is in it
    Read(Read),
    /// Print what is in it and what comes, until it is closed
    Follow(Read),
    /// End it: what is in it stays, nothing can be appended
    Close(Named),
    /// Delete it
    Rm(Named),
    /// Make a stream that begins with what is in another one
    Fork(Fork),
}

#[derive(Debug, Args)]
struct Named {
    /// Its name: 1 to 8 segments, like logs/server
    name: Name,
}

#[derive(Debug, Args)]
struct Create {
    /// Its name: 1 to 8 segments, like logs/server
    name: Name,
    #[command(flatten)]
    form: Form,
    /// Delete it when it has not been read or written for so many seconds
    #[arg(long, value_name = "SECONDS", conflicts_with = "expires_at")]
    ttl: Option<u64>,
    /// Delete it at this time (RFC 3339)
    #[arg(long, value_name = "TIME")]
    expires_at: Option<String>,
}

/// What its entries are.
#[derive(Debug, Args)]
struct Form {
    /// What its entries are; text/plain without it
    #[arg(long, value_name = "TYPE", conflicts_with = "json")]
    content_type: Option<String>,
    /// JSON values: the same as --content-type application/json
    #[arg(long)]
    json: bool,
}

impl Form {
    /// What was asked for.
    fn asked(&self) -> Option<&str> {
        match self.json {
            true => Some("application/json"),
            false => self.content_type.as_deref(),
        }
    }

    fn content_type(&self) -> &str {
        self.asked().unwrap_or("text/plain")
    }
}

#[derive(Debug, Args)]
struct Append {
    /// Its name: 1 to 8 segments, like logs/server
    name: Name,
    #[command(flatten)]
    form: Form,
    /// Close the stream when standard input has ended
    #[arg(long)]
    close: bool,
}

#[derive(Debug, Args)]
struct Read {
    /// Its name: 1 to 8 segments, like logs/server
    name: Name,
    /// Begin after this place: -1 for the start, now for the end, or what --offsets has told
    #[arg(long, value_name = "OFFSET", default_value = "-1", allow_hyphen_values = true)]
    offset: String,
    /// Begin at most so many entries before the end: messages of JSON, else appends, whatever their lines
    #[arg(long, value_name = "N", conflicts_with = "offset", value_parser = clap::value_parser!(u64).range(1..))]
    tail: Option<u64>,
    /// Tell on standard error where to read on, after each page
    #[arg(long)]
    offsets: bool,
}

#[derive(Debug, Args)]
struct Fork {
    /// The stream to begin with
    source: Name,
    /// The name of the new one
    name: Name,
    /// Take the source up to this place; without it, all of it
    #[arg(long, value_name = "OFFSET", allow_hyphen_values = true)]
    offset: Option<String>,
    /// And so much of the append that follows: bytes, or messages of JSON
    #[arg(long, value_name = "N", requires = "offset")]
    sub_offset: Option<u64>,
}

pub(crate) fn run(places: &Places, stream: &Stream) -> Outcome {
    let mut remote = Remote::find(places)?;
    match &stream.command {
        Command::Create(create) => make(&mut remote, create)?,
        Command::Append(append) => append::run(&mut remote, append)?,
        Command::Read(read) => print(remote, read, false)?,
        Command::Follow(read) => print(remote, read, true)?,
        Command::Close(named) => {
            let closed = [("stream-closed", "true")];
            remote.call(&Method::POST, &named.name.target(), &closed, &[])?;
        }
        Command::Rm(named) => drop(remote.call(&Method::DELETE, &named.name.target(), &[], &[])?),
        Command::Fork(from) => fork(&mut remote, from)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn make(remote: &mut Remote<'_>, create: &Create) -> Result<(), Error> {
    let ttl = create.ttl.map(|seconds| seconds.to_string());
    let mut headers = vec![("content-type", create.form.content_type())];
    headers.extend(ttl.as_deref().map(|ttl| ("stream-ttl", ttl)));
    headers.extend(create.expires_at.as_deref().map(|at| ("stream-expires-at", at)));
    remote
        .call(&Method::PUT, &create.name.target(), &headers, &[])
        .map(drop)
}

fn fork(remote: &mut Remote<'_>, fork: &Fork) -> Result<(), Error> {
    let source = fork.source.target();
    let sub_offset = fork.sub_offset.map(|number| number.to_string());
    let mut headers = vec![("stream-forked-from", source.as_str())];
    headers.extend(
        fork.offset
            .as_deref()
            .map(|offset| ("stream-fork-offset", offset)),
    );
    headers.extend(
        sub_offset
            .as_deref()
            .map(|number| ("stream-fork-sub-offset", number)),
    );
    remote
        .call(&Method::PUT, &fork.name.target(), &headers, &[])
        .map(drop)
}

fn print(remote: Remote<'_>, read: &Read, follow: bool) -> Result<(), Error> {
    let mut reader = Reader::new(remote, &read.name.target(), &read.offset, read.tail);
    loop {
        let page = reader.page(false)?;
        show(&page, read)?;
        if page.is_last() || (page.up_to_date && !follow) {
            return Ok(());
        }
        if page.up_to_date {
            break;
        }
    }
    loop {
        let page = reader.page(true)?;
        show(&page, read)?;
        if page.is_last() {
            return Ok(());
        }
    }
}

/// JSON as one value a line, anything else as it is.
fn show(page: &Page, read: &Read) -> Result<(), Error> {
    match page.is_json {
        true => messages(page)?.iter().try_for_each(say_json)?,
        false => put_bytes(&page.body)?,
    }
    if read.offsets && !page.body.is_empty() {
        // Nobody who reads it is no reason to stop.
        _ = writeln!(std::io::stderr(), "{}", page.next);
    }
    Ok(())
}

/// The entries of a page of JSON.
pub(crate) fn messages(page: &Page) -> Result<Vec<Value>, Error> {
    if page.body.is_empty() {
        return Ok(Vec::new());
    }
    match json::parse(&page.body, json::MAX_DEPTH + 2)? {
        Value::Array(messages) => Ok(messages),
        _ => Err(Error::internal("a page of a stream is no array")),
    }
}
