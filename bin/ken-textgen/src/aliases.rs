//! Model aliases: `MVLM_MODEL_DIRS` is `alias:directory,…`, and `ACTIVE_MVLM_MODEL` is the alias of the default model.

use std::path::PathBuf;

use ken_types::Error;
use ken_types::places::Places;
use serde::Serialize;

const DIRS: &str = "MVLM_MODEL_DIRS";
const ACTIVE: &str = "ACTIVE_MVLM_MODEL";

/// The configured models.
#[derive(Debug, Default)]
pub struct Aliases {
    entries: Vec<(String, PathBuf)>,
    /// The alias of the default model.
    active: Option<String>,
    /// The variable or the file that names it.
    active_from: String,
}

/// One model, for listing.
#[derive(Debug, PartialEq, Serialize)]
pub struct Alias<'a> {
    pub alias: &'a str,
    pub path: String,
    pub active: bool,
}

impl Aliases {
    pub fn from_environment() -> Result<Aliases, Error> {
        let variable = |name: &str| std::env::var(name).unwrap_or_default();
        match activated() {
            Some((active, file)) => {
                let aliases = Aliases::parse(&variable(DIRS), &active)?;
                Ok(Aliases { active_from: file.display().to_string(), ..aliases })
            }
            None => Aliases::parse(&variable(DIRS), &variable(ACTIVE)),
        }
    }

    /// Reads the two variables; an empty one counts as unset. Returns an error that names an entry which is not
    /// `alias:directory`, or whose alias is already taken.
    pub fn parse(list: &str, active: &str) -> Result<Aliases, Error> {
        let mut aliases = Aliases { active_from: ACTIVE.to_owned(), ..Aliases::default() };
        for text in list.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
            let (alias, path) = entry(text)?;
            if aliases.path(&alias).is_some() {
                return Err(Error::invalid(DIRS, format!("{DIRS} has the alias {alias:?} twice")));
            }
            aliases.entries.push((alias, path));
        }
        aliases.active = Some(active.trim().to_owned()).filter(|name| !name.is_empty());
        Ok(aliases)
    }

    /// All models, in the order of the variable.
    pub fn list(&self) -> impl Iterator<Item = Alias<'_>> {
        let first = self.entries.first().map(|(alias, _)| alias);
        let active = self.active.as_ref().or(first);
        self.entries.iter().map(move |(alias, path)| Alias {
            alias,
            path: path.display().to_string(),
            active: Some(alias) == active,
        })
    }

    /// The directory of an alias; without one, that of the active alias or of the first.
    pub fn find(&self, alias: Option<&str>) -> Result<PathBuf, Error> {
        let named = match alias {
            Some(alias) => Some((alias, "--model")),
            None => self.active.as_deref().map(|alias| (alias, self.active_from.as_str())),
        };
        match named {
            Some((alias, at)) => self.path(alias).ok_or_else(|| self.unknown(alias).at(at)),
            None => self.first(),
        }
    }

    fn path(&self, alias: &str) -> Option<PathBuf> {
        let found = self.entries.iter().find(|(name, _)| name == alias);
        found.map(|(_, path)| path.clone())
    }

    fn first(&self) -> Result<PathBuf, Error> {
        let first = self.entries.first().map(|(_, path)| path.clone());
        first.ok_or_else(|| {
            Error::invalid("--model-dir", "no model is named")
                .hint(format!("give --model-dir DIR, or --model ALIAS with {DIRS}"))
        })
    }

    fn unknown(&self, alias: &str) -> Error {
        let known: Vec<&str> = self.entries.iter().map(|(name, _)| name.as_str()).collect();
        let hint = if known.is_empty() { "it has none".to_owned() } else { format!("it has {}", known.join(", ")) };
        Error::not_found(format!("{DIRS} has no alias {alias:?}")).hint(hint)
    }
}

/// The alias that was activated over HTTP (ken-cognitive(8)), which takes precedence over the configuration, and its file. `None`
/// if there is none or no state directory.
fn activated() -> Option<(String, PathBuf)> {
    let file = Places::of_part(None).ok()?.state.join("models/active_model");
    Some((std::fs::read_to_string(&file).ok()?, file))
}

/// Splits at the first colon or equals sign: `alias=directory` is accepted as well.
fn entry(entry: &str) -> Result<(String, PathBuf), Error> {
    let parts = entry.split_once([':', '=']);
    match parts.map(|(alias, path)| (alias.trim(), path.trim())) {
        Some((alias, path)) if !alias.is_empty() && !path.is_empty() => Ok((alias.to_owned(), PathBuf::from(path))),
        _ => Err(Error::invalid(DIRS, format!("{DIRS}: {entry:?} is not alias:directory"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "small:/models/a, large = /models/b=c ,";

    #[test]
    fn an_alias_is_found_and_the_first_is_the_default() {
        let aliases = Aliases::parse(LIST, "").unwrap();
        assert_eq!(aliases.find(Some("large")), Ok(PathBuf::from("/models/b=c")));
        assert_eq!(aliases.find(None), Ok(PathBuf::from("/models/a")));
        let unknown = aliases.find(Some("none")).unwrap_err();
        assert_eq!(unknown.hint.as_deref(), Some("it has small, large"));
        assert!(Aliases::default().find(None).is_err());
    }

    #[test]
    fn the_active_one_goes_before_the_first() {
        let aliases = Aliases::parse(LIST, "large").unwrap();
        assert_eq!(aliases.find(None), Ok(PathBuf::from("/models/b=c")));
        let active: Vec<bool> = aliases.list().map(|alias| alias.active).collect();
        assert_eq!(active, [false, true]);
        let unknown = Aliases::parse(LIST, "other").unwrap().find(None).unwrap_err();
        assert_eq!(unknown.at.as_deref(), Some(ACTIVE));
    }

    #[test]
    fn an_entry_is_split_at_its_first_separator() {
        for (entry, path) in
            [("m:/models/m", "/models/m"), ("m=/models/m", "/models/m"), ("m : /a:b=c", "/a:b=c"), ("m=/a:b", "/a:b")]
        {
            let found = Aliases::parse(entry, "").unwrap().find(Some("m"));
            assert_eq!(found, Ok(PathBuf::from(path)), "{entry}");
        }
    }

    #[test]
    fn a_malformed_list_is_refused() {
        for (list, part) in [
            ("/models/a", "\"/models/a\" is not alias:directory"),
            (":/models/a", "not alias:directory"),
            ("a:/x,a=/y", "twice"),
        ] {
            assert!(Aliases::parse(list, "").unwrap_err().message.contains(part));
        }
    }
}
