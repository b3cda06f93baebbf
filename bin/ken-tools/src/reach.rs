//! The addresses beside the public ones that a tool may reach, as its description names them.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tokio::net::lookup_host;
use tokio::time::timeout;

/// The timeout for looking up all names together.
const PATIENCE: Duration = Duration::from_secs(5);

/// For `--reach` of ken-sandbox(1). An entry `$NAME` stands for the list in that variable, which is the operator's. Names are
/// looked up now; one that leads nowhere is left out, and a tool that uses it finds out by itself.
pub(crate) async fn addresses(entries: &[String]) -> Vec<String> {
    let mut found = Vec::new();
    let look_up = async {
        for entry in entries.iter().flat_map(|entry| expanded(entry)) {
            if is_address(&entry) {
                found.push(entry);
            } else if let Some(host) = host_of(&entry) {
                let led = lookup_host(host).await;
                found.extend(led.into_iter().flatten().map(|address| address.to_string()));
            }
        }
    };
    // Only the addresses that were found in time may be reached.
    let _ = timeout(PATIENCE, look_up).await;
    found.sort();
    found.dedup();
    found
}

fn expanded(entry: &str) -> Vec<String> {
    let text = match entry.strip_prefix('$') {
        Some(name) => std::env::var(name).unwrap_or_default(),
        None => entry.to_owned(),
    };
    let parts = text.split([',', ' ', '\t', '\n']);
    parts.filter(|part| !part.is_empty()).map(str::to_owned).collect()
}

/// An address, ADDRESS:PORT or a network.
pub(crate) fn is_address(text: &str) -> bool {
    let first = text.split('/').next().unwrap_or_default();
    text.parse::<SocketAddr>().is_ok() || (first.parse::<IpAddr>().is_ok() && !text.ends_with('/'))
}

/// HOST:PORT of itself or of a URL.
pub(crate) fn host_of(text: &str) -> Option<String> {
    let (scheme, rest) = text.split_once("://").unwrap_or(("", text));
    let authority = rest.split(['/', '?', '#']).next()?.rsplit('@').next()?;
    let port = match scheme {
        "http" => ":80",
        "https" => ":443",
        _ => "",
    };
    let has_port = authority
        .rsplit_once(':')
        .is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    let host = match has_port {
        true => authority.to_owned(),
        false => format!("{authority}{port}"),
    };
    (has_port || !port.is_empty())
        .then_some(host)
        .filter(|host| !host.starts_with(':'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_addresses_hosts_and_urls() {
        for address in ["127.0.0.1", "127.0.0.1:80", "[::1]:80", "10.0.0.0/8", "fd00::/8"] {
            assert!(is_address(address), "{address}");
        }
        assert!(!is_address("localhost:80") && !is_address("/8"));
        let host = |text| host_of(text).unwrap_or_default();
        assert_eq!(host("http://search.test/x?q=1"), "search.test:80");
        assert_eq!(host("https://user@search.test:8443/x"), "search.test:8443");
        assert_eq!(host("wiki.test:8080"), "wiki.test:8080");
        assert_eq!(host("http://[::1]/"), "[::1]:80");
        assert_eq!((host("wiki.test"), host(":80")), (String::new(), String::new()));
    }
}
