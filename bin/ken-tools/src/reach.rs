//! The addresses in the description of a tool that are allowed besides the public ones.

use std::time::Duration;

use ken_types::address::is_address;
use tokio::net::lookup_host;
use tokio::time::timeout;

/// The time limit for resolving all names together.
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(5);

/// Returns the values for `--reach` of ken-sandbox(1). An entry `$NAME` stands for the list in that variable, which the
/// operator has set. Names are resolved now. A name without an address is left out, so the tool cannot reach it.
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
    // After the timeout, only the addresses found so far can be reached.
    let _ = timeout(RESOLVE_TIMEOUT, look_up).await;
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

/// Returns HOST:PORT for an entry of this form or for a URL.
pub(crate) fn host_of(text: &str) -> Option<String> {
    let (scheme, authority, _) = parts(text);
    let port = match scheme {
        "http" => ":80",
        "https" => ":443",
        _ => "",
    };
    let own = authority.rsplit_once(':');
    let host = match own.is_some_and(|(_, port)| port.parse::<u16>().is_ok()) {
        true => authority.to_owned(),
        false if port.is_empty() => return None,
        false => format!("{authority}{port}"),
    };
    (!host.starts_with(':')).then_some(host)
}

/// Returns a URL without the parts that can be secret: user, password, query and fragment.
pub(crate) fn without_secrets(url: &str) -> String {
    let (scheme, authority, path) = parts(url);
    format!("{scheme}://{authority}{path}")
}

/// Splits a URL into the scheme, HOST or HOST:PORT, and the path.
fn parts(url: &str) -> (&str, &str, &str) {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let rest = rest.split(['?', '#']).next().unwrap_or_default();
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    // A password can contain an @.
    let host = authority.rsplit('@').next().unwrap_or_default();
    (scheme, host, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_hosts_and_urls() {
        let host = |text| host_of(text).unwrap_or_default();
        assert_eq!(host("http://search.test/x?q=1"), "search.test:80");
        assert_eq!(host("https://user@search.test:8443/x"), "search.test:8443");
        assert_eq!(host("wiki.test:8080"), "wiki.test:8080");
        assert_eq!(host("http://[::1]/"), "[::1]:80");
        assert_eq!((host("wiki.test"), host(":80")), (String::new(), String::new()));
    }

    #[test]
    fn an_entry_may_name_several_hosts_and_nothing_is_none() {
        assert_eq!(expanded("a:1, b:2,,\tc:3\n"), ["a:1", "b:2", "c:3"]);
        assert_eq!(expanded("$KEN_TEST_THAT_IS_NOT_SET"), [""; 0]);
        assert_eq!(expanded(""), [""; 0]);
    }

    #[test]
    fn a_url_is_shown_without_secrets() {
        for (url, shown) in [
            ("https://wiki.test/mcp?key=1#x", "https://wiki.test/mcp"),
            ("https://user:p@ss@wiki.test:8443/mcp", "https://wiki.test:8443/mcp"),
            ("http://user:word@[::1]:80", "http://[::1]:80"),
            ("https://wiki.test?at=a@b/c", "https://wiki.test"),
        ] {
            assert_eq!(without_secrets(url), shown);
        }
    }
}
