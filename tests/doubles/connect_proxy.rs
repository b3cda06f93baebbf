//! A proxy as companies have one: it connects to the host that a request with CONNECT names, after a look at the password. Whatever the
//! host, it leads to one port of this machine.

use std::io::{BufRead, BufReader, Write, copy};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;

use base64::prelude::{BASE64_STANDARD, Engine};
use parking_lot::Mutex;

pub struct ConnectProxy {
    address: SocketAddr,
    hosts: Arc<Mutex<Vec<String>>>,
}

impl ConnectProxy {
    /// Leads to this port, for whom the name and the password `NAME:PASSWORD` are. It runs until the process ends.
    pub fn to(port: u16, user: &'static str) -> ConnectProxy {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let proxy = ConnectProxy { address: listener.local_addr().expect("an address"), hosts: Arc::default() };
        let hosts = proxy.hosts.clone();
        std::thread::spawn(move || {
            for near in listener.incoming().flatten() {
                let hosts = hosts.clone();
                std::thread::spawn(move || lead(near, port, user, &hosts));
            }
        });
        proxy
    }

    /// `127.0.0.1:PORT`
    pub fn address(&self) -> String {
        self.address.to_string()
    }

    /// The hosts to which it has led, with their ports.
    pub fn hosts(&self) -> Vec<String> {
        self.hosts.lock().clone()
    }
}

fn lead(mut near: TcpStream, port: u16, user: &str, hosts: &Mutex<Vec<String>>) -> Option<()> {
    let mut reader = BufReader::new(near.try_clone().ok()?);
    let (mut head, mut line) = (String::new(), String::new());
    while line != "\r\n" {
        line.clear();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        head += &line;
    }
    let word = format!("Proxy-Authorization: Basic {}\r\n", BASE64_STANDARD.encode(user));
    let host = head.strip_prefix("CONNECT ").filter(|_| head.contains(&word)).and_then(|rest| rest.split(' ').next());
    let Some(host) = host else {
        return near.write_all(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n").ok();
    };
    hosts.lock().push(host.to_owned());
    let mut far = TcpStream::connect(("127.0.0.1", port)).ok()?;
    near.write_all(b"HTTP/1.1 200 OK\r\n\r\n").ok()?;
    let (mut back, mut to) = (far.try_clone().ok()?, near.try_clone().ok()?);
    std::thread::spawn(move || {
        _ = copy(&mut back, &mut to);
        _ = to.shutdown(Shutdown::Both);
    });
    _ = copy(&mut reader, &mut far);
    far.shutdown(Shutdown::Both).ok()
}
