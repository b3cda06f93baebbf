//! The process of a server: ken-sandbox with what the entry allows, and in it the program, or the bridge to an address.

use std::collections::BTreeMap;
use std::os::fd::AsRawFd;
use std::process::Stdio;

use command_fds::CommandFdExt;
use tokio::process::Command;

use super::config::{Reached, ServerConfig};
use super::http::{HEADERS, URL};
use crate::process::{memory_file, sandbox};
use crate::reach;

/// Secrets that a person's own command has; the daemon's come from kend.
pub(crate) type Secrets = BTreeMap<String, String>;

/// The command that starts it, with pipes. An error is for the operator.
pub(crate) async fn command(server: &ServerConfig, secrets: &Secrets) -> Result<Command, String> {
    let mut command = sandbox(&server.ken.touch, true).await?;
    // Killed with ken-tools, however that ends.
    command.arg("--with-parent");
    match &server.reached {
        Reached::Stdio {
            command: words,
            env,
            cwd,
        } => {
            for (name, value) in filled(env, secrets)? {
                // By name: what is given as an argument can be seen by everybody.
                command.arg("--env").arg(&name).env(name, value);
            }
            command
                .args(["--cwd", cwd.as_deref().unwrap_or("/"), "--"])
                .args(words);
        }
        Reached::Http { url, headers } => {
            let headers =
                serde_json::to_string(&filled(headers, secrets)?).map_err(|error| error.to_string())?;
            let text = format!("{URL}={}\0{HEADERS}={headers}\0", fill(url, secrets)?);
            let file = memory_file(&text).map_err(|error| format!("no memory for the address: {error}"))?;
            let number = file.as_raw_fd().to_string();
            command.args([
                "--fd",
                &number,
                "--env",
                "KEN_SECRETS_FD",
                "--env",
                "SSL_CERT_FILE",
            ]);
            command.env("KEN_SECRETS_FD", number);
            command.preserved_fds(vec![file]);
            if !server.ken.touch.network {
                command.arg("--network");
            }
            // Public addresses and name servers, and this one wherever it is.
            for address in reach::addresses(&[fill(url, secrets)?]).await {
                command.arg("--reach").arg(address);
            }
            if let Some(file) = std::env::var_os("SSL_CERT_FILE").filter(|file| !file.is_empty()) {
                command.arg("--read").arg(file);
            }
            let own = std::env::current_exe().map_err(|error| format!("ken-tools is not found: {error}"))?;
            command.args(["--cwd", "/", "--"]).arg(own).arg("bridge");
        }
    }
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    Ok(command)
}

fn filled(texts: &BTreeMap<String, String>, secrets: &Secrets) -> Result<BTreeMap<String, String>, String> {
    let each = texts
        .iter()
        .map(|(name, text)| Ok((name.clone(), fill(text, secrets)?)));
    each.collect()
}

/// The text with the values of its `${NAME}` and `${NAME:-otherwise}`.
fn fill(text: &str, secrets: &Secrets) -> Result<String, String> {
    let mut filled = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        let (name, after) = after
            .split_once('}')
            .ok_or_else(|| format!("a brace is not closed: {text:?}"))?;
        let (name, otherwise) = match name.split_once(":-") {
            Some((name, otherwise)) => (name, Some(otherwise)),
            None => (name, None),
        };
        let value = secrets
            .get(name)
            .cloned()
            .or_else(|| ken_service::secret(name))
            .or(otherwise.map(str::to_owned));
        let value = value.ok_or_else(|| {
            format!("{name} is not set: put it into secrets.env, and its name into `secrets` of [part.tools] in ken.toml")
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
    use super::{Secrets, fill};

    #[test]
    fn placeholders() {
        let secrets = Secrets::from([("KEY".to_owned(), "1".to_owned())]);
        let fill = |text| fill(text, &secrets);
        assert_eq!(fill("${KEY}${KEY}"), Ok("11".to_owned()));
        assert_eq!(fill("plain $x {y}"), Ok("plain $x {y}".to_owned()));
        assert_eq!(fill("a ${KEN_NO_SUCH:-b} c"), Ok("a b c".to_owned()));
        assert!(
            fill("${KEN_NO_SUCH}")
                .unwrap_err()
                .starts_with("KEN_NO_SUCH is not set")
        );
        assert!(fill("${KEN").unwrap_err().contains("not closed"));
    }
}
