//! Eight clients of different kinds use a system in which every 300 ms a random process is killed, stopped for some seconds or
//! restarted, `kend` included. What they were told with 2xx is compared with what is there in the end: nothing accepted is lost,
//! nothing is done twice, and no process is left behind.
//!
//! `KEN_KILLS=1000` is the long form (`make torture`), with `KEN_SEED` another order. The figures are printed with `--nocapture`.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use ken_tests::bot_api::BotApi;
use ken_tests::{Builder, System, number, skip, until};

mod check;
mod clients;
pub(crate) mod disk;
mod disturb;
mod door;
mod faults;
mod follow;
mod setting;

use door::{Door, Shared, Tally};

#[test]
fn whatever_is_killed_nothing_accepted_is_lost_or_done_twice() {
    torture(Builder::default(), "all", |system, shared| {
        disturb::run(system, shared, number("KEN_KILLS", 20), number("KEN_SEED", 1))
    });
}

#[test]
fn a_disk_that_fills_stalls_and_turns_read_only_loses_nothing() {
    let disk = match disk::Disk::new() {
        Ok(disk) => disk,
        Err(why) => return skip(&why),
    };
    torture(Builder::default().below(&disk.folder()), "all", |system, shared| faults::of_disk(system, shared, &disk));
}

/// The times at which the clock is set are chosen before the start, as all programs have to see the same clock.
#[test]
fn a_clock_that_is_set_loses_nothing_and_repeats_no_slot() {
    let (clock, steps) = faults::clock();
    torture(Builder::default().env("KEN_CLOCK", &clock), "last", |_, shared| faults::of_clock(shared, &steps));
}

/// Runs the clients while the system is disturbed, and compares what they were told with what is there in the end.
fn torture(builder: Builder, missed: &str, disturb: impl FnOnce(&mut System, &Shared) -> disturb::Disturbed) {
    let platform = BotApi::start();
    let provider = setting::provider();
    let mut system = setting::start(builder, &platform, &provider);
    let shared = Arc::new(Shared::new(system.address()));
    let plan = clients::plan(&system);
    let schedules = clients::schedules(&system, missed);
    let followed = ["/streams/kills", "/api/events", "/agents/orchestrator/kills-approval"];
    let followers = followed.map(|target| follow::start(&shared, target));
    let workers: Vec<_> = plan
        .into_iter()
        .map(|(name, mut client)| {
            let mut door = Door::new(name, shared.clone());
            std::thread::spawn(move || {
                while !door.is_over() {
                    client(&mut door);
                }
                door.tally
            })
        })
        .collect();

    let mut disturbed = disturb(&mut system, &shared);
    shared.over.store(true, Ordering::SeqCst);
    let tallies: Vec<Tally> = workers.into_iter().map(|worker| worker.join().expect("a client")).collect();
    let stuck = check::settle(&system, &schedules);
    assert!(stuck.is_empty(), "it hangs: {stuck:#?}");
    shared.is_quiet.store(true, Ordering::SeqCst);
    let [stream, events, agent] = followers.map(|follower| follower.join().expect("a reader"));

    let mut faults = check::readers(&system, &stream, &events, &agent);
    faults.extend(check::slots(&schedules, &events, missed == "all"));
    faults.extend(check::tools(&system));
    let rows = check::accepted(&system, &platform, [&stream, &agent], &tallies);
    _ = std::fs::remove_dir_all(setting::scratch(&system));
    let audit = system.ken(&["audit", "verify"]);
    let kend = system.pid("kend");
    assert_eq!(system.down(), Some(0));
    until("every process has gone", || disturb::marked(kend).is_empty());

    faults.append(&mut disturbed.faults);
    print(&shared, &disturbed, &rows, &tallies);
    assert!(audit.status.success(), "{}", String::from_utf8_lossy(&audit.stdout));
    assert_eq!(shared.refused.load(Ordering::SeqCst), 0, "connects were refused while kend ran");
    assert!(faults.is_empty(), "{faults:#?}");
    for row in rows {
        assert!(row.accepted > 0 && row.lost.is_empty() && row.doubled.is_empty() && row.wrong.is_empty(), "{row:#?}");
    }
}

fn print(shared: &Shared, disturbed: &disturb::Disturbed, rows: &[check::Row], tallies: &[Tally]) {
    eprintln!("{}", disturbed.summary());
    eprintln!("{:<12}{:>9}{:>6}{:>9}{:>7}{:>15}", "client", "accepted", "lost", "doubled", "wrong", "longest wait");
    for (row, tally) in rows.iter().zip(tallies) {
        let (lost, doubled, wrong) = (row.lost.len(), row.doubled.len(), row.wrong.len());
        let wait = tally.longest.as_secs_f64();
        eprintln!("{:<12}{:>9}{lost:>6}{doubled:>9}{wrong:>7}{wait:>13.2} s", tally.name, row.accepted);
    }
    let outages = shared.outages();
    eprintln!(
        "longest outage (no request of any client was accepted): {:.2} s while kend ran, {:.2} s with kend killed",
        outages.kend_ran.as_secs_f64(),
        outages.kend_died.as_secs_f64()
    );
}
