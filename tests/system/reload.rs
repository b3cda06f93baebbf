//! Reloads and restarts while a turn runs: the turn is not touched, or goes on in the next process of the agent.

use std::fs;
use std::time::{Duration, Instant};

use ken_tests::{Answer, Builder, System, tui, until};
use serde_json::{Value, json};

/// `slowly` is answered after three seconds, `hold` after a minute, and `step` calls a tool that takes two seconds and then
/// holds for a minute.
fn system() -> System {
    let tool = json!({"name": "rest", "description": "A tool.", "command": ["sleep", "2"], "input": {"type": "object"},
        "writes": "text", "approval": "none", "agents": ["orchestrator"]});
    let call = json!({"tool": {"name": "rest", "arguments": {}}});
    let script = [
        json!({"when": "slowly", "events": [{"sleep_ms": 3_000}, {"text": "Done."}]}),
        json!({"when": "step", "after_tools": 0, "events": [call]}),
        json!({"when": "step", "after_tools": 1, "events": [{"sleep_ms": 60_000}, {"text": "Done."}]}),
        json!({"events": [{"sleep_ms": 60_000}, {"text": "Done."}]}),
    ];
    let system =
        Builder::default().config("# none\n").script(&script).file("tools.d/rest.json", &tool.to_string()).start();
    system.wait_until_stable("agent");
    system
}

fn say(system: &System, text: &str, prefer: &str) -> Answer {
    let mut client = system.client();
    let request = client.request("POST", "/api/chat/events").header("Prefer", prefer);
    request.json(&tui(&[("text", json!(text))])).send()
}

fn running(system: &System) -> u64 {
    system.call("agent", "service.stats", &[])["running"].as_u64().unwrap()
}

fn agent(system: &System) -> Value {
    let status = system.call("kend", "parts.status", &["name=agent"]);
    status["parts"][0].clone()
}

#[test]
fn a_reload_of_what_the_agent_does_not_read_leaves_its_turns_alone() {
    let system = system();
    let before = agent(&system)["pid"].clone();
    let answer = std::thread::scope(|scope| {
        let caller = scope.spawn(|| say(&system, "slowly", "wait=60"));
        until("the turn runs", || running(&system) == 1);
        let config = "[workspace]\nread = [\"/opt\"]\n[[workspace.rules]]\npath = \"repos\"\npolicy = \"auto-edit\"\n";
        fs::write(system.home().join("ken.toml"), config).unwrap();
        assert!(system.ken(&["reload"]).status.success());
        caller.join().unwrap()
    });
    assert_eq!(answer.expect(200).text("/result/text"), "Done.");
    assert_eq!((&agent(&system)["pid"], &agent(&system)["restarts"]), (&before, &json!(0)));
}

/// A file that kend has refused, has not loaded, or that is gone, changes nothing for a part that starts again.
#[test]
fn a_part_that_starts_again_has_the_configuration_in_force() {
    let config =
        |origin: &str, more: &str| format!("[kend]\nwatch = false\n[gateway]\norigins = [\"{origin}\"]\n{more}");
    let (listed, other) = ("http://localhost:8080", "http://evil.example");
    let system = Builder::default().config(&config(listed, "")).start();
    let path = system.home().join("ken.toml");
    let admitted = |origins: [&str; 2]| {
        origins.map(|origin| {
            let mut client = system.client();
            client.request("GET", "/api/chat/sessions").header("Origin", origin).send().status
        })
    };
    let refused = config(other, "[part.mirror]\nnonsense = 1\n");
    for text in [Some(refused.as_str()), Some(&config(other, "")), Some("[gateway]\nport = \"abc\"\n"), None] {
        match text {
            Some(text) => fs::write(&path, text).unwrap(),
            None => fs::remove_file(&path).unwrap(),
        }
        for part in ["store", "agent", "gateway"] {
            let before = system.pid(part);
            system.kill(part);
            until("it is ready again", || system.pid(part) != before && system.ken(&["status"]).status.success());
        }
        assert_eq!(admitted([listed, other]), [200, 403], "{text:?}");
        system.say(&system.session(), "hello").expect(200);
    }
    fs::write(&path, config(other, "")).unwrap();
    let reloaded = system.ken(&["reload"]);
    assert!(String::from_utf8_lossy(&reloaded.stdout).contains("restarted: gateway"), "{reloaded:?}");
    until("the new configuration is in force", || admitted([listed, other]) == [403, 200]);
}

/// The agent ends by itself before its time is over, and the turn goes on in its next process.
#[test]
fn a_restart_in_a_model_call_ends_in_time() {
    let system = system();
    let accepted = say(&system, "hold", "respond-async").expect(202);
    until("the turn runs", || running(&system) == 1);
    let begun = Instant::now();
    assert!(system.ken(&["restart", "agent"]).status.success());
    assert!(begun.elapsed() < Duration::from_secs(14), "{:?}", begun.elapsed());
    let found = agent(&system);
    assert_eq!((&found["deaths"][0]["code"], &found["deaths"][0]["signal"]), (&json!(0), &Value::Null), "{found:#}");
    until("the turn goes on", || running(&system) == 1);
    let session = accepted.text("/session/id");
    system.post(&format!("/api/chat/sessions/{session}/cancel"), &tui(&[])).expect(200);
}

/// Between two steps of a turn the agent does not wait for the end of the turn.
#[test]
fn a_restart_in_a_tool_call_takes_as_long_as_the_call() {
    let system = system();
    let accepted = say(&system, "step", "respond-async").expect(202);
    let transcript = format!("/agents/orchestrator/{}?offset=-1", accepted.text("/session/id"));
    until("the tool runs", || {
        let events = system.get(&transcript).expect(200).json();
        events.as_array().unwrap().iter().any(|event| event["type"] == "tool_start")
    });
    let begun = Instant::now();
    assert!(system.ken(&["restart", "agent"]).status.success());
    assert!(begun.elapsed() < Duration::from_secs(7), "{:?}", begun.elapsed());
    until("the turn goes on", || running(&system) == 1);
    let events = system.get(&transcript).expect(200).json();
    let of_type = |kind: &str| events.as_array().unwrap().iter().filter(|event| event["type"] == kind).count();
    assert_eq!((of_type("tool_start"), of_type("tool")), (1, 1), "{events:#}");
}
