//! Parts or the disk hang: accepted work is executed once, and 503 means that nothing was accepted.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ken_tests::{Answer, Builder, Client, System, binary, skip, tui, until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::kills::disk::Disk;

const IDENTITY: &str = "connector=tui&actorId=a&conversationId=c";
const PARTS: [&str; 5] = ["store", "gateway", "agent", "model", "cognitive"];

/// What a client knows about the outcome of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Accepted,
    /// 503 or 429: nothing was accepted.
    Refused,
    /// 504 with an unknown outcome, or no answer at all.
    Unknown,
}

/// The kind of request that a client sends repeatedly, each time with another label.
#[derive(Debug, Clone)]
enum Work {
    Chat { session: String },
    Run,
    Append { stream: String },
}

#[derive(Debug, Clone)]
struct Asker {
    address: SocketAddr,
    name: String,
    work: Work,
    /// Whether each request has an idempotency key, or an append a producer, and is repeated until it is accepted.
    keyed: bool,
    over: Arc<AtomicBool>,
}

impl Asker {
    /// Sends requests until `over` is set. Returns every label that was sent, with its outcome.
    fn run(&self) -> Vec<(String, Verdict)> {
        let mut received = Vec::new();
        while !self.over.load(Ordering::Relaxed) {
            let number = received.len();
            let label = format!("{}-{number}", self.name);
            received.push((label.clone(), self.ask(&label, number)));
            std::thread::sleep(Duration::from_millis(5));
        }
        received
    }

    fn ask(&self, label: &str, number: usize) -> Verdict {
        let give_up = Instant::now() + Duration::from_secs(150);
        loop {
            let verdict = self.ask_once(label, number);
            if !self.keyed || verdict == Verdict::Accepted {
                return verdict;
            }
            assert!(Instant::now() < give_up, "{label} was never accepted");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn ask_once(&self, label: &str, number: usize) -> Verdict {
        let mut client = match Client::try_connect(self.address) {
            Ok(client) => client,
            Err(_) => return Verdict::Refused,
        };
        client.set_timeout(Duration::from_secs(60));
        let text = number.to_string();
        // Half of the callers wait for long. The others soon get the answer that the outcome is unknown.
        let wait = if number.is_multiple_of(2) { "wait=2" } else { "wait=60" };
        let request = match &self.work {
            Work::Chat { session } => client
                .request("POST", "/api/chat/events")
                .header("Prefer", wait)
                .json(&tui(&[("session", json!(session)), ("text", json!(label))])),
            Work::Run => client.request("POST", "/workflows/steps").json(&json!({"steps": 1, "label": label})),
            Work::Append { stream } => client.request("POST", stream).json(&json!({"label": label})),
        };
        let request = match (&self.work, self.keyed) {
            (_, false) => request,
            (Work::Append { .. }, true) => {
                request.header("Producer-Id", &self.name).header("Producer-Epoch", "0").header("Producer-Seq", &text)
            }
            (_, true) => request.header("Idempotency-Key", label),
        };
        match request.try_send() {
            Ok(answer) => verdict(label, &answer),
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => Verdict::Refused,
            Err(_) => Verdict::Unknown,
        }
    }
}

fn verdict(label: &str, answer: &Answer) -> Verdict {
    match answer.status {
        200..=299 => Verdict::Accepted,
        429 | 503 => Verdict::Refused,
        504 => {
            let body = answer.json();
            let reported = [body.pointer("/outcome"), body.pointer("/error/meta/outcome")];
            assert!(reported.contains(&Some(&json!("unknown"))), "{label}: {body}");
            let ids = ["/eventId", "/error/meta/runId"].map(|id| body.pointer(id).is_some());
            assert!(ids.contains(&true) || label.contains("append"), "{label}: {body}");
            Verdict::Unknown
        }
        _ => panic!("{label}: {} {}", answer.status, answer.body_text()),
    }
}

/// The outcome of each request of a client, by label.
type Verdicts = Vec<(String, Verdict)>;

/// Clients of every kind, working on one system.
struct Load {
    askers: Vec<(Asker, JoinHandle<Verdicts>)>,
    over: Arc<AtomicBool>,
}

impl Load {
    fn start(system: &System, of_each: usize) -> Load {
        let over = Arc::new(AtomicBool::new(false));
        let mut askers = Vec::new();
        for number in 0..of_each {
            for keyed in [true, false] {
                let how = if keyed { "keyed" } else { "plain" };
                let stream = format!("/streams/{how}{number}");
                let mut client = system.client();
                let made = client.request("PUT", &stream).header("Content-Type", "application/json");
                made.send().expect(201);
                for (what, work) in [
                    ("chat", Work::Chat { session: system.session() }),
                    ("run", Work::Run),
                    ("append", Work::Append { stream }),
                ] {
                    let asker = Asker {
                        address: system.address(),
                        name: format!("{what}-{how}-{number}"),
                        work,
                        keyed,
                        over: over.clone(),
                    };
                    let own = asker.clone();
                    askers.push((asker, std::thread::spawn(move || own.run())));
                }
            }
        }
        Load { askers, over }
    }

    /// Ends the load, and compares the contents of the store with the answers that the clients got.
    fn check(self, system: &System) -> Tally {
        self.over.store(true, Ordering::Relaxed);
        let received: Vec<_> =
            self.askers.into_iter().map(|(asker, worker)| (asker, worker.join().expect("a client"))).collect();
        let runs = runs(system);
        let mut tally = Tally::default();
        for (asker, asked) in received {
            let done = match &asker.work {
                Work::Chat { session } => chats(system, session),
                Work::Append { stream } => appends(system, stream),
                Work::Run => runs.clone(),
            };
            for (label, verdict) in asked {
                tally.count(verdict, done.get(&label).copied().unwrap_or_default(), &label);
            }
        }
        tally
    }
}

/// The number of occurrences of each label.
type Done = HashMap<String, usize>;

fn count(labels: impl IntoIterator<Item = String>) -> Done {
    labels.into_iter().fold(Done::new(), |mut done, label| {
        *done.entry(label).or_default() += 1;
        done
    })
}

fn chats(system: &System, session: &str) -> Done {
    let page = |before: &str| {
        let target = format!("/api/chat/sessions/{session}/transcript?{IDENTITY}&limit=100{before}");
        system.get(&target).expect(200).json()
    };
    until("every turn has ended", || {
        let page = page("");
        let exchanges = page["exchanges"].as_array().unwrap();
        exchanges.iter().all(|exchange| exchange["status"] == "completed")
    });
    let (mut texts, mut before) = (Vec::new(), String::new());
    loop {
        let page = page(&before);
        for exchange in page["exchanges"].as_array().unwrap() {
            assert_eq!(exchange["status"], "completed", "{exchange}");
            texts.push(exchange["prompt"]["text"].as_str().unwrap().to_owned());
        }
        match page["page"]["before"].as_str() {
            Some(cursor) => before = format!("&before={cursor}"),
            None => return count(texts),
        }
    }
}

fn runs(system: &System) -> Done {
    let (mut labels, mut after) = (Vec::new(), String::new());
    loop {
        let page = system.get(&format!("/runs?limit=1000{after}")).expect(200).json();
        for run in page["runs"].as_array().unwrap() {
            let target = format!("/runs/{}?meta", run["runId"].as_str().unwrap());
            let mut record = Value::Null;
            until("the run has ended", || {
                record = system.get(&target).expect(200).json();
                record["status"] == "completed"
            });
            labels.push(record["payload"]["label"].as_str().unwrap().to_owned());
        }
        match page["nextCursor"].as_str() {
            Some(cursor) => after = format!("&cursor={cursor}"),
            None => return count(labels),
        }
    }
}

fn appends(system: &System, stream: &str) -> Done {
    let (mut labels, mut offset) = (Vec::new(), "-1".to_owned());
    loop {
        let page = system.get(&format!("{stream}?offset={offset}")).expect(200);
        let entries = page.json();
        let reported = entries.as_array().unwrap().iter();
        labels.extend(reported.map(|entry| entry["label"].as_str().unwrap().to_owned()));
        if page.header("stream-up-to-date").is_some() {
            return count(labels);
        }
        offset = page.header("stream-next-offset").unwrap().to_owned();
    }
}

#[derive(Debug, Default)]
struct Tally {
    accepted: usize,
    refused: usize,
    unknown: usize,
    lost: Vec<String>,
    doubled: Vec<String>,
    /// Requests that were answered with 503, although they were executed.
    refused_and_done: Vec<String>,
}

impl Tally {
    fn count(&mut self, verdict: Verdict, times: usize, label: &str) {
        match verdict {
            Verdict::Accepted => self.accepted += 1,
            Verdict::Refused => self.refused += 1,
            Verdict::Unknown => self.unknown += 1,
        }
        match (verdict, times) {
            (_, 2..) => self.doubled.push(label.to_owned()),
            (Verdict::Accepted, 0) => self.lost.push(label.to_owned()),
            (Verdict::Refused, 1) => self.refused_and_done.push(label.to_owned()),
            _ => {}
        }
    }

    #[track_caller]
    #[allow(clippy::print_stderr)]
    fn expect_clean(self) {
        eprintln!(
            "{} accepted, {} refused, {} unknown; lost {:?}, doubled {:?}, 503 and accepted {:?}",
            self.accepted, self.refused, self.unknown, self.lost, self.doubled, self.refused_and_done
        );
        assert!(self.accepted > 0);
        assert!(self.lost.is_empty() && self.doubled.is_empty() && self.refused_and_done.is_empty());
    }
}

/// Stops the processes of these parts for this time, and then continues them.
fn stall(system: &System, parts: &[&str], time: Duration) {
    let pids: Vec<Pid> = parts.iter().map(|part| Pid::from_raw(system.pid(part))).collect();
    for pid in &pids {
        kill(*pid, Signal::SIGSTOP).unwrap();
    }
    std::thread::sleep(time);
    for pid in &pids {
        // kend may have killed and replaced the process, because it sends no watchdog messages while it is stopped.
        _ = kill(*pid, Signal::SIGCONT);
    }
}

fn builder() -> Builder {
    let runner = binary("examples/runner");
    Builder::default()
        .env("KEN_MODEL", "script")
        .script(&[json!({"events": [{"text": "Hello there."}]})])
        .config(&format!(
            "[part.cognitive]\ncommand = [\"{}\"]\nrequires = [\"store\"]\nsockets = {{ wire = {{ unix = \"cognitive.sock\" }} }}\n",
            runner.display()
        ))
}

/// `make torture` runs the long form with `KEN_STALLS=30`.
#[test]
fn parts_hang_under_load() {
    let long = std::env::var("KEN_STALLS").ok().and_then(|count| count.parse::<u64>().ok());
    let system = builder().start();
    let load = Load::start(&system, if long.is_some() { 3 } else { 1 });
    std::thread::sleep(Duration::from_millis(300));
    let targets: [&[&str]; 3] = [&["store"], &["gateway"], &PARTS];
    for number in 0..long.unwrap_or(3) {
        let which = usize::try_from(number % 3).unwrap();
        let seconds = match long {
            // The longest stall exceeds the ten seconds that a change is allowed to wait before it begins.
            None => [12, 3, 6][which],
            Some(_) => 5 + number * 11 % 36,
        };
        stall(&system, targets[which], Duration::from_secs(seconds));
        std::thread::sleep(Duration::from_millis(700 + number * 131 % 900));
    }
    load.check(&system).expect_clean();
}

/// The source of a library that delays one sync of the disk by the seconds in the file that `SLOW_SYNC` names, if it exists, and removes this
/// file.
const SLOW_SYNC: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void stall(void) {
    const char *name = getenv("SLOW_SYNC");
    FILE *file = name ? fopen(name, "r") : NULL;
    if (!file) return;
    unsigned seconds = 0;
    int known = fscanf(file, "%u", &seconds);
    fclose(file);
    if (unlink(name) == 0 && known == 1) sleep(seconds);
}

int fdatasync(int fd) {
    static int (*real)(int);
    if (!real) real = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    stall();
    return real(fd);
}

int fsync(int fd) {
    static int (*real)(int);
    if (!real) real = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
    stall();
    return real(fd);
}
"#;

fn slow_sync(folder: &Path) -> PathBuf {
    let (source, library) = (folder.join("slow_sync.c"), folder.join("slow_sync.so"));
    std::fs::write(&source, SLOW_SYNC).unwrap();
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).arg("-ldl");
    assert!(compiler.status().expect("cc").success());
    library
}

#[test]
fn a_slow_disk_under_load() {
    let folder = tempfile::tempdir().unwrap();
    let (library, slow) = (slow_sync(folder.path()), folder.path().join("slow"));
    let (library, slow_file, folder) = (library.display(), slow.display(), folder.path().display());
    let preload = format!(
        "[part.store]\nenv = [\"LD_PRELOAD={library}\", \"SLOW_SYNC={slow_file}\"]\n\
         walls = {{ calls = \"local\", read = [\"{folder}\"], write = [\"STATE/store\", \"{folder}\"] }}\n"
    );
    let system = builder().config(&preload).start();
    let session = system.session();
    let say = |wait: &str, key: Option<&str>, text: &str| {
        let mut client = system.client();
        let request = client.request("POST", "/api/chat/events").header("Prefer", wait);
        let request = key.into_iter().fold(request, |request, key| request.header("Idempotency-Key", key));
        request.json(&tui(&[("session", json!(session)), ("text", json!(text))])).send()
    };
    // Renamed, so that no sync finds a file without its number.
    let delay = |seconds: u64| {
        std::fs::write(slow.with_extension("new"), seconds.to_string()).unwrap();
        std::fs::rename(slow.with_extension("new"), &slow).unwrap();
    };
    // The delayed sync is that of the message itself, and takes longer than the ten seconds that a change is waited for.
    delay(12);
    let reported = say("wait=5", None, "slow").expect(504);
    assert_eq!((reported.at("/code"), reported.at("/outcome")), (json!("deadline"), json!("unknown")));
    assert!(reported.text("/eventId").starts_with("tui:"));
    // A caller that waits for the result is answered.
    delay(4);
    say("wait=60", None, "waited").expect(200);
    assert_eq!(chats(&system, &session), count(["slow".to_owned(), "waited".to_owned()]));
    let load = Load::start(&system, 1);
    for seconds in [12, 4] {
        std::thread::sleep(Duration::from_millis(500));
        delay(seconds);
        std::thread::sleep(Duration::from_secs(seconds + 1));
    }
    load.check(&system).expect_clean();
}

/// Parts that need nothing of the disk to start are back as fast as ever while it stands still: kend does not wait for it.
#[test]
fn a_disk_that_stands_still_holds_up_no_restart() {
    const RESTARTED: [&str; 5] = ["approver", "scheduler", "agent", "model", "gateway"];
    let disk = match Disk::new() {
        Ok(disk) => disk,
        Err(why) => return skip(&why),
    };
    let system = Builder::default().below(&disk.folder()).start();
    RESTARTED.iter().for_each(|part| system.wait_until_stable(part));
    let before = RESTARTED.map(|part| system.pid(part));
    let is_back = |part: &str, before: i32| {
        let answer = system.ken(&["call", "kend", "parts.status"]);
        let status: Value = serde_json::from_slice(&answer.stdout).unwrap_or_default();
        let parts = status["parts"].as_array().map(Vec::as_slice).unwrap_or_default();
        parts.iter().any(|one| one["name"] == part && one["state"] == "ready" && one["pid"] != before)
    };
    let mut stall = disk.stall(10);
    let took = RESTARTED.iter().zip(before).map(|(part, before)| {
        let begun = Instant::now();
        _ = kill(Pid::from_raw(before), Signal::SIGKILL);
        until("the part is back", || is_back(part, before));
        println!("{part}: ready {:.2} s after its death", begun.elapsed().as_secs_f64());
        begun.elapsed()
    });
    let longest = took.max().unwrap();
    stall.wait().unwrap();
    println!("the disk stood still for 10 s; the longest restart took {:.2} s", longest.as_secs_f64());
    assert!(longest < Duration::from_secs(2));
    // What was logged meanwhile is in the file as soon as the disk goes on.
    until("the log has all of it", || {
        let log = std::fs::read_to_string(system.home().join("state/log/kend.log")).unwrap();
        before.iter().all(|pid| log.contains(&format!("started, pid {}", pid)))
            && log.matches("SIGKILL").count() >= RESTARTED.len()
    });
}

/// If the store does not answer, reads fail with 503, and changes with 504 because their outcome is unknown.
#[test]
fn a_silent_store_means_503_and_for_changes_an_unknown_outcome() {
    let system = System::start();
    let session = system.session();
    system.signal("store", Signal::SIGSTOP);
    let address = system.address();
    let ask = |method: &'static str, target: String| {
        std::thread::spawn(move || {
            let mut client = Client::connect(address).checked_by_contract();
            let body = json!({"title": "t", "content": "c", "text": "hello", "message": "hello"});
            match method {
                "POST" => client.request(method, &target).header("prefer", "wait=5").json(&body).send(),
                _ => client.get(&target),
            }
        })
    };
    let callers = [
        (ask("GET", "/api/chat/sessions".into()), 503),
        (ask("POST", "/api/chat/events".into()), 504),
        (ask("POST", "/agents/orchestrator/x".into()), 504),
        (ask("GET", format!("/agents/orchestrator/{session}")), 503),
    ];
    for (thread, status) in callers {
        let answer = thread.join().unwrap();
        assert_eq!(answer.status, status, "{}", answer.body_text());
        // The store can still make the change when it continues.
        assert_eq!(answer.body_text().contains("unknown"), status == 504, "{}", answer.body_text());
    }
    system.get("/health").expect(200);
    system.signal("store", Signal::SIGCONT);
    until("it answers again", || {
        system.client().request("GET", "/api/knowledge").try_send().is_ok_and(|answer| answer.status == 200)
    });
}
