//! Tests of commands and git: what they can access, what they leave behind, and what needs approval.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::{Home, executable, hide, output_text, until};
use serde_json::{Value, json};

fn shell(home: &Home, text: &str) -> Value {
    home.done("run", &json!({"shell": text, "cwd": "repos/site", "timeoutSeconds": 60}))
}

#[test]
fn a_command_changes_its_project_and_nothing_else() {
    let home = Home::new();
    home.put("repos/other/a", "other\n");
    home.put("AGENTS.md", "rules\n");
    let state = home.state();
    let ran = shell(
        &home,
        &format!(
            "cat ../other/a; echo x > b; echo y > ../other/b; echo y > ../../AGENTS.md; echo y > ../../new; \
             ls {0}; echo y > {0}/lock; rm -rf {0}; cat /etc/shadow; echo y > /tmp/ken-coder-was-here; kill -0 {1}; exit 7",
            state.display(),
            std::process::id()
        ),
    );
    assert_eq!((&ran["status"], &ran["stdout"]), (&json!(7), &json!("other\n")), "{ran}");
    assert_eq!(ran["changed"], json!(["repos/site/b"]), "{ran}");
    assert_eq!((home.text("repos/site/b").as_str(), home.text("AGENTS.md").as_str()), ("x\n", "rules\n"));
    assert!(state.join("lock").exists() && !Path::new("/tmp/ken-coder-was-here").exists());
    assert!(!home.path("new").exists() && !home.path("repos/other/b").exists());
}

/// The launcher of a toolchain is on PATH, and what it starts lies in a home folder that commands do not see.
#[test]
fn a_toolchain_that_is_out_of_reach_is_answered_with_the_setting_that_allows_it() {
    let home = Home::new();
    let toolchain = tempfile::Builder::new().prefix("toolchain").tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    executable(&toolchain.path().join("cc"), "#!/bin/sh\necho compiled\n");
    let launch = format!("exec {}/cc", toolchain.path().display());
    let ran = shell(&home, &launch);
    assert_eq!(ran["status"], 126, "{ran}");
    assert!(ran["hint"].as_str().is_some_and(|hint| hint.contains("`read`") && hint.contains("ken.toml")), "{ran}");
    let allowed = Home::with(&format!("read = [\"{}\"]", toolchain.path().display()));
    let ran = shell(&allowed, &launch);
    assert_eq!((&ran["stdout"], &ran["hint"]), (&json!("compiled\n"), &Value::Null), "{ran}");
}

/// ken reads its own sandbox's errors as JSON; how the programs of a command write theirs is not ken's affair.
#[test]
fn a_command_does_not_get_the_form_of_errors() {
    let ran = shell(&Home::new(), "echo ${KEN_ERRORS-none}");
    assert_eq!(ran["stdout"], "none\n", "{ran}");
}

/// Some programs that start others ignore SIGCHLD, and what they start inherits that.
#[test]
fn a_parent_that_ignores_the_ends_of_its_children_does_no_harm() {
    let home = Home::new();
    let sandbox = Path::new(env!("CARGO_BIN_EXE_ken-coder")).with_file_name("ken-sandbox");
    let call = json!({"shell": "echo out; exit 7", "cwd": "repos/site"}).to_string();
    for (program, words, printed) in [
        (Path::new(env!("CARGO_BIN_EXE_ken-coder")), ["run", "--format", "compact", "--json", &call], "\"status\":7"),
        (&sandbox, ["--", "sh", "-c", "echo out; exit 7", ""], "out\n"),
    ] {
        let mut command = Command::new("timeout");
        command.args(["-s", "KILL", "60", "sh", "-c", "trap '' CHLD; exec \"$0\" \"$@\""]).arg(program).args(words);
        let output = command.env("KEN_HOME", home.folder()).stdin(Stdio::null()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(said.contains(printed) && output.status.code().is_some_and(|code| code < 8), "{output:?}");
    }
}

#[test]
fn there_is_no_network() {
    let home = Home::new();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let ran = shell(&home, &format!("bash -c 'echo x > /dev/tcp/127.0.0.1/{port}' && echo connected"));
    assert_eq!(ran["stdout"], "", "{ran}");
    assert_ne!(ran["status"], 0);
}

#[test]
fn a_flood_is_cut_in_its_middle() {
    let home = Home::new();
    let call = json!({"shell": "echo first; yes | head -c 50000000; echo last; echo end >&2", "cwd": "repos/site", "maxBytes": 2000});
    let ran = home.done("run", &call);
    let text = ran["stdout"].as_str().unwrap();
    assert!(text.starts_with("first\ny\n") && text.ends_with("y\nlast\n"), "{text}");
    assert!(text.len() < 2_100 && text.contains("bytes are left out"), "{}", text.len());
    assert_eq!((&ran["stdoutBytes"], &ran["stderr"]), (&json!(50_000_011), &json!("end\n")));
    // Whatever is asked for, the reply has no more than a mebibyte of each output.
    let call = json!({"shell": "yes | head -c 3000000", "cwd": "repos/site", "maxBytes": 3_000_000});
    let kept = home.done("run", &call)["stdout"].as_str().unwrap().len();
    assert!((1 << 20..(1 << 20) + 100).contains(&kept), "{kept}");
}

#[test]
fn a_long_list_of_changed_files_says_how_many_more_there_are() {
    let home = Home::new();
    for (count, more) in [(100, ""), (101, "[and 1 more]\n")] {
        let call =
            json!({"shell": format!("mkdir d{count}; cd d{count}; seq {count} | xargs touch"), "cwd": "repos/site"});
        let output = home.command(&["run", "--format", "summary", "--json", &call.to_string()]).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let (listed, rest) = text.split_at(text.rfind("\nchanged ").unwrap() + 1);
        assert_eq!(listed.lines().count(), 99, "{text}");
        let (_, rest) = rest.split_once('\n').unwrap();
        assert!(rest.starts_with(&format!("{more}undo: ken undo ")), "{rest}");
    }
}

#[test]
fn a_command_that_does_not_end_is_ended_with_all_that_it_started() {
    let home = Home::new();
    let begun = Instant::now();
    let ran = home.done(
        "run",
        &json!({"shell": "trap '' TERM; setsid sh -c 'trap \"\" TERM; sleep 321 & sleep 322' & sleep 323", "cwd": "repos/site", "timeoutSeconds": 0.5}),
    );
    assert_eq!((&ran["timedOut"], &ran["status"]), (&json!(true), &json!(124)), "{ran}");
    assert!(begun.elapsed() < Duration::from_secs(30));
    assert_nothing_works_in(&home.path("repos/site"));
    // The command ends but leaves a daemon behind that keeps the outputs open.
    let ran = shell(&home, "setsid sh -c 'sleep 324 & sleep 325' & echo done");
    assert_eq!((&ran["stdout"], &ran["status"]), (&json!("done\n"), &json!(0)), "{ran}");
    assert_nothing_works_in(&home.path("repos/site"));
}

fn assert_nothing_works_in(folder: &Path) {
    let left: Vec<_> = std::fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter(|entry| std::fs::read_link(entry.path().join("cwd")).is_ok_and(|cwd| cwd == folder))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_command_that_fills_the_disk_is_stopped() {
    let home = Home::new();
    let mut command = home.command(&["run", "--format", "compact", "--json"]);
    command
        .arg(json!({"shell": "while :; do head -c 1000000 /dev/zero >> f; done", "cwd": "repos/site", "timeoutSeconds": 60}).to_string())
        .env("KEN_CODER_DISK", "20");
    let output = command.output().unwrap();
    let ran: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
    assert!(ran["stopped"].as_str().is_some_and(|why| why.contains("20 MiB")), "{ran}");
    let size = std::fs::metadata(home.path("repos/site/f")).unwrap().len();
    assert!(size < 1_000_000_000, "{size}");
    // The size of a single file is limited too.
    let ran = shell(&home, "head -c 700000000 /dev/zero > big; stat -c %s big; rm big");
    assert_eq!(ran["stdout"], "536870912\n", "{ran}");
}

/// If ken-coder is killed, the command ends too, and what it had changed is recorded.
#[test]
fn a_killed_command_leaves_no_process_and_is_on_record() {
    let home = Home::new();
    home.put("repos/site/a", "one\n");
    // Its content is not kept, so an undo must leave it alone.
    home.put("repos/site/big", &"x".repeat(17_000_000));
    let mut child = home
        .command(&["run", "--json"])
        .arg(
            json!({"shell": "echo two > a; echo >> big; echo new > b; setsid sleep 326 & sleep 327", "cwd": "repos/site"})
                .to_string(),
        )
        .env("KEN_RUN", "cut")
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    until(|| home.path("repos/site/b").exists());
    child.kill().unwrap();
    child.wait().unwrap();
    let site = home.path("repos/site");
    until(|| std::panic::catch_unwind(|| assert_nothing_works_in(&site)).is_ok());
    let (status, undone) = home.report(&["undo", "cut"]);
    assert_eq!((status, &undone["refused"][0]["path"]), (Some(1), &json!("repos/site/big")), "{undone}");
    assert_eq!(std::fs::metadata(home.path("repos/site/big")).unwrap().len(), 17_000_001);
    assert_eq!(home.text("repos/site/a"), "one\n");
    assert!(!home.path("repos/site/b").exists());
}

#[test]
fn tests_are_run_by_the_files_of_a_project() {
    let home = Home::new();
    home.put("repos/site/Makefile", "test:\n\t@echo tested\n");
    let call = json!({"cwd": "repos/site"});
    let preview = home.preview("test", &call);
    assert_eq!((&preview["approval"], &preview["action"]["argv"]), (&json!("ask"), &json!(["make", "test"])));
    assert_eq!(home.done("test", &call)["stdout"], "tested\n");
    home.put("repos/site/Makefile", "test:\n\t@false\n");
    assert_ne!(home.done("test", &call)["status"], 0);
    assert!(home.why_not("test", &json!({"cwd": "repos"})).contains("none of"));
}

#[test]
fn a_commit_is_what_its_preview_showed() {
    let home = Home::with_repository();
    home.put("repos/site/a", "two\n");
    home.put("repos/site/b", "new\n");
    executable(&home.path("repos/site/.git/hooks/pre-commit"), "#!/bin/sh\ntouch hooked\nexit 1\n");
    let call = json!({"repo": "repos/site", "message": "Change a\n\nAnd add b."});
    let before = home.files();
    let preview = home.preview("commit", &call);
    assert_eq!(home.files(), before, "a preview changes nothing, in .git neither");
    assert_eq!((&preview["approval"], &preview["actionType"]), (&json!("ask"), &json!("git.commit")));
    assert_eq!(preview["summary"], "Commit to main of repos/site: Change a");
    let diff = preview["diff"].as_str().unwrap();
    assert!(diff.contains("-one\n+two\n") && diff.contains("+new\n"), "{diff}");
    assert_eq!(home.preview("commit", &call)["fingerprint"], preview["fingerprint"]);
    home.put("repos/site/b", "other\n");
    assert_ne!(home.preview("commit", &call)["fingerprint"], preview["fingerprint"]);
    home.put("repos/site/b", "new\n");
    home.done("commit", &call);
    assert_eq!(home.git(&["rev-parse", "HEAD^{tree}"]), preview["action"]["tree"].as_str().unwrap());
    assert_eq!(home.git(&["log", "-1", "--format=%an: %B"]).trim(), "ken coding worker: Change a\n\nAnd add b.");
    assert!(!home.path("repos/site/hooked").exists(), "hooks do not run");
    assert!(home.why_not("commit", &call).contains("nothing to commit"));
    assert!(home.why_not("commit", &json!({"repo": "repos/site", "message": " "})).contains("message"));
    let only = json!({"repo": "repos/site", "message": "Only b", "paths": ["repos/site/b"]});
    home.put("repos/site/a", "three\n");
    home.put("repos/site/b", "three\n");
    home.done("commit", &only);
    let status = home.done("status", &json!({"repo": "repos/site"}));
    assert!(
        status["text"].as_str().unwrap().contains(" M a") && !status["text"].as_str().unwrap().contains(" b"),
        "{status}"
    );
}

#[test]
fn looking_at_a_repository_changes_nothing_whatever_its_settings_run() {
    let home = Home::with_repository();
    home.put("repos/site/a", "two\n");
    home.put("repos/site/.gitattributes", "a diff=evil filter=evil\n");
    let trap = home.path("repos/site/trapped");
    for name in ["core.fsmonitor", "diff.evil.textconv", "diff.evil.command", "filter.evil.clean", "core.pager"] {
        home.git(&["config", name, &format!("touch {}; cat", trap.display())]);
    }
    let before = home.files();
    for (command, call) in [
        ("status", json!({"repo": "repos/site"})),
        ("changes", json!({"repo": "repos/site", "base": "HEAD"})),
        ("log", json!({"repo": "repos/site"})),
    ] {
        let output = home.call(command, &call);
        assert!(!trap.exists(), "{command}: {output:?}");
        assert_eq!(home.files(), before, "{command}");
    }
    let log = home.done("log", &json!({"repo": "repos/site", "commits": 1}));
    assert!(log["text"].as_str().unwrap().ends_with("A: First\n"), "{log}");
    for (command, call) in [
        ("changes", json!({"repo": "repos/site", "base": "--output=/tmp/x"})),
        ("log", json!({"repo": "repos/site", "from": "-1"})),
        ("push", json!({"repo": "repos/site", "remote": "ext::sh -c id"})),
        ("push", json!({"repo": "repos/site", "branch": "--mirror"})),
    ] {
        assert!(home.why_not(command, &call).contains("is not the name"), "{call}");
    }
    assert!(home.why_not("status", &json!({"repo": "repos"})).contains("a repository is"));
    std::fs::create_dir(home.path("repos/none")).unwrap();
    assert!(home.why_not("status", &json!({"repo": "repos/none"})).contains("not a git repository"));
}

#[test]
fn a_push_reaches_a_remote_of_the_workspace_only() {
    let home = Home::with_repository();
    home.git(&["init", "-q", "--bare", home.path("repos/bare").to_str().unwrap()]);
    home.git(&["remote", "add", "origin", home.path("repos/bare").to_str().unwrap()]);
    home.git(&["remote", "add", "far", "https://example.org/x.git"]);
    home.git(&["remote", "add", "shell", "ext::sh -c id"]);
    let push = json!({"repo": "repos/site"});
    let preview = home.preview("push", &push);
    assert_eq!((&preview["approval"], &preview["risk"]), (&json!("ask"), &json!("high")));
    assert_eq!(preview["action"]["commit"], home.git(&["rev-parse", "HEAD"]));
    home.done("push", &push);
    assert_eq!(
        home.git(&["ls-remote", "origin", "main"]).split('\t').next().unwrap(),
        home.git(&["rev-parse", "HEAD"])
    );
    for remote in ["far", "shell"] {
        let call = json!({"repo": "repos/site", "remote": remote});
        let output = home.command(&["push", "--preview", "--json", &call.to_string()]).output().unwrap();
        assert!(output_text(&output).contains("forbidden"), "{output:?}");
        assert_eq!(home.refused("push", &call)["code"], "forbidden");
    }
}

/// If the kernel lacks the system call that confines a command, nothing is run. A filter that hides the call simulates
/// this.
#[test]
fn without_the_kernels_help_nothing_is_done() {
    for (call, named) in [(444, "Landlock"), (437, "openat2")] {
        let home = Home::new();
        home.put("repos/site/a", "one\n");
        for words in [
            ["read", "--json", r#"{"path":"repos/site/a"}"#],
            ["write", "--json", r#"{"path":"repos/site/b","content":"x"}"#],
            ["run", "--json", r#"{"argv":["ls"],"cwd":"repos/site"}"#],
            ["run", "--json", r#"{"argv":["touch","b"],"cwd":"repos/site"}"#],
        ] {
            let mut command = home.command(&words);
            hide(&mut command, call);
            let output = command.output().unwrap();
            assert_eq!(output.status.code(), Some(2), "{words:?} {output:?}");
            assert!(output_text(&output).contains(named), "{words:?} {output:?}");
        }
        assert!(!home.path("repos/site/b").exists());
    }
}
