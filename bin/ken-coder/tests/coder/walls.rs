//! What a command is given stays what was checked, whatever another one renames meanwhile; and what the result says about it.

use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command};

use crate::common::{Home, executable, hide_namespaces, outcome, until};
use serde_json::{Value, json};

/// An ordinary user that every system has: nobody.
const NOBODY: u32 = 65534;

/// As whom to run: `None` is whoever runs the tests. Another user needs root.
fn users() -> Vec<Option<u32>> {
    if nix::unistd::geteuid().is_root() { vec![None, Some(NOBODY)] } else { vec![None] }
}

fn give(home: &Home, user: Option<u32>) {
    let mut paths = vec![home.folder().to_owned()];
    while let Some(path) = paths.pop() {
        if let Some(user) = user {
            chown(&path, Some(user), Some(user)).unwrap();
        }
        if path.is_dir() {
            paths.extend(std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
        }
    }
}

/// Whoever owns a file can change it without being allowed to read it; nobody can copy it before.
#[test]
fn a_file_that_may_not_be_read_is_named_before_and_after() {
    // Root may read all of them.
    let user = users().pop().flatten();
    let home = Home::new();
    for place in ["repos/site/secret", "repos/site/closed/in", "repos/site/a"] {
        home.put(place, "x\n");
    }
    give(&home, user);
    let set_mode = |place: &str, mode| {
        std::fs::set_permissions(home.path(place), std::fs::Permissions::from_mode(mode)).unwrap();
    };
    for (place, mode) in [("repos/site/secret", 0), ("repos/site/closed", 0), ("repos/site/a", 0o644)] {
        set_mode(place, mode);
    }
    let call = json!({"shell": "chmod u+r secret; chmod a= a; echo new >c", "cwd": "repos/site"});
    let (_, preview) = ended(started_as(home.command(&["run", "--preview"]), user, &call));
    let lines = json!(["1 folder without permission to read", "1 without permission to read"]);
    assert_eq!(preview["action"]["notUndone"], lines);
    let (_, done) = ended(started(&home, user, &call));
    let named = json!(["repos/site/a", "repos/site/secret"]);
    assert_eq!(done["notSaved"], named, "{done}");
    for expected in [named, json!(["repos/site/secret"])] {
        let mut undo = home.command(&["undo", done["run"].as_str().unwrap()]);
        if let Some(user) = user {
            undo.uid(user).gid(user);
        }
        let (status, undone) = outcome(&undo.output().unwrap());
        let refused = undone["refused"].as_array().unwrap().iter().map(|one| one["path"].clone()).collect::<Value>();
        assert_eq!((status, refused), (Some(1), expected), "{undone}");
        // What it was is in the journal, and it is found to be the same.
        set_mode("repos/site/a", 0o644);
    }
    assert!(!home.path("repos/site/c").exists());
    set_mode("repos/site/closed", 0o755);
}

fn started(home: &Home, user: Option<u32>, call: &Value) -> Child {
    started_as(home.command(&["run", "--format", "compact"]), user, call)
}

fn started_as(mut command: Command, user: Option<u32>, call: &Value) -> Child {
    if let Some(user) = user {
        command.uid(user).gid(user);
    }
    crate::common::started(command, call)
}

fn ended(child: Child) -> (Option<i32>, Value) {
    outcome(&child.wait_with_output().unwrap())
}

/// The first command replaces the folder of the second one, which has been approved and waits for it, by a link to somewhere
/// else: to ken's own files here.
#[test]
fn a_folder_that_is_replaced_while_a_command_waits_is_not_followed() {
    for user in users() {
        let home = Home::new();
        home.put("repos/a/file", "mine\n");
        let outside = home.folder().join("outside");
        std::fs::create_dir(&outside).unwrap();
        std::fs::write(outside.join("secret"), "the secret").unwrap();
        give(&home, user);
        let script = format!("touch started; sleep 2; mv a a.old; ln -s '{}' a", outside.display());
        let first = started(&home, user, &json!({"shell": script, "cwd": "repos"}));
        until(|| home.path("repos/started").exists());
        let second = json!({"shell": "cat secret; echo x > planted", "cwd": "repos/a"});
        let second = started(&home, user, &second);
        let (status, answer) = ended(first);
        assert_eq!(status, Some(0), "{answer}");
        assert!(home.path("repos/a").is_symlink());
        let (_, answer) = ended(second);
        assert!(!answer.to_string().contains("the secret"), "as {user:?}: {answer}");
        assert!(!outside.join("planted").exists(), "as {user:?}: {answer}");
        let message = answer["error"]["message"].as_str().unwrap_or_default();
        assert!(message.contains("repos/a") && message.contains("link"), "{answer}");
    }
}

/// A folder that is replaced while its command runs stays the folder of the command, and the result says it.
#[test]
fn a_folder_that_is_replaced_while_its_command_runs_is_named() {
    for user in users() {
        let home = Home::new();
        home.put("repos/a/file", "mine\n");
        give(&home, user);
        let script = "touch started; sleep 2; echo x > ./late; chmod 700 ./late";
        let running = started(&home, user, &json!({"shell": script, "cwd": "repos/a"}));
        until(|| home.path("repos/a/started").exists());
        std::fs::rename(home.path("repos/a"), home.path("repos/b")).unwrap();
        std::fs::create_dir(home.path("repos/a")).unwrap();
        std::fs::set_permissions(home.path("repos/a"), PermissionsExt::from_mode(0o777)).unwrap();
        let (_, answer) = ended(running);
        assert_eq!(answer["moved"], json!(["repos/a"]), "{answer}");
        assert!(home.path("repos/b/late").exists() && !home.path("repos/a/late").exists(), "{answer}");
    }
}

/// A killed ken-coder leaves its command two seconds to end. Until then no other one begins.
#[test]
fn a_command_that_outlives_its_caller_holds_the_lock() {
    let home = Home::new();
    let script = "trap '' TERM; touch started; while true; do echo >> last; sleep 0.01; done";
    let mut first = started(&home, None, &json!({"shell": script, "cwd": "repos/site"}));
    until(|| home.path("repos/site/started").exists());
    first.kill().unwrap();
    first.wait().unwrap();
    let (_, answer) =
        ended(started(&home, None, &json!({"shell": "wc -l < last; sleep 1; wc -l < last", "cwd": "repos/site"})));
    let counts: Vec<&str> = answer["stdout"].as_str().unwrap().lines().collect();
    assert!(counts.len() == 2 && counts[0] == counts[1], "{answer}");
}

#[test]
fn ken_s_own_files_are_never_granted() {
    let home = Home::new();
    for granted in [home.folder().to_owned(), home.state(), home.folder().parent().unwrap().to_owned()] {
        home.configure(&format!("read = [{:?}]", granted.display().to_string()));
        let answer = home.refused("run", &json!({"argv": ["true"], "cwd": "repos/site"}));
        let message = answer["message"].as_str().unwrap();
        assert!(message.contains("which no command may touch"), "{granted:?}: {answer}");
    }
    let elsewhere = tempfile::tempdir().unwrap();
    std::fs::write(elsewhere.path().join("header"), "text\n").unwrap();
    home.configure(&format!("read = [{:?}]", elsewhere.path().display().to_string()));
    let header = elsewhere.path().join("header").display().to_string();
    let answer = home.done("run", &json!({"argv": ["cat", header], "cwd": "repos/site"}));
    assert_eq!(answer["stdout"], "text\n", "{answer}");
}

/// The person's next `git status` runs what the configuration of the repository names.
#[test]
fn a_command_cannot_make_git_run_programs() {
    let home = Home::new();
    home.git(&["init", "-q"]);
    let before = home.text("repos/site/.git/config");
    for (cwd, path) in [("repos/site", "."), ("repos", "site")] {
        let script = format!(
            "git -C {path} config core.fsmonitor /tmp/x; mkdir -p {path}/.git/hooks; echo x > {path}/.git/hooks/pre-commit; \
             mv {path}/.git {path}/g; cp -r {path}/g {path}/.git; \
             cd {path} && echo 1 > file && git add file && git -c user.name=a -c user.email=a@b.c commit -q -m one"
        );
        let answer = home.done("run", &json!({"shell": script, "cwd": cwd, "timeoutSeconds": 60}));
        assert_eq!(home.text("repos/site/.git/config"), before, "{answer}");
        assert!(
            !home.path("repos/site/.git/hooks/pre-commit").exists() && !home.path("repos/site/g").exists(),
            "{answer}"
        );
        assert_eq!(answer["gitUnprotected"], Value::Null, "{answer}");
    }
    assert!(home.git(&["log", "--oneline"]).contains("one"));
}

/// Where no namespace can be made the command runs, and the result says that repositories were not protected.
#[test]
fn without_namespaces_the_result_says_that_git_was_not_protected() {
    let home = Home::new();
    let mut command = home.command(&["run", "--format", "compact"]);
    hide_namespaces(&mut command);
    let (_, answer) = ended(started_as(command, None, &json!({"argv": ["touch", "file"], "cwd": "repos/site"})));
    assert_eq!((&answer["status"], &answer["gitUnprotected"]), (&json!(0), &json!(true)), "{answer}");
}

/// On an older kernel namespaces hold what Landlock lacks.
#[test]
fn commands_run_on_an_older_kernel() {
    for user in users() {
        let home = Home::new();
        give(&home, user);
        let mut command = home.command(&["run", "--format", "compact"]);
        command.env("KEN_LANDLOCK_VERSION", "2");
        let call =
            json!({"shell": "echo x > file; kill -0 1 && truncate -s 0 /etc/hostname; cat file", "cwd": "repos/site"});
        let (_, answer) = ended(started_as(command, user, &call));
        assert_eq!((&answer["stdout"], &answer["changed"]), (&json!("x\n"), &json!(["repos/site/file"])), "{answer}");
    }
}

/// The folder for temporary files counts too, although it is on another file system than the workspace.
#[test]
fn a_command_that_fills_its_temporary_folder_is_stopped() {
    use std::os::unix::fs::MetadataExt;
    let home = Home::new();
    let memory = Path::new("/dev/shm");
    let device = |path: &Path| std::fs::metadata(path).map(|about| about.dev()).ok();
    if device(memory).is_none() || device(memory) == device(home.folder()) {
        ken_tests::skip("/dev/shm is no file system of its own");
        return;
    }
    let folder = tempfile::tempdir_in(memory).unwrap();
    let mut command = home.command(&["run", "--format", "compact"]);
    command.env("KEN_CODER_DISK", "20").env("TMPDIR", folder.path());
    let script = "while :; do head -c 1000000 /dev/zero >> $TMPDIR/f; done";
    let (_, answer) =
        ended(started_as(command, None, &json!({"shell": script, "cwd": "repos/site", "timeoutSeconds": 60})));
    assert!(answer["stopped"].as_str().is_some_and(|why| why.contains("20 MiB")), "{answer}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "what it filled is free again");
}

/// A program is looked up in the folder in which the command starts.
#[test]
fn a_program_of_the_project_starts_by_its_relative_path() {
    let home = Home::new();
    executable(&home.path("repos/site/configure"), "#!/bin/sh\necho configured\n");
    home.put("repos/site/build/x", "");
    for (program, cwd) in
        [("./configure", "repos/site"), ("../configure", "repos/site/build"), ("site/configure", "repos")]
    {
        let answer = home.done("run", &json!({"argv": [program], "cwd": cwd}));
        assert_eq!(answer["stdout"], "configured\n", "{program}: {answer}");
    }
    let answer = home.refused("run", &json!({"argv": ["./missing"], "cwd": "repos/site"}));
    assert!(answer["message"].as_str().unwrap().contains("there is no command ./missing"), "{answer}");
}
