//! ken as a service of the machine, in the layout of ken(7): the parts run as a user of their own, the folder of the configuration belongs
//! to root, and root's commands work on the system of that user.

use std::fs::Permissions;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use ken_tests::binary;

/// The user of the service, who is also its group, and another user of the machine.
const SERVICE: u32 = 65534;
const STRANGER: u32 = 65533;
const ROOT: u32 = 0;

struct Service(tempfile::TempDir);

impl Service {
    /// Lays out a system that has not been started yet. `None` if this is not root.
    fn new() -> Option<Service> {
        if !nix::unistd::geteuid().is_root() {
            ken_tests::skip("needs root");
            return None;
        }
        let service = Service(tempfile::tempdir().unwrap());
        let put = |path: &str, user: u32, mode: u32, text: Option<&str>| {
            let path = service.path(path);
            match text {
                Some(text) => std::fs::write(&path, text).unwrap(),
                None => std::fs::create_dir_all(&path).unwrap(),
            }
            chown(&path, Some(user), Some(SERVICE)).unwrap();
            std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        };
        put("", ROOT, 0o755, None);
        put("etc", ROOT, 0o750, None);
        put("etc/ken.toml", ROOT, 0o640, Some("[gateway]\nport = 0\n[cognitive]\nport = 0\n"));
        put("etc/secrets.env", SERVICE, 0o600, Some("BOX_KEY=old\n"));
        put("state", SERVICE, 0o700, None);
        put("run", SERVICE, 0o700, None);
        Some(service)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Runs a program for this system.
    fn run(&self, user: u32, program: &str, words: &[&str], input: &str) -> Output {
        let mut command = Command::new(binary(program));
        command.args(words).env_clear().env("PATH", "/usr/bin:/bin").env("KEN_ERRORS", "json");
        command.env("HOME", if user == ROOT { "/root" } else { "/nonexistent" });
        for (name, path) in [("KEN_CONFIG", "etc/ken.toml"), ("KEN_STATE_DIR", "state"), ("KEN_RUN_DIR", "run")] {
            command.env(name, self.path(path));
        }
        if user != ROOT {
            command.uid(user).gid(user);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // A program that reads nothing may have ended.
        _ = child.stdin.take().unwrap().write_all(input.as_bytes());
        child.wait_with_output().unwrap()
    }

    fn ken(&self, user: u32, words: &[&str]) -> Output {
        self.run(user, "ken", words, "")
    }

    /// Returns the owner, the group and the mode of a file.
    fn access(&self, name: &str) -> (u32, u32, u32) {
        let meta = std::fs::metadata(self.path(name)).unwrap();
        (meta.uid(), meta.gid(), meta.mode() & 0o777)
    }

    /// What is in the state directory and does not belong to the service.
    fn of_others(&self) -> String {
        let state = self.path("state");
        let found = Command::new("find").arg(state).args(["-not", "-uid", &SERVICE.to_string()]).output().unwrap();
        text(&found.stdout)
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[track_caller]
fn done(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    text(&output.stdout)
}

#[test]
fn root_sees_with_the_doctor_what_the_service_sees() {
    let Some(service) = Service::new() else { return };
    let doctors = || [ROOT, SERVICE].map(|user| text(&service.ken(user, &["doctor", "--json"]).stdout));
    let [root, own] = doctors();
    assert_eq!(root, own);
    assert!(!root.contains(r#""id":"configuration""#) && !root.contains("belongs to"), "{root}");
    done(&service.run(ROOT, "kend", &["--check"], ""));
    // What the service cannot read is an error for root, too, who could.
    chown(service.path("etc/secrets.env"), Some(ROOT), None).unwrap();
    let [root, own] = doctors();
    assert_eq!(root, own);
    let why = "secrets.env: cannot be read: Permission denied";
    assert!(root.contains(why) && root.contains("the user with id 65534 must be able to read it"), "{root}");
    let checked = service.run(ROOT, "kend", &["--check"], "");
    assert!(text(&checked.stderr).contains(why), "{checked:?}");
    // A file of a third user is trusted by nobody.
    chown(service.path("etc/secrets.env"), Some(STRANGER), None).unwrap();
    std::fs::set_permissions(service.path("etc/ken.toml"), Permissions::from_mode(0o644)).unwrap();
    chown(service.path("etc/ken.toml"), Some(STRANGER), None).unwrap();
    let checked = service.run(ROOT, "kend", &["--check"], "");
    assert!(text(&checked.stderr).contains("belongs to the user with id 65533"), "{checked:?}");
}

#[test]
fn root_adds_a_model_whose_key_the_service_can_read() {
    let Some(service) = Service::new() else { return };
    let add = |name: &str| {
        let words = ["model", "add", name, "--base-url", "http://127.0.0.1:9/v1", "--key", "BOX_KEY", "--key-stdin"];
        service.run(ROOT, "ken", &words, "new")
    };
    let secrets = || std::fs::read_to_string(service.path("etc/secrets.env")).unwrap();
    // The provider does not answer; what was written stays.
    let added = add("one");
    assert!(text(&added.stdout).contains("BOX_KEY is replaced"), "{added:?}");
    assert_eq!((service.access("etc/secrets.env"), secrets().as_str()), ((SERVICE, SERVICE, 0o600), "BOX_KEY=new\n"));
    assert_eq!(service.access("etc/ken.toml"), (ROOT, SERVICE, 0o640));
    // Nor does it matter whether the file was there.
    std::fs::remove_file(service.path("etc/secrets.env")).unwrap();
    let added = add("two");
    assert!(text(&added.stdout).contains("BOX_KEY is written"), "{added:?}");
    assert_eq!((service.access("etc/secrets.env"), secrets().as_str()), ((SERVICE, SERVICE, 0o600), "BOX_KEY=new\n"));
    done(&service.run(SERVICE, "kend", &["--check"], ""));
    let used = service.ken(ROOT, &["model", "use", "one/m,rules"]);
    assert!(done(&used).contains("use = \"one/m,rules\" (written)"));
    // The models are listed with the keys of the service.
    let listed = service.ken(ROOT, &["model", "list", "one"]);
    assert!(!text(&listed.stderr).contains("belongs to"), "{listed:?}");
    // Where another user could put another file in its place, the file is not trusted.
    for (owner, mode) in [(SERVICE, 0o750), (ROOT, 0o770)] {
        chown(service.path("etc"), Some(owner), None).unwrap();
        std::fs::set_permissions(service.path("etc"), Permissions::from_mode(mode)).unwrap();
        let added = add("three");
        assert_eq!(added.status.code(), Some(2), "{added:?}");
        assert!(!std::fs::read_to_string(service.path("etc/ken.toml")).unwrap().contains("three"));
    }
}

#[test]
fn root_looks_and_undoes_as_the_service() {
    let Some(service) = Service::new() else { return };
    // Before the first change nothing is made, whoever looks.
    for user in [ROOT, SERVICE] {
        for (program, words, expected) in [
            ("ken", &["diff"][..], Some("no run has changed files yet")),
            ("ken", &["undo", "last"], Some("no run has changed files yet")),
            ("ken", &["diff", "r1"], Some("the journal has no changes of a run r1")),
            ("ken-coder", &["journal"], None),
            ("ken-coder", &["prune"], None),
        ] {
            let output = service.run(user, program, words, "");
            assert_eq!(output.status.success(), expected.is_none(), "{words:?}: {output:?}");
            assert!(text(&output.stderr).contains(expected.unwrap_or_default()), "{words:?}: {output:?}");
            assert_eq!(std::fs::read_dir(service.path("state")).unwrap().count(), 0, "{words:?}");
        }
    }
    let file = service.path("state/workspace/projects/p/a.txt");
    for content in ["one\n", "two\n"] {
        let call = format!(r#"{{"path": "projects/p/a.txt", "content": {content:?}}}"#);
        done(&service.run(SERVICE, "ken-coder", &["write"], &call));
    }
    assert!(done(&service.ken(ROOT, &["diff"])).contains("-one\n+two\n"));
    done(&service.ken(ROOT, &["undo", "last"]));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "one\n");
    done(&service.ken(ROOT, &["undo", "last"]));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "two\n");
    // A folder that this user cannot enter is not trusted for it.
    let folder = tempfile::tempdir().unwrap();
    let inner = folder.path().join("inner");
    std::fs::create_dir(&inner).unwrap();
    std::fs::set_permissions(folder.path(), Permissions::from_mode(0o700)).unwrap();
    let trusted = service.ken(ROOT, &["workspace", "trust", inner.to_str().unwrap()]);
    assert!(text(&trusted.stderr).contains("Permission denied"), "{trusted:?}");
    let own = service.path("own");
    std::fs::create_dir(&own).unwrap();
    done(&service.ken(ROOT, &["workspace", "trust", own.to_str().unwrap()]));
    assert!(done(&service.ken(SERVICE, &["workspace", "list"])).contains(own.to_str().unwrap()));
    assert_eq!(service.of_others(), "");
}

#[test]
fn what_root_restores_belongs_to_whom_it_belonged() {
    let Some(service) = Service::new() else { return };
    let skill = |name: &str| {
        let folder = service.path("etc/skills").join(name);
        std::fs::create_dir_all(&folder).unwrap();
        let text = format!("---\nname: {name}\ndescription: a skill\n---\nDo it.\n");
        std::fs::write(folder.join("SKILL.md"), text).unwrap();
    };
    skill("demo");
    skill("demo2");
    done(&service.ken(ROOT, &["accept", "demo", "--yes"]));
    let started = service.ken(SERVICE, &["up", "-d"]);
    done(&started);
    let tar = service.path("ken.tar");
    let saved = service.ken(ROOT, &["backup", tar.to_str().unwrap()]);
    for words in [&["logs"][..], &["logs", "store"], &["backup", "/tmp/never-written.tar"]] {
        let refused = service.ken(STRANGER, words);
        let stderr = text(&refused.stderr);
        assert!(
            !refused.status.success() && stderr.contains("cannot be read: Permission denied"),
            "{words:?}: {stderr}"
        );
    }
    done(&service.ken(SERVICE, &["down"]));
    done(&saved);
    // The mode of a file whose owner alone could read it is widened for the group; the secrets stay as they are.
    done(&service.ken(ROOT, &["restore", "--replace", tar.to_str().unwrap()]));
    for (name, expected) in [
        ("etc", (ROOT, SERVICE, 0o750)),
        ("etc/ken.toml", (ROOT, SERVICE, 0o640)),
        ("etc/secrets.env", (SERVICE, SERVICE, 0o600)),
        ("etc/accepted.json", (ROOT, SERVICE, 0o644)),
        ("etc/skills", (ROOT, SERVICE, 0o755)),
        ("etc/skills/demo/SKILL.md", (ROOT, SERVICE, 0o644)),
        ("state/store", (SERVICE, SERVICE, 0o700)),
        ("state/store/ken.db", (SERVICE, SERVICE, 0o600)),
    ] {
        assert_eq!(service.access(name), expected, "{name}");
    }
    done(&service.ken(ROOT, &["accept", "demo2", "--yes"]));
    let found = text(&service.ken(ROOT, &["doctor", "--json"]).stdout);
    assert!(!found.contains("belongs to") && !found.contains("accepted-file"), "{found}");
    done(&service.ken(SERVICE, &["up", "-d"]));
    done(&service.ken(SERVICE, &["down"]));
    assert!(Path::new("/tmp/never-written.tar").symlink_metadata().is_err());
}
