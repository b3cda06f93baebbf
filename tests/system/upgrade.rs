//! All programs of a running system are replaced, as a package manager does it, and `ken upgrade` lets them take over.

use std::net::TcpStream;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use ken_tests::{Builder, Client, System, binary, root, tui};
use serde_json::{Value, json};

const PARTS: [&str; 8] = ["gateway", "messenger", "scheduler", "agent", "approver", "tools", "model", "store"];

/// Puts all programs into a folder, each as a new file in the place of the old one.
fn install(folder: &Path) {
    for entry in std::fs::read_dir(binary("ken").parent().unwrap()).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if !name.starts_with("ken") || name.contains('.') || !path.is_file() || name == "ken-textgen" {
            continue;
        }
        let new = folder.join(format!("{name}.new"));
        assert!(Command::new("cp").args([&path, &new]).status().unwrap().success());
        std::fs::rename(&new, folder.join(name)).unwrap();
    }
}

fn pids(system: &System) -> Vec<i32> {
    PARTS.map(|part| system.pid(part)).to_vec()
}

/// 10,000 connects, and prompts in between: none is refused, and each prompt is answered once.
#[test]
fn an_upgrade_refuses_nobody_and_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let programs = folder.path().join("target/bin");
    std::fs::create_dir_all(&programs).unwrap();
    symlink(root().join("share"), folder.path().join("share")).unwrap();
    install(&programs);
    let system = Builder::default().programs(&programs).start();
    let (session, kend) = (system.session(), system.pid("kend"));
    let before = pids(&system);
    let (connects, over) = (AtomicUsize::new(0), AtomicBool::new(false));
    let said = std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    TcpStream::connect(system.address()).expect("refused");
                    connects.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let speaking = scope.spawn(|| {
            let mut said = 0;
            while !over.load(Ordering::Relaxed) {
                say(&system, &session, said);
                said += 1;
            }
            said
        });
        while connects.load(Ordering::Relaxed) < 10_000 {
            install(&programs);
            upgrade(&system, kend);
        }
        over.store(true, Ordering::Relaxed);
        speaking.join().unwrap()
    });
    assert_eq!(system.pid("kend"), kend);
    assert!(pids(&system).iter().zip(&before).all(|(now, before)| now != before));
    let target = format!("/api/chat/sessions/{session}/transcript?connector=tui&actorId=a&conversationId=c&limit=100");
    let exchanges = system.get(&target).expect(200).at("/exchanges");
    let exchanges = exchanges.as_array().unwrap();
    let is_answered = |exchange: &Value| exchange["status"] == "completed";
    assert!(exchanges.len() == said.min(100) && exchanges.iter().all(is_answered), "{said} said: {exchanges:?}");
    println!("{} connects, none refused; {said} prompts", connects.load(Ordering::Relaxed));
    // Nothing is new any more.
    let again = String::from_utf8(system.ken(&["upgrade"]).stdout).unwrap();
    assert!(!again.contains("restarted"), "{again}");
}

fn upgrade(system: &System, kend: i32) {
    let done = system.ken(&["upgrade"]);
    let printed = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(done.status.success(), "{printed} {}", String::from_utf8_lossy(&done.stderr));
    assert!(printed.contains(&format!("has taken over, pid {kend}")), "{printed}");
    let restarted = printed.lines().find_map(|line| line.strip_prefix("restarted: ")).expect("parts");
    assert!(restarted.ends_with(" store") && restarted.split(' ').count() >= PARTS.len(), "{printed}");
}

/// Repeats a prompt until it is answered: a gateway that is told to stop can end the connection before the answer.
fn say(system: &System, session: &str, number: usize) {
    let body = tui(&[("session", json!(session)), ("text", json!(format!("message {number}")))]);
    let key = format!("prompt-{number}");
    let try_once = || {
        let mut client = Client::try_connect(system.address())?;
        client.request("POST", "/api/chat/events").header("Idempotency-Key", &key).json(&body).try_send()
    };
    ken_tests::until("the prompt is answered", || try_once().is_ok_and(|answer| answer.status == 200));
}
