//! `make install` and `make uninstall`, with the programs that the tests use.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::{Path, PathBuf};
use std::process::Command;

use ken_tests::{binary, root};

fn make(target: &str, folder: &Path) {
    let built = binary("ken").parent().unwrap().to_owned();
    let programs: Vec<String> = programs(&built);
    let output = Command::new("make")
        .args(["-s", "-o", "build", target, "PREFIX=/usr"])
        .arg(format!("DESTDIR={}", folder.display()))
        .arg(format!("BUILT={}", built.display()))
        .arg(format!("PROGRAMS={}", programs.join(" ")))
        .current_dir(root())
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{printed}");
}

/// The programs that have been built. A test run can leave out ken-textgen, which takes long to compile.
fn programs(built: &Path) -> Vec<String> {
    let folders = std::fs::read_dir(root().join("bin")).unwrap();
    let names = folders.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| built.join(name).is_file()).collect()
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(files(&path)),
            false => found.push(path),
        }
    }
    found
}

#[test]
fn the_installed_files_work_and_are_removed_again() {
    let folder = tempfile::tempdir().unwrap();
    make("install", folder.path());
    let usr = folder.path().join("usr");
    for file in [
        "bin/ken",
        "bin/kend",
        "share/man/man1/ken.1",
        "share/man/man8/kend.8",
        "share/ken/ken.toml",
        "share/ken/workflows/full_reasoning.json",
        "share/doc/ken/LICENSE",
        "share/bash-completion/completions/ken",
        "share/zsh/site-functions/_ken",
        "share/fish/vendor_completions.d/ken.fish",
        "lib/sysusers.d/ken.conf",
        "lib/tmpfiles.d/ken.conf",
    ] {
        assert!(usr.join(file).is_file(), "{file}");
    }
    let unit = std::fs::read_to_string(usr.join("lib/systemd/system/ken.service")).unwrap();
    assert!(unit.contains("ExecStart=/usr/bin/kend\n") && !unit.contains('@'), "{unit}");
    let unit = std::fs::read_to_string(usr.join("lib/systemd/user/ken.service")).unwrap();
    assert!(unit.contains("ExecStart=/usr/bin/kend\n") && !unit.contains('@'), "{unit}");
    let version = Command::new(usr.join("bin/ken")).arg("--version").output().unwrap();
    assert!(version.status.success());
    let help = Command::new(usr.join("bin/ken")).args(["help", "esl"]).output().unwrap();
    assert!(help.status.success());
    make("uninstall", folder.path());
    assert_eq!(files(folder.path()), Vec::<PathBuf>::new());
}
