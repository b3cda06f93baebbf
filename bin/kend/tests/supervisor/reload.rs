//! A changed configuration is applied as a whole or not at all, and unchanged parts keep running.

use std::io::Read;
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use crate::common::{Home, Kend, until};
use ken_tests::free_port;
use nix::sys::signal::Signal;
use serde_json::{Value, json};

const KEPT: &str =
    "[part.kept]\ncommand = [\"PROBE\", \"ready\", \"hang\"]\nsockets = { wire = { unix = \"kept.sock\" } }\n";

fn with(more: &str) -> String {
    format!("{KEPT}{more}")
}

#[test]
fn a_socket_that_cannot_be_bound_changes_nothing() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let home = Home::new(KEPT);
    let kend = home.start();
    home.configure(&with(&format!(
        "[part.more]\ncommand = [\"PROBE\", \"ready\", \"hang\"]\nsockets = {{ a = {{ unix = \"more.sock\" }}, b = {{ tcp = \"127.0.0.1:{port}\" }} }}\n"
    )));
    let error = kend.call("kend.reload", json!({})).unwrap_err();
    assert!(error["message"].as_str().unwrap().contains("another program listens"), "{error}");
    assert!(kend.call("parts.status", json!({"name": "more"})).is_err());
    assert!(!home.path("run/more.sock").exists());
}

/// A changed address of a socket changes neither the arguments nor the environment of the part, but the part needs the
/// new descriptor.
#[test]
fn a_socket_that_moves_restarts_its_own_part_alone() {
    let entry = |socket: &str| {
        with(&format!(
            "[part.moved]\ncommand = [\"PROBE\", \"ready\", \"accept\"]\nsockets = {{ wire = {{ unix = \"{socket}\" }} }}\n"
        ))
    };
    let home = Home::new(&entry("old.sock"));
    let kend = home.start();
    let before = ["kept", "moved"].map(|name| kend.part_pid(name));
    home.configure(&entry("new.sock"));
    let done = kend.reload();
    assert_eq!((&done["restarted"], &done["unchanged"]), (&json!(["moved"]), &json!(["kept"])));
    until("a new process", || {
        let part = kend.part("moved");
        part["state"] == "ready" && part["pid"] != before[1].as_raw()
    });
    assert_eq!(kend.part_pid("kept"), before[0]);
    let mut answer = String::new();
    let mut client = UnixStream::connect(home.path("run/new.sock")).unwrap();
    client.read_to_string(&mut answer).unwrap();
    assert_eq!(answer.trim(), kend.part_pid("moved").to_string());
    assert!(!home.path("run/old.sock").exists());
}

/// Returns the process that answers on an address.
fn answering(kend: &Kend<'_>, address: &str) -> i32 {
    let mut answer = String::new();
    until(&format!("{address} answers"), || {
        answer.clear();
        let read = |mut client: TcpStream| client.read_to_string(&mut answer);
        match address.strip_prefix("unix:") {
            Some(path) => UnixStream::connect(kend.home.path(path))
                .and_then(|mut client| client.read_to_string(&mut answer))
                .is_ok(),
            None => TcpStream::connect(address).and_then(read).is_ok(),
        }
    });
    answer.trim().parse().unwrap()
}

#[test]
fn sockets_take_the_place_of_each_other() {
    let (p, q) = (free_port(), free_port());
    let entry = |name: &str, socket: &str| {
        format!("[part.{name}]\ncommand = [\"PROBE\", \"ready\", \"accept\"]\nsockets = {{ wire = {{ {socket} }} }}\n")
    };
    let tcp = |address: &str, port: u16| format!("tcp = \"{address}:{port}\"");
    let home = Home::new(&with(&(entry("a", &tcp("127.0.0.1", p)) + &entry("b", &tcp("127.0.0.1", q)))));
    let kend = home.start();
    let kept = kend.part_pid("kept");
    let (p_url, q_url) = (format!("127.0.0.1:{p}"), format!("127.0.0.1:{q}"));
    for (step, parts, answers) in [
        ("all addresses", [("a", tcp("0.0.0.0", p)), ("b", tcp("127.0.0.1", q))], [("a", &*p_url), ("b", &*q_url)]),
        ("one address", [("a", tcp("127.0.0.1", p)), ("b", tcp("127.0.0.1", q))], [("a", &*p_url), ("b", &*q_url)]),
        ("swapped", [("a", tcp("127.0.0.1", q)), ("b", tcp("127.0.0.1", p))], [("a", &*q_url), ("b", &*p_url)]),
        ("swapped, all", [("a", tcp("0.0.0.0", p)), ("b", tcp("0.0.0.0", q))], [("a", &*p_url), ("b", &*q_url)]),
        ("renamed", [("c", tcp("127.0.0.1", p)), ("b", tcp("0.0.0.0", q))], [("c", &*p_url), ("b", &*q_url)]),
        ("files", [("c", unix("x.sock")), ("b", unix("y.sock"))], [("c", "unix:run/x.sock"), ("b", "unix:run/y.sock")]),
        (
            "swapped files",
            [("c", unix("y.sock")), ("b", unix("x.sock"))],
            [("c", "unix:run/y.sock"), ("b", "unix:run/x.sock")],
        ),
        (
            "renamed file",
            [("d", unix("y.sock")), ("b", unix("x.sock"))],
            [("d", "unix:run/y.sock"), ("b", "unix:run/x.sock")],
        ),
    ] {
        home.configure(&with(&parts.map(|(name, socket)| entry(name, &socket)).concat()));
        kend.reload();
        kend.call("parts.wait_ready", json!({})).unwrap();
        for (name, address) in answers {
            assert_eq!(answering(&kend, address), kend.part_pid(name).as_raw(), "{step}: {name}");
        }
    }
    assert_eq!(kend.part_pid("kept"), kept);
    // What nobody has any more is gone.
    assert!(TcpStream::connect(&*p_url).is_err() && TcpStream::connect(&*q_url).is_err());
}

fn unix(path: &str) -> String {
    format!("unix = \"{path}\"")
}

#[test]
fn a_port_that_is_really_taken_leaves_the_old_socket_listening() {
    let port = free_port();
    let taken = std::net::TcpListener::bind(("127.0.0.2", port)).unwrap();
    let entry = |name: &str, address: &str| {
        format!(
            "[part.{name}]\ncommand = [\"PROBE\", \"ready\", \"accept\"]\nsockets = {{ wire = {{ tcp = \"{address}:{port}\" }} }}\n"
        )
    };
    let home = Home::new(&entry("a", "127.0.0.1"));
    let kend = home.start();
    let pid = kend.part_pid("a");
    for (more, why) in [
        (entry("a", "0.0.0.0"), format!("a: another program listens on 0.0.0.0:{port}")),
        (
            entry("a", "127.0.0.1") + &entry("b", "0.0.0.0"),
            format!("b: cannot listen on 0.0.0.0:{port}, because the part `a` listens on 127.0.0.1:{port};"),
        ),
    ] {
        home.configure(&more);
        let error = kend.call("kend.reload", json!({})).unwrap_err();
        assert!(error["message"].as_str().unwrap().contains(&why), "{error}");
        for _ in 0..3 {
            assert_eq!(answering(&kend, &format!("127.0.0.1:{port}")), pid.as_raw());
        }
    }
    // As soon as the port is free, the same reload works.
    drop(taken);
    home.configure(&entry("a", "0.0.0.0"));
    kend.reload();
    kend.call("parts.wait_ready", json!({})).unwrap();
    assert_eq!(answering(&kend, &format!("127.0.0.2:{port}")), kend.part_pid("a").as_raw());
}

#[test]
fn hangup_reloads_and_a_changed_secret_restarts_its_owner_alone() {
    let home = Home::new(&with(
        "[part.owner]\ncommand = [\"PROBE\", \"secrets:DIR/secrets\", \"ready\", \"hang\"]\nsecrets = [\"KEY\"]\n",
    ));
    home.secrets("KEY=one\n", 0o600);
    let kend = home.start();
    let before = ["kept", "owner"].map(|name| kend.part_pid(name));
    home.secrets("KEY=two\n", 0o600);
    kend.signal(Signal::SIGHUP);
    until("the new secret", || home.read("secrets") == "KEY=one\nKEY=two\n");
    assert_eq!(kend.part_pid("kept"), before[0]);
    assert_ne!(kend.part_pid("owner"), before[1]);
    assert!(!kend.journal().contains("two"));
}

#[test]
fn a_disabled_part_is_stopped_and_an_enabled_one_started() {
    let entry =
        |enabled: bool| with(&format!("[part.x]\ncommand = [\"PROBE\", \"ready\", \"hang\"]\nenabled = {enabled}\n"));
    let home = Home::new(&entry(true));
    let kend = home.start();
    let list = |done: &Value| ["started", "stopped", "unchanged"].map(|what| done[what].to_string());
    home.configure(&entry(false));
    assert_eq!(list(&kend.reload()), ["[]", r#"["x"]"#, r#"["kept"]"#]);
    kend.until_state("x", "stopped");
    home.configure(&entry(true));
    assert_eq!(list(&kend.reload()), [r#"["x"]"#, "[]", r#"["kept"]"#]);
    kend.until_state("x", "ready");
    // What was stopped or started by hand stays as it is.
    kend.stop_part("x");
    home.configure(&entry(false));
    assert_eq!(list(&kend.reload()), ["[]", "[]", r#"["kept","x"]"#]);
    kend.start_part("x");
    home.configure(&entry(true));
    assert_eq!(list(&kend.reload()), ["[]", "[]", r#"["kept","x"]"#]);
    kend.until_state("x", "ready");
}

#[test]
fn a_part_that_is_removed_and_put_back_while_it_ends_is_one_part() {
    let entry = with(
        "[part.x]\ncommand = [\"PROBE\", \"deaf\", \"pid:DIR/pid\", \"ready\", \"hang\"]\nstop_timeout_ms = 500\n",
    );
    let home = Home::new(&entry);
    let kend = home.start();
    home.configure(KEPT);
    kend.reload();
    kend.until_state("x", "stopping");
    home.configure(&entry);
    assert_eq!(kend.reload()["added"], json!(["x"]));
    until("the next process", || kend.state("x") == "ready" && home.numbers("pid").len() == 2);
    assert!(!crate::common::is_running(home.numbers("pid")[0]));
}

#[test]
fn a_corrected_entry_is_tried_at_once() {
    let home = Home::new(&with(
        "[part.x]\ncommand = [\"PROBE\", \"ready\", \"hang\"]\nlimit = { n = 1, within_ms = 600000 }\n",
    ));
    let kend = home.start();
    crate::common::kill9(kend.part_pid("x"));
    kend.until_state("x", "failed");
    home.configure(&with("[part.x]\ncommand = [\"PROBE\", \"status:new\", \"ready\", \"hang\"]\n"));
    kend.reload();
    kend.until_state("x", "ready");
}

/// A reload is no reason to start again at once what keeps dying, unless its own entry has changed.
#[test]
fn a_part_in_backoff_waits_on_when_another_entry_has_changed() {
    let entry = "[part.x]\ncommand = [\"PROBE\", \"exit-if:DIR/bad\", \"ready\", \"hang\"]\n";
    let home = Home::new(&with(entry));
    let kend = home.start();
    std::fs::write(home.path("bad"), "").unwrap();
    crate::common::kill9(kend.part_pid("x"));
    // The delays double, so that the last one is long enough to be looked at.
    until("a long delay", || kend.part("x")["retry_in_ms"].as_u64().is_some_and(|ms| ms > 1_500));
    let restarts = kend.part("x")["restarts"].clone();
    home.configure(&with(&format!("{entry}[part.fresh]\ncommand = [\"PROBE\", \"ready\", \"hang\"]\n")));
    let done = kend.reload();
    assert_eq!((&done["added"], &done["unchanged"]), (&json!(["fresh"]), &json!(["kept", "x"])));
    kend.until_state("fresh", "ready");
    let part = kend.part("x");
    assert_eq!((&part["state"], &part["restarts"]), (&json!("backoff"), &restarts), "{part}");
}

/// Returns a home whose kend watches its configuration.
fn watching(parts: &str) -> Home {
    let home = Home::new(parts);
    rewrite(&home, parts);
    home
}

/// Replaces the file by a new one, as an editor does.
fn rewrite(home: &Home, parts: &str) {
    home.configure(parts);
    let text = home.read("ken.toml").replace("watch = false", "watch = true");
    std::fs::write(home.path("ken.toml~"), text).unwrap();
    std::fs::rename(home.path("ken.toml~"), home.path("ken.toml")).unwrap();
}

/// Twenty times, because the watch of the files may notice a change before the restart, during it or after it.
#[test]
fn a_restart_uses_a_secret_that_was_changed_just_before() {
    let part =
        "[part.owner]\ncommand = [\"PROBE\", \"secrets:DIR/secrets\", \"ready\", \"hang\"]\nsecrets = [\"KEY\"]\n";
    let home = watching(&with(part));
    home.secrets("KEY=0\n", 0o600);
    let kend = home.start();
    let kept = kend.part_pid("kept");
    let mut expected = String::from("KEY=0\n");
    for number in 1..=20 {
        home.secrets(&format!("KEY={number}\n"), 0o600);
        kend.restart_part("owner");
        // One process, and it got the new secret: a second one would have written another line.
        expected += &format!("KEY={number}\n");
        assert_eq!(home.read("secrets"), expected);
    }
    // A file with an error does not prevent the restart.
    home.secrets("nonsense\n", 0o600);
    kend.restart_part("owner");
    assert_eq!(home.read("secrets"), expected + "KEY=20\n");
    assert_eq!(kend.call("parts.status", json!({})).unwrap()["config"]["good"], false);
    // Nor does it restart what has not changed.
    assert_eq!(kend.part_pid("kept"), kept);
}

#[test]
fn a_changed_file_is_brought_into_force_by_itself() {
    let part = "[part.x]\ncommand = [\"PROBE\", \"secrets:DIR/secrets\", \"ready\", \"hang\"]\nsecrets = [\"KEY\"]\n";
    let home = watching(KEPT);
    home.secrets("KEY=one\n", 0o600);
    let kend = home.start();
    let pid = kend.part_pid("kept");
    rewrite(&home, &with(part));
    until("the new part", || home.read("secrets") == "KEY=one\n" && kend.state("x") == "ready");
    home.secrets("KEY=two\n", 0o600);
    until("the new secret", || home.read("secrets").ends_with("KEY=two\n"));
    rewrite(&home, "[part.kept]\nnonsense = 1\n");
    let config = || kend.call("parts.status", json!({})).unwrap()["config"].clone();
    until("the error is shown", || config()["good"] == false);
    rewrite(&home, KEPT);
    until("the part is gone", || kend.call("parts.status", json!({"name": "x"})).is_err());
    assert_eq!(config()["good"], true);
    std::fs::remove_file(home.path("ken.toml")).unwrap();
    until("the loss is noticed", || home.read("state/log/kend.log").contains("ken.toml is gone"));
    assert_eq!(kend.part_pid("kept"), pid, "it was never restarted");
}

#[test]
fn a_changed_workflow_is_seen_also_in_a_folder_that_came_later() {
    let home = watching(KEPT);
    let kend = home.start();
    let reloads = || home.read("state/log/kend.log").matches("reloaded: ").count();
    // kend makes this folder itself for ken-cognitive, which is no reason to reload.
    std::fs::create_dir(home.path("workflows")).unwrap();
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(reloads(), 0);
    std::fs::write(home.path("workflows/a.json"), "{}").unwrap();
    until("the workflow is seen", || reloads() == 1);
    // A folder that is put in its place comes with files.
    std::fs::create_dir(home.path("others")).unwrap();
    std::fs::write(home.path("others/b.json"), "{}").unwrap();
    std::fs::remove_dir_all(home.path("workflows")).unwrap();
    std::fs::rename(home.path("others"), home.path("workflows")).unwrap();
    until("the other folder is seen", || reloads() == 2);
    // Changes of other files in the home are ignored.
    std::fs::write(home.path("other"), "").unwrap();
    std::fs::write(home.path("workflows/a.json"), "{ }").unwrap();
    until("the change is seen", || reloads() == 3);
    assert_eq!(kend.part("kept")["restarts"], 0);
}
