//! `ken config show`: prints the configuration in force and where each value comes from.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use clap::{Args, Subcommand};
use ken_text::nearest;
use ken_types::Error;
use ken_types::config::{BUILTIN, Config, STORE_URL};
use ken_types::ops::Nothing;
use ken_types::ops::kend::{KendConfig, Setting};
use ken_types::places::Places;
use ken_types::providers::secret_name;
use ken_types::secrets;
use toml::de::{DeTable, DeValue};
use toml::{Table, Value};

use crate::client::{KEND, call};
use crate::gateway;
use crate::output::{print_json, print_line, print_note};

const MASK: &str = "***";
/// The section of the names in `secrets.env`.
const SECRETS: &str = "secrets";

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Print every setting with the file and line it comes from; secrets are masked
    #[command(aliases = ["get", "list"])]
    Show(ConfigShow),
}

#[derive(Debug, Args)]
pub(crate) struct ConfigShow {
    /// Show only this section: gateway, part, part.store
    pub(crate) section: Option<String>,
    /// Print one JSON object per line
    #[arg(long)]
    pub(crate) json: bool,
    /// Print the configuration whose text is on standard input: that which kend has in force
    #[arg(long, hide = true)]
    pub(crate) stdin: bool,
}

/// A value with the file and line that sets it.
struct Found {
    value: Value,
    from: String,
}

/// Settings by section and key, both spelled as in the file.
type Settings = BTreeMap<String, BTreeMap<String, Found>>;

/// How long kend may take, which has the settings printed by this command with `--stdin`.
const LIMIT: Duration = Duration::from_secs(10);

pub(crate) fn show(places: &Places, args: &ConfigShow) -> Result<(), Error> {
    let settings = if args.stdin {
        let text = std::io::read_to_string(std::io::stdin().lock());
        of_file(places, &text.map_err(|error| Error::unavailable(format!("standard input: {error}")))?)?
    } else {
        in_force(places)?
    };
    if let Some(section) = &args.section {
        check_section(&settings, section)?;
    }
    let is_meant = |section: &str| {
        args.section.as_deref().is_none_or(|meant| section == meant || section.starts_with(&format!("{meant}.")))
    };
    let mut shown = settings.iter().filter(|setting| is_meant(section_of(setting)));
    if args.json {
        return shown.try_for_each(print_json);
    }
    let mut last = None;
    for setting @ Setting { value, from, .. } in shown {
        let (section, name) = names_of(setting);
        let is_secret = section == SECRETS;
        if last != Some(section) {
            if last.is_some() {
                print_line("")?;
            }
            if !is_secret {
                print_line(&format!("[{section}]"))?;
            }
            last = Some(section);
        }
        let line = match value.as_str().filter(|_| is_secret) {
            Some(mask) => format!("# {name} = {mask}"),
            None => format!("{name} = {}", Value::try_from(value).map_err(|error| Error::internal(error.to_string()))?),
        };
        print_line(&format!("{line:<40} # {from}"))?;
    }
    Ok(())
}

/// Returns the section and the name of a setting.
fn names_of(setting: &Setting) -> (&str, &str) {
    setting.key.rsplit_once('.').unwrap_or(("", &setting.key))
}

fn section_of(setting: &Setting) -> &str {
    names_of(setting).0
}

/// Returns the settings in force: those of the running system, whose files may have changed since, or else those of the files.
fn in_force(places: &Places) -> Result<Vec<Setting>, Error> {
    let Ok(status) = gateway::status(places) else { return of_file(places, &text_of(&places.config)?) };
    for error in &status.config.errors {
        print_note(&format!("the last good configuration is in force: {error}"));
    }
    call::<KendConfig>(places, KEND, &Nothing {}, Some(LIMIT)).map(|listing| listing.settings)
}

/// Returns the settings of a text of `ken.toml`, and the names of the secrets.
fn of_file(places: &Places, text: &str) -> Result<Vec<Setting>, Error> {
    let mut settings = effective_settings(&places.config, text)?;
    use_running_ports(&mut settings, places);
    let mut all = Vec::new();
    for (section, keys) in settings {
        for (key, Found { value, from }) in keys {
            let value = serde_json::to_value(masked(value)).map_err(|error| Error::internal(error.to_string()))?;
            all.push(Setting { key: format!("{section}.{key}"), value, from });
        }
    }
    let file = places.secrets();
    all.extend(secret_lines(&file).into_iter().map(|(name, _, line)| Setting {
        key: format!("{SECRETS}.{name}"),
        value: MASK.into(),
        from: format!("{}:{line}", file.display()),
    }));
    Ok(all)
}

/// Fails if there is no such section, and no section below it.
fn check_section(settings: &[Setting], meant: &str) -> Result<(), Error> {
    let sections = settings.iter().map(section_of).filter(|section| *section != SECRETS);
    let names = || sections.clone().flat_map(|name| [name, name.split('.').next().unwrap_or_default()]);
    if names().any(|name| name == meant) {
        return Ok(());
    }
    let error = Error::invalid("SECTION", format!("there is no section `{meant}` in the configuration"));
    Err(match nearest(meant, names()) {
        Some(name) => error.hint(format!("did you mean `{name}`?")),
        None => match meant.split_once('.').filter(|(section, _)| names().any(|name| name == *section)) {
            Some((section, _)) => error.hint(format!("`ken config show {section}` prints that section")),
            None => error.hint("`ken config show` prints all sections"),
        },
    })
}

/// Replaces the ports by those at which the running system listens, if it has been started with others.
fn use_running_ports(settings: &mut Settings, places: &Places) {
    // Without a running system, the configured ports are those that `ken up` would use.
    let Ok(status) = gateway::status(places) else { return };
    for listener in status.listeners {
        let port = listener.url.rsplit_once(':').and_then(|(_, port)| port.parse().ok()).map(Value::Integer);
        let setting = settings.get_mut(&listener.name).and_then(|keys| keys.get_mut("port"));
        if let (Some(port), Some(setting)) = (port, setting)
            && setting.value != port
        {
            setting.from = format!("the running system; {} from {}", setting.value, setting.from);
            setting.value = port;
        }
    }
}

/// Returns the text of `ken.toml`. Without a file, it is empty.
fn text_of(path: &Path) -> Result<String, Error> {
    match std::fs::read_to_string(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(String::new()),
        text => text.map_err(|error| Error::invalid(path.display().to_string(), error.to_string())),
    }
}

/// Returns the built-in settings overridden by those of the user, key by key, as kend does.
fn effective_settings(path: &Path, text: &str) -> Result<Settings, Error> {
    let wrong = |error: toml::de::Error| {
        Error::invalid(path.display().to_string(), error.message().to_owned()).hint("`kend --check` names every error")
    };
    let own: Table = text.parse().map_err(wrong)?;
    let mut all = Settings::new();
    let default = |_: &[&str]| "default".to_owned();
    collect(&mut all, BUILTIN.parse().map_err(wrong)?, &default);
    let builtin = own.get("kend").and_then(|kend| kend.get("builtin_parts")).and_then(Value::as_bool);
    if builtin == Some(false) {
        all.retain(|section, _| !section.starts_with("part."));
    }
    // The walls of a built-in part fit the program of ken; kend does not give them to another one in its place.
    for (part, keys) in own.get("part").and_then(Value::as_table).into_iter().flatten() {
        let command = keys.get("command").and_then(Value::as_array);
        if command.is_some_and(|words| !words.is_empty())
            && let Some(builtin) = all.get_mut(&format!("part.{part}"))
        {
            builtin.remove("walls");
        }
    }
    let line = |keys: &[&str]| match line_of(text, keys) {
        Some(line) => format!("{}:{line}", path.display()),
        None => path.display().to_string(),
    };
    collect(&mut all, own, &line);
    Ok(all)
}

fn collect(all: &mut Settings, table: Table, from: &dyn Fn(&[&str]) -> String) {
    let mut add = |path: &[&str], keys: Table| {
        let section = all.entry(path.join(".")).or_default();
        for (key, value) in keys {
            let place = [path, &[key.as_str()]].concat();
            let from = from(&place);
            section.insert(key, Found { value, from });
        }
    };
    for (name, value) in table {
        match value {
            Value::Table(parts) if name == "part" => {
                for (part, value) in parts {
                    if let Value::Table(keys) = value {
                        add(&["part", &part], keys);
                    }
                }
            }
            Value::Table(keys) => add(&[&name], keys),
            value => add(&[], Table::from_iter([(name, value)])),
        }
    }
}

/// Returns the line of a key, counted from 1.
fn line_of(text: &str, keys: &[&str]) -> Option<usize> {
    let root = DeTable::parse(text).ok()?;
    let mut table = root.get_ref();
    let mut at = None;
    for key in keys {
        let (name, value) = table.iter().find(|(name, _)| name.get_ref() == key)?;
        at = Some(name.span().start);
        if let DeValue::Table(inner) = value.get_ref() {
            table = inner;
        }
    }
    Some(text.get(..at?)?.matches('\n').count() + 1)
}

/// Masks secrets in a value: entries `NAME=value` of a part's environment whose name suggests a secret, and passwords in URLs.
fn masked(value: Value) -> Value {
    match value {
        Value::String(text) => Value::String(match text.split_once('=') {
            Some((name, value)) if is_secret(name) && !name.contains("://") && !value.is_empty() => {
                format!("{name}={MASK}")
            }
            _ => without_passwords(&text),
        }),
        Value::Array(values) => Value::Array(values.into_iter().map(masked).collect()),
        Value::Table(table) => {
            let hidden = |name: String, value| match name.as_str() {
                "headers" => (name, without_headers(value)),
                _ => (name, masked(value)),
            };
            Value::Table(table.into_iter().map(|(name, value)| hidden(name, value)).collect())
        }
        other => other,
    }
}

/// Masks the passwords of the URLs in a text, also of those that no part accepts: a person looks here for what is wrong with them.
fn without_passwords(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://") else { return text.to_owned() };
    let (here, next) = rest.split_at(rest.find("://").unwrap_or(rest.len()));
    // The password ends at the last @, because it can contain one, or a slash. A port is no password.
    let parts = here.split_once(':').filter(|(user, _)| !user.contains(['/', '[']));
    let parts = parts.and_then(|(user, rest)| Some((user, rest.rsplit_once('@')?)));
    let is_port = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let here = match parts {
        Some((user, (password, host))) if !password.split_once('/').is_some_and(|(port, _)| is_port(port)) => {
            format!("{user}:{MASK}@{host}")
        }
        _ => here.to_owned(),
    };
    format!("{scheme}://{}{}", without_secret_options(&here), without_passwords(next))
}

/// Masks the options `?NAME=value&…` of a URL whose names suggest a secret.
fn without_secret_options(text: &str) -> String {
    let Some((path, options)) = text.split_once('?') else { return text.to_owned() };
    let masked = |option: &str| match option.split_once('=') {
        Some((name, _)) if is_secret(name) => format!("{name}={MASK}"),
        _ => option.to_owned(),
    };
    let options: Vec<String> = options.split('&').map(masked).collect();
    format!("{path}?{}", options.join("&"))
}

/// Masks the headers of a provider, which can hold keys, apart from the names of secrets.
fn without_headers(value: Value) -> Value {
    let Value::Table(headers) = value else { return masked(value) };
    let hidden = headers.into_iter().map(|(name, value)| {
        let is_name = value.as_str().is_some_and(|value| secret_name(value).is_some());
        (name, if is_name { value } else { Value::String(MASK.to_owned()) })
    });
    Value::Table(hidden.collect())
}

fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    ["SECRET", "TOKEN", "PASSWORD", "KEY"].iter().any(|word| name.contains(word))
}

/// Returns the configuration of the files as the type that kend and the parts use.
pub(crate) fn effective_config(path: &Path) -> Result<Config, Error> {
    let mut all = Table::new();
    for (section, keys) in effective_settings(path, &text_of(path)?)? {
        let keys = keys.into_iter().map(|(key, setting)| (key, setting.value)).collect();
        let (outer, inner) = section.split_once('.').unwrap_or((&section, ""));
        match (inner, all.entry(outer).or_insert_with(|| Value::Table(Table::new()))) {
            ("", section) => *section = Value::Table(keys),
            (inner, Value::Table(outer)) => _ = outer.insert(inner.to_owned(), Value::Table(keys)),
            _ => {}
        }
    }
    all.try_into()
        .map_err(|error: toml::de::Error| Error::invalid(path.display().to_string(), error.message().to_owned()))
}

/// Returns the settings of `secrets.env` as name, value and line. Returns none if the file is absent or cannot be read;
/// kend reports why.
fn secret_lines(path: &Path) -> Vec<(String, String, usize)> {
    let is_file = std::fs::metadata(path).is_ok_and(|meta| meta.is_file());
    let text = if is_file { std::fs::read_to_string(path).unwrap_or_default() } else { String::new() };
    let settings = secrets::parse(&text).flatten();
    settings.map(|one| (one.name.to_owned(), one.value.to_owned(), one.line)).collect()
}

pub(crate) fn secrets(path: &Path) -> Vec<(String, String)> {
    let lines = secret_lines(path).into_iter();
    lines.map(|(name, value, _)| (name, value)).collect()
}

/// Whether the data is on a database server.
pub(crate) fn is_on_server(places: &Places) -> Result<bool, Error> {
    is_on_server_with(&places.config, &places.secrets())
}

/// Whether the data would be on a database server with these two files.
pub(crate) fn is_on_server_with(config: &Path, secrets: &Path) -> Result<bool, Error> {
    let is_set = |(name, value): &(String, String)| name == STORE_URL && !value.is_empty();
    let is_secret = self::secrets(secrets).iter().any(is_set);
    let is_in_environment = std::env::var(STORE_URL).is_ok_and(|url| !url.is_empty());
    Ok(is_secret || is_in_environment || !effective_config(config)?.store.url.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_passwords_of_urls_are_masked_wherever_they_end() {
        for (text, shown) in [
            ("postgres://ken:s3cret@db/ken", "postgres://ken:***@db/ken"),
            ("postgres://ken:s3cret@db/ken?password=s3cret", "postgres://ken:***@db/ken?password=***"),
            ("postgres://ken:x@s3cret@db:1,other:2/ken", "postgres://ken:***@db:1,other:2/ken"),
            ("postgres://ken:a/s3cret@db/ken", "postgres://ken:***@db/ken"),
            ("postgres://ken:a,s3:cret@db/ken", "postgres://ken:***@db/ken"),
            (
                "postgres://db/ken?user=k&password=s3cret&sslmode=require",
                "postgres://db/ken?user=k&password=***&sslmode=require",
            ),
            ("URL=http://u:s3cret@a:1/x, https://v:s3cret@b", "URL=http://u:***@a:1/x, https://v:***@b"),
            ("http://a:80/x,http://u:s3cret@b", "http://a:80/x,http://u:***@b"),
            ("http://u:@h", "http://u:***@h"),
            ("http://ada@h:80/x", "http://ada@h:80/x"),
            ("http://[::1]:80/@scope/x", "http://[::1]:80/@scope/x"),
            ("http://h:80/@scope/x", "http://h:80/@scope/x"),
            ("http://h/a:b@c", "http://h/a:b@c"),
            ("://", "://"),
            ("file:///x@y", "file:///x@y"),
            ("keys: a=b", "keys: a=b"),
        ] {
            assert_eq!(without_passwords(text), shown, "{text}");
        }
    }

    #[test]
    fn every_value_says_where_it_comes_from() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ken.toml");
        std::fs::write(&path, "[gateway]\n# here\nport = 4000\n\n[part.store]\nenv = [\"X_TOKEN=abc\", \"Y=1\"]\n")
            .unwrap();
        let settings_of = || effective_settings(&path, &text_of(&path)?);
        let settings = settings_of().unwrap();
        let port = &settings["gateway"]["port"];
        assert_eq!((&port.value, port.from.as_str()), (&Value::Integer(4000), &*format!("{}:3", path.display())));
        assert_eq!(settings["gateway"]["listen"].from, "default");
        assert_eq!(settings["part.store"]["nofile"].from, "default");
        let env = masked(settings["part.store"]["env"].value.clone());
        assert_eq!(env.to_string(), "[\"X_TOKEN=***\", \"Y=1\"]");
        for (url, shown) in [
            ("postgres://ken:a@b/c@db:1/ken?x=y", "postgres://ken:***@db:1/ken?x=y"),
            ("http://u:pw@127.0.0.1:4318", "http://u:***@127.0.0.1:4318"),
            ("https://host:8443/@scope/server", "https://host:8443/@scope/server"),
            ("postgres://ken@db/ken", "postgres://ken@db/ken"),
        ] {
            assert_eq!(masked(Value::String(url.into())), Value::String(shown.into()));
        }
        let config = effective_config(&path).unwrap();
        assert_eq!((config.gateway.port, config.part["store"].nofile), (4000, 4096));
        assert!(settings["part.store"].contains_key("walls"));
        std::fs::write(&path, "[part.store]\ncommand = [\"my-store\"]\n").unwrap();
        assert!(!settings_of().unwrap()["part.store"].contains_key("walls"));
        std::fs::write(&path, "[kend]\nbuiltin_parts = false\n").unwrap();
        assert!(!settings_of().unwrap().contains_key("part.store"));
        std::fs::write(&path, "[kend\n").unwrap();
        assert!(settings_of().is_err());
    }
}
