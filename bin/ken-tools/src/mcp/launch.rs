//! Builds the command of a server: ken-sandbox with what the entry allows, which runs the program, or the bridge to an
//! address.

use std::collections::BTreeMap;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::OnceLock;

use command_fds::CommandFdExt;
use ken_types::secrets;
use tokio::process::Command;

use super::config::{ServerConfig, Transport};
use super::down::Down;
use super::http::{HEADERS, URL};
use super::package::Package;
use crate::process::{memory_file, sandbox};
use crate::reach;

/// The values of placeholders. The daemon has received them from kend. A command that a person runs reads them from
/// `secrets.env`, once and only if there is a placeholder.
#[derive(Debug, Default)]
pub(crate) struct Secrets {
    file: Option<PathBuf>,
    text: OnceLock<Result<String, String>>,
}

impl Secrets {
    pub(crate) fn of_file(file: PathBuf) -> Secrets {
        Secrets { file: Some(file), ..Secrets::default() }
    }

    /// Returns the value of a name, or `None` if it is not set. Fails if the file cannot be read.
    fn get(&self, name: &str) -> Result<Option<String>, String> {
        let Some(file) = &self.file else {
            return Ok(ken_service::secret(name));
        };
        let read = || ken_trusted::secrets(file).map_err(|error| error.to_string());
        let text = self.text.get_or_init(read).as_ref()?;
        let value = secrets::find(text, name).map(str::to_owned);
        Ok(value.or_else(|| ken_service::secret(name)))
    }
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
            for (name, value) in env {
                // Only the name is an argument, because every user of the machine can see arguments.
                command.arg("--env").arg(&name).env(name, value);
            }
            command.args(["--cwd", cwd.as_deref().unwrap_or("/"), "--"]).args(words);
        }
        Transport::Http { url, headers } => {
            let headers = serde_json::to_string(&filled(headers, secrets)?).map_err(|error| error.to_string())?;
            let url = fill(url, secrets)?;
            let text = format!("{URL}={url}\0{HEADERS}={headers}\0");
            let file = memory_file(&text).map_err(|error| format!("no memory for the address: {error}"))?;
            let number = file.as_raw_fd().to_string();
            command.args(["--fd", &number]);
            command.args(["--env", "KEN_SECRETS_FD", "--env", "SSL_CERT_FILE"]);
            command.env("KEN_SECRETS_FD", number);
            command.preserved_fds(vec![file]);
            if !server.ken.touch.network {
                command.arg("--network");
            }
            // Public addresses and name servers can be reached anyway. The server's own address is added, because it
            // can be private.
            for address in reach::addresses(&[url]).await {
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

/// Replaces each `${NAME}` and `${NAME:-default}` in a text by its value.
fn fill(text: &str, secrets: &Secrets) -> Result<String, String> {
    let mut filled = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        let (name, after) = after.split_once('}').ok_or_else(|| format!("a brace is not closed: {text:?}"))?;
        let (name, otherwise) = match name.split_once(":-") {
            Some((name, otherwise)) => (name, Some(otherwise)),
            None => (name, None),
        };
        // READMEs for VS Code name variables and what the person is asked for in this way.
        let name = name.strip_prefix("env:").or_else(|| name.strip_prefix("input:")).unwrap_or(name);
        let value = secrets.get(name)?.or(otherwise.map(str::to_owned));
        let value = value.ok_or_else(|| {
            format!(
                "{name} is not set: put it into secrets.env, and its name into `secrets` of [part.tools] in ken.toml"
            )
        })?;
        filled.push_str(before);
        filled.push_str(&value);
        rest = after;
    }
    filled.push_str(rest);
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::{Secrets, fill};

    #[test]
    fn placeholders() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("secrets.env");
        std::fs::write(&file, "KEY=1\n").unwrap();
        let mode = |mode| std::fs::set_permissions(&file, PermissionsExt::from_mode(mode)).unwrap();
        // A file that other users can read is refused, but only if a value from it is needed.
        mode(0o644);
        let secrets = Secrets::of_file(file.clone());
        assert_eq!(fill("plain $x {y}", &secrets), Ok("plain $x {y}".to_owned()));
        assert!(fill("${KEY}", &secrets).unwrap_err().contains("has mode 0644"));
        mode(0o600);
        let secrets = Secrets::of_file(file.clone());
        let fill = |text| fill(text, &secrets);
        assert_eq!(fill("${KEY}${KEY}"), Ok("11".to_owned()));
        assert_eq!(fill("a ${KEN_NO_SUCH:-b} c ${input:KEY}"), Ok("a b c 1".to_owned()));
        assert!(fill("${KEN_NO_SUCH}").unwrap_err().starts_with("KEN_NO_SUCH is not set"));
        assert!(fill("${KEN").unwrap_err().contains("not closed"));
    }
}
