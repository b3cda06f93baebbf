//! A PostgreSQL server for tests: in a temporary folder, on a free port, with the programs of Debian's package.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use nix::unistd::{Gid, Uid, User, geteuid};

/// The reason for which tests are skipped without a server. `.ci/run` accepts it only if it could not install one.
pub const NO_POSTGRES: &str = "pg_ctl is not installed";

/// Runs until the test ends in any way, which closes its standard input. Then it stops the server and removes its folder.
const GUARD: &str =
    r#"echo ready; cat > /dev/null; "$2" -D "$1/data" stop -m immediate > /dev/null 2>&1; rm -rf -- "$1""#;

/// A running server.
pub struct Postgres {
    folder: PathBuf,
    port: u16,
    programs: PathBuf,
    databases: AtomicU32,
    _guard: (Child, ChildStdin),
}

/// Returns the folder with `pg_ctl`, `initdb` and `postgres`: one on the path, or that of the newest release of Debian's package.
fn programs() -> Option<PathBuf> {
    let on_path = std::env::var_os("PATH").unwrap_or_default();
    let mut packaged: Vec<PathBuf> = std::fs::read_dir("/usr/lib/postgresql")
        .map(|releases| releases.flatten().map(|release| release.path().join("bin")).collect())
        .unwrap_or_default();
    packaged.sort();
    let folders = std::env::split_paths(&on_path).chain(packaged.into_iter().rev());
    let mut whole =
        folders.filter(|folder| ["pg_ctl", "initdb", "postgres"].iter().all(|name| folder.join(name).is_file()));
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

impl Postgres {
    /// Starts a server with additional settings (`name=value`). Returns `None` if the programs are not installed.
    pub fn start(settings: &[&str]) -> Option<Postgres> {
        let programs = programs()?;
        let folder = tempfile::tempdir().unwrap().keep();
        if let Some((user, group)) = ordinary_user() {
            chown(&folder, Some(user.as_raw()), Some(group.as_raw())).unwrap();
        }
        let guard = guard(&folder, &programs);
        let made = as_ordinary(&programs.join("initdb"))
            .args(["--auth=trust", "--username=ken", "--encoding=UTF8", "--locale=C.UTF-8", "--no-sync", "--pgdata"])
            .arg(folder.join("data"))
            .stdout(Stdio::null())
            .status();
        assert!(made.unwrap().success(), "initdb failed");
        let port = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
        let server = Postgres { folder, port, programs, databases: AtomicU32::new(0), _guard: guard };
        server.configure(settings);
        server.resume();
        Some(server)
    }

    fn configure(&self, settings: &[&str]) {
        let own = [
            format!("port = {}", self.port),
            "listen_addresses = '127.0.0.1'".into(),
            format!("unix_socket_directories = '{}'", self.folder.display()),
            "max_connections = 200".into(),
            // A process that is killed loses nothing that it has written, whatever the disk knows of it.
            "fsync = off".into(),
        ];
        let lines = own.iter().map(String::as_str).chain(settings.iter().copied());
        let mut file = std::fs::OpenOptions::new().append(true).open(self.folder.join("data/postgresql.conf")).unwrap();
        lines.for_each(|line| writeln!(file, "{line}").unwrap());
    }

    fn control(&self, arguments: &[&str]) {
        let status = as_ordinary(&self.programs.join("pg_ctl"))
            .arg("--pgdata")
            .arg(self.folder.join("data"))
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
        self.control(&["--log", &log, "start"]);
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
        let name = format!("ken{}", self.databases.fetch_add(1, Ordering::Relaxed));
        self.sql("postgres", &format!("CREATE DATABASE {name}"));
        name
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
        let mut command = Command::new("psql");
        command.args(["-XAtq", "-v", "ON_ERROR_STOP=1", "-d", &self.url(database), "-f"]).arg(file.path());
        output(command)
    }

    /// Returns everything that the tables of a database contain.
    pub fn dump(&self, database: &str) -> String {
        let mut command = Command::new("pg_dump");
        command.args(["--data-only", "-d", &self.url(database)]);
        output(command)
    }
}

fn output(mut command: Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
}

fn guard(folder: &Path, programs: &Path) -> (Child, ChildStdin) {
    let mut command = as_ordinary(Path::new("/bin/sh"));
    command.args(["-c", GUARD, "guard"]).arg(folder).arg(programs.join("pg_ctl"));
    let mut guard = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut ready = String::new();
    BufReader::new(guard.stdout.take().unwrap()).read_line(&mut ready).unwrap();
    let input = guard.stdin.take().unwrap();
    (guard, input)
}
