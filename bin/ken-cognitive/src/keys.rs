//! API keys and their roles. Only digests of keys are stored.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ken_types::{Error, Timestamp, hex, id};
use parking_lot::{Mutex, RwLock};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq;

use crate::file;

/// The SHA-256 digest of a key.
pub(crate) type Digest = [u8; 32];

/// The role of a key. Each role includes the one before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Role {
    #[serde(alias = "readonly", alias = "read_only")]
    ReadOnly,
    User,
    Admin,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Owner {
    pub(crate) user_id: Arc<str>,
    pub(crate) role: Role,
    pub(crate) digest: Digest,
}

/// A key that an admin has added.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Entry {
    pub(crate) user_id: String,
    pub(crate) role: Role,
    /// The SHA-256 digest of the key, in lower-case hexadecimal.
    pub(crate) key_hash: String,
    pub(crate) created_at: Timestamp,
}

/// The configured key and the added ones.
pub(crate) struct Keys {
    configured: Digest,
    path: PathBuf,
    owners: RwLock<Arc<Vec<Owner>>>,
    /// The content of the file. It is locked during a write; writes are rare and short.
    entries: Mutex<Vec<Entry>>,
}

/// The user id of the configured key.
pub(crate) const ADMIN: &str = "admin";
/// The maximum number of keys. Every request is compared with each of them.
const MAX_KEYS: usize = 1_000;

impl Keys {
    /// Reads the keys of a folder. If no key is configured, one is generated and stored in `admin.key` with mode 0600,
    /// so that the server is never open to everybody.
    pub(crate) fn open(dir: &Path, configured: Option<&str>) -> Result<Keys, Error> {
        file::folder(dir)?;
        let configured = match configured {
            Some(key) => digest(key),
            None => own_key(&dir.join("admin.key"))?,
        };
        let path = dir.join("keys.json");
        let entries: Vec<Entry> = match file::read(&path)? {
            Some(text) => serde_json::from_str(&text).map_err(|error| damaged(&path, &error.to_string()))?,
            None => Vec::new(),
        };
        let owners = owners(&entries).ok_or_else(|| damaged(&path, "a key_hash is not a SHA-256 digest"))?;
        Ok(Keys { configured, path, owners: RwLock::new(Arc::new(owners)), entries: Mutex::new(entries) })
    }

    /// Returns the owner of a key. All keys are compared, each in constant time, so that the duration reveals nothing
    /// about them.
    pub(crate) fn find(&self, key: &[u8]) -> Option<Owner> {
        let given: Digest = Sha256::digest(key).into();
        let is_configured = bool::from(self.configured.ct_eq(&given));
        let owners = self.owners.read().clone();
        let mut found = None;
        for owner in owners.iter() {
            if bool::from(owner.digest.ct_eq(&given)) {
                found = Some(owner);
            }
        }
        if is_configured {
            return Some(Owner { user_id: ADMIN.into(), role: Role::Admin, digest: given });
        }
        found.cloned()
    }

    /// Returns all added keys, oldest first.
    pub(crate) fn list(&self) -> Vec<Entry> {
        self.entries.lock().clone()
    }

    /// Checks a new key and returns its entry without adding it.
    pub(crate) fn prepare(&self, key: &str, role: Role, user_id: Option<&str>) -> Result<Entry, Error> {
        let given = digest(key);
        let key_hash = hex::encode(&given);
        if bool::from(self.configured.ct_eq(&given)) {
            return Err(key_exists());
        }
        check_room(&self.list(), &key_hash)?;
        let named = || format!("user-{}", key_hash.get(..12).unwrap_or_default());
        Ok(Entry { user_id: user_id.map_or_else(named, str::to_owned), role, key_hash, created_at: Timestamp::now() })
    }

    /// Adds a prepared key. When this returns, the key is on disk and valid. Fails if another request has added it since it
    /// was prepared.
    pub(crate) fn add(&self, entry: Entry) -> Result<(), Error> {
        self.change(|entries| {
            check_room(entries, &entry.key_hash)?;
            entries.push(entry);
            Ok(())
        })
    }

    /// Removes all keys of a user. When this returns, the change is on disk and in force.
    pub(crate) fn remove(&self, user_id: &str) -> Result<(), Error> {
        self.change(|entries| {
            entries.retain(|entry| entry.user_id != user_id);
            Ok(())
        })
    }

    fn change(&self, change: impl FnOnce(&mut Vec<Entry>) -> Result<(), Error>) -> Result<(), Error> {
        let mut entries = self.entries.lock();
        let mut changed = entries.clone();
        change(&mut changed)?;
        let text = serde_json::to_string_pretty(&changed)
            .map_err(|error| Error::internal(format!("the keys could not be written: {error}")))?;
        let owners = owners(&changed).ok_or_else(|| damaged(&self.path, "a key_hash is not a SHA-256 digest"))?;
        file::write(&self.path, &text)?;
        *self.owners.write() = Arc::new(owners);
        *entries = changed;
        Ok(())
    }
}

/// Fails if there is such a key already, or no room for another.
fn check_room(entries: &[Entry], key_hash: &str) -> Result<(), Error> {
    if entries.iter().any(|entry| entry.key_hash == key_hash) {
        return Err(key_exists());
    }
    if entries.len() >= MAX_KEYS {
        return Err(Error::conflict(format!("there are {MAX_KEYS} keys, which is the maximum")));
    }
    Ok(())
}

fn key_exists() -> Error {
    Error::conflict("this key already exists").at("/api_key")
}

/// Reads the generated admin key, or generates it if there is none.
fn own_key(path: &Path) -> Result<Digest, Error> {
    if let Some(text) = file::read(path)?
        && !text.trim().is_empty()
    {
        return Ok(digest(text.trim()));
    }
    let key = hex::encode(&id::random::<32>()?);
    file::write(path, &format!("{key}\n"))?;
    tracing::info!(path = %path.display(), "MCP_API_KEY is not set: an admin key has been generated");
    Ok(digest(&key))
}

fn owners(entries: &[Entry]) -> Option<Vec<Owner>> {
    let owner = |entry: &Entry| {
        Some(Owner { user_id: entry.user_id.as_str().into(), role: entry.role, digest: hex::decode(&entry.key_hash)? })
    };
    entries.iter().map(owner).collect()
}

fn damaged(path: &Path, why: &str) -> Error {
    Error::invalid(path.display().to_string(), format!("cannot read the file of keys: {why}"))
}

fn digest(key: &str) -> Digest {
    Sha256::digest(key.as_bytes()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_configured_key_one_is_created_once() {
        let dir = tempfile::tempdir().unwrap();
        let find = || {
            let keys = Keys::open(dir.path(), None).unwrap();
            let made = std::fs::read_to_string(dir.path().join("admin.key")).unwrap();
            assert_eq!(made.trim().len(), 64);
            (keys.find(made.trim().as_bytes()).unwrap().role, made)
        };
        assert_eq!(find(), find());
        let keys = Keys::open(dir.path(), Some("set now")).unwrap();
        assert_eq!(keys.find(find().1.trim().as_bytes()), None, "a set key replaces it");
    }

    #[test]
    fn a_damaged_file_is_named() {
        let dir = tempfile::tempdir().unwrap();
        for text in
            ["", "{}", r#"[{"user_id":"a","role":"user","key_hash":"zz","created_at":"2027-02-03T04:05:06.789Z"}]"#]
        {
            file::write(&dir.path().join("keys.json"), text).unwrap();
            let error = Keys::open(dir.path(), Some("k")).map(|_| ()).unwrap_err();
            assert!(error.at.unwrap().ends_with("keys.json"));
        }
    }
}
