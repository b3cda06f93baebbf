//! The hosts that share the database.

use ken_types::Error;
use ken_types::event::{Failure, Outcome};
use ken_types::id::SubmissionId;
use ken_types::ops::Nothing;
use ken_types::ops::hosts::{
    Duties, HostRecord, HostState, Hosts, HostsDuties, HostsList, HostsRemove, HostsServer, RemoveHost, ServerHealth,
};

use crate::engine::change::Change;
use crate::ops::{Read, Write, leases, turns};
use crate::rules::queue::Ending;
use crate::tables::Tables;

impl Read for HostsList {
    const ON_STANDBY: bool = true;

    fn run(tables: &dyn Tables, _: &Nothing) -> Result<Hosts, Error> {
        tables.hosts()
    }
}

impl Read for HostsDuties {
    fn run(tables: &dyn Tables, _: &Nothing) -> Result<Duties, Error> {
        Ok(Duties { here: tables.has_duties()? })
    }
}

impl Read for HostsServer {
    const ON_STANDBY: bool = true;

    fn run(tables: &dyn Tables, _: &Nothing) -> Result<Option<ServerHealth>, Error> {
        tables.server_health()
    }
}

impl Write for HostsRemove {
    fn run(tables: &dyn Tables, args: &RemoveHost, change: &mut Change) -> Result<HostRecord, Error> {
        let host = named(tables.hosts()?.hosts, &args.host)?;
        if host.state != HostState::Away {
            let message = format!("the host {} is not gone: it is {}", host.name, host.state.name());
            return Err(Error::conflict(message).at("/host").hint("stop ken on that machine first"));
        }
        let bound = tables.bound_to(&host.id)?;
        tables.remove_host(&host.id)?;
        for lease in tables.orphaned_leases()? {
            leases::release(tables, &lease, change)?;
        }
        bound.iter().try_for_each(|id| end(tables, id, &host.name, change))?;
        Ok(host)
    }
}

/// Ends a turn that needs a folder of a host that is forgotten.
fn end(tables: &dyn Tables, id: &SubmissionId, host: &str, change: &mut Change) -> Result<(), Error> {
    let Some(found) = tables.submission(id.as_str())?.filter(|found| !found.state.is_settled()) else {
        return Ok(());
    };
    let why = format!("The host {host}, in a folder of which it worked, was removed.");
    let failure = Failure::new("host_removed", &why);
    let ending = Ending { error: Some(failure), ..Ending::of(Outcome::Failed) };
    turns::end(tables, &found, tables.log_by_key(found.stream)?, &ending, change)
}

/// Returns the host with this id, or the only one with this name or with this text in its id.
fn named(hosts: Vec<HostRecord>, wanted: &str) -> Result<HostRecord, Error> {
    let is_named = |host: &HostRecord| host.name == wanted || !wanted.is_empty() && host.id.contains(wanted);
    let mut found: Vec<HostRecord> = hosts.into_iter().filter(is_named).collect();
    match (found.pop(), found.len()) {
        (Some(host), 0) => Ok(host),
        (Some(_), others) => {
            let message = format!("{wanted} names {} hosts", others + 1);
            Err(Error::conflict(message).at("/host").hint("`ken hosts list` shows their ids"))
        }
        (None, _) => {
            let message = format!("there is no host {wanted}");
            Err(Error::not_found(message).at("/host").hint("`ken hosts list` shows which there are"))
        }
    }
}

#[cfg(test)]
mod tests {
    use ken_types::Timestamp;

    use super::*;

    #[test]
    fn a_host_is_named_by_its_id_a_part_of_it_or_its_name() {
        let host = |id: &str, name: &str| HostRecord {
            id: id.into(),
            name: name.into(),
            version: "1".into(),
            state: HostState::Away,
            has_duties: false,
            seen_at: Timestamp::from_millis(0),
            waiting: 0,
            here: false,
        };
        let hosts = || vec![host("ab12", "desk"), host("ab34", "desk"), host("cd56", "laptop")];
        let find = |wanted: &str| named(hosts(), wanted).map(|host| host.id).map_err(|error| error.message);
        assert_eq!(find("ab12").unwrap(), "ab12");
        assert_eq!(find("56").unwrap(), "cd56");
        assert_eq!(find("laptop").unwrap(), "cd56");
        assert!(find("desk").unwrap_err().contains("2 hosts"));
        assert!(find("ab").unwrap_err().contains("2 hosts"));
        assert!(find("").unwrap_err().contains("no host"));
    }
}
