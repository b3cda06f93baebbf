//! `ken hosts`: the hosts that share a database on a server.

use std::time::Duration;

use clap::{Args, Subcommand};
use ken_types::ops::Nothing;
use ken_types::ops::hosts::{HostRecord, HostsList, HostsRemove, RemoveHost};
use ken_types::places::Places;
use ken_types::{Error, Timestamp};

use crate::client::{STORE, call};
use crate::output::{ListArgs, print_line, print_list, print_note};

/// A server that does not answer is reported by the store after 15 seconds.
const TIMEOUT: Duration = Duration::from_secs(20);

#[derive(Debug, Args)]
pub(crate) struct Hosts {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List the hosts that use the database, the one with the duties first
    List(ListArgs),
    /// Forget a host that is gone
    Rm(Named),
}

#[derive(Debug, Args)]
struct Named {
    /// Its id, a unique part of it, or its name
    host: String,
}

pub(crate) fn run(places: &Places, hosts: &Hosts) -> Result<(), Error> {
    match &hosts.command {
        Command::List(ListArgs { json }) => list(places, *json),
        Command::Rm(Named { host }) => {
            let removed = call::<HostsRemove>(places, STORE, &RemoveHost { host: host.clone() }, Some(TIMEOUT))?;
            print_line(&removed.id)
        }
    }
}

/// Prints the hosts as a table, or one line of JSON for each.
pub(crate) fn list(places: &Places, as_json: bool) -> Result<(), Error> {
    let found = call::<HostsList>(places, STORE, &Nothing {}, Some(TIMEOUT))?;
    let Some(now) = found.server_time else {
        print_note("the data is in a file of this machine, which no other host uses: ken-postgres(7)");
        return Ok(());
    };
    let head = ["HOST", "NAME", "STATE", "DUTIES", "SEEN", "WAITING", "VERSION"];
    print_list(&found.hosts, as_json, head, |host| row(host, now))
}

fn row(host: &HostRecord, now: Timestamp) -> [String; 7] {
    let here = if host.here { " (here)" } else { "" };
    let seconds = now.millis().saturating_sub(host.seen_at.millis()).max(0) / 1_000;
    [
        host.id.clone(),
        format!("{}{here}", host.name),
        host.state.name().to_owned(),
        if host.has_duties { "yes" } else { "-" }.to_owned(),
        format!("{seconds} s ago"),
        host.waiting.to_string(),
        host.version.clone(),
    ]
}
