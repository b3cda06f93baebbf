//! Tests of files: what is refused and why, and that changes are made completely or not at all.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::time::{Duration, Instant};

use crate::common::{Home, in_run};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// The other files of an installation tell agents what to do.
#[test]
fn an_installation_offers_the_documents_of_one_folder() {
    let home = Home::new();
    let installed = home.folder().join("installed");
    let put = |name: &str, text: &str| {
        let path = installed.join("share/ken").join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    put("agents/research-worker.md", "# Research worker\n\nYou find out things.\n");
    put("knowledge/harbour.md", "# Harbour\n\nThe harbour is open at noon.\n");
    let program = installed.join("bin/ken-coder");
    std::fs::create_dir_all(program.parent().unwrap()).unwrap();
    // Another process copies it: a test beside this one that forks while the file is open to write would keep it from being run.
    let copied = std::process::Command::new("cp").arg(env!("CARGO_BIN_EXE_ken-coder")).arg(&program).status();
    assert!(copied.unwrap().success());
    let call = json!({"collection": "share", "known": {"agents/research-worker.md": "0"}}).to_string();
    let output = std::process::Command::new(program)
        .args(["documents", "--format", "compact", "--json", &call])
        .env("KEN_HOME", home.folder())
        .output()
        .unwrap();
    let page: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
    let paths: Vec<&Value> = page["documents"].as_array().unwrap().iter().map(|document| &document["path"]).collect();
    assert_eq!(paths, ["harbour.md"], "{page}");
    // What an earlier version has read goes.
    assert_eq!(page["gone"], json!(["agents/research-worker.md"]));
}

#[test]
fn what_leads_out_or_is_no_plain_file_is_refused_with_the_reason() {
    let home = Home::new();
    let outside = home.folder().join("secret");
    std::fs::write(&outside, "the secret").unwrap();
    home.put("repos/site/plain", "x\n");
    symlink(&outside, home.path("repos/site/out")).unwrap();
    symlink(home.folder(), home.path("repos/site/folder-out")).unwrap();
    symlink("plain", home.path("repos/site/in")).unwrap();
    symlink("/proc/self/root", home.path("repos/site/root")).unwrap();
    std::fs::hard_link(&outside, home.path("repos/site/hard")).unwrap();
    nix_fifo(&home.path("repos/site/fifo"));
    let _socket = UnixListener::bind(home.path("repos/site/socket")).unwrap();
    let long = "x".repeat(4_000);
    let longer = "x/".repeat(2_000);
    for (path, reading, changing) in [
        ("../../secret", "holds `..`", "holds `..`"),
        ("repos/site/../../../../secret", "holds `..`", "holds `..`"),
        ("/etc/passwd", "is absolute", "is absolute"),
        ("repos/site/a\0b", "NUL", "NUL"),
        ("repos/site/a\nb", "control character", "control character"),
        (long.as_str(), "bytes", "bytes"),
        (longer.as_str(), "bytes", "bytes"),
        ("repos/site/out", "leads out of the workspace", "symbolic link"),
        ("repos/site/folder-out/secret", "leads out of the workspace", "symbolic link"),
        ("repos/site/root/etc/passwd", "leads out of the workspace", "symbolic link"),
        ("repos/site/hard", "2 hard links", "2 hard links"),
        ("repos/site/fifo", "a FIFO", "a FIFO"),
        ("repos/site/socket", "a socket", "a socket"),
        ("repos/site", "a folder", "only files of a repository"),
        ("repos/site/plain/x", "there is no file", "a file where a folder is needed"),
    ] {
        let begun = Instant::now();
        let why = home.why_not("read", &json!({"path": path}));
        assert!(why.contains(reading), "read {path:?}: {why}");
        for (command, call) in [
            ("write", json!({"path": path, "content": "y"})),
            ("apply", json!({"edits": [{"path": path, "content": "y"}]})),
        ] {
            let why = home.why_not(command, &call);
            assert!(why.contains(changing), "{command} {path:?}: {why}");
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "{path}");
    }
    assert_eq!(std::fs::read_to_string(&outside).unwrap(), "the secret");
    // A link that stays inside the workspace can be read.
    assert_eq!(home.done("read", &json!({"path": "repos/site/in"}))["text"], "x\n");
    for (path, why) in [
        ("repos/site/.git/hooks/pre-commit", "git's own files"),
        ("repos/site/.GIT/config", "git's own files"),
        ("AGENTS.md", "only files of a repository"),
        ("other/x/y", "only files of a repository"),
    ] {
        let error = home.why_not("write", &json!({"path": path, "content": "x"}));
        assert!(error.contains(why), "{path}: {error}");
    }
    assert_eq!(home.why_not("list", &json!({"path": "repos/site/folder-out"})).matches("symbolic link").count(), 1);
    let found = home.done("search", &json!({"pattern": "secret"}));
    assert_eq!(found["matches"], json!([]), "{found}");
    // The skipped files are the links, the hard link, the FIFO and the socket.
    assert_eq!(found["filesSkipped"], json!(7), "{found}");
}

/// Also where kend has not made them before.
#[test]
fn the_folders_of_a_new_home_are_for_their_owner_alone() {
    let home = tempfile::tempdir().unwrap();
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_ken-coder"));
    let output = command.args(["list", "--json", "{}"]).env("KEN_HOME", home.path().join("new")).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    for folder in ["new", "new/state", "new/state/workspace", "new/state/workspace/repos", "new/state/coder/journal"] {
        let mode = std::fs::metadata(home.path().join(folder)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700, "{folder}");
    }
}

/// Git takes every folder that contains certain names for a git directory, and runs what its configuration says.
#[test]
fn no_edit_makes_or_changes_a_repository_of_git() {
    let home = Home::with("rules = [{ path = \"repos\", policy = \"auto-edit\" }]");
    let names = ["HEAD", "objects/a", "refs/a", "config"];
    let edit = |folder: &str, name: &str| json!({"path": format!("repos/site/{folder}/{name}"), "content": "x\n"});
    // Whichever of the three names comes last is refused, in one change and one by one, and in other letter cases.
    for (number, last) in names.iter().enumerate().take(3) {
        let others = names.iter().filter(|name| *name != last);
        let docs = format!("docs{number}");
        for name in others.clone() {
            home.done("write", &edit(&docs, name));
        }
        for name in [last.to_string(), last.to_lowercase(), last.to_uppercase()] {
            let why = home.why_not("write", &edit(&docs, &name));
            assert!(
                why.contains(&format!("repos/site/{docs} is a git directory, or would become one; git's own files")),
                "{why}"
            );
        }
        let why = home.why_not(
            "apply",
            &json!({"edits": [{"path": edit(&docs, "config")["path"], "moveTo": edit(&docs, last)["path"]}]}),
        );
        assert!(why.contains("git's own files"), "{why}");
        let mut all: Vec<_> = others.map(|name| edit(&format!("deep/{docs}"), name)).collect();
        all.insert(number, edit(&format!("deep/{docs}"), last));
        let why = home.why_not("apply", &json!({"edits": all}));
        assert!(why.contains("git's own files"), "{why}");
        let (status, plan) = in_run(&home, "r1", &["plan", "--preview"], &json!({"summary": "Docs", "edits": all}));
        assert!(status == Some(2) && plan.to_string().contains("git's own files"), "{status:?} {plan}");
        assert!(!home.path(&format!("repos/site/{docs}/{last}")).exists());
        assert!(!home.path("repos/site/deep").exists());
    }
    assert!(home.why_not("write", &edit("docs", "commondir")).contains("git's own files"));
    // A repository that was there before, and one whose `commondir` file names a second folder.
    home.git(&["init", "-q"]);
    home.git(&["init", "-q", "--bare", "fixture.git"]);
    for name in ["config", "hooks/post-update", "HEAD", "refs/heads/new", "README.md"] {
        let why = home.why_not("write", &edit("fixture.git", name));
        assert!(why.contains("git's own files"), "{name}: {why}");
    }
    for (name, text) in [("work/HEAD", "ref: refs/heads/a\n"), ("work/commondir", "../common\n"), ("common/config", "")]
    {
        home.put(&format!("repos/site/two/{name}"), text);
    }
    assert!(home.why_not("write", &edit("two/work", "config")).contains("git's own files"));
    assert_eq!(home.preview("write", &edit("two/common", "config"))["approval"], "ask");
    // A folder that has only some of the names is no git directory.
    for name in ["HEAD", "objects.md", "refs", "config"] {
        home.done("write", &edit("plain", name));
    }
    assert_eq!(home.preview("write", &edit("plain", ".vscode/tasks.json"))["risk"], "medium");
    assert_eq!(home.preview("write", &edit("plain", "tasks.json"))["risk"], "low");
}

/// Only root can create a device.
#[test]
fn a_device_is_refused() {
    if !nix::unistd::geteuid().is_root() {
        return ken_tests::skip("needs root");
    }
    let home = Home::new();
    let device = home.path("repos/site/null");
    let made = std::process::Command::new("mknod").arg(&device).args(["c", "1", "3"]).status().unwrap();
    assert!(made.success());
    assert!(home.why_not("read", &json!({"path": "repos/site/null"})).contains("a device"));
    assert!(home.why_not("write", &json!({"path": "repos/site/null", "content": "x"})).contains("a device"));
}

fn nix_fifo(path: &std::path::Path) {
    let made = std::process::Command::new("mkfifo").arg(path).status().unwrap();
    assert!(made.success());
}

/// While a folder is repeatedly replaced by a link, nothing outside is read or written.
#[test]
fn a_folder_that_becomes_a_link_leads_nowhere() {
    let home = Home::new();
    let outside = home.folder().join("outside");
    std::fs::create_dir(&outside).unwrap();
    std::fs::write(outside.join("f"), "outside").unwrap();
    home.put("repos/site/real/f", "inside");
    symlink(&outside, home.path("repos/site/link")).unwrap();
    let (real, link) = (home.path("repos/site/real"), home.path("repos/site/link"));
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let here = nix::fcntl::AT_FDCWD;
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                nix::fcntl::renameat2(here, &real, here, &link, nix::fcntl::RenameFlags::RENAME_EXCHANGE).unwrap();
            }
        });
        for number in 0..15 {
            let read = home.call("read", &json!({"path": "repos/site/real/f"}));
            assert!(!String::from_utf8_lossy(&read.stdout).contains("outside"), "{read:?}");
            home.call("write", &json!({"path": "repos/site/real/f", "content": format!("inside {number}")}));
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    assert_eq!(std::fs::read_to_string(outside.join("f")).unwrap(), "outside");
    assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 1);
}

#[test]
fn files_are_listed_read_and_searched() {
    let home = Home::new();
    home.put("repos/site/src/a.rs", "fn main() {}\n// TODO: more\n");
    home.put("repos/site/target/b.rs", "// TODO: ignored\n");
    home.put("repos/site/.gitignore", "target\n");
    home.put("repos/site/bin", "\0TODO\0");
    let listed = home.done("list", &json!({"path": "repos/site"}));
    let paths: Vec<&str> =
        listed["entries"].as_array().unwrap().iter().map(|entry| entry["path"].as_str().unwrap()).collect();
    assert_eq!(paths, ["repos/site/.gitignore", "repos/site/bin", "repos/site/src", "repos/site/src/a.rs"]);
    assert_eq!(listed["truncated"], false);
    assert_eq!(home.done("list", &json!({"path": "repos/site", "all": true, "maxEntries": 2}))["truncated"], true);
    let read = home.done("read", &json!({"path": "repos/site/src/a.rs", "firstLine": 2, "lines": 1}));
    assert_eq!(
        (&read["text"], &read["lines"], &read["truncated"]),
        (&json!("// TODO: more\n"), &json!(2), &json!(false))
    );
    let cut = home.done("read", &json!({"path": "repos/site/src/a.rs", "maxBytes": 13}));
    assert_eq!((&cut["text"], &cut["truncated"]), (&json!("fn main() {}\n"), &json!(true)));
    let found = home.done("search", &json!({"pattern": "todo: [a-z]+", "ignoreCase": true, "glob": "*.rs"}));
    assert_eq!(found["matches"], json!([{"path": "repos/site/src/a.rs", "line": 2, "text": "// TODO: more"}]));
    assert!(home.why_not("search", &json!({"pattern": "("})).contains("not a regular expression"));
    assert!(home.why_not("read", &json!({"path": "repos/site/bin2"})).contains("there is no file"));
    home.put("repos/site/latin", "x");
    std::fs::write(home.path("repos/site/latin"), b"\xe9").unwrap();
    assert!(home.why_not("read", &json!({"path": "repos/site/latin"})).contains("not text"));
    assert_eq!(home.refused("read", &json!({"path": 1}))["code"], "invalid");
    assert!(home.why_not("read", &json!({"paht": "x"})).contains("paht"));
}

/// The patterns of a repository count in each of its folders, those outside of it do not, and a folder that is named is listed.
#[test]
fn what_git_ignores_is_left_out_of_a_folder_of_a_repository() {
    let home = Home::new();
    home.put(".gitignore", "*\n");
    home.put("repos/site/.git/HEAD", "ref: refs/heads/main\n");
    home.put("repos/site/.git/info/exclude", "/src/own.rs\n");
    home.put("repos/site/.gitignore", "*.o\n/target\n");
    home.put("repos/site/src/deep/.gitignore", "!kept.o\n");
    for file in ["src/a.rs", "src/a.o", "src/own.rs", "src/deep/a.o", "src/deep/kept.o", "target/b.rs", "target/b.o"] {
        home.put(&format!("repos/site/{file}"), "word\n");
    }
    home.put("projects/plan/.gitignore", "*.tmp\n");
    home.put("projects/plan/deep/a.tmp", "word\n");
    for (folder, files) in [
        ("repos/site/src", &["a.rs", "deep/kept.o"][..]),
        ("repos/site/src/deep", &["kept.o"]),
        ("repos/site/target", &["b.rs"]),
        ("projects/plan/deep", &[]),
    ] {
        let listed = home.done("list", &json!({"path": folder}));
        let listed = listed["entries"].as_array().unwrap().iter().filter(|entry| entry["kind"] == "file");
        let listed = listed.map(|entry| entry["path"].as_str().unwrap()).filter(|path| !path.ends_with(".gitignore"));
        let expected: Vec<String> = files.iter().map(|file| format!("{folder}/{file}")).collect();
        assert_eq!(listed.collect::<Vec<_>>(), expected, "{folder}");
        let found = home.done("search", &json!({"path": folder, "pattern": "word"}));
        let found: Vec<&str> =
            found["matches"].as_array().unwrap().iter().map(|found| found["path"].as_str().unwrap()).collect();
        assert_eq!(found, expected, "{folder}");
    }
    let all = home.done("search", &json!({"path": "repos/site/src", "pattern": "word", "all": true}));
    assert_eq!(all["matches"].as_array().unwrap().len(), 5);
}

/// The lines are those that `read` counts, without their ends.
#[test]
fn a_search_finds_the_lines_that_there_are() {
    let home = Home::new();
    home.put("repos/site/a-crlf", "foo\r\n\r\nfoo bar\r\n");
    home.put("repos/site/b-empty", "");
    home.put("repos/site/c-lf", "foo\n");
    home.put("repos/site/d-open", "one\n\nfoo");
    for (pattern, wanted) in [
        ("^$", vec![("a-crlf", 2, ""), ("d-open", 2, "")]),
        ("foo$", vec![("a-crlf", 1, "foo"), ("c-lf", 1, "foo"), ("d-open", 3, "foo")]),
        ("^f.*", vec![("a-crlf", 1, "foo"), ("a-crlf", 3, "foo bar"), ("c-lf", 1, "foo"), ("d-open", 3, "foo")]),
        (
            "y*",
            vec![
                ("a-crlf", 1, "foo"),
                ("a-crlf", 2, ""),
                ("a-crlf", 3, "foo bar"),
                ("c-lf", 1, "foo"),
                ("d-open", 1, "one"),
                ("d-open", 2, ""),
                ("d-open", 3, "foo"),
            ],
        ),
    ] {
        let found = home.done("search", &json!({"pattern": pattern, "path": "repos/site"}));
        let wanted = wanted.into_iter();
        let wanted: Vec<Value> = wanted
            .map(|(file, line, text)| json!({"path": format!("repos/site/{file}"), "line": line, "text": text}))
            .collect();
        assert_eq!(found["matches"], json!(wanted), "{pattern}");
    }
}

#[test]
fn an_edit_matches_once_and_keeps_the_mode() {
    let home = Home::new();
    home.put("repos/site/run.sh", "echo one\necho two\n");
    let path = home.path("repos/site/run.sh");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o750)).unwrap();
    let edit = |old: &str, new: &str| json!({"path": "repos/site/run.sh", "old": old, "new": new});
    let changed = home.done("edit", &edit("two", "three"));
    assert_eq!(changed["changed"][0]["action"], "changed");
    assert_eq!(home.text("repos/site/run.sh"), "echo one\necho three\n");
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o750);
    assert!(home.why_not("edit", &edit("echo", "print")).contains("2 times"));
    // They may overlap.
    home.put("repos/over/a", "aaa baab");
    for (old, is_one) in [("aa", false), ("aaa", true), ("baab", true)] {
        let call = json!({"path": "repos/over/a", "old": old, "new": "z"});
        assert_eq!(home.call("edit", &call).status.success(), is_one, "{old}");
    }
    assert!(home.why_not("edit", &edit("four", "x")).contains("does not hold"));
    assert!(home.why_not("edit", &edit("", "x")).contains("empty"));
    assert!(
        home.why_not("edit", &json!({"path": "repos/site/no", "old": "a", "new": "b"})).contains("there is no file")
    );
    let only = |entry: std::fs::DirEntry| entry.file_name();
    let names: Vec<_> = std::fs::read_dir(home.path("repos/site")).unwrap().flatten().map(only).collect();
    assert_eq!(names, ["run.sh"], "nothing temporary is left");
}

#[test]
fn a_file_that_has_changed_since_it_was_read_is_not_overwritten() {
    let home = Home::new();
    home.put("repos/site/a", "one\n");
    let digest = home.done("read", &json!({"path": "repos/site/a"}))["digest"].take();
    home.put("repos/site/a", "somebody else\n");
    for (command, call) in [
        ("write", json!({"path": "repos/site/a", "content": "two\n", "expect": digest})),
        ("edit", json!({"path": "repos/site/a", "old": "one", "new": "two", "expect": digest})),
        ("apply", json!({"edits": [{"path": "repos/site/a", "remove": true, "expect": digest}]})),
        (
            "patch",
            json!({"patch": "--- a/a\n+++ b/a\n@@ -1 +1 @@\n-one\n+two\n", "folder": "repos/site", "expect": {"repos/site/a": digest}}),
        ),
        ("write", json!({"path": "repos/site/a", "content": "two\n", "expect": "absent"})),
    ] {
        let error = home.refused(command, &call);
        assert_eq!(error["code"], "conflict", "{command}: {error}");
    }
    assert_eq!(home.text("repos/site/a"), "somebody else\n");
    home.done("write", &json!({"path": "repos/site/new", "content": "x", "expect": "absent"}));
}

#[test]
fn a_patch_applies_as_a_whole_or_not_at_all() {
    let home = Home::new();
    home.put("repos/site/a", "1\n2\n3\n");
    home.put("repos/site/b", "x\ny\n");
    let patch = |second: &str| {
        json!({"folder": "repos/site", "patch": format!("diff --git a/a b/a\n--- a/a\n+++ b/a\n@@ -1,3 +1,3 @@\n 1\n-2\n+two\n 3\n\
            --- a/b\n+++ b/b\n@@ -1,2 +1,2 @@\n-{second}\n+X\n y\n--- /dev/null\n+++ b/new/c\n@@ -0,0 +1 @@\n+new\n")})
    };
    let before = home.files();
    let why = home.why_not("patch", &patch("z"));
    assert!(why.contains("repos/site/b") && why.contains("hunk 1") && why.contains("nothing was changed"), "{why}");
    assert_eq!(home.files(), before);
    let changed = home.done("patch", &patch("x"));
    assert_eq!(changed["changed"].as_array().unwrap().len(), 3, "{changed}");
    assert_eq!((home.text("repos/site/a").as_str(), home.text("repos/site/b").as_str()), ("1\ntwo\n3\n", "X\ny\n"));
    assert_eq!(home.text("repos/site/new/c"), "new\n");
    for (text, why) in [
        ("hello", "no `--- ` and `+++ `"),
        ("--- a/../../x\n+++ b/../../x\n@@ -1 +1 @@\n-a\n+b\n", "holds `..`"),
        ("--- /dev/null\n+++ b/a\n@@ -0,0 +1 @@\n+new\n", "is there already"),
        ("--- a/a\n+++ /dev/null\n@@ -1 +0,0 @@\n-1\n", "not all of its lines"),
    ] {
        let error = home.why_not("patch", &json!({"patch": text, "folder": "repos/site"}));
        assert!(error.contains(why), "{text}: {error}");
    }
}

#[test]
fn several_edits_are_one_change() {
    let home = Home::new();
    home.put("repos/site/a", "one\n");
    home.put("repos/site/b", "two\n");
    let before = home.files();
    let edits = |last: Value| {
        json!({"edits": [
            {"path": "repos/site/a", "old": "one", "new": "1"},
            {"path": "repos/site/a", "old": "1", "new": "I"},
            {"path": "repos/site/b", "moveTo": "repos/site/sub/b"},
            {"path": "repos/site/c.sh", "content": "echo\n", "executable": true},
            last,
        ]})
    };
    let error = home.refused("apply", &edits(json!({"path": "repos/site/no", "remove": true})));
    assert_eq!(error["at"], "/edits/4/path", "{error}");
    assert_eq!(home.files(), before);
    assert!(home.why_not("apply", &edits(json!({"path": "repos/site/a"}))).contains("one of"));
    home.done("apply", &edits(json!({"path": "repos/site/sub/b", "old": "two", "new": "2"})));
    assert_eq!((home.text("repos/site/a").as_str(), home.text("repos/site/sub/b").as_str()), ("I\n", "2\n"));
    assert!(!home.path("repos/site/b").exists());
    assert_eq!(std::fs::metadata(home.path("repos/site/c.sh")).unwrap().permissions().mode() & 0o777, 0o755);
    // A file has the name of a folder that the change needs.
    let before = home.files();
    let error = home.refused(
        "apply",
        &json!({"edits": [{"path": "repos/site/a", "content": "z"}, {"path": "repos/site/z", "content": "z"}, {"path": "repos/site/z/y", "content": "z"}]}),
    );
    assert_eq!(error["message"], "repos/site/z would be a file and a folder", "{error}");
    assert_eq!(home.files(), before);
}

/// The test creates each state in which a change can be interrupted: between the two steps that replace a file, and
/// within a recovery that was itself interrupted. The next change finds all of the change or nothing.
#[test]
fn an_interrupted_change_is_rolled_back_from_every_state() {
    for state in ["in the journal", "beside it", "a part of a copy"] {
        let home = Home::new();
        home.put("repos/site/a", "one\n");
        let call = json!({"path": "repos/site/a", "content": "two\n"});
        let run = home.done("write", &call)["run"].as_str().unwrap().to_owned();
        let folder = home.state().join("journal").join(run);
        let record = std::fs::read_dir(&folder).unwrap().next().unwrap().unwrap();
        let name = record.file_name().into_string().unwrap();
        std::fs::rename(record.path(), home.state().join("pending").join(&name)).unwrap();
        let digest = |text: &str| ken_types::hex::encode(&Sha256::digest(text));
        let place = digest("repos/site/a");
        let beside = format!(".ken-{}-{}", name.trim_end_matches(".json"), &place[..12]);
        let beside = home.path("repos/site").join(beside);
        let old = digest("one\n");
        let object = home.state().join("objects").join(&old[..2]).join(&old);
        match state {
            "beside it" => std::fs::rename(&object, &beside).unwrap(),
            "a part of a copy" => std::fs::write(&beside, "on").unwrap(),
            _ => {}
        }
        home.done("write", &json!({"path": "repos/site/b", "content": "x"}));
        assert_eq!(home.text("repos/site/a"), "one\n", "{state}");
        assert!(!beside.exists(), "{state}");
        assert_eq!(home.files().len(), 2, "{state}");
    }
}

#[test]
fn a_killed_change_happened_or_did_not() {
    let kills: u32 = std::env::var("KEN_KILLS").ok().and_then(|kills| kills.parse().ok()).unwrap_or(12);
    let home = Home::new();
    let names: Vec<String> = (0..40).map(|number| format!("repos/site/f{number}")).collect();
    for name in &names {
        home.put(name, "0\n");
    }
    let mut cut = 0;
    for round in 1..=kills {
        let edits: Vec<Value> =
            names.iter().map(|name| json!({"path": name, "content": format!("{round}\n")})).collect();
        let call = home.folder().join("call.json");
        std::fs::write(&call, json!({"edits": edits}).to_string()).unwrap();
        let mut child =
            home.command(&["apply", call.to_str().unwrap()]).stdout(std::process::Stdio::null()).spawn().unwrap();
        // The kills are spread over the time that a change takes here.
        std::thread::sleep(Duration::from_millis(u64::from(round * 7 % 80)));
        let _ = child.kill();
        cut += u32::from(!child.wait().unwrap().success());
        home.done("write", &json!({"path": "repos/site/other", "content": format!("{round}\n")}));
        let texts: std::collections::BTreeSet<String> = names.iter().map(|name| home.text(name)).collect();
        assert_eq!(texts.len(), 1, "round {round}: {texts:?}");
        let left = std::fs::read_dir(home.path("repos/site")).unwrap().count();
        assert_eq!(left, names.len() + 1, "round {round}: temporary files are left");
    }
    assert!(cut > 0, "no change was cut off");
}

/// Git puts a name in quotes that has other than plain characters.
#[test]
fn a_patch_of_git_names_any_file() {
    let home = Home::with_repository();
    let names = ["repos/site/\u{f6}.txt", "repos/site/a\"b\\c.txt"];
    for name in names {
        home.put(name, "text\n");
    }
    home.git(&["add", "."]);
    let patch = home.git(&["-c", "core.quotePath=true", "diff", "--cached"]);
    assert!(patch.contains(r#"+++ "b/\303\266.txt""#), "{patch}");
    home.git(&["reset", "-q", "--hard"]);
    home.done("patch", &json!({"folder": "repos/site", "patch": patch}));
    for name in names {
        assert_eq!(home.text(name), "text\n");
    }
    let count = std::fs::read_dir(home.path("repos/site")).unwrap().count();
    assert_eq!(count, names.len() + 2, "nothing besides .git and a");
    let wrong = "--- /dev/null\n+++ \"b/\\303\"\n@@ -0,0 +1 @@\n+x\n";
    assert!(home.why_not("patch", &json!({"folder": "repos/site", "patch": wrong})).contains("is not UTF-8"));
}
