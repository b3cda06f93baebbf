//! Authentication: whether a request is local, or carries the secret.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use http::header::{HOST, HeaderMap, HeaderName, HeaderValue};
use http::{Uri, Version};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// The sender of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Caller {
    /// From this machine, not forwarded, and not sent by a foreign page.
    Local,
    /// From elsewhere, with the right secret.
    Operator,
    /// From elsewhere, on a path that needs no secret.
    Anyone,
}

/// The secret that admits callers from elsewhere.
#[derive(Debug, Clone)]
pub struct Access {
    header: HeaderName,
    /// Only the digest is kept.
    digest: Option<[u8; 32]>,
    trusts_loopback: bool,
}

/// Whether a caller from elsewhere has the secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Admission {
    Right,
    Wrong,
    NotConfigured,
}

impl Access {
    /// `secret` is what callers send in `x-api-secret`; it is trimmed. Without a secret, or with an empty one, no caller from
    /// elsewhere is admitted.
    pub fn new(secret: Option<&str>) -> Access {
        let secret = secret.map(str::trim).filter(|secret| !secret.is_empty());
        Access {
            header: HeaderName::from_static("x-api-secret"),
            digest: secret.map(|secret| Sha256::digest(secret.as_bytes()).into()),
            trusts_loopback: true,
        }
    }

    /// Sets whether requests from this machine need no secret; the default is yes. It must be no behind a reverse proxy on the
    /// same machine, where the requests of everybody outside come from a loopback address.
    pub fn trust_loopback(mut self, yes: bool) -> Access {
        self.trusts_loopback = yes;
        self
    }

    pub(crate) fn trusts_loopback(&self) -> bool {
        self.trusts_loopback
    }

    /// Compares digests in constant time, so that the time reveals neither content nor length of the secret.
    pub(crate) fn admit(&self, headers: &HeaderMap) -> Admission {
        let Some(digest) = &self.digest else {
            return Admission::NotConfigured;
        };
        let mut given = headers.get_all(&self.header).iter();
        let (Some(secret), None) = (given.next(), given.next()) else {
            return Admission::Wrong;
        };
        let given: [u8; 32] = Sha256::digest(secret.as_bytes()).into();
        match bool::from(given.ct_eq(digest)) {
            true => Admission::Right,
            false => Admission::Wrong,
        }
    }
}

/// Whether a request is local: its peer has a loopback address, and no header shows another origin. The checks of host
/// and origin prevent DNS rebinding and requests of foreign web pages.
pub(crate) fn is_local(peer: IpAddr, version: Version, target: &Uri, headers: &HeaderMap) -> bool {
    let target_is_local = target.authority().is_none_or(|authority| names_loopback(authority.as_str()));
    // Only an HTTP/1.0 request may lack a host; others were refused before.
    let mut host_is_local = version == Version::HTTP_10 && !headers.contains_key(HOST);
    // One pass over the headers is faster than a lookup for each of these, most of which are absent.
    for (name, value) in headers {
        match name.as_str() {
            "host" => host_is_local = value.to_str().is_ok_and(names_loopback),
            "origin" if !origin_is_loopback(value) => return false,
            "sec-fetch-site" if is_cross_site(value) => return false,
            // Headers that proxies add, even with an empty value: the sender is somebody else.
            "forwarded" | "via" | "x-real-ip" | "x-client-ip" | "true-client-ip" | "cf-connecting-ip" => {
                return false;
            }
            forwarded if forwarded.starts_with("x-forwarded-") => return false,
            _ => {}
        }
    }
    host_is_local && target_is_local && is_loopback(peer)
}

/// `127.0.0.0/8`, `::1`, `::ffff:127.0.0.1`.
pub fn is_loopback(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_loopback(),
        IpAddr::V6(address) => address.is_loopback() || address.to_ipv4_mapped() == Some(Ipv4Addr::LOCALHOST),
    }
}

/// `localhost`, `127.x.x.x` or `[::1]`, with any port or none.
pub fn names_loopback(authority: &str) -> bool {
    let end_of_host = match authority.starts_with('[') {
        true => authority.bytes().position(|byte| byte == b']').map(|end| end + 1),
        false => authority.bytes().position(|byte| byte == b':'),
    };
    let end_of_host = end_of_host.unwrap_or(authority.len());
    let (host, rest) = authority.split_at_checked(end_of_host).unwrap_or_default();
    let port_is_good = match rest.strip_prefix(':') {
        Some(port) => port.bytes().all(|byte| byte.is_ascii_digit()),
        None => rest.is_empty(),
    };
    port_is_good && host_name_is_loopback(host)
}

fn host_name_is_loopback(host: &str) -> bool {
    let in_brackets = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    match in_brackets {
        Some(address) => address.parse() == Ok(Ipv6Addr::LOCALHOST),
        None => {
            host.eq_ignore_ascii_case("localhost") || host.parse().is_ok_and(|address: Ipv4Addr| address.is_loopback())
        }
    }
}

fn origin_is_loopback(origin: &HeaderValue) -> bool {
    let origin = origin.to_str().unwrap_or_default();
    let authority = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
    authority.is_some_and(names_loopback)
}

fn is_cross_site(value: &HeaderValue) -> bool {
    value.as_bytes().trim_ascii().eq_ignore_ascii_case(b"cross-site")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_names() {
        for good in ["localhost", "LOCALHOST:1", "127.0.0.1", "127.9.9.9:3940", "[::1]", "[::1]:3940", "localhost:"] {
            assert!(names_loopback(good), "{good}");
        }
        for bad in [
            "",
            "localhost.",
            "localhost.evil.test",
            "127.0.0.1.evil.test",
            "evil.test",
            "[::2]",
            "::1",
            "[::1",
            "localhost:80:80",
            "localhost:a",
            "evil@localhost",
            "localhost@evil",
            "128.0.0.1",
            "127.1",
            "0.0.0.0",
            "[::ffff:127.0.0.1]",
            "[::1]x",
            "x[::1]",
        ] {
            assert!(!names_loopback(bad), "{bad}");
        }
    }

    #[test]
    fn loopback_peers() {
        for (peer, local) in [
            ("127.0.0.1", true),
            ("127.255.0.9", true),
            ("::1", true),
            ("::ffff:127.0.0.1", true),
            ("::ffff:10.0.0.1", false),
            ("10.0.0.1", false),
            ("0.0.0.0", false),
        ] {
            assert_eq!(is_loopback(peer.parse().unwrap()), local, "{peer}");
        }
    }

    #[test]
    fn each_sign_of_a_remote_sender_counts() {
        let check = |version, target: &str, headers: &[(&'static str, &str)]| {
            let mut map = HeaderMap::new();
            for (name, value) in headers {
                map.append(*name, HeaderValue::from_str(value).unwrap());
            }
            is_local(IpAddr::V4(Ipv4Addr::LOCALHOST), version, &target.parse().unwrap(), &map)
        };
        let host = ("host", "localhost:1");
        assert!(check(Version::HTTP_11, "/", &[host]));
        assert!(check(Version::HTTP_10, "/", &[]));
        assert!(!check(Version::HTTP_11, "/", &[]));
        assert!(!check(Version::HTTP_11, "/", &[("host", "evil.test")]));
        assert!(!check(Version::HTTP_11, "http://evil.test/", &[host]));
        assert!(check(Version::HTTP_11, "http://127.0.0.1/", &[host]));
        for name in [
            "forwarded",
            "via",
            "x-forwarded-for",
            "x-forwarded-proto",
            "x-forwarded-whatever",
            "x-real-ip",
            "x-client-ip",
            "true-client-ip",
            "cf-connecting-ip",
        ] {
            for value in ["", " ", "127.0.0.1", "1.1 localhost"] {
                assert!(!check(Version::HTTP_11, "/", &[host, (name, value)]), "{name}: {value:?}");
            }
        }
        assert!(check(Version::HTTP_11, "/", &[host, ("x-forwarder", "a")]));
        for (origin, local) in [
            ("http://localhost:5173", true),
            ("https://127.0.0.1", true),
            ("http://[::1]:1", true),
            ("null", false),
            ("", false),
            ("https://evil.test", false),
            ("http://localhost.evil.test", false),
            ("file://localhost", false),
        ] {
            assert_eq!(check(Version::HTTP_11, "/", &[host, ("origin", origin)]), local, "{origin}");
        }
        for (site, local) in [("same-origin", true), ("none", true), ("same-site", true), ("cross-site", false)] {
            assert_eq!(check(Version::HTTP_11, "/", &[host, ("sec-fetch-site", site)]), local, "{site}");
        }
    }

    #[test]
    fn the_secret_is_trimmed_where_it_is_configured() {
        let headers = |secret: &'static str| {
            HeaderMap::from_iter([(HeaderName::from_static("x-api-secret"), HeaderValue::from_static(secret))])
        };
        let access = Access::new(Some(" s3cret\n"));
        assert_eq!(access.admit(&headers("s3cret")), Admission::Right);
        assert_eq!(access.admit(&headers("s3cre")), Admission::Wrong);
        // Every byte counts, the last one too.
        let long = Access::new(Some("0123456789abcdef0123456789abcdef"));
        let admitted = |secret| long.admit(&headers(secret));
        assert_eq!(admitted("0123456789abcdef0123456789abcdef"), Admission::Right);
        assert_eq!(admitted("0123456789abcdef0123456789abcdeg"), Admission::Wrong);
        assert_eq!(admitted("0123456789abcdef0123456789abcde"), Admission::Wrong);
        assert_eq!(access.admit(&HeaderMap::new()), Admission::Wrong);
        assert_eq!(Access::new(Some(" ")).admit(&headers("")), Admission::NotConfigured);
        assert_eq!(Access::new(None).admit(&headers("x")), Admission::NotConfigured);
    }
}
