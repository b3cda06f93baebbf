//! The decisions about parts, one at a time. Their processes sleep, and the states are set by hand.

use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

use ken_types::config;
use nix::unistd::getpgid;

use super::*;
use crate::config::load;
use crate::handover::Programs;
use crate::part::{Ending, Process};

/// A system whose parts are described by the test.
struct Kit {
    system: System,
    children: BTreeMap<String, Child>,
    now: Instant,
    _dir: tempfile::TempDir,
}

impl Drop for Kit {
    fn drop(&mut self) {
        for child in self.children.values_mut() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A state in which a part can be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Is {
    Down,
    Backoff,
    Failed,
    Starting,
    Ready,
    Ending,
}

const STATES: [Is; 6] = [Is::Down, Is::Backoff, Is::Failed, Is::Starting, Is::Ready, Is::Ending];

impl Kit {
    /// Parts with the names of the parts that they require and that they start after.
    fn new(parts: &[(&str, &[&str], &[&str])]) -> Kit {
        let dir = tempfile::tempdir().unwrap();
        let places = Places::resolve(Some(dir.path()), 0, |_| None).unwrap();
        for folder in [&places.run, &places.state, &places.state.join("log")] {
            std::fs::create_dir_all(folder).unwrap();
        }
        let (mut loaded, _) = load(&places.config, false);
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let spec = |(name, requires, after): &(&str, &[&str], &[&str])| {
            let command = vec!["/bin/sleep".to_owned(), "1000".to_owned()];
            let part = config::Part { command, requires: owned(requires), after: owned(after), ..Default::default() };
            ((*name).to_owned(), part)
        };
        loaded.config.part = parts.iter().map(spec).collect();
        let source = ConfigSource { named: false, port: None, cognitive_port: None };
        let locks = Locks::take(&places).unwrap();
        let mut system = System::new(places, source, loaded, (Sockets::default(), locks)).unwrap();
        system.make_parts(BTreeMap::new(), Instant::now()).unwrap();
        Kit { system, children: BTreeMap::new(), now: Instant::now(), _dir: dir }
    }

    /// All parts as they are at the start.
    fn renew(&mut self) {
        self.system.make_parts(BTreeMap::new(), self.now).unwrap();
        self.system.fatal = None;
    }

    fn part(&mut self, name: &str) -> &mut Part {
        self.system.parts.get_mut(name).unwrap()
    }

    /// Gives a part a process that sleeps.
    fn start(&mut self, name: &str) -> Pid {
        let spawn = || Command::new("/bin/sleep").arg("1000").process_group(0).spawn().unwrap();
        let child = self.children.entry(name.to_owned()).or_insert_with(spawn);
        let pid = Pid::from_raw(child.id() as i32);
        let guard = OwnedFd::from(File::open("/dev/null").unwrap());
        let now = self.now;
        self.part(name).started(Spawned { pid, mark: 1, guard, programs: Programs { own: None, run: None } }, now);
        pid
    }

    fn process(&mut self, name: &str) -> &mut Process {
        match &mut self.part(name).state {
            State::Up(process) => process,
            _ => panic!("{name} has no process"),
        }
    }

    fn set(&mut self, name: &str, state: Is) {
        let until = self.now + Duration::from_secs(1);
        match state {
            Is::Down => self.part(name).state = State::Down,
            Is::Backoff => self.part(name).state = State::Backoff { until },
            Is::Failed => self.part(name).state = State::Failed { cause: "it".into() },
            Is::Starting | Is::Ready | Is::Ending => drop(self.start(name)),
        }
        if state == Is::Ready {
            self.process(name).ready = Some(self.now);
        }
        if state == Is::Ending {
            self.process(name).ready = Some(self.now);
            self.process(name).ending = Some(Ending { why: Why::Requested, kill_at: None });
        }
    }

    fn death(&self, ready: bool, requested: bool) -> Death {
        let cause = "exit 1".to_owned();
        Death { at: Timestamp::now(), pid: 1, cause, code: Some(1), signal: None, ran_ms: 1, ready, requested }
    }
}

fn bools<const N: usize>() -> impl Iterator<Item = [bool; N]> {
    (0..1 << N).map(|bits: u32| std::array::from_fn(|bit| bits & 1 << bit != 0))
}

/// A part waits for those that it requires until they are ready, and for those that it starts after only while they may
/// become ready.
#[test]
fn a_part_waits_for_others_in_each_of_their_states() {
    let mut kit = Kit::new(&[("a", &[], &[]), ("b", &["a"], &[]), ("c", &[], &["a", "gone"])]);
    for state in STATES {
        for wanted in [true, false] {
            kit.set("a", state);
            kit.part("a").wanted = wanted;
            let blocked = |name: &str| kit.system.blockers(&kit.system.parts[name]).collect::<Vec<_>>() == ["a"];
            let (is_ready, is_failed) = (state == Is::Ready, state == Is::Failed);
            assert_eq!(blocked("b"), !is_ready, "{state:?} {wanted}");
            assert_eq!(blocked("c"), !is_ready && !is_failed && wanted, "{state:?} {wanted}");
            assert_eq!(kit.system.is_unblocked(&kit.system.parts["b"]), is_ready);
        }
    }
}

#[test]
fn the_next_part_to_start_is_down_and_wanted_and_waits_for_nobody() {
    let mut kits = [&[][..], &["z"]].map(|requires| Kit::new(&[("a", requires, &[]), ("z", &[], &[])]));
    for state in STATES {
        for [wanted, is_blocked] in bools() {
            let kit = &mut kits[usize::from(is_blocked)];
            kit.set("a", state);
            kit.part("a").wanted = wanted;
            kit.part("z").wanted = false;
            let expected = (state == Is::Down && wanted && !is_blocked).then(|| "a".to_owned());
            assert_eq!(kit.system.next_start(), expected, "{state:?} {wanted} {is_blocked}");
        }
    }
    // The first one may have to wait where the second one need not.
    let mut kit = Kit::new(&[("a", &["b"], &[]), ("b", &[], &[])]);
    assert_eq!(kit.system.next_start().as_deref(), Some("b"));
    kit.set("b", Is::Ready);
    assert_eq!(kit.system.next_start().as_deref(), Some("a"));
}

/// What is stopped ends once nothing that needs it is being stopped with it. A restart does not wait.
#[test]
fn a_part_ends_when_those_that_depend_on_it_have() {
    for (requires, after) in [(&["a"][..], &[][..]), (&[], &["a"]), (&[], &[])] {
        let mut kit = Kit::new(&[("a", &[], &[]), ("b", requires, after)]);
        let depends = !requires.is_empty() || !after.is_empty();
        for (state, other) in STATES.into_iter().flat_map(|state| [(state, Is::Down), (state, Is::Ready)]) {
            for [wanted, restart_wanted, is_stopped] in bools() {
                kit.set("a", state);
                kit.set("b", other);
                (kit.part("a").wanted, kit.part("a").restart_wanted) = (wanted, restart_wanted);
                kit.part("b").wanted = !is_stopped;
                let is_needed = other == Is::Ready && is_stopped && depends;
                assert_eq!(kit.system.is_needed("a"), is_needed);
                let runs = state == Is::Starting || state == Is::Ready;
                let expected = runs && (restart_wanted || !wanted && !is_needed);
                let about = (state, wanted, restart_wanted, is_stopped, other, requires, after);
                assert_eq!(kit.system.has_to_end("a", &kit.system.parts["a"]), expected, "{about:?}");
            }
        }
    }
}

#[test]
fn only_what_has_to_end_is_ended_and_only_what_is_gone_is_dropped() {
    let mut kit = Kit::new(&[("a", &[], &[]), ("b", &[], &[]), ("c", &[], &[]), ("d", &[], &[])]);
    for name in ["a", "b", "c"] {
        kit.set(name, Is::Ready);
    }
    for name in ["b", "c", "d"] {
        kit.part(name).stop_wanting();
    }
    (kit.part("c").removed, kit.part("d").removed) = (true, true);
    let now = kit.now;
    kit.system.advance(now);
    assert_eq!(kit.system.parts.keys().collect::<Vec<_>>(), ["a", "b", "c"]);
    let ending = ["a", "b", "c"].map(|name| kit.process(name).ending.is_some());
    assert_eq!(ending, [false, true, true]);
    let about = |kit: &Kit| (kit.system.is_down(), kit.system.is_ready());
    assert_eq!(about(&kit), (false, true));
    for name in ["b", "c"] {
        kit.part(name).state = State::Down;
    }
    kit.system.advance(now);
    assert_eq!(kit.system.parts.keys().collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(about(&kit), (false, true));
    kit.part("a").state = State::Down;
    assert_eq!(about(&kit), (true, false));
    // A part that is not in the configuration any more is not started again.
    kit.part("b").removed = true;
    kit.system.want("b");
    kit.system.want("a");
    assert_eq!(["a", "b"].map(|name| kit.part(name).wanted), [true, false]);
}

/// All combinations of what decides about a part that has ended.
#[test]
fn what_follows_a_death() {
    let mut kit = Kit::new(&[("a", &[], &[])]);
    for [requested, wanted, restart_wanted, announcing, ready, ever_ready, is_failing] in bools() {
        kit.renew();
        kit.system.announcing = announcing;
        let part = kit.part("a");
        (part.wanted, part.restart_wanted, part.ever_ready) = (wanted, restart_wanted, ever_ready);
        let death = Death { code: if is_failing { Some(1) } else { Some(75) }, ..kit.death(ready, requested) };
        let now = kit.now;
        kit.system.follow("a", death, None, now);
        let is_over = requested || !wanted || restart_wanted;
        let about = (requested, wanted, restart_wanted, announcing, ready, ever_ready, is_failing);
        assert_eq!(matches!(kit.part("a").state, State::Backoff { .. }), !is_over, "{about:?}");
        assert!(!kit.part("a").restart_wanted, "{about:?}");
        // `ready` or a request is no setback, after which waiting is useless.
        let gives_up = !is_over && announcing && !ready && !ever_ready && is_failing;
        assert_eq!(kit.system.fatal.is_some(), gives_up, "{about:?}");
    }
}

/// What was ready for a second is started again at once, unless it had to be ended because it missed a deadline.
#[test]
fn a_missed_deadline_counts_as_a_failure() {
    for (why, is_at_once) in [(None, true), (Some(Why::Fault("late".into())), false), (Some(Why::ByItself), true)] {
        let mut kit = Kit::new(&[("a", &[], &[]), ("b", &[], &[])]);
        kit.set("b", Is::Ready);
        kit.set("a", Is::Ready);
        let pid = kit.process("a").pid;
        kit.process("a").ending = why.clone().map(|why| Ending { why, kill_at: None });
        assert_eq!(kit.system.name_of(pid).as_deref(), Some("a"));
        let later = kit.now + Duration::from_secs(2);
        kit.system.died("a", pid, Exit::Code(1), later);
        assert_eq!(matches!(kit.part("a").state, State::Down), is_at_once, "{why:?}");
        assert!(kit.part("b").is_ready() && kit.system.name_of(pid).is_none());
    }
}

#[test]
fn a_report_is_that_of_its_own_process_and_is_noted_once() {
    let mut kit = Kit::new(&[("a", &[], &[]), ("b", &[], &[])]);
    kit.set("a", Is::Starting);
    kit.set("b", Is::Starting);
    let (pid, now) = (kit.process("b").pid, kit.now);
    for _ in 0..2 {
        kit.system.reports(vec![(pid, Report { ready: true, ..Report::default() })], now);
    }
    assert_eq!(["a", "b"].map(|name| kit.part(name).is_ready()), [false, true]);
    assert!(kit.system.writer.flush(Duration::from_secs(10)));
    assert_eq!(std::fs::read_to_string(kit.system.places.log("kend")).unwrap().matches("ready after").count(), 1);
}

/// `ken up` waits while a wanted part is starting for the first time.
#[test]
fn a_system_is_settled_when_nothing_starts_for_the_first_time() {
    let mut kit = Kit::new(&[("a", &[], &[])]);
    for [wanted, ever_ready, has_died, runs] in bools() {
        kit.renew();
        kit.set("a", if runs { Is::Starting } else { Is::Down });
        let death = kit.death(false, false);
        let part = kit.part("a");
        (part.wanted, part.ever_ready) = (wanted, ever_ready);
        part.deaths.extend(has_died.then_some(death));
        let starts = wanted && !ever_ready && !has_died && runs;
        assert_eq!(kit.system.is_settled(), !starts, "{wanted} {ever_ready} {has_died} {runs}");
    }
}

#[test]
fn the_processes_of_a_group_are_those_that_are_left_of_a_part() {
    let mut kit = Kit::new(&[("a", &[], &[])]);
    let pid = kit.start("a");
    assert_eq!(getpgid(Some(pid)), Ok(pid));
    // Until it executes its program, the process has the name of this one.
    let (begun, expected) = (Instant::now(), [format!("{pid} (sleep)")]);
    while members(Some(pid)) != expected && begun.elapsed() < Duration::from_secs(10) {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(members(Some(pid)), expected);
    assert_eq!(members(None), Vec::<String>::new());
}
