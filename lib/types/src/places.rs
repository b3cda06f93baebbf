//! The directories of a system. This module reads no files.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::Error;

/// The maximum length of the path of a Unix socket. `sun_path` has 108 bytes, including a final NUL (unix(7)).
pub const MAX_SOCKET_PATH: usize = 107;

/// The name of the file that holds the secret of the gateway for its clients.
pub const CLIENT_SECRET: &str = "client.secret";

/// The folder of the sockets in the state directory of a user.
pub const RUN: &str = "run";

/// The names in the state directory of the locks by which one kend alone has it, and one process each part.
pub const LOCKS: [&str; 2] = ["kend.lock", "parts.lock"];

/// The directories and files of one system.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Places {
    /// Set if all directories are below this one.
    pub home: Option<PathBuf>,
    pub config: PathBuf,
    pub state: PathBuf,
    pub run: PathBuf,
}

impl Places {
    /// As [`Places::resolve`], with the effective user and the environment of this process.
    pub fn here(home: Option<&Path>) -> Result<Places, Error> {
        Places::resolve(home, nix::unistd::geteuid().as_raw(), |name| std::env::var_os(name).map(PathBuf::from))
    }

    /// As [`Places::here`], for a part and what it runs. kend passes the exact paths, which can differ from those below `KEN_HOME`.
    pub fn of_part(home: Option<&Path>) -> Result<Places, Error> {
        let mut places = Places::here(home)?;
        let passed = [
            (&mut places.config, "KEN_CONFIG"),
            (&mut places.state, "KEN_STATE_DIR"),
            (&mut places.run, "KEN_RUN_DIR"),
        ];
        for (place, name) in passed.into_iter().filter(|_| home.is_none()) {
            if let Some(path) = std::env::var_os(name).filter(|path| !path.is_empty()) {
                *place = path.into();
            }
        }
        Ok(places)
    }

    /// Uses `--home DIR`, else `KEN_HOME`, else one variable for each directory, else the defaults of the user or, for
    /// uid 0, of the system. A relative home is relative to the current directory. Fails if the path of a directory
    /// cannot be determined from these.
    pub fn resolve(home: Option<&Path>, uid: u32, env: impl Fn(&str) -> Option<PathBuf>) -> Result<Places, Error> {
        let set = |name: &str| env(name).filter(|path| !path.as_os_str().is_empty());
        if let Some(home) = home.map(Path::to_owned).or_else(|| set("KEN_HOME")) {
            let absolute = std::path::absolute(&home);
            let failed = |error| Error::invalid("--home", format!("{}: {error}", home.display()));
            return Ok(Places::under(&absolute.map_err(failed)?));
        }
        let user_home = || {
            set("HOME").ok_or_else(|| {
                Error::invalid("HOME", "neither HOME nor a place for ken is set").hint("give --home DIR")
            })
        };
        let config = match (set("KEN_CONFIG"), set("XDG_CONFIG_HOME"), set("HOME")) {
            (Some(file), _, _) => file,
            (None, Some(dir), _) if uid != 0 => dir.join("ken/ken.toml"),
            (None, None, Some(home)) if uid != 0 => home.join(".config/ken/ken.toml"),
            // Root, and a service user without a home directory, use the system-wide configuration.
            _ => PathBuf::from("/etc/ken/ken.toml"),
        };
        let state = match (set("KEN_STATE_DIR"), set("XDG_STATE_HOME")) {
            (Some(dir), _) => dir,
            _ if uid == 0 => PathBuf::from("/var/lib/ken"),
            (None, Some(dir)) => dir.join("ken"),
            (None, None) => user_home()?.join(".local/state/ken"),
        };
        let run = match set("KEN_RUN_DIR") {
            Some(dir) => dir,
            None if uid == 0 => PathBuf::from("/run/ken"),
            // Not in XDG_RUNTIME_DIR, which is removed when the user logs out: the system would run on and could not be reached.
            None => state.join(RUN),
        };
        Ok(Places { home: None, config, state, run })
    }

    fn under(home: &Path) -> Places {
        Places {
            home: Some(home.to_owned()),
            config: home.join("ken.toml"),
            state: home.join("state"),
            run: home.join("run"),
        }
    }

    /// Returns the path of `secrets.env`, which is in the directory of the configuration file.
    pub fn secrets(&self) -> PathBuf {
        self.config.with_file_name("secrets.env")
    }

    /// Returns the path of `client.secret`, which is beside `secrets.env`. It holds the secret of the gateway alone, so that a
    /// group of users can be allowed to read it.
    pub fn client_secret(&self) -> PathBuf {
        self.config.with_file_name(CLIENT_SECRET)
    }

    /// Returns the files and folders of ken itself. The folder of the configuration is one of them if it has nothing else in it.
    pub fn own(&self) -> Vec<PathBuf> {
        let tools = self.config.with_file_name("tools.d");
        let mut own = vec![self.state.clone(), self.config.clone(), self.secrets(), tools, self.run.clone()];
        own.extend(self.home.clone());
        own.extend(self.config.parent().filter(|folder| folder.ends_with("ken")).map(Path::to_owned));
        own
    }

    /// Returns the path of the socket of a part, or of kend.
    pub fn socket(&self, part: &str) -> PathBuf {
        self.run.join(format!("{part}.sock"))
    }

    /// Returns the path of the file that is there while a restore replaces the data. As long as it is, no system may start.
    pub fn unfinished_restore(&self) -> PathBuf {
        self.state.join(".restore/plan")
    }

    /// Returns the paths of the locks. They are beside the data that they protect, and not beside the sockets, because a folder of
    /// sockets can be removed or be another one.
    pub fn locks(&self) -> [PathBuf; 2] {
        LOCKS.map(|name| self.state.join(name))
    }

    /// Returns the path of the log file of a part, or of kend.
    pub fn log(&self, part: &str) -> PathBuf {
        self.state.join("log").join(format!("{part}.log"))
    }
}

/// Fails if a path is too long for a Unix socket.
pub fn check_socket_path(path: &Path) -> Result<(), Error> {
    let length = path.as_os_str().len();
    if length <= MAX_SOCKET_PATH {
        return Ok(());
    }
    Err(Error::invalid(
        path.display().to_string(),
        format!("the socket's path has {length} bytes, the system allows {MAX_SOCKET_PATH}"),
    )
    .hint("use a shorter --home, or set KEN_RUN_DIR to a short directory"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve(uid: u32, set: &[(&str, &str)]) -> Result<Places, Error> {
        Places::resolve(None, uid, |name| {
            set.iter().find(|(key, _)| *key == name).map(|(_, value)| PathBuf::from(value))
        })
    }

    #[test]
    fn home_holds_everything() {
        let places = Places::resolve(Some(Path::new("/h")), 0, |_| None).unwrap();
        assert_eq!(places.config, Path::new("/h/ken.toml"));
        assert_eq!(places.secrets(), Path::new("/h/secrets.env"));
        assert_eq!(places.socket("store"), Path::new("/h/run/store.sock"));
        assert_eq!(places.log("store"), Path::new("/h/state/log/store.log"));
    }

    #[test]
    fn defaults_of_a_user_of_root_and_of_the_environment() {
        let user = resolve(1000, &[("HOME", "/u"), ("XDG_RUNTIME_DIR", "/run/user/1000")]).unwrap();
        assert_eq!(user.config, Path::new("/u/.config/ken/ken.toml"));
        assert_eq!(user.state, Path::new("/u/.local/state/ken"));
        assert_eq!(user.run, Path::new("/u/.local/state/ken/run"));
        let root = resolve(0, &[("HOME", "/root"), ("XDG_RUNTIME_DIR", "/x")]).unwrap();
        assert_eq!(root.config, Path::new("/etc/ken/ken.toml"));
        assert_eq!(root.run, Path::new("/run/ken"));
        let set = resolve(0, &[("KEN_STATE_DIR", "/s"), ("KEN_RUN_DIR", "/r")]).unwrap();
        assert_eq!((set.state, set.run), ("/s".into(), "/r".into()));
        let user = resolve(1000, &[("HOME", "/u"), ("KEN_STATE_DIR", "/s"), ("KEN_RUN_DIR", "")]).unwrap();
        assert_eq!(user.run, Path::new("/s/run"));
    }

    #[test]
    fn a_user_without_a_home_directory_names_the_places() {
        let places = resolve(1000, &[("KEN_STATE_DIR", "/s"), ("KEN_RUN_DIR", "/r")]).unwrap();
        assert_eq!(places.config, Path::new("/etc/ken/ken.toml"));
        assert_eq!((places.state, places.run), ("/s".into(), "/r".into()));
        let places = resolve(1000, &[("KEN_STATE_DIR", "/s"), ("KEN_RUN_DIR", "/r"), ("KEN_CONFIG", "/c")]);
        assert_eq!(places.unwrap().config, Path::new("/c"));
        assert!(resolve(1000, &[("KEN_RUN_DIR", "/r")]).is_err(), "no state directory");
    }

    #[test]
    fn ken_home_is_a_home() {
        let places = resolve(1000, &[("KEN_HOME", "/k"), ("KEN_RUN_DIR", "/r")]).unwrap();
        assert_eq!(places, Places::under(Path::new("/k")));
        let given = Places::resolve(Some(Path::new("/h")), 0, |_| Some("/k".into())).unwrap();
        assert_eq!(given, Places::under(Path::new("/h")));
        let relative = resolve(1000, &[("KEN_HOME", "k")]).unwrap();
        assert!(relative.config.is_absolute() && relative.config.ends_with("k/ken.toml"));
    }

    #[test]
    fn a_socket_path_ends_at_107_bytes() {
        assert!(check_socket_path(Path::new(&"a".repeat(107))).is_ok());
        assert!(check_socket_path(Path::new(&"a".repeat(108))).is_err());
    }
}
