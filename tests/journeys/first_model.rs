//! From nothing to an answer of a real model: `ken setup` at a terminal and by options, and `ken model add` and `ken model use`.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

use ken_tests::provider::{Provider, ReceivedRequest, Reply, openai, refusal};
use ken_tests::{Builder, Terminal, binary};
use serde_json::json;
use tempfile::TempDir;

const KEY: &str = "sk-planted-and-right";
const MODELS: [&str; 2] = ["quick-1", "deep-1"];

/// A provider with two models, which takes one key. Its answers name the model.
fn provider() -> Provider {
    Provider::answering(|request: &ReceivedRequest| {
        if request.header("authorization") != Some(&format!("Bearer {KEY}")) {
            return refusal(401, Vec::new(), "invalid_api_key", "Incorrect API key provided");
        }
        if request.method == "GET" {
            let models = MODELS.map(|model| json!({"id": model}));
            return Reply::Status(200, Vec::new(), json!({"data": models}).to_string());
        }
        let model = request.body["model"].as_str().unwrap();
        if MODELS.contains(&model) {
            Reply::Stream(openai(&[&format!("I am {model}.")], &[]))
        } else {
            refusal(404, Vec::new(), "model_not_found", "The model does not exist")
        }
    })
}

/// A person with an empty home, a provider and a shell.
struct Person {
    home: TempDir,
    provider: Provider,
}

impl Person {
    fn new() -> Person {
        Person { home: tempfile::tempdir().unwrap(), provider: provider() }
    }

    fn home(&self) -> &Path {
        self.home.path()
    }

    fn shell(&self, line: &str) -> Command {
        let programs = binary("ken").parent().unwrap().display().to_string();
        let mut shell = Command::new("sh");
        shell.args(["-c", line]).current_dir(self.home()).env_clear();
        shell.env("PATH", format!("{programs}:/usr/bin:/bin")).env("KEN_HOME", self.home());
        shell.env("OPENAI_BASE_URL", format!("{}/v1", self.provider.url()));
        shell.env("WRONG", "sk-planted-but-wrong").env("RIGHT", KEY);
        shell
    }

    /// Runs a line without a terminal, and returns its exit status and all that it printed.
    fn runs(&self, line: &str) -> (i32, String) {
        let output = self.shell(line).stdin(Stdio::null()).output().unwrap();
        let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap()).concat();
        assert!(!said.contains("sk-planted"), "a key is shown: {line}: {said}");
        (output.status.code().unwrap(), said)
    }

    /// Starts `ken setup` at a terminal that shows what is typed, as that of a person does.
    fn terminal(&self) -> Terminal {
        let line = format!("stty echo; {} setup; ended=$?; stty -echo; exit $ended", binary("ken").display());
        Terminal::start(&self.shell(&line), 100, 40)
    }

    #[track_caller]
    fn succeeds(&self, line: &str) -> String {
        let (status, said) = self.runs(line);
        assert_eq!(status, 0, "{line}: {said}");
        said
    }

    fn read(&self, file: &str) -> String {
        fs::read_to_string(self.home().join(file)).unwrap_or_default()
    }

    fn write(&self, file: &str, text: &str, mode: u32) {
        let path = self.home().join(file);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    }

    fn mode(&self, file: &str) -> u32 {
        fs::metadata(self.home().join(file)).unwrap().mode() & 0o7777
    }

    /// The names of all files of the home that are no state.
    fn files(&self) -> Vec<String> {
        let names = fs::read_dir(self.home()).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.filter(|name| name != "state" && name != "run").collect();
        names.sort();
        names
    }
}

const BY_OPTIONS: &str = "ken setup --provider openai --model quick-1 --key-env RIGHT --yes";

#[test]
fn a_person_answers_four_questions_and_has_a_model() {
    let person = Person::new();
    let mut terminal = person.terminal();
    let screen = terminal.wait_for_text("which provider?");
    assert!(screen.contains("anthropic") && screen.contains("openai"), "{screen}");
    terminal.type_line("openai");
    terminal.wait_for_text("OPENAI_API_KEY (is not shown):");
    terminal.type_line(KEY);
    let screen = terminal.wait_for_text("which model?");
    assert!(screen.contains("openai has: quick-1, deep-1"), "{screen}");
    terminal.type_line("quick-1");
    let screen = terminal.wait_for_text("write this? [Y/n]");
    assert!(screen.contains("openai/quick-1 answered in "), "{screen}");
    assert!(person.files().is_empty(), "nothing is written before: {:?}", person.files());
    terminal.type_line("");
    let end = terminal.wait_for_end();
    let shown = terminal.written();
    assert!(end.success() && shown.contains("nothing is wrong"), "{shown}");
    assert!(shown.contains("quick-1\r\n") && !shown.contains("sk-planted"), "{shown}");
    assert_eq!(shown.matches("? ").count() + shown.matches("shown): ").count(), 4, "{shown}");
    assert_eq!(person.read("ken.toml"), "[model]\nuse = \"openai/quick-1,rules\"\n");
    // The address too, because a service is started in another environment than that of this shell.
    let address = format!("{}/v1", person.provider.url());
    assert_eq!(person.read("secrets.env"), format!("OPENAI_BASE_URL={address}\nOPENAI_API_KEY={KEY}\n"));
    assert_eq!((person.mode("ken.toml"), person.mode("secrets.env")), (0o644, 0o600));
    // The lines of the README that come after it.
    person.succeeds("ken up --port 0 --cognitive-port 0 -d");
    let said = person.succeeds("ken chat 'What can you do?'");
    let usage = person.succeeds("ken usage");
    person.succeeds("ken down");
    assert_eq!(said, "I am quick-1.\n");
    assert!(usage.contains("CACHED"), "{usage}");
}

#[test]
fn a_person_who_leaves_has_changed_nothing() {
    for (answers, key) in [(vec!["openai"], "\u{3}"), (vec!["openai", KEY, "quick-1"], "n\r"), (vec![], "\u{4}")] {
        let person = Person::new();
        let mut terminal = person.terminal();
        let questions = ["which provider?", "OPENAI_API_KEY (is not shown):", "which model?", "write this? [Y/n]"];
        for (question, answer) in questions.iter().zip(&answers) {
            terminal.wait_for_text(question);
            terminal.type_line(answer);
        }
        terminal.wait_for_text(questions[answers.len()]);
        terminal.press(key);
        let end = terminal.wait_for_end();
        assert!(!end.success() && terminal.written().contains("nothing was changed"), "{}", terminal.written());
        assert!(person.files().is_empty(), "{:?}", person.files());
    }
}

#[test]
fn by_options_it_is_written_once_and_a_key_is_replaced_aloud() {
    let person = Person::new();
    person.write(
        "ken.toml",
        "# mine\n[model] # of models\nuse = \"rules\" # for now\n\n[gateway]\nport = 0 # any\n",
        0o640,
    );
    person.write("secrets.env", "# keys\nOTHER=1\nOPENAI_API_KEY=sk-planted-but-old\n", 0o600);
    let said = person.succeeds(BY_OPTIONS);
    assert!(said.contains("OPENAI_API_KEY replaces another one that is there"), "{said}");
    assert!(said.contains("no system is running"), "{said}");
    let config = "# mine\n[model] # of models\nuse = \"openai/quick-1,rules\" # for now\n\n[gateway]\nport = 0 # any\n";
    assert_eq!(person.read("ken.toml"), config);
    let address = format!("{}/v1", person.provider.url());
    let secrets = format!("# keys\nOTHER=1\nOPENAI_API_KEY={KEY}\nOPENAI_BASE_URL={address}\n");
    assert_eq!(person.read("secrets.env"), secrets);
    assert_eq!((person.mode("ken.toml"), person.mode("secrets.env")), (0o640, 0o600));
    let inode = |file: &str| fs::metadata(person.home().join(file)).unwrap().ino();
    let before = (inode("ken.toml"), inode("secrets.env"));
    // The key that is there is used, and nothing is written again.
    let said = person.succeeds("ken setup --provider openai --model quick-1");
    assert!(said.contains("all of it is written already"), "{said}");
    let said = person.succeeds(&format!("echo {KEY} | ken setup --provider openai --model quick-1 --key-stdin"));
    assert!(said.contains("all of it is written already"), "{said}");
    assert_eq!((inode("ken.toml"), inode("secrets.env")), before);
    assert_eq!(person.files(), ["ken.toml", "secrets.env"]);
}

/// What is wrong, the exit status, and what the message has to say.
const WRONG: [(&str, i32, &str); 16] = [
    ("ken setup", 2, "nobody is there to ask which provider to use (at --provider)"),
    ("ken setup --provider openai --model quick-1", 2, "OPENAI_API_KEY is set nowhere (at --key-env)"),
    ("ken setup --provider openai --model quick-1 --key-env NONE --yes", 2, "the variable NONE is not set or empty"),
    ("ken setup --provider openai --model quick-1 --key-env sk-x --yes", 2, "this is no name of a variable"),
    (
        "ken setup --provider openai --model quick-1 --key-env WRONG --yes",
        2,
        "Incorrect API key provided; nothing was changed",
    ),
    ("ken setup --provider openai --model quick-2 --key-env RIGHT --yes", 2, "did you mean `openai/quick-1`?"),
    ("ken setup --provider openai --key-env RIGHT --yes", 2, "openai has: quick-1, deep-1"),
    ("ken setup --provider openai --model quick-1 --key-env RIGHT", 2, "add --yes"),
    ("ken setup --provider openia --model quick-1 --yes", 2, "did you mean `openai`?"),
    ("ken setup --url http://x --yes", 2, "the address of a provider is --address URL"),
    (": | ken setup --provider openai --model quick-1 --key-stdin --yes", 2, "this is no key: it is empty"),
    ("ken model use opnai/x", 2, "opnai"),
    ("ken model add rules", 2, "`rules` is an engine of ken and no provider"),
    ("ken model add 'My box'", 2, "a provider has a name of"),
    ("ken model add box", 2, "so its address is needed"),
    ("ken model add box --base-url http://127.0.0.1:9/v1 --key sk-x", 2, "a key itself is never given here"),
];

#[test]
fn what_is_wrong_is_said_and_changes_nothing() {
    let person = Person::new();
    let mut wrong = Vec::new();
    for (line, status, part) in WRONG {
        let (ended, said) = person.runs(line);
        if ended != status || !said.contains(part) || said.lines().last().is_none_or(|line| !line.starts_with("ken: "))
        {
            wrong.push(format!("$ {line}: {ended}: {said}"));
        }
        assert!(person.files().is_empty(), "{line}: {:?}", person.files());
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn an_address_that_answers_with_a_page_or_not_at_all_is_named() {
    let person = Person::new();
    let page = Provider::answering(|_| {
        Reply::Status(200, vec![("content-type", "text/html".into())], "<html><body>Welcome</body></html>".into())
    });
    let (status, said) = person.runs(&format!("OPENAI_BASE_URL={} {BY_OPTIONS}", page.url()));
    assert!(status != 0 && said.contains("web page"), "{said}");
    let (status, said) = person.runs(&format!("OPENAI_BASE_URL=http://127.0.0.1:9/v1 {BY_OPTIONS}"));
    assert!(status != 0 && said.contains("cannot reach 127.0.0.1:9"), "{said}");
    assert!(person.files().is_empty(), "{:?}", person.files());
}

#[test]
fn files_that_cannot_be_used_are_named_and_stay_as_they_are() {
    let person = Person::new();
    person.write("ken.toml", "[model]\nuse = \n", 0o644);
    for line in [BY_OPTIONS, "ken model use openai/quick-1"] {
        let (status, said) = person.runs(line);
        assert!(status == 2 && said.contains("ken.toml:2") && said.contains("mend the file first"), "{said}");
    }
    person.write("ken.toml", "[gateway]\nprot = 1\n", 0o644);
    let (status, said) = person.runs(BY_OPTIONS);
    let file = person.home().join("ken.toml").display().to_string();
    assert!(status == 2 && said.contains(&file) && said.contains("prot") && !said.contains("ken-trial"), "{said}");
    assert_eq!(person.read("ken.toml"), "[gateway]\nprot = 1\n");
    fs::remove_file(person.home().join("ken.toml")).unwrap();
    fs::create_dir(person.home().join("ken.toml")).unwrap();
    let (status, said) = person.runs(BY_OPTIONS);
    assert!(status == 2 && said.contains("cannot be read"), "{said}");
    fs::remove_dir(person.home().join("ken.toml")).unwrap();
    // A key is not written through a link, and not into a file that others read.
    person.write("elsewhere", "", 0o600);
    symlink("elsewhere", person.home().join("secrets.env")).unwrap();
    let (status, said) = person.runs(BY_OPTIONS);
    assert!(status == 2 && said.contains("is a symbolic link") && person.read("elsewhere").is_empty(), "{said}");
    fs::remove_file(person.home().join("secrets.env")).unwrap();
    person.write("secrets.env", "A=1\n", 0o644);
    let (status, said) = person.runs(BY_OPTIONS);
    assert!(status == 2 && said.contains("others can read it") && person.read("secrets.env") == "A=1\n", "{said}");
    fs::remove_file(person.home().join("secrets.env")).unwrap();
    // A link at ken.toml stays, because people keep their configuration elsewhere.
    person.write("dotfile", "# mine\n", 0o644);
    symlink("dotfile", person.home().join("ken.toml")).unwrap();
    person.succeeds(BY_OPTIONS);
    assert!(fs::symlink_metadata(person.home().join("ken.toml")).unwrap().is_symlink());
    assert_eq!(person.read("dotfile"), "# mine\n[model]\nuse = \"openai/quick-1,rules\"\n");
}

#[test]
fn a_running_system_takes_another_model_at_once() {
    let person = Person::new();
    person.succeeds(BY_OPTIONS);
    person.succeeds("ken up --port 0 --cognitive-port 0 -d");
    let first = person.succeeds("ken chat 'Which are you?'");
    let said = person.succeeds("ken model use openai/deep-1,rules");
    let second = person.succeeds("ken chat 'Which are you?'");
    let again = person.succeeds("ken setup --provider openai --model quick-1 --yes");
    let third = person.succeeds("ken chat 'Which are you?'");
    person.succeeds("ken down");
    assert_eq!(
        (first.as_str(), second.as_str(), third.as_str()),
        ("I am quick-1.\n", "I am deep-1.\n", "I am quick-1.\n")
    );
    assert!(said.contains("the running system uses openai/deep-1 from now on"), "{said}");
    assert!(again.contains("the running system uses openai/quick-1 from now on"), "{again}");
    assert_eq!(person.read("ken.toml"), "[model]\nuse = \"openai/quick-1,openai/deep-1,rules\"\n");
}

/// A server that needs no key, at an address of one's own.
#[test]
fn a_server_of_ones_own_is_set_up_by_its_address() {
    let person = Person::new();
    // Another ken may run on this machine, with the usual ports.
    person.write("ken.toml", "[gateway]\nport = 0\n\n[cognitive]\nport = 0\n", 0o600);
    let server = Provider::answering(|request| match request.header("authorization") {
        None => Reply::Stream(openai(&["I am here."], &[])),
        Some(_) => refusal(400, Vec::new(), "unexpected", "a key was sent"),
    });
    let line = format!("ken setup --provider box --address {}/v1 --model m --yes", server.url());
    let said = person.succeeds(&format!("unset OPENAI_BASE_URL; {line}"));
    assert!(said.contains("answered in") && said.contains("nothing is wrong"), "{said}");
    person.succeeds("unset OPENAI_BASE_URL; ken up --port 0 --cognitive-port 0 -d");
    let answer = person.succeeds("ken chat 'Where are you?'");
    person.succeeds("ken down");
    assert_eq!(answer, "I am here.\n");
    let address = format!("{}/v1", server.url());
    let table = format!("[model.provider.box]\nkind = \"openai\"\nbase_url = \"{address}\"\n");
    let config = person.read("ken.toml");
    assert!(config.contains("use = \"box/m,rules\"") && config.contains(&table), "{config}");
}

/// A second provider is added beside the first one, and its key is read from standard input.
#[test]
fn a_provider_is_added_tried_and_chosen() {
    let person = Person::new();
    person.write("ken.toml", "# mine\n[gateway]\nport = 0 # any\n", 0o600);
    let address = format!("{}/v1", person.provider.url());
    let line = format!("ken model add my-box --base-url {address} --key BOX_KEY --model quick-1");
    let said = person.succeeds(&format!("echo {KEY} | {line}"));
    assert!(said.contains("my-box/quick-1 answered in "), "{said}");
    assert!(said.contains("`ken model use my-box/quick-1,rules` chooses it"), "{said}");
    let table = format!(
        "[model.provider.my-box]\nkind = \"openai\"\nbase_url = \"{address}\"\nkey = \"BOX_KEY\"\nmodels = [\"quick-1\"]\n"
    );
    let config = person.read("ken.toml");
    assert!(config.starts_with("# mine\n[gateway]\nport = 0 # any\n") && config.ends_with(&table), "{config}");
    assert_eq!(person.read("secrets.env"), format!("BOX_KEY={KEY}\n"));
    assert_eq!((person.mode("ken.toml"), person.mode("secrets.env")), (0o600, 0o600));
    // Again it changes nothing, and asks for no key.
    assert!(person.succeeds(&line).contains("is there already, nothing was changed"));
    // A wrong key is said, and so is that it replaces the other one.
    let (status, said) = person.runs(&format!("echo sk-planted-but-wrong | {line} --key-stdin"));
    assert!(status != 0 && said.contains("BOX_KEY is replaced") && said.contains("Incorrect API key"), "{said}");
    person.succeeds(&format!("echo {KEY} | {line} --key-stdin"));
    person.succeeds("ken model use my-box/deep-1,rules");
    person.succeeds("ken up --port 0 --cognitive-port 0 -d");
    let answer = person.succeeds("ken chat 'Which are you?'");
    person.succeeds("ken down");
    assert_eq!(answer, "I am deep-1.\n");
}

/// The variable outranks the file, so the command says that its change has no effect.
#[test]
fn a_system_with_models_of_its_environment_is_told_from_one_that_has_taken_them() {
    let person = Person::new();
    let system = Builder::default().env("KEN_MODEL", "rules").start();
    let line = format!("ken --home {} model use openai/quick-1,rules", system.home().display());
    let said = person.succeeds(&line);
    assert!(said.contains("uses rules/rules-1 instead: the variable KEN_MODEL"), "{said}");
}
