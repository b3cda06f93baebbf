//! The address of a gateway, and the secret that it requires of callers on other machines.

use std::fmt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use ken_types::places::Places;
use ken_types::{Error, secrets};

/// A gateway's address and the secret for it.
#[derive(Debug, Clone)]
pub struct Endpoint {
    url: String,
    secret: Option<Secret>,
}

impl Endpoint {
    /// Creates an endpoint without a secret. `url` has no path: `http://HOST:PORT`. A server that listens on all
    /// interfaces reports an unspecified address (`0.0.0.0`, `[::]`), which is replaced by the loopback address.
    pub fn new(url: &str) -> Endpoint {
        let url = url.trim_end_matches('/');
        let on_this_machine = [("0.0.0.0", "127.0.0.1"), ("[::]", "[::1]")].into_iter().find_map(|(any, loopback)| {
            let rest = url.strip_prefix("http://")?.strip_prefix(any)?;
            Some(format!("http://{loopback}{rest}"))
        });
        Endpoint { url: on_this_machine.unwrap_or_else(|| url.to_owned()), secret: None }
    }

    /// Creates an endpoint of an address that a person has given.
    ///
    /// # Errors
    /// `invalid` if it is no address without a path.
    pub fn given(url: &str) -> Result<Endpoint, Error> {
        let rest = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"));
        match rest.map(|rest| rest.trim_end_matches('/')) {
            Some(host) if !host.is_empty() && !host.contains(['/', '?', '#', '@']) => Ok(Endpoint::new(url)),
            _ => Err(Error::invalid("--url", "an address without a path is expected, as http://HOST:PORT")),
        }
    }

    #[must_use]
    pub fn with_secret(mut self, secret: Option<Secret>) -> Endpoint {
        self.secret = secret;
        self
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    pub(crate) fn secret(&self) -> Option<&str> {
        self.secret.as_ref().map(|secret| secret.0.as_str())
    }
}

/// The gateway's `API_SECRET`. `Debug` does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Creates a secret from a text, without the white space around it. Returns `None` if the text is blank.
    ///
    /// # Errors
    /// `invalid` if the text is not allowed in an HTTP header. `at` names the source of the text.
    pub fn new(text: &str, at: &str) -> Result<Option<Secret>, Error> {
        let text = text.trim();
        if !text.bytes().all(|byte| (0x20..0x7f).contains(&byte)) {
            let message = "the secret holds a character that no HTTP header can have";
            return Err(Error::invalid(at, message).hint("use visible ASCII characters"));
        }
        Ok((!text.is_empty()).then(|| Secret(text.to_owned())))
    }

    /// Returns the secret that the caller of a program names: in a file, else in `KEN_API_SECRET`. The command line never
    /// contains the secret itself.
    ///
    /// # Errors
    /// Those of [`Secret::from_file`] and [`Secret::new`].
    pub fn given(file: Option<&Path>) -> Result<Option<Secret>, Error> {
        match file {
            Some(file) => Secret::from_file(file).map(Some),
            None => match std::env::var("KEN_API_SECRET") {
                Ok(text) => Secret::new(&text, "KEN_API_SECRET"),
                Err(_) => Ok(None),
            },
        }
    }

    /// Returns the secret that a system of this machine is configured with, if this user may read it: `API_SECRET` of its
    /// `secrets.env`, else its `client.secret`.
    ///
    /// # Errors
    /// Those of [`Secret::new`].
    pub fn configured(places: &Places) -> Result<Option<Secret>, Error> {
        let (secrets, own) = (places.secrets(), places.client_secret());
        let text = text_of(&secrets);
        match secrets::find(&text, "API_SECRET").filter(|value| !value.trim().is_empty()) {
            Some(value) => Secret::new(value, &secrets.display().to_string()),
            None => Secret::new(&text_of(&own), &own.display().to_string()),
        }
    }

    /// Reads a file that contains only the secret. Its group may read it, and nobody else.
    ///
    /// # Errors
    /// `invalid` if the file cannot be read, or others can read it, or it contains no secret.
    pub fn from_file(path: &Path) -> Result<Secret, Error> {
        let at = path.display().to_string();
        if std::fs::metadata(path).is_ok_and(|meta| meta.permissions().mode() & 0o037 != 0) {
            let error = Error::invalid(&*at, format!("{at}: other users can read this secret"));
            return Err(error.hint(format!("chmod 600 {at}")));
        }
        if std::fs::metadata(path).is_ok_and(|meta| !meta.is_file()) {
            // Reading a FIFO would wait for a writer.
            return Err(Error::invalid(&*at, format!("{at}: it is not a regular file")));
        }
        let text = std::fs::read_to_string(path).map_err(|error| Error::invalid(&*at, error.to_string()))?;
        Secret::new(&text, &at)?.ok_or_else(|| Error::invalid(at, "the file holds no secret"))
    }
}

/// The text of a regular file; empty if there is none or it cannot be read. Another file, such as a FIFO, could block.
fn text_of(path: &Path) -> String {
    let is_file = std::fs::metadata(path).is_ok_and(|meta| meta.is_file());
    if is_file { std::fs::read_to_string(path).unwrap_or_default() } else { String::new() }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        for good in ["http://10.0.0.1:3940", "https://ken.example/", "http://[::1]:1"] {
            assert_eq!(Endpoint::given(good).unwrap().url(), good.trim_end_matches('/'));
        }
        for bad in ["", "10.0.0.1:3940", "http://", "http://x/api", "http://me:secret@x", "ftp://x"] {
            assert!(Endpoint::given(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn an_unspecified_address_is_this_machine() {
        for (given, url) in [
            ("http://0.0.0.0:3940", "http://127.0.0.1:3940"),
            ("http://[::]:3940", "http://[::1]:3940"),
            ("http://127.0.0.1:1/", "http://127.0.0.1:1"),
            ("https://ken.example", "https://ken.example"),
        ] {
            assert_eq!(Endpoint::new(given).url(), url);
        }
    }

    #[test]
    fn a_secret_is_trimmed_checked_and_never_shown() {
        let secret = Secret::new(" s3cret\n", "x").unwrap().unwrap();
        assert_eq!(format!("{secret:?}"), "Secret(…)");
        assert_eq!(Endpoint::new("x").with_secret(Some(secret)).secret(), Some("s3cret"));
        assert_eq!(Secret::new(" \n", "x"), Ok(None));
        assert!(Secret::new("a\nb", "x").is_err());
        assert!(Secret::from_file(Path::new("/nowhere")).is_err());
    }
}
