//! The proxy between this machine and others, from the variables that other programs read, too.

use ken_types::Error;
use ken_types::config::{PROXIES, WITHOUT_PROXY};
use ureq::http::Uri;
use ureq::{Proxy, ProxyProtocol};

/// No proxy leads to this machine.
const LOCAL: [&str; 3] = ["localhost", "127.*", "[::1]"];

/// Returns the proxy for a URL; `None` if there is none, or none for its host. `setting` returns the value of a variable. A proxy of
/// SOCKS is left out.
///
/// # Errors
/// `invalid` at the variable if its value is no address. The message does not contain the value.
pub fn proxy(url: &str, setting: &dyn Fn(&str) -> Option<String>) -> Result<Option<Proxy>, Error> {
    let [https, https_too, http, http_too, all, all_too] = PROXIES;
    let own = if url.starts_with("https:") { [https, https_too] } else { [http, http_too] };
    let set = |name: &'static str| Some((name, setting(name)?.trim().to_owned()));
    let is_used = |(_, address): &(&str, String)| !address.is_empty() && !address.starts_with("socks");
    let Some((name, address)) = own.into_iter().chain([all, all_too]).filter_map(set).find(is_used) else {
        return Ok(None);
    };
    let without = WITHOUT_PROXY.into_iter().find_map(setting).unwrap_or_default();
    let hosts = without.split(',').map(str::trim).filter(|host| !host.is_empty());
    let proxy = parsed(&address, LOCAL.into_iter().chain(hosts)).ok_or_else(|| {
        let message = format!("{name} is not the address of a proxy, such as http://proxy.example.org:3128");
        Error::invalid(name, message)
    })?;
    let is_direct = url.parse::<Uri>().is_ok_and(|url| proxy.is_no_proxy(&url));
    Ok((!is_direct).then_some(proxy))
}

/// Returns the host and the port of a proxy, for a message.
#[must_use]
pub fn address(proxy: &Proxy) -> String {
    format!("{}:{}", proxy.host(), proxy.port())
}

fn parsed<'a>(address: &str, without: impl Iterator<Item = &'a str>) -> Option<Proxy> {
    let given = Proxy::new(address).ok()?;
    if !matches!(given.protocol(), ProxyProtocol::Http | ProxyProtocol::Https) {
        return None;
    }
    let mut proxy = Proxy::builder(given.protocol()).host(given.host()).port(given.port());
    if let Some(user) = given.username() {
        proxy = proxy.username(user);
    }
    if let Some(password) = given.password() {
        proxy = proxy.password(password);
    }
    without.fold(proxy, |proxy, host| proxy.no_proxy(host)).build().ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn found(url: &str, set: &[(&str, &str)]) -> Result<Option<String>, Error> {
        let setting = |name: &str| set.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        proxy(url, &setting).map(|proxy| proxy.as_ref().map(address))
    }

    #[test]
    fn a_url_has_the_proxy_of_its_scheme_or_of_all() {
        let (far, plain) = ("https://api.example.org/v1", "http://api.example.org/v1");
        let set = [("https_proxy", "http://u:p%40w@one:1"), ("HTTP_PROXY", "two:2"), ("ALL_PROXY", "https://three:3/")];
        assert_eq!(found(far, &set).unwrap().as_deref(), Some("one:1"));
        assert_eq!(found(plain, &set).unwrap().as_deref(), Some("two:2"));
        assert_eq!(found(plain, &set[2..]).unwrap().as_deref(), Some("three:3"));
        assert_eq!(found(plain, &set[..1]).unwrap(), None);
        assert_eq!(found(far, &[("HTTPS_PROXY", " ")]).unwrap(), None);
        assert_eq!(found(far, &[("ALL_PROXY", "socks5://127.0.0.1:1080")]).unwrap(), None);
    }

    #[test]
    fn this_machine_and_what_is_named_are_reached_without_one() {
        let all = |without| [("ALL_PROXY", "one:1"), ("NO_PROXY", without)];
        for (url, without, is_direct) in [
            ("http://localhost:11434/v1", "", true),
            ("http://127.0.0.1:8080", "", true),
            ("http://[::1]:8080", "", true),
            ("https://api.example.org", "", false),
            ("https://api.example.org", "other, api.example.org", true),
            ("https://api.example.org", ".example.org", true),
            ("https://api.example.org", "*", true),
            ("https://api.example.org", "example.org", false),
        ] {
            assert_eq!(found(url, &all(without)).unwrap().is_none(), is_direct, "{url} {without}");
        }
    }

    #[test]
    fn a_wrong_address_is_refused_without_its_password() {
        for wrong in ["http://u:secret@", "ftp://u:secret@one:1", "http://u:%ff@one:1"] {
            let error = found("https://x.test", &[("HTTPS_PROXY", wrong)]).unwrap_err();
            assert!(error.at.as_deref() == Some("HTTPS_PROXY") && !error.to_string().contains("secret"), "{error}");
        }
    }
}
