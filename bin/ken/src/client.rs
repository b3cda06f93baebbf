//! Connections of `ken` to kend and the parts (ken-wire(5)), and what is said when nobody listens.

use std::io::{Error as IoError, ErrorKind};
use std::path::Path;
use std::time::Duration;

use ken_types::Error;
use ken_wire::blocking::Client;

/// How long a part that ends may take to close its connections.
pub(crate) const GRACE: Duration = Duration::from_secs(2);

/// Connects to a socket; `name` is what messages call the other side.
pub(crate) fn connect(path: &Path, name: &str) -> Result<Client, Error> {
    Client::connect(path, name).map_err(|error| not_reached(path, name, &error))
}

fn not_reached(path: &Path, name: &str, error: &IoError) -> Error {
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
