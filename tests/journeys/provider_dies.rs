//! The provider dies: the next model of the list answers at once, nobody waits for the dead one again, and everything that a person
//! looks at names it, its cause and since when. It is used again soon after it has come back.

use std::net::SocketAddr;
use std::process::Command;
use std::time::{Duration, Instant};

use ken_tests::provider::{Provider, Reply, openai, refusal};
use ken_tests::{Builder, System, Terminal, binary, free_port, until};
use serde_json::{Value, json};

/// An address of this machine where nobody listens.
fn nobody() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], free_port()))
}

fn saying(text: &'static str) -> Provider {
    Provider::answering(move |_| Reply::Stream(openai(&[text], &[])))
}

fn start(list: &str, providers: &[(&str, String)]) -> System {
    let tables: String =
        providers.iter().map(|(name, url)| format!("[model.provider.{name}]\nbase_url = \"{url}/v1\"\n")).collect();
    Builder::default().config(&format!("[model]\nuse = \"{list}\"\n{tables}")).start()
}

fn done(system: &System, words: &[&str]) -> String {
    let output = system.ken(words);
    let text = String::from_utf8(output.stdout).unwrap() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words:?}: {text}");
    text
}

/// The answer to a message, and how long it took.
fn timed(system: &System, session: &str) -> (String, Duration) {
    let asked = Instant::now();
    let answer = system.say(session, "Hello").expect(200);
    (answer.text("/result/text"), asked.elapsed())
}

#[test]
fn the_next_model_answers_and_nobody_waits_again() {
    let (dead, living) = (nobody(), saying("I am here."));
    let system = start("first/m,second/m,rules", &[("first", format!("http://{dead}")), ("second", living.url())]);
    let session = system.session();
    let (text, took) = timed(&system, &session);
    assert_eq!(text, "I am here.");
    assert!(took < Duration::from_secs(2), "{took:?}");
    for _ in 0..2 {
        timed(&system, &session);
    }
    let (text, took) = timed(&system, &session);
    assert!(text == "I am here." && took < Duration::from_millis(1_000), "{took:?}");
    // It is named everywhere with its cause.
    let ready = system.get("/ready").expect(200).json();
    let named = |text: &str| text.contains("first") && text.contains("refuses connections");
    let degraded = &ready["degraded"][0];
    assert!(ready["ok"] == true && named(&degraded["why"].to_string()), "{ready}");
    assert!(degraded["part"] == "model" && degraded["since"].is_string(), "{ready}");
    for words in [&["status"][..], &["why", "last"], &["doctor"]] {
        // The doctor ends with another status when it has found something.
        let output = system.ken(words);
        let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert!(named(&text), "{words:?}: {text}");
    }
    let mut terminal = Command::new(binary("ken-tui"));
    terminal.env("KEN_HOME", system.home());
    let mut terminal = Terminal::start(&terminal, 120, 30);
    terminal.wait_for_screen("the status row names it", |screen| {
        screen.lines().last().is_some_and(|row| row.contains("down: first: ") && row.contains("(since "))
    });
    let health = system.call("model", "model.health", &[]);
    assert_eq!(health["called"], json!(["second/m", "rules/rules-1"]));
    assert!(health["providers"][0]["downSince"].is_string() && health["providers"][0]["nextAttempt"].is_string());
    let log = std::fs::read_to_string(system.home().join("state/log/model.log"))
        .unwrap_or_else(|_| done(&system, &["logs", "model", "-n", "100"]));
    assert_eq!(log.matches("not called for now").count(), 1, "one warning: {log}");
    // It comes back: the first call after the pause is answered by it.
    let back = Provider::answering_at(dead, |_| Reply::Stream(openai(&["I am back."], &[])));
    until("it is tried again", || timed(&system, &session).0 == "I am back.");
    assert_eq!(system.get("/ready").expect(200).json(), json!({"ok": true}));
    assert!(!back.received().is_empty());
    terminal.type_line("Hello");
    terminal.wait_for_text("I am back.");
    terminal.wait_for_screen("the status row names nothing", |screen| {
        !screen.lines().last().is_some_and(|row| row.contains("down: "))
    });
}

#[test]
fn without_another_model_the_error_comes_at_once_or_the_rules_say_what_is_wrong() {
    let dead = nobody();
    let system = start("only/m", &[("only", format!("http://{dead}"))]);
    let session = system.session();
    for _ in 0..2 {
        let asked = Instant::now();
        let error = system.say(&session, "Hello").expect(500).json();
        assert!(error.to_string().contains("refuses connections"), "{error}");
        assert!(asked.elapsed() < Duration::from_secs(2), "{:?}", asked.elapsed());
    }
    let ready = system.get("/ready").expect(503).json();
    assert!(
        ready["waiting"] == json!(["model"]) && ready["error"].to_string().contains("refuses connections (since "),
        "{ready}"
    );

    let system = start("only/m,rules", &[("only", format!("http://{dead}"))]);
    let (text, took) = timed(&system, &system.session());
    assert!(text.contains("No language model can be reached just now (only: "), "{text}");
    assert!(took < Duration::from_secs(2), "{took:?}");
    assert_eq!(system.get("/ready").expect(200).json()["ok"], true);
}

#[test]
fn a_model_that_a_person_has_chosen_is_tried_each_time_and_no_other_answers() {
    let (dead, living) = (nobody(), saying("I am here."));
    let system = start("first/m,second/m", &[("first", format!("http://{dead}")), ("second", living.url())]);
    let session = system.session();
    timed(&system, &session);
    let failed = system.ken(&["chat", "-m", "first/m", "Hello"]);
    assert!(
        !failed.status.success() && String::from_utf8_lossy(&failed.stderr).contains("refuses connections"),
        "{failed:?}"
    );
    let _back = Provider::answering_at(dead, |_| Reply::Stream(openai(&["I am back."], &[])));
    assert_eq!(done(&system, &["chat", "-m", "first/m", "Hello"]), "I am back.\n", "the call is the probe");
    assert_eq!(timed(&system, &session).0, "I am back.");
}

/// What each answer of a provider means for the calls after it.
#[test]
fn what_a_provider_answers_decides_whether_it_is_called_again() {
    let overloaded = || refusal(429, vec![], "", "slow down");
    let broken = || refusal(500, vec![], "", "oops");
    let missing = || refusal(404, vec![], "model_not_found", "no such model");
    let page = || {
        Reply::Status(
            200,
            vec![("content-type", "text/html; charset=utf-8".to_owned())],
            "<html>Log in</html>".to_owned(),
        )
    };
    let error = || {
        Reply::Status(
            200,
            vec![("content-type", "application/json".to_owned())],
            json!({"error": {"message": "no credit"}}).to_string(),
        )
    };
    for (reply, calls, cause) in [
        (&overloaded as &dyn Fn() -> Reply, 3, "slow down"),
        (&broken, 2, "oops"),
        (&missing, 1, "no such model"),
        (&page, 1, "base_url"),
        (&error, 3, "no credit"),
    ] {
        let first = Provider::start(vec![reply(), reply(), reply()]);
        let second = saying("I am here.");
        let system = start("first/m,second/m", &[("first", first.url()), ("second", second.url())]);
        let session = system.session();
        for _ in 0..3 {
            assert_eq!(timed(&system, &session).0, "I am here.");
        }
        assert_eq!(first.received().len(), calls, "{cause}");
        let events = system.get(&format!("/agents/orchestrator/{session}?offset=-1")).expect(200).json();
        let turns: Vec<&Value> = events.as_array().unwrap().iter().filter(|event| event["type"] == "turn").collect();
        assert!(turns[0]["error"].to_string().contains(cause), "{cause}: {}", turns[0]["error"]);
    }
}
