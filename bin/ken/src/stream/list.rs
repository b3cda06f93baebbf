//! `ken stream ls`: lists the streams.

use ken_client::Gateway;
use ken_types::Error;
use ken_types::ops::streams::{StreamItem, StreamList};
use ken_types::uri::encode_segment;

use super::Ls;
use crate::client::parse_reply;
use crate::output::print_list;
use crate::progress::during;

pub(super) fn run(gateway: &mut Gateway, args: &Ls) -> Result<(), Error> {
    let mut streams = during("waiting for the gateway", || all(gateway, &args.prefix))?;
    streams.sort_by(|one, other| one.path.cmp(&other.path));
    let row = |stream: &StreamItem| {
        let state = if stream.closed { "closed" } else { "open" };
        [stream.path.clone(), stream.content_type.clone(), stream.entries.to_string(), state.to_owned()]
    };
    print_list(&streams, args.json, ["STREAM", "TYPE", "ENTRIES", "STATE"], row)
}

fn all(gateway: &mut Gateway, prefix: &str) -> Result<Vec<StreamItem>, Error> {
    let target = format!("/streams?limit=1000&prefix={}", encode_segment(prefix));
    let mut streams = Vec::new();
    let mut after = String::new();
    loop {
        let list: StreamList = parse_reply("gateway", gateway.get(&format!("{target}{after}"))?)?;
        streams.extend(list.streams);
        match list.page.after {
            Some(cursor) => after = format!("&after={}", encode_segment(&cursor)),
            None => return Ok(streams),
        }
    }
}
