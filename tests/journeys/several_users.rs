//! A machine with several users: the owner needs no secret, everybody else does: another user, a container under another uid, a
//! tunnel into a network namespace of its own. Port 8000 asks everybody for its key.

use std::process::{Child, Command, Output, Stdio};

use ken_tests::{Builder, System, Terminal, binary, skip, until};

/// A user who has nothing to do with ken (`nobody` on Debian).
const STRANGER: &str = "65534";
/// What a tunnel does: it takes connections at one address and makes others to the gateway.
const TUNNEL: &str = "
import socket, sys, threading
listener = socket.create_server((sys.argv[1], int(sys.argv[2])))
def copy(a, b):
    while data := a.recv(65536): b.sendall(data)
    b.shutdown(socket.SHUT_WR)
print('ready', flush=True)
while True:
    near, _ = listener.accept()
    far = socket.create_connection(('127.0.0.1', int(sys.argv[3])))
    for pair in ((near, far), (far, near)): threading.Thread(target=copy, args=pair, daemon=True).start()
";

fn output(words: &[&str]) -> Output {
    Command::new(words[0]).args(&words[1..]).stdin(Stdio::null()).output().unwrap()
}

/// Whether a command that prepares the test succeeds.
fn can(words: &[&str]) -> bool {
    let status = Command::new(words[0]).args(&words[1..]).stdin(Stdio::null()).status();
    let is_done = status.is_ok_and(|status| status.success());
    if !is_done {
        skip("namespaces are not allowed here");
    }
    is_done
}

fn is_root() -> bool {
    let is_root = nix::unistd::geteuid().is_root();
    if !is_root {
        skip("needs root");
    }
    is_root
}

/// Asks with curl, through these words, and returns the status and the answer.
fn asked(through: &[&str], url: &str, headers: &[&str]) -> (String, String) {
    let mut words = through.to_vec();
    words.extend(["curl", "-s", "--max-time", "20", "-w", "\n%{http_code}", url]);
    headers.iter().for_each(|header| words.extend(["-H", *header]));
    let printed = String::from_utf8(output(&words).stdout).unwrap();
    let (answer, status) = printed.rsplit_once('\n').unwrap_or_default();
    (status.to_owned(), answer.to_owned())
}

fn owner(system: &System, words: &[&str]) -> Command {
    let mut command = Command::new(binary("ken"));
    command.env_clear().env("PATH", "/usr/bin:/bin").env("KEN_HOME", system.home()).args(words).stdin(Stdio::null());
    command
}

/// Starts two systems: one with a secret and one without.
fn systems() -> [(System, &'static str); 2] {
    let start = |secrets: &str| Builder::default().secrets(secrets).start();
    [(start("API_SECRET=s3cret\n"), "401"), (start(""), "403")]
}

#[test]
fn the_owner_needs_no_secret_in_ken_the_terminal_and_scripts() {
    for (system, refused) in systems() {
        let sessions = format!("{}/api/chat/sessions", system.url());
        assert!(owner(&system, &["chat", "hello"]).output().unwrap().status.success());
        assert!(owner(&system, &["sessions"]).output().unwrap().status.success());
        assert_eq!(asked(&[], &sessions, &[]).0, "200");
        let terminal = Terminal::start(&owner(&system, &["tui", "-c"]), 100, 30);
        terminal.wait_for_text("hello");
        drop(terminal);
        for header in ["Host: ken.evil.test", "Origin: http://evil.test", "Sec-Fetch-Site: cross-site"] {
            assert_eq!(asked(&[], &sessions, &[header]).0, refused, "{header}");
        }
        // Port 8000 asks its owner for the key, too.
        let listed = format!("http://{}/v1/protocols", system.cognitive());
        assert_eq!(asked(&[], &listed, &[]).0, "401");
        until("the admin's key is made", || system.home().join("state/cognitive/admin.key").exists());
        let key = std::fs::read_to_string(system.home().join("state/cognitive/admin.key")).unwrap();
        assert_eq!(asked(&[], &listed, &[&format!("X-API-Key: {}", key.trim())]).0, "200");
    }
}

#[test]
fn another_user_and_a_container_under_another_uid_need_the_secret() {
    if !is_root() {
        return;
    }
    let user = ["setpriv", "--reuid", STRANGER, "--regid", STRANGER, "--clear-groups", "--"];
    // Root in there is a stranger outside.
    let container =
        [&user[..], &["unshare", "--user", "--map-root-user", "--mount", "--pid", "--fork", "--ipc", "--uts", "--"]]
            .concat();
    let is_root = [&container[..], &["sh", "-c", "test $(id -u) = 0"]].concat();
    let mut callers = vec![user.to_vec()];
    if can(&is_root) {
        callers.push(container);
    }
    for (system, refused) in systems() {
        let sessions = format!("{}/api/chat/sessions", system.url());
        for caller in &callers {
            let (status, answer) = asked(caller, &sessions, &[]);
            assert_eq!(status, refused, "{caller:?}: {answer}");
            assert!(answer.contains("client.secret"), "{answer}");
            let with_secret = asked(caller, &sessions, &["X-Api-Secret: s3cret"]).0;
            assert_eq!(with_secret, if refused == "401" { "200" } else { "403" }, "{caller:?}");
            for header in ["Host: ken.evil.test", "Origin: http://evil.test"] {
                let status = asked(caller, &sessions, &[header]).0;
                assert!(["401", "403"].contains(&status.as_str()), "{caller:?}: {header}: {status}");
            }
            assert_eq!(asked(caller, &format!("{}/health", system.url()), &[]).0, "200");
            let listed = format!("http://{}/v1/protocols", system.cognitive());
            assert_eq!(asked(caller, &listed, &[]).0, "401", "{caller:?}");
        }
    }
}

/// A network namespace with a cable to this machine, as a container has one.
struct Namespace {
    name: String,
    tunnel: Option<Child>,
}

impl Namespace {
    const HERE: &'static str = "10.213.77.1";

    fn new() -> Option<Namespace> {
        let name = format!("ken{}", std::process::id() % 100_000);
        let (here, there) = (format!("{name}a"), format!("{name}b"));
        if !can(&["ip", "netns", "add", &name]) {
            return None;
        }
        let namespace = Namespace { name: name.clone(), tunnel: None };
        let made = can(&["ip", "link", "add", &here, "type", "veth", "peer", "name", &there, "netns", &name])
            && can(&["ip", "addr", "add", &format!("{}/30", Namespace::HERE), "dev", &here])
            && can(&["ip", "link", "set", &here, "up"])
            && can(&["ip", "-n", &name, "addr", "add", "10.213.77.2/30", "dev", &there])
            && can(&["ip", "-n", &name, "link", "set", &there, "up"])
            && can(&["ip", "-n", &name, "link", "set", "lo", "up"]);
        made.then_some(namespace)
    }

    /// Starts a tunnel of another user to the gateway, and returns its address.
    fn tunnel_to(&mut self, system: &System) -> String {
        self.end_tunnel();
        let (port, to) = ("39400", system.address().port().to_string());
        let mut tunnel = Command::new("setpriv");
        // Not a Python in the folder of a user, which the stranger could not enter.
        tunnel.env("PATH", "/usr/bin:/bin");
        tunnel.args(["--reuid", STRANGER, "--regid", STRANGER, "--clear-groups", "--", "python3", "-c", TUNNEL]);
        let mut tunnel = tunnel.args([Namespace::HERE, port, &to]).stdout(Stdio::piped()).spawn().unwrap();
        let mut ready = [0; 5];
        std::io::Read::read_exact(tunnel.stdout.as_mut().unwrap(), &mut ready).unwrap();
        self.tunnel = Some(tunnel);
        format!("http://{}:{port}", Namespace::HERE)
    }

    fn end_tunnel(&mut self) {
        if let Some(mut tunnel) = self.tunnel.take() {
            _ = tunnel.kill();
            _ = tunnel.wait();
        }
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        self.end_tunnel();
        _ = output(&["ip", "netns", "del", &self.name]);
    }
}

#[test]
fn a_tunnel_into_another_network_needs_the_secret() {
    if !is_root() {
        return;
    }
    let Some(mut namespace) = Namespace::new() else { return };
    for (system, refused) in systems() {
        let tunnel = namespace.tunnel_to(&system);
        let name = namespace.name.clone();
        let inside = ["ip", "netns", "exec", &name];
        // Nothing listens at an address that is seen from there.
        let (gateway, cognitive) = (system.address().port(), system.cognitive().port());
        for port in [gateway, cognitive] {
            for host in [Namespace::HERE, "127.0.0.1"] {
                assert_eq!(asked(&inside, &format!("http://{host}:{port}/health"), &[]).0, "000", "{host}:{port}");
            }
        }
        // Through the tunnel it is the tunnel's user who asks, whatever name the caller gives the host.
        let sessions = format!("{tunnel}/api/chat/sessions");
        let host = format!("Host: 127.0.0.1:{gateway}");
        assert_eq!(asked(&inside, &sessions, &[&host]).0, refused);
        let right = asked(&inside, &sessions, &[&host, "X-Api-Secret: s3cret"]).0;
        assert_eq!(right, if refused == "401" { "200" } else { "403" });
        let foreign = asked(&inside, &sessions, &[]).0;
        assert!(["401", "403"].contains(&foreign.as_str()), "{foreign}");
        assert_eq!(asked(&[], &format!("{}/api/chat/sessions", system.url()), &[]).0, "200");
    }
}
