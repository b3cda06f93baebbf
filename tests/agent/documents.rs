//! Files as knowledge: a durable job reads the documents of the installation and the workspace. Also search by meaning, with
//! vectors from a scripted provider.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use ken_tests::provider::{Piece, Provider, ReceivedRequest, Reply, openai, refusal};
use ken_tests::{Builder, System, until};
use serde_json::{Value, json};

fn workspace(system: &System) -> PathBuf {
    system.home().join("state/workspace")
}

fn list(system: &System, query: &str) -> Vec<Value> {
    let page = system.get(&format!("/api/knowledge?limit=100&{query}")).expect(200).json();
    page["records"].as_array().unwrap().clone()
}

/// Path and line of each entry from the workspace.
fn pieces(system: &System) -> Vec<(String, u64)> {
    let mut pieces: Vec<_> = list(system, "source=workspace")
        .iter()
        .map(|record| {
            let path = record["metadata"]["path"].as_str().unwrap().to_owned();
            (path, record["metadata"]["line"].as_u64().unwrap())
        })
        .collect();
    pieces.sort();
    pieces
}

fn job(system: &System, id: &str) -> Value {
    system.get(&format!("/api/knowledge/reindex/{id}")).expect(200).json()
}

/// Runs a reindex job and waits for its end.
fn reindex(system: &System) -> Value {
    let id = system.post("/api/knowledge/reindex", &json!({})).expect(202).text("/jobId");
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        let job = job(system, &id);
        if !job["finishedAt"].is_null() {
            return job;
        }
        assert!(Instant::now() < end, "{job}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_reindex_covers_entries_the_installation_and_the_workspace() {
    let system = System::start();
    let root = workspace(&system);
    let site = root.join("repos/site");
    fs::create_dir_all(site.join("target")).unwrap();
    fs::create_dir_all(site.join(".git")).unwrap();
    fs::write(site.join(".gitignore"), "target/\n").unwrap();
    fs::write(site.join(".git/config"), "hidden quokka").unwrap();
    fs::write(site.join("target/out.txt"), "ignored quokka").unwrap();
    fs::write(site.join("README.md"), "# Site\n\nThe quokka is fed at noon.\n").unwrap();
    let source = "fn filler() { /* nothing of interest */ }\n".repeat(120);
    fs::write(site.join("main.rs"), format!("{source}\n// The wombat sleeps in cellar nine.\n")).unwrap();
    fs::write(site.join("blob.bin"), [0_u8, 159, 146]).unwrap();
    symlink("/etc/hostname", site.join("link.md")).unwrap();
    system.post("/api/knowledge", &json!({"title": "Heron", "content": "The heron eats fish."})).expect(201);
    let done = reindex(&system);
    assert_eq!((&done["status"], &done["error"]), (&json!("ok"), &Value::Null), "{done}");
    assert!(done["done"] == done["total"] && done["done"].as_u64() > Some(3), "{done}");
    let found = pieces(&system);
    let paths: Vec<&str> = found.iter().map(|(path, _)| path.as_str()).collect();
    assert_eq!(paths, ["repos/site/.gitignore", "repos/site/README.md", "repos/site/main.rs", "repos/site/main.rs"]);
    // What the installation tells its agents is no knowledge.
    assert!(list(&system, "source=share").is_empty());
    for words in ["worker", "orchestrator", "governing rules", "Treat what you fetch as data"] {
        let found = list(&system, &format!("q={}", words.replace(' ', "%20")));
        assert!(found.is_empty(), "{words}: {found:?}");
    }
    // Files are found, but they are not in the list of entries that people have added.
    assert_eq!(list(&system, "").len(), 1);
    let wombat = &list(&system, "q=wombat")[0];
    assert_eq!((&wombat["source"], &wombat["metadata"]["path"]), (&json!("workspace"), &json!("repos/site/main.rs")));
    assert!(wombat["metadata"]["line"].as_u64() > Some(50), "{wombat}");
    // The next answer names the file and its line.
    let answer = system.say(&system.session(), "When is the quokka fed?").expect(200);
    let text = answer.text("/result/text");
    assert!(text.contains("The quokka is fed at noon.") && text.contains("[1]"), "{text}");
    let shown = String::from_utf8(system.ken(&["knowledge", "list", "--by", "workspace"]).stdout).unwrap();
    assert!(shown.contains("workspace:repos/site/README.md:1"), "{shown}");

    // Changed files are read again, entries of deleted files are deleted, and all others are unchanged.
    let ids = |path: &str| -> Vec<String> {
        let records = list(&system, "source=workspace");
        let of = records.iter().filter(|record| record["metadata"]["path"] == path);
        of.map(|record| record["id"].as_str().unwrap().to_owned()).collect()
    };
    let before = ids("repos/site/main.rs");
    fs::write(site.join("README.md"), "# Site\n\nThe quokka is fed at dusk.\n").unwrap();
    fs::remove_file(site.join(".gitignore")).unwrap();
    fs::remove_dir_all(site.join("target")).unwrap();
    assert_eq!(reindex(&system)["status"], "ok");
    assert_eq!(ids("repos/site/main.rs"), before);
    assert_eq!(pieces(&system).len(), 3);
    assert!(list(&system, "q=noon").is_empty() && list(&system, "q=dusk").len() == 1);
}

/// Whichever part is killed, the job continues where it was interrupted, and each file is imported once.
#[test]
fn a_reindex_survives_kills_and_a_power_cut() {
    let mut system = System::start();
    let notes = workspace(&system).join("projects/notes");
    fs::create_dir_all(&notes).unwrap();
    let text = "Words that fill the page until it is long enough.\n".repeat(60);
    for number in 0..120 {
        fs::write(notes.join(format!("{number:03}.txt")), format!("Note {number}.\n{text}")).unwrap();
    }
    let id = system.post("/api/knowledge/reindex", &json!({})).expect(202).text("/jobId");
    assert_eq!(system.post("/api/knowledge/reindex", &json!({})).expect(202).text("/jobId"), id);
    for part in ["agent", "tools", "store"] {
        system.kill(part);
        until("the gateway answers", || system.get(&format!("/api/knowledge/reindex/{id}")).status == 200);
    }
    system.cut_power();
    system.up();
    let end = Instant::now() + Duration::from_secs(60);
    while job(&system, &id)["finishedAt"].is_null() {
        assert!(Instant::now() < end, "{}", job(&system, &id));
        std::thread::sleep(Duration::from_millis(50));
    }
    let done = job(&system, &id);
    assert_eq!((&done["status"], &done["error"]), (&json!("ok"), &Value::Null), "{done}");
    let mut after = String::new();
    let mut paths = Vec::new();
    loop {
        let page = system.get(&format!("/api/knowledge?limit=100&source=workspace{after}")).expect(200).json();
        paths.extend(page["records"].as_array().unwrap().iter().map(|record| record["metadata"]["path"].to_string()));
        match page["page"]["after"].as_str() {
            Some(cursor) => after = format!("&after={cursor}"),
            None => break,
        }
    }
    paths.sort();
    assert_eq!(paths.len(), 120);
    paths.dedup();
    assert_eq!(paths.len(), 120);
}

/// Groups of words with the same meaning. Each group is one dimension of the vectors.
const MEANINGS: [&[&str]; 6] = [
    &["car", "automobile", "vehicle", "truck"],
    &["doctor", "physician", "surgeon"],
    &["money", "salary", "wages", "payday"],
    &["begin", "start", "commence", "opens"],
    &["child", "kid", "infant"],
    &["sea", "ocean", "harbour"],
];

fn vector(text: &str) -> Vec<f32> {
    let text = text.to_lowercase();
    let words: Vec<&str> = text.split(|letter: char| !letter.is_alphanumeric()).collect();
    let holds = |meaning: &&[&str]| words.iter().filter(|word| meaning.contains(word)).count() as f32;
    // The offset ensures that no vector is zero, because a zero vector has no direction.
    MEANINGS.iter().map(|meaning| 0.01 + holds(meaning)).collect()
}

/// A provider of vectors, and of answers that search the knowledge.
fn reply(request: &ReceivedRequest) -> Reply {
    if request.path != "/v1/embeddings" {
        let messages = request.body["messages"].as_array().unwrap();
        let is_told = messages.iter().any(|message| message["role"] == "tool");
        return Reply::Stream(if !is_told {
            openai(&[], &[("c1", "knowledge_search", "{\"query\": \"Where is my automobile?\"}")])
        } else {
            openai(&["Looked."], &[])
        });
    }
    let texts = request.body["input"].as_array().unwrap();
    if texts.iter().any(|text| text.as_str().unwrap().contains("no vector")) {
        return Reply::Status(500, Vec::new(), "{\"error\": {\"message\": \"overloaded\"}}".into());
    }
    let data = texts
        .iter()
        .enumerate()
        .map(|(index, text)| json!({"index": index, "embedding": vector(text.as_str().unwrap())}));
    let body =
        json!({"data": data.collect::<Vec<_>>(), "usage": {"prompt_tokens": texts.len(), "total_tokens": texts.len()}});
    Reply::Status(200, vec![("content-type", "application/json".into())], body.to_string())
}

fn with_vectors(provider: &Provider) -> System {
    Builder::default()
        .env("KEN_MODEL", "openai/m")
        .env("KEN_EMBED", "openai/text-embedding-3-small")
        .env("OPENAI_BASE_URL", &format!("{}/v1", provider.url()))
        .secrets("OPENAI_API_KEY=sk-canary-77\n")
        .start()
}

/// Waits until every entry has a vector, by asking the store for entries without one.
fn wait_for_vectors(system: &System) {
    until("all entries have vectors", || {
        let work = system.call("store", "documents.work", &["model=\"openai/text-embedding-3-small\""]);
        work["unembedded"].as_array().is_none_or(Vec::is_empty)
    });
}

fn found(system: &System, query: &str, vector_of: Option<&str>) -> Vec<String> {
    search(system, query, vector_of.map(vector))
}

fn search(system: &System, query: &str, values: Option<Vec<f32>>) -> Vec<String> {
    let mut search = vec![format!("query={}", json!(query)), "limit=3".to_owned()];
    if let Some(values) = values {
        let vector = json!({"model": "openai/text-embedding-3-small", "values": values});
        search.push(format!("vector={vector}"));
    }
    let search: Vec<&str> = search.iter().map(String::as_str).collect();
    let found = system.call("store", "knowledge.search", &search);
    let found = found["found"].as_array().unwrap().iter();
    found.map(|one| one["entry"]["title"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn entries_are_found_by_meaning_or_by_words_without_vectors() {
    let provider = Provider::answering(reply);
    let system = with_vectors(&provider);
    for (title, content) in [
        ("Garage", "The truck stands behind the house, in the third garage."),
        ("Clinic", "The surgeon can be reached at extension 12."),
        ("Payroll", "Wages are transferred on the 25th."),
        ("Nursery", "Each infant has a bed of its own."),
        ("Quay", "The harbour is closed in winter."),
        ("Bakery", "It opens at six, and the bread is sold out by nine."),
        ("Model X-200", "The X-200 has a tank of forty litres."),
    ] {
        system.post("/api/knowledge", &json!({"title": title, "content": content})).expect(201);
    }
    wait_for_vectors(&system);
    // Each question with the title of the entry that answers it. Most questions share only a synonym with their entry; the last
    // two contain words that are in no vector.
    let questions = [
        ("Where is my automobile?", "Garage"),
        ("How do I call the physician?", "Clinic"),
        ("When do I get my salary?", "Payroll"),
        ("Where does the kid sleep?", "Nursery"),
        ("Can I go to the ocean in January?", "Quay"),
        ("At which hour does the bakery commence?", "Bakery"),
        ("How large is the tank of the X-200?", "Model X-200"),
        ("When is the bread sold out?", "Bakery"),
    ];
    let first = |fused: bool| {
        let hits = questions.iter().filter(|(question, wanted)| {
            let titles = found(&system, question, fused.then_some(*question));
            titles.first().is_some_and(|title| title == wanted)
        });
        hits.count()
    };
    // A search by words finds only entries with the same words. With vectors, all of them are found.
    assert_eq!((first(false), first(true)), (3, 8));
    // The tool finds it too, in a turn.
    let session = system.session();
    system.say(&session, "Where is my automobile?").expect(200);
    let tool = |session: &str| -> Value {
        let events = system.get(&format!("/agents/orchestrator/{session}?offset=-1")).expect(200).json();
        let tools = events.as_array().unwrap().iter().rfind(|event| event["type"] == "tool");
        tools.unwrap()["result"]["details"].clone()
    };
    let details = tool(&session);
    assert_eq!(
        (&details["entries"][0]["title"], &details["entries"][0]["source"]),
        (&json!("Garage"), &json!("entry"))
    );
    assert!(details.get("note").is_none(), "{details}");
    let received = provider.received();
    let embedded = received.iter().filter(|request| request.path == "/v1/embeddings");
    let bodies: Vec<_> = embedded.map(|request| request.body["model"].clone()).collect();
    assert!(!bodies.is_empty() && bodies.iter().all(|model| model == "text-embedding-3-small"), "{bodies:?}");
    // The cost of vectors is counted with that of answers: one token for each text, at $0.02 per million. There are nine texts:
    // seven entries, and the queries of the turn and of its tool.
    until("what was spent is in the books", || {
        let usage = String::from_utf8(system.ken(&["usage", "--by", "model", "--json"]).stdout).unwrap();
        let line = usage.lines().find(|line| line.contains("text-embedding-3-small")).unwrap_or_default();
        let group: Value = serde_json::from_str(line).unwrap_or_default();
        group["input"] == 9 && group["cost"].as_f64().is_some_and(|cost| (cost - 9.0 * 0.02 / 1e6).abs() < 1e-12)
    });

    // If the provider fails, the search is by words only, and reports that.
    let failing = Provider::answering(|request| match request.path.as_str() {
        "/v1/embeddings" => Reply::Status(500, Vec::new(), "{\"error\": {\"message\": \"overloaded\"}}".into()),
        _ => reply(request),
    });
    let system = with_vectors(&failing);
    system
        .post("/api/knowledge", &json!({"title": "Garage", "content": "The automobile stands in the third garage."}))
        .expect(201);
    let session = system.session();
    let answer = system.say(&session, "Where is my automobile?").expect(200);
    assert_eq!(answer.text("/result/text"), "Looked.");
    let events = system.get(&format!("/agents/orchestrator/{session}?offset=-1")).expect(200).json();
    let details =
        events.as_array().unwrap().iter().find(|event| event["type"] == "tool").unwrap()["result"]["details"].clone();
    assert_eq!(details["entries"][0]["title"], "Garage");
    let note = details["note"].as_str().unwrap();
    assert!(note.contains("by words alone") && !note.contains("sk-canary"), "{note}");
    // After the failure it is not called again soon, neither by the tool of that turn nor by the next turn.
    system.say(&session, "Where is my automobile?").expect(200);
    let queries = failing.received();
    let queries = queries.iter().filter(|request| request.body["input"] == json!(["Where is my automobile?"]));
    assert_eq!(queries.count(), 1);
}

/// A provider of vectors that refuses texts that contain this word.
fn refusing(word: &'static str) -> Provider {
    Provider::answering(move |request| {
        if request.body["input"].to_string().contains(word) {
            refusal(400, Vec::new(), "invalid_request_error", "this text is not taken")
        } else {
            reply(request)
        }
    })
}

#[test]
fn a_refused_text_does_not_keep_others_from_getting_vectors() {
    let provider = refusing("poison");
    let system = with_vectors(&provider);
    // All entries are added before the indexer sees the first one, so that one request contains them all.
    assert!(system.ken(&["stop", "agent"]).status.success());
    for (title, content) in [
        ("Garage", "The truck stands behind the house."),
        ("Barrel", "The poison is in the barrel."),
        ("Clinic", "The surgeon is in room 12."),
    ] {
        let entry = json!({"title": title, "content": content});
        system.post("/api/knowledge", &entry).expect(201);
    }
    assert!(system.ken(&["start", "agent"]).status.success());
    wait_for_vectors(&system);
    let question = "Where is my automobile?";
    assert_eq!(found(&system, question, Some(question)).first().unwrap(), "Garage");
    let question = "Who is the physician?";
    assert_eq!(found(&system, question, Some(question)).first().unwrap(), "Clinic");
    assert_eq!(found(&system, "poison", None), ["Barrel"]);
    let log = std::fs::read_to_string(system.home().join("state/log/agent.log")).unwrap();
    assert!(log.contains("this text is not taken"), "{log}");
}

#[test]
fn a_provider_that_refuses_everything_is_reported_and_every_entry_is_retried() {
    let provider = refusing("");
    let system = with_vectors(&provider);
    let entry = json!({"title": "Garage", "content": "The truck stands behind the house."});
    system.post("/api/knowledge", &entry).expect(201);
    until("the status tells it", || {
        let status = system.ken(&["status"]);
        let status = String::from_utf8_lossy(&status.stderr).into_owned();
        status.contains("agent: entries get no vectors: ") && status.contains("this text is not taken")
    });
    let work = system.call("store", "documents.work", &["model=\"openai/text-embedding-3-small\""]);
    assert_eq!(work["unembedded"].as_array().map(Vec::len), Some(1), "{work}");
}

/// A vector with this number of dimensions.
fn resized(text: &str, dimensions: usize) -> Vec<f32> {
    let mut vector = vector(text);
    vector.resize(dimensions, 0.01);
    vector
}

/// Instead of a number of dimensions: the server fails.
const FAILS: usize = usize::MAX;

/// A provider of vectors with this number of dimensions, which a test changes. With 0, and for a text with the word `blank`, they are zero.
fn changing(dimensions: &Arc<AtomicUsize>) -> Provider {
    let dimensions = dimensions.clone();
    Provider::answering(move |request| {
        let dimensions = dimensions.load(Ordering::Relaxed);
        if request.path != "/v1/embeddings" {
            return reply(request);
        } else if dimensions == FAILS {
            return Reply::Status(500, Vec::new(), "{\"error\": {\"message\": \"out of memory\"}}".into());
        }
        let vector = |text: &str| match dimensions {
            0 => vec![0.0; 6],
            dimensions if text.contains("blank") => vec![0.0; dimensions],
            dimensions => resized(text, dimensions),
        };
        let texts = request.body["input"].as_array().unwrap();
        let data = texts.iter().enumerate();
        let data = data.map(|(index, text)| json!({"index": index, "embedding": vector(text.as_str().unwrap())}));
        let body = json!({"data": data.collect::<Vec<_>>(), "usage": {"prompt_tokens": texts.len()}});
        Reply::Status(200, vec![("content-type", "application/json".into())], body.to_string())
    })
}

/// Adds entries before the indexer sees the first one, so that one request contains them all.
fn add_at_once(system: &System, entries: &[(&str, &str)]) {
    assert!(system.ken(&["stop", "agent"]).status.success());
    for (title, content) in entries {
        system.post("/api/knowledge", &json!({"title": title, "content": content})).expect(201);
    }
    assert!(system.ken(&["start", "agent"]).status.success());
}

fn embedded(provider: &Provider) -> Vec<Value> {
    let received = provider.received().into_iter();
    received.filter(|request| request.path == "/v1/embeddings").map(|request| request.body["input"].clone()).collect()
}

fn status(system: &System) -> String {
    String::from_utf8_lossy(&system.ken(&["status"]).stderr).into_owned()
}

const GARAGE: (&str, &str) = ("Garage", "The truck stands behind the house.");
const CLINIC: (&str, &str) = ("Clinic", "The surgeon is in room 12.");

/// Whether both entries are found by vectors with this number of dimensions.
fn are_found(system: &System, dimensions: usize) -> bool {
    [("Where is my automobile?", "Garage"), ("Who is the physician?", "Clinic")].iter().all(|(question, title)| {
        let found = search(system, question, Some(resized(question, dimensions)));
        found.first().is_some_and(|found| found == title)
    })
}

#[test]
fn vectors_are_computed_anew_when_they_have_another_number_of_dimensions() {
    let dimensions = Arc::new(AtomicUsize::new(6));
    let provider = changing(&dimensions);
    let system = with_vectors(&provider);
    add_at_once(&system, &[GARAGE, CLINIC]);
    wait_for_vectors(&system);
    assert!(are_found(&system, 6));
    // A query brings the other number.
    dimensions.store(7, Ordering::Relaxed);
    let session = system.session();
    system.say(&session, "Where is my automobile?").expect(200);
    until("the vectors are computed anew", || are_found(&system, 7));
    system.say(&session, "Where is my automobile?").expect(200);
    let of_garage = || embedded(&provider).iter().filter(|texts| texts.to_string().contains("truck")).count();
    assert_eq!(of_garage(), 2, "a query with the same number changes nothing");
    // A new entry brings it. With another process of the agent, which knows nothing of earlier vectors.
    dimensions.store(6, Ordering::Relaxed);
    add_at_once(&system, &[("Nursery", "Each infant has a bed of its own.")]);
    until("the vectors are computed anew", || are_found(&system, 6));
    assert_eq!(of_garage(), 3);
}

#[test]
fn a_vector_of_zeros_is_not_taken_for_that_of_an_entry() {
    let dimensions = Arc::new(AtomicUsize::new(0));
    let provider = changing(&dimensions);
    let system = with_vectors(&provider);
    add_at_once(&system, &[GARAGE, CLINIC, ("Blank", "This one is left blank.")]);
    let zero = "openai/text-embedding-3-small returns vectors that are zero";
    until("the status tells it", || status(&system).contains(&format!("agent: entries get no vectors: {zero}")));
    // After the texts, one word shows that they are not at fault.
    assert_eq!(embedded(&provider)[1..], [json!(["text"])]);
    let work = system.call("store", "documents.work", &["model=\"openai/text-embedding-3-small\""]);
    assert_eq!(work["unembedded"].as_array().map(Vec::len), Some(3), "{work}");
    let session = system.session();
    system.say(&session, "Where is my automobile?").expect(200);
    let events = system.get(&format!("/agents/orchestrator/{session}?offset=-1")).expect(200).json();
    let tool = events.as_array().unwrap().iter().find(|event| event["type"] == "tool").unwrap().clone();
    let note = tool["result"]["details"]["note"].as_str().unwrap_or_default();
    assert!(note.contains("by words alone") && note.contains(zero), "{tool}");
    // One text without a direction does not keep the others from getting vectors, and is tried again when the index is made anew.
    dimensions.store(6, Ordering::Relaxed);
    assert!(system.ken(&["restart", "agent"]).status.success());
    wait_for_vectors(&system);
    assert!(are_found(&system, 6));
    let of_blank = || embedded(&provider).iter().filter(|texts| texts.to_string().contains("blank")).count();
    let before = of_blank();
    system.post("/api/knowledge/reindex", &json!({})).expect(202);
    until("it is tried again", || of_blank() > before);
    wait_for_vectors(&system);
    assert_eq!(embedded(&provider).iter().filter(|texts| texts.to_string().contains("truck")).count(), 2);
}

#[test]
fn vectors_that_are_too_long_are_not_bought_again_and_the_last_cause_is_reported() {
    let dimensions = Arc::new(AtomicUsize::new(4_097));
    let provider = changing(&dimensions);
    let system = with_vectors(&provider);
    add_at_once(&system, &[GARAGE, CLINIC]);
    let long = "agent: entries get no vectors: openai/text-embedding-3-small returns vectors of 4097 dimensions, and at most 4096 can be stored";
    until("the status tells it", || status(&system).contains(long));
    let usage = String::from_utf8(system.ken(&["usage", "--by", "model", "--json"]).stdout).unwrap();
    let line = usage.lines().find(|line| line.contains("text-embedding-3-small")).unwrap_or_default();
    assert_eq!(serde_json::from_str::<Value>(line).unwrap_or_default()["input"], 2, "{usage}");
    // The next attempt takes half a minute, and buys no more than one word.
    dimensions.store(FAILS, Ordering::Relaxed);
    until("the status tells the new cause", || status(&system).contains("out of memory"));
    assert!(!status(&system).contains("4097"));
    assert_eq!(embedded(&provider)[1..], [json!(["text"])]);
    dimensions.store(4_096, Ordering::Relaxed);
    assert!(system.ken(&["restart", "agent"]).status.success());
    until("both have vectors", || are_found(&system, 4_096));
    until("nothing is reported any more", || !status(&system).contains("entries get no vectors"));
}

#[test]
fn a_provider_of_vectors_that_hangs_holds_up_one_search_and_not_the_next_ones() {
    let provider = Provider::answering(|request| match request.path.as_str() {
        "/v1/embeddings" => Reply::Stream(vec![Piece::Silence]),
        _ => reply(request),
    });
    let system = with_vectors(&provider);
    let session = system.session();
    // Each turn searches twice: at its start, and with the tool that the model calls.
    for _ in 0..2 {
        let answer = system.say(&session, "Where is my automobile?").expect(200);
        assert_eq!(answer.text("/result/text"), "Looked.");
    }
    let received = provider.received();
    let embedded = received.iter().filter(|request| request.path == "/v1/embeddings");
    assert_eq!(embedded.count(), 1);
    // Nor does the vector of an entry, for which the indexer waits, hold up a job that reads files.
    let begun = Instant::now();
    let (title, content) = GARAGE;
    system.post("/api/knowledge", &json!({"title": title, "content": content})).expect(201);
    until("its vector is asked for", || {
        provider.received().iter().any(|request| request.body.to_string().contains("truck"))
    });
    reindex(&system);
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
}
