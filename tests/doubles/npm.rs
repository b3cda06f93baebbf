//! An installation of node in which npm is a double, and npx cannot be run.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

/// Puts it below a folder, as a person's version manager does, and returns the path of npx.
pub fn node(folder: &Path) -> PathBuf {
    let (bin, npm) = (folder.join("bin"), folder.join("lib/node_modules/npm"));
    std::fs::create_dir_all(&bin).unwrap();
    std::fs::create_dir_all(npm.join("bin")).unwrap();
    for (path, text) in [
        (npm.join("bin/npm-cli.js"), include_str!("npm.py")),
        (npm.join("mcp.py"), include_str!("mcp.py")),
        (bin.join("npx"), "#!/bin/false\n"),
    ] {
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    symlink("../lib/node_modules/npm/bin/npm-cli.js", bin.join("npm")).unwrap();
    bin.join("npx")
}
