//! The console's files, and how a browser comes in: it exchanges a code of `ken open`, once, for a token of this origin.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use ken_tests::{Answer, Builder, Client, Contract, Stream, System, root, until};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

const HOST: &str = "ken.example:8443";
/// The person of `System::session`.
const SCOPE: &str = "connector=tui&actorId=a&conversationId=c";

fn remote(system: &System, method: &str, path: &str, headers: &[(&str, &str)], body: Option<&Value>) -> Answer {
    let mut client = system.client();
    let mut request = client.request_to(method, path, HOST);
    for (name, value) in headers {
        request = request.header(name, value);
    }
    match body {
        Some(body) => request.header("content-type", "application/json").json(body).send(),
        None => request.send(),
    }
}

/// The code in a link of `ken open --print`.
fn code(system: &System) -> String {
    let output = system.ken(&["open", "--print"]);
    assert!(output.status.success(), "{output:?}");
    let link = String::from_utf8(output.stdout).unwrap();
    let (address, code) = link.trim().split_once("/#link=").unwrap_or_else(|| panic!("{link}"));
    assert_eq!(address, system.url());
    code.to_owned()
}

fn trade(system: &System, code: &str) -> Answer {
    remote(system, "POST", "/console/token", &[], Some(&json!({"code": code})))
}

fn bearer(token: &str) -> String {
    format!("Bearer {token}")
}

#[test]
fn every_file_has_the_headers_that_keep_foreign_text_harmless() {
    let system = System::start();
    // The contract is about the routes, and these are none.
    let get = |path: &str| Client::connect(system.address()).get(path);
    let page = get("/").expect(200);
    let version = env!("CARGO_PKG_VERSION");
    assert!(page.body_text().contains(&format!("src=\"/{version}/app.js\"")), "{}", page.body_text());
    for (path, kind) in [
        ("/".to_owned(), "text/html; charset=utf-8"),
        (format!("/{version}/app.js"), "text/javascript; charset=utf-8"),
        (format!("/{version}/style.css"), "text/css; charset=utf-8"),
        (format!("/{version}/vendor/preact.js"), "text/javascript; charset=utf-8"),
    ] {
        let answer = get(&path).expect(200);
        let header = |name| answer.header(name).unwrap_or_else(|| panic!("{path} has no {name}"));
        assert_eq!(header("content-type"), kind);
        assert_eq!(
            header("content-security-policy"),
            "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' blob:; \
             font-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'"
        );
        for (name, value) in [
            ("referrer-policy", "no-referrer"),
            ("cross-origin-opener-policy", "same-origin"),
            ("x-content-type-options", "nosniff"),
            ("vary", "accept-encoding"),
            ("cache-control", "no-cache"),
        ] {
            assert_eq!(header(name), value, "{path}");
        }
    }
    for path in ["/0.0.0/app.js", "/../Cargo.toml", "/%2e%2e/models.toml", "/console/app.js", "/.hidden", "/api/app.js"]
    {
        assert_eq!(get(path).status, 404, "{path}");
    }
}

#[test]
fn the_libraries_are_the_files_that_their_list_names() {
    let folder = root().join("share/console/vendor");
    let list = std::fs::read_to_string(folder.join("README")).unwrap();
    let rows: Vec<Vec<&str>> = list.lines().map(|line| line.split_whitespace().collect()).collect();
    let mut named = Vec::new();
    for row in rows.iter().filter(|row| row.first().is_some_and(|name| name.ends_with(".js")) && row.len() == 6) {
        let digest = std::process::Command::new("sha256sum").arg(folder.join(row[0])).output().unwrap();
        let digest = String::from_utf8(digest.stdout).unwrap();
        assert_eq!(digest.split_whitespace().next(), Some(row[5]), "{}", row[0]);
        named.push(row[0].to_owned());
    }
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut files: Vec<String> = files.filter(|name| name.ends_with(".js")).collect();
    files.sort();
    named.sort();
    assert_eq!(files, named);
    assert!(named.len() <= 3, "{named:?}");
}

/// What the page is made of never turns text into markup.
#[test]
fn no_module_of_the_page_writes_markup() {
    for entry in std::fs::read_dir(root().join("share/console")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "js") {
            let text = std::fs::read_to_string(&path).unwrap();
            for word in
                ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function", "cookie"]
            {
                assert!(!text.contains(word), "{}: {word}", path.display());
            }
        }
    }
}

#[test]
fn a_link_lets_one_browser_in_once() {
    for secrets in ["", "API_SECRET=s3cret\n"] {
        let system = Builder::default().secrets(secrets).start();
        let refused = if secrets.is_empty() { 403 } else { 401 };
        remote(&system, "GET", "/api/system", &[], None).expect(refused);
        let code = code(&system);
        let answer = trade(&system, &code).expect(200);
        Contract::get().check("POST", "/console/token", &answer);
        let token = bearer(&answer.text("/token"));
        let token = ("authorization", token.as_str());
        let state = remote(&system, "GET", "/api/system", &[token], None).expect(200);
        Contract::get().check("GET", "/api/system", &state);
        assert_eq!(state.text("/version"), env!("CARGO_PKG_VERSION"));
        for again in [code.as_str(), "x", ""] {
            let answer = trade(&system, again).refused(401, "unauthenticated", "/code");
            Contract::get().check("POST", "/console/token", &answer);
        }
        // The token is for this host and its own pages.
        for foreign in [("origin", "https://evil.test"), ("origin", "null"), ("sec-fetch-site", "cross-site")] {
            remote(&system, "GET", "/api/system", &[token, foreign], None).expect(refused);
        }
        remote(&system, "GET", "/api/system", &[token, ("origin", &format!("https://{HOST}"))], None).expect(200);
        let mut client = system.client();
        client.request_to("GET", "/api/system", "evil.test").header("authorization", token.1).send().expect(refused);
        // A decision with a token is one of the operator.
        let put = json!({"title": "One", "content": "Two"});
        remote(&system, "POST", "/api/knowledge", &[token], Some(&put)).expect(201);
    }
}

#[test]
fn a_page_of_another_origin_gets_no_token() {
    let system = System::start();
    let code = code(&system);
    let body = json!({"code": code});
    for foreign in [("origin", "https://evil.test"), ("origin", "http://127.0.0.1:1"), ("sec-fetch-site", "cross-site")]
    {
        remote(&system, "POST", "/console/token", &[foreign], Some(&body)).refused(403, "forbidden", "origin");
    }
    // A form of a foreign page cannot send JSON.
    let mut client = system.client();
    let form = client.request_to("POST", "/console/token", HOST).header("content-type", "text/plain");
    form.body(body.to_string()).send().expect(415);
    remote(&system, "POST", "/console/token", &[], Some(&json!({"code": code, "x": 1}))).refused(400, "invalid", "/x");
    remote(&system, "POST", "/console/token", &[], Some(&json!({}))).refused(400, "invalid", "/code");
    trade(&system, &code).expect(200);
}

#[test]
fn a_restart_keeps_tokens_and_spent_links_and_another_key_ends_all() {
    let system = System::start();
    let spent = code(&system);
    let token = bearer(&trade(&system, &spent).expect(200).text("/token"));
    let open = code(&system);
    system.signal("gateway", Signal::SIGKILL);
    system.wait_until_stable("gateway");
    trade(&system, &spent).refused(401, "unauthenticated", "/code");
    remote(&system, "GET", "/api/system", &[("authorization", &token)], None).expect(200);
    trade(&system, &open).expect(200);
    let key = system.home().join("state/gateway/console.key");
    assert_eq!(key.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    std::fs::remove_file(&key).unwrap();
    system.signal("gateway", Signal::SIGKILL);
    system.wait_until_stable("gateway");
    remote(&system, "GET", "/api/system", &[("authorization", &token)], None).expect(403);
}

/// Without a browser to open, the link is printed; with one, no program has the link among its arguments.
#[test]
fn the_link_gets_into_a_private_file_and_into_no_arguments() {
    let system = System::start();
    let mut printed = system.command(&["open"]);
    printed.env_remove("DISPLAY").env_remove("WAYLAND_DISPLAY").env_remove("BROWSER");
    let printed = printed.output().unwrap();
    assert!(String::from_utf8(printed.stdout).unwrap().contains("/#link="));
    assert!(String::from_utf8(printed.stderr).unwrap().contains("no graphical session"));
    let browser = system.home().join("browser.sh");
    std::fs::write(
        &browser,
        "#!/bin/sh\necho \"$@\" >\"$0.arguments\"\nstat -c %a \"$1\" >\"$0.mode\"\ncp \"$1\" \"$0.page\"\n",
    )
    .unwrap();
    std::fs::set_permissions(&browser, std::fs::Permissions::from_mode(0o700)).unwrap();
    let opened = system.command(&["open"]).env("BROWSER", &browser).output().unwrap();
    assert!(opened.status.success() && opened.stdout.is_empty(), "{opened:?}");
    let read = |end: &str| std::fs::read_to_string(Path::new(&format!("{}.{end}", browser.display()))).unwrap();
    assert!(!read("arguments").contains("link="), "{}", read("arguments"));
    assert_eq!(read("mode"), "600\n");
    let page = read("page");
    let code = page.split_once("/#link=").and_then(|(_, rest)| rest.split_once('"')).expect("a link").0;
    trade(&system, code).expect(200);
    let failed = system.command(&["open"]).env("BROWSER", "/nonexistent/browser").output().unwrap();
    assert!(String::from_utf8(failed.stdout).unwrap().contains("/#link="), "the link is printed instead");
    let elsewhere = system.ken(&["--url", "http://127.0.0.1:1", "open"]);
    assert_eq!(elsewhere.status.code(), Some(2));
}

#[test]
fn a_part_is_restarted_and_the_gateway_itself_is_not() {
    let system = System::start();
    let before = system.pid("scheduler");
    let mut client = system.client().checked_by_contract();
    let answer = client.post("/api/system/parts/scheduler/restart", &json!({})).expect(200);
    assert_eq!((answer.text("/name").as_str(), answer.text("/state").as_str()), ("scheduler", "ready"));
    assert_ne!(system.pid("scheduler"), before);
    client.post("/api/system/parts/nothing/restart", &json!({})).expect(404);
    client.post("/api/system/parts/gateway/restart", &json!({})).expect(409);
}

#[test]
fn the_routes_of_the_pages_answer_as_the_contract_says() {
    let system = Builder::default().config("[model.budget]\ntokens_per_day = 100000\n").start();
    let said = system.say(&system.session(), "Good morning").expect(200);
    let mut client = system.client().checked_by_contract();
    for by in ["day", "model", "session"] {
        let usage = client.get(&format!("/api/usage?by={by}")).expect(200);
        assert_eq!(usage.at("/groups/0/runs"), 1, "{by}: {}", usage.body_text());
        assert_eq!(usage.at("/budget/tokensPerDay"), 100_000);
        assert!(usage.at("/groups/0/meanMs").is_u64(), "{}", usage.body_text());
    }
    client.get("/api/usage?by=year").refused(400, "invalid", "?by");
    let why = client.get(&format!("/api/why/{}", said.text("/submissionId"))).expect(200);
    assert_eq!(why.text("/status"), "completed");
    client.get("/api/why/nothing").expect(404);
    let logs = client.get("/api/logs?part=kend&lines=3").expect(200);
    assert_eq!(logs.at("/lines").as_array().unwrap().len(), 3);
    client.get("/api/logs").refused(400, "invalid", "?part");
    client.get("/api/logs?part=kend&lines=0").refused(400, "invalid", "?lines");
    client.get("/api/logs?part=nothing").expect(404);
    client.get("/api/logs?part=..%2F..%2Fsecrets").expect(404);
    let next = client.get("/api/schedule-preview?kind=cron&schedule=0%209%20*%20*%201&tz=Europe%2FBerlin").expect(200);
    let slots = next.at("/slots").as_array().unwrap().clone();
    assert_eq!(slots.len(), 10);
    assert!(slots.iter().all(|slot| slot["local"].as_str().unwrap().starts_with("Mon ")), "{slots:?}");
    for bad in [
        "kind=cron&schedule=61%20*%20*%20*%20*",
        "kind=never&schedule=1h",
        "kind=every",
        "kind=every&schedule=1h&tz=Nowhere",
    ] {
        client.get(&format!("/api/schedule-preview?{bad}")).expect(400);
    }
    let audit = client.get("/api/audit").expect(200);
    assert_eq!(audit.at("/good"), true, "{}", audit.body_text());
    let state = client.get("/api/system").expect(200);
    assert_eq!(state.at("/budget/tokensPerDay"), 100_000);
    assert!(
        state.at("/parts").as_array().unwrap().iter().any(|part| part["name"] == "store" && part["state"] == "ready")
    );
    assert!(!state.body_text().contains("pid"), "numbers of processes are nobody's business");
}

#[test]
fn what_is_not_known_while_a_part_is_down_is_not_taken_for_none() {
    let system = Builder::default().config("[model.budget]\ntokens_per_day = 100000\n").start();
    let mut client = system.client().checked_by_contract();
    let part = |answer: &Answer| {
        answer.at("/parts").as_array().unwrap().iter().find(|part| part["name"] == "model").unwrap().clone()
    };
    let up = client.get("/api/system").expect(200);
    assert_eq!(part(&up)["downSince"], Value::Null);
    assert_eq!(client.get("/api/usage").expect(200).at("/budgetUnknown"), Value::Null);
    let before = ken_types::Timestamp::now().to_string();
    assert!(system.ken(&["stop", "model"]).status.success());
    let after = ken_types::Timestamp::now().to_string();
    let down = client.get("/api/system").expect(200);
    assert_eq!((down.at("/models"), down.at("/budget")), (Value::Null, Value::Null));
    let since = part(&down)["downSince"].as_str().unwrap().to_owned();
    assert!(before <= since && since <= after, "{before} {since} {after}");
    let usage = client.get("/api/usage").expect(200);
    assert_eq!(usage.at("/budget"), Value::Null);
    assert!(usage.text("/budgetUnknown").contains("model"), "{}", usage.body_text());
}

#[test]
fn the_inbox_has_what_failed_and_is_sent_once() {
    let refused =
        json!({"when": "refused", "events": [{"error": {"class": "auth", "message": "the key is not taken"}}]});
    let system = Builder::default().script(&[refused, json!({"events": [{"text": "Hello."}]})]).start();
    let session = system.session();
    let mut client = system.client().checked_by_contract();
    let empty = client.get("/api/inbox").expect(200);
    assert_eq!((empty.at("/approvals"), empty.at("/failures")), (json!([]), json!([])));
    let etag = empty.header("etag").unwrap().to_owned();
    client.request("GET", "/api/inbox").header("If-None-Match", &etag).send().expect(304);
    system.say(&session, "refused").expect(500);
    let inbox = client.request("GET", "/api/inbox").header("If-None-Match", &etag).send().expect(200);
    assert_eq!(inbox.at("/failures/0/kind"), "turn");
    assert_eq!(inbox.at("/failures/0/sessionId"), session);
    assert!(inbox.text("/failures/0/cause").contains("the key is not taken"), "{}", inbox.body_text());
    // A run, and a slot of a schedule, whose turn does not stand there twice.
    let plan = json!({"slug": "morning", "kind": "every", "schedule": "1h", "tz": "UTC", "prompt": "refused", "maxAttempts": 1});
    system.post("/api/schedules", &plan).expect(201);
    system.post("/api/schedules/morning/run", &json!({})).expect(200);
    until("the slot is there", || system.get("/api/inbox").expect(200).text("/failures/0/kind") == "slot");
    let inbox = client.get("/api/inbox").expect(200);
    assert_eq!(inbox.at("/failures").as_array().unwrap().len(), 2, "{}", inbox.body_text());
    assert_eq!(inbox.at("/failures/0/name"), "morning");
}

#[test]
fn kend_tells_what_is_wrong_and_which_configuration_is_in_force() {
    let config = "[chat]\n# a comment\nwait_ms = 199000\n\n[part.store]\nenv = [\"MY_TOKEN=planted-secret\"]\n";
    let system = Builder::default().config(config).secrets("OPENAI_API_KEY=planted-secret\n").start();
    let mut client = system.client().checked_by_contract();
    // A reload outdates the report, and kend reloads soon after its first start: it has made a folder beside the configuration.
    let mut report = client.get("/api/doctor").expect(200);
    until("a second page costs nothing", || {
        let last = report.at("/at").clone();
        report = client.get("/api/doctor").expect(200);
        report.at("/at") == last
    });
    for finding in report.at("/findings").as_array().unwrap() {
        assert!(["error", "warning", "note"].contains(&finding["severity"].as_str().unwrap()), "{finding}");
    }
    let listing = client.get("/api/config").expect(200);
    assert!(!listing.body_text().contains("planted-secret"), "{}", listing.body_text());
    let setting = |listing: &Answer, key: &str| {
        let settings = listing.at("/settings");
        let found = settings.as_array().unwrap().iter().find(|one| one["key"] == key).cloned();
        found.unwrap_or_else(|| panic!("{key}: {settings}"))
    };
    let set = setting(&listing, "chat.wait_ms");
    assert_eq!(set["value"], 199_000);
    let line = set["from"].as_str().unwrap().rsplit_once("ken.toml:").unwrap().1.parse::<usize>().unwrap();
    let text = std::fs::read_to_string(system.home().join("ken.toml")).unwrap();
    assert_eq!(text.lines().nth(line - 1), Some("wait_ms = 199000"), "{set}");
    assert_eq!(setting(&listing, "part.store.env")["value"], json!(["MY_TOKEN=***"]));
    assert_eq!(setting(&listing, "secrets.OPENAI_API_KEY")["value"], "***");
    // What is read again is told anew.
    let file = system.home().join("ken.toml");
    let text = std::fs::read_to_string(&file).unwrap().replace("wait_ms = 199000", "wait_ms = 198000");
    std::fs::write(&file, text).unwrap();
    assert!(system.ken(&["reload"]).status.success());
    // The gateway reads this section and starts again. One that ends closes connections on which it has read nothing yet.
    until("the configuration is read again", || {
        let listing = system.client().request("GET", "/api/config").try_send();
        listing.is_ok_and(|listing| listing.status == 200 && setting(&listing, "chat.wait_ms")["value"] == 198_000)
    });
    let mut client = system.client().checked_by_contract();
    let parts = client.get("/api/system").expect(200).at("/parts");
    let store = parts.as_array().unwrap().iter().find(|part| part["name"] == "store").unwrap().clone();
    assert!(store["memoryBytes"].as_u64().unwrap() > 1 << 20 && store["cpuMs"].is_u64(), "{store}");
}

#[test]
fn a_session_is_forked_before_a_message() {
    let system = System::start();
    let session = system.session();
    system.say(&session, "first").expect(200);
    let second = system.say(&session, "second").expect(200).text("/submissionId");
    let mut client = system.client().checked_by_contract();
    let path = format!("/api/chat/sessions/{session}/fork");
    let key = "one-key";
    let fork = |client: &mut Client| {
        let request = client.request("POST", &path).header("Idempotency-Key", key);
        request.json(&json!({"before": second})).send().expect(201)
    };
    let made = fork(&mut client);
    let id = made.text("/session/id");
    assert!(id.starts_with("tui-") && id != session);
    assert_eq!(fork(&mut client).text("/session/id"), id);
    let read = |id: &str| {
        let page = system.get(&format!("/api/chat/sessions/{id}/transcript?{}", SCOPE)).expect(200);
        let all = page.at("/exchanges").as_array().unwrap().clone();
        all.iter().map(|one| one["prompt"]["text"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(read(&id), ["first"]);
    system.say(&id, "another second").expect(200);
    assert_eq!(read(&id), ["first", "another second"]);
    assert_eq!(read(&session), ["first", "second"]);
    client.post(&path, &json!({})).refused(400, "invalid", "/before");
    client.post(&path, &json!({"before": second, "after": 1})).refused(400, "invalid", "/after");
    let missing = "00000000-0000-4000-8000-000000000000";
    client.post(&path, &json!({"before": missing})).refused(404, "not_found", "/before");
    client.post("/api/chat/sessions/tui-none/fork", &json!({"before": second})).expect(404);
}

#[test]
fn a_log_is_followed_and_filtered() {
    let system = System::start();
    let mut client = system.client().checked_by_contract();
    let lines = |client: &mut Client, level: &str| {
        let found = client.get(&format!("/api/logs?part=kend&lines=1000&level={level}")).expect(200);
        found.at("/lines").as_array().unwrap().len()
    };
    // kend writes lines meanwhile.
    let few = lines(&mut client, "info");
    assert!(few > 0 && lines(&mut client, "trace") >= few);
    assert_eq!(lines(&mut client, "error"), 0);
    client.get("/api/logs?part=kend&level=loud").refused(400, "invalid", "?level");
    client.get("/api/logs?part=kend&follow=yes").refused(400, "invalid", "?follow");
    client.get("/api/logs?part=nothing&follow=sse").expect(404);
    let mut reader = Stream::open(system.address(), "/api/logs?part=kend&lines=1&follow=sse");
    let mut line = move || reader.frame().expect("a line").data().as_str().unwrap().to_owned();
    let mut seen = line();
    // What is logged meanwhile arrives as it is written.
    assert!(system.ken(&["restart", "scheduler"]).status.success());
    while !seen.contains("scheduler") {
        seen = line();
    }
    assert!(serde_json::from_str::<Value>(&seen).unwrap()["level"].is_string(), "{seen}");
}

#[test]
fn a_session_is_exported_with_the_whole_outputs_of_its_tools() {
    let call = json!({"tool": {"name": "count", "arguments": {}}});
    let tool = json!({"name": "count", "description": "Counts.", "command": ["seq", "1", "9999"], "input": {"type": "object"},
        "writes": "text", "agents": ["orchestrator"], "approval": "none"});
    let system = Builder::default()
        .script(&[
            json!({"when": "count", "after_tools": 0, "events": [call]}),
            json!({"events": [{"text": "Counted <b>all</b>."}]}),
        ])
        .file("tools.d/count.json", &tool.to_string())
        .start();
    let session = system.session();
    system.say(&session, "first").expect(200);
    system.say(&session, "count").expect(200);
    let mut client = system.client().checked_by_contract();
    let path = format!("/api/chat/sessions/{session}");
    let text = client.get(&format!("{path}/export")).expect(200);
    assert_eq!(text.header("content-type"), Some("text/markdown; charset=utf-8"));
    assert_eq!(text.header("content-disposition"), Some(format!("attachment; filename=\"{session}.md\"").as_str()));
    let text = text.body_text();
    assert!(text.starts_with("# first\n\n## You, ") && text.contains("Counted <b>all</b>."), "{text}");
    let whole = client.get(&format!("{path}/export?format=json&{SCOPE}")).expect(200);
    assert_eq!(whole.text("/session/sessionId"), session);
    assert_eq!(whole.text("/exchanges/0/prompt/text"), "first");
    let activities = whole.at("/exchanges/1/activities");
    let output = activities.as_array().unwrap().iter().find_map(|one| one.get("output")).expect("an output").clone();
    let numbers: String = (1..10_000).map(|number| format!("{number}\n")).collect();
    let blob = format!("{path}/blobs/{}", output["blob"].as_str().unwrap());
    assert_eq!(client.get(&blob).expect(200).body_text().trim_end(), numbers.trim_end());
    // It belongs to this session, and the session to one scope.
    let other = system.session();
    client.get(&blob.replace(&session, &other)).refused(404, "not_found", "/digest");
    client.get(&format!("{path}/blobs/{}", "0".repeat(64))).refused(404, "not_found", "/digest");
    client.get(&format!("{path}/blobs/x")).refused(400, "invalid", "/digest");
    let foreign = "connector=tui&actorId=b&conversationId=c";
    for target in [format!("{path}/export?{foreign}"), format!("{blob}?{foreign}")] {
        client.get(&target).expect(403);
    }
    client.get(&format!("{path}/export?format=pdf")).refused(400, "invalid", "?format");
    client.get("/api/chat/sessions/tui-none/export").expect(404);
    client.delete(&format!("{path}?purge=true")).expect(200);
    client.get(&format!("{path}/export")).expect(410);
}

#[test]
fn a_file_becomes_entries_and_an_entry_knows_where_it_was_used() {
    let system = System::start();
    let mut client = system.client().checked_by_contract();
    let file = |text: &str| json!({"path": "deploy.md", "content": text});
    let text = "# Deploy\n\nThe site is deployed on Tuesdays at 14:00 UTC.\n";
    let first = client.post("/api/knowledge/import", &file(text)).expect(200);
    assert_eq!((first.at("/added"), first.at("/removed")), (json!(1), json!(0)));
    assert_eq!(client.post("/api/knowledge/import", &file(text)).expect(200).at("/added"), 0);
    system.say(&system.session(), "When is the site deployed?").expect(200);
    let id = client.get("/api/knowledge?source=import").expect(200).text("/records/0/id");
    let uses = client.get(&format!("/api/knowledge/{id}/uses")).expect(200);
    assert_eq!(uses.text("/uses/0/prompt"), "When is the site deployed?");
    client.get("/api/knowledge/kb-none/uses").expect(404);
    // Another version of the file takes the place of the first.
    let second =
        client.post("/api/knowledge/import", &file("# Deploy\n\nThe site is deployed on Mondays.\n")).expect(200);
    assert_eq!((second.at("/added"), second.at("/removed")), (json!(1), json!(1)));
    for (body, at) in [
        (json!({"content": "x"}), "/path"),
        (json!({"path": "a.md"}), "/content"),
        (json!({"path": "a.md", "content": " "}), "/content"),
        (json!({"path": "a\nb", "content": "x"}), "/path"),
        (json!({"path": "a.md", "content": "x", "folder": "/etc"}), "/folder"),
    ] {
        client.post("/api/knowledge/import", &body).refused(400, "invalid", at);
    }
    let large = json!({"path": "a.md", "content": "x".repeat(600_000)});
    client.post("/api/knowledge/import", &large).refused(413, "too_large", "/content");
}

/// Commands of kend end with it, and with their time; they never hold up anything else.
#[test]
fn what_a_command_of_kend_cannot_do_is_an_error() {
    let system = System::start();
    let mut client = system.client().checked_by_contract();
    client.get("/api/undo/last").expect(404);
    client.post("/api/undo/nothing-of-this-name", &json!({})).expect(404);
    client.post("/api/undo/last", &json!({"force": true})).refused(400, "invalid", "/force");
    client.get("/api/undo/a%20b").refused(400, "invalid", "/run");
    client.get("/api/undo/--help").expect(404);
}
