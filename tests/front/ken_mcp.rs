//! ken-mcp copies messages between its standard streams and the gateway: in order, through kills, and to its last line.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use ken_tests::{Builder, System, binary, until};
use serde_json::{Value, json};

struct Mcp {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Mcp {
    fn start(system: &System) -> Mcp {
        let mut command = Command::new(binary("ken-mcp"));
        let command = command.arg("--home").arg(system.home()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (input, output) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        Mcp { child, input, output }
    }

    fn write(&mut self, text: &str) {
        let input = self.input.as_mut().unwrap();
        input.write_all(text.as_bytes()).unwrap();
        input.flush().unwrap();
    }

    fn send(&mut self, message: &Value) {
        self.write(&format!("{message}\n"));
    }

    fn read(&mut self) -> Value {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
    }

    /// Reads up to the reply to a request, and returns that.
    fn reply(&mut self, id: &Value) -> Value {
        loop {
            let message = self.read();
            if message["id"] == *id {
                return message;
            }
            assert_eq!(message["method"], "notifications/progress", "{message}");
        }
    }

    fn initialize(&mut self) {
        let info = json!({"name": "probe", "version": "1"});
        let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info});
        self.send(&json!({"jsonrpc": "2.0", "id": "i", "method": "initialize", "params": params}));
        assert_eq!(self.reply(&json!("i"))["result"]["protocolVersion"], "2025-11-25");
        self.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
    }

    /// Ends its input, and returns what it still writes and its exit status.
    fn finish(mut self) -> (String, Option<i32>) {
        drop(self.input.take());
        let mut rest = String::new();
        std::io::Read::read_to_string(&mut self.output, &mut rest).unwrap();
        (rest, self.child.wait().unwrap().code())
    }
}

fn ask(id: &str, question: &str) -> Value {
    let params = json!({"name": "ask_ken", "arguments": {"question": question}});
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params})
}

fn system() -> System {
    Builder::default()
        .script(&[
            json!({"when": "slowly", "events": [{"sleep_ms": 4_000}, {"text": "At last."}]}),
            json!({"when": "hold", "events": [{"sleep_ms": 60_000}]}),
            json!({"events": [{"text": "Hello."}]}),
        ])
        .start()
}

fn runs(system: &System, status: &str) -> usize {
    let runs = system.get("/api/telemetry/runs?limit=100").expect(200).json();
    runs["runs"].as_array().unwrap().iter().filter(|run| run["status"] == status).count()
}

#[test]
fn messages_are_copied_and_bad_ones_are_answered() {
    let system = system();
    let mut mcp = Mcp::start(&system);
    mcp.initialize();
    mcp.write("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/li\n\n");
    assert_eq!(mcp.read()["error"]["code"], -32700);
    let long = "x".repeat(5 << 20);
    mcp.write(&format!("{{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"ping\",\"params\":{{\"x\":\"{long}\"}}}}\n"));
    let refused = mcp.read();
    assert_eq!((&refused["id"], &refused["error"]["code"]), (&Value::Null, &json!(-32600)));
    mcp.send(&json!({"jsonrpc": "2.0", "id": 3, "method": "no/such"}));
    assert_eq!(mcp.read()["error"]["code"], -32601);
    // A slow call does not hold up others.
    mcp.send(&ask("slow", "slowly"));
    mcp.send(&ask("quick", "hi"));
    assert_eq!(mcp.reply(&json!("quick"))["result"]["content"][0]["text"], "Hello.");
    // What was asked before the end of the input is answered, also in a last line without its end.
    mcp.write("{\"jsonrpc\":\"2.0\",\"id\":4,\"method\":\"ping\"}");
    let (rest, status) = mcp.finish();
    assert_eq!(status, Some(0));
    assert!(rest.contains("At last.") && rest.contains("\"id\":4"), "{rest}");
    // One that was cut is no message.
    let mut mcp = Mcp::start(&system);
    mcp.write("{\"jsonrpc\":\"2.0\",\"id\":5,\"method\":\"ping\"");
    let (rest, status) = mcp.finish();
    assert_eq!((rest.matches("-32700").count(), rest.lines().count(), status), (1, 1, Some(0)), "{rest}");
}

#[test]
fn a_killed_gateway_or_agent_delays_the_answer_and_there_is_one_turn() {
    let system = system();
    let mut mcp = Mcp::start(&system);
    mcp.initialize();
    for (count, part) in ["gateway", "agent"].into_iter().enumerate() {
        mcp.send(&ask(part, &format!("slowly, {part}")));
        until("the turn runs", || runs(&system, "running") == 1);
        system.kill(part);
        let reply = mcp.reply(&json!(part));
        assert_eq!(reply["result"]["content"][0]["text"], "At last.", "{reply}");
        assert_eq!(runs(&system, "completed"), count + 1, "{part}");
    }
    assert_eq!(mcp.finish(), (String::new(), Some(0)));
}

#[test]
fn a_call_is_cancelled_with_and_without_a_session() {
    let system = system();
    let mut mcp = Mcp::start(&system);
    let meta = json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}});
    let discover = json!({"jsonrpc": "2.0", "id": 0, "method": "server/discover", "params": {"_meta": meta}});
    mcp.send(&discover);
    assert_eq!(mcp.read()["result"]["supportedVersions"][0], "2026-07-28");
    let mut modern = ask("m", "hold");
    modern["params"]["_meta"] = meta;
    for (count, call) in [(1, modern), (2, ask("l", "hold, too"))] {
        if count == 2 {
            mcp.initialize();
        }
        mcp.send(&call);
        until("the turn runs", || runs(&system, "running") == 1);
        let params = json!({"requestId": call["id"]});
        mcp.send(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}));
        until("the turn has ended", || runs(&system, "aborted") == count);
        assert_eq!(runs(&system, "running"), 0);
    }
    assert_eq!(mcp.finish(), (String::new(), Some(0)));
}

#[test]
fn without_a_system_it_says_so() {
    let home = tempfile::tempdir().unwrap();
    let output = Command::new(binary("ken-mcp")).arg("--home").arg(home.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(75), "{output:?}");
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("ken is not running") && said.contains("ken up"), "{said}");
    assert!(output.stdout.is_empty());
}

/// The version without sessions wants the name of what is called or read in a header.
#[test]
fn tools_and_resources_are_named_in_headers() {
    let system = Builder::default()
        .script(&[json!({"events": [{"text": "Hello."}]})])
        .config("[doors]\nmcp_transcripts = true\n")
        .start();
    let session = system.session();
    system.say(&session, "One thing").expect(200);
    let mut mcp = Mcp::start(&system);
    let mut call = |id: u64, method: &str, params: Value| {
        let mut params = params;
        params["_meta"] = json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {}});
        mcp.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        mcp.reply(&json!(id))["result"].clone()
    };
    let read = call(1, "resources/read", json!({"uri": format!("ken://sessions/{session}")}));
    assert!(read["contents"][0]["text"].as_str().is_some_and(|text| text.contains("One thing")), "{read}");
    let asked = call(2, "tools/call", json!({"name": "ask_ken", "arguments": {"question": "hi"}}));
    assert_eq!(asked["content"][0]["text"], "Hello.");
}
