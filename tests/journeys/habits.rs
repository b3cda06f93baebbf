//! Lines that people type who know other programs: each does what was meant, or the error says how to.

use std::process::{Command, Stdio};

use ken_tests::provider::{Provider, ReceivedRequest, Reply, openai};
use ken_tests::{Builder, System, binary, root};
use serde_json::json;

/// A line, its exit status, and a part of what it prints.
const LINES: [(&str, i32, &str); 68] = [
    ("ken chat what is 2+2", 0, "An answer."),
    ("ken chat 'what is 2+2'", 0, "An answer."),
    ("ken 'what is 2+2'", 2, "ken chat TEXT"),
    ("ken ask what", 2, "ken chat TEXT"),
    ("ken run 'fix it'", 2, "ken chat TEXT"),
    ("echo hello | ken chat", 0, "An answer."),
    ("cat x.log | ken chat 'what is wrong here?'", 0, "An answer."),
    ("ken chat 'what is wrong here?' < x.log", 0, "An answer."),
    ("git diff | ken chat -t review", 0, "An answer."),
    ("git log --oneline | ken chat summarize this", 0, "An answer."),
    ("ken chat -f x.log explain", 0, "An answer."),
    ("ken chat -a x.log explain", 0, "An answer."),
    ("ken chat -c 'and again'", 0, "An answer."),
    ("ken chat --continue again", 0, "An answer."),
    ("ken chat -s last hi", 0, "An answer."),
    ("ken continue", 2, "ken chat -c"),
    ("ken resume", 2, "ken chat -s SESSION"),
    ("ken chat -m openai/second hi", 0, "An answer."),
    ("ken chat -m second hi", 2, "openai/first, openai/second"),
    ("ken chat -c '/model openai/second'", 0, "openai/second"),
    ("ken models", 2, "ken model"),
    ("ken chat --json hi | jq -r .answer", 0, "An answer."),
    ("ken tui --print hi", 0, "An answer."),
    ("ken workspace trust", 0, "trusted: "),
    ("ken chat 'write a note'", 0, "An answer."),
    ("cat NOTE", 0, "made"),
    ("ken show", 0, "write_file"),
    ("ken show last", 0, "write_file"),
    ("ken why", 0, "completed"),
    ("ken diff", 0, "+made"),
    ("ken undo", 2, "ken undo last"),
    ("ken undo last", 0, "put back NOTE"),
    ("ken sessions", 0, "write a note"),
    ("ken sessions ls -n 1", 0, "write a note"),
    ("ken ls", 2, "ken sessions"),
    ("ken history", 2, "ken sessions"),
    ("ken sessions rename last note", 0, ""),
    ("ken sessions export note", 0, "# note"),
    ("ken sessions rm note", 2, "--yes"),
    ("ken sessions rm note --yes", 0, "deleted "),
    ("ken ps", 2, "ken status"),
    ("ken status", 0, "gateway"),
    ("ken usage", 0, "INPUT"),
    ("ken version", 2, "ken --version"),
    ("ken help chat", 0, "Usage: ken chat"),
    ("ken log", 2, "ken logs"),
    ("ken models list", 2, "ken model list"),
    ("ken model ls", 1, "rules/rules-1"),
    ("ken model default", 2, "<LIST>"),
    ("ken keys set openai", 2, "ken setup"),
    ("ken auth login", 2, "ken setup"),
    ("ken init", 2, "ken setup"),
    ("ken serve", 2, "ken up"),
    ("ken stats", 2, "ken usage"),
    ("ken templates", 2, "ken chat -t"),
    ("ken mcp list", 0, "names no servers"),
    ("ken approve", 2, "ken approvals"),
    ("ken cancel", 2, "nothing runs"),
    ("ken config get chat", 0, "wait_ms"),
    ("ken config get chat.memory", 2, "ken config show chat"),
    ("ken search foo", 2, "ken knowledge search"),
    ("ken session list", 2, "ken sessions"),
    ("ken -p 'what is this'", 2, "ken chat TEXT"),
    ("ken --raw knowledge add T --content x", 2, "-- --content"),
    ("ken -c again", 2, "ken chat TEXT"),
    ("ken tui --resume last --print hi", 0, "An answer."),
    ("ken schedule runs", 0, "SCHEDULE"),
    ("ken chat -f <(echo x) explain", 2, "ken chat -f - TEXT"),
];

fn reply(request: &ReceivedRequest) -> Reply {
    let messages = request.body["messages"].as_array().unwrap();
    let is_worker = messages[0]["content"].as_str().unwrap().contains("# You are the coding worker");
    let is_first = messages.last().unwrap()["role"] == "user";
    let call =
        |name: &str, arguments: serde_json::Value| Reply::Stream(openai(&[], &[("c", name, &arguments.to_string())]));
    let wants = |text: &str| request.prompt().as_str().is_some_and(|prompt| prompt.contains(text));
    let wants_note = wants("write a note") || wants("Fix the failing test");
    match (is_worker, is_first) {
        (true, true) => call("write_file", json!({"path": "NOTE", "content": "made\n"})),
        (false, true) if wants_note => call("task", json!({"agent": "coding-worker", "prompt": "write a note"})),
        _ => Reply::Stream(openai(&["An answer."], &[])),
    }
}

/// A person with a repository, in which the agent may write, and a system whose model is scripted.
struct Person {
    home: tempfile::TempDir,
    system: System,
    _provider: Provider,
}

impl Person {
    fn new() -> Person {
        let provider = Provider::answering(reply);
        let home = tempfile::tempdir().unwrap();
        let site = home.path().join("src/site");
        std::fs::create_dir_all(&site).unwrap();
        let rule = format!("[workspace]\nrules = [{{ path = \"{}\", policy = \"auto-edit\" }}]\n", site.display());
        let system = Builder::default()
            .config(&rule)
            .env("KEN_MODEL", "openai/first,openai/second")
            .env("OPENAI_BASE_URL", &format!("{}/v1", provider.url()))
            .secrets("OPENAI_API_KEY=k\n")
            .start();
        let person = Person { home, system, _provider: provider };
        let git = "git init -q . && git config user.name A && git config user.email a@example.org && echo ENOSPC >x.log \
                   && git add . && git commit -q -m first && echo more >>x.log";
        assert_eq!(person.run(git).0, Some(0));
        person
    }

    /// Runs lines in the repository. Returns their exit status and what they print.
    fn run(&self, lines: &str) -> (Option<i32>, String) {
        let programs = binary("ken").parent().unwrap().display().to_string();
        let mut shell = Command::new("bash");
        shell.env_clear().env("PATH", format!("{programs}:/usr/bin:/bin")).env("KEN_HOME", self.system.home());
        shell.env("HOME", self.home.path()).args(["-e", "-o", "pipefail", "-c", lines]);
        let output = shell.current_dir(self.home.path().join("src/site")).stdin(Stdio::null()).output().unwrap();
        let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap()).concat();
        (output.status.code(), said)
    }
}

#[test]
fn each_line_does_what_was_meant_or_says_how() {
    let person = Person::new();
    let mut wrong = Vec::new();
    for (line, status, part) in LINES {
        let (ended, said) = person.run(line);
        if ended != Some(status) || !said.contains(part) {
            wrong.push(format!("$ {line}: {ended:?}: {said}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The first block of a section of the README.
fn block(section: &str) -> String {
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    let section = readme.split(&format!("\n## {section}\n")).nth(1).unwrap();
    section.split("```\n").nth(1).unwrap().to_owned()
}

/// The lines of the README that need a language model, as printed. docs/examples.rs runs the others.
#[test]
fn the_lines_of_the_readme_that_need_a_model_do_what_they_say() {
    let person = Person::new();
    let (status, said) = person.run(&block("Your own repository"));
    assert_eq!(status, Some(0), "{said}");
    let mut rest = said.as_str();
    for part in ["trusted: ", "An answer.", "+made", "put back NOTE"] {
        rest = rest.split_once(part).unwrap_or_else(|| panic!("{part}: {said}")).1;
    }
    let files = r"echo ENOSPC >error.log; printf '\211PNG\r\n\032\nrest' >photo.png; ";
    let (status, said) = person.run(&(files.to_owned() + &block("Questions in a pipe")));
    assert_eq!((status, said.as_str()), (Some(0), "An answer.\n".repeat(3).as_str()));
}
