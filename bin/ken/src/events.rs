//! `ken events`: prints changes in the system.

use clap::Args;
use ken_client::{Method, Reader};
use ken_types::Error;
use serde_json::Value;

use crate::gateway;
use crate::globals::Globals;
use crate::output::{one_line, print_json, print_line};

const TARGET: &str = "/api/events";
/// Fields that are printed at the start of the line, or are of no use to a person.
const NOT_SHOWN: [&str; 4] = ["v", "type", "eventIndex", "timestamp"];

#[derive(Debug, Args)]
pub(crate) struct Events {
    /// Number of events
    #[arg(short = 'n', long, value_name = "N", default_value_t = 50)]
    pub(crate) lines: u32,
    /// Keep printing new events
    #[arg(short = 'f', long)]
    pub(crate) follow: bool,
    /// Print one JSON object per line
    #[arg(long)]
    pub(crate) json: bool,
}

pub(crate) fn run(globals: &Globals, args: &Events) -> Result<(), Error> {
    let mut gateway = gateway::find(globals)?;
    let end = gateway.call(&Method::HEAD, TARGET, &[], &[])?;
    let is_empty = end.header("stream-next-offset") == Some("-1");
    if is_empty && !args.follow {
        return Ok(());
    }
    let tail = Some(u64::from(args.lines)).filter(|lines| *lines > 0);
    let from = if tail.is_some() { "-1" } else { "now" };
    let mut reader = Reader::new(gateway, TARGET, from, tail);
    loop {
        // This stream can only be read live. Its first page arrives at once if the stream is not empty.
        let page = reader.page(true)?;
        for event in page.messages()? {
            show(&event, args.json)?;
        }
        if page.up_to_date && !args.follow {
            return Ok(());
        }
    }
}

fn show(event: &Value, as_json: bool) -> Result<(), Error> {
    if as_json {
        return print_json(event);
    }
    let text = |name: &str| event.get(name).and_then(Value::as_str).unwrap_or("-").to_owned();
    let mut line = format!("{}  {:20}", text("timestamp"), text("type"));
    for (name, value) in event.as_object().into_iter().flatten() {
        if !NOT_SHOWN.contains(&name.as_str()) {
            let value = value.as_str().map_or_else(|| value.to_string(), one_line);
            line += &format!("  {name}={value}");
        }
    }
    print_line(line.trim_end())
}
