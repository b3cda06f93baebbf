//! What makes git run programs cannot be changed in a sandbox that protects repositories, by whatever detour, and git itself
//! works there.

use std::path::Path;
use std::process::Command;

use crate::common::{Kernel, World, users};

/// Makes a repository with one commit, a submodule, a further worktree and a repository below, owned by the user of the world.
const REPOSITORIES: &str = "\
    export HOME=$PWD/.. GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b.c GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b.c; \
    git init -q -b main site && cd site && echo 1 > file && git add file && git commit -q -m one && \
    git init -q -b main ../library && (cd ../library && echo 2 > file && git add file && git commit -q -m two) && \
    git -c protocol.file.allow=always submodule add -q ../library modules/library >/dev/null 2>&1 && \
    git commit -q -m submodule && git worktree add -q ../tree -b other && \
    git clone -q --bare . ../bare.git && git init -q -b main vendor/deep/inner && rm -rf .git/hooks .git/info && cd ..";

/// Each would make the person's next `git status` run a program of the command's choice, if the last word succeeds.
const DETOURS: [&str; 29] = [
    "echo x >> site/.git/config",
    "git -C site config core.fsmonitor /tmp/x",
    "mv site/.git site/g",
    "mv site/.git/config site/.git/c",
    "rm -f site/.git/config",
    "(cat site/.git/config; echo x) > c; mv -f c site/.git/config",
    "ln -f site/file site/.git/config",
    "mv site s",
    "mkdir -p site/.git/hooks && echo x > site/.git/hooks/post-commit",
    "mv site/.git/hooks site/.git/h",
    "mkdir -p site/.git/info; echo x > site/.git/info/attributes",
    "mkdir -p site/.git/remotes; echo 'URL: ../evil' > site/.git/remotes/origin",
    "echo x > site/.git/config.worktree",
    "echo ../evil > site/.git/commondir",
    "rm -f site/.git/commondir",
    "echo x >> site/.git/modules/modules/library/config",
    "mv site/.git/modules site/.git/m",
    "echo 'gitdir: ../../../evil' > site/modules/library/.git",
    "mv site/modules/library/.git site/modules/library/g",
    "mv site/modules site/m",
    "echo x > site/.git/worktrees/tree/config.worktree",
    "echo ../../../evil > site/.git/worktrees/tree/commondir",
    "echo 'gitdir: ../evil' > tree/.git",
    "echo x >> bare.git/config",
    "mv site/vendor/deep site/vendor/d",
    "echo x >> site/vendor/deep/inner/.git/config",
    // What is not held goes away, and the folders of the submodule and the worktree no longer look like repositories.
    "rm -rf site",
    "echo x >> site/.git/modules/modules/library/config",
    "echo ../../../evil > site/.git/worktrees/tree/commondir",
];

fn prepared(kernel: Kernel, user: Option<u32>) -> World {
    let world = World::on(kernel, user);
    let mut made = Command::new("sh");
    made.args(["-e", "-c", REPOSITORIES]).current_dir(world.inside());
    let made = world.as_user(made).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    world
}

fn protected(world: &World, script: &str) -> std::process::Output {
    world.sandbox(&["--protect-git"], &["sh", "-c", script]).output().unwrap()
}

/// Every file that decides which programs git runs.
fn deciding(folder: &Path) -> String {
    let find = "find . \\( -name config -o -name config.worktree -o -name commondir -o -path '*/hooks*' -o -path '*/info/*' -o -path '*.git/remotes/*' \
         -o -name .git -not -type d \\) -type f -exec sha256sum {} + | sort -k 2";
    let found = Command::new("sh").args(["-c", find]).current_dir(folder).output().unwrap();
    String::from_utf8(found.stdout).unwrap()
}

#[test]
fn what_makes_git_run_programs_cannot_be_changed() {
    for user in users() {
        let world = prepared(Kernel::This, user);
        let before = deciding(&world.inside());
        assert!(before.lines().count() > 8, "{before}");
        let mut changed = Vec::new();
        for detour in DETOURS {
            let output = protected(&world, detour);
            if output.status.success() || deciding(&world.inside()) != before {
                changed.push(format!("{detour}: {output:?}"));
            }
        }
        assert!(changed.is_empty(), "as {user:?}:\n{}", changed.join("\n"));
    }
}

/// The same detours work without the option: so it is the option that refuses them.
#[test]
fn without_protection_they_can() {
    let world = prepared(Kernel::This, None);
    let before = deciding(&world.inside());
    let saved = tempfile::tempdir().unwrap();
    let copy = |from: &Path, to: &Path| {
        std::fs::remove_dir_all(to).unwrap();
        let copied = Command::new("cp").arg("-a").args([from, to]).status().unwrap();
        assert!(copied.success());
    };
    copy(&world.inside(), saved.path());
    for detour in DETOURS {
        copy(saved.path(), &world.inside());
        let output = world.sandbox(&[], &["sh", "-c", detour]).output().unwrap();
        // What is missing is there only while a sandbox protects the repository.
        let has_no_effect =
            ["rm -f site/.git/commondir", "mv site/.git/hooks"].iter().any(|word| detour.starts_with(word));
        assert!(has_no_effect || deciding(&world.inside()) != before, "{detour}: {output:?}");
    }
}

#[test]
fn git_itself_works_and_nothing_is_left() {
    for user in users() {
        let world = prepared(Kernel::This, user);
        let names = |place: &str| {
            let mut names: Vec<_> = std::fs::read_dir(world.inside().join(place))
                .unwrap()
                .map(|entry| entry.unwrap().file_name())
                .collect();
            names.sort();
            names
        };
        let before = names("site/.git");
        let script = "export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b.c GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b.c; set -e; \
             cd site; git checkout -q -b next; echo 3 > file; git commit -q -a -m three; git stash list; git log --oneline; \
             git gc -q; cd ../tree; echo 4 > file; git commit -q -a -m four; \
             cd ../site/modules/library; echo 5 > file; git commit -q -a -m five; cd ../..; git merge -q -X ours other; \
             cd ..; git init -q fresh; cd fresh; git config a.b c; echo y > y; git add y; git commit -q -m y";
        let output = protected(&world, script);
        assert!(output.status.success(), "as {user:?}: {output:?}");
        let left: Vec<_> = names("site/.git").into_iter().filter(|name| !before.contains(name)).collect();
        assert!(
            left.iter().all(|name| ["ORIG_HEAD", "logs", "gc.log", "packed-refs"].iter().any(|known| name == known)),
            "{left:?}"
        );
        for made in ["config.worktree", "commondir", "hooks", "info", "remotes"] {
            assert!(!world.inside().join("site/.git").join(made).exists(), "{made}");
        }
    }
}

/// A symbolic link in the place of a file is held, and so is what it leads to.
#[test]
fn links_are_held_with_what_they_lead_to() {
    let world = prepared(Kernel::This, None);
    let prepare = "mkdir shared && echo '# hook' > shared/pre-commit && ln -s ../../shared site/.git/hooks && \
         mv library/.git moved.git && ln -s ../moved.git library/.git";
    assert!(world.sandbox(&[], &["sh", "-c", prepare]).output().unwrap().status.success());
    for detour in [
        "rm site/.git/hooks", "mv site/.git/hooks h", "echo x > shared/pre-commit", "mv shared s", "rm library/.git",
        "mv library/.git g", "echo x >> moved.git/config", "mv moved.git m",
    ] {
        let output = protected(&world, detour);
        assert!(!output.status.success(), "{detour}: {output:?}");
    }
}

/// A folder that cannot be looked into could be made accessible again from inside.
#[test]
fn a_folder_that_hides_its_repository_is_read_only() {
    for user in users().into_iter().flatten() {
        let world = prepared(Kernel::This, Some(user));
        assert!(world.sandbox(&[], &["chmod", "0", "site/vendor"]).output().unwrap().status.success());
        let output = protected(&world, "chmod 755 site/vendor; echo x >> site/vendor/deep/inner/.git/config");
        assert!(!output.status.success(), "{output:?}");
        // The same with one that cannot be changed: what is missing in it could be made after a chmod.
        assert!(world.sandbox(&[], &["chmod", "555", "bare.git"]).output().unwrap().status.success());
        let output = protected(&world, "echo 1 > site/file; chmod 755 bare.git; echo x > bare.git/commondir");
        assert!(!output.status.success(), "{output:?}");
        assert_eq!(std::fs::read_to_string(world.inside().join("site/file")).unwrap(), "1\n", "{output:?}");
    }
}

#[test]
fn what_is_named_is_read_only() {
    let world = World::new(None);
    std::fs::create_dir_all(world.inside().join("tools/hooks")).unwrap();
    // In another folder there is no such file.
    let script = "exec \"$0\" --write-fd \"$1\" --write-fd 5 --cwd-fd 5 --read-only-below 5:tools/hooks --read-only-below 5:absent -- \
         sh -c 'touch mine tools/mine; touch tools/hooks/x; mv tools t'";
    let opened = |path: &Path| {
        let opened = nix::fcntl::open(path, nix::fcntl::OFlag::O_PATH, nix::sys::stat::Mode::empty()).unwrap();
        // Away from the number that the other one gets.
        nix::fcntl::fcntl(&opened, nix::fcntl::FcntlArg::F_DUPFD(50)).unwrap()
    };
    let elsewhere = tempfile::tempdir().unwrap();
    let (folder, other) = (opened(&world.inside()), opened(elsewhere.path()).to_string());
    let program = env!("CARGO_BIN_EXE_ken-sandbox");
    let output = world.with_descriptor(&folder, 5, &["sh", "-c", script, program, &other]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let names = |place: &str| std::fs::read_dir(world.inside().join(place)).unwrap().count();
    assert_eq!((names("tools"), names("tools/hooks")), (2, 0), "{output:?}");
    assert!(world.inside().join("mine").exists());
}

#[test]
fn without_a_mount_namespace_nothing_is_protected_and_nothing_runs() {
    let world = prepared(Kernel::WithoutNamespaces, None);
    let output = protected(&world, "touch it-ran");
    assert_eq!(output.status.code(), Some(125), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("no mount namespace"), "{output:?}");
    assert!(!world.inside().join("it-ran").exists() && !world.inside().join("site/.git/commondir").exists());
}
