//! Checks addresses between the resolver and the connection. The checked address is therefore the one that is used, for
//! every lookup and every redirect.

use ken_types::address::{Allowed, Refused};
use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::NextTimeout;

/// Resolves names, and removes addresses that must not be reached.
#[derive(Debug)]
pub(crate) struct Guard<R> {
    pub(crate) inner: R,
    pub(crate) allowed: Allowed,
}

impl<R: Resolver> Resolver for Guard<R> {
    fn resolve(&self, uri: &Uri, config: &Config, timeout: NextTimeout) -> Result<ResolvedSocketAddrs, ureq::Error> {
        let found = self.inner.resolve(uri, config, timeout)?;
        let host = uri.host().unwrap_or_default();
        let mut kept = self.empty();
        let mut refused = None;
        for address in found.iter() {
            if self.allowed.allows(host, *address) { kept.push(*address) } else { refused = Some(address.ip()) }
        }
        match refused {
            Some(address) if kept.is_empty() => {
                Err(ureq::Error::Other(Box::new(Refused { host: host.to_owned(), address })))
            }
            _ => Ok(kept),
        }
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpListener};

    use ureq::Agent;
    use ureq::unversioned::transport::DefaultConnector;

    use super::*;

    /// A resolver that returns another address at each lookup.
    #[derive(Debug)]
    struct Rebinding(Mutex<Vec<SocketAddr>>);

    impl Resolver for Rebinding {
        fn resolve(&self, _: &Uri, _: &Config, _: NextTimeout) -> Result<ResolvedSocketAddrs, ureq::Error> {
            let mut found = self.empty();
            let address = self.0.lock().pop();
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
            allowed: Allowed::parse_with_ports("KEN_WEB_ALLOW", &format!("127.0.0.2:{port}")).unwrap(),
        };
        let agent = Agent::with_parts(Config::default(), DefaultConnector::new(), guard);
        let url = format!("http://rebinding.test:{port}/");
        let first = agent.get(&url).call().unwrap().body_mut().read_to_string().unwrap();
        assert_eq!(first, "hi");
        serving.join().unwrap();
        let second = agent.get(&url).call().unwrap_err().to_string();
        assert!(second.contains("127.0.0.1, which is not a public address"), "{second}");
    }
}
