//! A blocking caller on the wire (ken-wire(5)): one call at a time, for commands that do one thing and end.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use ken_types::limits::{WIRE_DEADLINE_MAX_MS, WIRE_LINE_BYTES};
use ken_types::{Error, json};
use serde_json::{Value, json};

/// A part has its deadline; so much later it is not going to answer at all.
const GRACE: Duration = Duration::from_secs(2);

pub(crate) struct Client {
    stream: BufReader<UnixStream>,
    name: String,
}

impl Client {
    /// `name` is for messages.
    pub(crate) fn connect(path: &Path, name: &str) -> Result<Client, Error> {
        match UnixStream::connect(path) {
            Ok(stream) => Ok(Client {
                stream: BufReader::new(stream),
                name: name.to_owned(),
            }),
            Err(error) => Err(not_reached(path, name, &error)),
        }
    }

    /// Waits as long as it takes if there is no deadline.
    pub(crate) fn call(
        &mut self,
        op: &str,
        args: &Value,
        deadline: Option<Duration>,
        mut on_item: impl FnMut(Value) -> Result<(), Error>,
    ) -> Result<Value, Error> {
        let ms = deadline.map_or(u128::from(WIRE_DEADLINE_MAX_MS), |deadline| deadline.as_millis());
        let request = json!({"id": 1, "op": op, "args": args, "deadline_ms": ms as u64});
        let lost = |error: std::io::Error| match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => {
                Error::deadline(format!("{} does not answer", self.name))
            }
            _ => Error::unavailable(format!("{}: {error}", self.name)),
        };
        let stream = self.stream.get_mut();
        let limit = deadline.map(|deadline| deadline + GRACE);
        stream.set_read_timeout(limit).map_err(lost)?;
        // A part that refuses its caller says why and closes without reading; what it said is still to be read.
        _ = stream.write_all(format!("{request}\n").as_bytes());
        loop {
            match self.reply()? {
                Reply::Item(item) => on_item(item)?,
                Reply::Ok(value) => return Ok(value),
                Reply::Error(error) => return Err(error),
            }
        }
    }

    fn reply(&mut self) -> Result<Reply, Error> {
        let mut line = Vec::new();
        let mut limited = (&mut self.stream).take(WIRE_LINE_BYTES as u64);
        let name = &self.name;
        let read = limited
            .read_until(b'\n', &mut line)
            .map_err(|error| match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::TimedOut => {
                    Error::deadline(format!("{name} does not answer"))
                }
                _ => Error::unavailable(format!("{name}: {error}")),
            })?;
        if read == 0 || line.last() != Some(&b'\n') {
            return Err(Error::unavailable(format!("{name} ended before it answered")));
        }
        Reply::parse(&line)
            .ok_or_else(|| Error::internal(format!("{name} answered something else than a reply")))
    }

    /// Waits until the other side closes the connection, as a process does that ends.
    pub(crate) fn wait_for_end(mut self) {
        let _ = self.stream.get_mut().set_read_timeout(Some(GRACE));
        let _ = self.stream.read(&mut [0]);
    }
}

enum Reply {
    Item(Value),
    Ok(Value),
    Error(Error),
}

impl Reply {
    fn parse(line: &[u8]) -> Option<Reply> {
        let Value::Object(mut reply) = json::parse(line, json::MAX_DEPTH + 2).ok()? else {
            return None;
        };
        if let Some(item) = reply.remove("item") {
            return Some(Reply::Item(item));
        }
        if let Some(value) = reply.remove("ok") {
            return Some(Reply::Ok(value));
        }
        serde_json::from_value(reply.remove("error")?)
            .ok()
            .map(Reply::Error)
    }
}

fn not_reached(path: &Path, name: &str, error: &std::io::Error) -> Error {
    match error.kind() {
        ErrorKind::NotFound | ErrorKind::ConnectionRefused if name == "kend" => {
            Error::unavailable("kend is not running")
                .hint("start it with `ken up`; a system under a folder is named by --home or KEN_HOME")
        }
        ErrorKind::NotFound | ErrorKind::ConnectionRefused => {
            let message = format!("nobody listens on {}", path.display());
            Error::unavailable(message).hint("`ken status` shows what is there")
        }
        ErrorKind::PermissionDenied => Error::forbidden(format!("{} is another user's", path.display())),
        _ => Error::unavailable(format!("{}: {error}", path.display())),
    }
}
