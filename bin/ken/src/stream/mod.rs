//! `ken stream`: append-only logs that any program may use, as filters. See ken-stream(1).

mod append;
mod list;
mod name;

use std::io::Write;
use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use ken_client::{Gateway, Method, Page, Reader};
use ken_text::TerminalBytes;
use ken_types::{Code, Error, json};

use crate::duration::duration;
use crate::gateway;
use crate::globals::Globals;
use crate::output::{is_guarded, print_bytes, print_line, print_text};
use crate::progress::Progress;
use name::Name;

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
    /// Create a stream; one that exists with the same settings is left as it is
    Create(Create),
    /// Append each line of standard input; creates the stream if needed
    Append(Append),
    /// Print the entries of a stream
    Read(Read),
    /// Print the entries of a stream and new ones as they arrive, until it is closed
    Follow(Follow),
    /// Close a stream: its entries stay, nothing can be appended
    Close(Named),
    /// Delete a stream
    Rm(Named),
    /// List streams by name
    #[command(visible_alias = "list")]
    Ls(Ls),
    /// Create a stream that starts with the entries of another one
    Fork(Fork),
}

#[derive(Debug, Args)]
struct Named {
    /// Name: 1 to 8 segments, like logs/server
    name: Name,
}

#[derive(Debug, Args)]
struct Ls {
    /// Prefix of the names, like logs/
    #[arg(default_value = "")]
    prefix: String,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct Create {
    /// Name: 1 to 8 segments, like logs/server
    name: Name,
    #[command(flatten)]
    form: Form,
    /// Delete after SECONDS without access
    #[arg(long, value_name = "SECONDS", conflicts_with = "expires_at")]
    ttl: Option<u64>,
    /// Delete at this time (RFC 3339)
    #[arg(long, value_name = "TIME")]
    expires_at: Option<String>,
}

/// The content type of a stream.
#[derive(Debug, Args)]
struct Form {
    /// Content type [default: text/plain]
    #[arg(long, value_name = "TYPE", conflicts_with = "json")]
    content_type: Option<String>,
    /// JSON values: short for --content-type application/json
    #[arg(long)]
    json: bool,
}

impl Form {
    /// Returns the content type that the options set, if any.
    fn explicit_type(&self) -> Option<&str> {
        if self.json { Some("application/json") } else { self.content_type.as_deref() }
    }

    fn content_type(&self) -> &str {
        self.explicit_type().unwrap_or("text/plain")
    }
}

#[derive(Debug, Args)]
struct Append {
    /// Name: 1 to 8 segments, like logs/server
    name: Name,
    #[command(flatten)]
    form: Form,
    /// Close the stream at the end of standard input
    #[arg(long)]
    close: bool,
}

#[derive(Debug, Args)]
struct Read {
    /// Name: 1 to 8 segments, like logs/server
    name: Name,
    /// Start after this offset: -1 for the start, now for the end, or one that --offsets printed
    #[arg(long, value_name = "OFFSET", default_value = "-1", allow_hyphen_values = true)]
    offset: String,
    /// Start N entries before the end; an entry is a JSON message, else one append, however many lines it has
    #[arg(long, value_name = "N", conflicts_with = "offset", value_parser = clap::value_parser!(u64).range(1..))]
    tail: Option<u64>,
    /// Print the offset to continue from on standard error, after each page
    #[arg(long)]
    offsets: bool,
}

#[derive(Debug, Args)]
struct Follow {
    #[command(flatten)]
    read: Read,
    /// Wait this long for the stream to exist, for instance 10s; 0 does not wait [default: until it exists]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    wait: Option<Duration>,
}

#[derive(Debug, Args)]
struct Fork {
    /// Stream to start from
    source: Name,
    /// Name of the new stream
    name: Name,
    /// Take the source up to this offset [default: all of it]
    #[arg(long, value_name = "OFFSET", allow_hyphen_values = true)]
    offset: Option<String>,
    /// Also take this much of the append that follows: bytes, or JSON messages
    #[arg(long, value_name = "N", requires = "offset")]
    sub_offset: Option<u64>,
}

pub(crate) fn run(globals: &Globals, stream: &Stream) -> Result<(), Error> {
    let mut gateway = gateway::find(globals)?;
    match &stream.command {
        Command::Create(create) => make(&mut gateway, create),
        Command::Append(append) => append::run(&mut gateway, append),
        Command::Read(read) => print(gateway, read, false),
        Command::Follow(follow) => {
            wait_for(&mut gateway, follow)?;
            print(gateway, &follow.read, true)
        }
        Command::Close(named) => close(&mut gateway, &named.name.target()),
        Command::Rm(named) => gateway.call(&Method::DELETE, &named.name.target(), &[], &[]).map(drop),
        Command::Ls(args) => list::run(&mut gateway, args),
        Command::Fork(from) => fork(&mut gateway, from),
    }
}

fn close(gateway: &mut Gateway, target: &str) -> Result<(), Error> {
    gateway.call(&Method::POST, target, &[("stream-closed", "true")], &[]).map(drop)
}

fn make(gateway: &mut Gateway, create: &Create) -> Result<(), Error> {
    let ttl = create.ttl.map(|seconds| seconds.to_string());
    let mut headers = vec![("content-type", create.form.content_type())];
    headers.extend(ttl.as_deref().map(|ttl| ("stream-ttl", ttl)));
    headers.extend(create.expires_at.as_deref().map(|at| ("stream-expires-at", at)));
    gateway.call(&Method::PUT, &create.name.target(), &headers, &[]).map(drop)
}

fn fork(gateway: &mut Gateway, fork: &Fork) -> Result<(), Error> {
    let source = fork.source.target();
    let sub_offset = fork.sub_offset.map(|number| number.to_string());
    let mut headers = vec![("stream-forked-from", source.as_str())];
    headers.extend(fork.offset.as_deref().map(|offset| ("stream-fork-offset", offset)));
    headers.extend(sub_offset.as_deref().map(|number| ("stream-fork-sub-offset", number)));
    gateway.call(&Method::PUT, &fork.name.target(), &headers, &[]).map(drop)
}

/// Waits until the stream exists. The protocol has no call that waits for this, so it polls with growing pauses of up
/// to 500 ms.
fn wait_for(gateway: &mut Gateway, follow: &Follow) -> Result<(), Error> {
    let target = follow.read.name.target();
    let until = follow.wait.map(|wait| Instant::now() + wait);
    let mut progress = None;
    let mut pause = Duration::from_millis(20);
    loop {
        let error = match gateway.call(&Method::HEAD, &target, &[], &[]) {
            Ok(_) => return Ok(()),
            Err(error) => error,
        };
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        if error.code != Code::NotFound {
            return Err(error);
        }
        // The answer to the first read names the stream.
        if left.is_some_and(|left| left.is_zero()) {
            return Ok(());
        }
        progress.get_or_insert_with(|| Progress::start("waiting for the stream to exist"));
        std::thread::sleep(left.map_or(pause, |left| left.min(pause)));
        pause = (pause * 2).min(Duration::from_millis(500));
    }
}

fn print(gateway: Gateway, read: &Read, follow: bool) -> Result<(), Error> {
    let mut reader = Reader::new(gateway, &read.name.target(), &read.offset, read.tail);
    let mut shown = TerminalBytes::default();
    let mut live = false;
    loop {
        let page = reader.page(live)?;
        show(&page, read, &mut shown)?;
        if page.is_last() || (page.up_to_date && !follow) {
            return if is_guarded() { print_text(&shown.finish()) } else { Ok(()) };
        }
        live |= page.up_to_date;
    }
}

/// Prints JSON with one value per line and anything else unchanged. On a terminal, control characters are replaced.
fn show(page: &Page, read: &Read, shown: &mut TerminalBytes) -> Result<(), Error> {
    match (page.is_json, is_guarded()) {
        (true, _) => page.documents()?.iter().try_for_each(|entry| print_line(&json::compact(entry.get())))?,
        (false, true) => print_bytes(shown.push(&page.body).as_bytes())?,
        (false, false) => print_bytes(&page.body)?,
    }
    if read.offsets && !page.body.is_empty() {
        // An error is ignored: the entries are printed even if nobody reads standard error.
        _ = writeln!(std::io::stderr(), "{}", page.next);
    }
    Ok(())
}
