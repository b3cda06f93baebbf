//! The standard input of ken-proxy(1): the hosts that may be reached, and the keys that it adds to requests.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_with::{DeserializeFromStr, SerializeDisplay};

/// The default port of a host: https.
pub const HTTPS: u16 = 443;
const HTTP: u16 = 80;
/// The maximum length of a host name (RFC 1035).
const MAX_NAME_BYTES: usize = 253;

/// `HOST` or `HOST:PORT`. The host is a name or an address; patterns are not allowed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, SerializeDisplay, DeserializeFromStr)]
pub struct Host {
    /// The name in lower case. An IPv6 address has no brackets.
    pub name: String,
    pub port: u16,
}

impl FromStr for Host {
    /// What is wrong with the text.
    type Err = String;

    fn from_str(text: &str) -> Result<Host, String> {
        let wrong = || format!("{text:?} is neither HOST nor HOST:PORT");
        let (name, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((name, "")) => (name, None),
            Some((name, rest)) => (name, Some(rest.strip_prefix(':').ok_or_else(wrong)?)),
            None if text.parse::<IpAddr>().is_ok() => (text, None),
            None => match text.split_once(':') {
                Some((name, port)) => (name, Some(port)),
                None => (text, None),
            },
        };
        let port = port.map_or(Ok(HTTPS), |port| port.parse().map_err(|_| wrong()))?;
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
        let is_name = (1..=MAX_NAME_BYTES).contains(&name.len()) && name.bytes().all(plain);
        if (is_name || name.parse::<IpAddr>().is_ok()) && port != 0 {
            Ok(Host { name: name.to_ascii_lowercase(), port })
        } else {
            Err(wrong())
        }
    }
}

impl Host {
    /// Returns the host as an address, or `None` if it is a name.
    pub fn address(&self) -> Option<IpAddr> {
        self.name.parse().ok()
    }

    /// Returns the authority of a URL with this scheme. It contains no port if the port is the scheme's default.
    pub fn authority(&self, scheme: &str) -> String {
        let name = if self.name.contains(':') { format!("[{}]", self.name) } else { self.name.clone() };
        match (scheme, self.port) {
            ("http", HTTP) | ("https", HTTPS) => name,
            (_, port) => format!("{name}:{port}"),
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.authority(""))
    }
}

/// The first line of ken-proxy's standard input.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ProxyRules {
    /// The hosts that may be reached. A name has to resolve to a public address. An address in this list need not be
    /// public.
    pub hosts: Vec<Host>,
    /// Networks that the names of `hosts` may resolve to although they are not public, such as `10.1.0.0/16`.
    pub private: Vec<String>,
    /// The `Authorization` header for each host. ken-proxy adds it to requests for `http://HOST`, and forwards these
    /// over TLS.
    pub keys: BTreeMap<Host, String>,
}

/// The only line of ken-proxy's standard output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProxyReady {
    /// The value for `http_proxy`, with a password that only this run of the proxy accepts.
    pub url: String,
    /// The address of the proxy: `127.0.0.1:PORT`.
    pub address: String,
}

/// The destination of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route<'a> {
    pub host: Host,
    pub is_secure: bool,
    /// The value of the header `Authorization`, if the proxy adds one.
    pub key: Option<&'a str>,
}

impl ProxyRules {
    /// Whether a tunnel to this host may be opened.
    pub fn allows_tunnel(&self, host: &Host) -> bool {
        self.hosts.contains(host)
    }

    /// Returns the destination of a request for `http://NAME[:PORT]`, or `None` if it is not allowed. A host that is
    /// listed for https only, or that has a key, is reached over TLS, because a key is never sent unencrypted.
    pub fn route(&self, name: &str, port: Option<u16>) -> Option<Route<'_>> {
        let at = |port| Host { name: name.to_ascii_lowercase(), port };
        let known = |host: &Host| self.hosts.contains(host);
        let (plain, secure) = (at(port.unwrap_or(HTTP)), at(port.unwrap_or(HTTPS)));
        let key = self.keys.get(&secure).filter(|_| known(&secure));
        let (host, is_secure) = match key {
            Some(_) => (secure, true),
            None if known(&plain) => (plain, false),
            None if known(&secure) => (secure, true),
            None => return None,
        };
        Some(Route { host, is_secure, key: key.map(String::as_str) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(text: &str) -> Host {
        text.parse().unwrap()
    }

    #[test]
    fn a_host_is_a_name_or_an_address_with_a_port() {
        assert_eq!(host("Example.org").to_string(), "example.org:443");
        assert_eq!(host("127.0.0.1:80").authority("http"), "127.0.0.1");
        assert_eq!(host("[::1]:8080").authority("https"), "[::1]:8080");
        assert_eq!(host("::1"), host("[::1]:443"));
        for wrong in ["", "*.org", "a b", "a:b", "a:0", "a:70000", "user@host", "http://a", "[::1]x", "a/b"] {
            assert!(wrong.parse::<Host>().is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_key_is_for_its_host_and_never_in_clear() {
        let rules: ProxyRules = serde_json::from_str(
            r#"{"hosts":["git.test","plain.test:80","keyed.test:8443"],
                "keys":{"git.test":"Bearer 1","keyed.test:8443":"Bearer 2","absent.test":"Bearer 3"}}"#,
        )
        .unwrap();
        let route = |name, port| rules.route(name, port).map(|route| (route.host.port, route.is_secure, route.key));
        assert_eq!(route("GIT.test", None), Some((443, true, Some("Bearer 1"))));
        assert_eq!(route("git.test", Some(80)), None);
        assert_eq!(route("plain.test", None), Some((80, false, None)));
        assert_eq!(route("keyed.test", Some(8443)), Some((8443, true, Some("Bearer 2"))));
        assert_eq!(route("keyed.test", None), None);
        assert_eq!(route("absent.test", None), None);
        assert!(rules.allows_tunnel(&host("git.test")) && !rules.allows_tunnel(&host("git.test:22")));
    }
}
