//! Every example in every manual page and in the README runs as it is printed. The pages of the protocol tools, whose
//! examples show their output too, are also compared with that output (manual_pages.rs).
//!
//! Examples run in a temporary home, one after the other, as a reader would type them. Only ports and placeholders are
//! replaced. Examples that cannot run are listed below with the reason.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use ken_tests::{binary, root};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

/// Maximum time of an example, on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

/// The requirements of a page, in addition to a running system.
struct Needs {
    page: &'static str,
    /// A script that runs before the first example. Each line `FROM => TO` that it prints replaces text of the examples.
    setup: &'static str,
}

const NEEDS: &[Needs] = &[
    Needs {
        page: "README.md",
        setup: "mkdir -p target/first && touch server.log && echo started >>server.log
                git init -q . && git config user.email a@example.org && git config user.name A
                mkdir -p ~/src/site && git init -q ~/src/site
                git add server.log && git commit -q -m 'Keep a log of the server'
                printf '%s\\n' '{\"text\":\"I love it\"}' '{\"text\":\"I hate it\"}' >comments.jsonl
                ken chat hello >/dev/null && echo \"SESSION => $(ken sessions --json | jq -r .sessionId)\"",
    },
    Needs {
        page: "ken-stream.1",
        setup: "(for i in $(seq 300); do echo an ERROR >>server.log; sleep 0.2; done) >/dev/null 2>&1 &
                mkdir bin && printf '%s\\n' '#!/bin/sh' \"echo '{\\\"celsius\\\":41}'\" >bin/sensor && chmod +x bin/sensor
                ken stream create logs/server",
    },
    Needs {
        page: "ken-stream.5",
        setup: "ken chat hello >/dev/null && echo \"orchestrator/ID => orchestrator/$(ken sessions --json | jq -r .sessionId)\"
                echo \"runs/ID => runs/$(curl -s 'localhost:3940/workflows/full_reasoning?wait=result' --json '{\"facts\":[\"x is y\"],\"rules\":[]}' | jq -r .runId)\"",
    },
    Needs {
        page: "ken-gateway.8",
        setup: "echo secret >client.secret && chmod 640 client.secret && echo '/etc/ken/client.secret => client.secret'
                echo 'https://ken.example => http://localhost:3940'",
    },
    Needs {
        page: "ken-model.8",
        setup: "echo '{\"question\":\"Who are you?\"}' >questions.jsonl && echo 'Who are you?' >question.txt",
    },
    Needs {
        page: "ken-audit.5",
        setup: "key=$(cat ~/ken/state/cognitive/admin.key)
                curl -s localhost:8000/v1/execute -H \"X-API-Key: $key\" --json '{\"protocol_names\":[\"REP\"],\"data\":{\"facts\":[\"x is y\"],\"rules\":[]}}' >/dev/null
                echo \"9a41… => $(ken audit verify | grep -o '[0-9a-f]\\{64\\}')\"",
    },
    Needs {
        page: "ken-store.8",
        setup: "cd ~/ken/state/store && echo 'ken.db => '$PWD/ken.db",
    },
];

/// Examples that cannot run here.
const NOT_RUN: &[(&str, &str)] = &[
    ("make run", "builds the workspace"),
    ("make build", "builds the workspace"),
    ("make deb", "installs a package; conformance/debian.sh does that, and install.rs makes one"),
    ("make dist", "needs all programs; install.rs makes one"),
    ("sudo ", "changes the machine; conformance/debian.sh does that in systems of its own"),
    ("systemctl ", "needs systemd; conformance/debian.sh starts the units under it"),
    ("loginctl ", "needs systemd; conformance/debian.sh starts the units under it"),
    ("journalctl ", "needs systemd; conformance/debian.sh starts the units under it"),
    ("make test", "builds the workspace and runs this very test"),
    ("createuser ", "needs a database server; journeys/database_server.rs has one of its own"),
    ("createdb ", "needs a database server; journeys/database_server.rs has one of its own"),
    ("postgres://", "needs a database server; journeys/database_server.rs has one of its own"),
    ("ken-store migrate --to", "needs a database server; journeys/database_server.rs has one of its own"),
    ("ken-textgen -", "needs the weights of a model; bin/ken-textgen/tests has small ones"),
    ("KEN_MODEL=local/gpt2,rules ken up", "needs the weights of a model"),
    (
        "KEN_MODEL=openai/gpt-4o-mini,rules ken up",
        "needs a key, and runs until it is interrupted; providers.rs has a provider of its own",
    ),
    ("ken setup", "asks at a terminal and needs a provider; journeys/first_model.rs has both"),
    ("ken-model try openai/", "needs a provider; providers.rs has one of its own"),
    ("ken approvals ID", "needs a turn that waits; workers/approvals.rs shows one at the shell"),
    ("ken approve ID", "needs a turn that waits; workers/approvals.rs approves and denies at the shell"),
    ("ken deny ID", "needs a turn that waits; workers/approvals.rs approves and denies at the shell"),
    ("cargo test -p ken-laws", "builds the workspace"),
    ("https://example.org/", "reaches the internet; research.rs has pages of its own"),
    ("localhost:3940/workflows/research", "needs a search server; research.rs has one of its own"),
    ("ken-web research --format summary -v", "needs a search server; research.rs has one of its own"),
    ("ken tui ", "needs a terminal; tui.rs has one"),
    ("ken chat \"Fix the", "needs a language model; journeys/my_repository.rs has one"),
    ("ken diff last", "needs a run that changed files; journeys/what_it_did.rs has one"),
    ("ken undo last", "needs a run that changed files; journeys/what_it_did.rs has one"),
    ("| ken chat", "needs a language model; journeys/pipe.rs has one"),
    ("photo.png", "needs a model that sees pictures; journeys/pipe.rs has one"),
    ("ken skills show release", "needs a skill of one's own; agent/skills.rs has one"),
    ("usermod ", "changes the users of the machine; access.rs acts as other users"),
    ("age -", "asks for a passphrase at a terminal; journeys/bad_day.rs encrypts with another program"),
    ("ken messenger set-webhook", "needs a platform and its token; messenger.rs has one of its own"),
];

/// Parts of commands that run until they are interrupted. They pass if they print something.
const LASTING: &[&str] =
    &["tail -f", "follow", "live=sse", "logs agent -n 20 -f", "logs agent -n 50 -f", "events -f", "minute ken up"];

/// Blocks that are not commands, by the beginning of their first line, each with a command that checks it. The block is in
/// the file `form`.
const FORMS: &[(&str, &str)] = &[
    ("ready gateway=", "true"),
    ("{\"seq\":2,", "true"),
    ("{\"role\":\"assistant\"", "true"),
    ("operation_start agent_start", "true"),
    ("{\"id\":17,", "true"),
    ("{\"name\": \"customers\"", "ken rules check form"),
    ("{\"slug\": \"morning\"", "jq -e .slug form"),
    ("\"name\": \"reply\"", "cp form reply.json && ken-workflow check reply.json"),
    ("\"mcpServers\": {", "jq -e .mcpServers.files.ken form"),
    ("{\"agent_servers\": {\"ken\":", "jq -e '.agent_servers.ken | .command == \"ken\" and .args == [\"acp\"]' form"),
    (
        "{\"mcpServers\": {\"ken\":",
        "jq -e '.mcpServers.ken | .command == \"ken-mcp\" or .url == \"http://127.0.0.1:3940/mcp\"' form",
    ),
    ("---", "true"),
    ("[[model]]", "true"),
    ("[model]", "mkdir -p checked && cp form checked/ken.toml && kend --home checked --check"),
    // wire.rs runs this program as a part.
    ("#!/usr/bin/env python3", "python3 -m py_compile form"),
    ("\"name\": \"disk_space\"", "jq -e .command form"),
    (
        "[gateway]",
        "mkdir -p checked/bin && cp form checked/ken.toml && cp /bin/true checked/bin/mirror && kend --home checked --check",
    ),
    (
        "[part.model]",
        "mkdir -p checked && cp form checked/ken.toml && cp /bin/true checked/parrot.py && kend --home checked --check",
    ),
    ("weight + (cap", "true"),
    ("cap x min", "true"),
    ("# ken.toml", "mkdir checked && sed '/secrets.env/,$d' form >checked/ken.toml && kend --home checked --check"),
    // proxy.rs tests the configuration for nginx. That for Caddy is not tested, because Caddy is not in Debian's main
    // section.
    ("server {", "true"),
    ("ken.example {", "true"),
    ("{\"when\":\"weather\"", "jq -e .events form"),
    ("you ── HTTP", "true"),
];

struct Block {
    page: PathBuf,
    text: String,
}

impl Block {
    fn at(&self) -> String {
        format!("{}: {}", self.page.display(), self.text)
    }

    fn form(&self) -> Option<&'static (&'static str, &'static str)> {
        // The first line of an object is only a brace, so its second line identifies it.
        let mut lines = self.text.lines().map(str::trim).filter(|line| *line != "{");
        let first = lines.next().unwrap_or_default();
        FORMS.iter().find(|(start, _)| first.starts_with(start))
    }

    /// Commands, each with the output that is printed after it. A block without `$ ` is one script.
    fn commands(&self) -> Vec<(String, String)> {
        if !self.text.starts_with("$ ") {
            return vec![(self.runnable(), String::new())];
        }
        let mut commands: Vec<(String, String)> = Vec::new();
        for line in self.text.lines() {
            match (line.strip_prefix("$ "), line.strip_prefix("> "), commands.last_mut()) {
                (Some(command), ..) => commands.push((command.to_owned(), String::new())),
                (_, Some(more), Some((command, output))) if output.is_empty() => *command += &format!("\n{more}"),
                (_, _, Some((_, output))) => *output += &format!("{line}\n"),
                _ => {}
            }
        }
        commands.retain(|(command, _)| !NOT_RUN.iter().any(|(part, _)| command.contains(part)));
        commands
    }

    fn runnable(&self) -> String {
        let runs = |line: &&str| !NOT_RUN.iter().any(|(part, _)| line.contains(part));
        self.text.lines().filter(runs).collect::<Vec<_>>().join("\n")
    }
}

fn is_lasting(command: &str) -> bool {
    LASTING.iter().any(|part| command.contains(part))
}

/// Splits a script into pieces, in order. The flag of a piece is true if it runs until it is interrupted. Commands that run
/// at the same time, as in two terminals, are one piece.
fn pieces(script: &str) -> Vec<(String, bool)> {
    if !is_lasting(script) {
        return vec![(script.to_owned(), false)];
    }
    let mut pieces: Vec<(String, bool)> = Vec::new();
    let mut command = String::new();
    for line in script.lines() {
        command += line;
        if line.ends_with(['\\', '|']) {
            command.push('\n');
            continue;
        }
        let done = std::mem::take(&mut command);
        let lasting = is_lasting(&done);
        match pieces.last_mut() {
            Some((before, true)) if lasting => *before += &format!(" &\n{done}"),
            Some((before, false)) if !lasting => *before += &format!("\n{done}"),
            _ => pieces.push((done, lasting)),
        }
    }
    pieces
}

fn pages() -> Vec<PathBuf> {
    let folders = std::fs::read_dir(root().join("man")).unwrap();
    let files = folders.flat_map(|folder| std::fs::read_dir(folder.unwrap().path()).unwrap());
    let mut pages: Vec<PathBuf> = files.map(|file| file.unwrap().path()).collect();
    pages.push(root().join("README.md"));
    pages.sort();
    pages
}

fn blocks(page: &Path) -> Vec<Block> {
    let text = std::fs::read_to_string(page).unwrap();
    let texts = if page.extension().is_some_and(|end| end == "md") { in_markdown(&text) } else { in_mdoc(&text) };
    texts.into_iter().map(|text| Block { page: page.to_owned(), text }).collect()
}

/// Literal blocks and lines, as a terminal shows them.
fn in_mdoc(text: &str) -> Vec<String> {
    let shown = |line: &str| {
        let escapes = [("\\(aq", "'"), ("\\(dq", "\""), ("\\&", ""), ("\\-", "-"), ("\\e", "\\")];
        escapes.iter().fold(line.to_owned(), |line, (from, to)| line.replace(from, to))
    };
    let mut found: Vec<String> = Vec::new();
    let mut open = false;
    for line in text.lines() {
        match line {
            _ if line.starts_with(".Bd -literal") => {
                open = true;
                found.push(String::new());
            }
            ".Ed" => open = false,
            _ if open => *found.last_mut().unwrap() += &format!("{}\n", shown(line)),
            _ => found.extend(line.strip_prefix(".Dl ").map(shown)),
        }
    }
    found
}

/// Fenced blocks, and the commands that begin the items of a list.
fn in_markdown(text: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let mut open = false;
    for line in text.lines() {
        if line.starts_with("```") {
            open = !open;
            found.extend(open.then(String::new));
        } else if open {
            *found.last_mut().unwrap() += &format!("{line}\n");
        } else if let Some(rest) = line.strip_prefix("- `") {
            found.extend(rest.split('`').next().map(str::to_owned));
        }
    }
    found
}

/// A home with `ken` on its PATH, and the system that was started in it, if any.
struct Home {
    dir: tempfile::TempDir,
    folder: &'static str,
    replacements: Vec<(String, String)>,
    /// Variables that earlier examples of the page have set.
    set: String,
}

impl Home {
    fn new(page: &Path) -> Home {
        let folder = if page.ends_with("README.md") { ".ken" } else { "ken" };
        let home = Home {
            dir: tempfile::Builder::new().prefix("ken").tempdir().unwrap(),
            folder,
            replacements: Vec::new(),
            set: String::new(),
        };
        std::fs::create_dir(home.dir.path().join(folder)).unwrap();
        let config = "[gateway]\nport = 0\n[cognitive]\nport = 0\n";
        std::fs::write(home.dir.path().join(folder).join("ken.toml"), config).unwrap();
        // Makes curl fail if the status of an answer is 400 or more.
        std::fs::write(home.dir.path().join(".curlrc"), "fail-with-body\n").unwrap();
        home
    }

    /// Starts a system, and runs the setup of the page.
    fn up(&mut self, page: &Path) {
        let (printed, ended) = self.run("ken up -d", false);
        assert_eq!(ended, Some(0), "ken up: {printed}");
        for (part, port) in [("gateway", "3940"), ("cognitive", "8000")] {
            let own = printed.split(&format!("{part}=http://127.0.0.1:")).nth(1).unwrap();
            let own = own.split_whitespace().next().unwrap();
            for host in ["localhost", "127.0.0.1"] {
                self.replacements.push((format!("{host}:{port}"), format!("{host}:{own}")));
            }
        }
        let needs = NEEDS.iter().find(|needs| page.ends_with(needs.page));
        let Some(needs) = needs else { return };
        let (printed, ended) = self.run(needs.setup, false);
        assert_eq!(ended, Some(0), "{}: {printed}", needs.page);
        let pairs = printed.lines().filter_map(|line| line.split_once(" => "));
        let pairs: Vec<_> = pairs.map(|(from, to)| (from.to_owned(), to.to_owned())).collect();
        self.replacements.extend(pairs);
    }

    /// Runs a script until it ends or, if it is `lasting`, until it has printed something. Returns its output, and its exit
    /// status if it has ended.
    fn run(&self, script: &str, lasting: bool) -> (String, Option<i32>) {
        let mut script = script.to_owned();
        for (from, to) in &self.replacements {
            script = script.replace(from, to);
        }
        let home = self.dir.path();
        let programs = binary("ken").parent().unwrap().to_owned();
        let path =
            format!("{}:{}:/usr/local/bin:/usr/bin:/bin:/usr/sbin", home.join("bin").display(), programs.display());
        let mut child = Command::new("bash")
            .args(["-c", &format!("set -e -o pipefail\nexec 2>&1\n{script}")])
            .env_clear()
            .env("PATH", path)
            .env("HOME", home)
            .env("KEN_HOME", home.join(self.folder))
            .env("KEN_RUN_DIR", home.join(self.folder).join("run"))
            .env("LANG", "C.UTF-8")
            .current_dir(home)
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (sender, pieces) = mpsc::channel();
        let mut stdout = child.stdout.take().unwrap();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(bytes @ 1..) = stdout.read(&mut buffer) {
                _ = sender.send(buffer[..bytes].to_vec());
            }
        });
        let mut printed = Vec::new();
        let end = Instant::now() + LIMIT;
        let mut is_over = false;
        loop {
            match pieces.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(piece) => printed.extend(piece),
                Err(error) => is_over = error == RecvTimeoutError::Disconnected,
            }
            if is_over || lasting && !printed.is_empty() || Instant::now() >= end {
                break;
            }
        }
        let text = String::from_utf8_lossy(&printed).into_owned();
        if is_over {
            return (text, child.wait().unwrap().code());
        }
        _ = killpg(Pid::from_raw(i32::try_from(child.id()).unwrap()), Signal::SIGINT);
        std::thread::sleep(Duration::from_millis(100));
        _ = killpg(Pid::from_raw(i32::try_from(child.id()).unwrap()), Signal::SIGKILL);
        _ = child.wait();
        (text, None)
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        _ = self.run("ken down; jobs -p | xargs -r kill", false);
    }
}

/// A program that a script uses and that this machine lacks; programs of ken are not considered.
fn missing(script: &str) -> Option<&'static str> {
    let is_named = |program: &&str| script.split(|c: char| !c.is_ascii_alphanumeric()).any(|word| word == *program);
    let is_here = |program: &str| {
        let found = Command::new("sh").args(["-c", &format!("command -v {program}")]).stdout(Stdio::null()).status();
        found.is_ok_and(|status| status.success())
    };
    let programs = ["jq", "curl", "nc", "openssl", "sqlite3", "git"];
    programs.into_iter().filter(is_named).find(|program| !is_here(program))
}

fn check(page: &Path) {
    let mut home: Option<Home> = None;
    for block in blocks(page) {
        let script = block.runnable();
        if let Some(program) = missing(&script) {
            let line = format!("not run, there is no {program} here: {}\n", block.at());
            _ = std::io::stderr().write_all(line.as_bytes());
            continue;
        }
        if let Some((_, command)) = block.form() {
            let own = Home::new(page);
            std::fs::write(own.dir.path().join("form"), &block.text).unwrap();
            let (printed, ended) = own.run(command, false);
            assert_eq!(ended, Some(0), "{}{command}: {printed}", block.at());
            continue;
        }
        if script.contains("ken up") || script.contains("--home") {
            run(&mut Home::new(page), &block);
            continue;
        }
        let home = home.get_or_insert_with(|| {
            let mut home = Home::new(page);
            home.up(page);
            home
        });
        run(home, &block);
    }
}

fn run(home: &mut Home, block: &Block) {
    for (command, output) in block.commands() {
        for (piece, lasting) in pieces(&command) {
            run_piece(home, block, &piece, lasting, &output);
        }
        // Variables that an example sets remain set for the following examples.
        let set = command.lines().filter(|line| line.starts_with("key=") || line.starts_with("export "));
        home.set.extend(set.map(|line| format!("{line}\n")));
    }
}

fn run_piece(home: &Home, block: &Block, piece: &str, lasting: bool, output: &str) {
    if piece.trim().is_empty() {
        return;
    }
    let (printed, ended) = home.run(&format!("{}{piece}", home.set), lasting);
    let at = format!("{}: {piece}\nprinted: {printed}", block.page.display());
    if lasting {
        assert!(!printed.is_empty() && ended.is_none_or(|status| status == 0), "{at}")
    } else {
        assert_eq!(ended, Some(0), "{at}")
    }
    let failed = printed.contains("\"error\":{\"code\"") || printed.contains("command not found");
    assert!(!failed, "{at}");
    // In the README, "I found nothing" would look like a failure.
    let finds_nothing = block.page.ends_with("README.md") && printed.contains("I found nothing");
    assert!(!finds_nothing, "{at}");
    if !output.is_empty() {
        assert_eq!(printed, output, "{at}");
    }
}

/// Whether manual_pages.rs runs the examples of the page and compares their output.
fn is_held_elsewhere(page: &Path) -> bool {
    let tools = ["ken-rep.1", "ken-esl.1", "ken-vvp.1", "ken-laws.1", "ken-workflow.1", "ken-respond.1"];
    tools.iter().any(|tool| page.ends_with(tool))
}

/// The pages are divided among a few tests, which run in parallel.
fn check_those(section: impl Fn(&Path) -> bool) {
    let pages = pages();
    let chosen: Vec<&PathBuf> = pages.iter().filter(|page| section(page) && !is_held_elsewhere(page)).collect();
    assert!(!chosen.is_empty());
    for page in chosen {
        check(page);
    }
}

fn is_in(folder: &'static str) -> impl Fn(&Path) -> bool {
    move |page| page.parent().is_some_and(|parent| parent.ends_with(folder))
}

#[test]
fn examples_of_section_1() {
    check_those(is_in("man1"));
}

#[test]
fn examples_of_sections_5_and_7() {
    check_those(|page| is_in("man5")(page) || is_in("man7")(page));
}

#[test]
fn examples_of_section_8() {
    check_those(is_in("man8"));
}

#[test]
fn examples_of_the_readme() {
    check_those(|page| page.ends_with("README.md"));
}

/// Every name in the lists above still occurs on a page.
#[test]
fn every_name_in_the_lists_is_on_a_page() {
    let all: Vec<Block> = pages().iter().flat_map(|page| blocks(page)).collect();
    let text: String = all.iter().map(|block| block.text.as_str()).collect();
    let parts = NOT_RUN.iter().map(|(part, _)| *part).chain(LASTING.iter().copied());
    let unused: BTreeSet<&str> = parts.filter(|part| !text.contains(part)).collect();
    assert_eq!(unused, BTreeSet::new());
    for form in FORMS {
        assert!(all.iter().any(|block| block.form() == Some(form)), "{}", form.0);
    }
}
