//! A server that its entry starts with `npx` or `uvx`, as most READMEs say. Both fetch a package from a registry and run
//! a program of it. Here the two steps are apart: the package is fetched once, by a process that reaches the network and
//! a folder of this server, and runs nothing of the package. The server then runs with this folder, and without the
//! network unless its entry allows that.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use ken_tool::find_program;
use ken_types::places::Places;
use nix::fcntl::{Flock, FlockArg};
use tokio::process::Command;
use tokio::time::{sleep, timeout};

use super::config::ServerConfig;
use super::down::Down;
use super::stderr::Stderr;
use crate::entry::Permissions;
use crate::process::sandbox;

/// The time limit for fetching a package.
const FETCH: Duration = Duration::from_secs(300);
/// How often a process looks whether another one has fetched the package.
const POLL: Duration = Duration::from_millis(100);
/// The file in the folder that holds the words with which the package was fetched, once that is done.
const FETCHED: &str = "fetched";
const LOCK: &str = "lock";

/// How a launcher is told what to do.
struct Launcher {
    program: &'static str,
    /// The options that name the package.
    package: &'static [&'static str],
    /// Other options that are followed by a value.
    valued: &'static [&'static str],
    /// What is run instead of the program of the package.
    nothing: &'static [&'static str],
    /// The variables that name folders, and the folders below that of the server.
    folders: &'static [(&'static str, &'static str)],
    fetches: &'static [(&'static str, &'static str)],
    runs: &'static [(&'static str, &'static str)],
}

const NPX: Launcher = Launcher {
    program: "npx",
    package: &["--package", "-p"],
    valued: &["--registry", "--userconfig", "--loglevel", "-w", "--workspace"],
    nothing: &["-c", "true"],
    folders: &[("npm_config_cache", "npm")],
    fetches: &[
        ("npm_config_yes", "true"),
        ("npm_config_ignore_scripts", "true"),
        ("npm_config_update_notifier", "false"),
        ("npm_config_logs_max", "0"),
        // The default waits for minutes before it says that there is no network.
        ("npm_config_fetch_retries", "1"),
        ("npm_config_fetch_retry_mintimeout", "1000"),
    ],
    runs: &[
        ("npm_config_yes", "true"),
        ("npm_config_offline", "true"),
        ("npm_config_update_notifier", "false"),
        ("npm_config_logs_max", "0"),
    ],
};

const UVX: Launcher = Launcher {
    program: "uvx",
    package: &["--from"],
    valued: &["--with", "--python", "-p", "--index", "--default-index", "--index-url", "--extra-index-url"],
    nothing: &["python", "-V"],
    folders: &[("UV_CACHE_DIR", "uv"), ("UV_PYTHON_INSTALL_DIR", "python")],
    // A package that has to be built would run its own code.
    fetches: &[("UV_NO_BUILD", "1"), ("UV_NO_PROGRESS", "1")],
    runs: &[("UV_OFFLINE", "1")],
};

/// The package of a server.
pub(super) struct Package {
    launcher: &'static Launcher,
    program: PathBuf,
    /// The arguments with which the launcher fetches it.
    fetch: Vec<String>,
    folder: PathBuf,
}

impl Package {
    /// Returns the package of a server, or `None` if its command is neither `npx` nor `uvx` with a package.
    pub(super) fn of(server: &str, command: &[String]) -> Result<Option<Package>, Down> {
        let Some((program, arguments)) = command.split_first() else { return Ok(None) };
        let name = Path::new(program).file_name().unwrap_or_default();
        let Some(launcher) = [&NPX, &UVX].into_iter().find(|launcher| name == launcher.program) else {
            return Ok(None);
        };
        let Some(fetch) = launcher.fetch_arguments(arguments) else { return Ok(None) };
        let program = find_program(program).ok_or_else(|| Down {
            why: format!("{program} is not installed, or not on the PATH of ken"),
            ..Down::default()
        })?;
        let uid = nix::unistd::geteuid().as_raw();
        let places = Places::resolve(None, uid, |name| std::env::var_os(name).map(PathBuf::from));
        let places = places.map_err(|error| error.to_string())?;
        Ok(Some(Package { launcher, program, fetch, folder: places.state.join("mcp").join(server) }))
    }

    pub(super) fn is_fetched(&self) -> bool {
        fs::read_to_string(self.folder.join(FETCHED)).is_ok_and(|words| words == self.fetch.join("\n"))
    }

    /// Fetches the package, unless it is there. Waits if another process fetches it.
    pub(super) async fn fetch(&self, server: &ServerConfig, env: &BTreeMap<String, String>) -> Result<(), Down> {
        let failed = |error: &dyn std::fmt::Display| format!("the folder {}: {error}", self.folder.display());
        fs::create_dir_all(&self.folder).map_err(|error| failed(&error))?;
        let _lock = self.lock().await.map_err(|error| failed(&error))?;
        if self.is_fetched() {
            return Ok(());
        }
        tracing::info!(server = server.name, "the package of the MCP server is fetched");
        let own = &server.ken.touch;
        let touch =
            Permissions { read: own.read.clone(), reach: own.reach.clone(), network: true, ..Permissions::default() };
        let mut command = sandbox(&touch, true).await?;
        self.allow(&mut command, self.launcher.fetches);
        for (name, value) in env {
            command.arg("--env").arg(name).env(name, value);
        }
        command.args(["--with-parent", "--cwd", "/", "--"]).arg(&self.program).args(&self.fetch);
        run(command).await?;
        fs::write(self.folder.join(FETCHED), self.fetch.join("\n")).map_err(|error| failed(&error).into())
    }

    /// Lets the server use what was fetched.
    pub(super) fn allow_run(&self, command: &mut Command) {
        self.allow(command, self.launcher.runs);
    }

    fn allow(&self, command: &mut Command, settings: &[(&str, &str)]) {
        command.arg("--write").arg(&self.folder);
        for path in self.launcher.own_files(&self.program) {
            command.arg("--read").arg(path);
        }
        for (name, below) in self.launcher.folders {
            command.arg("--env").arg(name).env(name, self.folder.join(below));
        }
        for (name, value) in settings {
            command.arg("--env").arg(name).env(name, value);
        }
        // The roots that the operator has set for this machine.
        if let Some(roots) = std::env::var_os("SSL_CERT_FILE").filter(|file| Path::new(file).is_file()) {
            command.arg("--read").arg(&roots);
            for name in ["SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS"] {
                command.arg("--env").arg(name).env(name, &roots);
            }
        }
    }

    /// The daemon and a command can start the same server at the same time. The lock ends with the process.
    async fn lock(&self) -> std::io::Result<Flock<File>> {
        let mut file = File::create(self.folder.join(LOCK))?;
        loop {
            match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
                Ok(lock) => return Ok(lock),
                Err((again, nix::errno::Errno::EWOULDBLOCK)) => file = again,
                Err((_, error)) => return Err(error.into()),
            }
            sleep(POLL).await;
        }
    }
}

impl Launcher {
    /// Returns the arguments that fetch the package and run nothing of it, or `None` if no package is named.
    fn fetch_arguments(&self, arguments: &[String]) -> Option<Vec<String>> {
        let (mut words, mut is_named) = (Vec::new(), false);
        let mut arguments = arguments.iter().filter(|word| *word != "--");
        while let Some(word) = arguments.next() {
            if !word.starts_with('-') {
                if !is_named {
                    words.extend([(*self.package.first()?).to_owned(), word.clone()]);
                    is_named = true;
                }
                break;
            }
            let option = word.split('=').next().unwrap_or_default();
            is_named |= self.package.contains(&option);
            words.push(word.clone());
            if self.package.contains(&word.as_str()) || self.valued.contains(&word.as_str()) {
                words.extend(arguments.next().cloned());
            }
        }
        words.extend(self.nothing.iter().map(|word| (*word).to_owned()));
        is_named.then_some(words)
    }

    /// Returns the files that the launcher itself needs besides its program, for one that lies in a home directory.
    fn own_files(&self, program: &Path) -> Vec<PathBuf> {
        let real = program.canonicalize().unwrap_or_else(|_| program.to_owned());
        let npm = real.ancestors().nth(2).filter(|folder| folder.ends_with("npm")).map(Path::to_owned);
        let node = program.with_file_name("node");
        let uv = real.with_file_name("uv");
        let files = match self.program {
            "npx" => vec![npm, Some(node)],
            _ => vec![Some(uv)],
        };
        files.into_iter().flatten().filter(|file| file.exists()).collect()
    }
}

/// Runs the command that fetches a package.
async fn run(mut command: Command) -> Result<(), Down> {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn().map_err(|error| format!("the sandbox could not be started: {error}"))?;
    drop(command);
    let stderr = Stderr::default();
    if let Some(from) = child.stderr.take() {
        tokio::spawn(stderr.clone().read(from));
    }
    let why = match timeout(FETCH, child.wait()).await {
        Ok(Ok(status)) if status.success() => return Ok(()),
        Ok(_) => "its package could not be fetched".to_owned(),
        Err(_) => format!("its package could not be fetched within {} s", FETCH.as_secs()),
    };
    Err(Down { why, said: stderr.last_lines().await, remedy: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_is_fetched_with_the_options_of_the_entry_and_nothing_of_it_is_run() {
        let of = |launcher: &Launcher, words: &str| {
            let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
            launcher.fetch_arguments(&words).map(|words| words.join(" "))
        };
        for (launcher, words, fetches) in [
            (&NPX, "-y @scope/server-files /srv -p 3", "-y --package @scope/server-files -c true"),
            (&NPX, "-y --registry https://npm.test x@1.2", "-y --registry https://npm.test --package x@1.2 -c true"),
            (&NPX, "-y -p x -p y tool --stdio", "-y -p x -p y -c true"),
            (&NPX, "--package=x -- tool", "--package=x -c true"),
            (&UVX, "mcp-server-git --repository /srv", "--from mcp-server-git python -V"),
            (&UVX, "--python 3.12 --from git+https://x tool -p", "--python 3.12 --from git+https://x python -V"),
        ] {
            assert_eq!(of(launcher, words).as_deref(), Some(fetches), "{words}");
        }
        assert_eq!((of(&NPX, "-y"), of(&UVX, "--version")), (None, None));
    }
}
