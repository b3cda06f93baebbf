//! A server that its entry starts with `npx` or `uvx`, as most READMEs say. Both fetch a package from a registry and run
//! a program of it. Here the two steps are apart: npm or uv installs the package once, in a process that reaches the network
//! and a folder of this server. Then the program itself is run, without npx or uvx, and without the network unless its entry
//! allows that.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use ken_tool::find_program;
use ken_types::places::Places;
use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::process::Command;
use tokio::time::{sleep, timeout};

use super::config::{ServerConfig, Transport};
use super::down::Down;
use super::stderr::Stderr;
use crate::entry::Permissions;
use crate::process::{sandbox, set_variables};

/// The time limit for installing a package.
const INSTALL: Duration = Duration::from_secs(300);
/// How often a process looks whether another one has installed the package.
const POLL: Duration = Duration::from_millis(100);
const PRIVATE: &str = "the sandbox lets it reach public addresses only; if the registry is in a network of your own, name it in the \
                       environment of ken: npm_config_registry=URL or UV_DEFAULT_INDEX=URL, and other hosts that packages come from \
                       in KEN_PACKAGE_HOSTS=HOST:PORT";
/// The maximum size of a file that npm writes, in bytes.
const MAX_BYTES: u64 = 16 * 1024 * 1024;
/// The variables in which an operator names a registry, which may be in a private network, and the addresses of other hosts
/// from which packages come.
const REGISTRIES: [&str; 6] =
    ["npm_config_registry", "NPM_CONFIG_REGISTRY", "UV_DEFAULT_INDEX", "UV_INDEX_URL", "UV_INDEX", "KEN_PACKAGE_HOSTS"];

/// How a launcher is told what to do.
struct Launcher {
    program: &'static str,
    /// How a person gets it.
    get: &'static str,
    /// The program that installs, beside it, and its first words.
    installer: &'static str,
    install: &'static [&'static str],
    /// The options that name the package.
    package: &'static [&'static str],
    /// Other options that are followed by a value.
    valued: &'static [&'static str],
    /// Options that mean nothing to the installer.
    dropped: &'static [&'static str],
    settings: &'static [(&'static str, &'static str)],
    /// The option that keeps the code of the package from running while it is installed. It is the last word, so that neither
    /// options nor variables of the entry, which a README may contain, take it back.
    runs_nothing: &'static str,
    /// The variables that name folders below that of the server.
    folders: &'static [(&'static str, &'static str)],
    /// What is removed before another package is installed.
    installed: &'static [&'static str],
}

const NPX: Launcher = Launcher {
    program: "npx",
    get: "install node with npm: apt-get install npm, or https://nodejs.org",
    installer: "npm",
    install: &["install", "--prefix", "."],
    package: &["--package", "-p"],
    valued: &["--registry", "--userconfig", "--loglevel", "-w", "--workspace"],
    dropped: &["-y", "--yes", "-q", "--quiet", "--prefer-online"],
    settings: &[
        ("npm_config_audit", "false"),
        ("npm_config_fund", "false"),
        ("npm_config_update_notifier", "false"),
        // The default waits for minutes before it says that there is no network.
        ("npm_config_fetch_retries", "1"),
        ("npm_config_fetch_retry_mintimeout", "1000"),
    ],
    runs_nothing: "--ignore-scripts",
    folders: &[],
    installed: &["node_modules", "package.json", "package-lock.json"],
};

const UVX: Launcher = Launcher {
    program: "uvx",
    get: "install uv: pipx install uv, or https://docs.astral.sh/uv",
    installer: "uv",
    install: &["tool", "install"],
    package: &["--from"],
    valued: &["--with", "--python", "-p", "--index", "--default-index", "--index-url", "--extra-index-url"],
    dropped: &["--isolated", "-q", "--quiet"],
    settings: &[("UV_NO_PROGRESS", "1"), ("UV_NO_CACHE", "1"), ("UV_LINK_MODE", "copy")],
    // A package that has to be built would run its own code.
    runs_nothing: "--no-build",
    folders: &[("UV_TOOL_DIR", "tools"), ("UV_TOOL_BIN_DIR", "bin"), ("UV_PYTHON_INSTALL_DIR", "python")],
    installed: &["tools", "bin"],
};

/// The words of an entry, apart from the launcher.
#[derive(Debug, Default, PartialEq)]
struct Words {
    options: Vec<String>,
    packages: Vec<String>,
    /// The program of the package, if its name is not that of the package.
    program: Option<String>,
    arguments: Vec<String>,
}

/// What is known of an installed package. It lies beside the folder of the server, which can put anything into its own folder
/// once it runs: a pipe in place of a file, for instance.
#[derive(Debug, Serialize, Deserialize)]
struct Installed {
    words: Vec<String>,
    program: PathBuf,
    /// The packages whose install scripts were not run.
    skipped: Vec<String>,
}

pub(crate) struct Package {
    launcher: &'static Launcher,
    installer: PathBuf,
    words: Words,
    runs_scripts: bool,
    folder: PathBuf,
}

impl Package {
    /// Returns the package of a server, or `None` if its command is neither `npx` nor `uvx` with a package.
    pub(crate) fn of(server: &ServerConfig) -> Result<Option<Package>, Down> {
        let Transport::Stdio { command, .. } = &server.reached else { return Ok(None) };
        let Some((program, arguments)) = command.split_first() else { return Ok(None) };
        let name = Path::new(program).file_name().unwrap_or_default();
        let Some(launcher) = [&NPX, &UVX].into_iter().find(|launcher| name == launcher.program) else {
            return Ok(None);
        };
        let Some(words) = launcher.read(arguments) else { return Ok(None) };
        let program = find_program(program).ok_or_else(|| Down {
            why: format!("{program} is not installed, or not on the PATH of ken"),
            remedy: Some(launcher.get.to_owned()),
            ..Down::default()
        })?;
        let beside = program.with_file_name(launcher.installer);
        let installer = Some(beside).filter(|file| file.is_file()).or_else(|| find_program(launcher.installer));
        let installer = installer.ok_or_else(|| format!("{} is not installed", launcher.installer))?;
        let places = Places::here(None).map_err(|error| error.to_string())?;
        let folder = places.state.join("mcp").join(&server.name);
        Ok(Some(Package { launcher, installer, words, runs_scripts: server.ken.install_scripts, folder }))
    }

    /// Returns the words after the installer.
    fn install_words(&self) -> Vec<String> {
        let own = self.launcher.install.iter().map(|word| (*word).to_owned());
        let nothing = Some(self.launcher.runs_nothing.to_owned()).filter(|_| !self.runs_scripts);
        let given = self.words.options.iter().chain(&self.words.packages).cloned();
        own.chain(given).chain(nothing).collect()
    }

    /// Returns a file of ken beside the folder.
    fn beside(&self, extension: &str) -> PathBuf {
        let mut name = self.folder.clone().into_os_string();
        name.push(extension);
        name.into()
    }

    fn installed(&self) -> Option<Installed> {
        let record: Installed = serde_json::from_slice(&fs::read(self.beside(".json")).ok()?).ok()?;
        (record.words == self.install_words() && self.folder.is_dir()).then_some(record)
    }

    pub(super) fn is_installed(&self) -> bool {
        self.installed().is_some()
    }

    /// Returns what is installed, for a person.
    pub(crate) fn describe(&self) -> String {
        let scripts = if self.runs_scripts { "its install scripts are run" } else { "its install scripts are not run" };
        let (packages, installer) = (self.words.packages.join(" "), self.launcher.installer);
        format!("{packages}, which {installer} installs in {}; {scripts}", self.folder.display())
    }

    /// Installs the package, unless it is there. Waits if another process installs it.
    pub(super) async fn install(&self, server: &ServerConfig, env: &BTreeMap<String, String>) -> Result<(), Down> {
        if self.is_installed() {
            return Ok(());
        }
        self.check_owner()?;
        let failed = |error: &dyn std::fmt::Display| format!("the folder {}: {error}", self.folder.display());
        fs::create_dir_all(&self.folder).map_err(|error| failed(&error))?;
        let _lock = self.lock().await.map_err(|error| failed(&error))?;
        if self.is_installed() {
            return Ok(());
        }
        tracing::info!(server = server.name, "the package of the MCP server is installed");
        self.clear().map_err(|error| failed(&error))?;
        run(self.install_command(server, env).await?).await?;
        let record = Installed { words: self.install_words(), program: self.program()?, skipped: self.skipped() };
        let record = serde_json::to_vec(&record).map_err(|error| failed(&error))?;
        fs::write(self.beside(".json"), record).map_err(|error| failed(&error).into())
    }

    /// What root installs for a system of another user, that user could not use.
    fn check_owner(&self) -> Result<(), Down> {
        let state = self.folder.ancestors().nth(2).unwrap_or(&self.folder);
        let own = nix::unistd::geteuid().as_raw();
        let Some(owner) = fs::metadata(state).ok().map(|meta| meta.uid()).filter(|owner| *owner != own) else {
            return Ok(());
        };
        let why =
            format!("{} belongs to the user with the id {owner}, who alone can install it there", state.display());
        let remedy = "a running system installs it by itself; `ken mcp list` shows when it has".to_owned();
        let remedy = Some(remedy);
        Err(Down { why, remedy, ..Down::default() })
    }

    /// Removes another package. The record goes first, so that half a package is never taken for a whole one.
    fn clear(&self) -> std::io::Result<()> {
        let installed = self.launcher.installed.iter().map(|name| self.folder.join(name));
        for path in std::iter::once(self.beside(".json")).chain(installed) {
            let removed = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
            match removed {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    async fn install_command(&self, server: &ServerConfig, env: &BTreeMap<String, String>) -> Result<Command, Down> {
        let own = &server.ken.touch;
        let mut reach = own.reach.clone();
        reach.extend(REGISTRIES.map(|name| format!("${name}")));
        let settings = user_settings().filter(|_| self.launcher.program == NPX.program && !self.runs_scripts);
        reach.extend(settings.iter().flat_map(|file| registries_in(file)));
        let touch = Permissions { read: own.read.clone(), reach, network: true, ..Permissions::default() };
        let mut command = sandbox(&touch, true).await?;
        self.allow_run(&mut command);
        if let Some(file) = &settings {
            command.arg("--read").arg(file);
        }
        set_variables(&mut command, &self.install_variables(settings, env))
            .map_err(|error| format!("no memory for the variables: {error}"))?;
        command.args(["--with-parent", "--cwd"]).arg(&self.folder).arg("--").arg(&self.installer);
        command.args(self.install_words());
        Ok(command)
    }

    /// Returns the variables of the installer: those of the operator, of the installer and of the entry.
    fn install_variables(
        &self,
        settings: Option<PathBuf>,
        env: &BTreeMap<String, String>,
    ) -> BTreeMap<String, OsString> {
        let mut variables = BTreeMap::new();
        variables.extend(REGISTRIES.into_iter().filter_map(|name| Some((name.to_owned(), std::env::var_os(name)?))));
        variables.extend(settings.map(|file| ("npm_config_userconfig".to_owned(), file.into_os_string())));
        variables.extend(self.launcher.settings.iter().map(|(name, value)| ((*name).to_owned(), value.into())));
        let folders = self.launcher.folders.iter();
        variables.extend(folders.map(|(name, below)| ((*name).to_owned(), self.folder.join(below).into_os_string())));
        variables.extend(env.iter().map(|(name, value)| (name.clone(), value.into())));
        variables
    }

    /// Lets a process use the folder, and what runs the programs in it.
    pub(super) fn allow_run(&self, command: &mut Command) {
        command.arg("--write").arg(&self.folder);
        for path in self.own_files() {
            command.arg("--read").arg(path);
        }
        // The roots that the operator has set for this machine.
        if let Some(roots) = std::env::var_os("SSL_CERT_FILE").filter(|file| Path::new(file).is_file()) {
            command.arg("--read").arg(&roots);
            for name in ["SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS"] {
                command.arg("--env").arg(name).env(name, &roots);
            }
        }
    }

    /// Returns the files that the installer needs besides its program, and node, if they lie in a home directory.
    fn own_files(&self) -> Vec<PathBuf> {
        let real = self.installer.canonicalize().unwrap_or_else(|_| self.installer.clone());
        let npm = real.ancestors().nth(2).filter(|folder| folder.ends_with("npm")).map(Path::to_owned);
        let node = self.installer.with_file_name("node");
        [Some(real), npm, Some(node)].into_iter().flatten().filter(|file| file.exists()).collect()
    }

    /// Returns the program of the installed package, and its arguments.
    pub(super) fn command(&self) -> Result<Vec<String>, Down> {
        let record = self.installed().ok_or_else(|| "its package is not installed".to_owned())?;
        let program = record.program.display().to_string();
        Ok(std::iter::once(program).chain(self.words.arguments.iter().cloned()).collect())
    }

    fn program(&self) -> Result<PathBuf, Down> {
        let program = match self.launcher.program {
            "npx" => self.npm_program(),
            _ => self.uv_program(),
        };
        let missing = || format!("the package {} has no program that could be run", self.words.packages.join(" "));
        Ok(program.ok_or_else(missing)?)
    }

    /// Reads a file that npm has written.
    fn json(&self, path: &str) -> Option<Value> {
        serde_json::from_slice(&ken_trusted::read_below(&self.folder, Path::new(path), MAX_BYTES).ok()?).ok()
    }

    /// Returns the program that npx would run: the named one, the only one, or the one with the name of the package.
    fn npm_program(&self) -> Option<PathBuf> {
        let name = match &self.words.program {
            Some(name) => name.clone(),
            None => self.npm_name()?,
        };
        Some(self.folder.join("node_modules/.bin").join(name)).filter(|file| file.exists())
    }

    fn npm_name(&self) -> Option<String> {
        let wanted = self.json("package.json")?;
        let package = wanted.get("dependencies")?.as_object()?.keys().next()?.clone();
        match self.json(&format!("node_modules/{package}/package.json"))?.get("bin")? {
            Value::Object(programs) if programs.len() == 1 => programs.keys().next().cloned(),
            _ => package.rsplit('/').next().map(str::to_owned),
        }
    }

    /// Returns the program that uvx would run, or the only one of the package.
    fn uv_program(&self) -> Option<PathBuf> {
        let bin = self.folder.join("bin");
        let package = self.words.packages.first()?;
        let name = self.words.program.as_deref().unwrap_or(package);
        let name = name.split(['@', '=', '<', '>', '!', '~', '[', ';', ' ']).next().unwrap_or_default();
        if !name.is_empty() && !name.contains('/') && bin.join(name).exists() {
            return Some(bin.join(name));
        }
        let mut programs = fs::read_dir(bin).ok()?.flatten();
        let only = programs.next()?.path();
        programs.next().is_none().then_some(only)
    }

    /// Returns the packages whose install scripts were not run.
    pub(super) fn skipped_scripts(&self) -> Vec<String> {
        self.installed().map(|record| record.skipped).unwrap_or_default()
    }

    /// Returns the packages that npm's lock file says have install scripts, if these are not run.
    fn skipped(&self) -> Vec<String> {
        let lock = if self.runs_scripts { None } else { self.json("package-lock.json") }.unwrap_or_default();
        let packages = lock.get("packages").and_then(Value::as_object).into_iter().flatten();
        let has_script = |package: &Value| package.get("hasInstallScript") == Some(&Value::Bool(true));
        let named = packages.filter(|(_, package)| has_script(package));
        named.map(|(path, _)| path.rsplit("node_modules/").next().unwrap_or_default().to_owned()).collect()
    }

    /// The daemon and a command can start the same server at the same time. The lock ends with the process.
    async fn lock(&self) -> std::io::Result<Flock<File>> {
        let mut file = File::create(self.beside(".lock"))?;
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
    /// Reads the words after the launcher. Returns `None` if no package is named.
    fn read(&self, given: &[String]) -> Option<Words> {
        let mut words = Words::default();
        let mut given = given.iter();
        while let Some(word) = given.next() {
            let (option, value) = match word.split_once('=') {
                Some((option, value)) => (option, Some(value.to_owned())),
                None => (word.as_str(), None),
            };
            if !word.starts_with('-') {
                if words.packages.is_empty() {
                    words.packages.push(word.clone());
                } else {
                    words.program = Some(word.clone());
                }
                words.arguments = given.cloned().collect();
                break;
            } else if self.package.contains(&option) {
                words.packages.extend(value.or_else(|| given.next().cloned()));
            } else if self.valued.contains(&word.as_str()) {
                words.options.extend(std::iter::once(word.clone()).chain(given.next().cloned()));
            } else if word != "--" && !self.dropped.contains(&option) {
                words.options.push(word.clone());
            }
        }
        (!words.packages.is_empty()).then_some(words)
    }
}

/// Returns npm's settings of the user who runs ken. They can name a registry and hold the key to it.
fn user_settings() -> Option<PathBuf> {
    let file = PathBuf::from(std::env::var_os("HOME")?).join(".npmrc");
    file.is_file().then_some(file)
}

/// Returns the registries that npm's settings name.
fn registries_in(file: &Path) -> Vec<String> {
    let text = fs::read_to_string(file).unwrap_or_default();
    let settings = text.lines().filter_map(|line| line.split_once('='));
    let named = settings.filter(|(name, _)| name.trim() == "registry" || name.trim().ends_with(":registry"));
    named.map(|(_, url)| url.trim().to_owned()).filter(|url| crate::reach::host_of(url).is_some()).collect()
}

/// Runs the command that installs a package.
async fn run(mut command: Command) -> Result<(), Down> {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn().map_err(|error| format!("the sandbox could not be started: {error}"))?;
    drop(command);
    let stderr = Stderr::default();
    if let Some(from) = child.stderr.take() {
        tokio::spawn(stderr.clone().read(from));
    }
    let why = match timeout(INSTALL, child.wait()).await {
        Ok(Ok(status)) if status.success() => return Ok(()),
        Ok(_) => "its package could not be installed".to_owned(),
        Err(_) => format!("its package could not be installed within {} s", INSTALL.as_secs()),
    };
    let said = stderr.last_lines().await;
    let shows = |signs: [&str; 2]| said.iter().any(|line| signs.iter().any(|sign| line.contains(sign)));
    let is_refused = shows(["'connect'", "tcp connect error"]) && shows(["your operating system", "Permission denied"]);
    Err(Down { why, said, remedy: is_refused.then(|| PRIVATE.to_owned()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_an_entry_name_options_packages_a_program_and_its_arguments() {
        let read = |launcher: &Launcher, words: &str| {
            let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
            launcher.read(&words).map(|read| {
                let joined = [read.options, read.packages, read.program.into_iter().collect(), read.arguments];
                joined.map(|words| words.join(" ")).join("|")
            })
        };
        for (launcher, words, wanted) in [
            (&NPX, "-y @scope/server-files /srv -p 3", "|@scope/server-files||/srv -p 3"),
            (&NPX, "-y --registry https://npm.test x@1.2", "--registry https://npm.test|x@1.2||"),
            (&NPX, "-y -p x -p y tool --stdio", "|x y|tool|--stdio"),
            (&NPX, "--package=x -- tool", "|x|tool|"),
            (&UVX, "mcp-server-git --repository /srv", "|mcp-server-git||--repository /srv"),
            (&UVX, "--python 3.12 --from git+https://x tool -p", "--python 3.12|git+https://x|tool|-p"),
        ] {
            assert_eq!(read(launcher, words).as_deref(), Some(wanted), "{words}");
        }
        assert_eq!((read(&NPX, "-y"), read(&UVX, "--version")), (None, None));
    }
}
