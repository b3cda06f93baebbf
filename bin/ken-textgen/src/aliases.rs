//! Model aliases: `MVLM_MODEL_DIRS` is `alias=path,alias=path,…`.

use std::path::PathBuf;

use ken_types::Error;

pub const VARIABLE: &str = "MVLM_MODEL_DIRS";

/// The aliases in their order; an entry that is not `alias=path` is named.
pub fn parse(list: &str) -> Result<Vec<(String, PathBuf)>, Error> {
    let entries = list.split(',').map(str::trim).filter(|entry| !entry.is_empty());
    entries.map(entry).collect()
}

fn entry(entry: &str) -> Result<(String, PathBuf), Error> {
    match entry
        .split_once('=')
        .map(|(alias, path)| (alias.trim(), path.trim()))
    {
        Some((alias, path)) if !alias.is_empty() && !path.is_empty() => {
            Ok((alias.to_owned(), PathBuf::from(path)))
        }
        _ => Err(Error::invalid(
            VARIABLE,
            format!("{VARIABLE}: {entry:?} is not alias=path"),
        )),
    }
}

/// The directory of an alias; without one, the first of the list.
pub fn find(list: &str, alias: Option<&str>) -> Result<PathBuf, Error> {
    let entries = parse(list)?;
    let Some(alias) = alias else {
        let first = entries.into_iter().next().map(|(_, path)| path);
        return first.ok_or_else(|| {
            let fault = "no model is named";
            Error::invalid("--model-dir", fault)
                .hint(format!("give --model-dir DIR, or --model ALIAS with {VARIABLE}"))
        });
    };
    let known: Vec<&str> = entries.iter().map(|(name, _)| name.as_str()).collect();
    let hint = if known.is_empty() {
        "it has none".to_owned()
    } else {
        format!("it has {}", known.join(", "))
    };
    let found = entries
        .iter()
        .find(|(name, _)| name == alias)
        .map(|(_, path)| path.clone());
    found.ok_or_else(|| {
        Error::not_found(format!("{VARIABLE} has no alias {alias:?}"))
            .at("--model")
            .hint(hint)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alias_is_found_and_the_first_is_the_default() {
        let list = "small=/models/a, large = /models/b=c ,";
        assert_eq!(find(list, Some("large")), Ok(PathBuf::from("/models/b=c")));
        assert_eq!(find(list, None), Ok(PathBuf::from("/models/a")));
        assert_eq!(
            find(list, Some("none")).unwrap_err().hint.as_deref(),
            Some("it has small, large")
        );
        assert!(find("", None).is_err());
        assert!(
            find("/models/a", Some("a"))
                .unwrap_err()
                .message
                .contains("not alias=path")
        );
    }
}
