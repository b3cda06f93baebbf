//! `ken knowledge`: import of folders, the origin of an entry, and the turns that used it.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use ken_tests::{Builder, System};
use serde_json::{Value, json};

/// Runs an import. Returns its one line of JSON from standard output, standard error and the exit status.
fn import(system: &System, folder: &Path, flags: &[&str]) -> (Value, String, i32) {
    let folder = folder.to_str().unwrap();
    let output = system.ken(&[&["knowledge", "import", "--json"], flags, &[folder]].concat());
    let text = String::from_utf8(output.stdout).unwrap();
    let report = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text}{:?}", output.stderr));
    (report, String::from_utf8(output.stderr).unwrap(), output.status.code().unwrap())
}

fn lines(system: &System, arguments: &[&str]) -> Vec<Value> {
    let output = system.ken(arguments);
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn counts(report: &Value) -> [u64; 6] {
    ["files", "changed", "added", "removed", "kept", "gone"].map(|name| report[name].as_u64().unwrap())
}

/// Id, title, path and line of each imported entry, in the order of path and line.
fn imported(system: &System) -> Vec<(String, String, String, u64)> {
    let listed = lines(system, &["knowledge", "list", "--json", "-n", "100", "--by", "import"]);
    let mut entries: Vec<_> = listed
        .iter()
        .map(|entry| {
            let text = |at: &str| entry.pointer(at).unwrap().as_str().unwrap().to_owned();
            let line = entry.pointer("/metadata/line").unwrap().as_u64().unwrap();
            (text("/id"), text("/title"), text("/metadata/path"), line)
        })
        .collect();
    entries.sort_by_key(|(_, _, path, line)| (path.clone(), *line));
    entries
}

#[test]
fn a_folder_is_imported_and_later_only_its_changes() {
    let system = System::start();
    let notes = tempfile::tempdir().unwrap();
    let at = |name: &str| notes.path().join(name);
    let filler = "The machine hall is cleaned on Mondays and inspected on Fridays.\n".repeat(50);
    let guide = format!("# Guide\n\n{filler}\n## Valves\n\nThe red valve opens at 40 bar.\n\n## Pumps\n\n{filler}");
    fs::create_dir(at("deep")).unwrap();
    fs::create_dir(at(".git")).unwrap();
    fs::write(at(".git/notes.md"), "hidden").unwrap();
    fs::write(at("deep/guide.md"), &guide).unwrap();
    fs::write(at("tea.md"), "---\ntitle: Green tea\ntags: [kitchen]\n---\nIt brews at 80 degrees.\n").unwrap();
    fs::write(at("picture.png"), [0_u8, 1]).unwrap();
    let (report, stderr, status) = import(&system, notes.path(), &[]);
    assert_eq!((stderr.as_str(), status), ("", 0), "{report}");
    assert_eq!(counts(&report), [2, 2, 4, 0, 0, 0]);
    let first = imported(&system);
    let shown: Vec<_> = first.iter().map(|(_, title, path, line)| (title.as_str(), path.as_str(), *line)).collect();
    assert_eq!(
        shown,
        [
            ("Guide", "deep/guide.md", 1),
            ("Guide › Valves", "deep/guide.md", 54),
            ("Guide › Pumps", "deep/guide.md", 58),
            ("Green tea", "tea.md", 5),
        ]
    );
    let record = &lines(&system, &["knowledge", "show", "--json", &first[3].0])[0];
    assert_eq!((&record["tags"], &record["content"]), (&json!(["kitchen"]), &json!("It brews at 80 degrees.")));
    assert_eq!(record["metadata"]["folder"], notes.path().canonicalize().unwrap().to_str().unwrap());

    // At first nothing has changed. Then one section changes, and the lines of later sections move.
    assert_eq!(counts(&import(&system, notes.path(), &[]).0), [2, 0, 0, 0, 0, 0]);
    assert_eq!(imported(&system), first);
    fs::write(at("deep/guide.md"), guide.replace("40 bar.", "45 bar.\nSlowly.")).unwrap();
    assert_eq!(counts(&import(&system, notes.path(), &[]).0), [2, 1, 1, 1, 2, 0]);
    let second = imported(&system);
    assert_eq!((&second[0], &second[3]), (&first[0], &first[3]));
    assert_eq!((&second[2].0, second[2].3), (&first[2].0, 59));
    assert_ne!(second[1].0, first[1].0);
    let found = lines(&system, &["knowledge", "search", "--json", "valve", "bar"]);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0]["content"].as_str().unwrap().contains("45 bar"));

    // If only the tags have changed, the entry keeps its id, and is found only by the new tags.
    let tea = fs::read_to_string(at("tea.md")).unwrap();
    fs::write(at("tea.md"), tea.replace("[kitchen]", "[pantry, hot]")).unwrap();
    assert_eq!(counts(&import(&system, notes.path(), &[]).0), [2, 1, 0, 0, 1, 0]);
    assert_eq!(imported(&system)[3], first[3]);
    let record = &lines(&system, &["knowledge", "show", "--json", &first[3].0])[0];
    assert_eq!(record["tags"], json!(["pantry", "hot"]));
    let found = |word| lines(&system, &["knowledge", "search", "--json", word]).len();
    assert_eq!((found("pantry"), found("kitchen")), (1, 0));

    // Entries of deleted files stay until they are pruned.
    fs::remove_file(at("tea.md")).unwrap();
    assert_eq!(counts(&import(&system, notes.path(), &[]).0), [1, 0, 0, 0, 0, 1]);
    assert_eq!(imported(&system).len(), 4);
    assert_eq!(counts(&import(&system, notes.path(), &["--prune"]).0), [1, 0, 0, 1, 0, 1]);
    assert_eq!(imported(&system).len(), 3);
    assert!(lines(&system, &["knowledge", "search", "--json", "brews"]).is_empty());
    // The output for people.
    let printed = system.ken(&["knowledge", "import", notes.path().to_str().unwrap()]);
    assert_eq!(
        String::from_utf8(printed.stdout).unwrap(),
        "1 file, 0 new or changed: 0 entries added, 0 removed, 0 kept\n"
    );
}

#[test]
fn a_file_has_its_entries_once_whichever_folder_is_imported() {
    let system = System::start();
    let notes = tempfile::tempdir().unwrap();
    let (inner, other) = (notes.path().join("inner"), notes.path().join("inner2"));
    for (folder, name, text) in [(&inner, "a.md", "Apples."), (&inner, "b.md", "Pears."), (&other, "a.md", "Plums.")] {
        fs::create_dir_all(folder).unwrap();
        fs::write(folder.join(name), text).unwrap();
    }
    let paths = || imported(&system).into_iter().map(|(_, _, path, _)| path).collect::<Vec<_>>();
    assert_eq!(counts(&import(&system, &inner, &[]).0), [2, 2, 2, 0, 0, 0]);
    // The folder above takes over, and then the one below again.
    assert_eq!(counts(&import(&system, notes.path(), &[]).0), [3, 3, 3, 2, 0, 0]);
    assert_eq!(paths(), ["inner/a.md", "inner/b.md", "inner2/a.md"]);
    assert_eq!(counts(&import(&system, &inner, &[]).0), [2, 2, 2, 2, 0, 0]);
    assert_eq!(paths(), ["a.md", "b.md", "inner2/a.md"]);
    assert_eq!(counts(&import(&system, &inner, &[]).0), [2, 0, 0, 0, 0, 0]);

    // The entries of a folder that is gone are kept until it is pruned.
    fs::remove_dir_all(&inner).unwrap();
    let path = inner.to_str().unwrap();
    assert_eq!(system.ken(&["knowledge", "import", path]).status.code(), Some(2));
    assert_eq!(paths().len(), 3);
    let pruned = system.command(&["knowledge", "import", "--prune", "inner/."]).current_dir(notes.path()).output();
    assert_eq!(
        String::from_utf8(pruned.unwrap().stdout).unwrap(),
        "0 files, 0 new or changed: 0 entries added, 2 removed, 0 kept\n2 files are gone, and their entries with them\n"
    );
    assert_eq!(paths(), ["inner2/a.md"]);
    let again = system.ken(&["knowledge", "import", "--prune", path]);
    let stderr = String::from_utf8(again.stderr).unwrap();
    assert_eq!(again.status.code(), Some(2));
    assert!(stderr.contains("cannot be opened: No such file"), "{stderr}");
}

#[test]
fn files_that_are_not_text_are_refused_and_named() {
    let system = System::start();
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("secret.md"), "The canary is yellow.").unwrap();
    let notes = tempfile::tempdir().unwrap();
    let at = |name: &str| notes.path().join(name);
    fs::write(at("good.md"), "The good note.").unwrap();
    symlink(outside.path().join("secret.md"), at("out.md")).unwrap();
    symlink(outside.path(), at("folder")).unwrap();
    symlink("nowhere", at("broken.md")).unwrap();
    symlink("good.md", at("within.md")).unwrap();
    fs::write(at("latin.md"), [b'a', 0xe9]).unwrap();
    fs::write(at("nul.md"), "a\0b").unwrap();
    fs::write(at("long.md"), "x\n".repeat(600_000)).unwrap();
    let sections = (0..2_001).map(|number| format!("# Part {number}\n\nIts text.\n\n"));
    fs::write(at("many.md"), sections.collect::<String>()).unwrap();
    let (report, stderr, status) = import(&system, notes.path(), &[]);
    assert_eq!((stderr.as_str(), status), ("", 1));
    let refused: Vec<&str> =
        report["refused"].as_array().unwrap().iter().map(|one| one["path"].as_str().unwrap()).collect();
    assert_eq!(refused, ["broken.md", "folder", "out.md", "latin.md", "long.md", "many.md", "nul.md"]);
    assert_eq!(imported(&system).len(), 1);
    assert!(lines(&system, &["knowledge", "search", "--json", "canary"]).is_empty());
    let printed = system.ken(&["knowledge", "import", notes.path().to_str().unwrap()]);
    let stderr = String::from_utf8(printed.stderr).unwrap();
    assert!(stderr.contains("ken: out.md is left out: it is a link that leads out of the folder\n"), "{stderr}");
    let broken = "ken: broken.md is left out: it is a link that cannot be followed: No such file or directory";
    assert!(stderr.contains(broken), "{stderr}");
    assert!(stderr.contains("ken: many.md is left out: it has 2001 sections; at most 2000 are allowed\n"), "{stderr}");
    assert_eq!(printed.status.code(), Some(1));
    let missing = system.ken(&["knowledge", "import", "/nonexistent"]);
    assert_eq!((missing.status.code(), missing.stdout.len()), (Some(2), 0));
}

/// A folder that is refused may still have its files, so that only those beside it are gone.
#[test]
fn files_below_a_folder_that_is_refused_are_not_pruned() {
    let system = System::start();
    let (notes, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let at = |name: &str| notes.path().join(name);
    // `deep` is as far down as folders are read.
    let deep = (0..32).map(|number| format!("d{number}")).collect::<Vec<_>>().join("/");
    for folder in ["docs/in", "docs.old", &deep] {
        fs::create_dir_all(at(folder)).unwrap();
    }
    for name in ["docs/a.md", "docs/in/b.md", "docs.old/c.md", "docs.md", &format!("{deep}/d.md")] {
        fs::write(at(name), format!("The note {name}.")).unwrap();
    }
    assert_eq!(counts(&import(&system, notes.path(), &[]).0), [5, 5, 5, 0, 0, 0]);
    fs::rename(at("docs"), elsewhere.path().join("docs")).unwrap();
    symlink(elsewhere.path().join("docs"), at("docs")).unwrap();
    fs::create_dir(at("in")).unwrap();
    fs::rename(at("d0"), at("in/d0")).unwrap();
    fs::remove_file(at("docs.old/c.md")).unwrap();
    fs::remove_file(at("docs.md")).unwrap();
    let refused = |report: &Value| {
        let all = report["refused"].as_array().unwrap().iter();
        all.map(|one| one["path"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let (report, _, status) = import(&system, notes.path(), &["--prune"]);
    assert_eq!((refused(&report), status), (vec!["docs".to_owned(), format!("in/{deep}")], 1));
    // The one that is now too deep had another path before.
    assert_eq!(counts(&report), [0, 0, 0, 3, 0, 3], "{report}");
    let left: Vec<String> = imported(&system).into_iter().map(|(_, _, path, _)| path).collect();
    assert_eq!(left, ["docs/a.md", "docs/in/b.md"]);
    // A folder that is gone is one whose files are gone.
    fs::remove_file(at("docs")).unwrap();
    assert_eq!(counts(&import(&system, notes.path(), &["--prune"]).0)[3..], [2, 0, 2]);
}

/// If the program is killed between two batches, the next import continues, and no entry exists twice.
#[test]
fn a_killed_import_is_completed_by_the_next_one() {
    let mut system = System::start();
    let notes = tempfile::tempdir().unwrap();
    for number in 0..300 {
        fs::write(notes.path().join(format!("{number:03}.md")), format!("Fact {number}: the answer is {number}."))
            .unwrap();
    }
    let mut running = system.command(&["knowledge", "import", notes.path().to_str().unwrap()]);
    let mut running = running.stdout(std::process::Stdio::null()).spawn().unwrap();
    ken_tests::until("a batch is in", || !imported(&system).is_empty());
    _ = running.kill();
    running.wait().unwrap();
    system.cut_power();
    system.up();
    let (report, _, status) = import(&system, notes.path(), &[]);
    assert_eq!((report["files"].as_u64(), status), (Some(300), 0));
    assert_eq!(counts(&import(&system, notes.path(), &[]).0), [300, 0, 0, 0, 0, 0]);
    let mut paths = std::collections::BTreeSet::new();
    let mut after = String::new();
    loop {
        let page = system.get(&format!("/api/knowledge?limit=100&source=import{after}")).expect(200).json();
        for record in page["records"].as_array().unwrap() {
            assert!(paths.insert(record["metadata"]["path"].as_str().unwrap().to_owned()), "twice: {record}");
        }
        match page["page"]["after"].as_str() {
            Some(cursor) => after = format!("&after={cursor}"),
            None => break,
        }
    }
    assert_eq!(paths.len(), 300);
}

#[test]
fn an_entry_names_its_turn_and_the_turns_that_used_it() {
    let entry = json!({"title": "Cat", "content": "The cat of Ann is called Mog."});
    let look = json!({"tool": {"name": "knowledge_search", "arguments": {"query": "heron"}}});
    let system = Builder::default()
        .script(&[
            json!({"when": "remember", "after_tools": 0, "events": [{"tool": {"name": "knowledge_add", "arguments": entry}}]}),
            json!({"when": "remember", "after_tools": 1, "events": [{"text": "Done."}]}),
            json!({"when": "look", "after_tools": 0, "events": [look]}),
            json!({"when": "look", "after_tools": 1, "events": [{"text": "I looked."}]}),
            json!({"when": "weather", "events": [{"text": "Nobody knows."}]}),
        ])
        .start();
    let id = |title: &str, content: &str| {
        let record = system.post("/api/knowledge", &json!({"title": title, "content": content})).expect(201);
        record.text("/record/id")
    };
    let (boat, bird) =
        (id("Boat", "The boat sails at noon, whatever the weather."), id("Heron", "The heron eats fish."));
    let say = |text: &str| {
        let body = json!({"connector": "web-api", "actorId": "ann", "conversationId": "one", "text": text});
        let answer = system.post("/api/chat/events", &body).expect(200);
        (answer.text("/submissionId"), answer.text("/event/id"))
    };
    let uses = |id: &str| -> Vec<(String, String, String)> {
        let found = lines(&system, &["knowledge", "why", "--json", &id[..15]]);
        let text = |used: &Value, name: &str| used[name].as_str().unwrap().to_owned();
        found.iter().map(|used| (text(used, "how"), text(used, "submissionId"), text(used, "eventId"))).collect()
    };
    assert_eq!(uses(&boat), []);
    let given = say("what is the weather like");
    let found = say("look for it");
    assert_eq!(uses(&boat), [("given".to_owned(), given.0, given.1)]);
    assert_eq!(uses(&bird), [("found".to_owned(), found.0, found.1)]);
    // An entry that the agent wrote names its turn.
    let (turn, _) = say("remember the cat");
    let written = lines(&system, &["knowledge", "list", "--json", "--by", "agent"]);
    assert_eq!(written.len(), 1);
    assert_eq!(written[0]["createdBy"], format!("orchestrator:{turn}"));
    let table = String::from_utf8(system.ken(&["knowledge", "list", "--by", "agent"]).stdout).unwrap();
    assert!(table.contains(&turn), "{table}");
    let session = written[0]["sessionId"].as_str().unwrap();
    assert_eq!(written[0]["submissionId"], turn);
    let shown = system.ken(&["knowledge", "show", written[0]["id"].as_str().unwrap()]);
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(shown.contains(&format!("session    {session}\nturn       {turn}\n")), "{shown}");
    assert!(system.ken(&["show", &turn]).status.success());
    let by_person = lines(&system, &["knowledge", "list", "--json", "--by", "api"]);
    assert_eq!((by_person.len(), by_person[0].get("sessionId")), (2, None));
    // The exit status is 2 for an unknown id.
    assert_eq!(system.ken(&["knowledge", "why", "kb-ffffffff"]).status.code(), Some(2));
}

/// The engine `rules` names the entries on which its answers are based.
#[test]
fn an_entry_posted_over_http_is_cited_in_the_next_answer() {
    let system = System::start();
    let entry = json!({"title": "Deploy window", "content": "The site is deployed on Tuesdays at 14:00 UTC."});
    let id = system.post("/api/knowledge", &entry).expect(201).text("/record/id");
    let answer = system.say(&system.session(), "When is the site deployed?").expect(200);
    assert!(answer.text("/result/text").contains("[1]"), "{}", answer.json());
    assert_eq!(answer.text("/result/sources/0/id"), id);
    let used = &lines(&system, &["knowledge", "why", "--json", &id])[0];
    assert_eq!((&used["how"], &used["prompt"]), (&json!("cited"), &json!("When is the site deployed?")));
    assert_eq!(used["submissionId"], answer.json()["submissionId"]);
    let table = String::from_utf8(system.ken(&["knowledge", "why", &id]).stdout).unwrap();
    assert!(table.starts_with("AT ") && table.contains("cited"), "{table}");
}
