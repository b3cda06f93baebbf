//! Tests of `ken-coder undo` and `diff`: they cover exactly what a run changed, and nothing that was changed since.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::{Home, as_run, in_run, outcome, output_text, until};
use ken_tests::{SmallDisk, skip};
use serde_json::{Value, json};

#[test]
fn a_run_is_undone_exactly() {
    let home = Home::new();
    home.put("repos/site/a", "one\n");
    home.put("repos/site/b", "two\n");
    home.put("repos/site/run.sh", "echo\n");
    home.put("repos/site/.gitignore", "*.o\n");
    home.put("repos/site/x.o", "object");
    std::os::unix::fs::symlink("a", home.path("repos/site/link")).unwrap();
    let before = home.files();
    as_run(&home, "r1", "edit", &json!({"path": "repos/site/a", "old": "one", "new": "1"}));
    as_run(&home, "other", "write", &json!({"path": "repos/site/c", "content": "of another run"}));
    as_run(&home, "r1", "write", &json!({"path": "repos/site/new/deep/file", "content": "x"}));
    as_run(
        &home,
        "r1",
        "run",
        &json!({"shell": "echo 1b >> a; rm b link; ln -s c link; mkdir -p d/e; echo z > d/e/f; chmod +x run.sh; echo > x.o", "cwd": "repos/site"}),
    );
    let (status, shown) = home.report(&["diff", "r1"]);
    assert_eq!(status, Some(0));
    let files: Vec<&str> =
        shown["files"].as_array().unwrap().iter().map(|file| file["path"].as_str().unwrap()).collect();
    let names = ["a", "b", "d/e/f", "link", "new/deep/file", "run.sh"].map(|name| format!("repos/site/{name}"));
    assert_eq!(files, names);
    let diff = shown["diff"].as_str().unwrap();
    assert!(diff.contains("-one\n+1\n+1b\n") && diff.contains("old mode 100644\nnew mode 100755\n"), "{diff}");
    let (status, undone) = home.report(&["undo", "r1"]);
    assert_eq!((status, &undone["refused"]), (Some(0), &json!([])), "{undone}");
    let mut expected = before.clone();
    expected.insert(home.path("repos/site/c"), b"of another run".to_vec());
    // Files that git ignores are not stored.
    expected.insert(home.path("repos/site/x.o"), b"\n".to_vec());
    assert_eq!(home.files(), expected);
    assert_eq!(std::fs::read_link(home.path("repos/site/link")).unwrap().to_str(), Some("a"));
    assert!(!home.path("repos/site/new").exists() && !home.path("repos/site/d").exists());
    let (_, again) = home.report(&["undo", "r1"]);
    assert_eq!(again["restored"], json!([]), "{again}");
    // The undo is itself a run and can be undone.
    let (status, _) = home.report(&["undo", undone["undo"].as_str().unwrap()]);
    assert_eq!(status, Some(0));
    assert_eq!(home.text("repos/site/a"), "1\n1b\n");
    assert_eq!(home.text("repos/site/d/e/f"), "z\n");
}

#[test]
fn what_was_changed_since_is_refused_and_named() {
    let home = Home::new();
    for name in ["a", "b", "c", "d"] {
        home.put(&format!("repos/site/{name}"), "one\n");
    }
    for name in ["a", "b", "c", "d"] {
        as_run(&home, "r1", "write", &json!({"path": format!("repos/site/{name}"), "content": "two\n"}));
    }
    as_run(&home, "r1", "write", &json!({"path": "repos/site/new", "content": "two\n"}));
    home.put("repos/site/b", "by hand\n");
    std::fs::remove_file(home.path("repos/site/c")).unwrap();
    home.put("repos/site/new", "by hand\n");
    home.put("repos/site/d", "by hand\n");
    // The run then changes that file twice. Only the second of these changes begins with what the run itself had written.
    for content in ["three\n", "four\n"] {
        as_run(&home, "r1", "write", &json!({"path": "repos/site/d", "content": content}));
    }
    let (status, undone) = home.report(&["undo", "r1"]);
    assert_eq!(status, Some(1));
    assert_eq!(undone["restored"], json!(["repos/site/a"]), "{undone}");
    let refused: Vec<String> = undone["refused"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| format!("{}: {}", one["path"].as_str().unwrap(), one["why"].as_str().unwrap()))
        .collect();
    assert_eq!(
        refused,
        [
            "repos/site/b: it was changed since",
            "repos/site/c: it was removed since",
            "repos/site/d: it was changed by somebody else during the run",
            "repos/site/new: it was changed since",
        ]
    );
    assert_eq!((home.text("repos/site/a").as_str(), home.text("repos/site/b").as_str()), ("one\n", "by hand\n"));
    assert_eq!(home.text("repos/site/d"), "four\n");
}

/// A new content never has the bits with which a program runs as the owner of its file, so neither has the file that is put back.
#[test]
fn a_file_with_special_bits_is_put_back() {
    let home = Home::new();
    for (mode, written) in [(0o2644, 0o644), (0o4755, 0o755), (0o6711, 0o711), (0o1640, 0o1640), (0o600, 0o600)] {
        home.put("repos/site/a", "one\n");
        home.put("repos/site/b", "one\n");
        let path = home.path("repos/site/a");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        let now = || (home.text("repos/site/a"), std::fs::metadata(&path).unwrap().permissions().mode() & 0o7777);
        let run = format!("r{mode:o}");
        as_run(&home, &run, "edit", &json!({"path": "repos/site/a", "old": "one", "new": "two"}));
        as_run(&home, &run, "edit", &json!({"path": "repos/site/a", "old": "two", "new": "three"}));
        assert_eq!(now(), ("three\n".to_owned(), written), "{mode:o}");
        let (status, undone) = home.report(&["undo", &run]);
        assert_eq!((status, &undone["refused"]), (Some(0), &json!([])), "{mode:o}: {undone}");
        assert_eq!(now(), ("one\n".to_owned(), written), "{mode:o}");
    }
}

/// However much space is left, a change is made and can be undone, or nothing has changed and nothing is left over.
#[test]
fn on_a_full_disk_a_change_is_made_or_is_not() {
    let home = Home::new();
    let Some(disk) = SmallDisk::mount(home.folder(), "size=2m,mode=700") else {
        return skip("needs root");
    };
    let names = ["a", "b", "c"].map(|name| format!("repos/site/{name}"));
    let texts = || names.each_ref().map(|name| home.text(name).chars().next().unwrap());
    home.put("repos/site/other", "");
    as_run(&home, "first", "write", &json!({"path": "repos/site/other", "content": "x"}));
    let (mut made, mut refused) = (0, 0);
    for pages in 0..40_u64 {
        for name in &names {
            // Each is moved into the journal, so that no space is given back.
            home.put(name, &format!("o{pages}{name}{}", "o".repeat(5_000)));
        }
        disk.fill();
        let filler = std::fs::File::options().write(true).open(home.folder().join("filler")).unwrap();
        filler.set_len(filler.metadata().unwrap().len().saturating_sub(pages * 4_096)).unwrap();
        drop(filler); // an open file would keep its space
        let edits = names.each_ref().map(|name| json!({"path": name, "content": "n".repeat(9_000)}));
        let (status, reply) = in_run(&home, &format!("r{pages}"), &["apply"], &json!({"edits": edits}));
        disk.empty();
        let is_made = status == Some(0);
        let expected = if is_made { ['n'; 3] } else { ['o'; 3] };
        assert_eq!(texts(), expected, "{pages}: {reply}");
        // The next change completes what is pending.
        as_run(&home, "first", "write", &json!({"path": "repos/site/other", "content": pages.to_string()}));
        assert_eq!(texts(), expected, "{pages}: {reply}");
        let folders = [home.path("repos/site"), home.state().join("pending")];
        let left = folders.map(|folder| std::fs::read_dir(folder).unwrap().count());
        assert_eq!(left, [4, 0], "{pages}: files are left");
        *(if is_made { &mut made } else { &mut refused }) += 1;
        if is_made {
            assert_eq!(home.report(&["undo", &format!("r{pages}")]).0, Some(0), "{pages}");
            assert_eq!(texts(), ['o'; 3], "{pages}");
        }
    }
    assert!(made > 5 && refused > 5, "{made} {refused}");
}

/// The lines of a run are those that it has written, as far as that is known: while the file is as it left it, and after an undo,
/// which keeps what it takes away.
#[test]
fn the_lines_of_somebody_else_are_not_those_of_the_run() {
    let home = Home::new();
    let names = ["undone", "appended", "between", "removed", "made"];
    for name in names.iter().filter(|name| **name != "made") {
        home.put(&format!("repos/site/{name}"), "one\n");
    }
    let write = |run: &str, name: &str, content: &str| {
        as_run(&home, run, "write", &json!({"path": format!("repos/site/{name}"), "content": content}));
    };
    let lines = |run: &str| -> Vec<String> {
        let (_, shown) = home.report(&["diff", run]);
        let files = shown["files"].as_array().unwrap().iter();
        let line = |file: &Value| {
            let name = file["path"].as_str().unwrap().trim_start_matches("repos/site/");
            format!("{name} {} {} {}", file["added"], file["removed"], file["current"])
        };
        files.map(line).collect()
    };
    for name in names {
        write("r1", name, &format!("{name}\nthree\n"));
    }
    home.put("repos/site/between", "between\nby hand\nthree\n");
    write("r1", "between", "between\nby hand\nthree\nfour\n");
    let all = ["appended 2 1 true", "between null null true", "made 2 0 true", "removed 2 1 true", "undone 2 1 true"];
    assert_eq!(lines("r1"), all);
    home.put("repos/site/appended", "appended\nthree\nby hand\n");
    std::fs::remove_file(home.path("repos/site/removed")).unwrap();
    let after = [
        "appended null null false", "between null null true", "made 2 0 true", "removed null null false",
        "undone 2 1 true",
    ];
    assert_eq!(lines("r1"), after);
    let (_, shown) = home.report(&["diff", "r1"]);
    assert!(shown["diff"].as_str().unwrap().contains("+by hand\n"), "what is there now: {shown}");
    let (_, undone) = home.report(&["undo", "r1"]);
    assert_eq!(undone["restored"], json!(["repos/site/made", "repos/site/undone"]), "{undone}");
    let again = [
        "appended null null false", "between null null true", "made 2 0 false", "removed null null false",
        "undone 2 1 false",
    ];
    assert_eq!(lines("r1"), again);
    let (_, shown) = home.report(&["diff", "r1"]);
    assert!(shown["diff"].as_str().unwrap().contains("/undone\n@@ -1 +1,2 @@\n-one\n+undone\n+three\n"), "{shown}");
    // A file that a run has removed, and that is there again.
    home.put("repos/site/gone", "one\ntwo\n");
    as_run(&home, "r2", "run", &json!({"shell": "rm gone", "cwd": "repos/site"}));
    assert_eq!(lines("r2"), ["gone 0 2 true"]);
    home.put("repos/site/gone", "three\n");
    assert_eq!(lines("r2"), ["gone 0 2 false"]);
}

/// Changes are made one at a time in all folders, so that whoever waits is told what for, and at last why it was in vain.
#[test]
fn whoever_waits_for_a_command_is_told_which() {
    let home = Home::new();
    std::fs::create_dir_all(home.path("repos/other")).unwrap();
    as_run(&home, "r1", "write", &json!({"path": "repos/other/a", "content": "one\n"}));
    let holds = |session: Option<&str>| {
        let script = "touch begun; until [ -e go ]; do sleep 0.02; done; rm go begun";
        let mut command = home.command(&["run", "--json", &json!({"shell": script, "cwd": "repos/site"}).to_string()]);
        let child =
            command.envs(session.map(|session| ("KEN_SESSION", session))).stdout(Stdio::null()).spawn().unwrap();
        until(|| home.path("repos/site/begun").exists());
        child
    };
    let folder = home.path("repos/site").canonicalize().unwrap();
    for (session, of, remedy, end) in [
        (
            Some("s1"),
            " of session s1",
            "try again when it has ended; `ken cancel s1` ends it",
            "; `ken cancel s1` ends it\n",
        ),
        (None, "", "", "at a time\n"),
    ] {
        let mut child = holds(session);
        let is_told = |text: &str| {
            let at = format!("`run`{of} is under way in {} since 20", folder.display());
            text.contains(&at) && text.contains(&format!("(process {})", child.id()))
        };
        let begun = Instant::now();
        let mut waiting =
            home.command(&["undo", "r1", "--tell"]).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut told = BufReader::new(waiting.stderr.take().unwrap());
        let mut line = String::new();
        told.read_line(&mut line).unwrap();
        assert!(line.starts_with("ken-coder: waits: ") && is_told(&line) && line.ends_with(end), "{line}");
        assert!(begun.elapsed() >= Duration::from_secs(1) && begun.elapsed() < Duration::from_secs(25), "{line}");
        if session.is_some() {
            // Nobody else is told before it was in vain.
            let output = home.call("write", &json!({"path": "repos/other/b", "content": "x"}));
            let (status, reply) = outcome(&output);
            let error = &reply["error"];
            assert_eq!((status, &error["code"]), (Some(2), &json!("busy")), "{error}");
            assert!(is_told(error["message"].as_str().unwrap()), "{error}");
            assert_eq!((&error["hint"], &error["retry_after_ms"]), (&json!(remedy), &json!(5000)));
            // The one that has begun to wait before has the same end.
            assert_eq!(waiting.wait().unwrap().code(), Some(2));
            line.clear();
            told.read_line(&mut line).unwrap();
            assert!(line.contains(r#""code":"busy""#) && is_told(&line), "{line}");
        } else {
            waiting.kill().unwrap();
            waiting.wait().unwrap();
        }
        home.put("repos/site/go", "");
        assert!(child.wait().unwrap().success());
    }
    // What it says of itself is not left for the next one.
    let mut child = holds(Some("s2"));
    let mut waiting = home.command(&["undo", "r1", "--tell"]).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(waiting.stderr.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.contains(" of session s2 "), "{line}");
    home.put("repos/site/go", "");
    assert!(child.wait().unwrap().success() && waiting.wait().unwrap().success());
    assert!(!home.path("repos/other/a").exists());
    // Without having to wait, nothing is said.
    let output = home.command(&["undo", "r1", "--tell"]).output().unwrap();
    assert_eq!((output.status.code(), output_text(&output).as_str()), (Some(0), ""));
}

fn in_site(home: &Home, text: &str) {
    let done = Command::new("bash").args(["-ec", text]).current_dir(home.path("repos/site")).status().unwrap();
    assert!(done.success(), "{text}");
}

/// Returns what is in the project: the kind, the mode, and the content or target of each name.
fn listed(home: &Home) -> String {
    let find = r"find . -name .git -prune -o -printf '%p %y %m %l\n' -type f -exec cat {} ';' | LC_ALL=C sort";
    let output = Command::new("sh").args(["-c", find]).current_dir(home.path("repos/site")).output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A home with a repository of this content, which is so old that a command can be told from what was there before.
fn repository(setup: &str) -> Home {
    let home = Home::with_repository();
    in_site(&home, setup);
    home.git(&["add", "-A"]);
    home.git(&["commit", "-q", "--allow-empty", "-m", "Second"]);
    let begun = Instant::now();
    until(|| begun.elapsed() > Duration::from_millis(200));
    home
}

fn ran(home: &Home, text: &str) -> Value {
    as_run(home, "r1", "run", &json!({"shell": text, "cwd": "repos/site"}))
}

fn refused(undone: &Value) -> Vec<String> {
    let text = |of: &Value| of.as_str().unwrap().replace("repos/site/", "");
    let all = undone["refused"].as_array().unwrap();
    all.iter().map(|one| format!("{}: {}", text(&one["path"]), text(&one["why"]))).collect()
}

/// Names that lead to files before a command and to folders after it, the other way round, and names that only their folder has given.
#[test]
fn files_and_folders_that_take_each_others_place_are_put_back() {
    for (setup, command) in [
        ("mkdir -p src/in; echo 1 >src/in/f; echo 2 >src/g", "git mv src lib"),
        ("mkdir -p src/in; echo 1 >src/in/f; echo 2 >src/g", "mv src lib; echo 3 >>lib/g; mkdir src; echo 4 >src/h"),
        ("mkdir d; echo x >d/x", "rm -r d; ln -s c d; echo new >c"),
        ("mkdir d; echo x >d/x; ln -s d l", "rm l; mv d l; echo y >l/y"),
        ("mkdir -p d/e; echo x >d/e/x", "rm -r d; echo f >d; echo new >c"),
        ("mkdir -p d/e; echo x >d/e/x; echo y >y", "rm -r d; mv y d"),
        ("echo x >d; echo y >y", "rm d; mkdir -p d/e/f/g; echo z >d/e/x; mv y d/y; echo new >c"),
        ("ln -s a l", "rm l; mkdir l; echo y >l/y"),
        ("mkdir d; echo x >d/x; echo y >y", "mv d t; mv y d; mkdir y; mv t/x y/; rmdir t"),
        ("echo small >log", "head -c 20000000 /dev/zero >log"),
    ] {
        let home = repository(setup);
        let before = listed(&home);
        let done = ran(&home, command);
        assert_eq!((&done["status"], &done["notSaved"]), (&json!(0), &Value::Null), "{command}: {done}");
        let after = listed(&home);
        let mut run = "r1".to_owned();
        // The undo can be undone, and that too.
        for expected in [&before, &after, &before] {
            let (status, undone) = home.report(&["undo", &run]);
            assert_eq!((status, &undone["refused"]), (Some(0), &json!([])), "{command}: {undone}");
            let without_folders =
                |text: &str| text.lines().filter(|line| !line.contains(" d ")).collect::<Vec<_>>().join("\n");
            assert_eq!(without_folders(&listed(&home)), without_folders(expected), "{command}");
            run = undone["undo"].as_str().unwrap().to_owned();
        }
        assert_eq!(home.git(&["status", "--short"]), "", "{command}");
    }
}

/// What cannot be put back is named with the reason, and all else is.
#[test]
fn what_is_in_the_way_is_refused_and_named() {
    for (setup, command, by_hand, expected, again) in [
        (
            "mkdir d; echo x >d/x",
            "rm -r d; echo f >d; echo new >c",
            "echo by hand >d",
            &["d: it was changed since", "d/x: d is a file where its folder was"][..],
            "rm d",
        ),
        (
            "mkdir d; echo x >d/x",
            "rm -r d; echo new >c",
            "ln -s a d",
            &["d/x: d is a symbolic link where its folder was"],
            "rm d",
        ),
        (
            "echo x >d",
            "rm d; mkdir d; echo y >d/y; echo new >c",
            "mkdir d/e; echo z >d/e/z",
            &["d: a folder with other files is in its place"],
            "rm d/e/z",
        ),
        ("echo x >d", "rm d; mkfifo d; echo new >c", "", &["d: d is a FIFO"], "rm d"),
        (
            "echo x >d",
            "ln d e; echo new >c",
            "",
            &[
                "d: d has 2 hard links, so it may be a file outside of the workspace",
                "e: e has 2 hard links, so it may be a file outside of the workspace",
            ],
            "",
        ),
        // Git ignored it under its other name, so that it cannot be brought back there.
        (
            "echo out >.gitignore; mkdir out; echo built >out/x; echo x >d",
            "mv out lib; rm d; echo new >c",
            "",
            &["lib/x: it was there before under another name, and is not in the journal"],
            "",
        ),
        (
            "head -c 17000000 /dev/zero >big",
            "echo >>big; echo new >c",
            "",
            &["big: what it was before the run is not in the journal"],
            "",
        ),
    ] {
        let home = repository(setup);
        let done = ran(&home, command);
        in_site(&home, by_hand);
        let lost: Vec<String> = expected.iter().map(|line| line.split(':').next().unwrap().to_owned()).collect();
        if by_hand.is_empty() {
            let named: Vec<String> = lost.iter().map(|path| format!("repos/site/{path}")).collect();
            assert_eq!(done["notSaved"], json!(named), "{command}");
        }
        let (status, undone) = home.report(&["undo", "r1"]);
        assert_eq!(
            (status, refused(&undone)),
            (Some(1), expected.iter().map(|&line| line.to_owned()).collect()),
            "{command}"
        );
        assert!(!home.path("repos/site/c").exists(), "{command}: {undone}");
        let left = home.git(&["status", "--short", "--untracked-files=all"]);
        let left: Vec<&str> = left.lines().map(|line| line.split_whitespace().last().unwrap()).collect();
        assert!(
            left.iter().all(|path| expected.iter().any(|line| line.starts_with(path)) || by_hand.contains(path)),
            "{command}: {left:?}"
        );
        if !again.is_empty() {
            in_site(&home, again);
            let (status, undone) = home.report(&["undo", "r1"]);
            assert_eq!((status, refused(&undone)), (Some(0), vec![]), "{command}");
            assert_eq!(home.git(&["status", "--short"]), "", "{command}");
        }
    }
}

/// A call cannot name every file that a command can change.
#[test]
fn a_name_that_a_call_cannot_give_is_named_before_and_after() {
    let home = repository(
        r#"mkdir $'d\xe9'; for name in $'tab\tthere' $'latin\xe9' $'same\x01' $'d\xe9/in'; do echo x >"$name"; done"#,
    );
    let call = json!({"argv": ["make"], "cwd": "repos/site"});
    let lines = home.preview("run", &call)["action"]["notUndone"].take();
    assert_eq!(lines, json!(["4 with a name that is not UTF-8, has a control character or is too long"]));
    let command = r#"rm tab*; for name in latin*; do echo y >>"$name"; done; mv d* e; echo z >"$(printf 'new\002')"; echo new >c"#;
    let done = ran(&home, command);
    let named = [r"d\xe9/in", r"latin\xe9", r"new\x02", r"tab\tthere"].map(|name| format!("repos/site/{name}"));
    assert_eq!(done["notSaved"], json!(["repos/site/d\\xe9/in", "repos/site/e/in", named[1], named[2], named[3]]));
    for words in [&["diff", "r1"][..], &["undo", "r1"]] {
        let (_, shown) = home.report(words);
        let list = if words[0] == "diff" { &shown["notSaved"] } else { &shown["refused"] };
        let paths: Vec<&str> = list.as_array().unwrap().iter().map(|one| one["path"].as_str().unwrap()).collect();
        assert_eq!(json!(paths), done["notSaved"], "{shown}");
    }
    assert!(!home.path("repos/site/c").exists());
    let summary = json!({"shell": "rm same*", "cwd": "repos/site"}).to_string();
    let output = home.command(&["run", "--format", "summary", "--json", &summary]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.starts_with("[ken undo cannot put back repos/site/same\\x01]\nundo: ken undo "), "{text}");
}

/// The state of the repository cannot be kept, but the files have been put back by then, and can be had again.
#[test]
fn files_are_put_back_and_named_although_the_repository_cannot_be() {
    let home = repository("");
    ran(&home, "echo two >a; git add a");
    let folder_of = |path: &str| {
        let output = Command::new("sha256sum").arg(home.path(path)).output().unwrap();
        home.state().join("objects").join(String::from_utf8(output.stdout).unwrap().get(..2).unwrap())
    };
    let mut blocked = folder_of("repos/site/.git/index");
    // The files need their folders in the journal.
    while blocked.exists() || blocked == folder_of("repos/site/a") {
        in_site(&home, "touch a; git update-index --refresh");
        blocked = folder_of("repos/site/.git/index");
    }
    std::fs::write(&blocked, "").unwrap();
    let (status, undone) = home.report(&["undo", "r1"]);
    assert_eq!((status, &undone["restored"]), (Some(1), &json!(["repos/site/a"])), "{undone}");
    let refused = refused(&undone);
    assert!(refused.len() == 1 && refused[0].starts_with(".git: what is there now cannot be kept: "), "{refused:?}");
    assert_eq!(home.text("repos/site/a"), "one\n");
    std::fs::remove_file(&blocked).unwrap();
    assert_eq!(home.report(&["undo", undone["undo"].as_str().unwrap()]).0, Some(0));
    assert_eq!(home.text("repos/site/a"), "two\n");
}

/// A replaced file is moved into the journal, so a program that has it open can still write to it.
#[test]
fn what_a_program_has_spoilt_in_the_journal_is_refused_and_named() {
    let home = Home::new();
    for name in ["a", "b"] {
        home.put(&format!("repos/site/{name}"), &format!("one {name}\n"));
    }
    let path = home.path("repos/site/a");
    let mut open = std::fs::OpenOptions::new().append(true).open(path).unwrap();
    for name in ["a", "b"] {
        let call = json!({"path": format!("repos/site/{name}"), "content": format!("two {name}\n")});
        as_run(&home, "r1", "write", &call);
    }
    open.write_all(b"a log line\n").unwrap();
    let (status, undone) = home.report(&["undo", "r1"]);
    assert_eq!(status, Some(1), "{undone}");
    assert_eq!(undone["restored"], json!(["repos/site/b"]));
    let why = undone["refused"][0]["why"].as_str().unwrap();
    assert!(why.contains("the content is damaged"), "{undone}");
    assert_eq!(home.text("repos/site/a"), "two a\n");
}

#[test]
fn a_run_is_named_by_its_id_or_the_beginning_of_it() {
    let home = Home::new();
    as_run(&home, "abcd1", "write", &json!({"path": "repos/site/a", "content": "x"}));
    as_run(&home, "abcd2", "write", &json!({"path": "repos/site/b", "content": "x"}));
    for (word, code) in [("zzzz", "not_found"), ("abc", "not_found"), ("abcd", "invalid"), ("../x", "invalid")] {
        let (status, error) = home.report(&["undo", word]);
        assert_eq!((status, &error["error"]["code"]), (Some(2), &json!(code)), "{word}");
    }
    assert_eq!(home.report(&["undo", "abcd1"]).1["restored"], json!(["repos/site/a"]));
    let (_, runs) = home.report(&["journal"]);
    assert_eq!(runs["runs"].as_array().unwrap().len(), 3, "{runs}");
    let output = home
        .command(&["write", "--json", r#"{"path":"repos/site/c","content":"x"}"#])
        .env("KEN_RUN", "../../x")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    // Another workspace can have files of the same names.
    let other = home.folder().join("elsewhere");
    std::fs::create_dir_all(other.join("repos/site")).unwrap();
    let output = home.command(&["undo", "abcd2"]).env("KEN_WORKSPACE", &other).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(output_text(&output).contains("worked in"), "{output:?}");
}

#[test]
fn a_thousand_files_are_put_back() {
    let home = Home::new();
    let edits: Vec<Value> = (0..1_000)
        .map(|number| {
            home.put(&format!("repos/site/d{}/f{number}", number % 10), &format!("before {number}\n"));
            json!({"path": format!("repos/site/d{}/f{number}", number % 10), "old": "before", "new": "after"})
        })
        .collect();
    let before = home.files();
    let call = home.folder().join("call.json");
    std::fs::write(&call, json!({"edits": edits}).to_string()).unwrap();
    let output = home.command(&["apply", call.to_str().unwrap()]).env("KEN_RUN", "many").output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_ne!(home.files(), before);
    let begun = Instant::now();
    let (status, undone) = home.report(&["undo", "many"]);
    let took = begun.elapsed();
    assert_eq!((status, undone["restored"].as_array().unwrap().len()), (Some(0), 1_000));
    assert_eq!(home.files(), before);
    // `make bench` requires the release build to need at most one second.
    println!("1,000 files were put back in {took:?}");
}

#[test]
fn the_journal_is_bounded() {
    let home = Home::new();
    for number in 0..20 {
        home.put("repos/site/a", &format!("{number}{}", "x".repeat(200_000)));
        as_run(&home, &format!("r{number:02}"), "write", &json!({"path": "repos/site/a", "content": "short"}));
    }
    let (_, pruned) = home.report(&["prune", "--mib", "1"]);
    assert!(pruned["runsRemoved"].as_u64().unwrap() >= 15, "{pruned}");
    let bytes: u64 = walk(&home.state().join("objects")).iter().map(|path| path.metadata().unwrap().len()).sum();
    assert!(bytes <= 1024 * 1024, "{bytes}");
    assert_eq!(home.report(&["undo", "r00"]).0, Some(2), "the oldest are gone");
    assert_eq!(home.report(&["undo", "r19"]).0, Some(0), "the newest is there");
    home.report(&["prune", "--days", "0"]);
    assert_eq!(home.report(&["journal"]).1["runs"], json!([]));
    assert!(walk(&home.state().join("objects")).is_empty());
}

/// Without a limit, a run is kept for thirty days after its last change.
#[test]
fn a_run_is_kept_for_thirty_days() {
    let home = Home::new();
    for (run, days) in [("old", 31), ("young", 29)] {
        home.put("repos/site/a", "long");
        as_run(&home, run, "write", &json!({"path": "repos/site/a", "content": "short"}));
        let folder = std::fs::File::open(home.state().join("journal").join(run)).unwrap();
        let at = std::time::SystemTime::now() - std::time::Duration::from_secs(days * 24 * 3_600);
        folder.set_modified(at).unwrap();
    }
    assert_eq!(home.report(&["prune"]).1["runsRemoved"], 1);
    assert_eq!((home.report(&["undo", "old"]).0, home.report(&["undo", "young"]).0), (Some(2), Some(0)));
}

fn walk(folder: &std::path::Path) -> Vec<std::path::PathBuf> {
    let folders = std::fs::read_dir(folder).unwrap().flatten();
    folders.flat_map(|folder| std::fs::read_dir(folder.path()).unwrap().flatten().map(|entry| entry.path())).collect()
}
