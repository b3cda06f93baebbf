//! The upgrade of a running system: kend hands over to the program that is installed now, and then the parts whose programs have
//! been replaced start anew, one after the other. So do those for which files of the system have been replaced (system_files.rs).

use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::{Duration, Instant};

use ken_types::ops::kend::Upgraded;
use ken_types::{Code, Error};

use crate::handover::{self, Handover};
use crate::order;
use crate::part::Part;
use crate::system::System;

/// How long an upgrade waits until the logs are written: what waits in memory does not outlive the exec.
pub(crate) const UPGRADE_FLUSH_TIMEOUT: Duration = Duration::from_secs(1);
pub(crate) const DISK_STALLED: &str = "the disk with the logs stands still";

impl System {
    /// Asks the program that is installed now whether it can take over. If so, it does when the reply is sent.
    pub(crate) fn upgrade(&mut self, now: Instant) -> Result<Upgraded, Error> {
        if self.stopping || self.announcing {
            return Err(Error::unavailable("the system is being started or stopped"));
        }
        let is_busy = !self.upgrade.is_over() || self.commands.processes().next().is_some();
        if is_busy || self.parts.values().any(|part| part.removed) {
            return Err(Error::busy("another upgrade, a change or a report is under way", 1_000));
        }
        if self.writer.is_stalled(now) || !self.writer.flush(UPGRADE_FLUSH_TIMEOUT) {
            return Err(Error::unavailable(DISK_STALLED).hint("nothing has changed"));
        }
        // The parts then have the settings that the new program reads.
        self.reload().map_err(|errors| Error::new(Code::Invalid, errors.join("\n")).hint("nothing has changed"))?;
        let version = handover::check(&self.upgrade.program, &self.handover(now))?;
        self.upgrade.is_due = true;
        Ok(Upgraded { version, parts: self.affected(Part::is_outdated) })
    }

    /// What the next program needs to know, but for the sockets of kend itself.
    pub(crate) fn handover(&self, now: Instant) -> Handover {
        Handover {
            form: handover::FORM,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            places: self.places.clone(),
            source: self.source.clone(),
            background: false,
            next_mark: self.spawner.last_mark(),
            locks: self.locks.fds().map(|fd| fd.as_raw_fd()),
            control: -1,
            notify: -1,
            sockets: self.sockets.pack(),
            parts: self.parts.iter().map(|(name, part)| (name.clone(), part.pack(now))).collect(),
        }
    }

    /// The descriptors that the next program needs, but for the sockets of kend itself.
    pub(crate) fn fds(&self) -> Vec<BorrowedFd<'_>> {
        let parts = self.parts.values().flat_map(Part::fds);
        self.locks.fds().into_iter().chain(self.sockets.fds()).chain(parts).collect()
    }

    /// The wanted parts for which this holds, those first that the fewest others need: the store comes last.
    fn affected(&self, holds: impl Fn(&Part) -> bool) -> Vec<String> {
        let parts = self.parts.iter().filter(|(_, part)| part.wanted && holds(part));
        let mut names: Vec<String> = parts.map(|(name, _)| name.clone()).collect();
        names.sort_by_key(|name| order::requirers_of(&self.loaded.config.part, name).len());
        names
    }

    /// Called after a handover.
    pub(crate) fn begin_replacing(&mut self) {
        self.upgrade.left = self.affected(Part::is_outdated).into();
    }

    /// Called when files of the system have been replaced.
    pub(crate) fn follow_files(&mut self) {
        if !self.stopping {
            let affected = self.affected(Part::lacks_files);
            self.upgrade.left.retain(|name| !affected.contains(name));
            self.upgrade.left.extend(affected);
        }
    }

    /// Starts the next part anew when the last one is ready. If one does not get ready, the others go on as they are.
    pub(crate) fn replace_next(&mut self) {
        if let Some((name, starts)) = self.upgrade.current.take() {
            let part = self.parts.get(&name).filter(|part| part.wanted);
            if part.is_some_and(Part::cannot_become_ready) {
                self.upgrade.give_up();
                let text = "does not get ready; the parts that were to be started anew after it go on as they are";
                return self.journal.warn(Some(&name), text);
            }
            if part.is_some_and(|part| !part.is_ready() || part.starts <= starts) {
                self.upgrade.current = Some((name, starts));
                return;
            }
        }
        while let Some(name) = self.upgrade.left.pop_front() {
            let Some(part) = self.parts.get_mut(&name).filter(|part| part.wanted) else { continue };
            let why = if part.is_outdated() {
                "is started anew, because its program has been replaced"
            } else if part.lacks_files() {
                "is started anew, because a file of the system that it reads has been replaced"
            } else {
                continue;
            };
            (part.restart_wanted, part.setbacks) = (true, 0);
            self.upgrade.current = Some((name.clone(), part.starts));
            return self.journal.note(Some(&name), why);
        }
    }
}
