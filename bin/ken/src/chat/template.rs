//! Named prompt templates. `NAME.md` is looked for in the folder `templates` beside ken.toml, then in that of the
//! installation.

use std::collections::BTreeSet;
use std::path::PathBuf;

use ken_text::nearest;
use ken_types::Error;
use ken_types::limits::PROMPT_BYTES;
use ken_types::places::Places;
use ken_types::share;

use crate::input::read_text;

/// The placeholder for the message itself.
const INPUT: &str = "input";

/// Returns the template with its placeholders filled in. The message replaces `{{input}}`. If the template has no
/// `{{input}}`, the message is appended.
pub(super) fn filled(places: &Places, name: &str, params: &[(String, String)], input: &str) -> Result<String, Error> {
    let folders = folders(places);
    let path = folders.iter().map(|folder| folder.join(format!("{name}.md"))).find(|path| path.is_file());
    let path = path.filter(|_| is_name(name)).ok_or_else(|| unknown(&folders, name))?;
    let template = read_text("--template", &path, PROMPT_BYTES as u64)?;
    fill(template.trim_end(), params, input)
        .map_err(|what| Error::invalid("--param", format!("template {name}: {what}")))
}

/// Accepts letters, digits, `-` and `_` only, so that a name cannot be a path.
fn is_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
}

fn folders(places: &Places) -> Vec<PathBuf> {
    std::iter::once(places.config.with_file_name("templates")).chain(share::find("templates")).collect()
}

fn unknown(folders: &[PathBuf], name: &str) -> Error {
    let entries = folders.iter().filter_map(|folder| std::fs::read_dir(folder).ok()).flatten().flatten();
    let names: BTreeSet<String> =
        entries.filter_map(|entry| Some(entry.file_name().to_str()?.strip_suffix(".md")?.to_owned())).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let error = Error::invalid("--template", format!("there is no template `{name}`"));
    match nearest(name, names.iter().copied()) {
        Some(near) => error.hint(format!("did you mean `{near}`?")),
        None => error.hint(format!("there are: {}", names.join(", "))),
    }
}

/// Replaces each `{{name}}` by its value. Placeholders inside a value are not replaced.
fn fill(template: &str, params: &[(String, String)], input: &str) -> Result<String, String> {
    let mut filled = String::new();
    let mut used = BTreeSet::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once("{{") {
        let Some((name, after)) = after.split_once("}}") else {
            break;
        };
        filled.push_str(before);
        let name = name.trim();
        let value = params.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
        let value = value.or((name == INPUT).then_some(input));
        filled.push_str(value.ok_or_else(|| format!("`{name}` is missing: -p {name}=VALUE"))?);
        used.insert(name);
        rest = after;
    }
    filled.push_str(rest);
    if let Some((extra, _)) = params.iter().find(|(name, _)| !used.contains(name.as_str())) {
        return Err(format!("has no placeholder `{{{{{extra}}}}}`"));
    }
    if used.contains(INPUT) || input.is_empty() { Ok(filled) } else { Ok(format!("{filled}\n\n{input}")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders() {
        let params = [("to".to_owned(), "{{input}}".to_owned())];
        let fill = |template: &str, params: &[(String, String)]| fill(template, params, "words");
        assert_eq!(fill("A {{input}} b", &[]), Ok("A words b".into()));
        assert_eq!(fill("Do.", &[]), Ok("Do.\n\nwords".into()));
        assert_eq!(fill("{{ to }}: {{input}}", &params), Ok("{{input}}: words".into()));
        assert_eq!(fill("{{to}}", &[]), Err("`to` is missing: -p to=VALUE".into()));
        assert_eq!(fill("x", &params), Err("has no placeholder `{{to}}`".into()));
        assert_eq!(fill("a {{ b", &[]), Ok("a {{ b\n\nwords".into()));
    }
}
