//! Root works on the system of another user as that user.

use std::ffi::{OsStr, OsString};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use ken_types::Error;
use ken_types::places::Places;
use nix::unistd::{Gid, Uid, User, geteuid};

/// The variables that the owner's command gets from root. Others name folders of root or hold root's keys, which any program of the owner
/// could read there.
const KEPT: [&str; 6] = ["LANG", "NO_COLOR", "PATH", "SSL_CERT_FILE", "TERM", "TZ"];

/// The user to whom a state directory belongs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    pub uid: Uid,
    /// The group of this user, who need not own the folder by it: a folder that was given away by `chown USER` keeps that of root.
    pub gid: Gid,
    home: PathBuf,
}

impl Owner {
    /// Returns the user to whom the state directory belongs, if root runs this program and it belongs to another user.
    pub fn other(state: &Path) -> Option<Owner> {
        let meta = geteuid().is_root().then(|| std::fs::metadata(state).ok()).flatten()?;
        let uid = Uid::from_raw(meta.uid());
        let user = User::from_uid(uid).ok().flatten();
        // A user whom the list of users does not have must not get the group of root either.
        let group = if meta.gid() == 0 { meta.uid() } else { meta.gid() };
        let (gid, home) = user.map_or((Gid::from_raw(group), "/".into()), |user| (user.gid, user.dir));
        (!uid.is_root()).then_some(Owner { uid, gid, home })
    }
}

/// Runs this program again, with these arguments, as the user to whom the state directory belongs, if root runs it for the system of
/// another user. Returns if there is nothing to do, and with an error if that user cannot run it.
///
/// What root makes in a state directory, its owner could not change; root would follow links of that user, and run git among that
/// user's files; and root could read what the system itself cannot. As the owner, a command does and sees what the system does.
pub fn work_as_owner(places: &Places, args: impl IntoIterator<Item = OsString>) -> Result<(), Error> {
    let Some(Owner { uid, gid, home }) = Owner::other(&places.state) else { return Ok(()) };
    let failed = |error: std::io::Error| {
        Error::unavailable(format!("cannot be run as the user with id {uid}, whose system this is: {error}"))
            .hint("install ken where this user can run it")
    };
    let mut again = Command::new(std::env::current_exe().map_err(failed)?);
    // The places are those that root has found, and not those of this user. The supplementary groups of root are dropped.
    again.args(args).uid(uid.as_raw()).gid(gid.as_raw());
    again.env_clear().envs(std::env::vars_os().filter(|(name, _)| is_kept(name))).env("HOME", home);
    match &places.home {
        Some(home) => again.env("KEN_HOME", home),
        None => {
            again.env("KEN_CONFIG", &places.config).env("KEN_STATE_DIR", &places.state).env("KEN_RUN_DIR", &places.run)
        }
    };
    Err(failed(again.exec()))
}

fn is_kept(name: &OsStr) -> bool {
    let is_of_ken = |name: &str| name.starts_with("KEN_") && name != "KEN_API_SECRET";
    name.to_str().is_some_and(|name| KEPT.contains(&name) || name.starts_with("LC_") || is_of_ken(name))
}
