//! The texts that a person has accepted, in the file `accepted.json` beside `ken.toml`.

use std::collections::BTreeMap;
use std::path::Path;

use ken_trusted::Others;
use ken_types::Error;
use serde::{Deserialize, Serialize};

/// The maximum size of this file, in bytes.
const MAX_BYTES: u64 = 1024 * 1024;
const MAX_DEPTH: usize = 8;

/// SHA-256 digests of the accepted texts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Accepted {
    /// The digests of skills, by the name of the skill.
    pub skills: BTreeMap<String, String>,
    /// The digests of project rules, by the path of the file.
    pub projects: BTreeMap<String, String>,
}

impl Accepted {
    /// Reads the file. If there is none, nothing is accepted. Fails if other users can change the file, or if it is
    /// damaged.
    pub fn read(path: &Path) -> Result<Accepted, Error> {
        let read = ken_trusted::find_json(path, Others::MayRead, MAX_BYTES, MAX_DEPTH);
        read.map_err(|error| Error { at: Some(path.display().to_string()), ..error })
    }

    /// Replaces the file.
    pub fn write(&self, path: &Path) -> Result<(), Error> {
        ken_trusted::replace_json(path, self, Others::MayRead)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn what_is_written_is_read_and_a_damaged_file_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("accepted.json");
        assert_eq!(Accepted::read(&path), Ok(Accepted::default()));
        let accepted = Accepted { skills: BTreeMap::from([("a".to_owned(), "00".to_owned())]), ..Accepted::default() };
        accepted.write(&path).unwrap();
        assert_eq!(Accepted::read(&path), Ok(accepted));
        fs::write(&path, "{\"skills\": 1}").unwrap();
        assert!(Accepted::read(&path).unwrap_err().at.unwrap().ends_with("accepted.json"));
        fs::set_permissions(&path, PermissionsExt::from_mode(0o666)).unwrap();
        assert!(Accepted::read(&path).unwrap_err().message.contains("others can change it"));
    }
}
