//! The other files of a skill: references to read, scripts to run.

use std::fs;
use std::path::Path;

use ken_types::Error;
use serde::Serialize;

use crate::sha256_hex;

/// The limits of one skill. All its files are read whenever one has changed, to see whether they are still what was accepted.
const MAX_FILES: usize = 128;
pub(crate) const MAX_DEPTH: usize = 4;
const ALL_FILES_BYTES: u64 = 1024 * 1024;

/// One file below the folder of a skill.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SkillFile {
    /// The path below the folder.
    pub path: String,
    pub bytes: u64,
    pub sha256: String,
}

/// Returns all files below a folder but the `SKILL.md` in it, sorted by path. What begins with a dot is passed over. Fails if
/// something is no regular file, or beyond the limits: a skill that cannot be read whole is not used.
pub(crate) fn beside(folder: &Path, skill_file: &str) -> Result<Vec<SkillFile>, Error> {
    let mut files = Vec::new();
    let mut left = ALL_FILES_BYTES;
    let mut folders = vec![(String::new(), 1)];
    while let Some((below, depth)) = folders.pop() {
        let unreadable = |error: std::io::Error| Error::invalid(below.clone(), error.to_string());
        for entry in fs::read_dir(folder.join(&below)).map_err(unreadable)? {
            let entry = entry.map_err(unreadable)?;
            let name = entry.file_name();
            let name = name.to_str().filter(|name| !name.chars().any(char::is_control));
            let name = name.ok_or_else(|| Error::invalid(below.clone(), "the name of a file is not plain text"))?;
            let path = if below.is_empty() { name.to_owned() } else { format!("{below}/{name}") };
            if name.starts_with('.') || path == skill_file {
                continue;
            }
            // Not followed, as in read_below.
            if entry.file_type().map_err(unreadable)?.is_dir() {
                if depth == MAX_DEPTH {
                    return Err(Error::invalid(path, format!("a skill has at most {MAX_DEPTH} levels of folders")));
                }
                folders.push((path, depth + 1));
                continue;
            }
            if files.len() == MAX_FILES {
                return Err(Error::invalid(path, format!("a skill has at most {MAX_FILES} files beside {skill_file}")));
            }
            let content = ken_trusted::read_below(folder, Path::new(&path), left);
            let content = content.map_err(|error| {
                let limit = format!("; the files of a skill have at most {ALL_FILES_BYTES} bytes together");
                let limit = if error.code == ken_types::Code::TooLarge { limit } else { String::new() };
                Error { message: format!("{}{limit}", error.message), ..error }.at(path.clone())
            })?;
            let bytes = content.len() as u64;
            left -= bytes;
            files.push(SkillFile { path, bytes, sha256: sha256_hex(&content) });
        }
    }
    files.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(files)
}

/// Returns the text whose digest stands for a skill with further files.
pub(crate) fn manifest(skill_file: &str, text: &str, files: &[SkillFile]) -> String {
    let first = format!("{} {skill_file}\n", sha256_hex(text.as_bytes()));
    files.iter().fold(first, |lines, file| format!("{lines}{} {}\n", file.sha256, file.path))
}
