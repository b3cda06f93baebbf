//! The marker file beside the database (`ken.db.mark`), which records what the store knows about its files. It is written and synced when
//! the store starts and stops, and before and after the log is copied into the database of an idle store. It is always replaced atomically.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// The size of a database, in bytes, above which no checksum is computed. Reading a larger file would delay the start too much.
const MOST_SUMMED: u64 = 256 * 1024 * 1024;
/// A random id that the kernel creates at each boot.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::tables::sqlite) struct Marker {
    /// Whether a store is running or was killed. False once a store has stopped normally.
    pub(super) running: bool,
    /// The id of the boot during which the marker was written.
    pub(super) boot: String,
    /// The number of the newest change that the database file is known to contain.
    pub(super) change: u64,
    /// The length of the database file in bytes, which never decreases.
    pub(super) length: u64,
    /// The CRC-32 of the database file, as long as nothing changes the file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) sum: Option<u32>,
    /// The log as the store found it when it started, if it was intact.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) log: Option<LogFound>,
}

/// An intact log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::tables::sqlite) struct LogFound {
    /// Identifies the generation of the log.
    pub(super) salt: [u8; 8],
    /// The number of frames up to the last commit.
    pub(super) frames: u64,
}

impl Marker {
    /// Reads the marker; `None` if it is missing or cannot be read.
    pub(super) fn read(path: &Path) -> Option<Marker> {
        match std::fs::read_to_string(path) {
            Ok(text) => serde_json::from_str(&text)
                .inspect_err(|error| tracing::warn!(%error, "{}: is ignored, it cannot be read", path.display()))
                .ok(),
            Err(_) => None,
        }
    }

    /// Replaces the marker at `path` durably.
    pub(super) fn write(&self, path: &Path) -> std::io::Result<()> {
        let fresh = super::beside(path, ".new");
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&fresh)?;
        writeln!(file, "{}", serde_json::to_string(self)?)?;
        file.sync_all()?;
        std::fs::rename(&fresh, path)?;
        path.parent().map_or(Ok(()), |parent| File::open(parent)?.sync_all())
    }

    pub(super) fn is_of_this_boot(&self) -> bool {
        !self.boot.is_empty() && self.boot == boot()
    }
}

/// Returns the id of the current boot; empty if the kernel does not provide one.
pub(super) fn boot() -> String {
    std::fs::read_to_string(BOOT_ID).unwrap_or_default().trim().to_owned()
}

/// Returns the length of a file in bytes and its checksum; no checksum if the file is large.
pub(super) fn measure(path: &Path) -> std::io::Result<(u64, Option<u32>)> {
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok((0, None)),
        Err(error) => return Err(error),
    };
    let length = file.metadata()?.len();
    if length > MOST_SUMMED {
        return Ok((length, None));
    }
    let mut hasher = crc32fast::Hasher::new();
    let mut buffer = vec![0; 1 << 18];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok((length, Some(hasher.finalize()))),
            count => hasher.update(buffer.get(..count).unwrap_or_default()),
        }
    }
}
