//! Tests which governing rules and instructions are in force. Runs `ken-agent --print-rules` from a copy of the program
//! in an installation of its own.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::io::ErrorKind;
use std::path::PathBuf;
use std::process::{Command, Output};

const RULES: &str = "share/ken/protocols/governing-rules.md";
const ORCHESTRATOR: &str = "share/ken/agents/orchestrator.md";

/// An installation prefix with `bin/ken-agent`.
struct Prefix(tempfile::TempDir);

impl Prefix {
    fn new() -> Prefix {
        let prefix = Prefix(tempfile::tempdir().unwrap());
        for folder in ["bin", "share/ken/protocols", "share/ken/agents"] {
            std::fs::create_dir_all(prefix.path(folder)).unwrap();
        }
        copy_program(env!("CARGO_BIN_EXE_ken-agent"), prefix.path("bin/ken-agent"));
        prefix
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().canonicalize().unwrap().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    fn run(&self) -> Output {
        loop {
            let mut command = Command::new(self.path("bin/ken-agent"));
            match command.env_clear().arg("--print-rules").output() {
                // A child process that another test has just forked keeps the copy open for writing until it executes
                // its own program.
                Err(error) if error.kind() == ErrorKind::ExecutableFileBusy => std::thread::yield_now(),
                ran => return ran.unwrap(),
            }
        }
    }

    /// Returns the standard output. The run must succeed and print nothing on standard error.
    fn printed(&self) -> String {
        let output = self.run();
        assert_eq!((output.status.code(), output.stderr), (Some(0), Vec::new()));
        String::from_utf8(output.stdout).unwrap()
    }
}

#[test]
fn the_built_in_texts_are_the_fall_back() {
    let shipped = |name: &str| {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../share/");
        std::fs::read_to_string(format!("{root}{name}")).unwrap().trim_end().to_owned()
    };
    let files = [
        "protocols/governing-rules.md", "agents/orchestrator.md", "agents/research-worker.md",
        "agents/coding-worker.md",
    ];
    let wanted = files.map(|file| format!("<!-- built in -->\n{}\n", shipped(file)));
    let printed = Prefix::new().printed();
    assert!(printed.starts_with(&wanted.concat()), "{printed}");
    assert!(printed.contains("\"orchestrator-has-no-hands\""), "{printed}");
}

#[test]
fn installed_files_are_in_force() {
    let prefix = Prefix::new();
    prefix.write(RULES, "# Rules\n\nSpeak only of boats.\n");
    prefix.write(ORCHESTRATOR, "# You are a sailor\n\nSay ahoy.\n");
    let wanted = format!(
        "<!-- {} -->\n# Rules\n\nSpeak only of boats.\n<!-- {} -->\n# You are a sailor\n\nSay ahoy.\n",
        prefix.path(RULES).display(),
        prefix.path(ORCHESTRATOR).display()
    );
    assert!(prefix.printed().starts_with(&wanted), "{}", prefix.printed());
}

#[test]
fn a_file_that_cannot_be_used_is_refused_and_named() {
    for (text, why) in [(" \n", "is empty"), (&*"x".repeat(64 * 1024 + 1), "more than 65536 bytes")] {
        let prefix = Prefix::new();
        prefix.write(RULES, text);
        let output = prefix.run();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), output.stdout), (Some(2), Vec::new()));
        let file = prefix.path(RULES).display().to_string();
        assert!(stderr.contains(&file) && stderr.contains(why) && stderr.contains("mend the file"), "{stderr}");
    }
    let prefix = Prefix::new();
    std::fs::create_dir(prefix.path(RULES)).unwrap();
    let output = prefix.run();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8(output.stderr).unwrap().contains("not a regular file"));
}

/// Another process copies the program: a test beside this one that forks while the file is open for writing would keep it from
/// being run.
fn copy_program(from: impl AsRef<std::ffi::OsStr>, to: impl AsRef<std::ffi::OsStr>) {
    assert!(std::process::Command::new("cp").arg(from).arg(to).status().unwrap().success());
}
