//! Which addresses may be reached: public ones, and what `KEN_WEB_ALLOW` names. The check stands between the resolver and
//! the connection, so the address that was checked is the one that is used, at every look-up and every redirect.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ipnet::IpNet;
use ken_types::Error;
use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::NextTimeout;

/// Addresses that may be reached although they are not public.
#[derive(Debug, Clone, Default)]
pub(crate) struct Allowed {
    hosts: Vec<(String, u16)>,
    networks: Vec<IpNet>,
}

impl Allowed {
    /// `HOST:PORT`, an address or a network (`10.1.0.0/16`), separated by commas or blanks.
    pub(crate) fn parse(text: &str) -> Result<Allowed, Error> {
        let mut allowed = Allowed::default();
        let entries = text.split([',', ' ', '\t', '\n']);
        for entry in entries.filter(|entry| !entry.is_empty()) {
            if let Ok(network) = entry.parse::<IpNet>() {
                allowed.networks.push(network);
            } else if let Ok(address) = entry.parse::<IpAddr>() {
                allowed.networks.push(address.into());
            } else {
                let pair = entry.rsplit_once(':').and_then(|(host, port)| {
                    let host = host.trim_matches(['[', ']']).to_ascii_lowercase();
                    Some((host, port.parse().ok()?))
                });
                let pair = pair.filter(|(host, _)| !host.is_empty()).ok_or_else(|| {
                    Error::invalid(
                        "KEN_WEB_ALLOW",
                        format!("{entry:?} is neither HOST:PORT nor a network such as 10.1.0.0/16"),
                    )
                })?;
                allowed.hosts.push(pair);
            }
        }
        Ok(allowed)
    }

    /// The same, with one more host allowed.
    pub(crate) fn with_host(mut self, host: &str, port: u16) -> Allowed {
        let host = host.trim_matches(['[', ']']).to_ascii_lowercase();
        self.hosts.push((host, port));
        self
    }

    fn admits(&self, host: &str, address: SocketAddr) -> bool {
        let host = host.trim_matches(['[', ']']);
        let by_name =
            |(name, port): &(String, u16)| name.eq_ignore_ascii_case(host) && *port == address.port();
        is_public(address.ip())
            || self.hosts.iter().any(by_name)
            || self
                .networks
                .iter()
                .any(|network| network.contains(&address.ip()))
    }
}

/// Whether an address is one of the public internet (IANA special-purpose address registries).
pub(crate) fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    !matches!(
        (a, b, c),
        (0 | 10 | 127 | 224.., _, _)
            | (100, 64..=127, _)
            | (169, 254, _)
            | (172, 16..=31, _)
            | (192, 0, 0 | 2)
            | (192, 88, 99)
            | (192, 168, _)
            | (198, 18..=19, _)
            | (198, 51, 100)
            | (203, 0, 113)
    )
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let segments = address.segments();
    match segments {
        // Mapped, NAT64 and 6to4 addresses lead to the IPv4 address inside them.
        [0, 0, 0, 0, 0, 0xffff, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => {
            is_public_v4(joined(high, low))
        }
        [0x2002, high, low, ..] => is_public_v4(joined(high, low)),
        // Teredo, ORCHID, benchmarking, documentation.
        [0x2001, 0..=0x01ff | 0x0db8, ..] | [0x3fff, 0..=0x0fff, ..] => false,
        [first, ..] => (0x2000..=0x3fff).contains(&first),
    }
}

fn joined(high: u16, low: u16) -> Ipv4Addr {
    Ipv4Addr::from((u32::from(high) << 16) | u32::from(low))
}

/// The error for a name whose addresses may not be reached.
#[derive(Debug)]
pub(crate) struct Refused {
    host: String,
    address: IpAddr,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (host, address) = (self.host.trim_matches(['[', ']']), self.address.to_string());
        if host != address {
            write!(f, "{host} is at {address}, which ")?;
        } else {
            write!(f, "{address} ")?;
        }
        f.write_str("is not a public address; KEN_WEB_ALLOW can name exceptions")
    }
}

impl std::error::Error for Refused {}

/// Resolves names, and leaves out addresses that may not be reached.
#[derive(Debug)]
pub(crate) struct Guard<R> {
    pub(crate) inner: R,
    pub(crate) allowed: Allowed,
}

impl<R: Resolver> Resolver for Guard<R> {
    fn resolve(
        &self,
        uri: &Uri,
        config: &Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, ureq::Error> {
        let found = self.inner.resolve(uri, config, timeout)?;
        let host = uri.host().unwrap_or_default();
        let mut kept = self.empty();
        let mut refused = None;
        for address in found.iter() {
            match self.allowed.admits(host, *address) {
                true => kept.push(*address),
                false => refused = Some(address.ip()),
            }
        }
        match refused {
            Some(address) if kept.is_empty() => Err(ureq::Error::Other(Box::new(Refused {
                host: host.to_owned(),
                address,
            }))),
            _ => Ok(kept),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::sync::Mutex;

    use ureq::Agent;
    use ureq::unversioned::transport::DefaultConnector;

    use super::*;

    #[test]
    fn only_public_addresses_pass() {
        let private = [
            "0.0.0.0",
            "10.0.0.1",
            "100.64.0.1",
            "127.0.0.1",
            "127.9.9.9",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.8",
            "192.168.1.1",
            "198.18.0.1",
            "203.0.113.7",
            "224.0.0.1",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::127.0.0.1",
            "fe80::1",
            "fc00::1",
            "fd12::1",
            "ff02::1",
            "2001:db8::1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "64:ff9b::a00:1",
            "2002:7f00:1::",
            "2001::1",
            "fec0::1",
            "100::1",
        ];
        for text in private {
            assert!(!is_public(text.parse().unwrap()), "{text}");
        }
        let public = [
            "1.1.1.1",
            "100.63.0.1",
            "100.128.0.1",
            "172.32.0.1",
            "192.167.0.1",
            "223.255.255.1",
            "2606:4700::1111",
            "::ffff:1.1.1.1",
            "64:ff9b::101:101",
            "2a00:1450::1",
        ];
        for text in public {
            assert!(is_public(text.parse().unwrap()), "{text}");
        }
    }

    #[test]
    fn exceptions_are_a_host_with_its_port_or_a_network() {
        let allowed = Allowed::parse("wiki.test:8080, 10.1.0.0/16 127.0.0.2,[::1]:81").unwrap();
        let admits = |host: &str, address: &str| allowed.admits(host, address.parse().unwrap());
        assert!(admits("WIKI.test", "192.168.0.1:8080") && !admits("wiki.test", "192.168.0.1:80"));
        assert!(admits("any", "10.1.2.3:80") && !admits("any", "10.2.0.1:80"));
        assert!(admits("any", "127.0.0.2:80") && !admits("any", "127.0.0.1:80"));
        assert!(admits("[::1]", "[::1]:81") && !admits("[::1]", "[::1]:80"));
        for wrong in ["wiki", "wiki:port", ":80", "10.0.0.0/40"] {
            assert_eq!(
                Allowed::parse(wrong).unwrap_err().at.as_deref(),
                Some("KEN_WEB_ALLOW"),
                "{wrong}"
            );
        }
    }

    /// Another answer at each look-up.
    #[derive(Debug)]
    struct Rebinding(Mutex<Vec<SocketAddr>>);

    impl Resolver for Rebinding {
        fn resolve(&self, _: &Uri, _: &Config, _: NextTimeout) -> Result<ResolvedSocketAddrs, ureq::Error> {
            let mut found = self.empty();
            let address = self.0.lock().unwrap().pop();
            found.push(address.ok_or(ureq::Error::HostNotFound)?);
            Ok(found)
        }
    }

    #[test]
    fn a_name_that_leads_to_loopback_at_the_second_look_up_is_refused_then() {
        let server = TcpListener::bind("127.0.0.2:0").unwrap();
        let port = server.local_addr().unwrap().port();
        let serving = std::thread::spawn(move || {
            let (mut connection, _) = server.accept().unwrap();
            _ = connection.read(&mut [0; 1024]);
            _ = connection.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi");
        });
        let answers = [[127, 0, 0, 1], [127, 0, 0, 2]].map(|ip| SocketAddr::from((ip, port)));
        let guard = Guard {
            inner: Rebinding(Mutex::new(answers.to_vec())),
            allowed: Allowed::parse("127.0.0.2/32").unwrap(),
        };
        let agent = Agent::with_parts(Config::default(), DefaultConnector::new(), guard);
        let url = format!("http://rebinding.test:{port}/");
        let first = agent
            .get(&url)
            .call()
            .unwrap()
            .body_mut()
            .read_to_string()
            .unwrap();
        assert_eq!(first, "hi");
        serving.join().unwrap();
        let second = agent.get(&url).call().unwrap_err().to_string();
        assert!(
            second.contains("127.0.0.1, which is not a public address"),
            "{second}"
        );
    }
}
