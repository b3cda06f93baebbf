//! Access to the gateway by peer, forwarding headers, host, origin and secret; and rate limits.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::os::unix::fs::PermissionsExt;

use ken_tests::{Answer, Builder, System, scripted_builder};
use serde_json::json;

const GUARDED: [&str; 7] = [
    "/api/chat/sessions",
    "/api/nothing",
    "/agents/orchestrator/x",
    "/agents/nothing",
    "/workflows/x",
    "/runs/x",
    "/streams/x",
];

/// Headers that mark a request as coming from another machine, even if its peer address is local.
const FOREIGN: [(&str, &str); 19] = [
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
    ("Origin", "http://evil.test"),
    ("Origin", "null"),
    ("Origin", "http://localhost.evil.test"),
    ("Sec-Fetch-Site", "cross-site"),
    ("Host", "evil.test"),
    ("Host", "127.0.0.1.evil.test"),
    ("Host", "0.0.0.0"),
];

const LOCAL: [(&str, &str); 8] = [
    ("Origin", "http://localhost:8080"),
    ("Origin", "https://127.0.0.1"),
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

/// If no secret is configured, every request from another machine is refused with 503.
#[test]
fn requests_that_count_as_local() {
    let system = System::start();
    for header in LOCAL {
        get(&system, "/api/chat/sessions", &[header]).expect(200);
    }
    for header in FOREIGN {
        let answer = get(&system, "/api/chat/sessions", &[header]).expect(503);
        assert_eq!(answer.at("/code"), "unavailable", "{header:?}");
        get(&system, "/api/chat/sessions", &[header, ("X-Api-Secret", "any")]).expect(503);
        for open in ["/health", "/ready", "/openapi.json"] {
            get(&system, open, &[header]).expect(200);
        }
    }
    for path in GUARDED {
        let answer = get(&system, path, &[("X-Real-IP", "10.0.0.1")]).expect(503);
        assert_eq!(answer.at("/code"), "unavailable", "{path}: not the common envelope");
    }
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
        let warned = log(&system).contains("requests of this machine need none");
        assert_eq!(warned, trusts, "{config}: {}", log(&system));
        let stats = system.call("gateway", "service.stats", &[]);
        assert_eq!((&stats["has_secret"], &stats["trusts_loopback"]), (&json!(true), &json!(trusts)), "{config}");
    }
    let stats = System::start().call("gateway", "service.stats", &[]);
    assert_eq!(stats["has_secret"], json!(false));
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
