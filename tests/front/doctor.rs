//! `ken doctor` with the faults that it must find.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use ken_tests::{Builder, System, binary, until};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A home without a running system.
pub(crate) struct Home {
    dir: TempDir,
    pub(crate) programs: Option<PathBuf>,
}

impl Home {
    /// A copy of the home of a system that is down.
    pub(crate) fn copy(of: &Path) -> Home {
        let dir = tempfile::Builder::new().prefix("ken").tempdir().unwrap();
        let copied = Command::new("cp").arg("-a").arg(of.join(".")).arg(dir.path()).status().unwrap();
        assert!(copied.success());
        Home { dir, programs: None }
    }

    fn new(config: &str) -> Home {
        let home = Home { dir: tempfile::Builder::new().prefix("ken").tempdir().unwrap(), programs: None };
        home.write("ken.toml", &format!("[gateway]\nport = 0\n[cognitive]\nport = 0\n{config}"));
        home
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        self.mode(name, 0o600);
    }

    pub(crate) fn mode(&self, name: &str, mode: u32) {
        std::fs::set_permissions(self.path(name), std::fs::Permissions::from_mode(mode)).unwrap();
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let programs = self.programs.clone().unwrap_or_else(|| binary("ken").parent().unwrap().to_owned());
        let mut command = Command::new(programs.join("ken"));
        command.env_clear().env("PATH", "/usr/bin:/bin").arg("--home").arg(self.dir.path()).args(arguments);
        command
    }

    /// The findings of `ken doctor`, and its exit status.
    pub(crate) fn doctor(&self) -> (Vec<Value>, i32) {
        let output = self.command(&["doctor", "--json"]).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stderr), "");
        let lines = String::from_utf8(output.stdout).unwrap();
        let findings = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        (findings, output.status.code().unwrap())
    }

    /// The only finding with this id. Checks that the exit status is that of its severity or worse.
    #[track_caller]
    fn finding(&self, id: &str) -> Value {
        let (findings, status) = self.doctor();
        let found: Vec<&Value> = findings.iter().filter(|finding| finding["id"] == id).collect();
        assert_eq!(found.len(), 1, "{id}: {findings:?}");
        for field in ["where", "why", "fix"] {
            assert!(!found[0][field].as_str().unwrap().is_empty(), "{field}: {findings:?}");
        }
        let min = if found[0]["severity"] == "error" { 2 } else { 1 };
        assert!(status >= min, "{status}: {findings:?}");
        found[0].clone()
    }
}

#[test]
fn a_correct_home_has_no_findings() {
    let home = Home::new("");
    let (findings, _) = home.doctor();
    if findings.iter().any(|finding| ["sandbox-namespaces", "walls"].iter().any(|id| finding["id"] == *id)) {
        ken_tests::skip("this machine lacks walls or namespaces");
        return;
    }
    assert_eq!(home.doctor(), (vec![], 0));
    let output = home.command(&["doctor"]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "nothing is wrong\n");
    assert!(!home.path("state").exists(), "it changes nothing");
}

/// Puts a program into a folder. Another process writes it: if this one did, a child of a test that runs beside this one could
/// hold the file open for writing when it is to be executed.
pub(crate) fn install(program: &Path, at: &Path) {
    let installed = Command::new("install").args(["-m", "755"]).args([program, at]).status().unwrap();
    assert!(installed.success(), "{}", at.display());
}

/// Puts a shell script beside a copy of `ken`, where `ken` finds it instead of the program of this name.
pub(crate) fn stand_in(programs: &Path, name: &str, script: &str) {
    let text = programs.join("script");
    std::fs::write(&text, format!("#!/bin/sh\n{script}\n")).unwrap();
    install(&text, &programs.join(name));
}

/// What the kernel or the host lacks is found, and `ken up` says it too.
#[test]
fn what_the_sandbox_cannot_do() {
    let home = Home::new("");
    let programs = tempfile::tempdir().unwrap();
    install(&binary("ken"), &programs.path().join("ken"));
    let answering = |script: &str| stand_in(programs.path(), "ken-sandbox", script);
    let home = Home { programs: Some(programs.path().to_owned()), ..home };
    answering(r#"echo '{"landlock":2,"processes":true,"mounts":false,"loopback":true,"ownProc":true}'"#);
    let finding = home.finding("sandbox-namespaces");
    let why = finding["why"].as_str().unwrap();
    assert!(why.contains("git") && !why.contains("loopback"), "{finding}");
    answering(r#"echo '{"error":{"message":"no Landlock","hint":"a newer kernel"}}' >&2; exit 125"#);
    let finding = home.finding("sandbox");
    assert!(finding["why"].as_str().unwrap().contains("no command"), "{finding}");
    assert_eq!(finding["fix"], "a newer kernel");
    stand_in(programs.path(), "kend", "exit 0");
    let up = home.command(&["up"]).output().unwrap();
    assert!(String::from_utf8_lossy(&up.stderr).contains("no Landlock"), "{up:?}");
}

/// An older kernel is a note: nothing can be mended but by a newer one.
#[test]
fn the_walls_that_an_older_kernel_lacks() {
    let home = Home::new("");
    let doctor = |version: &str| {
        let output = home.command(&["doctor", "--json"]).env("KEN_LANDLOCK_VERSION", version).output().unwrap();
        let lines = String::from_utf8(output.stdout).unwrap();
        let finding = lines.lines().find(|line| line.contains("\"id\":\"walls\"")).unwrap_or_default().to_owned();
        assert!(finding.is_empty() || finding.contains("\"severity\":\"note\""), "{finding}");
        finding
    };
    let (none, old) = (doctor("0"), doctor("2"));
    assert!(none.contains("files that are not its own") && none.contains("TCP ports"), "{none}");
    assert!(!old.contains("files that are not its own") && old.contains("TCP ports"), "{old}");
}

/// The question about the sandbox does not delay the start: here it is answered only once kend runs.
#[test]
fn kend_starts_while_the_sandbox_is_asked() {
    let programs = tempfile::tempdir().unwrap();
    install(&binary("ken"), &programs.path().join("ken"));
    let home = Home { programs: Some(programs.path().to_owned()), ..Home::new("") };
    nix::unistd::mkfifo(&home.path("answer"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let answer = home.path("answer").display().to_string();
    stand_in(programs.path(), "ken-sandbox", &format!("timeout 10 cat {answer} >&2; exit 125"));
    home.write("text", r#"{"error":{"message":"no Landlock","hint":"a newer kernel"}}"#);
    let text = home.path("text").display().to_string();
    stand_in(programs.path(), "kend", &format!("echo ready; timeout 10 sh -c 'cat {text} >{answer}'"));
    for arguments in [&["up"][..], &["up", "-d"]] {
        let up = home.command(arguments).output().unwrap();
        let warning = String::from_utf8_lossy(&up.stderr);
        assert!(up.status.success() && warning.matches("no Landlock").count() == 1, "{arguments:?}: {up:?}");
    }
}

#[test]
fn faults_of_running_parts() {
    let system = System::start();
    let ids = || {
        let output = system.ken(&["doctor", "--json"]);
        let lines = String::from_utf8(output.stdout).unwrap();
        let id = |line: &str| serde_json::from_str::<Value>(line).unwrap()["id"].as_str().unwrap().to_owned();
        (lines.lines().map(id).collect::<Vec<_>>(), output.status.code())
    };
    // What is not set up is noted, and nothing is wrong.
    assert_eq!(ids(), (vec!["tool-not-set-up".to_owned()], Some(0)));
    let printed = String::from_utf8(system.ken(&["doctor"]).stdout).unwrap();
    assert!(printed.starts_with("note    tool-not-set-up: ") && printed.ends_with("\nnothing is wrong\n"), "{printed}");
    std::fs::write(system.home().join("ken.toml"), "nonsense").unwrap();
    assert!(!system.ken(&["reload"]).status.success());
    let found = ids().0;
    for id in ["configuration", "configuration-refused"] {
        assert!(found.contains(&id.to_owned()), "{found:?}");
    }
    std::fs::remove_file(system.home().join("ken.toml")).unwrap();
    // A part that ends at once each time it is started.
    std::fs::write(system.home().join("ken.toml"), "[part.extra]\ncommand = [\"/bin/false\"]\n").unwrap();
    system.ken(&["reload"]);
    until("it is seen", || ids().0.contains(&"part-not-ready".to_owned()));
}

#[test]
fn faults_of_models() {
    for (models, severity) in [("openai/gpt-4o-mini", "error"), ("openai/gpt-4o-mini,rules", "warning")] {
        let system = Builder::default().env("KEN_MODEL", models).start();
        let printed = String::from_utf8(system.ken(&["doctor", "--json"]).stdout).unwrap();
        // A note about the search stands behind it.
        let finding: Value = serde_json::from_str(printed.lines().next().unwrap()).unwrap();
        assert_eq!((&finding["id"], &finding["severity"]), (&"model-missing".into(), &severity.into()), "{printed}");
        assert_eq!(finding["where"], "openai/gpt-4o-mini");
        assert!(printed.contains("OPENAI_API_KEY is not set"), "{printed}");
    }
}

/// A server of one's own that needs no key: ken-model knows its address, and the environment of `ken doctor` has none.
#[test]
fn a_model_server_that_needs_no_key_is_no_fault() {
    let used = Builder::default()
        .config("[model]\nuse = \"openai/m,rules\"\njudge = \"openai/judge\"\n")
        .env("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
        .start();
    let doctor = || {
        let mut command = used.command(&["doctor", "--json"]);
        String::from_utf8(command.env_remove("OPENAI_BASE_URL").output().unwrap().stdout).unwrap()
    };
    assert!(!doctor().contains("model-"), "{}", doctor());
}

/// Creates a sparse file of this size.
fn sparse(path: &Path, bytes: u64) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::File::create(path).unwrap().set_len(bytes).unwrap();
}

#[test]
fn large_logs_missing_keys_and_low_limits() {
    let home = Home::new("[model]\nuse = \"openai/m,rules\"\n");
    sparse(&home.path("state/log/agent.log"), 1_100 << 20);
    let (found, status) = home.doctor();
    let ids: Vec<&str> = found.iter().filter_map(|found| found["id"].as_str()).collect();
    assert_eq!((ids, status), (vec!["logs-size", "model-key-missing"], 1), "{found:?}");
    home.write("secrets.env", "OPENAI_API_KEY=k\n");
    std::fs::remove_dir_all(home.path("state/log")).unwrap();
    assert_eq!(home.doctor(), (vec![], 0));
    // An empty key is none, and a server of one's own may need none, for the judge as well.
    let ids = |home: &Home| {
        let (found, _) = home.doctor();
        found.iter().map(|found| found["id"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    for config in ["use = \"openai/m,rules\"", "judge = \"openai/m\""] {
        let home = Home::new(&format!("[model]\n{config}\n"));
        home.write("secrets.env", "OPENAI_API_KEY=\n");
        assert_eq!(ids(&home), ["secret-empty", "model-key-missing"], "{config}");
        home.write("secrets.env", "OPENAI_BASE_URL=https://api.openai.com/v1/\n");
        assert_eq!(ids(&home), ["model-key-missing"], "{config}");
        home.write("secrets.env", "OPENAI_BASE_URL=http://127.0.0.1:11434/v1\n");
        assert_eq!(home.doctor(), (vec![], 0), "{config}");
    }
    let doctor = home.command(&["doctor", "--json"]);
    let mut limited = Command::new("/bin/sh");
    limited.args(["-c", "ulimit -n 1000 && exec \"$@\"", "sh"]).arg(doctor.get_program()).args(doctor.get_args());
    let printed = String::from_utf8(limited.output().unwrap().stdout).unwrap();
    assert!(printed.contains("\"open-files\"") && printed.contains("1000"), "{printed}");
}

fn findings(system: &System) -> String {
    String::from_utf8(system.ken(&["doctor", "--json"]).stdout).unwrap()
}

#[test]
fn lost_changes_are_reported_after_every_start_until_a_person_accepts_the_loss() {
    let mut system = System::start();
    for title in ["a", "b", "c"] {
        system.post("/api/knowledge", &json!({"title": title, "content": "c"})).expect(201);
    }
    system.cut_power();
    let store = system.home().join("state/store");
    let log = store.join("ken.db-wal");
    let mut bytes = std::fs::read(&log).unwrap();
    let at = bytes.len() * 3 / 5;
    bytes[at] ^= 0x10;
    std::fs::write(&log, bytes).unwrap();
    assert!(findings(&system).contains("had been acknowledged"), "{}", findings(&system));
    for _ in 0..3 {
        system.up();
        assert!(findings(&system).contains("\"changes-lost\""), "{}", findings(&system));
        system.down();
        assert!(findings(&system).contains("\"changes-lost\""), "{}", findings(&system));
    }
    std::fs::remove_file(store.join("ken.db.changes-lost")).unwrap();
    system.up();
    assert!(!findings(&system).contains("\"changes-lost\""), "{}", findings(&system));
}

#[test]
fn a_log_that_grows_because_somebody_reads_is_reported() {
    let mut reader = Command::new("sqlite3");
    let system = System::start();
    reader.arg(system.home().join("state/store/ken.db")).stdin(Stdio::piped()).stdout(Stdio::piped());
    let Ok(mut reader) = reader.spawn() else {
        ken_tests::skip("sqlite3 is not installed");
        return;
    };
    let mut to = reader.stdin.take().unwrap();
    to.write_all(b"BEGIN;\nSELECT count(*) FROM knowledge;\n").unwrap();
    let mut line = String::new();
    BufReader::new(reader.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let mut client = system.client();
    client.request("PUT", "/streams/big").send().expect(201);
    for _ in 0..140 {
        let append = client.request("POST", "/streams/big").header("Content-Type", "application/octet-stream");
        append.body(vec![7; 1_000_000]).send().expect(204);
    }
    assert!(findings(&system).contains("\"wal-size\""), "{}", findings(&system));
    drop(to);
    reader.wait().unwrap();
    ken_tests::until("the log is cut", || !findings(&system).contains("\"wal-size\""));
}
