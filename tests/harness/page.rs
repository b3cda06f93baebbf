//! Reads the flags, sections and examples of manual pages, and runs the examples.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A page in mdoc(7).
pub struct Page {
    pub path: PathBuf,
    text: String,
}

/// A command of the EXAMPLES section and what it prints, standard error included. In the page the command begins with
/// `$ `, its further lines with `> `; all other lines of the block are output.
#[derive(Debug, PartialEq, Eq)]
pub struct Example {
    pub command: String,
    pub output: String,
}

impl Page {
    /// The page of a program in section 1, if there is one.
    pub fn of(program: &str) -> Option<Page> {
        let path = root().join("man/man1").join(format!("{program}.1"));
        let text = std::fs::read_to_string(&path).ok()?;
        Some(Page { path, text })
    }

    /// The titles of the sections, in order.
    pub fn sections(&self) -> Vec<&str> {
        self.text.lines().filter_map(|line| line.strip_prefix(".Sh ")).collect()
    }

    /// All options for which the page has an item, with their dashes.
    pub fn flags(&self) -> BTreeSet<String> {
        let items = self.text.lines().filter_map(|line| line.strip_prefix(".It "));
        items.flat_map(flags_of_item).collect()
    }

    /// The examples, in order.
    pub fn examples(&self) -> Vec<Example> {
        let mut examples: Vec<Example> = Vec::new();
        let section = self.text.split(".Sh EXAMPLES\n").nth(1).unwrap_or_default();
        let section = section.split("\n.Sh ").next().unwrap_or_default();
        for block in section.split(".Bd -literal").skip(1) {
            let lines = block.split("\n.Ed").next().unwrap_or_default().lines().skip(1).map(unescape);
            for line in lines {
                match (line.strip_prefix("$ "), line.strip_prefix("> "), examples.last_mut()) {
                    (Some(command), ..) => {
                        examples.push(Example { command: command.to_owned(), output: String::new() })
                    }
                    (_, Some(more), Some(last)) if last.output.is_empty() => {
                        last.command.push('\n');
                        last.command.push_str(more);
                    }
                    (_, _, Some(last)) => {
                        last.output.push_str(&line);
                        last.output.push('\n');
                    }
                    _ => {}
                }
            }
        }
        examples
    }

    /// Runs the examples one after the other in one empty folder and compares what they print.
    #[track_caller]
    pub fn check_examples(&self) {
        let folder = tempfile::tempdir().expect("a folder");
        let examples = self.examples();
        assert!(!examples.is_empty(), "{} has no example", self.path.display());
        for example in examples {
            let printed = example.run(folder.path());
            assert_eq!(printed, example.output, "{}: $ {}", self.path.display(), example.command);
        }
    }
}

impl Example {
    fn run(&self, folder: &Path) -> String {
        let programs = crate::binary("ken");
        let programs = programs.parent().expect("a folder of programs");
        let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap_or_default());
        let output = Command::new("sh")
            .args(["-c", &format!("{{ {}\n}} 2>&1", self.command)])
            .current_dir(folder)
            .env("PATH", path)
            .stdin(Stdio::null())
            .output()
            .expect("sh");
        String::from_utf8(output.stdout).expect("text")
    }
}

/// The flags, with their dashes, that `--help` of a program shows, or that of a command as in "ken-workflow run".
pub fn help_flags(program: &str) -> BTreeSet<String> {
    let (program, command) = program.split_once(' ').unwrap_or((program, ""));
    let output =
        Command::new(crate::binary(program)).args(command.split_whitespace()).arg("--help").output().expect("--help");
    let help = String::from_utf8(output.stdout).expect("text");
    let lines = help.lines().map(str::trim_start).filter(|line| line.starts_with('-'));
    let words = lines.flat_map(|line| line.split("  ").next().unwrap_or_default().split([' ', ',']));
    words
        .map(|word| word.trim_end_matches("..."))
        .filter(|word| word.len() > 1 && word.starts_with('-'))
        .map(str::to_owned)
        .collect()
}

/// The root of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the root").to_owned()
}

/// The flags of `Fl f , Fl Fl file Ar path`. A lone `Fl` is standard input, which is no flag.
fn flags_of_item(item: &str) -> Vec<String> {
    let words: Vec<&str> = item.split(' ').collect();
    let mut flags = Vec::new();
    for (place, _) in words.iter().enumerate().filter(|(_, word)| **word == "Fl") {
        let is_second = place > 0 && words.get(place - 1) == Some(&"Fl");
        match words.get(place + 1) {
            Some(&"Fl" | &"," | &"Ar" | &"|") | None => {}
            Some(name) if is_second => flags.push(format!("--{name}")),
            Some(name) => flags.push(format!("-{name}")),
        }
    }
    flags
}

/// Replaces the escapes that literal blocks need with what a terminal shows.
fn unescape(line: &str) -> String {
    [("\\(aq", "'"), ("\\(dq", "\""), ("\\&", ""), ("\\-", "-"), ("\\e", "\\")]
        .iter()
        .fold(line.to_owned(), |line, (from, to)| line.replace(from, to))
}
