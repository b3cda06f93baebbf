//! `cd ~/src/site && ken chat "fix the failing test"`: the person's own repository, from the question whether to trust it to the
//! undo, with the shipped coding worker.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use ken_tests::provider::{Provider, ReceivedRequest, Reply, openai};
use ken_tests::{Builder, System, Terminal, binary};
use serde_json::{Value, json};
use tempfile::TempDir;

const WRONG: &str = "#!/bin/sh\necho $(($1 - $2))\n";

/// A model that gives every task to the coding worker, which repairs `sum.sh`, runs the tests and commits.
fn repairing() -> Provider {
    working(|| {
        vec![
            ("edit_file", json!({"path": "sum.sh", "old": "$1 - $2", "new": "$1 + $2"})),
            ("run_tests", json!({"cwd": "."})),
            ("git_commit", json!({"repo": ".", "message": "Add instead of subtracting"})),
        ]
    })
}

/// The same with a worker that reads a file, which nobody is asked about.
fn reading() -> Provider {
    working(|| vec![("read_file", json!({"path": "sum.sh"}))])
}

fn working(work: impl Fn() -> Vec<(&'static str, Value)> + Send + Sync + 'static) -> Provider {
    Provider::answering(move |request: &ReceivedRequest| {
        let messages = request.body["messages"].as_array().unwrap();
        let results = messages.iter().rev().take_while(|message| message["role"] != "user");
        let results = results.filter(|message| message["role"] == "tool").count();
        let call = |name: &str, arguments: Value| Reply::Stream(openai(&[], &[("c", name, &arguments.to_string())]));
        let steps = match is_of_worker(request) {
            true => work(),
            false if !request.prompt().as_str().unwrap_or_default().contains("fix") => Vec::new(),
            false => vec![("task", json!({"agent": "coding-worker", "prompt": "repair sum.sh"}))],
        };
        match steps.into_iter().nth(results) {
            Some((name, arguments)) => call(name, arguments),
            None => Reply::Stream(openai(&["Repaired."], &[])),
        }
    })
}

fn system_text(request: &ReceivedRequest) -> String {
    request.body["messages"][0]["content"].as_str().unwrap().to_owned()
}

fn is_of_worker(request: &ReceivedRequest) -> bool {
    system_text(request).contains("# You are the coding worker")
}

fn start(provider: &Provider) -> System {
    Builder::default()
        .env("KEN_MODEL", "openai/m")
        .env("OPENAI_BASE_URL", &format!("{}/v1", provider.url()))
        .secrets("OPENAI_API_KEY=k\n")
        .start()
}

/// A folder of the person, with a repository `src/site` whose test fails.
struct Person(TempDir);

impl Person {
    fn new() -> Person {
        let person = Person(tempfile::tempdir().unwrap());
        let site = person.site();
        fs::create_dir_all(site.join("docs")).unwrap();
        fs::write(site.join("sum.sh"), WRONG).unwrap();
        fs::write(site.join("test.sh"), "set -e\ntest \"$(sh sum.sh 2 3)\" = 5\necho passed\n").unwrap();
        person.git(&["init", "-q", "-b", "main"]);
        person.git(&["config", "user.name", "P"]);
        person.git(&["config", "user.email", "p@example.org"]);
        person.git(&["add", "."]);
        person.git(&["commit", "-q", "-m", "First"]);
        person
    }

    fn site(&self) -> PathBuf {
        self.0.path().join("src/site")
    }

    fn git(&self, words: &[&str]) -> String {
        let output = Command::new("git").args(words).current_dir(self.site()).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// The command of a person in a folder.
    fn ken(&self, system: &System, folder: &Path, words: &[&str]) -> Command {
        let mut command = Command::new(binary("ken"));
        command.env_clear().env("PATH", "/usr/bin:/bin").env("HOME", self.0.path()).env("KEN_HOME", system.home());
        command.args(words).current_dir(folder).stdin(Stdio::null());
        command
    }

    fn run(&self, system: &System, folder: &Path, words: &[&str]) -> Output {
        self.ken(system, folder, words).output().unwrap()
    }
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[track_caller]
fn holds(output: &Output, status: i32, text_in_it: &str) {
    let text = text(output);
    assert!(output.status.code() == Some(status) && text.contains(text_in_it), "{text_in_it}: {output:?}");
}

fn workspaces(system: &System) -> Vec<Value> {
    let list = system.get("/api/chat/sessions").expect(200).json();
    list["sessions"].as_array().unwrap().iter().map(|session| session["workspace"].clone()).collect()
}

/// The name of a repository that somebody else has packed.
#[test]
fn the_question_about_a_folder_names_it_with_every_character() {
    let (provider, person) = (repairing(), Person::new());
    let system = start(&provider);
    let site = person.site();
    let odd = site.with_file_name("site\u{200b}\u{2028}");
    std::fs::rename(&site, &odd).unwrap();
    let mut terminal = Terminal::start(&person.ken(&system, &odd, &["chat", "hello"]), 300, 30);
    let asked = terminal.wait_for_text("[y]es, [n]o");
    let named = format!("may the agent work in {}<U+200B><U+2028>?", site.display());
    assert!(asked.contains(&named) && !terminal.written().contains('\u{200b}'), "{asked}");
    terminal.type_line("n");
    terminal.wait_for_text("Repaired.");
    assert!(terminal.wait_for_end().success());
}

#[test]
fn a_test_in_my_own_repository_is_repaired_there_and_undone() {
    let (provider, person) = (repairing(), Person::new());
    let system = start(&provider);
    let site = person.site();
    let chat = person.ken(&system, &site.join("docs"), &["chat", "fix the failing test"]);
    let mut terminal = Terminal::start(&chat, 120, 60);
    // The question names the top folder of the repository and what it allows, before anything is sent.
    let asked = terminal.wait_for_text("[y]es, [n]o");
    assert!(asked.contains(&format!("may the agent work in {}?", site.display())), "{asked}");
    assert!(asked.contains("read every file there") && asked.contains("after you have approved"), "{asked}");
    assert!(provider.received().is_empty());
    terminal.type_line("y");
    for shown in ["+echo $(($1 + $2))", "command: sh ./test.sh", "Add instead of subtracting"] {
        let is_asked = |screen: &str| screen.contains(shown) && screen.contains("[a]pprove once");
        let screen = terminal.wait_for_screen(shown, is_asked);
        assert!(screen.contains(site.to_str().unwrap()), "{screen}");
        terminal.type_line("a");
    }
    terminal.wait_for_text("Repaired.");
    assert!(terminal.wait_for_end().success());
    assert_eq!(person.git(&["log", "--format=%s"]), "Add instead of subtracting\nFirst");
    assert_eq!(person.git(&["status", "--porcelain"]), "");
    assert_eq!(workspaces(&system), [json!(site)]);
    for request in provider.received() {
        let told = format!("the user's own folder `{}`", site.display());
        assert!(system_text(&request).contains(&told), "{}", system_text(&request));
    }
    // The terminal client, too, shows what the worker answered, without the marks that its agent sees.
    let list = system.get("/api/chat/sessions").expect(200).json();
    let session = list["sessions"][0]["sessionId"].as_str().unwrap().to_owned();
    let resumed = Terminal::start(&person.ken(&system, &site, &["tui", "--session", &session]), 100, 40);
    let screen = resumed.wait_for_screen("the task", |screen| screen.contains("✓ coding-worker"));
    let task = screen.lines().position(|line| line.contains("✓ coding-worker")).unwrap();
    assert_eq!(screen.lines().nth(task + 1).map(str::trim), Some("Repaired."), "{screen}");
    drop(resumed);
    // Trusted once, it is not asked about again, and another session works there, too.
    let again = person.ken(&system, &site, &["chat", "and again?"]);
    let mut terminal = Terminal::start(&again, 120, 40);
    terminal.wait_for_text("Repaired.");
    assert!(!terminal.screen().contains("[y]es"), "{}", terminal.screen());
    assert!(terminal.wait_for_end().success());
    // The undo needs no knowledge of where the run worked.
    let run = fs::read_dir(system.home().join("state/coder/journal")).unwrap().next().unwrap().unwrap();
    let undone = person.run(&system, Path::new("/"), &["undo", run.file_name().to_str().unwrap()]);
    holds(&undone, 0, "put back sum.sh");
    assert_eq!(fs::read_to_string(site.join("sum.sh")).unwrap(), WRONG);
    assert_eq!(person.git(&["log", "--format=%s"]), "First");
    assert_eq!(person.git(&["status", "--porcelain"]), "");
}

/// The question may stand there for an hour.
#[test]
fn what_was_forgotten_or_trusted_during_the_question_stays_so() {
    let (provider, person) = (repairing(), Person::new());
    let system = start(&provider);
    let site = person.site();
    let others = ["a", "b", "c", "d"].map(|name| person.0.path().join("elsewhere").join(name));
    others.iter().for_each(|folder| fs::create_dir_all(folder).unwrap());
    let all_at_once = |words: &[&str], folders: &[PathBuf]| {
        let start = |folder: &PathBuf| person.ken(&system, folder, words).stdout(Stdio::null()).spawn().unwrap();
        let commands: Vec<_> = folders.iter().map(start).collect();
        assert!(commands.into_iter().all(|mut command| command.wait().unwrap().success()));
    };
    let trusted = || text(&person.run(&system, Path::new("/"), &["workspace", "list", "--json"])).lines().count();
    all_at_once(&["workspace", "trust"], &others);
    assert_eq!(trusted(), 4);
    for (answer, left) in [("n", 3), ("y", 2)] {
        let name = if answer == "n" { "site" } else { "other" };
        let folder = site.with_file_name(name);
        if folder != site {
            fs::rename(&site, &folder).unwrap();
        }
        let mut terminal = Terminal::start(&person.ken(&system, &folder, &["chat", "hello"]), 200, 30);
        terminal.wait_for_text("[y]es, [n]o");
        all_at_once(&["workspace", "forget"], &others[left..=left]);
        terminal.type_line(answer);
        terminal.wait_for_text("Repaired.");
        assert!(terminal.wait_for_end().success());
        assert_eq!(trusted(), left + usize::from(answer == "y"), "{answer}");
    }
    // Neither is asked about again, and what two commands do at once is done.
    all_at_once(&["workspace", "forget"], &others[..2]);
    assert_eq!(trusted(), 1);
}

#[test]
fn nobody_who_cannot_answer_is_asked_and_no_is_kept() {
    let (provider, person) = (Provider::answering(|_| Reply::Stream(openai(&["An answer."], &[]))), Person::new());
    let system = start(&provider);
    let site = person.site();
    // A pipe gets its answer, and the session is not bound.
    holds(&person.run(&system, &site, &["chat", "hello"]), 0, "An answer.");
    assert_eq!(workspaces(&system), [Value::Null]);
    // A folder that is named has to be trusted first; the error has the command, and the command works as it is printed.
    let refused = person.run(&system, Path::new("/"), &["chat", "-w", site.to_str().unwrap(), "hello"]);
    holds(&refused, 2, &format!("ken workspace trust {}", site.display()));
    let refused = person.ken(&system, Path::new("/"), &["tui", "--workspace", site.to_str().unwrap(), "--print", "x"]);
    holds(&{ refused }.output().unwrap(), 2, &format!("workspace trust {}", site.display()));
    holds(&person.run(&system, &site, &["chat", "-w", "/nowhere", "hello"]), 2, "/nowhere cannot be used");
    // The answer no is kept; the command changes it.
    let mut terminal = Terminal::start(&person.ken(&system, &site, &["tui", "--plain"]), 120, 40);
    terminal.wait_for_text("[y]es, [n]o");
    terminal.type_line("n");
    terminal.wait_for_text("session tui-");
    terminal.wait_for_text("An answer.");
    terminal.type_line("/exit");
    assert!(terminal.wait_for_end().success());
    let mut terminal = Terminal::start(&person.ken(&system, &site, &["chat", "hello"]), 120, 40);
    let screen = terminal.wait_for_text("An answer.");
    assert!(!screen.contains("[y]es"), "{screen}");
    assert!(terminal.wait_for_end().success());
    holds(
        &person.run(&system, &site.join("docs"), &["workspace", "trust"]),
        0,
        &format!("trusted: {}", site.display()),
    );
    holds(&person.run(&system, &site.join("docs"), &["chat", "hello"]), 0, "An answer.");
    assert_eq!(workspaces(&system)[0], json!(site));
    // A new session that is begun in the terminal stays in the folder.
    let mut terminal = Terminal::start(&person.ken(&system, &site, &["tui"]), 120, 40);
    terminal.wait_for_text(&format!("the agent works in {}", site.display()));
    terminal.type_line("/new");
    terminal.wait_for_text("Started session");
    terminal.type_line("hello");
    let of_site = || workspaces(&system).iter().filter(|folder| **folder == json!(site)).count();
    ken_tests::until("the sessions of the command, of the screen, and the new one", || of_site() == 3);
    drop(terminal);
    holds(&person.run(&system, &site, &["workspace", "list"]), 0, site.to_str().unwrap());
    holds(&person.run(&system, &site, &["workspace", "forget"]), 0, "forgotten: ");
    holds(&person.run(&system, &site, &["workspace", "forget"]), 2, "is not a trusted folder");
    holds(&person.run(&system, &site, &["workspace", "list"]), 0, "no folder is trusted");
}

#[test]
fn what_must_not_be_trusted_is_refused_with_the_reason() {
    let (provider, person) = (repairing(), Person::new());
    let system = start(&provider);
    let trust = |folder: &Path| person.run(&system, Path::new("/"), &["workspace", "trust", folder.to_str().unwrap()]);
    holds(&trust(person.0.path()), 2, "this folder is your home folder");
    holds(&trust(Path::new("/")), 2, "cannot be trusted");
    holds(&trust(system.home()), 2, "ken's own");
    holds(&trust(&system.home().join("state/store")), 2, "lies in ken's own");
    // Nor is the place of a configuration that is not written yet, as in a repository of dotfiles.
    let (dotfiles, beside) = (person.0.path().join("dotfiles"), person.0.path().join("beside"));
    for folder in [&dotfiles, &beside] {
        fs::create_dir(folder).unwrap();
    }
    for (folder, status, said) in [(&dotfiles, 2, "is where ken makes its own"), (&beside, 0, "trusted: ")] {
        let mut trust = person.ken(&system, folder, &["workspace", "trust", "."]);
        trust.env_remove("KEN_HOME").env("KEN_STATE_DIR", person.0.path().join("state"));
        holds(&trust.env("KEN_CONFIG", dotfiles.join("ken/ken.toml")).output().unwrap(), status, said);
    }
    // A folder as /tmp is of use to others only with its mode.
    let shared = person.0.path().join("shared");
    fs::create_dir(&shared).unwrap();
    for (mode, remedy) in
        [(0o1777, "trust a folder of your own below it"), (0o777, "chmod go-w "), (0o2775, "chmod go-w ")]
    {
        fs::set_permissions(&shared, fs::Permissions::from_mode(mode)).unwrap();
        let refused = trust(&shared);
        holds(&refused, 2, &format!("has mode {mode:04o}, others can change it"));
        holds(&refused, 2, remedy);
        assert_eq!(text(&refused).contains("chmod"), remedy.starts_with("chmod"), "{refused:?}");
    }
    holds(&trust(&person.site().join("sum.sh")), 2, "sum.sh");
    holds(&trust(&person.site()), 0, "trusted: ");
    holds(&trust(&person.site().join("docs")), 2, "lies in the trusted folder");
    holds(&trust(&person.0.path().join("src")), 2, "holds the trusted folder");
    // Over HTTP, the gateway decides by the same list.
    let create = |workspace: Value| {
        let body = json!({"connector": "tui", "actorId": "a", "conversationId": "c", "workspace": workspace});
        system.post("/api/chat/sessions", &body)
    };
    let site = person.site();
    assert_eq!(create(json!(site)).expect(201).at("/session/workspace"), json!(site));
    create(json!("/tmp")).refused(403, "forbidden", "/workspace");
    create(json!("src/site")).refused(403, "forbidden", "/workspace");
    assert_eq!(create(json!(format!("{}/", site.display()))).expect(201).at("/session/workspace"), json!(site));
    create(json!(7)).refused(400, "invalid", "/workspace");
}

/// Also where a new session takes the place of one that does not exist.
#[test]
fn the_terminal_client_works_in_the_trusted_folder_whichever_session_it_was_to_continue() {
    let (provider, person) = (repairing(), Person::new());
    let system = start(&provider);
    let (site, docs) = (person.site(), person.site().join("docs"));
    let none = person.run(&system, &docs, &["tui", "-c", "--print", "hello"]);
    holds(&none, 2, "there is no session to continue");
    holds(
        &person.run(&system, &docs, &["tui", "--session", "last", "--print", "hello"]),
        2,
        "there is no session to continue",
    );
    // Nobody is asked about a folder that is not trusted yet.
    let begins = |words: &[&str], told: &str| {
        let mut terminal = Terminal::start(&person.ken(&system, &docs, words), 200, 40);
        let screen = terminal.wait_for_screen(told, |screen| screen.contains(told) && screen.contains("Repaired."));
        assert!(!screen.contains("[y]es"), "{screen}");
        terminal.press("\u{4}");
        assert!(terminal.wait_for_end().success());
        workspaces(&system).remove(0)
    };
    assert_eq!(begins(&["tui", "-c"], "there is no session to continue: this is a new one"), Value::Null);
    holds(&person.run(&system, &site, &["workspace", "trust"]), 0, "trusted: ");
    let works = format!("the agent works in {}", site.display());
    for words in [&["tui", "--session", "nosuch"][..], &["tui", "--plain", "--session", "nosuch"]] {
        assert_eq!(begins(words, &works), json!(site), "{words:?}");
    }
    for words in [&["tui", "-c"][..], &["tui", "--session", "last"], &["tui", "--plain", "-c"]] {
        for session in system.get("/api/chat/sessions").expect(200).json()["sessions"].as_array().unwrap() {
            let id = session["sessionId"].as_str().unwrap();
            holds(&person.run(&system, &docs, &["sessions", "rm", "--yes", id]), 0, "deleted");
        }
        assert_eq!(begins(words, &works), json!(site), "{words:?}");
    }
    // A session that exists stays where it works, and nothing is said about the folder in which nobody can work now.
    holds(&person.run(&system, &docs, &["chat", "hello"]), 0, "Repaired.");
    fs::set_permissions(&site, fs::Permissions::from_mode(0o777)).unwrap();
    let mut terminal = Terminal::start(&person.ken(&system, &docs, &["tui", "--plain", "-c"]), 200, 40);
    let screen = terminal.wait_for_text(&works);
    assert!(!screen.contains("does not work in this folder"), "{screen}");
    terminal.press("\u{4}");
    assert!(terminal.wait_for_end().success());
    assert_eq!(
        begins(&["tui", "--plain", "--session", "nosuch"], "the agent does not work in this folder: "),
        Value::Null
    );
}

/// Somebody who may talk to the gateway but not read its state, or whose list is damaged, gets an answer nevertheless.
#[test]
fn a_list_that_cannot_be_used_stops_no_question() {
    let (provider, person) = (reading(), Person::new());
    let system = start(&provider);
    let site = person.site();
    holds(&person.run(&system, &site, &["workspace", "trust"]), 0, "trusted: ");
    let list = system.home().join("state/trust/folders.json");
    fs::write(&list, "{").unwrap();
    holds(&person.run(&system, &site, &["chat", "hello"]), 0, "Repaired.");
    assert_eq!(workspaces(&system), [Value::Null]);
    holds(&person.run(&system, &site, &["chat", "-w", ".", "hello"]), 2, "folders.json");
    holds(&person.run(&system, &site, &["doctor"]), 2, "trusted-folders");
}

/// A folder that vanished while it was trusted, or is another one by now, is entered by nobody; the person is told.
#[test]
fn a_folder_that_was_replaced_is_not_entered() {
    let (provider, person) = (reading(), Person::new());
    let system = start(&provider);
    let site = person.site();
    holds(&person.run(&system, &site, &["workspace", "trust"]), 0, "trusted: ");
    let session = bound(&system, &site);
    let away = site.with_file_name("away");
    fs::rename(&site, &away).unwrap();
    fs::create_dir(&site).unwrap();
    fs::write(site.join("sum.sh"), WRONG).unwrap();
    let before = provider.received().len();
    holds(&person.run(&system, Path::new("/"), &["chat", "-s", &session, "fix it"]), 0, "Repaired.");
    let told = provider.received()[before..]
        .iter()
        .any(|request| request.body.to_string().contains("was replaced by another folder"));
    assert!(told, "{:?}", provider.received().last().unwrap().body);
    assert_eq!(fs::read_to_string(site.join("sum.sh")).unwrap(), WRONG);
    holds(&person.run(&system, &site, &["workspace", "list"]), 0, "was replaced by another folder");
    holds(&person.run(&system, &site, &["doctor"]), 1, &format!("ken workspace forget {}", site.display()));
    let noted = person.run(&system, &site, &["chat", "hello"]);
    holds(&noted, 0, "the agent does not work in this folder");
    holds(&person.run(&system, &site, &["chat", "-w", ".", "hello"]), 2, "ken workspace trust");
    fs::remove_dir_all(&site).unwrap();
    holds(&person.run(&system, &away, &["workspace", "list"]), 0, "is gone");
    holds(&person.run(&system, &away, &["workspace", "forget", site.to_str().unwrap()]), 0, "forgotten: ");
}

/// Opens a session in a folder.
fn bound(system: &System, folder: &Path) -> String {
    let body = json!({"connector": "tui", "actorId": "local-tui", "conversationId": "local-tui", "workspace": folder});
    system.post("/api/chat/sessions", &body).expect(201).text("/session/id")
}

#[test]
fn its_project_rules_are_followed_once_they_are_accepted() {
    let read = |path: &str| ("read_file", json!({"path": path}));
    let (provider, person) =
        (working(move || vec![read("sum.sh"), read("docs/AGENTS.md"), read("docs/GUIDE")]), Person::new());
    let system = start(&provider);
    let site = person.site();
    fs::write(site.join("docs/GUIDE"), "How to.\n").unwrap();
    fs::write(site.join("AGENTS.md"), "Use tabs in sum.sh.\n").unwrap();
    fs::write(site.join("docs/AGENTS.md"), "Write British English.\n").unwrap();
    holds(&person.run(&system, &site, &["workspace", "trust"]), 0, "ken skills accept AGENTS.md");
    let rules = || {
        let before = provider.received().len();
        holds(&person.run(&system, &site, &["chat", "fix it"]), 0, "Repaired.");
        let worker = provider.received().into_iter().skip(before).rfind(is_of_worker).unwrap();
        let system = system_text(&worker);
        assert!(!system.contains("Write British"), "{system}");
        let messages = worker.body["messages"].as_array().unwrap();
        let results: Vec<String> = messages
            .iter()
            .filter(|message| message["role"] == "tool")
            .map(|message| message["content"].to_string())
            .collect();
        // The rules of a folder come once, with the result of the call that enters it.
        let entering: Vec<bool> =
            results.iter().map(|result| result.contains("the file AGENTS.md of docs, which")).collect();
        assert!(entering == [false, true, false] || entering == [false; 3], "{results:?}");
        [system.contains("Use tabs"), entering[1]]
    };
    assert_eq!(rules(), [false, false]);
    holds(&person.run(&system, &site, &["skills", "show", "AGENTS.md"]), 0, "Use tabs in sum.sh.");
    holds(&person.run(&system, &site, &["skills", "accept", "AGENTS.md", "--yes"]), 0, "in force");
    assert_eq!(rules(), [true, false]);
    holds(&person.run(&system, &site, &["skills", "accept", "docs/AGENTS.md", "--yes"]), 0, "in force");
    assert_eq!(rules(), [true, true]);
    // A change of the text ends it until it is accepted again.
    fs::write(site.join("AGENTS.md"), "Use blanks.\n").unwrap();
    assert_eq!(rules(), [false, true]);
    assert!(!system_text(provider.received().last().unwrap()).contains("Use blanks"));
}
