//! Calls of `ken` to kend and the parts (ken-wire(5)), and the errors for a socket that nobody listens on.

use std::io::{Error as IoError, ErrorKind};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use ken_client::start_hint;
use ken_types::config::Config;
use ken_types::ops::kend::{PartState, PartStatus};
use ken_types::ops::service::ServicePing;
use ken_types::ops::{Nothing, Op};
use ken_types::places::Places;
use ken_types::{Code, Error};
use ken_wire::blocking::Client;
use serde::de::DeserializeOwned;
use serde_json::Value;

pub(crate) const KEND: &str = "kend";
pub(crate) const STORE: &str = "store";
/// How long to wait for a part that is stopping to close its connections.
pub(crate) const GRACE: Duration = Duration::from_secs(2);

/// Connects to a part, or to kend.
pub(crate) fn connect(places: &Places, part: &str) -> Result<Client, Error> {
    let path = places.socket(part);
    Client::connect(&path, part).map_err(|error| {
        let is_gone = error.kind() == ErrorKind::NotFound;
        is_gone.then(|| lost_error(places)).flatten().unwrap_or_else(|| unreachable_error(places, part, &error))
    })
}

/// Returns the error for a system whose kend runs and cannot be reached.
pub(crate) fn lost_error(places: &Places) -> Option<Error> {
    let (pid, why) = lost_kend(places)?;
    Some(Error::conflict(format!("kend runs, pid {pid}, and {why}")).hint("end it with kill(1), and start again"))
}

/// Returns the process of a kend whose sockets are gone, and why it cannot be reached. What it is was written into its lock, which is
/// beside the data. The lock itself is not tried: a kend that starts at this moment would find it taken.
pub(crate) fn lost_kend(places: &Places) -> Option<(u32, String)> {
    let [lock, _] = places.locks();
    let text = std::fs::read_to_string(lock).ok()?;
    let pid = text.split_once("pid ")?.1.split(|letter: char| !letter.is_ascii_digit()).next()?.parse().ok()?;
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    let is_lost = name.trim_end() == KEND && !places.socket(KEND).exists();
    is_lost.then(|| (pid, format!("cannot be reached, because its sockets in {} are gone", places.run.display())))
}

fn unreachable_error(places: &Places, name: &str, error: &IoError) -> Error {
    let path = places.socket(name);
    match error.kind() {
        ErrorKind::NotFound | ErrorKind::ConnectionRefused => {
            let nobody = format!("nobody listens on {}", path.display());
            if name == KEND {
                Error::unavailable("kend is not running").hint(start_hint(places))
            } else if UnixStream::connect(places.socket(KEND)).is_err() {
                Error::unavailable(format!("{nobody}, and kend is not running")).hint(start_hint(places))
            } else {
                Error::unavailable(nobody).hint("`ken status` shows what is there")
            }
        }
        ErrorKind::PermissionDenied => Error::forbidden(format!("{} belongs to another user", path.display())),
        _ => Error::unavailable(format!("{}: {error}", path.display())),
    }
}

/// Connects to a part and calls an operation that returns no items before its reply. `limit` is the timeout.
pub(crate) fn call<O: Op>(
    places: &Places,
    part: &str,
    args: &O::Args,
    limit: Option<Duration>,
) -> Result<O::Reply, Error> {
    call_on::<O>(&mut connect(places, part)?, part, args, limit)
}

/// How long a part may take to answer a ping, for which it has to do nothing else.
const PING_TIMEOUT: Duration = Duration::from_secs(2);

/// Returns the parts that are ready and do not answer. What a program of a person's own does with its socket is not known.
pub(crate) fn silent_parts(places: &Places, config: &Config, parts: &[PartStatus]) -> Vec<String> {
    let is_of_ken = |part: &PartStatus| config.part.get(&part.name).is_some_and(|entry| entry.command.is_empty());
    let ping = |name: &str| call::<ServicePing>(places, name, &Nothing {}, Some(PING_TIMEOUT));
    let is_silent = |name: &str| ping(name).is_err_and(|error| error.code == Code::Deadline);
    std::thread::scope(|scope| {
        let ready = parts.iter().filter(|part| part.state == PartState::Ready && is_of_ken(part));
        let asked: Vec<_> = ready.map(|part| (part, scope.spawn(|| is_silent(&part.name)))).collect();
        let silent =
            asked.into_iter().filter_map(|(part, asked)| asked.join().is_ok_and(|silent| silent).then_some(part));
        silent.map(|part| part.name.clone()).collect()
    })
}

/// Like [`call`], on a connection that is open.
pub(crate) fn call_on<O: Op>(
    client: &mut Client,
    part: &str,
    args: &O::Args,
    limit: Option<Duration>,
) -> Result<O::Reply, Error> {
    let args = serde_json::to_value(args).map_err(|error| Error::internal(error.to_string()))?;
    parse_reply(part, client.call(O::NAME, &args, limit, |_| Ok(()))?)
}

/// Like [`call`], with JSON instead of the types of the operation.
pub(crate) fn ask(
    places: &Places,
    part: &str,
    op: &str,
    args: &Value,
    limit: Option<Duration>,
) -> Result<Value, Error> {
    connect(places, part)?.call(op, args, limit, |_| Ok(()))
}

/// Converts the reply of a part to its type. Fails if the part is of a version whose reply has another form.
pub(crate) fn parse_reply<T: DeserializeOwned>(part: &str, value: Value) -> Result<T, Error> {
    serde_json::from_value(value).map_err(|error| {
        Error::internal(format!("the answer of {part} is not understood: {error}"))
            .hint(format!("are ken and {part} of one version?"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_answer_that_is_not_understood_is_that_of_the_part_that_was_asked() {
        let error = parse_reply::<u64>("store", json!("seven")).unwrap_err();
        assert!(error.message.starts_with("the answer of store is not understood: "), "{error}");
        assert_eq!(error.hint.as_deref(), Some("are ken and store of one version?"));
    }
}
