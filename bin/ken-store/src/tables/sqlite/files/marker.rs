//! The marker beside the database (`ken.db.mark`): what the store knew about its files when it last left them. It is
//! written and synced when the store starts, before and after it copies the write-ahead log into an idle database, and
//! when it stops; each time it replaces the one before in one step.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// Larger databases have no checksum: reading one would take longer than a start may.
const MOST_SUMMED: u64 = 256 * 1024 * 1024;
/// A random id that the kernel makes at each boot.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::tables::sqlite) struct Marker {
    /// Whether a store runs, or was killed; false once it has stopped in order.
    pub(super) running: bool,
    /// Which boot of the system it was written in.
    pub(super) boot: String,
    /// The newest change that the database file is known to hold.
    pub(super) change: u64,
    /// The length of the database file, in bytes. It never shrinks.
    pub(super) length: u64,
    /// CRC-32 of the database file, while nothing changes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) sum: Option<u32>,
    /// What the store found intact of the log when it started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) log: Option<LogFound>,
}

/// An intact log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::tables::sqlite) struct LogFound {
    /// Identifies the generation of the log.
    pub(super) salt: [u8; 8],
    /// Frames up to the last commit.
    pub(super) frames: u64,
}

impl Marker {
    /// `None` when there is none, or it cannot be read.
    pub(super) fn read(path: &Path) -> Option<Marker> {
        match std::fs::read_to_string(path) {
            Ok(text) => serde_json::from_str(&text)
                .inspect_err(|error| tracing::warn!(%error, "{}: is ignored, it cannot be read", path.display()))
                .ok(),
            Err(_) => None,
        }
    }

    /// Replaces the marker at `path`, durably.
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

/// Empty where the kernel does not tell.
pub(super) fn boot() -> String {
    std::fs::read_to_string(BOOT_ID).unwrap_or_default().trim().to_owned()
}

/// Length and checksum of a file; no checksum of a large one.
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
