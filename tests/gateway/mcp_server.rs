//! The server of the Model Context Protocol: what it offers and to whom, questions that take long, repetitions, and bad messages.

use std::time::{Duration, Instant};

use ken_tests::{Answer, Builder, Client, System, scripted, scripted_builder, until};
use serde_json::{Value, json};

const MODERN: &str = "2026-07-28";

fn message(id: Value, method: &str, params: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
}

fn post(system: &System, headers: &[(&str, &str)], body: &Value) -> Answer {
    post_to(system, "/mcp", headers, body)
}

fn post_to(system: &System, target: &str, headers: &[(&str, &str)], body: &Value) -> Answer {
    let mut client = system.client();
    let mut request = client.request("POST", target).header("content-type", "application/json");
    for (name, value) in headers {
        request = request.header(name, value);
    }
    request.json(body).send()
}

fn initialize(system: &System, target: &str, version: &str, name: &str) -> Answer {
    let params = json!({"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": name, "version": "1"}});
    post_to(system, target, &[], &message(json!(0), "initialize", params))
}

/// A client with a session.
struct Session<'a> {
    system: &'a System,
    target: String,
    id: String,
}

impl Session<'_> {
    fn begin<'a>(system: &'a System, target: &str) -> Session<'a> {
        let answer = initialize(system, target, "2025-06-18", "probe").expect(200);
        let id = answer.header("mcp-session-id").expect("a session").to_owned();
        Session { system, target: target.to_owned(), id }
    }

    fn post(&self, headers: &[(&str, &str)], body: &Value) -> Answer {
        let own = [("mcp-session-id", self.id.as_str())];
        post_to(self.system, &self.target, &[&own, headers].concat(), body)
    }

    fn call(&self, id: u64, tool: &str, arguments: Value) -> Value {
        let body = message(json!(id), "tools/call", json!({"name": tool, "arguments": arguments}));
        let answer = self.post(&[], &body).expect(200);
        assert_eq!(answer.at("/id"), id);
        answer.at("/result")
    }

    /// Sends a call that is answered with events, and returns its connection.
    fn stream(&self, body: &Value, version: &str) -> Client {
        let mut client = Client::connect(self.system.address());
        let request = client.request("POST", &self.target).header("content-type", "application/json");
        let request =
            request.header("accept", "application/json, text/event-stream").header("mcp-session-id", &self.id);
        request.header("mcp-protocol-version", version).json(body).start();
        client
    }
}

fn said(result: &Value) -> &str {
    result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{result}"))
}

/// The answered questions that ken was asked with this text.
fn turns(system: &System, text: &str) -> usize {
    let sessions = system.get("/api/chat/sessions?limit=100").expect(200).json();
    let list = sessions["sessions"].as_array().unwrap().clone();
    let identity = |one: &Value, name: &str| one[name].as_str().unwrap().to_owned();
    let prompts = list.iter().flat_map(|one| {
        let id = identity(one, "sessionId");
        let query = format!(
            "connector=web-api&actorId={}&conversationId={}",
            identity(one, "actorId"),
            identity(one, "conversationId")
        );
        let transcript = system.get(&format!("/api/chat/sessions/{id}/transcript?{query}")).expect(200).json();
        transcript["exchanges"].as_array().unwrap().clone()
    });
    prompts.filter(|exchange| exchange["prompt"]["text"] == text || exchange["user"]["text"] == text).count()
}

#[test]
fn it_offers_what_touches_nothing_and_what_people_still_decide() {
    let system = scripted();
    let answer = initialize(&system, "/mcp", "2025-06-18", "probe").expect(200);
    assert_eq!(answer.at("/result/protocolVersion"), "2025-06-18");
    assert_eq!(answer.at("/result/serverInfo/name"), "ken");
    let session = Session::begin(&system, "/mcp");
    let taken = session.post(&[], &json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
    assert_eq!(taken.status, 202);
    assert_eq!(session.post(&[], &message(json!("p"), "ping", json!({}))).expect(200).at("/result"), json!({}));
    let listed = session.post(&[], &message(json!(1), "tools/list", json!({}))).expect(200).at("/result/tools");
    let names: Vec<&str> = listed.as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    let offered = [
        "judge_text", "read_emotion", "reason", "verify_rules", "knowledge_search", "ask_ken", "run_workflow",
        "get_result",
    ];
    assert_eq!(names, offered);
    assert!(listed.as_array().unwrap().iter().all(|tool| tool["inputSchema"]["type"] == "object"), "{listed}");
    let prompts = session.post(&[], &message(json!(2), "prompts/list", json!({}))).expect(200).at("/result/prompts");
    assert_eq!(prompts[0]["name"], "research", "{prompts}");
    let get = json!({"name": "research", "arguments": {"task": "Compare two routers."}});
    let prompt = session.post(&[], &message(json!(3), "prompts/get", get)).expect(200).at("/result");
    let text = prompt["messages"][0]["content"]["text"].as_str().unwrap();
    assert!(text.ends_with("\n\nCompare two routers.") && text.len() > 100, "{text}");
    // A tool that touches something exists, and is none for programs outside.
    let call = json!({"name": "write_file", "arguments": {"path": "x", "content": "y"}});
    let refused = session.post(&[], &message(json!(4), "tools/call", call)).expect(200);
    assert_eq!(refused.at("/error/code"), -32602);
    let unknown = session.post(&[], &message(json!(5), "resources/list", json!({}))).expect(200);
    assert_eq!(unknown.at("/error/code"), -32601);
}

#[test]
fn pure_tools_and_the_knowledge_answer_at_once() {
    let system = scripted();
    let entry = json!({"title": "The router", "content": "The router is in the cellar."});
    system.post("/api/knowledge", &entry).expect(201);
    let own = json!({"title": "Vera's router", "content": "The router of Vera is red.", "actorId": "vera"});
    system.post("/api/knowledge", &own).expect(201);
    let session = Session::begin(&system, "/mcp");
    let arguments = json!({"facts": ["Socrates is a man"], "rules": [[["?x is a man"], "?x is mortal"]]});
    let result = session.call(1, "reason", arguments);
    assert_eq!(result["isError"], false, "{result}");
    assert!(said(&result).contains("Socrates is mortal"), "{result}");
    assert!(result["structuredContent"]["conclusions"].is_array(), "{result}");
    for (tool, arguments, place) in [
        ("reason", json!({"facts": "x"}), "/arguments/facts"),
        ("judge_text", json!({}), "/arguments"),
        ("knowledge_search", json!({"query": " "}), "/query"),
        ("knowledge_search", json!({"query": "router", "limit": 21}), "/limit"),
        ("knowledge_search", json!({"question": "router"}), ""),
        ("ask_ken", json!({"question": ""}), "/question"),
        ("ask_ken", json!({"question": 1}), "/question"),
        ("run_workflow", json!({"workflow": "absent"}), "/workflow"),
        ("get_result", json!({"id": "turn-1.2"}), "/id"),
    ] {
        let result = session.call(2, tool, arguments);
        assert_eq!(result["isError"], true, "{tool}: {result}");
        assert!(said(&result).starts_with(place), "{tool}: {result}");
    }
    let found = |session: &Session<'_>| {
        let result = session.call(3, "knowledge_search", json!({"query": "router"}));
        let found = result["structuredContent"]["found"].as_array().unwrap().clone();
        found.iter().map(|one| one["title"].as_str().unwrap().to_owned()).collect::<std::collections::BTreeSet<_>>()
    };
    assert_eq!(found(&session), ["The router".to_owned()].into());
    let of_vera = Session::begin(&system, "/mcp?actorId=vera&conversationId=desk");
    assert_eq!(found(&of_vera), ["The router".to_owned(), "Vera's router".to_owned()].into());
}

#[test]
fn the_version_without_sessions_checks_what_each_request_says() {
    let system = scripted();
    let meta = |version: &str| {
        json!({
            "io.modelcontextprotocol/protocolVersion": version,
            "io.modelcontextprotocol/clientCapabilities": {},
            "io.modelcontextprotocol/clientInfo": {"name": "probe", "version": "1"},
        })
    };
    let list = |method: &str| message(json!(1), method, json!({"_meta": meta(MODERN)}));
    let version = ("mcp-protocol-version", MODERN);
    let discovered = post(&system, &[version, ("mcp-method", "server/discover")], &list("server/discover")).expect(200);
    assert_eq!(discovered.at("/result/supportedVersions/0"), MODERN);
    assert_eq!(discovered.at("/result/resultType"), "complete");
    assert_eq!(discovered.at("/result/_meta/io.modelcontextprotocol~1serverInfo/name"), "ken");
    let tools = post(&system, &[version, ("mcp-method", "tools/list")], &list("tools/list")).expect(200);
    assert_eq!((tools.at("/result/ttlMs"), tools.at("/result/cacheScope")), (json!(0), json!("private")));
    let call = |name: &str| {
        let params = json!({"name": name, "arguments": {"question": "hi"}, "_meta": meta(MODERN)});
        message(json!("q"), "tools/call", params)
    };
    let named = [version, ("mcp-method", "tools/call"), ("mcp-name", "ask_ken")];
    assert_eq!(said(&post(&system, &named, &call("ask_ken")).expect(200).at("/result")), "Hello there.");
    let coded = [version, ("mcp-method", "tools/call"), ("mcp-name", "=?base64?YXNrX2tlbg==?=")];
    assert_eq!(post(&system, &coded, &call("ask_ken")).expect(200).at("/result/isError"), false);

    let without_capabilities =
        message(json!(1), "tools/list", json!({"_meta": {"io.modelcontextprotocol/protocolVersion": MODERN}}));
    let newer = message(json!(1), "tools/list", json!({"_meta": meta("2030-01-01")}));
    for (headers, body, status, code) in [
        (&[("mcp-method", "tools/list")][..], &list("tools/list"), 400, -32020),
        (&[version], &list("tools/list"), 400, -32020),
        (&[version, ("mcp-method", "prompts/list")], &list("tools/list"), 400, -32020),
        (&[version, ("mcp-method", "tools/call")], &call("ask_ken"), 400, -32020),
        (&[version, ("mcp-method", "tools/call"), ("mcp-name", "reason")], &call("ask_ken"), 400, -32020),
        (&[version, ("mcp-method", "tools/call"), ("mcp-name", "=?base64?!?=")], &call("ask_ken"), 400, -32020),
        (&[version, ("mcp-method", "tools/call"), ("mcp-name", "=?base64?/w==?=")], &call("ask_ken"), 400, -32020),
        (&[version, ("mcp-method", "tools/call"), ("mcp-name", "=?base64?w6Rzaw==?=")], &call("äsk"), 200, -32602),
        (&[version, ("mcp-method", "tools/list")], &message(json!(1), "tools/list", json!({})), 400, -32602),
        (&[version, ("mcp-method", "tools/list")], &without_capabilities, 400, -32602),
        (&[("mcp-protocol-version", "2030-01-01"), ("mcp-method", "tools/list")], &newer, 400, -32022),
        (&[version, ("mcp-method", "ping")], &list("ping"), 404, -32601),
        (&[version, ("mcp-method", "sampling/createMessage")], &list("sampling/createMessage"), 404, -32601),
    ] {
        let answer = post(&system, headers, body).expect(status);
        assert_eq!(answer.at("/error/code"), code, "{headers:?} {body}");
    }
    // The handshake of older versions agrees on one of them.
    for (requested, agreed) in [
        ("2024-11-05", "2024-11-05"),
        ("2025-11-25", "2025-11-25"),
        (MODERN, "2025-11-25"),
        ("1999-01-01", "2025-11-25"),
        ("", "2025-11-25"),
    ] {
        let answer = initialize(&system, "/mcp", requested, "probe");
        assert_eq!(answer.at("/result/protocolVersion"), agreed, "{requested}");
    }
}

/// Transcripts are there only if the configuration says so; a client with a scope reads its own.
#[test]
fn what_was_said_is_a_resource_where_it_is_allowed() {
    let closed = scripted();
    let session = Session::begin(&closed, "/mcp");
    assert_eq!(
        session.post(&[], &message(json!(1), "resources/list", json!({}))).expect(200).at("/error/code"),
        -32601
    );
    let system = scripted_builder().config("[doors]\nmcp_transcripts = true\n").start();
    let said = system.session();
    system.say(&said, "The plan <b>of</b> the day").expect(200);
    let initialized = initialize(&system, "/mcp", "2025-06-18", "probe").expect(200);
    assert_eq!(initialized.at("/result/capabilities/resources"), json!({}));
    let session = Session::begin(&system, "/mcp");
    let ask = |session: &Session<'_>, method: &str, params: Value| {
        session.post(&[], &message(json!(1), method, params)).expect(200)
    };
    let uri = format!("ken://sessions/{said}");
    let listed = ask(&session, "resources/list", json!({}));
    assert_eq!(
        (listed.text("/result/resources/0/uri"), listed.text("/result/resources/0/title")),
        (uri.clone(), "The plan <b>of</b> the day".to_owned())
    );
    let read = ask(&session, "resources/read", json!({"uri": uri}));
    assert_eq!(read.text("/result/contents/0/mimeType"), "text/markdown");
    assert!(read.text("/result/contents/0/text").contains("The plan <b>of</b> the day"), "{}", read.body_text());
    for uri in ["ken://sessions/tui-none", "file:///etc/passwd", "ken://sessions/"] {
        assert_eq!(ask(&session, "resources/read", json!({"uri": uri})).at("/error/code"), -32002, "{uri}");
    }
    assert_eq!(ask(&session, "resources/read", json!({})).at("/error/code"), -32602);
    assert_eq!(ask(&session, "resources/list", json!({"cursor": "x"})).at("/error/code"), -32602);
    let other = Session::begin(&system, "/mcp?actorId=b&conversationId=c");
    assert_eq!(ask(&other, "resources/list", json!({})).at("/result/resources"), json!([]));
    assert_eq!(ask(&other, "resources/read", json!({"uri": uri})).at("/error/code"), -32002);
}

#[test]
fn bad_messages_have_errors_of_the_protocol() {
    let system = scripted();
    let session = Session::begin(&system, "/mcp");
    let raw = |text: &str| {
        let mut client = Client::connect(system.address());
        let request = client.request("POST", "/mcp").header("content-type", "application/json");
        request.header("mcp-session-id", &session.id).body(text).send()
    };
    // An error has a code, and the id of the request if it has one.
    for (text, id, code) in [
        ("", Value::Null, -32700),
        (r#"{"jsonrpc":"2.0","id":1,"method":"tools/li"#, Value::Null, -32700),
        (r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#, Value::Null, -32600),
        (r#""x""#, Value::Null, -32600),
        (r#"{"id":1,"method":"ping"}"#, json!(1), -32600),
        (r#"{"jsonrpc":"1.0","id":1,"method":"ping"}"#, json!(1), -32600),
        (r#"{"jsonrpc":"2.0","id":"a"}"#, json!("a"), -32600),
        (r#"{"jsonrpc":"2.0","id":1,"method":2}"#, json!(1), -32600),
        (r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}"#, json!(1), -32600),
        (r#"{"jsonrpc":"2.0","id":1,"result":2}"#, json!(1), -32600),
        (r#"{"jsonrpc":"2.0","id":1,"error":"no"}"#, json!(1), -32600),
        (r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#, Value::Null, -32600),
        (r#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#, Value::Null, -32600),
        (r#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#, Value::Null, -32600),
        (r#"{"jsonrpc":"2.0","id":[],"result":{}}"#, Value::Null, -32600),
    ] {
        let answer = raw(text).expect(400);
        assert_eq!((answer.at("/id"), answer.at("/error/code")), (id, json!(code)), "{text}");
    }
    assert_eq!(raw(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#).status, 202);
    assert_eq!(raw(&"x".repeat(5 << 20)).status, 413);
    assert_eq!(system.get("/mcp").status, 405);
    assert_eq!(system.delete("/mcp").status, 405);
    let ping = message(json!(1), "ping", json!({}));
    assert_eq!(post(&system, &[], &ping).expect(400).at("/error/code"), -32600);
    for wrong in ["x", "a.b.c", &format!("{}0", session.id)] {
        post(&system, &[("mcp-session-id", wrong)], &ping).expect(404);
    }
    session.post(&[("mcp-protocol-version", "2030-01-01")], &ping).expect(400);
    session.post(&[("mcp-protocol-version", "2025-06-18")], &ping).expect(200);
    // A page of another origin, and a name that is none of this machine.
    session.post(&[("origin", "http://evil.test")], &ping).expect(403);
    let mut client = Client::connect(system.address());
    let rebound = client.request_to("POST", "/mcp", "evil.test").header("content-type", "application/json");
    assert_eq!(rebound.json(&ping).send().status, 403);
}

#[test]
fn a_call_of_kens_own_client_is_refused() {
    let system = scripted();
    let refused = initialize(&system, "/mcp", "2025-11-25", "ken").expect(403);
    assert!(refused.text("/error/message").contains("would ask itself"));
    let own = [("user-agent", "ken/0.1.0")];
    let params =
        json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}});
    post(&system, &own, &message(json!(0), "initialize", params)).expect(403);
}

#[test]
fn an_answer_names_its_conversation_which_is_its_callers() {
    let system = scripted();
    let session = Session::begin(&system, "/mcp?actorId=vera&conversationId=desk");
    let first = session.call(1, "ask_ken", json!({"question": "Who is there?"}));
    assert_eq!((said(&first), &first["isError"]), ("Hello there.", &json!(false)));
    assert_eq!(first["structuredContent"]["status"], "completed");
    let conversation = &first["structuredContent"]["session"];
    let second = session.call(2, "ask_ken", json!({"question": "/new", "session": conversation}));
    assert_eq!(second["structuredContent"]["session"], *conversation, "a question is never a command: {second}");
    assert_eq!(said(&second), "Hello there.");
    let id = &first["structuredContent"]["id"];
    assert_eq!(said(&session.call(3, "get_result", json!({"id": id}))), "Hello there.");

    let other = Session::begin(&system, "/mcp?actorId=ana&conversationId=desk");
    let refused = other.call(1, "ask_ken", json!({"question": "And?", "session": conversation}));
    assert_eq!(refused["isError"], true, "{refused}");
    assert!(said(&refused).starts_with("/session"), "{refused}");
    assert_eq!(other.call(2, "get_result", json!({"id": id}))["isError"], true);
    // The session of the protocol is its caller's, too.
    let ping = message(json!(4), "ping", json!({}));
    post_to(&system, &other.target, &[("mcp-session-id", &session.id)], &ping).expect(404);

    let failed = session.call(5, "ask_ken", json!({"question": "refused"}));
    assert_eq!(failed["isError"], true);
    assert!(said(&failed).contains("the key is not taken"), "{failed}");
}

#[test]
fn a_workflow_runs_and_its_input_is_checked() {
    let system = scripted();
    let session = Session::begin(&system, "/mcp");
    let listed = session.post(&[], &message(json!(1), "tools/list", json!({}))).expect(200).at("/result/tools");
    let described = listed.as_array().unwrap().iter().find(|tool| tool["name"] == "run_workflow").unwrap();
    assert!(described["description"].as_str().unwrap().contains("\nanalyze_only: "), "{described}");
    let input = json!({"user_input": "Great, the server is up again!"});
    let result = session.call(2, "run_workflow", json!({"workflow": "analyze_only", "input": input}));
    assert_eq!(result["isError"], false, "{result}");
    assert_eq!(result["structuredContent"]["status"], "completed");
    assert!(result["structuredContent"]["result"].is_object(), "{result}");
    let wrong = session.call(3, "run_workflow", json!({"workflow": "analyze_only", "input": {"user_input": 1}}));
    assert!(said(&wrong).starts_with("/input"), "{wrong}");
}

/// The messages of a stream of events to its end, and the ids of its events.
fn events(client: &mut Client) -> (Vec<Value>, Vec<String>) {
    let (status, headers) = client.head().unwrap();
    assert_eq!(status, 200, "{headers:?}");
    let mut text = Vec::new();
    loop {
        match client.chunk() {
            Ok(chunk) if chunk.is_empty() => break,
            Ok(chunk) => text.extend(chunk),
            Err(_) => break,
        }
    }
    let text = String::from_utf8(text).unwrap();
    let field = |name: &str| text.lines().filter_map(|line| line.strip_prefix(name)).map(str::trim).collect::<Vec<_>>();
    let data = field("data:").into_iter().filter(|data| !data.is_empty());
    (
        data.map(|data| serde_json::from_str(data).unwrap()).collect(),
        field("id:").into_iter().map(str::to_owned).collect(),
    )
}

fn slow() -> System {
    Builder::default()
        .script(&[
            json!({"when": "slowly", "events": [{"sleep_ms": 5_000}, {"text": "At last."}]}),
            json!({"when": "hold", "events": [{"text": "part"}, {"sleep_ms": 60_000}]}),
            json!({"events": [{"text": "Hello."}]}),
        ])
        .start()
}

fn ask(id: Value, question: &str) -> Value {
    let meta = json!({"progressToken": "t"});
    message(id, "tools/call", json!({"name": "ask_ken", "arguments": {"question": question}, "_meta": meta}))
}

#[test]
fn a_stream_says_how_far_it_has_come_and_a_repetition_finds_the_turn() {
    let system = slow();
    let session = Session::begin(&system, "/mcp");
    let (messages, ids) = events(&mut session.stream(&ask(json!(1), "slowly"), "2025-11-25"));
    assert_eq!(messages.last().unwrap()["result"]["content"][0]["text"], "At last.");
    assert!(messages.len() >= 2 && messages[0]["method"] == "notifications/progress", "{messages:?}");
    assert_eq!(messages[0]["params"]["progressToken"], "t");
    assert_eq!(ids.len(), 1);
    // The event from which the answer can be resumed has the same answer, and only for its caller.
    let resume = |session: &str, event: &str| {
        let mut client = Client::connect(system.address());
        let request = client.request("GET", "/mcp").header("accept", "text/event-stream");
        request.header("mcp-session-id", session).header("last-event-id", event).start();
        client
    };
    let (resumed, _) = events(&mut resume(&session.id, &ids[0]));
    assert_eq!(resumed.last(), messages.last());
    assert_eq!(resume(&session.id, &format!("{}0", ids[0])).head().unwrap().0, 404);
    // Earlier versions get no event without data.
    let (_, ids) = events(&mut session.stream(&ask(json!(2), "soon"), "2025-06-18"));
    assert_eq!(ids, Vec::<String>::new());
    assert_eq!((turns(&system, "slowly"), turns(&system, "soon")), (1, 1));
    // The same request again is answered from its turn; the same question in another request is a new one.
    let again = session.post(&[], &ask(json!(1), "slowly")).expect(200);
    assert_eq!(said(&again.at("/result")), "At last.");
    assert_eq!(turns(&system, "slowly"), 1);
    session.post(&[], &ask(json!(3), "soon")).expect(200);
    assert_eq!(turns(&system, "soon"), 2);
}

#[test]
fn a_turn_that_takes_too_long_has_an_id_and_is_found_by_it_and_by_its_question() {
    let system = slow();
    let session = Session::begin(&system, "/mcp");
    let wait = [("prefer", "wait=1")];
    let first = session.post(&wait, &ask(json!(1), "slowly")).expect(200).at("/result");
    // On a busy machine it may not have begun.
    let status = first["structuredContent"]["status"].as_str();
    assert!(matches!(status, Some("running" | "queued")) && first["isError"] == false, "{first}");
    let id = first["structuredContent"]["id"].as_str().unwrap();
    assert!(said(&first).contains(id), "{first}");
    // Asked again while it runs, it is the same turn.
    let again = session.post(&wait, &ask(json!(2), "slowly")).expect(200).at("/result");
    assert_eq!(again["structuredContent"]["id"], id);
    let waiting =
        session.post(&wait, &message(json!(3), "tools/call", json!({"name": "get_result", "arguments": {"id": id}})));
    assert_eq!(waiting.expect(200).at("/result/structuredContent/status"), "running");
    assert_eq!(said(&session.call(4, "get_result", json!({"id": id}))), "At last.");
    assert_eq!(turns(&system, "slowly"), 1);
    // Its end is known now, so the question is asked anew.
    assert_eq!(said(&session.call(5, "ask_ken", json!({"question": "slowly"}))), "At last.");
    assert_eq!(turns(&system, "slowly"), 2);
}

fn aborted(system: &System) -> usize {
    let runs = system.get("/api/telemetry/runs?limit=100").expect(200).json();
    runs["runs"].as_array().unwrap().iter().filter(|run| run["status"] == "aborted").count()
}

#[test]
fn a_cancelled_call_ends_its_turn_and_sends_nothing_more() {
    let system = slow();
    let session = Session::begin(&system, "/mcp");
    let mut client = session.stream(&ask(json!("long"), "hold"), "2025-06-18");
    assert_eq!(client.head().unwrap().0, 200);
    // The id of a call that is being answered is no other's.
    let other = session.post(&[], &ask(json!("long"), "something else")).expect(200);
    assert_eq!(other.at("/error/code"), -32600);
    let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "long"}});
    assert_eq!(session.post(&[], &cancel).status, 202);
    let rest = String::from_utf8(client.rest().unwrap()).unwrap();
    assert!(!rest.contains("\"result\""), "{rest}");
    until("the turn has ended", || aborted(&system) == 1);
    // The id of another client's call cancels nothing.
    let other = Session::begin(&system, "/mcp");
    let mut client = session.stream(&ask(json!(7), "slowly"), "2025-06-18");
    let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}});
    other.post(&[], &cancel);
    assert_eq!(events(&mut client).0.last().unwrap()["result"]["isError"], false);
    assert_eq!(aborted(&system), 1);
}

/// A call of the version without sessions.
fn modern(system: &System, id: u64, question: &str) -> Client {
    let meta =
        json!({"io.modelcontextprotocol/protocolVersion": MODERN, "io.modelcontextprotocol/clientCapabilities": {}});
    let params = json!({"name": "ask_ken", "arguments": {"question": question}, "_meta": meta});
    let mut client = Client::connect(system.address());
    let request = client.request("POST", "/mcp").header("content-type", "application/json");
    let request =
        request.header("accept", "application/json, text/event-stream").header("mcp-protocol-version", MODERN);
    let request = request.header("mcp-method", "tools/call").header("mcp-name", "ask_ken");
    request.json(&message(json!(id), "tools/call", params)).start();
    client
}

#[test]
fn without_a_session_the_end_of_the_connection_cancels() {
    let system = slow();
    let mut client = modern(&system, 1, "hold");
    assert_eq!(client.head().unwrap().0, 200);
    client.chunk().unwrap();
    drop(client);
    until("the turn has ended", || aborted(&system) == 1);
    // Nothing of it is left: the question can be asked again.
    let mut again = modern(&system, 2, "hold");
    assert_eq!(again.head().unwrap().0, 200);
    until("it runs again", || turns(&system, "hold") == 2);
}

#[test]
fn when_parts_are_killed_the_repeated_call_gives_one_answer_and_one_turn() {
    let system = slow();
    let session = Session::begin(&system, "/mcp");
    for (part, question) in [("gateway", "slowly, one"), ("agent", "slowly, two"), ("store", "slowly, three")] {
        let mut client = session.stream(&ask(json!(question), question), "2025-11-25");
        assert_eq!(client.head().unwrap().0, 200);
        until("the turn runs", || turns(&system, question) == 1);
        system.kill(part);
        system.wait_until_stable(part);
        // A client that has lost the answer calls again: with the same id, or with a new one.
        let end = Instant::now() + Duration::from_secs(60);
        let result = session.call(9, "ask_ken", json!({"question": question}));
        assert!(Instant::now() < end);
        assert_eq!(said(&result), "At last.", "{part}");
        assert_eq!(turns(&system, question), 1, "{part}");
    }
}

#[test]
fn an_approval_waits_for_a_person_at_ken() {
    let call = json!({"tool": {"name": "gated", "arguments": {"word": "x"}}});
    let system = scripted_builder()
        .script(&[
            json!({"when": "please", "after_tools": 0, "events": [call]}),
            json!({"when": "please", "after_tools": 1, "events": [{"text": "Done."}]}),
        ])
        .file(
            "tools.d/gated.json",
            &json!({"name": "gated", "description": "A tool.", "command": ["sh", "-c", "cat >/dev/null; echo did it"],
                "input": {"type": "object"}, "writes": "text", "agents": ["orchestrator"]})
            .to_string(),
        )
        .start();
    let session = Session::begin(&system, "/mcp");
    let wait = [("prefer", "wait=3")];
    let first = session.post(&wait, &ask(json!(1), "please")).expect(200).at("/result/structuredContent");
    assert_eq!(first["status"], "waiting", "{first}");
    let request = first["approvals"][0].as_str().unwrap();
    let record = system.get(&format!("/api/approvals/{request}")).expect(200).json();
    assert_eq!(record["status"], "pending", "{record}");
    let decision = json!({"decidedBy": "vera", "approved": true});
    system.post(&format!("/api/approvals/{request}/decision"), &decision).expect(200);
    assert_eq!(said(&session.call(2, "get_result", json!({"id": first["id"]}))), "Done.");
}
