//! Reads `secrets.env` beside ken.toml, for commands that a person runs. The daemon gets its keys from kend.

use std::collections::BTreeMap;

use ken_types::Error;
use ken_types::places::Places;
use ken_types::secrets;

/// Returns the settings of the file, by name. Empty if there is no file.
pub(crate) fn load() -> Result<BTreeMap<String, String>, Error> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let home = variable("KEN_HOME").map(std::path::PathBuf::from);
    let uid = nix::unistd::geteuid().as_raw();
    let places = Places::resolve(home.as_deref(), uid, |name| variable(name).map(Into::into));
    let Ok(file) = places.map(|places| places.secrets()) else {
        return Ok(BTreeMap::new());
    };
    let text = ken_trusted::secrets(&file)?;
    let settings = secrets::parse(&text).flatten();
    Ok(settings.map(|setting| (setting.name.to_owned(), setting.value.to_owned())).collect())
}
