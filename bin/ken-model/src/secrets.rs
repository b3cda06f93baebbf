//! Keys for the commands that a person runs: `secrets.env` beside ken.toml. The daemon gets its keys from kend.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;

use ken_types::Error;
use ken_types::places::Places;

/// What the file says, by name; nothing where there is no file, or no place for one.
pub(crate) fn load() -> Result<BTreeMap<String, String>, Error> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let home = variable("KEN_HOME").map(std::path::PathBuf::from);
    let uid = nix::unistd::geteuid().as_raw();
    let places = Places::resolve(home.as_deref(), uid, |name| variable(name).map(Into::into));
    let Ok(file) = places.map(|places| places.secrets()) else {
        return Ok(BTreeMap::new());
    };
    let wrong = |why: String| Error::invalid(file.display().to_string(), why);
    let meta = match std::fs::metadata(&file) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(BTreeMap::new()),
        Err(error) => return Err(wrong(format!("it cannot be read: {error}"))),
        Ok(meta) => meta,
    };
    if !meta.is_file() {
        return Err(wrong("it is not a regular file".into()));
    }
    if meta.mode() & 0o077 != 0 {
        let hint = format!("chmod 600 {}", file.display());
        return Err(wrong("others can read it".into()).hint(hint));
    }
    let text =
        std::fs::read_to_string(&file).map_err(|error| wrong(format!("it cannot be read: {error}")))?;
    let lines = text.lines().map(str::trim).filter(|line| !line.starts_with('#'));
    let pairs = lines.filter_map(|line| line.split_once('='));
    Ok(pairs
        .map(|(name, value)| (name.trim().to_owned(), unquote(value.trim()).to_owned()))
        .collect())
}

fn unquote(value: &str) -> &str {
    let inside = |quote| value.strip_prefix(quote)?.strip_suffix(quote);
    inside('"').or_else(|| inside('\'')).unwrap_or(value)
}
