//! No process outlives its part or kend.

use crate::common::{Home, is_running, kill9, until};

const FAMILY: &str = "[part.a]\ncommand = [\"PROBE\", \"pid:DIR/parts\", \"child:DIR/children\", \"daemon:DIR/daemons\", \"sleep:100\", \"ready\", \"hang\"]\n\
                      [part.b]\ncommand = [\"PROBE\", \"pid:DIR/parts\", \"ready\", \"hang\"]\n";

#[test]
fn a_stopped_system_leaves_nobody() {
    let home = Home::new(FAMILY);
    let kend = home.start();
    until("both descendants", || home.numbers("children").len() == 1 && home.numbers("daemons").len() == 1);
    assert!(kend.stop().status.success());
    let all: Vec<i32> = ["parts", "children", "daemons"].iter().flat_map(|name| home.numbers(name)).collect();
    assert_eq!(all.len(), 4);
    until("all are gone", || all.iter().all(|pid| !is_running(*pid)));
}

/// A process is found even if its environment is cleared, its group is another one and its parent is dead.
#[test]
fn what_hides_where_it_comes_from_dies_with_its_part_and_not_with_another() {
    let part = |name: &str, child: &str| {
        format!("[part.{name}]\ncommand = [\"PROBE\", \"{child}:DIR/{name}\", \"ready\", \"hang\"]\n")
    };
    for child in ["unmarked", "bare"] {
        let home = Home::new(&(part("a", child) + &part("b", child)));
        let kend = home.start();
        until("both descendants", || home.numbers("a").len() == 1 && home.numbers("b").len() == 1);
        let (of_a, of_b) = (home.numbers("a")[0], home.numbers("b")[0]);
        if child == "unmarked" {
            until("kend has adopted it", || parent(of_a) == kend.pid().as_raw());
        }
        kill9(kend.part_pid("a"));
        until("the descendant is gone", || !is_running(of_a));
        until("the next one", || home.numbers("a").len() == 2);
        assert!(is_running(of_b) && is_running(home.numbers("a")[1]));
        assert!(kend.stop().status.success());
        for pid in [home.numbers("a"), home.numbers("b")].concat() {
            assert!(!is_running(pid), "{child}");
        }
    }
}

fn parent(pid: i32) -> i32 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let rest = stat.rsplit(") ").next().unwrap();
    rest.split(' ').nth(1).unwrap().parse().unwrap()
}

#[test]
fn the_guard_ends_a_descendant_that_no_signal_reaches() {
    let home = Home::new("[part.a]\ncommand = [\"PROBE\", \"watcher:DIR/watchers\", \"ready\", \"hang\"]\n");
    let mut kend = home.start();
    until("the watcher", || home.numbers("watchers").len() == 1);
    let watcher = home.numbers("watchers")[0];
    assert!(is_running(watcher));
    kend.child.kill().unwrap();
    until("the watcher has left", || !is_running(watcher));
}

/// A program that replaces itself by kend can have a child that has ended by then.
#[test]
fn a_child_from_before_that_has_ended_is_reaped() {
    let home = Home::new("[part.a]\ncommand = [\"PROBE\", \"ready\", \"hang\"]\n");
    let kend = home.command(&["--announce"]);
    // It waits for the end of the child without reaping it.
    let script = "import os, sys\nchild = os.fork() or os._exit(0)\n\
                  os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)\nos.execv(sys.argv[1], sys.argv[1:])";
    let mut before = std::process::Command::new("python3");
    before.args(["-c", script]).arg(kend.get_program()).args(kend.get_args());
    before.stdin(std::process::Stdio::null()).stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let kend = home.start_with(&mut before);
    let children = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", kend.pid())).unwrap();
    assert!(children.split_whitespace().all(|pid| is_running(pid.parse().unwrap())), "{children}");
}
