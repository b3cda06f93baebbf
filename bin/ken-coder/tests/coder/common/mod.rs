//! A home with a workspace, and ways to call ken-coder in it.
#![allow(dead_code, clippy::unwrap_used, clippy::panic)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};
use serde_json::Value;
use tempfile::TempDir;

pub(crate) struct Home(TempDir);

impl Home {
    /// Fails if `ken-sandbox` and `ken-proxy` are not beside `ken-coder`, because building this crate alone does not build
    /// them.
    pub(crate) fn new() -> Home {
        let sandbox = Path::new(env!("CARGO_BIN_EXE_ken-coder")).with_file_name("ken-sandbox");
        let proxy = sandbox.with_file_name("ken-proxy");
        assert!(sandbox.exists() && proxy.exists(), "build them first: cargo build -p ken-sandbox -p ken-proxy");
        let home = Home(tempfile::Builder::new().prefix("ken-coder-").tempdir().unwrap());
        std::fs::create_dir_all(home.path("repos/site")).unwrap();
        home
    }

    /// Creates a home with this section `[workspace]`.
    pub(crate) fn with(section: &str) -> Home {
        let home = Home::new();
        home.configure(section);
        home
    }

    /// Creates a home in which `repos/site` is a repository with one commit.
    pub(crate) fn with_repository() -> Home {
        let home = Home::new();
        home.put("repos/site/a", "one\n");
        home.git(&["init", "-q"]);
        home.git(&["add", "."]);
        home.git(&["commit", "-q", "-m", "First"]);
        home
    }

    pub(crate) fn configure(&self, section: &str) {
        std::fs::write(self.0.path().join("ken.toml"), format!("[workspace]\n{section}\n")).unwrap();
    }

    pub(crate) fn folder(&self) -> &Path {
        self.0.path()
    }

    /// Returns a path in the workspace.
    pub(crate) fn path(&self, place: &str) -> PathBuf {
        self.0.path().join("state/workspace").join(place)
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.0.path().join("state/coder")
    }

    pub(crate) fn put(&self, place: &str, text: &str) {
        let path = self.path(place);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    pub(crate) fn text(&self, place: &str) -> String {
        std::fs::read_to_string(self.path(place)).unwrap_or_else(|error| panic!("{place}: {error}"))
    }

    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ken-coder"));
        command
            .args(words)
            .env("KEN_ERRORS", "json")
            .env("KEN_HOME", self.0.path())
            .env_remove("KEN_WORKSPACE")
            .env_remove("KEN_RUN")
            .env_remove("KEN_FOLDER");
        command
    }

    pub(crate) fn call(&self, command: &str, call: &Value) -> Output {
        started(self.command(&[command, "--format", "compact"]), call).wait_with_output().unwrap()
    }

    /// Returns the preview of a call.
    pub(crate) fn preview(&self, command: &str, call: &Value) -> Value {
        let output = started(self.command(&[command, "--preview"]), call).wait_with_output().unwrap();
        assert!(output.status.success(), "{command}: {}", output_text(&output));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Returns the reply to a call that must succeed.
    pub(crate) fn done(&self, command: &str, call: &Value) -> Value {
        let output = self.call(command, call);
        assert!(matches!(output.status.code(), Some(0 | 1)), "{command}: {}", output_text(&output));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Returns the error of a call that must fail.
    pub(crate) fn refused(&self, command: &str, call: &Value) -> Value {
        let output = self.call(command, call);
        assert_eq!(output.status.code(), Some(2), "{command} {call}: {output:?}");
        assert!(output.stdout.is_empty());
        serde_json::from_slice::<Value>(&output.stderr).unwrap()["error"].take()
    }

    /// Returns the error message of a call that must fail.
    pub(crate) fn why_not(&self, command: &str, call: &Value) -> String {
        self.refused(command, call)["message"].as_str().unwrap().to_owned()
    }

    pub(crate) fn report(&self, words: &[&str]) -> (Option<i32>, Value) {
        outcome(&self.command(words).output().unwrap())
    }

    /// Makes a call as ken-tools does: reads the question, answers it, and returns it with the exit status and the reply.
    pub(crate) fn asked(&self, command: &str, call: &Value, may_go_on: bool) -> (Value, Option<i32>, String) {
        self.asked_by(self.command(&[command, "--format", "compact"]), call, may_go_on)
    }

    pub(crate) fn asked_by(&self, mut command: Command, call: &Value, may_go_on: bool) -> (Value, Option<i32>, String) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        command.env("KEN_GATE", "1").stdin(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.stdout(Stdio::from(OwnedFd::from(theirs))).spawn().unwrap();
        drop(command);
        child.stdin.take().unwrap().write_all(call.to_string().as_bytes()).unwrap();
        let (mut question, mut reply) = (String::new(), String::new());
        let mut output = BufReader::new(&ours);
        output.read_line(&mut question).unwrap();
        if may_go_on {
            (&ours).write_all(b"y").unwrap();
        } else {
            ours.shutdown(Shutdown::Write).unwrap();
        }
        output.read_to_string(&mut reply).unwrap();
        let status = child.wait().unwrap().code();
        (serde_json::from_str(&question).unwrap_or_default(), status, reply)
    }

    /// Returns every file of the workspace with its content, for comparison.
    pub(crate) fn files(&self) -> std::collections::BTreeMap<PathBuf, Vec<u8>> {
        let mut found = std::collections::BTreeMap::new();
        let mut folders = vec![self.path("")];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap().flatten() {
                if entry.file_type().unwrap().is_dir() {
                    folders.push(entry.path())
                } else {
                    drop(found.insert(entry.path(), std::fs::read(entry.path()).unwrap_or_default()))
                }
            }
        }
        found
    }

    pub(crate) fn git(&self, words: &[&str]) -> String {
        let output = Command::new("git")
            .args(["-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "init.defaultBranch=main"])
            .args(["-c", "safe.directory=*"])
            .args(words)
            .current_dir(self.path("repos/site"))
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("HOME", self.folder())
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", output_text(&output));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }
}

/// Makes a folder the trusted one of a home. The list is written as `ken workspace trust` does, which also checks whose the
/// folders around it are.
pub(crate) fn trust(home: &Home, folder: &Path, user: Option<u32>) {
    trust_all(home, &[folder], user);
}

pub(crate) fn trust_all(home: &Home, folders: &[&Path], user: Option<u32>) {
    let trusted = folders.iter().map(|folder| {
        let about = std::fs::metadata(folder).unwrap();
        (folder.to_str().unwrap().to_owned(), serde_json::json!({"device": about.dev(), "inode": about.ino()}))
    });
    let list = serde_json::json!({"trusted": trusted.collect::<serde_json::Map<_, _>>()});
    let file = home.folder().join("state/trust/folders.json");
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(&file, list.to_string()).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    chown(&file, user, user).unwrap();
}

/// Puts a program at this path.
pub(crate) fn executable(path: &Path, text: &str) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

pub(crate) fn until(what: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !what() {
        assert!(Instant::now() < end, "it does not happen");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Hides a system call from a command, as a kernel that lacks it does.
pub(crate) fn hide(command: &mut Command, call: i64) {
    let arch = std::env::consts::ARCH.try_into().unwrap();
    let hidden = SeccompAction::Errno(nix::libc::ENOSYS as u32);
    let filter = SeccompFilter::new([(call, vec![])].into(), SeccompAction::Allow, hidden, arch).unwrap();
    let filter: BpfProgram = filter.try_into().unwrap();
    // SAFETY: between fork and exec, the closure only makes system calls.
    #[allow(unsafe_code)]
    unsafe {
        command.pre_exec(move || seccompiler::apply_filter(&filter).map_err(std::io::Error::other));
    }
}

/// Hides the system call that makes namespaces, so that nothing can be mounted.
pub(crate) fn hide_namespaces(command: &mut Command) {
    hide(command, nix::libc::SYS_clone3);
}

pub(crate) fn output_text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Calls a command of ken-coder as part of a run. Returns its exit status, and its reply or error.
pub(crate) fn in_run(home: &Home, run: &str, words: &[&str], call: &Value) -> (Option<i32>, Value) {
    let text = call.to_string();
    let words = [words, &["--format", "compact", "--json", text.as_str()]].concat();
    let output = home.command(&words).env("KEN_RUN", run).output().unwrap();
    outcome(&output)
}

/// Returns the reply to a call that must succeed, as part of a run.
pub(crate) fn as_run(home: &Home, run: &str, command: &str, call: &Value) -> Value {
    let (status, reply) = in_run(home, run, &[command], call);
    assert!(matches!(status, Some(0 | 1)), "{reply}");
    reply
}

/// Starts a command, and gives it its input.
pub(crate) fn started(mut command: Command, call: &Value) -> Child {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(call.to_string().as_bytes()).unwrap();
    child
}

/// Returns the exit status of a command, and its reply or error.
pub(crate) fn outcome(output: &Output) -> (Option<i32>, Value) {
    let from = if output.stdout.is_empty() { &output.stderr } else { &output.stdout };
    let value = serde_json::from_slice(from).unwrap_or_else(|_| panic!("{output:?}"));
    (output.status.code(), value)
}
