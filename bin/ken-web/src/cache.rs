//! Recently fetched pages, stored in files. The cache has at most 64 MiB, and the oldest pages are removed first. If
//! the cache cannot be read or written, the page is fetched again; this is not an error.

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use ken_types::hex;
use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};

/// How long an entry is valid.
const MAX_AGE: Duration = Duration::from_secs(3_600);
/// The maximum size of all entries together, in bytes.
const MAX_BYTES: u64 = 64 * 1024 * 1024;
/// The maximum size of one entry, in bytes.
const MAX_ENTRY_BYTES: u64 = 2 * 1024 * 1024;

#[derive(Debug, Default)]
pub(crate) struct Cache {
    /// `None` if nothing is cached.
    folder: Option<PathBuf>,
    /// The allowed addresses, which are part of every key. A page that is no longer allowed is therefore not found in
    /// the cache.
    salt: String,
}

impl Cache {
    pub(crate) fn new(folder: Option<PathBuf>, salt: &str) -> Cache {
        let made = folder.filter(|folder| fs::create_dir_all(folder).is_ok());
        Cache { folder: made, salt: salt.to_owned() }
    }

    fn path(&self, kind: &str, key: &str) -> Option<PathBuf> {
        let mut hash = Sha256::new();
        for part in [kind, &self.salt, key] {
            hash.update(part.len().to_le_bytes());
            hash.update(part);
        }
        Some(self.folder.as_ref()?.join(hex::encode(&hash.finalize())))
    }

    pub(crate) fn get<T: DeserializeOwned>(&self, kind: &str, key: &str) -> Option<T> {
        let path = self.path(kind, key)?;
        let about = fs::metadata(&path).ok()?;
        let age = SystemTime::now().duration_since(about.modified().ok()?).ok()?;
        if age > MAX_AGE || about.len() > MAX_ENTRY_BYTES {
            return None;
        }
        serde_json::from_slice(&fs::read(path).ok()?).ok()
    }

    pub(crate) fn put(&self, kind: &str, key: &str, value: &impl Serialize) {
        let Some(path) = self.path(kind, key) else { return };
        let Ok(bytes) = serde_json::to_vec(value) else {
            return;
        };
        if bytes.len() as u64 > MAX_ENTRY_BYTES {
            return;
        }
        // The file is written under another name and renamed, so that a reader never sees a part of it. Two writers of
        // the same page write the same bytes.
        let beside = path.with_extension(std::process::id().to_string());
        let written = fs::File::create(&beside).and_then(|mut file| file.write_all(&bytes));
        if written.and_then(|()| fs::rename(&beside, &path)).is_err() {
            _ = fs::remove_file(&beside);
        }
    }

    /// Deletes entries beyond the limit, and files that a killed writer has left.
    pub(crate) fn prune(&self) {
        let Some(folder) = &self.folder else { return };
        let files = fs::read_dir(folder).into_iter().flatten().flatten();
        let mut entries: Vec<(SystemTime, u64, PathBuf)> = files
            .filter_map(|file| {
                let about = file.metadata().ok().filter(fs::Metadata::is_file)?;
                Some((about.modified().ok()?, about.len(), file.path()))
            })
            .collect();
        entries.sort();
        let mut bytes: u64 = entries.iter().map(|(_, bytes, _)| bytes).sum();
        for (at, length, path) in entries {
            let is_old = SystemTime::now().duration_since(at).is_ok_and(|age| age > MAX_AGE);
            if bytes <= MAX_BYTES && !is_old {
                return;
            }
            _ = fs::remove_file(path);
            bytes -= length;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_come_back_for_the_same_key_until_they_are_old() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::new(Some(folder.path().join("cache")), "salt");
        cache.put("page", "a", &"text");
        assert_eq!(cache.get::<String>("page", "a").as_deref(), Some("text"));
        let other = Cache::new(Some(folder.path().join("cache")), "other");
        assert_eq!((cache.get::<String>("page", "b"), other.get::<String>("page", "a")), (None, None));
        let path = cache.path("page", "a").unwrap();
        let old = SystemTime::now() - MAX_AGE - Duration::from_secs(1);
        fs::File::options().write(true).open(&path).unwrap().set_modified(old).unwrap();
        assert_eq!(cache.get::<String>("page", "a"), None);
        cache.prune();
        assert!(!path.exists());
    }

    #[test]
    fn the_oldest_leave_when_it_is_full() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::new(Some(folder.path().to_owned()), "");
        for (number, name) in ["old", "new"].iter().enumerate() {
            let file = fs::File::create(folder.path().join(name)).unwrap();
            file.set_len(MAX_BYTES / 2 + 1).unwrap();
            file.set_modified(SystemTime::now() - Duration::from_secs(60 - number as u64)).unwrap();
        }
        cache.prune();
        assert!(!folder.path().join("old").exists() && folder.path().join("new").exists());
    }
}
