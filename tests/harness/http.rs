//! A minimal HTTP/1.1 client that sends exactly the bytes of the test, and returns exactly the bytes of the answer.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

use crate::contract::Contract;

/// The default time that a test waits for further bytes.
const TIMEOUT: Duration = Duration::from_secs(60);

/// One keep-alive connection.
pub struct Client {
    to: TcpStream,
    from: BufReader<TcpStream>,
    host: String,
    contract: Option<&'static Contract>,
}

/// A complete answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    pub status: u16,
    /// Names in lower case, in the order of arrival.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// Whether it is the answer to a HEAD request, which has the headers of a body that is not sent.
    pub is_to_head: bool,
}

/// A request that is being built.
pub struct Exchange<'a> {
    client: &'a mut Client,
    target: String,
    head: String,
    body: Option<Vec<u8>>,
}

impl Client {
    pub fn connect(address: SocketAddr) -> Client {
        Client::try_connect(address).expect("connect")
    }

    pub fn try_connect(address: SocketAddr) -> std::io::Result<Client> {
        let to = TcpStream::connect(address)?;
        to.set_nodelay(true)?;
        to.set_read_timeout(Some(TIMEOUT))?;
        let from = BufReader::new(to.try_clone()?);
        Ok(Client { to, from, host: address.to_string(), contract: None })
    }

    /// Checks all later answers against the contract of the gateway.
    pub fn checked_by_contract(self) -> Client {
        self.checked_against(Contract::get())
    }

    /// Checks all later answers against this contract.
    pub fn checked_against(mut self, contract: &'static Contract) -> Client {
        self.contract = Some(contract);
        self
    }

    /// A request with no header but `Host`.
    pub fn request(&mut self, method: &str, target: &str) -> Exchange<'_> {
        let host = self.host.clone();
        self.request_to(method, target, &host)
    }

    /// A request with this `Host` header.
    pub fn request_to(&mut self, method: &str, target: &str, host: &str) -> Exchange<'_> {
        let head = format!("{method} {target} HTTP/1.1\r\nHost: {host}\r\n");
        Exchange { client: self, target: target.to_owned(), head, body: None }
    }

    pub fn get(&mut self, target: &str) -> Answer {
        self.request("GET", target).send()
    }

    pub fn post(&mut self, target: &str, body: &Value) -> Answer {
        self.request("POST", target).json(body).send()
    }

    pub fn delete(&mut self, target: &str) -> Answer {
        self.request("DELETE", target).send()
    }

    /// Writes raw bytes.
    pub fn write(&mut self, bytes: &[u8]) {
        self.try_write(bytes).expect("write");
    }

    pub fn try_write(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.to.write_all(bytes)
    }

    /// Shuts the write half, as `nc -N` and many scripts do.
    pub fn shut_write(&mut self) {
        self.to.shutdown(Shutdown::Write).expect("shutdown");
    }

    /// Resets the connection.
    pub fn reset(self) {
        let linger = nix::libc::linger { l_onoff: 1, l_linger: 0 };
        nix::sys::socket::setsockopt(&self.to, nix::sys::socket::sockopt::Linger, &linger).expect("linger");
    }

    /// Reads the next answer.
    pub fn answer(&mut self) -> Answer {
        self.try_answer("GET").expect("an answer")
    }

    /// Reads the next answer, to a request of this method. Returns an error if the connection ends first.
    pub fn try_answer(&mut self, method: &str) -> std::io::Result<Answer> {
        let (status, headers) = self.head()?;
        let mut answer = Answer { status, headers, body: Vec::new(), is_to_head: method == "HEAD" };
        let bodiless = method == "HEAD" || status == 204 || status == 304 || status < 200;
        answer.body = match (answer.header("content-length"), answer.header("transfer-encoding")) {
            _ if bodiless => Vec::new(),
            (Some(length), _) => self.exactly(length.parse().expect("a length"))?,
            (None, Some("chunked")) => self.chunks()?,
            _ => self.rest()?,
        };
        Ok(answer)
    }

    /// Reads status and headers, but not the body.
    pub fn head(&mut self) -> std::io::Result<(u16, Vec<(String, String)>)> {
        let status = self.line()?;
        let status = status.split(' ').nth(1).and_then(|code| code.parse().ok());
        let status = status.ok_or_else(|| std::io::Error::other("no status line"))?;
        let mut headers = Vec::new();
        loop {
            let line = self.line()?;
            match line.split_once(':') {
                Some((name, value)) => headers.push((name.to_ascii_lowercase(), value.trim().to_owned())),
                None => return Ok((status, headers)),
            }
        }
    }

    /// Reads one chunk of a chunked body. The last one is empty.
    pub fn chunk(&mut self) -> std::io::Result<Vec<u8>> {
        let size = self.line()?;
        let size = usize::from_str_radix(size.trim(), 16).map_err(std::io::Error::other)?;
        let chunk = self.exactly(size)?;
        self.line()?;
        Ok(chunk)
    }

    /// Reads everything until the peer closes the connection.
    pub fn rest(&mut self) -> std::io::Result<Vec<u8>> {
        let mut rest = Vec::new();
        self.from.read_to_end(&mut rest)?;
        Ok(rest)
    }

    pub fn set_timeout(&mut self, timeout: Duration) {
        self.to.set_read_timeout(Some(timeout)).expect("a timeout");
    }

    fn chunks(&mut self) -> std::io::Result<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            match self.chunk()? {
                chunk if chunk.is_empty() => return Ok(body),
                chunk => body.extend_from_slice(&chunk),
            }
        }
    }

    fn exactly(&mut self, length: usize) -> std::io::Result<Vec<u8>> {
        let mut bytes = vec![0; length];
        self.from.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    fn line(&mut self) -> std::io::Result<String> {
        let mut line = String::new();
        match self.from.read_line(&mut line)? {
            0 => Err(std::io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(line.trim_end().to_owned()),
        }
    }
}

impl Exchange<'_> {
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.head += &format!("{name}: {value}\r\n");
        self
    }

    pub fn json(self, body: &Value) -> Self {
        self.header("Content-Type", "application/json").body(body.to_string())
    }

    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        let body = body.into();
        self.head += &format!("Content-Length: {}\r\n", body.len());
        self.body = Some(body);
        self
    }

    /// Sends the request and waits for the answer.
    pub fn send(self) -> Answer {
        self.try_send().expect("an answer")
    }

    pub fn try_send(self) -> std::io::Result<Answer> {
        let method = self.head.split(' ').next().unwrap_or_default().to_owned();
        let target = self.target.clone();
        let client = self.write()?;
        let answer = client.try_answer(&method)?;
        if let Some(contract) = client.contract {
            contract.check(&method, &target, &answer);
        }
        Ok(answer)
    }

    /// Sends the request without waiting for the answer.
    pub fn start(self) {
        self.try_start().expect("write");
    }

    pub fn try_start(self) -> std::io::Result<()> {
        self.write().map(drop)
    }
}

impl<'a> Exchange<'a> {
    fn write(self) -> std::io::Result<&'a mut Client> {
        let mut bytes = (self.head + "\r\n").into_bytes();
        bytes.extend(self.body.unwrap_or_default());
        self.client.to.write_all(&bytes)?;
        Ok(self.client)
    }
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value.as_str())
    }

    /// The body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error} in {:?}", String::from_utf8_lossy(&self.body)))
    }

    /// The value at a JSON pointer, or null.
    pub fn at(&self, pointer: &str) -> Value {
        self.json().pointer(pointer).cloned().unwrap_or_default()
    }

    /// The text at a JSON pointer.
    pub fn text(&self, pointer: &str) -> String {
        self.at(pointer).as_str().unwrap_or_else(|| panic!("no text at {pointer} in {self:?}")).to_owned()
    }

    /// Fails the test, with the body in the message, unless the answer has this status.
    #[track_caller]
    pub fn expect(self, status: u16) -> Answer {
        assert_eq!(self.status, status, "{}", self.body_text());
        self
    }

    /// Fails the test unless the answer is an error with this status, this code (or type, for typed errors) and this
    /// `at`.
    #[track_caller]
    pub fn refused(self, status: u16, code: &str, at: &str) -> Answer {
        assert_eq!(self.status, status, "{}", self.body_text());
        let body = self.json();
        let (found, place) = if body["error"].is_object() {
            (&body["error"]["type"], &body["error"]["meta"]["at"])
        } else {
            (&body["code"], &body["at"])
        };
        let found = (found.as_str().unwrap_or_default(), place.as_str().unwrap_or_default());
        assert_eq!(found, (code, at), "{}", self.body_text());
        self
    }

    /// The body as text.
    pub fn body_text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}
