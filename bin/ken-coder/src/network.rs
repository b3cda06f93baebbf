//! The network access of a command. It can reach only the hosts that the rule of its folder names, and only through
//! ken-proxy(1).

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStderr, ChildStdin, Command, Stdio};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use ken_tool::{Error, find_program};
use ken_types::config::WorkspaceRule;
use ken_types::error::{JSON_ERRORS, reported};
use ken_types::proxy::{Host, ProxyReady, ProxyRules};
use ken_types::secrets;
use serde_json::{Value, json};

use crate::rel_path::RelPath;
use crate::settings::Settings;

/// The hosts that commands in a folder can reach.
#[derive(Debug, Clone)]
pub(crate) struct Network<'a> {
    rule: &'a WorkspaceRule,
}

impl Network<'_> {
    /// Returns the network of commands in `place`. Fails with `forbidden` if no rule of the operator names hosts for
    /// it.
    pub(crate) fn of<'a>(settings: &'a Settings, place: &RelPath) -> Result<Network<'a>, Error> {
        match settings.rules.first(place) {
            Some(rule) if !rule.hosts.is_empty() => Ok(Network { rule }),
            _ => Err(Error::forbidden(format!("no rule names hosts that commands in {place} may reach"))
                .at("/network")
                .hint("the operator names them: `hosts` of a rule in [workspace] of ken.toml")),
        }
    }

    pub(crate) fn allows(&self, host: &Host) -> bool {
        self.rule.hosts.contains(host)
    }

    /// Returns the hosts, and for which of them a key is added. It is shown to the person who approves the call, and is
    /// part of the fingerprint.
    pub(crate) fn describe(&self) -> Value {
        let keys: Vec<&Host> = self.rule.keys.keys().collect();
        json!({"hosts": self.rule.hosts, "keysFor": keys, "private": self.rule.private})
    }

    /// Returns options for git. For a host with a key, git speaks http to the proxy, which adds the key and speaks
    /// https to the host.
    pub(crate) fn git_options(&self) -> Vec<(String, String)> {
        let mut options = vec![("http.proxyAuthMethod".to_owned(), "basic".to_owned())];
        for host in self.rule.keys.keys() {
            // The port stays the same, because the proxy recognises the host by it.
            let [plain, secure] = ["http", "https"].map(|scheme| format!("{scheme}://{}/", host.authority("https")));
            options.push((format!("url.{plain}.insteadOf"), secure));
        }
        options
    }

    /// Starts the proxy with the keys from `secrets.env`.
    pub(crate) fn open(&self, settings: &Settings) -> Result<Proxy, Error> {
        let mut rules =
            ProxyRules { hosts: self.rule.hosts.clone(), private: self.rule.private.clone(), ..ProxyRules::default() };
        if !self.rule.keys.is_empty() {
            let text = ken_trusted::secrets(&settings.secrets)?;
            for (host, name) in &self.rule.keys {
                let held = secrets::find(&text, name).map(str::to_owned);
                let held = held.or_else(|| std::env::var(name).ok()).filter(|held| !held.is_empty());
                let held = held.ok_or_else(|| {
                    Error::not_found(format!("the key {name} for {host} is missing"))
                        .hint(format!("put {name}=… into {}", settings.secrets.display()))
                })?;
                rules.keys.insert(host.clone(), authorization(&held));
            }
        }
        let program = find_program("ken-proxy").ok_or_else(|| cannot_start(&"the program is not installed"))?;
        Proxy::start(&program, &rules)
    }
}

/// Returns the value of the `Authorization` header for a key. A value with a blank is used unchanged, `USER:PASSWORD`
/// becomes Basic, and any other one becomes a Bearer token.
fn authorization(held: &str) -> String {
    match held {
        held if held.contains(' ') => held.to_owned(),
        held if held.contains(':') => format!("Basic {}", BASE64_STANDARD.encode(held)),
        held => format!("Bearer {held}"),
    }
}

/// A running proxy. It ends when this value is dropped or this process ends, because that closes its standard input.
pub(crate) struct Proxy {
    child: Child,
    _input: ChildStdin,
    ready: ProxyReady,
}

fn cannot_start(why: &dyn std::fmt::Display) -> Error {
    Error::unavailable(format!("ken-proxy cannot be started: {why}"))
}

impl Proxy {
    fn start(program: &Path, rules: &ProxyRules) -> Result<Proxy, Error> {
        let mut child = Command::new(program)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .current_dir("/")
            .env(JSON_ERRORS.0, JSON_ERRORS.1)
            .spawn()
            .map_err(|error| cannot_start(&error))?;
        let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (Some(mut input), Some(output), Some(errors)) = pipes else {
            return Err(cannot_start(&"it has no pipes"));
        };
        // It is read all the time, because the proxy would stop when the pipe is full. The thread ends with the proxy.
        let errors = std::thread::spawn(|| start_of(errors));
        let mut text = serde_json::to_string(rules).map_err(|error| cannot_start(&error))?;
        text.push('\n');
        let mut line = String::new();
        let mut answer = BufReader::new(output).take(MAX_READY_BYTES);
        let sent = input.write_all(text.as_bytes()).and_then(|()| answer.read_line(&mut line));
        if let Some(ready) = sent.ok().and_then(|_| serde_json::from_str(&line).ok()) {
            return Ok(Proxy { child, _input: input, ready });
        }
        let _ = child.kill();
        let _ = child.wait();
        Err(reported(&errors.join().unwrap_or_default()).unwrap_or_else(|| cannot_start(&"it ended at once")))
    }

    /// Returns the only address to which the command can connect.
    pub(crate) fn address(&self) -> &str {
        &self.ready.address
    }

    /// Returns the environment variables that make programs use the proxy.
    pub(crate) fn variables(&self) -> Vec<String> {
        const NAMES: [&str; 6] = ["http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"];
        let named = NAMES.iter().map(|name| format!("{name}={}", self.ready.url));
        named.chain(["no_proxy=", "NO_PROXY="].map(str::to_owned)).collect()
    }
}

/// The maximum size of the line with which the proxy says that it is ready, and of the error that it may write instead.
const MAX_READY_BYTES: u64 = 64 * 1024;
const MAX_ERROR_BYTES: u64 = 64 * 1024;

/// Reads to the end and returns the first bytes.
fn start_of(mut errors: ChildStderr) -> Vec<u8> {
    let mut kept = Vec::new();
    let _ = errors.by_ref().take(MAX_ERROR_BYTES).read_to_end(&mut kept);
    let _ = std::io::copy(&mut errors, &mut std::io::sink());
    kept
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns git options as environment variables, so that git's child processes use them too.
pub(crate) fn git_variables(options: &[(String, String)]) -> Vec<String> {
    let mut variables = vec![format!("GIT_CONFIG_COUNT={}", options.len())];
    for (number, (name, value)) in options.iter().enumerate() {
        variables.push(format!("GIT_CONFIG_KEY_{number}={name}"));
        variables.push(format!("GIT_CONFIG_VALUE_{number}={value}"));
    }
    variables
}

/// Where a repository is published or fetched from.
#[derive(Debug, Clone)]
pub(crate) enum Remote<'a> {
    Folder(RelPath),
    /// A server that the rule of the repository names.
    Server(Network<'a>),
}

impl<'a> Remote<'a> {
    pub(crate) fn network(&self) -> Option<&Network<'a>> {
        match self {
            Remote::Folder(_) => None,
            Remote::Server(network) => Some(network),
        }
    }

    pub(crate) fn folder(&self) -> Option<&RelPath> {
        match self {
            Remote::Folder(folder) => Some(folder),
            Remote::Server(_) => None,
        }
    }
}

/// Returns where a URL leads, seen from the folder `work`. The error names the field `at` of the call.
pub(crate) fn remote_of<'a>(
    settings: &'a Settings,
    repo: &RelPath,
    work: &RelPath,
    at: &str,
    url: &str,
) -> Result<Remote<'a>, Error> {
    let forbidden = |why: String| Error::forbidden(format!("the remote {url}: {why}")).at(at);
    if let Some(host) = host_of(url) {
        let host = host.map_err(&forbidden)?;
        let network = Network::of(settings, repo).map_err(|error| Error { at: Some(at.to_owned()), ..error })?;
        if network.allows(&host) {
            return Ok(Remote::Server(network));
        }
        return Err(forbidden(format!("the rule of {repo} does not name the host {host}")));
    }
    let path = url.strip_prefix("file://").unwrap_or(url);
    if !(path.starts_with('/') || path.starts_with('.')) || path.contains("::") {
        return Err(forbidden("only http and https can be reached, by way of the proxy".to_owned())
            .hint("use the https URL of the repository, or do it yourself"));
    }
    let folder = work.led_unambiguously(&settings.root, path);
    let folder = folder.filter(|folder| settings.layout.project(folder).is_some());
    folder.map(Remote::Folder).ok_or_else(|| forbidden("it is not a repository of the workspace".to_owned()))
}

/// Describes a network for the person who approves a call.
pub(crate) fn describe(network: Option<&Network<'_>>) -> Value {
    network.map_or(Value::Bool(false), Network::describe)
}

/// Returns the host of an http or https URL, or `None` for any other URL.
pub(crate) fn host_of(url: &str) -> Option<Result<Host, String>> {
    let (scheme, rest) = url.split_once("://")?;
    let port = match scheme {
        "https" => 443,
        "http" => 80,
        _ => return None,
    };
    let authority = rest.split('/').next().unwrap_or_default();
    if authority.contains('@') {
        return Some(Err("it holds a user or a password; keys are put in by the proxy".to_owned()));
    }
    let named = authority
        .parse::<Host>()
        .map(|host| if authority.ends_with(&format!(":{}", host.port)) { host } else { Host { port, ..host } });
    Some(named)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use std::os::unix::fs::OpenOptionsExt;

    #[test]
    fn a_proxy_may_write_more_errors_than_a_pipe_holds() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("ken-proxy");
        // Another process writes the program: one that this process has open, or a child of another test, cannot be run.
        let install = |script: &str| {
            let mut shell = Command::new("sh");
            shell
                .args(["-c", r#"printf '#!/bin/sh\n%s\n' "$2" > "$1" && chmod +x "$1""#, "sh"])
                .arg(&program)
                .arg(script);
            assert!(shell.status().unwrap().success());
        };
        let many = "head -c 1000000 /dev/zero >&2";
        let ready = r#"echo '{"address": "127.0.0.1:1", "url": "http://127.0.0.1:1"}'"#;
        install(&format!("{many}; read rules; {ready}; {many}; exit 7"));
        let mut proxy = Proxy::start(&program, &ProxyRules::default()).unwrap();
        assert_eq!(proxy.address(), "127.0.0.1:1");
        assert_eq!(proxy.child.wait().unwrap().code(), Some(7));
        install(r#"echo '{"error": {"code": "invalid", "message": "no such host"}}' >&2; exit 2"#);
        let error = Proxy::start(&program, &ProxyRules::default()).err().unwrap();
        assert_eq!(error.message, "no such host");
    }

    #[test]
    fn a_key_becomes_a_header() {
        assert_eq!(authorization("ghp_x"), "Bearer ghp_x");
        assert_eq!(authorization("u:p"), "Basic dTpw");
        assert_eq!(authorization("Token x:y"), "Token x:y");
    }

    #[test]
    fn a_remote_has_a_host_and_no_user() {
        let host = |url: &str| host_of(url).map(|host| host.map(|host| (host.name, host.port)));
        assert_eq!(host("https://git.test/x.git"), Some(Ok(("git.test".to_owned(), 443))));
        assert_eq!(host("http://git.test/x.git"), Some(Ok(("git.test".to_owned(), 80))));
        assert_eq!(host("http://127.0.0.1:8080/x"), Some(Ok(("127.0.0.1".to_owned(), 8080))));
        assert!(host("https://user:word@git.test/x").is_some_and(|host| host.is_err()));
        for other in ["git@git.test:x", "ssh://git.test/x", "/srv/x", "file:///srv/x"] {
            assert_eq!(host(other), None, "{other}");
        }
    }

    #[test]
    fn every_key_of_a_rule_counts() {
        let hosts = ["a.test", "b.test:8443"].map(|host| host.parse::<Host>().unwrap());
        let keys = hosts.iter().cloned().zip(["KEN_TEST_KEY_A", "KEN_TEST_KEY_B"].map(str::to_owned)).collect();
        let rule =
            WorkspaceRule { hosts: hosts.to_vec(), keys, ..serde_json::from_value(json!({"policy": "ask"})).unwrap() };
        let network = Network { rule: &rule };
        assert!(hosts.iter().all(|host| network.allows(host)) && !network.allows(&"b.test".parse().unwrap()));
        assert_eq!(network.describe()["keysFor"], json!(["a.test:443", "b.test:8443"]));
        let urls: Vec<String> = network.git_options().into_iter().skip(1).map(|(_, url)| url).collect();
        assert_eq!(urls, ["https://a.test/", "https://b.test:8443/"]);
        // Each key has to be there.
        let folder = tempfile::tempdir().unwrap();
        let secrets = folder.path().join("secrets.env");
        let settings = Settings::of_folders(folder.path(), folder.path()).unwrap();
        let settings = Settings { secrets: secrets.clone(), ..settings };
        for (held, missing) in [("KEN_TEST_KEY_A", "KEN_TEST_KEY_B"), ("KEN_TEST_KEY_B", "KEN_TEST_KEY_A")] {
            let mut options = std::fs::File::options();
            let file = options.write(true).create(true).truncate(true).mode(0o600).open(&secrets);
            file.unwrap().write_all(format!("{held}=x\n").as_bytes()).unwrap();
            let error = network.open(&settings).err().unwrap();
            assert!(error.message.starts_with(&format!("the key {missing} for ")), "{error}");
        }
    }
}
