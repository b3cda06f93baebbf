//! The gateway behind a real reverse proxy, configured as in ken-gateway(8).

use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use ken_tests::{Answer, Builder, Client, Stream, System, free_port, root, until};

const SECRET: &str = "a-long-random-text";

/// nginx with one server block; it is stopped on drop.
struct Nginx {
    process: Child,
    address: SocketAddr,
    _dir: tempfile::TempDir,
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // The master process stops its workers on SIGTERM, but not on SIGKILL.
        let pid = nix::unistd::Pid::from_raw(i32::try_from(self.process.id()).expect("a pid"));
        _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM);
        _ = self.process.wait();
    }
}

/// On Debian the program is in a folder that is not in the PATH of ordinary users.
fn nginx() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut dirs: Vec<PathBuf> = std::env::split_paths(&path).collect();
    dirs.push("/usr/sbin".into());
    let found = dirs.into_iter().map(|dir| dir.join("nginx")).find(|file| file.exists());
    if found.is_none() {
        ken_tests::skip("nginx is not installed");
    }
    found
}

impl Nginx {
    /// nginx under the user of this test. `server` is a whole block that listens on `LISTEN`.
    fn start(program: &Path, server: &str) -> Nginx {
        Nginx::start_as(if nix::unistd::geteuid().is_root() { "user root;" } else { "" }, program, server)
    }

    fn start_as(user: &str, program: &Path, server: &str) -> Nginx {
        let dir = tempfile::tempdir().expect("a folder");
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).expect("its mode");
        let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|name| format!("{name}_temp_path {};\n", dir.path().join(name).display()))
            .concat();
        let server = server.replace("LISTEN", &address.to_string());
        let config = format!(
            "{user}\nworker_processes 1;\npid {};\nerror_log stderr;\nevents {{}}\n\
             http {{\naccess_log off;\n{temporary}\n{server}\n}}\n",
            dir.path().join("pid").display()
        );
        let file = dir.path().join("nginx.conf");
        std::fs::write(&file, config).expect("nginx.conf");
        let process = Command::new(program)
            .args(["-e", "stderr", "-g", "daemon off;", "-c"])
            .arg(&file)
            .stdin(Stdio::null())
            .spawn()
            .expect("nginx");
        until("nginx listens", || TcpStream::connect(address).is_ok());
        Nginx { process, address, _dir: dir }
    }

    fn ask(&self, headers: &[(&str, &str)], target: &str) -> Answer {
        let mut client = Client::connect(self.address);
        let request = client.request_to("GET", target, "ken.example");
        headers.iter().fold(request, |request, (name, value)| request.header(name, value)).send()
    }
}

/// The literal block of a manual page that follows a line.
fn block(page: &str, after: &str) -> String {
    let text = std::fs::read_to_string(root().join("man").join(page)).expect("a page");
    let (_, rest) = text.split_once(&format!("\n{after}\n.Bd ")).expect("the line");
    let (_, rest) = rest.split_once('\n').expect("a block");
    rest.split_once("\n.Ed").expect("its end").0.to_owned()
}

/// Callers from outside get 401; with the right secret they are served.
fn is_guarded(nginx: &Nginx) {
    for headers in [&[][..], &[("X-Api-Secret", "wrong")], &[("X-Forwarded-For", "127.0.0.1")]] {
        let answer = nginx.ask(headers, "/api/chat/sessions");
        assert_eq!(answer.status, 401, "{headers:?}: {}", answer.body_text());
    }
    let answer = nginx.ask(&[("X-Api-Secret", SECRET)], "/api/chat/sessions");
    assert_eq!(answer.status, 200, "{}", answer.body_text());
    assert_eq!(nginx.ask(&[], "/health").status, 200);
}

fn with_secret(config: &str) -> System {
    Builder::default().config(config).secrets(&format!("API_SECRET={SECRET}\n")).start()
}

#[test]
fn nginx_as_configured_on_the_page() {
    let Some(program) = nginx() else { return };
    let config = block("man8/ken-gateway.8", "Therefore set the address that clients use, and a secret:");
    let (config, secrets) = config.split_once("\n\n").expect("two files");
    let system = Builder::default().config(config).secrets(secrets).start();
    let server: String = block("man8/ken-gateway.8", "nginx:")
        .lines()
        .filter(|line| !line.trim_start().starts_with("ssl_"))
        .map(|line| format!("{line}\n"))
        .collect();
    let server =
        server.replace("listen 443 ssl;", "listen LISTEN;").replace("127.0.0.1:3940", &system.address().to_string());
    assert!(server.contains("listen LISTEN;") && !server.contains("3940"), "{server}");
    let nginx = Nginx::start(&program, &server);
    is_guarded(&nginx);
    // Events are forwarded as they happen, without buffering.
    let secret = [("X-Api-Secret", SECRET)];
    let mut live = Stream::open_with(nginx.address, "/api/events?offset=now", &secret);
    assert_eq!(live.frame().expect("a first frame").kind(), "control");
    let mut client = system.client();
    let knowledge = serde_json::json!({"title": "Gate", "content": "It closes at ten."});
    let request = client.request("POST", "/api/knowledge");
    request.header(secret[0].0, secret[0].1).json(&knowledge).send().expect(201);
    live.until_event("knowledge.added");
    // The console comes in by a link with the public address.
    let link = String::from_utf8(system.ken(&["open", "--print"]).stdout).expect("a link");
    let code = link.trim().strip_prefix("https://ken.example/#link=").unwrap_or_else(|| panic!("{link}"));
    let mut page = Client::connect(nginx.address);
    let trade = page.request_to("POST", "/console/token", "ken.example").header("Origin", "https://ken.example");
    let token = trade.json(&serde_json::json!({"code": code})).send().expect(200).text("/token");
    let bearer = format!("Bearer {token}");
    let decide = page.request_to("POST", "/api/knowledge", "ken.example").header("Origin", "https://ken.example");
    decide.header("Authorization", &bearer).json(&knowledge).send().expect(201);
}

/// The simplest possible block: a loopback Host and no forwarding header.
#[test]
fn the_simplest_proxy_does_not_open_the_gateway() {
    let Some(program) = nginx() else { return };
    let plain = |system: &System, more: &str| {
        format!("server {{ listen LISTEN; location / {{ proxy_pass http://{}; {more} }} }}", system.address())
    };
    for config in ["[gateway]\npublic_url = \"https://ken.example\"\n", "[gateway]\ntrust_loopback = \"no\"\n"] {
        let system = with_secret(config);
        is_guarded(&Nginx::start(&program, &plain(&system, "")));
    }
    // If loopback is trusted, any header that proxies add is enough to require the secret.
    let system = with_secret("");
    for header in [
        "Forwarded for=$remote_addr",
        "X-Forwarded-For $remote_addr",
        "X-Forwarded-Proto http",
        "X-Real-IP $remote_addr",
        "X-Client-IP $remote_addr",
        "True-Client-IP $remote_addr",
        "CF-Connecting-IP $remote_addr",
        "Via 1.1",
    ] {
        let more = format!("proxy_set_header {header};");
        let nginx = Nginx::start(&program, &plain(&system, &more));
        let answer = nginx.ask(&[], "/api/chat/sessions");
        assert_eq!(answer.status, 401, "{header}: {}", answer.body_text());
    }
}

/// As nginx is configured by somebody who does not know of any of this: one line, and the workers of the package's user.
#[test]
fn a_proxy_under_another_user_opens_nothing() {
    let Some(program) = nginx() else { return };
    if !nix::unistd::geteuid().is_root() {
        return ken_tests::skip("needs root");
    }
    for (secret, status) in [("", 403), ("API_SECRET=a-long-random-text\n", 401)] {
        let system = Builder::default().secrets(secret).start();
        let server = format!("server {{ listen LISTEN; location / {{ proxy_pass http://{}; }} }}", system.address());
        let nginx = Nginx::start_as("user nobody nogroup;", &program, &server);
        for target in ["/api/chat/sessions", "/api/approvals/pending", "/agents/orchestrator/x", "/streams/x"] {
            let answer = nginx.ask(&[], target);
            assert_eq!(answer.status, status, "{target}: {}", answer.body_text());
        }
        assert_eq!(nginx.ask(&[], "/health").status, 200);
    }
}

/// Under the same user nothing tells them apart.
#[test]
fn doctor_names_a_proxy_under_the_same_user() {
    let Some(program) = nginx() else { return };
    let system = System::start();
    let findings = || String::from_utf8(system.ken(&["doctor", "--json"]).stdout).expect("text");
    let server = format!("server {{ listen LISTEN; location / {{ proxy_pass http://{}; }} }}", system.address());
    let nginx = Nginx::start(&program, &server);
    assert_eq!(nginx.ask(&[], "/api/chat/sessions").status, 200);
    let found = findings();
    assert!(found.contains("\"proxy-same-user\"") && found.contains("nginx"), "{found}");
}
