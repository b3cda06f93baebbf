//! A person asks what ken did: the page of a turn, why it ended as it did, what it changed, and every id on the way.

use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use ken_tests::bot_api::{BotApi, SECRET, TOKEN};
use ken_tests::provider::{Provider, ReceivedRequest, Reply, openai, refusal};
use ken_tests::{Builder, Client, System, Terminal, binary, until};
use serde_json::{Value, json};

const WRONG: &str = "echo $(($1 - $2))\n";
const PROMPT: &str = "sum.sh is wrong.";
const TASK: &str = "Repair sum.sh.";

/// A model that gives the repair to the coding worker, which edits and commits. The model `gone` does not exist.
fn repairing() -> Provider {
    Provider::answering(|request: &ReceivedRequest| {
        if request.body["model"] == "gone" {
            return refusal(404, Vec::new(), "model_not_found", "there is no model gone");
        }
        let messages = request.body["messages"].as_array().unwrap();
        let asked = request.prompt().to_string();
        let last_prompt = messages.iter().rposition(|message| message["role"] == "user").unwrap();
        let results = messages[last_prompt..].iter().filter(|message| message["role"] == "tool").count();
        let edit = json!({"path": "repos/site/sum.sh", "old": "$1 - $2", "new": "$1 + $2"});
        let commit = json!({"repo": "repos/site", "message": "Add instead of \u{1b}[2Jsubtracting"});
        let (text, call) = match (asked.contains(TASK), asked.contains(PROMPT), results) {
            (true, _, 0) => ("", Some(("edit_file", edit))),
            (true, _, 1) => ("", Some(("git_commit", commit))),
            (true, ..) => ("Repaired.", None),
            (_, true, 0) => ("", Some(("task", json!({"agent": "coding-worker", "prompt": TASK})))),
            (_, true, _) => ("The worker has repaired it.", None),
            _ if asked.contains("Look up") && results == 0 => {
                ("", Some(("knowledge_search", json!({"query": "cellar"}))))
            }
            _ if asked.contains("Look up") => {
                // The number is that of the result, as a model reads it.
                let result = messages.last().unwrap()["content"].as_str().unwrap();
                let number = result.split("\"number\":").nth(1).unwrap().split([',', '}']).next().unwrap();
                return Reply::Stream(openai(&[&format!("It is in the cellar [{number}].")], &[]));
            }
            _ if asked.contains("router") => {
                let sources = messages[last_prompt]["content"].as_str().unwrap();
                assert!(sources.contains("[1] \"The router\""), "{sources}");
                ("The router is called Kepler [1].", None)
            }
            _ => ("Hello.", None),
        };
        let call = call.map(|(name, arguments)| (name, arguments.to_string()));
        let calls: Vec<_> = call.iter().map(|(name, arguments)| ("call_1", *name, arguments.as_str())).collect();
        Reply::Stream(openai(&[text], &calls))
    })
}

fn start(provider: &Provider, models: &str) -> System {
    let system = Builder::default()
        .env("KEN_MODEL", models)
        .env("OPENAI_BASE_URL", &format!("{}/v1", provider.url()))
        .secrets("OPENAI_API_KEY=none\n")
        .start();
    std::fs::create_dir_all(site(&system)).unwrap();
    std::fs::write(site(&system).join("sum.sh"), WRONG).unwrap();
    git(&system, &["init", "-q", "-b", "main"]);
    git(&system, &["add", "."]);
    git(&system, &["commit", "-q", "-m", "First"]);
    system
}

fn site(system: &System) -> PathBuf {
    system.home().join("state/workspace/repos/site")
}

fn git(system: &System, words: &[&str]) {
    let words = [&["-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "safe.directory=*"], words].concat();
    assert!(Command::new("git").args(words).current_dir(site(system)).status().unwrap().success());
}

fn output(system: &System, words: &[&str]) -> (String, String, i32) {
    let Output { status, stdout, stderr } = system.ken(words);
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (text(stdout), text(stderr), status.code().unwrap())
}

#[track_caller]
fn done(system: &System, words: &[&str]) -> String {
    let (stdout, stderr, status) = output(system, words);
    assert_eq!(status, 0, "{words:?}: {stdout}{stderr}");
    stdout
}

#[track_caller]
fn refused(system: &System, words: &[&str]) -> String {
    let (stdout, stderr, status) = output(system, words);
    assert_eq!((stdout.as_str(), status), ("", 2), "{words:?}: {stderr}");
    stderr
}

fn chat(system: &System, text: &str) -> Child {
    system.command(&["chat", text]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Approves with what `ken approvals` prints until the turn has ended. Returns the ids.
fn approve_all(system: &System, chat: &mut Child) -> Vec<String> {
    let mut seen = Vec::new();
    until("the turn has ended", || {
        let waiting = done(system, &["approvals"]);
        if let Some(id) = waiting.lines().nth(1).and_then(|line| line.split(' ').next()) {
            // The end of the id is what a person copies or reads aloud.
            if output(system, &["approve", &id[id.len() - 6..]]).2 == 0 {
                seen.push(id.to_owned());
            }
        }
        chat.try_wait().unwrap().is_some()
    });
    seen
}

/// What bash offers at the end of these words, the last of which may be empty.
fn offered(system: &System, words: &[&str]) -> Vec<String> {
    let script = "source <(ken completions bash) && COMP_WORDS=(ken \"$@\") && COMP_CWORD=$# && cur=${COMP_WORDS[COMP_CWORD]} \
                  && _ken_values ken \"$cur\" \"${COMP_WORDS[COMP_CWORD-1]}\" && printf '%s\\n' \"${COMPREPLY[@]}\"";
    let programs = binary("ken").parent().unwrap().display().to_string();
    let mut bash = Command::new("bash");
    bash.args(["--norc", "-c", script, "bash"]).args(words);
    bash.env("KEN_HOME", system.home()).env("PATH", format!("{programs}:/usr/bin:/bin"));
    let Output { status, stdout, stderr } = bash.output().unwrap();
    assert!(status.success() && stderr.is_empty(), "{words:?}: {}", String::from_utf8_lossy(&stderr));
    String::from_utf8(stdout).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn a_shell_completes_what_the_system_knows_and_is_silent_without_it() {
    let provider = repairing();
    let mut system = start(&provider, "openai/gpt-4o-mini");
    done(&system, &["chat", "Hello"]);
    let sessions = done(&system, &["sessions", "--json"]);
    let session = serde_json::from_str::<Value>(sessions.trim()).unwrap()["sessionId"].as_str().unwrap().to_owned();
    let turn = value(&done(&system, &["show", "last"]), "turn ").to_owned();
    done(&system, &["schedule", "add", "nightly", "--cron", "0 3 * * *", "Sum up."]);
    assert_eq!(offered(&system, &["restart", "st"]), ["store"]);
    assert!(offered(&system, &["logs", "store", ""]).contains(&"gateway".to_owned()));
    assert_eq!(offered(&system, &["chat", "-s", "tui-"]), [session.as_str()]);
    assert_eq!(offered(&system, &["chat", "-m", ""]), ["openai/gpt-4o-mini"]);
    assert_eq!(offered(&system, &["schedule", "pause", ""]), ["nightly"]);
    assert_eq!(offered(&system, &["undo", ""]), ["last", turn.as_str()]);
    let shown = offered(&system, &["show", ""]);
    assert!(shown[0] == "last" && shown.contains(&session) && shown.contains(&turn), "{shown:?}");
    assert!(offered(&system, &["show", "--"]).contains(&"--json".to_owned()), "options stay");
    system.down();
    let since = std::time::Instant::now();
    let silent = system.ken(&["complete", "--", "restart", ""]);
    assert!(silent.status.success() && silent.stdout.is_empty() && silent.stderr.is_empty(), "{silent:?}");
    assert!(since.elapsed() < std::time::Duration::from_secs(2), "{:?}", since.elapsed());
    assert_eq!(output(&system, &["status"]).2, 3, "nothing was started");
}

/// The word after this one at the start of a line.
fn value<'a>(page: &'a str, name: &str) -> &'a str {
    let mut lines = page.lines().filter_map(|line| line.trim_start().strip_prefix(name));
    lines.next().unwrap_or_else(|| panic!("no {name}: {page}")).split_whitespace().next().unwrap()
}

#[test]
fn the_page_of_a_turn_shows_each_step_and_every_id_on_it_is_taken() {
    let provider = repairing();
    let system = start(&provider, "openai/gpt-4o-mini");
    assert!(refused(&system, &["show", "last"]).contains("there is no "), "nothing was done yet");
    assert!(refused(&system, &["undo", "last"]).contains("no run has changed files yet"));
    let mut turn = chat(&system, PROMPT);
    let approvals = approve_all(&system, &mut turn);
    assert_eq!(approvals.len(), 2);

    let page = done(&system, &["show", "last"]);
    let position = |text: &str| page.find(text).unwrap_or_else(|| panic!("{text}: {page}"));
    let order = [
        "status    completed in ",
        "> sum.sh is wrong.\n",
        "model     openai/gpt-4o-mini  9 tokens in, 4 out, $0.0000, ",
        "tool      task agent=coding-worker prompt=\"Repair sum.sh.\"  ",
        "coding-worker:",
        "tool      edit_file new=\"$1 + $2\" old=\"$1 - $2\" path=repos/site/sum.sh  ",
        "Edit repos/site/sum.sh: approved by ",
        "tool      git_commit message=",
        "\nThe worker has repaired it.\n",
        "\nchanged\n  repos/site/sum.sh  +1 -1",
        "  refs/heads/main of repos/site: ",
        "\nused      5 model calls, 3 tool calls, 45 tokens in, 20 out, $",
    ]
    .map(position);
    assert!(order.is_sorted(), "{order:?} {page}");
    assert!(!page.contains('\u{1b}'), "a control character reached the page: {page:?}");
    // Who decided, and when.
    let decision = page.lines().find(|line| line.contains(&approvals[0])).unwrap();
    assert!(decision.contains(", uid ") && decision.contains(", at 20"), "{decision}");

    let (turn, session) = (value(&page, "turn "), value(&page, "session "));
    let whole: Value = serde_json::from_str(&done(&system, &["show", turn, "--json"])).unwrap();
    assert_eq!(
        (&whole["id"], &whole["status"], &whole["files"][0]["added"]),
        (&json!(turn), &json!("completed"), &json!(1))
    );
    assert_eq!(whole["steps"].as_array().unwrap().iter().filter(|step| step["step"] == "approval").count(), 2);
    // A beginning and an end of each id that was printed mean the same.
    for word in [&turn[..8], &turn[turn.len() - 8..]] {
        assert_eq!(done(&system, &["show", word]), page, "{word}");
    }
    for word in [session, &session[..session.len() - 2], &session[session.len() - 8..]] {
        let shown = done(&system, &["show", word]);
        assert!(shown.starts_with("> sum.sh is wrong.\n") && shown.contains(&format!("(turn {turn})")), "{shown}");
        assert!(done(&system, &["usage", "--session", word]).contains("  45  "), "{word}");
    }
    let request = approvals[1].as_str();
    for words in [["show", request], ["show", &request[4..]], ["approvals", &request[request.len() - 6..]]] {
        let shown = done(&system, &words);
        assert!(shown.contains("Commit to main of repos/site") && shown.contains("approved by "), "{shown}");
    }
    // Those that the machine-readable output has, too: the message of the person.
    let exchange: Value = serde_json::from_str(done(&system, &["show", "--json", session]).trim()).unwrap();
    let message = exchange["prompt"]["id"].as_str().unwrap();
    assert_eq!(done(&system, &["show", message]), page);
    for word in ["last", turn, &turn[..8], message, request, &message[message.len() - 6..]] {
        let why = done(&system, &["why", word]);
        assert!(
            why.starts_with("completed: It was done.") && why.contains(&format!("`ken show {turn}`")),
            "{word}: {why}"
        );
    }
    let listed = done(&system, &["approvals", "--all"]);
    assert!(listed.starts_with("ID ") && listed.lines().count() == 3, "{listed}");
    for id in &approvals {
        let line = listed.lines().find(|line| line.contains(id.as_str())).unwrap();
        assert!(line.contains("approved by ") && line.matches("T").count() >= 2, "{line}");
    }
    assert!(done(&system, &["replay", &turn[..8]]).contains("the same, "));

    let diff = done(&system, &["diff", "last"]);
    assert!(diff.contains("-echo $(($1 - $2))\n+echo $(($1 + $2))"), "{diff}");
    for word in [&turn[..8], &turn[turn.len() - 8..]] {
        assert_eq!(done(&system, &["diff", word]), diff, "{word}");
    }
    let undone = done(&system, &["undo", "last"]);
    assert_eq!(std::fs::read_to_string(site(&system).join("sum.sh")).unwrap(), WRONG);
    // The undo names how to have it again, by an id that is taken too.
    let again = undone.lines().last().unwrap().strip_prefix("to have it again: ken undo ").unwrap();
    done(&system, &["undo", &again[again.len() - 8..]]);
    assert_ne!(std::fs::read_to_string(site(&system).join("sum.sh")).unwrap(), WRONG);
}

/// Nobody reads an id in a sentence: an answer names its sources by numbers, and they stand below it in every client.
#[test]
fn an_answer_names_its_sources_by_numbers_and_they_stand_below_it() {
    let provider = repairing();
    let platform = BotApi::start();
    let system = Builder::default()
        .env("KEN_MODEL", "openai/gpt-4o-mini")
        .env("OPENAI_BASE_URL", &format!("{}/v1", provider.url()))
        .env("MESSENGER_API_BASE_URL", &platform.url())
        .env("MESSENGER_APPROVED_USER_IDS", "7")
        .env("MESSENGER_BOT_USERNAME", "ken_bot")
        .secrets(&format!(
            "OPENAI_API_KEY=none\nMESSENGER_BOT_TOKEN={TOKEN}\nMESSENGER_WEBHOOK_SECRET_TOKEN={SECRET}\n"
        ))
        .start();
    let id = done(&system, &["knowledge", "add", "The router", "The router is called Kepler."]).trim().to_owned();
    let line = format!("[1] The router ({})", &id[..15]);
    let shown = format!("The router is called Kepler [1].\n\n{line}\n");
    assert_eq!(done(&system, &["chat", "What is the router called?"]), shown);
    let answer: Value = serde_json::from_str(&done(&system, &["chat", "--json", "And the router?"])).unwrap();
    assert_eq!((&answer["sources"][0]["id"], &answer["sources"][0]["number"]), (&json!(id), &json!(1)), "{answer}");
    let mut print = Command::new(binary("ken-tui"));
    print.env("KEN_HOME", system.home()).args(["--print", "The router?"]).stdin(Stdio::null());
    assert_eq!(String::from_utf8(print.output().unwrap().stdout).unwrap(), shown);
    // The id below the answer is taken, and so is that of the transcript.
    assert!(done(&system, &["show", &id[..15]]).contains("The router is called Kepler."));
    let page = done(&system, &["show", "last"]);
    let source = page.lines().find(|line| line.contains("[1] The router")).unwrap_or_else(|| panic!("{page}"));
    assert!(source.contains(&id) && source.ends_with("  1.00"), "its id and score: {source}");
    assert!(done(&system, &["show", value(&page, "session ")]).contains(&format!("\n{line}\n")));
    for arguments in [&["--plain", "--session"][..], &["--session"]] {
        let mut open = Command::new(binary("ken-tui"));
        open.env("KEN_HOME", system.home()).args(arguments).arg(value(&page, "session "));
        let mut terminal = Terminal::start(&open, 110, 40);
        terminal.wait_for_text(&line);
        terminal.type_line("What is the name of the router?");
        terminal.wait_for_screen("the sources of the new answer", |screen| screen.matches(&line).count() >= 2);
    }
    let message = json!({"message_id": 1, "date": 1, "text": "The router?", "chat": {"id": 7, "type": "private"},
        "from": {"id": 7, "is_bot": false, "first_name": "Ada"}});
    let mut client = Client::connect(system.address());
    let request =
        client.request("POST", "/channels/messenger/webhook").header("X-Telegram-Bot-Api-Secret-Token", SECRET);
    request.json(&json!({"update_id": 1, "message": message})).send().expect(200);
    let texts = || platform.calls("sendMessage").iter().map(|call| call.body["text"].to_string()).collect::<String>();
    until("the chat has the answer", || texts().contains("Kepler [1].") && texts().contains(&line));
    // What a tool has found in the middle of a turn has the next number.
    done(&system, &["knowledge", "add", "The wine", "The wine lies in the cellar."]);
    let found = done(&system, &["chat", "Look up the place."]);
    assert!(found.starts_with("It is in the cellar [") && found.contains("] The wine (kb-"), "{found}");
}

#[test]
fn a_fall_back_is_explained() {
    let provider = repairing();
    let system = start(&provider, "openai/gone,openai/gpt-4o-mini");
    assert_eq!(done(&system, &["chat", "Hello"]), "Hello.\n");
    let why = done(&system, &["why", "last"]);
    assert!(why.starts_with("completed: It was done."), "{why}");
    let failed = why.lines().find(|line| line.contains("openai/gone")).unwrap_or_else(|| panic!("no fall-back: {why}"));
    assert!(
        failed.contains("there is no model gone") && failed.contains("openai/gpt-4o-mini was called instead"),
        "{why}"
    );
    let page = done(&system, &["show", "last"]);
    assert!(
        page.contains("model     openai/gone") && page.contains("failed: ") && page.contains("\nHello.\n"),
        "{page}"
    );
}

/// The answer says that all went well, and a call of the worker has failed: who asks what became of it is told which, and why.
#[test]
fn a_tool_that_failed_is_named_with_its_cause() {
    let provider = repairing();
    let system = start(&provider, "openai/gpt-4o-mini");
    // The text that the worker replaces is not there.
    std::fs::write(site(&system).join("sum.sh"), "echo\n").unwrap();
    let mut turn = chat(&system, PROMPT);
    approve_all(&system, &mut turn);
    let why = done(&system, &["why"]);
    let failed: Vec<&str> = why.lines().filter(|line| line.starts_with("  tool      ")).collect();
    assert!(why.starts_with("completed: It was done, but "), "{why}");
    assert!(failed[0].starts_with("  tool      edit_file: ") && failed[0].contains("repos/site/sum.sh"), "{why}");
}

#[test]
fn an_ambiguous_id_lists_what_it_can_mean_and_an_unknown_one_says_where_ids_are() {
    let provider = repairing();
    let system = start(&provider, "openai/gpt-4o-mini");
    for number in 0..12 {
        done(&system, &["chat", &format!("Hello {number}")]);
    }
    let sessions = done(&system, &["sessions", "--json"]);
    let ids: Vec<String> = sessions
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["sessionId"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(ids.len(), 12);
    for words in
        [&["show", "tui-"][..], &["cancel", "tui-"], &["usage", "--session", "tui-"], &["chat", "-s", "tui-", "x"]]
    {
        let said = refused(&system, words);
        let listed = ids.iter().filter(|id| said.contains(id.as_str())).count();
        assert_eq!(listed, 10, "{words:?}: {said}");
        for text in ["`tui-` can mean several things", "session", "Hello 11", "and more", "Use more of the id."] {
            assert!(said.contains(text), "{words:?}: {text}: {said}");
        }
        assert!(!said.contains("Hello 0"), "the oldest are left out: {said}");
    }
    let older = &ids[11];
    assert!(done(&system, &["show", &older[older.len() - 8..]]).starts_with("> Hello 0\n"));
    assert!(done(&system, &["show", "last"]).contains("> Hello 11\n"));
    for (words, hint) in [
        (&["show", "0123abcd"][..], "`ken sessions`"),
        (&["show", "ab"], "at least 4 characters"),
        (&["why", "0123abcd"], "`ken approvals --all`"),
        (&["approve", "apr_nothing"], "`ken approvals` lists them"),
        (&["approve", "last"], "there is no pending request"),
        (&["undo", "0123abcd"], "`ken-coder journal`"),
        (&["usage", "--session", "0123abcd"], "`ken sessions` lists them"),
    ] {
        let said = refused(&system, words);
        assert!(said.contains(hint) && said.contains("no"), "{words:?}: {said}");
    }
}
