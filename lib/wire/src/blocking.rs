//! A blocking client that makes one call at a time, for short-lived commands. It needs no runtime.

use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use ken_types::limits::{WIRE_DEADLINE_MAX_MS, WIRE_LINE_BYTES};
use ken_types::{Error, json};
use serde_json::{Value, json};

/// How long to wait for a reply after the deadline. At the deadline, the part itself replies with the error `deadline`.
const GRACE: Duration = Duration::from_secs(2);

/// One connection to a part.
#[derive(Debug)]
pub struct Client {
    stream: BufReader<UnixStream>,
    part: String,
    last_id: u64,
}

impl Client {
    /// Connects to a part's socket. `part` is the name of the part in error messages.
    pub fn connect(socket: &Path, part: &str) -> io::Result<Client> {
        Ok(Client { stream: BufReader::new(UnixStream::connect(socket)?), part: part.to_owned(), last_id: 0 })
    }

    /// Calls an operation, passes its items to `on_item` as they arrive, and returns its reply. Without a deadline it waits indefinitely.
    /// An error from `on_item` ends the call, and the connection cannot be used again after that.
    pub fn call(
        &mut self,
        op: &str,
        args: &Value,
        deadline: Option<Duration>,
        mut on_item: impl FnMut(Value) -> Result<(), Error>,
    ) -> Result<Value, Error> {
        self.last_id += 1;
        let ms = deadline.map_or(u128::from(WIRE_DEADLINE_MAX_MS), |deadline| deadline.as_millis());
        let request = json!({"id": self.last_id, "op": op, "args": args, "deadline_ms": ms as u64});
        let limit = deadline.map(|deadline| deadline + GRACE);
        let stream = self.stream.get_mut();
        stream.set_read_timeout(limit).map_err(|error| lost(&self.part, &error))?;
        // A part that refuses its caller sends its reply and closes the connection without reading. Writing then fails,
        // but the reply can still be read.
        _ = stream.write_all(format!("{request}\n").as_bytes());
        loop {
            match self.reply()? {
                Reply::Item(item) => on_item(item)?,
                Reply::Last(last) => return last,
            }
        }
    }

    fn reply(&mut self) -> Result<Reply, Error> {
        let mut line = Vec::new();
        let mut limited = (&mut self.stream).take(WIRE_LINE_BYTES as u64);
        let read = limited.read_until(b'\n', &mut line);
        read.map_err(|error| lost(&self.part, &error))?;
        if line.last() != Some(&b'\n') {
            return Err(Error::unavailable(format!("{} ended before it answered", self.part)));
        }
        Reply::parse(&line, self.last_id)
            .ok_or_else(|| Error::internal(format!("{} sent something that is not a reply", self.part)))
    }

    /// Waits until the part closes the connection, which happens when its process ends, for at most `limit`.
    pub fn wait_for_end(mut self, limit: Duration) {
        _ = self.stream.get_mut().set_read_timeout(Some(limit));
        _ = self.stream.read(&mut [0]);
    }
}

fn lost(part: &str, error: &io::Error) -> Error {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => Error::deadline(format!("{part} does not answer")),
        _ => Error::unavailable(format!("{part}: {error}")),
    }
}

enum Reply {
    Item(Value),
    Last(Result<Value, Error>),
}

impl Reply {
    /// Parses a line. Returns it if it is the reply to this request or concerns the whole connection.
    fn parse(line: &[u8], id: u64) -> Option<Reply> {
        let Value::Object(mut reply) = json::parse_own(line).ok()? else {
            return None;
        };
        match reply.remove("id")? {
            Value::Null => {}
            given => (given.as_u64()? == id).then_some(())?,
        }
        if let Some(item) = reply.remove("item") {
            return Some(Reply::Item(item));
        }
        if let Some(value) = reply.remove("ok") {
            return Some(Reply::Last(Ok(value)));
        }
        let error = serde_json::from_value(reply.remove("error")?).ok()?;
        Some(Reply::Last(Err(error)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ken_types::Code;
    use std::os::unix::net::UnixListener;

    /// Makes a call to a part that answers with these bytes and closes the connection. Returns the result and the items.
    fn call(answer: &'static str) -> (Result<Value, Error>, Vec<Value>) {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("probe.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let part = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut line = String::new();
            BufReader::new(stream.try_clone().unwrap()).read_line(&mut line).unwrap();
            stream.write_all(answer.as_bytes()).unwrap();
            line
        });
        let mut items = Vec::new();
        let reply = Client::connect(&socket, "probe").unwrap().call(
            "test.op",
            &json!({"n": 1}),
            Some(Duration::from_secs(5)),
            |item| {
                items.push(item);
                Ok(())
            },
        );
        let request: Value = serde_json::from_str(&part.join().unwrap()).unwrap();
        assert_eq!(request, json!({"id": 1, "op": "test.op", "args": {"n": 1}, "deadline_ms": 5_000}));
        (reply, items)
    }

    #[test]
    fn items_then_the_reply() {
        let (reply, items) = call("{\"id\":1,\"item\":1}\n{\"id\":1,\"item\":2}\n{\"id\":1,\"ok\":[3]}\n");
        assert_eq!((reply.unwrap(), items), (json!([3]), vec![json!(1), json!(2)]));
        // Texts that are stored already may have NUL.
        let (reply, items) = call("{\"id\":1,\"item\":\"a\\u0000\"}\n{\"id\":1,\"ok\":\"b\\u0000\"}\n");
        assert_eq!((reply.unwrap(), items), (json!("b\0"), vec![json!("a\0")]));
    }

    #[test]
    fn errors_of_the_part_and_of_the_connection() {
        for (answer, code) in [
            ("{\"id\":1,\"error\":{\"code\":\"busy\",\"message\":\"later\"}}\n", Code::Busy),
            ("{\"id\":null,\"error\":{\"code\":\"forbidden\",\"message\":\"not you\"}}\n", Code::Forbidden),
            ("", Code::Unavailable),
            ("{\"id\":1,\"ok\":{}", Code::Unavailable),
            ("{\"id\":2,\"ok\":{}}\n", Code::Internal),
            ("{\"id\":1,\"of\":{}}\n", Code::Internal),
            ("hello\n", Code::Internal),
        ] {
            assert_eq!(call(answer).0.unwrap_err().code, code, "{answer}");
        }
    }

    #[test]
    fn a_silent_part_is_a_deadline() {
        let (stream, _part) = UnixStream::pair().unwrap();
        let mut client = Client { stream: BufReader::new(stream), part: "probe".to_owned(), last_id: 0 };
        let error = client.call("test.op", &json!({}), Some(Duration::ZERO), |_| Ok(())).unwrap_err();
        assert_eq!((error.code, error.message.as_str()), (Code::Deadline, "probe does not answer"));
    }
}
