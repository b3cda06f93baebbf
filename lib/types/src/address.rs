//! The addresses that programs may connect to: public ones, and exceptions that the operator lists.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ipnet::IpNet;

use crate::Error;

/// Hosts and networks that may be reached although they are not public.
#[derive(Debug, Clone, Default)]
pub struct Allowed {
    hosts: Vec<(String, u16)>,
    /// Networks, each with its port or with all of them.
    networks: Vec<(IpNet, Option<u16>)>,
}

impl Allowed {
    /// Parses a list of `HOST:PORT`, addresses and networks (`10.1.0.0/16`), separated by commas or blanks. An address or
    /// network stands for all its ports. Errors name `at`.
    pub fn parse(at: &str, text: &str) -> Result<Allowed, Error> {
        let wrong = |entry: &str| format!("{entry:?} is neither HOST:PORT nor a network such as 10.1.0.0/16");
        Allowed::read(text, false).map_err(|entry| Error::invalid(at, wrong(entry)))
    }

    /// Parses a list of `HOST:PORT`, `ADDRESS:PORT` and `NETWORK:PORT`, separated by commas or blanks. Every entry needs a
    /// port: other services of the same host are not meant, and an address of this machine would open ken itself.
    pub fn parse_with_ports(at: &str, text: &str) -> Result<Allowed, Error> {
        let wrong = |entry: &str| format!("{entry:?} is not HOST:PORT; a network with its port is 10.1.0.0/16:443");
        Allowed::read(text, true).map_err(|entry| Error::invalid(at, wrong(entry)))
    }

    /// Fails with the first entry that is wrong.
    fn read(text: &str, needs_ports: bool) -> Result<Allowed, &str> {
        let mut allowed = Allowed::default();
        for entry in text.split([',', ' ', '\t', '\n']).filter(|entry| !entry.is_empty()) {
            // Comes first, because `::1` would otherwise be a host with a port.
            if let Some(network) = network(entry) {
                if needs_ports {
                    return Err(entry);
                }
                allowed.networks.push((network, None));
                continue;
            }
            let pair = entry.rsplit_once(':').and_then(|(host, port)| Some((bare(host), port.parse().ok()?)));
            let (host, port) = pair.filter(|(host, _)| !host.is_empty()).ok_or(entry)?;
            match network(host).filter(|_| needs_ports) {
                Some(network) => allowed.networks.push((network, Some(port))),
                None => allowed.hosts.push((host.to_ascii_lowercase(), port)),
            }
        }
        Ok(allowed)
    }

    pub fn with_host(mut self, host: &str, port: u16) -> Allowed {
        self.hosts.push((bare(host).to_ascii_lowercase(), port));
        self
    }

    /// Whether a program may connect to `address`. `host` is the name that resolved to it, or the address as text if
    /// there was no name.
    pub fn allows(&self, host: &str, address: SocketAddr) -> bool {
        is_public(address.ip()) || self.names(host, address)
    }

    /// Whether the operator's list contains this host with the port of `address`, or a network that contains `address`.
    pub fn names(&self, host: &str, address: SocketAddr) -> bool {
        let host = bare(host);
        let is_host = |(name, port): &(String, u16)| name.eq_ignore_ascii_case(host) && *port == address.port();
        let holds = |(network, port): &(IpNet, Option<u16>)| {
            port.is_none_or(|port| port == address.port()) && network.contains(&address.ip())
        };
        self.hosts.iter().any(is_host) || self.networks.iter().any(holds)
    }
}

/// Without the brackets of an IPv6 address.
fn bare(host: &str) -> &str {
    host.trim_matches(['[', ']'])
}

/// A network, or an address as a network of its own.
fn network(text: &str) -> Option<IpNet> {
    text.parse().ok().or_else(|| Some(text.parse::<IpAddr>().ok()?.into()))
}

/// Whether a text is an address, `ADDRESS:PORT` or a network such as `10.1.0.0/16`. None of these needs a DNS look-up.
pub fn is_address(text: &str) -> bool {
    text.parse::<SocketAddr>().is_ok() || text.parse::<IpAddr>().is_ok() || text.parse::<IpNet>().is_ok()
}

/// Whether an address belongs to the public internet (IANA special-purpose address registries).
pub fn is_public(address: IpAddr) -> bool {
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
        // An IPv4-mapped, NAT64 or 6to4 address is as public as the IPv4 address that it contains.
        [0, 0, 0, 0, 0, 0xffff, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => is_public_v4(joined(high, low)),
        [0x2002, high, low, ..] => is_public_v4(joined(high, low)),
        // Not public: Teredo, ORCHID, benchmarking and documentation.
        [0x2001, 0..=0x01ff | 0x0db8, ..] | [0x3fff, 0..=0x0fff, ..] => false,
        [first, ..] => (0x2000..=0x3fff).contains(&first),
    }
}

fn joined(high: u16, low: u16) -> Ipv4Addr {
    Ipv4Addr::from((u32::from(high) << 16) | u32::from(low))
}

/// The error for a host whose address programs may not connect to.
#[derive(Debug)]
pub struct Refused {
    pub host: String,
    pub address: IpAddr,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (host, address) = (bare(&self.host), self.address.to_string());
        if host != address {
            write!(f, "{host} is at {address}, which ")?;
        } else {
            write!(f, "{address} ")?;
        }
        f.write_str("is not a public address")
    }
}

impl std::error::Error for Refused {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_public_addresses_pass() {
        let private = [
            "0.0.0.0", "10.0.0.1", "100.64.0.1", "127.0.0.1", "127.9.9.9", "169.254.169.254", "172.16.0.1",
            "172.31.255.255", "192.0.0.8", "192.168.1.1", "198.18.0.1", "203.0.113.7", "224.0.0.1", "240.0.0.1",
            "255.255.255.255", "::", "::1", "::127.0.0.1", "fe80::1", "fc00::1", "fd12::1", "ff02::1", "2001:db8::1",
            "::ffff:127.0.0.1", "::ffff:10.0.0.1", "64:ff9b::a00:1", "2002:7f00:1::", "2001::1", "fec0::1", "100::1",
        ];
        for text in private {
            assert!(!is_public(text.parse().unwrap()), "{text}");
        }
        let public = [
            "1.1.1.1", "100.63.0.1", "100.128.0.1", "172.32.0.1", "192.167.0.1", "223.255.255.1", "2606:4700::1111",
            "::ffff:1.1.1.1", "64:ff9b::101:101", "2a00:1450::1",
        ];
        for text in public {
            assert!(is_public(text.parse().unwrap()), "{text}");
        }
    }

    #[test]
    fn addresses_and_networks_need_no_look_up() {
        for address in ["127.0.0.1", "127.0.0.1:80", "::1", "[::1]:80", "10.0.0.0/8", "fd00::/8"] {
            assert!(is_address(address), "{address}");
        }
        for other in ["localhost", "localhost:80", "10.0.0.0/40", "10.0.0.0/", "/8", "127.0.0.1:", ""] {
            assert!(!is_address(other), "{other}");
        }
    }

    #[test]
    fn exceptions_are_a_host_with_its_port_or_a_network() {
        let allowed = Allowed::parse("KEN_WEB_ALLOW", "wiki.test:8080, 10.1.0.0/16 127.0.0.2,[::1]:81").unwrap();
        let admits = |host: &str, address: &str| allowed.allows(host, address.parse().unwrap());
        assert!(admits("WIKI.test", "192.168.0.1:8080") && !admits("wiki.test", "192.168.0.1:80"));
        assert!(admits("any", "10.1.2.3:80") && !admits("any", "10.2.0.1:80"));
        assert!(admits("any", "127.0.0.2:80") && !admits("any", "127.0.0.1:80"));
        assert!(admits("[::1]", "[::1]:81") && !admits("[::1]", "[::1]:80"));
        for wrong in ["wiki", "wiki:port", ":80", "10.0.0.0/40"] {
            assert_eq!(
                Allowed::parse("KEN_WEB_ALLOW", wrong).unwrap_err().at.as_deref(),
                Some("KEN_WEB_ALLOW"),
                "{wrong}"
            );
        }
    }

    #[test]
    fn an_exception_can_require_its_port() {
        let list = "wiki.test:8080, 10.1.0.0/16:443 127.0.0.2:81,[::1]:81,[fd00::/8]:82";
        let allowed = Allowed::parse_with_ports("KEN_WEB_ALLOW", list).unwrap();
        let admits = |host: &str, address: &str| allowed.allows(host, address.parse().unwrap());
        assert!(admits("WIKI.test", "192.168.0.1:8080") && !admits("wiki.test", "192.168.0.1:80"));
        assert!(admits("any", "10.1.2.3:443") && !admits("any", "10.1.2.3:80") && !admits("any", "10.2.0.1:443"));
        assert!(admits("any", "127.0.0.2:81") && !admits("127.0.0.2", "127.0.0.2:3940"));
        assert!(admits("any", "[::1]:81") && !admits("[::1]", "[::1]:80"));
        assert!(admits("any", "[fd12::1]:82") && !admits("any", "[fd12::1]:81"));
        for wrong in ["127.0.0.1", "10.0.0.0/8", "::1", "fd00::1", "[::1]", "wiki", "wiki:port", ":80"] {
            let error = Allowed::parse_with_ports("KEN_WEB_ALLOW", wrong).unwrap_err();
            assert_eq!(error.at.as_deref(), Some("KEN_WEB_ALLOW"), "{wrong}");
        }
    }
}
