//! Tests which governing rules and instructions are in force. Runs `ken-agent --print-rules` from a copy of the program
//! in an installation of its own.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Output};

const RULES: &str = "share/ken/protocols/governing-rules.md";
const ORCHESTRATOR: &str = "share/ken/agents/orchestrator.md";

/// An installation prefix with `bin/ken-agent`.
struct Prefix(tempfile::TempDir);

impl Prefix {
    fn new() -> Prefix {
        let prefix = Prefix(tempfile::tempdir().unwrap());
        std::fs::set_permissions(prefix.path("."), PermissionsExt::from_mode(0o755)).unwrap();
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
            // Root reads every folder.
            if std::fs::metadata("/proc/self").unwrap().uid() == 0 {
                command.uid(65_534);
            }
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

/// A rule that is not read would not be in force.
#[test]
fn a_rule_or_a_folder_of_rules_that_cannot_be_read_is_refused() {
    let folder = "share/ken/protocols";
    let rule = "share/ken/protocols/boats.json";
    let text = r#"{"name": "boats", "directives": [{"text": "Speak only of boats."}]}"#;
    for (rule_text, mode, refused) in [
        (text, 0o755, None),
        (text, 0o311, Some((folder, "cannot be listed", "let the user of ken-agent read the folder"))),
        (" ", 0o755, Some((rule, "is empty", "mend the file, or remove it\n"))),
    ] {
        let prefix = Prefix::new();
        prefix.write(rule, rule_text);
        std::fs::set_permissions(prefix.path(folder), PermissionsExt::from_mode(mode)).unwrap();
        let output = prefix.run();
        std::fs::set_permissions(prefix.path(folder), PermissionsExt::from_mode(0o755)).unwrap();
        let [stdout, stderr] = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
        let Some((place, why, hint)) = refused else {
            assert!(stdout.contains("Speak only of boats."), "{stdout}{stderr}");
            continue;
        };
        assert_eq!((output.status.code(), stdout.as_str()), (Some(2), ""), "{stderr}");
        let place = prefix.path(place).display().to_string();
        assert!(stderr.contains(&place) && stderr.contains(why) && stderr.contains(hint), "{stderr}");
    }
}

/// Another process copies the program: a test beside this one that forks while the file is open for writing would keep it from
/// being run.
fn copy_program(from: impl AsRef<std::ffi::OsStr>, to: impl AsRef<std::ffi::OsStr>) {
    assert!(std::process::Command::new("cp").arg(from).arg(to).status().unwrap().success());
}
