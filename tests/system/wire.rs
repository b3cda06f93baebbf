//! Runs the conformance suite of the wire protocol against every daemon, and calls them as another user.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use ken_tests::{Builder, System, binary, copy_program};
use ken_wire::conformance::{Subject, check};
use serde_json::{Value, json};

/// Operations that make a part wait, to test cancel and deadline.
fn slow(part: &str) -> Option<(&'static str, Value)> {
    match part {
        "store" => Some(("submissions.claim", json!({"holder": "test", "max": 0, "wait_ms": 60_000}))),
        "model" => Some((
            "model.generate",
            json!({"system": "", "purpose": "agent", "messages": [
            {"role": "user", "content": [{"type": "text", "text": "wait"}], "timestamp": 0}]}),
        )),
        "kend" => Some(("parts.logs", json!({"name": "kend", "follow": true}))),
        _ => None,
    }
}

#[test]
fn every_daemon_passes_the_conformance_suite() {
    let waits = json!({"events": [{"sleep_ms": 8_000}, {"text": "late"}]});
    let system = Builder::default().script(&[waits]).start();
    for part in ["store", "model", "agent", "tools", "approver", "gateway", "messenger", "cognitive", "kend"] {
        // The only slow call of kend follows a log, and has no deadline by its contract, so the deadline is not tested.
        let slow = slow(part).filter(|_| part != "kend");
        let failed = check(&Subject { socket: system.socket(part), slow });
        assert!(failed.is_empty(), "{part}: {failed:#?}");
    }
}

/// Runs the example of ken-wire(5): `printf … | nc -NU` prints the answer, although nc closes its sending half before the
/// answer arrives.
#[test]
fn nc_gets_an_answer() {
    let nc = ["/bin/nc", "/usr/bin/nc"].iter().find(|nc| Path::new(nc).exists());
    let Some(nc) = nc else {
        ken_tests::skip("nc is not installed");
        return;
    };
    let system = System::start();
    for part in ["store", "model", "agent", "tools", "approver", "gateway", "messenger", "cognitive"] {
        for _ in 0..100 {
            let mut child = Command::new(nc)
                .arg("-NU")
                .arg(system.socket(part))
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .expect("nc");
            let mut stdin = child.stdin.take().expect("stdin");
            stdin.write_all(b"{\"id\":1,\"op\":\"service.info\",\"args\":{}}\n").unwrap();
            drop(stdin);
            let output = child.wait_with_output().expect("nc");
            let reply: Value = serde_json::from_slice(&output.stdout).expect("one reply");
            assert_eq!(reply["ok"]["name"], part);
        }
    }
}

#[test]
fn a_call_ends_when_the_part_is_killed() {
    let system = System::start();
    let mut call = system.command(&["call", "store", "submissions.claim", "holder=test", "max=0", "wait_ms=9000"]);
    let call = call.stderr(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("ken call");
    std::thread::sleep(std::time::Duration::from_millis(300));
    system.kill("store");
    let output = call.wait_with_output().expect("ken call");
    assert_eq!(output.status.code(), Some(75), "{}", String::from_utf8_lossy(&output.stderr));
}

/// The parts refuse other users, even if a directory is accessible to them by mistake.
#[test]
fn another_user_is_refused_whatever_the_file_modes() {
    if !nix::unistd::geteuid().is_root() {
        return ken_tests::skip("needs root"); // only root can change to another user
    }
    let system = System::start();
    let open = |path: &Path, mode| std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    open(system.home(), 0o755);
    open(&system.home().join("run"), 0o755);
    let reachable = tempfile::tempdir().unwrap();
    open(reachable.path(), 0o755);
    let ken = reachable.path().join("ken");
    copy_program(&binary("ken"), &ken);
    for part in ["store", "model", "agent", "tools", "approver", "gateway", "messenger", "cognitive", "kend"] {
        open(&system.socket(part), 0o666);
        let mut call = Command::new(&ken);
        call.env_clear().arg("--home").arg(system.home()).args(["call", part, "service.ping"]).uid(65534).gid(65534);
        let output = call.output().expect("ken call");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(
            stderr.contains("may not call this part"),
            "{part}: {stderr}{}",
            String::from_utf8_lossy(&output.stdout)
        );
    }
}

/// Runs the example part of ken-wire(5), as printed, in place of ken-model.
#[test]
fn the_example_part_of_the_page_answers_a_prompt() {
    if std::process::Command::new("python3").arg("--version").output().is_err() {
        ken_tests::skip("python3 is not installed");
        return;
    }
    let page = std::fs::read_to_string(ken_tests::root().join("man/man5/ken-wire.5")).unwrap();
    let examples = page.split(".Sh EXAMPLES\n").nth(1).unwrap();
    let block = |nth: usize| {
        let text = examples.split(".Bd -literal\n").nth(nth).unwrap();
        text.split(".Ed").next().unwrap().replace("\\e", "\\")
    };
    let (part, config) = (block(1), block(2));
    let lines = part.lines().filter(|line| !line.is_empty() && !line.starts_with("#!"));
    assert!(lines.count() <= 25, "it is no short example any more");
    let system = ken_tests::Builder::default().config(&config).file("parrot.py", &part).start();
    let session = system.session();
    let answer = system.say(&session, "polly?").expect(200);
    assert_eq!(answer.text("/result/text"), "You said: polly?");
    assert_eq!(answer.at("/result/model"), serde_json::json!({"provider": "parrot", "id": "grey"}));
}

/// A model call accepts the message that ken-stream(5) shows.
#[test]
fn the_example_message_of_the_page_is_accepted() {
    let page = std::fs::read_to_string(ken_tests::root().join("man/man5/ken-stream.5")).unwrap();
    let block = page.split(".Ss Messages").nth(1).unwrap().split(".Bd -literal").nth(1).unwrap();
    let text = block.split(".Ed").next().unwrap().split_once('\n').unwrap().1;
    let message: serde_json::Value = serde_json::from_str(text).unwrap();
    let request = serde_json::json!({"messages": [message, {"role": "user", "content": "Who are you?"}]});
    let output = ken_tests::run_with_input(
        std::process::Command::new(ken_tests::binary("ken-model")).arg("--format").arg("compact"),
        request.to_string().as_bytes(),
    );
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
