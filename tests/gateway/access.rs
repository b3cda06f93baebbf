//! Access to the gateway by peer, forwarding headers, host, origin and secret; and rate limits.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;

use ken_tests::{Answer, Browser, Builder, Client, System, chromium, scripted_builder, skip, until};
use nix::sys::signal::Signal;
use serde_json::json;

const GUARDED: [&str; 7] = [
    "/api/chat/sessions", "/api/nothing", "/agents/orchestrator/x", "/agents/nothing", "/workflows/x", "/runs/x",
    "/streams/x",
];

/// Headers that proxies add.
const FORWARDED: [(&str, &str); 12] = [
    ("Forwarded", "for=10.0.0.1"),
    ("Forwarded", ""),
    ("X-Forwarded-For", "127.0.0.1"),
    ("X-Forwarded-For", ""),
    ("X-Forwarded-Host", "ken.example"),
    ("X-Forwarded-Proto", "https"),
    ("X-Real-IP", "::1"),
    ("X-Real-IP", " "),
    ("X-Client-IP", "127.0.0.1"),
    ("True-Client-IP", "127.0.0.1"),
    ("CF-Connecting-IP", "127.0.0.1"),
    ("Via", "1.1 proxy"),
];

/// Headers by which a page of another server, or under another name, shows itself.
const FOREIGN: [(&str, &str); 9] = [
    ("Origin", "http://evil.test"),
    // Another program of this machine, perhaps of another user.
    ("Origin", "http://localhost:8080"),
    ("Origin", "https://127.0.0.1"),
    ("Origin", "null"),
    ("Origin", "http://localhost.evil.test"),
    ("Sec-Fetch-Site", "cross-site"),
    ("Host", "evil.test"),
    ("Host", "127.0.0.1.evil.test"),
    ("Host", "0.0.0.0"),
];

const LOCAL: [(&str, &str); 6] = [
    ("Sec-Fetch-Site", "same-origin"),
    ("Host", "localhost"),
    ("Host", "127.8.8.8:1"),
    ("Host", "[::1]:3940"),
    ("X-Api-Secret", "wrong"),
    ("X-Api-Secret", ""),
];

fn get(system: &System, path: &str, headers: &[(&str, &str)]) -> Answer {
    let mut client = system.client();
    let host = headers.iter().find(|(name, _)| *name == "Host");
    let address = system.address().to_string();
    let request = client.request_to("GET", path, host.map_or(&address, |(_, host)| host));
    let others = headers.iter().filter(|(name, _)| *name != "Host");
    others.fold(request, |request, (name, value)| request.header(name, value)).send()
}

/// If no secret is configured, every request that is not local is refused.
#[test]
fn requests_that_count_as_local() {
    let system = System::start();
    for header in LOCAL {
        get(&system, "/api/chat/sessions", &[header]).expect(200);
    }
    let own = [("Host", "localhost:1"), ("Origin", "http://localhost:1")];
    get(&system, "/api/chat/sessions", &own).expect(200);
    let longer = [("Host", "localhost:1"), ("Origin", "http://localhost:12")];
    get(&system, "/api/chat/sessions", &longer).expect(403);
    let forwarded = FORWARDED.map(|header| (header, 503, "unavailable"));
    let foreign = FOREIGN.map(|header| (header, 403, "forbidden"));
    for (header, status, code) in forwarded.into_iter().chain(foreign) {
        let answer = get(&system, "/api/chat/sessions", &[header]).expect(status);
        assert_eq!(answer.at("/code"), code, "{header:?}");
        get(&system, "/api/chat/sessions", &[header, ("X-Api-Secret", "any")]).expect(status);
        for open in ["/health", "/ready", "/openapi.json"] {
            get(&system, open, &[header]).expect(200);
        }
    }
    for path in GUARDED {
        let answer = get(&system, path, &[("X-Real-IP", "10.0.0.1")]).expect(503);
        assert_eq!(answer.at("/code"), "unavailable", "{path}: not the common envelope");
        let answer = get(&system, path, &[("Origin", "http://evil.test")]).expect(403);
        assert_eq!((answer.at("/code"), answer.at("/at")), (json!("forbidden"), json!("origin")), "{path}");
    }
    // A request of HTTP/1.0 without a host may come from anything, such as a proxy.
    let mut client = system.client();
    client.write(b"GET /api/chat/sessions HTTP/1.0\r\n\r\n");
    client.answer().refused(403, "forbidden", "host");
    // The routes of the messenger have their own secret.
    get(&system, "/channels/nothing", &[("X-Real-IP", "10.0.0.1")]).expect(404);
}

#[test]
fn the_secret() {
    let system = Builder::default().secrets("API_SECRET =  s3cret \n").start();
    let foreign = ("X-Forwarded-For", "10.0.0.1");
    for path in GUARDED {
        get(&system, path, &[foreign]).refused(401, "unauthenticated", "x-api-secret");
        let right = get(&system, path, &[foreign, ("X-Api-Secret", "s3cret")]);
        assert!([200, 404, 405, 503].contains(&right.status), "{path}: {right:?}");
    }
    for wrong in ["s3cre", "s3crett", "S3CRET"] {
        get(&system, "/api/knowledge", &[foreign, ("X-Api-Secret", wrong)]).expect(401);
    }
    let twice = [("X-Api-Secret", "s3cret"), ("X-Api-Secret", "s3cret")];
    get(&system, "/api/knowledge", &[foreign, twice[0], twice[1]]).expect(401);
    get(&system, "/api/knowledge", &[("X-Api-Secret", "wrong")]).expect(200);
    // Access is checked before the body is read and validated.
    let mut client = system.client();
    let request = client.request("POST", "/api/chat/events").header(foreign.0, foreign.1);
    request.header("Content-Type", "text/plain").header("Content-Length", "99999999").send().expect(401);
    let mut client = system.client();
    let request = client.request("DELETE", "/api/chat/events").header(foreign.0, foreign.1);
    request.send().expect(401);
}

/// The log of the gateway.
fn log(system: &System) -> String {
    let output = system.ken(&["logs", "gateway"]);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn loopback_can_be_distrusted() {
    let secret = ("X-Api-Secret", "s3cret");
    for (config, trusts) in [
        ("", true),
        ("[gateway]\npublic_url = \"https://ken.example\"\n", false),
        ("[gateway]\nlisten = \"0.0.0.0\"\n", false),
        ("[gateway]\ntrust_loopback = \"no\"\n", false),
        ("[gateway]\npublic_url = \"https://ken.example\"\ntrust_loopback = \"yes\"\n", true),
    ] {
        let system = Builder::default().config(config).secrets("API_SECRET=s3cret").start();
        let status = get(&system, "/api/knowledge", &[]).status;
        assert_eq!(status, if trusts { 200 } else { 401 }, "{config}");
        get(&system, "/api/knowledge", &[secret]).expect(200);
        get(&system, "/health", &[]).expect(200);
        // The operator can see it in the log, and a program can query it.
        let warned = log(&system).contains("requests of this user on this machine need none");
        assert_eq!(warned, trusts, "{config}: {}", log(&system));
        let stats = system.call("gateway", "service.stats", &[]);
        assert_eq!((&stats["has_secret"], &stats["trusts_loopback"]), (&json!(true), &json!(trusts)), "{config}");
    }
    let stats = System::start().call("gateway", "service.stats", &[]);
    assert_eq!(stats["has_secret"], json!(false));
}

/// A user who has nothing to do with ken (`nobody` on Debian).
const STRANGER: u32 = 65_534;

/// Runs a function in a thread of its own whose sockets belong to another user. `None` without root.
fn as_stranger<T: Send>(run: impl FnOnce() -> T + Send) -> Option<T> {
    if !nix::unistd::geteuid().is_root() {
        ken_tests::skip("needs root");
        return None;
    }
    let in_thread = || {
        // Only this thread's; the owner of a socket is the user for files.
        nix::unistd::setfsuid(STRANGER.into());
        run()
    };
    std::thread::scope(|scope| Some(scope.spawn(in_thread).join().unwrap()))
}

#[test]
fn another_user_of_this_machine_needs_the_secret() {
    let own = nix::unistd::geteuid();
    for (secret, status) in [("", 403), ("API_SECRET=s3cret", 401)] {
        let system = Builder::default().secrets(secret).start();
        get(&system, "/api/chat/sessions", &[]).expect(200);
        for path in GUARDED {
            let Some(answer) = as_stranger(|| get(&system, path, &[])) else { return };
            let answer = answer.expect(status);
            let hint = answer.text("/hint");
            assert!(hint.contains("client.secret") && hint.contains("systemctl --user"), "{path}: both ways: {hint}");
            if status == 403 {
                let message = answer.text("/error");
                assert!(message.contains("user 65534") && message.contains(&own.to_string()), "{message}");
            }
        }
        // Nobody answers for others: the user is looked up for each connection.
        get(&system, "/api/chat/sessions", &[]).expect(200);
        let right = as_stranger(|| get(&system, "/api/chat/sessions", &[("X-Api-Secret", "s3cret")])).unwrap();
        assert_eq!(right.status == 200, status == 401);
        assert_eq!(as_stranger(|| get(&system, "/health", &[]).status), Some(200));
    }
}

/// Proxies and tunnels run as root, so root is a stranger too. Its `ken` reads the secret of the system.
#[test]
fn root_needs_the_secret_of_another_user_and_reads_it_from_the_home() {
    if !nix::unistd::geteuid().is_root() {
        return ken_tests::skip("needs root");
    }
    let sessions = |system: &System| {
        let mut ken = std::process::Command::new(ken_tests::binary("ken"));
        ken.env_clear().arg("--home").arg(system.home()).arg("sessions").output().unwrap()
    };
    for file in ["secrets.env", "client.secret"] {
        let text = if file == "secrets.env" { "API_SECRET=s3cret\n" } else { "s3cret\n" };
        let system = Builder::default().file(file, text).user(STRANGER).start();
        get(&system, "/api/chat/sessions", &[]).expect(401);
        assert_eq!(as_stranger(|| get(&system, "/api/chat/sessions", &[]).status), Some(200));
        let output = sessions(&system);
        assert!(output.status.success(), "{file}: {}", String::from_utf8_lossy(&output.stderr));
    }
    let system = Builder::default().user(STRANGER).start();
    get(&system, "/api/chat/sessions", &[]).expect(403);
    let output = sessions(&system);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && stderr.contains("client.secret") && stderr.contains("systemctl --user"),
        "{stderr}"
    );
}

#[test]
fn another_user_needs_the_secret_over_ipv6_too() {
    let system = Builder::default().config("[gateway]\nlisten = \"::1\"\n").start();
    let address = std::net::SocketAddr::new(std::net::Ipv6Addr::LOCALHOST.into(), system.address().port());
    let ask = || ken_tests::Client::connect(address).get("/api/chat/sessions").status;
    assert_eq!(ask(), 200);
    let Some(status) = as_stranger(ask) else { return };
    assert_eq!(status, 403);
    // The kernel shows a connection over IPv4 to such a socket as one of IPv6.
    let both = Builder::default().config("[gateway]\nlisten = \"::\"\ntrust_loopback = \"yes\"\n");
    let both = both.secrets("API_SECRET=s3cret").start();
    let ask = || both.get("/api/chat/sessions").status;
    assert_eq!((ask(), as_stranger(ask)), (200, Some(401)));
}

#[test]
fn every_user_is_local_where_that_is_configured() {
    let config = "[gateway]\ntrust_loopback = \"any-user\"\n";
    let system = Builder::default().config(config).start();
    get(&system, "/api/chat/sessions", &[]).expect(200);
    let Some(answer) = as_stranger(|| get(&system, "/api/chat/sessions", &[])) else { return };
    answer.expect(200);
    get(&system, "/api/chat/sessions", &[("Origin", "http://localhost:8080")]).expect(403);
}

#[test]
fn the_pages_of_a_listed_origin_are_local() {
    let system = Builder::default().config("[gateway]\norigins = [\"http://localhost:8080\"]\n").start();
    get(&system, "/api/chat/sessions", &[("Origin", "http://localhost:8080")]).expect(200);
    get(&system, "/api/chat/sessions", &[("Origin", "http://localhost:8081")]).expect(403);
    // The browser asks first, and lets the page read only what names its origin.
    let own = format!("http://{}", system.address());
    let asks = ("Access-Control-Request-Method", "POST");
    let names = ("Access-Control-Request-Headers", "content-type,idempotency-key");
    for path in ["/api/chat/events", "/v1/chat/completions", "/mcp", "/health"] {
        let send = |method: &str, headers: &[(&str, &str)]| {
            let mut client = Client::connect(system.address());
            let request = client.request(method, path);
            headers.iter().fold(request, |request, (name, value)| request.header(name, value)).send()
        };
        let header = |answer: &Answer, name: &str| answer.header(name).map(str::to_owned);
        for (origin, is_listed) in [("http://localhost:8080", true), ("http://localhost:8081", false), (&own, false)] {
            let asked = send("OPTIONS", &[("Origin", origin), asks, names]);
            assert_eq!(asked.status == 204, is_listed, "{path} {origin}: {}", asked.status);
            for answer in [&asked, &send("GET", &[("Origin", origin)])] {
                let allowed = header(answer, "access-control-allow-origin");
                assert_eq!(allowed.as_deref(), is_listed.then_some(origin), "{path}");
                assert_eq!(header(answer, "vary").as_deref(), is_listed.then_some("origin"), "{path}");
                assert_eq!(header(answer, "access-control-allow-credentials"), None, "{path}");
            }
            let allowed = header(&asked, "access-control-allow-headers");
            assert_eq!(allowed.as_deref(), is_listed.then_some(names.1), "{path} {origin}");
        }
        let plain = send("OPTIONS", &[("Origin", "http://localhost:8080")]);
        assert_eq!(plain.status, 405, "{path}: no preflight");
        let two = send("GET", &[("Origin", "http://localhost:8080"), ("Origin", "http://localhost:8081")]);
        assert_eq!(header(&two, "access-control-allow-origin"), None, "{path}");
    }
    // A stream is for the pages of all origins.
    let options = [("Origin", "http://localhost:8080"), asks];
    let mut client = system.client();
    let request = client.request("OPTIONS", "/streams/x");
    let asked = options.iter().fold(request, |request, (name, value)| request.header(name, value)).send().expect(204);
    assert_eq!(asked.header("access-control-allow-origin"), Some("*"));
}

/// Serves an empty page to a browser, and returns its origin.
fn page() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for mut connection in listener.incoming().flatten() {
            _ = connection.read(&mut [0; 4096]);
            let page =
                "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 4\r\nConnection: close\r\n\r\npage";
            _ = connection.write_all(page.as_bytes());
        }
    });
    format!("http://localhost:{port}")
}

#[test]
fn a_browser_lets_the_pages_of_listed_origins_call() {
    let Some(program) = chromium() else { return skip("chromium is not installed") };
    let (listed, other) = (page(), page());
    let system = scripted_builder().config(&format!("[gateway]\norigins = [\"{listed}\"]\n")).start();
    let browser = Browser::open(&program);
    let tab = browser.tab(800, 600, false);
    let port = system.address().port();
    // For a page of localhost, 127.0.0.1 is another site.
    for (origin, host, is_allowed) in
        [(&listed, "localhost", true), (&listed, "127.0.0.1", true), (&other, "localhost", false)]
    {
        tab.open(origin);
        tab.wait(&format!("location.origin === {} && document.readyState === 'complete'", json!(origin)));
        let gateway = format!("http://{host}:{port}");
        let message = json!({"text": "hello"}).to_string();
        let ask = format!(
            "fetch('{gateway}/api/chat/events', {{method: 'POST', body: {}, headers: {{'content-type': 'application/json', \
               'idempotency-key': '{host}'}}}}).then(async answer => (await answer.json()).result.text + ' ' + \
               Boolean(answer.headers.get('x-request-id')), () => 'blocked')",
            json!(message)
        );
        assert_eq!(tab.eval(&ask), if is_allowed { "Hello there. true" } else { "blocked" }, "{origin} {host}");
        let events = format!(
            "new Promise(done => {{ const events = new EventSource('{gateway}/api/events'); \
               const end = what => {{ events.close(); done(what); }}; \
               events.addEventListener('control', () => end('open')); events.onerror = () => end('blocked'); }})"
        );
        assert_eq!(tab.eval(&events), if is_allowed { "open" } else { "blocked" }, "{origin} {host}");
    }
    // Lines of a text that begin with blanks arrive as they are.
    tab.open(&listed);
    tab.wait(&format!("location.origin === {} && document.readyState === 'complete'", json!(listed)));
    let mut client = system.client();
    let text = "  indented: 1\n    - a\n \n";
    client.request("PUT", "/streams/text").header("Content-Type", "text/plain").body(text).send().expect(201);
    let read = format!(
        "new Promise(done => {{ const events = new EventSource('http://localhost:{port}/streams/text?offset=-1&live=sse'); \
           events.addEventListener('data', event => {{ events.close(); done(event.data); }}); \
           events.onerror = () => done('blocked'); }})"
    );
    assert_eq!(tab.eval(&read), text);
}

/// A socket that its process has closed belongs to nobody, and is shown as one of root. The gateway is stopped meanwhile, so
/// that it looks at the other end only then. `KEN_STRANGERS=100` for more rounds.
#[test]
fn a_stranger_who_closes_at_once_decides_nothing() {
    let rounds = ken_tests::number("KEN_STRANGERS", 20);
    let tool = json!({"name": "gated", "description": "A tool.", "command": ["true"], "input": {"type": "object"},
        "writes": "text", "agents": ["orchestrator"], "touch": {"write": ["/var/tmp"]}});
    let call = json!({"tool": {"name": "gated", "arguments": {}}});
    let script = [json!({"when": "alpha", "after_tools": 0, "events": [call]}), json!({"events": [{"text": "Done."}]})];
    let system = Builder::default().script(&script).file("tools.d/gated.json", &tool.to_string()).start();
    let prompt = system.client().request("POST", "/agents/orchestrator/x").json(&json!({"message": "alpha"})).send();
    prompt.expect(202);
    let mut pending = json!([]);
    until("a request is pending", || {
        pending = system.get("/api/approvals/pending").json();
        pending.as_array().is_some_and(|list| !list.is_empty())
    });
    let id = pending[0]["requestId"].as_str().unwrap().to_owned();
    let target = format!("/api/approvals/{id}/decision");
    let decision = json!({"decidedBy": "root", "approved": true});
    for round in 0..rounds {
        system.signal("gateway", Signal::SIGSTOP);
        let decide_and_leave = || {
            let mut client = system.client();
            client.request("POST", &target).json(&decision).start();
            // A reset frees the port, a close does not.
            if round % 2 == 1 {
                client.reset();
            }
        };
        let left = as_stranger(decide_and_leave);
        system.signal("gateway", Signal::SIGCONT);
        if left.is_none() {
            return;
        }
        let found = system.get(&format!("/api/approvals/{id}")).json();
        assert_eq!(found["status"], "pending", "round {round}: {found:#}");
    }
    let decided = system.post(&target, &decision).expect(200);
    // What the caller says, and what the connection shows.
    let uid = nix::unistd::geteuid();
    let user = nix::unistd::User::from_uid(uid).unwrap().unwrap().name;
    let shown = json!({"kind": "local", "uid": uid.as_raw(), "user": user});
    assert_eq!((&decided.at("/decidedBy"), &decided.at("/decidedAs")), (&json!("root"), &shown));
}

/// The gateway cannot see the other end of its connections from another network namespace than that of its socket.
#[test]
fn without_sight_of_its_callers_nobody_is_local() {
    if !nix::unistd::geteuid().is_root() {
        return ken_tests::skip("needs root");
    }
    let program = ken_tests::binary("ken-gateway");
    let command = format!("[part.gateway]\ncommand = [\"unshare\", \"-n\", {program:?}]\n");
    let system = Builder::default().config(&command).secrets("API_SECRET=s3cret").start();
    get(&system, "/api/chat/sessions", &[]).expect(401);
    get(&system, "/api/chat/sessions", &[("X-Api-Secret", "s3cret")]).expect(200);
    assert!(log(&system).contains("it cannot be seen which user"), "{}", log(&system));
    let findings = system.ken(&["doctor", "--json"]).stdout;
    let findings = String::from_utf8(findings).unwrap();
    assert!(findings.contains("\"owners-unseen\""), "{findings}");
}

#[test]
fn an_address_that_other_machines_can_reach_needs_a_secret() {
    let home = tempfile::tempdir().unwrap();
    let config = "[gateway]\nlisten = \"0.0.0.0\"\nport = 0\n";
    std::fs::write(home.path().join("ken.toml"), config).unwrap();
    for secret in [None, Some(""), Some(" ")] {
        let mut command = std::process::Command::new(ken_tests::binary("ken-gateway"));
        command.env_clear().arg("--home").arg(home.path());
        if let Some(secret) = secret {
            command.env("API_SECRET", secret);
        }
        let output = command.output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(
            stderr.contains("gateway.listen") && stderr.contains("API_SECRET") && stderr.contains("0.0.0.0"),
            "{stderr}"
        );
    }
}

#[test]
fn wrong_secrets_are_limited_and_the_right_one_still_works() {
    let system = Builder::default().secrets("API_SECRET=s3cret").start();
    let ask = |secret| get(&system, "/api/knowledge", &[("X-Real-IP", "10.0.0.1"), ("X-Api-Secret", secret)]);
    for _ in 0..20 {
        ask("wrong").expect(401);
    }
    let refused = ask("wrong").refused(429, "busy", "x-api-secret");
    assert!(refused.header("retry-after").is_some());
    ask("s3cret").expect(200);
}

#[test]
fn rate_limits() {
    let system = scripted_builder()
        .secrets("API_SECRET=s3cret")
        .env("RATE_LIMIT_CHAT", "2/minute")
        .env("RATE_LIMIT_API", "3/hour")
        .start();
    let ask = |method: &str, target: &str| {
        let mut client = system.client();
        let request = client.request(method, target).header("X-Api-Secret", "s3cret").header("X-Real-IP", "10.0.0.1");
        let body = json!({"text": "hello", "message": "hello"});
        match method {
            "POST" => request.json(&body).send(),
            _ => request.send(),
        }
    };
    for left in ["2", "1", "0"] {
        let answer = ask("GET", "/api/knowledge").expect(200);
        assert_eq!(answer.header("x-ratelimit-limit"), Some("3"));
        assert_eq!(answer.header("x-ratelimit-remaining"), Some(left));
    }
    let refused = ask("GET", "/agents/orchestrator/x").refused(429, "busy", "");
    assert_eq!(refused.header("retry-after"), Some("1200"));
    ask("GET", "/runs").refused(429, "busy", "");
    // Prompts have their own rate limit, which all routes for prompts share.
    ask("POST", "/api/chat/events").expect(200);
    ask("POST", "/agents/orchestrator/x").expect(202);
    ask("POST", "/api/chat/events").refused(429, "busy", "");
    for _ in 0..5 {
        assert_eq!(system.get("/api/knowledge").expect(200).header("x-ratelimit-limit"), None);
    }
}

#[test]
fn local_callers_can_be_limited_too() {
    let system = Builder::default().env("RATE_LIMIT_API", "1/minute").env("RATE_LIMIT_LOOPBACK", "true").start();
    system.get("/api/knowledge").expect(200);
    system.get("/api/knowledge").expect(429);
    system.get("/health").expect(200);
}

#[test]
fn secrets_that_others_can_read_are_refused() {
    let mut system = Builder::default().secrets("API_SECRET=s3cret").start();
    system.down();
    let file = system.home().join("secrets.env");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
    let output = system.ken(&["up", "--port", "0"]);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && stderr.contains("secrets.env") && !stderr.contains("s3cret"), "{stderr}");
}
