//! Tests of the manual pages. The examples of the protocol tools run and print what the page shows, and the options on the page
//! are those of the program. On all pages, references lead to existing pages, no line is a leftover of a merge, and the formatters
//! report no errors.

use ken_tests::{Page, help_flags, root};

const TOOLS: [&str; 6] = ["ken-rep", "ken-esl", "ken-vvp", "ken-laws", "ken-workflow", "ken-respond"];

const SECTIONS: [&str; 10] = [
    "NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "INPUT", "OUTPUT", "EXIT STATUS", "EXAMPLES", "RATIONALE", "SEE ALSO",
];

/// The tools that consist of several commands. The flags of all commands are on one page.
const COMMANDS: [(&str, &[&str]); 1] =
    [("ken-workflow", &["ken-workflow run", "ken-workflow list", "ken-workflow check"])];

/// The page of each tool that this checkout has.
fn pages() -> Vec<(&'static str, Page)> {
    let is_here = |tool: &&str| root().join("bin").join(tool).join("Cargo.toml").exists();
    let page = |tool| (tool, Page::of(tool).unwrap_or_else(|| panic!("{tool} has no page in man/man1")));
    TOOLS.into_iter().filter(is_here).map(page).collect()
}

#[test]
fn every_example_prints_what_the_page_shows() {
    for (_, page) in pages() {
        page.check_examples();
    }
}

#[test]
fn page_and_program_have_the_same_flags() {
    for (tool, page) in pages() {
        assert_eq!(page.flags(), flags_of(tool), "left: {}, right: {tool} --help", page.path.display());
    }
}

fn flags_of(tool: &str) -> std::collections::BTreeSet<String> {
    let commands = COMMANDS.iter().find(|(known, _)| *known == tool);
    let commands = commands.map_or(&[][..], |(_, commands)| commands);
    std::iter::once(&tool).chain(commands).flat_map(|name| help_flags(name)).collect()
}

#[test]
fn every_page_has_the_sections_in_order() {
    for (tool, page) in pages() {
        let known: Vec<&str> = page.sections().into_iter().filter(|title| SECTIONS.contains(title)).collect();
        assert_eq!(known, SECTIONS, "{tool}");
    }
}

/// Every page of every section.
fn files() -> Vec<std::path::PathBuf> {
    let folders = std::fs::read_dir(root().join("man")).unwrap();
    let files: Vec<_> = folders
        .flat_map(|folder| std::fs::read_dir(folder.unwrap().path()).unwrap())
        .map(|entry| entry.unwrap().path())
        .collect();
    assert!(!files.is_empty());
    files
}

#[test]
fn every_reference_is_to_an_existing_page() {
    let man = root().join("man");
    for file in files() {
        for line in std::fs::read_to_string(&file).unwrap().lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            if let [".Xr", name, section, ..] = words[..]
                && name.starts_with("ken")
            {
                let page = man.join(format!("man{section}/{name}.{section}"));
                assert!(page.exists(), "{}: {line}", file.display());
            }
            let is_leftover = ["<<<<<<<", "=======", ">>>>>>>"].iter().any(|mark| line.starts_with(mark));
            assert!(!is_leftover, "{}: {line}", file.display());
        }
    }
}

/// mandoc and groff, where they are installed, find no errors in any page.
#[test]
fn every_page_is_valid_mdoc() {
    let printed = |program: &str, arguments: &[&str], page: &std::path::Path| {
        let output = std::process::Command::new(program).args(arguments).arg(page).output();
        output.map(|output| String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
    };
    for page in files() {
        if let Ok(said) = printed("mandoc", &["-Tlint", "-Wwarning"], &page) {
            let errors = said.lines().filter(|line| line.contains(": ERROR:"));
            assert_eq!(errors.count(), 0, "{said}");
        }
        if let Ok(said) = printed("groff", &["-mdoc", "-Tutf8", "-ww", "-z"], &page) {
            assert!(!said.contains("empty macro") && !said.contains("diversion"), "{}: {said}", page.display());
        }
        let text = std::fs::read_to_string(&page).unwrap();
        let lost = text.lines().find(|line| line.starts_with(".Dl") && line.contains(" \""));
        assert_eq!(lost, None, "{}: mdoc takes the quotes away", page.display());
    }
}
