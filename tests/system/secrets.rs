//! Plants a value for every secret. The recipients use, refuse and repeat these values. None must appear in a file, an answer or an
//! output, in a process that other users can inspect, or in a core file.

use std::collections::BTreeSet;
use std::fs::Permissions;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use ken_tests::bot_api::{BotApi, SECRET, TOKEN};
use ken_tests::provider::{Provider, Reply, anthropic, openai, refusal};
use ken_tests::{Builder, System, binary, root, until};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

/// The name of each secret with its value. The two of the messenger have the values that the stand-in for the platform requires.
const SLOTS: [(&str, &str); 9] = [
    ("OPENAI_API_KEY", "planted-openai-1f0c"),
    ("ANTHROPIC_API_KEY", "planted-anthropic-2e1d"),
    ("BRAVE_SEARCH_API_KEY", "planted-brave-3d2e"),
    ("OLLAMA_API_KEY", "planted-ollama-4c3f"),
    ("MESSENGER_BOT_TOKEN", TOKEN),
    ("MESSENGER_WEBHOOK_SECRET_TOKEN", SECRET),
    ("API_SECRET", "planted-gateway-5b4a"),
    ("MCP_API_KEY", "planted-cognitive-6a5b"),
    ("OTEL_EXPORTER_OTLP_HEADERS", COLLECTOR_HEADERS),
];

/// The headers that are sent to a collector of traces with each request.
const COLLECTOR_HEADERS: &str = "x-key=planted-collector-7d6c";
const COLLECTOR_KEY: &str = "planted-collector-7d6c";

/// The beginning of all planted values.
const PLANTED: &str = "planted-";

fn value(slot: &str) -> &'static str {
    SLOTS.iter().find(|(name, _)| *name == slot).unwrap().1
}

/// A provider's error that contains the key, as some providers send.
fn refused(slot: &str) -> Reply {
    refusal(401, Vec::new(), "invalid_api_key", &format!("Incorrect API key provided: {}", value(slot)))
}

#[test]
fn every_secret_of_the_configuration_is_planted() {
    let config = std::fs::read_to_string(root().join("etc/ken.toml")).unwrap();
    let lists = config.lines().filter_map(|line| line.strip_prefix("secrets = ["));
    let named: BTreeSet<&str> = lists
        .flat_map(|list| list.split(']').next().unwrap().split(','))
        .map(|name| name.trim().trim_matches('"'))
        .filter(|name| !name.is_empty())
        .collect();
    // The store keeps nothing in its file where it has the URL of a server, so that this one is planted in a test of its own.
    let planted = SLOTS.iter().map(|(name, _)| *name).chain(["KEN_STORE_URL"]);
    assert_eq!(named, planted.collect());
}

/// A database server that takes the password as it is, refuses it, and repeats it in its error.
fn refusing_database() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            _ = connection.and_then(refuse_login);
        }
    });
    address
}

/// The messages of PostgreSQL's protocol 3: a length, and before it a letter, but for those with which a connection begins.
fn refuse_login(mut connection: TcpStream) -> std::io::Result<()> {
    const ENCRYPT: [u8; 4] = 80_877_103_u32.to_be_bytes();
    let message = |connection: &mut TcpStream| {
        let mut length = [0; 4];
        connection.read_exact(&mut length)?;
        let mut content = vec![0; u32::from_be_bytes(length) as usize - 4];
        connection.read_exact(&mut content)?;
        Ok::<_, std::io::Error>(content)
    };
    if message(&mut connection)? == ENCRYPT {
        connection.write_all(b"N")?;
        message(&mut connection)?;
    }
    let plain_password = 3_u32.to_be_bytes();
    connection.write_all(&[b"R\0\0\0\x08", &plain_password[..]].concat())?;
    connection.read_exact(&mut [0; 1])?;
    let password = message(&mut connection)?;
    let password = String::from_utf8_lossy(&password);
    let password = password.trim_end_matches('\0');
    assert_eq!(password, DATABASE_PASSWORD);
    let error = format!("SFATAL\0VFATAL\0C28P01\0Mthe password {password} is wrong\0\0");
    let length = u32::try_from(error.len() + 4).unwrap().to_be_bytes();
    connection.write_all(&[b"E", &length[..], error.as_bytes()].concat())
}

const DATABASE_PASSWORD: &str = "planted-database-8f7e";

#[test]
fn the_password_of_a_database_server_appears_nowhere() {
    let url = format!("postgres://ken:{DATABASE_PASSWORD}@{}/ken", refusing_database());
    let system = Builder::default().secrets(&format!("KEN_STORE_URL={url}\n")).start();
    let watch = Watch::start();
    let refused = system.post("/api/knowledge", &json!({"title": "t", "content": "c"})).expect(503);
    assert!(refused.text("/error").contains("the password [redacted] is wrong"), "{}", refused.body_text());
    let mut shown = vec![refused.body_text(), system.get("/ready").body_text()];
    for command in [&["status"][..], &["doctor"], &["logs"], &["logs", "store"], &["config", "show"], &["usage"]] {
        shown.push(text(&system.ken(command)));
    }
    watch.end();
    assert!(!shown.iter().any(|text| text.contains(PLANTED)), "{shown:#?}");
    assert_eq!(files_with(PLANTED, system.home()), ["secrets.env"]);
}

/// A password with an @ that is not written as %40, and passwords in ken.toml: they are refused, and no part of them is looked up or shown.
#[test]
fn a_password_in_a_url_that_is_refused_appears_nowhere() {
    let url = format!("postgres://ken:x@{DATABASE_PASSWORD}@127.0.0.1/ken");
    let home = tempfile::tempdir().unwrap();
    let [config, secrets] = ["ken.toml", "secrets.env"].map(|name| home.path().join(name));
    let ken = |arguments: &[&str]| {
        let mut ken = Command::new(binary("ken"));
        text(&ken.arg("--home").arg(home.path()).args(arguments).output().unwrap())
    };
    let mut shown = Vec::new();
    for (of_config, of_secrets, why) in [
        (String::new(), format!("KEN_STORE_URL={url}\n"), "as %40"),
        (
            format!("[store]\nurl = \"{url}\"\n[telemetry]\notlp = \"http://u:{DATABASE_PASSWORD}@127.0.0.1:1\"\n"),
            String::new(),
            "has a password",
        ),
    ] {
        std::fs::write(&config, of_config).unwrap();
        std::fs::write(&secrets, of_secrets).unwrap();
        std::fs::set_permissions(&secrets, Permissions::from_mode(0o600)).unwrap();
        let refused = ken(&["up", "-d", "--port", "0", "--cognitive-port", "0"]);
        let store = Command::new(binary("ken-store")).arg("--check").arg("--home").arg(home.path()).output().unwrap();
        let said = [refused, text(&store)];
        shown.extend(
            [&["status"][..], &["doctor"], &["logs"], &["logs", "store"], &["config", "show"], &["down"]].map(ken),
        );
        assert!(said.iter().chain(&shown).any(|said| said.contains(why)), "{said:?} {shown:?}");
        shown.extend(said);
    }
    let shows = |part: &str| shown.iter().any(|text| text.contains(part));
    assert!(shows("postgres://ken:***@127.0.0.1/ken") && shows("http://u:***@127.0.0.1:1"), "{shown:#?}");
    assert!(!shows(PLANTED), "{shown:#?}");
    assert_eq!(files_with(PLANTED, home.path()), ["ken.toml"]);
}

#[test]
fn a_planted_secret_appears_nowhere() {
    let platform = BotApi::start();
    let model = Provider::start(Vec::new());
    let search = Provider::start(vec![refused("BRAVE_SEARCH_API_KEY"), refused("OLLAMA_API_KEY")]);
    let secrets: String = SLOTS.iter().map(|(name, value)| format!("{name}={value}\n")).collect();
    let told_back = format!("there is no key {COLLECTOR_KEY}");
    let collector = Provider::start(vec![Reply::Status(401, Vec::new(), told_back)]);
    let system = Builder::default()
        .config(&format!("[gateway]\ntrust_loopback = \"no\"\n[telemetry]\notlp = \"{}\"\n", collector.url()))
        .secrets(&secrets)
        .env("KEN_MODEL", "openai/m,anthropic/m")
        .env("OPENAI_BASE_URL", &format!("{}/v1", model.url()))
        .env("ANTHROPIC_BASE_URL", &model.url())
        .env("BRAVE_SEARCH_BASE_URL", &search.url())
        .env("OLLAMA_SEARCH_BASE_URL", &search.url())
        .env("KEN_WEB_ALLOW", search.url().trim_start_matches("http://"))
        .env("MESSENGER_API_BASE_URL", &platform.url())
        .env("MESSENGER_APPROVED_USER_IDS", "7")
        .start();
    let watch = Watch::start();
    let mut shown = Vec::new();

    // Research with two search services that refuse the key and repeat it in their errors.
    shown.push(system.ask("POST", "/workflows/research?wait=result", &json!({"text": "When does the ferry leave?"})));
    let received = search.received();
    let reported =
        |name: &str| received.iter().flat_map(|request| &request.headers).any(|(_, given)| given.contains(value(name)));
    assert!(reported("BRAVE_SEARCH_API_KEY") && reported("OLLAMA_API_KEY"), "{received:?}");

    // A message of the messenger, with the right secret and a wrong one.
    model.push(Reply::Stream(openai(&["Hello there."], &[])));
    let update = json!({"update_id": 1, "message": {"message_id": 1, "date": 1, "text": "hello",
        "from": {"id": 7, "is_bot": false, "first_name": "Ada"}, "chat": {"id": 7, "type": "private"}}});
    for secret in [SECRET, "planted"] {
        let mut client = system.client();
        let request = client.request("POST", "/channels/messenger/webhook");
        let answer = request.header("X-Telegram-Bot-Api-Secret-Token", secret).json(&update).send();
        shown.push(answer.body_text());
    }
    until("the answer is in the chat", || platform.texts(7).len() == 1);
    // Then the platform is unreachable, and the next answer cannot be sent.
    drop(platform);
    model.push(Reply::Stream(openai(&["And again."], &[])));
    let mut next = update.clone();
    (next["update_id"], next["message"]["message_id"]) = (json!(2), json!(2));
    let mut client = system.client();
    let request = client.request("POST", "/channels/messenger/webhook");
    shown.push(request.header("X-Telegram-Bot-Api-Secret-Token", SECRET).json(&next).send().body_text());
    until("it is asked for the second", || model.received().len() == 2);

    // The terminal client reads the gateway's secret from the system's own file.
    model.push(Reply::Stream(openai(&["Hello."], &[])));
    let client = Command::new(binary("ken-tui"))
        .env_clear()
        .env("KEN_HOME", system.home())
        .args(["--print", "hello"])
        .stdin(Stdio::null())
        .output();
    shown.push(text(&client.unwrap()));

    // Turns in which first one provider refuses its key and the next one answers, and then that one refuses its key as well.
    let session = system.ask("POST", "/api/chat/sessions", &who(&[]));
    let id = session.split("\"id\":\"").nth(1).unwrap().split('"').next().unwrap().to_owned();
    model.push(refused("OPENAI_API_KEY"));
    model.push(Reply::Stream(anthropic(&["Hello."], &[])));
    model.push(refused("ANTHROPIC_API_KEY"));
    for text in ["hello", "hello again", "and again"] {
        shown.push(system.ask("POST", "/api/chat/events", &who(&[("text", json!(text)), ("session", json!(id))])));
    }
    let received = model.received();
    let reported =
        |name: &str| received.iter().flat_map(|request| &request.headers).any(|(_, given)| given.contains(value(name)));
    assert!(reported("OPENAI_API_KEY") && reported("ANTHROPIC_API_KEY"), "{shown:?}");
    assert!(shown.iter().any(|text| text.contains("Incorrect API key provided: [redacted]")), "{shown:?}");

    // Both servers, with the right secret and a wrong one.
    for target in [
        "/health",
        "/ready",
        "/openapi.json",
        "/runs",
        "/api/telemetry/runs",
        "/api/chat/sessions?connector=tui&actorId=local-tui&conversationId=local-tui",
        &format!("/api/chat/sessions/{id}/transcript?connector=tui&actorId=local-tui&conversationId=local-tui"),
        &format!("/agents/orchestrator/{id}?offset=-1"),
        "/api/connectors/messenger/health",
        "/nowhere",
    ] {
        shown.push(system.ask("GET", target, &Value::Null));
        let mut client = system.client();
        shown.push(client.request("GET", target).header("X-Api-Secret", "planted").send().body_text());
    }
    for (key, status) in [(value("MCP_API_KEY"), 200), ("planted", 401)] {
        let answer = system.asker_with(key).get("/v1/protocols");
        assert_eq!(answer.status, status, "{}", answer.body_text());
        shown.push(answer.body_text());
        shown.push(system.asker_with(key).get("/metrics").body_text());
    }

    // Every command that inspects the system.
    for command in [
        &["status"][..],
        &["status", "--json"],
        &["doctor"],
        &["doctor", "--json"],
        &["logs"],
        &["usage"],
        &["sessions"],
        &["runs"],
        &["config", "show"],
        &["messenger", "status"],
        &["model", "list"],
        &["model", "try", "openai/m"],
        &["call", "model", "model.info"],
        &["audit", "verify"],
        &["why", &id],
    ] {
        shown.push(text(&system.ken(command)));
    }

    // The traces of the turns above are sent to the collector.
    until("the collector is asked", || !collector.received().is_empty());
    let received = collector.received();
    let headers = received.iter().flat_map(|request| &request.headers);
    assert!(headers.into_iter().any(|(_, given)| given == COLLECTOR_KEY), "{received:?}");

    // A part that crashes leaves no core file, and is restarted.
    let limits = |pid: i32| std::fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
    for part in ["model", "tools", "messenger", "gateway", "cognitive", "store", "agent"] {
        let pid = system.pid(part);
        let limits = limits(pid);
        let core = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap();
        assert_eq!(core.split_whitespace().nth(4), Some("0"), "{part}: {core}");
        system.signal(part, Signal::SIGABRT);
        until(&format!("{part} is another process"), || system.pid(part) != pid);
    }
    shown.push(text(&system.ken(&["logs", "-n", "1000"])));
    // Searched with the other files of the home below.
    let backup = system.home().join("backup.tar");
    let written = system.ken(&["backup", backup.to_str().unwrap()]);
    assert!(written.status.success() && backup.exists(), "{}", text(&written));
    shown.push(text(&written));

    watch.end();
    for text in &shown {
        assert!(!SLOTS.iter().any(|(_, value)| text.contains(value)), "{text}");
        assert!(!text.contains(COLLECTOR_KEY), "{text}");
    }
    assert_eq!(files_with(PLANTED, system.home()), ["secrets.env"]);
    let cores = Command::new("find").arg(system.home()).args(["-name", "core*", "-type", "f"]).output().unwrap();
    assert_eq!(text(&cores), "");
}

/// Secrets that an operator adds for a tool, for MCP servers, and for a host of the coding worker. Their recipients repeat them, and
/// so does the embeddings server.
#[test]
fn a_secret_that_its_recipient_repeats_appears_nowhere() {
    // An MCP server that communicates over standard input and output gets its secret in its environment, as the protocol requires.
    let added = [
        ("OWN_TOOL_KEY", "planted-tool/8e7d"),
        ("MCP_TOKEN", "planted-mcp/9f8e"),
        ("HTTP_TOKEN", "http-canary-77"),
        ("HOST_KEY", "planted-host-a09f"),
        ("OPENAI_API_KEY", value("OPENAI_API_KEY")),
    ];
    let model = Provider::answering(|request| {
        if request.path.ends_with("/embeddings") {
            return refused("OPENAI_API_KEY");
        }
        let messages = request.body["messages"].as_array().unwrap();
        let is_worker = messages[1].to_string().contains("dig");
        let results = messages.iter().filter(|message| message["role"] == "tool").count();
        Reply::Stream(match (is_worker, results) {
            (false, 0) => openai(
                &[],
                &[
                    ("c1", "own_tool", "{}"),
                    ("c2", "failing_tool", "{}"),
                    ("c6", "json_tool", "{}"),
                    ("c7", "failing_json_tool", "{}"),
                    ("c8", "cut_tool", "{}"),
                    ("c3", "mcp__double__variable", "{\"name\": \"TOKEN\"}"),
                    ("c5", "task", "{\"agent\": \"research-worker\", \"prompt\": \"dig\"}"),
                ],
            ),
            // The calls of one message run side by side, and the end of the server would end those to it.
            (false, 7) => openai(&[], &[("c4", "mcp__double__die", "{}")]),
            (true, 0) => openai(&[], &[("c1", "mcp__remote__echo", "{\"text\": \"hello\"}")]),
            _ => openai(&["Done."], &[]),
        })
    });
    let secrets: String = added.iter().map(|(name, value)| format!("{name}={value}\n")).collect();
    let system = Builder::default()
        .config(
            "[part.tools]\nsecrets = [\"OWN_TOOL_KEY\", \"MCP_TOKEN\", \"HTTP_TOKEN\"]\n[workspace]\n\
             rules = [{ path = \"\", policy = \"ask\", hosts = [\"git.example\"], keys = { \"git.example\" = \"HOST_KEY\" } }]\n",
        )
        .secrets(&secrets)
        .env("KEN_MODEL", "openai/m")
        .env("KEN_EMBED", "openai/e")
        .env("OPENAI_BASE_URL", &format!("{}/v1", model.url()))
        .file("mcp.py", include_str!("../doubles/mcp.py"))
        .start();
    let home = system.home();
    let scratch = home.join("scratch");
    std::fs::create_dir_all(home.join("tools.d")).unwrap();
    std::fs::create_dir(&scratch).unwrap();
    let read = "cat /proc/self/fd/$KEN_SECRETS_FD | tr '\\0' '\\n'";
    // Prints the secret with its first letter and the slash escaped, as JSON allows.
    let escaped = format!("{read} | sed 's|.*=p|\\\\u0070|; s|/|\\\\/|'");
    // The size limit of the output cuts the secret in the middle.
    let cut = format!("printf '%04073d' 0 >&2; {read} | tr -d '\\n' >&2; exit 3");
    for (name, writes, script) in [
        ("own_tool", "text", read.to_owned()),
        ("failing_tool", "text", format!("{read} >&2; exit 3")),
        ("json_tool", "json", format!("printf '{{\"it\":\"%s\"}}' \"$({escaped})\"")),
        (
            "failing_json_tool",
            "json",
            format!("printf '{{\"error\":{{\"message\":\"%s\"}}}}' \"$({escaped})\" >&2; exit 3"),
        ),
        ("cut_tool", "text", cut),
    ] {
        let entry = json!({"name": name, "description": "x", "command": ["sh", "-c", script], "input": {"type": "object"},
            "writes": writes, "approval": "none", "agents": ["orchestrator"], "secrets": ["OWN_TOOL_KEY"]});
        std::fs::write(home.join(format!("tools.d/{name}.json")), entry.to_string()).unwrap();
    }
    let mut http = Command::new("python3");
    http.arg(home.join("mcp.py")).arg(&scratch).arg("http").stdout(Stdio::null()).stderr(Stdio::null());
    let mut http = http.spawn().unwrap();
    until("the server listens", || scratch.join("port").exists());
    let port = std::fs::read_to_string(scratch.join("port")).unwrap();
    let own = json!({"agents": ["orchestrator"], "approval": "none", "idempotent": [],
        "touch": {"read": [home.join("mcp.py")], "write": [scratch]}});
    let servers = json!({"mcpServers": {
        "double": {"command": "python3", "args": [home.join("mcp.py"), scratch], "env": {"TOKEN": "${MCP_TOKEN}"}, "ken": own},
        "remote": {"url": format!("http://127.0.0.1:{port}/mcp"), "headers": {"Authorization": "Bearer ${HTTP_TOKEN}"},
            "ken": {"approval": "none"}},
    }});
    std::fs::write(home.join("mcp.json"), servers.to_string()).unwrap();
    let mut shown = Vec::new();
    for name in ["double", "remote"] {
        let output = text(&system.ken(&["tools", "accept", name]));
        let digest = serde_json::from_str::<Value>(&output).unwrap()["sha256"].as_str().unwrap().to_owned();
        shown.extend([output, text(&system.ken(&["tools", "accept", name, &digest]))]);
    }
    until("all tools are listed", || {
        let listed = system.call("tools", "tools.list", &[]).to_string();
        ["own_tool", "cut_tool", "mcp__double__die", "mcp__remote__echo"]
            .iter()
            .all(|name| listed.contains(&format!("\"{name}\"")))
    });
    // Adds an entry, so that its vector is requested.
    system.post("/api/knowledge", &json!({"title": "Ferry", "content": "It leaves at nine."})).expect(201);
    until("the server of vectors has refused", || text(&system.ken(&["status"])).contains("entries get no vectors"));
    let answer = system.post("/agents/orchestrator/planted?wait=result", &json!({"message": "go"}));
    assert_eq!(answer.expect(200).text("/result/text"), "Done.");
    let received = model.received();
    let last = received.iter().rfind(|request| request.body["messages"].to_string().contains("c5")).unwrap();
    let results = last.body["messages"].to_string();
    // Each recipient has repeated its secret.
    assert_eq!(results.matches("OWN_TOOL_KEY=[redacted]").count(), 2, "{results}");
    assert!(results.contains("\\n[redacted]\\n"), "{results}");
    assert!(results.contains("{\\\"it\\\":\\\"[redacted]\\\"}"), "{results}");
    assert!(results.contains("The tool failing_json_tool ended with status 3: [redacted]"), "{results}");
    assert!(results.contains("00OWN_T"), "{results}");
    let bodies = received.iter().map(|request| request.body.to_string());
    shown.extend(bodies);
    for target in ["/agents/orchestrator/planted?offset=-1", "/ready", "/api/telemetry/runs"] {
        shown.push(system.get(target).body_text());
    }
    for command in [
        &["status"][..],
        &["status", "--json"],
        &["doctor"],
        &["logs", "-n", "1000"],
        &["config", "show"],
        &["tools", "list"],
        &["tools", "servers"],
        &["usage"],
    ] {
        shown.push(text(&system.ken(command)));
    }
    for process in std::fs::read_dir("/proc").unwrap().flatten() {
        let words = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
        shown.push(String::from_utf8_lossy(&words).into_owned());
    }
    http.kill().unwrap();
    http.wait().unwrap();
    for text in &shown {
        let found = added.iter().find(|(_, value)| text.contains(value));
        assert_eq!(found, None, "{text}");
        assert!(!text.contains("planted-to"), "{text}");
    }
    assert_eq!(files_with(PLANTED, home), ["secrets.env"]);
    // The source file of the stand-in, mcp.py, contains its secret too.
    let mut files = files_with("http-canary-77", home);
    files.sort();
    assert_eq!(files, ["mcp.py", "secrets.env"]);
}

/// The identity fields, as the terminal client sends them.
fn who(fields: &[(&str, Value)]) -> Value {
    let mut body = ken_tests::tui(fields);
    (body["actorId"], body["conversationId"]) = (json!("local-tui"), json!("local-tui"));
    body
}

trait Ask {
    fn ask(&self, method: &str, target: &str, body: &Value) -> String;
}

impl Ask for System {
    /// Sends a request with the gateway's secret. Returns the whole answer.
    fn ask(&self, method: &str, target: &str, body: &Value) -> String {
        let mut client = self.client();
        let request = client.request(method, target).header("X-Api-Secret", value("API_SECRET"));
        let answer = if body.is_null() { request.send() } else { request.json(body).send() };
        assert!(![401, 403].contains(&answer.status), "{target}: {}", answer.body_text());
        answer.body_text()
    }
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// Files below a folder that contain some bytes, by relative path.
fn files_with(bytes: &str, folder: &Path) -> Vec<String> {
    let found = Command::new("grep").args(["-rlaF", bytes, "."]).current_dir(folder).output().unwrap();
    let names = text(&found);
    names.lines().map(|name| name.trim_start_matches("./").to_owned()).collect()
}

/// Inspects the arguments and the environment of every process in a loop, to see short-lived processes too.
struct Watch {
    over: Arc<AtomicBool>,
    thread: JoinHandle<Vec<String>>,
}

impl Watch {
    fn start() -> Watch {
        let over = Arc::new(AtomicBool::new(false));
        let is_over = over.clone();
        let thread = std::thread::spawn(move || {
            let mut seen = Vec::new();
            while !is_over.load(Ordering::Relaxed) {
                for process in std::fs::read_dir("/proc").unwrap().flatten() {
                    for name in ["cmdline", "environ"] {
                        let bytes = std::fs::read(process.path().join(name)).unwrap_or_default();
                        let text = String::from_utf8_lossy(&bytes);
                        if text.contains(DATABASE_PASSWORD) || SLOTS.iter().any(|(_, value)| text.contains(value)) {
                            seen.push(format!("{}/{name}: {}", process.path().display(), text.replace('\0', " ")));
                        }
                    }
                }
                std::thread::sleep(Duration::from_millis(20));
            }
            seen
        });
        Watch { over, thread }
    }

    fn end(self) {
        self.over.store(true, Ordering::Relaxed);
        assert_eq!(self.thread.join().unwrap(), Vec::<String>::new());
    }
}
