//! A call that is bound to a folder of the person's own: it is the workspace, the whole of it, and nothing else is.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Output;

use crate::common::{Home, as_run, outcome, output_text, trust, trust_all};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A home, and beside it a folder of the person's own with a neighbour.
fn site() -> (Home, TempDir) {
    let (home, own) = (Home::new(), tempfile::tempdir().unwrap());
    fs::create_dir_all(home.folder().join("state")).unwrap();
    for (file, text) in [("site/Makefile", "test:\n\ttrue\n"), ("site/docs/a.md", "old\n"), ("other/secret", "s\n")] {
        fs::create_dir_all(own.path().join(file).parent().unwrap()).unwrap();
        fs::write(own.path().join(file), text).unwrap();
    }
    trust(&home, &own.path().join("site"), None);
    (home, own)
}

fn call(home: &Home, folder: &Path, words: &[&str], call: &Value) -> Output {
    let call = call.to_string();
    let words = [words, &["--format", "compact", "--json", &call]].concat();
    home.command(&words).env("KEN_FOLDER", folder).env("KEN_RUN", "bound").output().unwrap()
}

fn done(home: &Home, folder: &Path, command: &str, arguments: &Value) -> Value {
    let output = call(home, folder, &[command], arguments);
    assert!(matches!(output.status.code(), Some(0 | 1)), "{command}: {}", output_text(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn why_not(home: &Home, folder: &Path, command: &str, arguments: &Value) -> String {
    let output = call(home, folder, &[command], arguments);
    assert_eq!(output.status.code(), Some(2), "{command} {arguments}: {output:?}");
    serde_json::from_slice::<Value>(&output.stderr).unwrap()["error"]["message"].as_str().unwrap().to_owned()
}

fn preview(home: &Home, folder: &Path, command: &str, arguments: &Value) -> Value {
    let output = call(home, folder, &[command, "--preview"], arguments);
    assert!(output.status.success(), "{}", output_text(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn the_folder_is_the_workspace_and_the_only_place_that_changes() {
    let (home, own) = site();
    let folder = own.path().join("site");
    let found = done(&home, &folder, "list", &json!({}));
    let names: Vec<&str> = found["entries"].as_array().unwrap().iter().map(|e| e["path"].as_str().unwrap()).collect();
    assert_eq!(names, ["Makefile", "docs", "docs/a.md"]);
    let shown = preview(&home, &folder, "write", &json!({"path": "new/b", "content": "b"}));
    assert_eq!(shown["target"], folder.join("new/b").to_str().unwrap());
    done(&home, &folder, "write", &json!({"path": "new/b", "content": "b"}));
    assert_eq!(fs::read_to_string(folder.join("new/b")).unwrap(), "b");
    let script = "echo made > made; cat ../other/secret; echo x > ../other/x; echo x > /tmp/ken-bound; ls ..; true";
    let ran = done(&home, &folder, "run", &json!({"shell": script}));
    assert_eq!((&ran["changed"], ran["stdout"].as_str().unwrap()), (&json!(["made"]), ""), "{ran}");
    assert!(!own.path().join("other/x").exists() && !Path::new("/tmp/ken-bound").exists());
    for (command, arguments, why) in [
        ("read", json!({"path": "../other/secret"}), "`..`"),
        ("write", json!({"path": ".git/hooks/x", "content": ""}), "git's own files"),
        ("write", json!({"path": "", "content": ""}), "name a file in it"),
        ("clone", json!({"url": "https://example.org/a.git", "repo": "repos/a"}), "works in one folder"),
        ("commit", json!({"repo": ".", "message": "m"}), "is not a git repository"),
    ] {
        let said = why_not(&home, &folder, command, &arguments);
        assert!(said.contains(why), "{command}: {said}");
    }
    // The person undoes it from anywhere.
    let undone = home.command(&["undo", "bound", "--format", "compact"]).output().unwrap();
    assert_eq!(undone.status.code(), Some(0), "{undone:?}");
    assert!(!folder.join("new").exists() && !folder.join("made").exists() && folder.join("docs/a.md").exists());
    assert!(home.files().is_empty(), "the workspace of the system has nothing of it");
}

/// Two folders can have files of the same names, and `last` says neither.
#[test]
fn last_is_the_newest_run_of_the_folder_where_it_is_said() {
    let (home, own) = site();
    let folders = ["site", "other"].map(|name| own.path().join(name));
    trust_all(&home, &folders.each_ref().map(|folder| folder.as_path()), None);
    let last = |command: &str, folder: Option<&Path>| {
        let mut command = home.command(&[command, "last", "--format", "compact"]);
        command.envs(folder.map(|folder| ("KEN_FOLDER", folder)));
        outcome(&command.output().unwrap())
    };
    let write = |folder: &Path, run: &str, text: &str| {
        let call = json!({"path": "c", "content": text}).to_string();
        let mut command = home.command(&["write", "--json", &call]);
        assert!(command.env("KEN_FOLDER", folder).env("KEN_RUN", run).output().unwrap().status.success());
    };
    write(&folders[0], "first", "of site\n");
    for (folder, newest) in [(None, "the newest run elsewhere is first, in"), (Some(&*folders[1]), "first, in")] {
        let (status, error) = last("undo", folder);
        let (message, hint) = (error["error"]["message"].as_str().unwrap(), error["error"]["hint"].as_str().unwrap());
        assert!(status == Some(2) && message.contains("no run has changed files yet in "), "{error}");
        assert!(hint.contains(newest) && hint.contains(folders[0].to_str().unwrap()), "{error}");
    }
    write(&folders[1], "second", "of other\n");
    as_run(&home, "third", "write", &json!({"path": "repos/site/c", "content": "of the workspace\n"}));
    let workspace = home.path("").canonicalize().unwrap();
    for (folder, root, run, file) in [
        (Some(&*folders[0]), &*folders[0], "first", "c"),
        (Some(&*folders[1]), &*folders[1], "second", "c"),
        (None, &*workspace, "third", "repos/site/c"),
    ] {
        for command in ["diff", "undo"] {
            let (status, reply) = last(command, folder);
            assert_eq!((status, &reply["run"]), (Some(0), &json!(run)), "{command}: {reply}");
            assert_eq!(Path::new(reply["root"].as_str().unwrap()), root, "{command}");
        }
        assert!(!root.join(file).exists());
    }
    // An id says itself where its run worked; that of the workspace cannot be meant by a call that is bound to a folder.
    let mut bound = home.command(&["undo", "first"]);
    bound.env("KEN_FOLDER", &folders[1]);
    assert_eq!(outcome(&bound.output().unwrap()).0, Some(0));
    let mut bound = home.command(&["undo", "third"]);
    let (status, error) = outcome(&bound.env("KEN_FOLDER", &folders[1]).output().unwrap());
    assert_eq!((status, &error["error"]["hint"]), (Some(2), &json!("do it without KEN_FOLDER")), "{error}");
    let shown = home.command(&["undo", "first", "--format", "summary"]).output().unwrap().stdout;
    let first = format!("in {}:\n", folders[0].display());
    assert!(String::from_utf8(shown).unwrap().starts_with(&first));
}

#[test]
fn rules_for_the_folder_have_its_absolute_path() {
    let (home, own) = site();
    let folder = own.path().join("site");
    let asks = |path: &str| preview(&home, &folder, "write", &json!({"path": path, "content": "x"}))["approval"].take();
    // A rule for a place of the workspace, or for all of it, says nothing about a folder of the person's own.
    home.configure("rules = [{ path = \"docs\", policy = \"auto-edit\" }, { policy = \"auto-edit\" }]");
    assert_eq!(asks("docs/b"), "ask");
    let rules = format!(
        "rules = [{{ path = \"{0}/docs\", policy = \"auto-edit\" }}, {{ path = \"{0}/secret\", policy = \"deny\" }}, \
         {{ path = \"{1}\", policy = \"ask\", commands = [[\"make\", \"test\"]] }}]",
        folder.display(),
        own.path().display()
    );
    home.configure(&rules);
    assert_eq!((asks("docs/b"), asks("secret/b"), asks("b")), (json!("none"), json!("deny"), json!("ask")));
    // A command could change what is denied.
    assert_eq!(preview(&home, &folder, "run", &json!({"argv": ["make", "test"]}))["approval"], "deny");
    home.configure(&rules.replace("secret\", policy = \"deny", "docs/a\", policy = \"ask"));
    assert_eq!(preview(&home, &folder, "run", &json!({"argv": ["make", "test"]}))["approval"], "none");
    assert_eq!(preview(&home, &folder, "run", &json!({"argv": ["make", "all"]}))["approval"], "ask");
}

/// If the path of a rule contains symbolic links, the rule also forbids changes, or asks, at the place to which they lead. It permits
/// nothing there, whoever has made the links.
#[test]
fn a_rule_forbids_also_where_links_lead_and_permits_only_where_it_is_written() {
    let (home, own) = site();
    let (folder, at) = (own.path().join("site"), own.path().display());
    for (link, to) in [("link", "site"), ("up", "."), ("site/in", "docs"), ("site/dead", "none"), ("site/loop", "loop")]
    {
        symlink(to, own.path().join(link)).unwrap();
    }
    let asks = |rules: &[(&str, &str)], path: &str| {
        let rules = rules.iter().map(|(path, policy)| format!("{{ path = \"{at}/{path}\", policy = \"{policy}\" }}"));
        home.configure(&format!("rules = [{}]", rules.collect::<Vec<_>>().join(", ")));
        preview(&home, &folder, "write", &json!({"path": path, "content": "x"}))["approval"].take()
    };
    let (edit, ask, deny) = ("auto-edit", "ask", "deny");
    for (rules, path, expected) in [
        (&[("link/secret", deny), ("site", edit)][..], "secret/b", "deny"),
        (&[("link/secret", deny), ("site", edit)], "b", "none"),
        (&[("link/none/deep", deny), ("site", edit)], "none/deep/b", "deny"),
        (&[("link", deny), ("site", edit)], "b", "deny"),
        (&[("up", deny), ("site", edit)], "b", "deny"),
        (&[("link", edit)], "b", "ask"),
        (&[("link", edit), ("site", edit)], "b", "none"),
        (&[("site/in/x", deny), ("site", edit)], "docs/x", "deny"),
        (&[("site/in/x", deny), ("site", edit)], "docs/y", "none"),
        (&[("site/in", ask), ("site", edit)], "docs/y", "ask"),
        (&[("site/in", ask), ("site/docs", deny)], "docs/y", "deny"),
        (&[("site/in", edit), ("site/docs", deny)], "docs/y", "deny"),
        (&[("site/in", edit)], "docs/y", "ask"),
        (&[("site/docs", edit), ("site/in", deny)], "docs/y", "none"), // the first one counts
        (&[("site/dead/x", deny), ("site", edit)], "none/x", "deny"),  // the write itself makes what the link leads to
        (&[("site/dead/x", deny), ("site", edit)], "none/y", "none"),
        (&[("site/loop/x", deny), ("site", edit)], "y", "none"),
        (&[("other", deny), ("site", edit)], "y", "none"),
    ] {
        assert_eq!(asks(rules, path), expected, "{rules:?} {path}");
    }
    // A command could change what is denied, and is listed for another place.
    let run = json!({"argv": ["make", "test"]});
    asks(&[("link/docs/a.md", deny)], "b");
    assert_eq!(preview(&home, &folder, "run", &run)["approval"], "deny");
    let listed = |path: &str| {
        format!("rules = [{{ path = \"{at}/{path}\", policy = \"ask\", commands = [[\"make\", \"test\"]] }}]")
    };
    for (path, expected) in [("link", "ask"), ("site", "none"), ("up", "ask"), ("", "none")] {
        home.configure(&listed(path));
        assert_eq!(preview(&home, &folder, "run", &run)["approval"], expected, "{path}");
    }
}

/// What a rule let the agent edit is compared in the next approval, whatever another session did in another folder meanwhile.
#[test]
fn what_nobody_has_seen_is_remembered_for_each_folder() {
    let (home, own) = site();
    let folder = own.path().join("site");
    home.configure(&format!("rules = [{{ path = \"{}\", policy = \"auto-edit\" }}]", folder.display()));
    let command = json!({"argv": ["sh", "-c", "make test"]});
    let before = preview(&home, &folder, "run", &command);
    let edit = json!({"path": "Makefile", "content": "test:\n\tfalse\n"});
    let mut write = home.command(&["write", "--format", "compact"]);
    write.env("KEN_FOLDER", &folder);
    // As ken-tools makes the call: by the rule, and nobody sees it.
    assert_eq!(home.asked_by(write, &edit, true).0["approval"], "none");
    home.done("write", &json!({"path": "repos/site/a", "content": "1"}));
    let after = preview(&home, &folder, "run", &command);
    assert_ne!(before["fingerprint"], after["fingerprint"]);
    assert_eq!(after["action"]["changedUnseen"], json!(["Makefile"]), "{after}");
}

#[test]
fn a_folder_is_entered_only_while_it_is_the_trusted_one() {
    let (home, own) = site();
    let (folder, other) = (own.path().join("site"), own.path().join("other"));
    let list = || json!({});
    assert!(why_not(&home, &other, "list", &list()).contains("is not a trusted folder"));
    assert!(why_not(&home, &folder.join("docs"), "list", &list()).contains("is not a trusted folder"));
    fs::rename(&folder, own.path().join("away")).unwrap();
    assert!(why_not(&home, &folder, "list", &list()).contains("is gone"));
    std::os::unix::fs::symlink(own.path().join("away"), &folder).unwrap();
    assert!(why_not(&home, &folder, "list", &list()).contains("is gone"));
    fs::remove_file(&folder).unwrap();
    fs::rename(&other, &folder).unwrap();
    assert!(why_not(&home, &folder, "read", &json!({"path": "secret"})).contains("was replaced"));
    // Nor is it undone there.
    assert!(fs::read_to_string(folder.join("secret")).is_ok());
}
