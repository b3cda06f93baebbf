//! The operator's bad day: while messages arrive, others read and copy the database, the disk fills, the store is killed, the
//! power fails. Nothing acknowledged is lost, and a backup brings all of the system back.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ken_tests::provider::{Provider, ReceivedRequest, Reply, openai};
use ken_tests::{Builder, Client, SmallDisk, System, binary, skip, until};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tempfile::TempDir;

const SERVER: &str = include_str!("../doubles/mcp.py");
const IMAGE: &str = "iVBORw0KGgpxdW94YXBpdGg1";
const SKILL: &str = "---\nname: release\ndescription: How a release is made.\n---\nRing the bell twice.\n";

/// A model that has the coding worker write a note when it is asked for one.
fn reply(request: &ReceivedRequest) -> Reply {
    let messages = request.body["messages"].as_array().unwrap();
    let is_worker = messages[0]["content"].as_str().unwrap().contains("# You are the coding worker");
    let is_first = messages.last().unwrap()["role"] == "user";
    let call = |name: &str, arguments: Value| Reply::Stream(openai(&[], &[("c", name, &arguments.to_string())]));
    let wants_note = request.prompt().to_string().contains("write a note");
    match (is_worker, is_first) {
        (true, true) => call("write_file", json!({"path": "NOTE", "content": "made\n"})),
        (false, true) if wants_note => call("task", json!({"agent": "coding-worker", "prompt": "write a note"})),
        _ => Reply::Stream(openai(&["An answer."], &[])),
    }
}

/// The key that signs the tokens of the console.
const CONSOLE_KEY: &str = "state/gateway/console.key";

/// A person with a repository and a program that is an MCP server, outside the home of their system.
struct Person {
    folder: TempDir,
    system: System,
    _provider: Provider,
}

impl Person {
    fn new() -> Person {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("site/.git")).unwrap();
        fs::create_dir_all(folder.path().join("scratch")).unwrap();
        fs::write(folder.path().join("mcp.py"), SERVER).unwrap();
        fs::write(folder.path().join("site/NOTE"), "before\n").unwrap();
        let site = folder.path().join("site").display().to_string();
        let provider = Provider::answering(reply);
        let system = Builder::default()
            .env("KEN_MODEL", "openai/m")
            .env("OPENAI_BASE_URL", &format!("{}/v1", provider.url()))
            .config(&format!("[workspace]\nrules = [{{ path = \"{site}\", policy = \"auto-edit\" }}]\n"))
            .secrets("OPENAI_API_KEY=sk-canary-83\n")
            .start();
        Person { folder, system, _provider: provider }
    }

    fn home(&self) -> &Path {
        self.system.home()
    }

    fn site(&self) -> PathBuf {
        self.folder.path().join("site")
    }

    fn shell(&self, line: &str) -> Output {
        let programs = binary("ken").parent().unwrap().display().to_string();
        let mut shell = Command::new("bash");
        shell.env_clear().env("PATH", format!("{programs}:/usr/bin:/bin")).env("KEN_HOME", self.home());
        shell.env("HOME", self.folder.path()).env("OUT", self.folder.path());
        shell.args(["-o", "pipefail", "-c", line]).current_dir(self.site()).stdin(Stdio::null()).output().unwrap()
    }

    /// Runs a line that must succeed, and returns what it prints.
    #[track_caller]
    fn runs(&self, line: &str) -> String {
        let output = self.shell(line);
        assert_eq!(output.status.code(), Some(0), "{line}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs a line that must fail with this status, and returns what it says.
    #[track_caller]
    fn refused(&self, status: i32, line: &str) -> String {
        let output = self.shell(line);
        assert_eq!(output.status.code(), Some(status), "{line}: {output:?}");
        String::from_utf8(output.stderr).unwrap()
    }

    /// Makes everything that a backup has to hold.
    fn live(&self) {
        self.runs("ken workspace trust");
        self.runs("ken chat 'write a note'");
        assert_eq!(fs::read_to_string(self.site().join("NOTE")).unwrap(), "made\n");
        self.runs("ken chat 'what is 2+2'");
        let id = self.runs("ken sessions --json -n 1");
        let id: Value = serde_json::from_str(id.lines().next().unwrap()).unwrap();
        let image = json!({"type": "image", "mimeType": "image/png", "data": IMAGE});
        let prompt = json!({"message": "What is it?", "images": [image]});
        let target = format!("/agents/orchestrator/{}?wait=result", id["sessionId"].as_str().unwrap());
        self.system.post(&target, &prompt).expect(200);
        self.runs("ken chat -c 'and again?'");
        self.runs("ken knowledge add Zones 'The office is in Zone 7.'");
        self.runs("ken schedule add morning --cron '0 9 * * MON-FRI' --tz Europe/Zurich 'Summarise the night.'");
        self.runs("printf 'one\\ntwo\\n' | ken stream append log");
        self.runs("ken eval add last --name case");
        let skill = self.home().join("skills/release");
        fs::create_dir_all(&skill).unwrap();
        fs::write(skill.join("SKILL.md"), SKILL).unwrap();
        fs::write(skill.join("bell.sh"), "echo ring\n").unwrap();
        fs::set_permissions(skill.join("bell.sh"), PermissionsExt::from_mode(0o755)).unwrap();
        self.runs("ken skills accept release --yes");
        let (server, scratch) = (self.folder.path().join("mcp.py"), self.folder.path().join("scratch"));
        let entry = json!({"command": "python3", "args": [server, scratch],
            "ken": {"agents": ["orchestrator"], "approval": "none", "touch": {"read": [server], "write": [scratch]}}});
        fs::write(self.home().join("mcp.json"), json!({"mcpServers": {"double": entry}}).to_string()).unwrap();
        until("the server is accepted", || self.shell("ken accept double --yes").status.success());
    }

    /// What the commands show of the system.
    fn shown(&self) -> BTreeMap<&'static str, String> {
        let lines = [
            "ken sessions --json",
            "ken sessions export last",
            "ken knowledge list --json",
            "ken schedule list --all --json",
            "ken stream read log",
            "ken eval list",
            "ken skills list",
            "ken workspace list",
            "ken diff last",
            "ken approvals --all",
            "ken messenger status",
            "ken usage",
        ];
        lines.into_iter().map(|line| (line, self.runs(line))).collect()
    }

    /// The files of the home with their modes and contents, without what a system makes again and without the database.
    fn files(&self) -> BTreeMap<PathBuf, (u32, Vec<u8>)> {
        let mut found = BTreeMap::new();
        gather(self.home(), &mut found);
        let relative = found.into_iter().map(|(path, file)| (path.strip_prefix(self.home()).unwrap().to_owned(), file));
        let is_its_own = |path: &Path| {
            let text = path.to_str().unwrap();
            let again = ["run/", "state/log/", "state/mcp/", "state/web/", "state/store/", "state/workspace/"];
            !again.iter().any(|folder| text.starts_with(folder)) && !text.contains("before-restore-")
        };
        relative.filter(|(path, _)| is_its_own(path)).collect()
    }

    fn destroy(&self) {
        for entry in fs::read_dir(self.home()).unwrap().flatten() {
            if entry.file_type().unwrap().is_dir() {
                fs::remove_dir_all(entry.path()).unwrap()
            } else {
                fs::remove_file(entry.path()).unwrap()
            }
        }
    }

    /// Fails if the database is not the one of the backup, byte by byte.
    #[track_caller]
    fn has_database_of(&self, backup: &str) {
        let line = format!("tar xOf {backup} ken-backup-1/state/store/ken.db | cmp - $KEN_HOME/state/store/ken.db");
        self.runs(&line);
    }
}

fn command(home: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(binary("ken"));
    command.env_clear().env("PATH", "/usr/bin:/bin").env("KEN_HOME", home).args(words).stdin(Stdio::null());
    command
}

fn gather(folder: &Path, found: &mut BTreeMap<PathBuf, (u32, Vec<u8>)>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            gather(&entry.path(), found);
        } else if kind.is_file() {
            let mode = entry.metadata().unwrap().permissions().mode() & 0o777;
            found.insert(entry.path(), (mode, fs::read(entry.path()).unwrap()));
        }
    }
}

/// Runs until it is dropped or joined, and counts what was acknowledged.
struct Messages {
    stop: std::sync::Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<Vec<String>>>,
}

impl Messages {
    /// Sends knowledge entries and messages, one after the other, for as long as it is not told to stop.
    fn arrive(system: &System, round: usize) -> Messages {
        let (address, stop) = (system.address(), std::sync::Arc::new(AtomicBool::new(false)));
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            let mut acknowledged = Vec::new();
            for number in 0.. {
                if stopped.load(Ordering::Relaxed) {
                    break;
                }
                let title = format!("message{round}-{number}");
                let body = json!({"title": title, "content": "x".repeat(2000)});
                // The gateway can be away, or the store can: then nothing was acknowledged.
                let Ok(mut client) = Client::try_connect(address) else {
                    std::thread::sleep(Duration::from_millis(20));
                    continue;
                };
                if client
                    .request("POST", "/api/knowledge")
                    .json(&body)
                    .try_send()
                    .is_ok_and(|answer| answer.status == 201)
                {
                    acknowledged.push(title);
                }
            }
            acknowledged
        });
        Messages { stop, thread: Some(thread) }
    }

    fn end(mut self) -> Vec<String> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap()
    }
}

fn titles(person: &Person) -> String {
    person.runs("ken knowledge list --json")
}

#[test]
fn a_backup_brings_back_everything_but_the_secrets() {
    let mut person = Person::new();
    person.live();
    let told = person.shell("ken backup $OUT/backup.tar");
    assert_eq!(told.status.code(), Some(0), "{told:?}");
    let (said, noted) = (String::from_utf8(told.stdout).unwrap(), String::from_utf8(told.stderr).unwrap());
    assert!(said.contains("/backup.tar: ") && said.contains(", without secrets\n"), "{said}");
    assert!(noted.contains("config/secrets.env") && noted.contains("--secrets"), "{noted}");
    let backup = person.folder.path().join("backup.tar");
    assert_eq!(fs::metadata(&backup).unwrap().permissions().mode() & 0o777, 0o600);
    let whole = fs::read(&backup).unwrap();
    assert!(!whole.windows(12).any(|part| part == b"sk-canary-83"));
    assert!(person.runs("ken backup --verify $OUT/backup.tar").contains("backup.tar: ok, "));
    let shown = person.shown();
    for (line, part) in [
        ("ken sessions --json", "write a note"),
        ("ken sessions export last", "What is it?"),
        ("ken knowledge list --json", "Zone"),
        ("ken schedule list --all --json", "morning"),
        ("ken stream read log", "two"),
        ("ken eval list", "case"),
        ("ken skills list", "release  accepted"),
        ("ken workspace list", "site"),
        ("ken diff last", "+made"),
        ("ken usage", "DAY"),
    ] {
        let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words(&shown[line]).contains(&words(part)), "{line}: {}", shown[line]);
    }
    person.system.down();
    let files = person.files();
    for file in
        ["ken.toml", "accepted.json", "mcp.json", "mcp.accepted.json", "evals/case.json", "skills/release/bell.sh"]
    {
        assert!(files.contains_key(Path::new(file)), "{file}: {:?}", files.keys());
    }
    person.destroy();
    assert_eq!(person.runs("ken restore $OUT/backup.tar"), "restored\n");
    person.has_database_of("$OUT/backup.tar");
    let secrets = ["secrets.env", "state/cognitive/admin.key", CONSOLE_KEY].map(PathBuf::from);
    assert!(files.contains_key(Path::new(CONSOLE_KEY)), "{:?}", files.keys());
    let expected: BTreeMap<_, _> = files.into_iter().filter(|(path, _)| !secrets.contains(path)).collect();
    let restored = person.files();
    assert_eq!(restored.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>());
    assert_eq!(restored, expected);
    fs::write(person.home().join("secrets.env"), "OPENAI_API_KEY=sk-canary-83\n").unwrap();
    fs::set_permissions(person.home().join("secrets.env"), PermissionsExt::from_mode(0o600)).unwrap();
    person.system.up();
    assert_eq!(person.shown(), shown);
    until("the server is used as accepted", || person.runs("ken tools list").contains("echo"));
    // What was changed before the backup can be undone after it, and the system goes on.
    assert!(person.runs("ken undo last").contains("put back"));
    assert_eq!(fs::read_to_string(person.site().join("NOTE")).unwrap(), "before\n");
    assert!(person.runs("ken chat 'and now?'").contains("An answer."));
}

/// A backup removes no file that it has not made: neither one that only has a similar name, nor the database, whatever the backup is called.
#[test]
fn a_backup_leaves_the_files_of_others_beside_it() {
    let person = Person::new();
    person.runs("ken knowledge add before 'One.'");
    let others = ["notes.db", "notes.part", "notes.db.part", "notes.db-journal"];
    for name in others {
        fs::write(person.folder.path().join(name), "of another program").unwrap();
    }
    // What a backup that was killed has left is no obstacle.
    person.runs("echo left >$OUT/notes.ken-part && echo left >$OUT/notes.ken-copy && ken backup $OUT/notes");
    assert!(person.runs("ken backup --verify $OUT/notes").contains("notes: ok, "));
    for name in others {
        let path = person.folder.path().join(name);
        assert_eq!(fs::read_to_string(path).unwrap_or_default(), "of another program", "{name}");
    }
    for _ in 0..2 {
        person.runs("cd $KEN_HOME/state/store && ken backup ken && ken backup --verify ken && rm ken");
    }
    assert!(person.home().join("state/store/ken.db").is_file());
    assert_eq!(person.runs("ls -A $OUT $KEN_HOME/state/store $KEN_HOME/state | grep '[.]ken-' || true"), "");
    assert!(titles(&person).contains("before"));
}

/// The lines of the manual, with another program that encrypts.
#[test]
fn secrets_leave_only_through_a_pipe_to_a_program_that_encrypts() {
    let mut person = Person::new();
    let refused = person.refused(2, "ken backup --secrets $OUT/b.tar");
    assert!(refused.contains("ken backup --secrets - | age -p"), "{refused}");
    person.refused(2, "ken backup --secrets - >$OUT/b.tar");
    person.runs("ken knowledge add Zones 'The office is in Zone 7.'");
    until("the admin's key is made", || person.home().join("state/cognitive/admin.key").exists());
    let cipher = "openssl enc -aes-256-cbc -pbkdf2 -pass pass:secret";
    person.runs(&format!("ken backup --secrets - | {cipher} >$OUT/b.enc"));
    let sealed = fs::read(person.folder.path().join("b.enc")).unwrap();
    assert!(!sealed.windows(12).any(|part| part == b"sk-canary-83"));
    assert!(person.runs(&format!("{cipher} -d <$OUT/b.enc | ken backup --verify -")).contains("with secrets"));
    let files = person.files();
    person.system.down();
    person.destroy();
    // A wrong passphrase changes nothing.
    person.refused(2, "openssl enc -aes-256-cbc -pbkdf2 -pass pass:wrong -d <$OUT/b.enc 2>/dev/null | ken restore -");
    assert_eq!(person.files(), BTreeMap::new());
    assert_eq!(person.runs(&format!("{cipher} -d <$OUT/b.enc | ken restore -")), "restored\n");
    let restored = person.files();
    for file in ["secrets.env", "state/cognitive/admin.key", "ken.toml"].map(Path::new) {
        assert_eq!(restored.get(file), files.get(file), "{}", file.display());
        assert!(restored.contains_key(file), "{}", file.display());
    }
    assert!(!restored.contains_key(Path::new(CONSOLE_KEY)), "it leaves by no way");
    person.system.up();
    assert!(titles(&person).contains("Zones"));
}

#[test]
fn what_cannot_be_restored_as_a_whole_changes_nothing() {
    let mut person = Person::new();
    person.runs("ken knowledge add before 'One.'");
    person.runs("ken backup $OUT/b.tar");
    person.runs("ken knowledge add after 'Two.'");
    assert!(person.refused(2, "ken restore $OUT/b.tar").contains("the system runs"));
    assert!(person.refused(2, "ken backup $OUT/b.tar").contains("exists already"));
    person.system.down();
    assert!(person.refused(2, "ken restore $OUT/b.tar").contains("--replace"));
    let (before, whole) = (person.files(), fs::read(person.folder.path().join("b.tar")).unwrap());
    let broken = person.folder.path().join("broken.tar");
    let end = whole.len();
    let mut wrong: Vec<(String, Vec<u8>)> = [0, 1, 511, 512, 700, end / 3, end / 2, end - 20_000, end - 2_000]
        .map(|length| (format!("cut at {length}"), whole[..length].to_vec()))
        .into();
    let mut flipped = whole.clone();
    flipped[end / 2] ^= 1;
    wrong.push(("a flipped bit".to_owned(), flipped));
    wrong.push(("text".to_owned(), b"this is no backup".repeat(100)));
    for (what, bytes) in wrong {
        fs::write(&broken, bytes).unwrap();
        for line in ["ken restore --replace $OUT/broken.tar", "ken backup --verify $OUT/broken.tar"] {
            let said = person.refused(2, line);
            assert!(said.contains("broken.tar"), "{what}: {line}: {said}");
        }
        assert_eq!(person.files(), before, "{what}");
        assert!(!person.home().join("state/.restore").exists(), "{what}");
    }
    person.runs("ken backup --verify $OUT/b.tar");
    let other = fs::File::open(person.home().join("state")).unwrap();
    other.lock().unwrap();
    assert!(
        person.refused(2, "ken restore --replace $OUT/b.tar").contains("another ken restore is replacing the data")
    );
    assert_eq!(person.files(), before);
    drop(other);
    let said = person.runs("ken restore --replace $OUT/b.tar");
    let kept = said.split_whitespace().map(Path::new).filter(|word| word.is_absolute());
    let kept: Vec<&Path> = kept.collect();
    assert!(kept.iter().any(|folder| folder.join("store/ken.db").is_file()), "{said}");
    // The secrets, which were not in it, are where they were.
    for file in ["secrets.env", "state/cognitive/admin.key", CONSOLE_KEY].map(Path::new) {
        assert_eq!(person.files().get(file), before.get(file), "{}", file.display());
    }
    assert!(before.contains_key(Path::new(CONSOLE_KEY)));
    person.system.up();
    let list = titles(&person);
    assert!(list.contains("before") && !list.contains("after"), "{list}");
}

/// A person removes the key of the console to end all tokens. A backup that has it, as those of earlier versions do, does not bring it back,
/// and the gateway makes another one.
#[test]
fn a_key_of_the_console_that_was_removed_does_not_come_back() {
    let mut person = Person::new();
    person.runs("ken backup $OUT/new.tar");
    person.system.down();
    let (key, backup) = (person.home().join(CONSOLE_KEY), person.folder.path().join("ken-backup-1"));
    let removed = fs::read(&key).unwrap();
    person.runs("tar xf $OUT/new.tar -C $OUT && mkdir -p $OUT/ken-backup-1/state/gateway");
    person.runs("cp $KEN_HOME/state/gateway/console.key $OUT/ken-backup-1/state/gateway");
    let digest = person.runs("sha256sum $KEN_HOME/state/gateway/console.key");
    let mut manifest: Value = serde_json::from_slice(&fs::read(backup.join("manifest.json")).unwrap()).unwrap();
    assert!(manifest["files"].get(CONSOLE_KEY).is_none(), "{manifest}");
    manifest["files"][CONSOLE_KEY] = json!({"size": removed.len(), "sha256": digest.split(' ').next()});
    fs::write(backup.join("manifest.json"), manifest.to_string()).unwrap();
    person.runs(
        "cd $OUT && tar cf old.tar --exclude=manifest.json ken-backup-1 && tar rf old.tar ken-backup-1/manifest.json",
    );
    person.runs("ken backup --verify $OUT/old.tar");
    fs::remove_file(&key).unwrap();
    person.runs("ken restore --replace $OUT/old.tar");
    assert!(!key.exists());
    person.system.up();
    let made = fs::read(&key).unwrap();
    assert!(made.len() == removed.len() && made != removed);
}

/// `ken restore` is killed at fifteen points. The home is then the one before or the one of the backup, or no system starts
/// until the restore is finished.
#[test]
fn a_restore_that_is_killed_leaves_the_old_home_or_the_new_one() {
    let mut person = Person::new();
    person.runs("ken knowledge add before 'One.'");
    person.runs("ken backup $OUT/b.tar");
    person.runs("ken knowledge add after 'Two.'");
    person.system.down();
    let whole = std::time::Instant::now();
    person.runs("cp -a $KEN_HOME $OUT/home && KEN_HOME=$OUT/home ken restore --replace $OUT/b.tar");
    let whole = whole.elapsed();
    let has = |person: &Person, title: &str| {
        let database = "sqlite3 $OUT/round/state/store/ken.db";
        person.runs(&format!("{database} \"SELECT count(*) FROM knowledge WHERE title = '{title}'\"")).trim() == "1"
    };
    let mut ends = BTreeMap::new();
    for round in 0..15 {
        person.runs("rm -rf $OUT/round && cp -a $KEN_HOME $OUT/round");
        let home = person.folder.path().join("round");
        let mut restore = command(&home, &["restore", "--replace"]);
        let mut child = restore.arg(person.folder.path().join("b.tar")).stdout(Stdio::null()).spawn().unwrap();
        std::thread::sleep(whole * round / 14);
        child.kill().unwrap();
        child.wait().unwrap();
        let is_unfinished = home.join("state/.restore/plan").exists();
        if is_unfinished {
            let said = person.refused(75, "KEN_HOME=$OUT/round ken up --port 0 --cognitive-port 0");
            assert!(said.contains("ken restore --finish"), "{said}");
            person.refused(2, "KEN_HOME=$OUT/round ken restore --replace $OUT/b.tar");
            person.runs("KEN_HOME=$OUT/round ken restore --finish");
        }
        let is_new = !has(&person, "after");
        assert!(has(&person, "before"), "round {round}");
        assert!(is_new || !is_unfinished, "round {round}");
        *ends.entry((is_unfinished, is_new)).or_insert(0) += 1;
    }
    assert!(ends.contains_key(&(false, false)), "{ends:?}");
    println!("unfinished, new: {ends:?}");
    // An interruption in the middle of the renames, made by hand: one folder is not in its place yet.
    person.runs("rm -rf $OUT/round && cp -a $KEN_HOME $OUT/round && mkdir -p $OUT/round/.restore/config");
    person.runs(
        "mkdir -p $OUT/round/state/.restore/state && cp -a $KEN_HOME/state/store $OUT/round/state/.restore/state/",
    );
    let plan = json!({"aside": "before-restore-x", "new": [{"root": "state", "name": "store"}],
        "old": [{"root": "state", "name": "store"}, {"root": "config", "name": "ken.toml"}]});
    let path = person.folder.path().join("round/state/.restore/plan");
    fs::write(&path, plan.to_string()).unwrap();
    fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
    person.runs(
        "mkdir $OUT/round/state/before-restore-x && mv $OUT/round/state/store $OUT/round/state/before-restore-x/",
    );
    person.runs("KEN_HOME=$OUT/round ken restore --finish");
    assert!(has(&person, "before") && has(&person, "after"));
    person.runs(
        "test ! -e $OUT/round/state/.restore -a ! -e $OUT/round/ken.toml -a -e $OUT/round/before-restore-x/ken.toml",
    );
    assert!(person.refused(2, "KEN_HOME=$OUT/round ken restore --finish").contains("no restore was interrupted"));
}

/// Tells the readers to end when it is dropped.
struct StopsLooking<'a>(&'a AtomicBool);

impl Drop for StopsLooking<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

#[test]
fn nothing_acknowledged_is_lost_on_a_bad_day() {
    let mut person = Person::new();
    // Those that were made while the clock was ahead are older than the new ones.
    person.runs("mkdir $OUT/backups && touch $OUT/backups/ken-2099-01-0{1..5}T03-00-00.000Z.tar");
    let looking = AtomicBool::new(true);
    let failures: Mutex<Vec<String>> = Mutex::new(Vec::new());
    let mut in_backups = Vec::new();
    let mut acknowledged = Vec::new();
    for round in 0..3 {
        let messages = Messages::arrive(&person.system, round);
        looking.store(true, Ordering::Relaxed);
        std::thread::scope(|scope| {
            // A failure below must end the others, too.
            let _end = StopsLooking(&looking);
            for line in [
                "sqlite3 -cmd '.timeout 20000' $KEN_HOME/state/store/ken.db 'SELECT count(*) FROM knowledge'",
                "sqlite3 $KEN_HOME/state/store/ken.db .tables",
                "rm -rf $OUT/copy && cp -r $KEN_HOME/state/store $OUT/copy",
            ] {
                let (person, looking, failures) = (&person, &looking, &failures);
                scope.spawn(move || {
                    while looking.load(Ordering::Relaxed) {
                        let output = person.shell(line);
                        if !output.status.success() && line.starts_with("rm") {
                            // A file of the log can go while it is copied; the copy itself is not promised.
                            continue;
                        }
                        if !output.status.success() {
                            failures.lock().push(format!("{line}: {output:?}"));
                        }
                    }
                });
            }
            for _ in 0..3 {
                let before = person.runs(
                    "sqlite3 -cmd '.timeout 20000' $KEN_HOME/state/store/ken.db 'SELECT count(*) FROM knowledge'",
                );
                let said = person.runs("ken backup --keep 4 $OUT/backups");
                in_backups.push((before.trim().parse::<u64>().unwrap(), said.split(": ").next().unwrap().to_owned()));
                person.system.kill("store");
                until("the store is back", || person.system.get("/ready").status == 200);
            }
        });
        if round < 2 {
            person.system.cut_power();
        }
        acknowledged.push(messages.end());
        if round < 2 {
            person.system.up();
        }
        let list =
            person.runs("sqlite3 -cmd '.timeout 20000' $KEN_HOME/state/store/ken.db 'SELECT title FROM knowledge'");
        let mut kept: BTreeMap<&str, usize> = BTreeMap::new();
        for title in list.lines() {
            *kept.entry(title).or_default() += 1;
        }
        for (at, titles) in acknowledged.iter().enumerate() {
            assert!(titles.len() > 2, "round {at}: {} were acknowledged", titles.len());
        }
        let all = acknowledged.iter().flatten();
        let lost: Vec<&String> = all.filter(|title| !kept.contains_key(title.as_str())).collect();
        assert!(lost.is_empty(), "{lost:?}");
        let (sum, rows) = (acknowledged.iter().map(Vec::len).sum::<usize>(), list.lines().count());
        assert!(rows >= sum, "{rows} of {sum}");
    }
    let failures = failures.into_inner();
    // While the store is killed, a reader may find the database locked for a moment.
    let loud: Vec<&String> = failures.iter().filter(|failure| !failure.contains("locked")).collect();
    assert!(loud.is_empty(), "{loud:?}");
    // The four newest backups are there, each is whole, and each has what was stored when it began.
    let left = person.runs("ls $OUT/backups");
    assert_eq!(left.lines().count(), 4, "{left}");
    for (stored, file) in in_backups.iter().rev().take(4) {
        person.runs(&format!("ken backup --verify {file}"));
        person.runs(&format!("tar xOf {file} ken-backup-1/state/store/ken.db >$OUT/one.db"));
        let rows = person.runs("sqlite3 $OUT/one.db 'PRAGMA integrity_check; SELECT count(*) FROM knowledge'");
        let rows: Vec<&str> = rows.lines().collect();
        assert_eq!(rows[0], "ok");
        assert!(rows[1].parse::<u64>().unwrap() >= *stored, "{rows:?}, {stored}");
    }
    assert_eq!(person.runs("ken doctor --json | grep -c changes-lost || true").trim(), "0");
}

#[test]
fn a_full_disk_is_said_loudly_and_loses_nothing() {
    if !nix::unistd::geteuid().is_root() {
        return skip("needs root");
    }
    let mut person = Person::new();
    person.system.down();
    person.runs("mv $KEN_HOME/state/store $OUT/store && mkdir -m 700 $KEN_HOME/state/store");
    let Some(_disk) = SmallDisk::mount(&person.home().join("state/store"), "size=32m,mode=700") else {
        return skip("namespaces are not allowed here");
    };
    person.runs("cp -p $OUT/store/* $KEN_HOME/state/store/");
    person.system.up();
    let add = |person: &Person, title: &str| {
        person.system.post("/api/knowledge", &json!({"title": title, "content": "x".repeat(50_000)})).status
    };
    let mut acknowledged: Vec<String> = Vec::new();
    let mut keep = |person: &Person, title: String| {
        let status = add(person, &title);
        if status == 201 {
            acknowledged.push(title);
        }
        status
    };
    for number in 0..20 {
        assert_eq!(keep(&person, format!("early{number}")), 201);
    }
    // Somebody else fills the disk, as full as it goes, and again, because an idle store gives back the space of its log. Small
    // changes may still fit where the log was.
    let fill = |person: &Person| {
        _ = person.shell("dd if=/dev/zero of=$KEN_HOME/state/store/junk bs=4k oflag=append conv=notrunc status=none");
    };
    fill(&person);
    let mut attempt = 0;
    until("it is refused and reported", || {
        fill(&person);
        attempt += 1;
        keep(&person, format!("tight{attempt}")) == 503 && person.system.get("/ready").status == 503
    });
    let entry = json!({"title": "one more", "content": "y".repeat(60_000)});
    let refused = person.system.post("/api/knowledge", &entry).expect(503);
    assert!(
        refused.text("/error").contains("disk") && refused.text("/hint").contains("free some space"),
        "{refused:?}"
    );
    // Who waits is told for what.
    let chat = person.shell("head -c 60000 /dev/zero | tr '\\0' x | ken chat --wait 8s 'what is this?'");
    assert_ne!(chat.status.code(), Some(0), "{chat:?}");
    let told = String::from_utf8(chat.stderr).unwrap();
    assert!(told.contains("ken: waiting: ") && told.contains("disk"), "{told}");
    // Small writes may fit again by now. The doctor names the disk all the same, which is another one than that of the state.
    let doctor = person.shell("ken doctor");
    let found = String::from_utf8(doctor.stdout).unwrap();
    assert_eq!(doctor.status.code(), Some(2), "{found}");
    assert!(
        found.lines().any(|line| line.contains("disk-space: ") && line.contains("/state/store: only 0 MiB")),
        "{found}"
    );
    // A backup to the same disk says why and leaves nothing.
    let said = person.refused(75, "ken backup $KEN_HOME/state/store/b.tar");
    assert!(said.contains("full") || said.contains("space"), "{said}");
    assert_eq!(person.runs("ls $KEN_HOME/state/store | grep -c b.tar || true").trim(), "0");
    // Another disk takes one even now.
    person.runs("ken backup $OUT/b.tar && ken backup --verify $OUT/b.tar");
    person.runs("rm $KEN_HOME/state/store/junk");
    until("the store writes again", || person.system.get("/ready").status == 200);
    assert_eq!(keep(&person, "late".to_owned()), 201);
    person.system.kill("store");
    until("the store is back", || person.system.get("/ready").status == 200);
    let list = person.runs("sqlite3 -cmd '.timeout 20000' $KEN_HOME/state/store/ken.db 'SELECT title FROM knowledge'");
    for title in &acknowledged {
        assert!(list.lines().any(|line| line == title), "{title}");
    }
    assert!(person.runs("ken chat hello").contains("An answer."));
    person.system.down();
}
