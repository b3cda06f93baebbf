//! Tests of previews: what needs approval, and that the fingerprint changes with everything that the call would do.

use std::os::unix::fs::symlink;

use crate::common::{Home, executable};
use serde_json::{Value, json};

const RULES: &str = r#"rules = [
  { path = "repos/other/secret", policy = "deny" },
  { path = "repos/site/secret", policy = "deny" },
  { path = "repos/third/secret", policy = "deny" },
  { path = "repos/site/src", policy = "auto-edit" },
  { path = "repos/tools", policy = "auto-edit", commands = [["make", "test"], ["ls", "-R"]] },
]"#;

fn approval(home: &Home, command: &str, call: &Value) -> String {
    home.preview(command, call)["approval"].as_str().unwrap().to_owned()
}

#[test]
fn a_change_asks_with_its_diff_and_changes_nothing() {
    let home = Home::new();
    home.put("repos/site/a", "one\ntwo\n");
    let before = home.files();
    let call = json!({"path": "repos/site/a", "old": "two", "new": "three"});
    let preview = home.preview("edit", &call);
    assert_eq!(preview["approval"], "ask");
    assert_eq!((&preview["actionType"], &preview["risk"]), (&json!("file.edit"), &json!("low")));
    assert_eq!((&preview["summary"], &preview["target"]), (&json!("Edit repos/site/a"), &json!("repos/site/a")));
    assert_eq!(
        preview["diff"],
        "diff --git a/repos/site/a b/repos/site/a\n--- a/repos/site/a\n+++ b/repos/site/a\n@@ -1,2 +1,2 @@\n one\n-two\n+three\n"
    );
    assert_eq!(preview["fingerprint"].as_str().unwrap().len(), 64);
    assert_eq!(home.files(), before);
    assert_eq!(home.preview("edit", &call), preview, "equal calls, equal answers");
    home.put("repos/site/a", "zero\ntwo\n");
    assert_ne!(home.preview("edit", &call)["fingerprint"], preview["fingerprint"], "the file has changed");
}

#[test]
fn nul_and_its_picture_are_a_change() {
    let home = Home::new();
    home.put("repos/site/a", "one\na\0b\n");
    let diff = |old: &str, new: &str| {
        let call = json!({"path": "repos/site/a", "old": old, "new": new});
        let diff = home.preview("edit", &call)["diff"].as_str().unwrap().to_owned();
        diff.split_once("@@\n").map(|(_, hunk)| hunk.to_owned())
    };
    assert_eq!(diff("one", "two").as_deref(), Some("-one\n+two\n a␀b\n"));
    let call = json!({"path": "repos/site/a", "content": "one\na␀b\n"});
    let written = home.preview("write", &call);
    assert!(written["diff"].as_str().unwrap().ends_with(" one\n-a␀b\n+a␀b\n"), "{written}");
    // The picture is not what the file holds.
    assert!(home.why_not("edit", &json!({"path": "repos/site/a", "old": "a␀b", "new": "c"})).contains("not"));
}

#[test]
fn an_argument_that_differs_is_another_fingerprint() {
    let home = Home::new();
    home.put("repos/site/sub/x", "");
    let run = json!({"argv": ["make", "test"], "cwd": "repos/site"});
    let fingerprint = |call: &Value| home.preview("run", call)["fingerprint"].take();
    let first = fingerprint(&run);
    for (field, value) in [
        ("argv", json!(["make", "tests"])),
        ("cwd", json!("repos/site/sub")),
        ("stdin", json!("y")),
        ("timeoutSeconds", json!(5)),
    ] {
        let mut other = run.clone();
        other[field] = value;
        assert_ne!(fingerprint(&other), first, "{field}");
    }
    home.configure("read = [\"/opt\"]");
    assert_ne!(fingerprint(&run), first, "what the sandbox allows");
    home.configure("");
    assert_eq!(fingerprint(&run), first);
    // The fingerprint also covers a program of the workspace, which could be replaced.
    home.put("repos/site/t.sh", "echo 1\n");
    let own = json!({"argv": ["./t.sh"], "cwd": "repos/site"});
    let first = fingerprint(&own);
    home.put("repos/site/t.sh", "echo 2\n");
    assert_ne!(fingerprint(&own), first);
}

#[test]
fn only_a_rule_of_the_operator_frees_a_change() {
    let home = Home::with(RULES);
    let write = |path: &str| json!({"path": path, "content": "x"});
    for (path, expected) in [
        ("repos/site/src/a", "none"),
        ("repos/tools/a", "none"),
        ("repos/site/a", "ask"),
        ("projects/x/a", "ask"),
        ("repos/site/secret/a", "deny"),
    ] {
        assert_eq!(approval(&home, "write", &write(path)), expected, "{path}");
    }
    let both =
        json!({"edits": [{"path": "repos/site/src/a", "content": "x"}, {"path": "repos/site/b", "content": "x"}]});
    assert_eq!(approval(&home, "apply", &both), "ask");
    let error = home.refused("write", &write("repos/site/secret/a"));
    assert_eq!(error["code"], "forbidden", "{error}");
    assert!(!home.path("repos/site/secret").exists());
    assert_eq!(approval(&home, "read", &json!({"path": "repos/site/secret/a"})), "none");
    home.configure("rules = [{ path = \"repos\" }]");
    assert!(home.why_not("list", &json!({})).contains("policy"), "a rule that is wrong frees nothing");
    home.configure("rules = [{ path = \"../x\", policy = \"auto-edit\" }]");
    assert!(home.why_not("list", &json!({})).contains("../x"));
}

/// A place of the workspace can be written with its whole path, also through a link that the operator's home lies behind.
#[test]
fn a_rule_with_an_absolute_path_applies_in_the_workspace() {
    let home = Home::new();
    let aside = tempfile::tempdir().unwrap();
    let (link, folder) = (aside.path().join("link"), home.folder().display());
    symlink(home.folder(), &link).unwrap();
    symlink("docs", home.path("repos/site/in")).unwrap();
    let repos = "{ path = \"repos\", policy = \"auto-edit\" }";
    let rule = |path: &str, policy: &str| format!("{{ path = \"{path}\", policy = \"{policy}\" }}");
    let workspace = format!("{folder}/state/workspace");
    let by_link = format!("{}/state/workspace", link.display());
    let write = |path: &str| json!({"path": path, "content": "x"});
    for (rules, path, expected) in [
        (vec![rule(&format!("{workspace}/repos/site/secret"), "deny"), repos.into()], "repos/site/secret/a", "deny"),
        (vec![rule(&format!("{workspace}/repos/site/secret"), "deny"), repos.into()], "repos/site/a", "none"),
        (vec![rule(&format!("{by_link}/repos/site/secret"), "deny"), repos.into()], "repos/site/secret/a", "deny"),
        (vec![rule(&format!("{workspace}/repos"), "auto-edit")], "repos/site/a", "none"),
        (vec![rule(&format!("{by_link}/repos"), "auto-edit")], "repos/site/a", "ask"),
        (vec![rule(&workspace, "deny"), repos.into()], "repos/site/a", "deny"),
        (vec![rule("repos/site/in", "deny"), repos.into()], "repos/site/docs/a", "deny"),
        (vec![rule("repos/site/in", "auto-edit")], "repos/site/docs/a", "ask"),
        // A rule for a folder above the workspace is for trusted folders below it. Only a denial counts in the workspace as well.
        (vec![rule(&folder.to_string(), "deny")], "repos/site/a", "deny"),
        (vec![repos.into(), rule(&folder.to_string(), "deny")], "repos/site/a", "none"),
        (vec![rule(&folder.to_string(), "auto-edit")], "repos/site/a", "ask"),
        (vec![rule(&folder.to_string(), "ask"), repos.into()], "repos/site/a", "none"),
        (vec![rule("/nothing/here", "deny"), repos.into()], "repos/site/a", "none"),
    ] {
        home.configure(&format!("rules = [{}]", rules.join(", ")));
        assert_eq!(approval(&home, "write", &write(path)), expected, "{rules:?} {path}");
    }
    // A home behind a link, as the operator writes it.
    home.configure(&format!("rules = [{}]", rule(&format!("{by_link}/repos"), "auto-edit")));
    let call = write("repos/site/a").to_string();
    let mut command = home.command(&["write", "--preview", "--json", &call]);
    let output = command.env("KEN_HOME", &link).output().unwrap();
    assert_eq!(serde_json::from_slice::<Value>(&output.stdout).unwrap()["approval"], "none");
    // A command could change the files of a folder through a link to the folder.
    symlink("site", home.path("repos/alias")).unwrap();
    home.configure(&format!("rules = [{}]", rule(&format!("{workspace}/repos/site"), "deny")));
    assert_eq!(approval(&home, "run", &json!({"argv": ["touch", "a"], "cwd": "repos/site"})), "deny");
    assert!(home.why_not("run", &json!({"argv": ["touch", "a"], "cwd": "repos/alias"})).contains("symbolic link"));
    // What cannot be compared with the paths of calls frees nothing.
    home.configure(&format!("rules = [{}]", rule(&format!("repos/{}", "x".repeat(256)), "deny")));
    assert!(home.why_not("list", &json!({})).contains("a name of 256 bytes"));
}

#[test]
fn a_command_asks_unless_it_only_looks_or_is_named_by_a_rule() {
    let home = Home::with(RULES);
    home.put("repos/tools/Makefile", "test:\n");
    home.put("repos/plain/a", "x");
    home.put("repos/other/a", "x");
    home.put("repos/third/a", "x");
    for (argv, cwd, expected) in [
        (vec!["ls", "-la"], "repos/plain", "none"),
        (vec!["grep", "-rn", "x", "."], "repos/plain", "none"),
        (vec!["make", "test"], "repos/tools", "none"),
        (vec!["make", "test", "-B"], "repos/tools", "ask"),
        (vec!["make"], "repos/tools", "ask"),
        (vec!["make", "test"], "repos/plain", "ask"),
        (vec!["sh", "-c", "ls"], "repos/plain", "ask"),
        (vec!["./ls"], "repos/plain", "ask"),
        (vec!["ls", ";", "rm", "a"], "repos/plain", "none"), // names of files, whatever they look like
        (vec!["touch", "a"], "repos/other", "deny"),
        (vec!["touch", "a"], "repos/site", "deny"),
        (vec!["touch", "a"], "repos/third", "deny"),
        (vec!["ls"], "repos/site", "none"),
    ] {
        let call = json!({"argv": argv, "cwd": cwd});
        assert_eq!(approval(&home, "run", &call), expected, "{call}");
    }
    for text in ["ls | wc -l", "ls; rm a", "ls $(rm a)", "ls > a"] {
        let preview = home.preview("run", &json!({"shell": text, "cwd": "repos/plain"}));
        assert_eq!((&preview["approval"], &preview["risk"]), (&json!("ask"), &json!("high")), "{text}");
        assert_eq!(preview["action"]["argv"], json!(["sh", "-c", text]));
    }
    // A program that runs any other program is like a shell.
    for (argv, risk) in [
        (vec!["sh", "-c", "rm -rf ."], "high"),
        (vec!["/bin/bash", "-ec", "rm a"], "high"),
        (vec!["env", "A=b", "rm", "a"], "high"),
        (vec!["xargs", "rm"], "high"),
        (vec!["timeout", "5", "rm", "a"], "high"),
        (vec!["sudo", "rm", "a"], "high"),
        (vec!["python3", "-c", "print()"], "high"),
        (vec!["sh", "./test.sh"], "medium"),
        (vec!["rm", "a"], "medium"),
        (vec!["ls"], "low"),
    ] {
        assert_eq!(home.preview("run", &json!({"argv": argv, "cwd": "repos/plain"}))["risk"], risk, "{argv:?}");
    }
    // The list of approvals shows that there is standard input.
    let preview = home.preview("run", &json!({"argv": ["sh"], "cwd": "repos/plain", "stdin": "rm a"}));
    assert_eq!(preview["summary"], "Run sh in repos/plain, with 4 bytes of standard input");
    assert_eq!(preview["risk"], "high");
    // A command that nobody approves ends after a minute, unless the rule lists it.
    for (argv, cwd, seconds) in [
        (["cat", "/dev/zero"], "repos/tools", 60.0),
        (["ls", "-R"], "repos/tools", 590.0),
        (["touch", "a"], "repos/plain", 590.0),
    ] {
        let preview = home.preview("run", &json!({"argv": argv, "cwd": cwd, "timeoutSeconds": 590}));
        assert_eq!(preview["action"]["timeoutSeconds"], seconds, "{argv:?}");
    }
    // The rule also applies to a call without a preview.
    assert!(home.why_not("run", &json!({"argv": ["touch", "a"], "cwd": "repos/site"})).contains("forbids"));
    // A command recognised as read-only has no write access.
    home.put("repos/plain/b", "");
    let ran = home.done("run", &json!({"argv": ["cat", "a", "/dev/stdin"], "cwd": "repos/plain", "stdin": "y"}));
    assert_eq!((&ran["stdout"], &ran["changedCount"]), (&json!("xy"), &json!(0)));
    for (call, why) in [
        (json!({"cwd": "repos/plain"}), "the program is missing"),
        (json!({"argv": ["ls"], "cwd": "repos/none"}), "there is no"),
        (json!({"argv": ["ls"], "cwd": "repos/plain", "timeoutSeconds": 0}), "above 0"),
        (json!({"shell": "x".repeat(64 * 1024), "cwd": "repos/plain"}), "at most"),
    ] {
        let error = home.why_not("run", &call);
        assert!(error.contains(why), "{call}: {error}");
    }
}

/// A rule names a command with its standard input and its network, not the program alone.
#[test]
fn a_listed_command_is_matched_with_its_input_and_its_network() {
    let home = Home::with(
        r#"rules = [{ path = "repos/site", policy = "ask", hosts = ["example.org"], commands = [
  ["python3", "-"],
  { argv = ["make", "fetch"], network = true },
  { argv = ["sh"], stdin = "date\n" },
] }]"#,
    );
    for (mut call, expected) in [
        (json!({"argv": ["python3", "-"]}), "none"),
        (json!({"argv": ["python3", "-"], "stdin": "print()"}), "ask"),
        (json!({"argv": ["python3", "-"], "network": true}), "ask"),
        (json!({"argv": ["make", "fetch"]}), "none"),
        (json!({"argv": ["make", "fetch"], "network": true}), "none"),
        (json!({"argv": ["make", "fetch"], "network": true, "stdin": ""}), "ask"),
        (json!({"argv": ["sh"], "stdin": "date\n"}), "none"),
        (json!({"argv": ["sh"], "stdin": "date\nreboot\n"}), "ask"),
        (json!({"argv": ["sh"]}), "ask"),
        (json!({"argv": ["sh"], "stdin": "date\n", "network": true}), "ask"),
    ] {
        call["cwd"] = json!("repos/site");
        assert_eq!(approval(&home, "run", &call), expected, "{call}");
    }
    home.configure(r#"rules = [{ path = "repos", policy = "ask", commands = [{ argv = ["make"], net = true }] }]"#);
    let why = home.why_not("list", &json!({}));
    assert!(why.contains("a table with argv"), "{why}");
}

/// What a command will run and read is a part of its fingerprint, and the names of these files are shown.
#[test]
fn a_command_is_approved_with_the_files_that_it_runs() {
    let home = Home::with("rules = [{ path = \"repos/site/auto\", policy = \"auto-edit\" }]");
    home.put("repos/site/Makefile", "test:\n\tsh run.sh\n");
    home.put("repos/site/run.sh", "true\n");
    home.put("repos/site/sub/package.json", "{}");
    home.put("repos/site/notes", "x");
    let fingerprint = |call: &Value| home.preview("run", call)["fingerprint"].take();
    let in_site = |mut call: Value| {
        call["cwd"] = json!("repos/site");
        call
    };
    for (call, file) in [
        (json!({"argv": ["make", "test"]}), "repos/site/Makefile"),
        (json!({"argv": ["sh", "run.sh"]}), "repos/site/run.sh"),
        (json!({"argv": ["sh", "./sub/../run.sh"]}), "repos/site/run.sh"),
        (json!({"argv": ["bash", "--rcfile=run.sh"]}), "repos/site/run.sh"),
        (json!({"argv": ["awk", "-frun.sh"]}), "repos/site/run.sh"),
        (json!({"shell": "cd . && (./run.sh|cat)"}), "repos/site/run.sh"),
        (json!({"argv": ["npm", "--prefix", "sub", "test"]}), "repos/site/sub/package.json"),
        (json!({"argv": [home.path("repos/site/run.sh")]}), "repos/site/run.sh"),
    ] {
        let call = in_site(call);
        let before = home.preview("run", &call);
        assert!(before["action"]["compared"].as_array().unwrap().contains(&json!(file)), "{before}");
        let text = home.text(file);
        home.put(file, &format!("{text}# changed\n"));
        assert_ne!(fingerprint(&call), before["fingerprint"], "{call}");
        home.put(file, &text);
        assert_eq!(fingerprint(&call), before["fingerprint"], "{call}");
        home.put("repos/site/notes", "y");
        assert_eq!(fingerprint(&call), before["fingerprint"], "a file that it does not name: {call}");
    }
    // A file that appears can be run instead of another one.
    let make = in_site(json!({"argv": ["make", "test"]}));
    let before = fingerprint(&make);
    home.put("repos/site/GNUmakefile", "test:\n");
    assert_ne!(fingerprint(&make), before);
    std::fs::remove_file(home.path("repos/site/GNUmakefile")).unwrap();
    // A program outside of the workspace, whichever way its path leads there.
    let outside = tempfile::tempdir().unwrap();
    let tool = outside.path().canonicalize().unwrap().join("tool");
    symlink(&tool, home.path("repos/site/link")).unwrap();
    let up = format!("{}{}", "../".repeat(home.path("repos/site").components().count()), &tool.to_str().unwrap()[1..]);
    for word in [tool.to_str().unwrap(), &up, "./link"] {
        let call = in_site(json!({"argv": [word]}));
        let fingerprints = ["1", "22", "22"].map(|text| {
            executable(&tool, &format!("#!/bin/sh\necho {text}\n"));
            std::fs::File::open(&tool).unwrap().set_modified(std::time::UNIX_EPOCH).unwrap();
            fingerprint(&call)
        });
        assert_ne!(fingerprints[0], fingerprints[1], "{word}");
        assert_eq!(fingerprints[1], fingerprints[2], "{word}");
    }
    // The program that its name means, and the values of the variables that it gets.
    home.configure("env = [\"PATH=/nowhere\"]");
    assert_ne!(fingerprint(&make), before);
}

#[test]
fn what_nobody_saw_is_shown_and_compared() {
    let home = Home::with("rules = [{ path = \"repos/site/auto\", policy = \"auto-edit\" }]");
    let run = json!({"argv": ["make", "test"], "cwd": "repos/site"});
    let before = home.preview("run", &run);
    assert_eq!(before["action"]["changedUnseen"], Value::Null);
    let write = |path: &str, text: &str| {
        let (question, status, _) = home.asked("write", &json!({"path": path, "content": text}), true);
        assert_eq!((&question["approval"], status), (&json!("none"), Some(0)), "{question}");
    };
    write("repos/site/auto/lib.py", "a");
    let after = home.preview("run", &run);
    assert_eq!(after["action"]["changedUnseen"], json!(["repos/site/auto/lib.py"]));
    assert_ne!(after["fingerprint"], before["fingerprint"]);
    write("repos/site/auto/lib.py", "b");
    assert_ne!(home.preview("run", &run)["fingerprint"], after["fingerprint"], "the content counts");
    home.put("repos/other/x", "");
    let elsewhere = home.preview("run", &json!({"argv": ["make"], "cwd": "repos/other"}));
    assert_eq!(elsewhere["action"]["changedUnseen"], Value::Null, "{elsewhere}");
}

/// ken-tools gets the fingerprint of what is about to happen, and without its answer nothing happens.
#[test]
fn a_call_that_is_not_let_go_on_does_nothing() {
    let home = Home::new();
    home.put("repos/site/a", "one\n");
    let edit = json!({"path": "repos/site/a", "old": "one", "new": "two"});
    let run = json!({"argv": ["touch", "b"], "cwd": "repos/site"});
    for (command, call) in [("edit", &edit), ("run", &run)] {
        let preview = home.preview(command, call);
        let before = home.files();
        let (question, status, reply) = home.asked(command, call, false);
        assert_eq!(question["fingerprint"], preview["fingerprint"], "{command}");
        assert_eq!((&question["approval"], status, reply.as_str()), (&json!("ask"), Some(2), ""), "{command}");
        assert_eq!(home.files(), before);
        let (question, status, reply) = home.asked(command, call, true);
        assert_eq!((&question["fingerprint"], status), (&preview["fingerprint"], Some(0)), "{command}: {reply}");
        assert_ne!(home.files(), before);
    }
}

/// A terminal would obey it, and without it the words would look like others.
#[test]
fn the_summary_of_a_command_names_control_characters() {
    let home = Home::new();
    let call = json!({"cwd": "repos/site", "argv": ["echo", "a\u{1b}[2Jb", "c"]});
    let summary = home.preview("run", &call)["summary"].as_str().unwrap().to_owned();
    assert!(summary.contains("echo \"a\\u{1b}[2Jb\" c"), "{summary}");
}
