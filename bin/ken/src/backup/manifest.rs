//! What a backup says of itself: the names of its files and, in the last of them, the size and the digest of each.

use std::collections::BTreeMap;
use std::io::{self, Read};

use ken_types::{Timestamp, hex};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::scope::DATABASE;

/// The format of backups. It is part of the name of each file, so that a reader knows it before it reads anything else.
pub(super) const VERSION: u32 = 1;
/// The folder in which all files of a backup are, without the number of the format.
pub(super) const FOLDER: &str = "ken-backup-";
/// The name of the last file, which holds the [`Manifest`]. A backup without it was cut short.
pub(super) const MANIFEST: &str = "manifest.json";
/// How many files a backup can have. Undo journals keep at most 1 GiB, so even of tiny files there are fewer.
pub(super) const MAX_FILES: usize = 1_000_000;
/// The maximum size of a manifest, for as many files with long names.
pub(super) const MAX_MANIFEST_BYTES: u64 = 512 * 1024 * 1024;
/// The maximum length of a path (PATH_MAX).
pub(super) const MAX_PATH: u64 = 4096;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Manifest {
    /// The version of ken that has written the backup.
    pub(super) ken: String,
    pub(super) created: Timestamp,
    /// Whether the secrets are in it.
    pub(super) secrets: bool,
    /// The files by their names below the folder of the backup: `config/...` and `state/...`.
    pub(super) files: BTreeMap<String, Content>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Content {
    pub(super) size: u64,
    pub(super) sha256: String,
}

impl Manifest {
    pub(super) fn new(secrets: bool) -> Manifest {
        let ken = env!("CARGO_PKG_VERSION").to_owned();
        Manifest { ken, created: Timestamp::now(), secrets, files: BTreeMap::new() }
    }

    /// Whether it contains the database. It does not if the data is on a database server.
    pub(super) fn has_database(&self) -> bool {
        self.files.contains_key(DATABASE)
    }

    /// The size of all files together, in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.files.values().map(|content| content.size).sum()
    }
}

/// Counts and sums what is read.
pub(super) struct Summed<R> {
    from: R,
    size: u64,
    sum: Sha256,
}

impl<R> Summed<R> {
    pub(super) fn of(from: R) -> Summed<R> {
        Summed { from, size: 0, sum: Sha256::new() }
    }

    pub(super) fn content(self) -> Content {
        Content { size: self.size, sha256: hex::encode(&self.sum.finalize()) }
    }
}

impl<R: Read> Read for Summed<R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let count = self.from.read(to)?;
        self.sum.update(to.get(..count).unwrap_or_default());
        self.size += count as u64;
        Ok(count)
    }
}
