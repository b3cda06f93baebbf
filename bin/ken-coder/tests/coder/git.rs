//! Tests of ken's own git: it does what was shown, and runs nothing that a repository names.

use std::path::{Path, PathBuf};

use crate::common::{Home, as_run, executable, outcome, started, trust};
use serde_json::{Value, json};

/// A program that leaves a canary when it runs. It passes its input on, so that git goes on with it as a filter.
fn trap(home: &Home, name: &str) -> (PathBuf, PathBuf) {
    let folder = home.folder().join("traps");
    std::fs::create_dir_all(folder.join("sung")).unwrap();
    // Only the workspace can be written to in the sandbox, so the canary is there.
    let (program, canary) = (folder.join(name), home.path(&format!("repos/site/sung-{name}")));
    executable(&program, &format!("#!/bin/sh\ntouch {}\ncat\n", canary.display()));
    (program, canary)
}

/// A clean filter of the repository could put something else into the commit than into its preview.
#[test]
fn a_filter_of_the_repository_is_refused_and_named() {
    let home = Home::with_repository();
    home.put("repos/site/.gitattributes", "*.bin filter=evil\n");
    home.put("repos/site/x.bin", "data\n");
    home.put("repos/site/a", "two\n");
    home.git(&["config", "filter.evil.clean", "cat; date +%N"]);
    let call = json!({"repo": "repos/site", "message": "All"});
    let error = home.refused("commit", &call);
    assert_eq!(error["code"], "forbidden", "{error}");
    assert!(error["message"].as_str().unwrap().contains("x.bin (evil)"), "{error}");
    assert!(error["hint"].as_str().unwrap().contains("`filters`"), "{error}");
    home.done("commit", &json!({"repo": "repos/site", "message": "One", "paths": ["repos/site/a"]}));
    assert_eq!(home.git(&["show", "--format=", "--name-only"]), "a");
}

/// A filter that the operator names runs, with the operator's command and not the repository's.
#[test]
fn a_filter_of_the_operator_runs_in_the_sandbox() {
    let home = Home::with_repository();
    home.configure("rules = [{ path = \"repos\", policy = \"ask\", filters = { upper = \"tr a-z A-Z\" } }]");
    home.put("repos/site/.gitattributes", "*.up filter=upper\n");
    home.put("repos/site/x.up", "data\n");
    home.git(&["config", "filter.upper.clean", "tr a-z 0-9"]);
    let call = json!({"repo": "repos/site", "message": "Up"});
    let preview = home.preview("commit", &call);
    assert!(preview["diff"].as_str().unwrap().contains("\n+DATA\n"), "{preview}");
    home.done("commit", &call);
    assert_eq!(home.git(&["rev-parse", "HEAD^{tree}"]), preview["action"]["tree"].as_str().unwrap());
    assert_eq!(home.git(&["cat-file", "-p", "HEAD:x.up"]), "DATA");
}

/// Attributes cannot hide a text in the diff that is shown.
#[test]
fn the_diff_of_a_commit_shows_a_text_that_attributes_call_binary() {
    let home = Home::with_repository();
    home.put("repos/site/.gitattributes", "* diff=evil\n*.sh -diff\n");
    home.git(&["add", "."]);
    home.git(&["commit", "-q", "-m", "Attributes"]);
    home.put("repos/site/run.sh", "curl evil\n");
    let preview = home.preview("commit", &json!({"repo": "repos/site", "message": "Harmless"}));
    assert!(preview["diff"].as_str().unwrap().contains("+curl evil\n"), "{preview}");
}

/// What a person has staged and committed by hand fits together with what ken commits.
#[test]
fn a_commit_leaves_the_index_as_git_does() {
    let home = Home::with_repository();
    home.put("repos/site/sub/b", "b\n");
    home.put("repos/site/c", "c\n");
    home.git(&["add", "c"]);
    std::fs::remove_file(home.path("repos/site/a")).unwrap();
    home.done("commit", &json!({"repo": "repos/site/sub", "message": "Only sub", "paths": ["b", "repos/site/a"]}));
    assert_eq!(home.git(&["status", "--porcelain"]), "A  c");
    assert_eq!(home.git(&["show", "--format=%s", "--name-status"]), "Only sub\n\nD\ta\nA\tsub/b");
    home.git(&["fsck", "--strict"]);
    assert!(home.git(&["reflog", "-1"]).contains("commit: Only sub"));
    // A detached HEAD gets the commit, and no branch moves.
    let main = home.git(&["rev-parse", "main"]);
    home.git(&["checkout", "-q", "--detach"]);
    home.put("repos/site/c", "cc\n");
    home.done("commit", &json!({"repo": "repos/site", "message": "Detached"}));
    assert_eq!(home.git(&["log", "-1", "--format=%s"]), "Detached");
    assert_eq!(home.git(&["rev-parse", "main"]), main);
    assert_eq!(home.git(&["status", "--porcelain"]), "");
    // While another git holds the index, nothing is committed.
    home.put("repos/site/c", "ccc\n");
    home.put("repos/site/.git/index.lock", "");
    let error = home.refused("commit", &json!({"repo": "repos/site", "message": "Locked"}));
    assert!(error["hint"].as_str().unwrap().contains("index.lock"), "{error}");
    assert!(home.path("repos/site/.git/index.lock").exists(), "the lock of somebody else stays");
    assert_eq!(home.git(&["log", "-1", "--format=%s"]), "Detached");
}

/// `paths` are files and folders by their names, in a repository of the workspace and in a trusted folder.
#[test]
fn paths_name_what_is_shown_and_committed() {
    let (home, own) = (Home::with_repository(), tempfile::tempdir().unwrap());
    trust(&home, own.path(), None);
    for (folder, repo) in [(home.path("repos/site"), "repos/site"), (own.path().to_owned(), ".")] {
        let git = |words: &[&str]| home.git(&[&["-C", folder.to_str().unwrap()], words].concat());
        let call = |command: &str, paths: &[&str]| {
            let paths: Vec<String> = paths.iter().map(|path| format!("{repo}/{path}")).collect();
            let mut call = json!({"repo": repo, "paths": paths});
            if command == "commit" {
                call["message"] = json!("By name");
            }
            let mut command = home.command(&[command, "--format", "compact"]);
            if repo == "." {
                command.env("KEN_FOLDER", &folder);
            }
            outcome(&started(command, &call).wait_with_output().unwrap()).1
        };
        git(&["init", "-q"]);
        for (name, text) in [("c", "1\n"), ("src/x", "1\n"), ("cd", "1\n"), ("gone", "1\n")] {
            std::fs::create_dir_all(folder.join("src")).unwrap();
            std::fs::write(folder.join(name), text).unwrap();
        }
        git(&["add", "--all"]);
        git(&["commit", "-q", "-m", "Before"]);
        for name in ["c", "src/x", "cd", "env", ".env", "*", ":x", "-y", "staged", "too", "src/new"] {
            std::fs::write(folder.join(name), format!("2 {name}\n")).unwrap();
        }
        git(&["add", "staged", "too", "src/new"]);
        git(&["rm", "-q", "gone"]);
        for (paths, in_diff) in [(&["c"][..], "b/c\n"), (&["src"], "b/src/x\n"), (&["src/x", "none"], "b/src/x\n")] {
            let shown = call("changes", paths)["text"].as_str().unwrap().to_owned();
            assert_eq!(shown.matches("+++ ").count(), 1, "{repo} {paths:?}: {shown}");
            assert!(shown.contains(&format!("+++ {in_diff}")), "{repo} {paths:?}: {shown}");
            assert!(call("log", paths)["text"].as_str().unwrap().ends_with(": Before\n"), "{repo} {paths:?}");
        }
        assert_eq!(call("log", &["env"])["text"], "", "{repo}");
        // What is staged elsewhere is left alone, as by `git commit PATHS`.
        for (paths, committed) in [
            (&["env"][..], "A\tenv"),
            (&["c"], "M\tc"),
            (&["*"], "A\t*"),
            (&[":x", "-y"], "A\t-y\nA\t:x"),
            (&["src"], "A\tsrc/new\nM\tsrc/x"),
            (&["gone", "too"], "D\tgone\nA\ttoo"),
        ] {
            let reply = call("commit", paths);
            assert!(reply["text"].is_string(), "{repo} {paths:?}: {reply}");
            assert_eq!(git(&["show", "--format=", "--name-status"]), committed, "{repo} {paths:?}");
        }
        assert_eq!(git(&["status", "--porcelain"]), "M cd\nA  staged\n?? .env", "{repo}");
        git(&["fsck", "--strict"]);
        let message = call("commit", &["none"])["error"]["message"].take();
        assert!(message.as_str().unwrap().contains("nothing to commit"), "{message}");
    }
}

/// The first commit of a repository can be of some files too.
#[test]
fn the_first_commit_is_of_the_named_files() {
    let home = Home::new();
    home.git(&["init", "-q"]);
    home.put("repos/site/a", "a\n");
    home.put("repos/site/b", "b\n");
    home.git(&["add", "b"]);
    home.done("commit", &json!({"repo": "repos/site", "message": "First", "paths": ["a"]}));
    assert_eq!(home.git(&["ls-tree", "--name-only", "HEAD"]), "a");
    assert_eq!(home.git(&["status", "--porcelain"]), "A  b");
    home.done("commit", &json!({"repo": "repos/site", "message": "All"}));
    assert_eq!(home.git(&["ls-tree", "--name-only", "HEAD"]), "a\nb");
}

/// What git has begun, git finishes: ken would lose the second parent of a merge, and commit the marks of a conflict.
#[test]
fn no_commit_is_made_in_the_middle_of_a_merge_or_with_a_conflict() {
    let home = Home::with_repository();
    home.git(&["checkout", "-q", "-b", "side"]);
    for (text, message) in [("side\n", "Side"), ("further\n", "Further")] {
        home.put("repos/site/a", text);
        home.put("repos/site/b", text);
        home.git(&["add", "."]);
        home.git(&["commit", "-q", "-m", message]);
    }
    home.git(&["checkout", "-q", "main"]);
    for name in ["a", "b"] {
        home.put(&format!("repos/site/{name}"), "main\n");
    }
    home.git(&["add", "."]);
    home.git(&["commit", "-q", "-m", "Main"]);
    home.git(&["worktree", "add", "-q", "--detach", home.path("repos/second").to_str().unwrap()]);
    let patch = home.git(&["format-patch", "-o", home.folder().to_str().unwrap(), "-1", "side"]);
    // Git ends with an error where there is a conflict.
    let attempt = |folder: &str, words: &[&str]| {
        let words = ["-c", "user.name=A", "-c", "user.email=a@x", "-c", "safe.directory=*"].iter().chain(words);
        let mut git = std::process::Command::new("git");
        git.args(words).current_dir(home.path(folder)).env("HOME", home.folder()).env("GIT_EDITOR", "true");
        git.output().unwrap().status.success()
    };
    for (folder, begin, command, said, finish) in [
        ("repos/site", &["merge", "side"][..], "commit", "a merge is under way", "`git commit`"),
        ("repos/second", &["merge", "side"], "commit", "a merge is under way", "`git commit`"),
        ("repos/site", &["cherry-pick", "side"], "cherry-pick", "a cherry-pick is under way", "`git cherry-pick --con"),
        ("repos/site", &["revert", "side"], "revert", "a revert is under way", "`git revert --continue`"),
        ("repos/site", &["rebase", "side"], "rebase", "a rebase is under way", "`git rebase --continue`"),
        ("repos/site", &["am", "-3", &patch], "am", "a rebase or git am is under way", "git am --continue`"),
    ] {
        let heads = || home.git(&["worktree", "list", "--porcelain"]);
        assert!(!attempt(folder, begin), "{folder} {begin:?}");
        let before = heads();
        for (paths, resolved) in [(json!([]), false), (json!(["b"]), false), (json!([]), true)] {
            if resolved {
                for name in ["a", "b"] {
                    home.put(&format!("{folder}/{name}"), "both\n");
                }
                attempt(folder, &["add", "a", "b"]);
            }
            let why = home.why_not("commit", &json!({"repo": folder, "message": "Over", "paths": paths}));
            assert!(why.contains(said) && why.contains(folder) && why.contains(finish), "{begin:?} {resolved}: {why}");
            assert_eq!(heads(), before, "{begin:?}");
        }
        if command == "commit" {
            assert!(attempt(folder, &["commit", "-q", "-m", "Merged"]), "{folder} {begin:?}");
            home.put(&format!("{folder}/c"), "c\n");
            home.done("commit", &json!({"repo": folder, "message": "After"}));
            assert!(attempt(folder, &["rev-parse", "--quiet", "--verify", "HEAD~1^2"]), "the merge has two parents");
            assert!(attempt(folder, &["reset", "-q", "--hard", "HEAD~1^1"]));
        } else {
            assert!(attempt(folder, &[command, "--abort"]), "{begin:?}");
        }
    }
    // Without an operation, a conflict alone.
    home.put("repos/site/a", "mine\n");
    home.put("repos/site/b", "mine\n");
    home.git(&["stash"]);
    home.put("repos/site/a", "theirs\n");
    home.put("repos/site/b", "theirs\n");
    home.put("repos/site/d", "d\n");
    home.git(&["add", "a", "b"]);
    home.done("commit", &json!({"repo": "repos/site", "message": "Theirs", "paths": ["a", "b"]}));
    assert!(!attempt("repos/site", &["stash", "pop"]));
    for (add, said) in [(None, "a conflict: a, b"), (Some("a"), "a conflict: b")] {
        add.map(|name| home.git(&["add", name]));
        let why = home.why_not("commit", &json!({"repo": "repos/site", "message": "x", "paths": ["d"]}));
        assert!(why.ends_with(said), "{why}");
    }
    home.git(&["add", "b"]);
    home.done("commit", &json!({"repo": "repos/site", "message": "Done", "paths": ["d"]}));
}

#[test]
fn a_further_worktree_and_sha256_are_repositories_too() {
    let home = Home::with_repository();
    home.git(&["worktree", "add", "-q", "-b", "side", home.path("repos/side").to_str().unwrap()]);
    home.put("repos/side/b", "b\n");
    home.done("commit", &json!({"repo": "repos/side", "message": "Aside"}));
    assert_eq!(home.git(&["log", "-1", "--format=%s", "side"]), "Aside");
    assert_eq!(home.git(&["log", "-1", "--format=%s", "main"]), "First");
    assert!(home.done("log", &json!({"repo": "repos/side"}))["text"].as_str().unwrap().contains(": Aside\n"));
    std::fs::create_dir_all(home.path("repos/long")).unwrap();
    home.git(&["init", "-q", "--object-format=sha256", home.path("repos/long").to_str().unwrap()]);
    home.put("repos/long/b", "b\n");
    home.done("commit", &json!({"repo": "repos/long", "message": "Long"}));
    let id = home.done("log", &json!({"repo": "repos/long"}));
    assert!(id["text"].as_str().unwrap().contains("ken coding worker: Long"), "{id}");
    // `.git` as a file that leads out of the workspace is refused.
    home.put("repos/out/.git", "gitdir: /etc\n");
    assert!(
        home.why_not("status", &json!({"repo": "repos/out"})).contains("does not lead to a folder of the workspace")
    );
}

/// Each makes the folder in which it runs a work tree of the repository `../site`, which does not know it.
const POINTERS: [&str; 9] = [
    "echo 'gitdir: ../site/.git' > .git",
    "echo 'gitdir: ../site/.git/worktrees/side' > .git",
    "echo \"gitdir: $PWD/../site/.git\" > .git",
    "ln -s ../site link; echo 'gitdir: link/.git' > .git",
    "ln -s ../site/.git .git",
    "ln -s ../site link; ln -s link/.git .git",
    "mkdir .git; cp ../site/.git/HEAD .git; echo ../../site/.git > .git/commondir; echo ../.git > .git/gitdir",
    "printf 'ref: refs/heads/main\n' > HEAD; mkdir objects refs; echo ../site/.git > commondir",
    "mkdir -p w/.git/objects w/.git/refs w/sub; cp ../site/.git/HEAD w/.git; echo 'gitdir: ../../../site/.git' > w/sub/.git",
];

/// Fills `repos/new`, and returns the work tree that a script of [`POINTERS`] makes.
fn led_elsewhere(home: &Home, script: &str) -> String {
    let _ = std::fs::remove_dir_all(home.path("repos/new"));
    home.put("repos/new/f", "f\n");
    (if script.contains("w/sub") { "repos/new/w/sub" } else { "repos/new" }).to_owned()
}

/// A repository with a further work tree, and a hook that is a file of the work tree.
fn with_side_and_hook() -> Home {
    let home = Home::with_repository();
    home.git(&["branch", "other"]);
    home.git(&["remote", "add", "origin", "../site"]);
    home.git(&["worktree", "add", "-q", "-b", "side", home.path("repos/side").to_str().unwrap()]);
    home.git(&["config", "core.hooksPath", "husky"]);
    home
}

#[test]
fn a_command_leaves_no_pointer_to_another_repository() {
    let home = with_side_and_hook();
    let canary = home.folder().join("canary");
    // Two that ken cannot read, or reads otherwise than git.
    let more = [
        "echo 'gitdir: ../site/.git' > one; ln one .git",
        "mkdir ' ..'; ln -s ../../site ' ../new'; echo 'gitdir:  ../new/.git' > .git",
        "echo 'gitdir: ../later/.git' > .git",
        "mkdir z; ln -s ../site/.git 'z\n'; printf 'gitdir: z\\n\\0x' > .git",
        "printf 'gitdir: ../site/.git\\0x\\n' > .git",
    ];
    let files = |home: &Home| {
        let site = home.path("repos/site");
        home.files().into_iter().filter(|(path, _)| path.starts_with(&site)).collect::<Vec<_>>()
    };
    let before = files(&home);
    for script in POINTERS.iter().chain(&more) {
        let place = led_elsewhere(&home, script);
        let hook = "at=$PWD; [ -d w/sub ] && at=w/sub; mkdir $at/husky; printf '#!/bin/sh\ntouch CANARY\n' > $at/husky/pre-commit; \
            chmod +x $at/husky/pre-commit"
            .replace("CANARY", canary.to_str().unwrap());
        let ran = home.done("run", &json!({"shell": format!("{script}; {hook}"), "cwd": "repos/new"}));
        assert_eq!(ran["status"], 0, "{script}: {ran}");
        let disarmed = ran["disarmed"].as_array().unwrap_or_else(|| panic!("{script}: {ran}"));
        assert!(disarmed.iter().all(|place| place.as_str().unwrap().starts_with("repos/new/")), "{script}: {ran}");
        let _ = std::process::Command::new("git")
            .args(["-c", "user.name=A", "-c", "user.email=a@x", "-c", "safe.directory=*"])
            .args(["commit", "-q", "--allow-empty", "-m", "By hand"])
            .current_dir(home.path(&place))
            .env("GIT_CEILING_DIRECTORIES", home.path("repos/new"))
            .output();
        assert!(!canary.exists(), "{script}: {ran}");
        assert!(files(&home) == before, "{script}: {ran}");
    }
    // What leads to a repository of the project stays.
    for script in ["git init -q sub; mv sub/.git g; echo 'gitdir: ../g' > sub/.git", "git init -q g; ln -s g/.git .git"]
    {
        led_elsewhere(&home, script);
        let ran = home.done("run", &json!({"shell": script, "cwd": "repos/new"}));
        assert_eq!((&ran["status"], &ran["disarmed"]), (&json!(0), &Value::Null), "{script}: {ran}");
    }
}

#[test]
fn a_repository_that_does_not_know_the_work_tree_is_not_used() {
    let home = with_side_and_hook();
    home.git(&["config", "--unset", "core.hooksPath"]);
    let before = home.git(&["for-each-ref"]);
    for script in POINTERS {
        let place = led_elsewhere(&home, script);
        let made = std::process::Command::new("sh").args(["-c", script]).current_dir(home.path("repos/new")).status();
        assert!(made.unwrap().success(), "{script}");
        home.put(&format!("{place}/new"), "new\n");
        for (command, call) in [
            ("status", json!({"repo": place})),
            ("commit", json!({"repo": place, "message": "New"})),
            ("push", json!({"repo": place, "branch": "other"})),
        ] {
            let output = home.call(command, &call);
            assert_eq!(output.status.code(), Some(2), "{script}: {command}: {output:?}");
        }
        assert_eq!(home.git(&["for-each-ref"]), before, "{script}");
    }
    home.put("repos/new0/.git", "gitdir: ../site/.git\n");
    let why = home.refused("commit", &json!({"repo": "repos/new0", "message": "New"}));
    assert_eq!(
        why["message"], "repos/new0/.git leads to repos/site/.git, which does not know it as its work tree",
        "{why}"
    );
    // A work tree that was moved, before and after git is told.
    std::fs::rename(home.path("repos/side"), home.path("repos/moved")).unwrap();
    home.put("repos/moved/new", "new\n");
    let commit = json!({"repo": "repos/moved", "message": "Moved"});
    let error = home.refused("commit", &commit);
    assert!(error["hint"].as_str().unwrap().contains("`git worktree repair`"), "{error}");
    home.git(&["worktree", "repair", home.path("repos/moved").to_str().unwrap()]);
    home.done("commit", &commit);
    assert_eq!(home.git(&["log", "-1", "--format=%s", "side"]), "Moved");
    // With relative pointers, as git writes them with worktree.useRelativePaths.
    std::fs::write(home.path("repos/moved/.git"), "gitdir: ../site/.git/worktrees/side\n").unwrap();
    std::fs::write(home.path("repos/site/.git/worktrees/side/gitdir"), "../../../../moved/.git\n").unwrap();
    assert!(home.done("log", &json!({"repo": "repos/moved"}))["text"].as_str().unwrap().contains(": Moved\n"));
    // A submodule of such a work tree.
    let library = home.folder().join("library");
    home.git(&["clone", "-q", ".", library.to_str().unwrap()]);
    let moved = home.path("repos/moved");
    let in_moved = |words: &[&str]| home.git(&[&["-C", moved.to_str().unwrap()], words].concat());
    in_moved(&["-c", "protocol.file.allow=always", "submodule", "-q", "add", library.to_str().unwrap(), "sub"]);
    home.put("repos/moved/sub/new", "new\n");
    home.done("commit", &json!({"repo": "repos/moved/sub", "message": "In sub"}));
    assert_eq!(in_moved(&["-C", "sub", "log", "-1", "--format=%s"]), "In sub");
}

/// What git changes for a call: the repository that is named, the one whose refs a work tree shares, and the folder of a remote.
#[test]
fn a_rule_that_denies_a_repository_denies_every_way_to_it() {
    let home = Home::with_repository();
    let site = home.path("repos/site");
    let at = |name: &str| home.path(name).display().to_string();
    home.git(&["worktree", "add", "-q", "-b", "side", &at("repos/side")]);
    home.git(&["init", "-q", "--bare", &at("repos/prod.git")]);
    home.git(&["clone", "-q", "--origin", "site", ".", &at("repos/free")]);
    let in_free = |words: &[&str]| home.git(&[&["-C", &at("repos/free")], words].concat());
    for (name, url) in [("prod", "../prod.git"), ("side", "../side"), ("whole", &*at("repos/prod.git"))] {
        in_free(&["remote", "add", name, url]);
    }
    home.put("repos/side/new", "new\n");
    home.put("repos/free/new", "new\n");
    let commit = |repo: &str| ("commit", json!({"repo": repo, "message": "New"}));
    let push = |repo: &str, remote: &str| ("push", json!({"repo": repo, "remote": remote, "branch": "main"}));
    let cases = [
        (commit("repos/side"), "repos/site", "Commit to side of repos/side (repository repos/site/.git): New"),
        (commit("repos/free"), "", "Commit to main of repos/free: New"),
        (push("repos/free", "prod"), "repos/prod.git", "Push main of repos/free to ../prod.git"),
        (push("repos/free", "whole"), "repos/prod.git", ""),
        (push("repos/free", "site"), "repos/site", ""),
        (
            push("repos/free", "side"),
            "repos/side repos/site",
            "Push main of repos/free to ../side (repository repos/site/.git)",
        ),
    ];
    for denied in ["none", "repos/site", "repos/side", "repos/prod.git", "repos/free"] {
        home.configure(&format!(
            "rules = [{{ path = \"{denied}\", policy = \"deny\" }}, {{ path = \"repos\", policy = \"auto-edit\" }}]"
        ));
        for ((command, call), others, summary) in &cases {
            let is_denied = others.split(' ').any(|other| other == denied) || call["repo"] == denied;
            let preview = home.preview(command, call);
            let expected = if is_denied { "deny" } else { "ask" };
            assert_eq!(preview["approval"], expected, "{denied} {command} {call}: {preview}");
            assert!(summary.is_empty() || preview["summary"] == *summary, "{preview}");
            if is_denied {
                let before = (home.git(&["for-each-ref"]), in_free(&["for-each-ref"]));
                let why = home.refused(command, call);
                assert_eq!(why["code"], "forbidden", "{denied} {command} {call}: {why}");
                assert!(
                    why["message"].as_str().unwrap().contains("a rule of the operator forbids changes of"),
                    "{why}"
                );
                assert_eq!((home.git(&["for-each-ref"]), in_free(&["for-each-ref"])), before);
            }
        }
    }
    let preview = home.preview("commit", &cases[0].0.1);
    assert_eq!(preview["action"]["repository"], "repos/site/.git", "{preview}");
    assert_eq!(home.preview("commit", &cases[1].0.1)["action"]["repository"], Value::Null);
    assert_eq!(home.preview("push", &cases[5].0.1)["action"]["remoteRepository"], "repos/site/.git");
    // Without a rule that denies it, each of them is done.
    home.configure("");
    for index in [0, 1, 2] {
        home.done(cases[index].0.0, &cases[index].0.1);
    }
    assert!(site.exists() && home.git(&["log", "-1", "--format=%s", "side"]) == "New");
    assert_eq!(home.git(&["--git-dir", &at("repos/prod.git"), "log", "-1", "--format=%s", "main"]), "New");
}

/// A push publishes one commit on one branch at one address, whatever the configuration asks for besides.
#[test]
fn a_push_does_what_it_shows_and_runs_no_program_of_the_remote() {
    let home = Home::with_repository();
    let (bare, other) = (home.path("repos/bare"), home.path("repos/other"));
    for folder in [&bare, &other] {
        home.git(&["init", "-q", "--bare", folder.to_str().unwrap()]);
    }
    home.git(&["remote", "add", "origin", "../bare"]);
    home.git(&["tag", "-a", "-m", "t", "v1"]);
    let (program, canary) = trap(&home, "push");
    let text = format!("#!/bin/sh\ntouch {}\n", canary.display());
    for name in [
        "pre-receive", "update", "post-receive", "post-update", "reference-transaction", "proc-receive",
        "push-to-checkout",
    ] {
        executable(&bare.join("hooks").join(name), &text);
    }
    for name in ["pre-push", "reference-transaction", "post-index-change"] {
        executable(&home.path("repos/site/.git/hooks").join(name), &text);
    }
    let program = program.to_str().unwrap();
    for (key, value) in [
        ("push.followTags", "true"),
        ("push.gpgSign", "if-asked"),
        ("push.recurseSubmodules", "on-demand"),
        ("push.default", "matching"),
        ("push.pushOption", "ci.skip"),
        ("remote.origin.mirror", "true"),
        ("remote.origin.receivepack", program),
        ("remote.origin.vcs", "evil"),
        ("remote.origin.push", "refs/*:refs/*"),
        ("url.ext::sh -c id .pushInsteadOf", "../bare"),
        ("core.alternateRefsCommand", program),
        ("core.sshCommand", program),
        ("gpg.program", program),
    ] {
        home.git(&["config", key, value]);
    }
    let there = |words: &[&str]| home.git(&[&["--git-dir", bare.to_str().unwrap()], words].concat());
    there(&["config", "core.alternateRefsCommand", program]);
    there(&["config", "receive.procReceiveRefs", "refs/heads"]);
    there(&["config", "core.hooksPath", "hooks"]);
    let push = json!({"repo": "repos/site"});
    let preview = home.preview("push", &push);
    assert_eq!((&preview["action"]["remote"], &preview["action"]["branch"]), (&json!("../bare"), &json!("main")));
    home.done("push", &push);
    assert_eq!(there(&["for-each-ref", "--format=%(refname)"]), "refs/heads/main", "no tags");
    assert_eq!(there(&["rev-parse", "main"]), home.git(&["rev-parse", "HEAD"]));
    there(&["fsck", "--strict"]);
    assert_eq!(home.git(&["rev-parse", "refs/remotes/origin/main"]), home.git(&["rev-parse", "HEAD"]));
    assert!(!canary.exists());
    // A second push adds to the first one; what is not a successor is refused.
    home.put("repos/site/a", "two\n");
    home.done("commit", &json!({"repo": "repos/site", "message": "Second"}));
    home.done("push", &push);
    assert_eq!(there(&["log", "-1", "--format=%s", "main"]), "Second");
    home.git(&["-c", "core.hooksPath=/dev/null", "branch", "fix/#12+x"]);
    home.done("push", &json!({"repo": "repos/site", "branch": "fix/#12+x"}));
    assert_eq!(there(&["log", "-1", "--format=%s", "fix/#12+x"]), "Second");
    home.git(&["-c", "core.hooksPath=/dev/null", "commit", "-q", "--amend", "-m", "Other"]);
    assert!(home.why_not("push", &push).contains("does not contain"));
    // Two addresses are two pushes.
    home.git(&["config", "--add", "remote.origin.pushurl", "../bare"]);
    home.git(&["config", "--add", "remote.origin.pushurl", "../other"]);
    let error = home.refused("push", &push);
    assert!(error["message"].as_str().unwrap().contains("has 2 addresses"), "{error}");
    // A branch that is checked out elsewhere is not moved.
    home.git(&["clone", "-q", "--template=", ".", home.path("repos/copy").to_str().unwrap()]);
    home.git(&["remote", "add", "copy", "../copy"]);
    assert!(home.why_not("push", &json!({"repo": "repos/site", "remote": "copy"})).contains("is checked out"));
    home.git(&["remote", "add", "out", home.folder().to_str().unwrap()]);
    home.git(&["remote", "add", "dots", home.path("repos/site/../bare").to_str().unwrap()]);
    for remote in ["out", "dots"] {
        let error = home.refused("push", &json!({"repo": "repos/site", "remote": remote}));
        assert!(error["message"].as_str().unwrap().contains("not a repository of the workspace"), "{error}");
    }
    assert!(!canary.exists());
}

#[test]
fn a_folder_is_cloned_without_running_its_programs() {
    let home = Home::with_repository();
    let (program, canary) = trap(&home, "clone");
    home.git(&["config", "uploadpack.packObjectsHook", program.to_str().unwrap()]);
    home.git(&["config", "core.fsmonitor", program.to_str().unwrap()]);
    executable(&home.path("repos/site/.git/hooks/post-checkout"), &format!("#!/bin/sh\ntouch {}\n", canary.display()));
    home.done("clone", &json!({"url": "../site", "repo": "repos/copy"}));
    assert_eq!(home.text("repos/copy/a"), "one\n");
    assert!(home.text("repos/copy/.git/config").contains("url = ../site\n"));
    assert!(!home.path("repos/copy/.git/hooks").exists() && !canary.exists());
    let log = home.done("log", &json!({"repo": "repos/copy"}));
    assert!(log["text"].as_str().unwrap().ends_with("First\n"), "{log}");
}

/// Each of these makes git run a program, or read something elsewhere. A key that names a filter or the like is tried with
/// an attribute that leads to it.
const HOSTILE: [&str; 26] = [
    "core.fsmonitor", "core.pager", "core.editor", "core.askPass", "core.sshCommand", "core.gitProxy",
    "core.alternateRefsCommand", "core.hooksPath", "core.attributesFile", "diff.external", "diff.evil.command",
    "diff.evil.textconv", "filter.evil.clean", "filter.evil.smudge", "filter.evil.process", "merge.evil.driver",
    "gpg.program", "gpg.ssh.program", "gpg.ssh.defaultKeyCommand", "credential.helper", "pager.status",
    "sequence.editor", "interactive.diffFilter", "uploadpack.packObjectsHook", "trailer.evil.command", "alias.status",
];

#[test]
fn no_setting_of_a_repository_has_an_effect_on_git_of_ken() {
    let home = Home::with_repository();
    let (program, canary) = trap(&home, "setting");
    home.put("repos/site/.gitattributes", "a diff=evil filter=evil merge=evil\n");
    home.put("repos/site/b", "new\n");
    home.put("repos/site/a", "two\n");
    let included = home.path("repos/site/included");
    let mut text = String::from("[commit]\n\tgpgSign = true\n[log]\n\tshowSignature = true\n");
    for key in HOSTILE {
        let (section, name) = key.rsplit_once('.').unwrap();
        let section = section.replacen('.', " \"", 1);
        let end = if section.contains('"') { "\"" } else { "" };
        text.push_str(&format!("[{section}{end}]\n\t{name} = {}\n", program.display()));
    }
    std::fs::write(&included, &text).unwrap();
    let config = home.path("repos/site/.git/config");
    let plain = std::fs::read_to_string(&config).unwrap();
    let elsewhere = format!("[core]\n\tworktree = {}\n", home.folder().display());
    let link = format!("[include]\n\tpath = {0}\n[includeIf \"gitdir:**\"]\n\tpath = {0}\n", included.display());
    for (name, config_text) in [
        ("direct", format!("{plain}{text}")),
        ("included", format!("{plain}{link}")),
        ("elsewhere", format!("{plain}{elsewhere}")),
    ] {
        std::fs::write(&config, config_text).unwrap();
        std::fs::write(home.path("repos/site/.git/config.worktree"), &text).unwrap();
        let ran = [
            ("status", json!({"repo": "repos/site"})),
            ("changes", json!({"repo": "repos/site", "base": "HEAD"})),
            ("log", json!({"repo": "repos/site"})),
            ("commit", json!({"repo": "repos/site", "message": name, "paths": ["b"]})),
            ("run", json!({"argv": ["touch", format!("made-{name}")], "cwd": "repos/site"})),
        ];
        for (command, call) in ran {
            let output = home.call(command, &call);
            assert_eq!(output.status.code(), Some(0), "{name} {command}: {output:?}");
            assert!(!canary.exists(), "{name} {command}");
        }
        let status = home.done("status", &json!({"repo": "repos/site"}));
        assert!(status["text"].as_str().unwrap().contains(" M a\n"), "{name}: {status}");
        home.put("repos/site/b", name);
    }
}

fn fifo(path: &Path) {
    nix::unistd::mkfifo(path, nix::sys::stat::Mode::from_bits_truncate(0o644)).unwrap();
}

/// A FIFO blocks whoever opens it until somebody writes to it.
#[test]
fn a_fifo_stops_nobody() {
    let home = Home::with_repository();
    home.put("projects/other/x", "needle\n");
    home.put("repos/site/dir/y", "needle\n");
    for name in
        ["repos/site/.gitignore", "repos/site/dir/.gitattributes", "repos/site/.gitmodules", "repos/site/.ignore"]
    {
        fifo(&home.path(name));
    }
    std::fs::create_dir_all(home.path("repos/site/.git/info")).unwrap();
    let _ = std::fs::remove_file(home.path("repos/site/.git/info/exclude"));
    fifo(&home.path("repos/site/.git/info/exclude"));
    let begun = std::time::Instant::now();
    for (command, call) in [
        ("list", json!({"path": ".", "depth": 5})),
        ("search", json!({"pattern": "needle"})),
        ("documents", json!({"collection": "workspace"})),
        ("run", json!({"argv": ["touch", "z"], "cwd": "repos/site"})),
        ("write", json!({"path": "repos/site/w", "content": "x"})),
    ] {
        let done = home.done(command, &call);
        if command == "search" {
            assert_eq!(done["matches"].as_array().unwrap().len(), 2, "{done}");
        }
    }
    for (command, call) in
        [("status", json!({"repo": "repos/site"})), ("commit", json!({"repo": "repos/site", "message": "m"}))]
    {
        let why = home.why_not(command, &call);
        assert!(why.contains("not a regular file") || why.contains("is a FIFO"), "{command}: {why}");
    }
    assert!(begun.elapsed().as_secs() < 60, "{:?}", begun.elapsed());
}

/// A command cannot hide what it does by telling git to ignore it.
#[test]
fn what_git_tracks_is_put_back_whatever_the_command_makes_git_ignore() {
    let home = Home::with_repository();
    home.put("repos/site/kept.o", "tracked although ignored\n");
    home.put("repos/site/plain", "neither tracked nor ignored\n");
    home.git(&["add", "kept.o"]);
    home.git(&["commit", "-q", "-m", "Second"]);
    home.put("repos/site/staged.o", "in the index only\n");
    home.git(&["add", "staged.o"]);
    home.put("repos/site/.gitignore", "*.o\n");
    home.put("repos/site/gone.o", "ignored\n");
    let before = home.files();
    let script = "printf '*\\n' > .gitignore; echo '*' > .git/info/exclude; rm a plain *.o; echo new > made; mkdir d; echo '*' > d/.gitignore; echo x > d/x";
    as_run(&home, "r1", "run", &json!({"shell": script, "cwd": "repos/site"}));
    let (status, undone) = home.report(&["undo", "r1"]);
    assert_eq!(status, Some(0), "{undone}");
    let mut after = home.files();
    let ignored = home.path("repos/site/gone.o");
    assert!(!ignored.exists(), "an ignored file is not kept");
    after.insert(ignored.clone(), before[&ignored].clone());
    let work = |files: &std::collections::BTreeMap<PathBuf, Vec<u8>>| -> Vec<(PathBuf, Vec<u8>)> {
        files
            .iter()
            .filter(|(path, _)| !path.to_str().unwrap().contains("/.git/"))
            .map(|(path, text)| (path.clone(), text.clone()))
            .collect()
    };
    assert_eq!(work(&after), work(&before));
    assert!(!home.path("repos/site/d").exists());
}

/// Removing a branch and its objects is undone too: refs alone would lead to nothing.
#[test]
fn refs_come_back_with_their_objects() {
    let home = Home::with_repository();
    home.git(&["branch", "side"]);
    home.put("repos/site/a", "two\n");
    home.git(&["commit", "-q", "-a", "-m", "Second"]);
    home.put("repos/site/staged", "staged\n");
    home.git(&["add", "staged"]);
    home.git(&["tag", "v1"]);
    let refs = home.git(&["for-each-ref"]);
    let script = "git reset -q --hard HEAD~1 && git branch -q -D side && git tag -d v1 && git branch new && git checkout -q new \
        && git reflog expire --expire=now --all && rm -f .git/ORIG_HEAD && git gc -q --prune=now";
    let ran = as_run(&home, "r1", "run", &json!({"shell": script, "cwd": "repos/site"}));
    assert_eq!(ran["status"], 0, "{ran}");
    assert_ne!(home.git(&["for-each-ref"]), refs);
    let (_, shown) = home.report(&["diff", "r1"]);
    let names: Vec<&str> = shown["refs"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["refs/heads/main", "refs/heads/new", "refs/heads/side", "refs/tags/v1"], "{shown}");
    let (status, undone) = home.report(&["undo", "r1"]);
    assert_eq!(status, Some(0), "{undone}");
    assert_eq!(home.git(&["for-each-ref"]), refs, "{undone}");
    assert_eq!(home.git(&["symbolic-ref", "HEAD"]), "refs/heads/main");
    assert_eq!(home.git(&["status", "--porcelain"]), "A  staged");
    home.git(&["fsck", "--strict", "--connectivity-only"]);
    home.git(&["fsck", "--strict"]);
    assert_eq!(home.text("repos/site/a"), "two\n");
    // The undo can be undone.
    assert_eq!(home.report(&["undo", undone["undo"].as_str().unwrap()]).0, Some(0));
    assert_eq!(home.git(&["symbolic-ref", "HEAD"]), "refs/heads/new");
    assert_eq!(home.git(&["log", "--format=%s"]), "First");
    // So is the removal of the whole repository.
    home.git(&["checkout", "-q", "main"]);
    let refs = home.git(&["for-each-ref"]);
    as_run(&home, "r2", "run", &json!({"shell": "rm -rf .git", "cwd": "repos/site"}));
    assert!(!home.path("repos/site/.git/HEAD").exists());
    let (status, undone) = home.report(&["undo", "r2"]);
    assert_eq!(status, Some(0), "{undone}");
    assert_eq!((home.git(&["for-each-ref"]), home.git(&["status", "--porcelain"])), (refs, String::new()));
    home.git(&["fsck", "--strict"]);
}

/// A ref that somebody has moved since stays, and is named.
#[test]
fn a_commit_is_undone_unless_somebody_went_on() {
    let home = Home::with_repository();
    let commit = |run: &str, text: &str| {
        home.put("repos/site/a", text);
        let call = json!({"repo": "repos/site", "message": text}).to_string();
        let output = home.command(&["commit", "--json", &call]).env("KEN_RUN", run).output().unwrap();
        assert!(output.status.success(), "{output:?}");
    };
    commit("r1", "two");
    // The person's git rewrites the index without changing it.
    home.git(&["status"]);
    assert_eq!(home.report(&["undo", "r1"]).0, Some(0));
    assert_eq!(home.git(&["log", "--format=%s"]), "First");
    assert_eq!(home.git(&["diff", "--cached", "--name-only"]), "");
    assert_eq!(home.git(&["status", "--porcelain"]), "M a", "the file was not changed by the commit");
    commit("r2", "three");
    home.git(&["commit", "-q", "--allow-empty", "-m", "By hand"]);
    let (status, undone) = home.report(&["undo", "r2"]);
    assert_eq!(
        (status, &undone["refused"][0]["path"]),
        (Some(1), &json!("repos/site/.git/refs/heads/main")),
        "{undone}"
    );
    assert_eq!(home.git(&["log", "-1", "--format=%s"]), "By hand");
}

/// What undo will not restore is part of what a person decides about, and short.
#[test]
fn what_is_left_out_is_shown_before_the_command_runs() {
    let home = Home::with_repository();
    home.put("repos/site/.gitignore", "node_modules\n*.o\n");
    for number in 0..2_000 {
        home.put(&format!("repos/site/node_modules/p{}/f{number}", number % 50), "x");
        home.put(&format!("repos/site/src{}/f{number}.o", number % 40), "x");
    }
    home.put("repos/site/keep.o", "tracked\n");
    home.git(&["add", "-f", "keep.o"]);
    let call = json!({"argv": ["make"], "cwd": "repos/site"});
    let preview = home.preview("run", &call);
    let lines: Vec<&str> =
        preview["action"]["notUndone"].as_array().unwrap().iter().map(|line| line.as_str().unwrap()).collect();
    assert_eq!(lines[0], "repos/site/node_modules: 2000 files", "{lines:?}");
    assert_eq!(lines.len(), 21, "{lines:?}");
    assert_eq!(lines[20], "21 other folders: 1050 files", "{lines:?}");
    home.put("repos/site/node_modules/more", "x");
    assert_eq!(home.preview("run", &call)["fingerprint"], preview["fingerprint"], "a build does not change it");
    assert!(home.preview("run", &json!({"argv": ["ls"], "cwd": "repos/site"}))["action"]["notUndone"].is_null());
}

/// All contents are copied that fit, and the person is told of the others before the command runs.
#[test]
fn what_cannot_be_copied_is_counted_before_the_command_runs() {
    let home = Home::with_repository();
    let call = json!({"argv": ["make"], "cwd": "repos/site"});
    let lines = || home.preview("run", &call)["action"]["notUndone"].take();
    let large = |name: &str, bytes: u64| std::fs::File::create(home.path(name)).unwrap().set_len(bytes).unwrap();
    std::fs::remove_file(home.path("repos/site/a")).unwrap();
    for number in 0..16 {
        large(&format!("repos/site/f{number:02}"), 16 << 20);
    }
    assert_eq!(lines(), json!(null), "they are as large as can be, and so are all of them together");
    large("repos/site/f16", 1);
    assert_eq!(lines(), json!(["1 beyond 256 MiB of new contents"]));
    large("repos/site/f00", (16 << 20) + 1);
    std::fs::hard_link(home.path("repos/site/f01"), home.path("repos/site/f02b")).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(home.path("repos/site/fifo")).status().unwrap().success());
    let expected =
        json!(["1 of another kind than file or link", "1 with more than 16 MiB", "2 with more than one hard link"]);
    assert_eq!(lines(), expected);
}

/// What git executes is never edited without a person, whatever a rule says.
#[test]
fn what_git_executes_is_never_edited_without_a_person() {
    let home = Home::with_repository();
    home.configure("rules = [{ path = \"repos\", policy = \"auto-edit\" }]");
    let approval = |path: &str| home.preview("write", &json!({"path": path, "content": "x"}))["approval"].take();
    assert_eq!(approval("repos/site/husky/pre-commit"), "none");
    home.git(&["config", "core.hooksPath", "husky"]);
    home.git(&["config", "include.path", "../more"]);
    assert_eq!(approval("repos/site/husky/pre-commit"), "ask");
    assert_eq!(approval("repos/site/more"), "ask");
    assert_eq!(approval("repos/site/b"), "none");
    // In a further work tree and in a repository below, too, and what a setting names as a program.
    home.git(&["worktree", "add", "-q", "tree"]);
    home.git(&["init", "-q", "sub"]);
    home.git(&["-C", "sub", "config", "core.hooksPath", "hooks"]);
    home.git(&["config", "filter.x.clean", "sh ./tools/clean %f"]);
    for path in ["tree/husky/pre-commit", "sub/hooks/pre-commit", "tools/clean"] {
        assert_eq!(approval(&format!("repos/site/{path}")), "ask", "{path}");
    }
    for path in ["tree/b", "sub/husky/pre-commit", "hooks/pre-commit", "tools/other"] {
        assert_eq!(approval(&format!("repos/site/{path}")), "none", "{path}");
    }
}

/// What a configuration names is open to no command. One that is too long to be read is not passed over, as git reads it, too.
#[test]
fn a_configuration_that_is_too_long_is_named_before_a_command_runs() {
    let home = Home::with_repository();
    let hooks = "[core]\n\thooksPath = husky\n";
    home.git(&["config", "include.path", "../more"]);
    let run = json!({"shell": "mkdir husky; echo x > husky/pre-commit", "cwd": "repos/site"});
    let long = |size: usize| hooks.to_owned() + &"#".repeat(size - hooks.len());
    for place in ["repos/site/more", "repos/site/.git/config.worktree"] {
        home.put(place, &long(1024 * 1024));
        let ran = home.done("run", &run);
        assert!(ran["disarmed"].is_array() || ran["status"] != 0, "{ran}");
        assert!(!home.path("repos/site/husky/pre-commit").exists(), "{ran}");
        home.put(place, &long(1024 * 1024 + 1));
        let refused = home.refused("run", &run);
        let message = format!("{} has more than 1048576 bytes", home.path(place).canonicalize().unwrap().display());
        assert_eq!((&refused["code"], &refused["message"]), (&json!("too_large"), &json!(message)));
        assert!(!home.path("repos/site/husky/pre-commit").exists());
        std::fs::remove_file(home.path(place)).unwrap();
    }
}
