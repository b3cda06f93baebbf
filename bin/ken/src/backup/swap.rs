//! Puts what was unpacked in the place of what is there, by renaming.
//!
//! The plan of it is on the disk before the first rename and until the last one is, too. A crash before the plan is written has
//! changed nothing. After it, kend does not start, and `ken restore --finish` does what is left of the plan: an entry that is
//! still among the unpacked ones has not been put in its place yet.

use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use ken_trusted::Others;
use ken_types::places::Places;
use ken_types::{Error, Timestamp};
use serde::{Deserialize, Serialize};

use super::scope::{BEFORE, Root, Unit, present};
use super::stage;

/// The maximum size of a plan, in bytes.
const MAX_BYTES: u64 = 1024 * 1024;

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Plan {
    /// The name of the folders for what is replaced.
    aside: String,
    /// What the backup has.
    new: Vec<Unit>,
    /// What was there.
    old: Vec<Unit>,
}

impl Plan {
    /// Makes the plan for what was unpacked. What is there and is not replaced, such as the secrets, stays if `keep` says so.
    pub(super) fn new(places: &Places, keep: impl Fn(&Unit) -> bool) -> io::Result<Plan> {
        let mut new = Vec::new();
        for root in Root::ALL {
            for entry in std::fs::read_dir(stage::folder(root, places))? {
                let name = entry?.file_name();
                new.extend(name.to_str().map(|name| Unit { root, name: name.to_owned() }));
            }
        }
        let mut old = present(places)?;
        old.retain(|unit| new.contains(unit) || !keep(unit));
        let aside = format!("{BEFORE}{}", Timestamp::now().to_string().replace(':', "-"));
        Ok(Plan { aside, new, old })
    }

    /// Reads the plan of a restore that has been interrupted. `None` if there is none.
    pub(super) fn left(places: &Places) -> Result<Option<Plan>, Error> {
        let path = places.unfinished_restore();
        let at = |error: Error| Error { at: Some(path.display().to_string()), ..error };
        let Some(bytes) = ken_trusted::find(&path, Others::Nothing, MAX_BYTES).map_err(at)? else { return Ok(None) };
        let plan = serde_json::from_slice(&bytes).map_err(|error| Error::invalid("", error.to_string()));
        plan.map(Some).map_err(at)
    }

    /// Writes the plan. From now on the restore can only go forward.
    pub(super) fn write(&self, places: &Places) -> Result<(), Error> {
        let text = serde_json::to_vec(self).map_err(|error| Error::internal(error.to_string()))?;
        ken_trusted::replace(&places.unfinished_restore(), &text, Others::Nothing)
    }

    /// Does what is left of the plan, and removes it. Returns the folders that hold what was there.
    pub(super) fn carry_out(&self, places: &Places) -> io::Result<Vec<PathBuf>> {
        let gone = self.old.iter().filter(|unit| !self.new.contains(unit));
        for unit in gone {
            self.set_aside(unit, places)?;
        }
        for unit in &self.new {
            let unpacked = stage::folder(unit.root, places).join(&unit.name);
            if unpacked.symlink_metadata().is_ok() {
                self.set_aside(unit, places)?;
                std::fs::rename(unpacked, unit.path(places))?;
            } else {
                // It is in its place, unless somebody has removed what was unpacked.
                unit.path(places).symlink_metadata()?;
            }
        }
        // The renames before the plan: without it, nobody would know that some of them are missing.
        for root in Root::ALL {
            File::open(root.folder(places))?.sync_all()?;
        }
        std::fs::remove_file(places.unfinished_restore())?;
        stage::remove(places)?;
        let asides = Root::ALL.map(|root| root.folder(places).join(&self.aside));
        Ok(asides.into_iter().filter(|aside| aside.is_dir()).collect())
    }

    fn set_aside(&self, unit: &Unit, places: &Places) -> io::Result<()> {
        let path = unit.path(places);
        if path.symlink_metadata().is_err() {
            return Ok(()); // it is there already, or never was
        }
        let aside = unit.root.folder(places).join(&self.aside);
        DirBuilder::new().recursive(true).mode(0o700).create(&aside)?;
        std::fs::rename(path, aside.join(&unit.name))?;
        File::open(&aside)?.sync_all()
    }
}

/// Fails if a system or a store uses these folders.
pub(super) fn check_stopped(places: &Places) -> Result<(), Error> {
    let refused = |what: &str| Error::conflict(what.to_owned()).hint("stop it first: ken down");
    let [kend, _] = places.locks();
    if is_locked(&kend) {
        return Err(refused("the system runs"));
    }
    if is_locked(&places.state.join("store/ken.db.lock")) {
        return Err(refused("a ken-store uses the database"));
    }
    Ok(())
}

fn is_locked(path: &Path) -> bool {
    File::open(path).is_ok_and(|file| matches!(file.try_lock_shared(), Err(std::fs::TryLockError::WouldBlock)))
}
