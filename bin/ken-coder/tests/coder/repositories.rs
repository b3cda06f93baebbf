//! Undo in the repositories that a project can have besides its own: submodules, further work trees, and others in its folders.

use std::path::PathBuf;

use crate::common::{Home, outcome, output_text, trust};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A project with a submodule `sub`, a work tree `tree` of the branch `side`, and a bare repository `up.git`, which git ignores.
struct Project {
    home: Home,
    _own: TempDir,
    folder: PathBuf,
    /// The path of the project in calls, with `/` at its end.
    at: &'static str,
}

/// The repositories of the project.
const ALL: [&str; 4] = [".", "sub", "tree", "up.git"];

impl Project {
    /// In the workspace, and in a trusted folder.
    fn both() -> [Project; 2] {
        ["repos/site/", ""].map(|at| {
            let (home, own) = (Home::new(), tempfile::tempdir().unwrap());
            let folder = if at.is_empty() { own.path().join("site") } else { home.path("repos/site") };
            let project = Project { home, folder, at, _own: own };
            project.fill();
            trust(&project.home, &project.folder, None);
            project
        })
    }

    fn fill(&self) {
        std::fs::create_dir_all(&self.folder).unwrap();
        let library = self.home.folder().join("library");
        self.home.git(&["init", "-q", library.to_str().unwrap()]);
        std::fs::write(library.join("l"), "l\n").unwrap();
        let at_library = |words: &[&str]| self.home.git(&[&["-C", library.to_str().unwrap()], words].concat());
        at_library(&["add", "."]);
        at_library(&["commit", "-q", "-m", "Library"]);
        self.git(&["init", "-q"]);
        self.put("c", "c\n");
        self.put(".gitignore", "/up.git/\n");
        self.git(&[
            "-c",
            "protocol.file.allow=always",
            "submodule",
            "--quiet",
            "add",
            library.to_str().unwrap(),
            "sub",
        ]);
        self.git(&["add", "."]);
        self.git(&["commit", "-q", "-m", "First"]);
        self.git(&["worktree", "add", "-q", "-b", "side", "tree"]);
        self.git(&["init", "-q", "--bare", "up.git"]);
        self.git(&["push", "-q", "./up.git", "main"]);
    }

    fn git(&self, words: &[&str]) -> String {
        self.home.git(&[&["-C", self.folder.to_str().unwrap()], words].concat())
    }

    fn put(&self, name: &str, text: &str) {
        std::fs::write(self.folder.join(name), text).unwrap();
    }

    /// Makes a call as part of a run; it must succeed.
    fn done(&self, run: &str, command: &str, call: &Value) -> Value {
        let mut command = self.home.command(&[command, "--format", "compact", "--json", &call.to_string()]);
        if self.at.is_empty() {
            command.env("KEN_FOLDER", &self.folder);
        }
        let output = command.env("KEN_RUN", run).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{call}: {}", output_text(&output));
        outcome(&output).1
    }

    /// Runs a script in the project; it must succeed.
    fn run(&self, run: &str, script: &str) {
        let script = format!("set -e; git() {{ command git -c user.name=A -c user.email=a@x \"$@\"; }}; {script}");
        let cwd = format!("{}.", self.at);
        let ran = self.done(run, "run", &json!({"shell": script, "cwd": cwd}));
        assert_eq!(ran["status"], 0, "{ran}");
    }

    /// Undoes a run, in which nothing may be refused.
    fn undo(&self, run: &str) -> Value {
        let (status, undone) = self.home.report(&["undo", run]);
        assert_eq!((status, &undone["refused"]), (Some(0), &json!([])), "{} {run}: {undone}", self.at);
        undone
    }

    /// Returns what git says of all repositories.
    fn state(&self) -> Vec<String> {
        let state = |repo: &&str| {
            let git = |words: &[&str]| self.git(&[&["-C", repo], words].concat());
            let mut all = vec![(*repo).to_owned(), git(&["for-each-ref"]), git(&["rev-parse", "HEAD"])];
            if *repo != "up.git" {
                all.extend([&["ls-files", "--stage"][..], &["status", "--porcelain"], &["stash", "list"]].map(git));
            }
            all.join("\n")
        };
        ALL.iter().map(state).collect()
    }

    fn check(&self) {
        for repo in ALL {
            self.git(&["-C", repo, "fsck", "--strict"]);
        }
    }
}

#[test]
fn a_commit_below_the_project_is_undone_in_its_repository() {
    for project in Project::both() {
        let at = project.at;
        let mut before = Vec::new();
        for name in ["sub/new", "tree/new"] {
            project.put(name, "new\n");
        }
        for (repo, name, branch) in [("sub", "sub", "refs/heads/main"), ("tree", "", "refs/heads/side")] {
            let repo_of_refs = format!("{at}{name}").trim_end_matches('/').to_owned();
            before.push(project.state());
            project.done(repo, "commit", &json!({"repo": format!("{at}{repo}"), "message": format!("In {repo}")}));
            let log = |repo: &str| project.git(&["-C", repo, "reflog", "-1", "--format=%gs"]);
            assert_eq!(log(repo), format!("commit: In {repo}"), "{at}");
            assert!(!log(".").contains("In "), "the reflog of another work tree: {}", log("."));
            assert_eq!(project.git(&["-C", repo, "status", "--porcelain"]), "");
            let (_, shown) = project.home.report(&["diff", repo]);
            let refs = shown["refs"].as_array().unwrap();
            assert_eq!(refs.len(), 1, "{shown}");
            assert_eq!((&refs[0]["repo"], &refs[0]["name"]), (&json!(repo_of_refs), &json!(branch)), "{shown}");
        }
        for (run, before) in ["tree", "sub"].into_iter().zip(before.iter().rev()) {
            let undone = project.undo(run);
            assert_eq!(undone["restored"].as_array().unwrap().len(), 2, "the branch and the index: {undone}");
            assert_eq!(project.state(), *before, "{at} {run}");
        }
        // A HEAD without a branch is that of its work tree.
        project.git(&["-C", "tree", "checkout", "-q", "--detach"]);
        let before = project.state();
        project.done("detached", "commit", &json!({"repo": format!("{at}tree"), "message": "Detached"}));
        assert_eq!(project.git(&["-C", "tree", "log", "-1", "--format=%s"]), "Detached");
        project.undo("detached");
        assert_eq!(project.state(), before, "{at}");
        project.check();
    }
}

/// A command can do so too, and remove the objects.
#[test]
fn what_a_command_does_below_the_project_is_undone() {
    for project in Project::both() {
        project.git(&["-C", "sub", "branch", "old"]);
        project.git(&["-C", "tree", "commit", "-q", "--allow-empty", "-m", "Only in the tree"]);
        project.git(&["-C", "tree", "checkout", "-q", "--detach"]);
        project.git(&["-C", "tree", "commit", "-q", "--allow-empty", "-m", "Only of its HEAD"]);
        let before = project.state();
        project.run(
            "one",
            "echo x >> c; git commit -qam Root; cd sub; echo x >> l; git commit -qam Sub; git branch -qD old; cd ../tree; \
             git checkout -q -B side HEAD~2; echo x >> c; git add c; cd ..; git push -q ./up.git HEAD:main HEAD:new; \
             git reflog expire --expire=now --all; rm -f .git/worktrees/tree/ORIG_HEAD .git/worktrees/tree/logs/HEAD; \
             git gc -q --prune=now",
        );
        let after = project.state();
        for (before, after) in before.iter().zip(&after) {
            assert_ne!(before, after);
        }
        let undone = project.undo("one");
        assert_eq!(project.state(), before, "{}", project.at);
        project.check();
        // In the same run as a commit of ken, and the undo undone.
        project.undo(undone["undo"].as_str().unwrap());
        assert_eq!(project.state(), after, "{}", project.at);
        project.done("two", "commit", &json!({"repo": format!("{}tree", project.at), "message": "Ken"}));
        project.run("two", "echo y >> c; git add c; cd sub; echo y >> l; git commit -qam Again");
        project.undo("two");
        assert_eq!(project.state(), after, "{}", project.at);
        project.check();
    }
}

#[test]
fn stashes_come_back_in_their_order() {
    for project in Project::both() {
        let stash = |text: &str| {
            project.put("c", text);
            project.git(&["stash", "push", "-q", "-m", text]);
        };
        for (number, script) in
            ["git stash clear", "git stash drop -q stash@{1}", "git stash pop -q"].into_iter().enumerate()
        {
            stash("older");
            stash("newer");
            let before = project.state();
            let run = format!("drop{number}");
            project.run(
                &run,
                &format!("{script}; git reflog expire --expire-unreachable=now --all; git gc -q --prune=now"),
            );
            assert_ne!(project.state(), before, "{script}");
            project.undo(&run);
            assert_eq!(project.state(), before, "{} {script}", project.at);
            project.check();
            for text in ["newer", "older"] {
                project.git(&["stash", "pop", "-q"]);
                assert_eq!(std::fs::read_to_string(project.folder.join("c")).unwrap(), text, "{script}");
                project.git(&["checkout", "-q", "c"]);
            }
            assert_eq!(project.git(&["stash", "list"]), "");
        }
        // The first stash and a further one are taken away again.
        for run in ["first", "second"] {
            project.put("c", run);
            let before = project.state();
            project.run(run, "git stash -q");
            project.undo(run);
            assert_eq!(project.state(), before, "{} {run}", project.at);
            stash("kept");
        }
        // What a person has stashed since stays.
        project.run("dropped", "git stash drop -q");
        stash("by hand");
        let before = project.state();
        let (status, undone) = project.home.report(&["undo", "dropped"]);
        assert_eq!(status, Some(1), "{undone}");
        assert_eq!(project.state(), before);
    }
}

/// What is beyond the limit is named before the command runs.
#[test]
fn repositories_beyond_the_limit_are_named() {
    let project = &Project::both()[0];
    let not_undone = || {
        let call = json!({"argv": ["make"], "cwd": "repos/site"});
        let lines = project.home.preview("run", &call)["action"]["notUndone"].take();
        lines.as_array().into_iter().flatten().filter(|line| line.as_str().unwrap().contains("further")).count()
    };
    for number in 0..196 {
        let name = format!("many/{number:03}");
        std::fs::create_dir_all(project.folder.join(&name)).unwrap();
        // Git would be slow for so many, and is not asked about these.
        project.put(&format!("{name}/.git"), "gitdir: /elsewhere\n");
    }
    assert_eq!(not_undone(), 0);
    project.git(&["init", "-q", "many/one-more"]);
    assert_eq!(not_undone(), 1);
}

/// The person's git goes on with the layout, and sees a commit of one file, then one of everything, and an undo.
#[test]
fn commits_and_undo_keep_a_split_and_a_sparse_index() {
    for (layout, left_out) in [
        (&[&["update-index", "--split-index"][..]][..], false),
        (&[&["config", "core.splitIndex", "true"], &["update-index", "--refresh"]], false),
        (&[&["sparse-checkout", "set", "--no-sparse-index", "d"]], true),
        (&[&["sparse-checkout", "set", "--sparse-index", "d"]], true),
    ] {
        let home = Home::with_repository();
        home.put("repos/site/d/x", "x\n");
        home.put("repos/site/f/y", "y\n");
        home.git(&["add", "."]);
        home.git(&["commit", "-q", "-m", "More"]);
        layout.iter().for_each(|words| drop(home.git(words)));
        home.put("repos/site/a", "two\n");
        home.put("repos/site/d/x", "two\n");
        home.done("commit", &json!({"repo": "repos/site", "message": "One", "paths": ["a"]}));
        assert_eq!(home.git(&["show", "--name-only", "--format="]), "a", "{layout:?}");
        assert_eq!(home.git(&["status", "--porcelain"]), "M d/x", "{layout:?}");
        home.done("commit", &json!({"repo": "repos/site", "message": "All"}));
        assert_eq!(home.git(&["show", "--name-only", "--format="]), "d/x", "{layout:?}");
        let head = home.git(&["rev-parse", "HEAD"]);
        let script = "git checkout -q -b other; echo z > z; git add z; git rm -q a; git branch -q -D main";
        crate::common::as_run(&home, "run-layout", "run", &json!({"shell": script, "cwd": "repos/site"}));
        let (status, undone) = home.report(&["undo", "run-layout"]);
        assert_eq!((status, &undone["refused"]), (Some(0), &json!([])), "{layout:?}: {undone}");
        assert_eq!(home.git(&["rev-parse", "main", "HEAD"]), format!("{head}\n{head}"), "{layout:?}");
        assert_eq!(home.git(&["status", "--porcelain"]), "", "{layout:?}");
        assert_eq!(home.git(&["ls-tree", "-r", "--name-only", "HEAD"]), "a\nd/x\nf/y", "{layout:?}");
        assert_eq!(home.path("repos/site/f/y").exists(), !left_out, "{layout:?}");
        home.git(&["fsck", "--strict"]);
    }
}

/// Nothing is done by halves: what ken-coder cannot put back is said before, and the remedy works.
#[test]
fn refs_in_a_reftable_are_read_and_the_remedy_is_named() {
    let home = Home::new();
    let folder = home.path("repos/site");
    let made = std::process::Command::new("git")
        .args(["init", "-q", "-b", "main", "--ref-format=reftable"])
        .arg(&folder)
        .output();
    if !made.unwrap().status.success() {
        ken_tests::skip("needs git 2.46");
        return;
    }
    home.put("repos/site/a", "one\n");
    home.git(&["add", "."]);
    home.git(&["commit", "-q", "-m", "First"]);
    home.put("repos/site/a", "two\n");
    let status = home.done("status", &json!({"repo": "repos/site"}));
    assert_eq!(status["text"], "## main\n M a\n", "{status}");
    let remedy = "git refs migrate --ref-format=files";
    let call = json!({"repo": "repos/site", "message": "Second"});
    assert!(home.why_not("commit", &call).contains(remedy));
    let run = json!({"shell": "git checkout -q -b other", "cwd": "repos/site"});
    let preview = home.preview("run", &run);
    assert!(preview["action"]["notUndone"].to_string().contains(remedy), "{preview}");
    // What git executes is held as everywhere.
    let script =
        "git config core.fsmonitor x; echo > .git/hooks/pre-commit; ln -s ../../a .git/reftable/x; git branch y; true";
    home.done("run", &json!({"shell": script, "cwd": "repos/site"}));
    assert!(
        !home.text("repos/site/.git/config").contains("fsmonitor")
            && !home.path("repos/site/.git/hooks/pre-commit").exists()
    );
    assert!(!home.path("repos/site/.git/reftable/x").is_symlink() && home.git(&["branch"]).contains("y"));
    // The branch of a further work tree is in a table of its own.
    home.git(&["worktree", "add", "-q", "-b", "side", "tree"]);
    assert!(home.why_not("status", &json!({"repo": "repos/site/tree"})).contains(remedy));
    // The other remedy, because earlier versions of git do not migrate a repository with reflogs.
    home.git(&["clone", "-q", "--ref-format=files", ".", "../copy"]);
    home.put("repos/copy/a", "two\n");
    home.done("commit", &json!({"repo": "repos/copy", "message": "Second"}));
    assert_eq!(home.git(&["-C", "../copy", "log", "--format=%s", "main"]), "Second\nFirst");
}
