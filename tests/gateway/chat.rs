//! POST /api/chat/events: prompts, policies, preferences and commands.

use ken_tests::{Answer, Client, System, scripted, scripted_builder, tui, until};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

const CHAT: &str = "/api/chat/events";

fn say(system: &System, session: &str, text: &str, more: &[(&str, Value)]) -> Answer {
    let mut body = tui(&[("session", json!(session)), ("text", json!(text))]);
    for (name, value) in more {
        body[*name] = value.clone();
    }
    system.post(CHAT, &body)
}

/// Like `say`, but without waiting for the answer.
fn begin(system: &System, session: &str, text: &str, more: &[(&str, Value)]) -> Answer {
    let mut body = tui(&[("session", json!(session)), ("text", json!(text))]);
    for (name, value) in more {
        body[*name] = value.clone();
    }
    let mut client = system.client();
    let request = client.request("POST", CHAT).header("Prefer", "respond-async");
    request.json(&body).send()
}

fn cancel(system: &System, session: &str) -> Answer {
    system.post(&format!("/api/chat/sessions/{session}/cancel"), &tui(&[])).expect(200)
}

/// The types of the session's events so far.
fn kinds(system: &System, session: &str) -> Vec<String> {
    let events = system.get(&format!("/agents/orchestrator/{session}")).expect(200).json();
    let kind = |event: &Value| event["type"].as_str().unwrap().to_owned();
    events.as_array().unwrap().iter().map(kind).collect()
}

#[test]
fn prompts() {
    let system = scripted();
    session_selection(&system);
    answers(&system);
    preferences(&system);
    failures(&system);
    full_queue(&system);
    policies(&system);
}

fn session_selection(system: &System) {
    // Each message from the terminal or the web without a session creates a new one.
    let fresh = |body: &Value| {
        let answer = system.post(CHAT, body).expect(200);
        assert_eq!(answer.at("/session/created"), true);
        (answer.text("/session/id"), answer.text("/session/surface"), answer.text("/event/connector"))
    };
    let terminal = tui(&[("text", json!("hello"))]);
    let (one, two) = (fresh(&terminal), fresh(&terminal));
    assert!(one.0 != two.0 && one.0.starts_with("tui-") && one.1 == "tui" && one.2 == "tui");
    for connector in [json!(null), json!("web-api"), json!("messenger"), json!("carrier"), json!(7)] {
        let web = fresh(&json!({"text": "hello", "connector": connector}));
        assert!(web.0.starts_with("web-") && web.1 == "web" && web.2 == "web-api", "{connector}: {web:?}");
    }
    // Ids have the form <origin>-<UTC time>-<8 hex>.
    let parts: Vec<&str> = one.0.split('-').collect();
    assert_eq!(parts.iter().map(|part| part.len()).collect::<Vec<_>>(), [3, 4, 2, 5, 2, 2, 4, 8], "{}", one.0);
    // An id or an exact name selects a session of the same scope.
    let again = say(system, &one.0, "hello", &[]).expect(200);
    assert_eq!((again.text("/session/id"), again.at("/session/created")), (one.0.clone(), json!(false)));
    assert_eq!(again.at("/session/title"), Value::Null);
    say(system, &one.0, "/rename My  Name", &[]).expect(200);
    let named = say(system, "My  Name", "hello", &[]).expect(200);
    assert_eq!((named.text("/session/id"), named.text("/session/title")), (one.0.clone(), "My  Name".into()));
    say(system, "my  name", "hello", &[]).expect(404);
    // Refused messages are stored as events too.
    let event = |answer: Answer| answer.text("/eventId");
    let missing = event(say(system, "nowhere", "hello", &[]).refused(404, "not_found", ""));
    assert!(missing.starts_with("tui:"));
    for scope in [("actorId", json!("other")), ("conversationId", json!("other")), ("threadId", json!("t"))] {
        event(say(system, &one.0, "hello", &[scope]).refused(403, "forbidden", ""));
    }
    say(system, &two.0, "/rename My  Name", &[]).expect(200);
    event(say(system, "My  Name", "hello", &[]).refused(409, "conflict", ""));
    // Web callers can choose the id.
    let web = |session: &str| system.post(CHAT, &json!({"text": "hello", "session": session}));
    for created in [true, false] {
        let mine = web("web-mine_1").expect(200);
        assert_eq!((mine.text("/session/id"), mine.at("/session/created")), ("web-mine_1".into(), json!(created)));
    }
    let other = json!({"text": "hello", "session": "web-mine_1", "actorId": "other"});
    system.post(CHAT, &other).refused(403, "forbidden", "");
    web(&format!("web-{}", "x".repeat(117))).expect(404);
    web("web-no space").expect(404);
    web("mine").expect(404);
    web(&one.0).expect(403);
    let from_terminal = tui(&[("text", json!("hello")), ("session", json!("web-new"))]);
    system.post(CHAT, &from_terminal).expect(404);
}

fn answers(system: &System) {
    let session = system.session();
    let context = [
        ("clientId", json!("c")),
        ("projectId", json!("")),
        ("workflow", json!("w")),
        ("task", json!("x".repeat(256))),
        ("actorDisplayName", json!("A")),
        ("raw", json!([1, {"a": null}])),
    ];
    let first = say(system, &session, "hello", &context).expect(200);
    assert_eq!(first.at("/result/text"), "Hello there.");
    assert_eq!(first.at("/result/model"), json!({"provider": "script", "id": "script-1"}));
    assert_eq!((first.at("/status"), first.at("/offset")), (json!("completed"), json!("-1")));
    let end = system.get(&format!("/agents/orchestrator/{session}?offset=now"));
    let second = say(system, &session, "hello", &[]).expect(200);
    assert_eq!(second.text("/offset"), end.header("stream-next-offset").unwrap());
    assert_eq!(second.text("/streamUrl"), format!("{}/agents/orchestrator/{session}", system.url()));
    // The events after this offset belong to the turn of this submission.
    let offset = second.text("/offset");
    let events = system.get(&format!("/agents/orchestrator/{session}?offset={offset}")).json();
    let events = events.as_array().unwrap();
    assert!(!events.is_empty() && events.iter().all(|event| event["submissionId"] == second.at("/submissionId")));
    let usage = second.at("/contextUsage");
    assert_eq!(usage["available"], true);
    assert!(usage["usedTokens"].as_u64().unwrap() <= usage["capacityTokens"].as_u64().unwrap());
    // The URL contains the Host header only if this names a loopback address.
    let url = |host: &str| {
        let mut client = system.client();
        let request = client.request_to("POST", CHAT, host);
        request.json(&json!({"text": "hello"})).send().expect(200).text("/streamUrl")
    };
    assert!(url("localhost:99").starts_with("http://localhost:99/agents/"));
    // Text that is not a command is a prompt.
    for text in ["/1x", "/a/b", "//x", "/"] {
        assert_eq!(say(system, &session, text, &[]).expect(200).at("/event/messageKind"), "chat.message", "{text}");
    }
}

fn preferences(system: &System) {
    let ask = |wish: &str, text: &str| {
        let mut client = system.client();
        let request = client.request("POST", CHAT).header("Prefer", wish);
        request.json(&tui(&[("text", json!(text))])).send()
    };
    let running = ask("respond-async", "hold").expect(202);
    assert_eq!(running.header("preference-applied"), Some("respond-async"));
    assert_eq!(
        (running.at("/result"), running.at("/status"), running.at("/text")),
        (Value::Null, json!("running"), json!(""))
    );
    assert!(running.at("/waiting").is_null());
    cancel(system, &running.text("/session/id"));
    let waited = ask("wait=1", "hold").expect(202);
    assert_eq!(waited.header("preference-applied"), Some("wait=1"));
    cancel(system, &waited.text("/session/id"));
    let done = ask("foo, wait=30", "hello").expect(200);
    assert_eq!(done.header("preference-applied"), Some("wait=30"));
    assert_eq!(ask("handling=lenient", "hello").expect(200).header("preference-applied"), None);
    // Two header lines mean the same as one with a comma.
    let mut client = system.client();
    let request = client.request("POST", CHAT).header("Prefer", "handling=lenient").header("Prefer", "wait=30");
    let done = request.json(&tui(&[("text", json!("hello"))])).send().expect(200);
    assert_eq!(done.header("preference-applied"), Some("wait=30"));
}

fn failures(system: &System) {
    let session = system.session();
    let failed = say(system, &session, "refused", &[]).expect(500);
    assert_eq!(failed.at("/code"), "model_failed");
    assert!(failed.text("/error").contains("the key is not taken"), "{}", failed.body_text());
    assert_eq!(failed.at("/contextUsage"), json!({"available": false}));
    assert_eq!(failed.text("/session/id"), session);
    assert!(failed.at("/result").is_null());
    // The turn is cancelled while the caller waits for it.
    let (address, body) = (system.address(), tui(&[("text", json!("hold")), ("session", json!(session))]));
    let caller = std::thread::spawn(move || Client::connect(address).checked_by_contract().post(CHAT, &body));
    until("the turn says something", || {
        let kinds = kinds(system, &session);
        kinds.last().is_some_and(|last| last == "text_delta")
    });
    let cancelled = cancel(system, &session);
    assert_eq!(cancelled.at("/cancelled"), true);
    let answer = caller.join().unwrap().expect(499);
    assert_eq!((answer.at("/code"), answer.at("/result/text")), (json!("cancelled"), json!("part")));
    assert_eq!(answer.at("/submissionId"), cancelled.at("/submissionId"));
    // No turn is running, so there is nothing to cancel.
    let nothing = cancel(system, &session);
    assert_eq!((nothing.at("/cancelled"), nothing.at("/submissionId")), (json!(false), Value::Null));
}

/// An optional field must not be null.
#[test]
fn null_is_refused() {
    let system = scripted();
    let session = system.session();
    for field in [
        "text", "actorId", "conversationId", "threadId", "session", "policy", "actorDisplayName", "clientId",
        "projectId", "workflow", "task",
    ] {
        let body = tui(&[("text", json!("hello")), (field, Value::Null)]);
        system.post(CHAT, &body).refused(400, "invalid", &format!("/{field}"));
    }
    let given = tui(&[("text", json!("hello")), ("raw", Value::Null), ("unknown", Value::Null)]);
    system.post(CHAT, &given).expect(200);
    for field in ["connector", "actorId", "conversationId", "threadId"] {
        let body = tui(&[(field, Value::Null)]);
        let at = format!("/{field}");
        system.post("/api/chat/sessions", &body).refused(400, "invalid", &at);
        let cancel = format!("/api/chat/sessions/{session}/cancel");
        system.post(&cancel, &body).refused(400, "invalid", &at);
    }
    for field in ["title", "content", "tags", "actorId", "conversationId"] {
        let mut body = json!({"title": "t", "content": "c"});
        body[field] = Value::Null;
        system.post("/api/knowledge", &body).refused(400, "invalid", &format!("/{field}"));
    }
    for field in ["message", "images", "policy"] {
        let mut body = json!({"message": "hello"});
        body[field] = Value::Null;
        let target = "/agents/orchestrator/null";
        system.post(target, &body).refused(400, "invalid_request", &format!("/{field}"));
    }
    // A body of blanks counts as empty.
    let mut client = system.client();
    let blank = client.request("POST", "/agents/orchestrator/null/abort");
    let blank = blank.header("Content-Type", "application/json").body(" \r\n");
    blank.send().expect(200);
}

fn full_queue(system: &System) {
    let session = system.session();
    begin(system, &session, "hold", &[]).expect(202);
    for number in 0..256 {
        begin(system, &session, &format!("waiting {number}"), &[]).expect(202);
    }
    let full = begin(system, &session, "too many", &[]).refused(429, "busy", "");
    assert!(full.header("retry-after").is_some() && full.at("/eventId").is_string());
    let prompt = json!({"message": "too many"});
    system.post(&format!("/agents/orchestrator/{session}"), &prompt).refused(429, "queue_full", "");
    // Other sessions are not delayed.
    say(system, &system.session(), "hello", &[]).expect(200);
    let aborted = system.post(&format!("/agents/orchestrator/{session}/abort"), &json!({})).expect(200);
    assert_eq!(aborted.at("/submissionIds").as_array().unwrap().len(), 257);
    assert_eq!(aborted.at("/aborted"), true);
}

fn policies(system: &System) {
    let session = system.session();
    let policy = |name: &str| [("policy", json!(name))];
    begin(system, &session, "hold first", &[]).expect(202);
    until("the turn says something", || kinds(system, &session).contains(&"text_delta".to_owned()));
    let refused = say(system, &session, "hello", &policy("reject")).refused(409, "conflict", "");
    assert!(refused.at("/eventId").is_string());
    let agent = format!("/agents/orchestrator/{session}");
    system.post(&agent, &json!({"message": "hello", "policy": "reject"})).refused(409, "session_busy", "");
    let queued = begin(system, &session, "hello queued", &[]).expect(202);
    let urgent = say(system, &session, "hello urgent", &policy("interrupt")).expect(200);
    until("the queue is empty", || {
        kinds(system, &session).iter().filter(|kind| *kind == "submission_settled").count() == 3
    });
    let transcript =
        system.get(&format!("/api/chat/sessions/{session}/transcript?connector=tui&actorId=a&conversationId=c"));
    let transcript = transcript.expect(200).json();
    let status = |id: &Value| {
        let of = transcript["exchanges"].as_array().unwrap().iter().find(|one| one["id"] == *id);
        of.unwrap_or_else(|| panic!("no {id} in {transcript}"))["status"].clone()
    };
    assert_eq!(status(&queued.at("/submissionId")), "completed");
    assert_eq!(status(&urgent.at("/submissionId")), "completed");
    assert_eq!(transcript["exchanges"][0]["status"], "cancelled");
    assert_eq!(transcript["exchanges"][0]["assistant"]["text"], "part");
    // The urgent prompt ran before the waiting one.
    let events = system.get(&agent).json();
    let settled = events.as_array().unwrap().iter().filter(|event| event["type"] == "submission_settled");
    let order: Vec<_> = settled.map(|event| event["submissionId"].clone()).collect();
    assert_eq!(order[1..], [urgent.at("/submissionId"), queued.at("/submissionId")]);
    // With the policy `reject`, a prompt to an idle session is accepted.
    say(system, &session, "hello", &policy("reject")).expect(200);
}

#[test]
fn commands() {
    let system = scripted();
    new_and_clear(&system);
    resume_and_rename(&system);
    texts_are_markdown(&system);
    compact(&system);
    remaining_commands(&system);
}

fn command(answer: &Answer) -> (Value, Value) {
    (answer.at("/result/command/name"), answer.at("/result/command/handled"))
}

/// The answer to a command contains the URL of the session's stream, and the end offset of the stream before the
/// command.
fn follows(system: &System, answer: &Answer, entries: usize) {
    let url = format!("{}/agents/orchestrator/{}", system.url(), answer.text("/session/id"));
    let offset = match entries {
        0 => "-1".to_owned(),
        entries => format!("0000000000000000_{entries:016}"),
    };
    assert_eq!((answer.text("/streamUrl"), answer.text("/offset")), (url, offset));
}

fn new_and_clear(system: &System) {
    let old = system.session();
    for (text, name, title) in [
        ("/new", "new", Value::Null),
        ("  /NEW   Night shift ", "new", json!("Night shift")),
        ("/clear other", "clear", json!("other")),
    ] {
        let answer = say(system, &old, text, &[]).expect(200);
        assert_eq!(command(&answer), (json!(name), json!(true)));
        assert_eq!((answer.at("/session/created"), answer.at("/session/title")), (json!(true), title));
        assert_ne!(answer.text("/session/id"), old);
        follows(system, &answer, 0);
    }
    say(system, &old, &format!("/new {}", "x".repeat(121)), &[]).refused(400, "invalid", "/text");
    // The old session is unchanged; commands are in no transcript and on no stream.
    assert_eq!(kinds(system, &old), [""; 0]);
    for text in ["/new", "/clear x"] {
        let web = system.post(CHAT, &json!({"text": text})).expect(200);
        assert!(web.at("/session").is_null() && !web.text("/result/text").is_empty());
    }
}

fn resume_and_rename(system: &System) {
    let session = system.session();
    let answer = say(system, &session, "/rename  Tide ", &[]).expect(200);
    assert_eq!((answer.text("/session/title"), answer.at("/session/created")), ("Tide".into(), json!(false)));
    for selector in ["Tide", &session] {
        let answer = system.post(CHAT, &tui(&[("text", json!(format!("/resume {selector}")))])).expect(200);
        assert_eq!((answer.text("/session/id"), answer.at("/session/created")), (session.clone(), json!(false)));
    }
    let resume = |text: &str, more: &[(&str, Value)]| {
        let mut body = tui(&[("text", json!(text))]);
        for (name, value) in more {
            body[*name] = value.clone();
        }
        system.post(CHAT, &body)
    };
    let missed = resume("/resume nowhere", &[]).refused(404, "not_found", "");
    assert!(missed.at("/eventId").is_string() && missed.at("/result").is_null());
    resume(&format!("/resume {session}"), &[("actorId", json!("other"))]).refused(403, "forbidden", "");
    let usage = resume("/resume", &[]).refused(400, "invalid", "/text");
    assert_eq!(command(&usage), (json!("resume"), json!(true)));
    say(system, &session, "/rename", &[]).refused(400, "invalid", "/text");
    say(system, &session, &format!("/rename {}", "x".repeat(121)), &[]).refused(400, "invalid", "/text");
    for text in ["/rename x", "/compact", "/session"] {
        resume(text, &[]).refused(400, "invalid", "/session");
    }
    say(system, "nowhere", "/rename x", &[]).refused(404, "not_found", "");
    say(system, &system.session(), "/rename Tide", &[]).expect(200);
    // The error lists the sessions with this name, so that one of them can be resumed by its id.
    let ambiguous = resume("/resume Tide", &[]).refused(409, "conflict", "").text("/error");
    assert!(ambiguous.contains(&session), "{ambiguous}");
    let talked = system.session();
    say(system, &talked, "hello", &[]).expect(200);
    let events = kinds(system, &talked).len();
    for text in ["/session", "/rename Talked", "/resume Talked"] {
        follows(system, &say(system, &talked, text, &[]).expect(200), events);
    }
    follows(system, &say(system, &talked, "/compact", &[]).expect(200), events);
}

/// The replies to commands are Markdown. They are escaped so that rendering keeps texts in angle brackets and all
/// lines.
fn texts_are_markdown(system: &System) {
    let session = system.session();
    for text in ["/help", "/nothing"] {
        let help = say(system, &session, text, &[]).expect(200).text("/result/text");
        assert!(help.contains("- `/resume <id or name>`: "), "{help}");
        let lines = help.lines().filter(|line| !line.is_empty());
        assert!(lines.filter(|line| line.starts_with("- `/")).count() == 8, "{help}");
    }
    let named = say(system, &session, "/rename <b>`x`", &[]).expect(200).text("/result/text");
    assert!(named.contains("`` <b>`x` ``"), "{named}");
    let misused = say(system, &session, "/resume", &[]).expect(400).text("/result/text");
    assert!(misused.contains("`/resume <id or name>`"), "{misused}");
}

fn compact(system: &System) {
    let session = system.session();
    for text in ["hello one", "hello two"] {
        say(system, &session, text, &[]).expect(200);
    }
    let answer = say(system, &session, "/compact", &[]).expect(200);
    assert_eq!(command(&answer), (json!("compact"), json!(true)));
    assert_eq!(answer.at("/contextUsage/available"), true);
    let budget = answer.at("/result/contextBudget");
    assert_eq!((&budget["status"], &budget["compactions"]), (&json!("normal"), &json!(1)), "{budget:#}");
    let kinds = kinds(system, &session);
    assert!(kinds.contains(&"compaction_start".to_owned()) && kinds.contains(&"compaction".to_owned()), "{kinds:?}");
    // A compaction is not an exchange in the transcript.
    let transcript =
        system.get(&format!("/api/chat/sessions/{session}/transcript?connector=tui&actorId=a&conversationId=c"));
    assert_eq!(transcript.at("/exchanges").as_array().unwrap().len(), 2);
}

fn remaining_commands(system: &System) {
    let session = system.session();
    let answer = say(system, &session, "/session", &[]).expect(200);
    assert!(answer.text("/result/text").contains(&session) && answer.text("/session/id") == session);
    for (text, name, is_known) in
        [("/help", "help", true), ("/help me", "help", true), ("/No-Such_1 x", "no-such_1", false)]
    {
        let answer = say(system, &session, text, &[]).expect(200);
        assert_eq!(command(&answer), (json!(name), json!(is_known)));
        assert!(answer.at("/session").is_null());
        let reply = answer.text("/result/text");
        let web = system.post(CHAT, &json!({"text": text})).expect(200);
        assert_eq!(command(&web), (json!(name), json!(is_known)));
        let for_web = web.text("/result/text");
        for known in ["/new", "/clear", "/resume", "/rename", "/compact", "/session", "/help"] {
            assert!(reply.contains(known), "{reply}");
            // From the web, these two commands make no session, so they are not offered.
            assert_eq!(for_web.contains(known), !["/new", "/clear"].contains(&known), "{for_web}");
        }
    }
    assert_eq!(kinds(system, &session), [""; 0]);
}

/// A prompt is refused only if the store is down or no model is configured.
#[test]
fn a_prompt_waits_for_parts_that_are_down() {
    let system = scripted_builder().start();
    let session = system.session();
    for part in ["agent", "model"] {
        assert!(system.ken(&["stop", part]).status.success());
    }
    // A part that was stopped by hand is not ready either.
    let mut waiting = system.get("/ready").refused(503, "unavailable", "").at("/waiting").as_array().unwrap().clone();
    waiting.sort_by_key(Value::to_string);
    assert_eq!(waiting, ["agent", "model"]);
    let accepted = begin(&system, &session, "hello", &[]).expect(202);
    // A waiting caller gets the reason.
    let mut client = system.client();
    let request = client.request("POST", CHAT).header("Prefer", "wait=1");
    let waited = request.json(&tui(&[("text", json!("hello"))])).send().expect(202);
    let mut parts = waited.at("/waiting").as_array().unwrap().clone();
    parts.sort_by_key(Value::to_string);
    assert_eq!(parts, ["agent", "model"]);
    for part in ["model", "agent"] {
        assert!(system.ken(&["start", part]).status.success());
    }
    until("all is ready", || system.get("/ready").status == 200);
    until("the turn is done", || kinds(&system, &session).last().is_some_and(|last| last == "submission_settled"));
    let id = accepted.text("/submissionId");
    let events = system.get(&format!("/agents/orchestrator/{session}")).json();
    assert_eq!(events[0]["submissionId"], json!(id));
}

/// No process listens on the socket of a stopped part, so the gateway answers at once and keeps running.
#[test]
fn a_stopped_store_is_reported_at_once() {
    let system = scripted();
    let session = system.session();
    let gateway = system.pid("gateway");
    assert!(system.ken(&["stop", "store"]).status.success());
    for _ in 0..3 {
        let begun = std::time::Instant::now();
        say(&system, &session, "hello", &[]).refused(503, "unavailable", "");
        let read = system.get("/api/chat/sessions");
        read.refused(503, "unavailable", "");
        assert!(begun.elapsed().as_secs() < 5, "after {:?}", begun.elapsed());
    }
    assert!(system.ken(&["start", "store"]).status.success());
    until("the store is back", || say(&system, &session, "hello", &[]).status == 200);
    assert_eq!(system.pid("gateway"), gateway);
}

/// kend sees a process that is ready; only a write shows that the store does nothing.
#[test]
fn a_system_whose_store_hangs_is_not_ready() {
    let system = scripted();
    system.get("/ready").expect(200);
    system.signal("store", Signal::SIGSTOP);
    let begun = std::time::Instant::now();
    until("it is reported", || system.get("/ready").status == 503);
    assert!(begun.elapsed().as_secs() < 10, "after {:?}", begun.elapsed());
    // Many callers share one probe.
    let begun = std::time::Instant::now();
    std::thread::scope(|scope| {
        let callers: Vec<_> = (0..8).map(|_| scope.spawn(|| system.client().get("/ready"))).collect();
        for caller in callers {
            let ready = caller.join().unwrap().refused(503, "unavailable", "");
            assert_eq!(ready.at("/waiting"), json!(["store"]), "{}", ready.body_text());
        }
    });
    assert!(begun.elapsed().as_secs() < 10, "after {:?}", begun.elapsed());
    system.signal("store", Signal::SIGCONT);
    until("it is ready again", || system.get("/ready").status == 200);
}

#[test]
fn settings_determine_urls_and_waiting_times() {
    let config =
        "[gateway]\npublic_url = \"https://ken.example/base/\"\ntrust_loopback = \"yes\"\n[chat]\nwait_ms = 0\n";
    let system = scripted_builder().config(config).start();
    let answer = system.post(CHAT, &json!({"text": "hello"})).expect(202);
    assert!(answer.text("/streamUrl").starts_with("https://ken.example/base/agents/orchestrator/web-"));
}

/// When the gateway stops, it answers waiting callers with 202, and the turn continues.
#[test]
fn waiting_callers_get_202_when_the_gateway_stops() {
    let system = scripted();
    let session = system.session();
    let ask = |target: String, body: Value| {
        let address = system.address();
        std::thread::spawn(move || Client::connect(address).checked_by_contract().post(&target, &body))
    };
    let chat = ask(CHAT.into(), tui(&[("text", json!("hold")), ("session", json!(session))]));
    let agent = ask("/agents/orchestrator/held?wait=result".into(), json!({"message": "hold"}));
    for instance in [session.as_str(), "held"] {
        let target = format!("/agents/orchestrator/{instance}");
        until("it is accepted", || system.get(&target).status == 200 && system.get(&target).body.len() > 2);
    }
    system.signal("gateway", Signal::SIGTERM);
    let running = chat.join().unwrap().expect(202);
    assert_eq!((running.at("/result"), running.at("/status")), (Value::Null, json!("running")));
    let admitted = agent.join().unwrap().expect(202);
    until("the gateway is back", || {
        system.client().request("GET", "/health").try_send().is_ok_and(|answer| answer.status == 200)
    });
    let aborted = system.post("/agents/orchestrator/held/abort", &json!({})).expect(200);
    assert_eq!(aborted.at("/submissionIds/0"), admitted.at("/submissionId"));
    assert_eq!(cancel(&system, &session).at("/submissionId"), running.at("/submissionId"));
}
