//! Starting kend until its `ready` line, and all ways in which that fails.

use std::io::Read;
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::common::{Caller, Home, is_running, until};
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use serde_json::json;

const READY: &str = "[part.a]\ncommand = [\"PROBE\", \"ready\", \"hang\"]\n";

#[test]
fn a_part_gets_what_its_entry_names_and_nothing_else() {
    let home = Home::new(
        "[part.a]\ncommand = [\"PROBE\", \"env:DIR/env\", \"fds:DIR/fds\", \"secrets:DIR/secrets\", \"pid:DIR/pid\", \"ready\", \"hang\"]\n\
         sockets = { wire = { unix = \"a.sock\" }, http = { tcp = \"gateway\" } }\nwatchdog_ms = 60000\n\
         env = [\"PASSED\", \"SET=x y\", \"ABSENT\", \"FROM_FILE\"]\nsecrets = [\"KEY\", \"OTHER_KEY\"]\n",
    );
    home.secrets("KEY=from file\nFROM_FILE=1\nUNNAMED=1\n", 0o600);
    let mut command = home.command(&["--announce", "--port", "0"]);
    for (name, value) in [("PASSED", "1"), ("HIDDEN", "1"), ("KEY", "from env"), ("OTHER_KEY", "2"), ("LC_TIME", "C")] {
        command.env(name, value);
    }
    let kend = home.start_with(&mut command);
    assert!(!kend.gateway().ends_with(":0"));

    let env = home.read("env");
    let dir = home.dir.path().display();
    for line in [
        "FROM_FILE=1".to_owned(),
        "KEN_GUARD_FD=5".to_owned(),
        "KEN_ERRORS=json".to_owned(),
        format!("KEN_CONFIG={dir}/ken.toml"),
        format!("KEN_HOME={dir}"),
        format!("KEN_RUN_DIR={dir}/run"),
        format!("KEN_STATE_DIR={dir}/state"),
        "KEN_CONFIG_FD=7".to_owned(),
        "KEN_SECRETS_FD=8".to_owned(),
        "LC_TIME=C".to_owned(),
        "LISTEN_FDNAMES=http:wire".to_owned(),
        "LISTEN_FDS=2".to_owned(),
        format!("LISTEN_PID={}", home.read("pid").trim()),
        format!("NOTIFY_SOCKET={dir}/run/notify.sock"),
        "PASSED=1".to_owned(),
        "SET=x y".to_owned(),
        "WATCHDOG_USEC=60000000".to_owned(),
    ] {
        assert!(env.lines().any(|found| found == line), "{line} is missing in\n{env}");
    }
    let known = ["PATH=", "HOME=", "LANG=", "TZ=", "LC_", "RUST_LOG=", "KEN_LOG="];
    let surplus = env.lines().filter(|line| !known.iter().any(|name| line.starts_with(name)));
    assert_eq!(surplus.count(), 16, "{env}");

    let fds = home.read("fds");
    let numbers: Vec<&str> = fds.lines().filter(|line| !line.contains("/proc/")).map(|line| &line[..1]).collect();
    assert_eq!(numbers.len(), 9, "standard ones, sockets, guard, lock, configuration, secrets: {fds}");
    assert_eq!(home.read("secrets"), "KEY=from file\nOTHER_KEY=2\n");
    assert!(kend.stop().status.success());
}

#[test]
fn a_taken_port_is_one_line_and_leaves_nothing() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let home = Home::new(
        "[part.a]\ncommand = [\"PROBE\", \"pid:DIR/pid\", \"ready\", \"hang\"]\n\
         sockets = { http = { tcp = \"gateway\" }, wire = { unix = \"a.sock\" } }\n",
    );
    let ended = home.run(&["--announce", "--port", &port]);
    assert!(!ended.status.success());
    assert_eq!(ended.stderr, format!("kend: a: another program listens on 127.0.0.1:{port}\n"));
    let left: Vec<_> = std::fs::read_dir(home.dir.path()).unwrap().flatten().map(|entry| entry.file_name()).collect();
    assert_eq!(left, ["ken.toml"]);
}

#[test]
fn an_unwritable_home_and_an_open_secrets_file_are_one_line_each() {
    let home = Home::new(READY);
    std::fs::write(home.path("state"), "a file").unwrap();
    let ended = home.run(&["--announce"]);
    assert!(!ended.status.success());
    assert_eq!(ended.stderr.lines().count(), 1, "{}", ended.stderr);
    ended.assert_stderr_contains("/state");

    let home = Home::new(READY);
    home.secrets("KEY=very-secret\n", 0o644);
    let ended = home.run(&["--announce"]);
    assert_eq!(ended.status.code(), Some(2));
    ended.assert_stderr_contains("secrets.env: has mode 0644");
    ended.assert_stderr_contains("chmod 600");
    assert!(!ended.stderr.contains("very-secret"));
}

/// Anybody who can write the configuration decides what kend runs.
#[test]
fn files_that_others_can_change_are_refused_with_the_remedy() {
    let mode = |path: &Path, mode: u32| {
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    };
    let home = Home::new(READY);
    home.secrets("KEY=very-secret\n", 0o600);
    let refused = |name: &str, why: &str, remedy: &str| {
        for args in [&["--check"][..], &["--announce"]] {
            let ended = home.run(args);
            assert_eq!(ended.status.code(), Some(2), "{name}: {}", ended.stderr);
            assert_eq!(ended.stderr.lines().count(), 1, "{}", ended.stderr);
            let path = home.path(name);
            let path = path.to_str().unwrap().trim_end_matches('/');
            for text in [format!("kend: {path}: {why}"), format!("{remedy} {path}")] {
                ended.assert_stderr_contains(&text);
            }
        }
        assert!(!home.path("run").exists());
    };
    for (name, bad, good) in
        [("", 0o720, 0o700), ("", 0o702, 0o700), ("ken.toml", 0o664, 0o644), ("ken.toml", 0o646, 0o644)]
    {
        mode(&home.path(name), bad);
        refused(name, &format!("has mode {bad:04o}, others can change it"), "; chmod go-w");
        mode(&home.path(name), good);
    }
    mode(&home.path("secrets.env"), 0o640);
    refused("secrets.env", "has mode 0640, others can read it", "; chmod 600");
    mode(&home.path("secrets.env"), 0o600);
    // Only root can create a file that belongs to another user.
    if nix::unistd::geteuid().is_root() {
        for name in ["", "ken.toml", "secrets.env"] {
            std::os::unix::fs::chown(home.path(name), Some(12_345), None).unwrap();
            refused(name, "belongs to the user with id 12345, who is neither root", ", or chown 0");
            std::os::unix::fs::chown(home.path(name), Some(0), None).unwrap();
        }
    }
    assert!(home.run(&["--check"]).status.success());
}

/// The secret of the gateway may be in a file of its own, which a group can read.
#[test]
fn the_secret_of_the_gateway_can_be_read_by_a_group() {
    let part =
        "[part.a]\ncommand = [\"PROBE\", \"secrets:DIR/got\", \"ready\", \"hang\"]\nsecrets = [\"API_SECRET\"]\n";
    let home = Home::new(part);
    let file = home.path("client.secret");
    let mode = |mode| std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
    std::fs::write(&file, "of-the-group\n").unwrap();
    for refused in [0o644, 0o660] {
        mode(refused);
        let ended = home.run(&["--check"]);
        ended.assert_stderr_contains("client.secret");
        ended.assert_stderr_contains(if refused == 0o644 { "chmod 640" } else { "chmod" });
    }
    mode(0o640);
    drop(home.start());
    assert_eq!(home.read("got"), "API_SECRET=of-the-group\n");
    std::fs::remove_file(home.path("got")).unwrap();
    home.secrets("API_SECRET=of-the-operator\n", 0o600);
    drop(home.start());
    assert_eq!(home.read("got"), "API_SECRET=of-the-operator\n");
}

#[test]
fn a_fifo_or_a_device_is_no_configuration() {
    for name in ["ken.toml", "secrets.env"] {
        let home = Home::new(READY);
        let path = home.path(name);
        _ = std::fs::remove_file(&path);
        let check = || {
            let ended = home.run(&["--check"]);
            assert_eq!(ended.status.code(), Some(2));
            ended.assert_stderr_contains(&format!("{name}: is not a regular file; "));
        };
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::from_bits_truncate(0o600)).unwrap();
        check();
        std::fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("/dev/zero", &path).unwrap();
        check();
    }
}

#[test]
fn the_places_come_from_the_environment_as_the_manual_says() {
    let kend = |variables: &[(&str, &Path)]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kend"));
        command.arg("--check").env_clear().envs(variables.iter().copied());
        let output = command.output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (text(output.stdout), text(output.stderr), output.status.code())
    };
    let home = Home::new("[gateway]\nprot = 1\n");
    let (out, err, code) = kend(&[("KEN_HOME", home.dir.path())]);
    assert_eq!((out.as_str(), code), ("", Some(2)));
    assert!(err.contains("ken.toml:5: gateway.prot: unknown key"), "{err}");
    let config = home.path("other.toml");
    std::fs::write(&config, "[kend]\nbuiltin_parts = false\n").unwrap();
    let (out, err, code) =
        kend(&[("KEN_STATE_DIR", &home.path("state")), ("KEN_RUN_DIR", &home.path("run")), ("KEN_CONFIG", &config)]);
    assert_eq!((err.as_str(), code), ("", Some(0)));
    assert_eq!(out, format!("{}: no errors\n", config.display()));
}

/// As at the end of a session, if the folder is one that only lives as long.
#[test]
fn no_second_system_starts_where_the_sockets_of_the_first_are_gone() {
    let home = Home::new("[part.a]\ncommand = [\"PROBE\", \"ready\", \"hang\"]\n");
    let kend = home.start();
    let second = || home.run(&[]);
    second().assert_stderr_contains(&format!("state is in use: kend already runs there, pid {}\n", kend.pid()));
    std::fs::remove_dir_all(home.path("run")).unwrap();
    for _ in 0..2 {
        let ended = second();
        ended.assert_stderr_contains(&format!("kend already runs there, pid {}, and cannot be reached", kend.pid()));
        assert_eq!(ended.status.code(), Some(75), "{ended:?}");
    }
    assert!(kend.stop().status.success());
    // What it says is the remedy.
    assert!(home.start().stop().status.success());
    assert!(!home.path("state/kend.lock").exists());
}

/// The folder of the sockets is not one that a logout removes.
#[test]
fn the_sockets_of_a_user_are_in_the_state_folder() {
    let home = Home::new("");
    let mut command = Command::new(crate::common::KEND);
    command.arg("--announce").env_clear().env("KEN_STATE_DIR", home.path("s")).env("KEN_CONFIG", home.path("ken.toml"));
    command.env("XDG_RUNTIME_DIR", home.path("x")).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    if nix::unistd::geteuid().is_root() {
        // Root has /run/ken.
        let user = Some(65534);
        std::fs::set_permissions(home.dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        std::fs::create_dir(home.path("s")).unwrap();
        for path in [home.path("s"), home.path("ken.toml"), home.dir.path().to_owned()] {
            std::os::unix::fs::chown(path, user, user).unwrap();
        }
        command.uid(65534).gid(65534);
    }
    let kend = home.start_with(&mut command);
    assert!(home.path("s/run/kend.sock").exists() && !home.path("x").exists());
    assert!(kend.stop().status.success());
}

#[test]
fn a_system_that_is_stopped_before_it_is_ready_says_by_whom() {
    let home = Home::new("[part.a]\ncommand = [\"PROBE\", \"hang\"]\n");
    for by in ["`ken down`", "SIGTERM"] {
        let mut child = home.command(&["--announce"]).spawn().unwrap();
        until("kend listens", || UnixStream::connect(home.path("run/kend.sock")).is_ok());
        match by {
            "SIGTERM" => nix::sys::signal::kill(Pid::from_raw(child.id() as i32), Signal::SIGTERM).unwrap(),
            _ => drop(Caller::connect(&home.path("run/kend.sock")).call("kend.stop", json!({})).unwrap()),
        }
        let mut text = String::new();
        child.stderr.take().unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(75));
        let last = text.lines().last().unwrap_or_default();
        assert_eq!(last, format!("kend: stopped by {by} before all parts were ready"));
    }
}

/// Only root can read the memory of kend: files in /proc of a process that is not dumpable belong to root.
#[test]
fn the_memory_of_kend_is_closed_to_its_user() {
    let home = Home::new(READY);
    let nobody = 65_534;
    if nix::unistd::geteuid().is_root() {
        for path in [home.path(""), home.path("ken.toml")] {
            std::os::unix::fs::chown(path, Some(nobody), None).unwrap();
        }
    }
    let mut command = home.command(&["--announce"]);
    if nix::unistd::geteuid().is_root() {
        std::os::unix::process::CommandExt::uid(&mut command, nobody);
    }
    let kend = home.start_with(&mut command);
    let owner = std::fs::metadata(format!("/proc/{}/environ", kend.pid())).unwrap().uid();
    assert_eq!(owner, 0);
}

#[test]
fn a_home_too_deep_for_sockets_says_so() {
    let home = Home::new(READY);
    let deep = home.path(&"d".repeat(100));
    std::fs::create_dir(&deep).unwrap();
    let deep = deep.to_str().unwrap();
    let ended = home.run(&["--home", deep]);
    // The harness gives the option too. The last folder on the command line must be the one that is checked.
    assert!(!ended.status.success());
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_kend")).args(["--home", deep]).output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.contains("the system allows 107") && stderr.contains("shorter --home"), "{stderr}");
}

#[test]
fn a_part_that_never_gets_ready_stops_everything_and_is_named_with_its_last_line() {
    let home = Home::new(
        "[part.a]\ncommand = [\"PROBE\", \"pid:DIR/pid\", \"ready\", \"hang\"]\n\
         [part.b]\ncommand = [\"PROBE\", \"say:looking for the moon\", \"pid:DIR/pid\", \"hang\"]\nready_timeout_ms = 200\n",
    );
    let ended = home.run(&["--announce"]);
    assert!(!ended.status.success());
    assert_eq!(ended.stdout, "");
    assert_eq!(ended.stderr.lines().count(), 1, "{}", ended.stderr);
    assert!(ended.stderr.starts_with("kend: b: not ready within 200 ms: looking for the moon"), "{}", ended.stderr);
    let pids = home.numbers("pid");
    assert_eq!(pids.len(), 2);
    assert!(pids.iter().all(|pid| !is_running(*pid)));
}

#[test]
fn a_part_that_refuses_to_start_is_one_line_at_once() {
    let home = Home::new(
        "[part.a]\ncommand = [\"PROBE\", \"say:the database is newer than this program\", \"exit:70\"]\nready_timeout_ms = 600000\n",
    );
    let ended = home.run(&["--announce"]);
    assert!(!ended.status.success());
    assert_eq!(ended.stderr.lines().count(), 1, "{}", ended.stderr);
    for word in ["kend: a:", "exit 70", "the database is newer", "a.log"] {
        ended.assert_stderr_contains(word);
    }
}

#[test]
fn a_part_may_stumble_before_its_first_ready() {
    let home = Home::new("[part.a]\ncommand = [\"PROBE\", \"pid:DIR/pid\", \"hang\"]\n");
    home.configure("[part.a]\ncommand = [\"sh\", \"-c\", \"test -e DIR/once || { touch DIR/once; exit 75; }; exec PROBE ready hang\"]\n");
    let kend = home.start();
    assert_eq!(kend.part("a")["restarts"], 1);
    let ended = kend.stop();
    ended.assert_stderr_contains("a ended (exit 75) before it was ready");
}

#[test]
fn without_announce_kend_keeps_trying() {
    let home = Home::new("[part.a]\ncommand = [\"PROBE\", \"exit:2\"]\n");
    let mut child = home.command(&[]).spawn().unwrap();
    let log = || home.read("state/log/kend.log");
    until("a second start", || log().matches("started").count() >= 2);
    assert!(child.try_wait().unwrap().is_none());
    nix::sys::signal::kill(Pid::from_raw(child.id() as i32), Signal::SIGINT).unwrap();
    assert!(child.wait().unwrap().success());
}
