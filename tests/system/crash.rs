//! Whichever process is killed, no accepted request is lost and none is executed twice.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ken_tests::{Answer, Builder, Client, System, until};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

const IDENTITY: &str = "connector=tui&actorId=a&conversationId=c";

/// A client that sends messages in one session, each with its own idempotency key, and repeats each until it gets a 2xx.
struct ChatClient {
    address: SocketAddr,
    session: String,
    number: usize,
    refused: Arc<AtomicUsize>,
    over: Arc<AtomicBool>,
}

impl ChatClient {
    fn run(self) -> (String, usize) {
        let mut printed = 0;
        while !self.over.load(Ordering::Relaxed) {
            self.say(printed);
            printed += 1;
        }
        (self.session, printed)
    }

    fn say(&self, number: usize) {
        let text = format!("message {number} of talker {}", self.number);
        let body =
            json!({"connector": "tui", "actorId": "a", "conversationId": "c", "session": self.session, "text": text});
        let key = format!("{}-{number}", self.number);
        let give_up = Instant::now() + Duration::from_secs(60);
        while !self.try_once(&body, &key) {
            assert!(Instant::now() < give_up, "no answer to {text} within a minute");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn try_once(&self, body: &Value, key: &str) -> bool {
        let mut client = match Client::try_connect(self.address) {
            Ok(client) => client,
            Err(error) => {
                if error.kind() == ErrorKind::ConnectionRefused {
                    self.refused.fetch_add(1, Ordering::Relaxed);
                }
                return false;
            }
        };
        client.set_timeout(Duration::from_secs(20));
        let request = client.request("POST", "/api/chat/events").header("Idempotency-Key", key).json(body);
        match request.try_send() {
            Ok(answer) if answer.status < 300 => true,
            // A part was down. Either nothing was accepted, or a repeat gets the stored answer.
            Ok(answer) => {
                assert!([499, 500, 503, 504].contains(&answer.status), "{answer:?}");
                assert_ne!(answer.status, 500, "{answer:?}");
                false
            }
            Err(_) => false, // the gateway was killed during the request
        }
    }
}

struct ChatClients {
    workers: Vec<JoinHandle<(String, usize)>>,
    refused: Arc<AtomicUsize>,
    over: Arc<AtomicBool>,
}

impl ChatClients {
    fn start(system: &System, count: usize) -> ChatClients {
        let (refused, over) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let talkers = (0..count).map(|number| ChatClient {
            address: system.address(),
            session: system.session(),
            number,
            refused: refused.clone(),
            over: over.clone(),
        });
        let workers = talkers.collect::<Vec<_>>().into_iter().map(|talker| std::thread::spawn(move || talker.run()));
        ChatClients { workers: workers.collect(), refused, over }
    }

    /// Ends all talkers. Returns the session and the number of messages of each, and the number of refused connections.
    fn finish(self) -> (Vec<(String, usize)>, usize) {
        self.over.store(true, Ordering::Relaxed);
        let printed = self.workers.into_iter().map(|worker| worker.join().expect("a talker")).collect();
        (printed, self.refused.load(Ordering::Relaxed))
    }
}

/// All exchanges of a session, oldest first.
fn exchanges(system: &System, session: &str) -> Vec<Value> {
    let mut all = Vec::new();
    let mut before = String::new();
    loop {
        let target = format!("/api/chat/sessions/{session}/transcript?{IDENTITY}&limit=100{before}");
        let page = system.get(&target).expect(200).json();
        let mut older = page["exchanges"].as_array().expect("exchanges").clone();
        older.append(&mut all);
        all = older;
        match page["page"]["before"].as_str() {
            Some(cursor) => before = format!("&before={cursor}"),
            None => return all,
        }
    }
}

/// All events of an instance.
fn events(system: &System, session: &str) -> Vec<Value> {
    let mut all = Vec::new();
    let mut offset = "-1".to_owned();
    loop {
        let page = system.get(&format!("/agents/orchestrator/{session}?offset={offset}")).expect(200);
        all.extend(page.json().as_array().expect("events").iter().cloned());
        if page.header("stream-up-to-date").is_some() {
            return all;
        }
        offset = page.header("stream-next-offset").expect("an offset").to_owned();
    }
}

/// Checks that each message has exactly one prompt and one settled answer, in order, and that every start has its end.
fn check(system: &System, session: &str, said: usize, talker: usize) {
    let exchanges = exchanges(system, session);
    let prompts: Vec<_> =
        exchanges.iter().map(|exchange| exchange["prompt"]["text"].as_str().unwrap_or_default()).collect();
    let wanted: Vec<_> = (0..said).map(|number| format!("message {number} of talker {talker}")).collect();
    assert_eq!(prompts, wanted);
    for exchange in &exchanges {
        assert_eq!(exchange["status"], "completed", "{exchange}");
        assert!(exchange["assistant"]["text"].as_str().is_some_and(|text| !text.is_empty()), "{exchange}");
    }
    let mut settled: HashMap<String, usize> = HashMap::new();
    let mut next: HashMap<String, u64> = HashMap::new();
    for event in events(system, session) {
        let id = event["submissionId"].as_str().expect("submissionId").to_owned();
        let index = event["eventIndex"].as_u64().expect("eventIndex");
        let min = next.insert(id.clone(), index + 1).unwrap_or_default();
        assert!(index >= min, "eventIndex {index} came after {min}: {event}");
        assert_eq!(settled.get(&id), None, "an event after submission_settled: {event}");
        if event["type"] == "submission_settled" {
            *settled.entry(id).or_default() += 1;
        }
    }
    assert_eq!(settled.len(), said);
}

/// A pseudo-random number below `from`. The same start value gives the same order again.
fn pick(state: &mut u64, from: u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) % from
}

#[test]
fn parts_are_killed_under_eight_clients_for_30_seconds() {
    let system = System::start();
    let talkers = ChatClients::start(&system, 8);
    let parts = ["store", "agent", "gateway", "model"];
    let begun = Instant::now();
    let mut random = 20_270_203;
    let mut kills = 0;
    while begun.elapsed() < Duration::from_secs(30) {
        std::thread::sleep(Duration::from_millis(200 + pick(&mut random, 1_200)));
        let part = if kills < 8 { kills % 4 } else { pick(&mut random, 4) };
        system.kill(parts[usize::try_from(part).unwrap()]);
        kills += 1;
    }
    let (printed, refused) = talkers.finish();
    assert_eq!(refused, 0, "connects were refused while a part restarted");
    for (talker, (session, said)) in printed.iter().enumerate() {
        assert!(*said > 0);
        check(&system, session, *said, talker);
    }
}

#[test]
fn kend_is_killed_and_power_is_cut_under_load() {
    let mut system = System::start();
    let talkers = ChatClients::start(&system, 4);
    for round in 0..4 {
        std::thread::sleep(Duration::from_millis(700));
        match round % 2 {
            0 => system.cut_power(),
            _ => kill_kend(&mut system),
        }
        system.up();
    }
    std::thread::sleep(Duration::from_millis(500));
    let (printed, _) = talkers.finish();
    for (talker, (session, said)) in printed.iter().enumerate() {
        check(&system, session, *said, talker);
    }
}

/// A part that hangs is restarted, and callers that wait for it are answered.
#[test]
fn a_part_that_hangs_is_restarted() {
    let system = Builder::default().config("[part.model]\nwatchdog_ms = 1000\n").start();
    let session = system.session();
    let still = system.pid("model");
    system.signal("model", Signal::SIGSTOP);
    system.say(&session, "Are you there?").expect(200);
    assert_ne!(system.pid("model"), still);
    // The kill of one part is not reported as a failure of the others.
    let down = system.ken(&["down"]);
    assert_eq!(String::from_utf8_lossy(&down.stderr), "");
}

/// Kills only kend. Every part must then exit by itself within a second.
fn kill_kend(system: &mut System) {
    let pids: Vec<i32> = ["store", "agent", "gateway", "model"].iter().map(|part| system.pid(part)).collect();
    let killed = Instant::now();
    system.kill("kend");
    let alive = |pid: &i32| std::path::Path::new(&format!("/proc/{pid}/exe")).read_link().is_ok();
    until("all parts have gone", || !pids.iter().any(alive));
    assert!(killed.elapsed() < Duration::from_secs(2), "parts outlived kend for {:?}", killed.elapsed());
    system.down();
}

#[test]
fn a_turn_continues_where_a_killed_agent_left_it() {
    let script = json!({"events": [{"text": "first "}, {"sleep_ms": 1_500}, {"text": "second"}]});
    let system = Builder::default().script(&[script]).start();
    let session = system.session();
    let mut stream = system.attach(&format!("/agents/orchestrator/{session}?offset=now&live=sse"));
    let (address, body) = (system.address(), say(&session, "go"));
    let received = std::thread::spawn(move || Client::connect(address).post("/api/chat/events", &body));
    let before = stream.until_event("text_delta");
    let killed = Instant::now();
    system.kill("agent");
    let resumed = stream.until_event("submission_resumed");
    assert!(killed.elapsed() < Duration::from_secs(3), "resumed after {:?}", killed.elapsed());
    let rest = stream.until_event("submission_settled");
    let answer: Answer = received.join().expect("the caller").expect(200);
    assert_eq!(answer.text("/result/text"), "first second");
    let seen: Vec<Value> = [before, resumed, rest].concat();
    assert_eq!(seen, events(&system, &session), "a live reader and a later one see the same log");
    let types: Vec<_> = seen.iter().filter_map(|event| event["type"].as_str()).collect();
    assert_eq!(types.iter().filter(|kind| **kind == "submission_settled").count(), 1);
    assert_eq!(
        types.iter().filter(|kind| **kind == "message_start").count(),
        types.iter().filter(|kind| **kind == "message_end").count()
    );
}

fn say(session: &str, text: &str) -> Value {
    json!({"connector": "tui", "actorId": "a", "conversationId": "c", "session": session, "text": text})
}

/// The agent is stopped until its lease has expired. When it continues, it must not write.
#[test]
fn a_prompt_waits_for_a_stopped_agent_and_is_answered_once() {
    let system = System::start();
    let session = system.session();
    system.signal("agent", Signal::SIGSTOP);
    let (address, body) = (system.address(), say(&session, "hello there"));
    let received = std::thread::spawn(move || Client::connect(address).post("/api/chat/events", &body));
    std::thread::sleep(Duration::from_millis(500));
    system.signal("agent", Signal::SIGCONT);
    received.join().expect("the caller").expect(200);
    assert_eq!(exchanges(&system, &session).len(), 1);
}

#[test]
fn everything_survives_a_power_cut() {
    let mut system = System::start();
    let entry = json!({"title": "Door code", "content": "The door code of the lab is 4711."});
    let id = system.post("/api/knowledge", &entry).expect(201).text("/record/id");
    let session = system.session();
    system.say(&session, "What is the door code of the lab?").expect(200);
    let transcript = format!("/api/chat/sessions/{session}/transcript?{IDENTITY}");
    let before = (system.get(&transcript).body, events(&system, &session));
    system.cut_power();
    system.up();
    assert_eq!((system.get(&transcript).body, events(&system, &session)), before);
    let again = system.say(&session, "And what is the door code again?").expect(200).json();
    assert!(again["result"]["text"].as_str().unwrap().contains("4711. [1]"), "{again}");
    assert_eq!(again["result"]["sources"][0]["id"], id, "{again}");
}

#[test]
fn two_homes_run_side_by_side() {
    let (one, two) = (System::start(), System::start());
    let session = one.session();
    one.say(&session, "only here").expect(200);
    two.get(&format!("/api/chat/sessions/{session}/transcript?{IDENTITY}")).expect(404);
    assert_eq!(two.get("/api/chat/sessions").expect(200).at("/sessions"), json!([]));
    assert_eq!(exchanges(&one, &session).len(), 1);
}

#[test]
fn adding_or_removing_an_empty_configuration_restarts_no_part() {
    let system = System::start();
    let file = system.home().join("ken.toml");
    let reload = || String::from_utf8(system.ken(&["reload"]).stdout).unwrap();
    let unchanged = reload();
    assert!(unchanged.starts_with("unchanged: ") && unchanged.contains("store"), "{unchanged}");
    std::fs::write(&file, "").unwrap();
    assert_eq!(reload(), unchanged);
    std::fs::remove_file(&file).unwrap();
    assert_eq!(reload(), unchanged);
}
