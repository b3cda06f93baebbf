//! The cognitive server: authentication, rate limits, refused requests, and the audit log.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use ken_tests::{Answer, Client, Contract, KEY, System, cognitive, limited_cognitive, until};
use serde_json::{Value, json};

fn client(system: &System) -> Client {
    Client::connect(system.cognitive()).checked_against(Contract::cognitive())
}

fn with(system: &System, headers: &[(&str, &str)], target: &str) -> Answer {
    let mut client = client(system);
    let request = client.request("GET", target);
    headers.iter().fold(request, |request, (name, value)| request.header(name, value)).send()
}

fn refused(answer: &Answer, status: u16, code: &str, at: &str) {
    assert_eq!(answer.status, status, "{}", answer.body_text());
    let found = (answer.text("/error/code"), answer.at("/error/at"));
    assert_eq!(found.0, code, "{}", answer.body_text());
    assert_eq!(found.1.as_str().unwrap_or_default(), at, "{}", answer.body_text());
    assert_eq!(answer.at("/detail"), answer.at("/error/message"));
}

/// The records of the audit log, oldest first.
fn records(system: &System) -> Vec<Value> {
    let text = fs::read_to_string(audit_file(system)).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn audit_file(system: &System) -> PathBuf {
    system.home().join("state/cognitive/security_events.log")
}

fn events(system: &System) -> Vec<String> {
    let event = |record: &Value| record["event"].as_str().unwrap().to_owned();
    records(system).iter().map(event).collect()
}

#[test]
fn every_route_is_documented_and_answers_other_methods_with_405() {
    let system = cognitive().start();
    let document = with(&system, &[], "/openapi.json").expect(200).json();
    assert_eq!(&document, Contract::cognitive().document());
    for path in document["paths"].as_object().unwrap().keys() {
        let target = path.replace(['{', '}'], "");
        let documented = Contract::cognitive().methods(path);
        let answer = system.asker().request("TRACE", &target).header("Content-Length", "0").send().expect(405);
        let allowed: BTreeSet<&str> = answer.header("allow").unwrap().split(", ").collect();
        assert_eq!(allowed, documented.iter().map(String::as_str).collect(), "{path}");
        if documented.contains("GET") {
            let status = system.asker().get(&target).status;
            assert!([200, 404].contains(&status), "{path}: {status}");
        }
    }
    assert_eq!(with(&system, &[], "/health").expect(200).body_text(), r#"{"status":"ok"}"#);
    with(&system, &[], "/health/detailed").expect(200);
    refused(&with(&system, &[], "/v1/nothing"), 404, "not_found", "");
    refused(&with(&system, &[("X-API-Key", "wrong-key")], "/v2/execute"), 404, "not_found", "");
}

#[test]
fn a_key_is_needed_in_either_form() {
    let system = cognitive().start();
    let bearer = format!("Bearer {KEY}");
    for good in [
        &[("Authorization", bearer.as_str())][..],
        &[("authorization", &format!("bearer  {KEY} "))],
        &[("X-API-Key", KEY)],
        &[("Authorization", "Basic abc"), ("X-API-Key", KEY)],
        &[("Authorization", &bearer), ("X-API-Key", "other")],
    ] {
        with(&system, good, "/v1/protocols").expect(200);
        with(&system, good, "/admin/api-keys").expect(200);
    }
    let longer = format!("{KEY}x");
    for bad in [
        &[][..],
        &[("X-API-Key", "")],
        &[("X-API-Key", &KEY[1..])],
        &[("X-API-Key", &longer)],
        &[("X-API-Key", KEY), ("X-API-Key", KEY)],
        &[("Authorization", KEY)],
    ] {
        for target in ["/v1/protocols", "/protocols", "/v1/session/x", "/admin/models", "/metrics"] {
            let answer = with(&system, bad, target);
            refused(&answer, 401, "unauthenticated", "authorization");
        }
        // The limit on wrong keys is not tested here; a restart resets it.
        system.kill("cognitive");
    }
    assert!(events(&system).iter().filter(|event| *event == "auth_failed").count() == 30);
}

#[test]
fn wrong_keys_are_limited_by_address_and_the_right_key_still_works() {
    let system = cognitive().start();
    for _ in 0..20 {
        with(&system, &[("X-API-Key", "wrong")], "/v1/templates").expect(401);
    }
    let answer = with(&system, &[("X-API-Key", "wrong")], "/v1/templates").expect(429);
    assert!(answer.header("retry-after").is_some());
    with(&system, &[("X-API-Key", KEY)], "/v1/templates").expect(200);
    let metrics = with(&system, &[("X-API-Key", KEY)], "/metrics").json();
    assert_eq!(metrics["ken_auth_failures_total"], 21);
    assert_eq!(events(&system).iter().filter(|event| *event == "auth_failed").count(), 20);
    let text = fs::read_to_string(audit_file(&system)).unwrap();
    assert!(!text.contains("\"wrong\"") || text.contains("\"reason\":\"wrong\""));
}

#[test]
fn without_a_configured_key_no_route_is_open() {
    let system = System::start();
    with(&system, &[], "/health").expect(200);
    refused(&with(&system, &[], "/v1/protocols"), 401, "unauthenticated", "authorization");
    let path = system.home().join("state/cognitive/admin.key");
    let mode = fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let key = fs::read_to_string(&path).unwrap();
    with(&system, &[("X-API-Key", key.trim())], "/admin/api-keys").expect(200);
    let log = fs::read_to_string(system.home().join("state/log/cognitive.log")).unwrap();
    assert!(log.contains("admin.key") && !log.contains(key.trim()), "{log}");
}

#[test]
fn keys_have_roles_and_survive_a_crash() {
    let system = cognitive().start();
    let add = |body: Value| system.asker().post("/admin/api-keys", &body);
    add(json!({"api_key": "annas-key-1", "role": "user", "user_id": "anna"})).expect(201);
    add(json!({"api_key": "a-reader-1", "role": "read-only", "user_id": "reader"})).expect(201);
    let made = add(json!({"api_key": "a-nameless-1"})).expect(201);
    assert_eq!(made.text("/role"), "user");
    assert!(made.text("/user_id").starts_with("user-"), "{}", made.body_text());
    refused(&add(json!({"api_key": "annas-key-1"})), 409, "conflict", "/api_key");
    refused(&add(json!({"api_key": KEY})), 409, "conflict", "/api_key");
    for (body, at) in [
        (json!({}), "/api_key"),
        (json!({"api_key": "short"}), "/api_key"),
        (json!({"api_key": "with a blank"}), "/api_key"),
        (json!({"api_key": "long-enough", "role": "root"}), "/role"),
        (json!({"api_key": "long-enough", "user_id": "admin"}), "/user_id"),
        (json!({"api_key": "long-enough", "user_id": "a/b"}), "/user_id"),
        (json!({"api_key": "long-enough", "extra": 1}), "/extra"),
    ] {
        refused(&add(body), 422, "invalid", at);
    }
    system.kill("cognitive");
    let listed = system.asker().get("/admin/api-keys").expect(200);
    assert!(!listed.body_text().contains("annas-key-1"));
    assert_eq!(listed.at("/api_keys").as_array().unwrap().len(), 3);

    let run = json!({"protocol_names": ["ESL"], "data": {"text": "How nice."}});
    system.asker_with("annas-key-1").post("/v1/execute", &run).expect(200);
    refused(&system.asker_with("a-reader-1").post("/v1/execute", &run), 403, "forbidden", "");
    system.asker_with("a-reader-1").get("/v1/templates").expect(200);
    for target in ["/admin/api-keys", "/admin/models", "/metrics", "/metrics/prometheus"] {
        for key in ["annas-key-1", "a-reader-1"] {
            refused(&system.asker_with(key).get(target), 403, "forbidden", "");
        }
    }
    let gone = system.asker().delete("/admin/api-keys/anna").expect(200);
    assert_eq!(gone.at("/keys"), 1);
    system.asker_with("annas-key-1").get("/v1/templates").expect(401);
    refused(&system.asker().delete("/admin/api-keys/anna"), 404, "not_found", "");
    refused(&system.asker().delete("/admin/api-keys/admin"), 404, "not_found", "");
    let file = system.home().join("state/cognitive/keys.json");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let text = fs::read_to_string(file).unwrap();
    assert!(text.contains("read-only") && !text.contains("a-reader-1"), "{text}");
    let audited = events(&system);
    assert_eq!(audited.iter().filter(|event| *event == "key_created").count(), 3);
    assert_eq!(audited.iter().filter(|event| *event == "key_deleted").count(), 1);
}

/// Of requests at the same time for the same key, exactly one creates it.
#[test]
fn a_key_is_created_once_by_requests_at_the_same_time() {
    let system = cognitive().start();
    for round in 0..5 {
        let body = json!({"api_key": format!("wanted-by-all-{round}"), "user_id": format!("user-{round}")});
        let started = std::sync::Barrier::new(6);
        let add = || {
            let mut asker = system.asker();
            started.wait();
            asker.post("/admin/api-keys", &body).status
        };
        let mut answers: Vec<u16> = std::thread::scope(|scope| {
            let callers: Vec<_> = (0..6).map(|_| scope.spawn(add)).collect();
            callers.into_iter().map(|caller| caller.join().unwrap()).collect()
        });
        answers.sort_unstable();
        assert_eq!(answers, [201, 409, 409, 409, 409, 409]);
    }
    let listed = system.asker().get("/admin/api-keys").expect(200);
    assert_eq!(listed.at("/api_keys").as_array().unwrap().len(), 5);
}

/// The log of the server, which may be kept elsewhere, has the last hash at its start.
#[test]
fn the_last_hash_is_noted_outside_the_audit_log() {
    let mut system = cognitive().start();
    let add = |system: &System, key: &str| system.asker().post("/admin/api-keys", &json!({"api_key": key}));
    add(&system, "the-first-key").expect(201);
    system.down();
    let log = system.home().join("state/cognitive/security_events.log");
    let text = fs::read_to_string(&log).unwrap();
    let hash = text.trim_end().rsplit("\"hash\":\"").next().unwrap().trim_end_matches("\"}").to_owned();
    system.up();
    add(&system, "the-second-key").expect(201);
    let noted = fs::read_to_string(system.home().join("state/log/cognitive.log")).unwrap();
    assert!(noted.contains(&hash), "{hash}: {noted}");
    let holds = |hash: &str| system.ken(&["audit", "verify", "--holds", hash]).status.success();
    assert!(holds(&hash) && !holds(&"0".repeat(64)));
}

/// A rate limit admits exactly its number of requests, and then none until `Retry-After` has passed.
#[test]
fn limits_are_exact() {
    let system = cognitive()
        .env("RATE_LIMIT_TEMPLATES", "3/second")
        .env("RATE_LIMIT_PROTOCOLS", "2/hour")
        .env("API_KEY_QUOTA_PER_MINUTE", "100000")
        .start();
    let mut asker = system.asker();
    for _ in 0..2 {
        for left in ["2", "1", "0"] {
            let answer = asker.get("/v1/templates").expect(200);
            assert_eq!(answer.header("x-ratelimit-limit"), Some("3"));
            assert_eq!(answer.header("x-ratelimit-remaining"), Some(left));
        }
        let answer = asker.get("/templates");
        refused(&answer, 429, "busy", "");
        assert_eq!(answer.header("retry-after"), Some("1"));
        assert_eq!(answer.header("x-ratelimit-remaining"), Some("0"));
        std::thread::sleep(Duration::from_millis(answer.at("/error/retry_after_ms").as_u64().unwrap()));
    }
    for target in ["/v1/protocols", "/protocols"] {
        asker.get(target).expect(200);
    }
    let answer = asker.get("/v1/protocols").expect(429);
    let wait: u64 = answer.header("retry-after").unwrap().parse().unwrap();
    assert!((3_590..=3_600).contains(&wait), "{wait}");
    // Each limit and each key has its own count.
    asker.get("/v1/session/x").expect(404);
    system.asker().post("/admin/api-keys", &json!({"api_key": "another-1"})).expect(201);
    system.asker_with("another-1").get("/v1/protocols").expect(200);
}

#[test]
fn without_settings_each_group_of_routes_has_its_default_limit() {
    let system = limited_cognitive().start();
    let mut asker = system.asker();
    for (target, limit) in
        [("/v1/protocols", "60"), ("/v1/templates", "60"), ("/v1/session/x", "30"), ("/metrics", "10")]
    {
        let answer = asker.get(target);
        assert_eq!(answer.header("x-ratelimit-limit"), Some(limit), "{target}");
    }
    let run = json!({"protocol_names": ["ESL"], "data": {"text": "How nice."}});
    for _ in 0..20 {
        let answer = asker.post("/v1/execute", &run).expect(200);
        assert_eq!(answer.header("x-ratelimit-limit"), Some("20"));
    }
    refused(&asker.post("/v1/execute", &run), 429, "busy", "");
}

#[test]
fn the_quota_of_a_key_is_exact_over_all_routes() {
    let system = cognitive().env("API_KEY_QUOTA_PER_MINUTE", "5").start();
    let mut asker = system.asker();
    for target in ["/v1/protocols", "/templates", "/v1/session/x", "/metrics", "/admin/api-keys"] {
        assert_ne!(asker.get(target).status, 429, "{target}");
    }
    for target in ["/v1/protocols", "/metrics", "/admin/api-keys"] {
        let answer = asker.get(target).expect(429);
        let wait: u64 = answer.header("retry-after").unwrap().parse().unwrap();
        assert!((50..=60).contains(&wait), "{wait}");
    }
    asker.get("/health").expect(200);
}

/// Keys of one role have separate quotas too.
#[test]
fn each_key_has_its_own_quota() {
    let system = cognitive().env("API_KEY_QUOTA_PER_MINUTE", "3").start();
    for key in ["annas-key-1", "berts-key-1"] {
        let body = json!({"api_key": key, "role": "user"});
        system.asker().post("/admin/api-keys", &body).expect(201);
    }
    for key in ["annas-key-1", "berts-key-1"] {
        let mut asker = system.asker_with(key);
        for left in ["2", "1", "0"] {
            let answer = asker.get("/v1/protocols").expect(200);
            assert_eq!(answer.header("x-ratelimit-remaining"), Some(left), "{key}");
        }
        asker.get("/v1/templates").expect(429);
    }
}

#[test]
fn an_invalid_setting_prevents_the_start() {
    for (name, value) in [
        ("RATE_LIMIT_EXECUTE", "20/fortnight"),
        ("PROTOCOL_TIMEOUT_MS", "soon"),
        ("PROTOCOL_TIMEOUTS_MS", "REP"),
        ("PROTOCOL_TIMEOUTS_MS", "XYZ:5"),
        ("GOV_MIN_QUALITY", "7"),
        ("MAX_BODY_BYTES", "1MB"),
        ("MAX_BODY_BYTES", "0"),
        ("API_KEY_QUOTA_PER_MINUTE", "-1"),
        ("RATE_LIMIT_EXECUTE", "20"),
        ("RATE_LIMIT_METRICS", "0/second"),
        ("METRICS_PUBLIC", "maybe"),
    ] {
        let home = tempfile::tempdir().unwrap();
        let output = std::process::Command::new(ken_tests::binary("ken-cognitive"))
            .arg("--home")
            .arg(home.path())
            .env(name, value)
            .output()
            .unwrap();
        let printed = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{printed}");
        let named = format!("{name}: {value:?} is not");
        assert!(printed.contains(&named) || value == "XYZ:5", "{printed}");
        assert!(printed.contains(name), "{printed}");
    }
}

#[test]
fn bodies_are_refused_before_they_are_read() {
    let system = cognitive().env("MAX_BODY_BYTES", "2000").start();
    let mut asker = system.asker();
    // The request is refused before any byte of the body is sent.
    let announced = asker.request("POST", "/v1/execute").header("Content-Length", "2001").send();
    refused(&announced, 413, "too_large", "");
    let mut asker = system.asker();
    let endless = asker.request("POST", "/execute").header("Transfer-Encoding", "chunked");
    endless.start();
    let mut rude = Client::connect(system.cognitive());
    let head =
        format!("POST /v1/execute HTTP/1.1\r\nHost: x\r\nX-API-Key: {KEY}\r\nTransfer-Encoding: chunked\r\n\r\n");
    rude.write(head.as_bytes());
    for _ in 0..3 {
        rude.write(format!("3e8\r\n{}\r\n", " ".repeat(1_000)).as_bytes());
    }
    refused(&rude.answer(), 413, "too_large", "");
    let exact = json!({"protocol_names": ["ESL"], "data": {"text": "x".repeat(1_900)}});
    system.asker().post("/v1/execute", &exact).expect(200);
    let mut asker = system.asker();
    let other = asker.request("POST", "/v1/execute").header("Content-Type", "text/plain").body("{}");
    refused(&other.send(), 415, "invalid", "content-type");
    // Without a key, the body is not checked at all.
    let mut nobody = client(&system);
    nobody.request("POST", "/v1/execute").header("Content-Length", "99999999").send().expect(401);
    for body in ["{", "{} {}", "\u{0}"] {
        let mut asker = system.asker();
        refused(&asker.request("POST", "/v1/execute").body(body).send(), 400, "invalid", "");
    }
}

/// A body must arrive within ten seconds, even if its bytes arrive steadily.
#[test]
fn a_slow_client_is_disconnected() {
    let system = cognitive().start();
    let mut slow = Client::connect(system.cognitive()).checked_against(Contract::cognitive());
    let head = format!("POST /v1/execute HTTP/1.1\r\nHost: x\r\nX-API-Key: {KEY}\r\nContent-Length: 1000\r\n\r\n");
    slow.write(head.as_bytes());
    slow.set_timeout(Duration::from_millis(500));
    let begun = Instant::now();
    let answer = loop {
        match slow.try_answer("POST") {
            Ok(answer) => break answer,
            Err(_) if begun.elapsed() < Duration::from_secs(30) => _ = slow.try_write(b" "),
            Err(error) => panic!("never cut: {error}"),
        }
    };
    refused(&answer, 408, "deadline", "");
    assert!(begun.elapsed() >= Duration::from_secs(9));
    system.asker().get("/v1/templates").expect(200);
}

#[test]
fn the_audit_is_a_chain_that_the_front_command_verifies() {
    let system = cognitive().start();
    for n in 0..5 {
        let mut asker = system.asker();
        let request = asker.request("POST", "/v1/execute").header("X-Request-Id", &format!("req-{n}"));
        request.json(&json!({"protocol_names": ["ESL"], "data": {"text": "a secret wish"}})).send().expect(200);
    }
    let records = records(&system);
    let last = records.last().unwrap();
    assert_eq!((last["event"].as_str(), last["user_id"].as_str()), (Some("execute_completed"), Some("admin")));
    assert_eq!(last["request_id"], "req-4");
    assert_eq!(last["details"]["status"], "completed");
    assert_eq!(last["prev"], records[records.len() - 2]["hash"]);
    let verify = |arguments: &[&str]| {
        let output = system.ken(&[&["audit", "verify"], arguments].concat());
        (String::from_utf8_lossy(&output.stdout).into_owned(), output.status.code())
    };
    let (printed, code) = verify(&[]);
    assert!(printed.starts_with("good: 6 records, 1 to 6; the last is ") && code == Some(0), "{printed}");
    let hash = last["hash"].as_str().unwrap();
    assert_eq!(verify(&["--holds", hash]).1, Some(0));
    assert_eq!(verify(&["--holds", &"0".repeat(64)]).1, Some(1));
    let path = audit_file(&system);
    let text = fs::read_to_string(&path).unwrap();
    assert!(!text.contains("secret wish"), "{text}");
    fs::write(&path, text.replace("req-2", "req-3")).unwrap();
    let (printed, code) = verify(&[path.to_str().unwrap()]);
    assert!(printed.contains("security_events.log:4: record 4: it was changed") && code == Some(1), "{printed}");
    assert_eq!(verify(&["/nowhere"]).1, Some(2));
}

/// Actions that cannot be recorded are refused.
#[test]
fn without_an_audit_log_actions_are_refused() {
    let mut system = cognitive().start();
    system.down();
    let path = audit_file(&system);
    _ = fs::remove_file(&path);
    fs::create_dir(&path).unwrap();
    system.up();
    let run = json!({"protocol_names": ["ESL"], "data": {"text": "How nice."}});
    refused(&system.execute(&run), 503, "unavailable", "");
    let key = json!({"api_key": "another-key-1"});
    refused(&system.asker().post("/admin/api-keys", &key), 503, "unavailable", "");
    assert_eq!(system.asker().get("/admin/api-keys").at("/api_keys"), json!([]));
    with(&system, &[], "/health/detailed").expect(503);
    with(&system, &[], "/health").expect(503);
    assert!(system.asker().get("/metrics").at("/ken_audit_failures_total").as_u64() >= Some(2));
    fs::remove_dir(&path).unwrap();
    system.execute(&run).expect(200);
    with(&system, &[], "/health/detailed").expect(200);
    with(&system, &[], "/health").expect(200);
}

#[test]
fn metrics_in_both_forms_and_their_access() {
    let system = cognitive().env("METRICS_PUBLIC", "true").env("RATE_LIMIT_METRICS", "4/hour").start();
    system
        .execute(&json!({"protocol_names": ["ESL", "VVP"], "data": {"text": "A word of the user.", "rules": []}}))
        .expect(200);
    let text = with(&system, &[], "/metrics/prometheus").expect(200);
    assert_eq!(text.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    let lines = text.body_text();
    for line in [
        r#"ken_steps_total{protocol="ESL",outcome="done"} 1"#,
        r#"ken_workflows_total{status="completed"} 1"#,
        r#"ken_requests_total{route="execute",status="200"} 1"#,
        r#"ken_tool_processes{protocol="VVP",state="idle"} 1"#,
    ] {
        assert!(lines.lines().any(|found| found == line), "no {line} in {lines}");
    }
    assert!(!lines.contains("# EOF") && !lines.contains("word of the user"));
    let accept = [("Accept", "application/openmetrics-text")];
    let open = with(&system, &accept, "/metrics/prometheus").expect(200);
    assert!(open.header("content-type").unwrap().starts_with("application/openmetrics-text"));
    assert!(open.body_text().ends_with("# EOF\n"));
    // Only the Prometheus text is public.
    with(&system, &[], "/metrics").expect(401);
    let key = [("X-API-Key", KEY)];
    let json = with(&system, &key, "/metrics").expect(200);
    assert_eq!(json.at("/ken_workflows_total/0/value"), 1);
    for _ in 0..2 {
        with(&system, &[], "/metrics/prometheus").expect(200);
    }
    with(&system, &[], "/metrics/prometheus").expect(429);
}

/// The dashboard uses only metrics that exist.
#[test]
fn the_dashboard_uses_existing_metrics() {
    let dashboard: Value = serde_json::from_str(include_str!("../../share/dashboards/ken-cognitive.json")).unwrap();
    let system = cognitive().start();
    system.execute(&json!({"protocol_names": ["ESL"], "data": {"text": "x"}})).expect(200);
    let metrics = system.asker().get("/metrics/prometheus").expect(200).body_text();
    let mut received = 0;
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().unwrap() {
            let expression = target["expr"].as_str().unwrap();
            let names = expression.split(|char: char| !char.is_ascii_alphanumeric() && char != '_');
            for name in names.filter(|name| name.starts_with("ken_")) {
                received += 1;
                let base = name.trim_end_matches("_bucket").trim_end_matches("_sum").trim_end_matches("_count");
                assert!(metrics.contains(&format!("# TYPE {base} ")), "{name} in {expression}");
            }
        }
    }
    assert!(received >= 10);
}

/// kend holds the socket, so callers wait while the server restarts.
#[test]
fn a_restart_refuses_no_request_and_a_stop_finishes_those_in_progress() {
    let system = cognitive().start();
    for _ in 0..3 {
        system.kill("cognitive");
        system.asker().get("/v1/protocols").expect(200);
    }
    let mut asker = system.asker();
    asker.get("/v1/protocols").expect(200);
    system.signal("cognitive", nix::sys::signal::Signal::SIGTERM);
    until("the connection that idles is closed", || asker.request("GET", "/v1/protocols").try_send().is_err());
    system.asker().get("/v1/protocols").expect(200);
    assert_eq!(system.call("cognitive", "service.info", &[])["name"], "cognitive");
    let output = system.ken(&["status", "cognitive"]);
    assert_eq!(output.status.code(), Some(0));
}
