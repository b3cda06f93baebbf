//! A command that may change a repository cannot make the next git of a person run a program: not by the configuration, the
//! hooks, the attributes, nor by a repository that it makes itself. The person's git is the real one, with the person's own
//! settings, outside of any sandbox.

use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::common::{Home, executable, hide_namespaces, until};
use serde_json::{Value, json};
use tempfile::TempDir;

/// The user `nobody`.
const NOBODY: u32 = 65534;

/// What a person has in a project: a repository with a submodule and a remote. `evil` leaves a canary where it runs outside
/// of the sandbox.
const PROJECT: &str = "\
    git init -q -b main . && echo 1 > file && git add file && git commit -q -m one && \
    git -c protocol.file.allow=always submodule add -q ../library sub 2>/dev/null && git commit -q -m two && \
    git remote add origin ../remote && echo 2 > file";

/// What a person does afterwards, in each folder that is a repository then.
const PERSON: [&str; 15] = [
    "GIT_EDITOR=true git rebase --continue",
    "git status",
    "git diff",
    "git log -1 -p",
    "git diff HEAD~1",
    "printf 'protocol=https\\nhost=example.org\\n\\n' | git credential fill",
    "git fetch",
    "git add -A",
    "git commit -q -m three",
    "git commit -q --amend",
    "git checkout -q -b other",
    "git checkout -q HEAD~1 -- file",
    "git stash",
    "git push -q origin HEAD:refs/heads/x",
    "git status",
];
const FOLDERS: [&str; 7] = [".", "sub", "nested", "bare", "tree", "part", "via"];

/// Each is what a person has done before, and what commands do then, one after the other. `$E` is the program.
type Attempt = (&'static str, &'static [&'static str]);

const ATTEMPTS: [Attempt; 85] = [
    // The configuration.
    ("", &["git config core.fsmonitor $E"]),
    ("", &["printf '[core]\\n\\tfsmonitor = %s\\n' $E >> .git/config"]),
    ("", &["sed -i \"s|^\\[core\\]|[core]\\n\\tfsmonitor = $E|\" .git/config"]),
    ("", &["git config core.editor $E"]),
    ("", &["git config core.hooksPath $PWD/h; mkdir h; cp evil h/pre-commit"]),
    ("", &["git config diff.external $E"]),
    ("", &["git config diff.evil.command $E; echo 'file diff=evil' > .gitattributes"]),
    ("", &["git config diff.evil.textconv $E; echo 'file diff=evil' > .gitattributes"]),
    ("", &["git config filter.evil.clean $E; echo 'file filter=evil' > .gitattributes"]),
    ("", &["git config filter.evil.smudge $E; echo 'file filter=evil' > .gitattributes"]),
    ("", &["git config filter.evil.process $E; echo 'file filter=evil' > .gitattributes"]),
    ("", &["git config filter.evil.clean $E; mkdir -p .git/info; echo 'file filter=evil' > .git/info/attributes"]),
    ("", &["git config filter.evil.clean $E; echo 'file filter=evil' > a; git config core.attributesFile $PWD/a"]),
    ("", &["git config gpg.program $E; git config commit.gpgSign true"]),
    (
        "",
        &[
            "git config gpg.format ssh; git config gpg.ssh.program $E; git config user.signingKey $PWD/file; git config commit.gpgSign true",
        ],
    ),
    ("", &["git config gpg.format ssh; git config gpg.ssh.defaultKeyCommand $E; git config commit.gpgSign true"]),
    ("", &["git config core.sshCommand $E; git config remote.origin.url ssh://example.org/x"]),
    ("", &["git config protocol.ext.allow always; git config remote.origin.url \"ext::$E\""]),
    ("", &["git config protocol.ext.allow always; git config \"url.ext::$E .insteadOf\" ../remote"]),
    ("", &["git config remote.origin.uploadpack $E"]),
    ("", &["git config remote.origin.receivepack $E"]),
    ("", &["git config credential.helper $E"]),
    ("", &["git config core.askPass $E; git config credential.helper ''"]),
    ("", &["printf '[core]\\n\\tfsmonitor = %s\\n' $E > inc; git config include.path ../inc"]),
    ("", &["printf '[core]\\n\\tfsmonitor = %s\\n' $E > inc; git config 'includeIf.gitdir:**.path' ../inc"]),
    ("", &["git config extensions.worktreeConfig true; git config --worktree core.fsmonitor $E"]),
    // Another file in place of the configuration.
    ("", &["mv .git/config c; printf '[core]\\n\\tbare = false\\n\\tfsmonitor = %s\\n' $E > .git/config"]),
    ("", &["cp .git/config c; printf '[core]\\n\\tfsmonitor = %s\\n' $E >> c; ln -sf ../c .git/config"]),
    ("", &["cp .git/config c; printf '[core]\\n\\tfsmonitor = %s\\n' $E >> c; ln -f c .git/config"]),
    ("", &["cp .git/config c; printf '[core]\\n\\tfsmonitor = %s\\n' $E >> c; mv -f c .git/config"]),
    // Another folder in place of the repository.
    ("", &["mv .git x; cp -r x .git; git config core.fsmonitor $E"]),
    ("", &["mv .git g; echo 'gitdir: g' > .git; git config core.fsmonitor $E"]),
    ("", &["mv .git g; ln -s g .git; git config core.fsmonitor $E"]),
    ("", &["rm -rf .git; git init -q; git config core.fsmonitor $E"]),
    ("", &["cp -r .git g; printf '[core]\\n\\tfsmonitor = %s\\n' $E >> g/config; echo ../g > .git/commondir"]),
    // Hooks.
    ("", &["mkdir -p .git/hooks; cp evil .git/hooks/pre-commit"]),
    ("", &["mkdir -p .git/hooks; cp evil .git/hooks/prepare-commit-msg"]),
    ("", &["mkdir -p .git/hooks; cp evil .git/hooks/commit-msg"]),
    ("", &["mkdir -p .git/hooks; cp evil .git/hooks/post-commit"]),
    ("", &["mkdir -p .git/hooks; cp evil .git/hooks/post-checkout"]),
    ("", &["mkdir -p .git/hooks; cp evil .git/hooks/post-index-change"]),
    ("", &["mkdir -p .git/hooks; cp evil .git/hooks/reference-transaction"]),
    ("", &["mkdir -p .git/hooks; cp evil .git/hooks/pre-push"]),
    ("", &["mkdir h; cp evil h/pre-commit; rm -rf .git/hooks; ln -s ../h .git/hooks"]),
    ("", &["mkdir h; cp evil h/pre-commit; mv .git/hooks old; mv h .git/hooks"]),
    // A log that is a link to a hook, and a branch whose name git writes into it.
    (
        "printf '#!/bin/sh\\n' > .git/hooks/post-checkout; chmod 755 .git/hooks/post-checkout",
        &["git checkout -q -b \"x;$E\"; ln -sf ../hooks/post-checkout .git/logs/HEAD"],
    ),
    (
        "printf '#!/bin/sh\\n' > .git/hooks/post-checkout; chmod 755 .git/hooks/post-checkout",
        &[
            "git checkout -q -b \"x;$E\"; rm -r .git/logs; mkdir l; ln -s ../l .git/logs; ln -s ../.git/hooks/post-checkout l/HEAD",
        ],
    ),
    // What the person's own configuration names in the tree.
    (
        "mkdir husky; printf '#!/bin/sh\\n' > husky/pre-commit; chmod 755 husky/pre-commit; git config core.hooksPath husky",
        &["cp evil husky/pre-commit"],
    ),
    (
        "mkdir husky; printf '#!/bin/sh\\n' > husky/pre-commit; chmod 755 husky/pre-commit; git config core.hooksPath husky",
        &["mkdir h; cp evil h/pre-commit; mv husky old; mv h husky"],
    ),
    ("touch local; git config include.path ../local", &["printf '[core]\\n\\tfsmonitor = %s\\n' $E > local"]),
    // Submodules and worktrees.
    ("", &["printf '[core]\\n\\tfsmonitor = %s\\n' $E >> .git/modules/sub/config"]),
    (
        "",
        &[
            "cp -r .git/modules/sub g; printf '[core]\\n\\tfsmonitor = %s\\n\\tworktree = ../sub\\n' $E >> g/config; echo 'gitdir: ../g' > sub/.git",
        ],
    ),
    ("", &["rm -rf sub; git init -q sub; git -C sub config core.fsmonitor $E"]),
    (
        "git worktree add -q tree",
        &[
            "cp -r .git g; printf '[core]\\n\\tfsmonitor = %s\\n' $E >> g/config; echo ../../../g > .git/worktrees/tree/commondir",
        ],
    ),
    (
        "git worktree add -q tree",
        &["cp -r .git g; printf '[core]\\n\\tfsmonitor = %s\\n' $E >> g/config; echo 'gitdir: ../g' > tree/.git"],
    ),
    // Repositories that the commands make themselves.
    ("", &["git init -q nested; git -C nested config core.fsmonitor $E"]),
    ("", &["git init -q nested", "git -C nested config core.fsmonitor $E"]),
    (
        "",
        &[
            "git init -q --bare bare; cd bare; printf '[core]\\n\\tbare = false\\n\\tworktree = ..\\n\\tfsmonitor = %s\\n' $E >> config",
        ],
    ),
    (
        "",
        &[
            "cp -r .git part; rm part/HEAD; printf '[core]\\n\\tfsmonitor = %s\\n\\tworktree = ..\\n' $E >> part/config",
            "cp .git/HEAD part/HEAD",
        ],
    ),
    (
        "",
        &[
            "mkdir via c d; cp -r .git/objects .git/refs d; printf '[core]\\n\\trepositoryformatversion = 0\\n\\tfsmonitor = %s\\n' $E > d/config",
            "echo ../d > c/commondir; cp .git/HEAD c; echo 'gitdir: ../c' > via/.git",
        ],
    ),
    // What the person's own configuration names in the tree, in each way in which git can read it.
    ("mkdir husky; printf '[core]\\n\\thooksPath = husky # ours\\n' >> .git/config", &["cp evil husky/pre-commit"]),
    ("mkdir husky; printf '[core]\\n\\thooksPath = hus\\\\\\nky\\n' >> .git/config", &["cp evil husky/pre-commit"]),
    (
        "mkdir husky; git config core.hooksPath \"~/$(realpath --relative-to=$HOME $PWD)/husky\"",
        &["cp evil husky/pre-commit"],
    ),
    (
        "mkdir husky; ln -s $PWD ../link-${PWD##*/}; git config core.hooksPath ${PWD%/*}/link-${PWD##*/}/husky",
        &["cp evil husky/pre-commit"],
    ),
    (
        "mkdir -p a/husky; ln -s a b; git config core.hooksPath b/husky",
        &["mkdir -p c/husky; cp evil c/husky/pre-commit; rm b; ln -s c b"],
    ),
    ("git config core.hooksPath husky", &["mkdir husky; cp evil husky/pre-commit"]),
    (
        "mkdir husky; printf '[core]\\n\\thooksPath = husky\\n' > inc; git config include.path ../inc",
        &["cp evil husky/pre-commit"],
    ),
    (
        "mkdir conf; printf '[include]\\n\\tpath = more\\n' > conf/git; touch conf/more; git config include.path ../conf/git",
        &["printf '[core]\\n\\tfsmonitor = %s\\n' $E > conf/more"],
    ),
    (
        "printf '[include]\\n\\tpath = more\\n' > conf; git config include.path ../conf",
        &["printf '[core]\\n\\tfsmonitor = %s\\n' $E > more"],
    ),
    ("git config core.hooksPath husky; git worktree add -q tree; mkdir tree/husky", &["cp evil tree/husky/pre-commit"]),
    ("git config core.hooksPath husky", &["git worktree add -q tree; mkdir tree/husky; cp evil tree/husky/pre-commit"]),
    ("mkdir sub/husky; git -C sub config core.hooksPath husky", &["cp evil sub/husky/pre-commit"]),
    (
        "mkdir husky; git config extensions.worktreeConfig true; git config --worktree core.hooksPath husky",
        &["cp evil husky/pre-commit"],
    ),
    (
        "mkdir tools; printf '#!/bin/sh\\ncat\\n' > tools/clean; chmod 755 tools/clean; git config filter.x.clean ./tools/clean; \
            echo 'file filter=x' > .gitattributes",
        &["cp evil tools/clean"],
    ),
    (
        "echo cat > clean.sh; git config filter.x.clean 'sh clean.sh %f'; echo 'file filter=x' > .gitattributes",
        &["cp evil clean.sh"],
    ),
    (
        "mkdir tools; echo 'cat $1' > tools/text; git config diff.x.textconv 'sh \"$(git rev-parse --show-toplevel)/tools/text\"'; \
            echo 'file diff=x' > .gitattributes",
        &["rm tools/text", "cp evil tools/text"],
    ),
    ("git config core.fsmonitor tools/monitor", &["mkdir tools; cp evil tools/monitor"]),
    // A rebase that goes on later.
    (STOPPED, &["echo \"exec $E\" >> .git/rebase-merge/git-rebase-todo"]),
    (
        STOPPED,
        &[
            "cp -r .git/rebase-merge m; echo x $E >> m/git-rebase-todo; mv .git/rebase-merge old; mv m .git/rebase-merge",
        ],
    ),
    (
        "git checkout -q file; git checkout -q -b b HEAD~1; git commit -q --allow-empty -m b; git checkout -q main; \
            GIT_SEQUENCE_EDITOR='sed -i 1ibreak' git rebase -q -i b",
        &["mkdir git-merge-a; cp evil git-merge-a/b; echo a/b > .git/rebase-merge/strategy"],
    ),
    ("git checkout -q file", &[REBASE, "echo \"exec $E\" > .git/rebase-merge/git-rebase-todo"]),
    (
        "git checkout -q file",
        &[REBASE, "mv .git/rebase-merge m; ln -s ../m .git/rebase-merge", "echo exec $E >> m/git-rebase-todo"],
    ),
    (
        "git checkout -q file",
        &[
            "git -c user.name=N -c user.email=n@x rebase --exec false --root; echo \"exec $E\" > .git/rebase-merge/git-rebase-todo",
        ],
    ),
    // A file with a second name, by which a later command could change it.
    ("git checkout -q file", &[REBASE, "ln .git/rebase-merge/git-rebase-todo t; echo exec $E >> t"]),
    ("", &["mkdir -p .git/hooks; cp evil .git/hooks/pre-commit; ln .git/hooks/pre-commit h"]),
];

/// A rebase that waits to go on, begun by the person and by a command.
const STOPPED: &str = "git checkout -q file; GIT_SEQUENCE_EDITOR='sed -i 1ibreak' git rebase -q -i --no-ff HEAD~1";
const REBASE: &str =
    "GIT_SEQUENCE_EDITOR='sed -i 1ibreak' git -c user.name=N -c user.email=n@x rebase -q -i --no-ff HEAD~1";

/// The projects of one user, and how the person and the commands work in them.
struct World {
    home: Home,
    /// A folder beside ken's own, for projects that the person trusts.
    own: TempDir,
    user: Option<u32>,
    /// Whether each project is a trusted folder, rather than a repository of the workspace.
    is_bound: bool,
}

impl World {
    fn new(user: Option<u32>, is_bound: bool) -> World {
        let own = tempfile::Builder::new().prefix("ken-own-").tempdir().unwrap();
        std::fs::set_permissions(own.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let world = World { home: Home::new(), own, user, is_bound };
        std::fs::create_dir_all(world.home.folder().join("canaries")).unwrap();
        // Another user has put a file where `../inc` would lead from a temporary folder.
        std::fs::create_dir_all(world.home.folder().join("tmp")).unwrap();
        std::fs::write(world.home.folder().join("tmp/inc"), "no configuration").unwrap();
        let settings = "[user]\n\tname = P\n\temail = p@example.org\n[init]\n\tdefaultBranch = main\n";
        std::fs::write(world.home.folder().join(".gitconfig"), settings).unwrap();
        std::fs::set_permissions(world.home.folder(), std::fs::Permissions::from_mode(0o755)).unwrap();
        world.own(world.home.folder());
        world.own(world.own.path());
        let repos = world.repos();
        world.as_person(&repos, "git init -q --bare remote && git init -q library && cd library && echo x > x && git add x && git commit -q -m x");
        std::fs::create_dir_all(repos.join("template")).unwrap();
        world.own(&repos.join("template"));
        world.as_person(&repos.join("template"), PROJECT);
        assert!(repos.join("template/sub/x").exists());
        world
    }

    fn repos(&self) -> PathBuf {
        if self.is_bound { self.own.path().to_owned() } else { self.home.path("repos") }
    }

    fn own(&self, folder: &Path) {
        let Some(user) = self.user else { return };
        chown(folder, Some(user), Some(user)).unwrap();
        for entry in std::fs::read_dir(folder).unwrap().flatten() {
            if entry.file_type().unwrap().is_dir() {
                self.own(&entry.path());
            } else {
                std::os::unix::fs::lchown(entry.path(), Some(user), Some(user)).unwrap();
            }
        }
    }

    fn start(&self, mut command: Command) -> String {
        if let Some(user) = self.user {
            command.uid(user).gid(user);
        }
        let output = command.stdin(Stdio::null()).output().unwrap();
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
    }

    fn as_person(&self, folder: &Path, script: &str) -> String {
        let mut command = Command::new("sh");
        command.args(["-c", script]).current_dir(folder).env_clear();
        command.env("PATH", std::env::var_os("PATH").unwrap()).env("HOME", self.home.folder());
        self.start(command)
    }

    /// Makes a project, and returns its folder and its canary.
    fn project(&self, number: usize, before: &str) -> (PathBuf, PathBuf) {
        let (folder, canary) =
            (self.repos().join(format!("p{number}")), self.home.folder().join(format!("canaries/{number}")));
        self.as_person(&self.repos(), &format!("cp -a template p{number}"));
        let evil = format!("#!/bin/sh\ntouch {}\nexec cat\n", canary.display());
        executable(&folder.join("evil"), &evil);
        self.own(&folder.join("sub"));
        if let Some(user) = self.user {
            chown(folder.join("evil"), Some(user), Some(user)).unwrap();
        }
        self.as_person(&folder, before);
        if self.is_bound {
            crate::common::trust(&self.home, &folder, self.user);
        }
        (folder, canary)
    }

    /// What git of the person says, in every folder that is there.
    fn afterwards(&self, folder: &Path) -> String {
        let script = format!("timeout 60 sh -c {:?}", PERSON.join("; "));
        let places = FOLDERS.map(|place| folder.join(place)).into_iter().filter(|place| place.is_dir());
        places.map(|place| self.as_person(&place, &script)).collect()
    }

    /// The same up to the first command that runs the program. That command waits for the program, and gets no more than 5 s.
    fn until_canary(&self, folder: &Path, canary: &Path) -> String {
        let mut said = String::new();
        let places = FOLDERS.map(|place| folder.join(place)).into_iter().filter(|place| place.is_dir());
        for (place, command) in places.flat_map(|place| PERSON.map(|command| (place.clone(), command))) {
            said += &self.as_person(&place, &format!("timeout 5 sh -c {command:?}"));
            if canary.exists() {
                break;
            }
        }
        said
    }

    fn command(&self, number: usize, script: &str, has_namespaces: bool) -> Value {
        let cwd = if self.is_bound { String::new() } else { format!("repos/p{number}") };
        let script = format!("E=$PWD/evil; {script}");
        let call = json!({"shell": script, "cwd": cwd}).to_string();
        let folder = self.is_bound.then(|| self.repos().join(format!("p{number}")));
        self.call(&call, folder.as_deref(), has_namespaces)
    }

    /// Runs a command, in a trusted folder if there is one.
    fn call(&self, call: &str, folder: Option<&Path>, has_namespaces: bool) -> Value {
        let mut command = self.home.command(&["run", "--format", "compact", "--json", call]);
        command
            .env("HOME", self.home.folder())
            .env("TMPDIR", self.home.folder().join("tmp"))
            .envs(folder.map(|folder| ("KEN_FOLDER", folder)));
        if !has_namespaces {
            hide_namespaces(&mut command);
        }
        let text = self.start(command);
        serde_json::from_str(&text).unwrap_or_else(|_| panic!("{call}: {text}"))
    }
}

/// The attempts of one of several tests, each with its number. All of them take most of a minute, so by default each test has its own
/// part; with `KEN_GIT_ATTEMPTS=all`, as in CI, it has all.
fn attempts(part: usize, parts: usize) -> impl Iterator<Item = (usize, &'static Attempt)> {
    let has_all = std::env::var_os("KEN_GIT_ATTEMPTS").is_some_and(|set| set == "all");
    ATTEMPTS.iter().enumerate().filter(move |(number, _)| has_all || number % parts == part)
}

/// Each attempt works where nothing stops it. So the other tests show that something does.
#[test]
fn each_attempt_works_outside_of_a_sandbox() {
    let world = World::new(None, false);
    let mut harmless = Vec::new();
    for (number, (before, steps)) in attempts(0, 4) {
        let (folder, canary) = world.project(number, before);
        for step in *steps {
            world.as_person(&folder, &format!("E=$PWD/evil; {step}"));
        }
        let _ = std::fs::remove_file(&canary);
        let said = world.until_canary(&folder, &canary);
        if !canary.exists() {
            harmless.push(format!("{number}: {steps:?}\n{said}"));
        }
    }
    assert!(harmless.is_empty(), "{}", harmless.join("\n"));
}

fn nothing_runs(user: Option<u32>, has_namespaces: bool, is_bound: bool) {
    let is_root = nix::unistd::geteuid().is_root();
    if user.is_some() && !is_root {
        ken_tests::skip("needs root");
        return;
    }
    let world = World::new(user, is_bound);
    let mut executed = Vec::new();
    let part = usize::from(has_namespaces) + 2 * usize::from(user.is_some());
    for (number, (before, steps)) in attempts(part, if is_root { 4 } else { 2 }) {
        let (folder, canary) = world.project(number, before);
        let ran: Vec<Value> = steps.iter().map(|step| world.command(number, step, has_namespaces)).collect();
        let protected = ran.iter().all(|ran| ran["gitUnprotected"].is_null());
        assert_eq!(protected, has_namespaces, "{ran:?}");
        assert!(!canary.exists(), "the sandbox has not kept {steps:?} inside: {ran:?}");
        world.afterwards(&folder);
        if canary.exists() {
            executed.push(format!("{number}: {steps:?}: {ran:?}"));
        }
        // What was there before works as before.
        if has_namespaces && !steps[0].starts_with("rm -rf .git") {
            let log = world.as_person(&folder, "git rev-parse --is-inside-work-tree");
            assert_eq!(log, "true\n", "{steps:?}");
        }
    }
    println!("as {user:?}, namespaces {has_namespaces}, trusted folder {is_bound}: {} executed", executed.len());
    assert!(executed.is_empty(), "{}", executed.join("\n"));
}

#[test]
fn nothing_runs_where_mounts_can_be_made() {
    nothing_runs(None, true, false);
}

#[test]
fn nothing_runs_for_an_ordinary_user() {
    nothing_runs(Some(NOBODY), true, false);
}

#[test]
fn nothing_runs_where_no_mount_can_be_made() {
    nothing_runs(None, false, false);
}

#[test]
fn nothing_runs_for_an_ordinary_user_without_mounts() {
    nothing_runs(Some(NOBODY), false, false);
}

#[test]
fn nothing_runs_in_a_trusted_folder() {
    nothing_runs(None, true, true);
}

#[test]
fn nothing_runs_in_a_trusted_folder_of_an_ordinary_user_without_mounts() {
    nothing_runs(Some(NOBODY), false, true);
}

/// What a repository around a trusted folder, one elsewhere, and the person's own settings name in the folder. The last one is of
/// somebody else's hooks.
#[test]
fn what_a_configuration_outside_of_the_tree_names_is_kept() {
    for (before, folder, hook) in [
        ("mkdir -p front/husky; git config core.hooksPath front/husky", "front", "husky/pre-commit"),
        (
            "git worktree add -q ../tree; mkdir ../tree/husky; git config core.hooksPath husky",
            "../tree",
            "husky/pre-commit",
        ),
        ("mkdir husky; git config --global core.hooksPath husky", ".", "husky/pre-commit"),
        (
            "mkdir husky; echo '[core] hooksPath = husky' > ~/more; git config --global include.path '~/more'",
            ".",
            "husky/pre-commit",
        ),
        ("mkdir sub/husky; git config --global core.hooksPath husky", ".", "sub/husky/pre-commit"),
        ("git config --global core.hooksPath husky", ".", "husky/pre-commit"),
    ] {
        let world = World::new(None, true);
        let (repository, canary) = world.project(0, before);
        let folder = repository.join(folder).canonicalize().unwrap();
        crate::common::trust(&world.home, &folder, None);
        let script = format!(
            "mkdir -p {}; printf '#!/bin/sh\\ntouch {}\\n' > {hook}; chmod 755 {hook}",
            hook.trim_end_matches("/pre-commit"),
            canary.display()
        );
        let ran: Vec<Value> =
            [true, false].map(|has| world.call(&json!({"shell": script}).to_string(), Some(&folder), has)).into();
        let commit = format!(
            "cd {}/..; git commit -q --allow-empty -m x; git -C {} commit -q --allow-empty -m x",
            folder.join(hook).parent().unwrap().display(),
            repository.display()
        );
        world.as_person(&folder, &commit);
        assert!(!canary.exists(), "{before}: {ran:?}");
        // It would have worked.
        world.as_person(&folder, &format!("{script}; {commit}"));
        assert!(canary.exists(), "{before}");
    }
}

/// A hook that is checked out in a new work tree is the one that was there before, and what a file without a slash in a setting
/// names can be made.
#[test]
fn what_is_no_program_of_the_command_stays() {
    let world = World::new(None, true);
    let before = "mkdir husky; cp evil husky/pre-commit; git add husky; git commit -q -m hook; git config core.hooksPath husky; \
        git config alias.t '!make test'; git config blame.ignoreRevsFile revs; git config core.pager 'less test'";
    let (folder, _) = world.project(0, before);
    for has_namespaces in [true, false] {
        let ran =
            world.command(0, "git worktree add -q tree; echo 1 > revs; echo 1 > test; echo 1 > docs", has_namespaces);
        assert!(ran["status"] == 0 && ran["disarmed"].is_null(), "{ran}");
        assert!(["tree/husky/pre-commit", "revs", "test"].iter().all(|file| folder.join(file).exists()), "{ran}");
        world.as_person(&folder, "git worktree remove --force tree; git branch -D tree; rm test");
    }
}

/// A command goes on with the rebase that one before it has begun. That of the person stays as it is, with what it runs.
#[test]
fn a_rebase_belongs_to_whoever_has_begun_it() {
    let world = World::new(None, true);
    let go_on = "GIT_EDITOR=true git -c user.name=N -c user.email=n@x rebase --continue";
    for has_namespaces in [true, false] {
        let number = usize::from(has_namespaces);
        let (folder, canary) = world.project(number, "git checkout -q file");
        let ran = [REBASE, "git status", go_on].map(|script| world.command(number, script, has_namespaces));
        assert!(ran.iter().all(|ran| ran["status"] == 0 && ran["disarmed"].is_null()), "{ran:?}");
        assert!(!folder.join(".git/rebase-merge").exists(), "{ran:?}");
        world.as_person(&folder, &STOPPED.replace("1ibreak", &format!("\"1ibreak\\nexec {}/evil\"", folder.display())));
        let todo = std::fs::read_to_string(folder.join(".git/rebase-merge/git-rebase-todo")).unwrap();
        assert!(todo.starts_with("exec "), "{todo}");
        let ran = world.command(number, "git status", has_namespaces);
        assert!(ran["disarmed"].is_null(), "{ran}");
        if has_namespaces {
            let ran = world.command(number, "git rebase --abort; echo pick >> .git/rebase-merge/git-rebase-todo", true);
            assert_ne!(ran["status"], 0, "{ran}");
        }
        assert_eq!(std::fs::read_to_string(folder.join(".git/rebase-merge/git-rebase-todo")).unwrap(), todo);
        world.as_person(&folder, "GIT_EDITOR=true git rebase --continue");
        assert!(canary.exists());
    }
}

/// A repository in a folder that no call can name, or that cannot be read, is found too.
#[test]
fn no_repository_is_hidden_by_its_name_or_mode() {
    let world = World::new(nix::unistd::geteuid().is_root().then_some(NOBODY), false);
    let (folder, _) = world.project(0, "");
    let script = "git init -q closed; printf '[core]\\n\\tfsmonitor = %s\\n' $E >> closed/.git/config; \
        deep=$(printf 'd%.0s' $(seq 200)); for n in 1 2 3 4 5; do deep=$deep/$(printf 'd%.0s' $(seq 200)); done; \
        for name in \"$(printf 'x\\001')\" \"$(printf 'x\\377')\" $deep; do mkdir -p \"$name\"; cp -r closed/.git \"$name\"; done; \
        chmod 0 closed";
    let ran = world.command(0, script, true);
    let found = world.as_person(&folder, "chmod 700 closed; grep -rl fsmonitor . --include=config");
    assert_eq!(found, "", "{ran}");
    let kept = world.as_person(&folder, "find . -name 'config.ken-disabled*' | wc -l");
    assert_eq!(kept.trim(), "4", "{ran}");
}

/// A kill between a change of the configuration and its end: the next change of the workspace takes it back.
#[test]
fn what_a_killed_command_left_is_taken_back_by_the_next_change() {
    let home = Home::new();
    home.put("repos/site/a", "1");
    home.git(&["init", "-q"]);
    let config = home.text("repos/site/.git/config");
    let script = "git config core.fsmonitor x; mkdir -p .git/hooks; echo x > .git/hooks/pre-commit; \
        git init -q nested; git -C nested config core.fsmonitor x; touch made; sleep 328";
    let call = json!({"shell": script, "cwd": "repos/site"}).to_string();
    let mut command = home.command(&["run", "--json", &call]);
    hide_namespaces(&mut command);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    until(|| home.path("repos/site/made").exists());
    child.kill().unwrap();
    child.wait().unwrap();
    assert_ne!(home.text("repos/site/.git/config"), config);
    home.done("write", &json!({"path": "projects/other/x", "content": "x"}));
    assert_eq!(home.text("repos/site/.git/config"), config);
    assert!(!home.path("repos/site/.git/hooks/pre-commit").exists());
    assert!(!home.text("repos/site/nested/.git/config").contains("fsmonitor"));
}

/// Without mounts, what a command did to git is taken back only when it ends. So no rule lets it run by itself.
#[test]
fn without_mounts_a_listed_command_needs_a_person() {
    let home = Home::with("rules = [{ path = \"repos\", policy = \"ask\", commands = [[\"make\"]] }]");
    let preview = |hide: bool| {
        let mut command = home.command(&["run", "--preview", "--json", r#"{"argv":["make"],"cwd":"repos/site"}"#]);
        if hide {
            hide_namespaces(&mut command);
        }
        let output = command.output().unwrap();
        serde_json::from_slice::<Value>(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"))
    };
    assert_eq!(preview(false)["approval"], "none");
    assert_eq!(preview(true)["approval"], "ask");
    assert!(preview(true)["reason"].as_str().unwrap().contains("no mount"));
}

/// A variable of git in the operator's environment for commands would name a configuration.
#[test]
fn no_variable_of_git_reaches_a_command() {
    let home = Home::with("env = [\"GIT_CONFIG_GLOBAL=/tmp/x\", \"GIT_DIR=/tmp/y\", \"OTHER=z\"]");
    let ran = home.done("run", &json!({"shell": "env", "cwd": "repos/site"}));
    let text = ran["stdout"].as_str().unwrap();
    assert!(text.contains("OTHER=z\n") && !text.contains("GIT_"), "{text}");
}

/// A repository that a command makes works, with the settings that can run nothing.
#[test]
fn a_repository_that_a_command_makes_can_be_used() {
    let home = Home::new();
    let script = "git init -q -b main .; git config user.name N; git config user.email n@example.org; \
        git remote add origin https://example.org/x.git; git config core.pager less; echo 1 > a; git add a; git commit -q -m one";
    let ran = home.done("run", &json!({"shell": script, "cwd": "repos/site"}));
    assert_eq!(ran["disarmed"], json!(["repos/site/.git"]), "{ran}");
    assert_eq!(home.git(&["log", "--format=%an %s"]), "N one");
    assert_eq!(home.git(&["config", "remote.origin.url"]), "https://example.org/x.git");
    assert!(!home.text("repos/site/.git/config").contains("pager"));
    // What git itself writes is left as it is.
    home.put("repos/other/a", "1");
    let ran = home.done("run", &json!({"shell": "git init -q .; git add a", "cwd": "repos/other"}));
    assert!(ran["disarmed"].is_null(), "{ran}");
}

/// The person who reads the result, and the model, learn what can be approved instead.
#[test]
fn a_refused_change_of_the_configuration_names_what_can_be_approved() {
    let home = Home::new();
    home.put("repos/site/a", "1");
    home.git(&["init", "-q"]);
    for script in ["git config user.name x", "git remote add origin ../x", "git config --unset core.bare"] {
        let ran = home.done("run", &json!({"shell": script, "cwd": "repos/site"}));
        assert_ne!(ran["status"], 0, "{ran}");
        assert!(ran["hint"].as_str().is_some_and(|hint| hint.contains("git_push")), "{ran}");
    }
    let ran = home.done(
        "run",
        &json!({"shell": "git add a && git -c user.name=N -c user.email=n@x commit -q -m one", "cwd": "repos/site"}),
    );
    assert_eq!((&ran["status"], &ran["hint"]), (&json!(0), &Value::Null), "{ran}");
}

/// Git follows symbolic links in its folders when it writes messages, logs and lists of refs, and all of these can contain commands.
#[test]
fn a_command_leaves_no_link_in_a_folder_of_git() {
    let world = World::new(None, false);
    let outside = world.home.folder().join("outside");
    let target = outside.display();
    for (number, (script, link)) in [
        (format!("ln -sf {target} .git/logs/HEAD"), ".git/logs/HEAD"),
        (format!("ln -sf {target} .git/logs/refs/heads/main"), ".git/logs/refs/heads/main"),
        (format!("ln -sf {target} .git/COMMIT_EDITMSG"), ".git/COMMIT_EDITMSG"),
        (format!("ln -sf {target} .git/packed-refs"), ".git/packed-refs"),
        (format!("ln -sf {target} .git/modules/sub/FETCH_HEAD"), ".git/modules/sub/FETCH_HEAD"),
        (format!("git init -q new; ln -s {target} new/.git/MERGE_MSG"), "new/.git/MERGE_MSG"),
        (format!("git init -q --bare new; ln -s {target} new/packed-refs"), "new/packed-refs"),
        (format!("mkdir new; echo 'gitdir: ../g' > new/.git; mkdir g; ln -s {target} g/x; echo > g/HEAD"), "g/x"),
        // Names that no call can have.
        (format!("ln -s {target} \"$(printf '.git/logs/refs/heads/a\\nb')\""), ".git/logs/refs/heads/a\nb"),
        (format!("cd .git/logs; ln -s {target} \"$(printf 'x\\377')\"; ls | grep -a x && ln -s x y"), ".git/logs/y"),
    ]
    .into_iter()
    .enumerate()
    {
        for has_namespaces in [true, false] {
            let number = 2 * number + usize::from(has_namespaces);
            std::fs::write(&outside, "as it was").unwrap();
            let (folder, _) = world.project(number, &format!("ln -s {target} .git/kept; ln -s file tree"));
            let ran = world.command(number, &format!("ln -s file made; {script}"), has_namespaces);
            let link = folder.join(link);
            assert!(!link.is_symlink(), "{script}: {ran}");
            let odd = std::fs::read_dir(folder.join(".git/logs")).unwrap().flatten();
            assert!(odd.into_iter().all(|entry| !entry.path().is_symlink()), "{script}: {ran}");
            // What was there before is left, and so are links among the files of the person.
            for kept in [".git/kept", "tree", "made"] {
                assert!(folder.join(kept).is_symlink(), "{script}: {kept}: {ran}");
            }
            world.afterwards(&folder);
            assert_eq!(std::fs::read_to_string(&outside).unwrap(), "as it was", "{script}: {ran}");
        }
    }
}
