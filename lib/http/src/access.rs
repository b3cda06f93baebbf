//! Authentication: whether a request is local, or carries the secret.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use http::header::{AUTHORIZATION, AsHeaderName, HeaderMap, HeaderValue, ORIGIN};
use http::{StatusCode, Uri};
use ken_types::{Code, Error};
use nix::unistd::geteuid;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::connection::Peer;
use crate::failure::Failure;

/// The sender of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Caller {
    /// From this machine, not forwarded, and not sent by a foreign page. `uid` is the user that sends it; `None` only with
    /// [`Trust::AnyUser`], if it cannot be seen.
    Local { uid: Option<u32> },
    /// From elsewhere, with the right secret.
    Operator,
    /// From elsewhere, on a path that needs no secret.
    Anyone,
}

/// Whose requests from this machine need no secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trust {
    /// Nobody's. It must be so behind a reverse proxy that may run as the user of this process: the requests of everybody
    /// outside come from it.
    Nobody,
    /// Those of the user that this process runs as. Root is not: proxies and tunnels run as root.
    OwnUser,
    /// Those of every user.
    AnyUser,
}

/// Who is admitted, and by which secret.
#[derive(Clone)]
pub struct Access {
    /// The SHA-256 of the secret, which is not kept itself.
    pub digest: Option<[u8; 32]>,
    /// Whose requests from this machine need no secret.
    pub trust: Trust,
    /// The user for whom [`Trust::OwnUser`] stands.
    pub own_uid: u32,
    /// Origins (`http://localhost:5173`) besides the listener's own whose pages send local requests.
    pub origins: Vec<String>,
    /// A second proof, also where no secret is configured: whether it admits a caller from elsewhere, by the headers.
    pub pass: Option<Pass>,
}

/// Whether the headers of a request admit its caller.
pub type Pass = Arc<dyn Fn(&HeaderMap) -> bool + Send + Sync>;

/// Whether a caller from elsewhere has the secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Admission {
    Right,
    Wrong,
    NotConfigured,
}

/// What shows that a request is not local.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Foreign {
    /// The address of the peer, a header that a proxy added, or that nobody is trusted.
    Elsewhere,
    /// `Host` names another machine, or is missing.
    Host,
    /// A page of another origin has sent it.
    Origin,
    /// Another user of this machine has sent it, or one that cannot be seen.
    Owner { uid: Option<u32>, own: u32 },
}

impl Access {
    /// `secret` is what callers send in `x-api-secret`; it is trimmed. Without a secret, or with an empty one, no caller from
    /// elsewhere is admitted.
    pub fn new(secret: Option<&str>) -> Access {
        let secret = secret.map(str::trim).filter(|secret| !secret.is_empty());
        Access {
            digest: secret.map(|secret| Sha256::digest(secret.as_bytes()).into()),
            trust: Trust::OwnUser,
            own_uid: geteuid().as_raw(),
            origins: Vec::new(),
            pass: None,
        }
    }

    /// Whether it matters which user of this machine a connection belongs to.
    pub(crate) fn asks_for_owners(&self) -> bool {
        self.trust != Trust::Nobody
    }

    /// Compares digests in constant time, so that the time reveals neither content nor length of the secret.
    pub(crate) fn admit(&self, headers: &HeaderMap, takes_bearer: bool) -> Admission {
        if self.pass.as_ref().is_some_and(|pass| pass(headers)) {
            return Admission::Right;
        }
        let Some(digest) = &self.digest else {
            return Admission::NotConfigured;
        };
        let bearer = || single(headers, AUTHORIZATION)?.strip_prefix(b"Bearer ");
        let given = single(headers, "x-api-secret").or_else(|| takes_bearer.then(bearer).flatten());
        let Some(secret) = given else {
            return Admission::Wrong;
        };
        let given: [u8; 32] = Sha256::digest(secret).into();
        if bool::from(given.ct_eq(digest)) { Admission::Right } else { Admission::Wrong }
    }

    /// What shows that a request is not local; `None` if it is. The checks of host and origin prevent DNS rebinding and
    /// requests of foreign web pages.
    pub(crate) fn foreign(&self, peer: Peer, target: &Uri, headers: &HeaderMap) -> Option<Foreign> {
        if self.trust == Trust::Nobody || !is_loopback(peer.address) {
            return Some(Foreign::Elsewhere);
        }
        let mut host = None;
        let mut is_cross_site = false;
        // One pass over the headers is faster than a lookup for each of these, most of which are absent.
        for (name, value) in headers {
            match name.as_str() {
                "host" => host = value.to_str().ok().filter(|host| names_loopback(host)),
                "sec-fetch-site" => is_cross_site |= says_cross_site(value),
                name if is_added_by_proxies(name) => return Some(Foreign::Elsewhere),
                _ => {}
            }
        }
        let target_is_local = target.authority().is_none_or(|authority| names_loopback(authority.as_str()));
        let Some(host) = host.filter(|_| target_is_local) else {
            return Some(Foreign::Host);
        };
        // A page of another site is there only if its origin is configured, which it then names.
        is_cross_site &= self.configured_origin(headers).is_none();
        if is_cross_site || headers.get_all(ORIGIN).iter().any(|origin| !self.is_own_origin(origin, host)) {
            return Some(Foreign::Origin);
        }
        let is_trusted = self.trust == Trust::AnyUser || peer.owner == Some(self.own_uid);
        (!is_trusted).then_some(Foreign::Owner { uid: peer.owner, own: self.own_uid })
    }

    /// Whether an origin is the address by which the listener itself was called, or configured. That it is a loopback address
    /// is not enough: another program, of another user, may serve pages on another port.
    fn is_own_origin(&self, origin: &HeaderValue, host: &str) -> bool {
        let called = origin.to_str().ok().and_then(|origin| origin.strip_prefix("http://"));
        called.is_some_and(|called| called.eq_ignore_ascii_case(host)) || self.is_configured(origin)
    }

    fn is_configured(&self, origin: &HeaderValue) -> bool {
        self.origins.iter().any(|own| own.as_bytes().eq_ignore_ascii_case(origin.as_bytes()))
    }

    /// Returns the origin of a page if it is a configured one, whose scripts may read the responses.
    pub(crate) fn configured_origin<'a>(&self, headers: &'a HeaderMap) -> Option<&'a HeaderValue> {
        let mut given = headers.get_all(ORIGIN).iter();
        match (given.next(), given.next()) {
            (Some(origin), None) if self.is_configured(origin) => Some(origin),
            _ => None,
        }
    }
}

/// Returns the value of a header that is given once. One that is given twice counts as absent.
pub fn single(headers: &HeaderMap, name: impl AsHeaderName) -> Option<&[u8]> {
    let mut given = headers.get_all(name).iter();
    match (given.next(), given.next()) {
        (Some(value), None) => Some(value.as_bytes()),
        _ => None,
    }
}

/// A header that proxies add, even with an empty value: the sender is somebody else.
fn is_added_by_proxies(name: &str) -> bool {
    matches!(name, "forwarded" | "via" | "x-real-ip" | "x-client-ip" | "true-client-ip" | "cf-connecting-ip")
        || name.starts_with("x-forwarded-")
}

impl Foreign {
    /// The refusal where no secret is configured that could admit the caller.
    pub(crate) fn refusal(self) -> Failure {
        let forbidden = |message: String, header| Failure::from(Error::new(Code::Forbidden, message)).at(header);
        let failure = match self {
            Foreign::Elsewhere => {
                let message = "calls from elsewhere need a secret, and none is configured";
                Failure::from(Error::unavailable(message))
            }
            Foreign::Host => {
                forbidden("Host names no loopback address, and no secret is configured".to_owned(), "host")
            }
            Foreign::Origin => {
                forbidden("a page of another origin has sent this, and no secret is configured".to_owned(), "origin")
            }
            Foreign::Owner { uid, own } => {
                let message = format!("{}, and no secret is configured", other_user(uid, own));
                Failure::new(StatusCode::FORBIDDEN, Code::Forbidden, message)
            }
        };
        self.explain(failure).common()
    }

    /// Adds what another user of this machine can do.
    pub(crate) fn explain(self, failure: Failure) -> Failure {
        match self {
            Foreign::Owner { .. } => failure.hint(OTHER_USERS),
            _ => failure,
        }
    }
}

fn other_user(uid: Option<u32>, own: u32) -> String {
    match uid {
        Some(uid) => format!("user {uid} has sent this, and only user {own}, as whom this runs, needs no secret"),
        None => format!("it cannot be seen which user has sent this, and only user {own} needs no secret"),
    }
}

/// Both ways in for another user of the machine.
const OTHER_USERS: &str = "two ways in: send the secret of this system (members of the group `ken` can read that of the \
                           system service: --secret-file /etc/ken/client.secret), or run a ken of your own: `ken up`, or \
                           `systemctl --user enable --now ken`";

/// `127.0.0.0/8`, `::1`, `::ffff:127.0.0.1`.
pub(crate) fn is_loopback(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_loopback(),
        IpAddr::V6(address) => address.is_loopback() || address.to_ipv4_mapped() == Some(Ipv4Addr::LOCALHOST),
    }
}

/// `localhost`, `127.x.x.x` or `[::1]`, with any port or none.
pub fn names_loopback(authority: &str) -> bool {
    let end_of_host = if authority.starts_with('[') {
        authority.bytes().position(|byte| byte == b']').map(|end| end + 1)
    } else {
        authority.bytes().position(|byte| byte == b':')
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

fn says_cross_site(value: &HeaderValue) -> bool {
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
            "", "localhost.", "localhost.evil.test", "127.0.0.1.evil.test", "evil.test", "[::2]", "::1", "[::1",
            "localhost:80:80", "localhost:a", "evil@localhost", "localhost@evil", "128.0.0.1", "127.1", "0.0.0.0",
            "[::ffff:127.0.0.1]", "[::1]x", "x[::1]",
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

    fn check_from(
        access: &Access,
        owner: Option<u32>,
        target: &str,
        headers: &[(&'static str, &str)],
    ) -> Option<Foreign> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, HeaderValue::from_str(value).unwrap());
        }
        access.foreign(Peer { address: Ipv4Addr::LOCALHOST.into(), owner }, &target.parse().unwrap(), &map)
    }

    #[test]
    fn each_sign_of_a_remote_sender_counts() {
        let access = Access { origins: vec!["http://localhost:5173".to_owned()], ..Access::new(None) };
        let own = Some(geteuid().as_raw());
        let check = |target: &str, headers: &[(&'static str, &str)]| check_from(&access, own, target, headers);
        let host = ("host", "localhost:1");
        assert_eq!(check("/", &[host]), None);
        assert_eq!(check("/", &[]), Some(Foreign::Host), "only HTTP/1.0 comes without a host");
        assert_eq!(check("/", &[("host", "evil.test")]), Some(Foreign::Host));
        assert_eq!(check("http://evil.test/", &[host]), Some(Foreign::Host));
        assert_eq!(check("http://127.0.0.1/", &[host]), None);
        for name in [
            "forwarded", "via", "x-forwarded-for", "x-forwarded-proto", "x-forwarded-whatever", "x-real-ip",
            "x-client-ip", "true-client-ip", "cf-connecting-ip",
        ] {
            for value in ["", " ", "127.0.0.1", "1.1 localhost"] {
                assert_eq!(check("/", &[host, (name, value)]), Some(Foreign::Elsewhere), "{name}: {value:?}");
            }
        }
        assert_eq!(check("/", &[host, ("x-forwarder", "a")]), None);
        for (origin, local) in [
            ("http://localhost:1", true),
            ("http://LOCALHOST:1", true),
            ("http://localhost:5173", true),
            ("http://localhost:5174", false),
            ("http://localhost", false),
            ("http://127.0.0.1:1", false),
            // Another port, or another host, that only begins like the own one.
            ("http://localhost:12", false),
            ("http://localhost:1.evil.test", false),
            ("https://localhost:1", false),
            ("null", false),
            ("", false),
            ("https://evil.test", false),
            ("http://localhost.evil.test", false),
            ("file://localhost", false),
        ] {
            assert_eq!(check("/", &[host, ("origin", origin)]).is_none(), local, "{origin}");
        }
        let two = [host, ("origin", "http://localhost:1"), ("origin", "http://evil.test")];
        assert_eq!(check("/", &two), Some(Foreign::Origin));
        for (site, local) in [("same-origin", true), ("none", true), ("same-site", true), ("cross-site", false)] {
            assert_eq!(check("/", &[host, ("sec-fetch-site", site)]).is_none(), local, "{site}");
            // A configured page may be one of another site.
            let configured = [host, ("sec-fetch-site", site), ("origin", "http://localhost:5173")];
            assert_eq!(check("/", &configured), None, "{site}");
            let other = [host, ("sec-fetch-site", site), ("origin", "http://localhost:5174")];
            assert_eq!(check("/", &other), Some(Foreign::Origin), "{site}");
        }
    }

    #[test]
    fn no_header_makes_another_machine_local() {
        let headers = HeaderMap::from_iter([(http::header::HOST, HeaderValue::from_static("localhost:1"))]);
        for trust in [Trust::OwnUser, Trust::AnyUser] {
            for (address, expected) in [("127.0.0.1", None), ("10.0.0.1", Some(Foreign::Elsewhere))] {
                let peer = Peer { address: address.parse().unwrap(), owner: Some(geteuid().as_raw()) };
                let access = Access { trust, ..Access::new(None) };
                let found = access.foreign(peer, &Uri::from_static("/"), &headers);
                assert_eq!(found, expected, "{trust:?} {address}");
            }
        }
    }

    #[test]
    fn only_the_own_user_is_local_unless_all_are() {
        let own = geteuid().as_raw();
        let access = |trust| Access { trust, ..Access::new(None) };
        let check = |trust, owner| check_from(&access(trust), owner, "/", &[("host", "localhost:1")]);
        assert_eq!(check(Trust::OwnUser, Some(own)), None);
        for other in [None, Some(own + 1)] {
            assert_eq!(check(Trust::OwnUser, other), Some(Foreign::Owner { uid: other, own }));
            assert_eq!(check(Trust::AnyUser, other), None);
        }
        assert_eq!(check(Trust::Nobody, Some(own)), Some(Foreign::Elsewhere));
    }

    #[test]
    fn the_secret_is_trimmed_where_it_is_configured() {
        let headers = |secret: &'static str| {
            HeaderMap::from_iter([(http::HeaderName::from_static("x-api-secret"), HeaderValue::from_static(secret))])
        };
        let access = Access::new(Some(" s3cret\n"));
        assert_eq!(access.admit(&headers("s3cret"), false), Admission::Right);
        assert_eq!(access.admit(&headers("s3cre"), false), Admission::Wrong);
        // Every byte counts, the last one too.
        let long = Access::new(Some("0123456789abcdef0123456789abcdef"));
        let admitted = |secret| long.admit(&headers(secret), false);
        assert_eq!(admitted("0123456789abcdef0123456789abcdef"), Admission::Right);
        assert_eq!(admitted("0123456789abcdef0123456789abcdeg"), Admission::Wrong);
        assert_eq!(admitted("0123456789abcdef0123456789abcde"), Admission::Wrong);
        assert_eq!(access.admit(&HeaderMap::new(), false), Admission::Wrong);
        assert_eq!(Access::new(Some(" ")).admit(&headers(""), false), Admission::NotConfigured);
        assert_eq!(Access::new(None).admit(&headers("x"), false), Admission::NotConfigured);
    }

    /// Where a bearer token may be the secret, the own header still goes first, and each may be given once.
    #[test]
    fn the_secret_is_a_bearer_token_only_where_one_is_taken() {
        let access = Access::new(Some("s3cret"));
        for (own, bearer, with, without) in [
            (&["s3cret"][..], &[][..], true, true),
            (&[], &["Bearer s3cret"], true, false),
            (&[], &["Bearer s3cret", "Bearer s3cret"], false, false),
            (&[], &["bearer s3cret"], false, false),
            (&[], &["s3cret"], false, false),
            (&["wrong"], &["Bearer s3cret"], false, false),
            (&["s3cret"], &["Bearer wrong"], true, true),
            (&["s3cret", "s3cret"], &["Bearer s3cret"], true, false),
        ] {
            let mut headers = HeaderMap::new();
            for (name, values) in [("x-api-secret", own), ("authorization", bearer)] {
                for value in values {
                    headers.append(name, HeaderValue::from_static(value));
                }
            }
            let is_right = [true, false].map(|takes_bearer| access.admit(&headers, takes_bearer) == Admission::Right);
            assert_eq!(is_right, [with, without], "{own:?} {bearer:?}");
        }
    }

    #[test]
    fn a_second_proof_admits_with_and_without_a_secret() {
        let mut with = HeaderMap::new();
        with.insert("authorization", HeaderValue::from_static("Bearer x"));
        for (secret, without) in [(Some("s3cret"), Admission::Wrong), (None, Admission::NotConfigured)] {
            let pass = Some(Arc::new(|headers: &HeaderMap| headers.contains_key("authorization")) as _);
            let access = Access { pass, ..Access::new(secret) };
            assert_eq!(access.admit(&with, false), Admission::Right);
            assert_eq!(access.admit(&HeaderMap::new(), false), without);
        }
    }
}
