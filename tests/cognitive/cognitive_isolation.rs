//! Workflows over the cognitive server: requests and their failures do not affect other requests. `KEN_TORTURE_SECONDS` sets
//! the length of each load in seconds (default 4; the full test takes 60).

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ken_tests::{Answer, Asker, System, chain, children_of, cognitive, server_with, until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

fn seconds() -> Duration {
    let set = std::env::var("KEN_TORTURE_SECONDS").ok().and_then(|text| text.parse().ok());
    Duration::from_secs(set.unwrap_or(4))
}

/// Starts `clients` threads, each of which sends requests until the returned flag is set.
fn load<F>(system: &System, clients: usize, ask: F) -> (Arc<AtomicBool>, Vec<JoinHandle<()>>)
where
    F: Fn(usize, &mut dyn FnMut() -> Asker, &AtomicBool) + Clone + Send + 'static,
{
    let over = Arc::new(AtomicBool::new(false));
    let threads = (0..clients).map(|number| {
        let (ask, over) = (ask.clone(), over.clone());
        let address = system.cognitive();
        std::thread::spawn(move || ask(number, &mut || Asker::at(address), &over))
    });
    let threads = threads.collect();
    (over, threads)
}

fn join(threads: Vec<JoinHandle<()>>) {
    for thread in threads {
        thread.join().expect("a client");
    }
}

fn verify(system: &System) -> String {
    let output = system.ken(&["audit", "verify"]);
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(0), "{printed}");
    printed
}

/// The processes that the server has started.
fn tools(system: &System) -> Vec<(i32, String)> {
    children_of(system.pid("cognitive"))
}

fn of(name: &str, answer: &Answer, rules: usize) {
    let conclusions = answer.at("/results/REP/conclusions");
    let conclusions = conclusions.as_array().expect("conclusions");
    assert_eq!(conclusions.len(), rules, "{name}");
    for conclusion in conclusions {
        assert!(conclusion.as_str().unwrap().starts_with(&format!("{name} step ")), "{name}: {conclusion}");
    }
    assert_eq!(answer.at("/results/VVP/total_rules"), rules);
    // It contains no text of other requests.
    let text = answer.body_text();
    for piece in text.split("chain-").skip(1) {
        assert!(
            format!("chain-{piece}").starts_with(&format!("{name} ")),
            "{name}: chain-{}",
            &piece[..20.min(piece.len())]
        );
    }
}

#[test]
fn both_paths_and_both_spellings_give_the_same_result() {
    let system = cognitive().start();
    let body = chain("chain-1", 3);
    let mut old = json!({"protocol_names": ["ESL", "REP", "VVP"], "coordination_mode": "sequential"});
    old["initial_data"] = body["data"].clone();
    let mut answers = Vec::new();
    for target in ["/v1/execute", "/execute"] {
        for body in [&body, &old] {
            let answer = system.asker().post(target, body).expect(200);
            of("chain-1", &answer, 3);
            answers.push((answer.at("/results"), answer.at("/governance_summary")));
        }
    }
    assert!(answers.windows(2).all(|pair| pair[0] == pair[1]));
    assert_eq!(answers[0].1["is_coherent"], true);
    assert!(answers[0].1["quality_scores"]["REP"].as_f64().unwrap() > 0.6);
}

/// The shipped workflows, and one of the user, which is available as soon as its file exists.
#[test]
fn workflows_are_found_by_name() {
    let system = cognitive().start();
    let mut asker = system.asker();
    let data = chain("chain-1", 3)["data"].clone();
    for (name, steps) in [("StandardReasoningWorkflow", 3), ("analyze_only", 2), ("full_governance", 4)] {
        for field in ["workflow", "template_name"] {
            let answer = asker.post("/v1/execute", &json!({field: name, "data": data})).expect(200);
            assert_eq!(answer.text("/workflow"), name);
            assert!(answer.at("/results").as_object().unwrap().len() >= steps, "{name}");
        }
    }
    let folder = system.home().join("workflows");
    // kend has made it, as there is no rule for a folder that does not exist.
    assert!(folder.is_dir());
    fs::write(folder.join("mine.json"), r#"{"name": "mine", "steps": [{"step": "ESL", "id": "mood"}]}"#).unwrap();
    fs::write(folder.join("torn.json"), r#"{"name": "torn", "steps": [{"step": "XYZ"}]}"#).unwrap();
    let mine = json!({"workflow": "mine", "data": {"text": "Fine."}});
    assert!(asker.post("/v1/execute", &mine).expect(200).at("/results/mood").is_object());
    let planted = json!({"workflow": "mine", "data": {"text": "Fine.", "mood": {}}});
    assert_eq!(asker.post("/v1/execute", &planted).expect(400).at("/error/at"), "/data/mood");
    let torn = asker.post("/v1/execute", &json!({"workflow": "torn", "data": {}})).expect(503);
    let printed = torn.text("/error/message");
    assert!(printed.contains("torn.json") && printed.contains("XYZ"), "{printed}");
    let templates = asker.get("/v1/templates").expect(200).json();
    assert_eq!(templates["mine"]["steps"], json!([{"id": "mood", "protocol": "ESL"}]));
    assert!(templates["torn"]["error"]["at"] == "/steps/0/step" && templates["full_reasoning"].is_object());
}

#[test]
fn a_wrong_request_is_explained_and_changes_nothing() {
    let system = cognitive().start();
    let mut asker = system.asker();
    for (body, status, at) in [
        (json!({}), 422, "/workflow"),
        (json!({"workflow": "nowhere"}), 404, "/workflow"),
        (json!({"workflow": 7}), 422, "/workflow"),
        (json!({"template_name": "../x"}), 404, "/template_name"),
        (json!({"workflow": "a", "template_name": "a"}), 422, "/template_name"),
        (json!({"workflow": "a", "protocol_names": ["ESL"]}), 422, "/protocol_names"),
        (json!({"protocol_names": []}), 422, "/protocol_names"),
        (json!({"protocol_names": ["ESL", "XYZ"]}), 422, "/protocol_names/1"),
        (json!({"protocol_names": ["ESL"], "coordination_mode": "both"}), 422, "/coordination_mode"),
        (json!({"protocol_names": ["ESL"], "data": []}), 422, "/data"),
        (json!({"protocol_names": ["ESL"], "data": {}, "initial_data": {}}), 422, "/initial_data"),
        (
            json!({"protocol_names": ["ESL"], "data": {"text": "x", "governance": {"is_coherent": true}}}),
            400,
            "/data/governance",
        ),
        (json!({"protocol_names": ["ESL"], "data": {"text": "x", "ESL": {"valence": "positive"}}}), 400, "/data/ESL"),
        (json!({"protocol_names": ["ESL"], "initial_data": {"results": {}}}), 400, "/initial_data/results"),
        (json!({"protocol_names": ["ESL"], "data": {}, "session_id": "../x"}), 422, "/session_id"),
        (json!({"protocol_names": ["ESL"], "priority": 1}), 422, "/priority"),
    ] {
        let answer = asker.post("/v1/execute", &body);
        assert_eq!(answer.status, status, "{body}: {}", answer.body_text());
        assert_eq!(answer.at("/error/at"), at, "{body}");
    }
    for (text, status, at) in [
        ("", 422, "/workflow"),
        ("[]", 422, ""),
        (r#"{"workflow":"a","workflow":"a"}"#, 400, ""),
        (r#"{"protocol_names":["ESL"],"data":{"a":1,"a":2}}"#, 422, "/data/a"),
    ] {
        let answer = asker.request("POST", "/v1/execute").body(text).send().expect(status);
        assert_eq!(answer.at("/error/at").as_str().unwrap_or_default(), at, "{text}");
    }
    for mode in ["parallel", "Sequential", "PARALLEL"] {
        let body = json!({"protocol_names": ["ESL", "LAWS"], "coordination_mode": mode, "data": {"text": "x"}, "session_id": "s-1"});
        asker.post("/v1/execute", &body).expect(200);
    }
    // The schema of a workflow is checked before a step runs; the data can be any value that the schema allows.
    for (data, at) in [
        (json!({}), "/data"),
        (json!([]), "/data"),
        (json!({"text": 7}), "/data/text"),
        (json!({"text": "x", "rules": [[["a"], "b"], 7]}), "/data/rules/1"),
    ] {
        let body = json!({"workflow": "StandardReasoningWorkflow", "data": data});
        let answer = asker.post("/v1/execute", &body).expect(422);
        assert_eq!(answer.at("/error/at"), at, "{}", answer.body_text());
    }
    let folder = system.home().join("workflows");
    fs::create_dir_all(&folder).unwrap();
    fs::write(
        folder.join("listed.json"),
        r#"{"name": "listed", "schema": {"type": "array", "items": {"type": "string"}},
            "steps": [{"step": "ESL", "input": {"user_input": "{{/data/0}}"}}]}"#,
    )
    .unwrap();
    let listed = |data: Value| json!({"workflow": "listed", "data": data});
    let answer = asker.post("/v1/execute", &listed(json!(["I am glad."]))).expect(200);
    assert_eq!(answer.at("/results/ESL/valence"), "positive");
    let answer = asker.post("/v1/execute", &listed(json!(["a", 1]))).expect(422);
    assert_eq!(answer.at("/error/at"), "/data/1");
    // If a tool refuses its input, the results of the other steps are kept.
    let answer = asker
        .post("/v1/execute", &json!({"protocol_names": ["ESL", "REP"], "data": {"text": "Fine.", "rules": 7}}))
        .expect(422);
    assert_eq!(answer.text("/status"), "failed");
    assert!(answer.at("/results/ESL").is_object() && answer.at("/detail").is_string());
}

#[test]
fn a_session_belongs_to_its_owner() {
    let system = cognitive().start();
    for (key, user) in [("annas-key-1", "anna"), ("berts-key-1", "bert")] {
        let body = json!({"api_key": key, "user_id": user});
        system.asker().post("/admin/api-keys", &body).expect(201);
    }
    let run = |key: &str, text: &str| {
        let body = json!({"protocol_names": ["ESL"], "data": {"text": text}, "session_id": "annas"});
        system.asker_with(key).post("/v1/execute", &body)
    };
    run("annas-key-1", "First.").expect(200);
    run("annas-key-1", "Second.").expect(200);
    assert_eq!(run("berts-key-1", "Third.").expect(403).at("/error/at"), "/session_id");
    for key in ["annas-key-1", ken_tests::KEY] {
        let history = system.asker_with(key).get("/v1/session/annas").expect(200).at("/history");
        assert_eq!(history.as_array().unwrap().len(), 2);
        assert!(history[1]["results"]["ESL"].is_object());
    }
    system.asker_with("berts-key-1").get("/v1/session/annas").expect(404);
    system.asker().get("/v1/session/nowhere").expect(404);
    let answer = system.execute(&json!({"protocol_names": ["ESL"], "data": {"text": "x"}})).expect(200);
    let id = answer.text("/session_id");
    system.asker().get(&format!("/v1/session/{id}")).expect(200);
}

#[test]
fn ordinary_sentences_are_never_refused() {
    let system = cognitive().start();
    let mut asker = system.asker();
    for text in [
        "Please select the best offer; then update me -- thanks!",
        "'; DROP TABLE users; --",
        "SELECT * FROM dreams WHERE hope = '1' OR 1=1 /* why not */",
        "<script>alert(\"I am so happy\")</script> && rm -rf / | cat `whoami` $(id) \\ \u{1F600}\n\ttwo lines",
        "{\"results\": {\"ESL\": 1}, \"governance\": true}",
    ] {
        let body = json!({"protocol_names": ["ESL", "LAWS"], "data": {"user_input": text}});
        asker.post("/v1/execute", &body).expect(200);
    }
}

/// Sixteen clients, each with its own chain.
#[test]
fn every_answer_contains_only_its_own_chain() {
    let system = cognitive().start();
    let answered = Arc::new(AtomicU64::new(0));
    let count = answered.clone();
    let (over, threads) = load(&system, 16, move |number, asker, over| {
        let name = format!("chain-{number}");
        let body = chain(&name, 150);
        let mut asker = asker();
        while !over.load(Relaxed) {
            of(&name, &asker.post("/v1/execute", &body).expect(200), 150);
            count.fetch_add(1, Relaxed);
        }
    });
    std::thread::sleep(seconds());
    over.store(true, Relaxed);
    join(threads);
    assert!(answered.load(Relaxed) >= 16);
    verify(&system);
}

/// An incoherent workflow affects only its own result, even when others run at the same time; if coherence is required, it is
/// tried again and then aborted.
#[test]
fn incoherence_affects_only_its_own_request() {
    let system = cognitive().env("GOV_REQUIRE_COHERENCE", "true").start();
    let torn = json!({"protocol_names": ["REP", "VVP"],
        "data": {"facts": ["a"], "rules": [[["a"], "the door is open"], [["a"], "the door is not open"]]}});
    let (over, threads) = load(&system, 4, move |number, asker, over| {
        let mut asker = asker();
        while !over.load(Relaxed) {
            let answer = match number % 2 {
                0 => asker.post("/v1/execute", &torn).expect(422),
                _ => asker.post("/v1/execute", &chain("chain-7", 20)).expect(200),
            };
            let summary = answer.at("/governance_summary");
            assert_eq!(summary["is_coherent"] == false, number % 2 == 0, "{summary}");
            if number % 2 == 0 {
                assert_eq!(answer.text("/status"), "aborted");
                assert!(answer.at("/results/REP/conclusions").is_array());
                assert_eq!(summary["actions"].as_array().unwrap().len(), 2, "{summary}");
            } else {
                assert_eq!(summary["actions"], json!([]));
            }
        }
    });
    std::thread::sleep(seconds() / 4);
    over.store(true, Relaxed);
    join(threads);
    let text = fs::read_to_string(system.home().join("state/cognitive/security_events.log")).unwrap();
    for event in ["governance_incoherence_detected", "recovery_decision", "governance_abort", "execute_completed"] {
        assert!(text.contains(&format!("\"event\":\"{event}\"")), "{event}");
    }
    assert!(!text.contains("door"), "the audit holds words of the user");
    verify(&system);
}

#[test]
fn without_governance_there_are_no_scores() {
    let system = cognitive().env("GOV_ENABLE", "false").start();
    let answer = system.execute(&chain("chain-1", 2)).expect(200);
    assert_eq!(answer.at("/governance_summary/quality_scores"), json!({}));
    assert_eq!(answer.at("/governance_summary/is_coherent"), true);
    assert_eq!(answer.at("/governance_summary/coherence"), Value::Null);
}

const SLEEPS: &str = "#!/bin/sh\nwhile read -r line; do sleep 600.0417; echo '{}'; done\n";

/// A tool that sleeps is killed together with all processes that it has started. The request is answered, and the next one is
/// not delayed.
#[test]
fn a_step_over_its_time_limit_leaves_no_process() {
    let (_folder, config) = server_with(&[("ken-rep", SLEEPS)]);
    let system = cognitive().config(&config).env("PROTOCOL_TIMEOUT_MS", "200").start();
    for _ in 0..2 {
        let answer = system.execute(&json!({"protocol_names": ["REP"], "data": {}})).expect(504);
        assert_eq!(answer.text("/error/code"), "deadline");
        assert_eq!(answer.text("/status"), "failed");
        assert!(answer.at("/execution_time_ms").as_f64().unwrap() < 5_000.0);
    }
    until("no process is left", || {
        tools(&system).is_empty() && !commands().iter().any(|command| command.contains("600.0417"))
    });
    system.execute(&json!({"protocol_names": ["ESL"], "data": {"text": "Fine."}})).expect(200);
}

fn commands() -> Vec<String> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    entries.filter_map(|entry| fs::read_to_string(entry.path().join("cmdline")).ok()).collect()
}

#[test]
fn a_crashed_tool_is_named_with_its_last_line() {
    let (_folder, config) = server_with(&[
        ("ken-rep", "#!/bin/sh\nread -r line\necho 'no more memory' >&2\nexit 3\n"),
        ("ken-vvp", "#!/bin/sh\nwhile read -r line; do echo nonsense; done\n"),
    ]);
    let system = cognitive().config(&config).start();
    let answer = system.execute(&json!({"protocol_names": ["ESL", "REP"], "data": {"text": "Fine."}})).expect(502);
    assert!(answer.text("/error/message").contains("no more memory"), "{}", answer.body_text());
    assert!(answer.at("/results/ESL").is_object());
    let answer = system.execute(&json!({"protocol_names": ["VVP"], "data": {}})).expect(502);
    assert!(answer.text("/error/message").contains("JSON"), "{}", answer.body_text());
}

/// SIGKILL of the server and of its tools: requests in progress fail with an error, all others are answered, and the audit log
/// is complete.
#[test]
fn kills_affect_only_requests_in_progress() {
    let system = cognitive().start();
    let (answered, failed) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let (good, bad) = (answered.clone(), failed.clone());
    let (over, threads) = load(&system, 8, move |number, new, over| {
        let name = format!("chain-{number}");
        let body = chain(&name, 30);
        let mut asker = new();
        while !over.load(Relaxed) {
            match asker.try_post("/v1/execute", &body) {
                Ok(answer) if answer.status == 200 => {
                    of(&name, &answer, 30);
                    good.fetch_add(1, Relaxed);
                }
                Ok(answer) => {
                    assert!([502, 503].contains(&answer.status), "{}", answer.body_text());
                    bad.fetch_add(1, Relaxed);
                }
                Err(_) => {
                    bad.fetch_add(1, Relaxed);
                    asker = new();
                }
            }
        }
    });
    let end = Instant::now() + seconds();
    let mut server_kills = 0;
    while Instant::now() < end {
        // It runs for more than a second, so that kend(8) does not treat its end as a crash loop.
        for _ in 0..36 {
            if let Some((pid, _)) = tools(&system).into_iter().find(|(_, name)| name.starts_with("ken-")) {
                _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
            }
            std::thread::sleep(Duration::from_millis(30));
        }
        let tools = tools(&system);
        system.kill("cognitive");
        server_kills += 1;
        // The tools end with the server.
        until("the tools of a dead server are gone", || {
            tools.iter().all(|(pid, _)| {
                fs::read_to_string(format!("/proc/{pid}/stat")).map_or(true, |stat| stat.contains(") Z "))
            })
        });
        let before = answered.load(Relaxed);
        until("it answers again", || answered.load(Relaxed) > before);
    }
    over.store(true, Relaxed);
    join(threads);
    let printed = verify(&system);
    let records = fs::read_to_string(system.home().join("state/cognitive/security_events.log")).unwrap();
    let completed = records.matches("\"execute_completed\"").count() as u64;
    // Every answer was recorded before it was sent.
    assert!(completed >= answered.load(Relaxed), "{completed} records: {printed}");
    assert!(failed.load(Relaxed) <= server_kills * 8 + 1_000);
    system.execute(&chain("chain-1", 5)).expect(200);
}

/// The tools of a client that disconnects are ended.
#[test]
fn the_tools_of_a_disconnected_client_are_ended() {
    let (_folder, config) = server_with(&[("ken-rep", SLEEPS)]);
    let system = cognitive().config(&config).start();
    {
        let mut asker = system.asker();
        asker.request("POST", "/v1/execute").json(&json!({"protocol_names": ["REP"], "data": {}})).start();
        until("the tool is at work", || tools(&system).iter().any(|(_, name)| name == "ken-rep"));
        asker.reset();
    }
    until("its tool has gone", || !tools(&system).iter().any(|(_, name)| name == "ken-rep"));
    system.execute(&json!({"protocol_names": ["ESL"], "data": {"text": "Fine."}})).expect(200);
}

/// The choice of a model is checked, survives restarts, and applies to ken-textgen too.
#[test]
fn models_are_checked_before_they_are_activated() {
    let missing = tempfile::tempdir().unwrap();
    let dirs = format!("small={0}/small,large={0}/large", missing.path().display());
    let checks = "#!/bin/sh\ncase \"$*\" in\n*--check*large*) exit 0;;\n*) exec KEN_TEXTGEN \"$@\";;\nesac\n";
    let checks = checks.replace("KEN_TEXTGEN", &ken_tests::binary("ken-textgen").display().to_string());
    let (_folder, config) = server_with(&[("ken-textgen", &checks)]);
    let system = cognitive().config(&config).env("MVLM_MODEL_DIRS", &dirs).start();
    let models = system.asker().get("/admin/models").expect(200);
    assert_eq!(models.at("/active_alias"), "small");
    let paths: Vec<Value> = models.at("/aliases").as_array().unwrap().clone();
    assert_eq!(paths[1], json!({"alias": "large", "path": format!("{}/large", missing.path().display())}));
    let activate = |alias: &str| system.asker().post("/admin/models/activate", &json!({"alias": alias}));
    assert_eq!(activate("huge").expect(400).at("/error/at"), "/alias");
    let refused = activate("small").expect(422);
    assert!(refused.text("/error/message").contains("small"), "{}", refused.body_text());
    assert_eq!(activate("large").expect(200).at("/active_alias"), "large");
    system.kill("cognitive");
    assert_eq!(system.asker().get("/admin/models").expect(200).at("/active_alias"), "large");
    // An earlier release kept it beside the keys.
    let place = |folder: &str| system.home().join("state").join(folder).join("active_model");
    fs::rename(place("models"), place("cognitive")).unwrap();
    system.kill("cognitive");
    assert_eq!(system.asker().get("/admin/models").expect(200).at("/active_alias"), "large");
    assert!(place("models").is_file() && !place("cognitive").exists());
    let text = fs::read_to_string(system.home().join("state/cognitive/security_events.log")).unwrap();
    assert_eq!(text.matches("\"model_activated\"").count(), 1);
    let output = std::process::Command::new(ken_tests::binary("ken-textgen"))
        .arg("--list-models")
        .env("MVLM_MODEL_DIRS", &dirs)
        .env("KEN_HOME", system.home())
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(printed.lines().any(|line| line.contains("large") && line.contains("\"active\":true")), "{printed}");
}

/// A wrong setting of local models is named at the start, not when the first request needs a model.
#[test]
fn wrong_settings_of_local_models_fail_the_start() {
    for (dirs, active, named) in [
        ("no directory", "", "MVLM_MODEL_DIRS: \"no directory\" is not alias:directory"),
        ("small:/models/small", "large", "ACTIVE_MVLM_MODEL: MVLM_MODEL_DIRS has no alias \"large\""),
        ("", "large", "ACTIVE_MVLM_MODEL: MVLM_MODEL_DIRS has no alias \"large\""),
    ] {
        let home = tempfile::tempdir().unwrap();
        let output = std::process::Command::new(ken_tests::binary("ken-cognitive"))
            .env("KEN_HOME", home.path())
            .env("MVLM_MODEL_DIRS", dirs)
            .env("ACTIVE_MVLM_MODEL", active)
            .output()
            .unwrap();
        let printed = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && printed.contains(named), "{dirs} {active}: {printed}");
    }
}
