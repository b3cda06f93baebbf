//! The settings `MESSENGER_*`.

use std::fmt;

use ken_types::Error;
use ureq::Proxy;

const TOKEN: &str = "MESSENGER_BOT_TOKEN";
const SECRET: &str = "MESSENGER_WEBHOOK_SECRET_TOKEN";
const PLATFORM: &str = "https://api.telegram.org";
const MAX_SECRET_CHARACTERS: usize = 256;

#[derive(Debug, Clone, Default)]
pub(crate) struct Settings {
    /// `None` turns the connector off.
    pub(crate) keys: Option<Keys>,
    /// Whether the platform is asked for updates, which it otherwise posts to the webhook.
    pub(crate) polls: bool,
    /// Without a trailing slash.
    pub(crate) api_url: String,
    pub(crate) proxy: Option<Proxy>,
    /// Users who are admitted in addition to the stored ones, including administrators.
    pub(crate) users: Vec<String>,
    pub(crate) admins: Vec<String>,
    /// Without `@`, in lower case; empty when it is not known.
    pub(crate) bot_username: String,
    /// In lower case.
    pub(crate) mention_patterns: Vec<String>,
    /// Whether unknown users get a code.
    pub(crate) pairing_codes: bool,
}

/// The bot token and the secret of the webhook. Neither is ever printed.
#[derive(Clone)]
pub(crate) struct Keys {
    pub(crate) token: String,
    pub(crate) secret: String,
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Keys(..)")
    }
}

impl Settings {
    /// Reads the settings; `value` gives those that are set and not empty.
    pub(crate) fn read(value: impl Fn(&str) -> Option<String>) -> Result<Settings, Error> {
        let list = |name: &str| list(&value(name).unwrap_or_default());
        let lower = |text: String| text.to_lowercase();
        let admins = list("MESSENGER_ADMIN_USER_IDS");
        let mut users = list("MESSENGER_APPROVED_USER_IDS");
        users.extend(admins.iter().cloned());
        let api_url = api_url(value("MESSENGER_API_BASE_URL"))?;
        Ok(Settings {
            keys: keys(value(TOKEN), value(SECRET))?,
            polls: is_second("MESSENGER_MODE", ["webhook", "poll"], &value)?,
            proxy: ken_tls::proxy(&api_url, &value)?,
            api_url,
            users,
            admins,
            bot_username: lower(
                value("MESSENGER_BOT_USERNAME").unwrap_or_default().trim().trim_start_matches('@').to_owned(),
            ),
            mention_patterns: list("MESSENGER_MENTION_PATTERNS").into_iter().map(lower).collect(),
            pairing_codes: is_second("MESSENGER_PAIRING_CODES", ["false", "true"], &value)?,
        })
    }

    /// The bot's own user id, which is the first part of its token.
    pub(crate) fn bot_id(&self) -> Option<&str> {
        let keys = self.keys.as_ref()?;
        keys.token.split(':').next().filter(|id| !id.is_empty())
    }
}

fn keys(token: Option<String>, secret: Option<String>) -> Result<Option<Keys>, Error> {
    let Some(token) = token.map(|token| token.trim().to_owned()).filter(|token| !token.is_empty()) else {
        return Ok(None);
    };
    let may_stand_in_a_path = |letter: char| letter.is_ascii_alphanumeric() || ":_-".contains(letter);
    if !token.chars().all(may_stand_in_a_path) {
        let message = format!("{TOKEN} holds other characters than letters, digits, ':', '_' and '-'");
        return Err(Error::invalid(TOKEN, message));
    }
    let hint = format!(
        "put {SECRET}=... into secrets.env: 1 to {MAX_SECRET_CHARACTERS} of A-Z a-z 0-9 _ -, for instance from `openssl rand -hex 32`"
    );
    let Some(secret) = secret else {
        let message = format!("{TOKEN} is set and {SECRET} is not; both are needed");
        return Err(Error::invalid(SECRET, message).hint(hint));
    };
    let allowed = |letter: char| letter.is_ascii_alphanumeric() || letter == '_' || letter == '-';
    if secret.len() > MAX_SECRET_CHARACTERS || !secret.chars().all(allowed) {
        let message = format!("{SECRET}, which {TOKEN} needs, is not 1 to {MAX_SECRET_CHARACTERS} of A-Z a-z 0-9 _ -");
        return Err(Error::invalid(SECRET, message).hint(hint));
    }
    Ok(Some(Keys { token, secret }))
}

fn api_url(url: Option<String>) -> Result<String, Error> {
    let url = url.unwrap_or_else(|| PLATFORM.to_owned());
    let rest = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"));
    match rest {
        Some(host) if !host.is_empty() && !host.contains(['?', '#', '@']) => Ok(url.trim_end_matches('/').to_owned()),
        _ => Err(Error::invalid("MESSENGER_API_BASE_URL", "MESSENGER_API_BASE_URL is not an address as https://HOST")),
    }
}

/// Returns whether a variable has the second of two values. If it is not set, it has the first.
fn is_second(name: &str, [first, second]: [&str; 2], value: impl Fn(&str) -> Option<String>) -> Result<bool, Error> {
    match value(name) {
        Some(text) if text != first && text != second => {
            Err(Error::invalid(name, format!("{name} is {text:?}, it is `{first}` or `{second}`")))
        }
        text => Ok(text.as_deref() == Some(second)),
    }
}

fn list(text: &str) -> Vec<String> {
    let words = text.split(',').map(str::trim);
    words.filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Result<Settings, Error> {
        Settings::read(|name| {
            let found = pairs.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn without_a_token_it_is_off_and_with_one_it_needs_the_secret() {
        assert!(read(&[]).unwrap().keys.is_none());
        assert!(read(&[(SECRET, "s")]).unwrap().keys.is_none());
        let error = read(&[(TOKEN, "1:x")]).unwrap_err();
        assert!(error.message.contains(TOKEN) && error.message.contains(SECRET), "{error}");
        for bad in ["a b", "ä", &"x".repeat(257)] {
            assert!(read(&[(TOKEN, "1:x"), (SECRET, bad)]).is_err(), "{bad}");
        }
        assert!(read(&[(TOKEN, "1:x"), (SECRET, &"x".repeat(256))]).is_ok());
        let on = read(&[(TOKEN, "17:x"), (SECRET, "s-_1")]).unwrap();
        assert_eq!(on.bot_id(), Some("17"));
        assert_eq!(format!("{:?}", on.keys), "Some(Keys(..))");
    }

    #[test]
    fn lists_and_words() {
        let settings = read(&[
            ("MESSENGER_APPROVED_USER_IDS", "1, 2,,"),
            ("MESSENGER_ADMIN_USER_IDS", "3"),
            ("MESSENGER_BOT_USERNAME", "@KenBot"),
            ("MESSENGER_MENTION_PATTERNS", "Hey Ken,ken:"),
            ("MESSENGER_MODE", "poll"),
            ("MESSENGER_API_BASE_URL", "http://127.0.0.1:1/"),
            ("MESSENGER_PAIRING_CODES", "true"),
        ])
        .unwrap();
        assert_eq!(settings.users, ["1", "2", "3"]);
        assert_eq!(settings.admins, ["3"]);
        assert_eq!(settings.bot_username, "kenbot");
        assert_eq!(settings.mention_patterns, ["hey ken", "ken:"]);
        assert_eq!((settings.polls, settings.pairing_codes), (true, true));
        assert_eq!(settings.api_url, "http://127.0.0.1:1");
        for (name, bad) in
            [("MESSENGER_MODE", "push"), ("MESSENGER_API_BASE_URL", "ftp://x"), ("MESSENGER_PAIRING_CODES", "yes")]
        {
            assert_eq!(read(&[(name, bad)]).err().unwrap().at.as_deref(), Some(name));
        }
    }
}
