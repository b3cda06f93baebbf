//! Every command of ken that a sentence of a page names exists, with its options. The examples, which stand apart, are run
//! (examples.rs, manual_pages.rs).

use std::collections::BTreeSet;
use std::process::Command;

use ken_tests::{binary, root};

/// The other documents in which commands are named.
const DOCUMENTS: [&str; 4] = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "tests/README.md"];

/// What begins like a program of ken, and is none.
const OTHERS: [&str; 4] = ["ken.toml", "ken.db", "ken-tests", "ken-X"];

/// The words of a command up to the first that stands for something else, and where it was found.
type Named = (Vec<String>, String);

fn commands() -> Vec<Named> {
    let mut found = Vec::new();
    for document in DOCUMENTS {
        let text = std::fs::read_to_string(root().join(document)).unwrap();
        let prose = text.split("```").step_by(2).collect::<String>();
        // Every second piece between back-quotes is code.
        let spans = prose.lines().flat_map(|line| line.split('`').skip(1).step_by(2));
        found.extend(spans.map(|span| (span.split_whitespace().map(str::to_owned).collect(), document.to_owned())));
    }
    for folder in std::fs::read_dir(root().join("man")).unwrap() {
        for page in std::fs::read_dir(folder.unwrap().path()).unwrap() {
            let path = page.unwrap().path();
            let text = std::fs::read_to_string(&path).unwrap();
            found.extend(text.lines().filter_map(in_mdoc).map(|words| (words, path.display().to_string())));
        }
    }
    found.retain(|(words, _)| words.first().is_some_and(|word| is_program(word)));
    found
}

fn is_program(word: &str) -> bool {
    (word == "ken" || word == "kend" || word.starts_with("ken-")) && !OTHERS.contains(&word)
}

/// `.Ql ken accept Ar server Fl -digest Ar sha256` is the command `ken accept`.
fn in_mdoc(line: &str) -> Option<Vec<String>> {
    let (_, rest) = line.split_once(' ').filter(|(name, _)| [".Cm", ".Ic", ".Ql", ".Li"].contains(name))?;
    let is_macro = |word: &&str| word.len() == 2 && word.starts_with(|first: char| first.is_ascii_uppercase());
    let is_word =
        |word: &&str| !(is_macro(word) || word.len() == 1 && word.starts_with(|one: char| one.is_ascii_punctuation()));
    Some(rest.replace("\\-", "-").split(' ').take_while(is_word).map(str::to_owned).collect())
}

fn help(words: &[String]) -> Option<String> {
    let program = words[0].as_str();
    let path = binary("ken").with_file_name(program);
    let output = Command::new(path).args(&words[1..]).arg("--help").env_remove("KEN_HOME").output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Returns what is wrong with a command.
fn fault(words: &[String]) -> Option<String> {
    let is_name =
        |word: &&String| word.chars().all(|one| one.is_ascii_lowercase() || one == '-') && !word.starts_with('-');
    let names: Vec<String> = words[..1].iter().chain(words[1..].iter().take_while(is_name)).take(3).cloned().collect();
    let Some(text) = help(&names) else {
        return Some("there is no such command".to_owned());
    };
    let flags = words.iter().filter(|word| word.len() > 2 && word.starts_with("--"));
    let flag = |word: &str| word.trim_matches(['.', ',', ')', ']']).split('=').next().unwrap_or_default().to_owned();
    let missing = flags.map(|word| flag(word)).find(|flag| !text.contains(flag.as_str()));
    missing.map(|flag| format!("it has no option {flag}"))
}

#[test]
fn every_command_in_a_sentence_exists() {
    let commands = commands();
    assert!(commands.len() > 100, "only {} commands were found", commands.len());
    let faults: BTreeSet<String> = commands
        .iter()
        .filter_map(|(words, place)| Some(format!("{place}: `{}`: {}", words.join(" "), fault(words)?)))
        .collect();
    assert_eq!(faults, BTreeSet::new());
}
