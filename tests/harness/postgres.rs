//! PostgreSQL for tests, with the programs of Debian's packages, in temporary folders and on free ports: a server, a standby of one that can be
//! promoted, and a pooler before one.

use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::disk::SmallDisk;
use crate::port::free_port;
use crate::skip::skip;
use nix::unistd::{Gid, Uid, User, geteuid};

/// The reason for which tests are skipped without a server. `.ci/run` accepts it only if it could not install one.
pub const NO_POSTGRES: &str = "pg_ctl is not installed";

/// The same for tests with a pooler.
pub const NO_POOLER: &str = "pgbouncer is not installed";

/// Runs until the test ends in any way, which closes its standard input. Then it stops the server and removes its folder.
const GUARD: &str =
    r#"echo ready; cat > /dev/null; "$2" -D "$1/data" stop -m immediate > /dev/null 2>&1; rm -rf -- "$1""#;

/// Before the guard of a pooler ends, the same way.
const POOLER_GUARD: &str =
    r#"/usr/sbin/pgbouncer -q "$1/pgbouncer.ini" & echo ready; cat > /dev/null; kill $!; rm -rf -- "$1""#;

/// A running server.
pub struct Postgres {
    folder: PathBuf,
    port: u16,
    programs: PathBuf,
    settings: Vec<String>,
    databases: AtomicU32,
    _guard: (Child, ChildStdin),
}

/// A running pgbouncer, which gives each transaction another connection.
pub struct Pooler {
    port: u16,
    _guard: (Child, ChildStdin),
}

impl Pooler {
    /// Starts a pooler before a server. Returns `None` if it is not installed.
    pub fn start(server: &Postgres) -> Option<Pooler> {
        Pooler::with_mode(server, "transaction")
    }

    /// Starts a pooler with a `pool_mode`.
    pub fn with_mode(server: &Postgres, mode: &str) -> Option<Pooler> {
        Path::new("/usr/sbin/pgbouncer").is_file().then_some(())?;
        let (folder, port) = (own_folder(), free_port());
        let settings = format!(
            "[databases]\n* = host=127.0.0.1 port={} user=ken\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\n\
             unix_socket_dir =\nauth_type = any\npool_mode = {mode}\nserver_login_retry = 0.2\nserver_reset_query =\nserver_idle_timeout = 1\n\
             max_client_conn = 1000\ndefault_pool_size = 40\nlogfile = {}\n",
            server.port,
            folder.join("log").display()
        );
        std::fs::write(folder.join("pgbouncer.ini"), settings).unwrap();
        let pooler = Pooler { port, _guard: guard(POOLER_GUARD, &folder, Path::new("")) };
        super::until("the pooler listens", || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
        Some(pooler)
    }

    /// Returns the URL of a database through the pooler.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://ken@127.0.0.1:{}/{database}", self.port)
    }
}

/// Makes a folder of the user that runs the server.
fn own_folder() -> PathBuf {
    let folder = tempfile::tempdir().unwrap().keep();
    if let Some((user, group)) = ordinary_user() {
        chown(&folder, Some(user.as_raw()), Some(group.as_raw())).unwrap();
    }
    folder
}

/// psql and pg_dump are taken from the same folder: on Debian, those on the path are a script that takes 70 ms to find them.
const PROGRAMS: [&str; 7] = ["pg_ctl", "initdb", "postgres", "pg_basebackup", "pg_rewind", "psql", "pg_dump"];

/// Returns the folder with these programs: one on the path, or that of the newest release of Debian's package.
fn programs() -> Option<PathBuf> {
    let on_path = std::env::var_os("PATH").unwrap_or_default();
    let mut packaged: Vec<PathBuf> = std::fs::read_dir("/usr/lib/postgresql")
        .map(|releases| releases.flatten().map(|release| release.path().join("bin")).collect())
        .unwrap_or_default();
    packaged.sort();
    let folders = std::env::split_paths(&on_path).chain(packaged.into_iter().rev());
    let mut whole = folders.filter(|folder| PROGRAMS.iter().all(|name| folder.join(name).is_file()));
    whole.next()
}

/// Makes a command that runs as an ordinary user, since the server refuses to run as root.
fn as_ordinary(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.current_dir("/");
    if let Some((user, group)) = ordinary_user() {
        command.uid(user.as_raw()).gid(group.as_raw());
    }
    command
}

fn ordinary_user() -> Option<(Uid, Gid)> {
    let nobody = || User::from_name("nobody").unwrap().expect("there is a user nobody");
    geteuid().is_root().then(nobody).map(|user| (user.uid, user.gid))
}

/// The files of a server without databases, from which each server of a program begins: making them takes several times as long as a copy.
struct Empty {
    data: PathBuf,
    _guard: (Child, ChildStdin),
}

fn empty(programs: &Path) -> &'static Empty {
    static EMPTY: OnceLock<Empty> = OnceLock::new();
    EMPTY.get_or_init(|| {
        let folder = own_folder();
        let empty = Empty { data: folder.join("data"), _guard: guard(GUARD, &folder, &programs.join("pg_ctl")) };
        let made = as_ordinary(&programs.join("initdb"))
            // pg_rewind needs the checksums.
            .args([
                "--data-checksums", "--auth=trust", "--username=ken", "--encoding=UTF8", "--locale=C.UTF-8",
                "--no-sync", "--pgdata",
            ])
            .arg(&empty.data)
            .stdout(Stdio::null())
            .status();
        assert!(made.unwrap().success(), "initdb failed");
        // In the file, because pg_rewind starts the server itself, and then needs the log from before the crash.
        let file = OpenOptions::new().append(true).open(empty.data.join("postgresql.conf"));
        writeln!(file.unwrap(), "wal_keep_size = 512MB").unwrap();
        empty
    })
}

impl Postgres {
    /// Starts a server with additional settings (`name=value`). If the programs are not installed, says that the test is skipped, and returns
    /// `None`.
    pub fn start(settings: &[&str]) -> Option<Postgres> {
        let Some(server) = Postgres::new(settings) else {
            skip(NO_POSTGRES);
            return None;
        };
        let copied =
            as_ordinary(Path::new("cp")).arg("-a").arg(&empty(&server.programs).data).arg(server.data()).status();
        assert!(copied.unwrap().success(), "the files of an empty server are not copied");
        server.resume();
        Some(server)
    }

    fn new(settings: &[&str]) -> Option<Postgres> {
        let (programs, folder) = (programs()?, own_folder());
        let guard = guard(GUARD, &folder, &programs.join("pg_ctl"));
        let settings = settings.iter().map(ToString::to_string).collect();
        Some(Postgres { folder, port: free_port(), programs, settings, databases: AtomicU32::new(0), _guard: guard })
    }

    /// Makes a tablespace `small` on a file system of its own. Returns `None` if none can be mounted here.
    pub fn small_disk(&self, size: &str) -> Option<SmallDisk> {
        let folder = self.folder.join("small");
        std::fs::create_dir(&folder).unwrap();
        let (disk, space) = (SmallDisk::mount(&folder, &format!("size={size},mode=755"))?, folder.join("space"));
        std::fs::create_dir(&space).unwrap();
        if let Some((user, group)) = ordinary_user() {
            chown(&space, Some(user.as_raw()), Some(group.as_raw())).unwrap();
        }
        self.sql("postgres", &format!("CREATE TABLESPACE small LOCATION '{}'", space.display()));
        Some(disk)
    }

    /// Starts a server whose commits wait for its standby, and the standby.
    pub fn with_standby() -> Option<(Postgres, Postgres)> {
        let server = Postgres::start(&[])?;
        let standby = server.standby();
        server.wait_for_standby(true);
        Some((server, standby))
    }

    /// Starts a standby of this server, to which it sends what it writes.
    pub fn standby(&self) -> Postgres {
        let settings: Vec<&str> = self.settings.iter().map(String::as_str).collect();
        let standby = Postgres::new(&settings).unwrap();
        let copied = as_ordinary(&self.programs.join("pg_basebackup"))
            .args([
                "--write-recovery-conf",
                "--checkpoint=fast",
                "--no-sync",
                "--dbname",
                &self.url("postgres"),
                "--pgdata",
            ])
            .arg(standby.data())
            .status();
        assert!(copied.unwrap().success(), "pg_basebackup failed");
        standby.resume();
        standby
    }

    /// Makes this standby the primary.
    pub fn promote(&self) {
        self.control(&["promote"]);
        // pg_rewind looks for the new timeline in the control file.
        self.sql("postgres", "CHECKPOINT");
        self.wait_for_standby(false);
    }

    /// Makes this server, which was killed, a standby of the one that has taken its place.
    pub fn follow(&self, primary: &Postgres) {
        let mut rewind = as_ordinary(&self.programs.join("pg_rewind"));
        rewind.args([
            "--write-recovery-conf",
            "--no-sync",
            "--source-server",
            &primary.url("postgres"),
            "--target-pgdata",
        ]);
        rewind.arg(self.data());
        output(rewind);
        self.resume();
    }

    /// Makes each commit wait for a standby, once there is one, or for none.
    pub fn wait_for_standby(&self, waits: bool) {
        let names = if waits { "*" } else { "" };
        if waits {
            let streaming = "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'";
            super::until("the standby streams", || self.sql("postgres", streaming) == "1");
        }
        self.sql("postgres", &format!("ALTER SYSTEM SET synchronous_standby_names = '{names}'"));
        self.sql("postgres", "SELECT pg_reload_conf()");
        let set = format!("SELECT current_setting('synchronous_standby_names') = '{names}'");
        super::until("the server has read its settings", || self.sql("postgres", &set) == "t");
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    /// The settings stand on the command line, because a standby takes over the files of its primary.
    fn options(&self) -> String {
        let own = [
            format!("port={}", self.port),
            "listen_addresses=127.0.0.1".into(),
            format!("unix_socket_directories={}", self.folder.display()),
            "max_connections=200".into(),
            // A process that is killed loses nothing that it has written, whatever the disk knows of it.
            "fsync=off".into(),
            // A commit that waits when a standby is made a synchronous one goes on at the next report of the standby. It has reported what
            // it has got, and so reports again after this time, by default 10 seconds.
            "wal_receiver_status_interval=1".into(),
        ];
        own.iter().chain(&self.settings).map(|setting| format!("-c '{setting}' ")).collect()
    }

    fn control(&self, arguments: &[&str]) {
        let status = as_ordinary(&self.programs.join("pg_ctl"))
            .arg("--pgdata")
            .arg(self.data())
            .arg("--wait")
            .args(arguments)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        assert!(status.unwrap().success(), "pg_ctl {arguments:?} failed; its log: {}", self.log());
    }

    /// Starts the server again.
    pub fn resume(&self) {
        let log = self.folder.join("log").display().to_string();
        self.control(&["--log", &log, "--options", &self.options(), "start"]);
    }

    /// Ends the server as a crash does: nothing is written any more, and it recovers at the next start.
    pub fn crash(&self) {
        self.control(&["--mode=immediate", "stop"]);
    }

    /// Returns the log of the server.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }

    /// Creates an empty database and returns its name.
    pub fn database(&self) -> String {
        self.copy_of("template1")
    }

    /// Creates a database with all that is in another one, to which nobody is connected, and returns its name.
    pub fn copy_of(&self, database: &str) -> String {
        let name = format!("ken{}", self.databases.fetch_add(1, Ordering::Relaxed));
        self.sql("postgres", &format!("CREATE DATABASE {name} TEMPLATE {database}"));
        name
    }

    /// Returns the URL of a database of this server or of another one, whichever can be written.
    pub fn url_of_both(&self, other: &Postgres, database: &str) -> String {
        let (own, others) = (self.port, other.port);
        format!("postgres://ken@127.0.0.1:{own},127.0.0.1:{others}/{database}?target_session_attrs=read-write")
    }

    /// Returns the URL of a database, over TCP.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://ken@127.0.0.1:{}/{database}", self.port)
    }

    /// Returns the URL of a database, over the Unix socket.
    pub fn socket_url(&self, database: &str) -> String {
        let folder = self.folder.display().to_string().replace('/', "%2F");
        format!("postgres://ken@{folder}:{}/{database}", self.port)
    }

    /// Runs statements and returns the values of the last one, one row a line.
    pub fn sql(&self, database: &str, sql: &str) -> String {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(sql.as_bytes()).unwrap();
        let mut command = Command::new(self.programs.join("psql"));
        command.args(["-XAtq", "-v", "ON_ERROR_STOP=1", "-d", &self.url(database), "-f"]).arg(file.path());
        output(command)
    }

    /// Returns everything that the tables of a database contain.
    pub fn dump(&self, database: &str) -> String {
        let mut command = Command::new(self.programs.join("pg_dump"));
        command.args(["--data-only", "-d", &self.url(database)]);
        output(command)
    }
}

fn output(mut command: Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
}

fn guard(script: &str, folder: &Path, program: &Path) -> (Child, ChildStdin) {
    let mut command = as_ordinary(Path::new("/bin/sh"));
    command.args(["-c", script, "guard"]).arg(folder).arg(program);
    let mut guard = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut ready = String::new();
    BufReader::new(guard.stdout.take().unwrap()).read_line(&mut ready).unwrap();
    let input = guard.stdin.take().unwrap();
    (guard, input)
}
