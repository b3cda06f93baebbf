//! Builds the command of a server: ken-sandbox with what the entry allows, which runs the program, or the bridge to an
//! address.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::OnceLock;

use command_fds::CommandFdExt;
use ken_types::config::{BUILTIN, PROXIES, WITHOUT_PROXY};
use ken_types::{Error, secrets};
use tokio::process::Command;

use super::config::{ServerConfig, Transport};
use super::down::Down;
use super::http::{HEADERS, URL};
use super::package::Package;
use crate::process::{memory_file, sandbox, set_variables};
use crate::reach;

/// The values of placeholders. The daemon has received them from kend. A command that a person runs reads those that kend passes
/// from `secrets.env`, once and only if there is a placeholder.
#[derive(Debug, Default)]
pub(crate) struct Secrets {
    folder: Option<PathBuf>,
    passed: OnceLock<Result<BTreeMap<String, String>, String>>,
}

impl Secrets {
    /// Returns the values for a command, from the folder of the configuration.
    pub(crate) fn of_folder(folder: PathBuf) -> Secrets {
        Secrets { folder: Some(folder), ..Secrets::default() }
    }

    /// Returns the names of the placeholders of a server, each with where its value comes from, for a person who decides.
    pub(super) fn named(&self, server: &ServerConfig) -> Result<Vec<String>, String> {
        let (url, values) = match &server.reached {
            Transport::Stdio { env, .. } => (None, env),
            Transport::Http { url, headers } => (Some(url), headers),
        };
        let mut names = BTreeSet::new();
        for text in values.values().chain(url) {
            let found = pieces(text)?.into_iter().filter_map(|piece| Some(piece.placeholder?.name));
            names.extend(found);
        }
        let each = names.into_iter().map(|name| {
            let from = self.find(name)?.map_or("not set", |(_, from)| from);
            Ok(format!("{name} ({from})"))
        });
        each.collect()
    }

    fn get(&self, name: &str) -> Result<Option<String>, String> {
        Ok(self.find(name)?.map(|(value, _)| value))
    }

    /// Returns the value of a name and where it comes from, or `None` if it is not set. Fails if the file cannot be read.
    fn find(&self, name: &str) -> Result<Option<(String, &'static str)>, String> {
        let around = || ken_service::secret(name).map(|value| (value, "your environment"));
        let Some(folder) = &self.folder else { return Ok(around()) };
        let read = || passed(folder).map_err(|error| error.to_string());
        let passed = self.passed.get_or_init(read).as_ref()?;
        Ok(passed.get(name).map(|value| (value.clone(), "secrets.env")).or_else(around))
    }
}

/// Returns the secrets that kend passes to this part, by name. A command of a person finds no others in `secrets.env`: such a command
/// also starts servers.
fn passed(folder: &Path) -> Result<BTreeMap<String, String>, Error> {
    let text = ken_trusted::secrets(&folder.join("secrets.env"))?;
    let own = std::fs::read_to_string(folder.join("ken.toml")).unwrap_or_default();
    let names = secrets_of_part(&own).or_else(|| secrets_of_part(BUILTIN)).unwrap_or_default();
    let names = names.into_iter().chain(PROXIES.into_iter().chain(WITHOUT_PROXY).map(str::to_owned));
    let value = |name: String| Some((secrets::find(&text, &name)?.to_owned(), name));
    let set = names.filter_map(value).filter(|(value, _)| !value.is_empty());
    Ok(set.map(|(value, name)| (name, value)).collect())
}

/// Returns `secrets` of `[part.tools]`, if a configuration sets it. What is wrong with the file is reported by kend.
fn secrets_of_part(config: &str) -> Option<Vec<String>> {
    let config: toml::Table = config.parse().ok()?;
    config.get("part")?.get("tools")?.get("secrets")?.clone().try_into().ok()
}

/// Returns the command that starts the server, with pipes. A package that it needs is installed first.
pub(crate) async fn command(server: &ServerConfig, secrets: &Secrets) -> Result<Command, Down> {
    let mut command = sandbox(&server.ken.touch, true).await?;
    // This ends the server when ken-tools ends for any reason.
    command.arg("--with-parent");
    match &server.reached {
        Transport::Stdio { command: words, env, cwd } => {
            let env = filled(env, secrets)?;
            let mut words = words.clone();
            if let Some(package) = Package::of(server)? {
                package.install(server, &env).await?;
                package.allow_run(&mut command);
                words = package.command()?;
            }
            set_variables(&mut command, &env).map_err(|error| format!("no memory for the variables: {error}"))?;
            if let Some(path) = env.get("PATH") {
                // ken-sandbox looks for the program in its own PATH.
                command.env("PATH", path);
            }
            command.args(["--cwd", cwd.as_deref().unwrap_or("/"), "--"]).args(words);
        }
        Transport::Http { url, headers } => {
            let headers = serde_json::to_string(&filled(headers, secrets)?).map_err(|error| error.to_string())?;
            let url = fill(url, secrets)?;
            let mut text = format!("{URL}={url}\0{HEADERS}={headers}\0");
            let mut reached = vec![url.clone()];
            let setting = |name: &str| secrets.get(name).ok().flatten();
            if let Some(proxy) = ken_tls::proxy(&url, &setting).map_err(|error| error.to_string())? {
                let names = PROXIES.into_iter().chain(WITHOUT_PROXY);
                let set = names.filter_map(|name| Some(format!("{name}={}\0", setting(name)?)));
                text.extend(set);
                reached = vec![format!("http://{}", ken_tls::address(&proxy))];
            }
            let file = memory_file(text.as_bytes()).map_err(|error| format!("no memory for the address: {error}"))?;
            let number = file.as_raw_fd().to_string();
            command.args(["--fd", &number]);
            command.args(["--env", "KEN_SECRETS_FD", "--env", "SSL_CERT_FILE"]);
            command.env("KEN_SECRETS_FD", number);
            command.preserved_fds(vec![file]);
            if !server.ken.touch.network {
                command.arg("--network");
            }
            // Public addresses and name servers can be reached anyway. The address of the server or of the proxy that leads to it is
            // added, because it can be private.
            for address in reach::addresses(&reached).await {
                command.arg("--reach").arg(address);
            }
            if let Some(file) = std::env::var_os("SSL_CERT_FILE").filter(|file| !file.is_empty()) {
                command.arg("--read").arg(file);
            }
            let own = std::env::current_exe().map_err(|error| format!("ken-tools is not found: {error}"))?;
            command.args(["--cwd", "/", "--"]).arg(own).arg("bridge");
        }
    }
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    Ok(command)
}

fn filled(texts: &BTreeMap<String, String>, secrets: &Secrets) -> Result<BTreeMap<String, String>, String> {
    let each = texts.iter().map(|(name, text)| Ok((name.clone(), fill(text, secrets)?)));
    each.collect()
}

/// Replaces the placeholders in a text by their values.
fn fill(text: &str, secrets: &Secrets) -> Result<String, String> {
    let mut filled = String::new();
    for Piece { before, placeholder } in pieces(text)? {
        filled.push_str(before);
        let Some(Placeholder { name, otherwise }) = placeholder else { continue };
        let value = secrets.get(name)?.or(otherwise.map(str::to_owned));
        filled += &value.ok_or_else(|| {
            format!(
                "{name} is not set: put it into secrets.env, and its name into `secrets` of [part.tools] in ken.toml"
            )
        })?;
    }
    Ok(filled)
}

/// A part of a text: what stands before a placeholder, and the placeholder. The last part has none.
struct Piece<'a> {
    before: &'a str,
    placeholder: Option<Placeholder<'a>>,
}

/// `${NAME}` or `${NAME:-otherwise}`.
struct Placeholder<'a> {
    name: &'a str,
    otherwise: Option<&'a str>,
}

fn pieces(text: &str) -> Result<Vec<Piece<'_>>, String> {
    let (mut pieces, mut rest) = (Vec::new(), text);
    while let Some((before, after)) = rest.split_once("${") {
        let (name, after) = after.split_once('}').ok_or_else(|| format!("a brace is not closed: {text:?}"))?;
        let (name, otherwise) = match name.split_once(":-") {
            Some((name, otherwise)) => (name, Some(otherwise)),
            None => (name, None),
        };
        // READMEs for VS Code name variables and what the person is asked for in this way.
        let name = name.strip_prefix("env:").or_else(|| name.strip_prefix("input:")).unwrap_or(name);
        pieces.push(Piece { before, placeholder: Some(Placeholder { name, otherwise }) });
        rest = after;
    }
    pieces.push(Piece { before: rest, placeholder: None });
    Ok(pieces)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::{Secrets, fill};

    #[test]
    fn placeholders() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("secrets.env");
        std::fs::write(&file, "KEY=1\nOTHER=2\nEMPTY=\nOLLAMA_API_KEY=3\n").unwrap();
        let config = folder.path().join("ken.toml");
        std::fs::write(&config, "[part.tools]\nsecrets = [\"KEY\", \"EMPTY\", \"GONE\"]\n").unwrap();
        let mode = |mode| std::fs::set_permissions(&file, PermissionsExt::from_mode(mode)).unwrap();
        // A file that other users can read is refused, but only if a value from it is needed.
        mode(0o644);
        let of_folder = || Secrets::of_folder(folder.path().to_owned());
        let secrets = of_folder();
        assert_eq!(fill("plain $x {y}", &secrets), Ok("plain $x {y}".to_owned()));
        assert!(fill("${KEY}", &secrets).unwrap_err().contains("has mode 0644"));
        mode(0o600);
        let secrets = of_folder();
        let filled = |text| fill(text, &secrets);
        assert_eq!(filled("${KEY}${KEY}"), Ok("11".to_owned()));
        assert_eq!(filled("a ${KEN_NO_SUCH:-b} c ${input:KEY}"), Ok("a b c 1".to_owned()));
        assert!(filled("${KEN_NO_SUCH}").unwrap_err().starts_with("KEN_NO_SUCH is not set"));
        assert!(filled("${KEN").unwrap_err().contains("not closed"));
        // What kend does not pass to the part is not found, and what is empty is not set.
        let others = "${OTHER:-no}${EMPTY:-no}${OLLAMA_API_KEY:-no}${PATH}";
        assert_eq!(filled(others), Ok(format!("nonono{}", std::env::var("PATH").unwrap())));
        // Without `secrets` in the file, the built-in list is in force.
        for text in ["[part.tools]\nnice = 1\n", "", "broken ["] {
            std::fs::write(&config, text).unwrap();
            assert_eq!(fill("${OLLAMA_API_KEY:-no}${KEY:-no}", &of_folder()), Ok("3no".to_owned()), "{text}");
        }
    }
}
