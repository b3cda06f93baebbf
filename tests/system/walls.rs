//! The walls of the parts (kend(8)): read back from the kernel over a real system, and tried from inside.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use base64::prelude::{BASE64_STANDARD, Engine};
use ken_tests::provider::{Piece, Provider, Reply, openai};
use ken_tests::{Builder, System, binary, in_own_mounts, root, until};
use serde_json::{Value, json};

/// A user who has nothing to do with ken (`nobody` on Debian).
const STRANGER: u32 = 65_534;

/// Runs a test as this user and, if this is root, as another one too.
fn as_each_user(test: impl Fn(Option<u32>)) {
    test(None);
    if nix::unistd::geteuid().is_root() {
        test(Some(STRANGER));
    }
}

fn builder(user: Option<u32>) -> Builder {
    user.map_or_else(Builder::default, |uid| Builder::default().user(uid))
}

/// The parts of etc/ken.toml with the text of their walls.
fn entries() -> BTreeMap<String, String> {
    let config = fs::read_to_string(root().join("etc/ken.toml")).unwrap();
    let parts = config.split("\n[part.").skip(1).map(|entry| {
        let walls = entry.lines().find(|line| line.starts_with("walls = ")).expect("every part has walls");
        let walls = walls.split("  #").next().unwrap();
        (entry.split(']').next().unwrap().to_owned(), walls.to_owned())
    });
    parts.collect()
}

/// A field of `/proc/PID/status`.
fn status_text(pid: i32, field: &str) -> String {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':')).expect(field);
    line.trim().to_owned()
}

fn status(pid: i32, field: &str) -> u32 {
    status_text(pid, field).parse().unwrap()
}

#[test]
fn every_part_of_a_running_system_has_a_filter_and_no_new_privileges() {
    as_each_user(|user| {
        let system = builder(user).start();
        let own = status(std::process::id() as i32, "Seccomp_filters");
        assert_eq!(entries().keys().collect::<Vec<_>>(), ALL);
        for part in ALL {
            let pid = system.pid(part);
            let read = ["NoNewPrivs", "Seccomp", "Seccomp_filters"].map(|field| status(pid, field));
            assert_eq!(read, [1, 2, own + 1], "{part}, user {user:?}");
            if ![Some("sandbox"), Some("programs")].contains(&entries()[part].split('"').nth(1)) {
                // CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH at most.
                let capabilities = u64::from_str_radix(&status_text(pid, "CapEff"), 16).unwrap();
                assert_eq!(capabilities & !0b110, 0, "{part}, user {user:?}");
            }
            // TSYNC: all of its threads.
            for thread in fs::read_dir(format!("/proc/{pid}/task")).unwrap() {
                let thread = thread.unwrap().file_name().to_str().unwrap().parse().unwrap();
                assert_eq!(status(thread, "Seccomp_filters"), own + 1, "{part}");
            }
        }
        assert_eq!(status(system.pid("kend"), "Seccomp_filters"), own, "kend starts what needs everything");
    });
}

fn is_refusal(errno: i32) -> bool {
    use nix::libc::{EACCES, ENOSYS, EPERM};
    [EACCES, EPERM, ENOSYS].contains(&errno)
}

/// A system whose parts are probes with the walls of the parts that they stand for, and a part `free` without walls.
struct Probes {
    system: System,
}

impl Probes {
    fn start(user: Option<u32>, env: &[(&str, &str)]) -> Probes {
        let probe = binary("examples/walls").display().to_string();
        let mut config = String::new();
        for (part, walls) in entries() {
            config += &format!("[part.{part}]\ncommand = [{probe:?}]\nenv = [\"MVLM_MODEL_DIRS\"]\n{walls}\n");
        }
        config += &format!("[part.free]\ncommand = [{probe:?}]\nsockets = {{ wire = {{ unix = \"free.sock\" }} }}\n");
        let mut builder = builder(user).config(&config).secrets("API_SECRET=s3cret\n");
        for file in [
            "store/ken.db", "gateway/console.key", "cognitive/admin.key", "models/active_model", "log/other.log",
            "trust/folders.json", "workspace/AGENTS.md",
        ] {
            builder = builder.file(&format!("state/{file}"), "content\n");
        }
        for file in ["accepted.json", "skills/own/SKILL.md", "workflows/own.json", "models.toml"] {
            builder = builder.file(file, "content\n");
        }
        for (name, value) in env {
            builder = builder.env(name, value);
        }
        Probes { system: builder.start() }
    }

    /// The number of the error that a part gets.
    fn errno(&self, part: &str, kind: &str, what: &str) -> i32 {
        let answer = self.system.call(part, "service.probe", &[&format!("{kind}={what}")]);
        answer.get("errno").and_then(Value::as_i64).expect("a number") as i32
    }

    /// Whether the kernel refused it. Any other error means that it would have been done.
    fn is_refused(&self, part: &str, kind: &str, what: &str) -> bool {
        is_refusal(self.errno(part, kind, what))
    }

    /// Asserts that exactly these parts can do something. What is not even possible without walls is not compared.
    fn only(&self, kind: &str, what: &str, allowed: &[&str]) {
        if self.is_refused("free", kind, what) {
            return println!("not compared: {kind} {what} is refused here even without walls");
        }
        for part in ALL {
            let errno = self.errno(part, kind, what);
            assert_eq!(!is_refusal(errno), allowed.contains(&part), "{part}: {kind} {what}: {errno}");
        }
    }

    fn path(&self, below: &str) -> String {
        self.system.home().join(below).display().to_string()
    }
}

const ALL: [&str; 9] =
    ["agent", "approver", "cognitive", "gateway", "messenger", "model", "scheduler", "store", "tools"];
/// Those that start programs.
const STARTERS: [&str; 3] = ["cognitive", "model", "tools"];
/// The one that starts programs of which nobody knows what they need, and therefore has no rules for files and none for the network.
const FREE: &str = "tools";

/// The parts that are named, and the free one.
fn also(others: &[&'static str]) -> Vec<&'static str> {
    [&[FREE], others].concat()
}

#[test]
fn each_part_reads_and_writes_its_own_files_alone() {
    as_each_user(|user| {
        // Files of the person, elsewhere, that the user of ken can read and write; and a model with a link to its weights.
        let elsewhere = tempfile::tempdir().unwrap();
        let [letter, model] = ["letter", "model"].map(|name| elsewhere.path().join(name));
        fs::write(&letter, "Dear").unwrap();
        fs::create_dir(&model).unwrap();
        fs::write(model.join("config.json"), "{}").unwrap();
        fs::write(elsewhere.path().join("blob"), "weights").unwrap();
        std::os::unix::fs::symlink("../blob", model.join("model.safetensors")).unwrap();
        Command::new("chmod").args(["-R", "a+rwX"]).arg(elsewhere.path()).status().unwrap();
        let probes = Probes::start(user, &[("MVLM_MODEL_DIRS", &format!("own:{}", model.display()))]);
        let letter = letter.display().to_string();
        for path in [probes.path("ken.toml").as_str(), "/etc/passwd", "/proc/self/status"] {
            probes.only("path", path, &ALL);
        }
        let shared = |name: &str| root().join("share").join(name).display().to_string();
        for (path, readers) in [
            (probes.path("secrets.env"), also(&[])),
            (probes.path("state/log/other.log"), also(&[])),
            (probes.path("state/workspace/AGENTS.md"), also(&[])),
            (probes.path("accepted.json"), also(&[])),
            (probes.path("skills/own/SKILL.md"), also(&[])),
            (letter.clone(), also(&[])),
            ("/usr/bin/env".to_owned(), also(&[])),
            (probes.path("state/store/ken.db"), also(&["store"])),
            (probes.path("state/gateway/console.key"), also(&["gateway"])),
            (probes.path("state/trust/folders.json"), also(&["gateway"])),
            (shared("console/index.html"), also(&["gateway"])),
            (shared("agents"), also(&["agent"])),
            (shared("protocols/governing-rules.md"), also(&["agent"])),
            (probes.path("state/cognitive/admin.key"), also(&["cognitive"])),
            (probes.path("workflows/own.json"), also(&["cognitive"])),
            (shared("workflows"), also(&["cognitive"])),
            (probes.path("state/models/active_model"), also(&["cognitive", "model"])),
            (model.join("config.json").display().to_string(), also(&["cognitive", "model"])),
            (model.join("model.safetensors").display().to_string(), also(&["cognitive", "model"])),
            (probes.path("models.toml"), also(&["model"])),
            (shared("models.toml"), also(&["model"])),
        ] {
            probes.only("path", &path, &readers);
        }
        for (path, writers) in [
            (probes.path("ken.toml"), also(&[])),
            (probes.path("secrets.env"), also(&[])),
            (probes.path("state"), also(&[])),
            (probes.path("state/workspace"), also(&[])),
            (letter, also(&[])),
            ("/tmp".to_owned(), also(&[])),
            (probes.path("run"), also(&[])),
            (probes.path("state/trust"), also(&[])),
            (model.join("config.json").display().to_string(), also(&[])),
            (probes.path("workflows"), also(&[])),
            (probes.path("state/store"), also(&["store"])),
            (probes.path("state/store/ken.db"), also(&["store"])),
            (probes.path("state/gateway"), also(&["gateway"])),
            (probes.path("state/cognitive"), also(&["cognitive"])),
            (probes.path("state/models"), also(&["cognitive"])),
        ] {
            probes.only("write", &path, &writers);
        }
        // Of other processes only what is no secret.
        let other = probes.system.pid("free");
        for part in ALL.iter().filter(|part| **part != FREE) {
            for file in ["environ", "maps"] {
                assert!(
                    probes.is_refused(part, "path", &format!("/proc/{other}/{file}")),
                    "{part}: {file}, user {user:?}"
                );
            }
        }
    });
}

#[test]
fn each_part_runs_its_own_programs_alone() {
    as_each_user(|user| {
        let probes = Probes::start(user, &[]);
        for (program, runners) in [
            ("ken-textgen", also(&["cognitive", "model"])),
            ("ken-esl", also(&["cognitive"])),
            ("ken-laws", also(&["cognitive"])),
            ("ken-sandbox", also(&[])),
            ("ken", also(&[])),
        ] {
            probes.only("run", &binary(program).display().to_string(), &runners);
        }
        probes.only("run", "/bin/sh", &[FREE]);
        probes.only("run", "/usr/bin/env", &[FREE]);
    });
}

/// The file comes to be while the part runs, whose rules name what there was when it started.
#[test]
fn a_file_made_later_is_read_by_the_next_process_of_the_part() {
    as_each_user(|user| {
        let system = builder(user).start();
        let prices = |line: &str| {
            let path = system.home().join("models.toml");
            fs::write(&path, format!("[[model]]\nname = \"openai/m\"\n{line}\n")).unwrap();
            std::os::unix::fs::chown(path, user, user).unwrap();
        };
        let answers = || system.call("model", "service.ping", &[]) == json!({});
        prices("window = 12000");
        let restarted = system.ken(&["restart", "model"]);
        assert!(restarted.status.success() && answers(), "{}", String::from_utf8_lossy(&restarted.stderr));
        fs::remove_file(system.home().join("models.toml")).unwrap();
        assert!(system.ken(&["restart", "model"]).status.success() && answers());
        // Nobody asks for this start.
        prices("window = 12000");
        system.wait_until_stable("model");
        let first = system.pid("model");
        system.kill("model");
        until("another process runs", || system.pid("model") != first);
        system.wait_until_stable("model");
        prices("windw = 12000");
        let refused = system.ken(&["restart", "model"]);
        let error = String::from_utf8(refused.stderr).unwrap();
        assert!(
            !refused.status.success() && error.contains("unknown field `windw`") && error.contains("models.toml:3"),
            "{error}"
        );
    });
}

#[test]
fn each_part_has_its_network_alone() {
    as_each_user(|user| {
        let probes = Probes::start(user, &[]);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let tcp = format!("tcp:{}", listener.local_addr().unwrap());
        let name = format!("ken-walls-{}-{user:?}", std::process::id());
        let _abstract = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        let reaches_out = also(&["messenger", "model"]);
        probes.only("connect", &tcp, &reaches_out);
        probes.only("connect", "udp:", &reaches_out);
        probes.only("connect", "listen:", &[FREE]);
        probes.only("connect", &format!("abstract:{name}"), &[FREE]);
        // The addresses of this machine (NETLINK_ROUTE), and whose a connection is (NETLINK_SOCK_DIAG).
        probes.only("connect", "netlink:0", &reaches_out);
        probes.only("connect", "netlink:4", &also(&["gateway"]));
        // Landlock has no rule for these: the mode of the folder and the check of the uid hold them.
        probes.only("connect", &format!("unix:{}", probes.path("run/kend.sock")), &ALL);
    });
}

#[test]
fn each_part_has_its_system_calls_alone() {
    as_each_user(|user| {
        let probes = Probes::start(user, &[]);
        for call in ["execve", "fork", "fchmodat", "setuid", "seccomp"] {
            probes.only("syscall", call, &STARTERS);
        }
        probes.only("syscall", "listen", &[&STARTERS[..], &["gateway"]].concat());
        // A signal to kend, which is outside of the walls.
        probes.only("syscall", "kill", &[FREE]);
        for call in ["mount", "unshare", "setns", "process_vm_readv"] {
            probes.only("syscall", call, &[FREE]);
        }
        for call in ["ptrace", "process_vm_writev", "keyctl", "io_uring_setup", "userfaultfd", "bpf", "perf_event_open"]
        {
            probes.only("syscall", call, &[]);
        }
    });
}

/// ken-coder starts the proxy of its commands, which enters walls by itself before it reads anything, and then does its work in them.
#[test]
fn the_proxy_of_commands_restricts_itself() {
    let upstream = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = upstream.local_addr().unwrap().port();
    let mut proxy = Command::new(binary("ken-proxy")).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = proxy.stdin.take().unwrap();
    let rules = json!({"hosts": [format!("localhost:{port}")], "private": ["127.0.0.0/8", "::1/128"]});
    writeln!(input, "{rules}").unwrap();
    let mut line = String::new();
    BufReader::new(proxy.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let ready: Value = serde_json::from_str(&line).unwrap();
    let user = ready["url"].as_str().unwrap().strip_prefix("http://").unwrap().split('@').next().unwrap();
    let mut client = TcpStream::connect(ready["address"].as_str().unwrap()).unwrap();
    let password = BASE64_STANDARD.encode(user);
    let connect = format!(
        "CONNECT localhost:{port} HTTP/1.1\r\nHost: localhost:{port}\r\nProxy-Authorization: Basic {password}\r\n\r\n"
    );
    client.write_all(connect.as_bytes()).unwrap();
    let mut answer = [0; 12];
    client.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 200", "it looks up a name and connects");
    let own = status(std::process::id() as i32, "Seccomp_filters");
    let mut threads = 0;
    for thread in fs::read_dir(format!("/proc/{}/task", proxy.id())).unwrap() {
        let thread = thread.unwrap().file_name().to_str().unwrap().parse().unwrap();
        let read = ["NoNewPrivs", "Seccomp", "Seccomp_filters"].map(|field| status(thread, field));
        assert_eq!(read, [1, 2, own + 1]);
        let capabilities = u64::from_str_radix(&status_text(thread, "CapEff"), 16).unwrap();
        assert_eq!(capabilities & !0b110, 0);
        threads += 1;
    }
    assert!(threads > 1, "the look-up has a thread of its own");
    drop(input);
    assert!(proxy.wait().unwrap().success());
}

/// Tried from inside, in a program that enters the walls of the proxy in the same way.
#[test]
fn the_walls_of_the_proxy_leave_it_the_network() {
    if ken_walls::kernel::landlock().is_err() {
        return ken_tests::skip("this kernel lacks Landlock");
    }
    let folder = tempfile::tempdir().unwrap();
    let secrets = folder.path().join("secrets.env");
    fs::write(&secrets, "KEY=x").unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let tried = [
        ("path=/etc/hosts".to_owned(), true),
        (format!("connect=tcp:{}", listener.local_addr().unwrap()), true),
        ("connect=udp:".to_owned(), true),
        (format!("path={}", secrets.display()), false),
        (format!("write={}", secrets.display()), false),
        (format!("write={}", folder.path().display()), false),
        (format!("path=/proc/{}/environ", std::process::id()), false),
        ("connect=listen:".to_owned(), false),
        ("syscall=execve".to_owned(), false),
        ("syscall=fork".to_owned(), false),
        ("syscall=kill".to_owned(), false),
        ("syscall=mount".to_owned(), false),
        ("syscall=ptrace".to_owned(), false),
        ("syscall=bpf".to_owned(), false),
    ];
    let ended = Command::new(binary("examples/walls")).arg("--alone").args(tried.iter().map(|(what, _)| what)).output();
    let ended = ended.unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    let text = String::from_utf8(ended.stdout).unwrap();
    let errors: Vec<i32> = text.lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(errors.len(), tried.len());
    for ((what, is_allowed), errno) in tried.iter().zip(errors) {
        assert_eq!(!is_refusal(errno), *is_allowed, "{what}: {errno}");
    }
}

/// What an older kernel has is used, and nothing that it lacks keeps a part from starting.
#[test]
fn an_older_kernel_has_lower_walls() {
    let letter = |probes: &Probes| probes.path("secrets.env");
    let none = Probes::start(None, &[("KEN_LANDLOCK_VERSION", "0")]);
    none.only("path", &letter(&none), &ALL);
    none.only("syscall", "execve", &STARTERS);
    let old = Probes::start(None, &[("KEN_LANDLOCK_VERSION", "2")]);
    old.only("path", &letter(&old), &[FREE]);
    old.only("write", &letter(&old), &[FREE]);
}

#[test]
fn walls_that_are_required_and_missing_keep_it_from_starting() {
    let home = tempfile::tempdir().unwrap();
    fs::write(home.path().join("ken.toml"), "[kend]\nwalls = \"require\"\n").unwrap();
    let kend = |version: Option<&str>| {
        let mut kend = Command::new(binary("kend"));
        kend.env_clear().envs(version.map(|version| ("KEN_LANDLOCK_VERSION", version)));
        let ended = kend.args(["--check", "--home"]).arg(home.path()).output().unwrap();
        (ended.status.code(), String::from_utf8_lossy(&ended.stderr).into_owned())
    };
    let (code, text) = kend(Some("2"));
    assert_eq!(code, Some(75), "{text}");
    assert!(text.contains("TCP ports (Landlock 4") && text.contains("walls = \"auto\""), "{text}");
    if kend(None).0 != Some(0) {
        return ken_tests::skip("this kernel lacks walls");
    }
    let system = Builder::default().config("[kend]\nwalls = \"require\"\n").start();
    system.get("/health").expect(200);
}

/// The operation that tries the walls is in the test program alone.
#[test]
fn no_installed_program_has_the_probe() {
    let folder = binary("ken").parent().unwrap().to_owned();
    // grep is a hundred times as fast as a loop over the bytes in a build without optimisation.
    let has_it =
        |path: &Path| Command::new("grep").args(["-qF", "service.probe"]).arg(path).status().unwrap().success();
    let programs = fs::read_dir(root().join("bin")).unwrap().map(|entry| folder.join(entry.unwrap().file_name()));
    let programs: Vec<_> = programs.filter(|program| program.exists()).collect();
    assert!(programs.len() > 20, "{programs:?}");
    for program in programs {
        assert!(!has_it(&program), "{}", program.display());
    }
    assert!(has_it(&folder.join("examples/walls")));
}

/// A rule stays with the file that was there when a part was started. A part that needs the new one is started anew, and no other.
#[test]
fn a_file_of_the_system_that_is_replaced_can_be_read() {
    let own = "mount -t tmpfs none /run; mkdir /run/etc; cp -a /etc/. /run/etc; mount --bind /run/etc /etc; rm -f /etc/resolv.conf";
    if !in_own_mounts("walls::a_file_of_the_system_that_is_replaced_can_be_read", own) {
        return;
    }
    let probes = Probes::start(None, &[]);
    let (network, ruled) =
        (&["messenger", "model"][..], ALL.into_iter().filter(|part| *part != FREE).collect::<Vec<_>>());
    let resolver = "/etc/resolv.conf";
    for (script, path, anew) in [
        ("echo 1 > /etc/resolv.conf", resolver, network),
        ("echo 2 > /etc/new; mv /etc/new /etc/resolv.conf", resolver, network),
        ("sed -i s/2/3/ /etc/resolv.conf", resolver, network),
        ("rm /etc/resolv.conf; echo 4 > /etc/resolv.conf", resolver, network),
        // The same file.
        ("echo 5 > /etc/resolv.conf", resolver, &[]),
        ("echo 127.0.0.1 localhost > /etc/new; mv /etc/new /etc/hosts", "/etc/hosts", network),
        ("echo > /etc/new; mv /etc/new /etc/other", resolver, &[]),
        // A link to what comes later, as a program makes it that manages the network. Its files can be replaced.
        ("ln -sfn ../run/net/resolv.conf /etc/resolv.conf", "/etc/hosts", &[]),
        ("mkdir -p /run/net; echo 6 > /run/net/resolv.conf", resolver, network),
        ("echo 7 > /run/net/new; mv /run/net/new /run/net/resolv.conf", resolver, &[]),
        ("rm -r /run/net; sleep 0.5; mkdir /run/net; echo 8 > /run/net/resolv.conf", resolver, network),
        ("echo > /etc/new; mv /etc/new /etc/localtime", "/etc/localtime", &ruled[..]),
        // What the link leads to may be read anyway.
        ("ln -sfn /usr/share/zoneinfo/UTC /etc/localtime", "/etc/localtime", &[]),
    ] {
        let pids = || ALL.map(|part| (part, probes.system.pid(part)));
        let before = pids();
        let done = Command::new("sh").args(["-ec", script]).status().unwrap();
        assert!(done.success(), "{script}");
        if anew.is_empty() {
            std::thread::sleep(std::time::Duration::from_millis(1_000));
        }
        let is_changed = |now: &[(&str, i32)]| {
            before
                .iter()
                .zip(now)
                .filter(|(before, now)| before.1 != now.1)
                .map(|(before, _)| before.0)
                .collect::<Vec<_>>()
        };
        until(&format!("{anew:?} are started anew: {script}"), || is_changed(&pids()) == anew);
        for part in network.iter().chain(anew) {
            until(&format!("{part} reads {path}: {script}"), || probes.errno(part, "path", path) == 0);
        }
    }
}

/// A laptop changes its network often. An answer that is being written is waited for.
#[test]
fn a_turn_goes_on_while_the_network_changes() {
    let own = "mount -t tmpfs none /run; mkdir /run/etc; cp -a /etc/. /run/etc; mount --bind /run/etc /etc";
    if !in_own_mounts("walls::a_turn_goes_on_while_the_network_changes", own) {
        return;
    }
    let is_changed = Arc::new(AtomicBool::new(false));
    let mut pieces = openai(&["One. ", "Two."], &[]);
    pieces.insert(2, Piece::Until(is_changed.clone()));
    let provider = Provider::start(vec![Reply::Stream(pieces)]);
    let url = format!("{}/v1", provider.url());
    let system = Builder::default()
        .env("KEN_MODEL", "openai/m")
        .env("OPENAI_BASE_URL", &url)
        .secrets("OPENAI_API_KEY=key\n")
        .start();
    let (session, before) = (system.session(), system.pid("model"));
    std::thread::scope(|scope| {
        let said = scope.spawn(|| system.say(&session, "Hello").expect(200).text("/result/text"));
        until("the answer has begun", || provider.received().len() == 1);
        let changed =
            Command::new("sh").args(["-ec", "echo > /etc/new; mv /etc/new /etc/resolv.conf"]).status().unwrap();
        assert!(changed.success());
        let is_ending = || system.call("kend", "parts.status", &[]).to_string().contains("\"stopping\"");
        until("the model is started anew", is_ending);
        is_changed.store(true, Ordering::Relaxed);
        assert_eq!(said.join().unwrap(), "One. Two.");
    });
    assert_ne!(system.pid("model"), before);
    assert_eq!(provider.received().len(), 1);
}
