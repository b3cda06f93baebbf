//! The server as the URL of the settings names it.

use std::sync::Arc;
use std::time::Duration;

use ken_tls::root_store;
use ken_types::Error;
use ken_types::config::{DATABASE_FORM, database_problem};
use rustls::{ClientConfig, RootCertStore};
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::timeline::Newest;

/// How long opening a connection to one host may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// After this time without an acknowledgement the kernel gives up a connection.
const TCP_USER_TIMEOUT: Duration = Duration::from_secs(10);

/// Where the database is, and how to connect to it.
#[derive(Clone)]
pub(super) struct Server {
    pub(super) config: Config,
    /// The same for each of the hosts alone, in the order of the URL.
    pub(super) hosts: Arc<[Config]>,
    /// Whether a commit has to wait for a standby.
    pub(super) require_sync: bool,
    pub(super) tls: MakeRustlsConnect,
    /// Shared by all connections of this process.
    pub(super) newest: Arc<Newest>,
    /// The URL without a password, for messages.
    pub(super) name: Arc<str>,
}

impl Server {
    /// Reads a URL `postgres://USER@HOST[:PORT][,HOST…]/DATABASE[?OPTION=VALUE&…]`.
    pub(super) fn of(url: &str) -> Result<Server, Error> {
        let wrong = |what: String| Error::invalid("store.url", what).hint(DATABASE_FORM);
        if let Some(problem) = database_problem(url) {
            return Err(wrong(format!("the URL of the store {problem}")));
        }
        let config = parse(url).map_err(|error| {
            // The cause names the option and not its value.
            let cause = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
            let error = wrong(format!("the URL of the store cannot be read: {cause}"));
            if cause.contains("sslrootcert") {
                error.hint("leave it out: SSL_CERT_FILE names the file with the authorities, see ken-postgres(7)")
            } else {
                error
            }
        })?;
        let (name, hosts) = (name(&config).into(), host_by_host(url, &config).into());
        let tls = tls(&config)?;
        Ok(Server { config, hosts, require_sync: false, tls, newest: Arc::default(), name })
    }

    /// Returns a text of the server with `[redacted]` in place of the password. Shorter ones than four bytes are left, because they are in
    /// too many words.
    pub(super) fn without_password(&self, text: String) -> String {
        match self.config.get_password().map(String::from_utf8_lossy).filter(|password| password.len() >= 4) {
            Some(password) => text.replace(&*password, "[redacted]"),
            None => text,
        }
    }

    /// Returns whether both are the same but for their passwords.
    pub(super) fn is_same_place(&self, other: &Server) -> bool {
        let [mut own, mut others] = [self.config.clone(), other.config.clone()];
        own.password("") == others.password("")
    }
}

fn parse(url: &str) -> Result<Config, tokio_postgres::Error> {
    // The words of libpq for what is done here whenever a connection is encrypted. Only options follow the last question mark.
    let (place, options) = url.rsplit_once('?').unwrap_or((url, ""));
    let options = ["verify-full", "verify-ca"]
        .iter()
        .fold(options.to_owned(), |options, mode| options.replace(&format!("sslmode={mode}"), "sslmode=require"));
    let mut config: Config = format!("{place}?{options}").parse()?;
    config.application_name("ken-store").connect_timeout(CONNECT_TIMEOUT).tcp_user_timeout(TCP_USER_TIMEOUT);
    Ok(config)
}

/// Returns a configuration for each host, so that one that cannot be used is passed over even if it lets a client in. Hosts that only an
/// option of the URL names stay together.
fn host_by_host(url: &str, whole: &Config) -> Vec<Config> {
    let (scheme, rest) = url.split_once("://").unwrap_or_default();
    let (user, place) = rest.split_once('@').unwrap_or(("", rest));
    let (hosts, options) = place.split_at(place.find(['/', '?']).unwrap_or(place.len()));
    let alone = hosts.split(',').map(|host| parse(&format!("{scheme}://{user}@{host}{options}")));
    let alone: Result<Vec<Config>, _> = alone.collect();
    let is_each = |alone: &Vec<Config>| {
        alone.iter().map(Config::get_hosts).eq(whole.get_hosts().chunks(1)) && whole.get_hostaddrs().is_empty()
    };
    alone.ok().filter(is_each).unwrap_or_else(|| vec![whole.clone()])
}

fn name(config: &Config) -> String {
    let ports = config.get_ports();
    let port = |at: usize| ports.get(at).or(ports.first()).copied().unwrap_or(5432);
    let host = |(at, host): (usize, &Host)| match host {
        Host::Tcp(host) => format!("{host}:{}", port(at)),
        Host::Unix(folder) => format!("{}:{}", folder.display(), port(at)),
    };
    let named: Vec<String> = config.get_hosts().iter().enumerate().map(host).collect();
    let addresses = config.get_hostaddrs().iter().enumerate().map(|(at, host)| format!("{host}:{}", port(at)));
    let hosts = if named.is_empty() { addresses.collect() } else { named };
    let (user, database) = (config.get_user().unwrap_or_default(), config.get_dbname().unwrap_or_default());
    // A URL can have any character as %XX, and the name is printed on terminals.
    format!("postgres://{user}@{}/{database}", hosts.join(",")).replace(char::is_control, "\u{fffd}")
}

/// The server's certificate is always checked. Its name has to be in it. Where no connection is encrypted, the authorities are not read: a
/// file that is not there is no reason not to work then.
fn tls(config: &Config) -> Result<MakeRustlsConnect, Error> {
    let is_tcp =
        config.get_hosts().iter().any(|host| matches!(host, Host::Tcp(_))) || !config.get_hostaddrs().is_empty();
    let is_encrypted = is_tcp && config.get_ssl_mode() != SslMode::Disable;
    let roots = if is_encrypted { root_store()? } else { RootCertStore::empty() };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let versions = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = versions.map_err(|error| Error::internal(format!("TLS cannot be set up: {error}")))?;
    Ok(MakeRustlsConnect::new(builder.with_root_certificates(roots).with_no_client_auth()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_name_the_server_without_the_password() {
        for (url, name) in [
            ("postgres://ken:s3cret@db.example/ken", "postgres://ken@db.example:5432/ken"),
            ("postgresql://k@a:1,b:2/d?sslmode=require", "postgres://k@a:1,b:2/d"),
            ("postgres://k@%2Frun%2Fpg/d", "postgres://k@/run/pg:5432/d"),
            ("postgres://k@a/d%1B%5B31m%0A", "postgres://k@a:5432/d\u{fffd}[31m\u{fffd}"),
        ] {
            assert_eq!(&*Server::of(url).map(|server| server.name).unwrap(), name);
        }
    }

    #[test]
    fn each_host_of_a_url_can_be_tried_alone() {
        let hosts = |url: &str| {
            let server = Server::of(url).unwrap();
            server.hosts.iter().map(|alone| (alone.get_user().unwrap().to_owned(), name(alone))).collect::<Vec<_>>()
        };
        let two =
            [("k".to_owned(), "postgres://k@a:1/d".to_owned()), ("k".to_owned(), "postgres://k@b:2/d".to_owned())];
        assert_eq!(hosts("postgres://k:p%40@a:1,b:2/d?target_session_attrs=read-write"), two);
        assert_eq!(hosts("postgres://k@%2Frun%2Fpg/d"), [("k".to_owned(), "postgres://k@/run/pg:5432/d".to_owned())]);
        assert_eq!(hosts("postgres://k@/d?host=a,b").len(), 1, "they stay together");
    }

    #[test]
    fn a_url_that_cannot_be_used_is_refused_by_name_and_shows_no_password() {
        for (url, why) in [
            ("host=localhost", "does not begin"),
            ("postgres://k:s3cret@/d", "no host"),
            ("postgres://db/d", "needs a user"),
            ("postgres://k:s3cret@db", "needs a user and a database"),
            ("postgres://k:x@s3cret@db/d", "as %40"),
            ("postgres://k:x@s3cret@a,b/d", "as %40"),
            ("postgres://db/d?user=k&password=x@s3cret", "as %40"),
            ("postgres://k:s3cret@db/d?sslmode=never", "sslmode"),
            ("postgres://k:s3cret@db/d?unheard=of", "unheard"),
        ] {
            let error = Server::of(url).err().unwrap();
            assert!(error.message.contains(why) && !error.message.contains("s3cret"), "{url}: {}", error.message);
        }
    }

    #[test]
    fn the_password_does_not_make_another_place() {
        let server = |url: &str| Server::of(url).unwrap();
        assert!(server("postgres://k:p@a/d").is_same_place(&server("postgres://k@a/d")));
        assert!(!server("postgres://k@a/d").is_same_place(&server("postgres://k@b/d")));
    }
}
