//! All programs of a running system are replaced by those of another version and back, as a package manager does it, and
//! `ken upgrade` lets them take over. `KEN_RELEASE_BEFORE` names a folder with the programs of an earlier release, to begin with those.

use std::net::TcpStream;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use ken_tests::{Builder, Client, System, binary, root, tui, until};
use serde_json::{Value, json};

const PARTS: [&str; 8] = ["gateway", "messenger", "scheduler", "agent", "approver", "tools", "model", "store"];

/// Puts a program in the place of another one, as a new file.
fn install(program: &Path, place: &Path) {
    let new = place.with_extension("new");
    assert!(Command::new("cp").arg(program).arg(&new).status().unwrap().success());
    std::fs::rename(&new, place).unwrap();
}

/// Installs all programs of a folder but kend.
fn install_parts(from: &Path, to: &Path) {
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        let is_program = name == "ken" || name.starts_with("ken-") && !name.contains('.') && name != "ken-textgen";
        if is_program && path.is_file() {
            install(&path, &to.join(name));
        }
    }
}

fn pids(system: &System) -> Vec<i32> {
    PARTS.map(|part| system.pid(part)).to_vec()
}

/// The folder of the built programs, and the programs of kend with their versions.
struct Programs {
    built: PathBuf,
    this: (PathBuf, String),
    next: (PathBuf, String),
}

fn programs() -> Programs {
    let built = binary("ken").parent().unwrap().to_owned();
    let with_version = |program: PathBuf| {
        let output = Command::new(&program).arg("--version").output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        (program, text.trim().rsplit(' ').next().unwrap().to_owned())
    };
    let (this, next) = (with_version(binary("kend")), with_version(binary("examples/kend-next")));
    assert_ne!(this.1, next.1);
    Programs { built, this, next }
}

/// 10,000 connects, and prompts in between: none is refused, and each prompt is answered once.
#[test]
fn an_upgrade_between_two_versions_refuses_nobody_and_loses_nothing() {
    let programs = programs();
    let before = std::env::var_os("KEN_RELEASE_BEFORE").map_or(programs.built.clone(), PathBuf::from);
    let folder = tempfile::tempdir().unwrap();
    let installed = folder.path().join("target/bin");
    std::fs::create_dir_all(&installed).unwrap();
    symlink(root().join("share"), folder.path().join("share")).unwrap();
    install_parts(&before, &installed);
    install(&before.join("kend"), &installed.join("kend"));
    let system = Builder::default().programs(&installed).start();
    let session = system.session();
    let (connects, over) = (AtomicUsize::new(0), AtomicBool::new(false));
    let (said, upgrades) = std::thread::scope(|scope| {
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
        refused(&system, &installed);
        let mut upgrades = 0;
        while connects.load(Ordering::Relaxed) < 10_000 || upgrades < 4 {
            for kend in [&programs.next, &programs.this] {
                replace_kend(&system, &installed, kend);
                replace_parts(&system, &programs.built, &installed);
                upgrades += 2;
            }
        }
        over.store(true, Ordering::Relaxed);
        (speaking.join().unwrap(), upgrades)
    });
    let target = format!("/api/chat/sessions/{session}/transcript?connector=tui&actorId=a&conversationId=c&limit=100");
    let exchanges = system.get(&target).expect(200).at("/exchanges");
    let exchanges = exchanges.as_array().unwrap();
    let is_answered = |exchange: &Value| exchange["status"] == "completed";
    assert!(exchanges.len() == said.min(100) && exchanges.iter().all(is_answered), "{said} said: {exchanges:?}");
    println!(
        "{upgrades} upgrades between kend {} and {}; {} connects, none refused; {said} prompts",
        programs.this.1,
        programs.next.1,
        connects.load(Ordering::Relaxed)
    );
    // Nothing is new any more.
    assert_eq!(upgrade(&system), Vec::<String>::new());
    not_ready(&system, &installed);
}

/// Runs `ken upgrade`, and returns the parts that were restarted.
fn upgrade(system: &System) -> Vec<String> {
    let kend = system.pid("kend");
    let done = system.ken(&["upgrade"]);
    let printed = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(done.status.success(), "{printed} {}", String::from_utf8_lossy(&done.stderr));
    assert!(printed.contains(&format!("has taken over, pid {kend}\n")), "{printed}");
    assert_eq!(system.pid("kend"), kend);
    let restarted = printed.lines().find_map(|line| line.strip_prefix("restarted: ")).unwrap_or_default();
    restarted.split_whitespace().map(str::to_owned).collect()
}

/// A program that cannot take over is in the place of kend: everything stays as it is.
fn refused(system: &System, installed: &Path) {
    let (before, kend) = (pids(system), system.pid("kend"));
    let status = |key: &str| system.call("kend", "parts.status", &[])[key].clone();
    let version = status("version");
    let aside = installed.join("kend-aside");
    std::fs::rename(installed.join("kend"), &aside).unwrap();
    install(&binary("ken-scheduler"), &installed.join("kend"));
    let done = system.ken(&["upgrade"]);
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(
        !done.status.success() && said.contains("cannot take over") && said.contains("nothing has changed"),
        "{said}"
    );
    std::fs::rename(&aside, installed.join("kend")).unwrap();
    assert_eq!((pids(system), system.pid("kend"), status("version")), (before, kend, version));
}

/// A part whose new program does not start is named at once, and a part that was not ready before holds nothing up.
fn not_ready(system: &System, installed: &Path) {
    let config = system.home().join("ken.toml");
    let before = std::fs::read_to_string(&config).unwrap_or_default();
    let extra = "[part.extra]\ncommand = [\"/bin/false\"]\nready = \"start\"\nlimit = { n = 1, within_ms = 60000 }\n";
    std::fs::write(&config, format!("{before}\n{extra}")).unwrap();
    system.ken(&["reload"]);
    let place = installed.join("ken-scheduler");
    let aside = installed.join("ken-scheduler-aside");
    std::fs::rename(&place, &aside).unwrap();
    install(&binary("ken-sandbox"), &place);
    let done = system.ken(&["upgrade"]);
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(!done.status.success() && said.contains("not ready: scheduler (") && said.contains("ken logs"), "{said}");
    std::fs::rename(&aside, &place).unwrap();
    let done = system.ken(&["upgrade"]);
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(done.status.success() && said.contains("not ready: extra (failed"), "{said}");
    std::fs::write(&config, before).unwrap();
    system.ken(&["reload"]);
}

/// Only kend is replaced: it is another program in the same process, and no part notices.
fn replace_kend(system: &System, installed: &Path, (program, version): &(PathBuf, String)) {
    let (before, place) = (pids(system), installed.join("kend"));
    install(program, &place);
    assert_eq!(upgrade(system), Vec::<String>::new());
    assert_eq!(system.call("kend", "parts.status", &[])["version"], **version);
    let running = std::fs::metadata(format!("/proc/{}/exe", system.pid("kend"))).unwrap();
    assert_eq!(running.ino(), std::fs::metadata(&place).unwrap().ino());
    assert_eq!(pids(system), before, "the pids of the parts");
}

/// The programs of the parts are replaced, too: each part is started when the one before it is ready, and the store comes last.
fn replace_parts(system: &System, built: &Path, installed: &Path) {
    let before = pids(system);
    install_parts(built, installed);
    let restarted = upgrade(system);
    assert!(restarted.len() >= PARTS.len() && restarted.last().is_some_and(|part| part == "store"), "{restarted:?}");
    assert!(pids(system).iter().zip(&before).all(|(now, before)| now != before));
    let steps = ["is started anew", "started, pid", "ready after"];
    let expected: Vec<(&str, &str)> =
        restarted.iter().flat_map(|part| steps.map(|step| (part.as_str(), step))).collect();
    until("the log says so", || {
        let log = std::fs::read_to_string(system.home().join("state/log/kend.log")).unwrap();
        let log = log.rsplit("has taken over").next().unwrap_or_default();
        let records = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let seen: Vec<(String, &str)> = records
            .filter_map(|record| {
                let message = record["message"].as_str()?;
                let step = steps.into_iter().find(|step| message.starts_with(step))?;
                Some((record["part"].as_str()?.to_owned(), step))
            })
            .collect();
        seen.iter().map(|(part, step)| (part.as_str(), *step)).eq(expected.iter().copied())
    });
}

/// Repeats a prompt until it is answered: a gateway that is told to stop can end the connection before the answer.
fn say(system: &System, session: &str, number: usize) {
    let body = tui(&[("session", json!(session)), ("text", json!(format!("message {number}")))]);
    let key = format!("prompt-{number}");
    let try_once = || {
        let mut client = Client::try_connect(system.address())?;
        client.request("POST", "/api/chat/events").header("Idempotency-Key", &key).json(&body).try_send()
    };
    until("the prompt is answered", || try_once().is_ok_and(|answer| answer.status == 200));
}
