//! The program, arguments, environment, secrets and limits of a part's process.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CString, OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use ken_types::clock;
use ken_types::config::{Calls, Config, PROXIES, Part, STORE_URL, WITHOUT_PROXY, Walls, is_over_network};
use ken_types::error::JSON_ERRORS;
use ken_types::places::Places;
use ken_types::providers::key_names;
use ken_types::share;
use ken_walls::kernel::has_filters;
use ken_walls::part::{CALLS_VARIABLE, Files};
use nix::unistd::{AccessFlags, access};

use crate::config::Loaded;

/// First descriptor of a passed socket (sd_listen_fds(3)).
pub(crate) const FIRST_FD: i32 = 3;

/// Formats a section as text. Two texts are equal exactly if the sections are equal.
type FormatSection = fn(&Config) -> String;

/// The sections that a part can list in `reads`. Of the workspace a part may need the folder alone: the tool of the coding worker
/// reads the rest for each call. Of the models, ken-agent needs the judge alone, because ken-model makes the calls.
pub(crate) const SECTIONS: [(&str, FormatSection); 14] = [
    ("gateway", |config| format!("{:?}", config.gateway)),
    ("cognitive", |config| format!("{:?}", config.cognitive)),
    ("chat", |config| format!("{:?}", config.chat)),
    ("doors", |config| format!("{:?}", config.doors)),
    ("chat.memory", |config| format!("{:?}", config.chat.memory)),
    ("retention", |config| format!("{:?}", config.retention)),
    ("store", |config| format!("{:?}", config.store)),
    ("model", |config| format!("{:?}", config.model)),
    ("model.judge", |config| config.model.judge.clone()),
    ("telemetry", |config| format!("{:?}", config.telemetry)),
    ("approvals", |config| format!("{:?}", config.approvals)),
    ("limits", |config| format!("{:?}", config.limits)),
    ("workspace", |config| format!("{:?}", config.workspace)),
    ("workspace.root", |config| config.workspace.root.clone()),
];

/// The variable with the file of the certificates that a part trusts.
const CERTIFICATES: &str = "SSL_CERT_FILE";

/// The variables that every part gets from kend's own environment, besides `LC_*`.
const PASSED_VARIABLES: [&str; 6] = ["PATH", "HOME", "LANG", "TZ", "RUST_LOG", "KEN_LOG"];

/// Everything that determines the process of a part. If a reload leaves this value unchanged, the process keeps
/// running.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct Launch {
    pub(crate) program: CString,
    pub(crate) args: Vec<CString>,
    /// The environment without `LISTEN_PID`, whose value only the child knows.
    pub(crate) env: Vec<CString>,
    /// `NAME=value` and a NUL for each secret. Secrets are not passed in the environment, because child processes would
    /// inherit it.
    pub(crate) secrets: Vec<u8>,
    pub(crate) nofile: u64,
    pub(crate) address_space: u64,
    pub(crate) nproc: u64,
    pub(crate) nice: u8,
    pub(crate) new_privileges: bool,
    /// `None` for a part without walls.
    pub(crate) walls: Option<Files>,
    /// The files of the system for which it has rules, and that other programs replace.
    replaceable: BTreeMap<&'static str, (u64, u64)>,
    /// The configuration sections that the part reads, as text.
    sections: String,
}

impl Launch {
    /// Returns the reason as text if there is no such program or a value contains a NUL character.
    pub(crate) fn new(name: &str, part: &Part, loaded: &Loaded, places: &Places) -> Result<Launch, String> {
        let path = program(name, part, places)?;
        let mut env = environment(part, loaded, places);
        env.extend(hosts_without_proxy(name, part, loaded));
        let secrets = secrets(name, part, loaded);
        if !secrets.is_empty() {
            env.insert("KEN_SECRETS_FD".into(), (config_fd(part) + 1).to_string().into());
        }
        let walls = walls(part, &path, places).map(|walls| with_database(walls, name, loaded, &env));
        let walls = walls.map(|walls| with_files_of_variables(walls, &env));
        // A part that is told to restrict itself does not start if it cannot.
        let restricted = walls.as_ref().filter(|_| has_filters());
        env.extend(restricted.map(|walls| (OsString::from(CALLS_VARIABLE), OsString::from(walls.calls.name()))));
        Ok(Launch {
            replaceable: walls.as_ref().map(Files::replaceable).unwrap_or_default(),
            walls,
            secrets,
            nofile: part.nofile,
            address_space: part.address_space,
            nproc: part.nproc,
            nice: part.nice,
            new_privileges: part.new_privileges,
            sections: sections(part, &loaded.config),
            ..Launch::of(&path, part.command.get(1..).unwrap_or_default(), &env)?
        })
    }

    /// Whether a file of the system is there now for which a process that was started with this has no rule. For a file that is gone
    /// nothing could be done.
    pub(crate) fn lacks_files(&self) -> bool {
        let now = self.walls.as_ref().map(Files::replaceable).unwrap_or_default();
        now.iter().any(|(path, inode)| self.replaceable.get(path) != Some(inode))
    }

    /// Of a command of ken(1), with the environment that kend has from the person who started it: what the command says is then
    /// true of this system.
    pub(crate) fn of_command(words: &[String], places: &Places) -> Result<Launch, String> {
        let env = command_environment(std::env::vars_os(), places);
        // As many files as kend itself may have: the doctor reports the limit.
        Ok(Launch { nofile: u64::MAX, new_privileges: true, ..Launch::of(&find_program("ken")?, words, &env)? })
    }

    fn of(path: &Path, words: &[String], env: &Variables) -> Result<Launch, String> {
        let text =
            |value: &OsStr| CString::new(value.as_bytes()).map_err(|_| String::from("a value holds a NUL character"));
        let args = std::iter::once(path.as_os_str()).chain(words.iter().map(OsStr::new)).map(text);
        Ok(Launch {
            program: text(path.as_os_str())?,
            args: args.collect::<Result<_, _>>()?,
            env: env.iter().map(|(name, value)| text(&pair(name, value))).collect::<Result<_, _>>()?,
            ..Launch::default()
        })
    }
}

/// An environment, by name.
type Variables = BTreeMap<OsString, OsString>;

/// What systemd has given to kend alone.
const OWN_VARIABLES: [&str; 6] =
    ["NOTIFY_SOCKET", "LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "WATCHDOG_PID", "WATCHDOG_USEC"];

/// The environment of a command: that of kend, with the places of this system.
fn command_environment(of_kend: impl Iterator<Item = (OsString, OsString)>, places: &Places) -> Variables {
    let is_kept = |name: &OsStr| name != "KEN_HOME" && !OWN_VARIABLES.iter().any(|own| name == *own);
    let mut variables: Variables = of_kend.filter(|(name, _)| is_kept(name)).collect();
    variables.extend(place_variables(places));
    // With a configuration outside of the home, the home alone would name another one.
    let home = places.home.as_ref().filter(|home| places.config.parent() == Some(home));
    variables.extend(home.map(|home| (OsString::from("KEN_HOME"), OsString::from(home))));
    variables
}

fn place_variables(places: &Places) -> [(OsString, OsString); 4] {
    let own = [("KEN_CONFIG", &places.config), ("KEN_RUN_DIR", &places.run), ("KEN_STATE_DIR", &places.state)];
    let [config, run, state] = own.map(|(name, path)| (name.into(), path.into()));
    [config, run, state, (JSON_ERRORS.0.into(), JSON_ERRORS.1.into())]
}

/// Without no-new-privileges the kernel takes no rules from an ordinary user.
fn walls(part: &Part, program: &Path, places: &Places) -> Option<Files> {
    let Walls { calls, read, write, run } = &part.walls;
    if *calls == Calls::Any || part.new_privileges {
        return None;
    }
    let is_own =
        |path: &&String| path.starts_with(OWN_FOLDER) || path.starts_with(CONFIG_FOLDER) && path.ends_with('/');
    let own = read.iter().chain(write).filter(is_own).flat_map(|path| expand(path, places)).collect();
    let mut read: Vec<PathBuf> = read.iter().flat_map(|path| expand(path, places)).collect();
    read.push(places.config.clone());
    let write = write.iter().flat_map(|path| expand(path, places)).collect();
    let run = run.iter().filter_map(|name| find_program(name).ok()).collect();
    Some(Files { calls: *calls, program: program.to_owned(), read, write, run, own })
}

fn value<'a>(env: &'a Variables, name: &str) -> Option<&'a str> {
    env.get(OsStr::new(name))?.to_str().filter(|value| !value.is_empty())
}

/// A variable can name a file of a part that runs other programs: a certificate, a script, or the models of ken-textgen(1).
fn with_files_of_variables(mut walls: Files, env: &Variables) -> Files {
    if !walls.calls.runs_named() {
        return walls;
    }
    let value = |name: &str| value(env, name);
    walls.read.extend([CERTIFICATES, "KEN_SCRIPT"].into_iter().filter_map(value).map(PathBuf::from));
    let entries = value("MVLM_MODEL_DIRS").unwrap_or_default().split(',');
    let folders = entries.filter_map(|entry| Some(PathBuf::from(entry.split_once([':', '='])?.1.trim())));
    // As with those of the configuration.
    for folder in folders.filter(|folder| folder.exists()) {
        walls.read.extend(linked(&folder));
        walls.read.push(folder);
    }
    walls
}

/// The files that links in a folder lead to, as in the cache of downloaded models. A rule for the folder does not cover them.
fn linked(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let links = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_symlink()));
    let mut files: Vec<PathBuf> = links.filter_map(|link| link.path().canonicalize().ok()).collect();
    files.sort();
    files
}

/// The store may use the network exactly if its database is on another machine. The certificates may be read for every URL, because
/// which options of one lead to another machine is left to the library that connects.
fn with_database(mut walls: Files, part_name: &str, loaded: &Loaded, env: &Variables) -> Files {
    let secret = loaded.secrets.get(STORE_URL).cloned().or_else(|| std::env::var(STORE_URL).ok());
    let url = secret.filter(|url| !url.is_empty()).unwrap_or_else(|| loaded.config.store.url.clone());
    if part_name == "store" && walls.calls == Calls::Local && !url.is_empty() {
        walls.read.extend(value(env, CERTIFICATES).map(PathBuf::from));
        if is_over_network(&url) {
            walls.calls = Calls::Network;
        }
    }
    walls
}

/// Stand for the state directory, the folders of the installed data files, and those of the configuration in the walls of a part.
pub(crate) const OWN_FOLDER: &str = "STATE/";
pub(crate) const SHARED_FOLDER: &str = "SHARE/";
pub(crate) const CONFIG_FOLDER: &str = "CONFIG/";

fn expand(path: &str, places: &Places) -> Vec<PathBuf> {
    if let Some(below) = path.strip_prefix(OWN_FOLDER) {
        return vec![places.state.join(below)];
    }
    if let Some(below) = path.strip_prefix(CONFIG_FOLDER) {
        return of_configuration(below, places);
    }
    match path.strip_prefix(SHARED_FOLDER) {
        Some(below) => share::folders().into_iter().map(|folder| folder.join(below)).collect(),
        None => vec![PathBuf::from(path)],
    }
}

/// What of this name is in the folder of the configuration, and in the folder where a part looks for files of the user (share.rs of
/// ken-types). There is no rule for what does not exist. When a file comes to be, the next start of the part has one; a reload starts
/// it anew. A name that ends with a slash is that of a folder, which kend makes before the part starts, if it may.
fn of_configuration(name: &str, places: &Places) -> Vec<PathBuf> {
    let home = std::env::var_os("HOME").filter(|home| !home.is_empty());
    let of_user = places.home.clone().or_else(|| Some(Path::new(&home?).join(".config/ken")));
    let folders = places.config.parent().map(Path::to_owned).into_iter().chain(of_user);
    let paths = folders.map(|folder| folder.join(name));
    let mut found: Vec<PathBuf> = paths.filter(|path| name.ends_with('/') || path.exists()).collect();
    found.dedup();
    let links: Vec<PathBuf> = found.iter().flat_map(|folder| linked(folder)).collect();
    found.extend(links);
    found
}

/// Returns the sections that a part reads as text. check.rs has refused unknown names.
fn sections(part: &Part, config: &Config) -> String {
    let read = SECTIONS.iter().filter(|(name, _)| part.reads.iter().any(|read| read == name));
    read.map(|(_, shown)| shown(config)).collect()
}

/// Finds the program of a part, first beside kend, then on PATH. A name with a slash is a path relative to the folder
/// of the configuration.
pub(crate) fn program(name: &str, part: &Part, places: &Places) -> Result<PathBuf, String> {
    let default = format!("ken-{name}");
    let program = part.command.first().unwrap_or(&default);
    if program.is_empty() {
        return Err(String::from("the program's name is empty"));
    }
    if program.contains('/') {
        let base = places.config.parent().unwrap_or(Path::new("/"));
        let path = base.join(program);
        return if is_runnable(&path) { Ok(path) } else { Err(format!("no program {}", path.display())) };
    }
    find_program(program)
}

fn is_runnable(path: &Path) -> bool {
    access(path, AccessFlags::X_OK).is_ok() && path.is_file()
}

/// Finds a program beside kend, then on PATH.
fn find_program(program: &str) -> Result<PathBuf, String> {
    let beside = std::env::current_exe().ok().and_then(|exe| exe.parent().map(Path::to_owned));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = beside.iter().cloned().chain(std::env::split_paths(&path));
    folders.map(|folder| folder.join(program)).find(|path| path.is_absolute() && is_runnable(path)).ok_or_else(|| {
        let beside = beside.unwrap_or_default();
        format!("no program `{program}` beside kend ({}) or on PATH", beside.display())
    })
}

fn environment(part: &Part, loaded: &Loaded, places: &Places) -> Variables {
    let mut variables: Variables = std::env::vars_os().filter(|(name, _)| allowed(name)).collect();
    let secret = |name: &str| loaded.secrets.get(name).map(OsString::from);
    variables.extend(part.env.iter().filter_map(|entry| match entry.split_once('=') {
        Some((name, value)) => Some((OsString::from(name), OsString::from(value))),
        None => Some((OsString::from(entry), std::env::var_os(entry).or_else(|| secret(entry))?)),
    }));
    variables.extend(own_variables(part, places));
    variables
}

/// Returns the secrets of a part in the form in which they are passed: `NAME=value` and a NUL for each. ken-model, and no other part,
/// also gets the keys of the providers.
fn secrets(part_name: &str, part: &Part, loaded: &Loaded) -> Vec<u8> {
    let keys = key_names(&loaded.config.model.provider).filter(|_| part_name == "model");
    let proxies = PROXIES.into_iter().filter(|_| uses_proxies(part_name, part));
    let names: BTreeSet<&str> = part.secrets.iter().map(String::as_str).chain(keys).chain(proxies).collect();
    let mut text = Vec::new();
    for name in names {
        let value = loaded.secrets.get(name).map(OsString::from);
        if let Some(value) = value.or_else(|| std::env::var_os(name)) {
            text.extend_from_slice(pair(OsStr::new(name), &value).as_bytes());
            text.push(0);
        }
    }
    text
}

/// Whether a part reaches other machines over HTTP. ken-tools does for MCP servers; no other program that it starts is told.
fn uses_proxies(part_name: &str, part: &Part) -> bool {
    part.walls.calls.reaches_out() || part_name == "tools"
}

fn hosts_without_proxy(part_name: &str, part: &Part, loaded: &Loaded) -> Variables {
    let names = WITHOUT_PROXY.into_iter().filter(|_| uses_proxies(part_name, part));
    let value = |name| loaded.secrets.get(name).map(OsString::from).or_else(|| std::env::var_os(name));
    names.filter_map(|name| Some((OsString::from(name), value(name)?))).collect()
}

fn pair(name: &OsStr, value: &OsStr) -> OsString {
    [name, OsStr::new("="), value].into_iter().collect()
}

fn allowed(name: &OsStr) -> bool {
    PASSED_VARIABLES.iter().any(|allowed| name == *allowed)
        || name.as_bytes().starts_with(b"LC_")
        || cfg!(debug_assertions) && name == clock::VARIABLE
}

/// The variables that kend sets for each part.
fn own_variables(part: &Part, places: &Places) -> impl Iterator<Item = (OsString, OsString)> {
    let names: Vec<&str> = part.sockets.keys().map(String::as_str).collect();
    let watchdog_us = (part.watchdog_ms > 0).then(|| part.watchdog_ms.saturating_mul(1000).to_string());
    let given = [
        ("NOTIFY_SOCKET", Some(places.socket("notify").into())),
        ("LISTEN_FDS", Some(names.len().to_string().into())),
        ("LISTEN_FDNAMES", Some(names.join(":").into())),
        ("KEN_GUARD_FD", Some(guard_fd(part).to_string().into())),
        ("KEN_CONFIG_FD", Some(config_fd(part).to_string().into())),
        ("KEN_HOME", places.home.as_ref().map(OsString::from)),
        ("WATCHDOG_USEC", watchdog_us.map(OsString::from)),
    ];
    let given = given.into_iter().filter_map(|(name, value)| Some((name.into(), value?)));
    // The path of the configuration is set even if there is no such file. Otherwise all parts would restart when it is created.
    place_variables(places).into_iter().chain(given)
}

/// Returns the number of the guard descriptor. It follows the sockets; after it come the lock, the configuration and the secrets.
fn guard_fd(part: &Part) -> i32 {
    FIRST_FD + i32::try_from(part.sockets.len()).unwrap_or_default()
}

fn config_fd(part: &Part) -> i32 {
    guard_fd(part) + 2
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::load;

    fn places() -> Places {
        Places::resolve(Some(Path::new("/home/of/ken")), 0, |_| None).unwrap()
    }

    fn loaded() -> Loaded {
        load(Path::new("/home/of/ken/ken.toml"), false).0
    }

    fn texts(variables: Variables) -> Vec<String> {
        variables.iter().map(|(name, value)| pair(name, value).into_string().unwrap()).collect()
    }

    fn count(pairs: &[String], start: &str) -> usize {
        pairs.iter().filter(|pair| pair.starts_with(start)).count()
    }

    /// A command is told of this system, and nothing of what systemd has given to kend.
    #[test]
    fn a_command_has_the_environment_of_kend_with_the_places_of_the_system() {
        let of_kend = ["LANG=C", "KEN_HOME=/other", "KEN_CONFIG=/other", "LISTEN_PID=7", "WATCHDOG_USEC=1", "MAIL=x"];
        let environment = |places: &Places| {
            let pairs = of_kend.iter().map(|pair| pair.split_once('=').unwrap());
            texts(command_environment(pairs.map(|(name, value)| (name.into(), value.into())), places))
        };
        let found = environment(&places());
        let starts = ["LANG=C", "MAIL=x", "KEN_CONFIG=", "KEN_HOME=", "LISTEN_PID=", "WATCHDOG"];
        assert_eq!(starts.map(|start| count(&found, start)), [1, 1, 1, 1, 0, 0]);
        assert!(found.contains(&"KEN_HOME=/home/of/ken".to_owned()));
        // If the configuration is outside the home, KEN_HOME is not set: it would lead to another configuration.
        let elsewhere = Places { config: PathBuf::from("/etc/ken.toml"), ..places() };
        assert_eq!(count(&environment(&elsewhere), "KEN_HOME="), 0);
    }

    #[test]
    fn a_part_has_each_of_its_variables_once() {
        let part = |env: &[&str], watchdog_ms: u64| Part {
            env: env.iter().map(|name| (*name).to_owned()).collect(),
            watchdog_ms,
            ..Part::default()
        };
        let mut loaded = loaded();
        loaded.secrets.insert("KEN_TEST_GIVEN".to_owned(), "secret".to_owned());
        let of = |part: &Part| texts(environment(part, &loaded, &places()));
        let found = of(&part(&["PATH=/first", "PATH=/second", "KEN_TEST_GIVEN", "KEN_TEST_MISSING"], 0));
        assert_eq!(found.iter().filter(|pair| pair.starts_with("PATH=")).collect::<Vec<_>>(), ["PATH=/second"]);
        assert_eq!(["KEN_TEST_GIVEN=secret", "KEN_TEST_MISSING"].map(|start| count(&found, start)), [1, 0]);
        for (watchdog_ms, expected) in [(0, 0), (1, 1)] {
            assert_eq!(count(&of(&part(&[], watchdog_ms)), "WATCHDOG_USEC=1000"), expected);
        }
        let names = ["PATH", "LC_ALL", "LC_", "KEN_LOG", "KEN_LOG2", "HOME", "CARGO_MANIFEST_DIR", "LD_PRELOAD"];
        let passed = names.map(|name| allowed(OsStr::new(name)));
        assert_eq!(passed, [true, true, true, true, false, true, false, false]);
    }

    /// The keys of the providers are for ken-model alone.
    #[test]
    fn a_part_has_the_secrets_that_are_named_for_it() {
        let mut loaded = loaded();
        let keys: Vec<String> = key_names(&loaded.config.model.provider).map(str::to_owned).collect();
        for name in keys.iter().map(String::as_str).chain(["KEN_TEST_ONE", "KEN_TEST_TWO"]) {
            loaded.secrets.insert(name.to_owned(), "x".to_owned());
        }
        let part = Part { secrets: vec!["KEN_TEST_TWO".to_owned(), "KEN_TEST_NONE".to_owned()], ..Part::default() };
        let given = |name: &str| {
            let text = String::from_utf8(secrets(name, &part, &loaded)).unwrap();
            text.split_terminator('\0').map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(given("store"), ["KEN_TEST_TWO=x"]);
        assert!(!keys.is_empty() && given("model").len() == keys.len() + 1);
    }

    #[test]
    fn a_part_is_started_anew_for_the_sections_that_it_reads_and_no_others() {
        let part = Part { reads: vec!["limits".to_owned(), "workspace.root".to_owned()], ..Part::default() };
        let config = Config::default();
        let mut other = config.clone();
        other.gateway.port += 1;
        assert_eq!(sections(&part, &config), sections(&part, &other));
        other.workspace.root.push('x');
        assert_ne!(sections(&part, &config), sections(&part, &other));
    }

    /// The folders of local models, with what links in them lead to, and files of the configuration as soon as they exist.
    #[test]
    fn a_part_that_runs_programs_reads_the_files_that_are_named_for_it() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().canonicalize().unwrap();
        let [model, weights] = ["model", "weights"].map(|name| folder.join(name));
        std::fs::create_dir(&model).unwrap();
        std::fs::write(&weights, "").unwrap();
        std::os::unix::fs::symlink(&weights, model.join("model.safetensors")).unwrap();
        let dirs = format!("a: {}, gone=/no/such/folder,", model.display());
        let variables = [("MVLM_MODEL_DIRS", dirs.as_str()), ("KEN_SCRIPT", "/script"), ("SSL_CERT_FILE", "")];
        let variables = Variables::from(variables.map(|(name, value)| (OsString::from(name), OsString::from(value))));
        for calls in Calls::ALL {
            let empty = || Vec::new();
            let (read, write, run, own) = (empty(), empty(), empty(), empty());
            let files = Files { calls: *calls, program: "/bin/x".into(), read, write, run, own };
            let found = with_files_of_variables(files, &variables).read;
            let expected = ["/script".into(), weights.clone(), model.clone()];
            assert_eq!(found, if calls.runs_named() { &expected[..] } else { &[] }, "{calls:?}");
        }
        let places = Places::resolve(Some(&folder), 0, |_| None).unwrap();
        assert_eq!(of_configuration("models.toml", &places), [""; 0].map(PathBuf::from));
        std::fs::write(folder.join("models.toml"), "").unwrap();
        assert_eq!(of_configuration("models.toml", &places), [folder.join("models.toml")]);
        assert_eq!(of_configuration("workflows/", &places), [folder.join("workflows/")]);
    }

    /// Only the store reaches the network, only if its database is there, and only if it has walls of its own class.
    #[test]
    fn the_store_reaches_a_database_on_another_machine() {
        let (url, socket) = ("postgres://db.example.org/ken", "postgres://ken@%2Frun%2Fpostgresql/ken");
        let env = Variables::from([(OsString::from(CERTIFICATES), OsString::from("/own.pem"))]);
        for name in ["store", "agent"] {
            for calls in [Calls::Local, Calls::Network] {
                for (in_config, secret, is_far) in [
                    ("", None, false),
                    (socket, None, false),
                    (url, None, true),
                    ("", Some(url), true),
                    (url, Some(""), true),
                ] {
                    let mut loaded = loaded();
                    loaded.config.store.url = in_config.to_owned();
                    loaded.secrets.extend(secret.map(|url| (STORE_URL.to_owned(), url.to_owned())));
                    let empty = || Vec::new();
                    let (read, write, run, own) = (empty(), empty(), empty(), empty());
                    let own = Files { calls, program: "/bin/x".into(), read, write, run, own };
                    let found = with_database(own, name, &loaded, &env);
                    let expected = if name == "store" && is_far { Calls::Network } else { calls };
                    assert_eq!(found.calls, expected, "{name} {calls:?} {in_config} {secret:?}");
                    let is_read = name == "store" && calls == Calls::Local && (is_far || !in_config.is_empty());
                    assert_eq!(found.read, vec![PathBuf::from("/own.pem"); usize::from(is_read)]);
                }
            }
        }
    }
}
