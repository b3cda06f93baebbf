//! Two hosts whose database server has a synchronous standby that is away: they wait, and keep their turns. One of these tests takes a minute
//! and the other half a minute, mostly without using the processor. Tests start in the order of their names, and this name is the first, so
//! that the other tests run at the same time.

use std::thread::sleep;
use std::time::Duration;

use ken_tests::{Builder, Postgres, System, number, until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;

use crate::database_server::is_ready;
use crate::several_hosts::{add, hosts, send};

/// Two hosts that each run a turn that never ends, and the leases of these turns at the start of the test.
struct Holding {
    hosts: [System; 2],
    database: String,
    before: String,
}

impl Holding {
    fn start(server: &Postgres, database: String, url: &str) -> Holding {
        let config = format!("[store]\nurl = \"{url}\"\n");
        let script = [json!({"events": [{"text": "part"}, {"sleep_ms": 600_000}]})];
        let hosts = [(); 2].map(|()| Builder::default().script(&script).config(&config).start());
        let turns = [&hosts[0], &hosts[1]].map(|system| send(system, &system.session(), "hold"));
        let mut holding = Holding { hosts, database, before: String::new() };
        until("both turns run", || turns.iter().all(|turn| holding.held(server).contains(turn)));
        holding.before = holding.held(server);
        holding
    }

    /// Returns each lease with the host that holds it and the epoch of that host.
    fn held(&self, server: &Postgres) -> String {
        let sql = "SELECT s.id, lease, holder, epoch FROM ken.submissions AS s JOIN ken.hosts ON host = holder WHERE open = 0 AND lease > 0 ORDER BY 1";
        server.sql(&self.database, sql)
    }

    #[track_caller]
    fn goes_on(&self, server: &Postgres) {
        until("both work again", || self.hosts.iter().all(is_ready));
        assert!(self.hosts.iter().all(|host| add(host, "after") == 201));
        // If a host took the other one for silent, it would do so within this time.
        sleep(Duration::from_secs(12));
        assert_eq!(self.held(server), self.before, "a turn has begun again, or a host has");
        assert_eq!(hosts(&self.hosts[0]).iter().filter(|host| host.state == "active").count(), 2);
    }
}

/// While the synchronous standby is away, a commit waits, and the changes of the other host behind it. Neither host is lost by this, also if one
/// of them goes on some seconds later than the other.
#[test]
fn hosts_keep_what_they_hold_while_the_synchronous_standby_is_away() {
    let Some(server) = Postgres::start(&[]) else { return };
    let database = server.database();
    let standby = server.standby();
    server.wait_for_standby(true);
    let url = server.url(&database);
    let holding = Holding::start(&server, database, &url);
    standby.crash();
    // Each host has a change that waits.
    let statuses = std::thread::scope(|scope| {
        let adding = [&holding.hosts[0], &holding.hosts[1]].map(|host| scope.spawn(|| add(host, "meanwhile")));
        sleep(Duration::from_secs(number("KEN_AWAY_S", 28)));
        let store = Pid::from_raw(holding.hosts[0].pid("store"));
        kill(store, Signal::SIGSTOP).unwrap();
        standby.resume();
        sleep(Duration::from_secs(4));
        kill(store, Signal::SIGCONT).unwrap();
        adding.map(|adding| adding.join().unwrap())
    });
    println!("the changes meanwhile were answered with {statuses:?}");
    holding.goes_on(&server);
}

/// When the standby is promoted, its data are so old that both hosts seem to have been silent for too long. Neither is taken for lost, because
/// a host counts only what it has seen itself since the promotion.
#[test]
fn hosts_keep_what_they_hold_when_a_standby_is_promoted_that_was_away() {
    let Some(server) = Postgres::start(&[]) else { return };
    let database = server.database();
    let standby = server.standby();
    server.wait_for_standby(true);
    let url = server.url_of_both(&standby, &database);
    let holding = Holding::start(&server, database, &url);
    standby.crash();
    sleep(Duration::from_secs(14));
    server.crash();
    standby.resume();
    standby.promote();
    holding.goes_on(&standby);
}
