//! `make install`, `uninstall`, `deb` and `dist`, with the programs that the tests use or stand-ins. tests/conformance/debian.sh
//! installs the package and runs the service.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use ken_tests::{binary, root};

/// Runs make without cargo on PATH, as root does under sudo, and without what the make that runs the tests exports.
fn try_make(words: &[&str], folder: &Path) -> Output {
    let mut make = Command::new("make");
    make.arg("-s")
        .args(words)
        .current_dir(folder)
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .env("CARGO", "/nonexistent");
    for name in ["MAKEFLAGS", "MAKELEVEL", "PREFIX", "DESTDIR", "BUILT", "PROGRAMS"] {
        make.env_remove(name);
    }
    make.output().unwrap()
}

fn make_in(folder: &Path, words: &[&str]) -> String {
    let output = try_make(words, folder);
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{printed}");
    String::from_utf8(output.stdout).unwrap()
}

fn make(target: &str, folder: &Path) {
    let built = binary("ken").parent().unwrap().to_owned();
    let destination = format!("DESTDIR={}", folder.display());
    let programs = format!("PROGRAMS={}", programs(&built).join(" "));
    make_in(&root(), &[target, "PREFIX=/usr", &destination, &format!("BUILT={}", built.display()), &programs]);
}

/// A folder with a stand-in for each of two programs, for tests that only look at the layout.
fn stand_ins(folder: &Path) -> [String; 2] {
    for name in ["ken", "kend"] {
        let path = folder.join(name);
        std::fs::write(&path, "#!/bin/sh\necho \"$*\"\n").unwrap();
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    }
    [format!("BUILT={}", folder.display()), String::from("PROGRAMS=ken kend")]
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
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
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
    assert!(unit.contains("ExecStart=/usr/bin/kend\n") && !unit.contains("@bindir@"), "{unit}");
    let unit = std::fs::read_to_string(usr.join("lib/systemd/user/ken.service")).unwrap();
    assert!(unit.contains("ExecStart=/usr/bin/kend\n") && !unit.contains("@bindir@"), "{unit}");
    for kind in ["system", "user"] {
        let unit = std::fs::read_to_string(usr.join(format!("lib/systemd/{kind}/ken-backup.service"))).unwrap();
        assert!(unit.contains("\nExecStart=/usr/bin/ken backup --keep 7 ") && !unit.contains("=@bindir@"), "{unit}");
        assert!(usr.join(format!("lib/systemd/{kind}/ken-backup.timer")).is_file());
    }
    let console = usr.join("share/ken/console");
    for file in ["app.js", "style.css", "vendor/marked.js"] {
        let compressed = console.join(format!("{file}.gz"));
        // Bytes 4 to 7 are the time, which would make two packages of equal files differ.
        assert_eq!(std::fs::read(&compressed).unwrap()[4..8], [0; 4], "{file}");
        let text = Command::new("gzip").arg("-dc").arg(&compressed).output().unwrap().stdout;
        assert_eq!(text, std::fs::read(console.join(file)).unwrap(), "{file}");
    }
    let version = Command::new(usr.join("bin/ken")).arg("--version").output().unwrap();
    assert!(version.status.success());
    let help = Command::new(usr.join("bin/ken")).args(["help", "esl"]).output().unwrap();
    assert!(help.status.success());
    make("uninstall", folder.path());
    assert_eq!(files(folder.path()), Vec::<PathBuf>::new());
}

#[test]
fn what_is_not_built_is_said_with_what_to_run_and_nothing_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let destination = format!("DESTDIR={}", folder.path().join("to").display());
    let built = format!("BUILT={}", folder.path().display());
    let ended = try_make(&["install", &destination, &built], &root());
    let printed = String::from_utf8(ended.stderr).unwrap();
    assert!(!ended.status.success() && printed.contains("not built yet") && printed.contains(" kend"), "{printed}");
    assert!(printed.contains("run 'make build' first, as "), "{printed}");
    assert!(!folder.path().join("to").exists());
}

#[test]
fn a_prefix_that_units_cannot_hold_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let [built, programs] = stand_ins(folder.path());
    for prefix in ["/opt/my ken", "opt", "/opt/$(id)", "/opt/a'b"] {
        let destination = format!("DESTDIR={}/to", folder.path().display());
        let prefix = format!("PREFIX={}", prefix.replace('$', "$$"));
        let ended = try_make(&["install", &destination, &prefix, &built, &programs], &root());
        let printed = String::from_utf8(ended.stderr).unwrap();
        assert!(!ended.status.success() && printed.contains("make: PREFIX"), "{prefix}: {printed}");
        assert!(!folder.path().join("to").exists(), "{prefix}");
    }
}

#[test]
fn the_units_are_for_systemd_252() {
    for unit in ["ken.service", "user.service"] {
        let text = std::fs::read_to_string(root().join("share/systemd").join(unit)).unwrap();
        // Newer than the systemd of Debian 12, which would ignore the type and take kend for ready at once.
        assert!(text.contains("\nType=notify\n") && !text.contains("\nDelegateSubgroup="), "{unit}");
    }
    if Command::new("systemd-analyze").arg("--version").output().is_err() {
        ken_tests::skip("systemd-analyze is not installed");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let unit = folder.path().join("ken.service");
    let text = std::fs::read_to_string(root().join("share/systemd/ken.service")).unwrap();
    std::fs::write(&unit, text.replace("@bindir@", "/usr/bin")).unwrap();
    let security = ["security", "--offline=yes", "--no-pager", "--threshold=40"];
    let exposure = Command::new("systemd-analyze").args(security).arg(unit).output().unwrap();
    assert!(exposure.status.success(), "{}", String::from_utf8_lossy(&exposure.stdout));
}

#[test]
fn the_package_has_its_scripts_and_its_layout() {
    if ["dpkg-deb", "objdump"].iter().any(|program| Command::new(program).arg("--version").output().is_err()) {
        ken_tests::skip("dpkg-deb or objdump is not installed");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let [built, programs] = stand_ins(folder.path());
    let out = format!("OUT={}/out", folder.path().display());
    let printed = make_in(&root(), &["deb", &out, &built, &programs, "PREFIX=/opt"]);
    let package = printed.split(':').next().unwrap();
    let tell = |option: &str| {
        let output = Command::new("dpkg-deb").args([option, package]).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let (control, contents) = (tell("-I"), tell("-c"));
    for script in ["preinst", "postinst", "prerm", "postrm", "conffiles", "md5sums", "Depends: libc6 (>= "] {
        assert!(control.contains(script), "{script}: {control}");
    }
    for line in [
        "-rwxr-xr-x root/root",
        "./usr/bin/kend\n",
        "./usr/lib/systemd/system/ken.service\n",
        "./usr/share/man/man8/kend.8.gz\n",
        "./usr/share/doc/ken/changelog.gz\n",
        "./usr/share/zsh/vendor-completions/_ken\n",
        "-rw-r----- root/root",
        "./etc/ken/ken.toml\n",
    ] {
        assert!(contents.contains(line), "{line}: {contents}");
    }
    assert!(!contents.contains("./opt"), "{contents}");
    for script in ["preinst", "postinst", "prerm", "postrm"] {
        assert!(Command::new("sh").arg("-n").arg(root().join("packaging").join(script)).status().unwrap().success());
    }
}

#[test]
fn equal_files_give_an_equal_tarball_from_which_it_can_be_installed() {
    let folder = tempfile::tempdir().unwrap();
    let [built, programs] = stand_ins(folder.path());
    let made: Vec<PathBuf> = ["one", "two"]
        .into_iter()
        .map(|name| {
            let out = format!("OUT={}", folder.path().join(name).display());
            stand_ins(folder.path()); // with another time
            let printed = make_in(&root(), &["dist", &out, &built, &programs]);
            PathBuf::from(printed.trim())
        })
        .collect();
    assert!(std::fs::read(&made[0]).unwrap() == std::fs::read(&made[1]).unwrap(), "two tarballs differ");
    let run = |program: &str, words: &[&str], folder: &Path| {
        let ended = Command::new(program).args(words).current_dir(folder).output().unwrap();
        assert!(ended.status.success(), "{ended:?}");
    };
    run("sha256sum", &["-c", &format!("{}.sha256", made[0].display())], made[0].parent().unwrap());
    run("tar", &["xzf", made[0].to_str().unwrap()], folder.path());
    let name = made[0].file_name().unwrap().to_str().unwrap().replace(".tar.gz", "");
    let unpacked = folder.path().join(name);
    run("sha256sum", &["--quiet", "-c", "SHA256SUMS"], &unpacked);
    make_in(&unpacked, &["install", "PREFIX=/usr", &format!("DESTDIR={}/to", folder.path().display())]);
    let installed = folder.path().join("to/usr");
    assert!(installed.join("bin/kend").is_file() && installed.join("lib/systemd/system/ken.service").is_file());
}
