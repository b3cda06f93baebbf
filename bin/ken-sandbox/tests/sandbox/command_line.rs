//! What a user of ken-sandbox sees: standard output, standard error and the exit status.

use std::process::{Command, Output};
use std::time::{Duration, Instant};

use crate::common::{Kernel, World, first_line, hiding, restrict, users};

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn shell(world: &World, options: &[&str], script: &str) -> Output {
    world.sandbox(options, &["sh", "-c", script]).output().unwrap()
}

#[test]
fn the_command_speaks_for_itself() {
    let world = World::new(None);
    let output = shell(&world, &[], "echo out; echo err >&2; exit 7");
    assert_eq!((text(&output.stdout).as_str(), text(&output.stderr).as_str()), ("out\n", "err\n"));
    assert_eq!(output.status.code(), Some(7));
    assert_eq!(shell(&world, &[], "kill -9 $$").status.code(), Some(137));
}

#[test]
fn it_works_with_its_own_files() {
    for user in users() {
        let world = World::new(user);
        let script = "mkdir a && echo x > a/b && chmod 640 a/b && touch -d 2001-02-03T04:05:06Z a/b && mv a/b a/c && ln a/c d \
            && stat -c '%a %Y' d && cp -p d e && stat -c '%a %Y' e && cd \"$TMPDIR\" && echo y > f && cat f && rm f \
            && test \"$HOME\" = \"$TMPDIR\" && echo 7 > /dev/null && head -c 3 /dev/urandom | wc -c";
        let output = shell(&world, &[], script);
        assert_eq!(text(&output.stdout), "640 981173106\n640 981173106\ny\n3\n", "{output:?}");
        assert!(output.status.success(), "{output:?}");
    }
}

#[test]
fn a_readable_folder_cannot_be_changed() {
    let world = World::new(None);
    let outside = world.outside();
    let secret = outside.join("secret");
    let script = format!("cat '{0}'; echo x > '{0}'; chmod 777 '{0}'", secret.display());
    let output = shell(&world, &["--read", outside.to_str().unwrap()], &script);
    assert_eq!(text(&output.stdout), "the secret");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    world.check("a change of a readable file");
}

#[test]
fn the_environment_is_what_was_named() {
    let world = World::new(None);
    let mut command = world.sandbox(&["--env", "GIVEN=1", "--env", "PASSED", "--env", "ABSENT"], &["env"]);
    let output = command.env("PASSED", "2").env("SECRET", "3").output().unwrap();
    let listed = text(&output.stdout);
    assert!(listed.contains("GIVEN=1\n") && listed.contains("PASSED=2\n"), "{listed}");
    assert!(!listed.contains("SECRET") && !listed.contains("SSH_AUTH_SOCK") && !listed.contains("ABSENT"), "{listed}");
}

/// The last setting of a name counts. What is set for the command, such as a broken `PATH`, has no effect on the sandbox.
#[test]
fn variables_can_come_through_descriptors() {
    let (sandbox, folder) = (env!("CARGO_BIN_EXE_ken-sandbox"), tempfile::tempdir().unwrap());
    let script = format!("exec '{sandbox}' --env A=1 --env B=1 --env-fd 3 --env-fd 4 -C / -- env 3<one 4<two");
    let run = |one: &[u8], two: &[u8]| {
        std::fs::write(folder.path().join("one"), one).unwrap();
        std::fs::write(folder.path().join("two"), two).unwrap();
        let mut shell = Command::new("sh");
        shell.args(["-c", &script]).current_dir(folder.path()).env("PASSED", "of the caller").output().unwrap()
    };
    for (one, two, expected) in [
        (&b""[..], &b""[..], &["A=1", "B=1"][..]),
        (b"B=2", b"", &["A=1", "B=2"]),
        (b"B=2\0", b"\0\0B=3\nx\0PASSED\0ABSENT\0", &["A=1", "B=3", "x", "PASSED=of the caller"]),
        (b"PATH=/nothing/here", b"LD_PRELOAD=/nothing/here.so", &["A=1", "PATH=/nothing/here"]),
    ] {
        let output = run(one, two);
        let listed = text(&output.stdout);
        assert!(output.status.success() && !listed.contains("ABSENT"), "{output:?}");
        assert!(expected.iter().all(|line| listed.lines().any(|found| found == *line)), "{listed}");
    }
    let refused = World::new(None).sandbox(&["--env-fd", "77"], &["env"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(125), "{refused:?}");
    assert!(text(&refused.stderr).contains("descriptor 77"), "{refused:?}");
}

#[test]
fn a_timeout_ends_all_of_it() {
    for user in users() {
        let world = World::new(user);
        let begun = Instant::now();
        let output = shell(&world, &["--timeout", "0.5"], "trap '' TERM; echo $$; sleep 300 & sleep 301");
        assert_eq!(output.status.code(), Some(124), "{output:?}");
        assert!(begun.elapsed() < Duration::from_secs(20));
        assert_gone(&world);
    }
}

#[test]
fn a_daemon_that_it_leaves_behind_ends_with_it() {
    for user in users() {
        let world = World::new(user);
        let output = shell(&world, &[], "setsid sh -c 'sleep 302 & sleep 303' >/dev/null 2>&1 & sleep 0.2; echo done");
        assert_eq!(text(&output.stdout), "done\n", "{output:?}");
        assert_gone(&world);
    }
}

/// What it has started and left ends in its sandbox before it does.
#[test]
fn its_own_status_counts_and_not_that_of_what_it_leaves_behind() {
    let world = World::new(None);
    for left in ["exit 3", "kill -9 $$"] {
        let output = shell(&world, &[], &format!("sh -c '(sh -c \"sleep 0.1; {left}\" &)'; sleep 0.4; exit 7"));
        assert_eq!(output.status.code(), Some(7), "{left}: {output:?}");
    }
}

/// Killed processes take a moment to disappear.
fn until_gone(world: &World) {
    let end = Instant::now() + Duration::from_secs(20);
    while Instant::now() < end && std::panic::catch_unwind(|| assert_gone(world)).is_err() {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_gone(world);
}

/// No process works in the folder of the sandbox any more.
fn assert_gone(world: &World) {
    let inside = world.inside();
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let left: Vec<_> = processes
        .filter(|entry| std::fs::read_link(entry.path().join("cwd")).is_ok_and(|cwd| cwd == inside))
        .map(|entry| std::fs::read_to_string(entry.path().join("cmdline")))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn limits_hold() {
    let world = World::new(None);
    let output = shell(&world, &["--file-size", "1"], "head -c 2000000 /dev/zero > big; stat -c %s big");
    assert_eq!(text(&output.stdout), "1048576\n", "{output:?}");
    let output = shell(&world, &["--open-files", "16"], "ulimit -n; ulimit -c");
    assert_eq!(text(&output.stdout), "16\n0\n", "{output:?}");
    let output = shell(&world, &["--memory", "64"], "head -c 200000000 /dev/zero | tail | wc -c");
    assert!(text(&output.stderr).contains("memory"), "{output:?}");
}

/// Without a control group that limits it, memory that belongs to no process counts too: files in memory, and what is shared.
#[test]
fn memory_is_limited_for_all_processes_together() {
    const FILES: &str = "import os, time\nfor at in range(16):\n  file = os.memfd_create('x')\n  os.ftruncate(file, 1 << 26)\n  \
         [os.write(file, bytes(1 << 20)) for _ in range(50)]\ntime.sleep(20)";
    const SHARED: &str = "import mmap, time\nall = []\nfor at in range(16):\n  all.append(mmap.mmap(-1, 50 << 20)); \
         all[-1].write(bytes(50 << 20))\ntime.sleep(20)";
    const FORKS: &str = "import os, time\nfor at in range(16): os.fork() or (bytearray(b'x' * (50 << 20)), time.sleep(20), \
         os._exit(0))\ntime.sleep(20)";
    for user in users() {
        let world = World::new(user);
        for script in [FILES, SHARED, FORKS] {
            let begun = Instant::now();
            let mut sandbox = world.sandbox(&["--memory", "400"], &["python3", "-c", script]);
            let output = sandbox.env("PATH", "/usr/bin:/bin").output().unwrap();
            assert_eq!(output.status.code(), Some(137), "as {user:?}: {output:?}");
            assert!(begun.elapsed() < Duration::from_secs(15), "as {user:?}: {script}");
        }
        let enough =
            "x = bytearray(b'x' * (100 << 20)); import os, time; [os.fork() for _ in range(3)]; time.sleep(0.5)";
        let mut sandbox = world.sandbox(&["--memory", "400"], &["python3", "-c", enough]);
        let output = sandbox.env("PATH", "/usr/bin:/bin").output().unwrap();
        assert!(output.status.success(), "as {user:?}: what forks share counts once: {output:?}");
    }
}

/// A program may leave folders that it has made read-only, as Go's module cache does, and keeps its result.
#[test]
fn whatever_it_leaves_in_its_temporary_folder_goes_with_it() {
    for user in users() {
        let world = World::new(user);
        let script = "mkdir -p $HOME/go/pkg && echo x > $HOME/go/pkg/file && chmod -R a-w $HOME/go && chmod 0 $HOME/go/pkg; \
             ln -s $PWD $HOME/link; echo $HOME";
        let output = shell(&world, &[], script);
        assert!(output.status.success(), "as {user:?}: {output:?}");
        let home = text(&output.stdout);
        assert!(!std::path::Path::new(home.trim()).exists(), "as {user:?}: {home} is left");
        assert!(world.inside().exists());
    }
}

/// A supervisor that is killed cannot remove the temporary folder; the next one does. A folder in use stays.
#[test]
fn the_temporary_folder_of_a_killed_supervisor_is_removed_by_the_next() {
    for user in users() {
        let world = World::new(user);
        let started = || {
            let mut child =
                world.sandbox(&[], &["sh", "-c", "echo x > $HOME/x; echo $HOME; sleep 309"]).spawn().unwrap();
            let folder = std::path::PathBuf::from(first_line(&mut child));
            (child, folder)
        };
        let ((mut killed, left), (mut running, used)) = (started(), started());
        // The second one has looked for what is left behind, as each one does, and the first one still runs.
        assert!(left.join("x").exists());
        killed.kill().unwrap();
        killed.wait().unwrap();
        let end = Instant::now() + Duration::from_secs(10);
        while left.exists() {
            // The processes that were inside take a moment to disappear.
            assert!(shell(&world, &[], "true").status.success());
            assert!(Instant::now() < end, "{} is left behind", left.display());
        }
        assert!(shell(&world, &[], "true").status.success());
        assert!(used.join("x").exists());
        running.kill().unwrap();
        running.wait().unwrap();
    }
}

/// Without network a command has a loopback interface for itself, so a test suite can listen and connect.
#[test]
fn what_it_serves_on_loopback_is_reached_from_inside_alone() {
    const SERVE: &str = "import socket\nfor family, host in ((socket.AF_INET, '127.0.0.1'), (socket.AF_INET6, '::1')):\n  \
         server = socket.create_server((host, 0), family=family)\n  \
         peer = socket.create_connection(server.getsockname()[:2])\n  peer.send(b'x'); \
         print(server.accept()[0].recv(1))\nprint(socket.create_server(('0.0.0.0', 3940)))";
    for user in users() {
        let world = World::new(user);
        // The same port is taken outside.
        let _taken = std::net::TcpListener::bind("127.0.0.1:3940");
        let output = world.sandbox(&[], &["python3", "-c", SERVE]).env("PATH", "/usr/bin:/bin").output().unwrap();
        assert!(output.status.success() && text(&output.stdout).starts_with("b'x'\nb'x'\n"), "as {user:?}: {output:?}");
    }
}

/// Where the host allows a `/proc` of its own, the command sees its own processes only.
#[test]
fn processes_outside_are_not_seen() {
    for user in users() {
        let world = World::new(user);
        let walls = world.sandbox(&["--walls"], &[]).output().unwrap();
        assert!(text(&walls.stdout).contains("\"landlock\":"), "{walls:?}");
        if !text(&walls.stdout).contains("\"ownProc\":true") {
            println!("no /proc can be mounted here: {walls:?}");
            continue;
        }
        let output = shell(&world, &[], "cat /proc/[0-9]*/cmdline | tr '\\0' ' '; ls -d /proc/[0-9]* | wc -l");
        let seen = text(&output.stdout);
        // Init, the shell, and the programs that it has just started.
        let count: usize = seen.split_whitespace().last().unwrap().parse().unwrap();
        assert!(!seen.contains("sleep 600") && count <= 5, "as {user:?}: {output:?}");
    }
}

#[test]
fn a_relative_program_is_that_of_the_folder_in_which_it_starts() {
    let world = World::new(None);
    let made = shell(&world, &[], "mkdir below; printf '#!/bin/sh\\npwd\\n' > configure; chmod +x configure");
    assert!(made.status.success());
    let below = world.inside().join("below");
    for (program, cwd) in
        [("./configure", world.inside()), ("../configure", below.clone()), ("below/../configure", world.inside())]
    {
        let output = world.sandbox(&["--cwd", cwd.to_str().unwrap()], &[program]).output().unwrap();
        assert_eq!(text(&output.stdout).trim(), cwd.to_str().unwrap(), "{program}: {output:?}");
    }
    let output = world.sandbox(&[], &["./missing"]).output().unwrap();
    assert_eq!(output.status.code(), Some(127), "{output:?}");
}

/// The kernel does not limit the processes of root.
#[test]
fn a_fork_bomb_is_limited_and_ends_with_the_timeout() {
    for user in users().into_iter().filter(|user| user.is_some() || !nix::unistd::geteuid().is_root()) {
        let world = World::new(user);
        let output = shell(&world, &["--timeout", "0.3", "--processes", "64"], "f() { f | f & }; f; sleep 300");
        assert!(matches!(output.status.code(), Some(124 | 137 | 143 | 2)), "{:?}", output.status);
        assert_gone(&world);
    }
}

#[test]
fn mistakes_are_named() {
    let world = World::new(None);
    let run = |options: &[&str], command: &[&str]| {
        let output = world.sandbox(options, command).output().unwrap();
        (output.status.code(), text(&output.stderr))
    };
    let (status, error) = run(&[], &["no-such-command"]);
    assert_eq!(status, Some(127));
    assert!(error.contains("there is no command no-such-command"), "{error}");
    let (status, error) = run(&["--read", "/no/such/folder"], &["true"]);
    assert_eq!(status, Some(125));
    assert!(error.contains("/no/such/folder: there is no such file or folder"), "{error}");
    let (status, error) = run(&["--timeout", "-1"], &["true"]);
    assert_eq!(status, Some(125));
    assert!(error.contains("--timeout") && error.contains("a number of seconds above 0"), "{error}");
    let (status, error) = run(&["--cwd", "/no/such/folder"], &["true"]);
    assert_eq!(status, Some(125));
    assert!(error.contains("the working directory"), "{error}");
    let bare = Command::new(env!("CARGO_BIN_EXE_ken-sandbox")).output().unwrap();
    assert_eq!(bare.status.code(), Some(125));
    assert!(text(&bare.stderr).contains("COMMAND"), "{bare:?}");
}

/// On a kernel without what the sandbox needs nothing is run. Simulated by a filter that hides the system call.
#[test]
fn without_the_kernels_help_nothing_is_run() {
    for (call, named) in [(nix::libc::SYS_landlock_create_ruleset, "Landlock"), (nix::libc::SYS_seccomp, "seccomp")] {
        let world = World::new(None);
        let mut command = world.sandbox(&[], &["touch", "it-ran"]);
        restrict(&mut command, hiding(call));
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(125), "{output:?}");
        assert!(text(&output.stderr).contains(named), "{output:?}");
        assert!(!world.inside().join("it-ran").exists());
    }
}

/// Whoever kills the supervisor ends the sandbox too, where it has a PID namespace of its own.
#[test]
fn a_killed_supervisor_leaves_nothing() {
    for user in users() {
        let world = World::new(user);
        let mut child = world.sandbox(&[], &["sh", "-c", "setsid sleep 304 & echo ready; sleep 305"]).spawn().unwrap();
        assert_eq!(first_line(&mut child), "ready");
        child.kill().unwrap();
        child.wait().unwrap();
        until_gone(&world);
    }
}

#[test]
fn only_the_descriptors_that_are_named_stay_open() {
    let world = World::new(None);
    let outside = world.outside();
    let secret = outside.join("secret");
    let script = format!("exec 7<'{0}' 8<'{0}'; exec \"$0\" --fd 7 -- sh -c 'cat <&7; cat <&8'", secret.display());
    let output = Command::new("sh").args(["-c", &script, env!("CARGO_BIN_EXE_ken-sandbox")]).output().unwrap();
    assert_eq!(text(&output.stdout), "the secret", "{output:?}");
    assert!(!output.status.success());
}

#[test]
fn it_ends_with_its_parent() {
    for user in users() {
        let world = World::new(user);
        let sandbox = world.sandbox(&["--with-parent"], &["sh", "-c", "setsid sleep 306 & echo ready; sleep 307"]);
        let words = std::iter::once(sandbox.get_program()).chain(sandbox.get_args());
        let line: Vec<_> = words.map(|word| format!("'{}'", word.to_str().unwrap())).collect();
        // A shell between this test and the sandbox, which is killed without having a say.
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("{}; exit", line.join(" "))]).stdout(std::process::Stdio::piped());
        if let Some(cwd) = sandbox.get_current_dir() {
            shell.current_dir(cwd);
        }
        let mut shell = shell.spawn().unwrap();
        assert_eq!(first_line(&mut shell), "ready");
        shell.kill().unwrap();
        shell.wait().unwrap();
        until_gone(&world);
    }
}

/// A supervisor that is killed cannot remove its control group; the next one does.
#[test]
fn the_control_group_of_a_killed_supervisor_is_removed_by_the_next() {
    let world = World::new(None);
    let mut child = world.sandbox(&[], &["sh", "-c", "grep ^0:: /proc/self/cgroup; sleep 308"]).spawn().unwrap();
    let line = first_line(&mut child);
    child.kill().unwrap();
    child.wait().unwrap();
    let name = line.rsplit('/').next().unwrap_or_default().to_owned();
    if !name.starts_with("ken-sandbox-") {
        println!("no control group may be made here: {line}");
        return;
    }
    let left = || {
        // The processes in it take a moment to disappear.
        assert!(shell(&world, &[], "true").status.success());
        let found = Command::new("find").args(["/sys/fs/cgroup", "-name", &name]).output().unwrap();
        !found.stdout.is_empty()
    };
    let end = Instant::now() + Duration::from_secs(10);
    while left() {
        assert!(Instant::now() < end, "{name} is left behind");
    }
}

/// Where a control group may be made the command is in one of its own, also if it cannot be started inside, and nothing of it stays.
#[test]
fn a_control_group_goes_with_its_command() {
    let run = |kernel| {
        let world = World::on(kernel, None);
        let output = shell(&world, &["--memory", "4096"], "cat /proc/self/cgroup; sh -c 'cat /proc/self/cgroup'");
        assert!(output.status.success(), "{output:?}");
        let names: Vec<String> = text(&output.stdout)
            .lines()
            .filter_map(|line| line.strip_prefix("0::")?.rsplit('/').next().map(str::to_owned))
            .collect();
        let found = Command::new("find").args(["/sys/fs/cgroup", "-name", &names[0]]).output().unwrap();
        (names, found)
    };
    let (names, found) = run(Kernel::This);
    if !names[0].starts_with("ken-sandbox-") {
        println!("no control group may be made here: {names:?}");
        return;
    }
    assert_eq!(text(&found.stdout), "", "the group is left behind");
    let (names, found) = run(Kernel::WithoutNamespaces);
    assert!(names.len() == 2 && names.iter().all(|name| name.starts_with("ken-sandbox-")), "{names:?}");
    assert_eq!(text(&found.stdout), "", "the group is left behind");
}
