//! The faults that a system has in practice, each made on a system that is otherwise healthy: `ken doctor` names it and nothing else.
//! The commands that a remedy names exist, and where the remedy is one command, it removes the finding.

use std::any::Any;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use ken_tests::bot_api::{BotApi, InjectedFailure, SECRET, TOKEN};
use ken_tests::provider::{Provider, refusal};
use ken_tests::{Builder, System, binary, chain, cognitive};
use nix::sys::signal::Signal;
use serde_json::Value;

use super::doctor::{Home, install, stand_in};

/// What is done to a system that is down. What it returns is what the fault needs to last.
type Seed = fn(&mut Home) -> Option<Box<dyn Any>>;

/// What this machine lacks is found in all of its systems.
const OF_THE_MACHINE: [&str; 3] = ["sandbox-namespaces", "walls", "tool-not-set-up"];

fn own(found: Vec<Value>) -> Vec<Value> {
    found.into_iter().filter(|found| !OF_THE_MACHINE.contains(&found["id"].as_str().unwrap())).collect()
}

/// A system that has run for a moment, and is down: it has a database, logs and an audit log.
fn template() -> System {
    let mut system = cognitive().config("[gateway]\nport = 0\n[cognitive]\nport = 0\n").start();
    system.say(&system.session(), "hello").expect(200);
    system.execute(&chain("rust", 2)).expect(200);
    assert_eq!(system.down(), Some(0));
    system
}

fn config(home: &Home, text: &str) {
    let gateway = if text.contains("[gateway]") { "" } else { "[gateway]\nport = 0\n" };
    home.write("ken.toml", &format!("{text}{gateway}[cognitive]\nport = 0\n"));
}

fn write(home: &Home, name: &str, text: &str) -> Option<Box<dyn Any>> {
    home.write(name, text);
    None
}

/// The fault, the finding, a word of its reason, and how it is made.
const DOWN: &[(&str, &str, &str, Seed)] = &[
    ("a bad line of TOML", "configuration", "ken.toml:2", |home| write(home, "ken.toml", "[gateway]\nport = \n")),
    ("an unknown key", "configuration", "unknown key", |home| write(home, "ken.toml", "[gateway]\nprot = 1\n")),
    ("a value of the wrong type", "configuration", "gateway.port", |home| {
        write(home, "ken.toml", "[gateway]\nport = \"x\"\n")
    }),
    ("a program of a part of one's own is missing", "configuration", "no program", |home| {
        config(home, "[part.extra]\ncommand = [\"no-such-program\"]\n");
        None
    }),
    ("the port is taken", "port-taken", "another program", |home| {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        config(home, &format!("[gateway]\nport = {}\n", taken.local_addr().unwrap().port()));
        Some(Box::new(taken))
    }),
    ("an address of another machine", "address", "does not have", |home| {
        config(home, "[gateway]\nport = 1\nlisten = \"192.0.2.1\"\ntrust_loopback = \"no\"\n");
        write(home, "secrets.env", "API_SECRET=x\n")
    }),
    ("a folder that cannot be written", "folder-read-only", "cannot be written", |home| mode(home, "state", 0o500)),
    ("a folder that others can write", "folder-mode", "0777", |home| mode(home, "state", 0o777)),
    ("a file where a folder belongs", "not-a-folder", "is not", |home| {
        std::fs::rename(home.path("state"), home.path("kept")).unwrap();
        write(home, "state", "")
    }),
    ("secrets that others can read", "secrets-mode", "0644", |home| {
        write(home, "secrets.env", "OTHER=canary-4711\n");
        mode(home, "secrets.env", 0o644)
    }),
    ("secrets that are no file", "secrets-file", "regular", |home| {
        _ = std::fs::remove_file(home.path("secrets.env"));
        std::fs::create_dir(home.path("secrets.env")).unwrap();
        None
    }),
    ("a secret is empty", "secret-empty", "OTHER", |home| write(home, "secrets.env", "OTHER=\n")),
    ("a key is missing", "model-key-missing", "OPENAI_API_KEY", |home| {
        config(home, "[model]\nuse = \"openai/m,rules\"\n");
        None
    }),
    ("the prices of models have an unknown field", "models-file", "unknown field `nme`", |home| {
        write(home, "models.toml", "[[model]]\nnme = 1\n")
    }),
    ("a tool is not described", "tool-left-out", "malformed JSON", |home| {
        std::fs::create_dir_all(home.path("tools.d")).unwrap();
        write(home, "tools.d/bad.json", "{")
    }),
    ("the servers of tools are not JSON", "tool-left-out", "malformed JSON", |home| write(home, "mcp.json", "{")),
    ("a workflow is not JSON", "workflow-left-out", "malformed JSON", |home| {
        std::fs::create_dir_all(home.path("workflows")).unwrap();
        write(home, "workflows/bad.json", "{")
    }),
    ("the clock is behind", "clock", "59 minutes behind", |home| {
        modified(&home.path("state/store/ken.db"), SystemTime::now() + Duration::from_secs(3_599));
        None
    }),
    ("a page of the database is damaged", "database", "", |home| {
        let file = std::fs::File::options().write(true).open(home.path("state/store/ken.db")).unwrap();
        file.write_all_at(&[0x5a; 4_096], 3 * 4_096).unwrap();
        None
    }),
    ("the database is no database", "database", "", |home| {
        write(home, "state/store/ken.db", &"no database".repeat(1_000))
    }),
    ("the database is missing", "database-missing", "missing or empty", |home| {
        std::fs::remove_file(home.path("state/store/ken.db")).unwrap();
        None
    }),
    ("the database of a newer release", "database", "100000, this ken-store knows", |home| {
        sqlite(home, "PRAGMA user_version = 100000");
        None
    }),
    ("another program has locked the database", "database-locked", "sqlite3 (pid", |home| {
        let mut holder = Command::new("sqlite3");
        holder.arg(home.path("state/store/ken.db")).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut holder = holder.spawn().expect("sqlite3");
        let mut to = holder.stdin.take().unwrap();
        to.write_all(b"BEGIN EXCLUSIVE;\nSELECT 'locked';\n").unwrap();
        BufReader::new(holder.stdout.take().unwrap()).read_line(&mut String::new()).unwrap();
        Some(Box::new((to, holder)))
    }),
    ("the write-ahead log is huge", "wal-size", "200 MiB", |home| {
        sparse(&home.path("state/store/ken.db-wal"), 200 << 20)
    }),
    ("changes were lost", "changes-lost", "3 changes", |home| {
        write(home, "state/store/ken.db.changes-lost", "2026-01-01: 3 changes\n")
    }),
    ("a socket was left behind", "stale-socket", "nobody listens", |home| write(home, "run/kend.sock", "")),
    ("a folder where a socket belongs", "not-a-socket", "is a folder", |home| {
        std::fs::create_dir(home.path("run/store.sock")).unwrap();
        None
    }),
    ("a folder where the socket of kend belongs", "not-a-socket", "is a folder", |home| {
        std::fs::create_dir(home.path("run/kend.sock")).unwrap();
        None
    }),
    ("a part is of another release", "program-version", "0.0.1", |home| {
        stand_in(&copies(home, "ken-cognitive"), "ken-cognitive", "echo ken-cognitive 0.0.1");
        None
    }),
    ("a program is missing", "program-missing", "no ken-cognitive", |home| {
        copies(home, "ken-cognitive");
        None
    }),
    ("a program cannot be run", "program-broken", "cannot be run", |home| {
        stand_in(&copies(home, "ken-cognitive"), "ken-cognitive", "exit 1");
        None
    }),
    ("the kernel has no seccomp", "sandbox", "no seccomp", |home| {
        let answer = "echo '{\"error\":{\"message\":\"no seccomp\"}}' >&2; exit 125";
        stand_in(&copies(home, "ken-sandbox"), "ken-sandbox", answer);
        None
    }),
    ("everybody is let in", "configuration", "0.0.0.0", |home| {
        config(home, "[gateway]\nport = 0\nlisten = \"0.0.0.0\"\n");
        None
    }),
    ("a rule forbids nothing", "rule-without-folder", "neither to the workspace nor to a trusted folder", |home| {
        config(home, "[[workspace.rules]]\npath = \"/no/such/folder\"\npolicy = \"deny\"\n");
        None
    }),
    ("a rule permits nothing, because it leads through a link", "rule-by-link", "/state/workspace/repos", |home| {
        std::os::unix::fs::symlink(home.path("state"), home.path("link")).unwrap();
        let path = home.path("link/workspace/repos");
        config(home, &format!("[[workspace.rules]]\npath = {path:?}\npolicy = \"auto-edit\"\n"));
        None
    }),
    ("a secret is set that the own user does not need", "loopback-trusted", "API_SECRET", |home| {
        write(home, "secrets.env", "API_SECRET=x\n")
    }),
    ("a proxy stands in front, and who comes from here is trusted", "proxy-trusted", "public_url", |home| {
        config(home, "[gateway]\nport = 0\npublic_url = \"https://ken.example\"\ntrust_loopback = \"yes\"\n");
        write(home, "secrets.env", "API_SECRET=x\n")
    }),
    ("a record of the audit log was changed", "audit", "", |home| {
        let text = std::fs::read_to_string(home.path("state/cognitive/security_events.log")).unwrap();
        write(home, "state/cognitive/security_events.log", &text.replacen("\"event\":\"", "\"event\":\"x", 1))
    }),
    ("the newest backup is old", "backup-old", "30 days", |home| {
        home.write("ken-backups/ken-2026-01-01T03-00-00.000Z.tar", "");
        let backup = home.path("ken-backups/ken-2026-01-01T03-00-00.000Z.tar");
        modified(&backup, SystemTime::now() - Duration::from_secs(30 * 86_400 + 60));
        None
    }),
    ("the only backup is from the future", "backup-ahead", "1 backup has a date in the future", |home| {
        home.write("ken-backups/ken-2099-01-01T03-00-00.000Z.tar", "");
        let backup = home.path("ken-backups/ken-2099-01-01T03-00-00.000Z.tar");
        modified(&backup, SystemTime::now() + Duration::from_secs(86_400));
        None
    }),
    ("a restore has put data aside", "put-aside", "a restore has replaced, 3 MiB", |home| {
        std::fs::create_dir_all(home.path("state/before-restore-x/store")).unwrap();
        sparse(&home.path("state/before-restore-x/store/ken.db"), 3 << 20)
    }),
    ("a migration has put the database aside", "put-aside", "copied to a database server, 1 MiB", |home| {
        write(home, "state/store/ken.db.migrated", "words")
    }),
    ("the logs have grown", "logs-size", "1100 MiB", |home| sparse(&home.path("state/log/agent.log"), 1_100 << 20)),
];

fn mode(home: &Home, name: &str, mode: u32) -> Option<Box<dyn Any>> {
    home.mode(name, mode);
    None
}

fn modified(file: &Path, at: SystemTime) {
    std::fs::File::options().write(true).open(file).unwrap().set_modified(at).unwrap();
}

fn sparse(file: &Path, bytes: u64) -> Option<Box<dyn Any>> {
    std::fs::File::create(file).unwrap().set_len(bytes).unwrap();
    None
}

fn sqlite(home: &Home, sql: &str) {
    let done = Command::new("sqlite3").arg(home.path("state/store/ken.db")).arg(sql).output();
    assert!(done.as_ref().is_ok_and(|done| done.status.success()), "{done:?}");
}

/// Runs `ken` from a folder that has all programs of ken but this one. Returns the folder.
fn copies(home: &mut Home, without: &str) -> PathBuf {
    let folder = home.path("programs");
    std::fs::create_dir(&folder).unwrap();
    for entry in std::fs::read_dir(binary("ken").parent().unwrap()).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if name.starts_with("ken") && !name.contains('.') && path.is_file() && ![without, "ken"].contains(&name) {
            std::os::unix::fs::symlink(&path, folder.join(name)).unwrap();
        }
    }
    // A link would lead `ken` back to the folder with all programs.
    install(&binary("ken"), &folder.join("ken"));
    home.programs = Some(folder.clone());
    folder
}

/// The findings that need no decision.
const MENDED: [&str; 4] = ["secrets-mode", "folder-mode", "folder-read-only", "stale-socket"];

/// `--fix` mends what needs no decision, says what it has changed, and has nothing to do the next time.
fn check_fix(home: &Home) {
    let run = || {
        let output = home.command(&["doctor", "--fix", "--json"]).output().unwrap();
        let lines = String::from_utf8(output.stdout).unwrap();
        let all = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        all.partition::<Vec<_>, _>(|line| line["fixed"].is_string())
    };
    let (fixed, left) = run();
    assert!(
        matches!(&fixed[..], [one] if one["change"].as_str().is_some_and(|change| !change.is_empty())),
        "{fixed:?}"
    );
    assert_eq!(own(left), Vec::<Value>::new());
    assert_eq!(run().0, Vec::<Value>::new());
}

/// Checks that the commands of a remedy exist; and if it is one command, that it works.
fn check_remedy(home: &Home, found: &Value) {
    let fix = found["fix"].as_str().unwrap();
    for words in ken_commands(fix) {
        let mut help = home.command(&words.split(' ').skip(1).collect::<Vec<_>>());
        let output = help.arg("--help").output().unwrap();
        assert!(output.status.success(), "{words} --help, of {found}: {}", String::from_utf8_lossy(&output.stderr));
    }
    let is_command = ["chmod ", "mv ", "rm ", "chown ", "ken backup "].iter().any(|start| fix.starts_with(start));
    if is_command {
        let path = format!("{}:/usr/bin:/bin", binary("ken").parent().unwrap().display());
        let run =
            Command::new("sh").args(["-c", fix]).env("PATH", path).env("KEN_HOME", home.path("")).output().unwrap();
        assert!(run.status.success(), "{found}: {run:?}");
        let left = home.doctor().0;
        assert!(!left.iter().any(|left| left["id"] == found["id"]), "{fix}: {left:?}");
    }
}

/// The commands of ken in a text: `ken` and the words that follow it, up to a name in capitals, an option or punctuation.
fn ken_commands(text: &str) -> Vec<String> {
    let starts = text.match_indices("ken ").filter(|(at, _)| {
        text[..*at].chars().next_back().is_none_or(|before| !before.is_alphanumeric() && before != '-' && before != '/')
    });
    let commands = starts.map(|(at, _)| {
        let words = text[at..].split(' ').take_while(|word| word.chars().all(|letter| letter.is_ascii_lowercase()));
        let words: Vec<&str> = words.take(3).collect();
        words.join(" ")
    });
    commands.filter(|command| command.contains(' ')).collect()
}

#[test]
fn each_fault_of_a_system_that_is_down_is_named_and_nothing_else() {
    let template = template();
    let mut wrong = Vec::new();
    for (fault, id, word, seed) in DOWN {
        let mut home = Home::copy(template.home());
        assert_eq!(own(home.doctor().0), Vec::<Value>::new(), "before: {fault}");
        let _lasts = seed(&mut home);
        let found = own(home.doctor().0);
        assert!(!found.iter().any(|found| found.to_string().contains("canary")), "{found:?}");
        let is_named = |found: &Value| found["id"] == *id && found["why"].as_str().unwrap().contains(word);
        if found.is_empty() || !found.iter().all(is_named) {
            wrong.push(format!("{fault}: {found:?}"));
        }
        found.iter().for_each(|found| check_remedy(&home, found));
        if found.iter().any(|found| MENDED.iter().any(|id| found["id"] == *id)) {
            let mut again = Home::copy(template.home());
            let _lasts = seed(&mut again);
            check_fix(&again);
        }
    }
    println!("{} of {} faults are named, each alone", DOWN.len() - wrong.len(), DOWN.len());
    assert!(wrong.is_empty(), "{wrong:#?}");
}

fn provider(status: u16, code: &'static str) -> Builder {
    let provider = Provider::answering(move |_| refusal(status, Vec::new(), code, "refused"));
    let builder = Builder::default().env("OPENAI_BASE_URL", &format!("{}/v1", provider.url()));
    // It is needed as long as the test.
    std::mem::forget(provider);
    builder.env("KEN_MODEL", "openai/m,rules").secrets("OPENAI_API_KEY=k\n")
}

fn messenger(code: i64, description: &'static str) -> Builder {
    let platform = BotApi::start();
    platform.always("getUpdates", Some(InjectedFailure::Refuse(code, description, None)));
    let builder = Builder::default().env("MESSENGER_API_BASE_URL", &platform.url()).env("MESSENGER_MODE", "poll");
    std::mem::forget(platform);
    builder.secrets(&format!("MESSENGER_BOT_TOKEN={TOKEN}\nMESSENGER_WEBHOOK_SECRET_TOKEN={SECRET}\n"))
}

/// The fault, the finding, a word of its reason, the system, and what is done to it.
type Running = (&'static str, &'static str, &'static str, fn() -> Builder, fn(&System));

fn say(system: &System) {
    _ = system.say(&system.session(), "hello");
}

const UP: &[Running] = &[
    ("the key is refused", "model-missing", "refused the key", || provider(401, "invalid_api_key"), say),
    ("the model is unknown", "model-down", "refused", || provider(404, "model_not_found"), say),
    (
        "the name of the provider is not found",
        "model-down",
        "nowhere.invalid",
        || {
            let builder = Builder::default().env("OPENAI_BASE_URL", "http://nowhere.invalid/v1");
            builder.env("KEN_MODEL", "openai/m,rules").secrets("OPENAI_API_KEY=k\n")
        },
        say,
    ),
    (
        "the token of the messenger is refused",
        "messenger-failing",
        "Unauthorized",
        || messenger(401, "Unauthorized"),
        |_| {},
    ),
    (
        "two programs ask for the updates",
        "messenger-failing",
        "Conflict",
        || messenger(409, "Conflict: terminated by other getUpdates request"),
        |_| {},
    ),
    (
        "a part ends at once",
        "part-not-ready",
        "",
        || Builder::default(),
        |system| {
            std::fs::write(system.home().join("ken.toml"), "[part.extra]\ncommand = [\"/bin/false\"]\n").unwrap();
            system.ken(&["reload"]);
        },
    ),
    ("the state can be read by others", "folder-open", "0755", Builder::default, |system| {
        Command::new("chmod").arg("755").arg(system.home().join("state")).status().unwrap();
    }),
    ("a socket belongs to another user", "socket-owner", "user 65534", Builder::default, |system| {
        std::os::unix::fs::chown(system.socket("model"), Some(65_534), None).unwrap();
    }),
    ("a part hangs", "part-not-answering", "does not answer", Builder::default, |system| {
        system.signal("store", Signal::SIGSTOP);
        let status = system.ken(&["status"]);
        assert_eq!(status.status.code(), Some(3));
        assert!(String::from_utf8_lossy(&status.stderr).contains("not ready: store (does not answer)"), "{status:?}");
    }),
    ("a tool cannot be offered", "tool-left-out", "", Builder::default, |system| {
        std::fs::create_dir_all(system.home().join("tools.d")).unwrap();
        std::fs::write(system.home().join("tools.d/bad.json"), "{").unwrap();
    }),
    ("the next start would fail at the prices", "models-file", "unknown field `nme`", Builder::default, |system| {
        std::fs::write(system.home().join("models.toml"), "[[model]]\nnme = 1\n").unwrap();
    }),
    ("a workflow is not JSON", "workflow-left-out", "malformed JSON", Builder::default, |system| {
        std::fs::create_dir_all(system.home().join("workflows")).unwrap();
        std::fs::write(system.home().join("workflows/bad.json"), "{").unwrap();
    }),
];

#[test]
fn each_fault_of_a_running_system_is_named_and_nothing_else() {
    let mut wrong = Vec::new();
    for (fault, id, word, builder, seed) in UP {
        if *id == "socket-owner" && !nix::unistd::geteuid().is_root() {
            continue; // only root can give a file away
        }
        let system = builder().start();
        seed(&system);
        let doctor = || {
            let output = system.ken(&["doctor", "--json"]);
            let lines = String::from_utf8(output.stdout).unwrap();
            own(lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect())
        };
        let is_named = |found: &Value| found["id"] == *id && found["why"].as_str().unwrap().contains(word);
        let mut found = Vec::new();
        for _ in 0..50 {
            found = doctor();
            if !found.is_empty() {
                break;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        if found.is_empty() || !found.iter().all(is_named) {
            wrong.push(format!("{fault}: {found:?}"));
        }
    }
    println!("{} of {} faults are named, each alone", UP.len() - wrong.len(), UP.len());
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The fault, the finding, a word of its reason, and the command that runs `ken doctor` on a machine with it.
type OfMachine = (&'static str, &'static str, &'static str, fn(&mut Home) -> Command);

/// `ken doctor` in a shell that does something first.
fn after(home: &Home, first: &str) -> Command {
    let doctor = home.command(&["doctor", "--json"]);
    let mut shell = Command::new("unshare");
    shell.args(["--mount", "--map-root-user", "sh", "-c", &format!("{first} && exec \"$@\""), "sh"]);
    shell.arg(doctor.get_program()).args(doctor.get_args());
    shell
}

/// `ken doctor` of an ordinary user, whose systemd and login manager say this, and who has given no folder.
fn with_units(home: &Home, systemctl: &str, loginctl: &str) -> Command {
    let folder = home.path("commands");
    std::fs::create_dir(&folder).unwrap();
    stand_in(&folder, "systemctl", &format!("printf '{systemctl}'"));
    stand_in(&folder, "loginctl", &format!("printf '{loginctl}'"));
    let mut doctor = Command::new(binary("ken"));
    doctor.args(["doctor", "--json"]).env_clear().env("PATH", format!("{}:/usr/bin:/bin", folder.display()));
    let state = home.path("of-user");
    std::fs::create_dir(&state).unwrap();
    doctor.env("HOME", &state).env("KEN_CONFIG", state.join("ken.toml"));
    std::fs::write(state.join("ken.toml"), "[gateway]\nport = 0\n[cognitive]\nport = 0\n").unwrap();
    doctor.env("KEN_STATE_DIR", state.join("state")).env("KEN_RUN_DIR", state.join("run"));
    if nix::unistd::geteuid().is_root() {
        let everything = format!("chown -R 65534 '{0}' && chmod 755 '{1}'", state.display(), home.path("").display());
        assert!(Command::new("sh").args(["-c", &everything]).status().unwrap().success());
        doctor.uid(65_534);
    }
    doctor
}

const OF_MACHINE: &[OfMachine] = &[
    ("the disk is full", "disk-space", "MiB", |home| {
        let state = home.path("state");
        after(home, &format!("mount -t tmpfs -o size=100m,mode=700 none '{}'", state.display()))
    }),
    ("the disk is read-only", "disk-read-only", "read-only", |home| {
        let state = home.path("state");
        after(home, &format!("mount -t tmpfs -o ro,size=1g,mode=700 none '{}'", state.display()))
    }),
    ("there are no inodes left", "inodes", "5 %", |home| {
        let store = home.path("state/workspace");
        std::fs::create_dir_all(&store).unwrap();
        let mount = format!("mount -t tmpfs -o size=1g,nr_inodes=2 none '{0}' && touch '{0}/a'", store.display());
        after(home, &mount)
    }),
    ("few files can be opened", "open-files", "1000", |home| after(home, "ulimit -n 1000")),
    ("the kernel has no Landlock", "sandbox", "Landlock", |home| {
        let mut doctor = home.command(&["doctor", "--json"]);
        doctor.env("KEN_LANDLOCK_VERSION", "0");
        doctor
    }),
    ("user namespaces are forbidden", "sandbox-namespaces", "git", |home| {
        let answer = r#"echo '{"landlock":6,"processes":true,"mounts":false,"loopback":true,"ownProc":true}'"#;
        stand_in(&copies(home, "ken-sandbox"), "ken-sandbox", answer);
        home.command(&["doctor", "--json"])
    }),
    ("the unit is not enabled", "unit-disabled", "does not start", |home| {
        let kend = binary("kend").display().to_string();
        let show = format!(
            "LoadState=loaded\\nUnitFileState=disabled\\nFragmentPath=/x/ken.service\\nExecStart={{ path={kend} ; }}\\n"
        );
        with_units(home, &show, "")
    }),
    ("the unit starts a program that is gone", "unit-program", "/gone/kend", |home| {
        with_units(
            home,
            "LoadState=loaded\\nUnitFileState=enabled\\nFragmentPath=/x/ken.service\\nExecStart={ path=/gone/kend ; }\\n",
            "",
        )
    }),
    ("the service ends when its user logs out", "linger", "log out", |home| {
        let kend = binary("kend").display().to_string();
        let show = format!(
            "LoadState=loaded\\nUnitFileState=enabled\\nFragmentPath=/x/ken.service\\nExecStart={{ path={kend} ; }}\\n"
        );
        with_units(home, &show, "Linger=no\\n")
    }),
];

#[test]
fn each_fault_of_a_machine_is_named() {
    let template = template();
    let mut wrong = Vec::new();
    for (fault, id, word, doctor) in OF_MACHINE {
        let mut home = Home::copy(template.home());
        let output = doctor(&mut home).output().unwrap();
        let lines = String::from_utf8_lossy(&output.stdout).into_owned();
        let found = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let is_named = |found: &Value| found["id"] == *id && found["why"].as_str().unwrap().contains(word);
        let others = found.clone().filter(|found| found["id"] != *id);
        if !found.clone().any(|found| is_named(&found)) || !own(others.collect()).is_empty() {
            wrong.push(format!("{fault}: {lines} {}", String::from_utf8_lossy(&output.stderr)));
        }
    }
    println!("{} of {} faults are named", OF_MACHINE.len() - wrong.len(), OF_MACHINE.len());
    assert!(wrong.is_empty(), "{wrong:#?}");
}
